# cython: language_level=3
"""The hooks of a capability. See capability.pyx."""

from streamd.core.client cimport Client
from streamd.core.route cimport Route


cdef class Capability:
    cdef public int client_bits           # ClientState in which requests are passed to `find_refusal`
    cdef public int server_bits           # ... and ServerState
    cdef public bint rests                # `cron` is not called before `Host.wake`
    cdef public bint skips_turns          # `before_replies` need not be called
    cdef public long long slow_us         # commands that take at least this long are passed to `command_took`

    cpdef str find_refusal(self, Client client, Route route, list args)
    cdef bint is_served(self, Route route, list args) noexcept
    cdef str find_redirection(self, Client client, Route route, list args, int flags)
    cpdef int command_took(self, Client client, Route route, list args, long long took_us) except -1
    cdef int show_request(self, Client client, list args) except -1
    cdef int command_read(self, Client client, Route route, list args) except -1
    cdef int request_flags(self, Client client, Route route, list args) except -1
    cdef int run_unit(self, Client client, Route route, list args) except -1
    cdef int request_done(self, Client client, Route route) except -1
    cdef int unit_done(self, Client client) except -1
    cdef int reply_written(self, Client client, int flags, size_t mark) except -1
    cdef int key_event(self, object db, int kind, bytes event, bytes key) except -1
    cdef int key_touched(self, object db, bytes key, bint by_server) except -1
    cdef int flushing(self, object db) except -1
    cdef int swapping(self, object db, object other) except -1
    cpdef int before_replies(self) except -1
    cpdef int after_replies(self, list clients) except -1
    cpdef long long memory(self) except -1
    cpdef long long unlimited_memory(self) except -1
