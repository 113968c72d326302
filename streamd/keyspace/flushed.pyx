# cython: language_level=3, boundscheck=False, wraparound=False
"""Detached: the records of a flushed database, on their way to be freed."""

cimport cython
from libc.stdint cimport uint64_t
from libc.stdlib cimport free

from streamd.keyspace.key_index cimport KeyIndex, index_clear, record_in
from streamd.keyspace.key_record cimport RECORD_CLOSED, KeyRecord, free_record, value_of
from streamd.keyspace.value_type cimport type_at


@cython.final
@cython.no_gc
cdef class Detached:
    """The records of a flushed database, released a few at a time by LazyFree.step."""

    def __dealloc__(self):
        while self.shard_count:
            self.shard_count -= 1
            index_clear(&self.shards[self.shard_count])
        free(self.shards)

    def release_some(self, Py_ssize_t budget, object trash not None):
        """Release at most `budget` records and return how many; large values are passed on to `trash`."""
        cdef Py_ssize_t released = 0
        cdef KeyIndex *shard
        cdef uint64_t slot
        cdef KeyRecord *record
        while self.shard_count and released < budget:
            shard = &self.shards[self.shard_count - 1]
            if shard.count == 0:
                self.shard_count -= 1
                index_clear(shard)
                continue
            shard.room -= 1         # slots beyond it have been released
            slot = shard.slots[shard.room]
            if slot == 0:
                continue
            record = record_in(slot)
            shard.count -= 1
            self.count -= 1
            released += 1
            if record.state < RECORD_CLOSED and type_at(record.type_number).frees_slowly:
                trash.release(value_of(record))
            free_record(record)
        return released
