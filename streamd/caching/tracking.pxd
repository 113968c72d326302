# cython: language_level=3
"""Client-side caching: what clients have read, and notifications of changes. See tracking.pyx."""

from streamd.core.capability cimport Capability
from streamd.core.client cimport Client
from streamd.core.dispatch cimport Dispatcher


cdef class ClientTracking:
    # The options of CLIENT TRACKING; owned by its client.
    cdef readonly long long redirect      # ID of the client that is notified instead; 0: the client itself
    cdef readonly bint is_bcast           # notified of all keys with some prefixes, whether it has read them or not
    cdef readonly bint is_optin           # only what is read after CLIENT CACHING YES is remembered
    cdef readonly bint is_optout          # what is read after CLIENT CACHING NO is not remembered
    cdef readonly bint is_noloop          # not notified of its own changes
    cdef readonly bint is_caching         # CLIENT CACHING applies to the next command
    cdef readonly bint is_broken          # the client to be notified instead has gone
    cdef readonly list prefixes           # of bytes, sorted; only with is_bcast


cdef class Audience:
    # The clients notified of the keys with one prefix, and the keys still to be sent.
    cdef bytes prefix
    cdef dict clients                     # id -> Client
    cdef dict keys                        # changed key -> the Client that changed it; None: all are notified


cdef class Tracking(Capability):
    cdef Dispatcher dispatcher
    cdef object config
    cdef object trash                     # LazyFree
    cdef object table                     # OrderedDict, longest unread first: key -> client ID, or a set of several
    cdef dict prefixes                    # prefix -> Audience
    cdef dict unsent                      # prefix -> Audience, of those that have keys
    cdef object length_counts             # Counter: how many prefixes have a length
    cdef list lengths                     # of the prefixes, each once, ascending
    cdef list pending                     # keys to send to the running client after its reply; None: all keys
    cdef ClientTracking former            # of the running client, if it stopped tracking with `pending` left
    cdef dict ranges                      # Command -> (first key, last key, step); None: ask its key specifications
    cdef readonly int client_count        # clients with CLIENT TRACKING ON
    cdef readonly long long total_items   # client IDs in `table`
    cdef long long table_names_size       # bytes of the keys in `table`
    cdef long long _max_keys
    cdef int effort                       # keys to forget at a time
    cdef long long flush_command          # the last flush: how many commands had been run before,
    cdef int flush_index                  # and which database was flushed; FLUSHALL flushes them in ascending order

    cdef bint is_used(self) noexcept
    cdef int add_item(self, bytes key, long long client_id) except -1
    cdef list request_keys(self, object command, list args)
    cdef int invalidate(self, bytes key, object ids) except -1
    cdef int tell(self, Client client, bytes key) except -1
    cdef int note(self, bytes key, bint by_server) except -1
    cdef int send(self, Client client, bytes keys) except -1
