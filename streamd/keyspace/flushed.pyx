# cython: language_level=3, boundscheck=False, wraparound=False
"""Detached: the records of a flushed database, on their way to be freed."""

cimport cython
from libc.stdlib cimport free

from streamd.keyspace.key_index cimport index_clear
from streamd.keyspace.key_record cimport RECORD_CLOSED, KeyRecord, value_of
from streamd.keyspace.value_type cimport type_at


@cython.final
@cython.no_gc
cdef class Detached:
    """The records of a flushed database, released a few at a time by LazyFree.step."""

    def __dealloc__(self):
        while self.shard_count:
            self.free_shard()
        free(self.shards)

    cdef void free_shard(self) noexcept:
        self.shard_count -= 1
        index_clear(&self.shards[self.shard_count])

    def release_some(self, Py_ssize_t budget, object trash not None):
        """Release at most `budget` records and return how many; large values are passed on to `trash`."""
        cdef Py_ssize_t released = 0
        cdef list tail
        cdef KeyRecord record
        while self.chunks and released < budget:
            tail = <list>self.chunks[len(self.chunks) - 1]
            while tail and released < budget:
                record = <KeyRecord>tail.pop()
                self.count -= 1
                released += 1
                while self.shard_count * self.total > self.all_shards * self.count:     # they go in proportion
                    self.free_shard()
                if record.state < RECORD_CLOSED and type_at(record.type_number).frees_slowly:
                    trash.release(value_of(record))
            if not tail:
                self.chunks.pop()
        return released
