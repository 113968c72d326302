# cython: language_level=3, boundscheck=False, wraparound=False
"""Turn: the work done once in each turn of the event loop, before the loop waits again.

Received bytes are passed to clients, each runs its complete requests (`ClientHost.process`), and those with work left
for the end of the turn call `schedule`. Then `before_sleep` takes these steps, in this order; the loop calls it, or the
poller of our own sockets after the events of all of them (`events_begin`, `events_end`):

    resume_served       clients that have been served after waiting for a key resume with their next requests
    resume_put_off      so do clients that had more requests than their share of the previous turn
    prepare_replies     work that must precede any reply: invalidation messages are created, and effects are
                        written to the append-only file, so that a reply acknowledges only what is written
    send_replies        each client's replies are sent, at most one write per client
    look_after_clients  the memory of clients is limited (maxmemory-clients)
    close_doomed        clients over their output limit are closed

A client with a long pipeline gets SHARE_US of a turn and continues in the next one, so that others need not wait for
the whole pipeline: the event loop reads up to 8 MB from one connection before it turns to another, which is 100 ms of
work. If the end of a turn takes longer (a message to a thousand subscribers is a thousand writes, and the disk may be
slow), the share is as long as that took: otherwise most of the time would be spent on ending turns.
"""

from streamd.core.capability cimport Capability
from streamd.core.client cimport Client
from streamd.core.clock cimport monotonic_us

__all__ = ["Turn"]

cdef enum:
    SHARE_US = 300              # how long a client may run requests before others get their turn, at least
    SHARE_MAX_US = 20000        # ... and at most


cdef class Turn(OutputLimits):
    """The turns of one event loop."""

    def __cinit__(self, *args):
        self.share_us = SHARE_US
        self.resumed = []
        self.before = self.after = ()

    cdef int schedule(self) except -1:
        if self.end == END_IDLE:
            self.end = END_SOON
            self.loop.call_soon(self.before_sleep)
        elif self.end == END_POSSIBLE:
            self.end = END_WANTED
        return 0

    cdef int events_begin(self) except -1:
        if self.end == END_IDLE:
            self.end = END_POSSIBLE
        return 0

    cdef int events_end(self) except -1:
        if self.end == END_WANTED:
            self.before_sleep()
        elif self.end == END_POSSIBLE:
            self.end = END_IDLE
        return 0

    def run_turn(self, call, *args):
        """Call something whose turn ends as soon as it returns, without another one of the loop."""
        self.events_begin()
        try:
            call(*args)
        finally:
            self.events_end()

    @property
    def has_replies(self):
        """Whether the end of this turn sends something to clients."""
        return bool(self.writers)

    cpdef int ask_before_replies(self) except -1:
        """Request that `before_replies` of capabilities is called in this turn."""
        self.is_asked = True
        return self.schedule()

    cpdef int before_sleep(self) except -1:
        """The end of a turn; see the top of this file."""
        cdef long long ending_us, ended_us
        self.end = END_IDLE
        self.resume_served()
        if self.put_off:
            self.resume_put_off()
        ending_us = monotonic_us()
        self.prepare_replies()
        self.look_after_clients(self.send_replies())
        self.close_doomed()
        ended_us = monotonic_us()
        self.share_us = min(max((ended_us - ending_us) // (len(self.put_off) or 1), SHARE_US), SHARE_MAX_US)
        self.turns += 1
        if self.turn_started_us:  # 0: no requests were run, only messages are to be sent
            self.turns_us += ended_us - self.turn_started_us
            self.turn_started_us = 0
        if self.put_off:
            self.schedule()
        return 0

    cdef int resume_served(self) except -1:
        cdef Client client
        cdef list resumed
        while self.resumed:
            resumed = self.resumed
            self.resumed = []
            for client in resumed:
                self.look_at_clocks()
                self.process(client)
        return 0

    cdef int resume_put_off(self) except -1:
        cdef Client client
        cdef list put_off = self.put_off
        self.put_off = []
        for client in put_off:
            if client.is_sending():
                self.put_off.append(client)
                continue
            client.is_put_off = False
            self.look_at_clocks()
            self.process(client)
            if not client.is_put_off:
                client.go_on()
        return 0

    cdef int prepare_replies(self) except -1:
        cdef Capability capability
        if self.is_asked or self.effects.is_unflushed:
            self.is_asked = self.effects.is_unflushed = False
            for capability in self.before:
                if not capability.skips_turns:
                    capability.before_replies()
        return 0

    cdef list send_replies(self):
        """Send the replies; returns the clients that had output."""
        cdef Client client
        cdef list writers = self.writers
        self.writers = []
        for client in writers:
            client.flush()
        return writers

    cdef int look_after_clients(self, list clients) except -1:
        cdef Capability capability
        if self.limits_clients:
            for capability in self.after:
                capability.after_replies(clients)
        return 0

    cdef int close_doomed(self) except -1:
        cdef Client client
        cdef list doomed
        while self.doomed:
            doomed = self.doomed
            self.doomed = []
            for client in doomed:
                client.close()
        return 0
