# cython: language_level=3, boundscheck=False, wraparound=False
"""Consumer groups: XGROUP makes and changes them; the other commands here are about what is pending in them.

Every request is read whole before anything is changed. Order of checks and texts: Redis 8.6, as seen on a running
server.
"""

from libc.stdint cimport INT32_MAX, INT64_MAX, int64_t, uint64_t
from libc.string cimport memcpy, memmove

from streamd.core.args cimport is_word, parse_id, parse_int64, require_id, require_int64
from streamd.core.context cimport Context
from streamd.data.streams.arguments cimport (
    DeleteOptions, as_stream, find_group, find_stream, find_stream_for_write, get_group, hold_effects, id_text, ids_in,
    new_stream, note_change, parse_bound, parse_delete, parse_loose_id, propagate_consumer, propagate_pending,
    propagate_position, propagate_unowned, reach_consumer, require_ids, room_for_ids,
)
from streamd.data.streams.entry_replies cimport write_entry
from streamd.engine.delivery cimport (
    CLAIM_DROPPED, CLAIM_LEFT, CLAIM_MOVED, ClaimRule, Finder, claim_one, find_entry, finder_init, idle_of,
)
from streamd.engine.database cimport EVENT_STREAM
from streamd.engine.group cimport Consumer, Group, new_group
from streamd.engine.ids cimport StreamID, id_cmp, make_id
from streamd.engine.pel cimport (
    NO_OWNER, PelCursor, PelRecord, pel_find, pel_first, pel_last, pel_next, pel_oldest, pel_seek,
)
from streamd.engine.stream cimport Stream
from streamd.protocol.reply cimport ReplyWriter

from streamd.core.help import write_help
from streamd.core.spec import (
    KeysAt, block, command, container, integer, key, multiple, oneof, optional, string, token, unix_time,
)
from streamd.engine.group import UNOWNED_MARK
from streamd.errors import BusyGroupError, CommandError, NoGroupError, OptionSyntaxError, printable

__all__ = []


# --- What requests name ---------------------------------------------------------------------------------------------

cdef int no_such_key_or_group(bytes stream_key, bytes group) except -1:
    raise NoGroupError(f"NOGROUP No such key '{printable(stream_key)}' or consumer group '{printable(group)}'")


# --- XGROUP ---------------------------------------------------------------------------------------------------------

container("XGROUP", group="stream", since="5.0.0", summary="The commands that make and change consumer groups.")

cdef object MISSING_KEY = (
    "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM option "
    "to create an empty stream automatically."
)


cdef object wrong_options(list args):
    return CommandError(
        f"ERR unknown subcommand or wrong number of arguments for '{printable(args[1])}'. Try XGROUP HELP."
    )


cdef Stream get_stream_for_write(Context ctx, bytes stream_key):
    cdef Stream stream = find_stream_for_write(ctx, stream_key)
    if stream is None:
        raise CommandError(MISSING_KEY)
    return stream


cdef struct GroupOptions:
    bint make_stream           # MKSTREAM
    int64_t entries_read       # ENTRIESREAD; -1: unknown


cdef int parse_group_options(list args, bint is_create, GroupOptions *out) except -1:
    """Read the options of XGROUP CREATE, or of SETID, which has no MKSTREAM."""
    cdef Py_ssize_t argc = len(args)
    cdef Py_ssize_t i = 5
    out.make_stream = False
    out.entries_read = -1
    while i < argc:
        if is_create and is_word(<bytes>args[i], b"MKSTREAM"):
            out.make_stream = True
        elif is_word(<bytes>args[i], b"ENTRIESREAD") and i + 1 < argc:
            i += 1
            out.entries_read = require_int64(<bytes>args[i])
            if out.entries_read < -1:
                raise CommandError("ERR value for ENTRIESREAD must be positive or -1")
        else:
            raise wrong_options(args)
        i += 1
    return 0


@command(
    "XGROUP CREATE", arity=-5, group="stream", flags="write denyoom", keys=KeysAt(2, flags="RW insert"), since="5.0.0",
    summary="Makes a consumer group.",
    args=(
        key(), string("group"), oneof("id-selector", string("id"), token("$", "new-id")), optional(token("MKSTREAM")),
        optional(integer("entriesread", "ENTRIESREAD", display="entries-read")),
    ),
    history=(("7.0.0", "Takes the option `ENTRIESREAD`."),),
)  # fmt: skip
def xgroup_create(Context ctx not None, list args not None):
    cdef GroupOptions options
    cdef StreamID last_id
    cdef Stream stream
    parse_group_options(args, True, &options)
    stream = find_stream_for_write(ctx, <bytes>args[2])
    if stream is None and not options.make_stream:
        raise CommandError(MISSING_KEY)
    if len(args) > 8:
        raise wrong_options(args)       # only now: so many options are options given twice
    if <bytes>args[4] == b"$":
        last_id = make_id(0, 0) if stream is None else stream.last_id
    else:
        require_id(<bytes>args[4], &last_id)
    if stream is None:
        stream = new_stream(ctx)
        ctx.db.add(<bytes>args[2], stream)
    elif <bytes>args[3] in stream.groups:
        raise BusyGroupError()
    options.entries_read = min(options.entries_read, <int64_t>stream.entries_added)
    stream.groups[<bytes>args[3]] = new_group(<bytes>args[3], last_id, options.entries_read)
    ctx.dirty += 1
    note_change(ctx, <bytes>args[2])
    ctx.db.event(EVENT_STREAM, b"xgroup-create", <bytes>args[2])
    ctx.reply.ok()


@command(
    "XGROUP SETID", arity=-5, group="stream", flags="write", keys=KeysAt(2, flags="RW update"), since="5.0.0",
    summary="Sets the ID after which a consumer group reads on.",
    args=(
        key(), string("group"), oneof("id-selector", string("id"), token("$", "new-id")),
        optional(integer("entriesread", "ENTRIESREAD", display="entries-read")),
    ),
    history=(("7.0.0", "Takes the option `ENTRIESREAD`."),),
)  # fmt: skip
def xgroup_setid(Context ctx not None, list args not None):
    cdef GroupOptions options
    cdef StreamID last_id
    cdef Stream stream
    cdef Group group
    parse_group_options(args, False, &options)
    stream = get_stream_for_write(ctx, <bytes>args[2])
    group = get_group(stream, <bytes>args[2], <bytes>args[3])
    if len(args) > 7:
        raise wrong_options(args)
    if <bytes>args[4] == b"$":
        last_id = stream.last_id
    else:
        parse_loose_id(<bytes>args[4], &last_id, 0)
    group.last_id = last_id
    group.entries_read = min(options.entries_read, <int64_t>stream.entries_added)
    ctx.dirty += 1
    note_change(ctx, <bytes>args[2])
    ctx.db.event(EVENT_STREAM, b"xgroup-setid", <bytes>args[2])
    ctx.reply.ok()


@command(
    "XGROUP DESTROY", arity=4, group="stream", flags="write", keys=KeysAt(2, flags="RW delete"), since="5.0.0",
    summary="Removes a consumer group with all that is pending in it.",
    complexity="O(1); the pending entries are freed out of line.", args=(key(), string("group")),
)  # fmt: skip
def xgroup_destroy(Context ctx not None, list args not None):
    cdef Stream stream = get_stream_for_write(ctx, <bytes>args[2])
    cdef Group group = <Group>stream.groups.pop(<bytes>args[3], None)
    if group is None:
        ctx.reply.integer(0)
        return
    ctx.db.trash.release(group)
    ctx.db.signal_ready(<bytes>args[2])     # who waits for the group gets an error
    ctx.dirty += 1
    note_change(ctx, <bytes>args[2])
    ctx.db.event(EVENT_STREAM, b"xgroup-destroy", <bytes>args[2])
    ctx.reply.integer(1)


@command(
    "XGROUP CREATECONSUMER", arity=5, group="stream", flags="write denyoom", keys=KeysAt(2, flags="RW insert"),
    since="6.2.0", summary="Makes a consumer in a consumer group.", args=(key(), string("group"), string("consumer")),
)  # fmt: skip
def xgroup_createconsumer(Context ctx not None, list args not None):
    cdef Stream stream = get_stream_for_write(ctx, <bytes>args[2])
    cdef Group group = get_group(stream, <bytes>args[2], <bytes>args[3])
    cdef bint is_new
    if group.find_consumer(<bytes>args[4]) is not None:
        note_change(ctx, <bytes>args[2])
        ctx.reply.integer(0)
        return
    reach_consumer(ctx, <bytes>args[2], group, <bytes>args[4], &is_new)
    ctx.reply.integer(1)


@command(
    "XGROUP DELCONSUMER", arity=5, group="stream", flags="write", keys=KeysAt(2, flags="RW delete"), since="5.0.0",
    summary="Removes a consumer from a consumer group with all that is pending for it.",
    complexity="O(N), with N entries pending for the consumer.", args=(key(), string("group"), string("consumer")),
)  # fmt: skip
def xgroup_delconsumer(Context ctx not None, list args not None):
    cdef Stream stream = get_stream_for_write(ctx, <bytes>args[2])
    cdef Group group = get_group(stream, <bytes>args[2], <bytes>args[3])
    cdef int64_t pending = group.drop_consumer(<bytes>args[4])
    if pending >= 0:
        ctx.dirty += 1
        note_change(ctx, <bytes>args[2])
        ctx.db.event(EVENT_STREAM, b"xgroup-delconsumer", <bytes>args[2])
    ctx.reply.integer(max(0, pending))


GROUP_HELP = (
    "CREATE <key> <group> <id|$> [MKSTREAM] [ENTRIESREAD <count>]",
    "    Make a group that reads what comes after the ID; $ is the last ID of the stream.",
    "    MKSTREAM makes an empty stream when the key does not exist.",
    "    ENTRIESREAD says how many entries the group has read already.",
    "CREATECONSUMER <key> <group> <consumer>",
    "    Make a consumer.",
    "DELCONSUMER <key> <group> <consumer>",
    "    Remove a consumer and what is pending for it.",
    "DESTROY <key> <group>",
    "    Remove a group.",
    "SETID <key> <group> <id|$> [ENTRIESREAD <count>]",
    "    Let a group read on after another ID.",
)


@command(
    "XGROUP HELP", arity=2, group="stream", flags="loading stale", since="5.0.0",
    summary="Lists the subcommands of XGROUP.",
)  # fmt: skip
def xgroup_help(Context ctx not None, list args not None):
    write_help(ctx.reply, args, GROUP_HELP)


# --- Acknowledging --------------------------------------------------------------------------------------------------

@command(
    "XACK", arity=-4, group="stream", flags="write fast", keys=KeysAt(1, flags="RW update"), since="5.0.0",
    summary="Acknowledges entries: they are no longer pending in the consumer group.",
    complexity="O(log(N)) for each ID, with N entries pending.", args=(key(), string("group"), multiple(string("id"))),
)  # fmt: skip
def xack(Context ctx not None, list args not None):
    cdef Group group = find_group(find_stream(ctx, <bytes>args[1]), <bytes>args[2])
    cdef Py_ssize_t n = len(args) - 3
    cdef Py_ssize_t i
    cdef int64_t acknowledged = 0
    cdef bytes room
    cdef StreamID *ids
    if group is not None:
        room = require_ids(args, 3, n)
        ids = ids_in(room)
        for i in range(n):
            acknowledged += group.forget(ids[i])
        ctx.dirty += <uint64_t>acknowledged
    if acknowledged:
        note_change(ctx, <bytes>args[1])
    ctx.reply.integer(acknowledged)


@command(
    "XACKDEL", arity=-6, group="stream", flags="write fast", keys=KeysAt(1, flags="RW update delete"), since="8.2.0",
    summary="Acknowledges entries and deletes them from the stream, if other consumer groups are done with them.",
    complexity="O(log(N)) for each ID, with N entries pending.",
    args=(
        key(), string("group"), optional(oneof("condition", token("KEEPREF"), token("DELREF"), token("ACKED"))),
        block("ids", integer("numids"), multiple(string("id")), token="IDS"),
    ),
)  # fmt: skip
def xackdel(Context ctx not None, list args not None):
    cdef Stream stream = find_stream(ctx, <bytes>args[1])
    cdef DeleteOptions options
    cdef Group group
    cdef bytes room
    cdef StreamID *ids = NULL
    cdef Py_ssize_t i
    cdef int result
    cdef bint removed = False
    parse_delete(args, 3, &options)
    group = find_group(stream, <bytes>args[2])
    if group is not None:
        room = require_ids(args, options.first_id, options.id_count)
        ids = ids_in(room)
    ctx.reply.array_header(options.id_count)
    for i in range(options.id_count):
        if group is None or not group.forget(ids[i]):
            ctx.reply.integer(-1)
            continue
        ctx.dirty += 1
        result = stream.remove_with(ids[i], options.policy)
        removed |= result == 1
        ctx.reply.integer(2 if result == 2 else 1)
        note_change(ctx, <bytes>args[1])
    if removed:
        ctx.db.touched(<bytes>args[1])
        ctx.db.event(EVENT_STREAM, b"xdel", <bytes>args[1])


# --- Giving back ------------------------------------------------------------------------------------------------------

cdef enum Nack:
    SILENT                     # the last delivery is not counted
    FAIL                       # the delivery count stays
    FATAL                      # ... is as great as can be


cdef struct NackOptions:
    Nack mode
    Py_ssize_t first_id        # index of the first ID in the arguments
    Py_ssize_t id_count
    long long delivery_count   # RETRYCOUNT; -1: what follows from the mode
    bint force


cdef int parse_nack(list args, NackOptions *out) except -1:
    """Read the mode, and `IDS n id ... [RETRYCOUNT n] [FORCE]` in any order; the last of a kind counts."""
    cdef Py_ssize_t argc = len(args)
    cdef Py_ssize_t i = 4
    cdef long long n
    cdef bytes word = <bytes>args[3]
    if is_word(word, b"SILENT"):
        out.mode = SILENT
    elif is_word(word, b"FAIL"):
        out.mode = FAIL
    elif is_word(word, b"FATAL"):
        out.mode = FATAL
    else:
        raise CommandError("ERR mode must be SILENT, FAIL, or FATAL")
    out.first_id = 0
    out.delivery_count = -1
    out.force = False
    while i < argc:
        word = <bytes>args[i]
        if is_word(word, b"IDS") and i + 1 < argc:
            if not parse_int64(<bytes>args[i + 1], &n) or not 0 < n <= INT32_MAX:
                raise CommandError("ERR numids must be a positive integer")
            if n > argc - i - 2:
                raise CommandError("ERR number of IDs doesn't match numids")
            out.first_id = i + 2
            out.id_count = <Py_ssize_t>n
            i += 2 + <Py_ssize_t>n
        elif is_word(word, b"RETRYCOUNT") and i + 1 < argc:
            out.delivery_count = require_int64(<bytes>args[i + 1])
            if out.delivery_count < 0:
                raise CommandError("ERR Invalid RETRYCOUNT value, must be >= 0")
            i += 2
        elif is_word(word, b"FORCE"):
            out.force = True
            i += 1
        else:
            raise CommandError(f"ERR Unrecognized XNACK option '{printable(word)}'")
    if out.first_id == 0:
        raise CommandError("ERR syntax error, expected IDS keyword")
    return 0


cdef inline uint64_t count_after(const NackOptions *options, uint64_t delivery_count) noexcept nogil:
    """The delivery count of an entry that is given back."""
    if options.delivery_count >= 0:
        return <uint64_t>options.delivery_count
    if options.mode == FATAL:
        return <uint64_t>INT64_MAX
    if options.mode == SILENT and delivery_count > 0:
        return delivery_count - 1
    return delivery_count


@command(
    "XNACK", arity=-7, group="stream", flags="write fast", keys=KeysAt(1, flags="RW update"), since="8.8.0",
    summary="Gives entries back to the consumer group: they stay pending, without a consumer, and are claimed first.",
    complexity="O(log(N)) for each ID, with N entries pending.",
    args=(
        key(), string("group"), oneof("mode", token("SILENT"), token("FAIL"), token("FATAL")),
        block("ids", integer("numids"), multiple(string("id")), token="IDS"),
        optional(integer("count", "RETRYCOUNT")), optional(token("FORCE")),
    ),
)  # fmt: skip
def xnack(Context ctx not None, list args not None):
    cdef Stream stream = find_stream(ctx, <bytes>args[1])
    cdef Group group = find_group(stream, <bytes>args[2])
    cdef NackOptions options
    cdef PelRecord *record
    cdef bytes room
    cdef StreamID *ids
    cdef Py_ssize_t i
    cdef int64_t given_back = 0
    cdef bint is_propagated
    if group is None:
        no_such_key_or_group(<bytes>args[1], <bytes>args[2])
    parse_nack(args, &options)
    room = require_ids(args, options.first_id, options.id_count)
    ids = ids_in(room)
    # Who reads files for releases that have XNACK gets the request; others get what they know.
    is_propagated = ctx.is_propagating and not ctx.has_xnack
    if is_propagated:
        hold_effects(ctx)
    for i in range(options.id_count):
        record = pel_find(&group.pel, ids[i])
        if record is NULL and not (options.force and stream.has_entry(ids[i])):
            continue
        group.give_back(ids[i], count_after(&options, 0 if record is NULL else record.delivery_count))
        given_back += 1
        if is_propagated:
            propagate_unowned(ctx, <bytes>args[1], group, pel_find(&group.pel, ids[i]))
    if given_back:
        ctx.dirty += <uint64_t>given_back
        note_change(ctx, <bytes>args[1])
        ctx.db.signal_ready(<bytes>args[1])
    ctx.reply.integer(given_back)


# --- XPENDING -------------------------------------------------------------------------------------------------------

cdef struct PendingRange:
    StreamID first
    StreamID last
    long long count
    long long min_idle_ms      # 0: no matter how long


@command(
    "XPENDING", arity=-3, group="stream", flags="readonly", keys=KeysAt(1, flags="RO access"), since="5.0.0",
    summary="Returns what is pending in a consumer group: a summary, or entry by entry.",
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
    """How many entries are pending, from which ID to which, and for whom. O(C), C consumers."""
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
    """Whether an entry has been idle for long enough; those without an owner always have."""
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


# --- Claiming -------------------------------------------------------------------------------------------------------

cdef int parse_claim_options(Context ctx, list args, Py_ssize_t i, ClaimRule *rule, StreamID *last_id) except -1:
    """Read the options of XCLAIM from argument i on; returns whether JUSTID is among them."""
    cdef Py_ssize_t argc = len(args)
    cdef bint just_id = False
    cdef long long value
    cdef int64_t delivery_ms = -1
    cdef bytes word
    cdef bint more
    while i < argc:
        word = <bytes>args[i]
        more = i + 1 < argc
        if is_word(word, b"FORCE"):
            rule.force = True
        elif is_word(word, b"JUSTID"):
            just_id = True
        elif is_word(word, b"IDLE") and more:
            i += 1
            value = require_option(<bytes>args[i], "IDLE")
            delivery_ms = <int64_t>(<uint64_t>ctx.now_ms - <uint64_t>value)
        elif is_word(word, b"TIME") and more:
            i += 1
            delivery_ms = require_option(<bytes>args[i], "TIME")
        elif is_word(word, b"RETRYCOUNT") and more:
            i += 1
            rule.delivery_count = require_option(<bytes>args[i], "RETRYCOUNT")
        elif is_word(word, b"LASTID") and more:
            i += 1
            require_id(<bytes>args[i], last_id)
        else:
            raise CommandError(f"ERR Unrecognized XCLAIM option '{printable(word)}'")
        i += 1
    # Not before 1970 and not in the future: then it is now.
    if 0 <= delivery_ms <= ctx.now_ms:
        rule.delivery_ms = delivery_ms
    rule.count_up = not just_id
    return just_id


cdef long long require_option(bytes text, str option) except? -1:
    cdef long long value = 0
    if not parse_int64(text, &value):
        raise CommandError(f"ERR Invalid {option} option argument for XCLAIM")
    return value


cdef int claim_rule(Context ctx, bytes min_idle, str name, ClaimRule *rule) except -1:
    """The rule of a claim without options, from the argument `min-idle-time`."""
    cdef long long min_idle_ms
    if not parse_int64(min_idle, &min_idle_ms):
        raise CommandError(f"ERR Invalid min-idle-time argument for {name}")
    rule.now_ms = ctx.now_ms
    rule.min_idle_ms = max(0, min_idle_ms)
    rule.delivery_ms = ctx.now_ms
    rule.delivery_count = -1
    rule.count_up = True
    rule.force = False
    return 0


@command(
    "XCLAIM", arity=-6, group="stream", flags="write fast", keys=KeysAt(1, flags="RW update"), since="5.0.0",
    summary="Hands pending entries over to another consumer, as if they had been delivered to it.",
    complexity="O(log(N)) for each ID, with N entries pending.",
    args=(
        key(), string("group"), string("consumer"), string("min-idle-time"), multiple(string("id")),
        optional(integer("ms", "IDLE")), optional(unix_time("unix-time-milliseconds", "TIME")),
        optional(integer("count", "RETRYCOUNT")), optional(token("FORCE")), optional(token("JUSTID")),
        optional(string("lastid", "LASTID")),
    ),
    tips=("nondeterministic_output",),
)  # fmt: skip
def xclaim(Context ctx not None, list args not None):
    cdef Stream stream = find_stream(ctx, <bytes>args[1])
    cdef Group group = find_group(stream, <bytes>args[2])
    cdef ReplyWriter reply = ctx.reply
    cdef Py_ssize_t argc = len(args)
    cdef Py_ssize_t i, n = 0
    cdef ClaimRule rule
    cdef StreamID last_id = make_id(0, 0)
    cdef bytes room
    cdef StreamID *ids
    cdef Consumer consumer
    cdef Finder finder
    cdef bint just_id
    cdef int outcome
    cdef int64_t claimed = 0
    cdef size_t opened
    cdef bint has_moved_on, is_new
    if group is None:
        no_such_key_or_group(<bytes>args[1], <bytes>args[2])
    claim_rule(ctx, <bytes>args[4], "XCLAIM", &rule)
    room = room_for_ids(argc - 5)
    ids = ids_in(room)
    while 5 + n < argc and parse_id(<bytes>args[5 + n], &ids[n]):
        n += 1
    just_id = parse_claim_options(ctx, args, 5 + n, &rule, &last_id)
    has_moved_on = id_cmp(last_id, group.last_id) > 0
    if has_moved_on:
        group.last_id = last_id
    if ctx.is_replaying and <bytes>args[4] == UNOWNED_MARK:
        for i in range(n):
            group.give_back(ids[i], <uint64_t>max(0, rule.delivery_count))
        reply.array_header(0)
        return
    hold_effects(ctx)
    consumer = reach_consumer(ctx, <bytes>args[1], group, <bytes>args[3], &is_new)
    opened = reply.open_array(n)
    finder_init(&finder)
    for i in range(n):
        outcome = claim_and_propagate(
            ctx, <bytes>args[1], group, pel_find(&group.pel, ids[i]), ids[i], <bytes>args[5 + i],
            find_entry(&finder, stream, ids[i]), consumer, &rule
        )
        if outcome == CLAIM_MOVED:
            claimed += 1
            write_claimed(reply, &finder, just_id)
        if outcome != CLAIM_LEFT:
            has_moved_on = False        # the ID is propagated with what was claimed
    reply.close_array(opened, claimed)
    if has_moved_on:
        ctx.dirty += 1
        if ctx.is_propagating:
            propagate_position(ctx, <bytes>args[1], group)
    if is_new:
        propagate_consumer(ctx, <bytes>args[1], group, consumer)


cdef int claim_and_propagate(
    Context ctx, bytes stream_key, Group group, PelRecord *record, StreamID id, bytes id_given, bint exists,
    Consumer consumer, const ClaimRule *rule,
) except -1:
    """Claim one entry, see claim_one, and propagate what became of it.

    id_given  the ID as the request has it, which goes on like that; None: the request has it not
    """
    cdef Consumer owner = None
    cdef PelRecord found
    cdef int outcome
    if record is not NULL and not exists and ctx.is_propagating:
        found = record[0]
        if record.owner != NO_OWNER:
            owner = group.consumer_by_number(record.owner)
    outcome = claim_one(group, record, id, exists, consumer, rule)
    if outcome != CLAIM_LEFT:
        ctx.dirty += 1
        if ctx.is_propagating:
            if outcome == CLAIM_MOVED:
                owner = consumer
                found = pel_find(&group.pel, id)[0]
            if owner is None:
                ctx.effects.append([b"XACK", stream_key, group.name, id_text(id)])
                return outcome
            propagate_pending(
                ctx, stream_key, group, owner.name, id_text(id) if id_given is None else id_given,
                b"%d" % found.delivery_ms, found.delivery_count, id_text(group.last_id)
            )
    return outcome


cdef int write_claimed(ReplyWriter reply, Finder *finder, bint just_id) except -1:
    """The entry that was found last, or its ID only."""
    if just_id:
        return reply.bulk_id(finder.cursor.id.ms, finder.cursor.id.seq)
    return write_entry(reply, &finder.cursor)


cdef enum:
    AUTOCLAIM_COUNT = 100              # without COUNT
    AUTOCLAIM_EFFORT = 10              # pending entries looked at, at most, for each that may be returned

cdef int64_t AUTOCLAIM_MOST_IDS = <int64_t>1 << 40
# Redis takes memory for COUNT deleted IDs before it begins. Nothing is taken here, but such a request is refused alike.


cdef int64_t parse_autoclaim_count(bytes text) except -1:
    cdef long long count
    if not parse_int64(text, &count) or count <= 0 or count > INT64_MAX // 16:
        raise CommandError("ERR COUNT must be > 0")
    return count


@command(
    "XAUTOCLAIM", arity=-6, group="stream", flags="write fast", keys=KeysAt(1, flags="RW delete"), since="6.2.0",
    summary="Hands pending entries that have been idle for some time over to another consumer, a few in each call.",
    complexity="O(log(N)+M), with N entries pending and M looked at: ten times COUNT at most.",
    args=(
        key(), string("group"), string("consumer"), string("min-idle-time"), string("start"),
        optional(integer("count", "COUNT")), optional(token("JUSTID")),
    ),
    tips=("nondeterministic_output",),
    history=(("7.0.0", "Returns the IDs of deleted entries, which are no longer pending, as a third element."),),
)  # fmt: skip
def xautoclaim(Context ctx not None, list args not None):
    cdef Py_ssize_t argc = len(args)
    cdef Py_ssize_t i = 6
    cdef ClaimRule rule
    cdef StreamID start
    cdef int64_t count = AUTOCLAIM_COUNT
    cdef bint just_id = False
    cdef bint is_new
    cdef Stream stream
    cdef Group group
    cdef Consumer consumer
    # Looked up before the options are read, so that a miss is told of whatever is wrong with them; the type is not.
    cdef object value = ctx.db.find(<bytes>args[1])
    claim_rule(ctx, <bytes>args[4], "XAUTOCLAIM", &rule)
    parse_bound(<bytes>args[5], &start, False)
    while i < argc:
        if is_word(<bytes>args[i], b"COUNT") and i + 1 < argc:
            i += 1
            count = parse_autoclaim_count(<bytes>args[i])
        elif is_word(<bytes>args[i], b"JUSTID"):
            just_id = True
        else:
            raise OptionSyntaxError()
        i += 1
    stream = as_stream(value)
    group = find_group(stream, <bytes>args[2])
    if group is None:
        no_such_key_or_group(<bytes>args[1], <bytes>args[2])
    if count >= AUTOCLAIM_MOST_IDS:
        raise CommandError("ERR Insufficient memory, failed allocating transient memory, COUNT too high.")
    rule.count_up = not just_id
    hold_effects(ctx)
    consumer = reach_consumer(ctx, <bytes>args[1], group, <bytes>args[3], &is_new)
    reply_autoclaimed(ctx, <bytes>args[1], stream, group, consumer, start, count, just_id, &rule)
    if is_new:
        propagate_consumer(ctx, <bytes>args[1], group, consumer)


cdef int reply_autoclaimed(
    Context ctx, bytes stream_key, Stream stream, Group group, Consumer consumer, StreamID start, int64_t count,
    bint just_id, const ClaimRule *rule,
) except -1:
    """Claim from `start` on, at most `count`, and write where to go on, what was claimed, and what had been deleted."""
    cdef ReplyWriter reply = ctx.reply
    cdef PelCursor walk
    cdef PelRecord *record
    cdef Finder finder
    cdef StreamID id
    cdef int64_t left = count
    cdef int64_t attempts = count * AUTOCLAIM_EFFORT
    cdef int64_t claimed = 0
    cdef int outcome
    cdef size_t body, opened
    cdef bytearray deleted = bytearray()     # of StreamID
    cdef Py_ssize_t i
    reply.array_header(3)
    body = reply.length
    opened = reply.open_array(min(count, <int64_t>group.pel.by_id.count))
    finder_init(&finder)
    pel_seek(&group.pel, &walk, -1, start)
    record = pel_next(&walk)
    while record is not NULL and left > 0 and attempts > 0:
        attempts -= 1
        id = record.id
        outcome = claim_and_propagate(
            ctx, stream_key, group, record, id, None, find_entry(&finder, stream, id), consumer, rule
        )
        if outcome == CLAIM_MOVED:
            claimed += 1
            write_claimed(reply, &finder, just_id)
        elif outcome == CLAIM_DROPPED:
            deleted += (<char *>&id)[:sizeof(StreamID)]
        if outcome != CLAIM_LEFT:
            left -= 1
        record = pel_next(&walk)
    reply.close_array(opened, claimed)
    insert_id(reply, body, make_id(0, 0) if record is NULL else record.id)
    reply.array_header(len(deleted) // <Py_ssize_t>sizeof(StreamID))
    for i in range(0, len(deleted), sizeof(StreamID)):
        memcpy(&id, <char *>deleted + i, sizeof(StreamID))
        reply.bulk_id(id.ms, id.seq)
    return 0


cdef int insert_id(ReplyWriter reply, size_t at, StreamID id) except -1:
    """Write an ID in front of what was written since `at`."""
    cdef char text[64]
    cdef size_t end = reply.length
    cdef size_t size
    reply.bulk_id(id.ms, id.seq)
    if reply.is_cut:
        return 0
    size = reply.length - end
    memcpy(text, reply.data + end, size)
    memmove(reply.data + at + size, reply.data + at, end - at)
    memcpy(reply.data + at, text, size)
    return 0
