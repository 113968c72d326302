# cython: language_level=3, boundscheck=False, wraparound=False
"""Columns of a record batch, seen through Arrow's C data interface.

`__arrow_c_array__` gives a tree of structs with pointers into the batch's own buffers, which live as long as the two
capsules. A column of strings is a View: bytes, offsets into them, and a bitmap of what is not null. A list of pairs, or
a map, which has the same shape, is a ListView: offsets into two Views that lie behind it.
"""

from libc.stdint cimport int64_t, uint8_t

__all__ = []


cdef const uint8_t *bitmap_of(ArrowArray *array) noexcept nogil:
    return <const uint8_t *>array.buffers[0] if array.null_count != 0 else NULL


cdef int look_at(View *view, ArrowSchema *schema, ArrowArray *array, int64_t offset) except -1:
    kind = schema.format
    if schema.dictionary is not NULL or kind not in (b"u", b"z", b"U", b"Z"):
        raise TypeError(f"column {schema.name.decode()} must be string or binary, is Arrow's {kind.decode()}")
    view.valid = bitmap_of(array)
    view.offsets = array.buffers[1]
    view.data = <const char *>array.buffers[2]
    view.offset = array.offset + offset
    view.is_large = kind in (b"U", b"Z")
    return 0


cdef int look_at_list(ListView *view, ArrowSchema *schema, ArrowArray *array, int64_t offset) except -1:
    cdef ArrowArray *pair
    kind = schema.format
    if kind not in (b"+l", b"+L", b"+m") or schema.children[0].n_children != 2:
        raise TypeError(f"column {schema.name.decode()} must be an array of field and value, or a map")
    pair = array.children[0]
    view.valid = bitmap_of(array)
    view.offsets = array.buffers[1]
    view.offset = array.offset + offset
    view.is_large = kind == b"+L"
    look_at(&view.names, schema.children[0].children[0], pair.children[0], pair.offset)
    look_at(&view.values, schema.children[0].children[1], pair.children[1], pair.offset)
    return 0
