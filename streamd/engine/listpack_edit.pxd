# cython: language_level=3
"""Changing listpacks in place: the small collections. See listpack_edit.pyx.

A listpack that is edited is a block of streamd.heap of exactly its size. Functions that return a listpack may move it:
the old pointer is dead then, and so are pointers to elements. NULL: no memory, or more than 1 GiB; the old listpack is
unchanged. Places are offsets in bytes, so that they survive a move. Element pointers: see listpack.pxd (lp_skip,
lp_previous, lp_get, lp_equals).
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t

from streamd.engine.listpack cimport LP_END, LP_HEADER, lp_bytes, lp_previous


cdef enum:
    LP_MAX_BYTES = 1 << 30      # Redis lets no listpack of a collection become larger


cdef uint8_t *lp_new() noexcept nogil                          # an empty one; NULL: no memory
cdef uint8_t *lp_copy(const uint8_t *lp) noexcept nogil        # a block of its own
cdef uint64_t lp_count(const uint8_t *lp) noexcept nogil       # elements; O(n) from 65535 on
cdef size_t lp_size(const uint8_t *s, size_t n) noexcept nogil         # bytes that lp_put writes, back-length included
cdef size_t lp_string_size(size_t n) noexcept nogil            # bytes that lp_put_string writes


cdef inline size_t lp_place(const uint8_t *lp, const uint8_t *element) noexcept nogil:
    """The offset of an element, or of the end byte."""
    return <size_t>(element - lp)


cdef inline const uint8_t *lp_first(const uint8_t *lp) noexcept nogil:
    """The first element, or the end byte."""
    return lp + LP_HEADER


cdef inline const uint8_t *lp_end(const uint8_t *lp) noexcept nogil:
    """The end byte."""
    return lp + lp_bytes(lp) - 1


cdef inline const uint8_t *lp_last(const uint8_t *lp) noexcept nogil:
    """The last element; NULL: there is none."""
    if lp[LP_HEADER] == LP_END:
        return NULL
    return lp_previous(lp_end(lp))


cdef const uint8_t *lp_seek(const uint8_t *lp, int64_t index) noexcept nogil
    # The element at an index, from the end if it is negative; NULL: out of range. O(distance from the nearer end).
cdef const uint8_t *lp_find(const uint8_t *lp, const uint8_t *s, size_t n, unsigned int skip) noexcept nogil
    # The first element whose text is s, among the first one and those `skip` elements further on each time (0: all,
    # 1: the fields of a hash); NULL: none. O(n).

cdef uint8_t *lp_open(uint8_t *lp, size_t place, size_t removed, size_t added, int64_t elements) noexcept nogil
    # What all others are made of: `removed` bytes at `place` give way to `added` bytes, which the caller writes;
    # elements: how many more there are then (fewer if negative).
cdef uint8_t *lp_insert_int(uint8_t *lp, size_t place, int64_t value) noexcept nogil
cdef uint8_t *lp_append(uint8_t *lp, const uint8_t *s, size_t n) noexcept nogil
cdef uint8_t *lp_append_int(uint8_t *lp, int64_t value) noexcept nogil
cdef uint8_t *lp_delete(uint8_t *lp, size_t place, uint64_t count) noexcept nogil
    # Remove up to `count` elements from that place on; never fails.
