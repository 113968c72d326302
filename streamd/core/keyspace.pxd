# cython: language_level=3
"""What the server does when keys change. See keyspace.pyx."""

from streamd.engine.database cimport KeyspaceListener
from streamd.core.client cimport Client
from streamd.pubsub.hub cimport Hub
from streamd.caching.tracking cimport Tracking


cdef class Keyspace(KeyspaceListener):
    cdef object dispatcher                # Dispatcher
    cdef Hub hub
    cdef bint by_key                      # events are published by key: `__keyspace@0__:key`
    cdef bint by_event                    # ... by event: `__keyevent@0__:xadd`
    cdef Tracking tracking                # client-side caching
    cdef bytes removed                    # the key that was removed last, until it is told of as touched
    cdef dict watched                     # (database, key) -> {client: None}, of WATCH
    cdef readonly int watching_clients    # clients that watch at least one key

    cpdef int refresh(self) except -1
    cdef int forget_watched(self, Client client) except -1
    cdef int watched_changed(self, tuple place, dict clients, replacement) except -1
