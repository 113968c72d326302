# cython: language_level=3
"""A connection and what the server keeps for it. See client.pyx."""

from streamd.core.route cimport Failure, Route
from streamd.keyspace.database cimport Database
from streamd.protocol.reply cimport ReplyWriter
from streamd.protocol.request cimport RequestParser
from streamd.shared_bytes cimport SharedBytes


cdef enum ReplyMode:
    REPLY_ON
    REPLY_OFF            # CLIENT REPLY OFF: until ON
    REPLY_SKIP_ARMED     # CLIENT REPLY SKIP is running: suppress its own reply, then the next command's
    REPLY_SKIP           # the command whose reply is skipped
    REPLY_LAST           # it becomes a replica: this reply is the last one
    REPLY_NEVER          # it is a replica: a reply would be part of its stream, so who asks for one is disconnected


cdef enum ClientState:
    # Why a client's requests need extra checks before they run; a set.
    STRANGER = 1 << 0         # has not authenticated
    IN_MULTI = 1 << 1         # its requests are queued until EXEC
    SUBSCRIBED = 1 << 2       # has subscriptions: in RESP2, few commands are allowed
    MONITORING = 1 << 3       # MONITOR
    LIMITED = 1 << 4          # its user has restricted permissions
    TRACKING = 1 << 5         # client-side caching: the keys that it reads are recorded
    REPLICA = 1 << 6          # it is a replica: it must not touch keys
    ASKING = 1 << 7           # cluster: its next request has been redirected here by ASK
    ASKED = 1 << 8            # cluster: its present request, or transaction, has been
    READS_COPIES = 1 << 9     # cluster: READONLY, it reads from replicas


cdef enum:
    # Overhead in bytes of a name that a client subscribes to, watches or tracks: the part charged to the client, about
    # as much as Redis charges (44 to 80), and the rest.
    NAME_BYTES = 64
    NAME_SHARED_BYTES = 192


cdef enum:
    REPLY_BLOCK = 16384     # unsent replies that do not count towards any limit


cdef enum OutputClass:
    # Which client-output-buffer-limit applies to a client.
    CLASS_NORMAL
    CLASS_REPLICA
    CLASS_PUBSUB
    OUTPUT_CLASSES


cdef class ClientHost:
    # What connections need from their server; dispatch.Dispatcher implements it.
    cdef readonly dict clients             # id -> Client
    cdef readonly list databases           # by index, as SELECT numbers them
    cdef readonly Client executing         # the client whose command is running; None between commands
    cdef list writers                      # clients with output
    cdef list put_off                      # clients that have used up their share of a turn
    cdef long long ended_us                # monotonic: when the last request ended and the next began
    cdef long long wall_offset_us          # added to monotonic time to get Unix time
    cdef long long wall_read_us            # monotonic: when the offset was determined
    cdef readonly long long advanced_us    # how far this server's Unix time is ahead of the system's: tests advance it
    cdef size_t output_watch[3]            # by OutputClass: size from which unsent replies are checked
    cdef size_t output_most[3]             # ... maximum size of a reply while it is written; SIZE_MAX: no limit
    cdef readonly long long names_size     # bytes of the names that clients subscribe to, watch and track
    cdef readonly long long held_size      # bytes of the requests that wait for a key or the end of a pause
    cdef readonly int replica_count        # how many of the clients are replicas
    cdef public object io_threads          # sockets.threads.IoThreads; None: there are none
    cdef public bint limits_clients        # capabilities want to be called after the replies of each turn
    cdef public bint needs_password        # of new connections
    cdef public object default_user        # Identity of new connections
    cdef public long long max_bulk_len
    cdef public long long net_input_bytes
    cdef public long long net_output_bytes
    cdef public long long total_reads      # pieces received
    cdef public long long total_writes     # pieces sent
    cdef Py_ssize_t peak_input             # bytes of the longest query buffer since take_peaks
    cdef size_t peak_output                # bytes of the longest unsent replies since take_peaks
    cdef long long last_client_id

    cpdef long long new_client_id(self)
    cpdef long long unix_ms(self)          # the time of this server, in ms
    cdef void look_at_clocks(self) noexcept
    cdef int register(self, Client client, object sock) except -1
    cdef int forget(self, Client client) except -1
    cdef int schedule(self) except -1
    cdef int process(self, Client client) except -1
    cdef int run_again(self, Client client) except -1
    cdef int finish_wait(self, Client client, size_t mark) except -1
    cdef int share_replies(self, bint is_on) except -1
    cdef int events_begin(self) except -1
    cdef int events_end(self) except -1
    cdef int answer_error(self, Client client, Route route, Failure failure, str text) except -1
    cdef int check_output(self, Client client) except -1
    cdef int close_for_output(self, Client client) except -1


cdef class Outflow:
    # What a client is sent beyond its replies, from memory that is not its own.
    cpdef int send(self, Client client) except -1
    cpdef long long unsent(self) except -1


cdef class Sender:
    # A transport that sends in another thread: it accepts some of the bytes, and calls pause_writing if not all.
    cdef ssize_t hand_over(self, const char *data, size_t size) except -1
    cdef ssize_t hand_over_shared(self, SharedBytes *bytes, size_t at, size_t most) except -1
    cdef int thread_number(self) noexcept       # that of the thread, from 1
    cdef int come_home(self) except -1          # hand the connection back to a transport of the loop's thread


cdef class Client:
    cdef int state                         # set of ClientState
    cdef readonly int output_class         # OutputClass
    cdef public Outflow outflow            # sent whenever there are no replies to send; None: nothing
    cdef list subscribed                   # dicts name -> place, by kind of name; None: none; maintained by pubsub
    cdef public object transaction         # Transaction between MULTI and EXEC, else None
    cdef public dict watched               # (database, key) -> whether it had already expired; None: nothing
    cdef public bint is_dirty              # a watched key has changed
    cdef readonly long long names_size     # bytes of the names that it subscribes to, watches and tracks
    cdef long long held_size               # bytes of its request that waits
    cdef public object tracking            # state of the caching room while CLIENT TRACKING is on, else None
    cdef ReplyWriter deferred              # pushes to itself during its own command, sent after the reply; None: none
    cdef ReplyWriter confirmed             # confirmations that CLIENT REPLY does not suppress; None: none
    cdef readonly long long id
    cdef readonly RequestParser parser
    cdef readonly ReplyWriter reply
    cdef Database db                       # the selected database
    cdef ClientHost host
    cdef public object transport           # None after the connection is lost
    cdef int fd                            # -1: replies go through the transport (TLS, or `sender`)
    cdef Sender sender                     # the transport, if it sends in another thread, else None
    cdef readonly bint is_unix
    cdef readonly bint is_primary          # the link to the primary: no limits apply
    cdef readonly bint is_congested        # the peer is not reading: the transport holds unsent bytes
    cdef long long over_soft_limit_us      # since when the soft output limit is exceeded; 0: it is not
    cdef public bint is_rdb_channel        # a replica's second connection, for its snapshot
    cdef public bint is_held               # nothing is sent: a child process is writing to the connection
    cdef public Py_ssize_t sendable        # bytes of `reply` that may be sent, the rest is held; -1: all
    cdef bint is_writer                    # in the dispatcher's list of clients with output
    cdef bint is_put_off                   # has used up its share of the turn; reading is paused meanwhile
    cdef readonly bint authenticated
    cdef public bint close_after_reply     # close once all output is sent
    cdef public bint no_evict
    cdef public bint no_touch
    cdef public object blocked             # the Blocked record while waiting for keys, else None
    cdef public list postponed             # a request held back by CLIENT PAUSE, or whose script runs on; else None
    cdef ReplyMode reply_mode
    cdef public bytes name
    cdef public bytes lib_name
    cdef public bytes lib_ver
    cdef readonly object user              # Identity with its permissions; None: internal client without restrictions
    cdef long long created_us              # monotonic
    cdef long long last_interaction_us     # monotonic
    cdef readonly long long total_net_in   # bytes
    cdef readonly long long total_net_out  # bytes
    cdef public long long total_commands
    cdef readonly long long read_events    # pieces received
    cdef readonly long long batches                 # times that one or more of its requests were run in a row
    cdef readonly long long batched_commands        # ... and the number of these requests
    cdef public object last_command        # spec.Command or None
    cdef public long long write_offset     # the replication offset after its last write
    cdef str _address
    cdef str _local_address

    cdef int received(self, const char *data, Py_ssize_t size, bytes source) except -1
    cdef int received_in_place(self, Py_ssize_t there, const char *data, Py_ssize_t size) except -1
    # A thread may collect a long argument, rather than have it received:
    cdef bint awaits_argument(self, Py_ssize_t size, Py_ssize_t collected, Py_ssize_t more) except -1
    cdef int received_argument(self, bytes arg) except -1                       # one that it awaits
    cdef int received_instead(self, const char *data, Py_ssize_t size) except -1    # collected, but not awaited
    cdef Py_ssize_t args_size(self) except -1      # bytes of the arguments of a request that waits, or is incomplete
    cpdef long long output_size(self) except -1    # bytes of replies not yet accepted by the kernel
    cdef int act_for(self, Client caller) except -1
    cdef int change_state(self, int state, bint is_on) except -1
    cdef int hold_name(self, bytes name) except -1
    cdef int drop_name(self, bytes name) except -1
    cdef int hold_args(self, list args) except -1
    cdef int drop_args(self) except -1
    cdef int deliver(self, const char *data, size_t length) except -1
    cdef int deliver_parts(self, const char *head, size_t head_length, const char *tail, size_t tail_length) except -1
    cpdef long long memory_usage(self) except -1
    cdef bint takes_shared(self) noexcept
    cdef int deliver_shared(self, SharedBytes *bytes) except -1
    cdef ReplyWriter new_writer(self)
    cdef int limit_output(self) except -1
    cdef bint is_silent(self) noexcept
    cdef bint can_run(self) noexcept
    cdef int put_off(self) except -1
    cdef int go_on(self) except -1
    cdef int want_write(self) except -1
    cdef int flush(self) except -1
    cdef bint is_sending(self) noexcept
    cdef ssize_t send_some(self, const char *data, size_t size) except -2
    cdef ssize_t send_parts(self, size_t most) except -2
    cpdef int send_later(self) except -1
    cdef int leave_thread(self, object transport) except -1
    cdef int thread_number(self) noexcept
