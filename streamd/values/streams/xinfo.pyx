# cython: language_level=3, boundscheck=False, wraparound=False
"""XINFO: the state of a stream, its groups and their consumers. Behaviour: Redis 8.6.

Every object is a map in RESP3, and a flat array of names and values in RESP2; clients rely on names and order.
"""

from libc.stdint cimport UINT64_MAX, int64_t

from streamd.core.args cimport is_word, require_int64
from streamd.core.context cimport Context
from streamd.engine.ids cimport StreamID, id_cmp, id_is_zero, make_id
from streamd.protocol.reply cimport ReplyWriter
from streamd.values.streams.arguments cimport find_stream, get_group
from streamd.values.streams.counting cimport count_above
from streamd.values.streams.delivery cimport lag_of
from streamd.values.streams.entry_replies cimport write_found, write_range
from streamd.values.streams.group cimport Consumer, Group
from streamd.values.streams.pel cimport PelCursor, PelRecord, delivered_ms, pel_next, pel_seek
from streamd.values.streams.stream cimport Stream
from streamd.values.streams.tiered_ranges cimport id_of

from streamd.core.help import declare_help
from streamd.core.spec import KeysAt, block, command, container, integer, key, optional, string, token
from streamd.errors import CommandError, NoSuchKeyError, printable
from streamd.settings.config import Config

__all__ = []

cdef enum:
    FULL_COUNT = 10
    # XINFO STREAM FULL without COUNT, or with a negative one: how many items of each list are shown.

container("XINFO", group="stream", since="5.0.0", summary="Groups the commands that report on streams and groups.")


cdef Stream get_stream(Context ctx, bytes stream_key):
    cdef Stream stream = find_stream(ctx, stream_key)
    if stream is None:
        raise NoSuchKeyError()
    return stream


cdef int number(ReplyWriter reply, bytes name, int64_t value) except -1:
    reply.bulk(name)
    return reply.integer(value)


cdef struct LagRule:
    bint is_exact           # it is counted, and not estimated as in Redis
    StreamID archived       # groups below this ID read the archive


cdef int lag_rule(Context ctx, bytes stream_key, LagRule *out) except -1:
    config = ctx.find(Config)
    out.is_exact = config is not None and config.stream_exact_lag
    out.archived = make_id(0, 0)
    if ctx.tiers is not None and ctx.tiers.serve_groups:
        out.archived = id_of(ctx.tiers.trimmed_to(ctx.db, stream_key))
    return 0


cdef int reply_progress(ReplyWriter reply, Stream stream, Group group, const LagRule *rule) except -1:
    """The fields `entries-read` and `lag`, null where unknown."""
    cdef int64_t lag
    reply.bulk(b"entries-read")
    if group.entries_read < 0:
        reply.null()
    else:
        reply.integer(group.entries_read)
    reply.bulk(b"lag")
    if id_cmp(group.last_id, rule.archived) < 0:
        # What is left in the archive counts, too: of all entries, those that were read do not.
        if group.entries_read < 0 and not id_is_zero(group.last_id):
            return reply.null()
        return reply.integer(<int64_t>stream.entries_added - max(0, group.entries_read))
    if rule.is_exact:
        return reply.integer(<int64_t>count_above(stream, group.last_id))
    return reply.integer(lag) if lag_of(stream, group, &lag) else reply.null()


cdef int entry_id(ReplyWriter reply, bytes name, StreamID id) except -1:
    reply.bulk(name)
    return reply.bulk_id(id.ms, id.seq)


# --- XINFO STREAM ---------------------------------------------------------------------------------------------------

cdef int64_t parse_full(list args) except -1:
    """Read `FULL [COUNT n]`; returns how many items of each list to show, 0 for all."""
    cdef Py_ssize_t argc = len(args)
    cdef int64_t count = FULL_COUNT
    if argc not in (4, 6) or not is_word(<bytes>args[3], b"FULL"):
        raise wrong_options(args)
    if argc == 6:
        if not is_word(<bytes>args[4], b"COUNT"):
            raise wrong_options(args)
        count = require_int64(<bytes>args[5])
    return count if count >= 0 else FULL_COUNT


cdef object wrong_options(list args):
    return CommandError(
        f"ERR unknown subcommand or wrong number of arguments for '{printable(args[1])}'. Try XINFO HELP."
    )


@command(
    "XINFO STREAM", arity=-3, group="stream", flags="readonly", keys=KeysAt(2, flags="RO access"), since="5.0.0",
    summary="Returns the counters, IDs and settings of a stream; with FULL, also entries, groups and consumers.",
    args=(key(), optional(block("full-block", token("FULL"), optional(integer("count", "COUNT"))))),
    history=(
        ("6.0.0", "Takes the option `FULL`."),
        ("7.0.0", "Shows `max-deleted-entry-id`, `entries-added`, `recorded-first-entry-id`, `entries-read`, `lag`."),
        ("7.2.0", "Shows `active-time`; `seen-time` is the time of the last attempt."),
        ("8.6.0", "Shows the settings and counters of idempotent producers."),
    ),
)  # fmt: skip
def xinfo_stream(Context ctx not None, list args not None):
    cdef Stream stream = get_stream(ctx, <bytes>args[2])
    cdef int64_t count
    cdef LagRule rule
    if len(args) == 3:
        reply_overview(ctx.reply, stream)
    else:
        count = parse_full(args)
        lag_rule(ctx, <bytes>args[2], &rule)
        reply_full(ctx.reply, stream, count, &rule)


cdef int reply_head(ReplyWriter reply, Stream stream) except -1:
    """The thirteen fields at the start of both forms."""
    cdef object tracked = stream.idempotency
    number(reply, b"length", <int64_t>stream.length)
    number(reply, b"radix-tree-keys", <int64_t>stream.nodes.count)
    number(reply, b"radix-tree-nodes", <int64_t>stream.nodes.redis_nodes)
    entry_id(reply, b"last-generated-id", stream.last_id)
    entry_id(reply, b"max-deleted-entry-id", stream.max_deleted_id)
    number(reply, b"entries-added", <int64_t>stream.entries_added)
    entry_id(reply, b"recorded-first-entry-id", stream.first_id)
    number(reply, b"idmp-duration", stream.idmp_duration)
    number(reply, b"idmp-maxsize", stream.idmp_maxsize)
    number(reply, b"pids-tracked", 0 if tracked is None else tracked.producer_count)
    number(reply, b"iids-tracked", 0 if tracked is None else tracked.iid_count)
    number(reply, b"iids-added", <int64_t>stream.iids_added)
    return number(reply, b"iids-duplicates", <int64_t>stream.iids_duplicates)


cdef int reply_overview(ReplyWriter reply, Stream stream) except -1:
    reply.map(16)
    reply_head(reply, stream)
    number(reply, b"groups", len(stream.groups))
    entry_or_null(reply, b"first-entry", stream, stream.first_id)
    return entry_or_null(reply, b"last-entry", stream, stream.last_live_id())


cdef int entry_or_null(ReplyWriter reply, bytes name, Stream stream, StreamID id) except -1:
    reply.bulk(name)
    if not write_found(reply, stream, id):
        reply.null()
    return 0


cdef int reply_full(ReplyWriter reply, Stream stream, int64_t count, const LagRule *rule) except -1:
    cdef Group group
    reply.map(15)
    reply_head(reply, stream)
    reply.bulk(b"entries")
    write_range(reply, stream, make_id(0, 0), make_id(UINT64_MAX, UINT64_MAX), False, count or -1)
    reply.bulk(b"groups")
    reply.array_header(len(stream.groups))
    for name in sorted(stream.groups):
        group = <Group>stream.groups[name]
        reply.map(8)
        reply.bulk(b"name")
        reply.bulk(group.name)
        entry_id(reply, b"last-delivered-id", group.last_id)
        reply_progress(reply, stream, group, rule)
        number(reply, b"pel-count", <int64_t>group.pel.by_id.count)
        number(reply, b"nacked-count", <int64_t>group.pel.unowned)
        reply.bulk(b"pending")
        reply_pending(reply, group, None, count)
        reply.bulk(b"consumers")
        reply_consumers(reply, group, count)
    return 0


cdef int reply_consumers(ReplyWriter reply, Group group, int64_t count) except -1:
    cdef Consumer consumer
    reply.array_header(len(group.consumers))
    for consumer in group.consumers_by_name():
        reply.map(5)
        reply.bulk(b"name")
        reply.bulk(consumer.name)
        number(reply, b"seen-time", consumer.seen_ms)
        number(reply, b"active-time", consumer.active_ms)
        number(reply, b"pel-count", <int64_t>group.pending_of(consumer))
        reply.bulk(b"pending")
        reply_pending(reply, group, consumer, count)
    return 0


cdef int reply_pending(ReplyWriter reply, Group group, Consumer consumer, int64_t count) except -1:
    """The first `count` pending entries (0: all) of a consumer, or, if that is None, of the group, with owners."""
    cdef PelCursor walk
    cdef PelRecord *record
    cdef int64_t pending = <int64_t>(group.pel.by_id.count if consumer is None else group.pending_of(consumer))
    cdef int64_t n = min(count, pending) if count else pending
    reply.array_header(n)
    pel_seek(&group.pel, &walk, -1 if consumer is None else <int64_t>consumer.number, make_id(0, 0))
    while n > 0:
        n -= 1
        record = pel_next(&walk)
        reply.array_header(4 if consumer is None else 3)
        reply.bulk_id(record.id.ms, record.id.seq)
        if consumer is None:
            reply.bulk(group.owner_name(record))
        reply.integer(delivered_ms(record))
        reply.integer(<int64_t>record.delivery_count)
    return 0


# --- XINFO GROUPS, XINFO CONSUMERS, XINFO HELP ----------------------------------------------------------------------

@command(
    "XINFO GROUPS", arity=3, group="stream", flags="readonly", keys=KeysAt(2, flags="RO access"), since="5.0.0",
    summary="Lists the consumer groups of a stream.", complexity="O(N), with N groups.", args=(key(),),
    history=(("7.0.0", "Shows `entries-read` and `lag`."),),
)  # fmt: skip
def xinfo_groups(Context ctx not None, list args not None):
    cdef Stream stream = get_stream(ctx, <bytes>args[2])
    cdef ReplyWriter reply = ctx.reply
    cdef Group group
    cdef LagRule rule
    lag_rule(ctx, <bytes>args[2], &rule)
    reply.array_header(len(stream.groups))
    for name in sorted(stream.groups):
        group = <Group>stream.groups[name]
        reply.map(6)
        reply.bulk(b"name")
        reply.bulk(group.name)
        number(reply, b"consumers", len(group.consumers))
        number(reply, b"pending", <int64_t>group.pel.by_id.count)
        entry_id(reply, b"last-delivered-id", group.last_id)
        reply_progress(reply, stream, group, &rule)


@command(
    "XINFO CONSUMERS", arity=4, group="stream", flags="readonly", keys=KeysAt(2, flags="RO access"), since="5.0.0",
    summary="Lists the consumers of a consumer group.", complexity="O(N), with N consumers.",
    args=(key(), string("group")), tips=("nondeterministic_output",),
    history=(("7.2.0", "Shows `inactive`; `idle` counts from the last attempt."),),
)  # fmt: skip
def xinfo_consumers(Context ctx not None, list args not None):
    cdef Stream stream = get_stream(ctx, <bytes>args[2])
    cdef Group group = get_group(stream, <bytes>args[2], <bytes>args[3])
    cdef ReplyWriter reply = ctx.reply
    cdef Consumer consumer
    reply.array_header(len(group.consumers))
    for consumer in group.consumers_by_name():
        reply.map(4)
        reply.bulk(b"name")
        reply.bulk(consumer.name)
        number(reply, b"pending", <int64_t>group.pending_of(consumer))
        number(reply, b"idle", max(0, ctx.now_ms - consumer.seen_ms))
        number(reply, b"inactive", -1 if consumer.active_ms < 0 else max(0, ctx.now_ms - consumer.active_ms))


declare_help(
    "XINFO", "stream", "5.0.0",
    "CONSUMERS <key> <group>",
    "    List the consumers of a group.",
    "GROUPS <key>",
    "    List the groups of a stream.",
    "STREAM <key> [FULL [COUNT <count>]]",
    "    Tell about a stream; with FULL about its entries, groups and consumers too, the first <count> of each.",
)
