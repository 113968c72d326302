# cython: language_level=3
"""Bits of byte strings. See bits.pyx."""

from libc.stdint cimport uint8_t, uint64_t

# Bits are numbered from the highest of the first byte. A range includes its last bit, and lies within the string.
cdef Py_ssize_t count_bits(const uint8_t *data, Py_ssize_t first, Py_ssize_t last) noexcept nogil
cdef Py_ssize_t find_bit(const uint8_t *data, Py_ssize_t first, Py_ssize_t last, bint wanted) noexcept nogil  # -1: none

# Fields of 1 to 64 bits, highest bit first. Beyond the end of the string there are zeros to be read.
cdef uint64_t get_field(const uint8_t *data, Py_ssize_t size, uint64_t at, int bits) noexcept nogil
cdef void set_field(uint8_t *data, uint64_t at, int bits, uint64_t value) noexcept nogil    # within the string


cdef enum BitOperation:
    BITS_AND
    BITS_OR
    BITS_XOR
    BITS_NOT        # of the first string alone
    BITS_DIFF       # in the first, and in none of the others
    BITS_DIFF1      # in any of the others, and not in the first
    BITS_ANDOR      # in the first, and in any of the others
    BITS_ONE        # in exactly one


cdef bytes combine(list strings, BitOperation operation)    # as long as the longest; shorter ones end with zeros
