# cython: language_level=3, boundscheck=False, wraparound=False
"""XCLAIM and XAUTOCLAIM: pending entries change owners.

Every request is read in full before anything is changed. Order of checks and texts: Redis 8.6, as seen on a running
server.
"""

from libc.stdint cimport INT64_MAX, int64_t, uint64_t
from libc.string cimport memcpy, memmove

from streamd.core.args cimport is_word, parse_id, parse_int64, require_id
from streamd.core.context cimport Context
from streamd.engine.ids cimport StreamID, id_cmp, make_id
from streamd.protocol.reply cimport ReplyWriter
from streamd.values.streams.arguments cimport (
    as_stream, find_group, find_stream, hold_effects, id_text, ids_in, no_such_key_or_group, parse_bound,
    propagate_consumer, propagate_pending, propagate_position, reach_consumer, room_for_ids,
)
from streamd.values.streams.dead_letters cimport move
from streamd.values.streams.delivery cimport (
    CLAIM_DROPPED, CLAIM_LEFT, CLAIM_MOVED, ClaimRule, Finder, claim_one, find_entry, finder_init, is_claimable,
)
from streamd.values.streams.entry_replies cimport write_entry
from streamd.values.streams.group cimport Consumer, Group
from streamd.values.streams.pel cimport NO_OWNER, PelCursor, PelRecord, pel_find, pel_next, pel_seek
from streamd.values.streams.ruled_group cimport RuledGroup, find_ruled, signal_room
from streamd.values.streams.stream cimport Stream
from streamd.values.streams.tiered_groups cimport (
    ARCHIVED, UNREAD, ArchivedPending, Whereabouts, archived_pending, propagate_archived,
)

from streamd.core.spec import KeysAt, command, integer, key, multiple, optional, string, token, unix_time
from streamd.errors import COUNT_NOT_POSITIVE, CommandError, OptionSyntaxError, printable
from streamd.values.streams.group import ARCHIVED_MARK, UNOWNED_MARK

__all__ = []


cdef int parse_claim_options(Context ctx, list args, Py_ssize_t i, ClaimRule *rule, StreamID *last_id) except -1:
    """Read the options of XCLAIM from argument i on; returns whether JUSTID was given."""
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
    # A time before 1970 or in the future becomes the current time.
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
    cdef bint has_moved_on, is_new, is_suspect, is_unowned
    cdef bint is_alone = False
    cdef PelRecord *record
    cdef RuledGroup ruled
    cdef ArchivedPending archived
    if group is None:
        no_such_key_or_group(<bytes>args[1], <bytes>args[2])
    claim_rule(ctx, <bytes>args[4], "XCLAIM", &rule)
    room = room_for_ids(argc - 5)
    ids = ids_in(room)
    while 5 + n < argc and parse_id(<bytes>args[5 + n], &ids[n]):
        n += 1
    just_id = parse_claim_options(ctx, args, 5 + n, &rule, &last_id)
    archived = archived_pending(ctx, <bytes>args[1], stream)
    if archived is not None and not ask_claimable(ctx, args, stream, group, ids, n, archived, &rule):
        return                          # the client waits for them
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
    if ctx.is_replaying and <bytes>args[4] == ARCHIVED_MARK:
        # Pending wherever they are; there is nobody to reply to.
        for i in range(n):
            claim_one(group, pel_find(&group.pel, ids[i]), ids[i], True, consumer, &rule)
        reply.array_header(0)
        return
    ruled = find_ruled(ctx, <bytes>args[1], stream, group)
    opened = reply.open_array(n)
    finder_init(&finder)
    for i in range(n):
        record = pel_find(&group.pel, ids[i])
        is_suspect = ruled is not None and is_suspected(ruled, record, &rule)
        if ruled is not None and (
            is_alone or is_suspect and claimed or is_withheld(ctx, ruled, record, consumer, &rule)
        ):
            continue
        is_unowned = record is not NULL and record.owner == NO_OWNER
        outcome = claim_and_propagate(
            ctx, <bytes>args[1], group, record, ids[i], <bytes>args[5 + i], find_entry(&finder, stream, ids[i]),
            consumer, &rule, archived
        )
        if outcome == CLAIM_MOVED:
            claimed += 1
            is_alone = is_suspect
            write_claimed(reply, &finder, ids[i], just_id, archived)
        if outcome == CLAIM_MOVED or outcome != CLAIM_LEFT and not is_unowned:
            has_moved_on = False        # the ID is propagated with the claim; of a lost entry without owner, an XACK is
    reply.close_array(opened, claimed)
    if ruled is not None:
        signal_room(ctx, <bytes>args[1])        # of consumers that had these entries
    if has_moved_on:
        ctx.dirty += 1
        if ctx.is_propagating:
            propagate_position(ctx, <bytes>args[1], group)
    if is_new:
        propagate_consumer(ctx, <bytes>args[1], group, consumer)


cdef bint ask_claimable(
    Context ctx, list args, Stream stream, Group group, const StreamID *ids, Py_ssize_t n, ArchivedPending archived,
    const ClaimRule *rule
) except -1:
    """Read entries that are to be claimed and not in memory. False: the client waits for them."""
    cdef PelRecord *record
    cdef Py_ssize_t i
    for i in range(n):
        record = pel_find(&group.pel, ids[i])
        if rule.force if record is NULL else is_claimable(record, rule):
            archived.add(stream, ids[i])
    return archived.ask(ctx, args, <bytes>args[1], stream, 0)


cdef inline bint is_suspected(RuledGroup ruled, const PelRecord *record, const ClaimRule *rule) noexcept nogil:
    """Whether a pending entry, NULL for none, is to be alone in the reply. With JUSTID it is no delivery."""
    return record is not NULL and rule.count_up and ruled.is_suspect(record)


cdef bint is_withheld(
    Context ctx, RuledGroup ruled, const PelRecord *record, Consumer consumer, const ClaimRule *rule
) except -1:
    """Whether a claim does not get a pending entry, NULL for none: it waits, or is held back, or is used up, and moved.

    With JUSTID it is no delivery: a consumer may extend the time that it has for the last one.
    """
    if record is NULL:
        return False
    if ruled.is_blocked(record):
        return True
    if not is_claimable(record, rule) or not rule.count_up and record.owner == consumer.number:
        return False
    if ruled.is_held(record, rule.now_ms) and not rule.force:
        return True
    if not ruled.is_used_up(record):
        return False
    move(ctx, ruled, record.id, False)
    return True


cdef int claim_and_propagate(
    Context ctx, bytes stream_key, Group group, PelRecord *record, StreamID id, bytes id_given, bint exists,
    Consumer consumer, const ClaimRule *rule, ArchivedPending archived
) except -1:
    """Claim one entry, see claim_one, and propagate the outcome.

    id_given  the ID as written in the request, which is propagated unchanged; None: not in the request
    exists    it is in memory
    archived  those that are not; None: they count as deleted
    """
    cdef Consumer owner = None
    cdef PelRecord found
    cdef int outcome
    cdef Whereabouts place
    cdef bint is_archived = False
    if not exists and archived is not None and (record is not NULL or rule.force):
        place = archived.find(id)
        if place == UNREAD:
            return CLAIM_LEFT
        exists = is_archived = place == ARCHIVED
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
            if id_given is None:
                id_given = id_text(id)
            if is_archived:
                propagate_archived(
                    ctx, stream_key, group, owner.name, id_given, b"%d" % found.delivery_ms,
                    b"%d" % found.delivery_count, id_text(group.last_id)
                )
            else:
                propagate_pending(
                    ctx, stream_key, group, owner.name, id_given, b"%d" % found.delivery_ms, found.delivery_count,
                    id_text(group.last_id)
                )
    return outcome


cdef int write_claimed(
    ReplyWriter reply, Finder *finder, StreamID id, bint just_id, ArchivedPending archived
) except -1:
    """A claimed entry, which the finder has looked for last, or only its ID."""
    if just_id:
        return reply.bulk_id(id.ms, id.seq)
    if not finder.at_end and id_cmp(finder.cursor.id, id) == 0:
        return write_entry(reply, &finder.cursor)
    return archived.write(reply, id)


cdef enum:
    AUTOCLAIM_COUNT = 100              # without COUNT
    AUTOCLAIM_EFFORT = 10              # maximum number of pending entries examined for each that may be returned

cdef int64_t AUTOCLAIM_MOST_IDS = <int64_t>1 << 40
# Redis allocates room for COUNT deleted IDs first. Nothing is allocated here, but such a request is refused too.


cdef int64_t parse_autoclaim_count(bytes text) except -1:
    cdef long long count
    if not parse_int64(text, &count) or count <= 0 or count > INT64_MAX // 16:
        raise CommandError(COUNT_NOT_POSITIVE)
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
    cdef ArchivedPending archived
    # Looked up before the options are read, so that a miss is reported even if they are wrong; the type is not.
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
    archived = archived_pending(ctx, <bytes>args[1], stream)
    if archived is not None and not ask_autoclaimable(ctx, args, stream, group, start, count, archived, &rule):
        return                          # the client waits for them
    hold_effects(ctx)
    consumer = reach_consumer(ctx, <bytes>args[1], group, <bytes>args[3], &is_new)
    reply_autoclaimed(ctx, <bytes>args[1], stream, group, consumer, start, count, just_id, &rule, archived)
    if is_new:
        propagate_consumer(ctx, <bytes>args[1], group, consumer)


cdef bint ask_autoclaimable(
    Context ctx, list args, Stream stream, Group group, StreamID start, int64_t count, ArchivedPending archived,
    const ClaimRule *rule
) except -1:
    """Read what reply_autoclaimed will meet and is not in memory. False: the client waits for it."""
    cdef PelCursor walk
    cdef PelRecord *record
    cdef RuledGroup ruled = find_ruled(ctx, <bytes>args[1], stream, group)
    cdef int64_t left = count
    cdef int64_t attempts = count * AUTOCLAIM_EFFORT
    pel_seek(&group.pel, &walk, -1, start)
    record = pel_next(&walk)
    while record is not NULL and left > 0 and attempts > 0:
        attempts -= 1
        if is_claimable(record, rule):
            archived.add(stream, record.id)
            # Those that a rule withholds are passed over.
            left -= ruled is None or not (ruled.is_held(record, rule.now_ms) or ruled.is_used_up(record))
        record = pel_next(&walk)
    return archived.ask(ctx, args, <bytes>args[1], stream, 0)


cdef int reply_autoclaimed(
    Context ctx, bytes stream_key, Stream stream, Group group, Consumer consumer, StreamID start, int64_t count,
    bint just_id, const ClaimRule *rule, ArchivedPending archived
) except -1:
    """Claim from `start` on, at most `count`, and write where to continue, and the claimed and deleted entries."""
    cdef ReplyWriter reply = ctx.reply
    cdef PelCursor walk
    cdef PelRecord *record
    cdef Finder finder
    cdef StreamID id
    cdef int64_t left = count
    cdef int64_t attempts = count * AUTOCLAIM_EFFORT
    cdef int64_t claimed = 0
    cdef int outcome
    cdef bint is_suspect
    cdef size_t body, opened
    cdef bytearray deleted = bytearray()     # of StreamID
    cdef Py_ssize_t i
    cdef RuledGroup ruled = find_ruled(ctx, stream_key, stream, group)
    reply.array_header(3)
    body = reply.length
    opened = reply.open_array(min(count, <int64_t>group.pel.by_id.count))
    finder_init(&finder)
    pel_seek(&group.pel, &walk, -1, start)
    record = pel_next(&walk)
    while record is not NULL and left > 0 and attempts > 0:
        attempts -= 1
        id = record.id
        is_suspect = False
        if ruled is not None:
            if is_withheld(ctx, ruled, record, consumer, rule):
                record = pel_next(&walk)
                continue
            is_suspect = is_suspected(ruled, record, rule) and is_claimable(record, rule)
            if is_suspect and claimed:
                break
        outcome = claim_and_propagate(
            ctx, stream_key, group, record, id, None, find_entry(&finder, stream, id), consumer, rule, archived
        )
        if outcome == CLAIM_MOVED:
            claimed += 1
            if is_suspect:
                left = 0
            write_claimed(reply, &finder, id, just_id, archived)
        elif outcome == CLAIM_DROPPED:
            deleted += (<char *>&id)[:sizeof(StreamID)]
        if outcome != CLAIM_LEFT:
            left -= 1
        record = pel_next(&walk)
    reply.close_array(opened, claimed)
    if ruled is not None:
        signal_room(ctx, stream_key)            # of consumers that had these entries
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
