# cython: language_level=3, boundscheck=False, wraparound=False
"""PelProbe: a PEL of Python's."""

cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t

from streamd.engine.ids cimport StreamID, make_id
from streamd.values.streams.pel cimport (
    Pel, PelCursor, delivered_ms, pel_add_owner, pel_adopt, pel_assign, pel_clear, pel_disown, pel_drop_owner, pel_find,
    pel_first, pel_hold, pel_init, pel_insert, pel_insert_unowned, pel_last, pel_memory, pel_next, pel_oldest, pel_owner_size,
    pel_remove, pel_seek, pel_seek_oldest, pel_set_time,
)
from streamd.values.streams.pel_check cimport pel_check
from streamd.values.streams.pel_slab cimport NO_HANDLE, NO_OWNER, PelRecord

__all__ = ["PelProbe", "PelWalk"]


cdef tuple as_tuple(const PelRecord *record):
    if record is NULL:
        return None
    owner = None if record.owner == NO_OWNER else record.owner
    return (record.id.ms, record.id.seq), owner, delivered_ms(record), record.delivery_count


@cython.final
@cython.no_gc
cdef class PelProbe:
    """A PEL. IDs are tuples `(ms, seq)`, records `(id, owner, delivery_ms, delivery_count)`.

    Records of the NACK zone have the owner None and the time 0.
    """

    cdef Pel pel
    cdef uint64_t ended         # counts the events that invalidate cursors

    def __cinit__(self):
        pel_init(&self.pel)
        self.ended = 0

    def __dealloc__(self):
        pel_clear(&self.pel)

    cdef PelRecord *get(self, tuple id) except NULL:
        cdef PelRecord *record = pel_find(&self.pel, make_id(id[0], id[1]))
        if record is NULL:
            raise KeyError(id)
        return record

    cdef uint32_t in_use(self, owner) except? NO_HANDLE:
        if not 0 <= owner < self.pel.owner_count or self.pel.owners[<uint32_t>owner] is NULL:
            raise ValueError(f"no consumer has the number {owner}")
        return owner

    cdef PelRecord *get_owned(self, tuple id) except NULL:
        cdef PelRecord *record = self.get(id)
        if record.owner == NO_OWNER:
            raise ValueError(f"{id} is in the NACK zone")
        return record

    cdef int64_t time(self, int64_t delivery_ms) except -1:
        if delivery_ms < 0:
            raise ValueError("a delivery time is not negative")
        return delivery_ms

    def add_owner(self):
        """The number of a new consumer."""
        return pel_add_owner(&self.pel)

    def drop_owner(self, uint32_t owner):
        """Remove a consumer and its records. Walks that have started cannot continue."""
        self.ended += 1
        pel_drop_owner(&self.pel, self.in_use(owner))

    def owner_size(self, uint32_t owner):
        """How many records a consumer has."""
        return pel_owner_size(&self.pel, owner)

    def insert(self, tuple id not None, owner, int64_t delivery_ms, uint64_t delivery_count=1):
        """Add a record. KeyError when the entry is already pending."""
        cdef StreamID entry = make_id(id[0], id[1])
        if pel_find(&self.pel, entry) is not NULL:
            raise KeyError(id)
        pel_insert(&self.pel, entry, self.in_use(owner), self.time(delivery_ms), delivery_count)

    def insert_unowned(self, tuple id not None, uint64_t delivery_count=0):
        """Add a record at the end of the NACK zone. KeyError when the entry is already pending."""
        cdef StreamID entry = make_id(id[0], id[1])
        if pel_find(&self.pel, entry) is not NULL:
            raise KeyError(id)
        pel_insert_unowned(&self.pel, entry, delivery_count)

    def find(self, tuple id not None):
        """The record of an entry, or None."""
        return as_tuple(pel_find(&self.pel, make_id(id[0], id[1])))

    def remove(self, tuple id not None):
        """Remove a record. KeyError when there is none."""
        pel_remove(&self.pel, self.get(id))

    def assign(self, tuple id not None, owner):
        """Give a record to another consumer. ValueError when it has no owner."""
        pel_assign(&self.pel, self.get_owned(id), self.in_use(owner))

    def disown(self, tuple id not None):
        """Take a record from its owner, if it has one, and put it at the end of the NACK zone."""
        pel_disown(&self.pel, self.get(id))

    def adopt(self, tuple id not None, owner, int64_t delivery_ms):
        """Give a record in the NACK zone to a consumer. ValueError when it has an owner."""
        cdef PelRecord *record = self.get(id)
        if record.owner != NO_OWNER:
            raise ValueError(f"{id} has an owner")
        pel_adopt(&self.pel, record, self.in_use(owner), self.time(delivery_ms))

    def set_time(self, tuple id not None, int64_t delivery_ms):
        """Set a record's delivery time; it comes after the others with that time. ValueError when it has no owner."""
        pel_set_time(&self.pel, self.get_owned(id), self.time(delivery_ms))

    def hold(self, tuple id not None, int64_t failed_ms):
        """Hold a record back, with that delivery time. ValueError when it has no owner."""
        pel_hold(&self.pel, self.get_owned(id), self.time(failed_ms))

    def first(self):
        """The record with the smallest ID, or None."""
        return as_tuple(pel_first(&self.pel))

    def last(self):
        """The record with the greatest ID, or None."""
        return as_tuple(pel_last(&self.pel))

    def oldest(self):
        """The first record of the NACK zone, else the one delivered longest ago, or None."""
        return as_tuple(pel_oldest(&self.pel))

    def walk(self, owner=None, tuple first not None=(0, 0)):
        """An iterator over the records by ID from `first` on, of one consumer or all. It stays valid after changes."""
        cdef PelWalk walk = PelWalk.__new__(PelWalk)
        walk.probe = self
        walk.ended = self.ended
        pel_seek(&self.pel, &walk.cursor, -1 if owner is None else self.in_use(owner), make_id(first[0], first[1]))
        return walk

    def walk_oldest(self):
        """An iterator over all records, first the NACK zone, then by delivery time. It stays valid after changes."""
        cdef PelWalk walk = PelWalk.__new__(PelWalk)
        walk.probe = self
        walk.ended = self.ended
        pel_seek_oldest(&self.pel, &walk.cursor)
        return walk

    def clear(self):
        """Remove all records and consumers. Walks that have started cannot continue."""
        self.ended += 1
        with nogil:
            pel_clear(&self.pel)

    def __len__(self):
        return self.pel.by_id.count

    @property
    def unowned(self):
        """How many records are in the NACK zone."""
        return self.pel.unowned

    @property
    def held(self):
        """How many records are held back."""
        return self.pel.held.count

    @property
    def turn(self):
        """The last turn given out, 32 bits: orders the records with one delivery time. It can be set."""
        return self.pel.turn

    @turn.setter
    def turn(self, uint32_t turn):
        self.pel.turn = turn

    @property
    def memory(self):
        """Bytes malloc'ed."""
        return pel_memory(&self.pel)

    def check_invariants(self):
        """Raise AssertionError when something is damaged. O(n)."""
        pel_check(&self.pel)


@cython.final
cdef class PelWalk:
    """A walk over the records of a PelProbe: see its `walk` and `walk_oldest`."""

    cdef PelProbe probe
    cdef PelCursor cursor
    cdef uint64_t ended         # its value in the probe when the walk started

    def __init__(self):
        raise TypeError("walks come from PelProbe.walk and PelProbe.walk_oldest")

    def __iter__(self):
        return self

    def __next__(self):
        cdef PelRecord *record
        if self.ended != self.probe.ended:
            raise RuntimeError("the records walked may be gone")
        record = pel_next(&self.cursor)
        if record is NULL:
            raise StopIteration
        return as_tuple(record)
