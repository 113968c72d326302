# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Several sets: SINTER, SUNION, SDIFF, their STORE forms, SINTERCARD. Behaviour: Redis 8.6.

A result is written to the reply while it is made where its members are different by themselves, and collected in a set
where they are not, or where it is stored.
"""

from cpython.list cimport PyList_GET_SIZE
from libc.stdint cimport int64_t
from libc.string cimport memset

from streamd.core.args cimport is_word, parse_int64
from streamd.core.context cimport Context
from streamd.engine.listpack cimport LpValue
from streamd.protocol.reply cimport ReplyWriter
from streamd.values.sets.access cimport find_set, reply_member, reply_members, store_result
from streamd.values.sets.set_limits cimport SetLimits, limits_in
from streamd.values.sets.set_value cimport (
    FORM_INTSET, Set, SetWalk, new_set, set_has_member, set_next, set_put_member,
)

from streamd.core.spec import KeysAt, KeysCounted, command, integer, key, multiple, optional
from streamd.errors import CommandError, OptionSyntaxError

__all__ = []

SOURCES = multiple(key())
ORDER = ("nondeterministic_output_order",)


cdef list find_sets(Context ctx, list args, Py_ssize_t first, Py_ssize_t end):
    """The sets of keys args[first:end], None for those that are missing. WrongTypeError for one of another type."""
    cdef Py_ssize_t at
    return [find_set(ctx, <bytes>args[at]) for at in range(first, end)]


def count_of(Set set not None):
    return set.count


# --- Selections: members of one set that pass the others --------------------------------------------------------------


cdef class Selection:
    """Members of a set that all others have (intersection), or that none of them has (difference)."""

    cdef Set source         # None: nothing is selected
    cdef list others
    cdef bint wanted        # what the others must answer

    cdef bint passes(self, const LpValue *member) noexcept:
        cdef Py_ssize_t at
        for at in range(PyList_GET_SIZE(self.others)):
            if set_has_member(<Set>self.others[at], member) != self.wanted:
                return False
        return True


cdef Selection intersection(list sets):
    """The smallest set decides how long it takes."""
    cdef Selection made = Selection.__new__(Selection)
    made.wanted = True
    made.others = []
    if None not in sets:
        sets = sorted(sets, key=count_of)
        made.source = sets[0]
        made.others = [other for other in sets[1:] if other is not sets[0]]
    return made


cdef Selection difference(list sets):
    """The largest of the others are asked first: they have most of the members that go."""
    cdef Selection made = Selection.__new__(Selection)
    made.source = sets[0]
    made.others = sorted([other for other in sets[1:] if other is not None], key=count_of, reverse=True)
    return made


cdef int reply_selection(ReplyWriter reply, Selection selection) except -1:
    """The members as a reply."""
    cdef ReplyWriter members = ReplyWriter.__new__(ReplyWriter, reply.resp)      # their number comes before them
    cdef SetWalk walk
    cdef LpValue member
    cdef int64_t written = 0
    memset(&walk, 0, sizeof(walk))
    while selection.source is not None and set_next(selection.source, &walk, &member):
        if selection.passes(&member):
            reply_member(members, &member)
            written += 1
    reply.set(written)
    return reply.raw_c(members.data, members.length)


cdef Set collect_selection(Context ctx, Selection selection):
    """The members as a new set."""
    cdef Set result = new_set(FORM_INTSET)
    cdef SetLimits limits = limits_in(ctx)
    cdef SetWalk walk
    cdef LpValue member
    memset(&walk, 0, sizeof(walk))
    while selection.source is not None and set_next(selection.source, &walk, &member):
        if selection.passes(&member):
            set_put_member(result, &member, limits)
    return result


cdef Set union_of(Context ctx, list sets):
    """A new set with the members of all; None counts as an empty one."""
    cdef Set result = new_set(FORM_INTSET)
    cdef SetLimits limits = limits_in(ctx)
    cdef SetWalk walk
    cdef LpValue member
    cdef Set source
    for source in sets:
        memset(&walk, 0, sizeof(walk))
        while source is not None and set_next(source, &walk, &member):
            set_put_member(result, &member, limits)
    return result


# --- Commands ---------------------------------------------------------------------------------------------------------


def reading(name, summary, complexity):
    return command(
        name, arity=-2, group="set", flags="readonly", keys=KeysAt(1, -1), since="1.0.0", summary=summary,
        complexity=complexity, tips=ORDER, args=(SOURCES,),
    )


def storing(name, summary, complexity):
    return command(
        name, arity=-3, group="set", flags="write denyoom", since="1.0.0",
        keys=(KeysAt(1, flags="OW update"), KeysAt(2, -1)), summary=summary, complexity=complexity,
        args=(key("destination"), multiple(key("key", 1))),
    )


BY_INTERSECTION = "O(N*M) with N being the number of members of the smallest set, and M the number of sets"
BY_DIFFERENCE = "O(N*M) with N being the number of members of the first set, and M the number of sets"
BY_UNION = "O(N) with N being the number of members of all sets"


@reading("SINTER", "Returns the members that all of several sets have.", BY_INTERSECTION)
def sinter(Context ctx not None, list args not None):
    reply_selection(ctx.reply, intersection(find_sets(ctx, args, 1, PyList_GET_SIZE(args))))


@reading("SDIFF", "Returns the members of the first of several sets that no other has.", BY_DIFFERENCE)
def sdiff(Context ctx not None, list args not None):
    reply_selection(ctx.reply, difference(find_sets(ctx, args, 1, PyList_GET_SIZE(args))))


@reading("SUNION", "Returns the members that any of several sets has.", BY_UNION)
def sunion(Context ctx not None, list args not None):
    cdef Set result = union_of(ctx, find_sets(ctx, args, 1, PyList_GET_SIZE(args)))
    ctx.reply.set(<int64_t>result.count)
    reply_members(ctx.reply, result)


@storing("SINTERSTORE", "Stores the members that all of several sets have.", BY_INTERSECTION)
def sinterstore(Context ctx not None, list args not None):
    selection = intersection(find_sets(ctx, args, 2, PyList_GET_SIZE(args)))
    store_result(ctx, <bytes>args[1], collect_selection(ctx, selection), b"sinterstore")


@storing("SDIFFSTORE", "Stores the members of the first of several sets that no other has.", BY_DIFFERENCE)
def sdiffstore(Context ctx not None, list args not None):
    selection = difference(find_sets(ctx, args, 2, PyList_GET_SIZE(args)))
    store_result(ctx, <bytes>args[1], collect_selection(ctx, selection), b"sdiffstore")


@storing("SUNIONSTORE", "Stores the members that any of several sets has.", BY_UNION)
def sunionstore(Context ctx not None, list args not None):
    sets = find_sets(ctx, args, 2, PyList_GET_SIZE(args))
    store_result(ctx, <bytes>args[1], union_of(ctx, sets), b"sunionstore")


@command(
    "SINTERCARD", arity=-3, group="set", flags="readonly", keys=KeysCounted(1), since="7.0.0",
    summary="Returns how many members all of several sets have.", complexity=BY_INTERSECTION,
    args=(integer("numkeys"), SOURCES, optional(integer("limit", "LIMIT"))),
)
def sintercard(Context ctx not None, list args not None):
    cdef Py_ssize_t argc = PyList_GET_SIZE(args), at
    cdef long long numkeys, limit = 0
    cdef Selection selection
    cdef SetWalk walk
    cdef LpValue member
    cdef int64_t count = 0
    if not parse_int64(<bytes>args[1], &numkeys) or numkeys < 1:
        raise CommandError("ERR numkeys should be greater than 0")
    if numkeys > argc - 2:
        raise CommandError("ERR Number of keys can't be greater than number of args")
    for at in range(2 + numkeys, argc, 2):
        if not is_word(<bytes>args[at], b"LIMIT") or at + 1 == argc:
            raise OptionSyntaxError
        if not parse_int64(<bytes>args[at + 1], &limit) or limit < 0:
            raise CommandError("ERR LIMIT can't be negative")
    selection = intersection(find_sets(ctx, args, 2, 2 + numkeys))
    memset(&walk, 0, sizeof(walk))
    while selection.source is not None and set_next(selection.source, &walk, &member):
        count += selection.passes(&member)
        if count == limit and limit:
            break
    ctx.reply.integer(count)
