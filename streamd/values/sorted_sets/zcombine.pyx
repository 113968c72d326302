# cython: language_level=3, boundscheck=False, wraparound=False
"""ZUNION, ZINTER, ZDIFF, ZINTERCARD, and the commands that store such a result.

The inputs are values of any type that has members with scores (ValueType.scores): sorted sets, and sets, whose members
all have the score 1. As in Redis, a union or an intersection goes from the smallest input to the largest, which decides
in what order scores are added. Behaviour: Redis 8.6, as seen on a running server.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from libc.math cimport isnan
from libc.stdint cimport UINT64_MAX, int64_t, uint8_t, uint64_t

from streamd.core.args cimport is_word, parse_int64, require_int64
from streamd.core.context cimport Context
from streamd.keyspace.value_type cimport ValueType, number_of, type_at
from streamd.protocol.doubles cimport read_double
from streamd.values.sorted_sets.access cimport append_to_result, reply_pair, reply_pairs_header, store_result
from streamd.values.sorted_sets.packed cimport Item
from streamd.values.sorted_sets.sorted_set cimport SortedSet, new_sorted_set
from streamd.values.sorted_sets.sorted_set_limits cimport SortedSetLimits, limits_in

from streamd.core.spec import KeysAt, KeysCounted, command, integer, key, multiple, oneof, optional, token
from streamd.errors import CommandError, OptionSyntaxError, WrongTypeError

__all__ = ["zdiff", "zdiffstore", "zinter", "zintercard", "zinterstore", "zunion", "zunionstore"]


# --- The request ----------------------------------------------------------------------------------------------------


cdef enum Operation:
    UNION
    INTERSECTION
    DIFFERENCE


cdef enum Aggregate:
    AGGREGATE_SUM
    AGGREGATE_MIN
    AGGREGATE_MAX


cdef enum Output:
    REPLIED             # the members
    STORED
    COUNTED             # only how many there are


@cython.final
@cython.no_gc
cdef class Input:
    """The value of one key, which may be missing."""

    cdef ValueType type         # None: the key is missing
    cdef object value
    cdef SortedSet set          # the value, if it is a sorted set
    cdef object pairs           # its members with their scores: an iterator
    cdef uint64_t count
    cdef double weight

    cdef bint find(self, bytes member, double *score) except -1:
        """Whether a member is in it."""
        if self.set is not None:
            return self.set.find(<const uint8_t *>PyBytes_AS_STRING(member), <size_t>PyBytes_GET_SIZE(member), score)
        found = None if self.type is None else self.type.score_of(self.value, member)
        if found is not None:
            score[0] = found
        return found is not None


@cython.final
cdef class Combination:
    """A request, as it was read."""

    cdef Operation operation
    cdef Output output
    cdef list inputs
    cdef Aggregate aggregate
    cdef bint with_scores
    cdef uint64_t limit         # of what is counted


cdef Input find_input(Context ctx, bytes name):
    """The input under a key; WrongTypeError when its value has no members with scores."""
    cdef Input found = Input.__new__(Input)
    found.weight = 1
    found.value = ctx.db.find(name)
    found.pairs = ()
    if found.value is None:
        return found
    found.type = type_at(number_of(found.value))
    found.pairs = found.type.scores(found.value)
    if found.pairs is None:
        raise WrongTypeError
    if type(found.value) is SortedSet:
        found.set = <SortedSet>found.value
    found.count = <uint64_t>found.type.size(found.value)
    return found


cdef Combination parse(Context ctx, list args, Operation operation, Output output):
    """Read a request and find its inputs, which Redis does before it reads the options."""
    cdef Combination request = Combination.__new__(Combination)
    cdef Py_ssize_t at = 2 if output == STORED else 1
    cdef Py_ssize_t argc = PyList_GET_SIZE(args), i
    cdef int64_t keys = require_int64(<bytes>PyList_GET_ITEM(args, at))
    at += 1
    if keys < 1:
        raise CommandError(f"ERR at least 1 input key is needed for '{args[0].decode('latin-1').lower()}' command")
    if keys > argc - at:
        raise OptionSyntaxError
    request.operation = operation
    request.output = output
    request.aggregate = AGGREGATE_SUM
    request.limit = UINT64_MAX
    request.inputs = []
    for i in range(<Py_ssize_t>keys):
        request.inputs.append(find_input(ctx, <bytes>PyList_GET_ITEM(args, at + i)))
    parse_options(args, at + <Py_ssize_t>keys, request)
    if operation != DIFFERENCE:
        request.inputs.sort(key=count_of)
    return request


def count_of(Input given not None):
    return given.count


cdef int parse_options(list args, Py_ssize_t at, Combination request) except -1:
    cdef Py_ssize_t argc = PyList_GET_SIZE(args), keys = PyList_GET_SIZE(request.inputs)
    cdef bint combines = request.operation != DIFFERENCE and request.output != COUNTED
    cdef bytes word
    while at < argc:
        word = <bytes>PyList_GET_ITEM(args, at)
        if combines and argc - at > keys and is_word(word, b"WEIGHTS"):
            parse_weights(args, at + 1, request.inputs)
            at += keys
        elif combines and argc - at > 1 and is_word(word, b"AGGREGATE"):
            at += 1
            request.aggregate = parse_aggregate(<bytes>PyList_GET_ITEM(args, at))
        elif request.output == REPLIED and is_word(word, b"WITHSCORES"):
            request.with_scores = True
        elif request.output == COUNTED and argc - at > 1 and is_word(word, b"LIMIT"):
            at += 1
            request.limit = parse_limit(<bytes>PyList_GET_ITEM(args, at))
        else:
            raise OptionSyntaxError
        at += 1
    return 0


cdef int parse_weights(list args, Py_ssize_t at, list inputs) except -1:
    cdef Input given
    cdef bytes text
    for given in inputs:
        text = <bytes>PyList_GET_ITEM(args, at)
        if not read_double(PyBytes_AS_STRING(text), <size_t>PyBytes_GET_SIZE(text), &given.weight):
            raise CommandError("ERR weight value is not a float")
        at += 1
    return 0


cdef Aggregate parse_aggregate(bytes word) except *:
    if is_word(word, b"SUM"):
        return AGGREGATE_SUM
    if is_word(word, b"MIN"):
        return AGGREGATE_MIN
    if is_word(word, b"MAX"):
        return AGGREGATE_MAX
    raise OptionSyntaxError


cdef uint64_t parse_limit(bytes text) except? 0:
    """The most members that are counted; 0 in the request: all."""
    cdef long long limit
    if not parse_int64(text, &limit) or limit < 0:
        raise CommandError("ERR LIMIT can't be negative")
    return <uint64_t>limit if limit else UINT64_MAX


# --- Combining ------------------------------------------------------------------------------------------------------


cdef inline double weighed(double score, double weight) noexcept:
    """0 for an infinite score with the weight 0."""
    score *= weight
    return 0 if isnan(score) else score


cdef inline double joined(double a, double b, Aggregate aggregate) noexcept:
    """The score of a member that two inputs have."""
    if aggregate == AGGREGATE_MIN:
        return b if b < a else a
    if aggregate == AGGREGATE_MAX:
        return b if b > a else a
    a += b
    return 0 if isnan(a) else a


cdef dict unite(Combination request):
    cdef dict scores = {}
    cdef Input given
    cdef double score
    for given in request.inputs:
        for member, found in given.pairs:
            score = weighed(found, given.weight)
            before = scores.get(member)
            scores[member] = score if before is None else joined(before, score, request.aggregate)
    return scores


cdef dict intersect(Combination request):
    """The members that all inputs have, and no more than the limit."""
    cdef dict scores = {}
    cdef Input smallest = request.inputs[0]
    cdef Input given
    cdef double score, other
    for member, found in smallest.pairs:
        score = weighed(found, smallest.weight)
        for given in request.inputs[1:]:
            if not given.find(member, &other):
                break
            score = joined(score, other * given.weight, request.aggregate)
        else:
            scores[member] = score
            if <uint64_t>len(scores) >= request.limit:
                break
    return scores


cdef dict subtract(Combination request):
    """The members that only the first input has."""
    cdef dict scores = {}
    cdef Input first = request.inputs[0]
    cdef Input given
    cdef double other
    for member, score in first.pairs:
        for given in request.inputs[1:]:
            if given.find(member, &other):
                break
        else:
            scores[member] = score
    return scores


cdef dict combine(Combination request):
    if request.operation == UNION:
        return unite(request)
    return intersect(request) if request.operation == INTERSECTION else subtract(request)


cdef inline void set_item(Item *item, bytes member, double score) noexcept:
    item.member.data = <const uint8_t *>PyBytes_AS_STRING(member)
    item.member.length = <uint64_t>PyBytes_GET_SIZE(member)
    item.score = score


cdef list in_order(dict scores):
    """Pairs of score and member, in the order of a sorted set."""
    cdef list pairs = [(score, member) for member, score in scores.items()]
    pairs.sort()
    return pairs


cdef int reply_with(Context ctx, Combination request) except -1:
    cdef list pairs = in_order(combine(request))
    cdef Item item
    if not request.with_scores:
        ctx.reply.array_header(PyList_GET_SIZE(pairs))
        for _, member in pairs:
            ctx.reply.bulk(<bytes>member)
        return 0
    reply_pairs_header(ctx.reply, PyList_GET_SIZE(pairs))
    for score, member in pairs:
        set_item(&item, <bytes>member, score)
        reply_pair(ctx.reply, &item)
    return 0


cdef int store(Context ctx, list args, Combination request, bytes event) except -1:
    cdef list pairs = in_order(combine(request))
    cdef SortedSetLimits limits = limits_in(ctx)
    cdef SortedSet result = new_sorted_set(<uint64_t>PyList_GET_SIZE(pairs) > limits.max_members)
    cdef Item item
    for score, member in pairs:
        set_item(&item, <bytes>member, score)
        append_to_result(result, &item, limits)
    return store_result(ctx, <bytes>PyList_GET_ITEM(args, 1), result, event)


# --- The commands ---------------------------------------------------------------------------------------------------

COMBINING = (
    optional(multiple(integer("weight", "WEIGHTS"))),
    optional(oneof("aggregate", token("SUM"), token("MIN"), token("MAX"), token="AGGREGATE")),
)


@command(
    "ZUNION", arity=-3, group="sorted-set", flags="readonly", since="6.2.0",
    keys=KeysCounted(1),
    complexity="O(N+M*log(M)), with N the members of all sets and M those of the union",
    summary="Returns the members that any of several sorted sets has, with their scores combined.",
    args=(integer("numkeys"), multiple(key()), *COMBINING, optional(token("WITHSCORES"))),
)
def zunion(Context ctx not None, list args not None):
    reply_with(ctx, parse(ctx, args, UNION, REPLIED))


@command(
    "ZINTER", arity=-3, group="sorted-set", flags="readonly", since="6.2.0",
    keys=KeysCounted(1),
    complexity="O(N*K+M*log(M)), with N the members of the smallest set, K the sets and M the members of the result",
    summary="Returns the members that all of several sorted sets have, with their scores combined.",
    args=(integer("numkeys"), multiple(key()), *COMBINING, optional(token("WITHSCORES"))),
)
def zinter(Context ctx not None, list args not None):
    reply_with(ctx, parse(ctx, args, INTERSECTION, REPLIED))


@command(
    "ZDIFF", arity=-3, group="sorted-set", flags="readonly", since="6.2.0",
    keys=KeysCounted(1),
    complexity="O(N*K+M*log(M)), with N the members of the first set, K the sets and M the members of the result",
    summary="Returns the members of a sorted set that several others do not have.",
    args=(integer("numkeys"), multiple(key()), optional(token("WITHSCORES"))),
)
def zdiff(Context ctx not None, list args not None):
    reply_with(ctx, parse(ctx, args, DIFFERENCE, REPLIED))


@command(
    "ZINTERCARD", arity=-3, group="sorted-set", flags="readonly", since="7.0.0",
    keys=KeysCounted(1),
    complexity="O(N*K), with N the members of the smallest set and K the sets",
    summary="Returns how many members several sorted sets have in common.",
    args=(integer("numkeys"), multiple(key()), optional(integer("limit", "LIMIT"))),
)
def zintercard(Context ctx not None, list args not None):
    ctx.reply.integer(len(combine(parse(ctx, args, INTERSECTION, COUNTED))))


@command(
    "ZUNIONSTORE", arity=-4, group="sorted-set", flags="write denyoom", since="2.0.0",
    keys=(KeysAt(1, flags="OW update"), KeysCounted(2)),
    complexity="O(N+M*log(M)), with N the members of all sets and M those of the union",
    summary="Stores the union of several sorted sets under a key.",
    args=(key("destination"), integer("numkeys"), multiple(key("key", 1)), *COMBINING),
)
def zunionstore(Context ctx not None, list args not None):
    store(ctx, args, parse(ctx, args, UNION, STORED), b"zunionstore")


@command(
    "ZINTERSTORE", arity=-4, group="sorted-set", flags="write denyoom", since="2.0.0",
    keys=(KeysAt(1, flags="OW update"), KeysCounted(2)),
    complexity="O(N*K+M*log(M)), with N the members of the smallest set, K the sets and M the members of the result",
    summary="Stores the intersection of several sorted sets under a key.",
    args=(key("destination"), integer("numkeys"), multiple(key("key", 1)), *COMBINING),
)
def zinterstore(Context ctx not None, list args not None):
    store(ctx, args, parse(ctx, args, INTERSECTION, STORED), b"zinterstore")


@command(
    "ZDIFFSTORE", arity=-4, group="sorted-set", flags="write denyoom", since="6.2.0",
    keys=(KeysAt(1, flags="OW update"), KeysCounted(2)),
    complexity="O(N*K+M*log(M)), with N the members of the first set, K the sets and M the members of the result",
    summary="Stores the difference of several sorted sets under a key.",
    args=(key("destination"), integer("numkeys"), multiple(key("key", 1))),
)
def zdiffstore(Context ctx not None, list args not None):
    store(ctx, args, parse(ctx, args, DIFFERENCE, STORED), b"zdiffstore")
