# cython: language_level=3, boundscheck=False, wraparound=False
"""Appending to a stream what the server moves there by itself: dead letters, and entries that are due."""

from streamd.core.context cimport Context
from streamd.engine.ids cimport StreamID
from streamd.keyspace.listener cimport EVENT_STREAM
from streamd.values.streams.arguments cimport id_text, new_stream
from streamd.values.streams.stream cimport Stream

from streamd.delivery.state import may_store
from streamd.errors import OUT_OF_MEMORY, CommandError, WrongTypeError

__all__ = []


cdef int append(Context ctx, bytes key, list words) except -1:
    """Append an entry to a stream, which is created if it is missing; CommandError if that is impossible.

    words  its fields and values in turn
    """
    cdef Stream target
    cdef StreamID new_id
    cdef list request
    cdef object value = ctx.db.peek(key)
    cdef bint is_new = value is None
    if value is not None and type(value) is not Stream:
        raise WrongTypeError()
    if not may_store(ctx):
        raise CommandError(OUT_OF_MEMORY)
    target = new_stream(ctx) if is_new else <Stream>value
    if not target.next_id(ctx.now_ms, &new_id):
        raise CommandError("ERR The stream has exhausted the last possible ID, unable to add more items")
    request = [b"XADD", key, id_text(new_id), *words]
    target.node_max_bytes = ctx.stream_node_max_bytes
    target.node_max_entries = ctx.stream_node_max_entries
    try:
        target.append_args(new_id, request, 3)
    except OverflowError:
        raise CommandError("ERR Elements are too large to be stored") from None
    if is_new:
        ctx.db.add(key, target)
    ctx.dirty += 1
    ctx.db.touched(key)
    ctx.db.event(EVENT_STREAM, b"xadd", key)
    ctx.db.signal_ready(key)
    if ctx.is_propagating:
        ctx.effects.append(request)
    return 0
