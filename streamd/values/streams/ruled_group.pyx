# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""RuledGroup: what a rule of a group means for its pending entries, while a command runs.

The rules are in `delivery`. An entry that a rule concerns is, for a claim that would deliver it,

    held back   its back-off is not over: it is left alone, as if it had not been idle for long enough
    used up     it was delivered as often as the rule allows: it is moved instead (dead_letters.pyx)
    a suspect   it was delivered often: it is alone in a reply. A consumer that crashes makes all entries that it had
                look alike, and they would be used up together

Back-off has no state: it follows from the time and the number of deliveries that every pending entry has. So it is
the same after a restart, on a replica that is promoted, and whoever claims.

    ready = last delivery + min(MAX, BACKOFF * FACTOR ^ (deliveries - 1)) * (1 +/- JITTER, by a hash of the ID)

An entry without an owner was given back: it is not held back. XNACK FAIL makes the present time that of the last
delivery, and leaves the entry with its owner.

An entry is in the hands of its owner until it is acknowledged, given back or fails. Limits on how many are (MAXPENDING,
CONSUMERPENDING) concern reads of new entries only. Whoever takes an entry out of the hands of a consumer, or may free
its key, calls signal_room.

Order by key: see key_order.pyx for what is known of the pending entries, and ordered_reads.pyx for what is delivered.
"""

cimport cython
from libc.math cimport pow
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport INT64_MAX, UINT64_MAX, int64_t, uint8_t, uint64_t

from streamd.core.context cimport Context
from streamd.engine.ids cimport StreamID, id_cmp, id_increment, id_is_zero, make_id
from streamd.engine.listpack cimport LpValue, lp_equals
from streamd.engine.table cimport table_hash
from streamd.numbers cimport INT64_ROOM, put_int64
from streamd.values.streams.delivery cimport Finder, find_entry, finder_init, idle_of
from streamd.values.streams.group cimport Consumer, Group
from streamd.values.streams.key_order cimport KeyOrder, OrderedEntry, is_in_turn
from streamd.values.streams.pel cimport (
    NO_OWNER, Pel, PelCursor, PelRecord, delivered_ms, pel_find, pel_in_hand, pel_next, pel_owner_in_hand, pel_seek,
    pel_seek_oldest, pel_seek_time,
)
from streamd.values.streams.stream cimport Stream, StreamCursor, cursor_pair
from streamd.values.streams.tiered_ranges cimport Removed, find_removed, number_of

from streamd.delivery.defaults import group_rule_in_force
from streamd.delivery.rules import key_of_rules
from streamd.delivery.state import Place, state_of

__all__ = []

cdef enum:
    MOST_SKIPPED = 500         # of pending entries that are not delivered now, by one walk, before and after it jumps
    MOST_USED_UP = 100         # entries that one walk collects to be moved
    RETRY_MS = 10              # after a walk that was cut


@cython.final
@cython.no_gc
@cython.freelist(8)
cdef class RuledGroup:
    """A group of a stream, and its rule."""

    cdef int64_t ready_ms(self, const PelRecord *record) noexcept nogil:
        cdef double delay_ms
        if self.back_off_ms == 0 or record.owner == NO_OWNER or record.delivery_count == 0:
            return 0
        delay_ms = self.back_off_ms * pow(self.factor, <double>(record.delivery_count - 1))
        if not delay_ms < self.max_back_off_ms:
            delay_ms = self.max_back_off_ms
        if self.jitter > 0:
            delay_ms *= 1 + self.jitter * swing(record.id)
        return delivered_ms(record) + <int64_t>delay_ms

    cdef bint is_held(self, const PelRecord *record, int64_t now_ms) noexcept nogil:
        return self.back_off_ms != 0 and now_ms < self.ready_ms(record)

    cdef bint waits_for_turn(self, const PelRecord *record) noexcept nogil:
        return self.order is not None and is_passed_over(record) and self.order.find(record.id) is not NULL

    cdef bint is_blocked(self, const PelRecord *record) except -1:
        cdef OrderedEntry *entry
        if self.order is None or not is_passed_over(record):
            return False
        follow_order(self, self.order.field)
        entry = self.order.find(record.id)
        if entry is NULL:
            return number_of(record.id) in self.order.unread
        return not is_in_turn(entry)

    cdef int64_t room_of(self, Consumer consumer) noexcept nogil:
        cdef Pel *pel = &self.group.pel
        cdef int64_t room = INT64_MAX
        if self.max_pending:
            room = self.max_pending - <int64_t>(pel_in_hand(pel) - pel.unowned)
        if self.consumer_pending:
            room = min(room, self.consumer_pending - <int64_t>pel_owner_in_hand(pel, consumer.number))
        return max(0, room)


cdef bint is_passed_over(const PelRecord *record) noexcept nogil:
    """Whether a pending entry was never delivered: it was passed over, or given back as if it had been."""
    return record.owner == NO_OWNER and record.delivery_count == 0


cdef inline double swing(StreamID id) noexcept nogil:
    """A number from -1 to 1 that looks random and is always the same for an ID."""
    cdef uint64_t hash = id.ms * <uint64_t>0x9E3779B97F4A7C15 + id.seq
    hash = (hash ^ (hash >> 30)) * <uint64_t>0xBF58476D1CE4E5B9
    hash = (hash ^ (hash >> 27)) * <uint64_t>0x94D049BB133111EB
    return <double>((hash ^ (hash >> 31)) >> 11) / (<uint64_t>1 << 52) - 1


@cython.final
@cython.no_gc
cdef class KnownRule:
    """What the rule of a group was found to be, which it is as long as the rules of its stream have the same text.

    stream   key of the stream
    place    key of its rules
    text     of the rules; a copy
    pattern  what RuledGroup has of the rule; None: there is none for the group
    keyed    the field that orders its entries; None: none does
    """

    cdef bytes stream
    cdef bytes place
    cdef bytes text
    cdef RuledGroup pattern
    cdef bytes keyed


cdef RuledGroup find_rule_of(Context ctx, bytes key, Stream stream, Group group):
    """See find_ruled."""
    cdef KnownRule known = group.known_rule
    cdef bytes place
    cdef object text = None
    if not ctx.has_default_rules:
        place = known.place if known is not None and known.stream == key else key_of_rules(key)
        text = ctx.db.peek(place)
        if text is None:
            return None
    if known is None or text is None or known.text != text:
        known = KnownRule.__new__(KnownRule)
        take_rule(known, group_rule_in_force(ctx, ctx.db, key, group.name))
        if type(text) is bytes:
            known.stream, known.place = key, place
            known.text = bytes(memoryview(text))      # APPEND changes a string in place
            group.known_rule = known
    return None if known.pattern is None else ruled_by(ctx, known, key, stream, group)


cdef int take_rule(KnownRule known, object rule) except -1:
    """Note what a rule means; None: the group has no rule."""
    cdef RuledGroup pattern
    if rule is None:
        return 0
    pattern = known.pattern = RuledGroup.__new__(RuledGroup)
    pattern.dead_letter = rule.dead_letter
    # XNACK FATAL sets the greatest count.
    pattern.limit = UINT64_MAX if not pattern.dead_letter else rule.max_deliveries or <uint64_t>INT64_MAX
    pattern.ack_wait_ms = rule.ack_wait_ms
    pattern.back_off_ms = rule.back_off_ms
    pattern.factor = rule.factor / 1000
    pattern.max_back_off_ms = rule.max_back_off_ms
    pattern.jitter = rule.jitter / 100
    pattern.suspect = rule.isolate or UINT64_MAX
    pattern.max_pending = rule.max_pending
    pattern.consumer_pending = rule.consumer_pending
    pattern.consumer_ttl_ms = rule.consumer_ttl_ms
    pattern.held = rule.held
    known.keyed = rule.keyed or None
    return 0


cdef RuledGroup ruled_by(Context ctx, KnownRule known, bytes key, Stream stream, Group group):
    """The group with that rule."""
    cdef Removed removed
    cdef RuledGroup pattern = known.pattern
    cdef RuledGroup ruled = RuledGroup.__new__(RuledGroup)
    ruled.key = key
    ruled.stream = stream
    ruled.group = group
    ruled.dead_letter = pattern.dead_letter
    ruled.limit = pattern.limit
    ruled.ack_wait_ms = pattern.ack_wait_ms
    ruled.back_off_ms = pattern.back_off_ms
    ruled.factor = pattern.factor
    ruled.max_back_off_ms = pattern.max_back_off_ms
    ruled.jitter = pattern.jitter
    ruled.suspect = pattern.suspect
    ruled.max_pending = pattern.max_pending
    ruled.consumer_pending = pattern.consumer_pending
    ruled.consumer_ttl_ms = pattern.consumer_ttl_ms
    ruled.held = pattern.held
    if known.keyed is not None:
        if ctx.tiers is not None and ctx.tiers.serve_groups and find_removed(ctx, key, stream, &removed):
            ruled.archived = removed.limit
        follow_order(ruled, known.keyed)
    return ruled


# --- Order by key -----------------------------------------------------------------------------------------------------

cdef int follow_order(RuledGroup ruled, bytes field) except -1:
    """Have the group's order by this field know what is pending now.

    O(changes), or O(pending entries) if it has to be built.
    """
    cdef Stream stream = ruled.stream
    cdef Group group = ruled.group
    cdef KeyOrder order = group.order
    cdef bint with_archive = not id_is_zero(ruled.archived)
    cdef PelCursor walk
    cdef PelRecord *record
    cdef Finder finder
    cdef StreamID begin = stream.first_id
    cdef size_t i
    finder_init(&finder)
    if stream.length == 0:
        begin = stream.last_id
        id_increment(&begin)
    if order is None or order.field != field:
        order = group.order = KeyOrder(field)
        stream.has_order = True
    ruled.order = order
    if order.is_lost or order.with_archive != with_archive:
        order.clear()
        order.unread.clear()
        order.is_lost = False
        order.with_archive = with_archive
        pel_seek(&group.pel, &walk, -1, make_id(0, 0) if with_archive else begin)
        record = pel_next(&walk)
        while record is not NULL:
            look_again(ruled, record.id, &finder)
            record = pel_next(&walk)
    elif id_cmp(order.trimmed, begin) < 0:
        pel_seek(&group.pel, &walk, -1, order.trimmed)
        record = pel_next(&walk)
        while record is not NULL and id_cmp(record.id, begin) < 0:
            look_again(ruled, record.id, &finder)
            record = pel_next(&walk)
    order.trimmed = begin
    for i in range(order.changed_count):
        look_again(ruled, order.changed[i], &finder)
    order.changed_count = 0
    return 0


cdef int look_again(RuledGroup ruled, StreamID id, Finder *finder) except -1:
    """Have the order know what has become of an entry.

    One that was deleted blocks nothing: it is forgotten. If it was passed over, it is when its turn comes.
    """
    cdef KeyOrder order = ruled.order
    cdef PelRecord *record = pel_find(&ruled.group.pel, id)
    cdef OrderedEntry *known = order.find(id)
    cdef uint64_t key
    if record is NULL:
        order.forget(id)
    elif known is not NULL and (known.is_archived or is_passed_over(record)):
        order.put(id, known.key.hash, is_passed_over(record), known.is_archived)
    elif not find_entry(finder, ruled.stream, id):
        order.forget(id)
        if id_cmp(id, ruled.archived) <= 0:
            order.unread.add(number_of(id))
    elif known is not NULL:
        order.put(id, known.key.hash, False)
    elif find_key(finder.cursor, order.field, &key):
        order.put(id, key, is_passed_over(record))
    return 0


cdef bint find_key(StreamCursor cursor, bytes field, uint64_t *key) noexcept:
    """The hash of the key of an entry; False if it has none. The cursor is a copy."""
    cdef LpValue name, value
    cdef char number[INT64_ROOM]
    while cursor.pairs_left:
        cursor_pair(&cursor, &name, &value)
        if lp_equals(&name, <const uint8_t *>PyBytes_AS_STRING(field), <size_t>PyBytes_GET_SIZE(field)):
            if value.data is NULL:      # the same text may be stored in either form
                value.length = put_int64(number, value.number)
                value.data = <const uint8_t *>number
            key[0] = table_hash(value.data, value.length)
            return True
    return False


# --- What a claim without IDs delivers ------------------------------------------------------------------------------

cdef int claim_walk_init(
    ClaimWalk *walk, Group group, RuledGroup ruled, int64_t now_ms, int64_t min_idle_ms
) except -1:
    """Start a walk over the pending entries that have been idle for at least `min_idle_ms`."""
    if ruled is not None and ruled.order is not None and ruled.order.passed_over == group.pel.unowned:
        pel_seek_time(&group.pel, &walk.cursor, 0, 0, make_id(0, 0))      # nothing else is without an owner
    else:
        pel_seek_oldest(&group.pel, &walk.cursor)
    walk.now_ms = now_ms
    walk.min_idle_ms = min_idle_ms
    walk.skipped = 0
    walk.has_jumped = walk.is_cut = False
    return 0


cdef PelRecord *next_deliverable(ClaimWalk *walk, Context ctx, RuledGroup ruled, list used_up) except? NULL:
    """The next entry that the claim delivers, unless it was deleted from the stream; NULL at the end.

    ruled    None: the group has no rule
    used_up  gets the IDs, (ms, seq), of entries to be moved instead

    Where many entries in front are held back, a walk that has skipped MOST_SKIPPED of them goes on where an earlier
    one was cut, so that requests are short and yet all entries are met.
    """
    cdef PelRecord *record
    while True:
        record = pel_next(&walk.cursor)
        if record is NULL or idle_of(record, walk.now_ms) < walk.min_idle_ms:
            if walk.has_jumped:
                state_of(ctx).cuts.pop(place_of(ctx, ruled), None)
            return NULL
        if ruled is None:
            return record
        if not ruled.is_held(record, walk.now_ms) and not ruled.waits_for_turn(record):
            if not ruled.is_used_up(record):
                return record
            if len(used_up) < MOST_USED_UP:
                used_up.append((record.id.ms, record.id.seq))
        walk.skipped += 1
        if walk.skipped % MOST_SKIPPED == 0 and not jump(walk, ctx, ruled, record):
            walk.is_cut = True
            return NULL


cdef object place_of(Context ctx, RuledGroup ruled):
    return Place(ctx.db.index, ruled.key, ruled.group.name)


cdef bint jump(ClaimWalk *walk, Context ctx, RuledGroup ruled, const PelRecord *record) except -1:
    """Go on where an earlier walk was cut, if that is ahead; False to cut this one here."""
    cdef dict cuts = state_of(ctx).cuts
    cdef object place = place_of(ctx, ruled)
    here = (record.delivery_ms, record.turn, record.id.ms, record.id.seq)
    cut = cuts.get(place)
    if walk.has_jumped or cut is None or cut < here:
        cuts[place] = here
        return False
    walk.has_jumped = True
    delivery_ms, turn, ms, seq = cut
    pel_seek_time(&ruled.group.pel, &walk.cursor, delivery_ms, turn, make_id(ms, seq))
    return True


cdef int64_t next_ready_ms(Group group, RuledGroup ruled, int64_t now_ms, int64_t min_idle_ms) except -1:
    """The earliest Unix time at which an entry that is pending, and cannot be claimed now, can be claimed; INT64_MAX
    for none.

    With a rule, maybe earlier, if many entries are held back.
    """
    cdef PelCursor walk
    cdef PelRecord *record
    cdef int64_t ready_ms, idle_ready_ms, next_ms = INT64_MAX
    cdef int looked_at = 0
    # Those without an owner are deleted from the stream, or wait for their turn, or would have been claimed.
    pel_seek_time(&group.pel, &walk, 0, 0, make_id(0, 0))
    while True:
        record = pel_next(&walk)
        if record is NULL:
            return next_ms
        idle_ready_ms = min(min_idle_ms, INT64_MAX - record.delivery_ms) + record.delivery_ms
        ready_ms = idle_ready_ms if ruled is None else max(idle_ready_ms, ruled.ready_ms(record))
        if ready_ms > now_ms:
            next_ms = min(next_ms, ready_ms)
        if idle_ready_ms > now_ms and (ruled is None or ruled.back_off_ms == 0 or idle_ready_ms >= next_ms):
            return next_ms
        looked_at += ruled is not None
        if looked_at == 2 * MOST_SKIPPED:
            return min(next_ms, now_ms + RETRY_MS)
