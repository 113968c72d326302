# cython: language_level=3
"""Where the keys of requests are served. See routing.pyx."""

from cpython.ref cimport PyObject

from streamd.core.capability cimport Capability
from streamd.core.client cimport Client
from streamd.core.dispatch cimport Dispatcher
from streamd.core.key_plan cimport Plan
from streamd.core.route cimport Route
from streamd.keyspace.database cimport Database
from streamd.keyspace.hash_slot cimport SLOTS


cdef enum SlotState:
    # How this node stands to a slot; a set.
    OWNED = 1                # it is the owner
    UNOWNED = 2              # nobody is
    COPIED = 4               # it is a replica of the owner
    MIGRATING = 8            # it is the owner, and the slot is being moved away
    IMPORTING = 16           # the slot is being moved here


cdef enum:
    SEVERAL = -2             # in place of a slot: the keys are in several


cdef struct Search:
    # What is known of the keys of a request so far.
    int slot                 # -1: there was no key yet
    PyObject *first          # the first key, borrowed
    bint is_crossing         # keys of several slots
    bint has_several         # keys that differ
    bint has_channels        # shard channels, which are served wherever the slot is
    Py_ssize_t missing       # keys that are not here; counted while the slot is open
    Py_ssize_t existing


cdef class Routing(Capability):
    cdef Dispatcher dispatcher
    cdef Database db
    cdef list plans                      # Plan by Route.index; None: no keys
    cdef bytes places                    # of the only key of requests, by Route.index; 0: none or several
    cdef object topology                 # see topology.Topology
    cdef bytearray held_states           # the topology's; it changes them
    cdef const unsigned char *states     # the same: a set of SlotState, by slot; NULL: without a cluster
    cdef public bint is_up               # cluster_state is ok
    cdef public bint reads_when_down     # cluster-allow-reads-when-down
    cdef public bint channels_when_down  # cluster-allow-pubsubshard-when-down
    cdef public bint crosses_slots       # cluster-allow-cross-slot-reads
    cdef readonly int slot               # of the keys of the request that was routed last; -1: it had none; SEVERAL

    cdef Plan plan_of(self, Route route)
    cdef bint is_served(self, Route route, list args) noexcept
    cdef int look(self, Search *search, Route route, list args) except -1
    cdef int take(self, Search *search, bytes key) except -1
    cdef str decide(self, Client client, Route route, Search *search, int flags)
    cdef str decide_each(self, Client client, Route route, list args, int flags)
    cpdef int slot_of_request(self, Route route, list args) except -2
