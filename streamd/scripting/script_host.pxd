# cython: language_level=3
"""The script that runs, and the server around it. See script_host.pyx."""

from streamd.core.client cimport Client
from streamd.core.context cimport Frame
from streamd.core.dispatch cimport Dispatcher
from streamd.core.effects cimport Destination
from streamd.core.route cimport Route


cdef enum ScriptFlag:
    # What the first line of a script, or the declaration of a function, says of it; a set.
    NO_WRITES = 1 << 0
    ALLOW_OOM = 1 << 1
    ALLOW_STALE = 1 << 2
    NO_CLUSTER = 1 << 3
    ALLOW_CROSS_SLOT_KEYS = 1 << 4
    UNDECLARED = 1 << 5          # a script without such a line


cdef class ScriptHost:
    cdef readonly Dispatcher dispatcher
    cdef object users                   # users.acl.Acl
    cdef object eviction                # memory.eviction.Eviction
    cdef object refusals                # replication.refusals.ReplicaRefusals
    cdef object saving                  # persistence.bgsave.Saving
    cdef Client actor                   # runs the commands that scripts call: it has no connection
    cdef readonly Client caller         # whose script runs; None: none does
    cdef readonly str kind              # "script" or "function"
    cdef readonly bytes name            # the script's SHA1, or the function's name
    cdef readonly list request          # the request that runs it
    cdef long long started_us           # monotonic
    cdef Frame outer                    # of the command that runs it
    cdef bint is_read_only              # it may not write
    cdef bint may_cross                 # in a cluster, the keys that it accesses may be in several slots
    cdef int slot                       # ... the slot of those that it has accessed; -1: none
    cdef bint checks_memory             # there was no room when it began
    cdef public bint has_written        # it has called a command that writes
    cdef public bint is_killed
    cdef readonly bint is_slow          # it has run for longer than busy-reply-threshold
    cdef Destination destination        # where its effects go
    cdef unsigned long long random_state    # of math.random, 48 bits
    cdef public long long busy_us       # busy-reply-threshold in µs; 0: nothing is slow
    cdef public object pause            # called when it is slow: lets others run, then returns

    cdef unsigned long long draw(self) noexcept
    cdef void seed(self, int seed) noexcept
    cdef int begin(self, Client caller, str kind, bytes name, list request, int flags, bint is_read_only) except -1
    cdef str find_first_refusal(self, int flags, bint is_read_only)
    cdef int end(self) except -1
    cdef int count_failure(self, list args) except -1
    cdef int command(self, list args) except -1
    cdef str find_refusal(self, Route route, list args)
    cdef str find_redirection(self, Route route, list args)
    cdef int reject(self, Route route, str text) except -1
    cdef int look_at_clock(self) except -1
    cdef int tell_slow(self, long long took_ms) except -1
    cdef str may_call(self, list args)
