# cython: language_level=3
"""Context: everything that a handler may ask of the server.

The dispatcher derives its own class from `Context` and fills the fields before each command, so that compiled handlers
reach them without a lookup. There is one context per server, not one per client: a handler must not keep it.
A capability is found by its type: `ctx.get(SlowLog)`.
"""

cimport cython

from streamd.core.question cimport Question
from streamd.protocol.reply cimport ReplyWriter
from streamd.shared_bytes cimport shared_drop, shared_new

__all__ = ["BlockRequest", "Context", "SharedReply"]


@cython.final
@cython.freelist(16)
cdef class BlockRequest:
    """What a handler passes to `block_on` when it has to wait.

    keys         the keys whose change may serve it
    args         the request to run again when one of them is ready; relative IDs (`$`) are replaced by the IDs they
                 stood for
    timeout_ms   0: forever
    question     what it asks of the values of its keys; None if there are no keys
    ready_at_ms  Unix time in ms at which it can be served without a key changing; -1: never
    timeout_reply  returns the encoded reply after a timeout; None: the null array
    can_unblock  whether CLIENT UNBLOCK ends the wait
    """

    def __cinit__(self, list keys not None, list args not None, long long timeout_ms, Question question=None,
                  long long ready_at_ms=-1, object timeout_reply=None, bint can_unblock=True):
        if keys and question is None:
            raise ValueError("a request that waits for keys needs a question")
        self.keys = keys
        self.args = args
        self.timeout_ms = timeout_ms
        self.question = question
        self.ready_at_ms = ready_at_ms
        self.timeout_reply = timeout_reply
        self.can_unblock = can_unblock


@cython.no_gc
cdef class SharedReply:
    def __dealloc__(self):
        if self.bytes is not NULL:
            shared_drop(self.bytes)

    cdef int hold(self, ReplyWriter reply, size_t mark) except -1:
        self.bytes = shared_new(reply.data + mark, reply.length - mark, NULL, 0)
        if self.bytes is NULL:
            raise MemoryError("no memory for a reply")
        return 0


@cython.final
@cython.no_gc          # dropped when the command that interrupted another ends: no cycle through it lasts
@cython.freelist(4)
cdef class Frame:
    pass


cdef class Context:
    def __cinit__(self):
        self.parts = {}

    cdef Frame frame(self):
        """For whom the running command runs, and how; `go_back` takes it up again after others have run."""
        cdef Frame frame = Frame.__new__(Frame)
        frame.client = self.client
        frame.db = self.db
        frame.reply = self.reply
        frame.effects = self.effects
        frame.now_ms = self.now_ms
        frame.in_transaction = self.in_transaction
        frame.is_replaying = self.is_replaying
        return frame

    cdef int go_back(self, Frame frame) except -1:
        act_for(self, frame.client, frame.db, frame.reply)
        self.effects = frame.effects
        self.now_ms = frame.now_ms
        self.in_transaction = frame.in_transaction
        self.is_replaying = frame.is_replaying
        return 0

    cpdef block_on(self, object request):
        """Make the client wait for `request` (a BlockRequest); the handler returns without a reply."""
        raise NotImplementedError

    def get(self, kind):
        """The capability, or other part of the server, of a given type; raises KeyError if there is none."""
        return self.parts[kind]

    def find(self, kind):
        """As `get`, but None if there is none, as in a context without a server."""
        return self.parts.get(kind)

    def data_dropped(self):
        """All data was deleted on request: anything saved, or being saved now, must not come back."""

    cpdef int propagate(self, list args) except -1:
        """Add a command to those propagated instead of the received one.

        args  a complete request; it is kept, so it must not be changed afterwards
        A command that changed something (`dirty`) and adds nothing is propagated as received; one that changed nothing
        and adds nothing is not propagated. To propagate nothing despite a change, set `effects` to an empty list.
        """
        if self.is_propagating:
            if self.effects is None:
                self.effects = []
            self.effects.append(args)
        return 0
