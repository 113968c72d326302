# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Random members: SPOP and SRANDMEMBER. Behaviour: Redis 8.6."""

from cpython.list cimport PyList_GET_SIZE
from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint64_t
from libc.string cimport memset

from streamd.core.args cimport parse_int64, require_int64
from streamd.core.context cimport Context
from streamd.engine.listpack cimport LpValue
from streamd.engine.table cimport random_below
from streamd.keyspace.listener cimport EVENT_SET
from streamd.numbers cimport INT64_ROOM
from streamd.protocol.reply cimport ReplyWriter
from streamd.values.sets.access cimport (
    drop_if_empty, find_set, find_set_for_write, note_change, reply_member, reply_members,
)
from streamd.values.sets.set_limits cimport SetLimits, limits_in
from streamd.values.sets.set_value cimport (
    FORM_INTSET, FORM_PACKED, FORM_TABLE, Set, SetWalk, bytes_of, new_set, set_discard, set_next, set_put_member,
    set_random, text_of,
)

from streamd.core.spec import KeysAt, command, integer, key, optional
from streamd.errors import MUST_BE_POSITIVE, CommandError, OptionSyntaxError

__all__ = []

cdef enum:
    AT_ONCE = 1024      # members of one SREM that is propagated
    KEPT_SHARE = 5      # if more than five sixths go, those that stay are put into a new set, as in Redis
    SPARSE = 3          # a choice of less than a third is made member by member
    SAMPLES = 16        # members by which the size of a reply is estimated

cdef int64_t MOST_REPLY = <int64_t>4 << 30      # bytes of a reply that an SRANDMEMBER may ask for


@command(
    "SPOP", arity=-2, group="set", flags="write fast", keys=KeysAt(1, flags="RW access delete"), since="1.0.0",
    summary="Removes members of a set, chosen at random, and returns them.",
    complexity="O(N) with N being the number of members returned", tips=("nondeterministic_output",),
    history=(("3.2.0", "`count`."),), args=(key(), optional(integer("count"), since="3.2.0")),
)
def spop(Context ctx not None, list args not None):
    cdef bytes name = <bytes>args[1]
    cdef bytes popped
    cdef Set set
    cdef LpValue member
    cdef char digits[INT64_ROOM]
    cdef const uint8_t *s
    cdef size_t n
    if PyList_GET_SIZE(args) > 2:
        pop_many(ctx, args)
        return
    set = find_set_for_write(ctx, name)
    if set is None or not set_random(set, &member):
        ctx.reply.null()
        return
    popped = bytes_of(&member)
    s = text_of(&member, digits, &n)
    reply_member(ctx.reply, &member)
    set_discard(set, s, n)
    note_change(ctx.db, name, set, set.count + 1)
    ctx.db.event(EVENT_SET, b"spop", name)
    ctx.propagate([b"SREM", name, popped])
    ctx.dirty += 1
    drop_if_empty(ctx.db, name, set)


cdef int pop_many(Context ctx, list args) except -1:
    """SPOP with a count."""
    cdef bytes name = <bytes>args[1]
    cdef Set set
    cdef long long count
    cdef uint64_t before
    if PyList_GET_SIZE(args) > 3:
        raise OptionSyntaxError
    if not parse_int64(<bytes>args[2], &count) or count < 0:
        raise CommandError(MUST_BE_POSITIVE)
    set = find_set_for_write(ctx, name)
    if set is None or count == 0:
        return ctx.reply.set(0)
    before = set.count
    if <uint64_t>count >= before:
        ctx.reply.set(<int64_t>before)
        reply_members(ctx.reply, set)
        ctx.db.event(EVENT_SET, b"spop", name)
        ctx.db.delete(name, True)
        ctx.propagate([b"UNLINK" if ctx.config.lazyfree_lazy_server_del else b"DEL", name])
        ctx.dirty += before
        return 0
    ctx.reply.set(count)
    if (before - <uint64_t>count) * KEPT_SHARE > <uint64_t>count:
        popped = pop_each(ctx.reply, set, <uint64_t>count)
    else:
        popped = pop_most(ctx, set, before - <uint64_t>count)
    note_change(ctx.db, name, set, before)
    for at in range(0, len(popped), AT_ONCE):
        ctx.propagate([b"SREM", name, *popped[at : at + AT_ONCE]])
    ctx.dirty += <uint64_t>count
    return ctx.db.event(EVENT_SET, b"spop", name)


cdef list pop_each(ReplyWriter reply, Set set, uint64_t count):
    """Remove so many members, one by one; returns them."""
    cdef LpValue member
    cdef char digits[INT64_ROOM]
    cdef const uint8_t *s
    cdef size_t n
    cdef list popped = []
    while count:
        count -= 1
        set_random(set, &member)
        popped.append(bytes_of(&member))
        reply_member(reply, &member)
        s = text_of(&member, digits, &n)
        set_discard(set, s, n)
    return popped


cdef list pop_most(Context ctx, Set set, uint64_t left):
    """Remove all members but `left`, which get into a new body; returns those removed."""
    cdef Set kept = new_set(FORM_INTSET if set.form == FORM_INTSET else FORM_PACKED)
    cdef SetLimits limits = limits_in(ctx)
    cdef LpValue member
    cdef char digits[INT64_ROOM]
    cdef const uint8_t *s
    cdef size_t n
    cdef SetWalk walk
    cdef list popped = []
    while left:
        left -= 1
        set_random(set, &member)
        set_put_member(kept, &member, limits)
        s = text_of(&member, digits, &n)
        set_discard(set, s, n)
    memset(&walk, 0, sizeof(walk))
    while set_next(set, &walk, &member):
        popped.append(bytes_of(&member))
        reply_member(ctx.reply, &member)
    set.body, kept.body = kept.body, set.body
    set.form, kept.form = kept.form, set.form
    set.count, kept.count = kept.count, set.count
    if ctx.db.trash is not None:
        ctx.db.trash.release(kept, 0)
    return popped


# --- SRANDMEMBER ------------------------------------------------------------------------------------------------------


cdef int refuse_huge(Set set, int64_t count) except -1:
    """Raise CommandError if a reply with so many members is too large to be made."""
    cdef LpValue member
    cdef ReplyWriter sample = ReplyWriter.__new__(ReplyWriter)
    cdef int _sample
    for _sample in range(SAMPLES):
        set_random(set, &member)
        reply_member(sample, &member)
    if count > MOST_REPLY // <int64_t>(sample.length // SAMPLES + 1):
        raise CommandError("ERR value is out of range, the reply would exceed 4 GiB")
    return 0


cdef int reply_repeated(ReplyWriter reply, Set set, int64_t count) except -1:
    """Any members, as many as asked for."""
    cdef LpValue member
    refuse_huge(set, count)
    reply.array_header(count)
    while count and not reply.is_cut:
        set_random(set, &member)
        reply_member(reply, &member)
        count -= 1
    return 0


cdef int reply_distinct(ReplyWriter reply, Set set, uint64_t count) except -1:
    """Different members, fewer than there are."""
    cdef LpValue member
    cdef SetWalk walk
    cdef uint64_t left = set.count
    cdef dict seen
    reply.array_header(<int64_t>count)
    if set.form == FORM_TABLE and count < set.count // SPARSE:
        seen = {}
        while count:
            set_random(set, &member)
            if <size_t>member.data not in seen:
                seen[<size_t>member.data] = None
                reply_member(reply, &member)
                count -= 1
        return 0
    # Each member is chosen with the probability that leads to the right number in the end.
    memset(&walk, 0, sizeof(walk))
    while count and set_next(set, &walk, &member):
        if random_below(left) < count:
            reply_member(reply, &member)
            count -= 1
        left -= 1
    return 0


@command(
    "SRANDMEMBER", arity=-2, group="set", flags="readonly", keys=KeysAt(1), since="1.0.0",
    summary="Returns members of a set, chosen at random.",
    complexity="O(N) with N being the number of members returned", tips=("nondeterministic_output",),
    history=(("2.6.0", "`count`."),), args=(key(), optional(integer("count"), since="2.6.0")),
)
def srandmember(Context ctx not None, list args not None):
    cdef Py_ssize_t argc = PyList_GET_SIZE(args)
    cdef int64_t count = 0
    cdef Set set
    cdef LpValue member
    if argc > 3:
        raise OptionSyntaxError
    if argc == 3:
        count = require_int64(<bytes>args[2])
        if count < -INT64_MAX:
            raise CommandError(f"ERR value is out of range, value must between {-INT64_MAX} and {INT64_MAX}")
    set = find_set(ctx, <bytes>args[1])
    if argc == 2:
        if set is None or not set_random(set, &member):
            ctx.reply.null()
        else:
            reply_member(ctx.reply, &member)
    elif set is None or count == 0:
        ctx.reply.array_header(0)
    elif count < 0:
        reply_repeated(ctx.reply, set, -count)
    elif <uint64_t>count >= set.count:
        ctx.reply.array_header(<int64_t>set.count)
        reply_members(ctx.reply, set)
    else:
        reply_distinct(ctx.reply, set, <uint64_t>count)
