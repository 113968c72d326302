# cython: language_level=3, boundscheck=False, wraparound=False
"""Capability: one thing that the server can do, and all that the rest of the server needs to know of it.

A capability (users, publish/subscribe, client-side caching, persistence, ...) keeps its state, declares its commands
and settings in its own room, and overrides of this class what it has a say in. The core calls these methods and knows
no capability by name; `serve/app.py` has the one list of them all, whose order is the order in which they are asked.

    life        start, close; apply_settings after every change of a setting; cron `hz` times a second, each_second once
    clients     client_connected, client_gone, client_reset
    requests    find_refusal, while one of the capability's bits is set; command_took of slow commands
    keys        data_dropped: all data is gone on request
    a turn      before_replies when it has called `Dispatcher.ask_before_replies` in this turn; after_replies
    INFO        `info`: fields by section; reset_statistics

What is written `cdef` is for compiled capabilities alone: hooks in the path of every request. They are called only
where a state bit or an attribute of the dispatcher says that some capability wants it (see dispatch.pyx), so unused
ones cost nothing.
"""

from libc.stdint cimport INT64_MAX

from streamd.core.client cimport Client
from streamd.core.route cimport Route

__all__ = ["Capability"]


cdef class Capability:
    """The base of all capabilities; none of its methods does anything. Each is made with the Host, once.

    info          fields of INFO by section: (core.info.Field, ...); observe/info.py has their order
    refusal_rank  whose refusal comes first when several would refuse a request: the smaller one
    observer_rank  the same of those that want to know of changed keys
    """

    info = {}
    refusal_rank = 0
    observer_rank = 0

    def __cinit__(self, *args, **kwargs):
        self.slow_us = INT64_MAX

    # --- Life ------------------------------------------------------------------------------------------------------

    def start(self):
        """All capabilities exist; no client is connected yet."""

    def close(self):
        """The server stops."""

    def apply_settings(self):
        """Take over the settings: at start, and after CONFIG SET of one declared with `apply="refresh"`.

        Raises ConfigError to refuse a change.
        """

    def cron(self, long long now_ms):
        """A bounded amount of work, `hz` times a second. `now_ms` is Unix time."""

    def each_second(self, long long now_ms):
        """The same once a second."""

    def reset_statistics(self):
        """CONFIG RESETSTAT: count from here on."""

    # --- Clients ---------------------------------------------------------------------------------------------------

    def client_connected(self, Client client not None, sock):
        """A connection has been made. `sock` is None where the transport has none.

        To refuse it, set `close_after_reply` and close the transport: capabilities behind this one are not called then.
        """

    def client_gone(self, Client client not None):
        """A connection is gone."""

    def client_reset(self, Client client not None):
        """RESET: the connection is to be as it was when it was made."""

    # --- Requests --------------------------------------------------------------------------------------------------

    cpdef str find_refusal(self, Client client, Route route, list args):
        """The error with which a request is refused now, or None."""
        return None

    cpdef int command_took(self, Client client, Route route, list args, long long took_us) except -1:
        """A command has taken at least `slow_us`."""
        return 0

    cdef int show_request(self, Client client, list args) except -1:
        """A request has been run (`Dispatcher.monitor`); secrets have been taken out."""
        return 0

    cdef int command_read(self, Client client, Route route, list args) except -1:
        """A client in the state TRACKING has run a command that only reads (`Dispatcher.read_observer`)."""
        return 0

    cdef int request_done(self, Client client, Route route) except -1:
        """A client in the state TRACKING has been answered; `route` is None for what it had to wait for."""
        return 0

    cdef int unit_done(self, Client client) except -1:
        """A client has been answered, and something is to follow the reply (`Dispatcher.has_after_reply`)."""
        return 0

    # --- Keys ------------------------------------------------------------------------------------------------------

    cdef int key_event(self, object db, int kind, bytes event, bytes key) except -1:
        """A keyspace event of a wanted class (`Keyspace.publisher`)."""
        return 0

    cdef int key_touched(self, object db, bytes key, bint by_server) except -1:
        """A key has changed (`Keyspace.observers`); `by_server`: it has expired or been evicted."""
        return 0

    cdef int flushing(self, object db) except -1:
        """All keys of a database are about to be removed (`Keyspace.observers`)."""
        return 0

    cdef int swapping(self, object db, object other) except -1:
        """Two databases are about to be exchanged (`Keyspace.observers`)."""
        return 0

    def permissions_change(self):
        """What users may do is about to change."""

    def child_begins(self):
        """Called in a child process that has been forked."""

    def pause_ended(self):
        """CLIENT PAUSE is over."""

    def data_dropped(self):
        """All data is gone on request: what was saved of it, or is being saved now, must not come back."""

    # --- A turn of the loop ----------------------------------------------------------------------------------------

    cpdef int before_replies(self) except -1:
        """Replies of this turn are about to be sent."""
        return 0

    cpdef int after_replies(self, list clients) except -1:
        """They have been sent to these clients (`Dispatcher.limits_clients`)."""
        return 0

    cpdef long long memory(self) except -1:
        """Bytes that count as used, beside data and clients (`Host.memory_users`)."""
        return 0
