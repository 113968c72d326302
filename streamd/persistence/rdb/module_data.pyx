# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Skipping data of modules: values of their types, and what they store about keys and databases."""

from libc.stdint cimport int64_t, uint64_t

from streamd.persistence.rdb.window cimport Window

__all__ = []


cdef int skip_module_data(Window window) except -1:
    """Skip a sequence of typed items, which a module has written, with its end marker."""
    cdef int64_t offset
    cdef uint64_t kind
    while True:
        offset = <int64_t>window.position()
        kind = window.get_count()
        if kind == 0:
            return 0
        if kind <= 2:
            window.get_count()
        elif kind == 3:
            window.skip(4)
        elif kind == 4:
            window.skip(8)
        elif kind == 5:
            window.skip_string()
        else:
            window.corrupt("module data", f"an item of unknown kind {kind}", offset)


cdef str module_name(uint64_t number):
    """The name in a module's number: nine characters of six bits, and ten bits of version below."""
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    return "".join([letters[(number >> shift) & 63] for shift in range(58, 9, -6)])
