# cython: language_level=3
"""A sorted set that is not small: a table of members and a tree of their handles. See large.pyx."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from streamd.engine.counted_tree cimport CountedTree
from streamd.engine.table cimport Table, table_at, table_find, table_key
from streamd.values.sorted_sets.packed cimport Item


cdef enum:
    SCORE_BYTES = 8            # of a record, before the length of its member


cdef struct Large:
    Table table                # by member: score, member
    CountedTree tree           # by score and member: handles


cdef inline double large_score(const Large *large, uint32_t handle) noexcept nogil:
    cdef double score
    memcpy(&score, table_at(&large.table, handle), SCORE_BYTES)
    return score


cdef inline void large_get(const Large *large, uint32_t handle, Item *item) noexcept nogil:
    """The member and score that a handle names; dead after the next change."""
    cdef size_t n
    item.member.data = table_key(&large.table, handle, &n)
    item.member.length = n
    item.score = large_score(large, handle)


cdef Large *large_new() noexcept nogil                         # NULL: no memory
cdef void large_free(Large *large) noexcept nogil
cdef Large *large_copy(const Large *large) noexcept nogil      # NULL: no memory
cdef size_t large_memory(const Large *large) noexcept nogil

cdef inline uint32_t large_find(const Large *large, uint64_t hash, const uint8_t *s, size_t n) noexcept nogil:
    """The handle of a member, whose hash is that of table_hash; 0: it is none."""
    return table_find(&large.table, hash, s, n)


cdef uint32_t large_add(Large *large, uint64_t hash, const uint8_t *s, size_t n, double score) noexcept nogil
    # What is no member yet; its handle. 0: no memory, nothing changed.
cdef int large_append(Large *large, const uint8_t *s, size_t n, double score) noexcept nogil
    # Likewise, after all others. 1: it is a member, or does not come after all others; nothing changed.
cdef int large_move(Large *large, uint32_t handle, double score) noexcept nogil
    # Another score for a member. -1: no memory, nothing changed.
cdef void large_remove(Large *large, uint32_t handle) noexcept nogil
cdef uint64_t large_rank(const Large *large, uint32_t handle) noexcept nogil
cdef const char *large_check(const Large *large) noexcept nogil        # NULL, or which invariant does not hold
