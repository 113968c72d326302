# cython: language_level=3
"""Cutting a range of a stream into parts of equal length. See split.pyx."""

from libc.stdint cimport uint32_t, uint64_t

from streamd.engine.ids cimport StreamID
from streamd.values.streams.stream cimport Stream


cdef struct Part:
    StreamID first         # its first entry
    StreamID last          # its last entry
    uint64_t length        # its live entries


cdef struct Gathered:
    # The nodes of a range of a stream, from its first one on, as far as needed.
    void **nodes           # owned, as is `lengths`
    uint32_t *lengths      # the live entries of each
    size_t count           # nodes gathered
    size_t room            # nodes that fit in the memory
    uint64_t live          # live entries of all of them
    uint64_t before        # live entries of the first one that are before the range
    uint64_t total         # live entries wanted from the range


cdef int gather_range(Stream stream, StreamID first, StreamID last, uint64_t limit, Gathered *found) except -1
cdef size_t split_range(
    Stream stream, StreamID first, StreamID last, uint64_t limit, size_t parts, Part *out) except? 0
    # Cut the live entries of first .. last, or the first `limit` of them, into at most `parts` non-empty parts whose
    # lengths differ by at most one. They go to `out`, in order; returns how many there are. O(n), n the nodes that hold
    # those entries.
