# cython: language_level=3, boundscheck=False, wraparound=False
"""ZADD and ZINCRBY: members that are added, or get another score.

A request is read in full, scores included, before anything changes. Behaviour: Redis 8.6, as seen on a running server.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from libc.math cimport isnan
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from streamd.core.args cimport is_word
from streamd.core.context cimport Context
from streamd.engine.table cimport table_hash
from streamd.heap cimport free, malloc
from streamd.keyspace.listener cimport EVENT_SORTED_SET
from streamd.keyspace.value_type cimport number_of
from streamd.protocol.doubles cimport read_double
from streamd.values.sorted_sets.access cimport find_sorted_set_for_write, note_change
from streamd.values.sorted_sets.large cimport Large, large_add, large_find, large_move, large_score
from streamd.values.sorted_sets.sorted_set cimport SortedSet, new_sorted_set
from streamd.values.sorted_sets.sorted_set_limits cimport SortedSetLimits, limits_in

from streamd.core.spec import KeysAt, block, command, double, integer, key, multiple, oneof, optional, string, token
from streamd.errors import CommandError, OptionSyntaxError

__all__ = ["zadd", "zincrby"]

cdef enum:
    SCORES_AT_HAND = 16         # scores of a request for which no memory has to be allocated


# --- The request ----------------------------------------------------------------------------------------------------


cdef struct AddOptions:
    # The options of a ZADD.
    bint only_new              # NX
    bint only_existing         # XX
    bint only_greater          # GT
    bint only_less             # LT
    bint counts_changes        # CH
    bint increments            # INCR
    Py_ssize_t first           # index of the first score; pairs of score and member follow


cdef int parse_options(list args, AddOptions *options) except -1:
    cdef Py_ssize_t at = 2, count = PyList_GET_SIZE(args)
    cdef bytes word
    options.only_new = options.only_existing = options.only_greater = options.only_less = False
    options.counts_changes = options.increments = False
    while at < count:
        word = <bytes>PyList_GET_ITEM(args, at)
        if is_word(word, b"NX"):
            options.only_new = True
        elif is_word(word, b"XX"):
            options.only_existing = True
        elif is_word(word, b"CH"):
            options.counts_changes = True
        elif is_word(word, b"INCR"):
            options.increments = True
        elif is_word(word, b"GT"):
            options.only_greater = True
        elif is_word(word, b"LT"):
            options.only_less = True
        else:
            break
        at += 1
    options.first = at
    if at == count or (count - at) & 1:
        raise OptionSyntaxError
    if options.only_new and options.only_existing:
        raise CommandError("ERR XX and NX options at the same time are not compatible")
    if options.only_greater + options.only_less + options.only_new > 1:
        raise CommandError("ERR GT, LT, and/or NX options at the same time are not compatible")
    if options.increments and count - at > 2:
        raise CommandError("ERR INCR option supports a single increment-element pair")
    return 0


cdef int parse_scores(list args, Py_ssize_t first, double *scores) except -1:
    """Read every other argument as a score. Raises CommandError for one that is not a number."""
    cdef Py_ssize_t at
    cdef bytes text
    for at in range(first, PyList_GET_SIZE(args), 2):
        text = <bytes>PyList_GET_ITEM(args, at)
        if not read_double(PyBytes_AS_STRING(text), <size_t>PyBytes_GET_SIZE(text), &scores[(at - first) >> 1]):
            raise CommandError("ERR value is not a valid float")
    return 0


# --- The commands ---------------------------------------------------------------------------------------------------


cdef enum Outcome:
    NOTHING_DONE        # an option forbids it
    UNCHANGED           # it had that score already
    CHANGED
    ADDED


cdef Outcome judge(double present, double *score, const AddOptions *options) except *:
    """What happens to a member that is there; *score becomes the score that it has then."""
    if options.only_new:
        return NOTHING_DONE
    if options.increments:
        score[0] += present
        if isnan(score[0]):
            raise CommandError("ERR resulting score is not a number (NaN)")
    if (options.only_greater and score[0] <= present) or (options.only_less and score[0] >= present):
        return NOTHING_DONE
    return UNCHANGED if score[0] == present else CHANGED


cdef Outcome put_in_large(Large *large, bytes member, double *score, const AddOptions *options) except *:
    """Add a member, or change its score, with one look into the table."""
    cdef const uint8_t *s = <const uint8_t *>PyBytes_AS_STRING(member)
    cdef size_t n = <size_t>PyBytes_GET_SIZE(member)
    cdef uint64_t hash = table_hash(s, n)
    cdef uint32_t handle = large_find(large, hash, s, n)
    cdef Outcome outcome
    if handle == 0:
        if options.only_existing:
            return NOTHING_DONE
        if not large_add(large, hash, s, n, score[0]):
            raise MemoryError("no memory for a sorted set")
        return ADDED
    outcome = judge(large_score(large, handle), score, options)
    if outcome == CHANGED and large_move(large, handle, score[0]) < 0:
        raise MemoryError("no memory for a sorted set")
    return outcome


cdef Outcome put_member(
    SortedSet set, bytes member, double *score, const AddOptions *options, SortedSetLimits limits, uint64_t count
) except *:
    """Add a member, or change its score; *score becomes the score that it has then. count: members that there are."""
    cdef const uint8_t *s = <const uint8_t *>PyBytes_AS_STRING(member)
    cdef size_t n = <size_t>PyBytes_GET_SIZE(member)
    cdef double present
    cdef Outcome outcome
    if set.large is not NULL:
        return put_in_large(set.large, member, score, options)
    if set.find(s, n, &present):
        outcome = judge(present, score, options)
        if outcome == CHANGED:
            set.move(s, n, score[0])
        return outcome
    if options.only_existing:
        return NOTHING_DONE
    if not set.fits(count + 1, n, limits.max_members, limits.max_bytes):
        set.enlarge()
    set.add(s, n, score[0])
    return ADDED


cdef SortedSet set_for(Context ctx, bytes name, list args, const AddOptions *options, SortedSetLimits limits):
    """The set to be changed, a new one if the key is missing; None if then nothing may be added.

    As in Redis, the number of arguments decides whether a set becomes large: members may repeat.
    """
    cdef SortedSet set = find_sorted_set_for_write(ctx, name)
    cdef bint fits
    if set is not None and set.large is not NULL:
        return set
    fits = <uint64_t>(PyList_GET_SIZE(args) - options.first) >> 1 <= limits.max_members
    if set is None:
        return None if options.only_existing else new_sorted_set(not fits)
    if not fits:
        set.enlarge()
    return set


cdef int put_members(Context ctx, list args, const AddOptions *options, double *scores) except -1:
    """Change the set, and reply."""
    cdef bytes name = <bytes>PyList_GET_ITEM(args, 1)
    cdef SortedSetLimits limits = limits_in(ctx)
    cdef SortedSet set = set_for(ctx, name, args, options, limits)
    cdef uint64_t before, added = 0, changed = 0
    cdef Py_ssize_t at
    cdef Outcome outcome = NOTHING_DONE
    if set is not None:
        before = set.count()
        try:
            for at in range(options.first, PyList_GET_SIZE(args), 2):
                outcome = put_member(
                    set, <bytes>PyList_GET_ITEM(args, at + 1), &scores[(at - options.first) >> 1], options, limits,
                    before + added,
                )
                added += outcome == ADDED
                changed += outcome == CHANGED
        finally:
            if added or changed:
                report(ctx, name, set, before, added + changed, options.increments)
    if not options.increments:
        return ctx.reply.integer(<long long>(added + changed if options.counts_changes else added))
    return ctx.reply.null() if outcome == NOTHING_DONE else ctx.reply.double(scores[0])


cdef int report(Context ctx, bytes name, SortedSet set, uint64_t before, uint64_t changes, bint increments) except -1:
    """Members of a set have been added or changed."""
    if before:
        note_change(ctx.db, name, set, before)
    else:
        ctx.db.add_typed(name, set, number_of(set))
    ctx.db.event(EVENT_SORTED_SET, b"zincr" if increments else b"zadd", name)
    ctx.dirty += changes
    return 0


cdef int add_with(Context ctx, list args, const AddOptions *options) except -1:
    cdef double at_hand[SCORES_AT_HAND]
    cdef Py_ssize_t pairs = (PyList_GET_SIZE(args) - options.first) >> 1
    cdef double *scores = &at_hand[0]
    if pairs > SCORES_AT_HAND:
        scores = <double *>malloc(<size_t>pairs * sizeof(double))
        if scores is NULL:
            raise MemoryError("no memory for the scores of a request")
    try:
        parse_scores(args, options.first, scores)
        put_members(ctx, args, options, scores)
    finally:
        if scores is not &at_hand[0]:
            free(scores)
    return 0


@command(
    "ZADD", arity=-4, group="sorted-set", flags="write denyoom fast", since="1.2.0",
    keys=KeysAt(1, flags="RW update"),
    complexity="O(M*log(N)), with N the members of the set and M those that are added or changed",
    summary="Adds members to a sorted set, or changes their scores.",
    args=(
        key(), optional(oneof("condition", token("NX"), token("XX")), since="3.0.2"),
        optional(oneof("comparison", token("GT"), token("LT")), since="6.2.0"),
        optional(token("CH", "change"), since="3.0.2"), optional(token("INCR", "increment"), since="3.0.2"),
        multiple(block("data", double("score"), string("member"))),
    ),
)
def zadd(Context ctx not None, list args not None):
    cdef AddOptions options
    parse_options(args, &options)
    add_with(ctx, args, &options)


@command(
    "ZINCRBY", arity=4, group="sorted-set", flags="write denyoom fast", since="1.2.0",
    keys=KeysAt(1, flags="RW access update"),
    complexity="O(log(N)), with N the members of the set",
    summary="Adds to the score of a member of a sorted set; a missing member has the score 0.",
    args=(key(), integer("increment"), string("member")),
)
def zincrby(Context ctx not None, list args not None):
    cdef AddOptions options
    options.only_new = options.only_existing = options.only_greater = options.only_less = False
    options.counts_changes = False
    options.increments = True
    options.first = 2
    add_with(ctx, args, &options)
