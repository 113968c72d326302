# cython: language_level=3
"""The limits of memory. See eviction.pyx."""

from streamd.core.capability cimport Capability
from streamd.core.client cimport Client
from streamd.core.dispatch cimport Dispatcher
from streamd.keyspace.database cimport Database
from streamd.keyspace.key_record cimport KeyRecord


cdef enum Order:
    # What decides which key is evicted.
    BY_NOTHING          # noeviction
    BY_TIME             # lru, lrm
    BY_USES
    BY_DEADLINE
    BY_CHANCE


cdef class Eviction(Capability):
    cdef readonly object config
    cdef object latency                        # LatencyMonitor
    cdef list memory_users                     # Capability: other users of memory
    cdef Dispatcher dispatcher
    cdef object trash
    cdef list databases
    cdef readonly long long limit              # maxmemory; 0: none
    cdef Order order
    cdef bint is_volatile                      # only keys that have an expiry
    cdef int samples                           # keys that are drawn per database
    cdef long long patience_us                 # how long a request may wait for room
    cdef list pool                             # (score, database, key), the best candidate last
    cdef int next_db                           # the database to take from next with BY_CHANCE
    cdef object timer                          # the handle for work between turns; None: nothing to do
    cdef public bint is_off                    # nothing is evicted or refused: the primary decides
    cdef readonly bint is_full                 # there was no room before the last request, and nothing to evict
    cdef long long request_bytes               # of the request that room is made for
    cdef long long report_bytes                # that reports of evicted keys have taken while room is made
    cdef public long long peak                 # the highest memory use seen
    cdef readonly long long peak_ms            # when that was, as Unix time
    cdef readonly long long startup            # ... and used before there were any data or clients
    cdef long long exceeded_since_us           # monotonic; 0: the limit is kept
    cdef long long exceeded_us                 # total time over the limit before that
    cdef readonly long long clients_limit      # maxmemory-clients, as bytes; 0: none
    cdef dict weights                          # Client -> bytes, while there is a limit for clients
    cdef long long clients_bytes               # sum of the weights
    cdef public long long evicted_clients
    cdef readonly tuple shown_limits           # what INFO shows of maxmemory and its policy

    cpdef long long used(self) except -1
    cdef long long uncounted(self) except -1
    cpdef bint has_room(self) except -1
    cdef int note_excess(self, bint is_exceeded) except -1
    cdef long long current_excess_ms(self) noexcept
    cpdef bint make_room(self) except -1
    cdef int note_time(self, long long started_us) except -1
    cdef bint wait_for_frees(self, long long until_us) except -1
    cdef int go_on_later(self) except -1
    cdef bint evict_one(self) except -1
    cdef object find_victim(self)
    cdef Py_ssize_t eligible(self, Database db) noexcept
    cdef object draw_any(self)
    cdef object find_first_to_expire(self)
    cdef long long score(self, Database db, KeyRecord *record) except -1
    cdef object take_from_pool(self)
    cdef bint draw(self) except -1
    cdef int offer(self, long long score, Database db, bytes key) except -1
    cdef int limit_clients(self, config) except -1
    cpdef int weigh(self, Client client) except -1
    cpdef int evict_clients(self) except -1
