# cython: language_level=3
"""Doubles as text, as Redis writes and reads them. See doubles.pyx."""

from libc.stdint cimport int64_t

cdef enum:
    DOUBLE_ROOM = 40    # most characters of a double, and a margin


cdef size_t put_double(char *p, double value) noexcept nogil
    # Write `value` at p; returns how many characters, at most DOUBLE_ROOM.

cdef size_t put_shortest(char *p, double value) noexcept nogil
    # The same, with an exponent where that is shorter also for an integer: as Redis writes a score for DEBUG DIGEST.

cdef bint read_double(const char *p, size_t n, double *out) noexcept nogil
    # Read n characters, after which there is a zero byte, as an argument; False if they are no double in range.

cdef bint read_float(const char *p, size_t n, double *out) noexcept nogil
    # As read_double, but what is too great or too small for a double is an infinity or 0, and NaN is read.


cdef inline bint is_integral(double value) noexcept nogil:
    """Whether a double is written as an integer, in full."""
    return -4611686018427387904.0 <= value <= 4611686018427387904.0 and value == <double><int64_t>value
