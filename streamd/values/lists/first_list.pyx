# cython: language_level=3, boundscheck=False, wraparound=False
"""LMPOP, and the commands that wait: BLPOP, BRPOP, BLMPOP. All pop from the first list among several keys.

Behaviour: Redis 8.6, as seen on a running server.
"""

from streamd.core.args cimport is_word, parse_int64
from streamd.core.context cimport BlockRequest, Context
from streamd.core.timeouts cimport parse_seconds
from streamd.keyspace.key_record cimport KeyRecord, key_of, value_of
from streamd.values.lists.list_arguments cimport find_record, parse_end, take_elements
from streamd.values.lists.list_value cimport List
from streamd.values.lists.waiting cimport LIST_QUESTION

from streamd.core.spec import KeysAt, KeysCounted, command, double, integer, key, multiple, oneof, optional, token
from streamd.errors import CommandError, OptionSyntaxError

__all__ = ["blmpop", "blpop", "brpop", "lmpop"]


cdef KeyRecord *first_record(Context ctx, list args, Py_ssize_t first, Py_ssize_t count) except? NULL:
    """The record of the first list among `count` keys from an argument on, or NULL; WrongTypeError."""
    cdef KeyRecord *record
    cdef Py_ssize_t i
    for i in range(first, first + count):
        record = find_record(ctx, <bytes>args[i])
        if record is not NULL:
            return record
    return NULL


# --- One element ------------------------------------------------------------------------------------------------------


cdef int blocking_pop(Context ctx, list args, bint at_head) except -1:
    cdef Py_ssize_t keys = len(args) - 2
    cdef long long timeout_ms = parse_seconds(<bytes>args[keys + 1], ctx.now_ms)
    cdef KeyRecord *record = first_record(ctx, args, 1, keys)
    cdef bytes name
    if record is NULL:
        ctx.block_on(BlockRequest(args[1:keys + 1], args, timeout_ms, LIST_QUESTION))
        return 0
    name = key_of(record)
    ctx.reply.array_header(2)
    ctx.reply.bulk(name)
    take_elements(ctx, record, name, 1, at_head, ctx.reply)
    ctx.dirty += 1
    if ctx.is_propagating:
        ctx.propagate([b"LPOP" if at_head else b"RPOP", name])
    return 0


def waiting(name, summary):
    """Declare a command that waits for one element."""
    return command(
        name, arity=-3, group="list", flags="write blocking", keys=KeysAt(1, -2, flags="RW access delete"),
        since="2.0.0", complexity="O(N), with N the keys", summary=summary,
        history=(("6.0.0", "Fractions of a second."),),
        args=(multiple(key()), double("timeout")),
    )  # fmt: skip


@waiting("BLPOP", "Removes the first element of the first list among several keys and returns it, or waits for one.")
def blpop(Context ctx not None, list args not None):
    blocking_pop(ctx, args, True)


@waiting("BRPOP", "Removes the last element of the first list among several keys and returns it, or waits for one.")
def brpop(Context ctx not None, list args not None):
    blocking_pop(ctx, args, False)


# --- Several elements -------------------------------------------------------------------------------------------------


cdef class PopRequest:
    """What LMPOP or BLMPOP asks for."""

    cdef Py_ssize_t first       # argument with the first key
    cdef Py_ssize_t keys
    cdef bint at_head
    cdef long long count


cdef long long positive(bytes text, str what) except -1:
    """A number from 1 on."""
    cdef long long number
    if not parse_int64(text, &number) or number < 1:
        raise CommandError(f"ERR {what} should be greater than 0")
    return number


cdef PopRequest parse_pop(list args, Py_ssize_t count_at):
    """Read an LMPOP or BLMPOP from the number of keys on; CommandError."""
    cdef PopRequest request = PopRequest.__new__(PopRequest)
    cdef Py_ssize_t i
    cdef bint has_count = False
    request.keys = <Py_ssize_t>positive(<bytes>args[count_at], "numkeys")
    request.first = count_at + 1
    request.count = 1
    if request.keys >= len(args) - request.first:
        raise OptionSyntaxError
    i = request.first + request.keys
    request.at_head = parse_end(<bytes>args[i])
    i += 1
    while i < len(args):
        if has_count or i + 1 == len(args) or not is_word(<bytes>args[i], b"COUNT"):
            raise OptionSyntaxError
        request.count = positive(<bytes>args[i + 1], "count")
        has_count = True
        i += 2
    return request


cdef bint pop_several(Context ctx, list args, PopRequest request) except -1:
    """Pop from the first list that exists; False: none exists."""
    cdef KeyRecord *record = first_record(ctx, args, request.first, request.keys)
    cdef unsigned long long count
    cdef bytes name
    if record is NULL:
        return False
    name = key_of(record)
    count = min(<unsigned long long>request.count, (<List>value_of(record)).length)
    ctx.reply.array_header(2)
    ctx.reply.bulk(name)
    ctx.reply.array_header(<long long>count)
    take_elements(ctx, record, name, count, request.at_head, ctx.reply)
    ctx.dirty += count
    if ctx.is_propagating:
        ctx.propagate([b"LPOP" if request.at_head else b"RPOP", name, b"%d" % count])
    return True


WANTED = (
    integer("numkeys"), multiple(key()), oneof("where", token("LEFT"), token("RIGHT")),
    optional(integer("count", "COUNT")),
)  # fmt: skip


@command(
    "LMPOP", arity=-4, group="list", flags="write", keys=KeysCounted(1, flags="RW access delete"), since="7.0.0",
    complexity="O(N+M), with N the keys and M the elements that are returned",
    summary="Removes elements from an end of the first list among several keys, and returns them.", args=WANTED,
)  # fmt: skip
def lmpop(Context ctx not None, list args not None):
    if not pop_several(ctx, args, parse_pop(args, 1)):
        ctx.reply.null_array()


@command(
    "BLMPOP", arity=-5, group="list", flags="write blocking", keys=KeysCounted(2, flags="RW access delete"),
    since="7.0.0", complexity="O(N+M), with N the keys and M the elements that are returned",
    summary="Removes elements as LMPOP does, or waits for some.", args=(double("timeout"), *WANTED),
)  # fmt: skip
def blmpop(Context ctx not None, list args not None):
    cdef PopRequest request = parse_pop(args, 2)
    cdef long long timeout_ms = parse_seconds(<bytes>args[1], ctx.now_ms)
    if not pop_several(ctx, args, request):
        ctx.block_on(
            BlockRequest(args[request.first:request.first + request.keys], args, timeout_ms, LIST_QUESTION)
        )
