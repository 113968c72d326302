# cython: language_level=3, boundscheck=False, wraparound=False
"""Clients that wait for keys, and how they are woken.

A waiting client is a `Blocked` record: the request to run again, its keys, and its deadline. Every key that
a client waits for has a `Waiters` entry in its database's `waiters`, with first-come-first-served queues: one for
those in no line, one for each line, such as a consumer group. A queue is a ring of places, which are part of the
records: a waiter in the middle leaves in constant time, and the head is found at once however many have left before it.

What a client waits for is a `Question`, asked of the value of a key that is ready. All in no line whose question is met
are run again; the others keep waiting. In a line, only the head is run again, and the next one only when the head was
served, each if its question is met: with a thousand consumers waiting, a message costs as much as with one. If there is
something that the head did not want, it goes to the first in the line that `passes`.

A request is always run as a whole, so its result may come from any of its keys. A request that finds nothing keeps its
place in its queues and its deadline.

Keys are served after each command that made one ready, as in Redis: a reader sees the state after that command, not
after the rest of the pipeline. The reader's own next requests wait for the end of the turn.

Timeouts, and the times at which claiming readers retry, are the keys of one heap with one timer for the earliest.
They use the monotonic clock, so setting the wall clock does not affect any wait.

Invariants: a record is in `BlockedClients.blocked` exactly as long as its client's `blocked` refers to it, and only
then is it in the queues of its keys and, when it has a time, in the heap; no empty queue is kept.
"""

cimport cython
from cpython.list cimport PyList_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.object cimport PyObject
from libc.stdint cimport INT64_MAX

from streamd.core.client cimport Client, ClientHost
from streamd.core.clock cimport monotonic_us
from streamd.core.context cimport BlockRequest
from streamd.core.route cimport FAILED, Route
from streamd.keyspace.database cimport Database

__all__ = ["Blocked", "BlockedClients", "Waiters"]

cdef long long NEVER = INT64_MAX
cdef long long TIMER_GRACE_US = 500
# The loop counts whole milliseconds from the start of its turn: a timer may fire early, and is then set again.


# --- Queues ----------------------------------------------------------------------------------------------------------

cdef inline void unlink(Place *place) noexcept:
    """Leave the queue, if in one."""
    if place.next is not NULL:
        place.prev.next = place.next
        place.next.prev = place.prev
        place.next = NULL


@cython.final
@cython.freelist(16)
cdef class Queue:
    def __cinit__(self):
        self.ring.prev = self.ring.next = &self.ring

    cdef void append(self, Place *place) noexcept:
        """Append a place, unless its owner is already last: a request may name a key twice."""
        if self.ring.prev.blocked == place.blocked:
            return
        place.prev = self.ring.prev
        place.next = &self.ring
        place.prev.next = place
        self.ring.prev = place

    cdef bint is_empty(self) noexcept:
        return self.ring.next is &self.ring

    cdef list members(self):
        """The waiters in it, starting at the head."""
        cdef list found = []
        cdef Place *place = self.ring.next
        while place is not &self.ring:
            found.append(<Blocked>place.blocked)
            place = place.next
        return found


@cython.final
@cython.freelist(16)
cdef class Waiters:
    cdef Queue queue_for(self, object line):
        """The queue of a line, or, for None, of those in no line; created when missing."""
        cdef Queue queue
        if line is None:
            if self.unlined is None:
                self.unlined = Queue()
            return self.unlined
        if self.lines is None:
            self.lines = {}
        queue = self.lines.get(line)
        if queue is None:
            queue = self.lines[line] = Queue()
        return queue


# --- Waiting clients ------------------------------------------------------------------------------------------------

@cython.final
@cython.freelist(16)
cdef class Blocked:
    """A waiting client.

    db           the database it waits in
    request      what to run when a key is ready; its `args` are those of the last run
    deadline_us  when it times out, in monotonic microseconds; NEVER without a timeout
    retry_us     when to run it again even if no key is ready; NEVER if that cannot help
    route        the route of the command
    args         the request as received
    spent_us     time spent running it
    """

    def __cinit__(self, Client client, Database db, BlockRequest request, long long deadline_us):
        cdef Py_ssize_t count = len(request.keys)
        cdef Py_ssize_t i
        self.client = client
        self.db = db
        self.request = request
        self.deadline_us = deadline_us
        self.retry_us = NEVER
        self.at = -1
        if count == 1:
            self.places = &self.place
        else:
            self.places = <Place *>PyMem_Malloc(<size_t>count * sizeof(Place))
            if self.places is NULL:
                raise MemoryError("no memory for a client that waits")
        for i in range(count):
            self.places[i].next = self.places[i].prev = NULL
            self.places[i].blocked = <PyObject *>self

    def __dealloc__(self):
        if self.places is not &self.place:
            PyMem_Free(self.places)

    @property
    def deadline(self):
        """When it times out, in monotonic seconds; infinity without a timeout."""
        return float("inf") if self.deadline_us == NEVER else self.deadline_us / 1e6

    cdef int begin(self, Route route, list args, long long took_us) except -1:
        """The request was run for the first time: store what is counted for it when the wait is over."""
        self.route = route
        self.args = args
        self.spent_us = took_us
        return 0

    cdef long long next_us(self) noexcept:
        """When it needs attention if no key is ready before."""
        return self.deadline_us if self.deadline_us < self.retry_us else self.retry_us


@cython.final
cdef class BlockedClients:
    """The registry of all waiting clients. `len()` is their number."""

    def __cinit__(self, ClientHost host not None, loop):
        self.host = host
        self.loop = loop
        self.blocked = {}
        self.timer_us = NEVER

    def __dealloc__(self):
        PyMem_Free(self.timeline)

    def __len__(self):
        return len(self.blocked)

    def __iter__(self):
        return iter(self.blocked.values())

    # --- Start waiting ----------------------------------------------------------------------------------------------

    cdef int block(self, Client client, Database db, BlockRequest request) except -1:
        """Make `client` wait; called from inside its handler, for the first time or again."""
        cdef Blocked blocked = client.blocked
        cdef Waiters waiters
        cdef long long deadline_us = NEVER
        cdef Py_ssize_t i
        cdef bytes key
        if blocked is not None:
            blocked.waits_on = True
            if blocked.request.keys or not request.keys:
                blocked.request.args = request.args
                client.hold_args(request.args)
                self.set_retry(blocked, request.ready_at_ms)
                return 0
            # It has waited for something other than keys, and waits for keys from now on.
            self.end(blocked)
            self.block(client, db, request)
            return (<Blocked>client.blocked).begin(blocked.route, blocked.args, blocked.spent_us)
        if request.timeout_ms:
            deadline_us = monotonic_us()
            deadline_us += min(request.timeout_ms, (NEVER - 1 - deadline_us) // 1000) * 1000
        blocked = Blocked(client, db, request, deadline_us)
        client.blocked = blocked
        client.hold_args(request.args)
        self.blocked[client.id] = blocked
        for i in range(len(request.keys)):
            key = <bytes>request.keys[i]
            waiters = db.waiters.get(key)
            if waiters is None:
                waiters = db.waiters[key] = Waiters()
            waiters.queue_for(request.question.line).append(&blocked.places[i])
        if deadline_us != NEVER:
            self.put_in_time(blocked)
        if request.ready_at_ms >= 0:
            self.set_retry(blocked, request.ready_at_ms)
        return 0

    cdef int set_retry(self, Blocked blocked, long long ready_at_ms) except -1:
        """When to run a request again if no key becomes ready, in Unix ms; -1: never."""
        cdef long long wait_ms
        if ready_at_ms < 0 and blocked.retry_us == NEVER:
            return 0
        blocked.retry_us = NEVER
        if ready_at_ms >= 0:
            wait_ms = max(1, ready_at_ms - (self.host.ended_us + self.host.wall_offset_us) // 1000)
            blocked.retry_us = monotonic_us()
            blocked.retry_us += min(wait_ms, (NEVER - 1 - blocked.retry_us) // 1000) * 1000
        return self.put_in_time(blocked)

    cdef int end(self, Blocked blocked) except -1:
        """Remove a client from every queue; it resumes now."""
        cdef BlockRequest request = blocked.request
        cdef Waiters waiters
        cdef Py_ssize_t i
        cdef bytes key
        if blocked.at >= 0:
            self.take_out_of_time(blocked)
        for i in range(len(request.keys)):
            unlink(&blocked.places[i])
        for i in range(len(request.keys)):
            key = <bytes>request.keys[i]
            waiters = blocked.db.waiters.get(key)
            if waiters is not None:
                line = request.question.line
                if line is None:
                    if waiters.unlined is not None and waiters.unlined.is_empty():
                        waiters.unlined = None
                elif line in waiters.lines and (<Queue>waiters.lines[line]).is_empty():
                    del waiters.lines[line]
                if waiters.unlined is None and not waiters.lines:
                    del blocked.db.waiters[key]
        blocked.client.blocked = None
        blocked.client.drop_args()
        del self.blocked[blocked.client.id]
        return 0

    # --- Resume -----------------------------------------------------------------------------------------------------

    cdef int serve_ready(self, dict ready) except -1:
        """Serve clients waiting for keys in `ready` until it is empty, including keys that become ready meanwhile."""
        cdef list keys
        while ready:
            if len(ready) == 1:
                db, key = ready.popitem()[0]    # the dictionary keeps its room, unlike when it is cleared
                self.serve_key(db, key)
                continue
            keys = list(ready)
            ready.clear()
            for db, key in keys:
                self.serve_key(db, key)
        return 0

    cdef int serve_key(self, Database db, bytes key) except -1:
        cdef Waiters waiters = db.waiters.get(key)
        cdef list members
        if waiters is None:
            return 0
        if waiters.unlined is not None:
            value = db.peek(key)
            members = waiters.unlined.members()
            if PyList_GET_SIZE(members) == 1:
                self.serve_all(members, value)
            else:
                self.host.share_replies(True)
                try:
                    self.serve_all(members, value)
                finally:
                    self.host.share_replies(False)
        if waiters.lines:
            for line in list(waiters.lines):
                self.serve_line(db, key, waiters, line)
        return 0

    cdef int serve_all(self, list members, object value) except -1:
        """Serve those whose question the value of a key meets."""
        cdef Blocked blocked
        for blocked in members:
            if blocked.request.question.is_met(value, True):
                self.serve(blocked)
        return 0

    cdef int serve_line(self, Database db, bytes key, Waiters waiters, object line) except -1:
        """Serve the head of a line as long as there may be something for it."""
        cdef Queue queue
        cdef Blocked blocked
        cdef bint is_first = True
        while (queue := waiters.lines.get(line)) is not None:
            blocked = <Blocked>queue.ring.next.blocked
            if not blocked.request.question.is_met(db.peek(key), is_first):
                return 0
            if not self.serve(blocked):
                return self.serve_passing(db, key, queue)
            is_first = False
        return 0

    cdef int serve_passing(self, Database db, bytes key, Queue queue) except -1:
        """Serve those that pass the head, if there is something for them; stop at the first that gets nothing."""
        cdef Blocked blocked = <Blocked>queue.ring.next.blocked
        if not blocked.request.question.lets_pass(db.peek(key)):
            return 0
        for blocked in queue.members()[1:]:
            if blocked.request.question.passes and not self.serve(blocked):
                return 0
        return 0

    cdef bint serve(self, Blocked blocked) except -1:
        """Run a waiting request again; True unless it asked to wait once more."""
        return blocked.client.blocked is not blocked or self.host.run_again(blocked.client)

    def retry(self, Client client not None):
        """Run the request of a waiting client again: something other than a key that it waits for has happened."""
        cdef Blocked blocked = client.blocked
        cdef bytes key
        if blocked is not None and self.serve(blocked):
            for key in blocked.request.keys:        # those behind it in line may be served now
                self.serve_key(blocked.db, key)

    def time_out(self, Blocked blocked not None):
        """Reply as after a timeout."""
        cdef size_t mark = blocked.client.reply.length
        if blocked.request.timeout_reply is None:
            blocked.client.reply.null_array()
        else:
            blocked.client.reply.raw(blocked.request.timeout_reply())
        self.host.finish_wait(blocked.client, mark)

    def fail(self, Blocked blocked not None, str text not None):
        """Reply with an error."""
        cdef size_t mark = blocked.client.reply.length
        self.host.answer_error(blocked.client, blocked.route, FAILED, text)
        self.host.finish_wait(blocked.client, mark)

    cdef int drop(self, Client client) except -1:
        """The connection is closed: drop its record."""
        if client.blocked is not None:
            self.end(<Blocked>client.blocked)
        return 0

    # --- Timers -----------------------------------------------------------------------------------------------------

    cdef int put_in_time(self, Blocked blocked) except -1:
        """Update a record's place in the heap after one of its times has changed."""
        cdef long long when_us = blocked.next_us()
        cdef PyObject **grown
        cdef Py_ssize_t room
        if blocked.at >= 0:
            self.take_out_of_time(blocked)
        if when_us == NEVER:
            return 0
        if self.time_count == self.time_room:
            room = max(64, 2 * self.time_room)
            grown = <PyObject **>PyMem_Realloc(self.timeline, <size_t>room * sizeof(PyObject *))
            if grown is NULL:
                raise MemoryError("no memory for a time-out")
            self.timeline = grown
            self.time_room = room
        self.time_count += 1
        self.settle(<PyObject *>blocked, self.time_count - 1)
        if when_us < self.timer_us:
            self.arm(when_us)
        return 0

    cdef void take_out_of_time(self, Blocked blocked) noexcept:
        cdef Py_ssize_t at = blocked.at
        cdef PyObject *last
        blocked.at = -1
        self.time_count -= 1
        if at < self.time_count:
            last = self.timeline[self.time_count]
            self.settle(last, at)

    cdef void settle(self, PyObject *item, Py_ssize_t at) noexcept:
        """Place a record in the heap by its time, moving up or down from the free place `at`."""
        cdef Blocked blocked = <Blocked>item
        cdef Py_ssize_t other
        while at > 0:
            other = (at - 1) // 2
            if not is_before(item, self.timeline[other]):
                break
            self.timeline[at] = self.timeline[other]
            (<Blocked>self.timeline[at]).at = at
            at = other
        while True:
            other = 2 * at + 1
            if other + 1 < self.time_count and is_before(self.timeline[other + 1], self.timeline[other]):
                other += 1
            if other >= self.time_count or not is_before(self.timeline[other], item):
                break
            self.timeline[at] = self.timeline[other]
            (<Blocked>self.timeline[at]).at = at
            at = other
        self.timeline[at] = item
        blocked.at = at

    cdef int arm(self, long long when_us) except -1:
        """Set the timer."""
        if self.timer is not None:
            self.timer.cancel()
        self.timer_us = when_us
        self.timer = self.loop.call_later(max(0, when_us - monotonic_us() + TIMER_GRACE_US) / 1e6, self.on_time)
        return 0

    cdef void advance(self, long long by_us) noexcept:
        """Time has been set forward: waits end earlier by that. `catch_up` ends those that are over."""
        cdef Blocked blocked
        cdef Py_ssize_t i
        for i in range(self.time_count):
            blocked = <Blocked>self.timeline[i]            # the order remains
            if blocked.deadline_us != NEVER:
                blocked.deadline_us -= by_us
            if blocked.retry_us != NEVER:
                blocked.retry_us -= by_us

    def catch_up(self):
        """After `advance`: first run again whose time has come, then time out who still waits for too long."""
        cdef long long now_us = monotonic_us()
        cdef Blocked blocked
        for blocked in list(self.blocked.values()):
            if blocked.retry_us <= now_us and blocked.client.blocked is blocked:
                blocked.retry_us = NEVER
                self.put_in_time(blocked)
                self.serve(blocked)
        if self.timer is not None:
            self.timer.cancel()
        self.on_time()

    def on_time(self):
        """Time out, or retry, the clients whose time has come."""
        cdef long long now_us = monotonic_us()
        cdef Blocked blocked
        self.timer = None
        self.timer_us = NEVER
        while self.time_count:
            blocked = <Blocked>self.timeline[0]
            if blocked.next_us() > now_us:
                break
            if blocked.deadline_us <= now_us:
                self.time_out(blocked)
            else:
                blocked.retry_us = NEVER
                self.put_in_time(blocked)
                self.serve(blocked)
        if self.time_count:
            self.arm((<Blocked>self.timeline[0]).next_us())

    # --- Checks -----------------------------------------------------------------------------------------------------

    def check_invariants(self):
        """Assert the invariants stated at the top of this file."""
        cdef Blocked blocked
        cdef Py_ssize_t i, timed = 0
        cdef Waiters waiters
        cdef Queue queue
        for client_id, blocked in self.blocked.items():
            assert blocked.client.id == client_id and blocked.client.blocked is blocked
            for i in range(len(blocked.request.keys)):
                waiters = blocked.db.waiters[blocked.request.keys[i]]
                line = blocked.request.question.line
                queue = waiters.unlined if line is None else waiters.lines[line]
                assert queue.members().count(blocked) == 1
            assert (blocked.at >= 0) == (blocked.next_us() != NEVER)
            timed += blocked.at >= 0
        assert timed == self.time_count <= self.time_room
        for i in range(self.time_count):
            blocked = <Blocked>self.timeline[i]
            assert blocked.at == i and self.blocked[blocked.client.id] is blocked
            assert i == 0 or not is_before(self.timeline[i], self.timeline[(i - 1) // 2])
        assert self.time_count == 0 or self.timer_us <= (<Blocked>self.timeline[0]).next_us()
        for db in self.host.databases:
            for waiters in db.waiters.values():
                queues = list((waiters.lines or {}).values())
                if waiters.unlined is not None:
                    queues.append(waiters.unlined)
                assert queues
                for queue in queues:
                    members = queue.members()
                    assert members and all(self.blocked[blocked.client.id] is blocked for blocked in members)


cdef inline bint is_before(PyObject *one, PyObject *other) noexcept:
    """Whether one record's time comes before another's; if equal, the older connection's comes first."""
    cdef long long one_us = (<Blocked>one).next_us()
    cdef long long other_us = (<Blocked>other).next_us()
    return one_us < other_us or (one_us == other_us and (<Blocked>one).client.id < (<Blocked>other).client.id)
