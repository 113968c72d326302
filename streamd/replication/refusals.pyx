# cython: language_level=3, boundscheck=False, wraparound=False
"""ReplicaRefusals: what a replica does not do for its clients. Asked before every request that a replica gets.

Their place among the reasons to refuse a request is Redis's: behind MISCONF, before LOADING.
"""

cimport cython

from streamd.core.capability cimport Capability
from streamd.core.client cimport Client
from streamd.core.dispatch cimport FOLLOWING, REFUSING, Dispatcher
from streamd.core.route cimport STALE, WRITE, Route
from streamd.core.transaction cimport Transaction

__all__ = ["READ_ONLY_TEXT", "STALE_TEXT", "ReplicaRefusals"]

READ_ONLY_TEXT = "READONLY You can't write against a read only replica."
STALE_TEXT = "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'."


@cython.final
cdef class ReplicaRefusals(Capability):
    """The requests that a replica refuses.

    is_read_only  writes
    is_stale      whatever reads or writes keys: the link is down, and old data is not to be served
    """

    cdef Dispatcher dispatcher
    cdef object find_write_error          # callable: the reason why writes are refused because of files, or empty
    cdef object find_way                  # callable: what a client gets instead of READONLY; None: nothing
    cdef readonly bint is_read_only
    cdef readonly bint is_stale

    refusal_rank = 29

    def __init__(self, host not None):
        self.dispatcher = host.dispatcher
        self.server_bits = FOLLOWING

    def set_write_errors(self, find_write_error):
        """Set what finds the reason why writes are refused because of files; it comes first."""
        self.find_write_error = find_write_error

    def set_way(self, find_way):
        """Set what finds the error for a refused write; None: the request goes on, empty: the client is closed."""
        self.find_way = find_way

    def refuse(self, bint is_read_only, bint is_stale):
        """Refuse these from now on."""
        self.is_read_only = is_read_only
        self.is_stale = is_stale
        self.dispatcher.change_state(FOLLOWING, is_read_only or is_stale)

    cpdef str find_refusal(self, Client client, Route route, list args):
        if self.is_read_only and self.dispatcher.has_flags(client, route, WRITE):
            if self.dispatcher.state & REFUSING and self.find_write_error():
                return None
            return READ_ONLY_TEXT if self.find_way is None else self.find_way(client)
        if self.is_stale and not self.is_for_stale(client, route):
            return STALE_TEXT
        return None

    cdef bint is_for_stale(self, Client client, Route route) except -1:
        """Whether a request, or all of a transaction, does without data."""
        if route is self.dispatcher.routes.exec_route and client.transaction is not None:
            return (<Transaction>client.transaction).common & STALE != 0
        return self.dispatcher.has_flags(client, route, STALE) != 0
