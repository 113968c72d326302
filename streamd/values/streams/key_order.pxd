# cython: language_level=3
"""Which pending entries of a group have which key, and which wait for their turn. See key_order.pyx."""

cimport cython
from libc.stdint cimport uint64_t

from streamd.engine.ids cimport StreamID


cdef struct Hashed:
    # What every record of a table begins with.
    uint64_t hash


cdef struct HashTable:
    Hashed **at                # [mask + 1], owned; the records are not. NULL: a free place
    size_t mask
    size_t count


cdef struct OrderedEntry:
    # A pending entry that has a key.
    uint64_t hash              # of its ID
    StreamID id
    OrderedKey *key
    bint is_passed_over        # else it is in flight
    bint is_archived           # it is not in memory, and its key was read from the archive
    OrderedEntry *previous     # among those of its key that were passed over, by ID
    OrderedEntry *next


cdef struct OrderedKey:
    # A key with pending entries. Its hash is all that is known of it: two keys with one hash are ordered as one.
    uint64_t hash
    size_t in_flight           # entries
    OrderedEntry *first        # those that were passed over, by ID; NULL: none
    OrderedEntry *last
    bint is_free               # nothing is in flight, and something was passed over: it is in the list of such keys
    OrderedKey *previous       # in that list
    OrderedKey *next


@cython.final
@cython.no_gc
cdef class KeyOrder:
    cdef readonly bytes field              # of entries, with the key
    cdef HashTable entries                 # of OrderedEntry, owned
    cdef HashTable keys                    # of OrderedKey, owned
    cdef readonly size_t passed_over       # entries
    cdef OrderedKey *first_free            # the key that has been free for longest; NULL: none is
    cdef OrderedKey *last_free
    cdef StreamID *changed                 # pending entries that may have changed since the last look; owned
    cdef size_t changed_count
    cdef size_t changed_room
    cdef bint is_lost                      # it has to be built: too much has changed, or memory was short
    cdef StreamID trimmed                  # what was trimmed below is known
    cdef bint with_archive                 # entries that are not in memory are among those pending, or in `unread`
    cdef set unread                        # numbers of pending entries that may be archived: their key is not known

    cdef void note(self, StreamID id) noexcept nogil       # a pending entry may have changed, or come, or gone
    cdef OrderedEntry *find(self, StreamID id) noexcept nogil               # NULL: not pending, or without a key
    cdef bint is_taken(self, uint64_t key) noexcept nogil                   # has pending entries
    cdef OrderedEntry *first_in_turn(self) noexcept nogil                   # passed over, and its key is free; or NULL
    cdef int put(self, StreamID id, uint64_t key, bint is_passed_over, bint is_archived=*) except -1 nogil
    cdef void forget(self, StreamID id) noexcept nogil                      # it is pending no longer, or is deleted
    cdef void clear(self) noexcept nogil
    cdef size_t memory(self) noexcept nogil
    # Internal
    cdef OrderedKey *add_key(self, uint64_t hash) noexcept nogil
    cdef void leave(self, OrderedEntry *entry) noexcept nogil
    cdef void enter(self, OrderedEntry *entry) noexcept nogil
    cdef void settle(self, OrderedKey *key) noexcept nogil


cdef inline bint is_in_turn(const OrderedEntry *entry) noexcept nogil:
    """Whether an entry that was passed over may be delivered now."""
    return entry.key.is_free and entry.key.first == entry
