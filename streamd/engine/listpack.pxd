# cython: language_level=3
"""Listpacks: Redis's packed list of strings and integers, byte for byte. See listpack.pyx.

The readers trust the bytes they walk: bytes from outside go through lp_validate first.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp

from streamd.numbers cimport read_int64


cdef enum:
    LP_HEADER = 6              # bytes before the first element
    LP_END = 0xFF              # the byte after the last element
    LP_COUNT_UNKNOWN = 65535   # in the header: the elements must be counted
    LP_SHORTEST_CONVERTED = 16384      # bytes of the shortest listpack that lp_convert may change
    LP_ROOM = 10               # maximum overhead of an element over its string; 10 bytes in all for an integer


cdef struct LpValue:
    # One element, as stored.
    const uint8_t *data        # bytes of a string, borrowed from the listpack; NULL: it is an integer
    uint64_t length            # of a string, in bytes
    int64_t number             # the integer


# --- Writing: no function checks for room -----------------------------------------------------------------------------

cdef uint8_t *lp_put_int(uint8_t *p, int64_t value) noexcept nogil                 # returns the end
cdef uint8_t *lp_put_string(uint8_t *p, const uint8_t *s, size_t n) noexcept nogil  # always as a string
cdef uint8_t *lp_put(uint8_t *p, const uint8_t *s, size_t n) noexcept nogil        # as an integer if it is one
cdef size_t lp_int_size(int64_t value) noexcept nogil                              # bytes that lp_put_int writes
cdef void lp_set_header(uint8_t *lp, size_t total, uint64_t count) noexcept nogil
cdef uint8_t *lp_end_at(uint8_t *lp, uint8_t *end, uint64_t added) noexcept nogil
    # Terminate the listpack with the end byte at `end`, after adding `added` elements; returns `end`.
cdef int64_t lp_replace_int(uint8_t *lp, uint8_t *at, int64_t value) noexcept nogil
    # Replace the integer at `at`; what follows moves by the returned number of bytes (-8 .. 8).

# --- Checking untrusted bytes -------------------------------------------------------------------------------------

cdef const char *lp_validate(const uint8_t *lp, size_t size, size_t *offset) noexcept nogil
    # NULL when the bytes are a valid listpack; otherwise what is wrong at `offset`.

cdef int lp_convert(
    const uint8_t *lp, size_t size, bint narrow, uint8_t **converted, size_t *converted_size) noexcept nogil
    # Back-lengths as Redis 8.8 writes them (narrow), or as older releases do. 1: a malloc'ed copy; 0: nothing to
    # change, or the bytes are not a listpack; -1: out of memory.

# --- Reading ------------------------------------------------------------------------------------------------------


cdef inline uint32_t lp_load32(const uint8_t *p) noexcept nogil:
    return p[0] | <uint32_t>p[1] << 8 | <uint32_t>p[2] << 16 | <uint32_t>p[3] << 24


cdef inline uint64_t lp_load64(const uint8_t *p) noexcept nogil:
    return lp_load32(p) | <uint64_t>lp_load32(p + 4) << 32


cdef inline size_t lp_bytes(const uint8_t *lp) noexcept nogil:
    """Size of the whole listpack."""
    return lp_load32(lp)


cdef inline uint32_t lp_header_count(const uint8_t *lp) noexcept nogil:
    """Number of elements, or LP_COUNT_UNKNOWN."""
    return lp[4] | <uint32_t>lp[5] << 8


cdef inline unsigned int lp_backlen_size(uint64_t n) noexcept nogil:
    """Size of the back-length of an element of `n` encoded bytes: 1 to 5."""
    # The bounds above 127 are exclusive in Redis: 16383 is written 00 ff ff although 7f ff would do. A file must match
    # byte for byte, so keep the '<'.
    if n <= 127:
        return 1
    if n < 16383:
        return 2
    if n < 2097151:
        return 3
    if n < 268435455:
        return 4
    return 5


cdef inline uint64_t lp_encoded_size(const uint8_t *p) noexcept nogil:
    """Size of the element at `p` without its back-length."""
    cdef uint8_t b = p[0]
    if b < 0x80:
        return 1
    if b < 0xC0:
        return 1 + (b & 0x3F)
    if b < 0xE0:
        return 2
    if b < 0xF0:
        return 2 + (<uint64_t>(b & 0x0F) << 8 | p[1])
    if b == 0xF0:
        return 5 + <uint64_t>lp_load32(p + 1)
    if b == 0xF4:
        return 9
    return 2 + (b & 0x0F)      # F1, F2, F3: 2, 3, 4 bytes after the first


cdef extern from *:
    """
    /* Bytes of a whole element by its first byte, back-length included; 0: its length follows. */
    #define LP_ROW(a) a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a
    #define LP_TEXT(a) a + 2, a + 3, a + 4, a + 5, a + 6, a + 7, a + 8, a + 9, \\
        a + 10, a + 11, a + 12, a + 13, a + 14, a + 15, a + 16, a + 17
    static const unsigned char streamd_lp_sizes[256] = {
        LP_ROW(2), LP_ROW(2), LP_ROW(2), LP_ROW(2), LP_ROW(2), LP_ROW(2), LP_ROW(2), LP_ROW(2),
        LP_TEXT(0), LP_TEXT(16), LP_TEXT(32), LP_TEXT(48),
        LP_ROW(3), LP_ROW(3), LP_ROW(0), 0, 4, 5, 6, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
    };
    """
    const unsigned char *LP_SIZES "streamd_lp_sizes"


cdef inline const uint8_t *lp_skip(const uint8_t *p) noexcept nogil:
    """The element after the one at `p`, or the end byte."""
    cdef uint64_t n = LP_SIZES[p[0]]
    if n:
        return p + n
    n = lp_encoded_size(p)
    return p + n + lp_backlen_size(n)


cdef inline const uint8_t *lp_previous(const uint8_t *p) noexcept nogil:
    """The element before `p`: an element other than the first, or the end byte of a non-empty listpack."""
    cdef uint64_t n = 0
    cdef unsigned int shift = 0
    p -= 1
    while True:
        n |= <uint64_t>(p[0] & 127) << shift
        if not p[0] & 128:
            break
        shift += 7
        p -= 1
    return p - n


cdef inline const uint8_t *lp_get(const uint8_t *p, LpValue *out) noexcept nogil:
    """Read the element at `p` into `out`; returns the next element, or the end byte."""
    cdef uint8_t b = p[0]
    if b < 0x80:
        out.data = NULL
        out.number = b
        return p + 2
    if b < 0xC0:
        out.data = p + 1
        out.length = b & 0x3F
        return p + 2 + (b & 0x3F)
    if b < 0xE0:
        out.data = NULL
        out.number = ((<int64_t>(b & 0x1F) << 8 | p[1]) ^ 4096) - 4096
        return p + 3
    if b < 0xF0:
        out.data = p + 2
        out.length = <uint64_t>(b & 0x0F) << 8 | p[1]
        return p + 2 + out.length + lp_backlen_size(2 + out.length)
    if b == 0xF0:
        out.data = p + 5
        out.length = lp_load32(p + 1)
        return p + 5 + out.length + lp_backlen_size(5 + out.length)
    out.data = NULL
    if b == 0xF1:
        out.number = ((<int64_t>p[1] | <int64_t>p[2] << 8) ^ 0x8000) - 0x8000
        return p + 4
    if b == 0xF2:
        out.number = ((<int64_t>p[1] | <int64_t>p[2] << 8 | <int64_t>p[3] << 16) ^ 0x800000) - 0x800000
        return p + 5
    if b == 0xF3:
        out.number = <int32_t>lp_load32(p + 1)
        return p + 6
    out.number = <int64_t>lp_load64(p + 1)
    return p + 10


cdef inline const uint8_t *lp_get_int(const uint8_t *p, int64_t *out) noexcept nogil:
    """Read the integer at `p`; returns the next element, or the end byte."""
    cdef LpValue value
    p = lp_get(p, &value)
    out[0] = value.number
    return p


cdef inline bint lp_equals(const LpValue *value, const uint8_t *s, size_t n) noexcept nogil:
    """Whether the element's text is `s`."""
    cdef int64_t number
    if value.data is not NULL:
        return value.length == n and memcmp(value.data, s, n) == 0
    return read_int64(<const char *>s, n, &number) and number == value.number
