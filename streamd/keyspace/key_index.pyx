# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""KeyIndex: the records of one shard of a database, by their keys.

A hash table with linear probing. A slot has eight bytes: the address of a record, and a tag, 20 bits of the hash of its
key, in those that addresses leave free, so that hardly any record is looked at in vain. The hash is the low half of
the interpreter's, whose seed differs in each process.

              hash  |  shard (10)  |      tag (20)      | 2 |

The search for a key begins at its home: where its tag, as a fraction of all tags, lies in the slots. So a table may
have any size, and it moves to another one without a look at a record; it grows by an eighth, since what is free costs
memory for each key. Nothing marks where a record was: those behind it that would not be found any more move up.

Homes have the order of tags, whatever the size. Records can therefore be walked by tag, in any number of steps between
which the table changes (`index_step`). Whoever adds records to one table as they come from such a walk of another fills
one end of it alone; a record that comes to lie FAR from its home has the table grow.

Shards are so many that a table may be moved whole. Memory is libc's, not streamd.heap's: databases count it
(Database.memory).
"""

from libc.stdint cimport uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free, realloc

from streamd.keyspace.key_record cimport KeyRecord, free_record, hash_of

__all__ = []

cdef enum:
    LEAST_ROOM = 4
    FAR = 512
    FOUND_ROOM = 16


cdef inline uint32_t most_in(uint32_t room) noexcept:
    """Records that an index of so many slots holds at most: 27 of 32, and never all, since a search must end."""
    return room - (room >> 3) - (room >> 5) if room >= 8 else room - 1


cdef inline uint32_t more_than(uint32_t room) noexcept:
    """The next size."""
    return room + LEAST_ROOM if room < 4 * LEAST_ROOM else room + (room >> 3) + 1 & ~<uint32_t>1


cdef inline uint32_t store(uint64_t *slots, uint32_t room, uint64_t slot) noexcept:
    """Put a slot's contents where they are found; how far from home that is."""
    cdef uint32_t at = home_of(slot >> TAG_SHIFT, room), steps = 0
    while slots[at]:
        steps += 1
        at += 1
        if at == room:
            at = 0
    slots[at] = slot
    return steps


cdef bint rebuild(KeyIndex *index, uint32_t room) noexcept:
    """Change the number of slots. False: no memory, nothing has changed."""
    cdef uint64_t *slots = <uint64_t *>calloc(room, sizeof(uint64_t))
    cdef uint32_t at
    if slots is NULL:
        return False
    for at in range(index.room):
        if index.slots[at]:
            store(slots, room, index.slots[at])
    free(index.slots)
    index.slots = slots
    index.room = room
    return True


cdef long long index_reserve(KeyIndex *index) except? -1:
    """Make room for one more record; how many bytes the index has grown by."""
    cdef uint64_t before = index_bytes(index)
    if index.room and index.count < most_in(index.room):
        return 0
    if not rebuild(index, more_than(index.room)):
        raise MemoryError("no memory to find keys")
    return <long long>(index_bytes(index) - before)


cdef long long index_put(KeyIndex *index, KeyRecord *record, uint32_t hash) noexcept:
    """Add a record of a new key, for which there must be room; how many bytes the index has grown by."""
    cdef uint64_t address = <uint64_t><uintptr_t>record
    cdef uint64_t before = index_bytes(index)
    index.count += 1
    if store(index.slots, index.room, tag_of(hash) << TAG_SHIFT | address >> UNUSED_BITS) > FAR:
        rebuild(index, more_than(index.room))   # when it cannot grow, it stays
    return <long long>(index_bytes(index) - before)


cdef inline uint32_t distance(uint32_t start, uint32_t at, uint32_t room) noexcept:
    """Slots from one to another, around the end."""
    return at - start if at >= start else at + room - start


cdef long long index_remove(KeyIndex *index, const KeyRecord *record) noexcept:
    """Remove a record, which must be there, and is the caller's now; how many bytes the index has shrunk by."""
    cdef uint64_t before = index_bytes(index)
    cdef uint32_t room = index.room
    cdef uint32_t hole = home_of(tag_of(hash_of(record)), room)
    cdef uint32_t at
    cdef uint64_t slot
    while record_in(index.slots[hole]) is not record:
        hole = hole + 1 if hole + 1 < room else 0
    at = hole
    while True:
        at = at + 1 if at + 1 < room else 0
        slot = index.slots[at]
        if slot == 0:
            break
        if distance(home_of(slot >> TAG_SHIFT, room), at, room) >= distance(hole, at, room):
            index.slots[hole] = slot        # the hole is on its way from its home
            hole = at
    index.slots[hole] = 0
    index.count -= 1
    if index.count == 0:
        index_clear(index)
    elif room > LEAST_ROOM and index.count < room >> 2:
        rebuild(index, room >> 1)   # when it cannot shrink, it stays
    return <long long>(before - index_bytes(index))


cdef void index_clear(KeyIndex *index) noexcept:
    """Free everything, records too; it is empty."""
    cdef uint32_t at
    cdef uint32_t room = index.room
    cdef uint64_t *slots = index.slots
    index.slots = NULL
    index.room = 0
    index.count = 0
    for at in range(room):
        if slots[at]:
            free_record(record_in(slots[at]))
    free(slots)


cdef KeyRecord *index_next(const KeyIndex *index, uint32_t *at) noexcept:
    """The next record from the place `at` on, or NULL. `at` is moved behind it."""
    cdef uint64_t slot
    while at[0] < index.room:
        slot = index.slots[at[0]]
        at[0] += 1
        if slot:
            return record_in(slot)
    return NULL


cdef int add_found(Found *found, KeyRecord *record) except -1:
    cdef Py_ssize_t room = 2 * found.room if found.room else FOUND_ROOM
    cdef KeyRecord **moved
    if found.count == found.room:
        moved = <KeyRecord **>realloc(found.records, <size_t>room * sizeof(KeyRecord *))
        if moved is NULL:
            raise MemoryError("no memory for a walk over keys")
        found.records = moved
        found.room = room
    found.records[found.count] = record
    found.count += 1
    return 0


cdef uint64_t index_step(const KeyIndex *index, uint64_t limit, Found *found) except? 0:
    """Find the records with the greatest tags below a limit, those of one home; the limit for the next step.

    found  gets the records, if there are any
    """
    cdef uint32_t home, at
    cdef uint64_t slot
    if index.count == 0:
        return 0
    home = at = home_of(limit - 1, index.room)
    while True:
        slot = index.slots[at]
        if slot == 0:
            break
        if home_of(slot >> TAG_SHIFT, index.room) == home and slot >> TAG_SHIFT < limit:
            add_found(found, record_in(slot))
        at = at + 1 if at + 1 < index.room else 0
    return ((<uint64_t>home << TAG_BITS) + index.room - 1) // index.room     # the least tag of this home
