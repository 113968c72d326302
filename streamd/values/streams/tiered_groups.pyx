# cython: language_level=3, boundscheck=False, wraparound=False
"""Consumer groups that read through the archive: entries are delivered that are not in memory, and are pending as any.

A group whose last-delivered ID is below the first entry in memory reads on in the archive, then in memory. What it gets
from the archive is an entry like any other, except for three things:

    effects       XCLAIM ... FORCE makes an entry pending only if the receiver has it. With ARCHIVED_MARK as idle time a
                  streamd makes it pending in any case, as with UNOWNED_MARK; to Redis, which has no
                  archive, it is a deleted entry, and it only learns how far the group has read
    keys          of pending entries, in a group that is ordered by key, are known from the archive (ordered_reads.pyx)
    entries-read  is counted from the end: all entries that were ever added, less those that are left in the archive
                  and in memory. So is the lag, while the group is in the archive

A pending entry that is not in memory is read from the archive by whoever needs its fields. It counts as deleted only
when the archive does not have it. Transactions and scripts cannot wait: they leave such an entry as it is.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcmp

from streamd.core.context cimport Context
from streamd.engine.ids cimport StreamID, id_cmp, make_id
from streamd.engine.table cimport table_hash
from streamd.packed_entries cimport PackedEntries, PackedWords, next_word
from streamd.protocol.reply cimport ReplyWriter
from streamd.values.streams.arguments cimport id_text, number_text, propagate_position, propagate_unowned_mark
from streamd.values.streams.counting cimport count_above
from streamd.values.streams.group cimport Consumer, Group
from streamd.values.streams.key_order cimport KeyOrder
from streamd.values.streams.pel cimport pel_find
from streamd.values.streams.read_quota cimport Quota, has_enough_bytes
from streamd.values.streams.ruled_group cimport RuledGroup
from streamd.values.streams.stream cimport Stream
from streamd.values.streams.tiered_ranges cimport Removed, find_removed, id_of, number_of, waits_for_archive

from streamd.core.tiers import TierRange
from streamd.errors import CommandError, printable
from streamd.values.streams.group import ARCHIVED_MARK

__all__: list[str] = []


# --- Pending entries --------------------------------------------------------------------------------------------------

cdef ArchivedPending archived_pending(Context ctx, bytes key, Stream stream):
    cdef ArchivedPending made = archived_for_server(ctx, key, stream)
    if made is not None:
        made.is_read = waits_for_archive(ctx)
    return made


cdef ArchivedPending archived_for_server(Context ctx, bytes key, Stream stream):
    cdef ArchivedPending made
    cdef Removed removed
    if ctx.tiers is None or not ctx.tiers.serve_groups or ctx.is_replaying:
        return None
    if not find_removed(ctx, key, stream, &removed):
        return None
    made = ArchivedPending.__new__(ArchivedPending)
    made.limit = removed.limit
    made.ids = set()
    made.is_read = True
    return made


cdef bint is_maybe_archived(Context ctx, bytes key, Stream stream, StreamID id) except -1:
    cdef Removed removed
    return (
        ctx.tiers is not None and ctx.tiers.serve_groups and not stream.has_entry(id)
        and find_removed(ctx, key, stream, &removed) and id_cmp(id, removed.limit) <= 0
    )


@cython.final
cdef class ArchivedPending:
    cdef int add(self, Stream stream, StreamID id) except -1:
        if self.is_read and id_cmp(id, self.limit) <= 0 and not stream.has_entry(id):
            self.ids.add(number_of(id))
        return 0

    cdef bint ask(self, Context ctx, list args, bytes key, Stream stream, Py_ssize_t place) except -1:
        if not self.ids:
            return True
        self.part = ctx.tiers.read(ctx, args, self.wanted(ctx, key, stream), place)
        return self.part is not None

    cdef object wanted(self, Context ctx, bytes key, Stream stream):
        cdef Removed removed
        find_removed(ctx, key, stream, &removed)
        ids = tuple(sorted(self.ids))
        return TierRange(
            key, stream, ids[0], ids[len(ids) - 1], False, len(ids), number_of(removed.live),
            number_of(removed.trimmed), ids=ids, may_be_cut=self.may_be_cut,
        )

    cdef Whereabouts find(self, StreamID id) except *:
        if id_cmp(id, self.limit) > 0:
            return GONE
        number = number_of(id)
        if number not in self.ids or number > self.part.unread:
            return UNREAD
        return ARCHIVED if self.part.find(number) >= 0 else GONE

    cdef int write(self, ReplyWriter reply, StreamID id, bint with_idle=False) except -1:
        cdef PackedEntries entries = self.part.entries
        cdef Py_ssize_t at = self.part.find(number_of(id))
        return write_archived(reply, entries.text_of(at), entries.size_between(at, at + 1), with_idle)

    cdef list pairs(self, StreamID id):
        cdef PackedEntries entries = self.part.entries
        cdef PackedWords words = entries.words_of(self.part.find(number_of(id)))
        cdef list found = []
        cdef size_t length
        cdef const char *word = next_word(&words, &length)
        while word is not NULL:
            found.append(word[:length])
            word = next_word(&words, &length)
        return found


# --- New entries ------------------------------------------------------------------------------------------------------

cdef int refuse_archived(Context ctx, bytes key, Stream stream, Group group) except -1:
    cdef Removed removed
    if find_removed(ctx, key, stream, &removed) and id_cmp(group.last_id, removed.trimmed) < 0:
        raise CommandError(
            f"ARCHIVE Group {printable(group.name)} has not read all archived entries of {printable(key)}, which a "
            "transaction or a script cannot read: read them with XREADGROUP alone"
        )
    return 0


cdef bint find_archived_key(object entries, Py_ssize_t at, bytes field, uint64_t *key) except -1:
    cdef PackedEntries packed = entries
    cdef PackedWords words = packed.words_of(at)
    cdef size_t length
    cdef const char *name = next_word(&words, &length)
    cdef size_t expected = <size_t>PyBytes_GET_SIZE(field)
    cdef bint is_key
    while name is not NULL:
        is_key = length == expected and memcmp(name, PyBytes_AS_STRING(field), length) == 0
        name = next_word(&words, &length)       # the value
        if is_key:
            key[0] = table_hash(<const uint8_t *>name, length)
            return True
        name = next_word(&words, &length)
    return False


cdef bint next_archived(Context ctx, RuledGroup ruled, object part) except -1:
    cdef PackedEntries entries = part.entries
    cdef KeyOrder order = ruled.order
    cdef Group group = ruled.group
    cdef Py_ssize_t at = part.start, stop = part.stop
    cdef StreamID before = group.last_id
    cdef bint has_found = False
    cdef StreamID id
    cdef uint64_t key
    while at < stop:
        id = make_id(entries.rows[at].ms, entries.rows[at].seq)
        if not find_archived_key(entries, at, order.field, &key):
            has_found = True
            break
        if order.find(id) is NULL:          # else it is pending, since the group was set back
            if not order.is_taken(key):
                has_found = True
                break
            if order.passed_over >= ruled.held:
                break
            group.give_back(id, 0)
            order.put(id, key, True, True)
            ctx.dirty += 1
            if ctx.is_propagating:
                propagate_unowned_mark(ctx, ruled.key, group, pel_find(&group.pel, id))
        group.last_id = id
        at += 1
    part.start = at
    if id_cmp(group.last_id, before) != 0:
        note_read(ruled.stream, group, part, at)
        if ctx.is_propagating:
            propagate_position(ctx, ruled.key, group)
    return has_found


cdef bint deliver_archived(
    Context ctx, bytes key, Stream stream, Group group, RuledGroup ordered, Consumer consumer, object part,
    Quota *quota, Delivery *delivery
) except -1:
    cdef PackedEntries entries = part.entries
    cdef ReplyWriter reply = ctx.reply
    cdef Py_ssize_t start = part.start, stop = part.stop, at = start
    cdef uint64_t own_key
    cdef StreamID id
    cdef bytes now = number_text(<uint64_t>delivery.now_ms) if ctx.is_propagating and not delivery.no_ack else None
    cdef bytes last_id = None if now is None else id_text(group.last_id)      # before anything is read
    while (
        at < stop and (delivery.written < delivery.most or delivery.most == 0)
        and not has_enough_bytes(quota, reply, delivery.written)
    ):
        if ordered is not None:
            part.start = at
            if not next_archived(ctx, ordered, part):
                return part.start == stop
            at = part.start
            if find_archived_key(entries, at, ordered.order.field, &own_key):
                ordered.order.put(make_id(entries.rows[at].ms, entries.rows[at].seq), own_key, False, True)
        write_archived(reply, entries.text_of(at), entries.size_between(at, at + 1), delivery.with_idle)
        id = make_id(entries.rows[at].ms, entries.rows[at].seq)
        group.last_id = id
        if not delivery.no_ack:
            group.deliver(id, consumer, delivery.now_ms)
            consumer.active_ms = delivery.now_ms
            if now is not None:
                propagate_archived(ctx, key, group, consumer.name, id_text(id), now, b"1", last_id)
        delivery.written += 1
        at += 1
        if ordered is not None:
            note_read(stream, group, part, at)
    if at > start:
        note_read(stream, group, part, at)
    return True


cdef int note_read(Stream stream, Group group, object part, Py_ssize_t at) except -1:
    """Note that the group has read the rows of a part before `at`."""
    cdef PackedEntries entries = part.entries
    group.entries_read = max(0, <int64_t>stream.entries_added - left_of(stream, part, entries.count - at))
    return 0


cdef int64_t left_of(Stream stream, object part, int64_t unread) except -1:
    """How many entries the group has not read: `unread` rows of the part, those above it in both tiers."""
    return unread + <int64_t>part.left + <int64_t>count_above(stream, id_of(part.boundary))


cdef int write_archived(ReplyWriter reply, const char *entry, size_t size, bint with_idle) except -1:
    """Write an entry; `with_idle`: with an idle time and a delivery count of 0, as XREADGROUP with CLAIM does."""
    if not with_idle:
        return reply.raw_c(entry, size)
    reply.array_header(4)
    reply.raw_c(entry + 4, size - 4)            # without `*2`
    reply.integer(0)
    return reply.integer(0)


cdef int propagate_archived(
    Context ctx, bytes key, Group group, bytes consumer, bytes id, bytes delivery_ms, bytes deliveries, bytes last_id
) except -1:
    ctx.effects.append([
        b"XCLAIM", key, group.name, consumer, ARCHIVED_MARK, id, b"TIME", delivery_ms,
        b"RETRYCOUNT", deliveries, b"FORCE", b"JUSTID", b"LASTID", last_id,
    ])
    return 0
