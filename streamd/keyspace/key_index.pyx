# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""KeyIndex: the records of one shard of a database, by their keys.

A hash table with linear probing. A slot has eight bytes: the address of a record, and 16 bits of the hash of its key in
those that addresses leave free, so that hardly any record is looked at in vain. The hash is the low half of the
interpreter's, whose seed differs in each process; records keep it.

              hash  |  shard (10)  | .................... |
                    | ...... |      tag (16)     | ...... |
                    | ................ place in the index |

Nothing marks where a record was: those behind it that would not be found any more move up. An index is rebuilt whole
when it grows or shrinks; shards are so many that this is not noticed. Memory is libc's, not streamd.heap's: databases
count it (Database.memory).
"""

from cpython.object cimport PyObject
from libc.stdint cimport uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free

from streamd.keyspace.key_record cimport KeyRecord

__all__ = []

cdef enum:
    LEAST_ROOM = 4


cdef inline uint32_t most_in(uint32_t room) noexcept:
    """Records that an index of so many slots holds at most: 13 of 16."""
    return room - (room >> 3) - (room >> 4) if room > LEAST_ROOM else LEAST_ROOM - 1


cdef inline void store(uint64_t *slots, uint32_t mask, uint64_t slot, uint32_t hash) noexcept:
    """Put a slot's contents where they are found."""
    cdef uint32_t at = hash & mask
    while slots[at]:
        at = at + 1 & mask
    slots[at] = slot


cdef bint rebuild(KeyIndex *index, uint32_t room) noexcept:
    """Change the number of slots. False: no memory, nothing has changed."""
    cdef uint64_t *slots = <uint64_t *>calloc(room, sizeof(uint64_t))
    cdef uint32_t at
    cdef uint64_t slot
    if slots is NULL:
        return False
    if index.slots is not NULL:
        for at in range(index.mask + 1):
            slot = index.slots[at]
            if slot:
                store(slots, room - 1, slot, (<KeyRecord>record_in(slot)).hash)
        free(index.slots)
    index.slots = slots
    index.mask = room - 1
    return True


cdef long long index_reserve(KeyIndex *index) except? -1:
    """Make room for one more record; how many bytes the index has grown by."""
    cdef uint32_t room = 0 if index.slots is NULL else index.mask + 1
    if room and index.count < most_in(room):
        return 0
    if not rebuild(index, 2 * room if room else LEAST_ROOM):
        raise MemoryError("no memory to find keys")
    return (<long long>index.mask + 1 - room) * <long long>sizeof(uint64_t)


cdef void index_put(KeyIndex *index, KeyRecord record) noexcept:
    """Add a record, for which there must be room."""
    cdef uint64_t address = <uint64_t><uintptr_t><PyObject *>record
    store(index.slots, index.mask, tag_of(record.hash) << TAG_SHIFT | address, record.hash)
    index.count += 1


cdef long long index_remove(KeyIndex *index, KeyRecord record) noexcept:
    """Remove a record, which must be there; how many bytes the index has shrunk by."""
    cdef uint64_t before = index_bytes(index)
    cdef uint32_t mask = index.mask
    cdef uint32_t hole = record.hash & mask
    cdef uint32_t at, home
    cdef uint64_t slot
    while record_in(index.slots[hole]) is not <PyObject *>record:
        hole = hole + 1 & mask
    at = hole
    while True:
        at = at + 1 & mask
        slot = index.slots[at]
        if slot == 0:
            break
        home = (<KeyRecord>record_in(slot)).hash & mask
        if (at - home & mask) >= (at - hole & mask):    # the hole is on its way from its home
            index.slots[hole] = slot
            hole = at
    index.slots[hole] = 0
    index.count -= 1
    if index.count == 0:
        index_clear(index)
    elif mask >= LEAST_ROOM and index.count < mask >> 2:
        rebuild(index, mask + 1 >> 1)   # when it cannot shrink, it stays
    return <long long>(before - index_bytes(index))


cdef void index_clear(KeyIndex *index) noexcept:
    """Free everything; it is empty."""
    free(index.slots)
    index.slots = NULL
    index.mask = 0
    index.count = 0
