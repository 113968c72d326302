# cython: language_level=3
"""Decimal digits: the one writer and the one reader of integers in their canonical form.

    from streamd.numbers cimport put_uint64, read_int64

Canonical is exactly what the writer produces: `0`, or digits that do not start with 0, after a `-` when the number is
negative. So `+1`, `-0`, `007` and ` 1` are text. Redis applies the same rule to arguments and to values stored as
integers. Readers of other forms live where the form is used, and say which it is: an entry ID may have leading zeros
(core/args), an append-only file is read as C's strtol would (persistence/aof/reader), a value of Spark may have spaces
around it.

Nothing here needs the GIL, allocates or fails; the caller of a writer must provide the room.
"""

from libc.stdint cimport INT64_MAX, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from *:
    """
    static const char streamd_digit_pairs[] =
        "00010203040506070809" "10111213141516171819" "20212223242526272829" "30313233343536373839"
        "40414243444546474849" "50515253545556575859" "60616263646566676869" "70717273747576777879"
        "80818283848586878889" "90919293949596979899";
    static const unsigned long long streamd_powers_of_ten[] = {
        1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000, 1000000000, 10000000000, 100000000000,
        1000000000000, 10000000000000, 100000000000000, 1000000000000000, 10000000000000000, 100000000000000000,
        1000000000000000000, 10000000000000000000u };
    """
    const char *DIGIT_PAIRS "streamd_digit_pairs"
    const unsigned long long *POWERS_OF_TEN "streamd_powers_of_ten"
    int leading_zeros "__builtin_clzll"(unsigned long long value) noexcept nogil
    bint unlikely(bint condition) noexcept nogil

cdef enum:
    INT64_ROOM = 20     # most characters of a 64-bit number, signed or not
    LINE_ROOM = 23      # ... with a marker before it and a line end after it


# --- Writing ----------------------------------------------------------------------------------------------------------


cdef inline size_t count_digits(uint64_t value) noexcept nogil:
    """How many digits `value` has, 1 to 20."""
    # 1233 / 4096 is log10(2), near enough: a number of b bits has that many digits, or one more.
    cdef size_t digits = <size_t>((64 - leading_zeros(value | 1)) * 1233) >> 12
    return digits + ((value | 1) >= POWERS_OF_TEN[digits])


cdef inline void put_pair(char *p, uint32_t pair) noexcept nogil:
    """Write a number below 100 as two digits."""
    memcpy(p, DIGIT_PAIRS + 2 * pair, 2)


cdef inline void put_digits(char *p, uint64_t value, size_t n) noexcept nogil:
    """Write the n lowest digits of `value`, padded with zeros: eight at a time, then two, then one."""
    cdef uint32_t low, high
    while n > 8:
        low = <uint32_t>(value % 100000000)
        value //= 100000000
        n -= 8
        high = low // 10000
        low %= 10000
        put_pair(p + n, high // 100)
        put_pair(p + n + 2, high % 100)
        put_pair(p + n + 4, low // 100)
        put_pair(p + n + 6, low % 100)
    low = <uint32_t>value
    while n > 1:
        n -= 2
        put_pair(p + n, low % 100)
        low //= 100
    if n:
        p[0] = <char>(c'0' + low)


cdef inline size_t put_uint64(char *p, uint64_t value) noexcept nogil:
    """Write `value` at p, at most INT64_ROOM characters; returns how many."""
    cdef size_t n = count_digits(value)
    put_digits(p, value, n)
    return n


cdef inline size_t put_int64(char *p, int64_t value) noexcept nogil:
    """Write `value` at p, at most INT64_ROOM characters; returns how many."""
    if value >= 0:
        return put_uint64(p, <uint64_t>value)
    p[0] = c'-'
    return 1 + put_uint64(p + 1, 0 - <uint64_t>value)      # unsigned, so that the smallest value can be negated


cdef inline size_t put_line(char *p, char marker, int64_t value) noexcept nogil:
    """Write marker, number and line end, such as `*12\\r\\n`, at most LINE_ROOM characters; returns how many."""
    cdef size_t n
    p[0] = marker
    if 0 <= value <= 9:
        p[1] = <char>(c'0' + value)
        n = 2
    elif unlikely(not 0 <= value <= 99):    # a call, so that all of this stays short enough to be inlined
        n = 1 + put_int64(p + 1, value)
    else:
        put_pair(p + 1, <uint32_t>value)
        n = 3
    p[n] = c'\r'
    p[n + 1] = c'\n'
    return n + 2


cdef inline char *put_header(char *p, char marker, uint64_t n) noexcept nogil:
    """Like put_line, for the inner loops of writers, where n is mostly below 100; returns the end."""
    p[0] = marker
    if n < 10:
        p[1] = <char>(c'0' + n)
        p += 2
    elif unlikely(n >= 100):        # kept off the fast path: it takes many registers
        p += 1 + put_uint64(p + 1, n)
    else:
        put_pair(p + 1, <uint32_t>n)
        p += 3
    p[0] = c'\r'
    p[1] = c'\n'
    return p + 2


# --- Reading ----------------------------------------------------------------------------------------------------------


cdef inline bint read_int64(const char *p, size_t n, int64_t *out) noexcept nogil:
    """Read n characters as a signed 64-bit integer in canonical form; False when they are anything else."""
    cdef const char *end = p + n
    cdef uint64_t value = 0
    cdef uint64_t limit = <uint64_t>INT64_MAX
    cdef unsigned int digit
    cdef bint negative
    if n == 0 or n > INT64_ROOM:
        return False
    if n == 1 and p[0] == c'0':
        out[0] = 0
        return True
    negative = p[0] == c'-'
    if negative:
        limit += 1
        p += 1
    if p == end or not c'1' <= p[0] <= c'9' or end - p > 19:
        return False
    while p < end:     # nineteen digits cannot overflow
        digit = <unsigned int><unsigned char>p[0] - c'0'
        if digit > 9:
            return False
        value = value * 10 + digit
        p += 1
    if value > limit:
        return False
    out[0] = <int64_t>(0 - value) if negative else <int64_t>value
    return True
