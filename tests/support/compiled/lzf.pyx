# cython: language_level=3, boundscheck=False, wraparound=False
"""LZF of `bytes`."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t
from libc.stdlib cimport calloc, free, malloc

from streamd.persistence.rdb.lzf cimport LZF_GROWTH, LzfTable, lzf_compress, lzf_expand

__all__ = ["compress", "expand"]


def compress(bytes data not None, room=None):
    """The compressed bytes, or None when they would be more than `room`, by default the bytes of `data`. O(n)."""
    cdef size_t size = <size_t>PyBytes_GET_SIZE(data)
    cdef size_t most = size if room is None else room
    cdef size_t done
    cdef uint8_t *out = <uint8_t *>malloc(most + 1)
    cdef LzfTable *table = <LzfTable *>calloc(1, sizeof(LzfTable))
    if out is NULL or table is NULL:
        free(out)
        free(table)
        raise MemoryError
    try:
        done = lzf_compress(table, <const uint8_t *>PyBytes_AS_STRING(data), size, out, most)
        if done or not size:
            return PyBytes_FromStringAndSize(<char *>out, <Py_ssize_t>done)
        return None
    finally:
        free(out)
        free(table)


def expand(bytes data not None, size_t expected):
    """The bytes that were compressed, or None when they are not exactly `expected`, or cannot be. O(expected)."""
    cdef size_t size = <size_t>PyBytes_GET_SIZE(data)
    cdef bytes out
    if expected > size * LZF_GROWTH:
        return None
    out = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>expected)
    if lzf_expand(<const uint8_t *>PyBytes_AS_STRING(data), size, <uint8_t *>PyBytes_AS_STRING(out), expected):
        return out
    return None
