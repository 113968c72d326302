# cython: language_level=3, boundscheck=False, wraparound=False
"""ZPOPMIN, ZPOPMAX, ZMPOP, and BZPOPMIN, BZPOPMAX, BZMPOP, which wait: removing members from an end.

A client that waits runs its request again when one of its keys holds a sorted set. What is propagated is the ZPOPMIN or
ZPOPMAX that has the same effect. Behaviour: Redis 8.6, as seen on a running server.
"""

from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from libc.stdint cimport int64_t, uint64_t

from streamd.core.args cimport is_word, parse_int64
from streamd.core.context cimport BlockRequest, Context
from streamd.core.timeouts cimport parse_seconds
from streamd.protocol.reply cimport ReplyWriter
from streamd.values.sorted_sets.access cimport (
    find_sorted_set_for_write, finish_removal, reply_member, reply_pair, reply_pairs_header,
)
from streamd.values.sorted_sets.packed cimport Item
from streamd.values.sorted_sets.sorted_set cimport SortedSet, Walk
from streamd.values.sorted_sets.waiting cimport SORTED_SET_QUESTION

from streamd.core.spec import KeysAt, KeysCounted, command, double, integer, key, multiple, oneof, optional, token
from streamd.errors import MUST_BE_POSITIVE, CommandError, OptionSyntaxError

__all__ = ["bzmpop", "bzpopmax", "bzpopmin", "zmpop", "zpopmax", "zpopmin"]


cdef enum Form:
    # How the members of a reply are written.
    FORM_FLAT           # member, score
    FORM_BY_PROTOCOL    # flat in RESP2, pairs in RESP3
    FORM_PAIRS          # an array for each


cdef int reply_popped(ReplyWriter reply, const Item *item, Form form) except -1:
    if form == FORM_BY_PROTOCOL:
        return reply_pair(reply, item)
    if form == FORM_PAIRS:
        reply.array_header(2)
    reply_member(reply, &item.member)
    return reply.double(item.score)


cdef int pop(Context ctx, bytes name, SortedSet set, uint64_t members, bint highest, Form form) except -1:
    """Reply with so many members from an end, without a header, and remove them."""
    cdef uint64_t before = set.count(), left = members
    cdef Walk walk
    cdef Item item
    set.seek(before - 1 if highest else 0, &walk)
    while left:
        left -= 1
        if highest:
            set.back(&walk, &item)
        else:
            set.next(&walk, &item)
        reply_popped(ctx.reply, &item, form)
    set.remove_range(before - members if highest else 0, members)
    return finish_removal(ctx, name, set, before, b"zpopmax" if highest else b"zpopmin")


cdef int propagate_pop(Context ctx, bytes name, bint highest, int64_t members) except -1:
    """Propagate a pop as a command that does not wait; members: -1: one, without a count."""
    cdef list effect
    if ctx.is_propagating:
        effect = [b"ZPOPMAX" if highest else b"ZPOPMIN", name]
        if members >= 0:
            effect.append(b"%d" % members)
        ctx.propagate(effect)
    return 0


# --- From one key ---------------------------------------------------------------------------------------------------


cdef int pop_from_key(Context ctx, list args, bint highest) except -1:
    cdef Py_ssize_t argc = PyList_GET_SIZE(args)
    cdef bytes name = <bytes>PyList_GET_ITEM(args, 1)
    cdef long long wanted = 1
    cdef uint64_t members
    cdef SortedSet set
    if argc > 3:
        raise OptionSyntaxError
    if argc == 3 and (not parse_int64(<bytes>PyList_GET_ITEM(args, 2), &wanted) or wanted < 0):
        raise CommandError(MUST_BE_POSITIVE)
    set = find_sorted_set_for_write(ctx, name)
    if set is None or wanted == 0:
        return ctx.reply.array_header(0)
    members = min(<uint64_t>wanted, set.count())
    if argc == 2:
        ctx.reply.array_header(2)
    else:
        reply_pairs_header(ctx.reply, <int64_t>members)
    return pop(ctx, name, set, members, highest, FORM_FLAT if argc == 2 else FORM_BY_PROTOCOL)


def pop_command(name, end):
    """Declare a command that pops from one end of one set."""
    return command(
        name, arity=-2, group="sorted-set", flags="write fast", since="5.0.0",
        keys=KeysAt(1, flags="RW access delete"),
        complexity="O(M*log(N)), with N the members of the set and M those that are removed",
        summary=f"Removes the members of a sorted set with the {end} scores, and returns them.",
        args=(key(), optional(integer("count"))),
    )


@pop_command("ZPOPMIN", "lowest")
def zpopmin(Context ctx not None, list args not None):
    pop_from_key(ctx, args, False)


@pop_command("ZPOPMAX", "highest")
def zpopmax(Context ctx not None, list args not None):
    pop_from_key(ctx, args, True)


# --- From the first of several keys that has members ----------------------------------------------------------------


cdef SortedSet first_set(Context ctx, list args, Py_ssize_t first, Py_ssize_t keys, Py_ssize_t *found):
    """The first set among the keys from an argument on, or None, and the index of its key; WrongTypeError."""
    cdef SortedSet set
    cdef Py_ssize_t at
    for at in range(first, first + keys):
        set = find_sorted_set_for_write(ctx, <bytes>PyList_GET_ITEM(args, at))
        if set is not None:
            found[0] = at
            return set
    return None


cdef int pop_one_or_wait(Context ctx, list args, bint highest) except -1:
    cdef Py_ssize_t keys = PyList_GET_SIZE(args) - 2
    cdef long long timeout_ms = parse_seconds(<bytes>PyList_GET_ITEM(args, keys + 1), ctx.now_ms)
    cdef Py_ssize_t at = 0
    cdef SortedSet set = first_set(ctx, args, 1, keys, &at)
    cdef bytes name
    if set is None:
        ctx.block_on(BlockRequest(args[1:keys + 1], args, timeout_ms, SORTED_SET_QUESTION))
        return 0
    name = <bytes>PyList_GET_ITEM(args, at)
    ctx.reply.array_header(3)
    ctx.reply.bulk(name)
    pop(ctx, name, set, 1, highest, FORM_FLAT)
    return propagate_pop(ctx, name, highest, -1)


@command(
    "BZPOPMIN", arity=-3, group="sorted-set", flags="write blocking fast", since="5.0.0",
    keys=KeysAt(1, -2, flags="RW access delete"),
    complexity="O(log(N)), with N the members of the set",
    summary="Removes the member with the lowest score from the first of several sorted sets, or waits for one.",
    args=(multiple(key()), double("timeout")),
)
def bzpopmin(Context ctx not None, list args not None):
    pop_one_or_wait(ctx, args, False)


@command(
    "BZPOPMAX", arity=-3, group="sorted-set", flags="write blocking fast", since="5.0.0",
    keys=KeysAt(1, -2, flags="RW access delete"),
    complexity="O(log(N)), with N the members of the set",
    summary="Removes the member with the highest score from the first of several sorted sets, or waits for one.",
    args=(multiple(key()), double("timeout")),
)
def bzpopmax(Context ctx not None, list args not None):
    pop_one_or_wait(ctx, args, True)


cdef struct PopRequest:
    # The options of a ZMPOP or BZMPOP.
    Py_ssize_t first           # index of the first key
    Py_ssize_t keys
    bint highest
    long long members          # at most


cdef long long parse_positive(bytes text, str what) except -1:
    cdef long long number
    if not parse_int64(text, &number) or number < 1:
        raise CommandError(f"ERR {what} should be greater than 0")
    return number


cdef int parse_pop(list args, Py_ssize_t at, PopRequest *request) except -1:
    """Read a request from its number of keys on."""
    cdef Py_ssize_t argc = PyList_GET_SIZE(args)
    cdef bint has_count = False
    request.keys = <Py_ssize_t>parse_positive(<bytes>PyList_GET_ITEM(args, at), "numkeys")
    request.first = at + 1
    request.members = 1
    if request.keys >= argc - request.first:
        raise OptionSyntaxError
    at = request.first + request.keys
    if is_word(<bytes>PyList_GET_ITEM(args, at), b"MIN"):
        request.highest = False
    elif is_word(<bytes>PyList_GET_ITEM(args, at), b"MAX"):
        request.highest = True
    else:
        raise OptionSyntaxError
    at += 1
    while at < argc:
        if has_count or at + 1 == argc or not is_word(<bytes>PyList_GET_ITEM(args, at), b"COUNT"):
            raise OptionSyntaxError
        request.members = parse_positive(<bytes>PyList_GET_ITEM(args, at + 1), "count")
        has_count = True
        at += 2
    return 0


cdef bint pop_several(Context ctx, list args, const PopRequest *request) except -1:
    """Pop from the first set that exists, and reply; False: none exists."""
    cdef Py_ssize_t at = 0
    cdef SortedSet set = first_set(ctx, args, request.first, request.keys, &at)
    cdef uint64_t members
    cdef bytes name
    if set is None:
        return False
    name = <bytes>PyList_GET_ITEM(args, at)
    members = min(<uint64_t>request.members, set.count())
    ctx.reply.array_header(2)
    ctx.reply.bulk(name)
    ctx.reply.array_header(<int64_t>members)
    pop(ctx, name, set, members, request.highest, FORM_PAIRS)
    propagate_pop(ctx, name, request.highest, <int64_t>members)
    return True


@command(
    "ZMPOP", arity=-4, group="sorted-set", flags="write", since="7.0.0",
    keys=KeysCounted(1, flags="RW access delete"),
    complexity="O(K+M*log(N)), with K the keys, N the members of the set and M those that are removed",
    summary="Removes members from an end of the first of several sorted sets, and returns them.",
    args=(
        integer("numkeys"), multiple(key()), oneof("where", token("MIN"), token("MAX")),
        optional(integer("count", "COUNT")),
    ),
)
def zmpop(Context ctx not None, list args not None):
    cdef PopRequest request
    parse_pop(args, 1, &request)
    if not pop_several(ctx, args, &request):
        ctx.reply.null_array()


@command(
    "BZMPOP", arity=-5, group="sorted-set", flags="write blocking", since="7.0.0",
    keys=KeysCounted(2, flags="RW access delete"),
    complexity="O(K+M*log(N)), with K the keys, N the members of the set and M those that are removed",
    summary="Removes members from an end of the first of several sorted sets and returns them, or waits for some.",
    args=(
        double("timeout"), integer("numkeys"), multiple(key()), oneof("where", token("MIN"), token("MAX")),
        optional(integer("count", "COUNT")),
    ),
)
def bzmpop(Context ctx not None, list args not None):
    cdef PopRequest request
    cdef long long timeout_ms
    parse_pop(args, 2, &request)
    timeout_ms = parse_seconds(<bytes>PyList_GET_ITEM(args, 1), ctx.now_ms)
    if not pop_several(ctx, args, &request):
        ctx.block_on(BlockRequest(
            args[request.first:request.first + request.keys], args, timeout_ms, SORTED_SET_QUESTION,
        ))
