# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The commands that expire fields: HEXPIRE, HTTL, HPERSIST, HGETEX, HSETEX, HGETDEL and their relatives.

Requests are read in full before anything is changed (field_arguments.pyx). Times are Unix times in ms here; a time
that has passed removes fields at once, unless the request is a copy of what another server did. Behaviour: Redis 8.6,
as seen on a running server, but for one flaw: HEXPIRE does not revive a field whose time has come.
"""

from libc.stdint cimport int64_t, uint64_t

from streamd.core.context cimport Context
from streamd.keyspace.listener cimport EVENT_HASH
from streamd.values.hashes.access cimport (
    KEPT, check_lengths, drop_if_empty, find_among, find_hash, find_hash_for_write, has_passed, note_change, put_field,
    reply_text, store_new,
)
from streamd.values.hashes.field_arguments cimport (
    IF_GREATER, IF_LESS, IF_MISSING, IF_PRESENT, FieldOptions, parse_hexpire, parse_hgetex, parse_hsetex, parse_plain,
)
from streamd.values.hashes.hash cimport (
    Hash, hash_find, hash_remove, hash_set_expiry, hash_to_timed, new_hash,
)
from streamd.values.hashes.pairs cimport NEVER, HashItem

from streamd.core.spec import KeysAt, block, command, integer, key, multiple, oneof, optional, string, token, unix_time

__all__ = []

FIELDS = block("fields", integer("numfields"), multiple(string("field")), token="FIELDS")


cdef list fields_of(list args, const FieldOptions *options):
    return args[options.first:options.first + options.count * options.step:options.step]


cdef inline bint is_past(Context ctx, int64_t at_ms) noexcept:
    """Whether fields with this expiry are removed at once."""
    return at_ms != NEVER and at_ms <= ctx.now_ms and not ctx.is_replaying


cdef int propagate_removals(Context ctx, bytes name, list fields) except -1:
    if ctx.is_propagating:
        for field in fields:
            ctx.propagate([b"HDEL", name, field])
    return 0


# --- Setting expiries -------------------------------------------------------------------------------------------------


cdef bint is_met(int condition, int64_t present, int64_t at_ms) noexcept:
    """Whether a field with the expiry `present` may get a new one. One without expiry counts as expiring last."""
    if condition == IF_MISSING:
        return present == NEVER
    if condition == IF_PRESENT:
        return present != NEVER
    if condition == IF_GREATER:
        return present != NEVER and at_ms > present
    if condition == IF_LESS:
        return present == NEVER or at_ms < present
    return True


cdef int expire_fields(Context ctx, list args, bint is_relative, int scale, str command_name) except -1:
    cdef bytes name = <bytes>args[1]
    cdef Hash hash = find_hash_for_write(ctx, name)
    cdef FieldOptions options
    cdef HashItem item
    cdef bytes field
    cdef Py_ssize_t at
    cdef uint64_t before
    cdef bint is_removing
    cdef list changed = []
    parse_hexpire(args, ctx.now_ms if is_relative else 0, scale, command_name, &options)
    is_removing = is_past(ctx, options.at_ms)
    ctx.reply.array_header(options.count)
    if hash is not None:
        before = hash.count
        hash_to_timed(hash)
    for at in range(options.first, options.first + options.count):
        field = <bytes>args[at]
        if hash is None or not hash_find(hash, field, &item) or has_passed(ctx.db, item.expire_at_ms):
            ctx.reply.integer(-2)
        elif not is_met(options.condition, item.expire_at_ms, options.at_ms):
            ctx.reply.integer(0)
        elif is_removing:
            hash_remove(hash, &item)
            changed.append(field)
            ctx.reply.integer(2)
        else:
            hash_set_expiry(hash, &item, options.at_ms)
            changed.append(field)
            ctx.reply.integer(1)
    if not changed:
        return 0
    ctx.dirty += <unsigned long long>len(changed)
    note_change(ctx.db, name, hash, before)
    if is_removing:
        propagate_removals(ctx, name, changed)
        ctx.db.event(EVENT_HASH, b"hdel", name)
        return drop_if_empty(ctx.db, name, hash)
    if ctx.is_propagating:
        ctx.propagate([
            b"HPEXPIREAT", name, b"%d" % options.at_ms, *args[3:options.first - 1], b"%d" % len(changed), *changed,
            *args[options.first + options.count:],
        ])
    return ctx.db.event(EVENT_HASH, b"hexpire", name)


CONDITION = optional(oneof("condition", token("NX"), token("XX"), token("GT"), token("LT")))


def expirer(name, time, summary):
    """Declare a command that sets the expiry of fields."""
    return command(
        name, arity=-6, group="hash", flags="write fast", keys=KeysAt(1, flags="RW update"), since="7.4.0",
        summary=summary, complexity="O(N) with N being the number of fields given",
        args=(key(), time, CONDITION, FIELDS),
    )


@expirer("HEXPIRE", integer("seconds"), "Lets fields of a hash expire after some seconds.")
def hexpire(Context ctx not None, list args not None):
    expire_fields(ctx, args, True, 1000, "hexpire")


@expirer("HPEXPIRE", integer("milliseconds"), "Lets fields of a hash expire after some milliseconds.")
def hpexpire(Context ctx not None, list args not None):
    expire_fields(ctx, args, True, 1, "hpexpire")


@expirer("HEXPIREAT", unix_time("unix-time-seconds"), "Lets fields of a hash expire at a Unix time.")
def hexpireat(Context ctx not None, list args not None):
    expire_fields(ctx, args, False, 1000, "hexpireat")


@expirer(
    "HPEXPIREAT", unix_time("unix-time-milliseconds"), "Lets fields of a hash expire at a Unix time in milliseconds."
)
def hpexpireat(Context ctx not None, list args not None):
    expire_fields(ctx, args, False, 1, "hpexpireat")


@command(
    "HPERSIST", arity=-5, group="hash", flags="write fast", keys=KeysAt(1, flags="RW update"), since="7.4.0",
    summary="Removes the expiry of fields of a hash.", complexity="O(N) with N being the number of fields given",
    args=(key(), FIELDS),
)
def hpersist(Context ctx not None, list args not None):
    cdef bytes name = <bytes>args[1]
    cdef Hash hash = find_hash_for_write(ctx, name)
    cdef FieldOptions options
    cdef HashItem item
    cdef Py_ssize_t at
    cdef bint has_changed = False
    parse_plain(args, &options)
    ctx.reply.array_header(options.count)
    for at in range(options.first, options.first + options.count):
        if hash is None or not hash_find(hash, <bytes>args[at], &item) or has_passed(ctx.db, item.expire_at_ms):
            ctx.reply.integer(-2)
        elif item.expire_at_ms == NEVER:
            ctx.reply.integer(-1)
        else:
            hash_set_expiry(hash, &item, NEVER)
            has_changed = True
            ctx.reply.integer(1)
    if has_changed:
        ctx.dirty += 1
        note_change(ctx.db, name, hash, hash.count)
        ctx.db.event(EVENT_HASH, b"hpersist", name)


# --- Reading expiries -------------------------------------------------------------------------------------------------


cdef int reply_expiries(Context ctx, list args, bint is_relative, int scale) except -1:
    cdef Hash hash = find_hash(ctx, <bytes>args[1])
    cdef FieldOptions options
    cdef HashItem item
    cdef Py_ssize_t at
    parse_plain(args, &options)
    ctx.reply.array_header(options.count)
    for at in range(options.first, options.first + options.count):
        if hash is None or not hash_find(hash, <bytes>args[at], &item) or has_passed(ctx.db, item.expire_at_ms):
            ctx.reply.integer(-2)
        elif item.expire_at_ms == NEVER:
            ctx.reply.integer(-1)
        else:
            ctx.reply.integer((item.expire_at_ms - (ctx.now_ms if is_relative else 0) + scale - 1) // scale)
    return 0


def teller(name, summary, **more):
    """Declare a command that returns the expiry of fields."""
    return command(
        name, arity=-5, group="hash", flags="readonly fast", keys=KeysAt(1), since="7.4.0", summary=summary,
        complexity="O(N) with N being the number of fields given", args=(key(), FIELDS), **more,
    )


UNSTEADY = ("nondeterministic_output",)


@teller("HTTL", "Returns after how many seconds fields of a hash expire.", tips=UNSTEADY)
def httl(Context ctx not None, list args not None):
    reply_expiries(ctx, args, True, 1000)


@teller("HPTTL", "Returns after how many milliseconds fields of a hash expire.", tips=UNSTEADY)
def hpttl(Context ctx not None, list args not None):
    reply_expiries(ctx, args, True, 1)


@teller("HEXPIRETIME", "Returns the Unix times at which fields of a hash expire.")
def hexpiretime(Context ctx not None, list args not None):
    reply_expiries(ctx, args, False, 1000)


@teller("HPEXPIRETIME", "Returns the Unix times, in milliseconds, at which fields of a hash expire.")
def hpexpiretime(Context ctx not None, list args not None):
    reply_expiries(ctx, args, False, 1)


# --- Values with their expiries ---------------------------------------------------------------------------------------

TIMES = (
    integer("seconds", "EX"), integer("milliseconds", "PX"), unix_time("unix-time-seconds", "EXAT"),
    unix_time("unix-time-milliseconds", "PXAT"),
)


@command(
    "HGETEX", arity=-5, group="hash", flags="write fast", keys=KeysAt(1, flags="RW access update"), since="8.0.0",
    summary="Returns the values of fields of a hash, and sets or removes their expiry.",
    complexity="O(N) with N being the number of fields given",
    args=(key(), optional(oneof("expiration", *TIMES, token("PERSIST"))), FIELDS),
)
def hgetex(Context ctx not None, list args not None):
    cdef bytes name = <bytes>args[1]
    cdef Hash hash = find_hash_for_write(ctx, name)
    cdef FieldOptions options
    cdef HashItem item
    cdef Py_ssize_t at, _at
    cdef bint has_expired = False, is_removing
    cdef uint64_t before
    cdef list changed = []
    parse_hgetex(args, ctx.now_ms, &options)
    is_removing = is_past(ctx, options.at_ms)
    ctx.reply.array_header(options.count)
    if hash is None:
        for _at in range(options.count):
            ctx.reply.null()
        return
    if not options.keeps:
        hash_to_timed(hash)
    for at in range(options.first, options.first + options.count):
        if not find_among(ctx.db, name, hash, <bytes>args[at], &item, &has_expired):
            ctx.reply.null()
            continue
        reply_text(ctx.reply, &item.value)
        if options.keeps or (options.at_ms == NEVER and item.expire_at_ms == NEVER):
            continue
        before = hash.count
        if is_removing:
            hash_remove(hash, &item)
        else:
            hash_set_expiry(hash, &item, options.at_ms)
        note_change(ctx.db, name, hash, before)
        changed.append(args[at])
    if has_expired:
        ctx.db.event(EVENT_HASH, b"hexpired", name)
    if changed:
        ctx.dirty += <unsigned long long>len(changed)
        if is_removing:
            propagate_removals(ctx, name, changed)
            ctx.db.event(EVENT_HASH, b"hdel", name)
        else:
            propagate_expiry(ctx, name, args, &options)
            ctx.db.event(EVENT_HASH, b"hpersist" if options.at_ms == NEVER else b"hexpire", name)
    drop_if_empty(ctx.db, name, hash)


cdef int propagate_expiry(Context ctx, bytes name, list args, const FieldOptions *options) except -1:
    """What an HGETEX did: to all the fields that were asked for, as in Redis."""
    if not ctx.is_propagating:
        return 0
    fields = [b"FIELDS", b"%d" % options.count, *fields_of(args, options)]
    if options.at_ms == NEVER:
        return ctx.propagate([b"HPERSIST", name, *fields])
    return ctx.propagate([b"HPEXPIREAT", name, b"%d" % options.at_ms, *fields])


@command(
    "HGETDEL", arity=-5, group="hash", flags="write fast", keys=KeysAt(1, flags="RW access delete"), since="8.0.0",
    summary="Returns the values of fields of a hash, and deletes them.",
    complexity="O(N) with N being the number of fields given", args=(key(), FIELDS),
)
def hgetdel(Context ctx not None, list args not None):
    cdef bytes name = <bytes>args[1]
    cdef Hash hash = find_hash_for_write(ctx, name)
    cdef FieldOptions options
    cdef HashItem item
    cdef Py_ssize_t at, _at
    cdef bint has_expired = False, has_removed = False
    cdef uint64_t before
    parse_plain(args, &options)
    ctx.reply.array_header(options.count)
    if hash is None:
        for _at in range(options.count):
            ctx.reply.null()
        return
    for at in range(options.first, options.first + options.count):
        if not find_among(ctx.db, name, hash, <bytes>args[at], &item, &has_expired):
            ctx.reply.null()
            continue
        reply_text(ctx.reply, &item.value)
        before = hash.count
        hash_remove(hash, &item)
        note_change(ctx.db, name, hash, before)
        ctx.dirty += 1
        has_removed = True
    if has_expired:
        ctx.db.event(EVENT_HASH, b"hexpired", name)
    if has_removed:
        if ctx.is_propagating:
            ctx.propagate([b"HDEL", name, *fields_of(args, &options)])
        ctx.db.event(EVENT_HASH, b"hdel", name)
    drop_if_empty(ctx.db, name, hash)


cdef bint allows(Context ctx, bytes name, Hash hash, list args, const FieldOptions *options) except -1:
    """Whether none of the fields exists (FNX), or all of them do (FXX)."""
    cdef HashItem item
    cdef Py_ssize_t at
    cdef bint has_expired = False, is_allowed = True, is_there
    for at in range(options.first, options.first + 2 * options.count, 2):
        is_there = hash is not None and find_among(ctx.db, name, hash, <bytes>args[at], &item, &has_expired)
        if is_there != (options.condition == IF_PRESENT):
            is_allowed = False
            break
    if has_expired:
        ctx.db.event(EVENT_HASH, b"hexpired", name)
        drop_if_empty(ctx.db, name, hash)
    return is_allowed


@command(
    "HSETEX", arity=-6, group="hash", flags="write denyoom fast", keys=KeysAt(1, flags="RW update"), since="8.0.0",
    summary="Sets fields of a hash with an expiry.", complexity="O(N) with N being the number of fields set",
    args=(
        key(), optional(oneof("condition", token("FNX"), token("FXX"))),
        optional(oneof("expiration", *TIMES, token("KEEPTTL"))),
        block(
            "fields", integer("numfields"), multiple(block("data", string("field"), string("value"))), token="FIELDS",
        ),
    ),
)
def hsetex(Context ctx not None, list args not None):
    cdef bytes name = <bytes>args[1]
    cdef FieldOptions options
    cdef Hash hash
    cdef bint is_new
    parse_hsetex(args, ctx.now_ms, &options)
    hash = find_hash_for_write(ctx, name)
    if options.condition and not allows(ctx, name, hash, args, &options):
        ctx.reply.integer(0)
        return
    is_new = hash is None or hash.count == 0
    if is_new:
        hash = new_hash()
    set_with_expiry(ctx, name, hash, is_new, args, &options)
    ctx.reply.integer(1)


cdef int set_with_expiry(
    Context ctx, bytes name, Hash hash, bint is_new, list args, const FieldOptions *options
) except -1:
    """Set the fields of an HSETEX. hash: not yet in the database if it is new."""
    cdef Py_ssize_t at, end = options.first + 2 * options.count
    cdef int64_t expire_at_ms = KEPT if options.keeps else options.at_ms
    cdef uint64_t before = hash.count
    cdef bint is_removing = is_past(ctx, options.at_ms)
    check_lengths(ctx, hash, args, options.first, end)
    if options.at_ms != NEVER:
        hash_to_timed(hash)
    if is_removing:
        expire_at_ms = NEVER
    for at in range(options.first, end, 2):
        put_field(ctx, hash, <bytes>args[at], <bytes>args[at + 1], expire_at_ms)
    if is_new:
        store_new(ctx, name, hash)
    else:
        note_change(ctx.db, name, hash, before)
    ctx.dirty += <unsigned long long>options.count
    ctx.db.event(EVENT_HASH, b"hset", name)
    if is_removing:
        return remove_again(ctx, name, hash, fields_of(args, options))
    if expire_at_ms < 0:
        return 0
    if ctx.is_propagating:
        ctx.propagate([
            *args[:options.time_at - 1], b"PXAT", b"%d" % expire_at_ms, *args[options.time_at + 1:],
        ])
    return ctx.db.event(EVENT_HASH, b"hexpire", name)


cdef int remove_again(Context ctx, bytes name, Hash hash, list fields) except -1:
    """Remove fields that were set with a time that has passed."""
    cdef HashItem item
    cdef uint64_t before = hash.count
    cdef bytes field
    for field in fields:
        if hash_find(hash, field, &item):
            hash_remove(hash, &item)
    note_change(ctx.db, name, hash, before)
    propagate_removals(ctx, name, fields)
    ctx.db.event(EVENT_HASH, b"hdel", name)
    return drop_if_empty(ctx.db, name, hash)
