# cython: language_level=3
"""What the rule of a stream trims. See retention.pyx."""

cimport cython
from libc.stdint cimport int64_t, uint64_t

from streamd.core.context cimport Context
from streamd.engine.ids cimport StreamID
from streamd.values.streams.node cimport StreamNode
from streamd.values.streams.stream cimport RefPolicy, Stream


cdef enum Reason:
    # The options that entries are trimmed for, in the order of delivery.trimmed.REASONS.
    BY_LENGTH
    BY_BYTES
    BY_AGE
    BY_ACKED
    BY_ATMOST
    BY_NONE                # none: the entry stays


cdef struct Cut:
    # How far a trim goes, and what it removes.
    StreamID below                     # entries below this ID are removed
    uint64_t entries
    uint64_t length                    # entries that are left
    uint64_t node_bytes                # bytes of the nodes that are left
    uint64_t[5] entries_by             # removed, by Reason
    uint64_t[5] bytes_by


@cython.final
cdef class Retention:
    cdef uint64_t length               # 0: no such limit
    cdef uint64_t max_bytes            # of nodes; 0: no such limit
    cdef int64_t age_ms                # 0: no such limit
    cdef bint acked                    # only what all groups have acknowledged
    cdef uint64_t groups               # ... of which there must be so many
    cdef int64_t at_most_ms            # 0: never in any case
    cdef RefPolicy policy

    cpdef bint trim(self, Context ctx, bytes key, Stream stream, bint exact) except -1       # True: there is more
    cdef StreamID find_barrier(self, Stream stream) except *
    cdef Reason reason_for(self, Context ctx, StreamID last, StreamID barrier, uint64_t left) noexcept nogil
    cdef bint cut_nodes(self, Context ctx, Stream stream, StreamID barrier, Cut *cut, StreamNode **node) noexcept nogil
    cdef int cut_node(
        self, Context ctx, Stream stream, StreamID barrier, Cut *cut, const StreamNode *node) noexcept nogil
    cdef int apply(self, Context ctx, bytes key, Stream stream, const Cut *cut) except -1
