# cython: language_level=3, boundscheck=False, wraparound=False
"""ZRANGE, its older forms, ZRANGESTORE, ZCOUNT and ZLEXCOUNT: members by rank, by score or by their bytes.

All are one request (RangeRequest): a range of ranks, in one direction. Behaviour: Redis 8.6, as seen on a running
server.
"""

from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from libc.stdint cimport int64_t, uint64_t

from streamd.core.args cimport is_word, require_int64
from streamd.core.context cimport Context
from streamd.values.sorted_sets.access cimport append_to_result, find_sorted_set, reply_range, store_result
from streamd.values.sorted_sets.bounds cimport Bounds, parse_members, parse_scores, ranks_between
from streamd.values.sorted_sets.packed cimport Item
from streamd.values.sorted_sets.sorted_set cimport SortedSet, Walk, new_sorted_set
from streamd.values.sorted_sets.sorted_set_limits cimport SortedSetLimits, limits_in

from streamd.core.spec import KeysAt, block, command, double, integer, key, oneof, optional, string, token
from streamd.errors import CommandError, OptionSyntaxError

__all__ = [
    "zcount", "zlexcount", "zrange", "zrangebylex", "zrangebyscore", "zrangestore", "zrevrange", "zrevrangebylex",
    "zrevrangebyscore",
]


# --- The request ----------------------------------------------------------------------------------------------------


cdef enum By:
    BY_ANY              # according to the options; default: ranks
    BY_RANK
    BY_SCORE
    BY_MEMBER


cdef enum Direction:
    ANY_DIRECTION       # according to the options; default: up
    UP
    DOWN


cdef struct RangeRequest:
    By by
    Direction direction
    bint with_scores
    int64_t offset             # LIMIT: members that are skipped; negative: all
    int64_t limit              # LIMIT: most members; negative: all
    int64_t start, stop        # ranks, both included
    Bounds bounds              # of scores or members, the lower one first


cdef int parse_range(list args, Py_ssize_t first, bint stores, RangeRequest *request) except -1:
    """Read a request whose bounds are args[first] and the next; `by` and `direction` are given."""
    cdef Py_ssize_t at = first + 2, count = PyList_GET_SIZE(args)
    cdef bytes low, high, word
    request.with_scores = False
    request.offset = 0
    request.limit = -1
    while at < count:
        word = <bytes>PyList_GET_ITEM(args, at)
        if not stores and is_word(word, b"WITHSCORES"):
            request.with_scores = True
        elif is_word(word, b"LIMIT") and count - at > 2:
            request.offset = require_int64(<bytes>PyList_GET_ITEM(args, at + 1))
            request.limit = require_int64(<bytes>PyList_GET_ITEM(args, at + 2))
            at += 2
        elif request.direction == ANY_DIRECTION and is_word(word, b"REV"):
            request.direction = DOWN
        elif request.by == BY_ANY and is_word(word, b"BYLEX"):
            request.by = BY_MEMBER
        elif request.by == BY_ANY and is_word(word, b"BYSCORE"):
            request.by = BY_SCORE
        else:
            raise OptionSyntaxError
        at += 1
    if request.by == BY_ANY:
        request.by = BY_RANK
    if request.limit != -1 and request.by == BY_RANK:
        raise CommandError("ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX")
    if request.with_scores and request.by == BY_MEMBER:
        raise CommandError("ERR syntax error, WITHSCORES not supported in combination with BYLEX")
    low = <bytes>PyList_GET_ITEM(args, first)
    high = <bytes>PyList_GET_ITEM(args, first + 1)
    if request.by == BY_RANK:
        request.start = require_int64(low)
        request.stop = require_int64(high)
        return 0
    if request.direction == DOWN:
        low, high = high, low
    return parse_scores(low, high, &request.bounds) if request.by == BY_SCORE else parse_members(
        low, high, &request.bounds)


cdef uint64_t clip_ranks(int64_t start, int64_t stop, uint64_t count, uint64_t *first) noexcept:
    cdef int64_t end = <int64_t>count
    if start < 0:
        start = max(0, start + end)
    if stop < 0:
        stop += end
    if stop >= end:
        stop = end - 1
    first[0] = <uint64_t>start
    return 0 if start > stop or start >= end else <uint64_t>(stop - start + 1)


cdef uint64_t find_range(SortedSet set, const RangeRequest *request, uint64_t *rank) noexcept:
    """How many members there are, and the rank of the one at which to begin."""
    cdef uint64_t members, first = 0, count = set.count(), offset
    if request.by == BY_RANK:
        members = clip_ranks(request.start, request.stop, count, &first)
        rank[0] = count - 1 - first if request.direction == DOWN else first
        return members
    members = ranks_between(set, &request.bounds, &first)
    if request.offset < 0 or <uint64_t>request.offset >= members:
        return 0
    offset = <uint64_t>request.offset
    rank[0] = first + members - 1 - offset if request.direction == DOWN else first + offset
    members -= offset
    return members if request.limit < 0 or <uint64_t>request.limit > members else <uint64_t>request.limit


# --- The commands ---------------------------------------------------------------------------------------------------


cdef int reply_with_range(Context ctx, list args, By by, Direction direction) except -1:
    cdef RangeRequest request
    cdef SortedSet set
    cdef uint64_t rank = 0, members = 0
    request.by = by
    request.direction = direction
    parse_range(args, 2, False, &request)
    set = find_sorted_set(ctx, <bytes>PyList_GET_ITEM(args, 1))
    if set is None:
        return ctx.reply.array_header(0)
    members = find_range(set, &request, &rank)
    return reply_range(ctx.reply, set, rank, members, request.direction == DOWN, request.with_scores)


LIMIT = optional(block("limit", integer("offset"), integer("count"), token="LIMIT"))


def range_command(name, since, summary, *args, **more):
    """Declare a command that returns a range of members."""
    return command(
        name, arity=-4, group="sorted-set", flags="readonly", keys=KeysAt(1), since=since, summary=summary,
        complexity="O(log(N)+M), with N the members of the set and M those that are returned", args=(key(), *args),
        **more,
    )


@range_command(
    "ZRANGE", "1.2.0",
    "Returns the members of a sorted set within a range of ranks, of scores, or between two members.",
    string("start"), string("stop"),
    optional(oneof("sortby", token("BYSCORE"), token("BYLEX")), since="6.2.0"),
    optional(token("REV"), since="6.2.0"),
    optional(block("limit", integer("offset"), integer("count"), token="LIMIT"), since="6.2.0"),
    optional(token("WITHSCORES")),
)
def zrange(Context ctx not None, list args not None):
    reply_with_range(ctx, args, BY_ANY, ANY_DIRECTION)


@range_command(
    "ZREVRANGE", "1.2.0", "Returns the members of a sorted set within a range of ranks, from the highest score down.",
    integer("start"), integer("stop"), optional(token("WITHSCORES")),
    deprecated_since="6.2.0", replaced_by="`ZRANGE` with the `REV` argument",
)
def zrevrange(Context ctx not None, list args not None):
    reply_with_range(ctx, args, BY_RANK, DOWN)


@range_command(
    "ZRANGEBYSCORE", "1.0.5", "Returns the members of a sorted set within a range of scores.",
    double("min"), double("max"), optional(token("WITHSCORES"), since="2.0.0"), LIMIT,
    deprecated_since="6.2.0", replaced_by="`ZRANGE` with the `BYSCORE` argument",
)
def zrangebyscore(Context ctx not None, list args not None):
    reply_with_range(ctx, args, BY_SCORE, UP)


@range_command(
    "ZREVRANGEBYSCORE", "2.2.0",
    "Returns the members of a sorted set within a range of scores, from the highest score down.",
    double("max"), double("min"), optional(token("WITHSCORES")), LIMIT,
    deprecated_since="6.2.0", replaced_by="`ZRANGE` with the `REV` and `BYSCORE` arguments",
)
def zrevrangebyscore(Context ctx not None, list args not None):
    reply_with_range(ctx, args, BY_SCORE, DOWN)


@range_command(
    "ZRANGEBYLEX", "2.8.9", "Returns the members of a sorted set between two members, where all have one score.",
    string("min"), string("max"), LIMIT, deprecated_since="6.2.0", replaced_by="`ZRANGE` with the `BYLEX` argument",
)
def zrangebylex(Context ctx not None, list args not None):
    reply_with_range(ctx, args, BY_MEMBER, UP)


@range_command(
    "ZREVRANGEBYLEX", "2.8.9",
    "Returns the members of a sorted set between two members, downwards, where all have one score.",
    string("max"), string("min"), LIMIT,
    deprecated_since="6.2.0", replaced_by="`ZRANGE` with the `REV` and `BYLEX` arguments",
)
def zrevrangebylex(Context ctx not None, list args not None):
    reply_with_range(ctx, args, BY_MEMBER, DOWN)


@command(
    "ZRANGESTORE", arity=-5, group="sorted-set", flags="write denyoom", since="6.2.0",
    keys=(KeysAt(1, flags="OW update"), KeysAt(2)),
    complexity="O(log(N)+M), with N the members of the set and M those that are stored",
    summary="Stores a range of members of a sorted set under another key.",
    args=(
        key("dst"), key("src", 1), string("min"), string("max"),
        optional(oneof("sortby", token("BYSCORE"), token("BYLEX"))), optional(token("REV")),
        optional(block("limit", integer("offset"), integer("count"), token="LIMIT")),
    ),
)
def zrangestore(Context ctx not None, list args not None):
    cdef RangeRequest request
    cdef SortedSet set
    cdef SortedSetLimits limits = limits_in(ctx)
    cdef SortedSet result
    cdef uint64_t rank = 0, members = 0
    cdef Walk walk
    cdef Item item
    request.by = BY_ANY
    request.direction = ANY_DIRECTION
    parse_range(args, 3, True, &request)
    set = find_sorted_set(ctx, <bytes>PyList_GET_ITEM(args, 2))
    if set is not None:
        members = find_range(set, &request, &rank)
        if request.direction == DOWN and members:
            rank -= members - 1
    result = new_sorted_set(members > limits.max_members)
    if members:
        set.seek(rank, &walk)
    while members:
        members -= 1
        set.next(&walk, &item)
        append_to_result(result, &item, limits)
    store_result(ctx, <bytes>PyList_GET_ITEM(args, 1), result, b"zrangestore")


cdef int reply_with_count(Context ctx, bytes name, const Bounds *bounds) except -1:
    cdef SortedSet set = find_sorted_set(ctx, name)
    cdef uint64_t first
    return ctx.reply.integer(0 if set is None else <int64_t>ranks_between(set, bounds, &first))


@command(
    "ZCOUNT", arity=4, group="sorted-set", flags="readonly fast", since="2.0.0",
    keys=KeysAt(1),
    complexity="O(log(N)), with N the members of the set",
    summary="Returns how many members of a sorted set are within a range of scores.",
    args=(key(), double("min"), double("max")),
)
def zcount(Context ctx not None, list args not None):
    cdef Bounds bounds
    parse_scores(<bytes>PyList_GET_ITEM(args, 2), <bytes>PyList_GET_ITEM(args, 3), &bounds)
    reply_with_count(ctx, <bytes>PyList_GET_ITEM(args, 1), &bounds)


@command(
    "ZLEXCOUNT", arity=4, group="sorted-set", flags="readonly fast", since="2.8.9",
    keys=KeysAt(1),
    complexity="O(log(N)), with N the members of the set",
    summary="Returns how many members of a sorted set are between two members, where all have one score.",
    args=(key(), string("min"), string("max")),
)
def zlexcount(Context ctx not None, list args not None):
    cdef Bounds bounds
    parse_members(<bytes>PyList_GET_ITEM(args, 2), <bytes>PyList_GET_ITEM(args, 3), &bounds)
    reply_with_count(ctx, <bytes>PyList_GET_ITEM(args, 1), &bounds)
