# cython: language_level=3, boundscheck=False, wraparound=False
"""XACK, XACKDEL and XNACK: pending entries are acknowledged or returned.

Every request is read in full before anything is changed. Order of checks and texts: Redis 8.6, as seen on a running
server.
"""

from libc.stdint cimport INT32_MAX, INT64_MAX, int64_t, uint64_t

from streamd.core.args cimport is_word, parse_int64, require_int64
from streamd.core.context cimport Context
from streamd.engine.ids cimport StreamID
from streamd.keyspace.listener cimport EVENT_STREAM
from streamd.values.streams.arguments cimport (
    DeleteOptions, find_group, find_stream, hold_effects, id_text, ids_in, no_such_key_or_group, note_change,
    number_text, parse_delete, propagate_pending, propagate_unowned, require_ids,
)
from streamd.values.streams.dead_letters cimport move
from streamd.values.streams.group cimport Group
from streamd.values.streams.pel cimport NO_OWNER, PelRecord, pel_find
from streamd.values.streams.ruled_group cimport RuledGroup, find_ruled, signal_room
from streamd.values.streams.stream cimport Stream
from streamd.values.streams.tiered_groups cimport is_maybe_archived, propagate_archived

from streamd.core.spec import KeysAt, block, command, integer, key, multiple, oneof, optional, string, token
from streamd.errors import CommandError, printable

__all__ = []


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
        signal_room(ctx, <bytes>args[1])
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
        signal_room(ctx, <bytes>args[1])
    if removed:
        ctx.db.touched(<bytes>args[1])
        ctx.db.event(EVENT_STREAM, b"xdel", <bytes>args[1])


# --- Returning ------------------------------------------------------------------------------------------------------

cdef enum Nack:
    SILENT                     # the last delivery is not counted
    FAIL                       # the delivery count is unchanged
    FATAL                      # the delivery count is set to the maximum


cdef struct NackOptions:
    Nack mode
    Py_ssize_t first_id        # index of the first ID in the arguments
    Py_ssize_t id_count
    long long delivery_count   # RETRYCOUNT; -1: determined by the mode
    bint force


cdef int parse_nack(list args, NackOptions *out) except -1:
    """Read the mode, and `IDS n id ... [RETRYCOUNT n] [FORCE]` in any order; the last of each kind counts."""
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
    """The delivery count of a returned entry."""
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
    cdef uint64_t count
    cdef RuledGroup ruled
    if group is None:
        no_such_key_or_group(<bytes>args[1], <bytes>args[2])
    parse_nack(args, &options)
    room = require_ids(args, options.first_id, options.id_count)
    ids = ids_in(room)
    ruled = find_ruled(ctx, <bytes>args[1], stream, group)
    # Receivers that support XNACK get the request, unless a rule may act; others get effects they understand.
    is_propagated = ctx.is_propagating and (not ctx.has_xnack or ruled is not None)
    if is_propagated or ruled is not None:
        hold_effects(ctx)
    for i in range(options.id_count):
        record = pel_find(&group.pel, ids[i])
        if record is NULL and not (options.force and stream.has_entry(ids[i])):
            continue
        count = count_after(&options, 0 if record is NULL else record.delivery_count)
        given_back += 1
        if ruled is not None:
            if count >= ruled.limit and move(ctx, ruled, ids[i], count == <uint64_t>INT64_MAX):
                continue
            if options.mode == FAIL and count and hold_back(ctx, ruled, record, count):
                continue
        group.give_back(ids[i], count)
        if is_propagated:
            propagate_unowned(ctx, <bytes>args[1], group, <bytes>args[3], pel_find(&group.pel, ids[i]))
    if given_back:
        ctx.dirty += <uint64_t>given_back
        note_change(ctx, <bytes>args[1])
        ctx.db.signal_ready(<bytes>args[1])
    ctx.reply.integer(given_back)


cdef bint hold_back(Context ctx, RuledGroup ruled, PelRecord *record, uint64_t count) except -1:
    """Leave a pending entry that failed with its consumer, so that it has a time from which its back-off runs.

    False if it has no consumer, or is deleted from the stream, where a receiver would drop it: then it is given back.
    """
    cdef bint is_archived
    if ruled.back_off_ms == 0 or record is NULL or record.owner == NO_OWNER:
        return False
    is_archived = is_maybe_archived(ctx, ruled.key, ruled.stream, record.id)
    if not is_archived and not ruled.stream.has_entry(record.id):
        return False
    ruled.group.hold_back(record, count, ctx.now_ms)
    if ctx.is_propagating and is_archived:
        propagate_archived(
            ctx, ruled.key, ruled.group, ruled.group.owner_name(record), id_text(record.id),
            number_text(<uint64_t>ctx.now_ms), number_text(count), id_text(ruled.group.last_id)
        )
    elif ctx.is_propagating:
        propagate_pending(
            ctx, ruled.key, ruled.group, ruled.group.owner_name(record), id_text(record.id),
            number_text(<uint64_t>ctx.now_ms), count, id_text(ruled.group.last_id)
        )
    return True
