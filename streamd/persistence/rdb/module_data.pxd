# cython: language_level=3
"""Skipping data of modules. See module_data.pyx."""

from libc.stdint cimport uint64_t

from streamd.persistence.rdb.window cimport Window

cdef int skip_module_data(Window window) except -1
cdef str module_name(uint64_t number)
