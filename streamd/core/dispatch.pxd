# cython: language_level=3
"""From a request to its handler. See dispatch.pyx."""

from cpython.ref cimport PyObject

from streamd.core.blocking cimport BlockedClients
from streamd.core.capability cimport Capability
from streamd.core.client cimport Client
from streamd.core.context cimport Context, Frame
from streamd.core.key_changes cimport KeyChanges
from streamd.core.route cimport Failure, Route, Routes
from streamd.core.transaction cimport Transactions
from streamd.core.turn cimport Turn
from streamd.keyspace.database cimport Database
from streamd.protocol.reply cimport ReplyWriter


cdef enum ServerState:
    # Why every client's requests need extra checks before they run; a set.
    PAUSED = 1 << 0
    MEMORY_LIMITED = 1 << 1      # maxmemory is set
    HAS_MONITORS = 1 << 2
    REFUSING = 1 << 3            # some commands are refused for now: loading, a failed save, too few replicas
    TRACKING_FULL = 1 << 4       # client-side caching tracks more keys than it may
    FEW_REPLICAS = 1 << 5        # writes are refused: too few replicas are connected
    FOLLOWING = 1 << 6           # the server is a replica
    FENCED = 1 << 7              # replicas do not confirm writes
    BUSY = 1 << 8                # a script has been running for too long
    CLUSTERED = 1 << 9           # keys belong to the nodes of a cluster: requests for those of others are redirected


cdef class Dispatcher


cdef class ServerContext(Context):
    cdef Dispatcher dispatcher


cdef class UnitState:
    # What the dispatcher knows of a unit that has been put aside.
    cdef Client executing
    cdef PyObject *executing_args
    cdef size_t unit_mark
    cdef bint has_run_transaction
    cdef int unit_flags
    cdef list pending
    cdef bint has_redirected
    cdef Frame frame
    cdef long long aside_us


cdef class Dispatcher(Turn):
    cdef readonly ServerContext context
    cdef readonly Routes routes
    cdef readonly dict errorstats     # error code -> count
    cdef bint has_many_codes          # there were too many codes: none is counted any more
    cdef readonly BlockedClients blocked
    cdef readonly Transactions transactions
    cdef readonly KeyChanges key_changes
    cdef readonly tuple capabilities  # of Capability
    cdef tuple greeting               # those that implement `client_connected`
    cdef tuple leaving                # ... and with `client_gone`
    # The hooks that capabilities have asked for; see capability.pyx. The bits say when to call them.
    cdef tuple refusing               # of Capability with client_bits or server_bits, by refusal_rank
    cdef int refusing_clients         # the union of their client_bits
    cdef int refusing_server          # the union of their server_bits
    cdef Capability refuser           # the capability that has refused the present request; None: none
    cdef public Capability router             # ServerState CLUSTERED: it says where keys are; None: all are here
    cdef public Capability monitor            # ServerState HAS_MONITORS
    cdef public Capability read_observer      # ClientState TRACKING
    cdef public Capability reply_keeper       # wants `reply_written` calls; None: nobody
    cdef public Capability script_runner      # runs requests with RUNS_SCRIPT; None: nobody
    cdef int script_flags             # RouteFlags of the checked request, if it runs a script
    cdef public bint trusts_scripts          # DEBUG SET-DISABLE-DENY-SCRIPTS: they may call what is denied to them
    cdef public bint has_after_reply                 # the read observer wants `unit_done` calls
    cdef public object pause_keeper           # keeps the clients held back by a pause: hold_back(client)
    cdef long long slow_us            # the smallest `slow_us` of the capabilities: they are notified of such commands
    cdef dict ready                   # shared with the databases
    cdef int state                    # set of ServerState
    cdef bint has_run_transaction     # the running command is an EXEC that has run the queued requests
    cdef PyObject *executing_args     # arguments of the running request, borrowed; only valid while there is one
    cdef public bint tracks_latency   # latency-tracking: keep histograms
    cdef size_t unit_mark             # where the reply to the running request starts
    cdef int unit_flags               # RouteFlags of all that it has run so far, in transactions and scripts too
    cdef int _pause
    cdef bint _is_replica
    cdef bint _keeps_keys
    cdef bint has_held_back           # a client waiting for a key was not served because of a pause or a fence
    cdef readonly long long processing_events    # how often a client's buffer was searched for requests
    cdef readonly long long batches              # how often that found any
    cdef readonly long long batched_commands     # ... and the number of requests found
    cdef readonly long long commands_us    # total time of commands
    cdef readonly long long closed_for_input     # clients closed for their query buffer
    cdef public long long query_buffer_limit
    cdef public long long total_commands
    cdef public long long total_error_replies
    cdef public long long unexpected_errors

    cdef int execute(self, Client client, list args) except -1
    cdef int gate(self, Client client, Route route, list args) except -1
    cdef str find_refusal(self, Client client, Route route, list args)
    cdef int queue(self, Client client, Route route, list args) except -1
    cdef int run(self, Client client, Route route, list args) except -1
    cdef int perform(self, Client client, Route route, list args) except -1
    cdef int run_inner(self, Client client, Route route, list args) except -1
    cdef UnitState put_aside(self)
    cdef int take_up(self, UnitState unit) except -1
    cdef int count(self, Client client, Route route, list args, long long took_us) except -1
    cdef int note_slow(self, Client client, Route route, list args, long long took_us) except -1
    cdef int run_transaction(self, Client client) except -1
    cdef int finish_pushes(self, Client client) except -1
    cdef int take_shared(self, Client client) except -1
    cdef int call(self, Client client, Route route, list args) except -1
    cpdef int change_state(self, int state, bint is_on) except -1
    cdef bint holds_back(self, Client client, Route route) noexcept
    cdef str find_denial(self, Client client, Route route, list args)
    cdef int has_flags(self, Client client, Route route, int flags) noexcept
    cpdef bint is_write(self, Client client, Route route) noexcept
    cpdef bint needs_memory(self, Client client, Route route) noexcept
    cdef int follow_holds(self) except -1
    cdef int serve_ready(self) except -1
    cdef int refuse(self, Client client, str text) except -1
    cdef int reject(self, Client client, Route route, list args, str text) except -1
    cdef int count_error(self, Route route, Failure failure, str text) except -1
    cdef int answer_bug(self, Client client, Route route, size_t mark, error) except -1
    cdef int finish_reply(self, Client client, size_t mark) except -1
