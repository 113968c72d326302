# cython: language_level=3, boundscheck=False, wraparound=False
"""XGROUP: the commands that create and change consumer groups.

Every request is read in full before anything is changed. Order of checks and texts: Redis 8.6, as seen on a running
server.
"""

from libc.stdint cimport int64_t

from streamd.core.args cimport is_word, require_id, require_int64
from streamd.core.context cimport Context
from streamd.engine.ids cimport StreamID, make_id
from streamd.keyspace.listener cimport EVENT_STREAM
from streamd.values.streams.arguments cimport (
    find_stream_for_write, get_group, new_stream, note_change, parse_loose_id, reach_consumer,
)
from streamd.values.streams.group cimport Group, new_group
from streamd.values.streams.ruled_group cimport signal_room
from streamd.values.streams.stream cimport Stream

from streamd.core.help import declare_help
from streamd.core.spec import KeysAt, command, container, integer, key, oneof, optional, string, token
from streamd.delivery.group_commands import drop_rules_of_group
from streamd.errors import BusyGroupError, CommandError, printable

__all__ = []


container("XGROUP", group="stream", since="5.0.0", summary="Groups the commands about consumer groups.")

cdef object MISSING_KEY = (
    "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM option "
    "to create an empty stream automatically."
)


cdef object wrong_options(list args):
    return CommandError(
        f"ERR unknown subcommand or wrong number of arguments for '{printable(args[1])}'. Try XGROUP HELP."
    )


cdef Stream get_stream_for_write(Context ctx, bytes stream_key):
    cdef Stream stream = find_stream_for_write(ctx, stream_key)
    if stream is None:
        raise CommandError(MISSING_KEY)
    return stream


cdef struct GroupOptions:
    bint make_stream           # MKSTREAM
    int64_t entries_read       # ENTRIESREAD; -1: unknown


cdef int parse_group_options(list args, bint is_create, GroupOptions *out) except -1:
    """Read the options of XGROUP CREATE, or of SETID, which has no MKSTREAM."""
    cdef Py_ssize_t argc = len(args)
    cdef Py_ssize_t i = 5
    out.make_stream = False
    out.entries_read = -1
    while i < argc:
        if is_create and is_word(<bytes>args[i], b"MKSTREAM"):
            out.make_stream = True
        elif is_word(<bytes>args[i], b"ENTRIESREAD") and i + 1 < argc:
            i += 1
            out.entries_read = require_int64(<bytes>args[i])
            if out.entries_read < -1:
                raise CommandError("ERR value for ENTRIESREAD must be positive or -1")
        else:
            raise wrong_options(args)
        i += 1
    return 0


@command(
    "XGROUP CREATE", arity=-5, group="stream", flags="write denyoom", keys=KeysAt(2, flags="RW insert"), since="5.0.0",
    summary="Creates a consumer group.",
    args=(
        key(), string("group"), oneof("id-selector", string("id"), token("$", "new-id")), optional(token("MKSTREAM")),
        optional(integer("entriesread", "ENTRIESREAD", display="entries-read")),
    ),
    history=(("7.0.0", "Takes the option `ENTRIESREAD`."),),
)  # fmt: skip
def xgroup_create(Context ctx not None, list args not None):
    cdef GroupOptions options
    cdef StreamID last_id
    cdef Stream stream
    parse_group_options(args, True, &options)
    stream = find_stream_for_write(ctx, <bytes>args[2])
    if stream is None and not options.make_stream:
        raise CommandError(MISSING_KEY)
    if len(args) > 8:
        raise wrong_options(args)       # only now: this many options means options given twice
    if <bytes>args[4] == b"$":
        last_id = make_id(0, 0) if stream is None else stream.last_id
    else:
        require_id(<bytes>args[4], &last_id)
    if stream is None:
        stream = new_stream(ctx)
        ctx.db.add(<bytes>args[2], stream)
    elif <bytes>args[3] in stream.groups:
        raise BusyGroupError()
    options.entries_read = min(options.entries_read, <int64_t>stream.entries_added)
    stream.groups[<bytes>args[3]] = new_group(<bytes>args[3], last_id, options.entries_read)
    ctx.dirty += 1
    note_change(ctx, <bytes>args[2])
    ctx.db.event(EVENT_STREAM, b"xgroup-create", <bytes>args[2])
    ctx.reply.ok()


@command(
    "XGROUP SETID", arity=-5, group="stream", flags="write", keys=KeysAt(2, flags="RW update"), since="5.0.0",
    summary="Sets the last-delivered ID of a consumer group.",
    args=(
        key(), string("group"), oneof("id-selector", string("id"), token("$", "new-id")),
        optional(integer("entriesread", "ENTRIESREAD", display="entries-read")),
    ),
    history=(("7.0.0", "Takes the option `ENTRIESREAD`."),),
)  # fmt: skip
def xgroup_setid(Context ctx not None, list args not None):
    cdef GroupOptions options
    cdef StreamID last_id
    cdef Stream stream
    cdef Group group
    parse_group_options(args, False, &options)
    stream = get_stream_for_write(ctx, <bytes>args[2])
    group = get_group(stream, <bytes>args[2], <bytes>args[3])
    if len(args) > 7:
        raise wrong_options(args)
    if <bytes>args[4] == b"$":
        last_id = stream.last_id
    else:
        parse_loose_id(<bytes>args[4], &last_id, 0)
    group.last_id = last_id
    group.entries_read = min(options.entries_read, <int64_t>stream.entries_added)
    ctx.dirty += 1
    note_change(ctx, <bytes>args[2])
    ctx.db.event(EVENT_STREAM, b"xgroup-setid", <bytes>args[2])
    ctx.reply.ok()


@command(
    "XGROUP DESTROY", arity=4, group="stream", flags="write", keys=KeysAt(2, flags="RW delete"), since="5.0.0",
    summary="Removes a consumer group and its pending entries.",
    complexity="O(1); the pending entries are freed out of line.", args=(key(), string("group")),
)  # fmt: skip
def xgroup_destroy(Context ctx not None, list args not None):
    cdef Stream stream = get_stream_for_write(ctx, <bytes>args[2])
    cdef Group group = <Group>stream.groups.pop(<bytes>args[3], None)
    if group is None:
        ctx.reply.integer(0)
        return
    ctx.db.trash.release(group)
    ctx.db.signal_ready(<bytes>args[2])     # clients waiting for the group get an error
    ctx.dirty += 1
    note_change(ctx, <bytes>args[2])
    ctx.db.event(EVENT_STREAM, b"xgroup-destroy", <bytes>args[2])
    if (ctx.db.reserved or ctx.has_default_rules) and not ctx.is_replaying:
        drop_rules_of_group(ctx, <bytes>args[2], <bytes>args[3])
        if ctx.effects is not None:
            ctx.effects.insert(0, args)
    ctx.reply.integer(1)


@command(
    "XGROUP CREATECONSUMER", arity=5, group="stream", flags="write denyoom", keys=KeysAt(2, flags="RW insert"),
    since="6.2.0", summary="Creates a consumer in a consumer group.", args=(key(), string("group"), string("consumer")),
)  # fmt: skip
def xgroup_createconsumer(Context ctx not None, list args not None):
    cdef Stream stream = get_stream_for_write(ctx, <bytes>args[2])
    cdef Group group = get_group(stream, <bytes>args[2], <bytes>args[3])
    cdef bint is_new
    if group.find_consumer(<bytes>args[4]) is not None:
        note_change(ctx, <bytes>args[2])
        ctx.reply.integer(0)
        return
    reach_consumer(ctx, <bytes>args[2], group, <bytes>args[4], &is_new)
    ctx.reply.integer(1)


@command(
    "XGROUP DELCONSUMER", arity=5, group="stream", flags="write", keys=KeysAt(2, flags="RW delete"), since="5.0.0",
    summary="Removes a consumer and its pending entries from a consumer group.",
    complexity="O(N), with N entries pending for the consumer.", args=(key(), string("group"), string("consumer")),
)  # fmt: skip
def xgroup_delconsumer(Context ctx not None, list args not None):
    cdef Stream stream = get_stream_for_write(ctx, <bytes>args[2])
    cdef Group group = get_group(stream, <bytes>args[2], <bytes>args[3])
    cdef int64_t pending = group.drop_consumer(<bytes>args[4])
    if pending >= 0:
        ctx.dirty += 1
        note_change(ctx, <bytes>args[2])
        signal_room(ctx, <bytes>args[2])
        ctx.db.event(EVENT_STREAM, b"xgroup-delconsumer", <bytes>args[2])
    ctx.reply.integer(max(0, pending))


declare_help(
    "XGROUP", "stream", "5.0.0",
    "CREATE <key> <group> <id|$> [MKSTREAM] [ENTRIESREAD <count>]",
    "    Make a group that reads what comes after the ID; $ is the last ID of the stream.",
    "    MKSTREAM makes an empty stream when the key does not exist.",
    "    ENTRIESREAD says how many entries the group has read already.",
    "CREATECONSUMER <key> <group> <consumer>",
    "    Make a consumer.",
    "DELCONSUMER <key> <group> <consumer>",
    "    Remove a consumer and what is pending for it.",
    "DESTROY <key> <group>",
    "    Remove a group.",
    "SETID <key> <group> <id|$> [ENTRIESREAD <count>]",
    "    Let a group read on after another ID.",
)
