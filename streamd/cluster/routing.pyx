# cython: language_level=3, boundscheck=False, wraparound=False
"""Routing: whether the keys of a request are served here, and where its client finds them otherwise.

Asked before every request of a node of a cluster, behind permissions, as in Redis. The slot of each key is computed
once; keys are looked up only while their slot is open, that is, being moved from here or to here. The decision is made
in this order:

    CROSSSLOT      the keys are in several slots
    CLUSTERDOWN    nobody serves the slot; or the cluster is down, unless a setting makes an exception
    (MIGRATE runs here while the slot is open)
    ASK            the slot is being moved away, and none of the keys is here any more
    TRYAGAIN       ... some are
    (a client that was sent here by ASK is served, but TRYAGAIN if one of several keys is not here yet)
    (a replica serves what its primary owns: shard channels, and reads of clients that have sent READONLY)
    MOVED          another node serves it

EXEC is decided as one request with the keys of all that are queued. With `crosses_slots`, XREAD and XREADGROUP, and
EXEC of nothing else, may have keys in several slots: each key is then decided by itself, and ASK becomes TRYAGAIN,
since no other node can be expected to serve all of them. What is known of slots is one byte for each, in
`states` of the topology, which changes them; the addresses are asked of it only for an error.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.ref cimport PyObject

from streamd.core.capability cimport Capability
from streamd.core.client cimport ASKED, ASKING, IN_MULTI, READS_COPIES, Client
from streamd.core.dispatch cimport CLUSTERED
from streamd.core.key_plan cimport KeyRange, Plan
from streamd.core.route cimport WRITE, Route
from streamd.core.transaction cimport Transaction
from streamd.keyspace.deadlines cimport is_due
from streamd.keyspace.hash_slot cimport slot_of, slot_of_text
from streamd.keyspace.key_record cimport KeyRecord

__all__ = ["SLOT_STATES", "Routing"]

SLOT_STATES = {
    "owned": OWNED, "unowned": UNOWNED, "copied": COPIED, "migrating": MIGRATING, "importing": IMPORTING,
}  # fmt: skip
"""SlotState, for Python."""

CROSS_SLOT = "CROSSSLOT Keys in request don't hash to the same slot"
NOT_SERVED = "CLUSTERDOWN Hash slot not served"
DOWN = "CLUSTERDOWN The cluster is down"
READS_ONLY = "CLUSTERDOWN The cluster is down and only accepts read commands"
TRY_AGAIN = "TRYAGAIN Multiple keys request during rehashing of slot"
CROSSING = frozenset({"XREAD", "XREADGROUP"})
"""Commands whose keys may be in several slots of this node, with `crosses_slots`."""


cdef class Routing(Capability):
    """The router of a node (`Dispatcher.router`)."""

    refusal_rank = 11       # behind permissions

    def __init__(self, host not None):
        self.dispatcher = host.dispatcher
        self.slot = -1

    def begin(self, topology not None):
        """Route requests from now on.

        topology  `states`: a bytearray with a set of SlotState for each slot, of a fixed size; and the texts of
                  MOVED and ASK: `moved(slot, client)`, `ask(slot, client)`
        """
        cdef Plan plan
        cdef bytearray states = topology.states
        if len(states) != SLOTS:
            raise ValueError("a state for each slot")
        self.topology, self.held_states = topology, states
        self.states = <const unsigned char *>PyByteArray_AS_STRING(states)
        self.db = self.dispatcher.databases[0]
        routes = self.dispatcher.routes.by_full_name
        self.plans = [self.plan_of(route) for route in routes.values()]
        self.places = b"".join([b"\0" if plan is None else b"%c" % plan.only for plan in self.plans])
        self.server_bits = CLUSTERED
        self.dispatcher.router = self
        self.dispatcher.change_state(CLUSTERED, True)

    cdef Plan plan_of(self, Route route):
        """Where the keys and shard channels of a command are; None if it has none."""
        cdef Plan plan = Plan(route.command, True)
        return plan if plan.count else None

    def is_settled(self, int slot):
        """Whether this node serves a slot that is not being moved: then it may change keys of it by itself."""
        return self.is_up and self.states is not NULL and self.states[slot] & (OWNED | MIGRATING | IMPORTING) == OWNED

    # --- Requests --------------------------------------------------------------------------------------------------

    cpdef str find_refusal(self, Client client, Route route, list args):
        if client.state & (ASKING | ASKED):
            # ASKING holds for the next request; if that is MULTI, for all until EXEC.
            if client.state & ASKING:
                client.change_state(ASKING, False)
                client.change_state(ASKED, True)
            elif not client.state & IN_MULTI:
                client.change_state(ASKED, False)
        if self.is_served(route, args):
            return None
        return self.find_redirection(client, route, args, self.dispatcher.has_flags(client, route, WRITE))

    cdef bint is_served(self, Route route, list args) noexcept:
        """Whether a request has one key, of a slot that is owned and not being moved: most requests. Notes the slot."""
        cdef unsigned char place = (<unsigned char *>PyBytes_AS_STRING(self.places))[route.index]
        cdef object key
        cdef int slot
        if not place or place >= PyList_GET_SIZE(args):
            return False
        key = <object>PyList_GET_ITEM(args, place)
        slot = slot_of_text(<const unsigned char *>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key))
        if not self.is_up or self.states[slot] != OWNED:
            return False
        self.slot = slot
        self.db.hinted = key
        self.db.hinted_slot = slot
        return True

    cdef str find_redirection(self, Client client, Route route, list args, int flags):
        cdef Search search
        cdef Transaction transaction
        cdef Route queued
        self.slot = -1
        if self.plans[route.index] is None and route is not self.dispatcher.routes.exec_route:
            return None
        search.slot = -1
        search.is_crossing = search.has_several = search.has_channels = False
        search.missing = search.existing = 0
        if route is self.dispatcher.routes.exec_route:
            transaction = client.transaction
            if transaction is None:
                return None
            for queued, args in transaction.requests:
                if self.plans[queued.index] is not None:
                    self.look(&search, queued, args)
        else:
            self.look(&search, route, args)
        if search.slot < 0:
            return None
        if search.is_crossing and self.crosses_slots:
            return self.decide_each(client, route, args, flags)
        self.slot = search.slot
        return self.decide(client, route, &search, flags)

    cdef str decide_each(self, Client client, Route route, list args, int flags):
        """The decision about a request, or those of a transaction, with keys in several slots."""
        cdef Search search
        cdef Route each
        cdef Plan plan
        cdef bytes key
        cdef str refusal, found = None
        self.slot = SEVERAL
        requests = [(route, args)] if route is not self.dispatcher.routes.exec_route else client.transaction.requests
        requests = [request for request in requests if self.plans[(<Route>request[0]).index] is not None]
        for each, _ in requests:
            if each.command.name not in CROSSING:
                return CROSS_SLOT
        for each, args in requests:
            plan = <Plan>self.plans[each.index]
            plan.find_keys(args)        # it finds them, or the search would have found no slots
            for key in args[plan.ranges[0].found_first:plan.ranges[0].found_last + 1]:
                search.slot = -1
                search.is_crossing = search.has_channels = False
                search.has_several = True
                search.missing = 0
                search.existing = 1         # of the other keys, which the target of a slot is not expected to have
                self.take(&search, key)
                refusal = self.decide(client, each, &search, flags)
                if refusal is not None and refusal is not TRY_AGAIN:
                    return refusal
                found = refusal or found
        return found

    cpdef int slot_of_request(self, Route route, list args) except -2:
        """The slot of the first key of a request; -1 if it has none."""
        cdef Plan plan = <Plan>self.plans[route.index] if route.index >= 0 else None
        if plan is None or not plan.find_keys(args) or plan.ranges[0].found_first > plan.ranges[0].found_last:
            return -1
        return slot_of(<bytes>args[plan.ranges[0].found_first])

    def slot_of_effect(self, list args not None):
        """The slot of the first key of a propagated request; -1 if it has none."""
        cdef Route route = self.dispatcher.routes.find(args)
        return -1 if route is None else self.slot_of_request(route, args)

    cdef int look(self, Search *search, Route route, list args) except -1:
        """Take in the keys of one request."""
        cdef Plan plan = <Plan>self.plans[route.index]
        cdef int ranges = plan.find_keys(args), number
        cdef KeyRange *each
        cdef Py_ssize_t at
        if plan.first_channel:
            search.has_channels = True
        for number in range(ranges):
            each = &plan.ranges[number]
            at = each.found_first
            while at <= each.found_last:
                self.take(search, <bytes>PyList_GET_ITEM(args, at))
                at += each.found_step
        return 0

    cdef int take(self, Search *search, bytes key) except -1:
        """Take in one key."""
        cdef int slot = slot_of(key)
        cdef KeyRecord *record
        if search.slot < 0:
            search.slot = slot
            search.first = <PyObject *>key
        elif slot != search.slot:
            search.is_crossing = True
            return 0
        if <PyObject *>key != search.first and key != <bytes>search.first:
            search.has_several = True
        if self.states[slot] & (MIGRATING | IMPORTING) and not search.has_channels:
            self.db.now_ms = (self.dispatcher.ended_us + self.dispatcher.wall_offset_us) // 1000
            record = self.db.find_record(key)
            if record is NULL or is_due(self.db, record, self.db.now_ms):
                search.missing += 1
            else:
                search.existing += 1
        return 0

    cdef str decide(self, Client client, Route route, Search *search, int flags):
        """The decision: see the head of the module."""
        cdef int slot = search.slot
        cdef int state = self.states[slot]
        if search.is_crossing:
            return CROSS_SLOT
        if state & UNOWNED:
            return NOT_SERVED
        if not self.is_up:
            if search.has_channels:
                if not self.channels_when_down:
                    return DOWN
            elif not self.reads_when_down:
                return DOWN
            elif flags & WRITE:
                return READS_ONLY
        if state == OWNED:
            return None
        if state & (MIGRATING | IMPORTING) and route.command.name == "MIGRATE":
            return None
        if state & MIGRATING and search.missing:
            return TRY_AGAIN if search.existing else self.topology.ask(slot, client)
        if state & IMPORTING and (client.state & ASKED or "asking" in route.command.flags):
            return TRY_AGAIN if search.has_several and search.missing else None
        if state & COPIED and not flags & WRITE and (client.state & READS_COPIES or search.has_channels):
            return None
        return None if state & OWNED else self.topology.moved(slot, client)

    def find_wait_refusal(self, Client client not None, keys, bint is_write):
        """Why a client may no longer wait for keys, or None: the slot has gone, or the cluster is down."""
        cdef int state
        cdef bytes key
        for key in keys:
            state = self.states[slot_of(key)]
            if not self.is_up:
                return DOWN if not state & UNOWNED else NOT_SERVED
            if state & UNOWNED:
                return NOT_SERVED
            if state & OWNED or (state & IMPORTING and client.state & ASKED):
                continue
            if state & COPIED and client.state & READS_COPIES and not is_write:
                continue
            return self.topology.moved(slot_of(key), client)
        return None

    # --- Clients ----------------------------------------------------------------------------------------------------

    def ask(self, Client client not None):
        """ASKING: the next request has been redirected here by ASK."""
        client.change_state(ASKING, True)

    def read_copies(self, Client client not None, bint is_on):
        """READONLY and READWRITE: whether a client reads from replicas."""
        client.change_state(READS_COPIES, is_on)

    def client_reset(self, Client client not None):
        client.change_state(ASKING | ASKED | READS_COPIES, False)
