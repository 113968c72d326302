# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Nodes of streams that entries leave out of order are kept dense.

    | a . . d | . f . . | . . i j |   ─▶   | a d | f | i j |   ─▶   | a d f | i j |
                                          tombstones go            a node that is thin joins a neighbour

Redis frees a node with its last entry, which is soon where entries leave in their order. Where each has a time of its
own, nodes with a few entries are left everywhere. So in a stream that a rule with FEEDS or EXPIRES is about
(`Stream.merges`), whoever deletes an entry calls `keep_dense`: more than one tombstone for two entries are removed, and
a node that is less than a quarter full joins a neighbour, if both together fit into a node. The last node, which still
grows, joins none.

A node keeps its master ID and field names, even when the entry that had them is gone: as in Redis, IDs are relative to
that, and entries may have names of their own. Readers, files and Redis need not know.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcmp, memcpy

from streamd.engine.ids cimport StreamID
from streamd.engine.listpack cimport (
    LP_END, LP_HEADER, LP_ROOM, lp_bytes, lp_get_int, lp_previous, lp_put_int, lp_set_header,
    lp_skip,
)
from streamd.engine.rax cimport rax_first, rax_floor, rax_higher, rax_lower, rax_weigh
from streamd.heap cimport free, malloc, realloc
from streamd.values.streams.node cimport (
    FLAG_DELETED, FLAG_SAME_NAMES, MASTER_ELEMENTS, StreamCursor, StreamNode, enter_node, free_node, make_key,
    read_head, skip_body, skip_many,
)
from streamd.values.streams.stream cimport Stream

__all__ = []

cdef enum:
    # Of a node, where the settings have no limit.
    MAX_BYTES = 4096
    MAX_ENTRIES = 100


cdef struct Content:
    # What a node has.
    int64_t live
    int64_t deleted
    size_t size                # of the live entries, about


cdef inline Content content_of(const StreamNode *node) noexcept nogil:
    cdef Content content
    lp_get_int(lp_get_int(node.lp + LP_HEADER, &content.live), &content.deleted)
    content.size = lp_bytes(node.lp) * <size_t>content.live // <size_t>(content.live + content.deleted)
    return content


cdef inline bint fits(Stream stream, int64_t live, size_t size) noexcept nogil:
    """Whether a node may have so many entries and bytes."""
    return (
        size <= (stream.node_max_bytes or MAX_BYTES) and <uint64_t>live <= (stream.node_max_entries or MAX_ENTRIES)
    )


cdef void keep_dense(Stream stream, StreamID id) noexcept nogil:
    """An entry with this ID was deleted. Without memory, nothing happens."""
    cdef uint8_t key[16]
    cdef StreamNode *node
    cdef StreamNode *neighbour
    cdef Content content
    make_key(key, id)
    node = <StreamNode *>rax_floor(&stream.nodes, key)
    if node is NULL:
        return
    content = content_of(node)
    if fits(stream, 4 * (content.live + 1), 4 * content.size):
        neighbour = <StreamNode *>rax_higher(&stream.nodes, node.key)
        if neighbour is not NULL and neighbour != stream.nodes.last and join(stream, node, neighbour):
            return
        neighbour = <StreamNode *>rax_lower(&stream.nodes, node.key)
        if neighbour is not NULL and node != stream.nodes.last and join(stream, neighbour, node):
            return
    if 2 * content.deleted > content.live:
        rebuild(stream, node, NULL, lp_bytes(node.lp))


cdef bint join(Stream stream, StreamNode *node, StreamNode *following) noexcept nogil:
    """Move the entries of the following node to a node, if they fit; neither is the last one."""
    cdef Content content = content_of(node), more = content_of(following)
    cdef StreamCursor cursor
    cdef StreamCursor other
    cdef size_t size = content.size + more.size
    cdef size_t room = lp_bytes(node.lp) + lp_bytes(following.lp) + <size_t>more.live * 2 * LP_ROOM
    cdef size_t names
    if not fits(stream, content.live + more.live, size):
        return False
    enter_node(&cursor, node)
    enter_node(&other, following)
    if not has_same_names(&cursor, &other):
        names = skip_many(other.names, other.name_count) - other.names
        size += <size_t>more.live * names
        room += <size_t>more.live * (names + LP_ROOM)
        if not fits(stream, content.live + more.live, size):
            return False
    if not rebuild(stream, node, following, room):
        return False
    rax_weigh(&stream.nodes, node.key, more.live)
    stream.take_out(following)
    free_node(following)
    return True


cdef bint has_same_names(const StreamCursor *a, const StreamCursor *b) noexcept nogil:
    """Whether the entries that two nodes began with had the same field names."""
    cdef size_t size = skip_many(a.names, a.name_count) - a.names
    return (
        a.name_count == b.name_count and size == <size_t>(skip_many(b.names, b.name_count) - b.names)
        and memcmp(a.names, b.names, size) == 0
    )


cdef bint rebuild(Stream stream, StreamNode *node, StreamNode *following, size_t room) noexcept nogil:
    """Write a node anew, without tombstones, and with the entries of the following one, if given.

    room  as many bytes are enough
    """
    cdef bint is_open = node == stream.nodes.last
    cdef size_t capacity = max(room + 2 * LP_ROOM, node.capacity)
    cdef uint8_t *lp = <uint8_t *>malloc(capacity)
    cdef uint8_t *shrunk
    cdef const uint8_t *names_end
    cdef uint8_t *p
    cdef StreamCursor cursor
    cdef StreamCursor other
    cdef const uint8_t *first = enter_node(&cursor, node)
    cdef const uint8_t *first_of_other = NULL
    cdef uint64_t elements = MASTER_ELEMENTS + cursor.name_count
    cdef int64_t live = content_of(node).live
    if lp is NULL:
        return False
    if following is not NULL:
        first_of_other = enter_node(&other, following)
        live += content_of(following).live
    names_end = skip_many(cursor.names, cursor.name_count)
    p = lp_put_int(lp + LP_HEADER, live)
    p = lp_put_int(p, 0)
    p = lp_put_int(p, <int64_t>cursor.name_count)
    p = put_bytes(p, cursor.names, names_end)
    p = lp_put_int(p, 0)
    p = put_live(p, &cursor, first, &cursor, &elements)
    if following is not NULL:
        p = put_live(p, &other, first_of_other, &cursor, &elements)
    p[0] = LP_END
    lp_set_header(lp, p - lp + 1, elements)
    if not is_open:
        shrunk = <uint8_t *>realloc(lp, lp_bytes(lp))
        if shrunk is not NULL:
            lp = shrunk
            capacity = lp_bytes(lp)
    if node == rax_first(&stream.nodes):
        stream.skipped = 0
    stream.node_bytes = stream.node_bytes - node.capacity + capacity
    free(node.lp)
    node.lp = lp
    node.capacity = capacity
    return True


cdef inline uint8_t *put_bytes(uint8_t *p, const uint8_t *first, const uint8_t *end) noexcept nogil:
    memcpy(p, first, <size_t>(end - first))
    return p + (end - first)


cdef uint8_t *put_live(
    uint8_t *p, const StreamCursor *source, const uint8_t *entry, const StreamCursor *target, uint64_t *elements
) noexcept nogil:
    """Write the live entries of a node from `entry` on at `p`, for the node `target`; returns their end.

    elements  is raised by theirs
    """
    cdef bint same_names = has_same_names(source, target)
    cdef const uint8_t *body
    cdef const uint8_t *end
    cdef int64_t flags, number
    cdef StreamID id
    while entry[0] != LP_END:
        body = read_head(source, entry, &flags, &id)
        end = skip_body(source, body, flags)
        if not flags & FLAG_DELETED:
            p = lp_put_int(p, flags if same_names else 0)
            p = lp_put_int(p, <int64_t>(id.ms - target.master.ms))
            p = lp_put_int(p, <int64_t>(id.seq - target.master.seq))
            if flags & FLAG_SAME_NAMES and not same_names:
                p = put_pairs(p, source, body)
                elements[0] += 2 * source.name_count + 5
            else:
                p = put_bytes(p, body, end)
                lp_get_int(lp_previous(end), &number)
                elements[0] += <uint64_t>number + 1
        entry = end
    return p


cdef uint8_t *put_pairs(uint8_t *p, const StreamCursor *source, const uint8_t *value) noexcept nogil:
    """Write an entry that has the names of its node from its number of pairs on, with names of its own."""
    cdef const uint8_t *name = source.names
    cdef uint64_t _
    p = lp_put_int(p, <int64_t>source.name_count)
    for _ in range(source.name_count):
        p = put_bytes(p, name, lp_skip(name))
        p = put_bytes(p, value, lp_skip(value))
        name = lp_skip(name)
        value = lp_skip(value)
    return lp_put_int(p, <int64_t>(2 * source.name_count + 4))
