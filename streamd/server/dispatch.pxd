# cython: language_level=3
"""From a request to its handler. See dispatch.pyx."""

from streamd.commands.context cimport Context
from streamd.server.client cimport Client


cdef class Entry:
    # A declared command, ready to be dispatched, and what is counted for it.
    cdef readonly object command      # spec.Command
    cdef object handler
    cdef int arity
    cdef readonly bint needs_auth
    cdef readonly bint is_write       # held back by CLIENT PAUSE WRITE
    cdef dict subcommands             # name as sent -> Entry; None for a command without subcommands
    cdef public long long calls
    cdef public long long usec
    cdef public long long rejected_calls
    cdef public long long failed_calls


cdef class ServerContext(Context):
    cdef object registry              # BlockedClients


cdef class Dispatcher:
    cdef readonly ServerContext context
    cdef readonly dict clients        # id -> Client
    cdef readonly dict entries        # full name (`xgroup|create`) -> Entry
    cdef readonly dict errorstats     # error code -> count
    cdef dict names                   # name as sent -> Entry
    cdef public object server
    cdef object loop
    cdef readonly object blocked      # BlockedClients
    cdef dict ready                   # shared with the databases
    cdef list writers                 # clients with output
    cdef list resumed                 # clients that have been served after a wait and may have more requests
    cdef list put_off                 # clients that have used up their share of a turn
    cdef long long ended_us           # monotonic: when the last request had been run or refused
    cdef long long output_hard        # limits of unsent replies, bytes; 0: none
    cdef long long output_soft
    cdef long long output_soft_us     # how long output_soft may be passed
    cdef long long output_watch       # the smaller of the two limits; from here on they are looked at
    cdef bint is_scheduled
    cdef public bint needs_password
    cdef public long long max_bulk_len
    cdef public long long query_buffer_limit
    cdef public int pause             # 0: no pause, 1: writes wait, 2: everything waits
    cdef public long long total_commands
    cdef public long long total_error_replies
    cdef public long long unexpected_errors
    cdef public long long net_input_bytes
    cdef public long long net_output_bytes
    cdef long long last_client_id

    cpdef long long new_client_id(self)
    cdef int schedule(self) except -1
    cdef int process(self, Client client) except -1
    cdef Entry look_up(self, list args)
    cdef int execute(self, Client client, list args) except -1
    cdef int run(self, Client client, Entry entry, list args) except -1
    cdef int call(self, Client client, Entry entry, list args) except -1
    cdef int check_output(self, Client client) except -1
    cdef int serve_ready(self) except -1
    cdef int refuse(self, Client client, str text) except -1
    cdef int reject(self, Client client, Entry entry, str text) except -1
    cdef int answer_bug(self, Client client, size_t mark, error) except -1
    cdef int answer_error(self, Client client, str text) except -1
    cdef int finish_reply(self, Client client, size_t mark) except -1
