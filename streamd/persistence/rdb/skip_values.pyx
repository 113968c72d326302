# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Skipping what an RDB file may hold but streamd does not support: values of other types, module data.

Types whose layout is not known (UNKNOWN_LAYOUTS in format.py) are for the caller to refuse.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t

from streamd.persistence.rdb.codes cimport (
    TYPE_HASH, TYPE_HASH_LISTPACK, TYPE_HASH_LISTPACK_TTL, TYPE_HASH_LISTPACK_TTL_PRERELEASE, TYPE_HASH_TTL,
    TYPE_HASH_TTL_PRERELEASE, TYPE_HASH_ZIPLIST, TYPE_HASH_ZIPMAP, TYPE_LIST, TYPE_LIST_OF_LISTPACKS,
    TYPE_LIST_OF_ZIPLISTS, TYPE_LIST_ZIPLIST, TYPE_MODULE, TYPE_SET, TYPE_SET_INTSET, TYPE_SET_LISTPACK,
    TYPE_SORTED_SET, TYPE_SORTED_SET_LISTPACK, TYPE_SORTED_SET_TEXT, TYPE_SORTED_SET_ZIPLIST,
)
from streamd.persistence.rdb.window cimport Window

__all__ = []


cdef int skip_value(Window window, int type) except -1:
    """Skip a value of a type other than strings and streams."""
    cdef uint64_t left
    if type in (TYPE_LIST, TYPE_SET, TYPE_LIST_OF_ZIPLISTS):
        window.skip_strings(window.get_count())
    elif type == TYPE_HASH:
        left = window.get_count()
        while left:
            window.skip_strings(2)
            left -= 1
    elif type == TYPE_SORTED_SET_TEXT:
        left = window.get_count()
        while left:
            window.skip_string()
            skip_text_double(window)
            left -= 1
    elif type == TYPE_SORTED_SET:
        left = window.get_count()
        while left:
            window.skip_string()
            window.skip(8)
            left -= 1
    elif type in (
        TYPE_HASH_ZIPMAP, TYPE_LIST_ZIPLIST, TYPE_SET_INTSET, TYPE_SORTED_SET_ZIPLIST, TYPE_HASH_ZIPLIST,
        TYPE_HASH_LISTPACK, TYPE_SORTED_SET_LISTPACK, TYPE_SET_LISTPACK, TYPE_HASH_LISTPACK_TTL_PRERELEASE,
    ):                                           # one string that holds everything
        window.skip_string()
    elif type == TYPE_LIST_OF_LISTPACKS:
        left = window.get_count()
        while left:
            window.get_count()
            window.skip_string()
            left -= 1
    elif type in (TYPE_HASH_TTL_PRERELEASE, TYPE_HASH_TTL):
        if type == TYPE_HASH_TTL:
            window.skip(8)
        left = window.get_count()
        while left:
            window.get_count()
            window.skip_strings(2)
            left -= 1
    elif type == TYPE_HASH_LISTPACK_TTL:
        window.skip(8)
        window.skip_string()
    elif type == TYPE_MODULE:
        window.get_count()
        skip_module_data(window)
    else:
        raise AssertionError(type)
    return 0


cdef int skip_text_double(Window window) except -1:
    """Skip a double written as text, or as one byte for infinities and NaN."""
    cdef uint8_t size = window.get_byte()
    return 0 if size >= 253 else window.skip(size)


cdef int skip_module_data(Window window) except -1:
    """Skip what a module has written, up to its end marker."""
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
            window.corrupt("module data", f"an unknown kind of it, {kind}", offset)


cdef str module_name(uint64_t number):
    """The name in a module's number: nine characters of six bits, and ten bits of version below."""
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    return "".join([letters[(number >> shift) & 63] for shift in range(58, 9, -6)])
