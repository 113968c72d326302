# cython: language_level=3, boundscheck=False, wraparound=False
"""Ziplists in RDB streams: the packed values of Redis before 7.0."""

from libc.stdint cimport int64_t, uint8_t, uint64_t

from streamd.engine.ziplist cimport ziplist_unpack
from streamd.heap cimport free
from streamd.persistence.rdb.window cimport Window

__all__ = []


cdef uint8_t *get_ziplist(Window window) except NULL:
    """Read a ziplist into a listpack, which the caller owns; a CorruptFileError when it is none."""
    cdef int64_t offset = <int64_t>window.position()
    cdef uint64_t size
    cdef size_t where = 0, lp_size = 0
    cdef const char *wrong = NULL
    cdef uint8_t *block = window.get_block(&size)
    cdef uint8_t *lp = ziplist_unpack(block, size, &lp_size, &wrong, &where)
    free(block)
    if lp is NULL:
        if wrong is NULL:
            raise MemoryError
        window.corrupt("a sound ziplist", f"{(<bytes>wrong).decode()} at byte {where} of it", offset)
    return lp
