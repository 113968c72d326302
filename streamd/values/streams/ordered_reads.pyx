# cython: language_level=3, boundscheck=False, wraparound=False
"""What XREADGROUP delivers with `>` in a group that is ordered by key: by the rule KEYED, one entry of a key at a time.

First come the entries that were passed over and whose key is free, in the order in which their keys became free, then
new ones. A new entry is

    delivered     if no entry with its key is pending, or it has no key
    passed over   if one is: it becomes pending without an owner, with a delivery count of 0. HELD limits how many are
    left alone    if it is pending itself, since the group's last-delivered ID was set back

For files and replicas an entry that was passed over is one that was given back (XNACK ... FORCE): so nothing is known
of the order but by this server, and nothing is lost without it.
"""

from libc.stdint cimport UINT64_MAX, uint64_t

from streamd.core.context cimport Context
from streamd.engine.ids cimport StreamID, id_cmp, id_increment, make_id
from streamd.values.streams.arguments cimport id_text, propagate_position, propagate_unowned
from streamd.values.streams.delivery cimport Finder, advance, find_entry, finder_init
from streamd.values.streams.group cimport Group
from streamd.values.streams.key_order cimport KeyOrder, OrderedEntry
from streamd.values.streams.pel cimport PelRecord, pel_find, pel_insert_unowned, pel_last
from streamd.values.streams.ruled_group cimport RuledGroup, find_key, follow_order
from streamd.values.streams.stream cimport StreamCursor, cursor_next, cursor_seek
from streamd.values.streams.tiered_groups cimport is_maybe_archived

__all__ = []

cdef StreamID MAX_ID = make_id(UINT64_MAX, UINT64_MAX)


cdef bint has_turn(Context ctx, RuledGroup ruled, StreamID after) except -1:
    """Whether an entry that was passed over, or one above `after`, may be delivered. Passes over those before it."""
    cdef StreamCursor cursor
    cdef Finder finder
    cdef StreamID before = ruled.group.last_id
    cdef bint found
    finder_init(&finder)
    if next_passed_over(ctx, ruled, &finder) is not NULL:
        return True
    if ruled.stream.length == 0 or id_cmp(ruled.stream.last_live_id(), after) <= 0:
        return False
    id_increment(&after)            # below the last live entry, so not the greatest ID
    cursor_seek(ruled.stream, &cursor, after, MAX_ID, False)
    found = next_in_turn(ctx, ruled, &cursor)
    if ctx.is_propagating and id_cmp(ruled.group.last_id, before) != 0:
        propagate_position(ctx, ruled.key, ruled.group)
    return found


cdef PelRecord *next_passed_over(Context ctx, RuledGroup ruled, Finder *finder) except? NULL:
    """The next entry that was passed over and may be delivered, which the finder is at; NULL if there is none.

    One that was deleted meanwhile stops being pending; what may be in the archive alone is left to claims.
    """
    cdef OrderedEntry *entry
    cdef StreamID id
    follow_order(ruled.stream, ruled.group, ruled.order.field)
    while True:
        entry = ruled.order.first_in_turn()
        if entry is NULL:
            return NULL
        id = entry.id
        if find_entry(finder, ruled.stream, id):
            return pel_find(&ruled.group.pel, id)
        ruled.order.forget(id)
        if not is_maybe_archived(ctx, ruled.key, ruled.stream, id):
            ruled.group.forget(id)
            ctx.dirty += 1
            if ctx.is_propagating:
                ctx.effects.append([b"XACK", ruled.key, ruled.group.name, id_text(id)])


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
            follow_order(ruled.stream, group, order.field)
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
