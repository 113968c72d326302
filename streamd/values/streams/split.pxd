# cython: language_level=3
"""Cutting a range of a stream into parts of equal length. See split.pyx."""

from libc.stdint cimport uint64_t

from streamd.engine.ids cimport StreamID
from streamd.values.streams.stream cimport Stream


cdef struct Part:
    StreamID first         # its first entry
    StreamID last          # its last entry
    uint64_t length        # its live entries


cdef size_t split_range(
    Stream stream, StreamID first, StreamID last, uint64_t limit, size_t parts, Part *out) except? 0
    # Cut the live entries of first .. last, or the first `limit` of them, into at most `parts` non-empty parts whose
    # lengths differ by at most one. They go to `out`, in order; returns how many there are. O(n), n the nodes that hold
    # those entries.
