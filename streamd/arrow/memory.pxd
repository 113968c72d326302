# cython: language_level=3
"""Blocks of memory that grow, and become Arrow buffers without a copy."""

from libc.stdint cimport int32_t
from libc.string cimport memcpy


cdef struct Bytes:
    char *data      # owned by whoever holds the struct; NULL when room is 0
    size_t length   # bytes used
    size_t room     # bytes there are


cdef bint grow(Bytes *block, size_t needed) noexcept nogil
    # Make room for so many bytes in all. May move. False when there is no memory.

cdef object hand_over(Bytes *block)
    # The block as a Python object that Arrow can hold; the struct is empty afterwards.


cdef inline bint reserve(Bytes *block, size_t more) noexcept nogil:
    """Make room for so many bytes behind those used. May move. False when there is no memory."""
    if block.length + more <= block.room:
        return True
    return grow(block, block.length + more)


cdef inline bint add_bytes(Bytes *block, const char *p, size_t n) noexcept nogil:
    if not reserve(block, n):
        return False
    memcpy(block.data + block.length, p, n)
    block.length += n
    return True


cdef inline int add_int32(Bytes *block, int32_t value) noexcept nogil:
    return add_bytes(block, <const char *>&value, sizeof(int32_t))


cdef inline void add_reserved(Bytes *data, Bytes *offsets, const char *p, size_t n) noexcept nogil:
    """Append a string and its offset, for which there is room."""
    memcpy(data.data + data.length, p, n)
    data.length += n
    (<int32_t *>(offsets.data + offsets.length))[0] = <int32_t>data.length
    offsets.length += sizeof(int32_t)
