# cython: language_level=3, boundscheck=False, wraparound=False
"""XPENDING: the pending entries of a group, as a summary or one by one. Behaviour: Redis 8.6."""

from libc.stdint cimport int64_t, uint64_t

from streamd.core.args cimport is_word, require_int64
from streamd.core.context cimport Context
from streamd.engine.ids cimport StreamID, id_cmp
from streamd.protocol.reply cimport ReplyWriter
from streamd.values.streams.arguments cimport find_group, find_stream, no_such_key_or_group, parse_bound
from streamd.values.streams.delivery cimport idle_of
from streamd.values.streams.group cimport Consumer, Group
from streamd.values.streams.pel cimport (
    NO_OWNER, PelCursor, PelRecord, pel_first, pel_last, pel_next, pel_oldest, pel_seek,
)

from streamd.core.spec import KeysAt, block, command, integer, key, optional, string
from streamd.errors import OptionSyntaxError

__all__ = []


cdef struct PendingRange:
    StreamID first
    StreamID last
    long long count
    long long min_idle_ms      # 0: any


@command(
    "XPENDING", arity=-3, group="stream", flags="readonly", keys=KeysAt(1, flags="RO access"), since="5.0.0",
    summary="Returns the pending entries of a consumer group, as a summary or one by one.",
    complexity="O(C) for the summary, with C consumers; O(log(N)+M) else, with N entries pending and M looked at.",
    args=(
        key(), string("group"),
        block(
            "filters", optional(integer("min-idle-time", "IDLE", since="6.2.0")), string("start"), string("end"),
            integer("count"), optional(string("consumer")), optional=True,
        ),
    ),
    tips=("nondeterministic_output",),
    history=(("6.2.0", "Takes the option `IDLE`, and intervals that exclude a bound."),),
)  # fmt: skip
def xpending(Context ctx not None, list args not None):
    cdef Py_ssize_t argc = len(args)
    cdef Py_ssize_t at = 3
    cdef PendingRange asked
    cdef bytes consumer = None
    cdef Group group
    if argc != 3 and not 6 <= argc <= 9:
        raise OptionSyntaxError()
    if argc >= 6:
        asked.min_idle_ms = 0
        if is_word(<bytes>args[3], b"IDLE"):
            asked.min_idle_ms = require_int64(<bytes>args[4])
            if argc < 8:
                raise OptionSyntaxError()
            at = 5
        asked.count = require_int64(<bytes>args[at + 2])
        parse_bound(<bytes>args[at], &asked.first, False)
        parse_bound(<bytes>args[at + 1], &asked.last, True)
        if at + 3 < argc:
            consumer = <bytes>args[at + 3]
    group = find_group(find_stream(ctx, <bytes>args[1]), <bytes>args[2])
    if group is None:
        no_such_key_or_group(<bytes>args[1], <bytes>args[2])
    if argc == 3:
        reply_summary(ctx.reply, group)
    else:
        reply_pending(ctx.reply, group, consumer, &asked, ctx.now_ms)


cdef int reply_summary(ReplyWriter reply, Group group) except -1:
    """The number of pending entries, their first and last ID, and the number for each consumer. O(C), C consumers."""
    cdef PelRecord *record = pel_first(&group.pel)
    cdef Consumer consumer
    cdef size_t opened
    cdef int64_t n = 0
    cdef uint64_t pending
    reply.array_header(4)
    reply.integer(<int64_t>group.pel.by_id.count)
    if record is NULL:
        reply.null()
        reply.null()
        return reply.null_array()
    reply.bulk_id(record.id.ms, record.id.seq)
    record = pel_last(&group.pel)
    reply.bulk_id(record.id.ms, record.id.seq)
    opened = reply.open_array(len(group.consumers))
    for consumer in group.consumers_by_name():
        pending = group.pending_of(consumer)
        if pending:
            n += 1
            reply.array_header(2)
            reply.bulk(consumer.name)
            reply.bulk_int64(<int64_t>pending)
    return reply.close_array(opened, n)


cdef inline bint is_shown(const PelRecord *record, const PendingRange *asked, int64_t now_ms) noexcept nogil:
    """Whether an entry has been idle for long enough; entries without an owner always qualify."""
    return asked.min_idle_ms <= 0 or record.owner == NO_OWNER or idle_of(record, now_ms) >= asked.min_idle_ms


cdef int reply_pending(
    ReplyWriter reply, Group group, bytes consumer_name, const PendingRange *asked, int64_t now_ms
) except -1:
    """Pending entries one by one: ID, consumer, idle time, delivery count."""
    cdef PelCursor walk
    cdef PelRecord *record
    cdef Consumer consumer
    cdef int64_t owner = -1
    cdef int64_t n = 0
    cdef size_t opened
    if consumer_name is not None:
        consumer = group.find_consumer(consumer_name)
        if consumer is None:
            return reply.array_header(0)
        owner = consumer.number
    record = pel_oldest(&group.pel)
    if asked.count <= 0 or record is NULL:
        return reply.array_header(0)
    if not is_shown(record, asked, now_ms):
        return reply.array_header(0)
    opened = reply.open_array(min(asked.count, <int64_t>group.pel.by_id.count))
    pel_seek(&group.pel, &walk, owner, asked.first)
    while n < asked.count:
        record = pel_next(&walk)
        if record is NULL or id_cmp(record.id, asked.last) > 0:
            break
        if not is_shown(record, asked, now_ms):
            continue
        n += 1
        reply.array_header(4)
        reply.bulk_id(record.id.ms, record.id.seq)
        reply.bulk(group.owner_name(record))
        reply.integer(-1 if record.owner == NO_OWNER else max(0, idle_of(record, now_ms)))
        reply.integer(<int64_t>record.delivery_count)
    return reply.close_array(opened, n)
