# cython: language_level=3
"""Clients that wait for keys. See blocking.pyx."""

cimport cython
from cpython.object cimport PyObject

from streamd.core.client cimport Client, ClientHost
from streamd.core.context cimport BlockRequest
from streamd.core.route cimport Route
from streamd.keyspace.database cimport Database


cdef struct Place:
    # A place in a queue, which is a ring of places. `next` is NULL while it is in no queue.
    Place *prev
    Place *next
    PyObject *blocked           # the Blocked that owns it, borrowed; NULL: the place of the queue itself


@cython.final
cdef class Queue:
    cdef Place ring             # next: the head; prev: the last

    cdef void append(self, Place *place) noexcept
    cdef bint is_empty(self) noexcept
    cdef list members(self)


@cython.final
cdef class Waiters:
    # The queues of one key.
    cdef Queue unlined          # those in no line: all are run; None: there have been none
    cdef readonly dict lines    # Question.line -> Queue, never an empty one; None until there is one

    cdef Queue queue_for(self, object line)


@cython.final
cdef class Blocked:
    cdef readonly Client client
    cdef readonly Database db
    cdef readonly BlockRequest request
    cdef long long deadline_us
    cdef long long retry_us
    cdef readonly Route route
    cdef readonly list args
    cdef long long spent_us
    cdef bint waits_on          # its request was run again and asked to wait once more
    cdef Place *places          # one for each key; `place` when there is one key, else owned
    cdef Place place
    cdef Py_ssize_t at          # its index in the timeline; -1: not in it

    cdef int begin(self, Route route, list args, long long took_us) except -1
    cdef long long next_us(self) noexcept


@cython.final
cdef class BlockedClients:
    cdef object loop
    cdef dict blocked           # client id -> Blocked: owns the records that queues and the timeline point to
    cdef ClientHost host
    # A heap of the Blocked records with a deadline or a retry time, ordered by the earlier one; borrowed.
    cdef PyObject **timeline
    cdef Py_ssize_t time_count
    cdef Py_ssize_t time_room
    cdef object timer           # the loop's timer handle; None: no timer is set
    cdef long long timer_us     # when it fires

    cdef int block(self, Client client, Database db, BlockRequest request) except -1
    cdef int set_retry(self, Blocked blocked, long long ready_at_ms) except -1
    cdef int end(self, Blocked blocked) except -1
    cdef int serve_ready(self, dict ready) except -1
    cdef int serve_key(self, Database db, bytes key) except -1
    cdef int serve_all(self, list members, object value) except -1
    cdef int serve_line(self, Database db, bytes key, Waiters waiters, object line) except -1
    cdef int serve_passing(self, Database db, bytes key, Queue queue) except -1
    cdef bint serve(self, Blocked blocked) except -1
    cdef int drop(self, Client client) except -1
    cdef int put_in_time(self, Blocked blocked) except -1
    cdef void take_out_of_time(self, Blocked blocked) noexcept
    cdef void settle(self, PyObject *item, Py_ssize_t at) noexcept
    cdef int arm(self, long long when_us) except -1
    cdef void advance(self, long long by_us) noexcept
