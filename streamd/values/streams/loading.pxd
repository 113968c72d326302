# cython: language_level=3
"""Reading a stream out of an RDB file. See loading.pyx."""

cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t

from streamd.engine.ids cimport StreamID
from streamd.persistence.rdb.value_loader cimport ValueLoader
from streamd.values.streams.group cimport Consumer, Group
from streamd.values.streams.stream cimport Stream


cdef struct Pending:
    # A pending entry as stored in the file.
    StreamID id
    int64_t delivery_ms
    uint64_t delivery_count
    int64_t owner              # number of the consumer in the group; -1: not known yet; NO_OWNER: none


cdef struct Unowned:
    # An unowned pending entry.
    int64_t place              # in the order in which such entries are redelivered
    size_t at                  # in the array of pending entries


@cython.final
cdef class StreamLoader(ValueLoader):
    cdef tuple settings                       # of new streams
    cdef object registry                      # IdempotencyRegistry
    cdef Pending *pending                     # owned; of the group being read
    cdef size_t pending_count
    cdef size_t pending_room
    cdef Unowned *unowned                     # owned; of the same group
    cdef size_t unowned_count
    cdef size_t unowned_room

    cdef int load_node(self, Stream stream) except -1
    cdef Group get_group(self, Stream stream, int type)
    cdef int get_pending(self) except -1
    cdef int64_t get_time(self, str what, int64_t least) except? -2
    cdef Consumer get_consumer(self, Group group, int type)
    cdef size_t get_owned(self, uint32_t owner, size_t first) except? 0
    cdef int get_unowned(self) except -1
    cdef int note_unowned(self, int64_t place, size_t at) except -1
    cdef size_t find_pending(self, StreamID id, size_t first) noexcept nogil
    cdef size_t keep_pending(self, Group group, size_t first) except? 0
    cdef size_t keep_unowned(self, Group group, size_t first) except? 0
    cdef int get_idempotency(self, Stream stream) except -1
