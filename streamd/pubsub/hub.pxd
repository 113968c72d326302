# cython: language_level=3
"""Who is subscribed to what, and how a message reaches them. See hub.pyx."""

cimport cython
from cpython.object cimport PyObject
from libc.stdint cimport uint32_t, uint64_t

from streamd.engine.glob cimport Glob
from streamd.protocol.reply cimport ReplyWriter
from streamd.core.capability cimport Capability
from streamd.core.client cimport Client


@cython.final
cdef class Pattern(Glob):
    # A pattern with subscribers.
    cdef bytes head2              # the part of a pushed message before the channel, in RESP2
    cdef bytes head3              # ... and in RESP3
    cdef list clients             # of Client, in no order
    cdef Py_ssize_t at            # its place in Patterns.slots


cdef struct Slot:
    # A quick test, so that most patterns need not be read: the last eight bytes of the pattern's literal prefix.
    # A shorter prefix is padded with zeros.
    uint64_t word
    uint64_t mask                 # which of the eight bytes these are
    uint32_t offset               # where they are in the pattern, and in a channel that matches
    uint32_t need                 # a shorter channel cannot match
    PyObject *pattern             # Pattern; borrowed: `Patterns.names` owns it


cdef class Namespace:
    # Names of one kind, and the clients subscribed to each.
    cdef Hub hub
    cdef readonly int kind        # which of Client.subscribed is ours
    cdef readonly bint is_sharded
    cdef dict names               # name -> list of Client (Patterns: Pattern); none is empty

    cdef list add_name(self, bytes name)
    cdef list clients_of(self, bytes name)
    cdef int drop_name(self, bytes name) except -1
    cpdef bint subscribe(self, Client client, bytes name) except -1
    cpdef bint unsubscribe(self, Client client, bytes name) except -1
    cdef Py_ssize_t total_of(self, Client client) except -1     # subscriptions as reported to a client


@cython.final
cdef class Patterns(Namespace):
    cdef Slot *slots              # one for each pattern, in no order; owned
    cdef Py_ssize_t count
    cdef Py_ssize_t room          # allocated, in elements

    cdef long long publish(self, bytes channel, const char *tail, size_t tail_length) except -1


@cython.final
cdef class Hub(Capability):
    cdef readonly Namespace channels
    cdef readonly Patterns patterns
    cdef readonly Namespace shard_channels
    cdef readonly Py_ssize_t client_count     # clients with at least one subscription of any kind
    cdef public object hello_observer         # called with client and message when a Sentinel's hello is published
    cdef public object relay                  # called with channel, message, is_sharded, for a cluster; or None
    cdef ReplyWriter message                  # the encoded message during a publication; otherwise empty

    cpdef long long publish(self, bytes channel, bytes payload, bint is_sharded=*) except -1
    cdef bint has_listeners(self) noexcept
