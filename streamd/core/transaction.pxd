# cython: language_level=3
"""What clients queue and watch. See transaction.pyx."""

cimport cython

from streamd.core.capability cimport Capability
from streamd.core.client cimport Client, ClientHost
from streamd.core.keyspace cimport Keyspace
from streamd.core.route cimport Route


@cython.final
cdef class Transaction:
    # What a client has queued since MULTI.
    cdef readonly list requests       # of (Route, args)
    cdef public bint is_aborted       # a request was refused: EXEC will run none
    cdef int flags                    # those of all requests together
    cdef readonly long long size      # bytes of the arguments
    cdef readonly long long objects_size    # what the requests take beside those, about

    cdef int queue(self, Route route, list args) except -1


@cython.final
cdef class Transactions(Capability):
    cdef ClientHost host
    cdef Keyspace keyspace
    cdef dict watched                    # (database, key) -> {client: None}, of WATCH
    cdef readonly int watching_clients   # clients that watch at least one key

    cdef int forget_watched(self, Client client) except -1
    cdef int watched_changed(self, tuple place, dict clients, replacement) except -1
