# cython: language_level=3, boundscheck=False, wraparound=False
"""What XREADGROUP delivers with `>` in a group that is ordered by key: by the rule KEYED, one entry of a key at a time.

First come the entries that were passed over and whose key is free, in the order in which their keys became free, then
new ones. A new entry is

    delivered     if no entry with its key is pending, or it has no key
    passed over   if one is: it becomes pending without an owner, with a delivery count of 0. HELD limits how many are
    left alone    if it is pending itself, since the group's last-delivered ID was set back

For files and replicas an entry that was passed over is one that was given back (XNACK ... FORCE): so nothing is known
of the order but by this server, and nothing is lost without it.

In a group that reads an archive, entries that are in the archive alone are ordered likewise. Keys of those pending are
kept when they have been read. After a start, and when an entry has left memory while it was pending, they are read
first.
"""

from libc.stdint cimport UINT64_MAX, int64_t, uint64_t

from streamd.core.context cimport Context
from streamd.engine.ids cimport StreamID, id_cmp, id_increment, make_id
from streamd.values.streams.arguments cimport id_text, propagate_position, propagate_unowned
from streamd.values.streams.delivery cimport Finder, advance, find_entry, finder_init
from streamd.values.streams.group cimport Group
from streamd.values.streams.key_order cimport KeyOrder, OrderedKey
from streamd.values.streams.pel cimport PelRecord, pel_find, pel_insert_unowned, pel_last
from streamd.values.streams.ruled_group cimport RuledGroup, find_key, follow_order, is_passed_over
from streamd.values.streams.stream cimport StreamCursor, cursor_next, cursor_seek
from streamd.values.streams.tiered_groups cimport (
    ARCHIVED, GONE, UNREAD, ArchivedPending, Whereabouts, archived_for_server, archived_pending, find_archived_key,
    next_archived,
)
from streamd.values.streams.tiered_ranges cimport id_of

from itertools import islice

from streamd.errors import CommandError, printable

__all__ = []

cdef enum:
    AT_A_TIME = 100            # pending entries that are read from the archive

cdef StreamID MAX_ID = make_id(UINT64_MAX, UINT64_MAX)


cdef bint has_turn(Context ctx, RuledGroup ruled, StreamID after, object part, ArchivedPending archived) except -1:
    """Whether an entry that was passed over, or one above `after`, may be delivered. Passes over those before it."""
    cdef StreamCursor cursor
    cdef Finder finder
    cdef StreamID before = ruled.group.last_id
    cdef bint found
    finder_init(&finder)
    if next_passed_over(ctx, ruled, &finder, archived) is not NULL:
        return True
    if part is not None:
        if next_archived(ctx, ruled, part):
            return True
        if part.start < part.stop:
            return False
        before = ruled.group.last_id        # which was propagated
    if ruled.stream.length == 0 or id_cmp(ruled.stream.last_live_id(), after) <= 0:
        return False
    id_increment(&after)            # below the last live entry, so not the greatest ID
    cursor_seek(ruled.stream, &cursor, after, MAX_ID, False)
    found = next_in_turn(ctx, ruled, &cursor)
    if ctx.is_propagating and id_cmp(ruled.group.last_id, before) != 0:
        propagate_position(ctx, ruled.key, ruled.group)
    return found


cdef PelRecord *next_passed_over(
    Context ctx, RuledGroup ruled, Finder *finder, ArchivedPending archived
) except? NULL:
    """The next entry that was passed over and may now be delivered, or NULL.

    The finder is at it, unless it was read from the archive. A deleted one is no longer pending then. For a reader of
    memory alone, a key whose next entry is archived is skipped: another reader gets it.
    """
    cdef bint reads = archived is not None and archived.is_read
    cdef Whereabouts place
    cdef OrderedKey *key
    cdef StreamID id
    follow_order(ruled, ruled.order.field)
    key = ruled.order.first_free
    while key is not NULL:
        id = key.first.id
        if find_entry(finder, ruled.stream, id):
            return pel_find(&ruled.group.pel, id)
        if id_cmp(id, ruled.archived) <= 0:
            if not reads:
                key = key.next
                continue
            place = archived.find(id)
            if place == UNREAD:
                return NULL             # one whose turn came after the others were read
            if place == ARCHIVED:
                return pel_find(&ruled.group.pel, id)
        drop(ctx, ruled, id)
        key = ruled.order.first_free
    return NULL


cdef int drop(Context ctx, RuledGroup ruled, StreamID id) except -1:
    """An entry that was passed over is deleted: it stops being pending."""
    ruled.order.forget(id)
    ruled.group.forget(id)
    ctx.dirty += 1
    if ctx.is_propagating:
        ctx.effects.append([b"XACK", ruled.key, ruled.group.name, id_text(id)])
    return 0


cdef inline bint is_beyond_all(Group group, StreamID id) noexcept nogil:
    """Whether no entry is pending that has this ID or a greater one."""
    return group.pel.by_id.count == 0 or id_cmp(id, pel_last(&group.pel).id) > 0


cdef bint next_in_turn(Context ctx, RuledGroup ruled, StreamCursor *cursor) except -1:
    """Go to the next entry that may be delivered, passing over others; False at the end, or when HELD are waiting."""
    cdef Group group = ruled.group
    cdef KeyOrder order = ruled.order
    cdef uint64_t key
    while cursor_next(cursor):
        if order.is_lost:           # by what was delivered since
            follow_order(ruled, order.field)
        if not find_key(cursor[0], order.field, &key):
            return True
        if is_beyond_all(group, cursor.id) or order.find(cursor.id) is NULL:
            if not order.is_taken(key):
                return True
            if order.passed_over >= ruled.held:
                return False
            pel_insert_unowned(&group.pel, cursor.id, 0)
            order.put(cursor.id, key, True)
            ctx.dirty += 1
            if ctx.is_propagating:
                propagate_unowned(ctx, ruled.key, group, b"SILENT", pel_find(&group.pel, cursor.id))
        advance(ruled.stream, group, cursor.id)
    return False


# --- What is in the archive alone ------------------------------------------------------------------------------------

cdef bint ask_keys(Context ctx, list args, RuledGroup ruled, Py_ssize_t place) except -1:
    cdef KeyOrder order = ruled.order
    cdef ArchivedPending archived
    while order.unread:
        if ctx.in_transaction:
            raise CommandError(
                f"ARCHIVE Group {printable(ruled.group.name)} is ordered by key, and pending entries of "
                f"{printable(ruled.key)} are archived, which transactions and scripts cannot read: use XREADGROUP alone"
            )
        # Also for a client that reads memory alone: what is in flight blocks its key, wherever it is.
        archived = archived_for_server(ctx, ruled.key, ruled.stream)
        if archived is None:
            return True
        archived.may_be_cut = True
        some = list(islice(order.unread, AT_A_TIME))
        for number in some:
            archived.add(ruled.stream, id_of(number))
        if not archived.ask(ctx, args, ruled.key, ruled.stream, place):
            return False
        for number in some:
            if number not in archived.ids or archived.find(id_of(number)) != UNREAD:
                learn_key(ctx, ruled, archived, number)
        ctx.tiers.leave_out(ctx, place)
    return True


cdef int learn_key(Context ctx, RuledGroup ruled, ArchivedPending archived, object number) except -1:
    """Have the order know the key of a pending entry that was read, if it has one."""
    cdef StreamID id = id_of(number)
    cdef PelRecord *record = pel_find(&ruled.group.pel, id)
    cdef uint64_t key
    ruled.order.unread.discard(number)
    if record is NULL or number not in archived.ids:
        return 0
    if archived.find(id) != ARCHIVED:
        return drop(ctx, ruled, id) if is_passed_over(record) else 0
    if find_archived_key(archived.part.entries, archived.part.find(number), ruled.order.field, &key):
        ruled.order.put(id, key, is_passed_over(record), True)
    return 0


cdef ArchivedPending ask_in_turn(
    Context ctx, list args, RuledGroup ruled, int64_t count, Py_ssize_t place, bint *waits
):
    cdef ArchivedPending archived
    cdef OrderedKey *key
    cdef int64_t left
    cdef bint has_dropped = True
    waits[0] = False
    while has_dropped:
        archived = archived_pending(ctx, ruled.key, ruled.stream)
        if archived is None:
            return None
        key = ruled.order.first_free
        left = min(count, AT_A_TIME) if count else AT_A_TIME
        while key is not NULL and left > 0:
            archived.add(ruled.stream, key.first.id)
            key = key.next
            left -= 1
        if not archived.ask(ctx, args, ruled.key, ruled.stream, place):
            waits[0] = True
            return None
        # It is the turn of those behind them, which were not read.
        has_dropped = False
        for number in archived.ids:
            if archived.find(id_of(number)) == GONE:
                drop(ctx, ruled, id_of(number))
                has_dropped = True
    return archived
