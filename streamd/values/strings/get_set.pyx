# cython: language_level=3, boundscheck=False, wraparound=False
"""GET, SET and the counters: the commands on strings that programs run most, also in the loops of scripts.

Compiled, so that they cost little more than their request. Behaviour: Redis 8.6, as seen on a running server.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport INT64_MIN, int64_t

from streamd.core.args cimport require_int64
from streamd.core.context cimport Context
from streamd.core.spec import KeysAt, command, integer, key, oneof, optional, string, token
from streamd.values.strings.set_options import EXPIRATIONS, SetOptions
from streamd.values.strings.string_commands import set_with_options
from streamd.errors import CommandError
from streamd.numbers cimport INT64_ROOM, put_int64
from streamd.values.strings.stored cimport change_string, find_string, find_string_for_write, set_string

__all__ = ["decr", "decrby", "get", "incr", "incrby", "set_"]

cdef extern from *:
    bint add_overflows "__builtin_add_overflow"(int64_t a, int64_t b, int64_t *sum) noexcept nogil


@command(
    "SET", arity=-3, group="string", flags="write denyoom", since="1.0.0",
    keys=KeysAt(1, flags="RW access update variable_flags", notes="GET reads the key, comparisons too; otherwise OW"),
    key_flags=SetOptions.key_flags,
    summary="Stores a string under a key, and replaces a value of any type.",
    history=(
        ("2.6.12", "`EX`, `PX`, `NX` and `XX`."),
        ("6.0.0", "`KEEPTTL`."),
        ("6.2.0", "`GET`, `EXAT` and `PXAT`."),
        ("7.0.0", "`NX` and `GET` may stand together."),
        ("8.4.0", "`IFEQ`, `IFNE`, `IFDEQ` and `IFDNE`."),
    ),
    args=(
        key(), string("value"),
        optional(oneof(
            "condition", token("NX"), token("XX"),
            string("ifeq-value", "IFEQ", since="8.4.0"), string("ifne-value", "IFNE", since="8.4.0"),
            integer("ifdeq-digest", "IFDEQ", since="8.4.0"), integer("ifdne-digest", "IFDNE", since="8.4.0"),
            since="2.6.12",
        )),
        optional(token("GET"), since="6.2.0"),
        optional(oneof("expiration", *EXPIRATIONS, token("KEEPTTL", since="6.0.0"))),
    ),
)
def set_(Context ctx not None, list args not None):
    if len(args) == 3:
        set_string(ctx.db, <bytes>args[1], <bytes>args[2])
        ctx.dirty += 1
        ctx.reply.ok()
    else:
        set_with_options(ctx, args)


@command(
    "GET", arity=2, group="string", flags="readonly fast", keys=KeysAt(1), since="1.0.0",
    summary="Returns the string that a key holds.", args=(key(),),
)
def get(Context ctx not None, list args not None):
    ctx.reply.bulk(find_string(ctx.db, <bytes>args[1]))


cdef int increase(Context ctx, bytes name, int64_t increment) except -1:
    """Add to the number under a key."""
    cdef char digits[INT64_ROOM]
    cdef int64_t number = 0
    cdef bytes value = find_string_for_write(ctx.db, name)
    if value is not None:
        number = require_int64(value)
    if add_overflows(number, increment, &number):
        raise CommandError("ERR increment or decrement would overflow")
    change_string(ctx.db, name, PyBytes_FromStringAndSize(digits, <Py_ssize_t>put_int64(digits, number)), b"incrby")
    ctx.dirty += 1
    return ctx.reply.integer(number)


def counter(name, since, summary, *more, arity=2):
    """Declare a command that adds to a number."""
    return command(
        name, arity=arity, group="string", flags="write denyoom fast", keys=KeysAt(1, flags="RW access update"),
        since=since, summary=summary, args=(key(), *more),
    )


@counter("INCR", "1.0.0", "Adds one to the number that a key holds; a missing key counts as 0.")
def incr(Context ctx not None, list args not None):
    increase(ctx, <bytes>args[1], 1)


@counter("DECR", "1.0.0", "Takes one from the number that a key holds; a missing key counts as 0.")
def decr(Context ctx not None, list args not None):
    increase(ctx, <bytes>args[1], -1)


@counter(
    "INCRBY", "1.0.0", "Adds to the number that a key holds; a missing key counts as 0.", integer("increment"), arity=3
)
def incrby(Context ctx not None, list args not None):
    increase(ctx, <bytes>args[1], require_int64(<bytes>args[2]))


@counter(
    "DECRBY", "1.0.0", "Takes from the number that a key holds; a missing key counts as 0.", integer("decrement"),
    arity=3,
)
def decrby(Context ctx not None, list args not None):
    cdef int64_t decrement = require_int64(<bytes>args[2])
    if decrement == INT64_MIN:
        raise CommandError("ERR decrement would overflow")
    increase(ctx, <bytes>args[1], -decrement)
