# cython: language_level=3, boundscheck=False, wraparound=False
"""Keyspace: what the server does when keys change.

Databases tell one Keyspace of every change (`database.KeyspaceListener`); what nobody asked for costs them one test of a
flag.

    touched keys   WATCH: the clients that watch the key will not run their transaction
    removed keys   expired or evicted: a DEL is propagated, so that files and replicas need no clock of their own

What must hold: `watched` has a key exactly as long as a client watches it, and each such client has the key in its
`watched`.
"""

from streamd.server.client cimport Client
from streamd.server.dispatch cimport Dispatcher

__all__ = ["Keyspace"]


cdef class Keyspace(KeyspaceListener):
    """The listener of all databases of a server."""

    def __init__(self, dispatcher):
        self.dispatcher = dispatcher
        self.watched = {}

    cdef int refresh(self) except -1:
        """Bring what the databases are to tell up to date."""
        self.wants_touched = len(self.watched) > 0
        return 0

    # --- WATCH ---------------------------------------------------------------------------------------------------

    @property
    def total_watched_keys(self):
        """Keys that are watched, each counted once."""
        return len(self.watched)

    def watch(self, Client client not None, db, bytes key not None):
        """Let changes of a key from now on stop the client's next transaction."""
        place = (db, key)
        # An expired key is missing from the beginning: that it is removed later is no change.
        db.peek(key)
        if client.watched is None:
            client.watched = {}
            self.watching_clients += 1
        if place in client.watched:
            return
        client.watched[place] = None
        self.watched.setdefault(place, {})[client] = None
        self.refresh()

    def unwatch(self, Client client not None):
        """Forget what a client watches, and that any of it changed."""
        cdef dict clients
        client.is_dirty = False
        if client.watched is None:
            return
        for place in client.watched:
            clients = self.watched[place]
            del clients[client]
            if not clients:
                del self.watched[place]
        client.watched = None
        self.watching_clients -= 1
        self.refresh()

    def is_stale(self, Client client not None):
        """Whether something that a client watches has changed, or has expired without anybody having met it."""
        if client.watched is not None and not client.is_dirty:
            for db, key in client.watched:
                db.now_ms = (<Dispatcher>self.dispatcher).context.now_ms
                db.peek(key)  # an expired key is removed, and told of
        return client.is_dirty

    # --- What databases tell ---------------------------------------------------------------------------------------

    cpdef int key_touched(self, object db, bytes key) except -1:
        cdef Client client
        cdef dict clients = self.watched.get((db, key))
        if clients is not None:
            for client in clients:
                client.is_dirty = True
        return 0

    cpdef int key_removed(self, object db, bytes key) except -1:
        (<Dispatcher>self.dispatcher).propagate(db.index, [b"DEL", key])
        return 0

    cpdef int flushing(self, object db) except -1:
        for place in self.watched:
            if place[0] is db and db.peek(place[1]) is not None:
                self.key_touched(db, place[1])
        return 0

    cpdef int swapping(self, object db, object other) except -1:
        for place in self.watched:
            if place[0] is db or place[0] is other:
                if db.peek(place[1]) is not None or other.peek(place[1]) is not None:
                    self.key_touched(place[0], place[1])
        return 0
