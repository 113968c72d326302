# cython: language_level=3, boundscheck=False, wraparound=False
"""Dead letters: pending entries that are not delivered again are moved to another stream, by the rules of their group.

The rules are in `delivery`. An entry whose delivery count has reached the limit of its group's rule is moved by the
next of these events, and by nothing else:

    XNACK                                         at once, if the count that it leaves is that high (FATAL: always)
    XCLAIM, XAUTOCLAIM, XREADGROUP with CLAIM     when they would deliver it: the claimer gets the next one
    a second of the server, with ACKWAIT          when it has been idle for longer than that (dead_letter_timer.pyx)

A move is one unit of two effects: XADD to the dead-letter stream, with what is known of the entry as fields `dlq.*`,
and XACK. The entry itself stays, for other groups. An entry that cannot be moved stays pending, is not delivered, and
is tried again (delivery/state.py). So is one that may be in the archive alone: the server reads its fields, and moves
it when it has them (dead_letter_timer.pyx). Only a server that decides moves entries: none while a file or a primary is
replayed.
"""

from libc.stdint cimport INT64_MAX, uint64_t

from streamd.core.context cimport Context
from streamd.engine.ids cimport StreamID, make_id
from streamd.values.streams.appending cimport append
from streamd.values.streams.arguments cimport id_text, note_change, number_text
from streamd.values.streams.pel cimport PelRecord, delivered_ms, pel_find
from streamd.values.streams.ruled_group cimport RuledGroup, signal_room
from streamd.values.streams.rule_timer cimport replace_waiting
from streamd.values.streams.tiered_groups cimport (
    ARCHIVED, UNREAD, ArchivedPending, is_maybe_archived,
)

from streamd.delivery.state import Place, state_of
from streamd.errors import CommandError
from streamd.keyspace.hash_slot import slot_of

__all__ = ["LETTER_FIELDS"]

LETTER_FIELDS = (
    b"dlq.stream", b"dlq.id", b"dlq.group", b"dlq.consumer", b"dlq.deliveries", b"dlq.first", b"dlq.last",
    b"dlq.reason",
)
"""What a dead letter has after the fields of the entry, in this order."""


cdef bint move(Context ctx, RuledGroup ruled, StreamID id, bint is_fatal, ArchivedPending archived=None) except -1:
    """Move a pending entry, or one that XNACK would make pending; False if that is impossible.

    is_fatal  a consumer has said so, whatever the delivery count
    archived  what was read of entries that are not in memory
    The caller holds the effects of the command: see hold_effects.
    """
    state = state_of(ctx)
    place = Place(ctx.db.index, ruled.key, ruled.group.name)
    try:
        if ctx.config.cluster_enabled and slot_of(ruled.dead_letter) != slot_of(ruled.key):
            raise CommandError("CROSSSLOT The dead-letter stream is in another slot")     # the rule was written by hand
        if not is_maybe_archived(ctx, ruled.key, ruled.stream, id):
            archived = None
        elif archived is None or archived.find(id) == UNREAD:
            raise CommandError("ARCHIVE The entry is no longer in memory: it is moved when it has been read")
        append(ctx, ruled.dead_letter, describe(ruled, id, is_fatal, archived))
        replace_waiting(ctx, ruled.dead_letter, None)
    except CommandError as error:
        state.note_failure(place, (id.ms, id.seq), str(error))
        return False
    state.note_move(place, (id.ms, id.seq))
    ruled.group.dead_lettered += 1
    ruled.group.forget(id)
    if ctx.is_propagating:
        ctx.effects.append([b"XACK", ruled.key, ruled.group.name, id_text(id)])
    ctx.dirty += 1
    note_change(ctx, ruled.key)
    signal_room(ctx, ruled.key)
    return True


cdef int move_all(Context ctx, RuledGroup ruled, list ids) except -1:
    """Move the pending entries with these IDs, (ms, seq)."""
    for ms, seq in ids:
        move(ctx, ruled, make_id(ms, seq), False)
    return 0


cdef list describe(RuledGroup ruled, StreamID id, bint is_fatal, ArchivedPending archived):
    """The fields and values of a dead letter: those of the entry, if it still exists, and how it was delivered."""
    cdef PelRecord *record = pel_find(&ruled.group.pel, id)
    cdef uint64_t deliveries = 0 if record is NULL else record.delivery_count
    cdef list words = []
    if archived is not None and archived.find(id) == ARCHIVED:
        words = archived.pairs(id)
    else:
        for _, pairs in ruled.stream.range((id.ms, id.seq), (id.ms, id.seq)):
            words = [word for pair in pairs for word in pair]
    if not words:
        reason = b"trimmed"
    elif is_fatal or deliveries == <uint64_t>INT64_MAX:
        reason = b"fatal"
    else:
        reason = b"max-deliveries"
    known = (
        ruled.key, id_text(id), ruled.group.name, b"" if record is NULL else ruled.group.owner_name(record),
        number_text(deliveries), number_text(id.ms),
        b"0" if record is NULL else number_text(<uint64_t>delivered_ms(record)), reason,
    )
    return words + [word for pair in zip(LETTER_FIELDS, known) for word in pair]
