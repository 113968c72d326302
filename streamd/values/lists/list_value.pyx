# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""List: a ring of nodes, each of which holds a listpack or one huge element.

    head ──> node <──> node <──> ... <──> node, the tail ──> head

Elements are pushed to a node until it is full; then the next node begins. How much is full is the setting
list-max-listpack-size, called `fill` here: a number of elements, or, if negative, a class of sizes:

    fill          bytes of a node         elements of a node
    -1 ... -5     4, 8, 16, 32, 64 KiB    any
    n, 0: as 1    8 KiB                   n

An element larger than a node gets a plain node of its own. A position is found by the counts of the nodes, from the
nearer end of the list.

A list is a listpack at first, in Redis's words, and a quicklist once it has become too large for one node
(`grow_out`), until it has become small again (`shrink_back`). Here both are the same structure.

What must hold (check_invariants): no node is empty; the length is the sum of the nodes' counts; a list that is no
quicklist has at most one node, a packed one. Behaviour: Redis 8.6, as seen on a running server; nodes are cut as there,
so that the name of the encoding changes as there.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from streamd.engine.listpack cimport (
    LP_END, LP_HEADER, LpValue, lp_bytes, lp_equals, lp_header_count, lp_previous, lp_skip, lp_validate,
)
from streamd.heap cimport block_memory, block_size, free, freed_aside, malloc
from streamd.values.lists.node cimport (
    Node, block_of, end_of, first_of, is_plain, listpack_of, node_copy, node_cut, node_delete, node_fit, node_free,
    node_join, node_new, node_of_listpack, node_plain, node_pop, node_push, node_remove, node_replace, node_seek,
    node_split, read_element,
)

__all__ = ["List", "ListRemains"]

cdef enum:
    SAFE_BYTES = 8192          # of a node, if the limit is a number of elements
    ESTIMATED_HEAD = 8         # bytes by which Redis estimates an element to be longer than its string
    SLACK = 4096               # free room of a node from which it is worth giving back
    MOST_CLOSED = 1024         # bytes of the listpack of a list that is closed: it is copied
    LEAST_FILL = -5
    MOST_FILL = 32767


# --- Limits -----------------------------------------------------------------------------------------------------------


cdef size_t byte_limit(int fill) noexcept nogil:
    """Bytes that a node may have; also of its listpack when nothing else is in the list."""
    if fill >= 0:
        return SAFE_BYTES
    return <size_t>4096 << (-fill - 1 if fill > -5 else 4)


cdef inline bint is_beyond(size_t size, uint64_t count, int fill) noexcept nogil:
    """Whether a node with so many bytes and elements is too large."""
    return size > byte_limit(fill) or (fill >= 0 and count > <uint64_t>(fill or 1))


cdef inline bint is_huge(size_t n, int fill) noexcept nogil:
    """Whether an element needs a node of its own."""
    return n > byte_limit(fill)


cdef inline bint has_room(const Node *node, size_t n, int fill) noexcept nogil:
    """Whether a node takes another element of n bytes."""
    return (
        not is_plain(node) and not is_huge(n, fill)
        and not is_beyond(node.size + n + ESTIMATED_HEAD, <uint64_t>node.count + 1, fill)
    )


cdef inline int no_memory() except -1:
    raise MemoryError("no memory for a list")


# --- The list ---------------------------------------------------------------------------------------------------------


@cython.final
@cython.no_gc
cdef class List:
    """A list of strings."""

    def __dealloc__(self):
        while self.head is not NULL:
            self.drop_node(self.head)

    def __len__(self):
        return self.length

    # --- Nodes ----------------------------------------------------------------------------------------------------

    cdef Node *link(self, Node *node, Node *before, bint becomes_head) except NULL:
        """Place a new node before another one (NULL: it is the only one); its elements are counted."""
        if node is NULL:
            no_memory()
        if before is NULL:
            node.next = node.prev = node
            self.head = node
        else:
            node.next = before
            node.prev = before.prev
            node.prev.next = node
            before.prev = node
            if becomes_head:
                self.head = node
        self.nodes += 1
        self.length += node.count
        return node

    cdef void drop_node(self, Node *node) noexcept:
        """Unlink and free a node; its elements are counted out."""
        self.length -= node.count
        self.nodes -= 1
        if node.next is node:
            self.head = NULL
        else:
            node.prev.next = node.next
            node.next.prev = node.prev
            if self.head is node:
                self.head = node.next
        node_free(node)

    cdef int adopt(self, Node *node) except -1:
        self.link(node, self.head, False)
        return 0

    # --- Both ends --------------------------------------------------------------------------------------------------

    cdef int push(self, const uint8_t *s, size_t n, bint at_head) except -1:
        """Add an element at an end. Before the first of a request, `grow_out`."""
        cdef int fill = self.fill
        cdef Node *node = self.head
        cdef Node *pushed
        if node is not NULL and not at_head:
            node = node.prev
        if node is not NULL and (not self.is_quicklist or has_room(node, n, fill)):
            pushed = node_push(node, s, n, at_head)
            if pushed is NULL:
                no_memory()
            if pushed is not node and self.head is node:
                self.head = pushed
            self.length += 1
            return 0
        if node is not NULL:
            pushed = node_fit(node)
            if self.head is node:
                self.head = pushed
        self.link(single(s, n, self.is_quicklist and is_huge(n, fill)), self.head, at_head)
        return 0

    cdef bint peek(self, bint at_head, LpValue *out) noexcept:
        """Read the element at an end; False: the list is empty."""
        cdef Node *node = self.head
        if node is NULL:
            return False
        if at_head:
            read_element(node, NULL if is_plain(node) else first_of(node), out)
        else:
            node = node.prev
            read_element(node, NULL if is_plain(node) else lp_previous(end_of(node)), out)
        return True

    cdef void pop(self, bint at_head) noexcept:
        cdef Node *node = self.head if at_head else self.head.prev
        if node.count == 1:
            self.drop_node(node)
        else:
            node_pop(node, at_head)
            self.length -= 1
            if not node.count & 63:
                self.fit(node)

    cdef void fit(self, Node *node) noexcept:
        """Give back the room of a node that is mostly empty."""
        cdef Node *fitted
        if block_size(node) > SLACK and block_size(node) > 4 * node.size:
            fitted = node_fit(node)
            if self.head is node:
                self.head = fitted

    # --- Positions --------------------------------------------------------------------------------------------------

    cdef bint seek(self, int64_t index, Cursor *cursor) noexcept:
        """Place a cursor at an index, from the tail if it is negative; False: out of range."""
        cdef Node *node = self.head
        cdef uint64_t left
        if index < 0:
            index += <int64_t>self.length
        if index < 0 or <uint64_t>index >= self.length:
            return False
        left = <uint64_t>index
        if left <= self.length // 2:
            while left >= node.count:
                left -= node.count
                node = node.next
        else:
            left = self.length - left       # from 1 on: distance from the end
            node = node.prev
            while left > node.count:
                left -= node.count
                node = node.prev
            left = node.count - left
        cursor.node = node
        cursor.index = <uint32_t>left
        cursor.at = node_seek(node, <uint32_t>left)
        return True

    cdef bint find(self, const uint8_t *s, size_t n, Cursor *cursor) noexcept:
        """Place a cursor at the first element equal to s; False: none is."""
        cdef LpValue value
        if not self.seek(0, cursor):
            return False
        while True:
            read_element(cursor.node, cursor.at, &value)
            if lp_equals(&value, s, n):
                return True
            if not cursor_next(self, cursor):
                return False

    # --- In the middle ----------------------------------------------------------------------------------------------

    cdef int replace(self, Cursor *cursor, const uint8_t *s, size_t n) except -1:
        """Put another element in the place of the cursor's. Before it, `grow_out`."""
        cdef Node *node = cursor.node
        cdef Node *placed
        cdef size_t place
        if not is_plain(node) and not is_huge(n, self.fill):
            place = cursor.at - listpack_of(node)
            placed = node_replace(node, place, lp_skip(cursor.at) - cursor.at, s, n)
            if placed is NULL:
                no_memory()
            if self.head is node:
                self.head = placed
            return 0
        self.insert(cursor, s, n, True)       # leaves the cursor at the old element
        node = cursor.node
        if node.count == 1:
            self.drop_node(node)
            return 0
        place = cursor.at - listpack_of(node)
        node_delete(node, place, lp_skip(cursor.at) - cursor.at, 1)
        self.length -= 1
        return 0

    cdef int insert(self, Cursor *cursor, const uint8_t *s, size_t n, bint after) except -1:
        """Add an element next to the cursor's, where the cursor stays. Before it, `grow_out`."""
        cdef int fill = self.fill
        cdef Node *node = cursor.node
        cdef Node *other
        cdef Node *placed
        cdef uint32_t index = cursor.index + after
        cdef const uint8_t *at
        cdef size_t place, old_place
        cdef bint is_huge_one = self.is_quicklist and is_huge(n, fill)
        if not self.is_quicklist or has_room(node, n, fill):
            old_place = cursor.at - listpack_of(node)
            at = lp_skip(cursor.at) if after else cursor.at
            placed = node_replace(node, at - listpack_of(node), 0, s, n)
            if placed is NULL:
                no_memory()
            if self.head is node:
                self.head = placed
            self.length += 1
            cursor.node = placed
            cursor.at = listpack_of(placed) + old_place
            if not after:
                cursor.at = lp_skip(cursor.at)
                cursor.index += 1
            return 0
        if index == node.count or index == 0:
            # At an end of a full node: into the neighbour, or between the two.
            other = node.next if index else node.prev
            if (other is not self.head if index else node is not self.head) and has_room(other, n, fill):
                placed = node_push(other, s, n, index != 0)
                if placed is NULL:
                    no_memory()
                if self.head is other:
                    self.head = placed
                self.length += 1
                return 0
            self.link(single(s, n, is_huge_one), node.next if index else node, index == 0 and node is self.head)
            return 0
        # In the middle of a full node: it is split.
        at = lp_skip(cursor.at) if after else cursor.at
        place = at - listpack_of(node)
        other = node_split(node, place, index)
        if other is NULL:
            no_memory()
        self.length -= other.count
        self.link(other, node.next, False)
        if not after:
            cursor.node = other
            cursor.at = first_of(other)
            cursor.index = 0
        if is_huge_one:
            self.link(node_plain(s, n), other, False)
            return 0
        placed = node_push(other if after else node, s, n, after)
        if placed is NULL:
            no_memory()
        if self.head is node and not after:
            self.head = placed
        self.length += 1
        return 0

    cdef int merge_around(self, Node *node) except -1:
        """Join a node with its neighbours, and these with theirs, where one node has room for both. Cursors end."""
        if self.nodes > 1 and node is not self.head:
            if node.prev is not self.head:
                self.merge(node.prev.prev)
        if self.nodes > 1 and node.next is not self.head and node.next.next is not self.head:
            self.merge(node.next)
        if node is not self.head:
            node = self.merge(node.prev)
        if node.next is not self.head:
            self.merge(node)
        return 0

    cdef Node *merge(self, Node *node) except NULL:
        """Join a node with the following one, if one node has room for both; the node where the second one is then."""
        cdef Node *following = node.next
        cdef Node *joined
        if (
            is_plain(node) or is_plain(following)
            or is_beyond(node.size + following.size - LP_HEADER - 1, <uint64_t>node.count + following.count, self.fill)
        ):
            return following
        joined = node_join(node, following)
        if joined is NULL:
            no_memory()
        if self.head is node:
            self.head = joined
        self.length += following.count      # they are counted in both
        self.drop_node(following)
        return joined

    cdef uint64_t remove(self, const uint8_t *s, size_t n, uint64_t limit, bint from_tail) noexcept:
        """Remove up to `limit` elements equal to s, counted from an end; how many."""
        cdef Node *node = self.head
        cdef Node *following
        cdef uint64_t removed = 0
        cdef uint32_t left = self.nodes
        cdef uint32_t count
        if node is not NULL and from_tail:
            node = node.prev
        while left and removed < limit:
            following = node.prev if from_tail else node.next
            count = node_remove(node, s, n, limit - removed, from_tail)
            removed += count
            if count:
                if is_plain(node):
                    self.drop_node(node)
                else:
                    self.length -= count
                    if node.count == 0:
                        self.drop_node(node)
                    else:
                        self.fit(node)
            node = following
            left -= 1
        return removed

    cdef void trim(self, uint64_t at_head, uint64_t at_tail) noexcept:
        """Remove elements at both ends: as many as there are at most."""
        while at_head:
            if self.head.count <= at_head:
                at_head -= self.head.count
                self.drop_node(self.head)
            else:
                node_cut(self.head, <uint32_t>at_head, True)
                self.length -= at_head
                self.fit(self.head)
                break
        while at_tail:
            if self.head.prev.count <= at_tail:
                at_tail -= self.head.prev.count
                self.drop_node(self.head.prev)
            else:
                node_cut(self.head.prev, <uint32_t>at_tail, False)
                self.length -= at_tail
                self.fit(self.head.prev)
                break

    # --- The name of the encoding -----------------------------------------------------------------------------------

    cdef int grow_out(self, size_t more, uint64_t count, int fill) except -1:
        """Before `count` elements of `more` bytes are added: become a quicklist if that is too much for a listpack."""
        cdef size_t size = LP_HEADER + 1
        if not self.is_quicklist:
            if self.head is not NULL:
                size = self.head.size
            if is_beyond(size + more, self.length + count, fill):
                self.become_quicklist(fill)
        return 0

    cdef void become_quicklist(self, int fill) noexcept:
        """Be a quicklist, whose nodes have this limit for as long as it is one."""
        self.is_quicklist = True
        self.fill = <short>(LEAST_FILL if fill < LEAST_FILL else MOST_FILL if fill > MOST_FILL else fill)

    cdef int shrink_back(self, int fill, unsigned int divisor) except -1:
        """After a removal, or loading: become a listpack again if a share of the limit suffices. 2: half of it."""
        cdef Node *node = self.head
        if not self.is_quicklist or self.nodes > 1 or node is NULL or is_plain(node):
            return 0
        if fill < 0:
            if node.size > byte_limit(fill) // divisor:
                return 0
        elif node.count > <uint32_t>(fill or 1) // divisor:
            return 0
        self.is_quicklist = False
        return 0

    # --- Whole lists ------------------------------------------------------------------------------------------------

    cdef size_t memory(self) noexcept:
        """Bytes of all nodes."""
        cdef Node *node = self.head
        cdef size_t total = 0
        for _ in range(self.nodes):
            total += block_memory(node)
            node = node.next
        return total

    cdef void *close(self) noexcept:
        """Empty a short list; returns its listpack, a block of its own. NULL: it is not short, or there is no room."""
        cdef Node *node = self.head
        cdef void *lp
        if node is NULL or self.is_quicklist or node.size > MOST_CLOSED:
            return NULL
        lp = malloc(node.size)
        if lp is NULL:
            return NULL
        memcpy(lp, listpack_of(node), node.size)
        self.drop_node(node)
        return lp

    def copy(self):
        """A list with the same elements. O(bytes)."""
        cdef List made = List.__new__(List)
        cdef Node *node = self.head
        for _ in range(self.nodes):
            made.adopt(node_copy(node))
            node = node.next
        made.is_quicklist = self.is_quicklist
        made.fill = self.fill
        return made

    def elements(self):
        """All elements, as a Python list. For tests and DEBUG."""
        cdef Cursor cursor
        cdef list found = []
        if self.seek(0, &cursor):
            found.append(element_bytes(&cursor))
            while cursor_next(self, &cursor):
                found.append(element_bytes(&cursor))
        return found

    def free_effort(self):
        """How many nodes there are to free."""
        return self.nodes

    def detach(self):
        """Empty the list; what has to be freed."""
        cdef ListRemains remains = ListRemains.__new__(ListRemains)
        remains.head = self.head
        self.head = NULL
        self.length = self.nodes = 0
        return remains

    def check_invariants(self):
        """Assert what must hold, see the head of this file."""
        cdef Node *node = self.head
        cdef uint64_t length = 0
        cdef size_t offset
        cdef const char *wrong
        assert (node is NULL) == (self.nodes == 0)
        for _ in range(self.nodes):
            assert node.next.prev is node and node.prev.next is node
            assert node.count > 0
            length += node.count
            if is_plain(node):
                assert self.is_quicklist and node.count == 1
                assert sizeof(Node) + node.size <= block_size(node)
            else:
                assert sizeof(Node) + node.start + node.size <= block_size(node)
                wrong = lp_validate(listpack_of(node), node.size, &offset)
                assert wrong is NULL, (<bytes>wrong, offset)
                assert count_elements(node) == node.count
            node = node.next
        assert node is self.head
        assert length == self.length
        assert self.is_quicklist or self.nodes <= 1


cdef uint32_t count_elements(Node *node) noexcept:
    cdef const uint8_t *p = first_of(node)
    cdef uint32_t count = 0
    while p[0] != LP_END:
        p = lp_skip(p)
        count += 1
    return count


cdef Node *single(const uint8_t *s, size_t n, bint as_plain) noexcept:
    """A node with one element, alone; NULL: no memory."""
    cdef Node *node
    cdef Node *pushed
    if as_plain:
        return node_plain(s, n)
    node = node_new(n + ESTIMATED_HEAD)
    if node is NULL:
        return NULL
    pushed = node_push(node, s, n, False)
    if pushed is NULL:
        node_free(node)
    return pushed


cdef bytes element_bytes(Cursor *cursor):
    cdef LpValue value
    read_element(cursor.node, cursor.at, &value)
    if value.data is NULL:
        return b"%d" % value.number
    return PyBytes_FromStringAndSize(<const char *>value.data, <Py_ssize_t>value.length)


# --- Cursors ----------------------------------------------------------------------------------------------------------


cdef bint cursor_next(List value, Cursor *cursor) noexcept:
    if cursor.index + 1 < cursor.node.count:
        cursor.at = lp_skip(cursor.at)
        cursor.index += 1
        return True
    cursor.node = cursor.node.next
    if cursor.node is value.head:
        return False
    cursor.at = block_of(cursor.node) if is_plain(cursor.node) else first_of(cursor.node)
    cursor.index = 0
    return True


cdef bint cursor_previous(List value, Cursor *cursor) noexcept:
    if cursor.index:
        cursor.at = lp_previous(cursor.at)
        cursor.index -= 1
        return True
    if cursor.node is value.head:
        return False
    cursor.node = cursor.node.prev
    cursor.index = cursor.node.count - 1
    cursor.at = block_of(cursor.node) if is_plain(cursor.node) else lp_previous(end_of(cursor.node))
    return True


# --- Freeing aside ----------------------------------------------------------------------------------------------------


cdef List list_of(uint8_t *lp):
    """The list that `close` emptied."""
    cdef List made = List.__new__(List)
    cdef Node *node = node_of_listpack(lp, lp_bytes(lp), lp_header_count(lp))
    if node is NULL:
        no_memory()
    made.adopt(node)
    free(lp)
    return made


@cython.final
@cython.no_gc
cdef class ListRemains:
    """The nodes of a list that is no longer reachable."""

    cdef Node *head

    def __dealloc__(self):
        self.free()

    def free(self):
        """Free all of them, without the interpreter's lock."""
        cdef Node *node = self.head
        cdef Node *following
        cdef size_t size
        self.head = NULL
        if node is NULL:
            return
        with nogil:
            node.prev.next = NULL
            while node is not NULL:
                following = node.next
                size = block_size(node)
                node_free(node)
                freed_aside(size)
                node = following
