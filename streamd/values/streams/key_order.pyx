# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""KeyOrder: the pending entries of a group that is ordered by key, by key.

    entries   ID -> OrderedEntry
    keys      hash of the key -> OrderedKey:   in flight: 1    passed over: 7-0 ⇄ 9-0 ⇄ 12-0
    free      keys with nothing in flight and something passed over, the one first that has been free for longest

An entry is in flight from its first delivery until it is pending no longer, or was deleted; those that failed or were
given back are, too. An entry was passed over if it is pending although it was never delivered: without an owner, with a
delivery count of 0.

Nothing here knows the group or the stream. Whoever changes a pending entry, or deletes an entry, notes its ID, at the
cost of 16 bytes; before the next decision the noted IDs are looked up in both (ruled_group.pyx), and the result is put
here, or forgotten. What is pending and may be in the archive alone is `unread` until its key has been read from there.
So it does not matter which command has changed what. If more is noted than a look at all pending
entries would cost, that is what is done instead, as for an order that is new.

Time: O(1), but for an entry that is put among those passed over and is neither the first nor the last of its key.

Invariants: check_invariants.
"""

cimport cython
from libc.stdint cimport uint64_t

from streamd.engine.ids cimport StreamID, id_cmp
from streamd.heap cimport calloc, free, malloc, realloc

__all__ = ["KeyOrder"]

cdef enum:
    FEWEST_PLACES = 16         # of a table
    FEW_CHANGES = 1000         # that are noted in any case


# --- Tables of records by hash ----------------------------------------------------------------------------------------

cdef bint rehash(HashTable *table, size_t places) noexcept nogil:
    """Give a table another number of places, a power of two that is enough; False, with no change, without memory."""
    cdef HashTable wider
    cdef size_t i
    wider.at = <Hashed **>calloc(places, sizeof(Hashed *))
    if wider.at is NULL:
        return False
    wider.mask = places - 1
    wider.count = 0
    if table.at is not NULL:
        for i in range(table.mask + 1):
            if table.at[i] is not NULL:
                place(&wider, table.at[i])
        free(table.at)
    table[0] = wider
    return True


cdef inline void place(HashTable *table, Hashed *record) noexcept nogil:
    cdef size_t i = record.hash & table.mask
    while table.at[i] is not NULL:
        i = (i + 1) & table.mask
    table.at[i] = record
    table.count += 1


cdef inline bint table_add(HashTable *table, Hashed *record) noexcept nogil:
    """Add a record; False, with no change, without memory."""
    cdef size_t places = 0 if table.at is NULL else table.mask + 1
    if 2 * (table.count + 1) > places and not rehash(table, 2 * places if places else FEWEST_PLACES):
        return False
    place(table, record)
    return True


cdef inline void table_remove(HashTable *table, const Hashed *record) noexcept nogil:
    cdef size_t mask = table.mask
    cdef size_t hole = record.hash & mask
    cdef size_t i
    while table.at[hole] != record:
        hole = (hole + 1) & mask
    i = (hole + 1) & mask
    while table.at[i] is not NULL:
        # A record fills the hole unless its own place is behind that.
        if ((i - table.at[i].hash) & mask) >= ((i - hole) & mask):
            table.at[hole] = table.at[i]
            hole = i
        i = (i + 1) & mask
    table.at[hole] = NULL
    table.count -= 1
    if mask >= 2 * FEWEST_PLACES and 8 * table.count < mask:
        rehash(table, (mask + 1) // 2)          # without memory it stays as it is


cdef void table_clear(HashTable *table) noexcept nogil:
    """Free all records, and the table."""
    cdef size_t i
    if table.at is not NULL:
        for i in range(table.mask + 1):
            free(table.at[i])
        free(table.at)
    table.at = NULL
    table.mask = table.count = 0


cdef inline uint64_t hash_of(StreamID id) noexcept nogil:
    cdef uint64_t hash = (id.ms * <uint64_t>0x9E3779B97F4A7C15) ^ (id.seq * <uint64_t>0xBF58476D1CE4E5B9)
    return hash ^ (hash >> 32)


# --- The order --------------------------------------------------------------------------------------------------------

@cython.final
@cython.no_gc
cdef class KeyOrder:
    """An order that has to be built.

    field  the field of an entry that is its key
    """

    def __init__(self, bytes field not None):
        self.field = field
        self.is_lost = True
        self.unread = set()

    def __dealloc__(self):
        self.clear()

    cdef void clear(self) noexcept nogil:
        table_clear(&self.entries)
        table_clear(&self.keys)
        free(self.changed)
        self.changed = NULL
        self.changed_count = self.changed_room = 0
        self.passed_over = 0
        self.first_free = self.last_free = NULL
        self.is_lost = True

    cdef size_t memory(self) noexcept nogil:
        """Bytes malloc'ed."""
        cdef size_t places = (self.entries.mask + 1 if self.entries.at is not NULL else 0) + (
            self.keys.mask + 1 if self.keys.at is not NULL else 0
        )
        return (
            places * sizeof(void *) + self.entries.count * sizeof(OrderedEntry) + self.keys.count * sizeof(OrderedKey)
            + self.changed_room * sizeof(StreamID)
        )

    cdef void note(self, StreamID id) noexcept nogil:
        cdef StreamID *changed
        if self.is_lost:
            return
        if self.changed_count == self.changed_room:
            changed = NULL
            if self.changed_count < FEW_CHANGES + 4 * self.entries.count:
                changed = <StreamID *>realloc(self.changed, (2 * self.changed_room + 16) * sizeof(StreamID))
            if changed is NULL:
                self.clear()
                return
            self.changed = changed
            self.changed_room = 2 * self.changed_room + 16
        self.changed[self.changed_count] = id
        self.changed_count += 1

    # --- Queries ------------------------------------------------------------------------------------------------------

    cdef OrderedEntry *find(self, StreamID id) noexcept nogil:
        cdef uint64_t hash = hash_of(id)
        cdef size_t i
        cdef OrderedEntry *entry
        if self.entries.count == 0:
            return NULL
        i = hash & self.entries.mask
        while True:
            entry = <OrderedEntry *>self.entries.at[i]
            if entry is NULL or (entry.hash == hash and id_cmp(entry.id, id) == 0):
                return entry
            i = (i + 1) & self.entries.mask

    cdef bint is_taken(self, uint64_t key) noexcept nogil:
        return find_key(&self.keys, key) is not NULL

    cdef OrderedEntry *first_in_turn(self) noexcept nogil:
        return NULL if self.first_free is NULL else self.first_free.first

    # --- Changes ------------------------------------------------------------------------------------------------------

    cdef int put(self, StreamID id, uint64_t key, bint is_passed_over, bint is_archived=False) except -1 nogil:
        """Record that an entry with this key is pending, whatever was known of it."""
        cdef OrderedEntry *entry = self.find(id)
        if entry is not NULL:
            if entry.is_passed_over == is_passed_over and entry.key.hash == key:
                entry.is_archived = is_archived
                return 0
            self.forget(id)
        entry = <OrderedEntry *>malloc(sizeof(OrderedEntry))
        if entry is NULL:
            return no_memory()
        entry.hash = hash_of(id)
        entry.id = id
        entry.is_passed_over = is_passed_over
        entry.is_archived = is_archived
        if not table_add(&self.entries, <Hashed *>entry):
            free(entry)
            return no_memory()
        entry.key = find_key(&self.keys, key)
        if entry.key is NULL:
            entry.key = self.add_key(key)
        if entry.key is NULL:
            table_remove(&self.entries, <Hashed *>entry)
            free(entry)
            return no_memory()
        if is_passed_over:
            self.enter(entry)
        else:
            entry.key.in_flight += 1
        self.settle(entry.key)
        return 0

    cdef void forget(self, StreamID id) noexcept nogil:
        cdef OrderedEntry *entry = self.find(id)
        if entry is NULL:
            return
        if entry.is_passed_over:
            self.leave(entry)
        else:
            entry.key.in_flight -= 1
        self.settle(entry.key)
        table_remove(&self.entries, <Hashed *>entry)
        free(entry)

    cdef OrderedKey *add_key(self, uint64_t hash) noexcept nogil:
        """A new key, which has no entries yet; NULL without memory."""
        cdef OrderedKey *key = <OrderedKey *>calloc(1, sizeof(OrderedKey))
        if key is not NULL:
            key.hash = hash
            if table_add(&self.keys, <Hashed *>key):
                return key
            free(key)
        return NULL

    cdef void enter(self, OrderedEntry *entry) noexcept nogil:
        """Put an entry among those of its key that were passed over."""
        cdef OrderedKey *key = entry.key
        cdef OrderedEntry *before = key.last
        if key.first is not NULL and id_cmp(entry.id, key.first.id) < 0:
            before = NULL
        while before is not NULL and id_cmp(before.id, entry.id) > 0:
            before = before.previous
        entry.previous = before
        entry.next = key.first if before is NULL else before.next
        if entry.next is NULL:
            key.last = entry
        else:
            entry.next.previous = entry
        if before is NULL:
            key.first = entry
        else:
            before.next = entry
        self.passed_over += 1

    cdef void leave(self, OrderedEntry *entry) noexcept nogil:
        cdef OrderedKey *key = entry.key
        if entry.next is NULL:
            key.last = entry.previous
        else:
            entry.next.previous = entry.previous
        if entry.previous is NULL:
            key.first = entry.next
        else:
            entry.previous.next = entry.next
        self.passed_over -= 1

    cdef void settle(self, OrderedKey *key) noexcept nogil:
        """Have a key in the list of free ones if it is free, and drop it if nothing of it is pending."""
        cdef bint is_free = key.in_flight == 0 and key.first is not NULL
        if is_free and not key.is_free:
            key.next = NULL
            key.previous = self.last_free
            if key.previous is NULL:
                self.first_free = key
            else:
                key.previous.next = key
            self.last_free = key
        elif key.is_free and not is_free:
            if key.previous is NULL:
                self.first_free = key.next
            else:
                key.previous.next = key.next
            if key.next is NULL:
                self.last_free = key.previous
            else:
                key.next.previous = key.previous
        key.is_free = is_free
        if key.in_flight == 0 and key.first is NULL:
            table_remove(&self.keys, <Hashed *>key)
            free(key)

    # --- For tests ----------------------------------------------------------------------------------------------------

    def check_invariants(self):
        """Walk everything and raise AssertionError where the order contradicts itself."""
        cdef OrderedEntry *entry
        cdef OrderedKey *key
        cdef size_t i, passed_over = 0, pending = 0, free_keys = 0, listed = 0
        for i in range(self.entries.mask + 1 if self.entries.at is not NULL else 0):
            entry = <OrderedEntry *>self.entries.at[i]
            if entry is not NULL:
                assert self.find(entry.id) == entry, "an entry is not found"
                assert find_key(&self.keys, entry.key.hash) == entry.key, "the key of an entry is not found"
        for i in range(self.keys.mask + 1 if self.keys.at is not NULL else 0):
            key = <OrderedKey *>self.keys.at[i]
            if key is NULL:
                continue
            assert key.in_flight or key.first is not NULL, "a key without entries"
            assert key.is_free == (key.in_flight == 0), "whether a key is free"
            free_keys += key.is_free
            pending += key.in_flight
            entry = key.first
            while entry is not NULL:
                assert entry.is_passed_over and entry.key == key, "another entry among those of a key"
                assert entry.previous is NULL or id_cmp(entry.previous.id, entry.id) < 0, "entries by ID"
                assert entry.next is not NULL or key.last == entry, "the last entry of a key"
                passed_over += 1
                entry = entry.next
        key = self.first_free
        while key is not NULL:
            assert key.is_free and (key.next is not NULL or self.last_free == key), "the list of free keys"
            listed += 1
            key = key.next
        assert listed == free_keys, f"{listed} free keys in the list, {free_keys} in all"
        assert passed_over == self.passed_over, f"{passed_over} entries passed over, not {self.passed_over}"
        assert passed_over + pending == self.entries.count, f"{passed_over + pending} entries, not {self.entries.count}"


cdef inline OrderedKey *find_key(const HashTable *keys, uint64_t hash) noexcept nogil:
    cdef size_t i
    cdef OrderedKey *key
    if keys.count == 0:
        return NULL
    i = hash & keys.mask
    while True:
        key = <OrderedKey *>keys.at[i]
        if key is NULL or key.hash == hash:
            return key
        i = (i + 1) & keys.mask


cdef int no_memory() except -1 with gil:
    raise MemoryError("no memory for the order by key")
