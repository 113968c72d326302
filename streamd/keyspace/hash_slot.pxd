# cython: language_level=3
"""The hash slot of a key. See hash_slot.pyx."""

from libc.stdint cimport uint16_t


cdef enum:
    SLOTS = 16384

cdef uint16_t crc16(const unsigned char *data, Py_ssize_t size) noexcept nogil
cdef int slot_of_text(const unsigned char *text, Py_ssize_t size) noexcept nogil
cpdef int slot_of(bytes key) except -1
