# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Streams: entries in a radix tree of listpacks.

    Stream ── nodes: Rax of StreamNode, by master ID      length, entries_added, last_id, first_id ...
                 │                                        groups: name -> Group
                 └── lp: one listpack (node.pxd)

A new entry goes to the last node, unless that is full (see `is_full`). A deleted entry becomes a tombstone, which stays
as long as its node. The node is removed with its last live entry. Files of older servers may have nodes with only
tombstones, left by their XTRIM MINID.

Invariants (check_invariants): the IDs of entries ascend within a node and from node to node, none is below its
node's master ID or above last_id; no node is empty; live and deleted counts are correct, the live ones add up
to `length`; in the radix tree each node weighs as much as it has live entries, except the last one, which still grows
and weighs 0; first_id and last_live are the ends of the live entries, 0-0 in an empty stream; entries_added >= length;
node_bytes is the size of the nodes; before `skipped` the first node has only tombstones.

By convention in the engine, callers check the arguments: an ID to be appended is above last_id. The methods visible to
Python check for themselves. Callers: the commands, and `delivery` for groups. Behaviour: Redis 8.6.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from libc.stdint cimport INT64_MAX, UINT32_MAX, UINT64_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from streamd.engine.ids cimport StreamID, id_cmp, id_increment, id_is_zero, make_id
from streamd.engine.listpack cimport (
    LP_END, LP_HEADER, LP_ROOM, LpValue, lp_bytes, lp_end_at, lp_equals, lp_get, lp_get_int, lp_int_size, lp_put,
    lp_put_int, lp_replace_int, lp_set_header, lp_skip,
)
from streamd.engine.rax cimport (
    rax_check, rax_check_weights, rax_drain, rax_first, rax_floor, rax_higher, rax_init, rax_insert, rax_lower,
    rax_remove, rax_try_insert, rax_weigh,
)
from streamd.heap cimport free, malloc, realloc
from streamd.values.streams.group cimport Group
from streamd.values.streams.node cimport (
    FLAG_DELETED, FLAG_SAME_NAMES, MASTER_ELEMENTS, StreamCursor, StreamNode, cursor_pair, end_of, enter_node,
    entry_before, entry_end, free_node, id_at, last_of, live_count, make_key, master_id, node_weight, open_entry,
    read_head, seek_in_node, skip_body, skip_entry,
)
from streamd.values.streams.node_check cimport NodeCensus, node_fault
from streamd.values.streams.stream_remains cimport StreamRemains, free_chain, set_next, trimmed_nodes

__all__ = ["Stream"]

MAX_ID = (2**64 - 1, 2**64 - 1)

cdef enum:
    NODE_LIMIT = 1 << 30       # maximum bytes of a node, whatever the settings
    ENTRY_ELEMENTS = 5         # maximum elements of an entry besides names and values: flags, ms, seq, pairs, elements
    FREED_ASIDE = 64           # nodes; fewer are freed immediately


cdef inline StreamID as_id(object pair):
    """An ID given as a tuple (ms, seq)."""
    ms, seq = pair
    return make_id(ms, seq)


cdef inline tuple as_pair(StreamID id):
    return id.ms, id.seq


# --- Walking ----------------------------------------------------------------------------------------------------------
#
# Forwards, `at` leads from entry to entry, and is NULL when the next entry is the one at `start`. Backwards, the next
# entry is the one that ends at `start`.


cdef void cursor_seek(Stream stream, StreamCursor *cursor, StreamID first, StreamID last, bint reverse) noexcept nogil:
    cdef uint8_t key[16]
    cdef StreamNode *node
    cdef const uint8_t *entry
    cursor.nodes = &stream.nodes
    cursor.first = first
    cursor.last = last
    cursor.reverse = reverse
    cursor.node = NULL
    cursor.pairs_left = 0
    if (
        stream.length == 0 or id_cmp(first, last) > 0
        or id_cmp(first, stream.last_live) > 0 or id_cmp(last, stream.first_id) < 0
    ):
        return
    make_key(key, last if reverse else first)
    node = <StreamNode *>rax_floor(&stream.nodes, key)
    if node is NULL:     # only forwards: below the first node there is nothing before it to return to
        node = <StreamNode *>rax_first(&stream.nodes)
    entry = enter_node(cursor, node)
    cursor.at = NULL
    cursor.start = seek_in_node(cursor, entry, last if reverse else first)
    if reverse and cursor.start[0] != LP_END and id_cmp(id_at(cursor, cursor.start), last) == 0:
        cursor.start = skip_entry(cursor, cursor.start)


cdef bint cursor_next(StreamCursor *cursor) noexcept nogil:
    if cursor.node is NULL:
        return False
    return go_back(cursor) if cursor.reverse else go_on(cursor)


cdef inline bint go_on(StreamCursor *cursor) noexcept nogil:
    cdef const uint8_t *p = cursor.start if cursor.at is NULL else entry_end(cursor)
    cdef StreamNode *node
    while True:
        if p[0] == LP_END:
            node = <StreamNode *>rax_higher(cursor.nodes, cursor.node.key)
            if node is NULL:
                break
            p = enter_node(cursor, node)
        if open_entry(cursor, p):
            cursor.start = p
            if id_cmp(cursor.id, cursor.last) <= 0:
                return True
            break
        if id_cmp(cursor.id, cursor.last) >= 0:
            break
        p = entry_end(cursor)
    cursor.node = NULL
    return False


cdef inline bint go_back(StreamCursor *cursor) noexcept nogil:
    cdef const uint8_t *p
    cdef StreamNode *node
    while True:
        p = entry_before(cursor.start)
        if p is NULL:
            node = <StreamNode *>rax_lower(cursor.nodes, cursor.node.key)
            if node is NULL:
                break
            enter_node(cursor, node)
            cursor.start = end_of(node.lp)
            continue
        cursor.start = p
        if open_entry(cursor, p):
            if id_cmp(cursor.id, cursor.first) >= 0:
                return True
            break
        if id_cmp(cursor.id, cursor.first) <= 0:
            break
    cursor.node = NULL
    return False


cdef bint cursor_find(Stream stream, StreamCursor *cursor, StreamID id) noexcept nogil:
    cursor_seek(stream, cursor, id, id, False)
    return cursor_next(cursor)


cdef const uint8_t *find_live(Stream stream, StreamCursor *cursor, StreamID id) noexcept nogil:
    """Go to the live entry with this ID; returns its first element, or NULL when it is missing."""
    cursor_seek(stream, cursor, id, id, False)
    # A seek stops at the ID itself, in its own node, or the ID is missing.
    if cursor.node is NULL or cursor.start[0] == LP_END or not open_entry(cursor, cursor.start):
        return NULL
    return cursor.start if id_cmp(cursor.id, id) == 0 else NULL


# --- Nodes: writing -------------------------------------------------------------------------------------------------


cdef inline const uint8_t *text_of(list args, Py_ssize_t i) noexcept:
    return <const uint8_t *>PyBytes_AS_STRING(<object>PyList_GET_ITEM(args, i))


cdef inline size_t size_of(list args, Py_ssize_t i) noexcept:
    return <size_t>PyBytes_GET_SIZE(<object>PyList_GET_ITEM(args, i))


cdef inline bint names_match(const uint8_t *name, list args, Py_ssize_t first) noexcept:
    """Whether the fields of args[first:] are the names from `name` on; their numbers are equal."""
    cdef Py_ssize_t i
    cdef LpValue value
    for i in range(first, PyList_GET_SIZE(args), 2):
        name = lp_get(name, &value)
        if not lp_equals(&value, text_of(args, i), size_of(args, i)):
            return False
    return True


cdef inline uint8_t *put_entry(
    uint8_t *p, int64_t flags, uint64_t ms, uint64_t seq, list args, Py_ssize_t first
) noexcept:
    """Write an entry at `p`, where there must be room; returns its end."""
    cdef Py_ssize_t i, stop = PyList_GET_SIZE(args)
    cdef int64_t pairs = (stop - first) // 2
    p = lp_put_int(p, flags)
    p = lp_put_int(p, <int64_t>ms)
    p = lp_put_int(p, <int64_t>seq)
    if flags & FLAG_SAME_NAMES:
        for i in range(first + 1, stop, 2):
            p = lp_put(p, text_of(args, i), size_of(args, i))
        return lp_put_int(p, pairs + 3)
    p = lp_put_int(p, pairs)
    for i in range(first, stop):
        p = lp_put(p, text_of(args, i), size_of(args, i))
    return lp_put_int(p, 2 * pairs + 4)


# --- The stream -----------------------------------------------------------------------------------------------------


@cython.final
@cython.no_gc
cdef class Stream:
    """An empty stream.

    node_max_bytes, node_max_entries   when a node is full; 0: no limit of this kind
    idmp_duration, idmp_maxsize        how long (seconds) and how many IIDs are remembered per idempotent producer

    For Python an ID is a tuple (ms, seq), and an entry (id, [(field, value), ...]).
    """

    def __cinit__(self):
        rax_init(&self.nodes, 16)
        self.groups = {}

    def __init__(
        self, uint64_t node_max_bytes=4096, uint64_t node_max_entries=100,
        uint32_t idmp_duration=100, uint32_t idmp_maxsize=100,
    ):
        self.node_max_bytes = node_max_bytes
        self.node_max_entries = node_max_entries
        self.idmp_duration = idmp_duration
        self.idmp_maxsize = idmp_maxsize

    def __dealloc__(self):
        with nogil:
            rax_drain(&self.nodes, free_node)

    def __len__(self):
        return self.length

    def __repr__(self):
        return f"<Stream: {self.length} entries, last ID {self.last_id.ms}-{self.last_id.seq}>"

    # --- IDs and counters ---------------------------------------------------------------------------------------------

    @property
    def last_generated_id(self):
        """The greatest ID an entry ever had, or the one set by XSETID."""
        return as_pair(self.last_id)

    @property
    def first_entry_id(self):
        """ID of the first entry, (0, 0) when there is none."""
        return as_pair(self.first_id)

    @property
    def last_entry_id(self):
        """ID of the last entry, (0, 0) when there is none."""
        return as_pair(self.last_live)

    @property
    def max_deleted_entry_id(self):
        """Greatest ID that was deleted; trimming does not count."""
        return as_pair(self.max_deleted_id)

    @property
    def node_count(self):
        """Number of nodes, `radix-tree-keys` in XINFO STREAM."""
        return self.nodes.count

    @property
    def radix_tree_nodes(self):
        return self.nodes.redis_nodes

    cdef StreamID last_live_id(self) noexcept nogil:
        return self.last_live

    cdef bint next_id(self, int64_t now_ms, StreamID *out) noexcept nogil:
        out[0] = self.last_id
        if now_ms > 0 and <uint64_t>now_ms > self.last_id.ms:
            out.ms = <uint64_t>now_ms
            out.seq = 0
            return True
        return id_increment(out)

    def set_ids(self, last, *, entries_added=None, max_deleted=None):
        """Set last_generated_id, and the other values given, as XSETID does.

        Raises ValueError, with no change, for impossible values: below the last entry, fewer added than present.
        """
        cdef StreamID new_last = as_id(last)
        cdef StreamID new_deleted = self.max_deleted_id if max_deleted is None else as_id(max_deleted)
        cdef uint64_t new_added = self.entries_added if entries_added is None else entries_added
        if id_cmp(new_last, self.last_live) < 0:
            raise ValueError("the ID is below the last entry")
        if id_cmp(new_last, new_deleted) < 0:
            raise ValueError("the ID is below the greatest deleted one")
        if new_added < self.length:
            raise ValueError("there are more entries than were added")
        self.last_id = new_last
        self.max_deleted_id = new_deleted
        if entries_added is not None:
            self.set_entries_added(new_added)

    cdef int set_entries_added(self, uint64_t entries_added) except -1:
        """Set how many entries were ever added; no group can have read more."""
        cdef Group group
        self.entries_added = entries_added
        for group in self.groups.values():
            if group.entries_read > <int64_t>entries_added:
                group.entries_read = <int64_t>entries_added
        return 0

    # --- Appending ----------------------------------------------------------------------------------------------------

    cdef int append_args(self, StreamID id, list args, Py_ssize_t first) except -1:
        """Add an entry at the end. Takes O(bytes of the entry).

        id           above last_id, unchecked
        args[first:] fields and values in turn, bytes, at least one pair, unchecked
        Raises OverflowError when fields and values exceed 1 GiB, or MemoryError; the stream is then unchanged.
        """
        cdef Py_ssize_t i, stop = PyList_GET_SIZE(args)
        cdef size_t total = 0, room
        cdef StreamNode *node = <StreamNode *>self.nodes.last
        cdef StreamID master
        cdef uint8_t *lp
        cdef const uint8_t *p
        cdef int64_t live, names, flags = 0
        cdef uint64_t pairs = <uint64_t>(stop - first) // 2
        for i in range(first, stop):
            total += size_of(args, i)
        if total > NODE_LIMIT:
            raise OverflowError("the entry is larger than 1 GiB")
        room = total + (2 * pairs + ENTRY_ELEMENTS) * LP_ROOM
        if node is NULL or self.is_full(node, total):
            self.add_node(id, args, first, room)
        else:
            self.reserve(node, room)
            master = master_id(node)
            lp = node.lp
            p = lp_get_int(lp + LP_HEADER, &live)
            self.note_shift(node, lp_replace_int(lp, lp + LP_HEADER, live + 1))
            p = lp_skip(lp_skip(lp + LP_HEADER))
            p = lp_get_int(p, &names)
            if <uint64_t>names == pairs and names_match(p, args, first):
                flags = FLAG_SAME_NAMES
            lp_end_at(
                lp,
                put_entry(<uint8_t *>end_of(lp), flags, id.ms - master.ms, id.seq - master.seq, args, first),
                pairs + 4 if flags else 2 * pairs + 5)
        self.length += 1
        self.entries_added += 1
        self.last_id = id
        self.last_live = id
        if self.length == 1:
            self.first_id = id
        return 0

    cdef bint is_full(self, const StreamNode *node, size_t entry_bytes) noexcept nogil:
        """Whether an entry whose fields and values have this many bytes needs a node other than `node`.

        The bytes are compared before encoding, to the current listpack: an entry is never split, and it may make a
        node larger than the limit. Tombstones count as entries.
        """
        cdef uint64_t limit = self.node_max_bytes
        cdef int64_t live, deleted
        if limit == 0 or limit > NODE_LIMIT:
            limit = NODE_LIMIT
        if lp_bytes(node.lp) + entry_bytes >= limit:
            return True
        if self.node_max_entries == 0:
            return False
        lp_get_int(lp_get_int(node.lp + LP_HEADER, &live), &deleted)
        return <uint64_t>(live + deleted) >= self.node_max_entries

    cdef StreamNode *add_node(self, StreamID id, list args, Py_ssize_t first, size_t room) except NULL:
        """Start a node with an entry, and shrink the previous one to its size."""
        cdef StreamNode *previous = <StreamNode *>self.nodes.last
        cdef StreamNode *node
        cdef Py_ssize_t i, stop = PyList_GET_SIZE(args)
        cdef uint64_t pairs = <uint64_t>(stop - first) // 2
        cdef uint8_t *p
        cdef size_t capacity = LP_HEADER + 1 + room + (pairs + MASTER_ELEMENTS) * LP_ROOM
        for i in range(first, stop, 2):
            capacity += size_of(args, i)
        if capacity > UINT32_MAX:
            raise OverflowError("the entry does not fit into a listpack")
        node = <StreamNode *>malloc(sizeof(StreamNode))
        if node is NULL:
            raise MemoryError
        node.capacity = capacity
        node.lp = <uint8_t *>malloc(capacity)
        if node.lp is NULL:
            free(node)
            raise MemoryError
        make_key(node.key, id)
        p = lp_put_int(node.lp + LP_HEADER, 1)
        p = lp_put_int(p, 0)
        p = lp_put_int(p, <int64_t>pairs)
        for i in range(first, stop, 2):
            p = lp_put(p, text_of(args, i), size_of(args, i))
        p = lp_put_int(p, 0)
        p = put_entry(p, FLAG_SAME_NAMES, 0, 0, args, first)
        p[0] = LP_END
        lp_set_header(node.lp, p - node.lp + 1, MASTER_ELEMENTS + pairs + pairs + 4)
        try:
            rax_insert(&self.nodes, node)
        except MemoryError:
            free_node(node)
            raise
        self.node_bytes += sizeof(StreamNode) + capacity
        if previous is not NULL:
            rax_weigh(&self.nodes, previous.key, live_count(previous))
            self.resize(previous, lp_bytes(previous.lp))
        return node

    cdef bint resize(self, StreamNode *node, size_t capacity) noexcept nogil:
        """Give a node this capacity, which must hold its listpack; False (unchanged): out of memory. May move."""
        cdef uint8_t *lp = <uint8_t *>realloc(node.lp, capacity)
        if lp is NULL:
            return False
        self.node_bytes = self.node_bytes - node.capacity + capacity
        node.lp = lp
        node.capacity = capacity
        return True

    cdef int reserve(self, StreamNode *node, size_t room) except -1 nogil:
        """Make room for `room` more bytes. Grows by halves up to the size at which a node is full. May move."""
        cdef size_t needed = lp_bytes(node.lp) + room
        cdef size_t wanted
        if needed <= node.capacity:
            return 0
        wanted = node.capacity + node.capacity // 2
        if self.node_max_bytes and wanted > self.node_max_bytes:
            wanted = self.node_max_bytes
        if wanted < needed:
            wanted = needed
        if wanted > UINT32_MAX:
            with gil:
                raise OverflowError("the entry does not fit into a listpack")
        if not self.resize(node, wanted):
            with gil:
                raise MemoryError
        return 0

    cdef void note_shift(self, const StreamNode *node, int64_t moved) noexcept nogil:
        """The entries of `node` moved by this many bytes within the listpack."""
        if moved and self.skipped and node == rax_first(&self.nodes):
            self.skipped += <size_t>moved

    # --- Removing -----------------------------------------------------------------------------------------------------

    cdef int drop_node(self, StreamNode *node) noexcept nogil:
        """Remove a node with its contents. The caller updates the stream's length and ends."""
        self.take_out(node)
        free_node(node)
        return 0

    cdef void take_out(self, StreamNode *node) noexcept nogil:
        """Like drop_node, but the caller then owns the node and its contents."""
        cdef bint was_open = node == self.nodes.last
        cdef StreamNode *node_before
        if node == rax_first(&self.nodes):
            self.skipped = 0
        if not was_open:
            rax_weigh(&self.nodes, node.key, -live_count(node))
        rax_remove(&self.nodes, node.key)
        if was_open and self.nodes.last is not NULL:        # the node before it is open from now on
            node_before = <StreamNode *>self.nodes.last
            rax_weigh(&self.nodes, node_before.key, -live_count(node_before))
        self.node_bytes -= sizeof(StreamNode) + node.capacity

    cdef int reserve_count(self, StreamNode *node) except -1 nogil:
        """Make room for a greater number of deleted entries. May move."""
        cdef int64_t live, deleted
        cdef size_t needed
        lp_get_int(lp_get_int(node.lp + LP_HEADER, &live), &deleted)
        needed = lp_bytes(node.lp) + lp_int_size(live + deleted) - lp_int_size(deleted)
        if needed > node.capacity and not self.resize(node, needed):
            with gil:
                raise MemoryError
        return 0

    cdef int count_deleted(self, StreamNode *node, int64_t removed) noexcept nogil:
        """Note that `removed` live entries of the node were flagged."""
        cdef int64_t live, deleted, moved
        cdef uint8_t *p = node.lp + LP_HEADER
        lp_get_int(lp_get_int(p, &live), &deleted)
        moved = lp_replace_int(node.lp, p, live - removed)
        moved += lp_replace_int(node.lp, <uint8_t *>lp_skip(p), deleted + removed)
        self.note_shift(node, moved)
        if node != self.nodes.last:
            rax_weigh(&self.nodes, node.key, -removed)
        return 0

    cdef int refresh_first(self) noexcept nogil:
        """Find the new first entry after the first one was removed."""
        cdef StreamCursor cursor
        if self.length == 0:
            self.first_id = self.last_live = make_id(0, 0)
            return 0
        cursor_seek(self, &cursor, make_id(0, 0), make_id(UINT64_MAX, UINT64_MAX), False)
        if self.skipped:
            cursor.start = cursor.node.lp + self.skipped
        cursor_next(&cursor)
        self.first_id = cursor.id
        self.skipped = cursor.start - cursor.node.lp if cursor.node == rax_first(&self.nodes) else 0
        return 0

    cdef int refresh_last(self) noexcept nogil:
        """Find the new last entry after the last one was removed."""
        cdef StreamCursor cursor
        if self.length:
            cursor_seek(self, &cursor, make_id(0, 0), make_id(UINT64_MAX, UINT64_MAX), True)
            cursor_next(&cursor)
            self.last_live = cursor.id
        return 0

    cdef int remove(self, StreamID id) except -1:
        """Delete one entry; 0 when there is none with this ID. O(node). Pending records stay."""
        cdef StreamCursor cursor
        cdef const uint8_t *at
        cdef ptrdiff_t offset
        cdef int64_t flags
        at = find_live(self, &cursor, id)
        if at is NULL:
            return 0
        offset = at - cursor.node.lp
        self.reserve_count(cursor.node)
        lp_get_int(cursor.node.lp + offset, &flags)
        lp_replace_int(cursor.node.lp, cursor.node.lp + offset, flags | FLAG_DELETED)
        if live_count(cursor.node) == 1:
            self.drop_node(cursor.node)
        else:
            self.count_deleted(cursor.node, 1)
        self.length -= 1
        if id_cmp(id, self.max_deleted_id) > 0:
            self.max_deleted_id = id
        if id_cmp(id, self.first_id) == 0:
            self.refresh_first()
        if id_cmp(id, self.last_live) == 0:
            self.refresh_last()
        if self.has_order:
            self.note_deleted(id)
        return 1

    cdef int note_deleted(self, StreamID id) except -1:
        """Note a deletion for the groups that are ordered by key: the entry blocks its key no longer."""
        cdef Group group
        for group in self.groups.values():
            group.note(id)
        return 0

    cdef int64_t trim_by(self, const TrimRule *rule) except -1:
        """Remove entries from the head, according to the rule; returns how many. O(nodes removed, plus one node).

        The last node may be removed in part: entry by entry, unless the trim is approximate. With DELREF and ACKED all
        nodes are walked entry by entry, and the last one in any case. With ACKED, entries that are still referenced are
        skipped: O(entries up to the last one that every group has read).
        """
        cdef StreamNode *node = <StreamNode *>rax_first(&self.nodes)
        cdef StreamNode *following
        cdef StreamID barrier = make_id(UINT64_MAX, UINT64_MAX)
        cdef int64_t live, removed = 0
        cdef bint whole
        cdef StreamNode *chain = NULL          # nodes that were taken out, last one first
        cdef size_t chained = 0
        if not self.exceeds(rule):
            return 0
        if rule.policy == ACKED:
            self.read_by_all(&barrier)
        try:
            while node is not NULL and (rule.strategy != TRIM_MAXLEN or self.length > rule.max_length):
                live = live_count(node)
                if rule.limit and <uint64_t>(removed + live) > rule.limit:
                    break
                if rule.strategy == TRIM_MAXLEN:
                    whole = self.length - <uint64_t>live >= rule.max_length
                else:
                    whole = id_cmp(last_of(node), rule.min_id) < 0
                if rule.approximate and not whole and rule.policy == KEEPREF:
                    break
                following = <StreamNode *>rax_higher(&self.nodes, node.key)
                if whole and rule.policy == KEEPREF:
                    self.take_out(node)
                    set_next(node, chain)
                    chain = node
                    chained += 1
                    self.length -= <uint64_t>live
                    removed += live
                else:
                    removed += self.trim_within(node, rule, barrier)
                    if live_count(node) == 0:
                        self.drop_node(node)
                    if not whole:
                        break
                if following is not NULL and id_cmp(master_id(following), barrier) > 0:
                    break
                node = following
        finally:
            self.trimmed = None
            if chained > FREED_ASIDE:
                self.trimmed = trimmed_nodes(chain, chained)
            else:
                free_chain(chain, free_node)
            if removed:
                self.refresh_first()
                if rule.policy == ACKED and not self.has_entry(self.last_live):
                    self.refresh_last()
        return removed

    cdef bint exceeds(self, const TrimRule *rule) noexcept nogil:
        """Whether there is anything to trim."""
        cdef const StreamNode *first = <const StreamNode *>rax_first(&self.nodes)
        if rule.strategy == TRIM_MAXLEN:
            return self.length > rule.max_length
        if rule.strategy == TRIM_NONE or first is NULL:
            return False
        return id_cmp(self.first_id, rule.min_id) < 0 or live_count(first) == 0

    cdef int64_t trim_within(self, StreamNode *node, const TrimRule *rule, StreamID barrier) except -1:
        """Flag entries of one node as deleted, from its head, by the rule; returns how many. The node may move.

        barrier  with ACKED: no entry above it may be removed
        """
        cdef StreamCursor cursor
        cdef const uint8_t *p
        cdef const uint8_t *body
        cdef int64_t flags, removed = 0
        cdef StreamID id
        self.reserve_count(node)
        p = enter_node(&cursor, node)
        if self.skipped and node == rax_first(&self.nodes):
            p = node.lp + self.skipped
        while p[0] != LP_END:
            body = read_head(&cursor, p, &flags, &id)
            if rule.strategy == TRIM_MAXLEN:
                if self.length <= rule.max_length:
                    break
            elif id_cmp(id, rule.min_id) >= 0:
                break
            if id_cmp(id, barrier) > 0:
                break
            if not flags & FLAG_DELETED and not (rule.policy == ACKED and self.is_pending(id)):
                if rule.policy == DELREF:
                    self.forget_references(id)
                lp_replace_int(node.lp, <uint8_t *>p, flags | FLAG_DELETED)
                self.length -= 1
                removed += 1
            p = skip_body(&cursor, body, flags)
        if removed:
            self.count_deleted(node, removed)
        return removed

    # --- Entries and groups -------------------------------------------------------------------------------------------

    cdef int read_by_all(self, StreamID *least) except -1:
        """The greatest ID that every group has read."""
        cdef Group group
        least[0] = make_id(UINT64_MAX, UINT64_MAX)
        for group in self.groups.values():
            if id_cmp(group.last_id, least[0]) < 0:
                least[0] = group.last_id
        return 0

    cdef bint is_pending(self, StreamID id) except -1:
        """Whether this entry is pending in any group."""
        cdef Group group
        for group in self.groups.values():
            if group.has_pending(id):
                return True
        return False

    cdef bint is_referenced(self, StreamID id) except -1:
        cdef Group group
        for group in self.groups.values():
            if id_cmp(id, group.last_id) > 0 or group.has_pending(id):
                return True
        return False

    cdef int forget_references(self, StreamID id) except -1:
        cdef Group group
        for group in self.groups.values():
            group.forget(id)
        return 0

    cdef int remove_with(self, StreamID id, RefPolicy policy) except -2:
        """Delete one entry if the policy allows it; 1: deleted, 2: kept, still referenced, -1: none has this ID.

        Groups are consulted first: with ACKED even a missing entry can be `still referenced`, and with DELREF its
        pending records are dropped.
        """
        if policy == ACKED and self.is_referenced(id):
            return 2
        if policy == DELREF:
            self.forget_references(id)
        return 1 if self.remove(id) else -1

    # --- Queries ------------------------------------------------------------------------------------------------------

    cdef bint has_entry(self, StreamID id) noexcept nogil:
        cdef StreamCursor cursor
        return find_live(self, &cursor, id) is not NULL

    # --- For Python ---------------------------------------------------------------------------------------------------

    def append(self, fields, id=None, *, int64_t now_ms=0):
        """Add an entry at the end; returns its ID.

        fields  pairs of bytes, at least one, or a mapping
        id      its ID, above last_generated_id; None: the next ID at Unix time `now_ms`, as `*` in XADD
        Raises ValueError when the ID is not above last_generated_id, or there is no greater one.
        """
        cdef StreamID new_id
        cdef list flat = []
        cdef bytes field, value
        for field, value in (fields.items() if hasattr(fields, "items") else fields):
            if field is None or value is None:
                raise TypeError("fields and values are bytes")
            flat.append(field)
            flat.append(value)
        if not flat:
            raise ValueError("an entry has at least one field")
        if id is not None:
            new_id = as_id(id)
        elif not self.next_id(now_ms, &new_id):
            raise ValueError("there is no greater ID")
        if id_cmp(new_id, self.last_id) <= 0:
            raise ValueError(f"{new_id.ms}-{new_id.seq} is not above the last ID")
        self.append_args(new_id, flat, 0)
        return as_pair(new_id)

    def range(self, first=(0, 0), last=MAX_ID, *, bint reverse=False, count=None):
        """The entries from ID `first` to `last`, both inclusive, as a list; in descending order when `reverse`.

        count  maximum number; None: all
        """
        cdef StreamCursor cursor
        cdef LpValue field, value
        cdef int64_t left = INT64_MAX if count is None else count
        entries = []
        cursor_seek(self, &cursor, as_id(first), as_id(last), reverse)
        while left > 0 and cursor_next(&cursor):
            pairs = []
            while cursor.pairs_left:
                cursor_pair(&cursor, &field, &value)
                pairs.append((text(&field), text(&value)))
            entries.append((as_pair(cursor.id), pairs))
            left -= 1
        return entries

    def __contains__(self, id):
        return self.has_entry(as_id(id))

    def delete(self, id, *, policy="keepref"):
        """Delete one entry: "deleted", "referenced" when the policy is "acked" and a group needs it, or "missing".

        policy  what happens to pending records: "keepref", "delref" or "acked". Behaviour: Redis manual, XDELEX.
        """
        return {1: "deleted", 2: "referenced", -1: "missing"}[self.remove_with(as_id(id), <RefPolicy>policy_of(policy))]

    def trim(self, *, max_length=None, min_id=None, bint approximate=False, uint64_t limit=0, policy="keepref"):
        """Remove entries from the head; returns how many. Behaviour: Redis manual, XTRIM.

        max_length   keep this many entries
        min_id       or: remove those with a smaller ID
        approximate  remove only whole nodes, while there is one that may be removed whole (with "keepref")
        limit        stop before a node that would exceed this number of entries; 0: no limit
        policy       "keepref", "delref" or "acked"
        """
        cdef TrimRule rule
        if (max_length is None) == (min_id is None):
            raise TypeError("either max_length or min_id")
        rule.strategy = TRIM_MINID if max_length is None else TRIM_MAXLEN
        rule.policy = <RefPolicy>policy_of(policy)
        rule.approximate = approximate
        rule.max_length = 0 if max_length is None else max_length
        rule.min_id = as_id((0, 0) if min_id is None else min_id)
        rule.limit = limit
        return self.trim_by(&rule)

    def list_nodes(self):
        """The nodes in order: (master ID, bytes of the listpack). A copy of everything."""
        cdef StreamNode *node = <StreamNode *>rax_first(&self.nodes)
        nodes = []
        while node is not NULL:
            nodes.append((as_pair(master_id(node)), node.lp[:lp_bytes(node.lp)]))
            node = <StreamNode *>rax_higher(&self.nodes, node.key)
        return nodes

    def copy(self):
        """A stream with the same contents, groups included, that shares nothing with this one. O(bytes)."""
        cdef Stream twin = Stream(self.node_max_bytes, self.node_max_entries, self.idmp_duration, self.idmp_maxsize)
        cdef StreamNode *node = <StreamNode *>rax_first(&self.nodes)
        cdef Group group
        while node is not NULL:
            twin.take_listpack(master_id(node), node.lp, lp_bytes(node.lp))
            node = <StreamNode *>rax_higher(&self.nodes, node.key)
        twin.length = self.length
        twin.entries_added = self.entries_added
        twin.last_id = self.last_id
        twin.first_id = self.first_id
        twin.last_live = self.last_live
        twin.max_deleted_id = self.max_deleted_id
        for group in self.groups.values():
            twin.groups[group.name] = group.copy()
        if self.idempotency is not None:
            twin.idempotency = self.idempotency.copy()
        twin.iids_added = self.iids_added
        twin.iids_duplicates = self.iids_duplicates
        return twin

    cdef int take_listpack(self, StreamID master, const uint8_t *lp, size_t size) except -1:
        """Put a copy of a node's listpack at the end. The caller updates counters and ends."""
        cdef uint8_t *own = <uint8_t *>malloc(size)
        if own is NULL:
            raise MemoryError
        memcpy(own, lp, size)
        if self.hang_node(master, own, size) is NULL:
            free(own)
            raise MemoryError
        return 0

    cdef StreamNode *hang_node(self, StreamID master, uint8_t *lp, size_t size) noexcept nogil:
        """Put a malloc'ed listpack at the end unchanged; NULL when out of memory; the caller then keeps it."""
        cdef StreamNode *node = <StreamNode *>malloc(sizeof(StreamNode))
        cdef StreamNode *previous = <StreamNode *>self.nodes.last
        if node is NULL:
            return NULL
        make_key(node.key, master)
        node.capacity = size
        node.lp = lp
        if rax_try_insert(&self.nodes, node) != 1:
            free(node)
            return NULL
        if previous is not NULL:
            rax_weigh(&self.nodes, previous.key, live_count(previous))
        self.node_bytes += sizeof(StreamNode) + size
        return node

    # --- Loading ------------------------------------------------------------------------------------------------------

    cdef int adopt_node(
        self, StreamID master, uint8_t *lp, size_t size, const char **reason, size_t *offset
    ) noexcept nogil:
        """Make the bytes at `lp`, malloc'ed and untrusted, the last node of a stream that is being loaded. O(size).

        Returns 1: taken; 0: refused, with the reason and the offset in the bytes; -1: out of memory. The stream owns
        only what is taken. Entries must be above all earlier ones. length, first_id and the last ID follow the entries;
        the caller sets the other counters.
        """
        cdef NodeCensus census
        offset[0] = 0
        if id_is_zero(master) or (self.nodes.count and id_cmp(master, self.last_id) <= 0):
            reason[0] = b"a node does not begin above the entries before it"
            return 0
        reason[0] = node_fault(lp, size, master, &census, offset)
        if reason[0] is not NULL:
            return 0
        if self.hang_node(master, lp, size) is NULL:
            return -1
        if census.live:
            if self.length == 0:
                self.first_id = census.first_live
            self.last_live = census.last_live
            self.length += <uint64_t>census.live
        self.last_id = census.last
        if self.entries_added < self.length:
            self.entries_added = self.length
        return 1

    def configure_idempotency(self, uint32_t duration, uint32_t maxsize):
        """Set how long (seconds) and how many IIDs are remembered; a change forgets all of them. True when changed."""
        if duration == self.idmp_duration and maxsize == self.idmp_maxsize:
            return False
        self.idmp_duration = duration
        self.idmp_maxsize = maxsize
        self.idempotency = None
        return True

    def memory_usage(self):
        """About how many bytes the stream uses, groups included. O(groups + consumers)."""
        cdef Group group
        cdef uint64_t total = self.node_bytes + self.nodes.memory + <uint64_t>self.__sizeof__()
        total += <uint64_t>self.groups.__sizeof__()
        for group in self.groups.values():
            total += <uint64_t>group.memory_bytes
        return total

    # --- Freeing --------------------------------------------------------------------------------------------------

    def free_effort(self):
        """About how many blocks of memory there are to free. O(groups)."""
        cdef Group group
        cdef uint64_t effort = self.nodes.count
        for group in self.groups.values():
            effort += <uint64_t>group.free_effort()
        return effort

    def detach(self):
        """Give up nodes and pending entries, to be freed elsewhere; the stream is then as new. O(groups)."""
        cdef StreamRemains remains = StreamRemains.__new__(StreamRemains)
        cdef Group group
        remains.groups = [group.detach() for group in self.groups.values()]
        remains.nodes, self.nodes = self.nodes, remains.nodes
        self.groups = {}
        self.idempotency = None
        self.length = self.entries_added = self.node_bytes = self.skipped = 0
        self.iids_added = self.iids_duplicates = 0
        self.last_id = self.first_id = self.last_live = self.max_deleted_id = make_id(0, 0)
        return remains

    # --- Checking -----------------------------------------------------------------------------------------------------

    def check_invariants(self):
        """Walk everything and raise AssertionError where the stream is inconsistent. O(bytes)."""
        cdef StreamNode *node = <StreamNode *>rax_first(&self.nodes)
        cdef NodeCensus census
        cdef StreamID master, before = make_id(0, 0), first = make_id(0, 0), last = make_id(0, 0)
        cdef size_t offset = 0, node_bytes = 0
        cdef uint64_t live = 0
        cdef const char *reason
        cdef StreamCursor cursor
        rax_check(&self.nodes)
        rax_check_weights(&self.nodes, node_weight)
        assert self.nodes.key_len == 16
        if self.skipped:
            enter_node(&cursor, node)
            assert node.lp + self.skipped <= end_of(node.lp), "more is skipped than the first node has"
            if self.length > 0:
                assert id_cmp(id_at(&cursor, node.lp + self.skipped), self.first_id) <= 0, "first entry skipped"
        while node is not NULL:
            master = master_id(node)
            where = f"node {master.ms}-{master.seq}"
            assert node.capacity >= lp_bytes(node.lp), f"{where}: the listpack is larger than its block"
            reason = node_fault(node.lp, lp_bytes(node.lp), master, &census, &offset)
            assert reason is NULL, f"{where}: {(<bytes>reason).decode()} at offset {offset}"
            assert id_is_zero(before) or id_cmp(master, before) > 0, f"{where} begins before the end of the one before"
            if live == 0:
                first = census.first_live
            if census.live:
                last = census.last_live
            before = census.last
            live += <uint64_t>census.live
            node_bytes += sizeof(StreamNode) + node.capacity
            node = <StreamNode *>rax_higher(&self.nodes, node.key)
        assert live == self.length, f"{live} live entries, length is {self.length}"
        assert id_cmp(first, self.first_id) == 0, f"first entry is {as_pair(first)}, not {as_pair(self.first_id)}"
        assert id_cmp(last, self.last_live) == 0, f"last entry is {as_pair(last)}, not {as_pair(self.last_live)}"
        assert id_cmp(before, self.last_id) <= 0, "an entry is above the last ID"
        assert id_cmp(self.max_deleted_id, self.last_id) <= 0, "the greatest deleted ID is above the last one"
        assert self.entries_added >= self.length, f"{self.length} entries, {self.entries_added} were added"
        assert node_bytes == self.node_bytes, f"the nodes take {node_bytes} bytes, not {self.node_bytes}"
        for name, group in self.groups.items():
            assert group.name == name, f"group {name!r} is called {group.name!r}"
            group.check_invariants()
        if self.idempotency is not None:
            self.idempotency.check_invariants()


cdef bytes text(const LpValue *value):
    """An element as bytes, integers as decimal."""
    return b"%d" % value.number if value.data is NULL else value.data[:value.length]


cdef int policy_of(str name) except -1:
    return {"keepref": KEEPREF, "delref": DELREF, "acked": ACKED}[name]
