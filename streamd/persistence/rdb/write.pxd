# cython: language_level=3
"""Writing RDB streams. See write.pyx."""

cimport cython
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy

from streamd.keyspace.database cimport Database
from streamd.keyspace.key_record cimport KeyRecord
from streamd.keyspace.value_type cimport ValueType
from streamd.persistence.rdb.lzf cimport LzfTable


@cython.final
@cython.no_gc
cdef class RdbWriter:
    cdef uint8_t *buffer          # owned
    cdef size_t used              # bytes in the buffer
    cdef size_t room              # bytes malloc'ed for it
    cdef LzfTable *table          # owned; NULL: nothing is compressed
    cdef object sink
    cdef readonly object options  # WriteOptions
    cdef uint64_t crc             # of the bytes handed over
    cdef readonly int version     # of the format
    cdef readonly uint64_t bytes_written      # handed over to the sink
    cdef readonly uint64_t keys_written
    cdef readonly object losses               # Losses
    cdef object progress

    cdef int reserve(self, size_t more) except -1

    cdef inline int put_byte(self, uint8_t byte) except -1:
        if self.used == self.room:
            self.reserve(1)
        self.buffer[self.used] = byte
        self.used += 1
        return 0

    cdef inline int put_raw(self, const uint8_t *data, size_t size) except -1:
        self.reserve(size)
        memcpy(self.buffer + self.used, data, size)
        self.used += size
        return 0

    cdef inline int put_le64(self, uint64_t value) except -1:
        cdef int i
        self.reserve(8)
        for i in range(8):
            self.buffer[self.used + i] = <uint8_t>(value >> (8 * i))
        self.used += 8
        return 0

    cdef int hand_over(self) except -1
    cpdef int put_length(self, uint64_t value) except -1
    cdef int put_string(self, const uint8_t *data, size_t size) except -1
    cpdef int put_bytes(self, bytes text) except -1
    cdef bint put_number(self, const uint8_t *data, size_t size) except -1
    cdef bint put_compressed(self, const uint8_t *data, size_t size) except -1
    cdef int put_type(self, ValueType type, object value) except -1
    cdef int lose(self, str what) except -1
    cdef int put_head(self, long long now_ms, object used_memory) except -1
    cdef int put_libraries(self, object libraries) except -1
    cdef int put_database(self, Database db, long long now_ms) except -1
    cdef int put_slots(self, Database db, long long now_ms) except -1
    cdef int put_shard(self, Database db, Py_ssize_t number, long long now_ms) except -1
    cdef int put_key(self, Database db, KeyRecord *record, long long now_ms) except -1
    cdef int put_end(self) except -1
    cpdef bytes payload(self, object value)
    cdef bytes finish_payload(self)
    cdef void shrink(self) noexcept
