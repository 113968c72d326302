# cython: language_level=3, boundscheck=False, wraparound=False
"""Transactions: the requests that clients have queued since MULTI, and the keys that they watch.

The requests are checked when they are queued, and run by EXEC in the dispatcher, like all requests.

Invariants: `watched` has a key exactly as long as a client watches it, and each such client has the key in its
`watched`. A client whose transaction is aborted (`is_dirty`) watches no further keys; if a change of a key aborted it,
the client no longer watches any key.
"""

cimport cython
from cpython.bytes cimport PyBytes_GET_SIZE
from libc.stdint cimport int64_t

from streamd.core.capability cimport Capability
from streamd.core.client cimport IN_MULTI, Client, ClientHost
from streamd.core.info cimport numbers
from streamd.core.key_changes cimport KeyChanges
from streamd.core.route cimport Route
from streamd.heap cimport count_object
from streamd.keyspace.database cimport Database

__all__ = ["Transaction", "Transactions"]

cdef enum:
    REQUEST_BYTES = 144         # overhead of a queued request: a list and a tuple
    ARG_BYTES = 48              # overhead of an argument

EMPTY = Database()
"""Stands in for a flushed database."""


@cython.final
cdef class Transaction:
    """The requests that a client has queued since MULTI."""

    def __cinit__(self):
        self.requests = []
        self.common = -1

    def __len__(self):
        return len(self.requests)

    cdef int queue(self, Route route, int flags, list args) except -1:
        """Queue a request, which has these RouteFlags, until EXEC."""
        self.requests.append((route, args))
        self.flags |= flags
        self.common &= flags
        cdef long long before = self.size + self.objects_size
        for arg in args:
            self.size += PyBytes_GET_SIZE(<bytes>arg)
        self.objects_size += REQUEST_BYTES + ARG_BYTES * <long long>len(args)
        count_object(self.size + self.objects_size - before)
        return 0

    def __dealloc__(self):
        count_object(-(self.size + self.objects_size))


cdef bint holds(Database db, bytes key) except -1:
    """Whether a key exists, expired or not; it is neither removed nor reported."""
    return db.is_overdue(key) or db.peek(key) is not None


cdef int read_counts(object capability, int64_t *to) except -1:
    cdef Transactions self = <Transactions>capability
    to[0], to[1] = self.watching_clients, len(self.watched)
    return 0


@cython.final
cdef class Transactions(Capability):
    """All transactions, and the watched keys with their clients."""

    info = {
        "clients": (
            numbers("watching_clients total_watched_keys", read_counts),
        ),
    }

    def __init__(self, ClientHost host not None, KeyChanges key_changes not None):
        self.host = host
        self.key_changes = key_changes
        self.watched = {}

    def begin(self, Client client not None):
        """MULTI: start queueing the client's requests."""
        client.transaction = Transaction()
        client.change_state(IN_MULTI, True)

    def end(self, Client client not None):
        """Drop a client's queued requests and watched keys."""
        client.transaction = None
        client.change_state(IN_MULTI, False)
        self.unwatch(client)

    def client_gone(self, Client client not None):
        self.unwatch(client)
        client.transaction = None

    def client_reset(self, Client client not None):
        self.end(client)

    # --- WATCH ---------------------------------------------------------------------------------------------------

    @property
    def total_watched_keys(self):
        """The number of watched keys, each counted once."""
        return len(self.watched)

    def watch(self, Client client not None, db, bytes key not None):
        """From now on, a change of the key aborts the client's next transaction."""
        place = (db, key)
        if client.is_dirty:
            return
        if client.watched is None:
            client.watched = {}
            self.watching_clients += 1
        if place in client.watched:
            return
        # A key that has already expired counts as missing: removing it later is not a change.
        client.watched[place] = db.is_overdue(key)
        self.watched.setdefault(place, {})[client] = None
        client.hold_name(key)
        self.key_changes.observe(self, True)

    def unwatch(self, Client client not None):
        """Clear a client's watched keys and its dirty flag."""
        client.is_dirty = False
        self.forget_watched(client)

    cdef int forget_watched(self, Client client) except -1:
        """Clear a client's watched keys but keep its dirty flag."""
        cdef dict clients
        if client.watched is None:
            return 0
        for place in client.watched:
            client.drop_name(<bytes>place[1])
            clients = self.watched[place]
            del clients[client]
            if not clients:
                del self.watched[place]
        client.watched = None
        self.watching_clients -= 1
        if not self.watched:
            self.key_changes.observe(self, False)
        return 0

    def is_stale(self, Client client not None):
        """Whether a key that a client watches has changed, or has expired without being removed yet."""
        if client.watched is not None and not client.is_dirty:
            for (db, key), was_overdue in client.watched.items():
                db.now_ms = (self.host.ended_us + self.host.wall_offset_us) // 1000
                if not was_overdue and db.is_overdue(key):
                    return True
        return client.is_dirty

    # --- Key changes -----------------------------------------------------------------------------------------------

    cdef int key_touched(self, object db, bytes key, bint by_server) except -1:
        cdef tuple place = (db, key)
        clients = self.watched.get(place)
        if clients is not None:
            self.watched_changed(place, clients, None)
        return 0

    cdef int flushing(self, object db) except -1:
        for place, clients in self.watched.items():
            if place[0] is db and holds(db, place[1]):
                self.watched_changed(place, clients, EMPTY)
        return 0

    cdef int swapping(self, object db, object other) except -1:
        for place, clients in self.watched.items():
            if (place[0] is db or place[0] is other) and (holds(db, place[1]) or holds(other, place[1])):
                self.watched_changed(place, clients, other if place[0] is db else db)
        return 0

    cdef int watched_changed(self, tuple place, dict clients, replacement) except -1:
        """A key has changed, or all keys of its database are about to be replaced: notify its watchers.

        replacement  the database whose keys will replace it; None when nothing is replaced
        """
        cdef Client client
        db, key = place
        for client in list(clients):
            if client.watched[place]:
                # It had already expired at WATCH, so it counted as missing; if it is removed, it stays missing.
                if not holds(db if replacement is None else replacement, key):
                    client.watched[place] = False
                    continue
                if replacement is not None and replacement.is_overdue(key):
                    continue
            elif replacement is not None and replacement.is_overdue(key) and not holds(db, key):
                client.watched[place] = True
                continue
            client.is_dirty = True
            if replacement is None:
                # Its transaction is aborted: no further change matters. INFO shows that a flush keeps the keys watched.
                self.forget_watched(client)
        return 0
