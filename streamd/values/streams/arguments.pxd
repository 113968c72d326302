# cython: language_level=3
"""Arguments shared by stream commands. See arguments.pyx."""

from cpython.bytes cimport PyBytes_AS_STRING
from cpython.list cimport PyList_GET_ITEM
from libc.stdint cimport uint64_t

from streamd.core.context cimport Context
from streamd.engine.ids cimport StreamID
from streamd.keyspace.key_record cimport ACCESS_CHANGES
from streamd.values.streams.group cimport Consumer, Group
from streamd.values.streams.pel cimport PelRecord
from streamd.values.streams.stream cimport RefPolicy, Stream


# None if the key is missing; a key of another type raises WrongTypeError.
cdef Stream as_stream(object value)                                # a value found in a database
cdef Stream find_stream(Context ctx, bytes key)                    # counted as a key lookup
cdef Stream find_stream_for_write(Context ctx, bytes key)
cdef Stream new_stream(Context ctx)
cdef Group find_group(Stream stream, bytes name)                   # None: no such group, or `stream` is None
cdef Group get_group(Stream stream, bytes key, bytes name)         # raises NoGroupError
cdef int no_such_key_or_group(bytes stream_key, bytes group) except -1     # raises NoGroupError, with another text
cdef Consumer reach_consumer(Context ctx, bytes key, Group group, bytes name, bint *is_new)     # created if missing


cdef inline int note_change(Context ctx, bytes key) except -1:
    """A change to a key's groups or settings updates its modification time for the LRM policies; WATCH ignores it."""
    if ctx.db.access_mode == ACCESS_CHANGES:
        ctx.db.note_change(key)
    return 0


cdef inline bytes argument(list args, Py_ssize_t i):
    return <bytes>PyList_GET_ITEM(args, i)


# IDs live in the memory of a bytes object, which owns them.
cdef bytes room_for_ids(Py_ssize_t n)
cdef inline StreamID *ids_in(bytes room) noexcept:
    return <StreamID *>PyBytes_AS_STRING(room)
cdef bytes require_ids(list args, Py_ssize_t first, Py_ssize_t n)  # args[first : first + n]
cdef int parse_bound(bytes text, StreamID *out, bint is_end) except -1
cdef int parse_loose_id(bytes text, StreamID *out, uint64_t missing_seq) except -1


cdef struct DeleteOptions:
    RefPolicy policy
    Py_ssize_t first_id        # index of the first ID in the arguments
    Py_ssize_t id_count


cdef int parse_delete(list args, Py_ssize_t i, DeleteOptions *out) except -1


# Effects. Build them only when ctx.is_propagating.
cdef bytes id_text(StreamID id)
cdef bytes number_text(uint64_t number)
cdef inline int hold_effects(Context ctx) except -1:
    """From now on the command is propagated as the effects added, not as received."""
    if ctx.is_propagating:
        ctx.effects = []
    return 0
cdef int propagate_pending(
    Context ctx, bytes key, Group group, bytes consumer, bytes id, bytes delivery_ms, uint64_t delivery_count,
    bytes last_id) except -1
cdef int propagate_consumer(Context ctx, bytes key, Group group, Consumer consumer) except -1
cdef int propagate_unowned(Context ctx, bytes key, Group group, bytes mode, const PelRecord *record) except -1
cdef int propagate_unowned_mark(Context ctx, bytes key, Group group, const PelRecord *record) except -1
cdef int propagate_position(Context ctx, bytes key, Group group) except -1
