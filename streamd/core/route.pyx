# cython: language_level=3, boundscheck=False, wraparound=False
"""Routes: from the words of a request to its command, and the statistics of each command.

A `Route` is a declared command (spec.Command) with its handler, its flags as one bit set, and its statistics.
`Routes` finds them by name, ignoring case.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM
from cpython.ref cimport PyObject
from cpython.unicode cimport PyUnicode_DecodeLatin1

from streamd.errors import printable

__all__ = ["Route", "Routes"]

cdef enum:
    SEEN = 16                   # command names that are found without a table lookup; a power of two
    SHOWN = 128                 # bytes of an unknown command, and of all its arguments, shown in its error

NAME_CACHE = 10_000
"""Spellings of command names that are cached (`xadd`, `XADD`); beyond this number, each is case-folded again."""

FLAGS = {
    "no_auth": NO_AUTH, "write": WRITE, "may_replicate": MAY_REPLICATE, "denyoom": DENY_OOM, "no_multi": NO_MULTI,
    "readonly": READ_ONLY, "admin": ADMIN, "skip_monitor": SKIP_MONITOR,
    "loading": LOADING, "stale": STALE, "noscript": NO_SCRIPT, "allow_busy": ALLOW_BUSY, "runs_script": RUNS_SCRIPT,
}  # fmt: skip
"""RouteFlag by the words used in declarations."""
RUN_AT_ONCE = frozenset({"EXEC", "DISCARD", "MULTI", "WATCH", "QUIT", "RESET"})
"""Commands that are not queued inside MULTI."""
SUBSCRIBERS_MAY = frozenset({
    "SUBSCRIBE", "UNSUBSCRIBE", "PSUBSCRIBE", "PUNSUBSCRIBE", "SSUBSCRIBE", "SUNSUBSCRIBE", "PING", "QUIT", "RESET",
})  # fmt: skip
"""Commands that a RESP2 client with subscriptions may send."""
SEE_LIBRARIES = frozenset({"FCALL", "FCALL_RO", "FUNCTION DUMP", "FUNCTION LIST"})
"""Commands that see data without reading keys."""


@cython.final
cdef class Route:
    def __init__(self, command):
        self.command = command
        self.handler = command.handler
        self.arity = command.arity
        self.index = -1
        for word in command.flags:
            self.flags |= FLAGS.get(word, 0)
        if command.name in RUN_AT_ONCE:
            self.flags |= AT_ONCE
        if command.name in SUBSCRIBERS_MAY:
            self.flags |= FOR_SUBSCRIBERS
        if self.flags & (WRITE | READ_ONLY) and not self.flags & RUNS_SCRIPT or command.name in SEE_LIBRARIES:
            self.flags |= SEES_DATA
        if command.subcommands:
            self.subcommands = {name.encode(): Route(sub) for name, sub in command.subcommands.items()}

    cdef int reset_statistics(self) except -1:
        """CONFIG RESETSTAT: reset the counters."""
        self.calls = self.usec = self.rejected_calls = self.failed_calls = 0
        self.histogram = None
        return 0

    @property
    def wrong_arity(self):
        """The error for a request with the wrong number of arguments."""
        return f"ERR wrong number of arguments for '{self.command.full_name}' command"

    def leaves(self):
        """This route, or those of its subcommands: those that can be run and have statistics."""
        leaves = [] if self.subcommands is None else list(set(self.subcommands.values()))
        return leaves if self.handler is None else [self, *leaves]


@cython.final
cdef class Routes:
    """The routes of a command table: upper-case name -> spec.Command."""

    def __init__(self, commands):
        cdef Route leaf
        self.names = {}
        self.seen = [None] * (2 * SEEN)
        self.by_full_name = {}
        for name, command in commands.items():
            route = Route(command)
            self.names[name.encode()] = self.names[name.lower().encode()] = route
            for leaf in route.leaves():
                leaf.index = <int>len(self.by_full_name)
                self.by_full_name[leaf.command.full_name] = leaf
        self.exec_route = self.by_full_name.get("exec")

    def used(self):
        """The routes that have counted something, in the order of the table."""
        cdef Route route
        cdef list found = []
        for route in list(self.by_full_name.values()):  # a third of the cost of walking the dictionary
            if route.calls or route.rejected_calls or route.failed_calls:
                found.append(route)
        return found

    def reset_statistics(self):
        """CONFIG RESETSTAT."""
        cdef Route route
        for route in self.by_full_name.values():
            route.reset_statistics()

    cdef Route find(self, list args):
        """The route of a request; None for an unknown command or subcommand."""
        cdef bytes name = <bytes>args[0]
        cdef Py_ssize_t place = (<size_t><PyObject *>name >> 4 & (SEEN - 1)) * 2
        cdef object found
        cdef Route route
        # The parser returns the same object for a recurring word: then nothing needs to be compared.
        if PyList_GET_ITEM(self.seen, place) == <PyObject *>name:
            route = <Route>PyList_GET_ITEM(self.seen, place + 1)
        else:
            route = self.find_name(name)
            if route is None:
                return None
            self.seen[place] = name
            self.seen[place + 1] = route
        if route.subcommands is not None and len(args) > 1:
            name = <bytes>args[1]
            found = route.subcommands.get(name)
            if found is None:
                found = route.subcommands.get(name.upper())
                if found is None:
                    return None
                if len(route.subcommands) < NAME_CACHE:
                    route.subcommands[name] = found
            route = <Route>found
        return route

    cdef Route find_name(self, bytes name):
        """The route of a command by name, ignoring case; None if there is no such command."""
        cdef object found = self.names.get(name)
        if found is None:
            found = self.names.get(name.upper())
            if found is None:
                return None
            if len(self.names) < NAME_CACHE:
                self.names[name] = found
        return <Route>found

    cdef str explain_unknown(self, list args):
        """The error for a request that has no route."""
        cdef Route container = self.find_name(<bytes>args[0])
        if container is None:
            return unknown_command(args)
        return f"ERR unknown subcommand '{show(<bytes>args[1], SHOWN)}'. Try {container.command.name} HELP."


cdef str show(bytes text, Py_ssize_t most):
    """At most this many bytes of user input, as `printable` shows them."""
    cdef const char *p = PyBytes_AS_STRING(text)
    cdef Py_ssize_t size = min(PyBytes_GET_SIZE(text), most)
    for i in range(size):
        if <unsigned char>p[i] < c' ':
            return printable(text[:size])
    return PyUnicode_DecodeLatin1(p, size, NULL)


cdef str unknown_command(list args):
    """Redis's text for a command that does not exist, with the start of its arguments."""
    cdef str text = f"ERR unknown command '{show(<bytes>args[0], SHOWN)}'"
    cdef str part
    cdef list shown
    cdef Py_ssize_t used = 0
    if len(args) == 1:
        return text
    shown = [text, ", with args beginning with: "]
    for at in range(1, len(args)):
        if used >= SHOWN:
            break
        part = show(<bytes>args[at], SHOWN - used)
        shown.append(f"'{part}' ")
        used += len(part) + 3
    return "".join(shown)
