# cython: language_level=3, boundscheck=False, wraparound=False
"""Permissions: the rules of a user in the form in which a request is checked against them.

A user's rules are text (acl_rules.py). This module has what is checked for every request of a restricted
user: a bit per command, patterns for keys and channels. Permissions are rebuilt when rules change, and immutable.

    Catalogue      positions of keys and channels in the requests of each command; one per server
    Rules          one set of rules: the user's own, or those of a selector
    Permissions    all sets of a user; a request is allowed when one of them allows all of it

What a command reads and writes follows from its key specifications: `access` is reading, `insert`, `update` and
`delete` are writing. A key that is neither (XLEN returns the length of a stream, but nothing of its content) may be
named by users with any pattern for it.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM
from cpython.ref cimport PyObject
from libc.stdlib cimport calloc, free

from streamd.core.key_plan cimport READ, KeyRange, Plan
from streamd.engine.glob cimport Glob

__all__ = ["Catalogue", "Permissions", "Rules"]

cdef enum:
    DENIED_COMMAND = 1           # in ascending order of precedence, as Reason in denials.py
    DENIED_KEY = 2
    DENIED_CHANNEL = 4


cdef class Catalogue:
    """What a check needs to know of each command, by its number in the server (Entry.index)."""

    cdef list plans

    def __init__(self, commands):
        """commands: pairs of a command's number and its declaration, of every command."""
        cdef dict plans = {index: Plan(command) for index, command in commands}
        self.plans = [plans.get(index) for index in range(max(plans, default=-1) + 1)]

    def __len__(self):
        return len(self.plans)


# --- Patterns --------------------------------------------------------------------------------------------------------

cdef struct Pattern:
    PyObject *glob               # Glob; belongs to the `owner` of the list
    int access                   # set of READ and WRITE; of channels, 0


cdef class Patterns:
    # Some patterns, and whether everything is allowed without matching them.
    cdef Pattern *items          # owned
    cdef Py_ssize_t count
    cdef bint allows_all
    cdef list owner

    def __cinit__(self, patterns, bint allows_all):
        """patterns: pairs of a pattern and what it allows."""
        self.allows_all = allows_all
        self.owner = [Glob(text) for text, _ in patterns]
        if not patterns:
            return
        self.items = <Pattern *>calloc(len(patterns), sizeof(Pattern))
        if self.items is NULL:
            raise MemoryError("no memory for the patterns of a user")
        for glob, (_, access) in zip(self.owner, patterns):
            self.items[self.count].glob = <PyObject *>glob
            self.items[self.count].access = access
            self.count += 1

    def __dealloc__(self):
        free(self.items)

    cdef bint allow(self, PyObject *name, int access) noexcept:
        """Whether one of the patterns matches a name and allows all of `access`."""
        cdef Py_ssize_t at
        for at in range(self.count):
            if self.items[at].access & access == access and (<Glob>self.items[at].glob).matches(
                PyBytes_AS_STRING(<bytes>name), PyBytes_GET_SIZE(<bytes>name)
            ):
                return True
        return False

    cdef bint hold(self, PyObject *name) noexcept:
        """Whether a name is literally one of the patterns."""
        cdef Py_ssize_t at
        for at in range(self.count):
            if (<Glob>self.items[at].glob).text == <bytes>name:
                return True
        return False


# --- Rules -----------------------------------------------------------------------------------------------------------


cdef class Rules:
    """One set of rules.

    commands      a byte for each command by number: not zero when the command is allowed with whatever arguments
    first_args    command's number -> first arguments, in lower case, with which it is allowed anyway
    keys          pairs of a pattern and what it allows: 1 reading, 2 writing, 3 both
    channels      patterns of channels
    """

    cdef bytes commands
    cdef dict first_args         # None when there are none
    cdef Patterns keys
    cdef Patterns channels

    def __cinit__(
        self, bytes commands not None, dict first_args not None, keys, bint all_keys, channels, bint all_channels
    ):
        self.commands = commands
        self.first_args = {number: frozenset(words) for number, words in first_args.items() if words} or None
        self.keys = Patterns(list(keys), all_keys)
        self.channels = Patterns([(text, 0) for text in channels], all_channels)

    @property
    def allows_everything(self):
        return 0 not in self.commands and self.keys.allows_all and self.channels.allows_all

    def allows_channel(self, bytes name not None, bint is_pattern=False):
        """Whether a channel may be used; a pattern of channels only if it was granted literally."""
        if self.channels.allows_all:
            return True
        return self.channels.hold(<PyObject *>name) if is_pattern else self.channels.allow(<PyObject *>name, 0)

    cdef bint allow_command(self, Py_ssize_t number, list args):
        if number < PyBytes_GET_SIZE(self.commands) and PyBytes_AS_STRING(self.commands)[number]:
            return True
        if self.first_args is None or len(args) < 2:
            return False
        words = self.first_args.get(number)
        return words is not None and (<bytes>args[1]).lower() in words

    cdef int find_denial(self, Py_ssize_t number, list args, Plan plan, int ranges, Py_ssize_t *where) except -1:
        """Why a request is denied, 0 when it is not; the position of the key or channel goes to `where`."""
        cdef KeyRange *each
        cdef Py_ssize_t at, last
        cdef int range_number
        where[0] = 0
        if not self.allow_command(number, args):
            return DENIED_COMMAND
        if not self.keys.allows_all:
            for range_number in range(ranges):
                each = &plan.ranges[range_number]
                at = each.found_first
                while at <= each.found_last:
                    if not self.keys.allow(PyList_GET_ITEM(args, at), each.found_access):
                        where[0] = at
                        return DENIED_KEY
                    at += each.found_step
        if plan.first_channel and not self.channels.allows_all:
            last = plan.last_channel if plan.last_channel >= 0 else len(args) + plan.last_channel
            for at in range(plan.first_channel, min(last + 1, <Py_ssize_t>len(args))):
                if not (
                    self.channels.hold(PyList_GET_ITEM(args, at)) if plan.channels_are_patterns
                    else self.channels.allow(PyList_GET_ITEM(args, at), 0)
                ):
                    where[0] = at
                    return DENIED_CHANNEL
        return 0


cdef class Permissions:
    """Everything that a user may do: what any of its sets of rules allows."""

    cdef Catalogue catalogue
    cdef tuple sets              # of Rules; the first is the user's own
    cdef readonly bint allow_everything

    def __cinit__(self, Catalogue catalogue not None, sets):
        self.catalogue = catalogue
        self.sets = tuple(sets)
        self.allow_everything = self.sets[0].allows_everything

    def find_denial(self, Py_ssize_t number, list args not None):
        """Why a request of the command `number` is denied: a reason, and the position of what may not be touched.

        None when it is allowed. Of several sets of rules the one with the highest-ranking reason gives it.
        """
        cdef Plan plan = <Plan>self.catalogue.plans[number]
        cdef int ranges = plan.find_keys(args) if plan.count else 0
        cdef int reason, worst = 0
        cdef Py_ssize_t where = 0, furthest = 0
        cdef Rules rules
        for rules in self.sets:
            reason = rules.find_denial(number, args, plan, ranges, &where)
            if reason == 0:
                return None
            if reason > worst or (reason == worst and where > furthest):
                worst = reason
                furthest = where
        return worst, furthest

    def allow_channel(self, bytes name not None, bint is_pattern=False):
        """Whether one of the sets allows a channel, or a pattern of channels."""
        return any((<Rules>rules).allows_channel(name, is_pattern) for rules in self.sets)

    def allow_reading(self, bytes key not None):
        """Whether one of the sets allows a key to be read."""
        cdef Rules rules
        for rules in self.sets:
            if rules.keys.allows_all or rules.keys.allow(<PyObject *>key, READ):
                return True
        return False
