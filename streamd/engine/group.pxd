# cython: language_level=3
"""Consumer groups and consumers. See group.pyx."""

from libc.stdint cimport int64_t, uint32_t

from streamd.engine.ids cimport StreamID
from streamd.engine.pel cimport Pel


cdef class Consumer:
    cdef readonly bytes name
    cdef public int64_t seen_ms      # Unix time of the last attempt to read or claim
    cdef public int64_t active_ms    # Unix time of the last success; -1: never
    cdef uint32_t number             # in the group's Pel


cdef class Group:
    cdef readonly bytes name
    cdef StreamID last_id            # last-delivered ID
    cdef public int64_t entries_read # -1: unknown
    cdef readonly dict consumers     # name -> Consumer
    cdef Pel pel

    cdef bint has_pending(self, StreamID id) noexcept
    cdef bint forget(self, StreamID id) noexcept                # drop the pending record of id; False: none there
    cdef Consumer consumer_by_number(self, uint32_t number)
