# cython: language_level=3
"""SortedSet: members with scores, in order. See sorted_set.pyx."""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint64_t

from streamd.engine.counted_tree cimport TreeKey, TreePlace
from streamd.values.sorted_sets.large cimport Large
from streamd.values.sorted_sets.packed cimport Item


cdef struct Walk:
    # A place among the members; dead after the next change.
    const uint8_t *packed      # of a packed set: the next member, or the end byte
    TreePlace place            # of a large one


@cython.final
@cython.no_gc
cdef class SortedSet:
    cdef uint8_t *packed       # owned: the listpack; NULL: the set is large
    cdef Large *large          # owned; NULL: it is packed

    cdef uint64_t count(self) noexcept
    cdef bint find(self, const uint8_t *s, size_t n, double *score) noexcept    # whether it is a member
    cdef int add(self, const uint8_t *s, size_t n, double score) except -1      # what is no member
    cdef int move(self, const uint8_t *s, size_t n, double score) except -1     # what is one
    cdef int append(self, const uint8_t *s, size_t n, double score) except -1   # 1: not after all others; nothing done
    cdef bint discard(self, const uint8_t *s, size_t n) noexcept                # whether it was a member
    cdef int64_t rank(self, const uint8_t *s, size_t n, double *score) noexcept    # -1: not a member
    cdef uint64_t rank_of(self, const TreeKey *key) noexcept                    # members before a key
    cdef void seek(self, uint64_t rank, Walk *walk) noexcept                    # a rank from count() on: the end
    cdef bint next(self, Walk *walk, Item *item) noexcept                       # False: there is none
    cdef bint back(self, Walk *walk, Item *item) noexcept                       # False: likewise
    cdef bint fits(self, uint64_t members, size_t longest, uint64_t max_members, uint64_t max_bytes) noexcept
    cdef int enlarge(self) except -1                                            # change the form, if it is packed
    cdef int remove_range(self, uint64_t first, uint64_t members) except -1     # by rank
    cdef SortedSet copy(self)
    cdef size_t memory(self) noexcept
    cdef void *close(self) noexcept                     # take its listpack; NULL: it is large


cdef SortedSet new_sorted_set(bint is_large)
cdef SortedSet sorted_set_of(uint8_t *packed)           # takes the block
