# cython: language_level=3
"""A command, ready to run, and its statistics. See route.pyx."""

cimport cython

from streamd.core.histogram cimport Histogram


cdef enum RouteFlag:
    # The flags of a command that are checked before it runs; a set.
    NO_AUTH = 1 << 0             # allowed before authentication
    WRITE = 1 << 1
    MAY_REPLICATE = 1 << 2       # changes no key, but is propagated (PUBLISH)
    DENY_OOM = 1 << 3
    NO_MULTI = 1 << 4
    AT_ONCE = 1 << 5             # runs immediately inside MULTI, where others are queued
    FOR_SUBSCRIBERS = 1 << 6     # allowed for a RESP2 client with subscriptions
    READ_ONLY = 1 << 7
    ADMIN = 1 << 8               # not shown by MONITOR
    SKIP_MONITOR = 1 << 9
    LOADING = 1 << 10
    STALE = 1 << 11
    NO_SCRIPT = 1 << 12          # scripts may not call it
    ALLOW_BUSY = 1 << 13         # runs while a script takes too long
    RUNS_SCRIPT = 1 << 14        # its flags depend on the script, and it may outlast a turn of the loop; EXEC may, too
    SEES_DATA = 1 << 15          # reads or writes keys or libraries of functions; for a script, what it calls decides


cdef enum Failure:
    # How a request failed: where it is counted.
    REFUSED                      # before its handler ran
    FAILED                       # in its handler, or while it waited


@cython.final
cdef class Route:
    cdef readonly object command      # spec.Command
    cdef object handler
    cdef int arity
    cdef readonly int flags           # set of RouteFlag
    cdef readonly int index           # its number; -1 for a command without a handler
    cdef dict subcommands             # name as sent -> Route; None for a command without subcommands
    cdef public long long calls
    cdef public long long usec
    cdef public long long rejected_calls
    cdef public long long failed_calls
    cdef readonly Histogram histogram  # its durations; None until its first call

    cdef int reset_statistics(self) except -1

    cdef inline bint accepts(self, Py_ssize_t argc) noexcept:
        """Whether a request may have so many arguments, its name included."""
        return self.arity == argc or (self.arity < 0 and argc >= -self.arity)


@cython.final
cdef class Routes:
    cdef readonly dict by_full_name   # `xgroup|create` -> Route
    cdef readonly Route exec_route    # the route of EXEC
    cdef dict names                   # name as sent -> Route
    cdef list seen                    # names and routes alternating, placed by the address of the name

    cdef Route find(self, list args)
    cdef Route find_name(self, bytes name)
    cdef str explain_unknown(self, list args)
