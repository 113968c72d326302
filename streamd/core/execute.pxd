# cython: language_level=3
"""From a request to its handler. See dispatch.pyx."""

from cpython.ref cimport PyObject

from streamd.core.context cimport Context
from streamd.core.client cimport Client
from streamd.pubsub.hub cimport Hub
from streamd.core.histogram cimport Histogram
from streamd.observe.monitor cimport Monitors


cdef enum EntryFlag:
    # The flags of a command that matter before it runs; a set.
    NO_AUTH = 1 << 0             # allowed before authentication
    WRITE = 1 << 1
    MAY_REPLICATE = 1 << 2       # changes no key, but is propagated (PUBLISH)
    DENY_OOM = 1 << 3
    NO_MULTI = 1 << 4
    AT_ONCE = 1 << 5             # runs inside MULTI, where others are queued
    FOR_SUBSCRIBERS = 1 << 6     # allowed to a RESP2 client with subscriptions
    READ_ONLY = 1 << 7
    ADMIN = 1 << 8               # not shown by MONITOR
    SKIP_SLOWLOG = 1 << 9
    SKIP_MONITOR = 1 << 10
    LOADING = 1 << 11
    STALE = 1 << 12
    HAS_KEYS = 1 << 13


cdef enum ServerState:
    # Why every client's requests are looked at more closely before they run; a set.
    PAUSED = 1 << 0
    MEMORY_LIMITED = 1 << 1      # maxmemory is set
    HAS_MONITORS = 1 << 2
    TRACKING_FULL = 1 << 4       # client-side caching remembers more keys than it may
    REFUSING = 1 << 3            # some commands are refused for now: loading, a failed save, too few replicas


cdef class Entry:
    # A declared command, ready to be dispatched, and what is counted for it.
    cdef readonly object command      # spec.Command
    cdef object handler
    cdef int arity
    cdef int flags                    # set of EntryFlag
    cdef readonly int index           # its number; of a command without a handler, -1
    cdef dict subcommands             # name as sent -> Entry; None for a command without subcommands
    cdef public long long calls
    cdef public long long usec
    cdef public long long rejected_calls
    cdef public long long failed_calls
    cdef readonly Histogram histogram  # how long it took; None until its first call

    cdef int forget_calls(self) except -1


cdef class Dispatcher


cdef class ServerContext(Context):
    cdef object registry              # BlockedClients
    cdef Dispatcher dispatcher
    cdef readonly Hub hub


cdef class Transaction:
    # What a client has queued since MULTI.
    cdef readonly list requests       # of (Entry, args)
    cdef public bint is_aborted       # a request was refused: EXEC will run none
    cdef int flags                    # those of all requests together
    cdef readonly long long size      # bytes of the arguments
    cdef readonly long long objects_size    # what the requests take beside those, about


cdef class Dispatcher:
    cdef readonly ServerContext context
    cdef readonly dict clients        # id -> Client
    cdef readonly dict entries        # full name (`xgroup|create`) -> Entry
    cdef readonly dict errorstats     # error code -> count
    cdef dict names                   # name as sent -> Entry
    cdef list seen                    # names and entries in turn, placed by the address of the name
    cdef public object server
    cdef object loop
    cdef readonly object blocked      # BlockedClients
    cdef dict ready                   # shared with the databases
    cdef list writers                 # clients with output
    cdef list resumed                 # clients that have been served after a wait and may have more requests
    cdef list put_off                 # clients that have used up their share of a turn
    cdef long long share_us           # how long that is now
    cdef long long ended_us           # monotonic: when the last request had been run or refused, and the next began
    cdef long long wall_offset_us     # what makes Unix time of monotonic time
    cdef long long wall_read_us       # monotonic: when that was found
    cdef long long output_hard[3]     # limits of unsent replies by OutputClass, bytes; 0: none
    cdef long long output_soft[3]
    cdef long long output_soft_us[3]  # how long output_soft may be passed
    cdef size_t output_watch[3]       # the smaller of the two limits; from here on they are looked at
    cdef size_t output_most[3]        # what a reply may take while it is written; SIZE_MAX: no limit
    cdef list doomed                  # clients that have passed their limit, closed at the end of the turn
    cdef bint is_scheduled
    cdef int state                    # set of ServerState
    cdef Entry exec_entry             # that of EXEC
    cdef bint has_run_transaction     # the running command is an EXEC that has run what was queued
    cdef readonly Client executing    # whose command runs; None between commands
    cdef PyObject *executing_args     # its arguments, borrowed; only valid while there is one
    cdef readonly object keyspace     # Keyspace
    cdef readonly Monitors monitors
    cdef public bint tracks_latency   # latency-tracking: keep histograms
    cdef long long slow_us            # from here on commands are noted: the smaller of the next two, 0 for hot keys
    cdef long long slowlog_us         # what takes at least so long goes to the slow log
    cdef long long latency_us         # what takes at least so long goes to the latency monitor
    cdef object hotkeys               # HotKeys while it counts commands, or None
    cdef size_t unit_mark             # where the reply to the running request begins
    cdef long long turn_started_us    # monotonic: when the first request of this turn came; 0: none has
    cdef readonly long long processing_events    # times that a client's buffer was searched for requests
    cdef readonly long long batches              # of them, those that found some
    cdef readonly long long batched_commands     # ... and what they found
    cdef readonly long long turns     # turns of the loop that had something to do
    cdef readonly long long turns_us  # what they took
    cdef readonly long long commands_us    # what commands took
    cdef public long long total_reads      # pieces received
    cdef public long long total_writes     # pieces sent
    cdef readonly long long closed_for_input     # clients closed for their query buffer
    cdef readonly long long closed_for_output    # clients closed for their unsent replies
    cdef Py_ssize_t peak_input        # bytes of the longest query buffer since take_peaks
    cdef size_t peak_output           # bytes of the longest unsent replies since take_peaks
    cdef readonly object tracking     # Tracking: client-side caching
    cdef readonly Hub hub             # publish/subscribe
    cdef readonly long long names_size    # bytes of the names that clients are subscribed to, watch and track by
    cdef list effects                 # (database index, args) to be propagated when the command is over
    cdef bint has_replica_effects     # some of them are for replicas only
    cdef public bint has_replicas     # whether replicas want effects
    cdef public object propagation    # takes effects: append_effects(effects, now_ms); None: nobody wants them
    cdef bint has_effects             # some have been taken since the last flush
    cdef public bint limits_clients   # maxmemory-clients: what clients take is looked at
    cdef public bint needs_password   # of new connections
    cdef public object default_user   # acl.User of new connections
    cdef public long long max_bulk_len
    cdef public long long query_buffer_limit
    cdef int _pause
    cdef bint has_held_back           # somebody who waited for a key was not served because of a pause
    cdef public long long total_commands
    cdef public long long total_error_replies
    cdef public long long unexpected_errors
    cdef public long long net_input_bytes
    cdef public long long net_output_bytes
    cdef long long last_client_id

    cpdef long long new_client_id(self)
    cdef int schedule(self) except -1
    cdef inline void look_at_clocks(self) noexcept
    cdef int process(self, Client client) except -1
    cdef Entry look_up(self, list args)
    cdef Entry look_up_name(self, bytes name)
    cdef str explain_unknown(self, list args)
    cdef int execute(self, Client client, list args) except -1
    cdef int gate(self, Client client, Entry entry, list args) except -1
    cdef str find_refusal(self, Client client, Entry entry, list args)
    cdef int queue(self, Client client, Entry entry, list args) except -1
    cdef int run(self, Client client, Entry entry, list args) except -1
    cdef int perform(self, Client client, Entry entry, list args) except -1
    cdef int count(self, Client client, Entry entry, list args, long long took_us) except -1
    cdef int note_slow(self, Client client, Entry entry, list args, long long took_us) except -1
    cdef int run_transaction(self, Client client) except -1
    cdef int finish_pushes(self, Client client) except -1
    cpdef int propagate(self, int db_index, list args) except -1
    cdef int finish_effects(self) except -1
    cdef int call(self, Client client, Entry entry, list args) except -1
    cdef int check_output(self, Client client) except -1
    cdef int close_for_output(self, Client client) except -1
    cdef int doom(self, Client client) except -1
    cdef int change_state(self, int state, bint is_on) except -1
    cdef bint holds_back(self, Client client, Entry entry) noexcept
    cdef bint needs_memory(self, Client client, Entry entry) noexcept
    cdef bint is_write(self, Client client, Entry entry, int flags) noexcept
    cdef int serve_ready(self) except -1
    cdef int refuse(self, Client client, str text) except -1
    cdef int reject(self, Client client, Entry entry, list args, str text) except -1
    cdef int answer_bug(self, Client client, size_t mark, error) except -1
    cdef int answer_error(self, Client client, str text) except -1
    cdef int finish_reply(self, Client client, size_t mark) except -1
    cdef int run_again(self, Client client, Entry entry, list args) except -1
    cdef int wait_on(self, Client client) except -1
    cdef int finish_blocked(self, Client client, size_t mark) except -1
