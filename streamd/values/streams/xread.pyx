# cython: language_level=3, boundscheck=False, wraparound=False
"""XREAD and XREADGROUP: entries after an ID, from one stream or several, now or when there are any.

A request is read in full (ReadOptions), then every key is checked, then the streams that have something are read, in
the order given. If none has and BLOCK is given, the client waits: the handler passes on the request with `$` replaced
by the ID it stood for, and runs again from the start when one of the keys is ready. Behaviour: Redis 8.6, as seen on a
running server.

What a stream has for a request:

    XREAD         id         entries after it
    XREADGROUP    `>`        entries after the group's last-delivered ID; with CLAIM, before them, what is pending in
                             the group and idle for long enough, oldest delivery first; see ordered_reads.pyx for
                             groups that a rule orders by key
                  id         what is pending for this consumer after that ID (its history). Never waits.

COUNT limits the entries of each stream, MAXCOUNT those of the whole reply, MAXSIZE its bytes. Once the reply is full
(Quota), the remaining streams are skipped: they are not in the reply, and no consumer is created in them.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM
from libc.stdint cimport INT64_MAX, UINT64_MAX, int64_t, uint64_t
from streamd.heap cimport free, malloc

from streamd.core.args cimport is_word, parse_int64, parse_timeout, require_id, require_int64
from streamd.core.context cimport BlockRequest, Context, SharedReply
from streamd.engine.ids cimport StreamID, id_cmp, id_decrement, id_increment, make_id
from streamd.keyspace.listener cimport EVENT_KEY_MISS
from streamd.protocol.reply cimport ReplyWriter
from streamd.shared_bytes cimport SHARED_LEAST
from streamd.values.streams.arguments cimport (
    find_group, find_stream, hold_effects, id_text, ids_in, number_text, propagate_consumer, propagate_pending,
    propagate_position, reach_consumer, room_for_ids,
)
from streamd.values.streams.dead_letters cimport move_all
from streamd.values.streams.delivery cimport Finder, advance, find_entry, finder_init, idle_of
from streamd.values.streams.entry_replies cimport write_entry, write_fields, write_range
from streamd.values.streams.group cimport Consumer, Group
from streamd.values.streams.key_order cimport KeyOrder
from streamd.values.streams.ordered_reads cimport ask_in_turn, ask_keys, has_turn, next_in_turn, next_passed_over
from streamd.values.streams.pel cimport (
    PelCursor, PelRecord, count_delivery, pel_adopt, pel_next, pel_seek, pel_set_time,
)
from streamd.values.streams.ruled_group cimport (
    ClaimWalk, RuledGroup, claim_walk_init, find_key, find_ruled, next_deliverable, next_ready_ms, signal_room,
)
from streamd.values.streams.read_quota cimport (
    Quota, close_entries, has_enough_bytes, is_spent, open_entries, quota_init, share_of,
)
from streamd.values.streams.stream cimport Stream, StreamCursor, cursor_next, cursor_seek
from streamd.values.streams.tiered_groups cimport (
    ARCHIVED, ArchivedPending, Delivery, archived_pending, deliver_archived, next_archived, propagate_archived,
    refuse_archived,
)
from streamd.values.streams.tiered_ranges cimport id_of
from streamd.values.streams.tiered_reads cimport ask_archive, has_entries, start_in_memory, write_from_both
from streamd.values.streams.waiting cimport stream_question

from streamd.core.spec import KeysAfter, block, command, integer, key, multiple, optional, string, token
from streamd.errors import CommandError, NoGroupError, OptionSyntaxError, printable

__all__ = ["ReadOptions", "find_keys", "parse_read"]

cdef enum:
    CLAIM_RETRY_MS = 10
    # Minimum wait before a reader with CLAIM checks again for entries that have become idle.

cdef StreamID MAX_ID = make_id(UINT64_MAX, UINT64_MAX)
# Represents `>` among the IDs of XREADGROUP. As in Redis, the greatest ID, written out, also means `>`.


# --- The request ----------------------------------------------------------------------------------------------------

@cython.final
@cython.no_gc
@cython.freelist(8)
cdef class ReadOptions:
    """The options of an XREAD or XREADGROUP request, as read by parse_read.

    group, consumer  names; None for XREAD
    count            maximum number of entries of each stream; 0: no limit
    max_count        maximum number of entries in all; 0: no limit
    max_bytes        size of the reply in bytes from which no further entry is started; 0: no limit
    timeout_ms       how long to wait; 0: forever; -1: not at all
    min_idle_ms      XREADGROUP CLAIM; -1: not given
    no_ack           entries are not to be acknowledged, so they do not become pending
    first_key        index of the first key in the arguments
    key_count        number of keys; the same number of IDs follow
    """

    cdef readonly bytes group
    cdef readonly bytes consumer
    cdef readonly long long count
    cdef readonly long long max_count
    cdef readonly long long max_bytes
    cdef readonly long long timeout_ms
    cdef readonly long long min_idle_ms
    cdef readonly bint no_ack
    cdef readonly Py_ssize_t first_key
    cdef readonly Py_ssize_t key_count

    def __cinit__(self):
        self.timeout_ms = -1
        self.min_idle_ms = -1

    def __repr__(self):
        return (
            f"ReadOptions(group={self.group!r}, consumer={self.consumer!r}, count={self.count}, "
            f"max_count={self.max_count}, max_bytes={self.max_bytes}, timeout_ms={self.timeout_ms}, "
            f"min_idle_ms={self.min_idle_ms}, no_ack={self.no_ack}, "
            f"first_key={self.first_key}, key_count={self.key_count})"
        )


cdef enum Word:
    NO_WORD                     # not an option, or one without its arguments
    STREAMS_WORD
    COUNT_WORD
    GROUP_WORD
    BLOCK_WORD
    NOACK_WORD
    CLAIM_WORD
    MAXCOUNT_WORD
    MAXSIZE_WORD


cdef Word word_at(list args, Py_ssize_t at, Py_ssize_t left) noexcept:
    """Which option the argument is; `left`: how many arguments follow it.

    All reading of a request goes through this function and `values_of`, so the keys that permissions are checked for
    are the ones that are read.
    """
    cdef bytes text = <bytes>PyList_GET_ITEM(args, at)
    cdef char first = PyBytes_AS_STRING(text)[0] & ~0x20        # as a capital
    if first == c'S' and is_word(text, b"STREAMS") and left:
        return STREAMS_WORD
    if first == c'C' and is_word(text, b"COUNT") and left:
        return COUNT_WORD
    if first == c'G' and is_word(text, b"GROUP") and left >= 2:
        return GROUP_WORD
    if first == c'B' and is_word(text, b"BLOCK") and left:
        return BLOCK_WORD
    if first == c'N' and is_word(text, b"NOACK"):
        return NOACK_WORD
    if first == c'C' and is_word(text, b"CLAIM") and left:
        return CLAIM_WORD
    if first == c'M' and is_word(text, b"MAXCOUNT") and left:
        return MAXCOUNT_WORD
    if first == c'M' and is_word(text, b"MAXSIZE") and left:
        return MAXSIZE_WORD
    return NO_WORD


cdef inline Py_ssize_t values_of(Word word) noexcept:
    """How many arguments belong to an option."""
    return 2 if word == GROUP_WORD else 0 if word == NOACK_WORD else 1


def find_keys(list args not None):
    """Where the keys of an XREAD or XREADGROUP request are; None when it is malformed.

    Option values are ignored: a request that fails because of them still names its keys.
    """
    cdef Py_ssize_t argc = len(args)
    cdef Py_ssize_t i = 1
    cdef Word word
    while i < argc:
        word = word_at(args, i, argc - i - 1)
        i += 1
        if word == STREAMS_WORD:
            return range(i, (i + argc) // 2) if (argc - i) % 2 == 0 else None
        if word == NO_WORD:
            break
        i += values_of(word)
    return None


cpdef ReadOptions parse_read(list args, bint is_group, long long now_ms):
    """Read the arguments of XREAD, or of XREADGROUP when `is_group`; IDs are only counted.

    now_ms  Unix time in ms: a time-out that would end beyond the greatest number is refused
    Raises CommandError with Redis's text. Of a repeated option the last one counts.
    """
    cdef ReadOptions options = ReadOptions.__new__(ReadOptions)
    cdef Py_ssize_t argc = len(args)
    cdef Py_ssize_t i = 1
    cdef Py_ssize_t left
    cdef Word word
    while i < argc:
        left = argc - i - 1
        word = word_at(args, i, left)
        i += 1
        if word == STREAMS_WORD:
            if left % 2:
                raise unbalanced(is_group)
            options.first_key = i
            options.key_count = left // 2
            break
        elif word == COUNT_WORD:
            options.count = max(0, require_int64(<bytes>args[i]))
        elif word == GROUP_WORD:
            if not is_group:
                raise only_for_groups("GROUP")
            options.group = <bytes>args[i]
            options.consumer = <bytes>args[i + 1]
        elif word == BLOCK_WORD:
            options.timeout_ms = parse_timeout(<bytes>args[i], now_ms)
        elif word == NOACK_WORD:
            if not is_group:
                raise only_for_groups("NOACK")
            options.no_ack = True
        elif word == CLAIM_WORD:
            if not is_group:
                raise only_for_groups("CLAIM")
            if not parse_int64(<bytes>args[i], &options.min_idle_ms):
                raise CommandError("ERR min-idle-time is not an integer or out of range")
            if options.min_idle_ms < 0:
                raise CommandError("ERR min-idle-time must be a positive integer")
        elif word == MAXCOUNT_WORD:
            options.max_count = parse_limit(<bytes>args[i], "MAXCOUNT")
        elif word == MAXSIZE_WORD:
            options.max_bytes = parse_limit(<bytes>args[i], "MAXSIZE")
        else:
            raise OptionSyntaxError()
        i += values_of(word)
    if options.first_key == 0:
        raise OptionSyntaxError()
    if is_group and options.group is None:
        raise CommandError("ERR Missing GROUP option for XREADGROUP")
    if 0 < options.max_count < options.count:
        raise CommandError("ERR MAXCOUNT must be greater than or equal to COUNT")
    return options


cdef long long parse_limit(bytes text, str option) except -1:
    cdef long long limit = require_int64(text)
    if limit <= 0:
        raise CommandError(f"ERR {option} must be a positive integer")
    return limit


cdef object only_for_groups(str option):
    return CommandError(f"ERR The {option} option is only supported by XREADGROUP. You called XREAD instead.")


cdef object unbalanced(bint is_group):
    name, ids = ("xreadgroup", "an ID or '>'") if is_group else ("xread", "an ID, '+', or '$'")
    return CommandError(f"ERR Unbalanced '{name}' list of streams: for each stream key {ids} must be specified.")


cdef object meaningless(str id):
    return CommandError(
        f"ERR The {id} ID is meaningless in the context of XREADGROUP: you want to read the history of this consumer "
        f"by specifying a proper ID, or use the > ID to get new messages. The {id} ID would just return an empty "
        "result set."
    )


cdef inline bint is_char(bytes text, char c) noexcept:
    return PyBytes_GET_SIZE(text) == 1 and PyBytes_AS_STRING(text)[0] == c


cdef int no_group(bytes stream_key, bytes group) except -1:
    raise NoGroupError(
        f"NOGROUP No such key '{printable(stream_key)}' or consumer group '{printable(group)}' "
        "in XREADGROUP with GROUP option"
    )


# --- XREAD ----------------------------------------------------------------------------------------------------------

cdef int parse_read_id(bytes text, Stream stream, StreamID *out) except -1:
    """The ID after which entries are requested; `stream` may be None."""
    if is_char(text, c'$'):
        out[0] = stream.last_id if stream is not None else make_id(0, 0)
    elif is_char(text, c'+'):
        # The last entry itself is requested: what comes after its predecessor.
        out[0] = stream.last_live_id() if stream is not None else make_id(0, 0)
        id_decrement(out)
    elif is_char(text, c'>'):
        raise CommandError(
            "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option."
        )
    else:
        require_id(text, out)
    return 0


WAITING = (
    optional(integer("count", "COUNT")),
    optional(integer("maxcount", "MAXCOUNT", since="8.10.0")),
    optional(integer("maxsize", "MAXSIZE", since="8.10.0")),
    optional(integer("milliseconds", "BLOCK")),
)
HISTORY = (("8.10.0", "`MAXCOUNT` and `MAXSIZE`."),)
KEYS_FLAGS = "RO access incomplete"
KEYS_NOTES = "STREAMS may be the value of an option, too: it counts where an option is expected"
STREAMS = block("streams", multiple(key()), multiple(string("id")), token="STREAMS")
"""The options that both commands share, for COMMAND DOCS."""


@command(
    "XREAD", arity=-4, group="stream", flags="readonly blocking",
    keys=KeysAfter(b"STREAMS", start=1, flags=KEYS_FLAGS, notes=KEYS_NOTES, find=find_keys),
    since="5.0.0", summary="Returns entries of one or more streams that come after the given IDs, or waits for one.",
    complexity="O(log(N)+M) for each stream, with N its entries and M those returned.",
    args=(*WAITING, STREAMS), history=HISTORY,
)  # fmt: skip
def xread(Context ctx not None, list args not None):
    cdef ReadOptions options = parse_read(args, False, ctx.now_ms)
    cdef ReplyWriter reply = ctx.reply
    cdef Py_ssize_t n = options.key_count
    cdef Py_ssize_t i
    cdef bytes room = room_for_ids(n)
    cdef StreamID *after = ids_in(room)
    cdef list streams = []
    cdef list archived = None
    cdef Stream stream
    cdef Quota quota
    cdef size_t opened = 0, mark = reply.length
    cdef int64_t served = 0
    cdef bint may_share = ctx.is_sharing and n == 1
    for i in range(n):
        stream = find_stream(ctx, <bytes>args[options.first_key + i])
        parse_read_id(<bytes>args[options.first_key + n + i], stream, &after[i])
        streams.append(stream)
    if ctx.tiers is not None:
        archived = archived_parts(ctx, args, options, streams, after)
        if archived is None:
            return                  # the client waits for them
    quota_init(&quota, options.max_count, options.max_bytes)
    for i in range(n):
        if is_spent(&quota, reply):
            break
        stream = <Stream>streams[i]
        count_second_look(ctx, <bytes>args[options.first_key + i], stream)
        if archived is not None and archived[i] is not None:
            may_share = False
            if has_entries(stream, archived[i], after[i]):
                if served == 0:
                    opened = open_streams(reply, &quota, n)
                served += 1
                open_stream(reply, <bytes>args[options.first_key + i])
                write_from_both(reply, &quota, stream, archived[i], after[i], options.count)
            continue
        if stream is None or stream.length == 0 or id_cmp(stream.last_live_id(), after[i]) <= 0:
            continue
        id_increment(&after[i])     # below the last live entry, so not the greatest ID
        if may_share and is_shared(ctx, stream, after[i], options):
            ctx.takes_shared = True
            return
        if served == 0:
            opened = open_streams(reply, &quota, n)
        served += 1
        open_stream(reply, <bytes>args[options.first_key + i])
        if options.max_count or options.max_bytes:
            write_within(reply, &quota, stream, after[i], options.count)
        else:
            write_range(reply, stream, after[i], MAX_ID, False, options.count or -1)
    if served:
        close_streams(reply, opened, served)
        if may_share and ctx.shared is None and not reply.is_cut and reply.length - mark >= SHARED_LEAST:
            share(ctx, stream, after[0], options, mark)
    elif options.timeout_ms >= 0:
        wait(ctx, args, options, after, -1, True)
    else:
        reply.null_array()


@cython.final
@cython.no_gc
cdef class SharedRead(SharedReply):
    """The reply of an XREAD of one stream.

    stream         the stream, which has not changed since
    length         its entries
    last_id        the last of them
    first          the ID from which it was read
    options, resp  of the request
    """

    cdef Stream stream
    cdef uint64_t length
    cdef StreamID last_id
    cdef StreamID first
    cdef ReadOptions options
    cdef int resp


cdef int share(Context ctx, Stream stream, StreamID first, ReadOptions options, size_t mark) except -1:
    """Let others that wait have the reply that was written since `mark`."""
    cdef SharedRead shared = SharedRead.__new__(SharedRead)
    shared.stream, shared.length, shared.last_id = stream, stream.length, stream.last_id
    shared.first, shared.options, shared.resp = first, options, ctx.reply.resp
    shared.hold(ctx.reply, mark)
    ctx.shared = shared
    return 0


cdef bint is_shared(Context ctx, Stream stream, StreamID first, ReadOptions options):
    """Whether another one has read the same."""
    cdef SharedRead shared
    if type(ctx.shared) is not SharedRead:
        return False
    shared = <SharedRead>ctx.shared
    return (
        shared.stream is stream and shared.length == stream.length and id_cmp(shared.last_id, stream.last_id) == 0
        and id_cmp(shared.first, first) == 0 and shared.resp == ctx.reply.resp
        and shared.options.count == options.count and shared.options.max_count == options.max_count
        and shared.options.max_bytes == options.max_bytes
    )


cdef list archived_parts(Context ctx, list args, ReadOptions options, list streams, const StreamID *after):
    """For each stream its archived part, None where memory is enough. None: the client waits for them."""
    cdef Py_ssize_t n = options.key_count
    cdef Py_ssize_t i
    cdef list again = with_fixed_ids(args, options, after)
    cdef list parts = [None] * n
    cdef int64_t count = most_of(options)
    for i in range(n):
        if streams[i] is not None and not ask_archive(
            ctx, again, <bytes>args[options.first_key + i], <Stream>streams[i], after[i],
            is_char(<bytes>args[options.first_key + n + i], c'+'), count or -1, options.max_bytes, None, i, parts
        ):
            return None
    return parts


cdef int64_t most_of(ReadOptions options) noexcept:
    """The maximum number of entries of any stream; 0: no limit."""
    return min(options.count, options.max_count) if options.count and options.max_count else (
        options.count or options.max_count
    )


cdef int count_second_look(Context ctx, bytes name, Stream stream) except -1:
    """Redis looks up each key twice, counts both as hits or misses, and reports both misses."""
    if stream is None:
        ctx.db.misses += 1
        ctx.db.event(EVENT_KEY_MISS, b"keymiss", name)
    else:
        ctx.db.hits += 1
    return 0


cdef int write_within(ReplyWriter reply, Quota *quota, Stream stream, StreamID first, int64_t count) except -1:
    """Write entries from `first` on, at most `count` (0: no limit), and no more than fit in the reply."""
    cdef StreamCursor cursor
    cdef int64_t limit = share_of(quota, count)
    cdef int64_t n = 0
    cdef int64_t length = <int64_t>stream.length
    cdef size_t opened = open_entries(reply, quota, min(limit, length) if limit else length)
    cursor_seek(stream, &cursor, first, MAX_ID, False)
    while not has_enough_bytes(quota, reply, n) and cursor_next(&cursor):
        write_entry(reply, &cursor)
        n += 1
        if n == limit or reply.is_cut:
            break
    return close_entries(reply, quota, opened, n)


cdef size_t open_streams(ReplyWriter reply, Quota *quota, int64_t expected) except? 0:
    """Start the reply for all streams; returns what close_streams needs."""
    cdef size_t opened = reply.open_array(expected)
    quota.start = reply.length
    return opened


cdef int open_stream(ReplyWriter reply, bytes stream_key) except -1:
    """Start the reply for one stream: a pair, which is an array in RESP2, and an element of a map in RESP3."""
    if reply.resp == 2:
        reply.array_header(2)
    return reply.bulk(stream_key)


cdef int close_streams(ReplyWriter reply, size_t opened, int64_t served) except -1:
    """End the reply that was opened as an array: in RESP3 it is a map."""
    reply.close_array(opened, served)
    if reply.resp == 3 and not reply.is_cut:
        reply.data[opened] = c'%'
    return 0


cdef int wait(
    Context ctx, list args, ReadOptions options, const StreamID *after, int64_t ready_at_ms, bint in_line
) except -1:
    """Block the client until one of its keys is ready. `$` becomes the ID it stood for; `+` is resolved each time."""
    keys = args[options.first_key:options.first_key + options.key_count]
    question = stream_question(options.group, options.consumer, ready_at_ms >= 0, in_line)
    again = with_fixed_ids(args, options, after)
    ctx.block_on(BlockRequest(keys, again, options.timeout_ms, question, ready_at_ms))
    return 0


cdef list with_fixed_ids(list args, ReadOptions options, const StreamID *after):
    """The request with the IDs that `$` stands for."""
    cdef Py_ssize_t i, at
    cdef list again = args
    for i in range(options.key_count):
        at = options.first_key + options.key_count + i
        if is_char(<bytes>args[at], c'$'):
            if again is args:
                again = args[:]
            again[at] = id_text(after[i])
    return again


# --- XREADGROUP -----------------------------------------------------------------------------------------------------

cdef int parse_group_id(bytes text, StreamID *out) except -1:
    """The ID after which the consumer's history is requested, or MAX_ID for `>`."""
    if is_char(text, c'>'):
        out[0] = MAX_ID
    elif is_char(text, c'$') or is_char(text, c'+'):
        raise meaningless(text.decode())
    else:
        require_id(text, out)
    return 0


@command(
    "XREADGROUP", arity=-7, group="stream", flags="write blocking",
    keys=KeysAfter(b"STREAMS", start=4, flags=KEYS_FLAGS, notes=KEYS_NOTES, find=find_keys),
    since="5.0.0", summary="Returns new or pending entries for a consumer of a group, or waits for one.",
    complexity="O(log(N)+M) for each stream, with N its entries and M those returned.",
    args=(
        block("group-block", string("group"), string("consumer"), token="GROUP"),
        *WAITING,
        optional(integer("min-idle-time", "CLAIM")),
        optional(token("NOACK")),
        STREAMS,
    ),
    history=HISTORY,
)  # fmt: skip
def xreadgroup(Context ctx not None, list args not None):
    cdef ReadOptions options = parse_read(args, True, ctx.now_ms)
    cdef ReplyWriter reply = ctx.reply
    cdef Py_ssize_t n = options.key_count
    cdef Py_ssize_t i
    cdef bytes room = room_for_ids(n)
    cdef StreamID *after = ids_in(room)
    cdef list streams = []
    cdef list groups = []
    cdef list rules = None
    cdef list archived = None
    cdef list turns = None
    cdef bytes name
    cdef Stream stream
    cdef Group group
    cdef RuledGroup ruled
    cdef ArchivedPending turn
    cdef Consumer consumer
    cdef GroupRead read
    cdef bint is_new
    cdef bint in_line = True
    cdef size_t opened = 0
    cdef int64_t served = 0
    for i in range(n):
        name = <bytes>args[options.first_key + i]
        stream = find_stream(ctx, name)
        group = find_group(stream, options.group)
        if group is None:
            no_group(name, options.group)
        parse_group_id(<bytes>args[options.first_key + n + i], &after[i])
        streams.append(stream)
        groups.append(group)
    read.now_ms = ctx.now_ms
    read.min_idle_ms = options.min_idle_ms
    read.no_ack = options.no_ack
    read.is_alone = False
    if options.min_idle_ms >= 0:
        rules = []
    hold_effects(ctx)
    if ctx.tiers is not None and ctx.tiers.serve_groups:
        turns = [None] * n
        archived = archived_for_group(ctx, args, options, streams, groups, after, turns)
        if archived is None:
            return                  # the client waits for them
    quota_init(&read.quota, options.max_count, options.max_bytes)
    for i in range(n):
        if is_spent(&read.quota, reply) or read.is_alone:
            break
        part = None if archived is None else archived[i]
        turn = None if turns is None else <ArchivedPending>turns[i]
        read.count = share_of(&read.quota, options.count)
        stream = <Stream>streams[i]
        group = <Group>groups[i]
        name = <bytes>args[options.first_key + i]
        count_second_look(ctx, name, stream)
        consumer = reach_consumer(ctx, name, group, options.consumer, &is_new)
        ruled = find_ruled(ctx, name, stream, group)
        if read.min_idle_ms >= 0:
            rules.append(ruled)
        if ruled is not None and ruled.consumer_pending:
            in_line = False
        if id_cmp(after[i], MAX_ID) != 0:
            # A history read turns CLAIM off for the streams that follow it in the same request, in Redis too.
            read.min_idle_ms = -1
            if served == 0:
                opened = open_streams(reply, &read.quota, n)
            served += 1
            open_stream(reply, name)
            reply_history(reply, stream, group, consumer, after[i], &read, part)
        elif has_next(ctx, stream, group, ruled, consumer, &read, part, turn) or read.min_idle_ms >= 0 and (
            has_claimable(ctx, stream, group, ruled, &read)
            # What was moved on the way may have made room, or freed a key.
            or has_next(ctx, stream, group, ruled, consumer, &read, part, turn)
        ):
            if served == 0:
                opened = open_streams(reply, &read.quota, n)
            served += 1
            open_stream(reply, name)
            reply_new(ctx, name, stream, group, ruled, consumer, &read, part, turn)
            ctx.dirty += 1
        if is_new:
            propagate_consumer(ctx, name, group, consumer)
    if served:
        close_streams(reply, opened, served)
    elif options.timeout_ms >= 0:
        wait(ctx, args, options, after, -1 if read.min_idle_ms < 0 else next_claim_ms(groups, rules, &read), in_line)
    else:
        reply.null_array()


cdef list archived_for_group(
    Context ctx, list args, ReadOptions options, list streams, list groups, const StreamID *after, list turns
):
    """For each stream what is archived of it: new entries as a part, pending ones as ArchivedPending; None where memory
    is enough. None: the client waits for them.

    turns  gets what was passed over, and may be delivered, of groups that are ordered by key
    """
    cdef Py_ssize_t n = options.key_count
    cdef Py_ssize_t i
    cdef list parts = [None] * n
    cdef int64_t count = most_of(options)
    cdef bytes name
    cdef Stream stream
    cdef Group group
    cdef ArchivedPending pending
    for i in range(n):
        name = <bytes>args[options.first_key + i]
        stream = <Stream>streams[i]
        group = <Group>groups[i]
        if id_cmp(after[i], MAX_ID) == 0:
            if ctx.in_transaction:
                refuse_archived(ctx, name, stream, group)
            if not ask_new(ctx, args, options, name, stream, group, i, parts, turns):
                return None
            continue
        pending = parts[i] = archived_pending(ctx, name, stream)
        if pending is not None and not ask_history(
            ctx, args, name, stream, group, options.consumer, after[i], count, pending, i
        ):
            return None
    return parts


cdef bint ask_new(
    Context ctx, list args, ReadOptions options, bytes name, Stream stream, Group group, Py_ssize_t i, list parts,
    list turns
) except -1:
    """Read the new entries of a group that are not in memory. False: the client waits for them."""
    cdef RuledGroup ruled = None if options.no_ack else find_ruled(ctx, name, stream, group)
    cdef int64_t count = most_of(options)
    cdef bint is_by_key = ruled is not None and ruled.order is not None
    cdef bint waits
    if is_by_key:
        if not ask_keys(ctx, args, ruled, options.key_count + i):
            return False
        turns[i] = ask_in_turn(ctx, args, ruled, count, 2 * options.key_count + i, &waits)
        if waits:
            return False
    while True:
        if not ask_archive(
            ctx, args, name, stream, group.last_id, False, count or -1, options.max_bytes, group.name, i, parts
        ):
            return False
        if not is_by_key or parts[i] is None or ruled.order.first_free is not NULL:
            return True
        if next_archived(ctx, ruled, parts[i]):
            return True
        if parts[i].start < parts[i].stop or id_cmp(id_of(parts[i].border), MAX_ID) != 0:
            return True
        # All of them were passed over, and there are more.


cdef bint ask_history(
    Context ctx, list args, bytes name, Stream stream, Group group, bytes consumer_name, StreamID after, int64_t count,
    ArchivedPending pending, Py_ssize_t place
) except -1:
    """Read what of a consumer's history is not in memory. False: the client waits for it."""
    cdef Consumer consumer = group.find_consumer(consumer_name)
    cdef PelCursor walk
    cdef PelRecord *record
    cdef int64_t n = 0
    if consumer is None:
        return True
    id_increment(&after)
    pel_seek(&group.pel, &walk, consumer.number, after)
    record = pel_next(&walk)
    while record is not NULL and (n < count or count == 0):
        pending.add(stream, record.id)
        record = pel_next(&walk)
        n += 1
    return pending.ask(ctx, args, name, stream, place)


cdef struct GroupRead:
    int64_t now_ms
    int64_t min_idle_ms        # -1: claim nothing
    int64_t count              # of the stream that is read; 0: no limit
    bint no_ack
    bint is_alone              # an entry was delivered that a rule wants alone: nothing may follow
    Quota quota


cdef inline bint has_new(Stream stream, Group group, object part) except -1:
    """Whether the stream has entries that were never delivered to the group; part: those that are archived, or None."""
    if part is not None:
        return has_entries(stream, part, group.last_id)
    return stream.length > 0 and id_cmp(stream.last_live_id(), group.last_id) > 0


cdef inline int64_t room_of(RuledGroup ruled, Consumer consumer, const GroupRead *read) noexcept:
    """How many new entries a consumer may get, by the rule of its group. NOACK makes nothing pending."""
    return INT64_MAX if ruled is None or read.no_ack else ruled.room_of(consumer)


cdef inline bint is_ordered(RuledGroup ruled, const GroupRead *read) noexcept:
    """Whether new entries are delivered by key. NOACK knows no rules."""
    return ruled is not None and ruled.order is not None and not read.no_ack


cdef bint has_next(
    Context ctx, Stream stream, Group group, RuledGroup ruled, Consumer consumer, const GroupRead *read, object part,
    ArchivedPending turn
) except -1:
    """Whether there is an entry that `>` delivers to a consumer. One that is ordered by key passes over others."""
    if is_ordered(ruled, read):
        if room_of(ruled, consumer, read) == 0:
            return False
        return has_turn(
            ctx, ruled, group.last_id if part is None else start_in_memory(part, group.last_id), part, turn
        )
    # The order is not told of what is delivered without it.
    if group.order is not None and not read.no_ack:
        group.order = None
    return has_new(stream, group, part) and room_of(ruled, consumer, read) != 0


cdef bint has_claimable(Context ctx, Stream stream, Group group, RuledGroup ruled, const GroupRead *read) except -1:
    """Whether an entry is pending and can be claimed. Entries deleted from the stream do not count.

    Entries that a rule does not have delivered again are moved on the way.
    """
    cdef ClaimWalk walk
    cdef PelRecord *record
    cdef list used_up = None if ruled is None else []
    cdef bint has_found
    if group.pel.by_id.count == 0:
        return False
    claim_walk_init(&walk, group, ruled, read.now_ms, read.min_idle_ms)
    record = next_deliverable(&walk, ctx, ruled, used_up)
    while record is not NULL and not stream.has_entry(record.id):
        record = next_deliverable(&walk, ctx, ruled, used_up)
    has_found = record is not NULL and not (ruled is not None and ruled.is_suspect(record) and read.quota.sent)
    if used_up:
        move_all(ctx, ruled, used_up)
    return has_found


cdef int reply_history(
    ReplyWriter reply, Stream stream, Group group, Consumer consumer, StreamID after, GroupRead *read,
    ArchivedPending archived
) except -1:
    """Write the consumer's pending entries after an ID; for one no longer in the stream, its ID and a null.

    archived  those that are not in memory; None: no group reads the archive
    """
    cdef PelCursor walk
    cdef PelRecord *record
    cdef Finder finder
    cdef int64_t n = 0
    cdef int64_t pending = <int64_t>group.pending_of(consumer)
    cdef size_t opened = open_entries(reply, &read.quota, min(read.count, pending) if read.count else pending)
    finder_init(&finder)
    id_increment(&after)            # not the greatest ID, which means `>`
    pel_seek(&group.pel, &walk, consumer.number, after)
    while not has_enough_bytes(&read.quota, reply, n):
        record = pel_next(&walk)
        if record is NULL:
            break
        if find_entry(&finder, stream, record.id):
            write_entry(reply, &finder.cursor)
            count_delivery(record)
            pel_set_time(&group.pel, record, read.now_ms)
        elif archived is not None and archived.find(record.id) == ARCHIVED:
            archived.write(reply, record.id)
            count_delivery(record)
            pel_set_time(&group.pel, record, read.now_ms)
        else:
            reply.array_header(2)
            reply.bulk_id(record.id.ms, record.id.seq)
            reply.null_array()
        n += 1
        if n == read.count:
            break
    return close_entries(reply, &read.quota, opened, n)


cdef int reply_new(
    Context ctx, bytes name, Stream stream, Group group, RuledGroup ruled, Consumer consumer, GroupRead *read,
    object part, ArchivedPending turn
) except -1:
    """Write claimed entries, if claiming was requested, and then new entries, at most `count` in total.

    Between them come those that were passed over, in a group that is ordered by key.
    part  the new entries that are archived; None: memory has all
    turn  those that were passed over
    Propagates each entry that is now pending, and how far the group has read, if it has read anything new.
    """
    cdef ReplyWriter reply = ctx.reply
    cdef bytes now = number_text(<uint64_t>read.now_ms) if ctx.is_propagating else None
    cdef bytes last_id = id_text(group.last_id) if ctx.is_propagating else None      # before anything is read
    cdef StreamCursor cursor
    cdef Delivery delivery
    cdef StreamID before = group.last_id
    cdef StreamID after = before
    cdef KeyOrder order = ruled.order if is_ordered(ruled, read) else None
    cdef uint64_t own_key
    cdef bint has_more = True
    cdef bint with_idle = read.min_idle_ms >= 0
    cdef bint is_measured = read.quota.max_bytes != 0
    cdef int64_t n = 0, most = read.count if read.count else INT64_MAX
    cdef int64_t length = <int64_t>stream.length
    cdef size_t opened = open_entries(reply, &read.quota, min(read.count, length) if read.count else length)
    if with_idle:
        n = reply_claimed(ctx, name, stream, group, ruled, consumer, read)
    if ruled is not None and most - n > room_of(ruled, consumer, read):
        most = n + room_of(ruled, consumer, read)
    if order is not None and not read.is_alone:
        n += reply_passed_over(ctx, ruled, consumer, read, n, most, last_id, turn)
    if part is not None and not read.is_alone and n < most:
        delivery.now_ms, delivery.most, delivery.written = read.now_ms, 0 if most == INT64_MAX else most, n
        delivery.no_ack, delivery.with_idle = read.no_ack, with_idle
        has_more = deliver_archived(
            ctx, name, stream, group, ruled if order is not None else None, consumer, part, &read.quota, &delivery
        )
        n = delivery.written
        after = start_in_memory(part, group.last_id)
    if has_more and n < most and not read.is_alone and stream.length and id_cmp(stream.last_live_id(), after) > 0:
        id_increment(&after)        # below the last live entry, so not the greatest ID
        cursor_seek(stream, &cursor, after, MAX_ID, False)
        while not (is_measured and has_enough_bytes(&read.quota, reply, n)) and (
            cursor_next(&cursor) if order is None else next_in_turn(ctx, ruled, &cursor)
        ):
            if order is not None and find_key(cursor, order.field, &own_key):
                order.put(cursor.id, own_key, False)
            if with_idle:
                write_entry_with_idle(reply, &cursor, 0, 0)
            else:
                write_entry(reply, &cursor)
            advance(stream, group, cursor.id)
            if not read.no_ack:
                group.deliver(cursor.id, consumer, read.now_ms)
                consumer.active_ms = read.now_ms
                if now is not None:
                    propagate_pending(ctx, name, group, consumer.name, id_text(cursor.id), now, 1, last_id)
            n += 1
            if n == most:
                break
    if now is not None and id_cmp(group.last_id, before) != 0:
        propagate_position(ctx, name, group)
    return close_entries(reply, &read.quota, opened, n)


cdef int64_t reply_passed_over(
    Context ctx, RuledGroup ruled, Consumer consumer, GroupRead *read, int64_t n, int64_t most, bytes last_id,
    ArchivedPending turn
) except -1:
    """Deliver entries that were passed over and whose turn has come, until `most` are in the reply; returns how many.

    n        entries that are in the reply already
    last_id  of the group, for effects
    turn     those that are not in memory
    """
    cdef ReplyWriter reply = ctx.reply
    cdef PelRecord *record
    cdef bint is_archived
    cdef Finder finder
    cdef int64_t first = n
    finder_init(&finder)
    while n < most and not has_enough_bytes(&read.quota, reply, n):
        record = next_passed_over(ctx, ruled, &finder, turn)
        if record is NULL:
            break
        is_archived = finder.at_end or id_cmp(finder.cursor.id, record.id) != 0
        if is_archived:
            turn.write(reply, record.id, read.min_idle_ms >= 0)
        elif read.min_idle_ms >= 0:
            write_entry_with_idle(reply, &finder.cursor, 0, 0)
        else:
            write_entry(reply, &finder.cursor)
        ruled.order.put(record.id, ruled.order.find(record.id).key.hash, False, is_archived)
        pel_adopt(&ruled.group.pel, record, consumer.number, read.now_ms)
        record.delivery_count = 1
        consumer.active_ms = read.now_ms
        n += 1
        if ctx.is_propagating and is_archived:
            propagate_archived(
                ctx, ruled.key, ruled.group, consumer.name, id_text(record.id), number_text(<uint64_t>read.now_ms),
                b"1", last_id
            )
        elif ctx.is_propagating:
            propagate_pending(
                ctx, ruled.key, ruled.group, consumer.name, id_text(record.id), number_text(<uint64_t>read.now_ms), 1,
                last_id
            )
    return n - first


cdef int write_entry_with_idle(ReplyWriter reply, StreamCursor *cursor, int64_t idle_ms, int64_t deliveries) except -1:
    """An entry as XREADGROUP with CLAIM shows it: its previous pending state comes after its fields."""
    reply.array_header(4)
    reply.bulk_id(cursor.id.ms, cursor.id.seq)
    write_fields(reply, cursor)
    reply.integer(idle_ms)
    return reply.integer(deliveries)


cdef int64_t reply_claimed(
    Context ctx, bytes name, Stream stream, Group group, RuledGroup ruled, Consumer consumer, GroupRead *read
) except -1:
    """Claim entries idle for long enough for the consumer, and write them; returns how many.

    First come unowned entries, in the order in which they were returned, then the oldest deliveries. Entries that a
    rule does not have delivered again are moved.
    """
    cdef ReplyWriter reply = ctx.reply
    cdef ClaimWalk walk
    cdef PelRecord *record
    cdef Finder finder
    cdef list used_up = None if ruled is None else []
    cdef int64_t n = 0, i
    cdef size_t most = group.pel.by_id.count
    cdef PelRecord **claimed
    if most == 0:
        return 0
    if 0 < read.count < <int64_t>most:
        most = <size_t>read.count
    # A claimed entry gets the newest delivery time and moves to the end of the order walked here, where the walk would
    # meet it again: so all are written first, then all are claimed.
    claimed = <PelRecord **>malloc(most * sizeof(PelRecord *))
    if claimed is NULL:
        raise MemoryError()
    try:
        finder_init(&finder)
        claim_walk_init(&walk, group, ruled, read.now_ms, read.min_idle_ms)
        while <size_t>n < most and not read.is_alone and not has_enough_bytes(&read.quota, reply, n):
            record = next_deliverable(&walk, ctx, ruled, used_up)
            if record is NULL:
                break
            if find_entry(&finder, stream, record.id):
                if ruled is not None and ruled.is_suspect(record):
                    if n + read.quota.sent:
                        break
                    read.is_alone = True
                write_entry_with_idle(
                    reply, &finder.cursor, idle_of(record, read.now_ms), <int64_t>record.delivery_count
                )
                claimed[n] = record
                n += 1
        for i in range(n):
            group.hand_over(claimed[i], consumer, read.now_ms)
            count_delivery(claimed[i])
            consumer.active_ms = read.now_ms
            if ctx.is_propagating:
                propagate_pending(
                    ctx, name, group, consumer.name, id_text(claimed[i].id), number_text(<uint64_t>read.now_ms),
                    claimed[i].delivery_count, id_text(group.last_id)
                )
    finally:
        free(claimed)
    if used_up:
        move_all(ctx, ruled, used_up)
    if n and ruled is not None:
        signal_room(ctx, name)      # of consumers that had these entries
    return n


cdef int64_t next_claim_ms(list groups, list rules, const GroupRead *read) except -1:
    """The earliest time, in Unix ms, at which an entry that cannot be claimed now can be claimed.

    What becomes pending from now on can be claimed after the minimum idle time, and is not reported here; nor is what
    XCLAIM makes idle at once, as in Redis.
    """
    cdef int64_t wait_ms = max(read.min_idle_ms, CLAIM_RETRY_MS)
    cdef int64_t ready_ms
    for group, ruled in zip(groups, rules):
        ready_ms = next_ready_ms(<Group>group, <RuledGroup>ruled, read.now_ms, read.min_idle_ms)
        if ready_ms - read.now_ms < wait_ms:
            wait_ms = ready_ms - read.now_ms
    return min(wait_ms, INT64_MAX - read.now_ms) + read.now_ms
