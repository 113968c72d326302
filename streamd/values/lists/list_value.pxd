# cython: language_level=3
"""Lists: rings of nodes. See list_value.pyx."""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from streamd.engine.listpack cimport LpValue
from streamd.values.lists.node cimport Node


cdef struct Cursor:
    # A place in a list: an element. Any change of the list other than through the cursor invalidates it.
    Node *node
    const uint8_t *at          # the element; of a plain node, its bytes
    uint32_t index             # of the element in the node


@cython.final
@cython.no_gc
cdef class List:
    cdef Node *head                 # owned, as all nodes; NULL: the list is empty
    cdef readonly uint64_t length   # elements
    cdef readonly uint32_t nodes
    cdef short fill                 # the limit of a quicklist's nodes, as it was when it became one
    cdef bint is_quicklist          # what Redis would call it; otherwise a listpack: at most one node, which is packed

    cdef int push(self, const uint8_t *s, size_t n, bint at_head) except -1
    cdef bint peek(self, bint at_head, LpValue *out) noexcept
    cdef void pop(self, bint at_head) noexcept              # the list must not be empty
    cdef int replace(self, Cursor *cursor, const uint8_t *s, size_t n) except -1
    cdef int insert(self, Cursor *cursor, const uint8_t *s, size_t n, bint after) except -1
    cdef uint64_t remove(self, const uint8_t *s, size_t n, uint64_t limit, bint from_tail) noexcept
    cdef void trim(self, uint64_t at_head, uint64_t at_tail) noexcept
    cdef bint seek(self, int64_t index, Cursor *cursor) noexcept
    cdef bint find(self, const uint8_t *s, size_t n, Cursor *cursor) noexcept
    cdef int adopt(self, Node *node) except -1              # append a node; it is the list's from then on
    cdef int grow_out(self, size_t more, uint64_t count, int fill) except -1
    cdef void become_quicklist(self, int fill) noexcept
    cdef int shrink_back(self, int fill, unsigned int divisor) except -1
    cdef size_t memory(self) noexcept
    cdef void *close(self) noexcept                         # empty a short list; its listpack. NULL: nothing is done
    cdef void drop_node(self, Node *node) noexcept
    cdef Node *link(self, Node *node, Node *before, bint becomes_head) except NULL
    cdef int merge_around(self, Node *node) except -1
    cdef Node *merge(self, Node *node) except NULL
    cdef void fit(self, Node *node) noexcept


cdef List list_of(uint8_t *lp)                          # takes the listpack, which must not be empty
cdef bint cursor_next(List value, Cursor *cursor) noexcept      # False: that was the last one
cdef bint cursor_previous(List value, Cursor *cursor) noexcept
cdef size_t byte_limit(int fill) noexcept nogil
