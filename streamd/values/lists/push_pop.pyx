# cython: language_level=3, boundscheck=False, wraparound=False
"""LPUSH, RPUSH, LPOP, RPOP and LLEN: lists as queues and stacks. Behaviour: Redis 8.6, as seen on a running server."""

from streamd.core.args cimport parse_int64
from streamd.core.context cimport Context
from streamd.keyspace.key_record cimport KeyRecord, value_of
from streamd.values.lists.list_arguments cimport add_elements, find_list, find_record, take_elements
from streamd.values.lists.list_value cimport List

from streamd.core.spec import KeysAt, command, integer, key, multiple, optional, string
from streamd.errors import MUST_BE_POSITIVE, CommandError

__all__ = ["llen", "lpop", "lpush", "lpushx", "rpop", "rpush", "rpushx"]


# --- Adding -----------------------------------------------------------------------------------------------------------


cdef int push(Context ctx, list args, bint at_head, bint only_existing) except -1:
    cdef bytes name = <bytes>args[1]
    cdef KeyRecord *record = find_record(ctx, name)
    cdef List value
    if record is NULL:
        if only_existing:
            return ctx.reply.integer(0)
        value = List.__new__(List)
    else:
        value = <List>value_of(record)
    add_elements(ctx, record, name, value, args, 2, at_head)
    ctx.dirty += <unsigned long long>(len(args) - 2)
    return ctx.reply.integer(<long long>value.length)


def pushing(name, since, summary, history):
    """Declare a command that pushes."""
    return command(
        name, arity=-3, group="list", flags="write denyoom fast", keys=KeysAt(1, flags="RW insert"), since=since,
        complexity="O(N), with N the elements that are added", summary=summary,
        history=((history, "Several elements."),), args=(key(), multiple(string("element"))),
    )  # fmt: skip


@pushing(
    "LPUSH", "1.0.0", "Adds elements at the head of a list, one after the other; a missing key counts as empty.",
    "2.4.0",
)
def lpush(Context ctx not None, list args not None):
    push(ctx, args, True, False)


@pushing("RPUSH", "1.0.0", "Adds elements at the tail of a list; a missing key counts as empty.", "2.4.0")
def rpush(Context ctx not None, list args not None):
    push(ctx, args, False, False)


@pushing("LPUSHX", "2.2.0", "Adds elements at the head of a list, if it exists.", "4.0.0")
def lpushx(Context ctx not None, list args not None):
    push(ctx, args, True, True)


@pushing("RPUSHX", "2.2.0", "Adds elements at the tail of a list, if it exists.", "4.0.0")
def rpushx(Context ctx not None, list args not None):
    push(ctx, args, False, True)


# --- Taking -----------------------------------------------------------------------------------------------------------


cdef int pop(Context ctx, list args, bint at_head) except -1:
    cdef bytes name = <bytes>args[1]
    cdef KeyRecord *record
    cdef long long count = 1
    cdef unsigned long long length
    cdef bint has_count = len(args) == 3
    if len(args) > 3:
        raise CommandError(f"ERR wrong number of arguments for '{'lpop' if at_head else 'rpop'}' command")
    if has_count and (not parse_int64(<bytes>args[2], &count) or count < 0):
        raise CommandError(MUST_BE_POSITIVE)
    record = find_record(ctx, name)
    if record is NULL:
        return ctx.reply.null_array() if has_count else ctx.reply.null()
    if has_count:
        length = (<List>value_of(record)).length
        if <unsigned long long>count > length:
            count = <long long>length
        ctx.reply.array_header(count)
        if count == 0:
            return 0
    take_elements(ctx, record, name, <unsigned long long>count, at_head, ctx.reply)
    ctx.dirty += <unsigned long long>count
    return 0


def popping(name, summary):
    """Declare a command that pops."""
    return command(
        name, arity=-2, group="list", flags="write fast", keys=KeysAt(1, flags="RW access delete"), since="1.0.0",
        complexity="O(N), with N the elements that are returned", summary=summary,
        history=(("6.2.0", "The argument `count`."),), args=(key(), optional(integer("count"), since="6.2.0")),
    )  # fmt: skip


@popping("LPOP", "Removes elements from the head of a list, and returns them.")
def lpop(Context ctx not None, list args not None):
    pop(ctx, args, True)


@popping("RPOP", "Removes elements from the tail of a list, and returns them, the last one first.")
def rpop(Context ctx not None, list args not None):
    pop(ctx, args, False)


@command(
    "LLEN", arity=2, group="list", flags="readonly fast", keys=KeysAt(1, flags="RO"), since="1.0.0",
    summary="Returns the number of elements of a list.", args=(key(),),
)  # fmt: skip
def llen(Context ctx not None, list args not None):
    cdef List value = find_list(ctx, <bytes>args[1])
    ctx.reply.integer(0 if value is None else <long long>value.length)
