# cython: language_level=3, boundscheck=False, wraparound=False
"""Blocks of memory that grow, and become Arrow buffers without a copy; the inline functions are in memory.pxd."""

from cpython.buffer cimport PyBuffer_FillInfo
from libc.string cimport memset
from streamd.heap cimport free, realloc

__all__ = []

cdef enum:
    LEAST_ROOM = 1024


cdef bint grow(Bytes *block, size_t needed) noexcept nogil:
    cdef size_t room = block.room * 2 if block.room * 2 > needed else needed
    if room < LEAST_ROOM:
        room = LEAST_ROOM
    cdef char *moved = <char *>realloc(block.data, room)
    if moved is NULL:
        return False
    block.data = moved
    block.room = room
    return True


cdef class Block:
    """A block of memory as a Python object that Arrow can hold: read-only, freed with the object."""

    cdef char *data      # owned
    cdef Py_ssize_t length

    def __dealloc__(self):
        free(self.data)

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.length, 1, flags)


cdef object hand_over(Bytes *block):
    cdef Block made = Block()
    if block.data is NULL and not reserve(block, 1):     # Arrow needs an address even for zero bytes
        raise MemoryError
    made.data = block.data
    made.length = block.length
    memset(block, 0, sizeof(Bytes))
    return made
