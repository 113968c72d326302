# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Listpacks in RDB streams: a string each, with the back-lengths of the release that writes it."""

from libc.stdint cimport int64_t, uint8_t, uint64_t

from streamd.engine.listpack cimport LP_SHORTEST_CONVERTED, lp_bytes, lp_convert, lp_validate
from streamd.heap cimport free
from streamd.persistence.rdb.window cimport Window
from streamd.persistence.rdb.write cimport RdbWriter

__all__ = []

cdef enum:
    NARROW_VERSION = 14        # of the format: Redis 8.8


cdef int put_listpack(RdbWriter writer, const uint8_t *lp) except -1:
    """Write a listpack."""
    cdef uint8_t *converted = NULL
    cdef size_t size = lp_bytes(lp)
    cdef int done = 0
    if writer.version >= NARROW_VERSION and size >= LP_SHORTEST_CONVERTED:
        done = lp_convert(lp, size, True, &converted, &size)
    if done < 0:
        raise MemoryError
    if done == 0:
        return writer.put_string(lp, lp_bytes(lp))
    try:
        return writer.put_string(converted, size)
    finally:
        free(converted)


cdef uint8_t *get_listpack(Window window) except NULL:
    """Read a listpack, which the caller owns; a CorruptFileError when it is none."""
    cdef int64_t offset = <int64_t>window.position()
    cdef uint64_t size
    cdef uint8_t *wide = NULL
    cdef size_t wide_size, where
    cdef const char *reason
    cdef uint8_t *block = window.get_block(&size)
    cdef int done
    reason = lp_validate(block, size, &where)
    if reason is not NULL and size >= LP_SHORTEST_CONVERTED:
        done = lp_convert(block, size, False, &wide, &wide_size)
        if done < 0:
            free(block)
            raise MemoryError
        if done == 1:
            free(block)
            block = wide
            reason = lp_validate(block, wide_size, &where)
    if reason is not NULL:
        free(block)
        window.corrupt("a sound listpack", f"{reason.decode()} at byte {where} of it", offset)
    return block
