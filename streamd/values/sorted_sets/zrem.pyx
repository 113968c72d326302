# cython: language_level=3, boundscheck=False, wraparound=False
"""ZREM and ZREMRANGEBY*: removing members by name, rank, score or bytes.

Behaviour: Redis 8.6, as seen on a running server.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint64_t

from streamd.core.args cimport require_int64
from streamd.core.context cimport Context
from streamd.values.sorted_sets.access cimport find_sorted_set_for_write, finish_removal
from streamd.values.sorted_sets.bounds cimport Bounds, parse_members, parse_scores, ranks_between
from streamd.values.sorted_sets.sorted_set cimport SortedSet
from streamd.values.sorted_sets.zrange cimport clip_ranks

from streamd.core.spec import KeysAt, command, double, integer, key, multiple, string

__all__ = ["zrem", "zremrangebylex", "zremrangebyrank", "zremrangebyscore"]


@command(
    "ZREM", arity=-3, group="sorted-set", flags="write fast", since="1.2.0",
    keys=KeysAt(1, flags="RW delete"),
    complexity="O(M*log(N)), with N the members of the set and M those that are removed",
    summary="Removes members from a sorted set.",
    args=(key(), multiple(string("member"))),
)
def zrem(Context ctx not None, list args not None):
    cdef bytes name = <bytes>PyList_GET_ITEM(args, 1)
    cdef SortedSet set = find_sorted_set_for_write(ctx, name)
    cdef uint64_t before, removed = 0
    cdef Py_ssize_t at
    cdef bytes member
    if set is not None:
        before = set.count()
        for at in range(2, PyList_GET_SIZE(args)):
            member = <bytes>PyList_GET_ITEM(args, at)
            removed += set.discard(<const uint8_t *>PyBytes_AS_STRING(member), <size_t>PyBytes_GET_SIZE(member))
            if removed == before:
                break
        finish_removal(ctx, name, set, before, b"zrem")
    ctx.reply.integer(<int64_t>removed)


cdef int remove_between(
    Context ctx, bytes name, SortedSet set, uint64_t first, uint64_t members, bytes event
) except -1:
    """Remove members by rank, and reply with how many they were."""
    cdef uint64_t before
    if set is not None and members:
        before = set.count()
        set.remove_range(first, members)
        finish_removal(ctx, name, set, before, event)
    return ctx.reply.integer(<int64_t>members)


@command(
    "ZREMRANGEBYRANK", arity=4, group="sorted-set", flags="write", since="2.0.0",
    keys=KeysAt(1, flags="RW delete"),
    complexity="O(M*log(N)), with N the members of the set and M those that are removed",
    summary="Removes the members of a sorted set within a range of ranks.",
    args=(key(), integer("start"), integer("stop")),
)
def zremrangebyrank(Context ctx not None, list args not None):
    cdef bytes name = <bytes>PyList_GET_ITEM(args, 1)
    cdef int64_t start = require_int64(<bytes>PyList_GET_ITEM(args, 2))
    cdef int64_t stop = require_int64(<bytes>PyList_GET_ITEM(args, 3))
    cdef SortedSet set = find_sorted_set_for_write(ctx, name)
    cdef uint64_t first = 0, members = 0
    if set is not None:
        members = clip_ranks(start, stop, set.count(), &first)
    remove_between(ctx, name, set, first, members, b"zremrangebyrank")


@command(
    "ZREMRANGEBYSCORE", arity=4, group="sorted-set", flags="write", since="1.2.0",
    keys=KeysAt(1, flags="RW delete"),
    complexity="O(M*log(N)), with N the members of the set and M those that are removed",
    summary="Removes the members of a sorted set within a range of scores.",
    args=(key(), double("min"), double("max")),
)
def zremrangebyscore(Context ctx not None, list args not None):
    cdef Bounds bounds
    parse_scores(<bytes>PyList_GET_ITEM(args, 2), <bytes>PyList_GET_ITEM(args, 3), &bounds)
    remove_by_bounds(ctx, <bytes>PyList_GET_ITEM(args, 1), &bounds, b"zremrangebyscore")


@command(
    "ZREMRANGEBYLEX", arity=4, group="sorted-set", flags="write", since="2.8.9",
    keys=KeysAt(1, flags="RW delete"),
    complexity="O(M*log(N)), with N the members of the set and M those that are removed",
    summary="Removes the members of a sorted set between two members, where all have one score.",
    args=(key(), string("min"), string("max")),
)
def zremrangebylex(Context ctx not None, list args not None):
    cdef Bounds bounds
    parse_members(<bytes>PyList_GET_ITEM(args, 2), <bytes>PyList_GET_ITEM(args, 3), &bounds)
    remove_by_bounds(ctx, <bytes>PyList_GET_ITEM(args, 1), &bounds, b"zremrangebylex")


cdef int remove_by_bounds(Context ctx, bytes name, const Bounds *bounds, bytes event) except -1:
    cdef SortedSet set = find_sorted_set_for_write(ctx, name)
    cdef uint64_t first = 0, members = 0
    if set is not None:
        members = ranks_between(set, bounds, &first)
    return remove_between(ctx, name, set, first, members, event)
