# cython: language_level=3, boundscheck=False, wraparound=False
"""Dead letters: pending entries that are not delivered again are moved to another stream, by the rules of their group.

The rules are in `delivery`; what they mean for an entry is here. An entry whose delivery count has reached the limit
of its group's rule is moved by the next of these events, and by nothing else:

    XNACK                                         at once, if the count that it leaves is that high (FATAL: always)
    XCLAIM, XAUTOCLAIM, XREADGROUP with CLAIM     when they would deliver it: the claimer gets the next one
    a second of the server, with ACKWAIT          when it has been idle for longer than that (dead_letter_timer.pyx)

A move is one unit of two effects: XADD to the dead-letter stream, with what is known of the entry as fields `dlq.*`,
and XACK. The entry itself stays, for other groups. An entry that cannot be moved stays pending, is not delivered, and
is tried again (delivery/failures.py). Only a server that decides moves entries: none while a file or a primary is
replayed.
"""

cimport cython
from libc.stdint cimport INT64_MAX, int64_t, uint64_t

from streamd.core.context cimport Context
from streamd.engine.ids cimport StreamID, make_id
from streamd.keyspace.listener cimport EVENT_STREAM
from streamd.values.streams.arguments cimport id_text, new_stream, note_change, number_text
from streamd.values.streams.delivery cimport idle_of
from streamd.values.streams.group cimport Group
from streamd.values.streams.pel cimport PelCursor, PelRecord, delivered_ms, pel_find, pel_next, pel_seek_oldest
from streamd.values.streams.stream cimport Stream

from streamd.delivery.failures import Place, may_store, state_of
from streamd.delivery.rules import find_rule
from streamd.errors import OUT_OF_MEMORY, CommandError, WrongTypeError
from streamd.keyspace.hash_slot import slot_of

__all__ = ["DeadLetterBox"]

cdef enum:
    MOST_LOOKED_AT = 1000      # pending entries, by one request
    MOST_MOVED = 100           # of them


@cython.final
cdef class DeadLetterBox:
    """A group with a rule for dead letters, during one command."""

    cdef bint move(self, Context ctx, StreamID id, bint is_fatal) except -1:
        """Move a pending entry, or one that XNACK would make pending; False if that is impossible: nothing has
        changed then.

        is_fatal  a consumer has said so, whatever the delivery count
        The caller holds the effects of the command: see hold_effects.
        """
        state = state_of(ctx)
        place = Place(ctx.db.index, self.key, self.group.name)
        try:
            self.store(ctx, id, is_fatal)
        except CommandError as error:
            state.note_failure(place, (id.ms, id.seq), str(error))
            return False
        state.moved += 1
        state.forget(place, (id.ms, id.seq))
        self.group.forget(id)
        if ctx.is_propagating:
            ctx.effects.append([b"XACK", self.key, self.group.name, id_text(id)])
        ctx.dirty += 1
        note_change(ctx, self.key)
        return True

    cdef int store(self, Context ctx, StreamID id, bint is_fatal) except -1:
        """Append the entry to the dead-letter stream; CommandError if that is impossible."""
        cdef Stream target
        cdef StreamID new_id
        cdef list request
        cdef object value = ctx.db.peek(self.dead_letter)
        cdef bint is_new = value is None
        if value is not None and type(value) is not Stream:
            raise WrongTypeError()
        if ctx.config.cluster_enabled and slot_of(self.dead_letter) != slot_of(self.key):
            raise CommandError("CROSSSLOT The dead-letter stream is in another slot")     # the rule was written by hand
        if not may_store(ctx):
            raise CommandError(OUT_OF_MEMORY)
        target = new_stream(ctx) if is_new else <Stream>value
        if not target.next_id(ctx.now_ms, &new_id):
            raise CommandError("ERR The stream has exhausted the last possible ID, unable to add more items")
        request = [b"XADD", self.dead_letter, id_text(new_id)]
        self.describe(id, is_fatal, request)
        target.node_max_bytes = ctx.stream_node_max_bytes
        target.node_max_entries = ctx.stream_node_max_entries
        try:
            target.append_args(new_id, request, 3)
        except OverflowError:
            raise CommandError("ERR Elements are too large to be stored") from None
        if is_new:
            ctx.db.add(self.dead_letter, target)
        ctx.dirty += 1
        ctx.db.touched(self.dead_letter)
        ctx.db.event(EVENT_STREAM, b"xadd", self.dead_letter)
        ctx.db.signal_ready(self.dead_letter)
        if ctx.is_propagating:
            ctx.effects.append(request)
        return 0

    cdef int describe(self, StreamID id, bint is_fatal, list request) except -1:
        """Append the fields of the entry, if it still exists, and what is known of its delivery."""
        cdef PelRecord *record = pel_find(&self.group.pel, id)
        cdef uint64_t deliveries = 0 if record is NULL else record.delivery_count
        cdef list found = self.stream.range((id.ms, id.seq), (id.ms, id.seq))
        for _, pairs in found:
            for field, value in pairs:
                request.append(field)
                request.append(value)
        if not found:
            reason = b"trimmed"
        elif is_fatal or deliveries == <uint64_t>INT64_MAX:
            reason = b"fatal"
        else:
            reason = b"max-deliveries"
        request += [
            b"dlq.stream", self.key, b"dlq.id", id_text(id), b"dlq.group", self.group.name,
            b"dlq.consumer", b"" if record is NULL else self.group.owner_name(record),
            b"dlq.deliveries", number_text(deliveries), b"dlq.first", number_text(id.ms),
            b"dlq.last", b"0" if record is NULL else number_text(<uint64_t>delivered_ms(record)), b"dlq.reason", reason,
        ]
        return 0

    cdef int move_idle(self, Context ctx, int64_t min_idle_ms) except -1:
        """Move entries that a claim would meet, the oldest first; a bounded number, as others wait for this request."""
        cdef PelCursor walk
        cdef PelRecord *record
        cdef list found = []
        cdef int looked_at = 0
        pel_seek_oldest(&self.group.pel, &walk)
        record = pel_next(&walk)
        while record is not NULL and idle_of(record, ctx.now_ms) >= min_idle_ms:
            if record.delivery_count >= self.limit:
                found.append((record.id.ms, record.id.seq))
            looked_at += 1
            if looked_at == MOST_LOOKED_AT or len(found) == MOST_MOVED:
                break
            record = pel_next(&walk)
        for ms, seq in found:
            self.move(ctx, make_id(ms, seq), False)
        return 0


cdef DeadLetterBox find_box(Context ctx, bytes key, Stream stream, Group group):
    """The box of a group, or None: it has no rule, or others decide. Cheap where nobody has set a rule."""
    cdef DeadLetterBox box
    if not ctx.db.reserved or ctx.is_replaying:
        return None
    rule = find_rule(ctx.db, key, group.name)
    if rule is None:
        return None
    box = DeadLetterBox.__new__(DeadLetterBox)
    box.key = key
    box.stream = stream
    box.group = group
    box.dead_letter = rule.dead_letter
    box.limit = rule.limit
    box.ack_wait_ms = rule.ack_wait_ms
    return box
