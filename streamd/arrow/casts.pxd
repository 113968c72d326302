# cython: language_level=3
"""Texts to values; see casts.pyx. All functions are false for a text that is no such value."""

from libc.stdint cimport int64_t, uint64_t

cdef extern from *:
    ctypedef unsigned long long uint128_t "unsigned __int128"   # the compiler knows its true width


cdef inline bint is_digit(char c) noexcept nogil:
    return c'0' <= c <= c'9'


cdef inline bint is_space(char c) noexcept nogil:
    return c == c' ' or c'\t' <= c <= c'\r'


cdef inline void trim(const char **p, size_t *n) noexcept nogil:
    """Leave out white space at both ends."""
    while n[0] > 0 and is_space(p[0][0]):
        p[0] += 1
        n[0] -= 1
    while n[0] > 0 and is_space(p[0][n[0] - 1]):
        n[0] -= 1


cdef inline bint read_unsigned(const char *p, size_t n, uint64_t *out) noexcept nogil:
    """One or more digits that fit into 64 bits, and nothing else."""
    cdef uint64_t value = 0
    cdef uint64_t digit
    cdef size_t i
    if n == 0:
        return False
    for i in range(n):
        if not is_digit(p[i]):
            return False
        digit = <uint64_t>(p[i] - c'0')
        if i >= 19 and value > (<uint64_t>-1 - digit) // 10:
            return False
        value = value * 10 + digit
    out[0] = value
    return True


cdef bint read_integer(const char *p, size_t n, int64_t low, int64_t high, int64_t *out) noexcept nogil
cdef int read_double(const char *p, size_t n, double *out) noexcept nogil
cdef bint read_boolean(const char *p, size_t n, int *out) noexcept nogil
cdef bint read_decimal(const char *p, size_t n, int precision, int scale, uint128_t *out) noexcept nogil
cdef bint read_date(const char *p, size_t n, int64_t *days) noexcept nogil
cdef bint read_timestamp(const char *p, size_t n, int64_t *micros) noexcept nogil
