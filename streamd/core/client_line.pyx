# cython: language_level=3, boundscheck=False, wraparound=False
"""The line that describes a connection, in CLIENT LIST, the ACL log, and crash reports.

Listing ten thousand connections blocks all clients, so a line is written field by field into one buffer, without Python
objects for its numbers.
"""

from libc.string cimport strlen

from streamd.core.client cimport CLASS_REPLICA, READS_COPIES, REPLY_BLOCK, Client
from streamd.numbers cimport INT64_ROOM, put_int64
from streamd.protocol.reply cimport ReplyWriter

__all__ = ["describe", "describe_all"]


def describe(Client client not None, double now, request=()):
    """The line of CLIENT LIST for one connection, without the line end; `now` is in seconds of CLOCK_MONOTONIC.

    request  the request of the connection that is being run
    """
    cdef ReplyWriter out = ReplyWriter()
    write(client, now, request, out)
    return out.take()


def describe_all(clients, double now, Client caller, request):
    """The lines of many connections, each with its end; `request` is what `caller` is running."""
    cdef ReplyWriter out = ReplyWriter()
    cdef Client client
    for client in clients:
        write(client, now, request if client is caller else (), out)
        out.raw_c("\n", 1)
    return out.take()


cdef int write(Client client, double now, request, ReplyWriter out) except -1:
    """Write the line of a connection.

    What Redis allocates in advance (its argument and reply buffers) is allocated here only while it is used, so those
    fields are zero or derived from actual use.
    """
    cdef long long unsent = client.output_size()
    cdef long long in_list = max(0, unsent - REPLY_BLOCK)
    cdef long long block = unsent - in_list
    cdef long long args_size = client.args_size()
    transaction, tracking = client.transaction, client.tracking
    command, user = client.last_command, client.user
    for arg in request:
        args_size += len(arg)
    number(out, "id=", client.id)
    text(out, " addr=", client.address)
    text(out, " laddr=", client.local_address)
    number(out, " fd=", client.fileno)
    name(out, " name=", client.name)
    number(out, " age=", max(0, <long long>(now - client.created_us / 1e6)))
    number(out, " idle=", max(0, <long long>(now - client.last_interaction_us / 1e6)))
    write_flags(client, out)
    number(out, " db=", client.db_index)
    number(out, " sub=", len(client.channels))
    number(out, " psub=", len(client.patterns))
    number(out, " ssub=", len(client.shard_channels))
    number(out, " multi=", -1 if transaction is None else len(transaction))
    # After a change the keys are no longer watched, and none can be added.
    number(out, " watch=", 0 if client.watched is None or client.is_dirty else len(client.watched))
    number(out, " qbuf=", client.parser.unread())
    number(out, " qbuf-free=", max(0, client.parser.memory() - client.parser.unread()))
    number(out, " argv-mem=", args_size)
    number(out, " multi-mem=", 0 if transaction is None else transaction.size)
    number(out, " rbs=", block)
    number(out, " rbp=", block)
    number(out, " obl=", block)
    number(out, " oll=", (in_list + REPLY_BLOCK - 1) // REPLY_BLOCK)
    number(out, " omem=", in_list)
    number(out, " tot-mem=", client.memory_usage())
    label(out, " events=rw" if client.is_congested else " events=r")
    text(out, " cmd=", "NULL" if command is None else command.full_name)
    name(out, " user=", b"(superuser)" if user is None else user.name)
    number(out, " redir=", -1 if tracking is None else tracking.redirect)
    number(out, " resp=", client.reply.resp)
    name(out, " lib-name=", client.lib_name)
    name(out, " lib-ver=", client.lib_ver)
    number(out, " io-thread=", client.thread_number())
    number(out, " tot-net-in=", client.total_net_in)
    number(out, " tot-net-out=", client.total_net_out)
    number(out, " tot-cmds=", client.total_commands)
    number(out, " read-events=", client.read_events)
    number(out, " parse-batch-cmd-sum=", client.batched_commands)
    return number(out, " parse-batch-cnt=", client.batches)


cdef int write_flags(Client client, ReplyWriter out) except -1:
    """Write the letters that stand for a client's state, in Redis's order."""
    cdef char[16] letters
    cdef char *p = letters
    tracking = client.tracking
    p = put_flag(p, c"S", client.output_class == CLASS_REPLICA)
    p = put_flag(p, c"O", client.is_monitor)
    p = put_flag(p, c"M", client.is_primary)
    p = put_flag(p, c"P", client.is_subscribed)
    p = put_flag(p, c"x", client.transaction is not None)
    p = put_flag(p, c"b", client.blocked is not None or client.postponed is not None)
    p = put_flag(p, c"t", tracking is not None)
    p = put_flag(p, c"R", tracking is not None and tracking.is_broken)
    p = put_flag(p, c"B", tracking is not None and tracking.is_bcast)
    p = put_flag(p, c"d", client.is_dirty)
    p = put_flag(p, c"c", client.close_after_reply)
    p = put_flag(p, c"U", client.is_unix)
    p = put_flag(p, c"r", client.state & READS_COPIES != 0)
    p = put_flag(p, c"e", client.no_evict)
    p = put_flag(p, c"T", client.no_touch)
    p = put_flag(p, c"C", client.is_rdb_channel)
    if p == letters:
        p = put_flag(p, c"N", True)
    label(out, " flags=")
    return out.raw_c(letters, <size_t>(p - letters))


cdef inline char *put_flag(char *p, char letter, bint is_set) noexcept:
    """Write the letter if `is_set`; returns the place for the next one."""
    p[0] = letter
    return p + is_set


cdef int label(ReplyWriter out, const char *word) except -1:
    return out.raw_c(word, strlen(word))


cdef int number(ReplyWriter out, const char *word, long long value) except -1:
    label(out, word)
    out.length += put_int64(out.grow(INT64_ROOM), value)
    return 0


cdef int text(ReplyWriter out, const char *word, str value) except -1:
    label(out, word)
    return out.raw(value.encode("utf-8", "surrogateescape"))


cdef int name(ReplyWriter out, const char *word, bytes value) except -1:
    label(out, word)
    return out.raw(value)
