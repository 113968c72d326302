# cython: language_level=3
"""What a command handler may ask of the server. See context.pyx."""

cimport cython

from streamd.core.question cimport Question
from streamd.keyspace.database cimport Database
from streamd.protocol.reply cimport ReplyWriter
from streamd.shared_bytes cimport SharedBytes


@cython.final
cdef class BlockRequest:
    cdef readonly list keys
    cdef public list args
    cdef readonly long long timeout_ms
    cdef readonly Question question
    cdef readonly long long ready_at_ms
    cdef readonly object timeout_reply
    cdef readonly bint can_unblock


cdef class SharedReply:
    # A long reply that several waiting clients get; the handler that has written it adds what it depends on.
    cdef SharedBytes *bytes

    cdef int hold(self, ReplyWriter reply, size_t mark) except -1   # what was written since `mark`


@cython.final
cdef class Frame:
    # For whom a command runs, and how: what one command that runs in the middle of another has of its own.
    cdef object client
    cdef Database db
    cdef ReplyWriter reply
    cdef list effects
    cdef long long now_ms
    cdef bint in_transaction
    cdef bint is_replaying


cdef class Context:
    cdef public Database db               # the selected database
    cdef public list databases            # all databases, by index
    cdef public ReplyWriter reply         # where the reply of this command goes
    cdef public long long now_ms          # Unix time in ms, the same during one command
    cdef public unsigned long long dirty  # changes to the data set so far; incremented by handlers
    cdef public bint is_propagating       # whether effects have a receiver; if not, handlers need not produce any
    cdef public list effects              # how this command is propagated; None: as received
    cdef public bint in_transaction       # the command runs inside EXEC: it must not block
    cdef public bint is_replaying         # the command is from a file or a primary: its effect is applied, not decided
    cdef public object client             # client.Client: the connection
    cdef public object config             # settings.Config: ctx.config.stream_node_max_bytes
    cdef public dict parts                # what `get` finds, by type
    # Copies of settings that hot handlers need, kept up to date by CONFIG SET.
    cdef public unsigned long long stream_node_max_bytes
    cdef public unsigned long long stream_node_max_entries
    cdef public unsigned long long stream_idmp_duration
    cdef public unsigned long long stream_idmp_maxsize
    # Where streams have entries besides those in memory: a core.tiers.Tiers; None: nowhere.
    cdef public object tiers
    cdef public bint has_xnack            # the readers of propagated commands know XNACK (rdb-form)
    cdef public bint has_default_rules    # the configuration has rules for streams or groups
    # Long replies to clients that wait for the same key:
    cdef bint is_sharing                  # several are served: each command runs again for one of them
    cdef SharedReply shared               # the reply to one of those before; None: there is none, or it is short
    cdef bint takes_shared                # set by the handler: `shared` is the reply; it has written nothing
    cdef Frame frame(self)
    cdef int go_back(self, Frame frame) except -1
    cpdef block_on(self, object request)
    cpdef int propagate(self, list args) except -1


cdef inline int act_for(Context context, object client, Database db, ReplyWriter reply) except -1:
    """A command begins: for whom, on which database, and where its reply goes. Its effects are none so far."""
    context.client = client
    context.db = db
    context.reply = reply
    context.effects = None
    return 0
