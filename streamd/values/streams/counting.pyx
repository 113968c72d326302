# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""How many entries of a stream lie between two IDs, exactly, whatever was deleted, trimmed or set.

The radix tree adds up the live entries of all nodes but the last, so those of the nodes before an ID are found on the
way to it, and only the entries of one node are walked:

    nodes       |  100  |  100  |  37  |  100  |  open |
    up to ID    ------- 237 ------------->  ^ 60 of its entries        297 entries

Time is logarithmic in the nodes, plus one node. Callers: XINFO and streamd_counts.pyx.
"""

from libc.stdint cimport UINT64_MAX, int64_t, uint8_t, uint64_t

from streamd.engine.ids cimport StreamID, id_cmp, id_decrement, id_increment, make_id
from streamd.engine.listpack cimport LP_END
from streamd.engine.rax cimport rax_floor, rax_weight_before
from streamd.values.streams.node cimport (
    FLAG_DELETED, StreamCursor, StreamNode, enter_node, make_key, node_weight, read_head, skip_body,
)
from streamd.values.streams.stream cimport Stream, cursor_next, cursor_seek

__all__ = []


cdef uint64_t count_in_node(StreamNode *node, StreamID id) noexcept nogil:
    """The live entries of a node up to this ID, inclusive."""
    cdef StreamCursor cursor
    cdef const uint8_t *p = enter_node(&cursor, node)
    cdef const uint8_t *body
    cdef StreamID at
    cdef int64_t flags
    cdef uint64_t found = 0
    while p[0] != LP_END:
        body = read_head(&cursor, p, &flags, &at)
        if id_cmp(at, id) > 0:
            break
        found += not flags & FLAG_DELETED
        p = skip_body(&cursor, body, flags)
    return found


cdef uint64_t count_up_to(Stream stream, StreamID id) noexcept nogil:
    """The entries up to this ID, inclusive."""
    cdef uint8_t key[16]
    cdef StreamNode *node
    if stream.length == 0 or id_cmp(id, stream.first_id) < 0:
        return 0
    if id_cmp(id, stream.last_live) >= 0:
        return stream.length
    make_key(key, id)
    node = <StreamNode *>rax_floor(&stream.nodes, key)
    return rax_weight_before(&stream.nodes, node.key, node_weight) + count_in_node(node, id)


cdef uint64_t count_above(Stream stream, StreamID id) noexcept nogil:
    return stream.length - count_up_to(stream, id)


cdef uint64_t count_between(Stream stream, StreamID first, StreamID last) noexcept nogil:
    if id_cmp(first, last) > 0:
        return 0
    if not id_decrement(&first):
        return count_up_to(stream, last)
    return count_up_to(stream, last) - count_up_to(stream, first)


cdef bint first_above(Stream stream, StreamID id, StreamID *out) noexcept nogil:
    cdef StreamCursor cursor
    if not id_increment(&id):
        return False
    cursor_seek(stream, &cursor, id, make_id(UINT64_MAX, UINT64_MAX), False)
    if not cursor_next(&cursor):
        return False
    out[0] = cursor.id
    return True
