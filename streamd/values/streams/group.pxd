# cython: language_level=3
"""Consumer groups and consumers. See group.pyx."""

cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t

from streamd.engine.ids cimport StreamID
from streamd.values.streams.key_order cimport KeyOrder
from streamd.values.streams.pel cimport Pel, PelRecord


@cython.final
@cython.no_gc
cdef class Consumer:
    cdef readonly bytes name
    cdef public int64_t seen_ms      # Unix time of the last attempt to read or claim
    cdef public int64_t active_ms    # Unix time of the last success; -1: never
    cdef uint32_t number             # number in the group's Pel


@cython.final
@cython.no_gc
cdef class Group:
    cdef readonly bytes name
    cdef StreamID last_id            # last-delivered ID
    cdef public int64_t entries_read  # -1: unknown
    cdef uint64_t dead_lettered      # entries that this server has moved to a dead-letter stream
    cdef readonly dict consumers     # name -> Consumer
    cdef Pel pel                     # owned
    cdef list by_number              # number in the Pel -> Consumer; None for a number not in use
    cdef list ordered                # consumers by name; None: needs sorting
    cdef object known_rule           # the rule of the group as it was last found, see ruled_group.pyx; None: not yet
    cdef KeyOrder order              # of its pending entries, if a rule orders them by key and is followed; else None

    cdef bint has_pending(self, StreamID id) noexcept nogil
    cdef inline void note(self, StreamID id) noexcept nogil:
        # A pending entry is about to change, or has; for the order, if there is one.
        if self.order is not None:
            self.order.note(id)

    cdef bint forget(self, StreamID id) noexcept nogil          # drop the pending record of id; False: none
    cdef Consumer consumer_by_number(self, uint32_t number)
    cdef bytes owner_name(self, const PelRecord *record)        # empty for an entry without an owner
    cdef Consumer find_consumer(self, bytes name)               # None: no such consumer
    cdef Consumer add_consumer(self, bytes name, int64_t seen_ms)      # the name must be new
    cdef int64_t drop_consumer(self, bytes name) except -2
        # Also removes its pending entries; returns how many there were, or -1: no such consumer.
    cdef void note_all_of(self, Consumer consumer) noexcept nogil
    cdef uint64_t pending_of(self, Consumer consumer) noexcept nogil
    cdef bytes free_name(self)                                  # not used by any consumer: empty, or NUL bytes
    cdef list consumers_by_name(self)                           # must not be changed
    cdef int deliver(self, StreamID id, Consumer consumer, int64_t now_ms) except -1 nogil
    cdef int give_back(self, StreamID id, uint64_t delivery_count) except -1 nogil
        # Make it pending without an owner, after those returned earlier.
    cdef int hold_back(self, PelRecord *record, uint64_t delivery_count, int64_t failed_ms) except -1 nogil
        # It has failed, and stays with its owner: see pel_hold.
    cdef int hand_over(self, PelRecord *record, Consumer consumer, int64_t delivery_ms) except -1 nogil


cdef Group new_group(bytes name, StreamID last_id, int64_t entries_read)


@cython.final
@cython.no_gc
cdef class GroupRemains:
    # The pending entries of a deleted group, to be freed.
    cdef Pel pel                     # owned
