# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Writing RDB: databases into a stream of bytes, a value into a DUMP payload.

    writer = RdbWriter(file, WriteOptions(aux={"aof-base": 1}))
    writer.write(databases, now_ms=..., progress=...)         # all of a file
    writer.losses                                             # what the form had no room for

Callers: snapshot.save_to_file, in a forked child or in the server itself; the rewrite of the AOF; the full
resynchronisation of a replica, with the connection's buffer as the file; DUMP. The data itself is never modified.
Behaviour: Redis 8.6, byte for byte, except for the output of LZF.
"""

cimport cython
from cpython.buffer cimport PyBUF_READ
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport INT32_MAX, INT32_MIN, UINT32_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memmove

from streamd.engine.rax cimport store_be64
from streamd.keyspace.database cimport Database
from streamd.keyspace.deadlines cimport expiry_of
from streamd.keyspace.key_record cimport RECORD_CLOSED, KeyRecord, accessed_of, key_of, value_of
from streamd.keyspace.value_type cimport ValueType, number_of, type_at
from streamd.numbers cimport read_int64
from streamd.persistence.rdb.codes cimport (
    OP_AUX, OP_END, OP_EXPIRE_MS, OP_FREQUENCY, OP_FUNCTION, OP_IDLE, OP_RESIZE, OP_SELECT, OP_SLOT_INFO,
)
from streamd.persistence.rdb.lzf cimport LzfTable, lzf_compress

from streamd import REDIS_VERSION
from streamd.persistence.rdb.crc64 import crc64
from streamd.persistence.rdb.format import FORMS, Losses, WriteOptions

__all__ = ["RdbWriter", "dump_libraries", "dump_value"]

cdef enum:
    HAND_OVER = 1 << 18        # bytes that are collected before they go to the file
    FIRST_ROOM = 1 << 12
    LONGEST_NUMBER = 11        # bytes of a string that may be written as an integer
    SHORTEST_COMPRESSED = 21   # bytes of a string that is worth compressing
    LEAST_SAVED = 4            # bytes that compression has to save
    KEYS_BETWEEN_REPORTS = 1024
    FIRST_WITH_SLOTS = 12      # version of the format, of Redis 7.4, that has OP_SLOT_INFO


@cython.final
@cython.no_gc
cdef class RdbWriter:
    """Writes the parts of an RDB stream in the order requested, usually all of it with `write`.

    sink     any object with `write(bytes)`; None: everything stays in the buffer, for `take`
    options  WriteOptions
    """

    def __cinit__(self):
        self.buffer = <uint8_t *>malloc(FIRST_ROOM)
        if self.buffer is NULL:
            raise MemoryError
        self.room = FIRST_ROOM

    def __init__(self, sink, options=None):
        self.options = WriteOptions() if options is None else options
        self.version = FORMS[self.options.form].version
        self.sink = sink
        self.losses = Losses()
        if self.options.compression:
            self.table = <LzfTable *>malloc(sizeof(LzfTable))
            if self.table is NULL:
                raise MemoryError
            self.table.base = 0

    def __dealloc__(self):
        free(self.buffer)
        free(self.table)

    # --- Bytes ----------------------------------------------------------------------------------------------------

    cdef int reserve(self, size_t more) except -1:
        """Make room for `more` bytes behind those in use."""
        cdef uint8_t *moved
        cdef size_t room
        if self.room - self.used >= more:
            return 0
        if self.used >= HAND_OVER and self.sink is not None:
            self.hand_over()
            if self.room - self.used >= more:
                return 0
        room = self.room * 2 if self.room * 2 > self.used + more else self.used + more
        moved = <uint8_t *>realloc(self.buffer, room)
        if moved is NULL:
            raise MemoryError
        self.buffer = moved
        self.room = room
        return 0

    cdef int hand_over(self) except -1:
        """Pass the buffered bytes to the sink."""
        cdef object view
        if self.used == 0:
            return 0
        view = PyMemoryView_FromMemory(<char *>self.buffer, <Py_ssize_t>self.used, PyBUF_READ)
        if self.options.checksum:
            self.crc = crc64(view, self.crc)
        # Bytes, not the view: the receiver may keep them, and the buffer is reused.
        self.sink.write(PyBytes_FromStringAndSize(<char *>self.buffer, <Py_ssize_t>self.used))
        self.bytes_written += self.used
        self.used = 0
        if self.progress is not None:
            self.progress(self.keys_written)
        return 0

    cpdef int put_length(self, uint64_t value) except -1:
        self.reserve(9)
        self.used += write_length(self.buffer + self.used, value)
        return 0

    cdef int put_string(self, const uint8_t *data, size_t size) except -1:
        """As an integer, compressed, or unchanged: the first that is possible and saves space."""
        if size <= LONGEST_NUMBER and self.put_number(data, size):
            return 0
        if self.table is not NULL and size >= SHORTEST_COMPRESSED and self.put_compressed(data, size):
            return 0
        self.put_length(size)
        return self.put_raw(data, size)

    cpdef int put_bytes(self, bytes text) except -1:
        if text is None:
            raise TypeError("a string of a snapshot is bytes, not None")
        return self.put_string(<const uint8_t *>PyBytes_AS_STRING(text), <size_t>PyBytes_GET_SIZE(text))

    cdef bint put_number(self, const uint8_t *data, size_t size) except -1:
        """Write a string that is an integer of 32 bits as one; False when it is not."""
        cdef int64_t number
        cdef unsigned int width, i
        if not read_int64(<const char *>data, size, &number) or not INT32_MIN <= number <= INT32_MAX:
            return False
        width = 0 if -128 <= number <= 127 else 1 if -32768 <= number <= 32767 else 2
        self.reserve(5)
        self.buffer[self.used] = <uint8_t>(0xC0 | width)
        for i in range(<unsigned int>1 << width):
            self.buffer[self.used + 1 + i] = <uint8_t>(<uint64_t>number >> (8 * i))
        self.used += 1 + (<unsigned int>1 << width)
        return True

    cdef bint put_compressed(self, const uint8_t *data, size_t size) except -1:
        """Write a string compressed; False, and nothing is written, when that saves too little."""
        cdef uint8_t head[19]
        cdef unsigned int guess, width
        cdef size_t done
        # The head holds the compressed size, whose length depends on its value: the string is compressed after a head
        # of the most common length, and moved if the actual one differs.
        guess = 1 + (2 if size < 16384 else 5) + write_length(head, size)
        self.reserve(sizeof(head) + size)
        done = lzf_compress(self.table, data, size, self.buffer + self.used + guess, size - LEAST_SAVED)
        if done == 0:
            return False
        head[0] = 0xC3
        width = 1 + write_length(head + 1, done)
        width += write_length(head + width, size)
        if width != guess:
            memmove(self.buffer + self.used + width, self.buffer + self.used + guess, done)
        memcpy(self.buffer + self.used, head, width)
        self.used += width + done
        return True

    # --- Values -----------------------------------------------------------------------------------------------------

    cdef int put_type(self, ValueType type, object value) except -1:
        return self.put_byte(<uint8_t>type.rdb_type(value, self.version))

    cdef int lose(self, str what) except -1:
        self.losses[what] = self.losses.get(what, 0) + 1
        return 0

    # --- The parts of a file ------------------------------------------------------------------------------------------

    def write(self, databases, *, long long now_ms, used_memory=0, progress=None, libraries=()):
        """Write everything from the magic to the checksum.

        databases    Database objects; empty ones are omitted
        now_ms       Unix time, for the auxiliary field `ctime` and for the idle times of keys
        used_memory  bytes, for the auxiliary field `used-mem`
        progress     called with the number of keys written so far, every 1024 keys and every 256 KiB
        libraries    code of the libraries of functions, as bytes
        """
        self.progress = progress
        self.put_head(now_ms, used_memory)
        self.put_libraries(libraries)
        for db in databases:
            self.put_database(db, now_ms)
        self.put_end()
        self.progress = None

    cdef int put_head(self, long long now_ms, object used_memory) except -1:
        cdef bytes head = b"REDIS%04d" % self.version
        self.put_raw(<const uint8_t *>PyBytes_AS_STRING(head), <size_t>PyBytes_GET_SIZE(head))
        fields = {
            "redis-ver": REDIS_VERSION, "redis-bits": 64, "ctime": now_ms // 1000, "used-mem": used_memory,
            **self.options.aux,
        }
        for name, value in fields.items():
            self.put_byte(OP_AUX)
            self.put_bytes((<str>name).encode())
            self.put_bytes(str(value).encode())
        return 0

    cdef int put_libraries(self, object libraries) except -1:
        for code in libraries:
            self.put_byte(OP_FUNCTION)
            self.put_bytes(<bytes?>code)
        return 0

    cdef int put_database(self, Database db, long long now_ms) except -1:
        cdef Py_ssize_t number
        if db.count == 0:
            return 0
        self.put_byte(OP_SELECT)
        self.put_length(<uint64_t>db.index)
        self.put_byte(OP_RESIZE)
        self.put_length(<uint64_t>db.count)
        self.put_length(<uint64_t>db.deadline_count)
        if db.by_slot:
            return self.put_slots(db, now_ms)
        for number in range(db.shard_count):
            if db.shards[number].count:
                self.put_shard(db, number, now_ms)
        return 0

    cdef int put_slots(self, Database db, long long now_ms) except -1:
        """The keys of a node of a cluster, slot by slot, each with how many keys it has and how many of them expire."""
        cdef KeyRecord *record
        cdef uint64_t expiring
        cdef uint32_t at
        cdef int slot
        for slot in range(<int>db.shard_count):
            if db.count_in_slot(slot) == 0:
                continue
            if self.version >= FIRST_WITH_SLOTS:
                expiring = at = 0
                record = db.record_at(slot, &at)
                while record is not NULL:
                    expiring += record.deadline_at >= 0
                    record = db.record_at(slot, &at)
                self.put_byte(OP_SLOT_INFO)
                self.put_length(<uint64_t>slot)
                self.put_length(<uint64_t>db.count_in_slot(slot))
                self.put_length(expiring)
            self.put_shard(db, slot, now_ms)
        return 0

    cdef int put_shard(self, Database db, Py_ssize_t number, long long now_ms) except -1:
        cdef uint32_t at = 0
        cdef KeyRecord *record = db.record_at(number, &at)
        while record is not NULL:
            self.put_key(db, record, now_ms)
            record = db.record_at(number, &at)
        return 0

    cdef int put_key(self, Database db, KeyRecord *record, long long now_ms) except -1:
        cdef ValueType type = type_at(record.type_number)
        cdef bint stays_closed = record.state >= RECORD_CLOSED and type.saves_closed
        cdef object value = None if stays_closed else value_of(record)
        if record.deadline_at >= 0:
            self.put_byte(OP_EXPIRE_MS)
            self.put_le64(<uint64_t>expiry_of(db, record))
        if self.options.access_times:
            self.put_byte(OP_IDLE)
            self.put_length(<uint64_t>max(0, now_ms - accessed_of(record)) // 1000)
        elif self.options.access_counts:
            self.put_byte(OP_FREQUENCY)
            self.put_byte(record.uses)
        self.put_type(type, value)
        self.put_bytes(key_of(record))
        if stays_closed:
            type.save_closed(self, record.held)
        else:
            type.save(self, value)
        self.keys_written += 1
        if self.progress is not None and self.keys_written % KEYS_BETWEEN_REPORTS == 0:
            self.progress(self.keys_written)
        return 0

    cdef int put_end(self) except -1:
        self.put_byte(OP_END)
        self.hand_over()
        self.put_le64(self.crc)     # zero when it is not computed
        return self.hand_over()

    # --- Payloads -----------------------------------------------------------------------------------------------------

    cpdef bytes payload(self, value):
        """The payload of DUMP for a value. O(bytes). A writer without a sink may write any number of them."""
        cdef ValueType type = type_at(number_of(value))
        self.used = 0
        self.put_type(type, value)
        type.save(self, value)
        return self.finish_payload()

    cdef bytes finish_payload(self):
        """What was written, with the footer of a payload; the buffer is empty afterwards."""
        cdef unsigned int i
        cdef uint64_t crc = 0
        cdef bytes payload
        for i in range(2):
            self.put_byte(<uint8_t>(self.version >> (8 * i)))
        if self.options.checksum:
            crc = crc64(PyMemoryView_FromMemory(<char *>self.buffer, <Py_ssize_t>self.used, PyBUF_READ))
        self.put_le64(crc)
        payload = PyBytes_FromStringAndSize(<char *>self.buffer, <Py_ssize_t>self.used)
        self.used = 0
        if self.room > HAND_OVER:
            self.shrink()
        return payload

    cdef void shrink(self) noexcept:
        """Give most of an empty buffer back."""
        cdef uint8_t *moved = <uint8_t *>realloc(self.buffer, FIRST_ROOM)
        if moved is not NULL:
            self.buffer = moved
            self.room = FIRST_ROOM


cdef inline unsigned int write_length(uint8_t *p, uint64_t value) noexcept nogil:
    """Write a length at `p`, 1 to 9 bytes; returns how many."""
    cdef int i
    if value < 64:
        p[0] = <uint8_t>value
        return 1
    if value < 16384:
        p[0] = 0x40 | <uint8_t>(value >> 8)
        p[1] = <uint8_t>value
        return 2
    if value <= UINT32_MAX:
        p[0] = 0x80
        for i in range(4):
            p[1 + i] = <uint8_t>(value >> (24 - 8 * i))
        return 5
    p[0] = 0x81
    store_be64(p + 1, value)
    return 9


def dump_value(value, options=None):
    """The payload of DUMP for a value. O(bytes).

    options  WriteOptions, for form, compression and checksum
    """
    return RdbWriter(None, options).payload(value)


def dump_libraries(libraries, options=None):
    """The payload of FUNCTION DUMP: the code of libraries, as bytes. O(bytes).

    options  WriteOptions, for form and compression
    """
    cdef RdbWriter writer = RdbWriter(None, options)
    writer.put_libraries(libraries)
    return writer.finish_payload()
