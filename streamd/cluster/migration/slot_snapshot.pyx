# cython: language_level=3, boundscheck=False, wraparound=False
"""The snapshot of slots that a node hands over: commands that recreate their keys, written by a forked child.

    FUNCTION RESTORE payload REPLACE                          if there are libraries
    SELECT 0
    CLUSTER SYNCSLOTS CONF SLOT-INFO <slot>:<keys>:<expires>  each slot that has keys
    RESTORE key <Unix time in ms, 0: none> payload ABSTTL     each key of it, not compressed, and without a checksum
    CLUSTER SYNCSLOTS SNAPSHOT-EOF

Every value is sent as a payload, whatever its size: the commands by which Redis sends large streams lose pending
entries whose entry has been deleted, and the times of consumers.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t
from libc.stdlib cimport free

from streamd.keyspace.database cimport Database
from streamd.keyspace.deadlines cimport expiry_of
from streamd.keyspace.key_record cimport KeyRecord, value_of
from streamd.persistence.rdb.write cimport RdbWriter
from streamd.protocol.request_bytes cimport ByteBuffer, buffer_put, buffer_put_bulk, buffer_put_command

from streamd.persistence.rdb.write import dump_libraries

__all__ = ["write_slots"]

cdef enum:
    PIECE = 64 * 1024          # bytes that are passed on at a time
    KEYS_BETWEEN_REPORTS = 32

cdef bytes RESTORE = b"*5\r\n$7\r\nRESTORE\r\n"
cdef bytes ABSTTL = b"$6\r\nABSTTL\r\n"


@cython.final
@cython.no_gc
cdef class SlotWriter:
    """Writes requests to a sink, piece by piece."""

    cdef ByteBuffer buffer     # owned
    cdef RdbWriter payloads
    cdef object sink
    cdef object progress
    cdef unsigned long long keys

    def __init__(self, sink, options not None, progress):
        self.sink, self.progress = sink, progress
        self.payloads = RdbWriter(None, options._replace(compression=False, checksum=False))

    def __dealloc__(self):
        free(self.buffer.data)

    cdef int put(self, list words) except -1:
        return buffer_put_command(&self.buffer, words)

    cdef int put_slot(self, Database db, int slot) except -1:
        cdef uint32_t at = 0
        cdef Py_ssize_t expires = 0
        cdef KeyRecord *record = db.record_at(slot, &at)
        while record is not NULL:
            expires += record.deadline_at >= 0
            record = db.record_at(slot, &at)
        info = b"%d:%d:%d" % (slot, db.count_in_slot(slot), expires)
        self.put([b"CLUSTER", b"SYNCSLOTS", b"CONF", b"SLOT-INFO", info])
        at = 0
        record = db.record_at(slot, &at)
        while record is not NULL:
            self.put_key(db, record)
            record = db.record_at(slot, &at)
        return 0

    cdef int put_key(self, Database db, KeyRecord *record) except -1:
        cdef bytes time = b"%d" % max(0, expiry_of(db, record))
        cdef bytes payload = self.payloads.payload(value_of(record))
        buffer_put(&self.buffer, PyBytes_AS_STRING(RESTORE), PyBytes_GET_SIZE(RESTORE))
        buffer_put_bulk(&self.buffer, record.text, record.size)
        buffer_put_bulk(&self.buffer, PyBytes_AS_STRING(time), PyBytes_GET_SIZE(time))
        buffer_put_bulk(&self.buffer, PyBytes_AS_STRING(payload), PyBytes_GET_SIZE(payload))
        buffer_put(&self.buffer, PyBytes_AS_STRING(ABSTTL), PyBytes_GET_SIZE(ABSTTL))
        self.keys += 1
        if self.keys % KEYS_BETWEEN_REPORTS == 0:
            self.progress(self.keys)
        if self.buffer.size >= PIECE:
            self.hand_on()
        return 0

    cdef int hand_on(self) except -1:
        self.sink.write(PyBytes_FromStringAndSize(self.buffer.data, self.buffer.size))
        self.buffer.size = 0
        return 0


def write_slots(sink, Database db not None, slots, options not None, list libraries not None, progress):
    """Write the keys of slots, and the libraries of functions. O(bytes).

    progress  called with the number of keys written so far, often
    Exceptions of the sink propagate. Expired keys are written, too, with their time.
    """
    cdef SlotWriter writer = SlotWriter(sink, options, progress)
    cdef int slot
    if libraries:
        writer.put([b"FUNCTION", b"RESTORE", dump_libraries(libraries, options), b"REPLACE"])
    writer.put([b"SELECT", b"0"])
    for slot in slots:
        if db.count_in_slot(slot):
            writer.put_slot(db, slot)
    progress(writer.keys)
    writer.put([b"CLUSTER", b"SYNCSLOTS", b"SNAPSHOT-EOF"])
    writer.hand_on()
