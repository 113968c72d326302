# cython: language_level=3
"""Writing databases as commands. See command_writer.pyx."""

cimport cython
from libc.stdint cimport int64_t, uint64_t

from streamd.keyspace.database cimport Database
from streamd.keyspace.key_record cimport KeyRecord
from streamd.protocol.request_bytes cimport ByteBuffer


@cython.final
cdef class CommandWriter:
    cdef object sink
    cdef ByteBuffer held
    cdef readonly object options          # WriteOptions
    cdef object timestamp_s
    cdef readonly int db_index
    cdef readonly long long bytes_written
    cdef readonly long long keys_written

    cdef int put(self, bytes text) except -1
    cdef int hand_on(self) except -1
    cpdef int word(self, bytes word) except -1
    cdef int signed_word(self, int64_t number) except -1
    cdef int unsigned_word(self, uint64_t number) except -1
    cpdef int begin(self, unsigned int words) except -1
    cdef int put_key(self, Database db, KeyRecord *record) except -1
