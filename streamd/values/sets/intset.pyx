# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Intsets: sorted integers of one width, byte for byte as in Redis.

    +---------------+---------------+---------+---------+-----+
    | width: 4 bytes | number: 4    | integer | integer | ... |     all little endian; the width is 2, 4 or 8
    +---------------+---------------+---------+---------+-----+

    {-3, 1, 2}  ->  02 00 00 00  03 00 00 00  fd ff  01 00  02 00

The width suffices for all integers that there have been: it grows, and does not shrink.
Caller: set_value.pyx.
"""

from libc.stdint cimport INT16_MAX, INT16_MIN, INT32_MAX, INT32_MIN
from libc.string cimport memmove, memset

from streamd.heap cimport malloc, realloc

__all__ = []


cdef inline uint32_t width_of(int64_t value) noexcept nogil:
    if INT16_MIN <= value <= INT16_MAX:
        return 2
    if INT32_MIN <= value <= INT32_MAX:
        return 4
    return 8


cdef inline void store32(uint8_t *p, uint32_t value) noexcept nogil:
    p[0] = <uint8_t>value
    p[1] = <uint8_t>(value >> 8)
    p[2] = <uint8_t>(value >> 16)
    p[3] = <uint8_t>(value >> 24)


cdef inline void put(uint8_t *p, uint32_t index, int64_t value) noexcept nogil:
    cdef uint32_t width = intset_width(p)
    cdef uint32_t i
    p += INTSET_HEAD + <size_t>index * width
    for i in range(width):
        p[i] = <uint8_t>(<uint64_t>value >> (8 * i))


cdef uint8_t *intset_new() noexcept nogil:
    cdef uint8_t *p = <uint8_t *>malloc(INTSET_HEAD)
    if p is not NULL:
        memset(p, 0, INTSET_HEAD)
        store32(p, 2)
    return p


cdef bint intset_find(const uint8_t *p, int64_t value, uint32_t *index) noexcept nogil:
    """Binary search. O(log n)."""
    cdef uint32_t low = 0, high = intset_count(p), middle
    cdef int64_t found
    while low < high:
        middle = low + (high - low) // 2
        found = intset_get(p, middle)
        if found == value:
            index[0] = middle
            return True
        if found < value:
            low = middle + 1
        else:
            high = middle
    index[0] = low
    return False


cdef uint8_t *intset_insert(uint8_t *p, int64_t value, uint32_t index) noexcept nogil:
    """Add an integer at an index."""
    cdef uint32_t count = intset_count(p), width = intset_width(p), needed = width_of(value), at
    cdef uint32_t new_width = needed if needed > width else width
    cdef uint8_t *moved = <uint8_t *>realloc(p, INTSET_HEAD + <size_t>new_width * (count + 1))
    cdef int64_t kept
    if moved is NULL:
        return NULL
    p = moved
    if new_width > width:
        # A wider integer than all others is the first or the last. The others move up, so the last one goes first.
        at = count
        while at:
            at -= 1
            store32(p, width)
            kept = intset_get(p, at)
            store32(p, new_width)
            put(p, at + (index == 0), kept)
    else:
        memmove(p + INTSET_HEAD + <size_t>width * (index + 1), p + INTSET_HEAD + <size_t>width * index,
                <size_t>width * (count - index))
    store32(p, new_width)
    store32(p + 4, count + 1)
    put(p, index, value)
    return p


cdef uint8_t *intset_remove(uint8_t *p, uint32_t index) noexcept nogil:
    """Remove the integer at an index."""
    cdef uint32_t count = intset_count(p) - 1, width = intset_width(p)
    cdef uint8_t *moved
    memmove(p + INTSET_HEAD + <size_t>width * index, p + INTSET_HEAD + <size_t>width * (index + 1),
            <size_t>width * (count - index))
    store32(p + 4, count)
    moved = <uint8_t *>realloc(p, intset_bytes(p))
    return p if moved is NULL else moved


cdef const char *intset_validate(const uint8_t *p, size_t size) noexcept nogil:
    """Check bytes from a file or a peer."""
    cdef uint32_t at
    if size < INTSET_HEAD:
        return b"an intset shorter than its head"
    if intset_width(p) != 2 and intset_width(p) != 4 and intset_width(p) != 8:
        return b"an unknown width of integers"
    if size != intset_bytes(p):
        return b"another number of integers than its size says"
    for at in range(1, intset_count(p)):
        if intset_get(p, at - 1) >= intset_get(p, at):
            return b"integers that are not in order"
    return NULL
