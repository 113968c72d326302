# cython: language_level=3
"""Skipping what streamd does not support. See skip_values.pyx."""

from libc.stdint cimport uint64_t

from streamd.persistence.rdb.window cimport Window

cdef int skip_value(Window window, int type) except -1
cdef int skip_module_data(Window window) except -1
cdef str module_name(uint64_t number)
