# cython: language_level=3
"""Validation of stream nodes whose bytes come from outside. See node_check.pyx."""

from libc.stdint cimport int64_t, uint8_t

from streamd.engine.ids cimport StreamID


cdef struct NodeCensus:
    int64_t live
    int64_t deleted
    StreamID first_live        # 0-0: none
    StreamID last_live
    StreamID last              # greatest ID, including tombstones


cdef const char *node_fault(
    const uint8_t *lp, size_t size, StreamID master, NodeCensus *census, size_t *offset) noexcept nogil
    # What is wrong with a node, and at which offset; NULL, with the census taken, when it is valid.
