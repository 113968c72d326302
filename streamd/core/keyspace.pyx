# cython: language_level=3, boundscheck=False, wraparound=False
"""Keyspace: what the server does when keys change.

Databases tell one Keyspace of every change (`database.KeyspaceListener`); what nobody asked for costs them one test of
a flag.

    events         notify-keyspace-events: they are published on channels named after the key, the event, or both
    touched keys   WATCH: the clients that watch the key will not run their transaction
                   client-side caching: the clients that have read it are told (tracking.pyx)
    removed keys   expired or evicted: a DEL is propagated, so that files and replicas need no clock of their own

What must hold: `watched` has a key exactly as long as a client watches it, and each such client has the key in its
`watched`. A client whose transaction will not run any more (`is_dirty`) takes no further keys, and one that a change of
a key has brought there watches nothing any more.
"""

from streamd.engine.database cimport (
    EVENT_EVICTED, EVENT_EXPIRED, EVENT_GENERIC, EVENT_KEY_MISS, EVENT_NEW, EVENT_OVERWRITTEN, EVENT_STREAM,
    EVENT_STRING, EVENT_TYPE_CHANGED, Database,
)
from streamd.core.client cimport Client
from streamd.core.execute cimport Dispatcher

__all__ = ["Keyspace"]

EVENT_LETTERS = {
    "g": EVENT_GENERIC, "$": EVENT_STRING, "t": EVENT_STREAM, "x": EVENT_EXPIRED, "e": EVENT_EVICTED,
    "m": EVENT_KEY_MISS, "n": EVENT_NEW, "o": EVENT_OVERWRITTEN, "c": EVENT_TYPE_CHANGED,
}  # fmt: skip
"""Classes of events by their letters in the setting; those of other data types never happen here."""
APART = frozenset("mnoc")
"""Letters that `A` does not stand for."""


EMPTY = Database()
"""What stands in the place of a flushed database."""


cdef bint holds(Database db, bytes key) except -1:
    """Whether a key is there, expired or not; it is neither removed nor told of."""
    return db.is_overdue(key) or db.peek(key) is not None


cdef class Keyspace(KeyspaceListener):
    """The listener of all databases of a server."""

    def __init__(self, dispatcher):
        self.dispatcher = dispatcher
        self.hub = dispatcher.hub
        self.watched = {}
        self.tracking = dispatcher.tracking

    cpdef int refresh(self) except -1:
        """Bring what the databases are to tell up to date."""
        self.wants_touched = len(self.watched) > 0 or self.tracking.is_used()
        return 0

    # --- WATCH ---------------------------------------------------------------------------------------------------

    @property
    def total_watched_keys(self):
        """Keys that are watched, each counted once."""
        return len(self.watched)

    def watch(self, Client client not None, db, bytes key not None):
        """Let changes of a key from now on stop the client's next transaction."""
        place = (db, key)
        if client.is_dirty:
            return
        if client.watched is None:
            client.watched = {}
            self.watching_clients += 1
        if place in client.watched:
            return
        # A key that has expired already is missing from the beginning: that it is removed later is no change.
        client.watched[place] = db.is_overdue(key)
        self.watched.setdefault(place, {})[client] = None
        client.hold_name(key)
        self.refresh()

    def unwatch(self, Client client not None):
        """Forget what a client watches, and that any of it changed."""
        client.is_dirty = False
        self.forget_watched(client)

    cdef int forget_watched(self, Client client) except -1:
        """Forget what a client watches, but not that any of it changed."""
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
        return self.refresh()

    def is_stale(self, Client client not None):
        """Whether something that a client watches has changed, or has expired without anybody having met it."""
        if client.watched is not None and not client.is_dirty:
            for (db, key), was_overdue in client.watched.items():
                db.now_ms = (<Dispatcher>self.dispatcher).context.now_ms
                if not was_overdue and db.is_overdue(key):
                    return True
        return client.is_dirty

    # --- Events --------------------------------------------------------------------------------------------------

    def set_events(self, str letters not None):
        """Publish what the setting notify-keyspace-events asks for."""
        given = set(letters)
        self.by_key = "K" in given
        self.by_event = "E" in given
        self.wanted = 0
        if self.by_key or self.by_event:
            for letter, kind in EVENT_LETTERS.items():
                if letter in given or ("A" in given and letter not in APART):
                    self.wanted |= kind

    cpdef int key_event(self, object db, int kind, bytes event, bytes key) except -1:
        """Publish an event of a class that is wanted."""
        if not self.hub.has_listeners():
            return 0
        if self.by_key:
            self.hub.publish(b"__keyspace@%d__:%b" % (db.index, key), event)
        if self.by_event:
            self.hub.publish(b"__keyevent@%d__:%b" % (db.index, event), key)
        return 0

    cdef int watched_changed(self, tuple place, dict clients, replacement) except -1:
        """A key has changed, or all keys of its database are about to be replaced: tell those that watch it.

        replacement  the database whose keys will stand there; None when the key is as it is
        """
        cdef Client client
        db, key = place
        for client in list(clients):
            if client.watched[place]:
                # It had expired when the watching began, so it was missing; and missing it stays.
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
                # Nothing more can happen to its transaction. INFO shows that flushes leave the keys watched.
                self.forget_watched(client)
        return 0

    # --- What databases tell ---------------------------------------------------------------------------------------

    cpdef int key_touched(self, object db, bytes key) except -1:
        if self.watched:
            place = (db, key)
            clients = self.watched.get(place)
            if clients is not None:
                self.watched_changed(place, clients, None)
        if self.tracking.is_used():
            self.tracking.touched(key, key is self.removed)
        self.removed = None
        return 0

    cpdef int key_removed(self, object db, bytes key) except -1:
        if self.wants_touched:
            self.removed = key
        cdef Dispatcher dispatcher = self.dispatcher
        dispatcher.propagate(db.index, [b"DEL", key])
        if dispatcher.executing is None:
            dispatcher.finish_effects()  # of no command: a unit of its own
        return 0

    cpdef int flushing(self, object db) except -1:
        for place, clients in self.watched.items():
            if place[0] is db and holds(db, place[1]):
                self.watched_changed(place, clients, EMPTY)
        self.tracking.flushed(db.index)
        return 0

    cpdef int swapping(self, object db, object other) except -1:
        for place, clients in self.watched.items():
            if (place[0] is db or place[0] is other) and (holds(db, place[1]) or holds(other, place[1])):
                self.watched_changed(place, clients, other if place[0] is db else db)
        return 0
