# cython: language_level=3, boundscheck=False, wraparound=False
"""CommandWriter: databases as the commands that recreate them, the base of an append-only file without a snapshot.

    FUNCTION LOAD code                          each library of functions
    SELECT 0
    SET k v                                     each key, as its type writes it
    PEXPIREAT k 1800000000000

These are the commands that Redis writes, and Redis loads the file. What no command can express goes into annotations,
which Redis skips: `#STREAMD:` and the database number. They are about the preceding command; load.restore_state reads
them.
"""

cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free

from streamd.keyspace.database cimport Database
from streamd.keyspace.deadlines cimport expiry_of
from streamd.keyspace.key_record cimport RECORD_CLOSED, KeyRecord, key_of, value_of
from streamd.keyspace.value_type cimport ValueType, type_at
from streamd.numbers cimport INT64_ROOM, put_int64, put_uint64
from streamd.protocol.request_bytes cimport (
    buffer_put, buffer_put_bulk, buffer_put_command, buffer_put_count,
)

from streamd.persistence.rdb.format import WriteOptions

__all__ = ["CommandWriter"]

cdef enum:
    PIECE = 256 * 1024          # bytes passed on at a time


@cython.final
cdef class CommandWriter:
    """Writes databases to a sink.

    sink          has write(bytes)
    options       WriteOptions: the form that readers know, and the context
    timestamp_s   time to note at the head, Unix seconds; None: no time
    """

    def __cinit__(self, sink, *, options=None, timestamp_s=None):
        self.sink = sink
        self.options = WriteOptions() if options is None else options
        self.timestamp_s = timestamp_s

    def __dealloc__(self):
        free(self.held.data)

    def write(self, databases not None, progress=None, libraries=()):
        """Write all databases; `progress` is called now and then with the number of keys written. O(bytes).

        libraries  code of the libraries of functions, which come first

        Exceptions of the sink propagate. Expired keys are written too, with their expiry time.
        """
        cdef Database db
        cdef KeyRecord *record
        cdef Py_ssize_t number
        cdef uint32_t at
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
            for number in range(db.shard_count):
                at = 0
                record = db.record_at(number, &at)
                while record is not NULL:
                    self.put_key(db, record)
                    self.keys_written += 1
                    if progress is not None and not self.keys_written & 1023:
                        progress(self.keys_written)
                    record = db.record_at(number, &at)
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

    cpdef int word(self, bytes word) except -1:
        return buffer_put_bulk(&self.held, word, len(word))

    cdef int signed_word(self, int64_t number) except -1:
        cdef char text[INT64_ROOM]
        return buffer_put_bulk(&self.held, text, <Py_ssize_t>put_int64(text, number))

    cdef int unsigned_word(self, uint64_t number) except -1:
        cdef char text[INT64_ROOM]
        return buffer_put_bulk(&self.held, text, <Py_ssize_t>put_uint64(text, number))

    cpdef int begin(self, unsigned int words) except -1:
        """Start a command."""
        if self.held.size > PIECE:
            self.hand_on()
        return buffer_put_count(&self.held, c'*', words)

    # --- Keys ------------------------------------------------------------------------------------------------------

    cdef int put_key(self, Database db, KeyRecord *record) except -1:
        cdef bytes key = key_of(record)
        cdef ValueType type = type_at(record.type_number)
        if record.state >= RECORD_CLOSED and type.saves_closed:
            type.rewrite_closed(self, key, record.held)
        else:
            type.rewrite(self, key, value_of(record))
        if record.deadline_at >= 0:
            self.begin(3)
            self.word(b"PEXPIREAT")
            self.word(key)
            self.signed_word(expiry_of(db, record))
        return 0
