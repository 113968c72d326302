# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Listpacks: Redis's packed list of strings and integers, byte for byte.

    +-------------+-----------+---------+---------+-----+------+
    | total bytes |  number   | element | element | ... |  ff  |     numbers are little endian; an element count of
    |   4 bytes   |  2 bytes  |         |         |     |      |     65535 means that they must be counted
    +-------------+-----------+---------+---------+-----+------+

    |<------------- n bytes ------------>|<- 1 to 5 bytes ->|      "a"  ->  81 61 02
    +---------------+--------------------+------------------+      100  ->  64 01
    | encoding byte | integer, or length |  back-length: n  |      n is split into groups of seven bits, highest group
    |               | and string bytes   |                  |      first; all bytes but the first carry bit 128, so
    +---------------+--------------------+------------------+      that a reader from the right knows when to stop

    first byte                     element
    0vvvvvvv                       integer 0 .. 127
    10nnnnnn                       string of n bytes, 0 .. 63
    110vvvvv vvvvvvvv              integer -4096 .. 4095, two's complement, high bits first
    1110nnnn nnnnnnnn              string of n bytes, 64 .. 4095, high bits first
    f0 and 4 bytes                 string of n bytes, from 4096
    f1, f2, f3, f4 and 2, 3, 4, 8  integer of that many bytes

Writers use the shortest encoding, and store a string as an integer exactly when it is the canonical decimal form of an
int64; readers take any. The readers are in listpack.pxd, so that they are compiled into the loops that use them.
Caller: stream.pyx.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from streamd.heap cimport malloc
from streamd.numbers cimport read_int64
from libc.string cimport memcpy, memmove

__all__ = []


# --- Writing ----------------------------------------------------------------------------------------------------------


cdef inline uint8_t *put_backlen(uint8_t *p, uint64_t n) noexcept nogil:
    """Write the back-length of an element of `n` bytes; returns its end."""
    if n <= 127:
        p[0] = <uint8_t>n
        return p + 1
    return put_backlen_in(p, n, lp_backlen_size(n))


cdef inline uint8_t *put_backlen_in(uint8_t *p, uint64_t n, unsigned int size) noexcept nogil:
    """As above, in `size` bytes, which must suffice."""
    cdef unsigned int i
    for i in range(size):
        p[size - 1 - i] = <uint8_t>((n >> (7 * i)) & 127) | 128
    p[0] &= 127
    return p + size


cdef uint8_t *lp_put_int(uint8_t *p, int64_t value) noexcept nogil:
    cdef unsigned int size, i
    cdef uint64_t bits = <uint64_t>value
    if 0 <= value <= 127:
        p[0] = <uint8_t>value
        p[1] = 1
        return p + 2
    if -4096 <= value <= 4095:
        p[0] = 0xC0 | (<uint8_t>(bits >> 8) & 0x1F)
        p[1] = <uint8_t>bits
        p[2] = 2
        return p + 3
    if -0x8000 <= value <= 0x7FFF:
        p[0] = 0xF1
        size = 2
    elif -0x800000 <= value <= 0x7FFFFF:
        p[0] = 0xF2
        size = 3
    elif -0x80000000LL <= value <= 0x7FFFFFFFLL:
        p[0] = 0xF3
        size = 4
    else:
        p[0] = 0xF4
        size = 8
    for i in range(size):
        p[1 + i] = <uint8_t>(bits >> (8 * i))
    p[1 + size] = <uint8_t>(1 + size)
    return p + 2 + size


cdef size_t lp_int_size(int64_t value) noexcept nogil:
    if 0 <= value <= 127:
        return 2
    if -4096 <= value <= 4095:
        return 3
    if -0x8000 <= value <= 0x7FFF:
        return 4
    if -0x800000 <= value <= 0x7FFFFF:
        return 5
    if -0x80000000LL <= value <= 0x7FFFFFFFLL:
        return 6
    return 10


cdef uint8_t *lp_put_string(uint8_t *p, const uint8_t *s, size_t n) noexcept nogil:
    cdef unsigned int head, i
    if n < 64:
        p[0] = 0x80 | <uint8_t>n
        head = 1
    elif n < 4096:
        p[0] = 0xE0 | <uint8_t>(n >> 8)
        p[1] = <uint8_t>n
        head = 2
    else:
        p[0] = 0xF0
        for i in range(4):
            p[1 + i] = <uint8_t>(n >> (8 * i))
        head = 5
    memcpy(p + head, s, n)
    return put_backlen(p + head + n, head + n)


cdef uint8_t *lp_put(uint8_t *p, const uint8_t *s, size_t n) noexcept nogil:
    cdef int64_t number
    if read_int64(<const char *>s, n, &number):
        return lp_put_int(p, number)
    return lp_put_string(p, s, n)


cdef void lp_set_header(uint8_t *lp, size_t total, uint64_t count) noexcept nogil:
    lp[0] = <uint8_t>total
    lp[1] = <uint8_t>(total >> 8)
    lp[2] = <uint8_t>(total >> 16)
    lp[3] = <uint8_t>(total >> 24)
    if count > LP_COUNT_UNKNOWN:
        count = LP_COUNT_UNKNOWN
    lp[4] = <uint8_t>count
    lp[5] = <uint8_t>(count >> 8)


cdef uint8_t *lp_end_at(uint8_t *lp, uint8_t *end, uint64_t added) noexcept nogil:
    end[0] = LP_END
    # An unknown count stays unknown: it only grows.
    lp_set_header(lp, end - lp + 1, lp_header_count(lp) + added)
    return end


cdef int64_t lp_replace_int(uint8_t *lp, uint8_t *at, int64_t value) noexcept nogil:
    cdef size_t total = lp_bytes(lp)
    cdef uint8_t *rest = <uint8_t *>lp_skip(at)
    cdef int64_t moved = <int64_t>lp_int_size(value) - (rest - at)
    if moved:
        memmove(rest + moved, rest, lp + total - rest)
        lp_set_header(lp, total + moved, lp_header_count(lp))
    lp_put_int(at, value)
    return moved


# --- Checking untrusted bytes -------------------------------------------------------------------------------------


cdef const char *lp_validate(const uint8_t *lp, size_t size, size_t *offset) noexcept nogil:
    """Walk all elements: lengths within bounds, back-lengths correct, their count as in the header."""
    cdef const uint8_t *p = lp + LP_HEADER
    cdef const uint8_t *last = lp + size - 1
    cdef uint64_t n, left, number = 0
    cdef unsigned int head
    offset[0] = 0
    if size < LP_HEADER + 1:
        return b"listpack is shorter than its header"
    if lp_bytes(lp) != size:
        return b"listpack size is not the size in its header"
    if last[0] != LP_END:
        offset[0] = size - 1
        return b"listpack does not end with its end byte"
    while p < last:
        offset[0] = p - lp
        left = last - p
        if p[0] >= 0xF5:
            return b"unknown listpack encoding"
        head = 1 if p[0] < 0xC0 else 2 if p[0] < 0xF0 else 5 if p[0] == 0xF0 else 1
        if head > left:
            return b"listpack element goes past the end"
        n = lp_encoded_size(p)
        head = lp_backlen_size(n)
        if n + head > left:
            return b"listpack element goes past the end"
        if not backlen_is(p + n, head, n):
            offset[0] = p + n - lp
            return b"wrong back-length of a listpack element"
        p += n + head
        number += 1
    offset[0] = 4
    if lp_header_count(lp) != LP_COUNT_UNKNOWN and lp_header_count(lp) != number:
        return b"wrong number of elements in the listpack header"
    return NULL


cdef bint backlen_is(const uint8_t *p, unsigned int size, uint64_t n) noexcept nogil:
    """Whether the `size` bytes at `p` are the back-length `n`."""
    cdef uint8_t want[5]
    cdef unsigned int i
    put_backlen(want, n)
    for i in range(size):
        if p[i] != want[i]:
            return False
    return True


# --- Back-lengths of Redis 8.8 ------------------------------------------------------------------------------------

# Redis 8.8 and Valkey 9.1 write three back-lengths in one byte less, which is enough, and accept no other form:
#
#     element of 16383 bytes     00 ff ff  ->  7f ff             a string of 16378 bytes
#     2097151                 00 ff ff ff  ->  7f ff ff                     2097146
#     268435455            00 ff ff ff ff  ->  7f ff ff ff                  268435450
#
# In memory all are wide. The first byte tells which form it is.


cdef inline bint has_two_widths(uint64_t n) noexcept nogil:
    return n == 16383 or n == 2097151 or n == 268435455


cdef int lp_convert(
    const uint8_t *lp, size_t size, bint narrow, uint8_t **converted, size_t *converted_size
) noexcept nogil:
    """Write back-lengths that have two forms in one of them. The bytes need not be a listpack."""
    cdef const uint8_t *p = lp + LP_HEADER
    cdef const uint8_t *last = lp + size - 1
    cdef const uint8_t *copied = lp
    cdef uint8_t *out
    cdef uint64_t n, left
    cdef size_t changed = 0
    cdef unsigned int wide
    cdef int times
    for times in range(2):       # count first, then write
        p = lp + LP_HEADER
        while p < last:
            left = <uint64_t>(last - p)
            if p[0] >= 0xF5 or left < (5 if p[0] == 0xF0 else 2):
                return 0
            n = lp_encoded_size(p)
            wide = lp_backlen_size(n)
            if n + 1 > left:
                return 0
            p += n
            if not has_two_widths(n):
                p += wide
                continue
            if (p[0] == 0x7F) == narrow:
                p += wide - 1 if narrow else wide
                continue
            if times == 0:
                changed += 1
            else:
                memcpy(out, copied, <size_t>(p - copied))
                out = put_backlen_in(out + (p - copied), n, wide - 1 if narrow else wide)
                copied = p + (wide if narrow else wide - 1)
            p += wide if narrow else wide - 1
        if p != last or changed == 0:
            return 0
        if times == 0:
            converted_size[0] = size - changed if narrow else size + changed
            if converted_size[0] > <size_t>0xFFFFFFFF:
                return 0
            converted[0] = out = <uint8_t *>malloc(converted_size[0])
            if out is NULL:
                return -1
    memcpy(out, copied, <size_t>(lp + size - copied))
    lp_set_header(converted[0], converted_size[0], lp_header_count(lp))
    return 1
