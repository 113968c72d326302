# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""XDEL and XDELEX: deleting entries by ID. Behaviour: Redis 8.6."""

from cpython.list cimport PyList_GET_SIZE
from libc.stdint cimport int64_t

from streamd.core.context cimport Context
from streamd.keyspace.listener cimport EVENT_STREAM
from streamd.values.streams.arguments cimport (
    DeleteOptions, argument, find_stream_for_write, ids_in, parse_delete, require_ids,
)
from streamd.values.streams.merging cimport keep_dense
from streamd.values.streams.ruled_group cimport signal_room
from streamd.values.streams.stream cimport DELREF, Stream

from streamd.core.spec import KeysAt, block, command, integer, key, multiple, string
from streamd.values.streams.xadd_xtrim import POLICY

__all__ = []


@command(
    "XDEL", arity=-3, group="stream", flags="write fast", keys=KeysAt(1, flags="RW delete"), since="5.0.0",
    summary="Deletes entries of a stream, and returns how many were deleted.",
    complexity="O(1) for each entry, however long the stream is.",
    args=(key(), multiple(string("id"))),
)
def xdel(Context ctx not None, list args not None):
    cdef Stream stream = find_stream_for_write(ctx, argument(args, 1))
    cdef Py_ssize_t i, n = PyList_GET_SIZE(args) - 2
    cdef int64_t removed = 0
    cdef bytes ids
    if stream is not None:
        ids = require_ids(args, 2, n)
        for i in range(n):
            if stream.remove(ids_in(ids)[i]):
                removed += 1
                if stream.merges:
                    keep_dense(stream, ids_in(ids)[i])
    if removed:
        ctx.dirty += <unsigned long long>removed
        signal_room(ctx, argument(args, 1))
        ctx.db.touched(argument(args, 1))
        ctx.db.event(EVENT_STREAM, b"xdel", argument(args, 1))
    ctx.reply.integer(removed)


@command(
    "XDELEX", arity=-5, group="stream", flags="write fast", keys=KeysAt(1, flags="RW delete"), since="8.2.0",
    summary="Deletes entries of a stream, with regard to the consumer groups that refer to them.",
    complexity="O(1) for each entry, however long the stream is.",
    args=(key(), POLICY, block("ids", integer("numids"), multiple(string("id")), token="IDS")),
)
def xdelex(Context ctx not None, list args not None):
    cdef Stream stream = find_stream_for_write(ctx, argument(args, 1))
    cdef DeleteOptions options
    cdef Py_ssize_t i
    cdef bytes ids = None
    cdef int result = -1
    cdef bint removed = False, forgot = False
    parse_delete(args, 2, &options)
    if stream is not None:
        ids = require_ids(args, options.first_id, options.id_count)
    ctx.reply.array_header(options.id_count)
    for i in range(options.id_count):
        if stream is not None:
            if options.policy == DELREF:
                forgot = forgot or stream.is_pending(ids_in(ids)[i])
            result = stream.remove_with(ids_in(ids)[i], options.policy)
            if result == 1:
                removed = True
                ctx.dirty += 1
                if stream.merges:
                    keep_dense(stream, ids_in(ids)[i])
        ctx.reply.integer(result)
    if forgot or removed:
        signal_room(ctx, argument(args, 1))
    if removed:
        ctx.db.touched(argument(args, 1))
        ctx.db.event(EVENT_STREAM, b"xdel", argument(args, 1))
    elif forgot:
        # Entries that had been trimmed stopped being pending. Redis does not count or propagate this as a change.
        ctx.propagate(args)
