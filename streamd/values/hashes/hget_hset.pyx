# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""HSET, HGET and the other commands on fields by name. Behaviour: Redis 8.6, as seen on a running server."""

from cpython.list cimport PyList_GET_SIZE
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memset

from streamd.core.args cimport require_int64
from streamd.core.context cimport Context
from streamd.engine.listpack cimport LpValue
from streamd.keyspace.listener cimport EVENT_HASH
from streamd.numbers cimport INT64_ROOM, put_int64, read_int64
from streamd.values.hashes.access cimport (
    check_count, check_item, check_lengths, drop_if_empty, find_among, find_hash, find_hash_for_write, find_live,
    has_passed, live_count, note_change, put_field, reply_text, report_expired, store_new,
)
from streamd.values.hashes.hash cimport (
    Hash, HashWalk, bytes_of, hash_add, hash_find, hash_next, hash_remove, hash_set, new_hash, text_in,
)
from streamd.values.hashes.pairs cimport NEVER, HashItem

from streamd.core.spec import KeysAt, block, command, double, integer, key, multiple, string
from streamd.errors import CommandError

__all__ = []

cdef extern from *:
    bint add_overflows "__builtin_add_overflow"(int64_t a, int64_t b, int64_t *sum) noexcept nogil

FIELD = string("field")


# --- Writing ----------------------------------------------------------------------------------------------------------


cdef int64_t set_fields(Context ctx, list args) except -1:
    """Store the pairs of a request; returns how many fields are new."""
    cdef bytes name = <bytes>args[1]
    cdef Hash hash = find_hash_for_write(ctx, name)
    cdef bint is_new = hash is None
    cdef Py_ssize_t at
    cdef int64_t added = 0
    cdef uint64_t before
    if is_new:
        hash = new_hash()
    before = hash.count
    check_lengths(ctx, hash, args, 2, PyList_GET_SIZE(args))
    for at in range(2, PyList_GET_SIZE(args), 2):
        added += put_field(ctx, hash, <bytes>args[at], <bytes>args[at + 1], NEVER)
    if is_new:
        store_new(ctx, name, hash)
    else:
        note_change(ctx.db, name, hash, before)
    ctx.dirty += <unsigned long long>((PyList_GET_SIZE(args) - 2) // 2)
    ctx.db.event(EVENT_HASH, b"hset", name)
    return added


def setter(name, since, summary, **more):
    """Declare HSET, or its older form."""
    return command(
        name, arity=-4, group="hash", flags="write denyoom fast", keys=KeysAt(1, flags="RW update"), since=since,
        summary=summary, complexity="O(N) with N being the number of fields set",
        args=(key(), multiple(block("data", FIELD, string("value")))), **more,
    )


@setter("HSET", "2.0.0", "Sets fields of a hash.", history=(("4.0.0", "Several fields."),))
def hset(Context ctx not None, list args not None):
    if PyList_GET_SIZE(args) & 1:
        raise CommandError("ERR wrong number of arguments for 'hset' command")
    ctx.reply.integer(set_fields(ctx, args))


@setter(
    "HMSET", "2.0.0", "Sets fields of a hash.", deprecated_since="4.0.0",
    replaced_by="`HSET` with multiple field-value pairs",
)
def hmset(Context ctx not None, list args not None):
    if PyList_GET_SIZE(args) & 1:
        raise CommandError("ERR wrong number of arguments for 'hmset' command")
    set_fields(ctx, args)
    ctx.reply.ok()


@command(
    "HSETNX", arity=4, group="hash", flags="write denyoom fast", keys=KeysAt(1, flags="RW insert"), since="2.0.0",
    summary="Sets a field of a hash that does not exist.", args=(key(), FIELD, string("value")),
)
def hsetnx(Context ctx not None, list args not None):
    cdef bytes name = <bytes>args[1]
    cdef Hash hash = find_hash_for_write(ctx, name)
    cdef HashItem item
    if hash is not None and find_live(ctx.db, name, hash, <bytes>args[2], &item):
        ctx.reply.integer(0)
        return
    set_fields(ctx, args)
    ctx.reply.integer(1)


@command(
    "HDEL", arity=-3, group="hash", flags="write fast", keys=KeysAt(1, flags="RW delete"), since="2.0.0",
    summary="Deletes fields of a hash, and the key with the last one.",
    complexity="O(N) with N being the number of fields to delete", history=(("2.4.0", "Several fields."),),
    args=(key(), multiple(FIELD)),
)
def hdel(Context ctx not None, list args not None):
    cdef bytes name = <bytes>args[1]
    cdef Hash hash = find_hash_for_write(ctx, name)
    cdef HashItem item
    cdef Py_ssize_t at
    cdef uint64_t before
    if hash is None:
        ctx.reply.integer(0)
        return
    before = hash.count
    for at in range(2, PyList_GET_SIZE(args)):
        if hash_find(hash, <bytes>args[at], &item):
            hash_remove(hash, &item)
            if hash.count == 0:
                break
    if hash.count != before:
        note_change(ctx.db, name, hash, before)
        ctx.dirty += before - hash.count
        ctx.db.event(EVENT_HASH, b"hdel", name)
        drop_if_empty(ctx.db, name, hash)
    ctx.reply.integer(<int64_t>(before - hash.count))


# --- Numbers ----------------------------------------------------------------------------------------------------------


cdef int set_field(Context ctx, bytes name, Hash hash, bytes field, LpValue value, bytes event) except -1:
    """Store the new value of one field, which keeps its expiry. hash: None if there is no key."""
    cdef HashItem item
    cdef bint is_new = hash is None
    cdef uint64_t before
    if is_new:
        hash = new_hash()
    before = hash.count
    check_item(ctx, hash, field, value)
    if hash_find(hash, field, &item):
        hash_set(hash, &item, value, item.expire_at_ms)
    else:
        hash_add(hash, text_in(field), value, NEVER)
        check_count(ctx, hash)
    if is_new:
        store_new(ctx, name, hash)
    else:
        note_change(ctx.db, name, hash, before)
    ctx.dirty += 1
    return ctx.db.event(EVENT_HASH, event, name)


@command(
    "HINCRBY", arity=4, group="hash", flags="write denyoom fast", keys=KeysAt(1, flags="RW access update"),
    since="2.0.0", summary="Adds to the number in a field of a hash; a missing field counts as 0.",
    args=(key(), FIELD, integer("increment")),
)
def hincrby(Context ctx not None, list args not None):
    cdef bytes name = <bytes>args[1]
    cdef int64_t increment = require_int64(<bytes>args[3])
    cdef int64_t number = 0
    cdef Hash hash = find_hash_for_write(ctx, name)
    cdef HashItem item
    cdef LpValue value
    if hash is not None and find_live(ctx.db, name, hash, <bytes>args[2], &item):
        if item.value.data is NULL:
            number = item.value.number
        elif not read_int64(<const char *>item.value.data, item.value.length, &number):
            raise CommandError("ERR hash value is not an integer")
    if hash is not None and hash.count == 0:
        hash = None                 # its last field had expired
    if add_overflows(number, increment, &number):
        raise CommandError("ERR increment or decrement would overflow")
    value.data = NULL
    value.number = number
    set_field(ctx, name, hash, <bytes>args[2], value, b"hincrby")
    ctx.reply.integer(number)


@command(
    "HINCRBYFLOAT", arity=4, group="hash", flags="write denyoom fast", keys=KeysAt(1, flags="RW access update"),
    since="2.6.0", summary="Adds to the floating-point number in a field of a hash; a missing field counts as 0.",
    args=(key(), FIELD, double("increment")),
)
def hincrbyfloat(Context ctx not None, list args not None):
    cdef bytes name = <bytes>args[1]
    cdef Hash hash
    cdef HashItem item
    from streamd.long_double import LongDouble      # fractions take memory that most servers do not need

    increment = LongDouble.parse(<bytes>args[3])
    if increment is None:
        raise CommandError("ERR value is not a valid float")
    if not increment.is_finite:
        raise CommandError("ERR value is NaN or Infinity")
    hash = find_hash_for_write(ctx, name)
    number = LongDouble()
    if hash is not None and find_live(ctx.db, name, hash, <bytes>args[2], &item):
        number = LongDouble.parse(bytes_of(&item.value))
        if number is None:
            raise CommandError("ERR hash value is not a float")
    if hash is not None and hash.count == 0:
        hash = None
    total = number + increment
    if not total.is_finite:
        raise CommandError("ERR increment would produce NaN or Infinity")
    text = total.format()
    set_field(ctx, name, hash, <bytes>args[2], text_in(<bytes>text), b"hincrbyfloat")
    if ctx.is_propagating:
        ctx.propagate([b"HSETEX", name, b"KEEPTTL", b"FIELDS", b"1", <bytes>args[2], text])
    ctx.reply.bulk(text)


# --- Reading ----------------------------------------------------------------------------------------------------------


@command(
    "HGET", arity=3, group="hash", flags="readonly fast", keys=KeysAt(1), since="2.0.0",
    summary="Returns the value of a field of a hash.", args=(key(), FIELD),
)
def hget(Context ctx not None, list args not None):
    cdef Hash hash = find_hash(ctx, <bytes>args[1])
    cdef HashItem item
    if hash is not None and find_live(ctx.db, <bytes>args[1], hash, <bytes>args[2], &item):
        reply_text(ctx.reply, &item.value)
    else:
        ctx.reply.null()


@command(
    "HMGET", arity=-3, group="hash", flags="readonly fast", keys=KeysAt(1), since="2.0.0",
    summary="Returns the values of fields of a hash.", complexity="O(N) with N being the number of fields",
    args=(key(), multiple(FIELD)),
)
def hmget(Context ctx not None, list args not None):
    cdef bytes name = <bytes>args[1]
    cdef Hash hash = find_hash(ctx, name)
    cdef HashItem item
    cdef bint has_removed = False
    cdef Py_ssize_t at, n = PyList_GET_SIZE(args)
    ctx.reply.array_header(n - 2)
    for at in range(2, n):
        if hash is not None and find_among(ctx.db, name, hash, <bytes>args[at], &item, &has_removed):
            reply_text(ctx.reply, &item.value)
        else:
            ctx.reply.null()
    if has_removed:
        report_expired(ctx.db, name, hash)


@command(
    "HEXISTS", arity=3, group="hash", flags="readonly fast", keys=KeysAt(1, flags="RO"), since="2.0.0",
    summary="Returns whether a field of a hash exists.", args=(key(), FIELD),
)
def hexists(Context ctx not None, list args not None):
    cdef Hash hash = find_hash(ctx, <bytes>args[1])
    cdef HashItem item
    ctx.reply.integer(hash is not None and find_live(ctx.db, <bytes>args[1], hash, <bytes>args[2], &item))


@command(
    "HSTRLEN", arity=3, group="hash", flags="readonly fast", keys=KeysAt(1, flags="RO"), since="3.2.0",
    summary="Returns the length of the value of a field of a hash.", args=(key(), FIELD),
)
def hstrlen(Context ctx not None, list args not None):
    cdef Hash hash = find_hash(ctx, <bytes>args[1])
    cdef HashItem item
    cdef char digits[INT64_ROOM]
    cdef int64_t length = 0
    if hash is not None and find_live(ctx.db, <bytes>args[1], hash, <bytes>args[2], &item):
        if item.value.data is NULL:
            length = <int64_t>put_int64(digits, item.value.number)
        else:
            length = <int64_t>item.value.length
    ctx.reply.integer(length)


@command(
    "HLEN", arity=2, group="hash", flags="readonly fast", keys=KeysAt(1, flags="RO"), since="2.0.0",
    summary="Returns the number of fields of a hash.", args=(key(),),
)
def hlen(Context ctx not None, list args not None):
    cdef Hash hash = find_hash(ctx, <bytes>args[1])
    ctx.reply.integer(0 if hash is None else <int64_t>hash.count)


cdef int reply_all(Context ctx, Hash hash, bint has_fields, bint has_values) except -1:
    """The fields of a hash that have not expired."""
    cdef HashWalk walk
    cdef HashItem item
    cdef int64_t count
    if hash is None:
        return ctx.reply.map(0) if has_fields and has_values else ctx.reply.array_header(0)
    count = <int64_t>live_count(ctx.db, hash)
    if has_fields and has_values:
        ctx.reply.map(count)
    else:
        ctx.reply.array_header(count)
    memset(&walk, 0, sizeof(walk))
    while hash_next(hash, &walk, &item):
        if has_passed(ctx.db, item.expire_at_ms):
            continue
        if has_fields:
            reply_text(ctx.reply, &item.field)
        if has_values:
            reply_text(ctx.reply, &item.value)
    return 0


def reader(name, summary):
    """Declare a command that returns all fields, all values, or both."""
    return command(
        name, arity=2, group="hash", flags="readonly", keys=KeysAt(1), since="2.0.0", summary=summary,
        complexity="O(N) with N being the number of fields", tips=("nondeterministic_output_order",), args=(key(),),
    )


@reader("HGETALL", "Returns all fields of a hash with their values.")
def hgetall(Context ctx not None, list args not None):
    reply_all(ctx, find_hash(ctx, <bytes>args[1]), True, True)


@reader("HKEYS", "Returns all fields of a hash.")
def hkeys(Context ctx not None, list args not None):
    reply_all(ctx, find_hash(ctx, <bytes>args[1]), True, False)


@reader("HVALS", "Returns all values of a hash.")
def hvals(Context ctx not None, list args not None):
    reply_all(ctx, find_hash(ctx, <bytes>args[1]), False, True)
