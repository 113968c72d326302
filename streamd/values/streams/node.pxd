# cython: language_level=3
"""A node of a stream: one listpack of many entries, and how it is read.

It starts with the master entry, which holds the field names of the node's first entry. The node's master ID, its key
in the tree, is that entry's ID. Redis keeps a node in the same form, byte for byte, and an RDB file stores it so.

    master entry      | live | deleted | names | name 1 | ... | name N | 0 |
    same names        | flags | ms | seq |         value 1 | ... | value N        | elements |
    other names       | flags | ms | seq | pairs | name 1 | value 1 | ... value N | elements |

    live, deleted   number of live entries, and of tombstones
    flags           1: a tombstone; 2: the names are those of the master entry, in the same order
    ms, seq         the ID minus the master ID, half by half (seq may be negative)
    elements        how many elements the entry has before this one, for walking back. The master entry's 0 stops it.

    1-1 {a: x}, 1-2 {a: 5}:    2 0 1 "a" 0 | 2 0 0 "x" 4 | 2 0 1 5 4 |         as elements

The readers here trust the bytes they walk: bytes from outside go through node_check first. They are the inner loops of
stream.pyx, so all of them are inline.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t

from streamd.engine.ids cimport StreamID, id_cmp, make_id
from streamd.engine.listpack cimport LP_HEADER, LpValue, lp_bytes, lp_get, lp_get_int, lp_previous, lp_skip
from streamd.engine.rax cimport Rax, load_be64, store_be64
from streamd.heap cimport free


cdef struct StreamNode:
    # One listpack and its place in the tree. The tree owns neither; the stream owns both.
    uint8_t key[16]        # master ID, big-endian: the key of the radix tree
    uint8_t *lp            # the listpack; may move when it grows
    size_t capacity        # bytes malloc'ed for lp


cdef struct StreamCursor:
    # A walk over live entries in either direction. Invalid after any change to the stream's entries.
    StreamID id                # the entry that cursor_next reached
    uint64_t pairs             # its field-value pairs
    uint64_t pairs_left        # those not yet read
    # Internal
    const uint8_t *at          # the next element of the entry
    const uint8_t *name        # the next field name in the master entry; NULL: the entry has its own names
    const uint8_t *start       # the entry's first element
    const uint8_t *names       # the first field name of the node
    uint64_t name_count        # number of field names of the node
    StreamID master            # master ID of the node
    const Rax *nodes
    StreamNode *node           # NULL: at the end
    StreamID first             # bounds, both inclusive
    StreamID last
    bint reverse


cdef enum:
    FLAG_DELETED = 1
    FLAG_SAME_NAMES = 2
    MASTER_ELEMENTS = 4        # elements of a master entry besides the names: live, deleted, names, 0


cdef inline void make_key(uint8_t *key, StreamID id) noexcept nogil:
    store_be64(key, id.ms)
    store_be64(key + 8, id.seq)


cdef inline void free_node(void *record) noexcept nogil:
    cdef StreamNode *node = <StreamNode *>record
    free(node.lp)
    free(node)


# --- Reading --------------------------------------------------------------------------------------------------------


cdef inline StreamID master_id(const StreamNode *node) noexcept nogil:
    return make_id(load_be64(node.key), load_be64(node.key + 8))


cdef inline const uint8_t *end_of(const uint8_t *lp) noexcept nogil:
    """The end byte."""
    return lp + lp_bytes(lp) - 1


cdef inline const uint8_t *skip_many(const uint8_t *p, uint64_t n) noexcept nogil:
    while n:
        p = lp_skip(p)
        n -= 1
    return p


cdef inline int64_t live_count(const StreamNode *node) noexcept nogil:
    cdef int64_t live
    lp_get_int(node.lp + LP_HEADER, &live)
    return live


cdef inline uint64_t node_weight(const void *node) noexcept nogil:
    """Its live entries, as the radix tree adds them up."""
    return <uint64_t>live_count(<const StreamNode *>node)


cdef inline const uint8_t *enter_node(StreamCursor *cursor, StreamNode *node) noexcept nogil:
    """Read the node's master entry; returns the first entry."""
    cdef int64_t names
    cdef const uint8_t *p = lp_skip(lp_skip(node.lp + LP_HEADER))
    p = lp_get_int(p, &names)
    cursor.node = node
    cursor.master = master_id(node)
    cursor.names = p
    cursor.name_count = <uint64_t>names
    return lp_skip(skip_many(p, <uint64_t>names))


cdef inline const uint8_t *read_head(
    const StreamCursor *cursor, const uint8_t *p, int64_t *flags, StreamID *id
) noexcept nogil:
    """Read flags and ID of the entry at `p`; returns what follows."""
    cdef int64_t ms, seq
    p = lp_get_int(p, flags)
    p = lp_get_int(p, &ms)
    p = lp_get_int(p, &seq)
    id.ms = cursor.master.ms + <uint64_t>ms
    id.seq = cursor.master.seq + <uint64_t>seq
    return p


cdef inline bint open_entry(StreamCursor *cursor, const uint8_t *p) noexcept nogil:
    """Make the entry at `p` current; False when it is a tombstone."""
    cdef int64_t flags, pairs
    p = read_head(cursor, p, &flags, &cursor.id)
    if flags & FLAG_SAME_NAMES:
        cursor.pairs = cursor.name_count
        cursor.name = cursor.names
    else:
        p = lp_get_int(p, &pairs)
        cursor.pairs = <uint64_t>pairs
        cursor.name = NULL
    cursor.pairs_left = cursor.pairs
    cursor.at = p
    return not flags & FLAG_DELETED


cdef inline const uint8_t *entry_end(const StreamCursor *cursor) noexcept nogil:
    """The entry after the current one, or the end byte."""
    cdef uint64_t left = cursor.pairs_left
    if cursor.name is NULL:
        left *= 2
    return skip_many(cursor.at, left + 1)


cdef inline const uint8_t *skip_body(const StreamCursor *cursor, const uint8_t *p, int64_t flags) noexcept nogil:
    """The end of an entry; `p` is what follows its ID."""
    cdef int64_t pairs
    if flags & FLAG_SAME_NAMES:
        return skip_many(p, cursor.name_count + 1)
    p = lp_get_int(p, &pairs)
    return skip_many(p, <uint64_t>pairs * 2 + 1)


cdef inline const uint8_t *skip_entry(const StreamCursor *cursor, const uint8_t *p) noexcept nogil:
    """The entry after the one at `p`, or the end byte."""
    cdef int64_t flags
    p = lp_get_int(p, &flags)
    return skip_body(cursor, lp_skip(lp_skip(p)), flags)


cdef inline const uint8_t *entry_before(const uint8_t *p) noexcept nogil:
    """The entry before `p`, which is an entry or the end byte; NULL before the first."""
    cdef int64_t elements
    p = lp_previous(p)
    lp_get_int(p, &elements)
    if elements == 0:
        return NULL
    while elements:
        p = lp_previous(p)
        elements -= 1
    return p


cdef inline StreamID id_at(const StreamCursor *cursor, const uint8_t *p) noexcept nogil:
    cdef int64_t flags
    cdef StreamID id
    read_head(cursor, p, &flags, &id)
    return id


cdef inline const uint8_t *seek_in_node(const StreamCursor *cursor, const uint8_t *first, StreamID id) noexcept nogil:
    """The first entry of the node with at least this ID, tombstone or not, or the end byte.

    Entries can only be walked one by one; the walk starts from the end likely to be nearer.
    """
    cdef const uint8_t *end = end_of(cursor.node.lp)
    cdef const uint8_t *p
    cdef StreamID last
    cdef int64_t flags
    cdef bint from_end
    if id_cmp(id, cursor.master) <= 0:
        return first
    p = entry_before(end)
    last = id_at(cursor, p)
    if id_cmp(last, id) < 0:
        return end
    if last.ms != cursor.master.ms:
        from_end = id.ms - cursor.master.ms > last.ms - id.ms
    else:
        from_end = id.seq - cursor.master.seq > last.seq - id.seq
    if from_end:
        end = p
        while True:
            p = entry_before(end)
            if p is NULL or id_cmp(id_at(cursor, p), id) < 0:
                return end
            end = p
    end = first
    while True:
        p = read_head(cursor, end, &flags, &last)
        if id_cmp(last, id) >= 0:
            return end
        end = skip_body(cursor, p, flags)


cdef inline StreamID last_of(const StreamNode *node) noexcept nogil:
    """The greatest ID in the node, including tombstones."""
    cdef StreamCursor cursor
    cursor.master = master_id(node)
    return id_at(&cursor, entry_before(end_of(node.lp)))


cdef inline void cursor_pair(StreamCursor *cursor, LpValue *field, LpValue *value) noexcept nogil:
    """Read the next pair; only while pairs_left is not 0."""
    if cursor.name is NULL:
        cursor.at = lp_get(cursor.at, field)
    else:
        cursor.name = lp_get(cursor.name, field)
    cursor.at = lp_get(cursor.at, value)
    cursor.pairs_left -= 1
