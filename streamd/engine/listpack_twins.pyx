# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Whether an element of a listpack is there twice, which loaders refuse. Not slow for any number of elements.

Each element gets a mark, and equal texts have equal marks. Of a few elements, the marks are made of some of the bytes
and compared with each other; in sound data they differ. If they do not, or if there are more elements, the mark is a
hash of 64 bits under a secret key: two texts with the same one are the same.
"""

from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy

from streamd.engine.listpack cimport LP_END, LP_HEADER, LpValue, lp_get, lp_skip
from streamd.engine.listpack_edit cimport lp_count
from streamd.engine.table cimport table_hash
from streamd.heap cimport calloc, free
from streamd.numbers cimport INT64_ROOM, put_int64

__all__ = []

cdef enum:
    FEW = 32                   # elements of which each is compared with all others


cdef inline uint64_t word_at(const uint8_t *p, size_t n) noexcept nogil:
    cdef uint64_t word = 0
    memcpy(&word, p, n)
    return word


cdef inline uint64_t cheap_mark(const uint8_t *p, size_t n) noexcept nogil:
    """Of the length, the first and the last bytes."""
    cdef uint64_t mark
    if n < 8:
        return word_at(p, n) << 8 | n
    memcpy(&mark, p + n - 8, 8)
    return mark ^ word_at(p, 8) * <uint64_t>0x9E3779B97F4A7C15 ^ <uint64_t>n << 56


cdef inline const uint8_t *next_mark(
    const uint8_t *p, unsigned int width, bint is_cheap, uint64_t *mark
) noexcept nogil:
    """The mark of an element; returns the next one that counts."""
    cdef char digits[INT64_ROOM]
    cdef LpValue element
    p = lp_get(p, &element)
    if element.data is NULL:
        element.length = put_int64(digits, element.number)
        element.data = <const uint8_t *>digits
    mark[0] = cheap_mark(element.data, element.length) if is_cheap else table_hash(element.data, element.length)
    for _ in range(1, width):
        p = lp_skip(p)
    return p


cdef bint few_may_be_twins(const uint8_t *lp, unsigned int width) noexcept nogil:
    """Whether two of at most FEW cheap marks are the same."""
    cdef uint64_t marks[FEW]
    cdef uint64_t mark
    cdef unsigned int n = 0, at
    cdef bint found = False
    cdef const uint8_t *p = lp + LP_HEADER
    while p[0] != LP_END:
        p = next_mark(p, width, True, &mark)
        for at in range(n):
            found |= marks[at] == mark
        marks[n] = mark
        n += 1
    return found


cdef bint lp_has_twins(const uint8_t *lp, unsigned int width) except -1:
    cdef uint64_t count = lp_count(lp) // width
    cdef uint64_t slots = FEW, mark, at
    cdef uint64_t *seen
    cdef const uint8_t *p = lp + LP_HEADER
    cdef bint found = False
    if count <= FEW and not few_may_be_twins(lp, width):
        return False
    while slots < 2 * count:
        slots *= 2
    seen = <uint64_t *>calloc(slots, sizeof(uint64_t))
    if seen is NULL:
        raise MemoryError("no memory to check a listpack")
    while not found and p[0] != LP_END:
        p = next_mark(p, width, False, &mark)
        mark |= 1       # 0: a free slot
        at = (mark >> 1) & (slots - 1)
        while seen[at] and seen[at] != mark:
            at = (at + 1) & (slots - 1)
        found = seen[at] == mark
        seen[at] = mark
    free(seen)
    return found
