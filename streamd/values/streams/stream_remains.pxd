# cython: language_level=3
"""Memory of streams that are no longer reachable. See stream_remains.pyx."""

cimport cython

from streamd.engine.rax cimport Rax
from streamd.values.streams.node cimport StreamNode


# A chain of nodes. A node in no tree no longer needs its key: the pointer to the next node is stored there.
cdef inline StreamNode *next_of(const StreamNode *node) noexcept nogil:
    return (<StreamNode **>node.key)[0]


cdef inline void set_next(StreamNode *node, StreamNode *following) noexcept nogil:
    (<StreamNode **>node.key)[0] = following


cdef void free_chain(StreamNode *node, void (*free_one)(void *) noexcept nogil) noexcept nogil
cdef TrimmedNodes trimmed_nodes(StreamNode *chain, size_t count)


@cython.final
@cython.no_gc
cdef class TrimmedNodes:
    cdef StreamNode *chain                  # owned
    cdef readonly size_t count


@cython.final
@cython.no_gc
cdef class StreamRemains:
    cdef Rax nodes                          # owned
    cdef list groups                        # GroupRemains
