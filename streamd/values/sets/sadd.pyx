# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Single members: SADD, SREM, SMOVE, SISMEMBER, SMISMEMBER; and SCARD, SMEMBERS. Behaviour: Redis 8.6."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint64_t

from streamd.core.context cimport Context
from streamd.keyspace.listener cimport EVENT_SET
from streamd.values.sets.access cimport (
    add_set, drop_if_empty, find_set, find_set_for_write, note_change, reply_members,
)
from streamd.values.sets.set_limits cimport SetLimits, limits_in
from streamd.values.sets.set_value cimport Set, set_discard, set_expect, set_for, set_has, set_put

from streamd.core.spec import KeysAt, command, key, multiple, string

__all__ = []

MEMBERS = multiple(string("member"))


cdef inline const uint8_t *bytes_in(list args, Py_ssize_t at) noexcept:
    return <const uint8_t *>PyBytes_AS_STRING(<bytes>PyList_GET_ITEM(args, at))


cdef inline size_t size_in(list args, Py_ssize_t at) noexcept:
    return <size_t>PyBytes_GET_SIZE(<bytes>PyList_GET_ITEM(args, at))


cdef inline bint has_in(Set set, list args, Py_ssize_t at) noexcept:
    """Whether an argument is a member; None has none."""
    return set is not None and set_has(set, bytes_in(args, at), size_in(args, at))


@command(
    "SADD", arity=-3, group="set", flags="write denyoom fast", keys=KeysAt(1, flags="RW insert"), since="1.0.0",
    summary="Adds members to a set, which is created if it is missing; returns how many were added.",
    complexity="O(1) for each member", history=(("2.4.0", "Several members."),), args=(key(), MEMBERS),
)
def sadd(Context ctx not None, list args not None):
    cdef bytes name = <bytes>args[1]
    cdef Set found = find_set_for_write(ctx, name)
    cdef SetLimits limits = limits_in(ctx)
    cdef Py_ssize_t at, argc = PyList_GET_SIZE(args)
    cdef uint64_t before = 0
    cdef int64_t added = 0
    cdef Set set = found
    if found is None:
        set = set_for(bytes_in(args, 2), size_in(args, 2), <uint64_t>(argc - 2), limits)
    else:
        before = set.count
        set_expect(set, <uint64_t>(argc - 2), limits)
    for at in range(2, argc):
        added += set_put(set, bytes_in(args, at), size_in(args, at), limits)
    if found is None:
        add_set(ctx, name, set)
    elif added:
        note_change(ctx.db, name, set, before)
    if added:
        ctx.db.event(EVENT_SET, b"sadd", name)
        ctx.dirty += <uint64_t>added
    ctx.reply.integer(added)


@command(
    "SREM", arity=-3, group="set", flags="write fast", keys=KeysAt(1, flags="RW delete"), since="1.0.0",
    summary="Removes members from a set, which goes with its last one; returns how many were removed.",
    complexity="O(1) for each member", history=(("2.4.0", "Several members."),), args=(key(), MEMBERS),
)
def srem(Context ctx not None, list args not None):
    cdef bytes name = <bytes>args[1]
    cdef Set set = find_set_for_write(ctx, name)
    cdef Py_ssize_t at = 2, argc = PyList_GET_SIZE(args)
    cdef uint64_t before
    if set is None:
        ctx.reply.integer(0)
        return
    before = set.count
    while at < argc and set.count:
        set_discard(set, bytes_in(args, at), size_in(args, at))
        at += 1
    if set.count != before:
        note_change(ctx.db, name, set, before)
        ctx.db.event(EVENT_SET, b"srem", name)
        ctx.dirty += before - set.count
    ctx.reply.integer(<int64_t>(before - set.count))
    drop_if_empty(ctx.db, name, set)


@command(
    "SMOVE", arity=4, group="set", flags="write fast", since="1.0.0",
    keys=(KeysAt(1, flags="RW access delete"), KeysAt(2, flags="RW insert")),
    summary="Moves a member from one set to another.", complexity="O(1)",
    args=(key("source"), key("destination", 1), string("member")),
)
def smove(Context ctx not None, list args not None):
    cdef bytes source = <bytes>args[1], destination = <bytes>args[2]
    cdef Set source_set = find_set_for_write(ctx, source)
    cdef Set found, target
    cdef SetLimits limits = limits_in(ctx)
    cdef uint64_t before
    cdef bint added
    if source_set is None:
        ctx.reply.integer(0)
        return
    found = find_set_for_write(ctx, destination)
    if found is source_set:
        ctx.reply.integer(has_in(source_set, args, 3))
        return
    if not set_discard(source_set, bytes_in(args, 3), size_in(args, 3)):
        ctx.reply.integer(0)
        return
    ctx.dirty += 1
    note_change(ctx.db, source, source_set, source_set.count + 1)
    ctx.db.event(EVENT_SET, b"srem", source)
    drop_if_empty(ctx.db, source, source_set)
    target = set_for(bytes_in(args, 3), size_in(args, 3), 1, limits) if found is None else found
    before = target.count
    added = set_put(target, bytes_in(args, 3), size_in(args, 3), limits)
    if found is None:
        add_set(ctx, destination, target)
    elif added:
        note_change(ctx.db, destination, target, before)
    if added:
        ctx.dirty += 1
        ctx.db.event(EVENT_SET, b"sadd", destination)
    ctx.reply.integer(1)


@command(
    "SISMEMBER", arity=3, group="set", flags="readonly fast", keys=KeysAt(1, flags="RO"), since="1.0.0",
    summary="Returns whether a set has a member.", complexity="O(1)", args=(key(), string("member")),
)
def sismember(Context ctx not None, list args not None):
    ctx.reply.integer(has_in(find_set(ctx, <bytes>args[1]), args, 2))


@command(
    "SMISMEMBER", arity=-3, group="set", flags="readonly fast", keys=KeysAt(1), since="6.2.0",
    summary="Returns of each of several members whether a set has it.", complexity="O(1) for each member",
    args=(key(), MEMBERS),
)
def smismember(Context ctx not None, list args not None):
    cdef Set set = find_set(ctx, <bytes>args[1])
    cdef Py_ssize_t at, argc = PyList_GET_SIZE(args)
    ctx.reply.array_header(argc - 2)
    for at in range(2, argc):
        ctx.reply.integer(has_in(set, args, at))


@command(
    "SCARD", arity=2, group="set", flags="readonly fast", keys=KeysAt(1, flags="RO"), since="1.0.0",
    summary="Returns how many members a set has.", complexity="O(1)", args=(key(),),
)
def scard(Context ctx not None, list args not None):
    cdef Set set = find_set(ctx, <bytes>args[1])
    ctx.reply.integer(0 if set is None else <int64_t>set.count)


@command(
    "SMEMBERS", arity=2, group="set", flags="readonly", keys=KeysAt(1), since="1.0.0",
    summary="Returns all members of a set.", complexity="O(N) with N being the number of members",
    tips=("nondeterministic_output_order",), args=(key(),),
)
def smembers(Context ctx not None, list args not None):
    cdef Set set = find_set(ctx, <bytes>args[1])
    ctx.reply.set(0 if set is None else <int64_t>set.count)
    if set is not None:
        reply_members(ctx.reply, set)
