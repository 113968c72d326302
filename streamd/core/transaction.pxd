# cython: language_level=3
"""Queued requests and watched keys. See transaction.pyx."""

cimport cython

from streamd.core.capability cimport Capability
from streamd.core.client cimport Client, ClientHost
from streamd.core.key_changes cimport KeyChanges
from streamd.core.route cimport Route


@cython.final
cdef class Transaction:
    # The requests that a client has queued since MULTI.
    cdef readonly list requests       # of (Route, args)
    cdef public bint is_aborted       # a request was refused: EXEC will fail
    cdef int flags                    # the union of all requests' flags
    cdef int common                   # ... and what they have in common
    cdef readonly long long size      # bytes of the arguments
    cdef readonly long long objects_size    # approximate overhead of the requests

    cdef int queue(self, Route route, int flags, list args) except -1


@cython.final
cdef class Transactions(Capability):
    cdef ClientHost host
    cdef KeyChanges key_changes
    cdef dict watched                    # (database, key) -> {client: None}, from WATCH
    cdef readonly int watching_clients   # clients that watch at least one key

    cdef int forget_watched(self, Client client) except -1
    cdef int watched_changed(self, tuple place, dict clients, replacement) except -1
