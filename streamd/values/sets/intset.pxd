# cython: language_level=3
"""Intsets: sorted integers of one width, byte for byte as in Redis. See intset.pyx."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from streamd.engine.listpack cimport lp_load32, lp_load64


cdef enum:
    INTSET_HEAD = 8            # bytes before the first integer
    INTSET_MOST = 1 << 30      # integers, whatever the settings say


cdef inline uint32_t intset_width(const uint8_t *p) noexcept nogil:
    """Bytes of each integer: 2, 4 or 8."""
    return lp_load32(p)


cdef inline uint32_t intset_count(const uint8_t *p) noexcept nogil:
    return lp_load32(p + 4)


cdef inline size_t intset_bytes(const uint8_t *p) noexcept nogil:
    """Size of the whole intset."""
    return INTSET_HEAD + <size_t>intset_width(p) * intset_count(p)


cdef inline int64_t intset_get(const uint8_t *p, uint32_t index) noexcept nogil:
    """The integer at an index that exists."""
    cdef uint32_t width = intset_width(p)
    p += INTSET_HEAD + <size_t>index * width
    if width == 2:
        return <int16_t>(p[0] | <uint32_t>p[1] << 8)
    if width == 4:
        return <int32_t>lp_load32(p)
    return <int64_t>lp_load64(p)


cdef uint8_t *intset_new() noexcept nogil                                   # an empty one; NULL: no memory
cdef bint intset_find(const uint8_t *p, int64_t value, uint32_t *index) noexcept nogil
    # Whether it is there; where it is, or would be.
cdef uint8_t *intset_insert(uint8_t *p, int64_t value, uint32_t index) noexcept nogil
    # Add an integer where intset_find says; may move. NULL: no memory, the intset is as it was.
cdef uint8_t *intset_remove(uint8_t *p, uint32_t index) noexcept nogil      # may move; never fails
cdef const char *intset_validate(const uint8_t *p, size_t size) noexcept nogil     # NULL, or what is wrong
