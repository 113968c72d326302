# cython: language_level=3, boundscheck=False, wraparound=False
"""Retention: what the rule of a stream trims, a slice at a time.

    RETAIN LENGTH 1000 ACKED ATMOST 86400000

    |  node  |  node  |  node  |  node  |  node |   A slice is as many nodes from the head as may go whole, up to some
     -------------------^   cut                      thousand entries. The rest, a part of one node, goes once a
                                                     second (`exact`).

An entry goes if it is beyond LENGTH, BYTES or AGE. With ACKED it must also be below the barrier: the first entry that a
group has still to read or to acknowledge. What is older than ATMOST goes in any case. A slice is one `XTRIM key MINID =
id`, for files and replicas of any kind: whatever the reason, entries go from the head, and the ID says how far.
"""

cimport cython
from libc.stdint cimport UINT64_MAX, int64_t, uint64_t
from libc.string cimport memset

from streamd.core.context cimport Context
from streamd.engine.ids cimport StreamID, id_cmp, id_increment, id_is_zero, make_id
from streamd.engine.rax cimport rax_first, rax_higher
from streamd.keyspace.listener cimport EVENT_STREAM
from streamd.values.streams.arguments cimport id_text
from streamd.values.streams.group cimport Group
from streamd.values.streams.node cimport StreamCursor, StreamNode, last_of, live_count
from streamd.values.streams.pel cimport PelCursor, PelRecord, pel_next, pel_seek
from streamd.values.streams.stream cimport (
    DELREF, KEEPREF, TRIM_MINID, Stream, TrimRule, cursor_next, cursor_seek,
)

from streamd.delivery.trimmed import REASONS, Amount, trimmed_of

__all__ = ["Retention"]

cdef enum:
    SLICE = 10_000             # entries of whole nodes, at most, unless the first node has more
    SLICE_DELREF = 500         # ... which are looked for in all groups, one by one
    MOST_GONE = 1000           # pending entries of a group that are gone and are passed over by one slice


cdef inline bint is_older(StreamID id, int64_t cutoff_ms) noexcept nogil:
    """Whether the milliseconds of an ID, of which there are 64 bits, are before a time."""
    return cutoff_ms > 0 and id.ms < <uint64_t>cutoff_ms


@cython.final
cdef class Retention:
    """The part of a StreamRule that begins with RETAIN."""

    def __init__(self, rule not None):
        self.length = rule.length
        self.max_bytes = rule.max_bytes
        self.age_ms = rule.age_ms
        self.acked = rule.acked
        self.groups = rule.groups
        self.at_most_ms = rule.at_most_ms
        self.policy = DELREF if rule.delete_references else KEEPREF

    cpdef bint trim(self, Context ctx, bytes key, Stream stream, bint exact) except -1:
        """Trim a slice, and add its effect to the context; returns whether there is more to trim.

        exact  also a part of a node
        """
        cdef StreamID barrier = self.find_barrier(stream)
        cdef StreamNode *node = NULL
        cdef Cut cut
        cdef bint has_more
        memset(&cut, 0, sizeof(cut))
        cut.length = stream.length
        cut.node_bytes = stream.node_bytes
        has_more = self.cut_nodes(ctx, stream, barrier, &cut, &node)
        if exact and not has_more and node is not NULL:
            self.cut_node(ctx, stream, barrier, &cut, node)
        if cut.entries:
            self.apply(ctx, key, stream, &cut)
        return has_more

    cdef StreamID find_barrier(self, Stream stream) except *:
        """The first ID that must stay for a group, if the rule has ACKED."""
        cdef StreamID barrier = make_id(UINT64_MAX, UINT64_MAX), needed
        cdef Group group
        cdef PelCursor walk
        cdef PelRecord *record
        cdef int _
        if not self.acked:
            return barrier
        if <uint64_t>len(stream.groups) < self.groups:
            return make_id(0, 0)
        for group in stream.groups.values():
            needed = group.last_id
            id_increment(&needed)
            # What was trimmed or deleted may still be pending: nothing has to stay for that.
            pel_seek(&group.pel, &walk, -1, stream.first_id)
            record = pel_next(&walk)
            for _ in range(MOST_GONE):
                if record is NULL or id_cmp(record.id, needed) >= 0 or stream.has_entry(record.id):
                    break
                record = pel_next(&walk)
            if record is not NULL and id_cmp(record.id, needed) < 0:
                needed = record.id
            if id_cmp(needed, barrier) < 0:
                barrier = needed
        return barrier

    cdef Reason reason_for(self, Context ctx, StreamID last, StreamID barrier, uint64_t left) noexcept nogil:
        """Why entries up to `last` go, but for BYTES; `left` entries are after them."""
        if self.at_most_ms and is_older(last, ctx.now_ms - self.at_most_ms):
            return BY_ATMOST
        if id_cmp(last, barrier) >= 0:
            return BY_NONE
        if self.length and left >= self.length:
            return BY_LENGTH
        if self.age_ms and is_older(last, ctx.now_ms - self.age_ms):
            return BY_AGE
        if self.acked and not self.length and not self.age_ms and not self.max_bytes:
            return BY_ACKED
        return BY_NONE

    cdef bint cut_nodes(self, Context ctx, Stream stream, StreamID barrier, Cut *cut, StreamNode **node) noexcept nogil:
        """Cut off as many nodes as may go; returns whether a slice was not enough. `node`: the first one that stays."""
        cdef uint64_t slice = SLICE_DELREF if self.policy == DELREF else SLICE
        cdef uint64_t live, size
        cdef StreamID last
        cdef Reason reason
        node[0] = <StreamNode *>rax_first(&stream.nodes)
        while node[0] is not NULL:
            last = last_of(node[0])
            live = <uint64_t>live_count(node[0])
            size = sizeof(StreamNode) + node[0].capacity
            reason = self.reason_for(ctx, last, barrier, cut.length - live)
            if (
                reason == BY_NONE and self.max_bytes and cut.node_bytes > self.max_bytes
                and id_cmp(last, barrier) < 0 and node[0] != stream.nodes.last
            ):
                reason = BY_BYTES
            if reason == BY_NONE:
                return False
            if cut.entries and cut.entries + live > slice:
                return True
            cut.below = last
            id_increment(&cut.below)
            cut.entries += live
            cut.length -= live
            cut.node_bytes -= size
            cut.entries_by[<int>reason] += live
            cut.bytes_by[<int>reason] += size
            node[0] = <StreamNode *>rax_higher(&stream.nodes, node[0].key)
        return False

    cdef int cut_node(
        self, Context ctx, Stream stream, StreamID barrier, Cut *cut, const StreamNode *node
    ) noexcept nogil:
        """Cut off those entries of a node that may go."""
        cdef StreamCursor cursor
        cdef Reason reason
        cursor_seek(stream, &cursor, cut.below if not id_is_zero(cut.below) else stream.first_id, last_of(node), False)
        while cursor_next(&cursor):
            reason = self.reason_for(ctx, cursor.id, barrier, cut.length - 1)
            if reason == BY_NONE:
                break
            cut.below = cursor.id
            id_increment(&cut.below)
            cut.entries += 1
            cut.length -= 1
            cut.entries_by[<int>reason] += 1
        return 0

    cdef int apply(self, Context ctx, bytes key, Stream stream, const Cut *cut) except -1:
        cdef TrimRule rule
        cdef int number
        cdef list effect
        memset(&rule, 0, sizeof(rule))
        rule.strategy = TRIM_MINID
        rule.policy = self.policy
        rule.min_id = cut.below
        ctx.dirty += <unsigned long long>stream.trim_by(&rule)
        if stream.trimmed is not None:
            ctx.db.trash.release(stream.trimmed, 0)
            stream.trimmed = None
        ctx.db.touched(key)
        ctx.db.event(EVENT_STREAM, b"xtrim", key)
        if ctx.is_propagating:
            effect = [b"XTRIM", key, b"MINID", b"=", id_text(cut.below)]
            if self.policy == DELREF:
                effect.append(b"DELREF")
            ctx.propagate(effect)
        ctx.db.signal_ready(key)            # consumers that a rule limits may have room
        trimmed = trimmed_of(ctx)
        by_stream = trimmed.by_stream.setdefault((ctx.db.index, key), Amount())
        for number, reason in enumerate(REASONS):
            if cut.entries_by[number] or cut.bytes_by[number]:
                trimmed.by_reason[reason].add(cut.entries_by[number], cut.bytes_by[number])
                by_stream.add(cut.entries_by[number], cut.bytes_by[number])
        return 0
