# cython: language_level=3, boundscheck=False, wraparound=False
"""Shared by stream commands: finding streams, groups and consumers by name, IDs, policies, and the effects that
describe the state of a group.

For the compiled handlers; no Python interface.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport UINT64_MAX, uint64_t

from streamd.core.args cimport is_word, parse_int64, require_id
from streamd.core.context cimport Context
from streamd.engine.ids cimport ID_ROOM, StreamID, id_decrement, id_increment, make_id, put_id
from streamd.keyspace.listener cimport EVENT_STREAM
from streamd.numbers cimport INT64_ROOM, put_uint64
from streamd.values.streams.group cimport Consumer, Group
from streamd.values.streams.pel cimport PelRecord, zone_place
from streamd.values.streams.stream cimport ACKED, DELREF, KEEPREF, RefPolicy, Stream

from streamd.errors import CommandError, NoGroupError, OptionSyntaxError, WrongTypeError, printable
from streamd.values.streams.group import UNOWNED_MARK

__all__ = []


# --- Streams and groups ---------------------------------------------------------------------------------------------

cdef Stream as_stream(object value):
    """A value of a database, which must be a stream or None, as a Stream."""
    if value is not None and type(value) is not Stream:
        raise WrongTypeError()
    return <Stream>value


cdef Stream find_stream(Context ctx, bytes key):
    """The stream at `key`, or None; for commands that Redis counts as a key lookup."""
    return as_stream(ctx.db.find(key))


cdef Stream find_stream_for_write(Context ctx, bytes key):
    """The stream at `key`, or None; not counted as a key lookup."""
    return as_stream(ctx.db.find_for_write(key))


cdef Stream new_stream(Context ctx):
    """An empty stream with the current settings."""
    return Stream(
        ctx.stream_node_max_bytes, ctx.stream_node_max_entries, ctx.stream_idmp_duration, ctx.stream_idmp_maxsize
    )


cdef Group find_group(Stream stream, bytes name):
    """The group with that name, or None; `stream` may be None."""
    return None if stream is None else <Group>stream.groups.get(name)


cdef Group get_group(Stream stream, bytes key, bytes name):
    cdef Group group = <Group>stream.groups.get(name)
    if group is None:
        raise NoGroupError(f"NOGROUP No such consumer group '{printable(name)}' for key name '{printable(key)}'")
    return group


cdef int no_such_key_or_group(bytes stream_key, bytes group) except -1:
    raise NoGroupError(f"NOGROUP No such key '{printable(stream_key)}' or consumer group '{printable(group)}'")


cdef Consumer reach_consumer(Context ctx, bytes key, Group group, bytes name, bint *is_new):
    """The consumer with that name, created and reported if missing; its seen time is updated."""
    cdef Consumer consumer = group.find_consumer(name)
    is_new[0] = consumer is None
    if consumer is None:
        consumer = group.add_consumer(name, ctx.now_ms)
        ctx.dirty += 1
        ctx.db.event(EVENT_STREAM, b"xgroup-createconsumer", key)
    consumer.seen_ms = ctx.now_ms
    note_change(ctx, key)
    return consumer


# --- IDs ------------------------------------------------------------------------------------------------------------

cdef bytes room_for_ids(Py_ssize_t n):
    return PyBytes_FromStringAndSize(NULL, n * <Py_ssize_t>sizeof(StreamID))


cdef bytes require_ids(list args, Py_ssize_t first, Py_ssize_t n):
    """The IDs args[first : first + n], all parsed before any of them is used."""
    cdef bytes room = room_for_ids(n)
    cdef StreamID *ids = ids_in(room)
    cdef Py_ssize_t i
    for i in range(n):
        require_id(<bytes>args[first + i], &ids[i])
    return room


cdef int parse_bound(bytes text, StreamID *out, bint is_end) except -1:
    """Read the start or end of an interval: an ID, `-`, `+`, or `(` and an ID to be excluded."""
    cdef const char *p = PyBytes_AS_STRING(text)
    cdef Py_ssize_t n = PyBytes_GET_SIZE(text)
    if n > 1 and p[0] == c'(':
        require_id(text[1:], out, UINT64_MAX if is_end else 0)
        if is_end and not id_decrement(out):
            raise CommandError("ERR invalid end ID for the interval")
        if not is_end and not id_increment(out):
            raise CommandError("ERR invalid start ID for the interval")
    else:
        parse_loose_id(text, out, UINT64_MAX if is_end else 0)
    return 0


cdef int parse_loose_id(bytes text, StreamID *out, uint64_t missing_seq) except -1:
    """Read an ID, or `-` for the smallest, or `+` for the greatest."""
    cdef const char *p = PyBytes_AS_STRING(text)
    if PyBytes_GET_SIZE(text) == 1 and p[0] == c'-':
        out[0] = make_id(0, 0)
    elif PyBytes_GET_SIZE(text) == 1 and p[0] == c'+':
        out[0] = make_id(UINT64_MAX, UINT64_MAX)
    else:
        require_id(text, out, missing_seq)
    return 0


# --- What to delete -------------------------------------------------------------------------------------------------

cdef int parse_delete(list args, Py_ssize_t i, DeleteOptions *out) except -1:
    """Read `[KEEPREF|DELREF|ACKED] IDS n id ...` from argument i on, in either order; the last IDS counts."""
    cdef Py_ssize_t argc = len(args)
    cdef bint has_policy = False
    cdef RefPolicy policy
    cdef bytes word
    cdef long long n = 0
    out.policy = KEEPREF
    out.first_id = 0
    while i < argc:
        word = <bytes>args[i]
        if is_word(word, b"IDS") and i + 1 < argc:
            if not parse_int64(<bytes>args[i + 1], &n) or n <= 0:
                raise CommandError("ERR Number of IDs must be a positive integer")
            if n > argc - i - 2:
                raise CommandError("ERR The `numids` parameter must match the number of arguments")
            out.first_id = i + 2
            out.id_count = n
            i += 2 + n
            continue
        if is_word(word, b"KEEPREF"):
            policy = KEEPREF
        elif is_word(word, b"DELREF"):
            policy = DELREF
        elif is_word(word, b"ACKED"):
            policy = ACKED
        else:
            raise OptionSyntaxError()
        if has_policy:
            raise OptionSyntaxError()
        has_policy = True
        out.policy = policy
        i += 1
    if out.first_id == 0:
        raise OptionSyntaxError()
    return 0


# --- Effects --------------------------------------------------------------------------------------------------------

cdef bytes id_text(StreamID id):
    cdef char text[ID_ROOM]
    return PyBytes_FromStringAndSize(text, <Py_ssize_t>put_id(text, id))


cdef bytes number_text(uint64_t number):
    cdef char text[INT64_ROOM]
    return PyBytes_FromStringAndSize(text, <Py_ssize_t>put_uint64(text, number))


cdef int propagate_pending(
    Context ctx, bytes key, Group group, bytes consumer, bytes id, bytes delivery_ms, uint64_t delivery_count,
    bytes last_id,
) except -1:
    """Propagate that an entry is pending: its owner, delivery time and delivery count.

    last_id  the receiver raises its group's last-delivered ID to at least this
    A receiver that no longer has the entry drops its pending record: this is how it is notified of entries that
    stopped being pending because they are gone.
    """
    ctx.effects.append([
        b"XCLAIM", key, group.name, consumer, b"0", id, b"TIME", delivery_ms,
        b"RETRYCOUNT", number_text(delivery_count), b"FORCE", b"JUSTID", b"LASTID", last_id,
    ])
    return 0


cdef int propagate_consumer(Context ctx, bytes key, Group group, Consumer consumer) except -1:
    """Propagate that a consumer was created, unless its pending entries make it known."""
    if ctx.is_propagating and not group.pending_of(consumer):
        ctx.effects.append([b"XGROUP", b"CREATECONSUMER", key, group.name, consumer.name])
    return 0


cdef int propagate_unowned(Context ctx, bytes key, Group group, bytes mode, const PelRecord *record) except -1:
    """Propagate that an entry is pending without an owner, as XNACK with that mode.

    Of receivers that may not support XNACK, Redis 8.6 sees a placeholder consumer as its owner; the mark shows streamd
    that it has no owner. Delivery times that ascend from 1970 on keep the order in which such entries will be delivered
    again.
    """
    if ctx.has_xnack:
        ctx.effects.append([
            b"XNACK", key, group.name, mode, b"IDS", b"1", id_text(record.id),
            b"RETRYCOUNT", number_text(record.delivery_count), b"FORCE",
        ])
        return 0
    return propagate_unowned_mark(ctx, key, group, record)


cdef int propagate_unowned_mark(Context ctx, bytes key, Group group, const PelRecord *record) except -1:
    """The same in the form that makes an entry pending even if the receiver does not have it, if it is a streamd."""
    ctx.effects.append([
        b"XCLAIM", key, group.name, group.free_name(), UNOWNED_MARK, id_text(record.id),
        b"TIME", number_text(zone_place(record)), b"RETRYCOUNT", number_text(record.delivery_count),
        b"FORCE", b"JUSTID", b"LASTID", id_text(group.last_id),
    ])
    return 0


cdef int propagate_position(Context ctx, bytes key, Group group) except -1:
    """Propagate how far a group has read."""
    ctx.effects.append([
        b"XGROUP", b"SETID", key, group.name, id_text(group.last_id), b"ENTRIESREAD", b"%d" % group.entries_read,
    ])
    return 0
