# cython: language_level=3
"""Ziplists in RDB streams. See ziplists.pyx."""

from libc.stdint cimport uint8_t

from streamd.persistence.rdb.window cimport Window

cdef uint8_t *get_ziplist(Window window) except NULL       # a listpack: a block of streamd.heap, of exactly its size
