# cython: language_level=3, boundscheck=False, wraparound=False
"""ZRANDMEMBER: members at random. Behaviour: Redis 8.6, as seen on a running server."""

from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t, uint64_t

from streamd.core.args cimport is_word, require_int64
from streamd.core.context cimport Context
from streamd.engine.table cimport random_below
from streamd.protocol.reply cimport ReplyWriter
from streamd.values.sorted_sets.access cimport (
    find_sorted_set, reply_member, reply_pair, reply_pairs_header, reply_range,
)
from streamd.values.sorted_sets.packed cimport Item
from streamd.values.sorted_sets.sorted_set cimport SortedSet, Walk

from streamd.core.spec import KeysAt, block, command, integer, key, optional, token
from streamd.errors import CommandError, OptionSyntaxError

__all__ = ["zrandmember"]

cdef long long MOST_REPLY = 4 << 30     # bytes of a reply with repeated members

cdef enum:
    SAMPLES = 8         # members whose size stands for that of all
    FEW = 3             # as long as a set has so many times the members that are wanted, drawing finds new ones soon


cdef int reply_item(ReplyWriter reply, const Item *item, bint with_scores) except -1:
    return reply_pair(reply, item) if with_scores else reply_member(reply, &item.member)


cdef int reply_at(ReplyWriter reply, SortedSet set, uint64_t rank, bint with_scores) except -1:
    cdef Walk walk
    cdef Item item
    set.seek(rank, &walk)
    set.next(&walk, &item)
    return reply_item(reply, &item, with_scores)


cdef int reply_header(ReplyWriter reply, int64_t members, bint with_scores) except -1:
    return reply_pairs_header(reply, members) if with_scores else reply.array_header(members)


cdef int refuse_huge(SortedSet set, uint64_t members, bint with_scores) except -1:
    """Raise CommandError if a reply with so many members is too large to be made."""
    cdef ReplyWriter sample = ReplyWriter.__new__(ReplyWriter)
    cdef uint64_t count = set.count()
    cdef int _sample
    for _sample in range(SAMPLES):
        reply_at(sample, set, random_below(count), with_scores)
    if members > <uint64_t>MOST_REPLY // (sample.length // SAMPLES + 1):
        raise CommandError("ERR value is out of range, the reply would exceed 4 GiB")
    return 0


cdef int reply_with_repeats(ReplyWriter reply, SortedSet set, uint64_t members, bint with_scores) except -1:
    """So many members, each drawn from all. The limit of unsent replies ends what is too long."""
    cdef uint64_t count = set.count()
    refuse_huge(set, members, with_scores)
    reply_header(reply, <int64_t>members, with_scores)
    while members and not reply.is_cut:
        members -= 1
        reply_at(reply, set, random_below(count), with_scores)
    return 0


cdef int reply_with_few(ReplyWriter reply, SortedSet set, uint64_t members, bint with_scores) except -1:
    """Different members, few compared with how many there are."""
    cdef uint64_t rank, count = set.count()
    drawn = {}
    while <uint64_t>len(drawn) < members:
        rank = random_below(count)
        drawn[rank] = None
    for rank in drawn:
        reply_at(reply, set, rank, with_scores)
    return 0


cdef int reply_with_many(ReplyWriter reply, SortedSet set, uint64_t members, bint with_scores) except -1:
    """Different members: walk over all, and take each with the probability that makes all choices equally likely."""
    cdef uint64_t left = set.count()
    cdef Walk walk
    cdef Item item
    set.seek(0, &walk)
    while members:
        set.next(&walk, &item)
        if random_below(left) < members:
            members -= 1
            reply_item(reply, &item, with_scores)
        left -= 1
    return 0


cdef int64_t parse_count(list args, bint *with_scores) except? 0:
    """The number of members that a request with options wants; those that repeat if negative."""
    cdef Py_ssize_t argc = PyList_GET_SIZE(args)
    cdef int64_t count = require_int64(<bytes>PyList_GET_ITEM(args, 2))
    if count == INT64_MIN:
        raise CommandError(f"ERR value is out of range, value must between {-INT64_MAX} and {INT64_MAX}")
    with_scores[0] = argc == 4
    if argc > 4 or (with_scores[0] and not is_word(<bytes>PyList_GET_ITEM(args, 3), b"WITHSCORES")):
        raise OptionSyntaxError
    if with_scores[0] and not -INT64_MAX // 2 <= count <= INT64_MAX // 2:
        raise CommandError("ERR value is out of range")
    return count


@command(
    "ZRANDMEMBER", arity=-2, group="sorted-set", flags="readonly", since="6.2.0",
    keys=KeysAt(1),
    complexity="O(N), with N the members that are returned",
    summary="Returns members of a sorted set at random.",
    tips=("nondeterministic_output",),
    args=(key(), optional(block("options", integer("count"), optional(token("WITHSCORES"))))),
)
def zrandmember(Context ctx not None, list args not None):
    cdef SortedSet set
    cdef ReplyWriter reply = ctx.reply
    cdef int64_t wanted
    cdef uint64_t count
    cdef bint with_scores = False
    if PyList_GET_SIZE(args) == 2:
        set = find_sorted_set(ctx, <bytes>PyList_GET_ITEM(args, 1))
        if set is None:
            reply.null()
        else:
            reply_at(reply, set, random_below(set.count()), False)
        return
    wanted = parse_count(args, &with_scores)
    set = find_sorted_set(ctx, <bytes>PyList_GET_ITEM(args, 1))
    if set is None or wanted == 0:
        reply.array_header(0)
        return
    count = set.count()
    if wanted < 0:
        reply_with_repeats(reply, set, <uint64_t>-wanted, with_scores)
    elif <uint64_t>wanted >= count:
        reply_range(reply, set, 0, count, False, with_scores)
    else:
        reply_header(reply, wanted, with_scores)
        if <uint64_t>wanted < count // FEW:
            reply_with_few(reply, set, <uint64_t>wanted, with_scores)
        else:
            reply_with_many(reply, set, <uint64_t>wanted, with_scores)
