# cython: language_level=3
"""Ranges of a sorted set between two bounds. See bounds.pyx."""

from libc.stdint cimport uint64_t

from streamd.engine.counted_tree cimport TreeKey
from streamd.values.sorted_sets.sorted_set cimport SortedSet


cdef enum BoundEdge:
    EDGE_START          # before all members
    EDGE_KEY            # where the key says
    EDGE_END            # after all members


cdef struct Bound:
    BoundEdge edge
    TreeKey key                # its bytes are borrowed from an argument


cdef struct Bounds:
    # The members from `low` on, up to `high`.
    Bound low, high


cdef int parse_scores(bytes low, bytes high, Bounds *bounds) except -1         # CommandError
cdef int parse_members(bytes low, bytes high, Bounds *bounds) except -1        # CommandError
cdef uint64_t ranks_between(SortedSet set, const Bounds *bounds, uint64_t *first) noexcept
    # How many members there are between bounds, and the rank of the first.
