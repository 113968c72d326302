# cython: language_level=3, boundscheck=False, wraparound=False
"""LMOVE and RPOPLPUSH, and the forms that wait: BLMOVE and BRPOPLPUSH.

Behaviour: Redis 8.6, as seen on a running server.
"""

from streamd.core.context cimport BlockRequest, Context
from streamd.core.timeouts cimport parse_seconds
from streamd.engine.listpack cimport LpValue
from streamd.keyspace.key_record cimport KeyRecord, value_of
from streamd.values.lists.list_arguments cimport (
    add_elements, begin_change, end_change, find_record, parse_end, value_bytes,
)
from streamd.values.lists.list_limits cimport fill_of
from streamd.values.lists.list_value cimport List
from streamd.values.lists.waiting cimport LIST_QUESTION

from streamd.core.spec import KeysAt, command, double, key, oneof, token

__all__ = ["blmove", "brpoplpush", "lmove", "rpoplpush"]


cdef bint move(Context ctx, list args, bint from_head, bint to_head) except -1:
    """Move an element from one list to another, or the same, and reply with it; False: the first list is missing."""
    cdef bytes source = <bytes>args[1]
    cdef bytes destination = <bytes>args[2]
    cdef KeyRecord *record = find_record(ctx, source)
    cdef KeyRecord *target
    cdef List value
    cdef LpValue element
    cdef bytes text
    if record is NULL:
        return False
    target = find_record(ctx, destination)
    value = <List>value_of(record)
    value.peek(from_head, &element)
    text = value_bytes(&element)
    begin_change(ctx, record)
    value.pop(from_head)
    ctx.db.weigh(record, 1)
    add_elements(
        ctx, target, destination, List.__new__(List) if target is NULL else <List>value_of(target), [text], 0, to_head
    )
    begin_change(ctx, record)
    value.shrink_back(fill_of(ctx), 2)
    end_change(ctx, record, source, b"lpop" if from_head else b"rpop")
    ctx.dirty += 1
    ctx.reply.bulk(text)
    return True


cdef int wait(Context ctx, list args, long long timeout_ms) except -1:
    """Wait for the source list."""
    if ctx.in_transaction:
        return ctx.reply.null()
    ctx.block_on(BlockRequest([args[1]], args, timeout_ms, LIST_QUESTION))
    return 0


KEYS = (KeysAt(1, flags="RW access delete"), KeysAt(2, flags="RW insert"))
NAMES = (key("source"), key("destination", 1))
ENDS = (
    oneof("wherefrom", token("LEFT"), token("RIGHT")),
    oneof("whereto", token("LEFT"), token("RIGHT")),
)


@command(
    "LMOVE", arity=5, group="list", flags="write denyoom", keys=KEYS, since="6.2.0",
    summary="Removes an element from an end of a list, adds it to an end of another, and returns it.",
    args=(*NAMES, *ENDS),
)  # fmt: skip
def lmove(Context ctx not None, list args not None):
    cdef bint from_head = parse_end(<bytes>args[3])
    cdef bint to_head = parse_end(<bytes>args[4])
    if not move(ctx, args, from_head, to_head):
        ctx.reply.null()


@command(
    "RPOPLPUSH", arity=3, group="list", flags="write denyoom", keys=KEYS, since="1.2.0",
    summary="Removes the last element of a list, adds it at the head of another, and returns it.", args=NAMES,
    deprecated_since="6.2.0", replaced_by="`LMOVE` with the `RIGHT` and `LEFT` arguments",
)  # fmt: skip
def rpoplpush(Context ctx not None, list args not None):
    if not move(ctx, args, False, True):
        ctx.reply.null()


@command(
    "BLMOVE", arity=6, group="list", flags="write denyoom blocking", keys=KEYS, since="6.2.0",
    summary="Moves an element as LMOVE does, or waits for one.", args=(*NAMES, *ENDS, double("timeout")),
)  # fmt: skip
def blmove(Context ctx not None, list args not None):
    cdef bint from_head = parse_end(<bytes>args[3])
    cdef bint to_head = parse_end(<bytes>args[4])
    cdef long long timeout_ms = parse_seconds(<bytes>args[5], ctx.now_ms)
    if not move(ctx, args, from_head, to_head):
        wait(ctx, args, timeout_ms)
    elif ctx.is_propagating:
        ctx.propagate([b"LMOVE", args[1], args[2], args[3], args[4]])


@command(
    "BRPOPLPUSH", arity=4, group="list", flags="write denyoom blocking", keys=KEYS, since="2.2.0",
    summary="Moves an element as RPOPLPUSH does, or waits for one.", args=(*NAMES, double("timeout")),
    history=(("6.0.0", "Fractions of a second."),), deprecated_since="6.2.0",
    replaced_by="`BLMOVE` with the `RIGHT` and `LEFT` arguments",
)  # fmt: skip
def brpoplpush(Context ctx not None, list args not None):
    cdef long long timeout_ms = parse_seconds(<bytes>args[3], ctx.now_ms)
    if not move(ctx, args, False, True):
        wait(ctx, args, timeout_ms)
    elif ctx.is_propagating:
        ctx.propagate([b"RPOPLPUSH", args[1], args[2]])
