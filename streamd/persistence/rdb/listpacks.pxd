# cython: language_level=3
"""Listpacks in RDB streams. See listpacks.pyx."""

from libc.stdint cimport uint8_t, uint64_t

from streamd.persistence.rdb.window cimport Window
from streamd.persistence.rdb.write cimport RdbWriter


cdef int put_listpack(RdbWriter writer, const uint8_t *lp) except -1
cdef uint8_t *get_listpack(Window window) except NULL      # a block of streamd.heap, checked, of exactly its size
