# cython: language_level=3, boundscheck=False, wraparound=False
"""What is left of a stream, or of its head, once it is no longer reachable: memory that takes long to free.

`LazyFree` frees it on its thread, without the interpreter's lock; otherwise it is freed with the object.
"""

cimport cython

from streamd.engine.rax cimport rax_drain, rax_init
from streamd.heap cimport freed_aside
from streamd.values.streams.node cimport StreamNode, free_node

__all__ = ["StreamRemains", "TrimmedNodes"]


cdef void free_node_aside(void *record) noexcept nogil:
    """Like free_node, on the thread that frees large streams."""
    cdef size_t size = sizeof(StreamNode) + (<StreamNode *>record).capacity
    free_node(record)
    freed_aside(size)


cdef void free_chain(StreamNode *node, void (*free_one)(void *) noexcept nogil) noexcept nogil:
    cdef StreamNode *following
    while node is not NULL:
        following = next_of(node)
        free_one(node)
        node = following


cdef TrimmedNodes trimmed_nodes(StreamNode *chain, size_t count):
    cdef TrimmedNodes made = TrimmedNodes.__new__(TrimmedNodes)
    made.chain = chain
    made.count = count
    return made


@cython.final
@cython.no_gc
cdef class TrimmedNodes:
    """The nodes that a trim took out of a stream: freeing many takes long."""

    def __dealloc__(self):
        free_chain(self.chain, free_node)

    def free_effort(self):
        return self.count

    def detach(self):
        return self

    def free(self):
        """Free all of them, without the interpreter's lock."""
        cdef StreamNode *chain = self.chain
        self.chain = NULL
        with nogil:
            free_chain(chain, free_node_aside)


@cython.final
@cython.no_gc
cdef class StreamRemains:
    """The memory of a stream that is no longer reachable."""

    def __cinit__(self):
        rax_init(&self.nodes, 16)
        self.groups = []

    def __dealloc__(self):
        with nogil:
            rax_drain(&self.nodes, free_node)

    def free(self):
        """Free all of it, without the interpreter's lock."""
        with nogil:
            rax_drain(&self.nodes, free_node_aside)
        for remains in self.groups:
            remains.free()
        self.groups.clear()
