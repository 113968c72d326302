# cython: language_level=3
"""Nodes of lists: a listpack, or one huge element, in a block with free room at both ends. See node.pyx."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from streamd.engine.listpack cimport LP_HEADER, LpValue, lp_backlen_size, lp_get, lp_int_size
from streamd.heap cimport block_size
from streamd.numbers cimport read_int64


cdef enum:
    PLAIN = 0xFFFFFFFF         # `start` of a node that is no listpack but the bytes of one element


cdef struct Node:
    # The bytes follow the structure, in the same block.
    Node *prev                 # neighbours; the last node of a list is followed by its first one
    Node *next
    size_t size                # bytes of the listpack, or of the element
    uint32_t count             # elements
    uint32_t start             # offset of the listpack from the end of the structure; PLAIN


cdef inline uint8_t *block_of(Node *node) noexcept nogil:
    """The first byte after the structure."""
    return <uint8_t *>(node + 1)


cdef inline bint is_plain(const Node *node) noexcept nogil:
    return node.start == PLAIN


cdef inline uint8_t *listpack_of(Node *node) noexcept nogil:
    return block_of(node) + node.start


cdef inline uint8_t *first_of(Node *node) noexcept nogil:
    """The first element of a packed node, or the end byte."""
    return listpack_of(node) + LP_HEADER


cdef inline uint8_t *end_of(Node *node) noexcept nogil:
    """The end byte of a packed node."""
    return listpack_of(node) + node.size - 1


cdef inline size_t element_size(const uint8_t *s, size_t n) noexcept nogil:
    """Bytes that an element takes in a listpack."""
    cdef int64_t number
    cdef size_t head
    if read_int64(<const char *>s, n, &number):
        return lp_int_size(number)
    head = n + (1 if n < 64 else 2 if n < 4096 else 5)
    return head + lp_backlen_size(head)


cdef inline const uint8_t *read_element(Node *node, const uint8_t *at, LpValue *out) noexcept nogil:
    """Read the element at `at`; returns the next one. Of a plain node, the only one."""
    if is_plain(node):
        out.data = block_of(node)
        out.length = node.size
        return block_of(node) + node.size
    return lp_get(at, out)


cdef Node *node_new(size_t room) noexcept nogil                # an empty packed one, alone; NULL: no memory
cdef Node *node_plain(const uint8_t *s, size_t n) noexcept nogil
cdef Node *node_of_listpack(const uint8_t *lp, size_t size, uint32_t count) noexcept nogil     # of a copy
cdef Node *node_copy(const Node *node) noexcept nogil          # alone
cdef void node_free(Node *node) noexcept nogil
# Those that return a Node may move it, and correct its neighbours; NULL: no memory, and nothing has changed.
cdef Node *node_push(Node *node, const uint8_t *s, size_t n, bint at_head) noexcept nogil
cdef Node *node_replace(Node *node, size_t place, size_t removed, const uint8_t *s, size_t n) noexcept nogil
    # The `removed` bytes at `place`, an offset in the listpack, which are one element or none, give way to an element.
cdef Node *node_fit(Node *node) noexcept nogil                 # give back the free room, if it can
cdef Node *node_join(Node *node, Node *following) noexcept nogil   # append the elements of another node to this one
cdef Node *node_split(Node *node, size_t place, uint32_t count) noexcept nogil
    # Cut off what starts at `place`, after `count` elements: a new node, alone.
cdef void node_pop(Node *node, bint at_head) noexcept nogil    # remove the first or the last element
cdef void node_cut(Node *node, uint32_t count, bint at_head) noexcept nogil    # ... or several
cdef void node_delete(Node *node, size_t place, size_t removed, uint32_t count) noexcept nogil
cdef uint32_t node_remove(Node *node, const uint8_t *s, size_t n, uint64_t limit, bint from_tail) noexcept nogil
    # Remove up to `limit` elements equal to s; how many. A plain node's element stays, but counts.
cdef const uint8_t *node_seek(Node *node, uint32_t index) noexcept nogil
