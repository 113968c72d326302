# cython: language_level=3, boundscheck=False, wraparound=False
"""Capability: one thing that the server can do, and all that the rest of the server needs to know about it.

A capability (users, publish/subscribe, client-side caching, persistence, ...) keeps its state, declares its commands
and settings in its own room, and overrides the methods of this class that concern it. The core calls these methods and
knows no capability by name; `serve/app.py` has the one list of them all, whose order is the order of the calls.

    life        start, close; apply_settings after every change of a setting; `hz` times a second cron, or
                cron_while_busy; each_second
    clients     client_connected, client_gone, client_reset
    requests    find_refusal, while one of the capability's bits is set; command_took for slow commands
    keys        data_dropped: all data was deleted on request; permissions_change; pause_ended; child_begins
    a turn      before_replies if it called `Dispatcher.ask_before_replies` in this turn; after_replies
    memory      memory, unlimited_memory: bytes that a capability uses, for `maxmemory`
    INFO        `info`: fields by section; reset_statistics

The `cdef` methods can be overridden by compiled capabilities only, the `cpdef` methods by any. Those of requests and
keys are called only when a state bit, `slow_us`, or an attribute of the dispatcher or of the keyspace asks for them
(each docstring names it), so unused hooks cost nothing.
"""

from libc.stdint cimport INT64_MAX

from streamd.core.client cimport Client
from streamd.core.route cimport Route

__all__ = ["Capability"]


cdef class Capability:
    """The base class of all capabilities; its methods do nothing. Each capability is created once, with the Host.

    info          fields of INFO by section: (core.info.Field, ...); observe/info_report.py has their order
    refusal_rank  which refusal wins when several capabilities would refuse a request: the smallest rank
    observer_rank  the order in which observers of changed keys are called
    rests         `cron` is not called before `Host.wake`: until something is used that needs it
    """

    info = {}
    refusal_rank = 0
    observer_rank = 0

    def __cinit__(self, *args, **kwargs):
        self.slow_us = INT64_MAX
        # Without this, Python 3.11 reads the attributes of subclasses written in Python five times as slowly: it shares
        # the keys of an instance's dictionary with others, and expects no such dictionary where it reads fast.
        if hasattr(self, "__dict__"):
            self.__dict__ = {}

    # --- Life ------------------------------------------------------------------------------------------------------

    def start(self):
        """All capabilities exist; no client is connected yet."""

    def close(self):
        """The server is stopping."""

    def apply_settings(self):
        """Apply the settings: at startup, and after CONFIG SET of one declared with `apply="refresh"`.

        Raises ConfigError to refuse a change.
        """

    def cron(self, long long now_ms):
        """Do a bounded amount of work, `hz` times a second. `now_ms` is Unix time."""

    def cron_while_busy(self, long long now_ms):
        """As `cron`, which is not called while a script runs for a long time."""

    def each_second(self, long long now_ms):
        """As `cron`, once a second."""

    def reset_statistics(self):
        """CONFIG RESETSTAT: reset the counters."""

    # --- Clients ---------------------------------------------------------------------------------------------------

    def client_connected(self, Client client not None, sock):
        """A connection has been established. `sock` is None where the transport has none.

        To refuse it, set `close_after_reply` and close the transport: later capabilities are then not called.
        """

    def client_gone(self, Client client not None):
        """A connection has been closed."""

    def client_reset(self, Client client not None):
        """RESET: restore the initial state of the connection."""

    # --- Requests --------------------------------------------------------------------------------------------------

    cpdef str find_refusal(self, Client client, Route route, list args):
        """The error with which a request is refused now, or None. Empty: no reply; the client is being closed."""
        return None

    cdef bint is_served(self, Route route, list args) noexcept:
        """Whether a request has one key, which is served here; it needs no redirection (`Dispatcher.router`)."""
        return False

    cdef str find_redirection(self, Client client, Route route, list args, int flags):
        """The error that sends a client elsewhere for the keys of a request, or None (`Dispatcher.router`).

        flags   RouteFlags of the request, or of what it runs
        """
        return None

    cpdef int command_took(self, Client client, Route route, list args, long long took_us) except -1:
        """A command has taken at least `slow_us`."""
        return 0

    cdef int show_request(self, Client client, list args) except -1:
        """A request has been run (`Dispatcher.monitor`); secrets have been removed."""
        return 0

    cdef int command_read(self, Client client, Route route, list args) except -1:
        """A client in the state TRACKING has run a command that only reads (`Dispatcher.read_observer`)."""
        return 0

    cdef int request_flags(self, Client client, Route route, list args) except -1:
        """The RouteFlags of a request that runs a script (`Dispatcher.script_runner`): the script's own count, too."""
        return route.flags

    cdef int run_unit(self, Client client, Route route, list args) except -1:
        """Run a checked request that runs scripts (`Dispatcher.script_runner`), by `Dispatcher.run`.

        It may return before the request is done: the client's `postponed` is set until then.
        """
        return 0

    cdef int request_done(self, Client client, Route route) except -1:
        """A client in the state TRACKING has got a reply; `route` is None when it had to wait for it."""
        return 0

    cdef int unit_done(self, Client client) except -1:
        """A client has got a reply, and something must follow it (`Dispatcher.has_after_reply`)."""
        return 0

    cdef int reply_written(self, Client client, int flags, size_t mark) except -1:
        """A request has its reply, from `mark` on (`Dispatcher.reply_keeper`).

        flags   the RouteFlags of all commands that it has run; 0 if it was refused
        """
        return 0

    # --- Keys ------------------------------------------------------------------------------------------------------

    cdef int key_event(self, object db, int kind, bytes event, bytes key) except -1:
        """A keyspace event of a wanted class (`KeyChanges.publisher`)."""
        return 0

    cdef int key_touched(self, object db, bytes key, bint by_server) except -1:
        """A key has changed (`KeyChanges.observers`); `by_server`: it has expired or been evicted."""
        return 0

    cdef int flushing(self, object db) except -1:
        """All keys of a database are about to be removed (`KeyChanges.observers`)."""
        return 0

    cdef int swapping(self, object db, object other) except -1:
        """Two databases are about to be swapped (`KeyChanges.observers`)."""
        return 0

    def permissions_change(self):
        """The permissions of users are about to change."""

    def child_begins(self):
        """Called in a forked child process."""

    def pause_ended(self):
        """CLIENT PAUSE is over, or a script that took too long: what was held back may go on."""

    def data_dropped(self):
        """All data was deleted on request: anything saved, or being saved now, must not come back."""

    # --- A turn of the loop ----------------------------------------------------------------------------------------

    cpdef int before_replies(self) except -1:
        """Replies of this turn are about to be sent. Not called while `skips_turns` is True."""
        return 0

    cpdef int after_replies(self, list clients) except -1:
        """Replies of this turn have been sent to these clients (`Dispatcher.limits_clients`)."""
        return 0

    def metric_samples(self):
        """Metrics for the metrics port in addition to INFO, with samples, labels and values (observe/metrics)."""
        return ()

    cpdef long long memory(self) except -1:
        """Bytes that count as used, in addition to data and clients (`Host.memory_users`)."""
        return 0

    cpdef long long unlimited_memory(self) except -1:
        """Those of them that `maxmemory` does not count: eviction would not free them."""
        return 0
