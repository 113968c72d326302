# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Writing a stream into an RDB file or a payload.

A stream's nodes are written as they are in memory, so saving costs time per byte and not per entry. In terms of the
format, whose lengths and strings are drawn in format.py (numbers in brackets: the types that have it):

    nodes         | count | per node: master ID, 16 bytes as a string; listpack, as a string |
    counters      | length | last ID [15+] | first ID | max deleted ID | entries added [19+] |
    groups        | count | per group: name | last delivered ID | entries read [19+], 2^64 - 1 for unknown
                            pending: | count | per entry: ID, 16 bytes | time, 8 bytes | deliveries |
                            consumers: | count | per consumer: name | seen, 8 bytes | active, 8 bytes [21+] |
                                       | count | per entry: ID, 16 bytes |
                            unowned:   | count | per entry: ID, 16 bytes | [27]
    idempotency   | seconds | most IIDs | producers | per producer: pid | count | per IID: iid | ID | ... | added |
                  | duplicates | [26+]

An ID is two lengths unless marked as 16 bytes, big endian; times are Unix ms, little endian. Nodes, pending entries,
groups, consumers and producers are ordered by ID or name, IIDs oldest first. Unowned pending entries are among those of
the group, with the time 0, and again under `unowned`, in the order in which they are redelivered.

Types before 27 need an owner for every pending entry. A placeholder consumer, called Group.free_name(), owns them,
never seen and never active: 1970 and -1. The entries' times are their places in that order, ms after 1970, so that
older releases of Redis redeliver them in the same order, before all others. The reader recognises that consumer by its
name and its times.

Redis 8.8 refuses some of what older releases accept: with type 27, nodes without live entries are left out, groups have
read no more than was added, and back-lengths of listpacks are those of 8.8 (see listpack).
"""

from libc.stdint cimport int64_t, uint64_t

from streamd.engine.ids cimport StreamID, make_id
from streamd.engine.listpack cimport LP_HEADER, lp_bytes, lp_get_int
from streamd.engine.rax cimport rax_first, rax_higher, store_be64
from streamd.persistence.rdb.listpacks cimport put_listpack
from streamd.persistence.rdb.write cimport RdbWriter
from streamd.values.streams.group cimport Consumer, Group
from streamd.values.streams.pel cimport (
    NO_OWNER, PelCursor, PelRecord, pel_next, pel_owner_size, pel_seek, pel_seek_oldest, zone_place,
)
from streamd.values.streams.stream cimport Stream, StreamNode

from streamd.values.streams.forms import idmp_defaults

__all__ = []


cdef inline int put_id(RdbWriter writer, StreamID id) except -1:
    """Write an ID as two lengths."""
    writer.put_length(id.ms)
    return writer.put_length(id.seq)


cdef inline int put_raw_id(RdbWriter writer, StreamID id) except -1:
    writer.reserve(16)
    store_be64(writer.buffer + writer.used, id.ms)
    store_be64(writer.buffer + writer.used + 8, id.seq)
    writer.used += 16
    return 0


cdef int put_stream(RdbWriter writer, int type, Stream stream) except -1:
    cdef Group group
    put_nodes(writer, type, stream)
    writer.put_length(stream.length)
    put_id(writer, stream.last_id)
    if type >= 19:
        put_id(writer, stream.first_id)
        put_id(writer, stream.max_deleted_id)
        writer.put_length(stream.entries_added)
    writer.put_length(<uint64_t>len(stream.groups))
    for _name, group in sorted(stream.groups.items()):
        put_group(writer, type, group, stream.entries_added)
    if type >= 26:
        put_idempotency(writer, stream)
    else:
        note_losses(writer, type, stream)
    return 0


cdef int put_nodes(RdbWriter writer, int type, Stream stream) except -1:
    cdef StreamNode *node = <StreamNode *>rax_first(&stream.nodes)
    cdef bint is_narrow = type >= 27
    cdef uint64_t count = stream.nodes.count
    if is_narrow:
        while node is not NULL:
            count -= not has_live(node)
            node = <StreamNode *>rax_higher(&stream.nodes, node.key)
        node = <StreamNode *>rax_first(&stream.nodes)
    writer.put_length(count)
    while node is not NULL:
        if not is_narrow:
            writer.put_byte(16)
            writer.put_raw(node.key, 16)
            writer.put_string(node.lp, lp_bytes(node.lp))
        elif has_live(node):
            writer.put_byte(16)
            writer.put_raw(node.key, 16)
            put_listpack(writer, node.lp)
        node = <StreamNode *>rax_higher(&stream.nodes, node.key)
    return 0


cdef int put_group(RdbWriter writer, int type, Group group, uint64_t entries_added) except -1:
    cdef PelCursor cursor
    cdef PelRecord *record
    cdef Consumer consumer
    cdef bint with_zone = type >= 27
    cdef bint with_nobody = not with_zone and group.pel.unowned > 0
    cdef int64_t entries_read = group.entries_read
    writer.put_bytes(group.name)
    put_id(writer, group.last_id)
    if with_zone:
        entries_read = min(entries_read, <int64_t>entries_added)
    if type >= 19:
        writer.put_length(<uint64_t>entries_read)
    writer.put_length(group.pel.by_id.count)
    pel_seek(&group.pel, &cursor, -1, make_id(0, 0))
    while True:
        record = pel_next(&cursor)
        if record is NULL:
            break
        put_raw_id(writer, record.id)
        if record.owner != NO_OWNER:
            writer.put_le64(<uint64_t>record.delivery_ms)
        else:
            writer.put_le64(0 if with_zone else zone_place(record))
        writer.put_length(record.delivery_count)
    writer.put_length(<uint64_t>len(group.consumers) + with_nobody)
    if with_nobody:
        put_nobody(writer, type, group)
    for consumer in group.consumers_by_name():
        writer.put_bytes(consumer.name)
        writer.put_le64(<uint64_t>consumer.seen_ms)
        if type >= 21:
            writer.put_le64(<uint64_t>consumer.active_ms)
        writer.put_length(pel_owner_size(&group.pel, consumer.number))
        pel_seek(&group.pel, &cursor, consumer.number, make_id(0, 0))
        while True:
            record = pel_next(&cursor)
            if record is NULL:
                break
            put_raw_id(writer, record.id)
    if with_zone:
        put_zone(writer, group)
    return 0


cdef int put_nobody(RdbWriter writer, int type, Group group) except -1:
    """Write the placeholder consumer of unowned entries."""
    cdef PelCursor cursor
    cdef PelRecord *record
    writer.put_bytes(group.free_name())
    writer.put_le64(0)
    if type >= 21:
        writer.put_le64(<uint64_t>-1)
    writer.put_length(group.pel.unowned)
    pel_seek(&group.pel, &cursor, -1, make_id(0, 0))
    while True:
        record = pel_next(&cursor)
        if record is NULL:
            return 0
        if record.owner == NO_OWNER:
            put_raw_id(writer, record.id)


cdef int put_zone(RdbWriter writer, Group group) except -1:
    cdef PelCursor cursor
    cdef PelRecord *record
    writer.put_length(group.pel.unowned)
    pel_seek_oldest(&group.pel, &cursor)
    record = pel_next(&cursor)
    while record is not NULL and record.owner == NO_OWNER:
        put_raw_id(writer, record.id)
        record = pel_next(&cursor)
    return 0


cdef int put_idempotency(RdbWriter writer, Stream stream) except -1:
    writer.put_length(stream.idmp_duration)
    writer.put_length(stream.idmp_maxsize)
    if stream.idempotency is None:
        writer.put_length(0)
    else:
        writer.put_length(<uint64_t>stream.idempotency.producer_count)
        for pid, iids in stream.idempotency.producers():
            writer.put_bytes(pid)
            writer.put_length(<uint64_t>len(iids))
            for iid, (ms, seq) in iids:
                writer.put_bytes(iid)
                put_id(writer, make_id(ms, seq))
    writer.put_length(stream.iids_added)
    return writer.put_length(stream.iids_duplicates)


cdef int note_losses(RdbWriter writer, int type, Stream stream) except -1:
    """Count the parts of a stream that the form cannot hold."""
    cdef Group group
    cdef Consumer consumer
    if stream.iids_added or stream.iids_duplicates or stream.idempotency is not None:
        writer.lose("idempotent producers")
    if (stream.idmp_duration, stream.idmp_maxsize) != idmp_defaults(writer.options.context):
        writer.lose("idempotency settings")
    if type < 21:
        for group in stream.groups.values():
            for consumer in group.consumers.values():
                if consumer.active_ms != consumer.seen_ms:
                    writer.lose("active times of consumers")
                    return 0
    return 0


cdef inline bint has_live(const StreamNode *node) noexcept nogil:
    """Whether a node has an entry that is not deleted."""
    cdef int64_t live
    lp_get_int(node.lp + LP_HEADER, &live)
    return live > 0
