# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The commands that write the head and tail of a stream: XADD, XTRIM, XSETID, XCFGSET, XIDMPRECORD.

Each handler reads the whole request, then looks up the key, then checks the request against it, then changes the
stream. The order of the checks is Redis's (8.6, as seen on a running server): it decides which error a request with
several faults gets. XADD is the hot path: its options are C fields, and a request without options sets none of them.
"""

from cpython.bytes cimport PyBytes_AS_STRING
from cpython.list cimport PyList_GET_SIZE
from libc.stdint cimport UINT64_MAX, int64_t, uint64_t
from libc.string cimport memset

from streamd.core.args cimport is_word, parse_id, require_id, require_int64
from streamd.core.context cimport Context
from streamd.engine.ids cimport StreamID, id_cmp, id_is_zero, make_id
from streamd.engine.rax cimport load_be64, rax_first
from streamd.keyspace.listener cimport EVENT_STREAM
from streamd.values.streams.arguments cimport (
    argument, find_stream_for_write, id_text, new_stream, note_change, number_text,
)
from streamd.values.streams.ruled_group cimport has_rules, signal_room
from streamd.values.streams.stream cimport (
    ACKED, DELREF, KEEPREF, TRIM_MAXLEN, TRIM_MINID, TRIM_NONE, RefPolicy, Stream, StreamCursor, StreamNode, TrimRule,
    cursor_next, cursor_seek,
)
from streamd.values.streams.rule_timer cimport replace_waiting

from streamd.core.spec import KeysAt, block, command, integer, key, multiple, oneof, optional, string, token
from streamd.entry_id import parse_id as parse_id_text
from streamd.errors import CommandError, NoSuchKeyError, OptionSyntaxError
from streamd.values.streams.idempotency import Idempotency, automatic_iid, registry_of

__all__ = ["parse_xadd", "parse_xtrim"]

cdef bytes LAST_ID = b"18446744073709551615-18446744073709551615"


cdef inline bint is_char_before_nul(bytes text, char c) noexcept:
    """Whether the text is this character; as in Redis, a NUL byte ends it."""
    cdef const char *p = PyBytes_AS_STRING(text)
    return p[0] == c and p[1] == 0


# --- Options of XADD and XTRIM ----------------------------------------------------------------------------------------

# How an entry gets its ID.
cdef enum IDKind:
    AUTO_ID = 0            # `*`: the whole ID is generated
    AUTO_SEQ = 1           # `ms-*`: the sequence number is generated
    GIVEN_ID = 2


cdef struct AddOptions:
    TrimRule trim
    bint has_policy            # a trim policy was given
    bint has_limit             # LIMIT was given, perhaps as 0
    bint no_mkstream           # do not create the key
    IDKind id_kind
    StreamID id                # as far as given
    Py_ssize_t threshold_at    # index of the trim threshold
    Py_ssize_t id_at           # index of the ID in the arguments; the number of arguments when missing
    Py_ssize_t pid_at          # index of the producer's ID; 0: not idempotent
    Py_ssize_t iid_at          # index of the idempotent ID; 0: derived from the entry


cdef int parse_options(list args, bint is_xadd, bint is_replaying, AddOptions *out) except -1:
    """Read the options from argument 2 on, for XADD up to and including the ID; `out` must be zeroed.

    is_replaying  the request has been run before, and its ID and threshold are the results: options that would conflict
                  with them in a new request are accepted
    """
    cdef Py_ssize_t argc = PyList_GET_SIZE(args)
    cdef Py_ssize_t i = 2, left
    cdef bytes word
    out.id_at = argc
    while i < argc:
        word = argument(args, i)
        left = argc - i - 1
        if is_xadd and is_char_before_nul(word, c'*'):
            out.id_at = i
            break
        if left and (is_word(word, b"MAXLEN") or is_word(word, b"MINID")):
            i = parse_threshold(args, i, &out.trim)
            out.threshold_at = i
        elif left and is_word(word, b"LIMIT"):
            i += 1
            out.trim.limit = require_not_negative(argument(args, i), "LIMIT")
            out.has_limit = True
        elif not out.has_policy and parse_policy(word, &out.trim.policy):
            out.has_policy = True
        elif not is_xadd:
            raise OptionSyntaxError()
        elif is_word(word, b"NOMKSTREAM"):
            out.no_mkstream = True
        elif left >= 2 and is_word(word, b"IDMP"):
            require_idempotence(out, argument(args, i + 1), argument(args, i + 2), "IDMP")
            out.pid_at = i + 1
            out.iid_at = i + 2
            i += 2
        elif left and is_word(word, b"IDMPAUTO"):
            require_idempotence(out, argument(args, i + 1), None, "IDMPAUTO")
            out.pid_at = i + 1
            i += 1
        else:
            # The first word that is not an option is the ID.
            parse_new_id(word, out)
            out.id_at = i
            if out.pid_at and not is_replaying:
                raise CommandError("ERR syntax error, IDMP/IDMPAUTO can be used only with auto-generated IDs")
            break
        i += 1
    return check_limit(out, is_xadd, is_replaying)


cdef Py_ssize_t parse_threshold(list args, Py_ssize_t i, TrimRule *out) except -1:
    """Read `MAXLEN|MINID [=|~] threshold` at argument i, which must not be the last; returns the threshold's index."""
    cdef bint by_id = is_word(argument(args, i), b"MINID")
    cdef bytes following = argument(args, i + 1)
    if out.strategy != TRIM_NONE:
        raise CommandError("ERR syntax error, MAXLEN and MINID options at the same time are not compatible")
    if i + 2 < PyList_GET_SIZE(args) and (is_char_before_nul(following, c'~') or is_char_before_nul(following, c'=')):
        out.approximate = is_char_before_nul(following, c'~')
        i += 1
    i += 1
    if by_id:
        require_id(argument(args, i), &out.min_id)
        out.strategy = TRIM_MINID
    else:
        out.max_length = require_not_negative(argument(args, i), "MAXLEN")
        out.strategy = TRIM_MAXLEN
    return i


cdef bint parse_policy(bytes word, RefPolicy *out) noexcept:
    """Read a policy; False when the word is not a policy."""
    if is_word(word, b"KEEPREF"):
        out[0] = KEEPREF
    elif is_word(word, b"DELREF"):
        out[0] = DELREF
    elif is_word(word, b"ACKED"):
        out[0] = ACKED
    else:
        return False
    return True


cdef uint64_t require_not_negative(bytes text, str name) except? 0:
    cdef long long number = require_int64(text)
    if number < 0:
        raise CommandError(f"ERR The {name} argument must be >= 0.")
    return <uint64_t>number


cdef int require_idempotence(const AddOptions *so_far, bytes pid, bytes iid, str name) except -1:
    """Raise when the producer ID and idempotent ID (None: derived from the entry) are invalid for an entry."""
    if so_far.pid_at:
        raise CommandError("ERR syntax error, IDMP/IDMPAUTO specified multiple times")
    if not pid:
        raise CommandError(f"ERR syntax error, {name} requires a non-empty producer ID")
    if iid is not None and not iid:
        raise CommandError(f"ERR syntax error, {name} requires a non-empty idempotent ID")
    return 0


cdef int parse_new_id(bytes text, AddOptions *out) except -1:
    """Read an ID or `ms-*`; raises InvalidIDError."""
    out.id_kind = GIVEN_ID
    if parse_id(text, &out.id):
        return 0
    ms, dash, seq = text.partition(b"\0")[0].partition(b"-")
    pair = parse_id_text(ms) if dash and seq == b"*" else None
    if pair is None:
        return require_id(text, &out.id)
    out.id = make_id(pair[0], 0)
    out.id_kind = AUTO_SEQ
    return 0


cdef int check_limit(const AddOptions *options, bint is_xadd, bint is_replaying) except -1:
    """Raise when LIMIT, or for XTRIM the strategy, conflicts with the rest."""
    if options.trim.strategy == TRIM_NONE:
        if options.trim.limit:
            raise CommandError("ERR syntax error, LIMIT cannot be used without specifying a trimming strategy")
        if not is_xadd:
            raise CommandError("ERR syntax error, XTRIM must be called with a trimming strategy")
    if options.has_limit and not options.trim.approximate and not is_replaying:
        raise CommandError("ERR syntax error, LIMIT cannot be used without the special ~ option")
    return 0


cdef inline void set_limit(Context ctx, AddOptions *options) noexcept:
    """Without LIMIT, an approximate trim removes no more than about a hundred nodes; when replayed, it has no limit."""
    cdef uint64_t entries = ctx.stream_node_max_entries
    if ctx.is_replaying:
        options.trim.limit = 0
    elif options.trim.approximate and not options.has_limit:
        options.trim.limit = 10_000 if entries == 0 else 1_000_000 if entries > 10_000 else 100 * entries


def parse_xadd(list args not None):
    """The options of an XADD request as a dict, for tests; raises CommandError."""
    cdef AddOptions options
    memset(&options, 0, sizeof(options))
    parse_options(args, True, False, &options)
    return options


def parse_xtrim(list args not None):
    """The options of an XTRIM request as a dict, for tests; raises CommandError."""
    cdef AddOptions options
    memset(&options, 0, sizeof(options))
    parse_options(args, False, False, &options)
    return options


# --- Options in COMMAND DOCS ------------------------------------------------------------------------------------------

POLICY = optional(oneof("condition", token("KEEPREF"), token("DELREF"), token("ACKED")))
TRIMMING = (
    oneof("strategy", token("MAXLEN"), token("MINID", since="6.2.0")),
    optional(oneof("operator", token("=", "equal"), token("~", "approximately"))),
    string("threshold"),
    optional(integer("count", "LIMIT"), since="6.2.0"),
)
IDEMPOTENCE = optional(
    oneof(
        "idmp",
        block("idmpauto-with-pid", token("IDMPAUTO", "idmpauto-token"), string("pid")),
        block("idmp-with-pid-iid", token("IDMP", "idmp-token"), string("pid"), string("iid")),
    )
)
TRIM_HISTORY = ("6.2.0", "New: the MINID strategy, and LIMIT.")
POLICY_HISTORY = ("8.2.0", "New: KEEPREF, DELREF and ACKED.")


# --- XADD -------------------------------------------------------------------------------------------------------------


@command(
    "XADD", arity=-5, group="stream", flags="write denyoom fast",
    keys=KeysAt(1, flags="RW update", notes="UPDATE instead of INSERT because of the optional trimming feature"),
    since="5.0.0", tips=("nondeterministic_output",),
    summary="Adds an entry at the end of a stream, and creates the stream if it does not exist.",
    complexity="O(1) for the entry; O(N) for trimming, with N the entries that are removed.",
    history=(
        ("6.2.0", "New: NOMKSTREAM, the MINID strategy, and LIMIT."),
        ("7.0.0", "An ID may be given as `<ms>-*`."),
        POLICY_HISTORY,
    ),
    args=(
        key(),
        optional(token("NOMKSTREAM"), since="6.2.0"),
        POLICY,
        IDEMPOTENCE,
        optional(block("trim", *TRIMMING)),
        oneof("id-selector", token("*", "auto-id"), string("id")),
        multiple(block("data", string("field"), string("value"))),
    ),
)
def xadd(Context ctx not None, list args not None):
    cdef AddOptions options
    cdef bytes name = argument(args, 1)
    cdef Stream stream
    cdef StreamID id
    cdef bint is_new
    cdef Py_ssize_t fields
    cdef bytes pid = None, iid = None
    memset(&options, 0, sizeof(options))
    if is_char_before_nul(argument(args, 2), c'*'):
        options.id_at = 2
    else:
        parse_options(args, True, ctx.is_replaying, &options)
    fields = PyList_GET_SIZE(args) - options.id_at - 1
    if fields < 2 or fields % 2:
        raise CommandError("ERR wrong number of arguments for 'xadd' command")
    if options.id_kind == GIVEN_ID and id_is_zero(options.id):
        raise CommandError("ERR The ID specified in XADD must be greater than 0-0")
    stream = find_stream_for_write(ctx, name)
    is_new = stream is None
    if is_new:
        if options.no_mkstream:
            ctx.reply.null()
            return
        stream = new_stream(ctx)
    if options.pid_at:
        pid = argument(args, options.pid_at)
        iid = argument(args, options.iid_at) if options.iid_at else iid_of(args, options.id_at + 1)
        if answer_duplicate(ctx, stream, pid, iid, options.id_kind):
            return
    id = options.id
    choose_id(ctx, stream, options.id_kind, &id)
    stream.node_max_bytes = ctx.stream_node_max_bytes
    stream.node_max_entries = ctx.stream_node_max_entries
    try:
        stream.append_args(id, args, options.id_at + 1)
    except OverflowError:
        raise CommandError("ERR Elements are too large to be stored") from None
    if is_new:
        ctx.db.add(name, stream)
    if pid is not None:
        remember(ctx, stream, pid, iid, id)
    ctx.db.touched(name)
    ctx.db.event(EVENT_STREAM, b"xadd", name)
    if options.trim.strategy != TRIM_NONE:
        set_limit(ctx, &options)
        if stream.trim_by(&options.trim):
            ctx.db.event(EVENT_STREAM, b"xtrim", name)
            free_trimmed(ctx, stream)
    ctx.dirty += 1
    if ctx.is_propagating and (options.id_kind != GIVEN_ID or options.trim.approximate):
        propagate_exact(ctx, args, &options, stream, id)
    if ctx.db.listener.wants_touched and has_rules(ctx):        # a stream has a rule of its own, or is watched
        replace_waiting(ctx, name, args)
    ctx.db.signal_ready(name)
    ctx.reply.bulk_id(id.ms, id.seq)


cdef int free_trimmed(Context ctx, Stream stream) except -1:
    """Release the nodes that a trim took out, if there were enough of them to defer freeing."""
    if stream.trimmed is not None:
        ctx.db.trash.release(stream.trimmed, 0)
        stream.trimmed = None
    return 0


cdef int choose_id(Context ctx, Stream stream, IDKind kind, StreamID *id) except -1:
    """Complete the ID of a new entry, and check that it is valid as the next one."""
    cdef StreamID last = stream.last_id
    if last.ms == UINT64_MAX and last.seq == UINT64_MAX:
        raise CommandError("ERR The stream has exhausted the last possible ID, unable to add more items")
    if kind == AUTO_ID:
        stream.next_id(ctx.now_ms, id)
        return 0
    if kind == AUTO_SEQ and id.ms == last.ms and last.seq != UINT64_MAX:
        id.seq = last.seq + 1
    if id_cmp(id[0], last) <= 0:
        raise CommandError("ERR The ID specified in XADD is equal or smaller than the target stream top item")
    return 0


cdef int propagate_exact(Context ctx, list args, const AddOptions *options, Stream stream, StreamID id) except -1:
    """Propagate XADD or XTRIM with the open choices resolved: the ID, and how far the trim went.

    id  for XADD: the ID that the entry got
    """
    cdef list exact = args[:]
    if options.id_kind != GIVEN_ID:
        exact[options.id_at] = id_text(id)
    if options.trim.approximate:
        exact[options.threshold_at - 1] = b"="
        exact[options.threshold_at] = threshold_reached(stream, &options.trim)
    ctx.propagate(exact)
    return 0


cdef bytes threshold_reached(Stream stream, const TrimRule *rule):
    """The threshold of an exact trim that removes what an approximate one has just removed, and nothing else."""
    cdef StreamCursor cursor
    cdef const StreamNode *first
    if rule.strategy == TRIM_MAXLEN:
        return number_text(stream.length)
    if rule.policy == KEEPREF:
        # Whole nodes were removed: up to the first entry of the first node, which may be a tombstone.
        first = <const StreamNode *>rax_first(&stream.nodes)
        return LAST_ID if first is NULL else id_text(make_id(load_be64(first.key), load_be64(first.key + 8)))
    # Entries were removed one by one. Redis propagates the same as above, so its replicas keep entries it has removed.
    if stream.length == 0:
        return LAST_ID
    if rule.policy == ACKED and id_cmp(stream.first_id, rule.min_id) < 0:
        # Those still needed by groups were skipped, so the first entry does not show how far the trim went. It went up
        # to the first one that it could have removed.
        cursor_seek(stream, &cursor, stream.first_id, rule.min_id, False)
        while cursor_next(&cursor) and id_cmp(cursor.id, rule.min_id) < 0:
            if not stream.is_referenced(cursor.id):
                return id_text(cursor.id)
        return id_text(rule.min_id)
    return id_text(stream.first_id)


# Idempotent producers


cdef bytes iid_of(list args, Py_ssize_t first):
    """The IID that IDMPAUTO derives from the fields and values from argument `first` on."""
    return automatic_iid(zip(args[first::2], args[first + 1::2]))


cdef bint answer_duplicate(Context ctx, Stream stream, bytes pid, bytes iid, IDKind kind) except -1:
    """If this entry was sent before, reply with the ID that it got then.

    For a replayed request, the ID shows whether it was a duplicate: an entry that was added has its ID. The remembered
    IIDs do not, because an IID may have expired before it was used again.
    """
    if ctx.is_replaying and kind != AUTO_ID:
        return False
    found = None if stream.idempotency is None else stream.idempotency.find(pid, iid)
    if found is None:
        if not ctx.is_replaying:
            return False
        found = 0, 0
    stream.iids_duplicates += 1
    ctx.dirty += 1
    ctx.reply.bulk_id(found[0], found[1])
    return True


cdef int remember(Context ctx, Stream stream, bytes pid, bytes iid, StreamID id) except -1:
    """Remember the entry as sent by `pid` with `iid`."""
    if stream.idempotency is None:
        stream.idempotency = Idempotency(registry_of(ctx), stream.idmp_duration, stream.idmp_maxsize)
    stream.idempotency.record(pid, iid, (id.ms, id.seq))
    stream.iids_added += 1
    return 0


@command(
    "XIDMPRECORD", arity=5, group="stream", flags="write denyoom fast", keys=KeysAt(1, flags="RW update"),
    since="8.6.2",
    summary="Records the idempotent ID of an existing entry; used in files.",
    args=(key(), string("pid"), string("iid"), string("stream-id")),
)
def xidmprecord(Context ctx not None, list args not None):
    cdef bytes pid = argument(args, 2), iid = argument(args, 3)
    cdef StreamID id
    cdef Stream stream
    require_id(argument(args, 4), &id)
    if not pid:
        raise CommandError("ERR producer ID must be non-empty")
    if not iid:
        raise CommandError("ERR idempotent ID must be non-empty")
    stream = get_stream(ctx, argument(args, 1))
    if not stream.has_entry(id):
        raise CommandError("ERR No such message in stream")
    found = None if stream.idempotency is None else stream.idempotency.find(pid, iid)
    if found is None:
        remember(ctx, stream, pid, iid, id)
        ctx.dirty += 1
        note_change(ctx, argument(args, 1))
    elif found != (id.ms, id.seq):
        raise CommandError("ERR IID already exists for this producer with a different stream ID")
    ctx.reply.ok()


@command(
    "XCFGSET", arity=-2, group="stream", flags="write fast", keys=KeysAt(1, flags="RW update"), since="8.6.0",
    summary="Sets how many idempotent IDs a stream remembers, and for how long.",
    args=(
        key(),
        optional(block("idmp-duration-block", token("IDMP-DURATION", "idmp-duration-token"), integer("duration"))),
        optional(block("idmp-maxsize-block", token("IDMP-MAXSIZE", "idmp-maxsize-token"), integer("maxsize"))),
    ),
)
def xcfgset(Context ctx not None, list args not None):
    cdef Stream stream = get_stream(ctx, argument(args, 1))
    cdef long long duration = 0, maxsize = 0
    cdef Py_ssize_t i
    cdef bytes word
    for i in range(2, PyList_GET_SIZE(args), 2):
        word = argument(args, i)
        if i + 1 < PyList_GET_SIZE(args) and is_word(word, b"IDMP-DURATION"):
            if duration:
                raise CommandError("ERR IDMP-DURATION specified multiple times")
            duration = require_int64(argument(args, i + 1))
            if not 1 <= duration <= 86400:
                raise CommandError("ERR IDMP-DURATION must be between 1 and 86400 seconds")
        elif i + 1 < PyList_GET_SIZE(args) and is_word(word, b"IDMP-MAXSIZE"):
            if maxsize:
                raise CommandError("ERR IDMP-MAXSIZE specified multiple times")
            maxsize = require_int64(argument(args, i + 1))
            if not 1 <= maxsize <= 10000:
                raise CommandError("ERR IDMP-MAXSIZE must be between 1 and 10000 entries")
        else:
            raise OptionSyntaxError()
    if not duration and not maxsize:
        raise CommandError("ERR At least one parameter must be specified")
    if stream.configure_idempotency(duration or stream.idmp_duration, maxsize or stream.idmp_maxsize):
        ctx.dirty += 1
        note_change(ctx, argument(args, 1))
    ctx.reply.ok()


# --- XTRIM ----------------------------------------------------------------------------------------------------------


@command(
    "XTRIM", arity=-4, group="stream", flags="write", keys=KeysAt(1, flags="RW delete"), since="5.0.0",
    tips=("nondeterministic_output",),
    summary="Removes entries from the beginning of a stream.",
    complexity="O(N) with N the entries that are removed; nearly all of them go a whole node at a time.",
    history=(TRIM_HISTORY, POLICY_HISTORY),
    args=(key(), block("trim", *TRIMMING, POLICY)),
)
def xtrim(Context ctx not None, list args not None):
    cdef AddOptions options
    cdef Stream stream
    cdef int64_t removed = 0
    memset(&options, 0, sizeof(options))
    parse_options(args, False, ctx.is_replaying, &options)
    options.id_kind = GIVEN_ID
    stream = find_stream_for_write(ctx, argument(args, 1))
    if stream is not None:
        set_limit(ctx, &options)
        removed = stream.trim_by(&options.trim)
        free_trimmed(ctx, stream)
    if removed:
        ctx.dirty += <unsigned long long>removed
        ctx.db.touched(argument(args, 1))
        ctx.db.event(EVENT_STREAM, b"xtrim", argument(args, 1))
        signal_room(ctx, argument(args, 1))
        if ctx.is_propagating and options.trim.approximate:
            propagate_exact(ctx, args, &options, stream, options.id)
    ctx.reply.integer(removed)


# --- XSETID -----------------------------------------------------------------------------------------------------------


@command(
    "XSETID", arity=-3, group="stream", flags="write denyoom fast", keys=KeysAt(1, flags="RW update"), since="5.0.0",
    summary="Sets the last ID and the counters of a stream; meant for replication and files.",
    history=(("7.0.0", "New: ENTRIESADDED and MAXDELETEDID."),),
    args=(
        key(),
        string("last-id"),
        optional(integer("entries-added", "ENTRIESADDED"), since="7.0.0"),
        optional(string("max-deleted-id", "MAXDELETEDID"), since="7.0.0"),
    ),
)
def xsetid(Context ctx not None, list args not None):
    cdef StreamID id, max_deleted = make_id(0, 0)
    cdef long long entries_added = -1
    cdef Py_ssize_t i
    cdef bytes word
    cdef Stream stream
    require_id(argument(args, 2), &id)
    for i in range(3, PyList_GET_SIZE(args), 2):
        word = argument(args, i)
        if i + 1 == PyList_GET_SIZE(args):
            raise OptionSyntaxError()
        if is_word(word, b"ENTRIESADDED"):
            entries_added = require_int64(argument(args, i + 1))
            if entries_added < 0:
                raise CommandError("ERR entries_added must be positive")
        elif is_word(word, b"MAXDELETEDID"):
            require_id(argument(args, i + 1), &max_deleted)
            if id_cmp(id, max_deleted) < 0:
                raise CommandError("ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id")
        else:
            raise OptionSyntaxError()
    stream = get_stream(ctx, argument(args, 1))
    if id_cmp(id, stream.max_deleted_id) < 0:
        raise CommandError("ERR The ID specified in XSETID is smaller than current max_deleted_entry_id")
    if id_cmp(id, stream.last_live) < 0:
        raise CommandError("ERR The ID specified in XSETID is smaller than the target stream top item")
    if 0 <= entries_added < <long long>stream.length:
        raise CommandError("ERR The entries_added specified in XSETID is smaller than the target stream length")
    stream.last_id = id
    if entries_added >= 0:
        stream.set_entries_added(<uint64_t>entries_added)
    if not id_is_zero(max_deleted):
        stream.max_deleted_id = max_deleted
    ctx.dirty += 1
    note_change(ctx, argument(args, 1))
    ctx.db.event(EVENT_STREAM, b"xsetid", argument(args, 1))
    ctx.reply.ok()


cdef Stream get_stream(Context ctx, bytes name):
    """The stream at a key that must exist."""
    cdef Stream stream = find_stream_for_write(ctx, name)
    if stream is None:
        raise NoSuchKeyError()
    return stream
