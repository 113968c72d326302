# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Nodes of lists: a listpack, or one huge element, in a block with free room at both ends.

    +-----------+-----------+---------------------------------+-----------+
    | structure | free room | listpack, of `size` bytes       | free room |
    +-----------+-----------+---------------------------------+-----------+
                |<- start ->|

Both ends of a list are pushed to and popped from, and neither may cost a move of thousands of bytes: with room in
front, an element is written before the first one, and the header, of six bytes, before it. The listpack is always
complete, so that it can be saved as it is. Room is added in proportion to the node; `node_fit` returns it
when a node is full.

A node with an element that is too large for a listpack holds nothing else (`PLAIN`).

The listpacks are Redis's, see engine/listpack.pyx. Caller: list_value.pyx.
"""

from libc.string cimport memcpy, memmove

from streamd.engine.listpack cimport (
    LP_END, LP_ROOM, lp_equals, lp_previous, lp_put, lp_set_header, lp_skip,
)
from streamd.heap cimport free, malloc, realloc

__all__ = []

cdef enum:
    SMALL = 512                # bytes of a node up to which room is added sparingly
    NOT_WORTH_FITTING = 64     # bytes of room that a full node may keep


# --- Blocks -----------------------------------------------------------------------------------------------------------


cdef Node *node_block(size_t bytes) noexcept nogil:
    cdef Node *node = <Node *>malloc(sizeof(Node) + bytes)
    if node is not NULL:
        node.prev = node.next = node
    return node


cdef inline size_t room_of(Node *node) noexcept nogil:
    """Bytes after the structure."""
    return block_size(node) - sizeof(Node)


cdef inline void settle(Node *node) noexcept nogil:
    """Write the header of the listpack."""
    lp_set_header(listpack_of(node), node.size, node.count)


cdef inline Node *moved(Node *node, Node *old) noexcept nogil:
    """The node was at `old`: correct its neighbours."""
    if node.next is old:
        node.next = node.prev = node
    else:
        node.next.prev = node
        node.prev.next = node
    return node


cdef Node *node_new(size_t room) noexcept nogil:
    cdef Node *node = node_block(LP_HEADER + 1 + room)
    if node is NULL:
        return NULL
    node.size = LP_HEADER + 1
    node.count = 0
    node.start = 0
    block_of(node)[LP_HEADER] = LP_END
    settle(node)
    return node


cdef Node *node_plain(const uint8_t *s, size_t n) noexcept nogil:
    cdef Node *node = node_block(n)
    if node is NULL:
        return NULL
    node.size = n
    node.count = 1
    node.start = PLAIN
    memcpy(block_of(node), s, n)
    return node


cdef Node *node_of_listpack(const uint8_t *lp, size_t size, uint32_t count) noexcept nogil:
    cdef Node *node = node_block(size)
    if node is NULL:
        return NULL
    node.size = size
    node.count = count
    node.start = 0
    memcpy(block_of(node), lp, size)
    return node


cdef Node *node_copy(const Node *node) noexcept nogil:
    if is_plain(node):
        return node_plain(block_of(<Node *>node), node.size)
    return node_of_listpack(listpack_of(<Node *>node), node.size, node.count)


cdef void node_free(Node *node) noexcept nogil:
    free(node)


cdef inline size_t spare_for(size_t size) noexcept nogil:
    """How much room a node that grows to `size` bytes gets beyond what it needs."""
    return size >> 4 if size < SMALL else size >> 1


cdef Node *make_room(Node *node, size_t front, size_t back) noexcept nogil:
    """Have `front` free bytes before the listpack and `back` bytes after it."""
    cdef Node *grown
    cdef size_t spare, total
    if node.start >= front and room_of(node) - node.start - node.size >= back:
        return node
    if node.start < front:
        spare = spare_for(node.size + front)
        total = node.size + front + back + spare
        if total <= room_of(node):
            spare = (room_of(node) - node.size - front - back) // 2     # half: the other end may be next
            memmove(block_of(node) + front + spare, listpack_of(node), node.size)
            node.start = <uint32_t>(front + spare)
            return node
        grown = node_block(total)
        if grown is NULL:
            return NULL
        memcpy(block_of(grown) + front + spare, listpack_of(node), node.size)
        grown[0].size = node.size
        grown.count = node.count
        grown.start = <uint32_t>(front + spare)
        grown.prev = node.prev
        grown.next = node.next
        moved(grown, node)
        free(node)
        return grown
    if node.start and node.size + front + back + spare_for(node.size + back) <= room_of(node):
        spare = (room_of(node) - node.size - front - back) // 2
        memmove(block_of(node) + front + spare, listpack_of(node), node.size)
        node.start = <uint32_t>(front + spare)
        return node
    grown = <Node *>realloc(node, sizeof(Node) + node.start + node.size + back + spare_for(node.size + back))
    return NULL if grown is NULL else moved(grown, node)


cdef Node *node_fit(Node *node) noexcept nogil:
    cdef Node *fitted
    if is_plain(node) or room_of(node) < node.size + NOT_WORTH_FITTING:
        return node
    if node.start:
        memmove(block_of(node), listpack_of(node), node.size)
        node.start = 0
    fitted = <Node *>realloc(node, sizeof(Node) + node.size)
    return node if fitted is NULL else moved(fitted, node)


# --- Elements ---------------------------------------------------------------------------------------------------------


cdef Node *node_push(Node *node, const uint8_t *s, size_t n, bint at_head) noexcept nogil:
    cdef size_t size
    cdef uint8_t *end
    if at_head:
        size = element_size(s, n)
        if node.start < size:
            node = make_room(node, size, 0)
            if node is NULL:
                return NULL
        node.start -= <uint32_t>size
        lp_put(first_of(node), s, n)
        node.size += size
    else:
        node = make_room(node, 0, n + LP_ROOM)
        if node is NULL:
            return NULL
        end = lp_put(end_of(node), s, n)
        end[0] = LP_END
        node.size = end + 1 - listpack_of(node)
    node.count += 1
    settle(node)
    return node


cdef Node *node_replace(Node *node, size_t place, size_t removed, const uint8_t *s, size_t n) noexcept nogil:
    cdef size_t size = element_size(s, n)
    cdef uint8_t *at
    if size > removed:
        node = make_room(node, 0, size - removed)
        if node is NULL:
            return NULL
    at = listpack_of(node) + place
    memmove(at + size, at + removed, node.size - place - removed)
    lp_put(at, s, n)
    node.size = node.size + size - removed
    if not removed:
        node.count += 1
    settle(node)
    return node


cdef void node_delete(Node *node, size_t place, size_t removed, uint32_t count) noexcept nogil:
    cdef uint8_t *at = listpack_of(node) + place
    memmove(at, at + removed, node.size - place - removed)
    node.size -= removed
    node.count -= count
    settle(node)


cdef void node_pop(Node *node, bint at_head) noexcept nogil:
    cdef uint8_t *first = first_of(node)
    cdef uint8_t *last
    if at_head:
        node.start += <uint32_t>(lp_skip(first) - first)
        node.size -= lp_skip(first) - first
    else:
        last = <uint8_t *>lp_previous(end_of(node))
        last[0] = LP_END
        node.size = last + 1 - listpack_of(node)
    node.count -= 1
    settle(node)


cdef void node_cut(Node *node, uint32_t count, bint at_head) noexcept nogil:
    cdef uint8_t *first
    cdef uint8_t *at
    if at_head:
        first = first_of(node)
        at = <uint8_t *>node_seek(node, count)
        node.start += <uint32_t>(at - first)
        node.size -= at - first
    else:
        at = <uint8_t *>node_seek(node, node.count - count)
        at[0] = LP_END
        node.size = at + 1 - listpack_of(node)
    node.count -= count
    settle(node)


cdef const uint8_t *node_seek(Node *node, uint32_t index) noexcept nogil:
    """The element at an index from 0 to `count`, where the end byte is. From the nearer end."""
    cdef const uint8_t *p
    if is_plain(node):
        return block_of(node)
    if index <= node.count // 2:
        p = first_of(node)
        for _ in range(index):
            p = lp_skip(p)
    else:
        p = end_of(node)
        for _ in range(node.count - index):
            p = lp_previous(p)
    return p


cdef Node *node_join(Node *node, Node *following) noexcept nogil:
    cdef size_t more = following.size - LP_HEADER - 1
    node = make_room(node, 0, more)
    if node is NULL:
        return NULL
    memcpy(end_of(node), first_of(following), more + 1)
    node.size += more
    node.count += following.count
    settle(node)
    return node


cdef Node *node_split(Node *node, size_t place, uint32_t count) noexcept nogil:
    cdef size_t more = node.size - place - 1
    cdef Node *rest = node_new(more)
    if rest is NULL:
        return NULL
    memcpy(first_of(rest), listpack_of(node) + place, more + 1)
    rest.size += more
    rest.count = node.count - count
    settle(rest)
    listpack_of(node)[place] = LP_END
    node.size = place + 1
    node.count = count
    settle(node)
    return rest


cdef uint32_t node_remove(Node *node, const uint8_t *s, size_t n, uint64_t limit, bint from_tail) noexcept nogil:
    cdef LpValue value
    cdef const uint8_t *p
    cdef const uint8_t *next
    cdef uint8_t *kept
    cdef uint32_t removed = 0
    if is_plain(node):
        read_element(node, NULL, &value)
        return lp_equals(&value, s, n)
    if from_tail:
        # What is kept moves towards the end, and the listpack then starts later.
        p = kept = end_of(node)
        while p is not first_of(node):
            next = p
            p = lp_previous(p)
            lp_get(p, &value)
            if removed < limit and lp_equals(&value, s, n):
                removed += 1
                continue
            if removed == 0:
                kept = <uint8_t *>p
                continue
            if removed == limit:
                kept -= next - first_of(node)
                memmove(kept, first_of(node), next - first_of(node))
                break
            kept -= next - p
            memmove(kept, p, next - p)
        if removed:
            node.size -= kept - first_of(node)
            node.start += <uint32_t>(kept - first_of(node))
    else:
        p = kept = first_of(node)
        while p[0] != LP_END:
            next = lp_get(p, &value)
            if removed < limit and lp_equals(&value, s, n):
                removed += 1
            else:
                if removed == limit:
                    memmove(kept, p, end_of(node) - p)
                    kept += end_of(node) - p
                    break
                if removed:
                    memmove(kept, p, next - p)
                kept += next - p
            p = next
        if removed:
            kept[0] = LP_END
            node.size = kept + 1 - listpack_of(node)
    if removed:
        node.count -= removed
        settle(node)
    return removed
