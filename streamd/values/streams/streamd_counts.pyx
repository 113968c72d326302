# cython: language_level=3, boundscheck=False, wraparound=False
"""STREAMD.COUNT and STREAMD.LAG: entries between two IDs, and what a group has to do. Commands specific to streamd.

XINFO estimates the lag of a group as Redis does, and answers null where entries after the last-delivered one may have
been deleted. These commands count: their replies are never null, and exact after XDEL, XTRIM and XSETID.
"""

from cpython.list cimport PyList_GET_SIZE
from libc.stdint cimport UINT64_MAX, int64_t, uint64_t

from streamd.core.context cimport Context
from streamd.engine.ids cimport StreamID, make_id
from streamd.protocol.reply cimport ReplyWriter
from streamd.values.streams.arguments cimport argument, find_stream, get_group, parse_bound
from streamd.values.streams.counting cimport count_above, count_between, first_above
from streamd.values.streams.group cimport Group
from streamd.values.streams.pel cimport pel_first
from streamd.values.streams.ruled_group cimport RuledGroup, find_ruled
from streamd.values.streams.stream cimport Stream

from streamd.core.spec import KeysAt, block, command, key, optional, string
from streamd.errors import NoSuchKeyError, OptionSyntaxError

__all__ = []


@command(
    "STREAMD.COUNT", arity=-2, group="stream", flags="readonly fast", keys=KeysAt(1, flags="RO"), since="0.2.0",
    summary="Counts the entries of a stream between two IDs.",
    complexity="O(log N) with N the nodes of the stream, and the entries of the nodes of both IDs.",
    args=(key(), optional(block("range", string("start"), string("end")))),
)
def streamd_count(Context ctx not None, list args not None):
    cdef StreamID first = make_id(0, 0), last = make_id(UINT64_MAX, UINT64_MAX)
    cdef Py_ssize_t argc = PyList_GET_SIZE(args)
    cdef Stream stream
    if argc == 4:
        parse_bound(argument(args, 2), &first, False)
        parse_bound(argument(args, 3), &last, True)
    elif argc != 2:
        raise OptionSyntaxError()
    stream = find_stream(ctx, argument(args, 1))
    ctx.reply.integer(0 if stream is None else <int64_t>count_between(stream, first, last))


@command(
    "STREAMD.LAG", arity=-2, group="stream", flags="readonly fast", keys=KeysAt(1, flags="RO access"), since="0.2.0",
    summary="Returns what a group, or each group of a stream, has to do: undelivered and pending entries, their age.",
    complexity="O(G log N) with G the groups and N the nodes of the stream, and for each group the entries of a node.",
    args=(key(), optional(string("group"))),
)
def streamd_lag(Context ctx not None, list args not None):
    cdef Py_ssize_t argc = PyList_GET_SIZE(args)
    cdef Stream stream
    if argc > 3:
        raise OptionSyntaxError()
    stream = find_stream(ctx, argument(args, 1))
    if stream is None:
        raise NoSuchKeyError()
    if argc == 3:
        reply_lag(ctx, argument(args, 1), stream, get_group(stream, argument(args, 1), argument(args, 2)))
        return
    ctx.reply.map(len(stream.groups))
    for name in sorted(stream.groups):
        ctx.reply.bulk(<bytes>name)
        reply_lag(ctx, argument(args, 1), stream, <Group>stream.groups[name])


cdef int reply_lag(Context ctx, bytes stream_key, Stream stream, Group group) except -1:
    """Ages are those of the IDs: 0 if there is no such entry, or the ID is in the future."""
    cdef ReplyWriter reply = ctx.reply
    cdef int64_t now_ms = ctx.now_ms
    cdef StreamID next_id
    cdef RuledGroup ruled = find_ruled(ctx, stream_key, stream, group)
    reply.map(7)
    reply.bulk(b"undelivered")
    reply.integer(<int64_t>count_above(stream, group.last_id))
    reply.bulk(b"pending")
    reply.integer(<int64_t>group.pel.by_id.count)
    reply.bulk(b"held-back")
    reply.integer(<int64_t>group.pel.held.count)
    reply.bulk(b"passed-over")
    reply.integer(0 if ruled is None or ruled.order is None else <int64_t>ruled.order.passed_over)
    reply.bulk(b"lag-ms")
    reply.integer(age_of(next_id, now_ms) if first_above(stream, group.last_id, &next_id) else 0)
    reply.bulk(b"oldest-pending-ms")
    reply.integer(age_of(pel_first(&group.pel).id, now_ms) if group.pel.by_id.count else 0)
    reply.bulk(b"dead-lettered")
    return reply.integer(<int64_t>group.dead_lettered)


cdef inline int64_t age_of(StreamID id, int64_t now_ms) noexcept nogil:
    return now_ms - <int64_t>id.ms if id.ms < <uint64_t>now_ms else 0
