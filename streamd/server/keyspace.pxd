# cython: language_level=3
"""What the server does when keys change. See keyspace.pyx."""

from streamd.engine.database cimport KeyspaceListener


cdef class Keyspace(KeyspaceListener):
    cdef object dispatcher                # Dispatcher
    cdef dict watched                     # (database, key) -> {client: None}, of WATCH
    cdef readonly int watching_clients    # clients that watch at least one key

    cdef int refresh(self) except -1
