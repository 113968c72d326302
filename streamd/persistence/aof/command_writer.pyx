# cython: language_level=3, boundscheck=False, wraparound=False
"""CommandWriter: databases as the commands that recreate them, the base of an append-only file without a snapshot.

    FUNCTION LOAD code                                                    each library of functions
    SELECT 0
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
    PEXPIREAT s 1800000000000

These are the commands that Redis writes, and Redis loads the file: 8.6 all of it, 7.0 if idempotency is not used. Two
things are kept here that Redis loses in this form:

- Pending entries and idempotent IDs of deleted entries. XCLAIM and XIDMPRECORD require the entry to exist. So a
  placeholder is used: an entry with one small field is added, claimed, and deleted again before XSETID.
- What no command can express goes into annotations, which Redis skips: `#STREAMD:` and the database number. They apply
  to the consumer or the stream of the preceding command. load.restore_state reads them.

Not kept, as in Redis: tombstones and node boundaries; nodes are laid out again.
"""

cimport cython
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free

from streamd.engine.database cimport Database
from streamd.engine.slot cimport Slot
from streamd.engine.group cimport Consumer, Group
from streamd.engine.ids cimport ID_ROOM, StreamID, id_cmp, make_id, put_id
from streamd.engine.listpack cimport LpValue
from streamd.engine.pel cimport (
    NO_OWNER, PelCursor, PelRecord, pel_next, pel_owner_size, pel_seek, pel_seek_oldest, zone_place,
)
from streamd.engine.stream cimport Stream, StreamCursor, cursor_next, cursor_pair, cursor_seek
from streamd.numbers cimport INT64_ROOM, put_int64, put_uint64
from streamd.protocol.request_bytes cimport (
    ByteBuffer, buffer_put, buffer_put_bulk, buffer_put_command, buffer_put_count,
)

from streamd.engine.group import UNOWNED_MARK

__all__ = ["CommandWriter"]

cdef enum:
    PIECE = 256 * 1024          # bytes passed on at a time
    IDS_PER_XDEL = 100
    IDS_PER_XNACK = 64
    DEFAULT_IDMP_DURATION = 100
    DEFAULT_IDMP_MAXSIZE = 100


@cython.final
cdef class CommandWriter:
    """Writes databases to a sink.

    sink          has write(bytes)
    idmp          the settings (duration, maxsize) that new streams get here
    has_xnack     readers support XNACK
    timestamp_s   time to note at the head, Unix seconds; None: no time
    """

    cdef object sink
    cdef ByteBuffer held
    cdef uint64_t idmp_duration
    cdef uint64_t idmp_maxsize
    cdef object timestamp_s
    cdef bint has_xnack
    cdef int db_index
    cdef readonly long long bytes_written
    cdef readonly long long keys_written

    def __cinit__(self, sink, *, idmp=(DEFAULT_IDMP_DURATION, DEFAULT_IDMP_MAXSIZE), timestamp_s=None,
                  has_xnack=False):
        self.sink = sink
        self.has_xnack = has_xnack
        self.idmp_duration, self.idmp_maxsize = idmp
        self.timestamp_s = timestamp_s

    def __dealloc__(self):
        free(self.held.data)

    def write(self, databases not None, progress=None, libraries=()):
        """Write all databases; `progress` is called now and then with the number of keys written. O(bytes).

        libraries  code of the libraries of functions, which come first

        Exceptions of the sink propagate. Expired keys are written too, with their expiry time.
        """
        cdef Database db
        cdef Slot slot
        if self.timestamp_s is not None:
            self.put(b"#TS:%d\r\n" % self.timestamp_s)
        # Never an empty file: an empty base means that its content was lost.
        self.put(b"#STREAMD: 1\r\n")
        for code in libraries:
            self.begin(3)
            self.word(b"FUNCTION")
            self.word(b"LOAD")
            self.word(<bytes?>code)
        for db in databases:
            self.db_index = db.index
            if len(db):
                buffer_put_command(&self.held, [b"SELECT", b"%d" % db.index])
            for chunk in db.chunks:
                for slot in <list>chunk:
                    self.put_key(slot)
                    self.keys_written += 1
                    if progress is not None and not self.keys_written & 1023:
                        progress(self.keys_written)
        self.hand_on()

    # --- Bytes -----------------------------------------------------------------------------------------------------

    cdef int put(self, bytes text) except -1:
        return buffer_put(&self.held, text, len(text))

    cdef int hand_on(self) except -1:
        """Pass the collected bytes to the sink."""
        if self.held.size:
            self.sink.write(self.held.data[:self.held.size])
            self.bytes_written += self.held.size
            self.held.size = 0
        return 0

    cdef int word(self, bytes word) except -1:
        return buffer_put_bulk(&self.held, word, len(word))

    cdef int id_word(self, StreamID id) except -1:
        cdef char text[ID_ROOM]
        return buffer_put_bulk(&self.held, text, <Py_ssize_t>put_id(text, id))

    cdef int signed_word(self, int64_t number) except -1:
        cdef char text[INT64_ROOM]
        return buffer_put_bulk(&self.held, text, <Py_ssize_t>put_int64(text, number))

    cdef int unsigned_word(self, uint64_t number) except -1:
        cdef char text[INT64_ROOM]
        return buffer_put_bulk(&self.held, text, <Py_ssize_t>put_uint64(text, number))

    cdef int element(self, const LpValue *value) except -1:
        if value.data is NULL:
            return self.signed_word(value.number)
        return buffer_put_bulk(&self.held, <const char *>value.data, <Py_ssize_t>value.length)

    cdef int begin(self, unsigned int words) except -1:
        """Start a command."""
        if self.held.size > PIECE:
            self.hand_on()
        return buffer_put_count(&self.held, c'*', words)

    # --- Keys ------------------------------------------------------------------------------------------------------

    cdef int put_key(self, Slot slot) except -1:
        if type(slot.value) is bytes:
            self.begin(3)
            self.word(b"SET")
            self.word(slot.key)
            self.word(<bytes>slot.value)
        else:
            self.put_stream(slot.key, <Stream?>slot.value)
        if slot.expire_at_ms >= 0:
            self.begin(3)
            self.word(b"PEXPIREAT")
            self.word(slot.key)
            self.signed_word(slot.expire_at_ms)
        return 0

    cdef int put_stream(self, bytes key, Stream stream) except -1:
        cdef Group group
        cdef list missing = self.find_missing(stream)
        cdef list groups = [stream.groups[name] for name in sorted(stream.groups)]
        cdef StreamID max_deleted = stream.max_deleted_id
        self.put_entries(key, stream, missing)
        if not missing:
            self.put_ids(key, stream, max_deleted)
        for group in groups:
            self.begin(7 if not missing else 5)
            self.word(b"XGROUP")
            self.word(b"CREATE")
            self.word(key)
            self.word(group.name)
            self.id_word(group.last_id)
            if not missing:
                self.word(b"ENTRIESREAD")
                self.signed_word(group.entries_read)
            self.put_consumers(key, group)
        self.put_idempotency(key, stream)
        if missing:
            self.put_ids(key, stream, self.delete_placeholders(key, stream, missing))
            for group in groups:
                # Again: entries-read depends on the count of entries added, which is correct only now.
                self.begin(7)
                self.word(b"XGROUP")
                self.word(b"SETID")
                self.word(key)
                self.word(group.name)
                self.id_word(group.last_id)
                self.word(b"ENTRIESREAD")
                self.signed_word(group.entries_read)
        return 0

    # --- Entries ---------------------------------------------------------------------------------------------------

    cdef list find_missing(self, Stream stream):
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

    cdef int put_entries(self, bytes key, Stream stream, list missing) except -1:
        """Write every live entry, with the placeholders in ID order among them."""
        cdef StreamCursor cursor
        cdef LpValue field, value
        cdef Py_ssize_t at = 0
        cdef Py_ssize_t count = len(missing)
        cdef StreamID next_missing
        if not stream.length and not missing:
            # No command creates an empty stream without a group: add an entry and trim it at once.
            self.begin(7)
            self.word(b"XADD")
            self.word(key)
            self.word(b"MAXLEN")
            self.word(b"0")
            self.word(b"0-1")
            self.word(b"x")
            return self.word(b"y")
        cursor_seek(stream, &cursor, make_id(0, 0), make_id(<uint64_t>-1, <uint64_t>-1), False)
        while cursor_next(&cursor):
            while at < count:
                next_missing = make_id(missing[at][0], missing[at][1])
                if id_cmp(next_missing, cursor.id) > 0:
                    break
                self.put_placeholder(key, next_missing)
                at += 1
            self.begin(<unsigned int>(3 + 2 * cursor.pairs))
            self.word(b"XADD")
            self.word(key)
            self.id_word(cursor.id)
            while cursor.pairs_left:
                cursor_pair(&cursor, &field, &value)
                self.element(&field)
                self.element(&value)
        while at < count:
            self.put_placeholder(key, make_id(missing[at][0], missing[at][1]))
            at += 1
        return 0

    cdef int put_placeholder(self, bytes key, StreamID id) except -1:
        self.begin(5)
        self.word(b"XADD")
        self.word(key)
        self.id_word(id)
        self.word(b"x")
        return self.word(b"y")

    cdef StreamID delete_placeholders(self, bytes key, Stream stream, list missing) except *:
        """Delete the placeholders again. Returns the lowest max deleted ID that the stream can have afterwards."""
        # Trimming leaves no trace, so what comes before the first entry is trimmed. The others were deleted one by
        # one, so the stream has a max deleted ID above them, except where Redis 6 and older did not record it.
        cdef StreamID max_deleted = stream.max_deleted_id
        cdef StreamID id
        cdef list within
        cdef Py_ssize_t at
        if not stream.length:
            self.begin(4)
            self.word(b"XTRIM")
            self.word(key)
            self.word(b"MAXLEN")
            self.word(b"0")
            return max_deleted
        first = (stream.first_id.ms, stream.first_id.seq)
        if missing[0] < first:
            self.begin(4)
            self.word(b"XTRIM")
            self.word(key)
            self.word(b"MINID")
            self.id_word(stream.first_id)
        within = [each for each in missing if each > first]
        for at in range(0, len(within), IDS_PER_XDEL):
            piece = within[at:at + IDS_PER_XDEL]
            self.begin(2 + len(piece))
            self.word(b"XDEL")
            self.word(key)
            for ms, seq in piece:
                id = make_id(ms, seq)
                self.id_word(id)
                if id_cmp(id, max_deleted) > 0:
                    max_deleted = id
        return max_deleted

    cdef int put_ids(self, bytes key, Stream stream, StreamID max_deleted) except -1:
        self.begin(7)
        self.word(b"XSETID")
        self.word(key)
        self.id_word(stream.last_id)
        self.word(b"ENTRIESADDED")
        self.unsigned_word(stream.entries_added)
        self.word(b"MAXDELETEDID")
        return self.id_word(max_deleted)

    # --- Consumers -------------------------------------------------------------------------------------------------

    cdef int put_consumers(self, bytes key, Group group) except -1:
        cdef Consumer consumer
        cdef PelCursor cursor
        cdef PelRecord *record
        for consumer in group.consumers_by_name():
            if not pel_owner_size(&group.pel, consumer.number):
                self.begin(5)
                self.word(b"XGROUP")
                self.word(b"CREATECONSUMER")
                self.word(key)
                self.word(group.name)
                self.word(consumer.name)
            pel_seek(&group.pel, &cursor, consumer.number, make_id(0, 0))
            while True:
                record = pel_next(&cursor)
                if record is NULL:
                    break
                self.put_claim(key, group, consumer.name, b"0", record, record.delivery_ms)
            self.put(b"#STREAMD:%d consumer %d %d\r\n" % (self.db_index, consumer.seen_ms, consumer.active_ms))
        if self.has_xnack:
            return self.put_unowned(key, group)
        pel_seek_oldest(&group.pel, &cursor)
        record = pel_next(&cursor)
        while record is not NULL and record.owner == NO_OWNER:
            self.put_claim(key, group, group.free_name(), UNOWNED_MARK, record, <int64_t>zone_place(record))
            record = pel_next(&cursor)
        return 0

    cdef int put_claim(
        self, bytes key, Group group, bytes consumer, bytes min_idle, const PelRecord *record, int64_t delivery_ms
    ) except -1:
        self.begin(12)
        self.word(b"XCLAIM")
        self.word(key)
        self.word(group.name)
        self.word(consumer)
        self.word(min_idle)
        self.id_word(record.id)
        self.word(b"TIME")
        self.signed_word(delivery_ms)
        self.word(b"RETRYCOUNT")
        self.unsigned_word(record.delivery_count)
        self.word(b"JUSTID")
        return self.word(b"FORCE")

    cdef int put_unowned(self, bytes key, Group group) except -1:
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
            self.begin(9 + n)
            self.word(b"XNACK")
            self.word(key)
            self.word(group.name)
            self.word(b"FAIL")
            self.word(b"IDS")
            self.unsigned_word(n)
            other = record
            while n:
                self.id_word(record.id)
                other = record
                record = pel_next(&cursor)
                n -= 1
            self.word(b"RETRYCOUNT")
            self.unsigned_word(other.delivery_count)
            self.word(b"FORCE")
        return 0

    # --- Idempotent producers --------------------------------------------------------------------------------------

    cdef int put_idempotency(self, bytes key, Stream stream) except -1:
        is_default = (stream.idmp_duration, stream.idmp_maxsize) == (DEFAULT_IDMP_DURATION, DEFAULT_IDMP_MAXSIZE)
        # Even if it equals the default of this server, unless that is the built-in one: settings may differ at load.
        if not is_default or (self.idmp_duration, self.idmp_maxsize) != (stream.idmp_duration, stream.idmp_maxsize):
            self.begin(6)
            self.word(b"XCFGSET")
            self.word(key)
            self.word(b"IDMP-DURATION")
            self.unsigned_word(stream.idmp_duration)
            self.word(b"IDMP-MAXSIZE")
            self.unsigned_word(stream.idmp_maxsize)
        if stream.idempotency is not None:
            for pid, iids in stream.idempotency.producers():
                for iid, (ms, seq) in iids:
                    self.begin(5)
                    self.word(b"XIDMPRECORD")
                    self.word(key)
                    self.word(pid)
                    self.word(iid)
                    self.id_word(make_id(ms, seq))
        if stream.iids_added or stream.iids_duplicates:
            # Whichever command comes before, it is about this stream.
            self.put(b"#STREAMD:%d iids %d %d\r\n" % (self.db_index, stream.iids_added, stream.iids_duplicates))
        return 0
