# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Cutting a range of a stream into parts of equal length, exactly, without reading the entries.

A node's head says how many live entries it has. So the nodes of the range are gathered from the tree, their counts
added up, and only those nodes that a cut falls into are walked entry by entry:

    nodes       |  100  |  100  |  37  |  100  |  100  |      437 entries, 3 parts
    range           [------------------------------]          60 before the range, 40 behind it: 337 are left
    cuts                     ^ 60 + 112    ^ 60 + 224         the entries number 172 and 284 from the first node's

Time is linear in the nodes of the range: nearly all of it is waiting for memory, which is asked for ahead. Seen: 1 ms
for ten million entries (100,000 nodes).

Who calls this: the command STREAMD.SPLIT.
"""

from libc.stdint cimport UINT64_MAX, int64_t, uint8_t, uint32_t, uint64_t
from streamd.heap cimport free, malloc

from streamd.engine.ids cimport StreamID, id_cmp, id_decrement, make_id
from streamd.engine.listpack cimport LP_HEADER, lp_get_int
from streamd.engine.rax cimport load_be64, rax_floor, rax_gather, store_be64
from streamd.engine.stream cimport Stream, StreamCursor, StreamNode, cursor_next, cursor_seek

__all__ = ["split"]

cdef extern from *:
    void prefetch "__builtin_prefetch" (const void *address) noexcept nogil

cdef enum:
    AHEAD = 24             # nodes whose memory is asked for before it is their turn

MAX_ID = (2**64 - 1, 2**64 - 1)


cdef inline StreamID master_of(const StreamNode *node) noexcept nogil:
    return make_id(load_be64(node.key), load_be64(node.key + 8))


cdef StreamNode *node_of(Stream stream, StreamID id) noexcept nogil:
    """The node that has this ID, were it there; not for IDs below the first entry's."""
    cdef uint8_t key[16]
    store_be64(key, id.ms)
    store_be64(key + 8, id.seq)
    return <StreamNode *>rax_floor(&stream.nodes, key)


cdef uint64_t count_entries(Stream stream, StreamID first, StreamID last) noexcept nogil:
    """The live entries of first .. last, one by one."""
    cdef StreamCursor cursor
    cdef uint64_t count = 0
    cursor_seek(stream, &cursor, first, last, False)
    while cursor_next(&cursor):
        count += 1
    return count


cdef uint64_t count_nodes(void **nodes, size_t count, uint32_t *lengths) noexcept nogil:
    """The live entries of each node, and of all."""
    cdef uint64_t total = 0
    cdef int64_t live
    cdef size_t i
    for i in range(count):
        if i + 2 * AHEAD < count:
            prefetch(nodes[i + 2 * AHEAD])
        if i + AHEAD < count:
            prefetch((<StreamNode *>nodes[i + AHEAD]).lp)
        lp_get_int((<StreamNode *>nodes[i]).lp + LP_HEADER, &live)
        lengths[i] = <uint32_t>live
        total += <uint64_t>live
    return total


cdef size_t split_range(
    Stream stream, StreamID first, StreamID last, uint64_t limit, size_t parts, Part *out
) except? 0:
    cdef StreamNode *first_node
    cdef StreamNode *last_node
    cdef void **nodes
    cdef uint32_t *lengths
    cdef StreamID bound
    cdef uint64_t before = 0, total
    cdef size_t count
    if id_cmp(first, stream.first_id) < 0:
        first = stream.first_id
    if id_cmp(last, stream.last_live) > 0:
        last = stream.last_live
    if stream.length == 0 or id_cmp(first, last) > 0:
        return 0
    first_node = node_of(stream, first)
    last_node = node_of(stream, last)
    nodes = <void **>malloc(stream.nodes.count * sizeof(void *))
    lengths = <uint32_t *>malloc(stream.nodes.count * sizeof(uint32_t))
    try:
        if nodes is NULL or lengths is NULL:
            raise MemoryError
        count = rax_gather(&stream.nodes, first_node.key, last_node, nodes)
        total = count_nodes(nodes, count, lengths)
        bound = first
        if id_decrement(&bound):
            before = count_entries(stream, master_of(first_node), bound)
        total -= lengths[count - 1]
        total += count_entries(stream, master_of(last_node), last)
        total -= before
        return cut(stream, nodes, lengths, before, limit if limit < total else total, parts, out)
    finally:
        free(nodes)
        free(lengths)


cdef struct Finder:
    # Finds entries by their numbers, counted from the first live one of the first node. The numbers must grow.
    void **nodes
    const uint32_t *lengths
    size_t node            # where the last one was
    uint64_t passed        # entries of the nodes before it
    uint64_t at            # entries that the cursor has come to in it; 0: it has to be sought
    StreamCursor cursor


cdef StreamID find_number(Stream stream, Finder *finder, uint64_t number) noexcept nogil:
    """The ID of an entry by its number."""
    while finder.passed + finder.lengths[finder.node] <= number:
        finder.passed += finder.lengths[finder.node]
        finder.node += 1
        finder.at = 0
    if finder.at == 0:
        cursor_seek(
            stream, &finder.cursor, master_of(<StreamNode *>finder.nodes[finder.node]), stream.last_live, False
        )
    while finder.at <= number - finder.passed:
        cursor_next(&finder.cursor)
        finder.at += 1
    return finder.cursor.id


cdef size_t cut(
    Stream stream, void **nodes, const uint32_t *lengths, uint64_t before, uint64_t total, size_t parts, Part *out
) noexcept nogil:
    """The parts of the entries number `before` to before + total - 1."""
    cdef Finder finder
    cdef uint64_t start, end = 0
    cdef size_t part
    finder.nodes = nodes
    finder.lengths = lengths
    finder.node = 0
    finder.passed = finder.at = 0
    if parts > total:
        parts = <size_t>total
    for part in range(parts):
        start = end
        # Fits into 64 bits: parts are few, and a stream has not 2^48 entries.
        end = total * (part + 1) // parts
        out[part].first = find_number(stream, &finder, before + start)
        out[part].last = find_number(stream, &finder, before + end - 1)
        out[part].length = end - start
    return parts


def split(Stream stream not None, size_t parts, first=(0, 0), last=MAX_ID, *, limit=None):
    """Cut the entries of a range into parts whose lengths differ by one at most: `(first ID, last ID, length)`
    of each, as a list in order.

    parts        how many at most; a part has an entry at least
    first, last  IDs as (ms, seq), both included
    limit        only so many entries of the range, the first ones
    O(n), n nodes in the range. Changes nothing.
    """
    cdef Part *found
    cdef Part part
    cdef size_t i, count
    if parts > stream.length:
        parts = stream.length
    if parts == 0:
        return []
    found = <Part *>malloc(parts * sizeof(Part))
    if found is NULL:
        raise MemoryError
    try:
        count = split_range(
            stream, make_id(first[0], first[1]), make_id(last[0], last[1]),
            UINT64_MAX if limit is None else limit, parts, found,
        )
        parts_found = []
        for i in range(count):
            part = found[i]
            parts_found.append(((part.first.ms, part.first.seq), (part.last.ms, part.last.seq), part.length))
        return parts_found
    finally:
        free(found)
