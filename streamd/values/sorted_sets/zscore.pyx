# cython: language_level=3, boundscheck=False, wraparound=False
"""ZCARD, ZSCORE, ZMSCORE, ZRANK and ZREVRANK: the number of members, the score and the rank of one.

Behaviour: Redis 8.6, as seen on a running server.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from libc.stdint cimport int64_t, uint8_t

from streamd.core.args cimport is_word
from streamd.core.context cimport Context
from streamd.values.sorted_sets.access cimport find_sorted_set
from streamd.values.sorted_sets.sorted_set cimport SortedSet

from streamd.core.spec import KeysAt, command, key, multiple, optional, string, token
from streamd.errors import CommandError, OptionSyntaxError

__all__ = ["zcard", "zmscore", "zrank", "zrevrank", "zscore"]


@command(
    "ZCARD", arity=2, group="sorted-set", flags="readonly fast", since="1.2.0",
    keys=KeysAt(1, flags="RO"),
    complexity="O(1)",
    summary="Returns how many members a sorted set has.",
    args=(key(),),
)
def zcard(Context ctx not None, list args not None):
    cdef SortedSet set = find_sorted_set(ctx, <bytes>PyList_GET_ITEM(args, 1))
    ctx.reply.integer(0 if set is None else <int64_t>set.count())


cdef int reply_with_score(Context ctx, SortedSet set, bytes member) except -1:
    cdef double score
    if set is None or not set.find(
        <const uint8_t *>PyBytes_AS_STRING(member), <size_t>PyBytes_GET_SIZE(member), &score
    ):
        return ctx.reply.null()
    return ctx.reply.double(score)


@command(
    "ZSCORE", arity=3, group="sorted-set", flags="readonly fast", since="1.2.0",
    keys=KeysAt(1),
    complexity="O(1)",
    summary="Returns the score of a member of a sorted set.",
    args=(key(), string("member")),
)
def zscore(Context ctx not None, list args not None):
    cdef SortedSet set = find_sorted_set(ctx, <bytes>PyList_GET_ITEM(args, 1))
    reply_with_score(ctx, set, <bytes>PyList_GET_ITEM(args, 2))


@command(
    "ZMSCORE", arity=-3, group="sorted-set", flags="readonly fast", since="6.2.0",
    keys=KeysAt(1),
    complexity="O(N), with N the members that are asked for",
    summary="Returns the scores of members of a sorted set.",
    args=(key(), multiple(string("member"))),
)
def zmscore(Context ctx not None, list args not None):
    cdef SortedSet set = find_sorted_set(ctx, <bytes>PyList_GET_ITEM(args, 1))
    cdef Py_ssize_t at, count = PyList_GET_SIZE(args)
    ctx.reply.array_header(count - 2)
    for at in range(2, count):
        reply_with_score(ctx, set, <bytes>PyList_GET_ITEM(args, at))


cdef int reply_with_rank(Context ctx, list args, bint from_end) except -1:
    cdef Py_ssize_t count = PyList_GET_SIZE(args)
    cdef bint with_score = count == 4
    cdef bytes member = <bytes>PyList_GET_ITEM(args, 2)
    cdef SortedSet set
    cdef double score = 0
    cdef int64_t rank = -1
    if count > 4:
        raise CommandError(f"ERR wrong number of arguments for '{'zrevrank' if from_end else 'zrank'}' command")
    if with_score and not is_word(<bytes>PyList_GET_ITEM(args, 3), b"WITHSCORE"):
        raise OptionSyntaxError
    set = find_sorted_set(ctx, <bytes>PyList_GET_ITEM(args, 1))
    if set is not None:
        rank = set.rank(<const uint8_t *>PyBytes_AS_STRING(member), <size_t>PyBytes_GET_SIZE(member), &score)
    if rank < 0:
        return ctx.reply.null_array() if with_score else ctx.reply.null()
    if from_end:
        rank = <int64_t>set.count() - 1 - rank
    if not with_score:
        return ctx.reply.integer(rank)
    ctx.reply.array_header(2)
    ctx.reply.integer(rank)
    return ctx.reply.double(score)


@command(
    "ZRANK", arity=-3, group="sorted-set", flags="readonly fast", since="2.0.0",
    keys=KeysAt(1),
    complexity="O(log(N)), with N the members of the set",
    summary="Returns how many members of a sorted set come before a member.",
    args=(key(), string("member"), optional(token("WITHSCORE"))),
)
def zrank(Context ctx not None, list args not None):
    reply_with_rank(ctx, args, False)


@command(
    "ZREVRANK", arity=-3, group="sorted-set", flags="readonly fast", since="2.0.0",
    keys=KeysAt(1),
    complexity="O(log(N)), with N the members of the set",
    summary="Returns how many members of a sorted set come after a member.",
    args=(key(), string("member"), optional(token("WITHSCORE"))),
)
def zrevrank(Context ctx not None, list args not None):
    reply_with_rank(ctx, args, True)
