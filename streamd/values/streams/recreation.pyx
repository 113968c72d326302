# cython: language_level=3, boundscheck=False, wraparound=False
"""A stream as the commands that recreate it, the base of an append-only file without a snapshot.

    XADD s 1-1 f v                                                        each entry
    XSETID s 1-2 ENTRIESADDED 2 MAXDELETEDID 0-0
    XGROUP CREATE s g 1-1 ENTRIESREAD 1                                   each group
    XCLAIM s g c 0 1-1 TIME 1700000000000 RETRYCOUNT 1 JUSTID FORCE       each pending entry of each consumer
    #STREAMD:0 consumer 1700000000000 1700000000000                       the consumer's seen and active time
    XNACK s g FAIL IDS 2 1-2 1-3 RETRYCOUNT 3 FORCE                       unowned pending entries; or each, for
    XCLAIM s g "" -1 1-2 TIME 0 RETRYCOUNT 3 JUSTID FORCE                 readers before 8.8: see UNOWNED_MARK
    XGROUP CREATECONSUMER s g d                                           a consumer without pending entries
    XCFGSET s IDMP-DURATION 60 IDMP-MAXSIZE 100                           unless it is the default of all streams
    XIDMPRECORD s producer iid 1-1                                        each idempotent ID

These are the commands that Redis writes, and Redis loads the file: 8.6 all of it, 7.0 if idempotency is not used. Two
things are kept here that Redis loses in this form:

- Pending entries and idempotent IDs of deleted entries. XCLAIM and XIDMPRECORD require the entry to exist. So a
  placeholder is used: an entry with one small field is added, claimed, and deleted again before XSETID.
- What no command can express goes into annotations, which Redis skips: `#STREAMD:` and the database number. They apply
  to the consumer or the stream of the preceding command. StreamType.restore_state reads them.

Not kept, as in Redis: tombstones and node boundaries; nodes are laid out again.
"""

from libc.stdint cimport int64_t, uint64_t

from streamd.engine.ids cimport ID_ROOM, StreamID, id_cmp, make_id, put_id
from streamd.engine.listpack cimport LpValue
from streamd.persistence.aof.command_writer cimport CommandWriter
from streamd.protocol.request_bytes cimport buffer_put_bulk
from streamd.values.streams.group cimport Consumer, Group
from streamd.values.streams.pel cimport (
    NO_OWNER, PelCursor, PelRecord, pel_next, pel_owner_size, pel_seek, pel_seek_oldest, zone_place,
)
from streamd.values.streams.stream cimport Stream, StreamCursor, cursor_next, cursor_pair, cursor_seek

from streamd.persistence.rdb.format import FORMS
from streamd.values.streams.forms import BUILT_IN_IDMP, has_xnack, idmp_defaults
from streamd.values.streams.group import UNOWNED_MARK

__all__ = []

cdef enum:
    IDS_PER_XDEL = 100
    IDS_PER_XNACK = 64


cdef int id_word(CommandWriter commands, StreamID id) except -1:
    cdef char text[ID_ROOM]
    return buffer_put_bulk(&commands.held, text, <Py_ssize_t>put_id(text, id))


cdef int element(CommandWriter commands, const LpValue *value) except -1:
    if value.data is NULL:
        return commands.signed_word(value.number)
    return buffer_put_bulk(&commands.held, <const char *>value.data, <Py_ssize_t>value.length)


cdef int rewrite_stream(CommandWriter commands, bytes key, Stream stream) except -1:
    cdef Group group
    cdef list missing = find_missing(stream)
    cdef list groups = [stream.groups[name] for name in sorted(stream.groups)]
    cdef StreamID max_deleted = stream.max_deleted_id
    put_entries(commands, key, stream, missing)
    if not missing:
        put_ids(commands, key, stream, max_deleted)
    for group in groups:
        commands.begin(7 if not missing else 5)
        commands.word(b"XGROUP")
        commands.word(b"CREATE")
        commands.word(key)
        commands.word(group.name)
        id_word(commands, group.last_id)
        if not missing:
            commands.word(b"ENTRIESREAD")
            commands.signed_word(group.entries_read)
        put_consumers(commands, key, group)
    put_idempotency(commands, key, stream)
    if missing:
        put_ids(commands, key, stream, delete_placeholders(commands, key, stream, missing))
        for group in groups:
            # Again: entries-read depends on the count of entries added, which is correct only now.
            commands.begin(7)
            commands.word(b"XGROUP")
            commands.word(b"SETID")
            commands.word(key)
            commands.word(group.name)
            id_word(commands, group.last_id)
            commands.word(b"ENTRIESREAD")
            commands.signed_word(group.entries_read)
    return 0


# --- Entries ---------------------------------------------------------------------------------------------------


cdef list find_missing(Stream stream):
    """IDs, in order and as tuples, that are pending or known to a producer but whose entries no longer exist."""
    cdef Group group
    cdef PelCursor cursor
    cdef PelRecord *record
    cdef set found = set()
    for group in stream.groups.values():
        pel_seek(&group.pel, &cursor, -1, make_id(0, 0))
        while True:
            record = pel_next(&cursor)
            if record is NULL:
                break
            if not stream.has_entry(record.id):
                found.add((record.id.ms, record.id.seq))
    if stream.idempotency is not None:
        for _pid, iids in stream.idempotency.producers():
            for _iid, (ms, seq) in iids:
                if not stream.has_entry(make_id(ms, seq)):
                    found.add((ms, seq))
    found.discard((0, 0))
    return sorted(found)


cdef int put_entries(CommandWriter commands, bytes key, Stream stream, list missing) except -1:
    """Write every live entry, with the placeholders in ID order among them."""
    cdef StreamCursor cursor
    cdef LpValue field, value
    cdef Py_ssize_t at = 0
    cdef Py_ssize_t count = len(missing)
    cdef StreamID next_missing
    if not stream.length and not missing:
        # No command creates an empty stream without a group: add an entry and trim it at once.
        commands.begin(7)
        commands.word(b"XADD")
        commands.word(key)
        commands.word(b"MAXLEN")
        commands.word(b"0")
        commands.word(b"0-1")
        commands.word(b"x")
        return commands.word(b"y")
    cursor_seek(stream, &cursor, make_id(0, 0), make_id(<uint64_t>-1, <uint64_t>-1), False)
    while cursor_next(&cursor):
        while at < count:
            next_missing = make_id(missing[at][0], missing[at][1])
            if id_cmp(next_missing, cursor.id) > 0:
                break
            put_placeholder(commands, key, next_missing)
            at += 1
        commands.begin(<unsigned int>(3 + 2 * cursor.pairs))
        commands.word(b"XADD")
        commands.word(key)
        id_word(commands, cursor.id)
        while cursor.pairs_left:
            cursor_pair(&cursor, &field, &value)
            element(commands, &field)
            element(commands, &value)
    while at < count:
        put_placeholder(commands, key, make_id(missing[at][0], missing[at][1]))
        at += 1
    return 0


cdef int put_placeholder(CommandWriter commands, bytes key, StreamID id) except -1:
    commands.begin(5)
    commands.word(b"XADD")
    commands.word(key)
    id_word(commands, id)
    commands.word(b"x")
    return commands.word(b"y")


cdef StreamID delete_placeholders(CommandWriter commands, bytes key, Stream stream, list missing) except *:
    """Delete the placeholders again. Returns the lowest max deleted ID that the stream can have afterwards."""
    # Trimming leaves no trace, so what comes before the first entry is trimmed. The others were deleted one by
    # one, so the stream has a max deleted ID above them, except where Redis 6 and older did not record it.
    cdef StreamID max_deleted = stream.max_deleted_id
    cdef StreamID id
    cdef list within
    cdef Py_ssize_t at
    if not stream.length:
        commands.begin(4)
        commands.word(b"XTRIM")
        commands.word(key)
        commands.word(b"MAXLEN")
        commands.word(b"0")
        return max_deleted
    first = (stream.first_id.ms, stream.first_id.seq)
    if missing[0] < first:
        commands.begin(4)
        commands.word(b"XTRIM")
        commands.word(key)
        commands.word(b"MINID")
        id_word(commands, stream.first_id)
    within = [each for each in missing if each > first]
    for at in range(0, len(within), IDS_PER_XDEL):
        piece = within[at:at + IDS_PER_XDEL]
        commands.begin(2 + len(piece))
        commands.word(b"XDEL")
        commands.word(key)
        for ms, seq in piece:
            id = make_id(ms, seq)
            id_word(commands, id)
            if id_cmp(id, max_deleted) > 0:
                max_deleted = id
    return max_deleted


cdef int put_ids(CommandWriter commands, bytes key, Stream stream, StreamID max_deleted) except -1:
    commands.begin(7)
    commands.word(b"XSETID")
    commands.word(key)
    id_word(commands, stream.last_id)
    commands.word(b"ENTRIESADDED")
    commands.unsigned_word(stream.entries_added)
    commands.word(b"MAXDELETEDID")
    return id_word(commands, max_deleted)


# --- Consumers -------------------------------------------------------------------------------------------------


cdef int put_consumers(CommandWriter commands, bytes key, Group group) except -1:
    cdef Consumer consumer
    cdef PelCursor cursor
    cdef PelRecord *record
    for consumer in group.consumers_by_name():
        if not pel_owner_size(&group.pel, consumer.number):
            commands.begin(5)
            commands.word(b"XGROUP")
            commands.word(b"CREATECONSUMER")
            commands.word(key)
            commands.word(group.name)
            commands.word(consumer.name)
        pel_seek(&group.pel, &cursor, consumer.number, make_id(0, 0))
        while True:
            record = pel_next(&cursor)
            if record is NULL:
                break
            put_claim(commands, key, group, consumer.name, b"0", record, record.delivery_ms)
        commands.put(b"#STREAMD:%d consumer %d %d\r\n" % (commands.db_index, consumer.seen_ms, consumer.active_ms))
    if has_xnack(FORMS[commands.options.form].version):
        return put_unowned(commands, key, group)
    pel_seek_oldest(&group.pel, &cursor)
    record = pel_next(&cursor)
    while record is not NULL and record.owner == NO_OWNER:
        put_claim(commands, key, group, group.free_name(), UNOWNED_MARK, record, <int64_t>zone_place(record))
        record = pel_next(&cursor)
    return 0


cdef int put_claim(
    CommandWriter commands, bytes key, Group group, bytes consumer, bytes min_idle, const PelRecord *record,
    int64_t delivery_ms
) except -1:
    commands.begin(12)
    commands.word(b"XCLAIM")
    commands.word(key)
    commands.word(group.name)
    commands.word(consumer)
    commands.word(min_idle)
    id_word(commands, record.id)
    commands.word(b"TIME")
    commands.signed_word(delivery_ms)
    commands.word(b"RETRYCOUNT")
    commands.unsigned_word(record.delivery_count)
    commands.word(b"JUSTID")
    return commands.word(b"FORCE")


cdef int put_unowned(CommandWriter commands, bytes key, Group group) except -1:
    """XNACK for unowned entries: adjacent ones with the same delivery count share a command."""
    cdef PelCursor cursor, ahead
    cdef PelRecord *record
    cdef PelRecord *other
    cdef unsigned int n
    pel_seek_oldest(&group.pel, &cursor)
    record = pel_next(&cursor)
    while record is not NULL and record.owner == NO_OWNER:
        n = 1
        ahead = cursor
        other = pel_next(&ahead)
        while (
            n < IDS_PER_XNACK and other is not NULL and other.owner == NO_OWNER
            and other.delivery_count == record.delivery_count
        ):
            n += 1
            other = pel_next(&ahead)
        commands.begin(9 + n)
        commands.word(b"XNACK")
        commands.word(key)
        commands.word(group.name)
        commands.word(b"FAIL")
        commands.word(b"IDS")
        commands.unsigned_word(n)
        other = record
        while n:
            id_word(commands, record.id)
            other = record
            record = pel_next(&cursor)
            n -= 1
        commands.word(b"RETRYCOUNT")
        commands.unsigned_word(other.delivery_count)
        commands.word(b"FORCE")
    return 0


# --- Idempotent producers --------------------------------------------------------------------------------------


cdef int put_idempotency(CommandWriter commands, bytes key, Stream stream) except -1:
    is_default = (stream.idmp_duration, stream.idmp_maxsize) == BUILT_IN_IDMP
    # Even if it equals the default of this server, unless that is the built-in one: settings may differ at load.
    if not is_default or idmp_defaults(commands.options.context) != (stream.idmp_duration, stream.idmp_maxsize):
        commands.begin(6)
        commands.word(b"XCFGSET")
        commands.word(key)
        commands.word(b"IDMP-DURATION")
        commands.unsigned_word(stream.idmp_duration)
        commands.word(b"IDMP-MAXSIZE")
        commands.unsigned_word(stream.idmp_maxsize)
    if stream.idempotency is not None:
        for pid, iids in stream.idempotency.producers():
            for iid, (ms, seq) in iids:
                commands.begin(5)
                commands.word(b"XIDMPRECORD")
                commands.word(key)
                commands.word(pid)
                commands.word(iid)
                id_word(commands, make_id(ms, seq))
    if stream.iids_added or stream.iids_duplicates:
        # Whichever command comes before, it is about this stream.
        commands.put(b"#STREAMD:%d iids %d %d\r\n" % (commands.db_index, stream.iids_added, stream.iids_duplicates))
    return 0
