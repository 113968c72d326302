# cython: language_level=3, boundscheck=False, wraparound=False
"""Detached: the records of a flushed database, on their way to be freed."""

cimport cython
from cpython.dict cimport PyDict_DelItem

from streamd.keyspace.key_record cimport KeyRecord, shard_of
from streamd.keyspace.value_type cimport type_at


@cython.final
@cython.no_gc
cdef class Detached:
    """The records of a flushed database, released a few at a time by LazyFree.step."""

    def release_some(self, Py_ssize_t budget, object trash not None):
        """Release at most `budget` records and return how many; large values are passed on to `trash`."""
        cdef Py_ssize_t released = 0
        cdef list tail
        cdef KeyRecord record
        while self.chunks and released < budget:
            tail = <list>self.chunks[len(self.chunks) - 1]
            while tail and released < budget:
                record = <KeyRecord>tail.pop()
                number = shard_of(record.key, self.by_slot)
                PyDict_DelItem(self.shards[number], record.key)
                if not self.shards[number]:
                    self.shards[number] = None
                self.count -= 1
                released += 1
                if type_at(record.type_number).frees_slowly:
                    trash.release(record.value)
            if not tail:
                self.chunks.pop()
        return released
