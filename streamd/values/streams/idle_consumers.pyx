# cython: language_level=3, boundscheck=False, wraparound=False
"""Consumers that left: by the rule CONSUMERTTL of a group, those that were not seen for too long are removed.

A consumer was seen when it last read or claimed, or tried to; one that waits in XREADGROUP is seen all the time. What
it has is given back first, as XNACK FAIL would, whose effects these are: the delivery count stays, so that an entry
that kills its consumers still reaches its last delivery, and is a dead letter then. What is held back by a back-off
stays with its consumer until that is over, and keeps the consumer. Then follows XGROUP DELCONSUMER.

Who may do this, and when, is decided in dead_letter_timer.pyx.
"""

from libc.stdint cimport int64_t

from streamd.core.context cimport Context
from streamd.engine.ids cimport StreamID, make_id
from streamd.keyspace.listener cimport EVENT_STREAM
from streamd.values.streams.arguments cimport note_change, propagate_unowned
from streamd.values.streams.dead_letters cimport move
from streamd.values.streams.group cimport Consumer
from streamd.values.streams.pel cimport PelCursor, PelRecord, pel_find, pel_next, pel_seek
from streamd.values.streams.ruled_group cimport RuledGroup
from streamd.values.streams.waiting cimport consumers_waiting

from streamd.delivery.state import state_of

__all__ = []

cdef enum:
    AT_A_TIME = 100            # pending entries that are given back as one unit


cdef int note_waiting(Context ctx, RuledGroup ruled) except -1:
    """See the consumers that wait for entries of the stream now."""
    cdef Consumer consumer
    for name in consumers_waiting(ctx.db, ruled.key, ruled.group.name):
        consumer = ruled.group.find_consumer(name)
        if consumer is not None:
            consumer.seen_ms = ctx.now_ms
    return 0


cdef list idle_consumers(Context ctx, RuledGroup ruled, int64_t since_ms):
    """The consumers that the rule wants removed; since_ms: Unix time before which nobody can have been seen."""
    cdef Consumer consumer
    return [
        name for name, consumer in ruled.group.consumers.items()
        if ctx.now_ms - max(consumer.seen_ms, since_ms) > ruled.consumer_ttl_ms
    ]


cdef bint retire(Context ctx, RuledGroup ruled, bytes name) except -1:
    """Give back some of what a consumer has, and remove it if that is all; returns whether there is more."""
    cdef Consumer consumer = ruled.group.find_consumer(name)
    cdef PelCursor walk
    cdef PelRecord *record
    cdef StreamID id
    cdef int given_back = 0
    pel_seek(&ruled.group.pel, &walk, consumer.number, make_id(0, 0))
    while given_back < AT_A_TIME:
        record = pel_next(&walk)
        if record is NULL:
            break
        if ruled.is_held(record, ctx.now_ms):
            continue
        id = record.id
        given_back += 1
        if not ruled.is_used_up(record) or not move(ctx, ruled, id, False):
            ruled.group.give_back(id, record.delivery_count)
            if ctx.is_propagating:
                propagate_unowned(ctx, ruled.key, ruled.group, b"FAIL", pel_find(&ruled.group.pel, id))
    if given_back:
        ctx.db.signal_ready(ruled.key)
    ctx.dirty += <unsigned long long>given_back
    note_change(ctx, ruled.key)
    if ruled.group.pending_of(consumer):
        return given_back == AT_A_TIME
    ruled.group.drop_consumer(name)
    ctx.dirty += 1
    ctx.db.event(EVENT_STREAM, b"xgroup-delconsumer", ruled.key)
    if ctx.is_propagating:
        ctx.effects.append([b"XGROUP", b"DELCONSUMER", ruled.key, ruled.group.name, name])
    state_of(ctx).consumers_removed += 1
    return False
