# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Table: a hash table of records in an arena that grows and shrinks in small steps.

    hash of a key:  | depth bits | group | ...                            ... | tag |
                          |          |                                           |
                          v          v                                           v
    directory ---> segment: groups of 8 slots: tags  [t t t t t t t t] [t t ...          0: empty, 1: worn,
                                               handles [h h h h h h h h] [h h ...        from 128: a record

Extendible hashing: the directory has 2^depth places, one for each beginning of a hash, and several may share a segment.
A segment of at most 256 slots that is full is split in two; two halves with few records are merged. So no call moves
more than 224 records, however many there are, and only the directory, 8 bytes for some 180 records, is ever copied as a
whole.

A record lies in the first group with a free slot from the one that its hash names. A search looks at eight tags at a
time, and ends at a group with an empty slot. A record that is removed from a group without one leaves a worn slot, so
that the search for others goes on behind it.

Both the segment and the group follow from the first bits of the hash: the table is ordered by hash, group by group.
That is what a cursor is: a lower bound of the next hashes. It means the same however segments have been split or merged
since, so a scan misses nothing, repeats nothing, and needs no state.

Segments of a directory with more than one place all have 256 slots: a random slot of a random segment is fair.

Hashes are SipHash under a key that each process chooses for itself. Tests set it (`secret`) to repeat themselves.
Callers: the rooms of sets, hashes and sorted sets.
"""

import os

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

from streamd.engine.arena cimport (
    arena_alloc, arena_check, arena_clear, arena_copy, arena_drain, arena_end_drain, arena_forget, arena_is_draining,
    arena_move, arena_release, arena_resize,
)
from streamd.engine.listpack cimport lp_load64
from streamd.heap cimport free, malloc

__all__ = []

cdef enum:
    MOST_BITS = 5           # log2 of the groups of a full segment
    MOST_DEPTH = 27         # of the directory: with MOST_BITS, what a cursor of 32 bits can tell apart
    FEW = 96                # records of two segments that become one
    EMPTY = 0
    WORN = 1
    TAKEN = 0x80            # set in the tag of a record

cdef extern from *:
    int trailing_zeros "__builtin_ctzll"(unsigned long long value) noexcept nogil
    void prefetch "__builtin_prefetch"(const void *p) noexcept nogil

cdef uint64_t process_secret[3]
secret = process_secret


def _choose_secret():
    cdef bytes chosen = os.urandom(24)
    memcpy(secret, <char *>chosen, 24)


_choose_secret()


# --- Segments ---------------------------------------------------------------------------------------------------------


cdef inline unsigned int slots_of(const Segment *segment) noexcept nogil:
    return 8 << segment.bits


cdef inline unsigned int limit_of(unsigned int bits) noexcept nogil:
    """How many slots of a segment with this number of groups may be in use, worn ones included: seven eighths."""
    return 7 << bits


cdef inline uint8_t *tags_of(const Segment *segment) noexcept nogil:
    return <uint8_t *>segment + sizeof(Segment)


cdef inline uint32_t *handles_of(const Segment *segment) noexcept nogil:
    return <uint32_t *>(<uint8_t *>segment + sizeof(Segment) + slots_of(segment))


cdef inline size_t segment_bytes(unsigned int bits) noexcept nogil:
    return sizeof(Segment) + (<size_t>40 << bits)


cdef inline uint8_t tag_of(uint64_t hash) noexcept nogil:
    return <uint8_t>hash | TAKEN


cdef inline unsigned int group_of(const Segment *segment, uint64_t hash) noexcept nogil:
    """The group that a hash names: its bits behind those of the segment."""
    return <unsigned int>((hash << segment.depth >> 1) >> (63 - segment.bits))


cdef inline size_t place_of(const Table *table, uint64_t hash) noexcept nogil:
    """The place in the directory that a hash names."""
    return <size_t>((hash >> 1) >> (63 - table.depth))


cdef inline Segment *segment_of(const Table *table, uint64_t hash) noexcept nogil:
    return table.directory[place_of(table, hash)]


cdef inline uint64_t matches(uint64_t tags, uint8_t tag) noexcept nogil:
    """The high bits of those of eight tags that are `tag`, and perhaps of others behind one."""
    cdef uint64_t x = tags ^ (<uint64_t>0x0101010101010101 * tag)
    return (x - <uint64_t>0x0101010101010101) & ~x & <uint64_t>0x8080808080808080


cdef inline bint has_empty(uint64_t tags) noexcept nogil:
    return (tags - <uint64_t>0x0101010101010101) & ~tags & <uint64_t>0x8080808080808080 != 0


cdef inline uint64_t taken(uint64_t tags) noexcept nogil:
    """The high bits of those of eight tags that have a record."""
    return tags & <uint64_t>0x8080808080808080


cdef Segment *new_segment(Table *table, unsigned int depth, unsigned int bits) noexcept nogil:
    """An empty one; NULL: no memory."""
    cdef Segment *segment = <Segment *>malloc(segment_bytes(bits))
    if segment is not NULL:
        memset(segment, 0, sizeof(Segment) + (<size_t>8 << bits))
        segment.depth = <uint8_t>depth
        segment.bits = <uint8_t>bits
        table.held += segment_bytes(bits)
    return segment


cdef void free_segment(Table *table, Segment *segment) noexcept nogil:
    if segment is not NULL:
        table.held -= segment_bytes(segment.bits)
        free(segment)


cdef void put_slot(Segment *segment, uint64_t hash, uint32_t handle) noexcept nogil:
    """Add a handle to a segment with a free slot."""
    cdef uint8_t *tags = tags_of(segment)
    cdef unsigned int mask = (1 << segment.bits) - 1
    cdef unsigned int group = group_of(segment, hash)
    cdef uint64_t free_slots
    cdef unsigned int slot
    while True:
        free_slots = ~lp_load64(tags + 8 * group) & <uint64_t>0x8080808080808080
        if free_slots:
            break
        group = (group + 1) & mask
    slot = 8 * group + trailing_zeros(free_slots) // 8
    segment.worn -= tags[slot]      # WORN is 1, EMPTY is 0
    segment.live += 1
    tags[slot] = tag_of(hash)
    handles_of(segment)[slot] = handle


cdef int find_slot(const Segment *segment, uint64_t hash, uint32_t handle) noexcept nogil:
    """The slot with this handle; -1: not in this segment."""
    cdef const uint8_t *tags = tags_of(segment)
    cdef const uint32_t *handles = handles_of(segment)
    cdef unsigned int mask = (1 << segment.bits) - 1
    cdef unsigned int group = group_of(segment, hash)
    cdef unsigned int slot
    cdef uint64_t word, found
    while True:
        word = lp_load64(tags + 8 * group)
        found = matches(word, tag_of(hash))
        while found:
            slot = 8 * group + trailing_zeros(found) // 8
            if handles[slot] == handle:
                return <int>slot
            found &= found - 1
        if has_empty(word):
            return -1
        group = (group + 1) & mask


cdef inline uint64_t hash_at(const Table *table, uint32_t handle) noexcept nogil:
    """The hash of a record's key."""
    cdef size_t n
    cdef const uint8_t *key = table_key(table, handle, &n)
    return table_hash(key, n)


cdef void prefetch_records(const Table *table, const Segment *segment) noexcept nogil:
    """Fetch records that are about to be read, so that the cache misses overlap."""
    cdef unsigned int slot
    for slot in range(slots_of(segment)):
        if tags_of(segment)[slot] & TAKEN:
            prefetch(table_at(table, handles_of(segment)[slot]))


cdef void pour(const Table *table, const Segment *segment, Segment *zero, Segment *one) noexcept nogil:
    """Put the records of a segment into two others, by the next bit of their hashes; `one` may be `zero`."""
    cdef unsigned int slot
    cdef uint32_t handle
    cdef uint64_t hash
    prefetch_records(table, segment)
    for slot in range(slots_of(segment)):
        if tags_of(segment)[slot] & TAKEN:
            handle = handles_of(segment)[slot]
            hash = hash_at(table, handle)
            put_slot(one if hash << segment.depth >> 63 else zero, hash, handle)


# --- Growing and shrinking --------------------------------------------------------------------------------------------


cdef void point(Table *table, size_t place, unsigned int depth, Segment *segment) noexcept nogil:
    """Let all places whose first `depth` bits are those of `place` lead to a segment."""
    cdef size_t shared = <size_t>1 << (table.depth - depth)
    cdef size_t first = place & ~(shared - 1)
    cdef size_t at
    for at in range(first, first + shared):
        table.directory[at] = segment


cdef int double_directory(Table *table) noexcept nogil:
    """One more bit. -1: no memory."""
    cdef size_t count = <size_t>1 << table.depth
    cdef size_t at
    cdef Segment **doubled = <Segment **>malloc(2 * count * sizeof(Segment *))
    if doubled is NULL:
        return -1
    for at in range(count):
        doubled[2 * at] = doubled[2 * at + 1] = table.directory[at]
    free(table.directory)
    table.directory = doubled
    table.held += count * sizeof(Segment *)
    table.depth += 1
    table.deepest = 0
    return 0


cdef void halve_directory(Table *table) noexcept nogil:
    """One bit less, which no segment needs; without memory, later."""
    cdef size_t count = <size_t>1 << (table.depth - 1)
    cdef size_t at
    cdef Segment **halved = <Segment **>malloc(count * sizeof(Segment *))
    if halved is NULL:
        return
    table.depth -= 1
    for at in range(count):
        halved[at] = table.directory[2 * at]
        table.deepest += halved[at].depth == table.depth
    free(table.directory)
    table.directory = halved
    table.held -= count * sizeof(Segment *)


cdef int rebuild(Table *table, size_t place, unsigned int bits) noexcept nogil:
    """Another number of groups for a segment, and no worn slots. -1: no memory."""
    cdef Segment *old = table.directory[place]
    cdef Segment *new = new_segment(table, old.depth, bits)
    if new is NULL:
        return -1
    pour(table, old, new, new)
    point(table, place, old.depth, new)
    free_segment(table, old)
    return 0


cdef int split(Table *table, uint64_t hash) noexcept nogil:
    """Make two segments of the one that a hash names. -1: no memory."""
    cdef Segment *old = segment_of(table, hash)
    cdef Segment *zero
    cdef Segment *one
    cdef size_t place, half
    if old.depth == MOST_DEPTH or (old.depth == table.depth and double_directory(table) < 0):
        return -1
    zero = new_segment(table, old.depth + 1, MOST_BITS)
    one = new_segment(table, old.depth + 1, MOST_BITS)
    if zero is NULL or one is NULL:
        free_segment(table, zero)
        free_segment(table, one)
        return -1
    pour(table, old, zero, one)
    half = <size_t>1 << (table.depth - zero.depth)
    place = place_of(table, hash) & ~(2 * half - 1)
    point(table, place, zero.depth, zero)
    point(table, place + half, one.depth, one)
    free_segment(table, old)
    table.segments += 1
    if zero.depth == table.depth:
        table.deepest += 2
    return 0


cdef void merge(Table *table, size_t place) noexcept nogil:
    """Make one of a segment and its other half, if both have few records."""
    cdef Segment *one = table.directory[place]
    cdef Segment *other = table.directory[place ^ <size_t>1 << (table.depth - one.depth)]
    cdef Segment *merged
    if other.depth != one.depth or one.live + other.live > FEW:
        return
    merged = new_segment(table, one.depth - 1, MOST_BITS)
    if merged is NULL:
        return
    pour(table, one, merged, merged)
    pour(table, other, merged, merged)
    point(table, place, merged.depth, merged)
    table.segments -= 1
    if one.depth == table.depth:
        table.deepest -= 2
    free_segment(table, one)
    free_segment(table, other)
    if table.depth and table.deepest == 0:
        halve_directory(table)


cdef int make_room(Table *table, uint64_t hash) noexcept nogil:
    """A free slot in the segment that a hash names. -1: no memory."""
    cdef Segment *segment
    if table.directory is NULL:
        return begin(table, 0, 0)
    while True:
        segment = segment_of(table, hash)
        if segment.live + segment.worn < limit_of(segment.bits):
            return 0
        if segment.worn * 4 > segment.live:
            if rebuild(table, place_of(table, hash), segment.bits) < 0:
                return -1
        elif segment.bits < MOST_BITS:
            if rebuild(table, place_of(table, hash), segment.bits + 1) < 0:
                return -1
        elif split(table, hash) < 0:
            return -1


cdef int begin(Table *table, unsigned int depth, unsigned int bits) noexcept nogil:
    """The first segments, one for each place of the directory. -1: no memory."""
    cdef size_t count = <size_t>1 << depth
    cdef size_t at
    table.directory = <Segment **>malloc(count * sizeof(Segment *))
    if table.directory is NULL:
        return -1
    for at in range(count):
        table.directory[at] = new_segment(table, depth, bits)
        if table.directory[at] is NULL:
            while at:
                at -= 1
                free_segment(table, table.directory[at])
            free(table.directory)
            table.directory = NULL
            return -1
    table.held += count * sizeof(Segment *)
    table.depth = <uint8_t>depth
    table.segments = table.deepest = <uint32_t>count
    return 0


# --- One record -------------------------------------------------------------------------------------------------------


cdef void table_init(Table *table, uint32_t head) noexcept nogil:
    memset(table, 0, sizeof(Table))
    table.head = head


cdef int table_reserve(Table *table, uint64_t count) noexcept nogil:
    """Room for `count` records in a table that has none and never had any. -1: no memory."""
    cdef unsigned int bits = 0, depth = 0
    while bits < MOST_BITS and limit_of(bits) < count:
        bits += 1
    while depth < MOST_DEPTH and count >> depth > 190:      # few of the segments get more than 224
        depth += 1
    return begin(table, depth, bits) if table.directory is NULL and count else 0


cdef uint32_t table_find(const Table *table, uint64_t hash, const uint8_t *key, size_t n) noexcept nogil:
    """The record of a key, 0: none. O(1)."""
    cdef const Segment *segment
    cdef const uint8_t *tags
    cdef const uint32_t *handles
    cdef const uint8_t *other
    cdef unsigned int mask, group
    cdef uint32_t handle
    cdef uint64_t word, found
    cdef size_t length
    if table.directory is NULL:
        return 0
    segment = segment_of(table, hash)
    tags = tags_of(segment)
    if table.depth:                     # all tags, while the head, which says where to look, is waited for
        prefetch(tags + 64)
        prefetch(tags + 128)
        prefetch(tags + 192)
        prefetch(tags + 255)
    handles = handles_of(segment)
    mask = (1 << segment.bits) - 1
    group = group_of(segment, hash)
    prefetch(handles + 8 * group)       # on its way while the tags, in other lines, are waited for
    while True:
        word = lp_load64(tags + 8 * group)
        found = matches(word, tag_of(hash))
        while found:
            handle = handles[8 * group + trailing_zeros(found) // 8]
            other = table_key(table, handle, &length)
            if length == n and memcmp(other, key, n) == 0:
                return handle
            found &= found - 1
        if has_empty(word):
            return 0
        group = (group + 1) & mask


cdef uint8_t *table_add(Table *table, uint64_t hash, size_t size, uint32_t *handle) noexcept nogil:
    """A new record; NULL: no memory."""
    # Room first: splitting reads the keys of all records in the segment, and this one has none yet.
    if make_room(table, hash) < 0:
        return NULL
    handle[0] = arena_alloc(&table.arena, size)
    if handle[0] == 0:
        return NULL
    put_slot(segment_of(table, hash), hash, handle[0])
    table.count += 1
    return table_at(table, handle[0])


cdef uint8_t *table_resize(Table *table, uint64_t hash, uint32_t *handle, size_t size) noexcept nogil:
    """Another size for a record; NULL: no memory."""
    cdef uint32_t new = arena_resize(&table.arena, handle[0], size)
    cdef Segment *segment
    if new == 0:
        return NULL
    if new != handle[0]:
        segment = segment_of(table, hash)
        handles_of(segment)[find_slot(segment, hash, handle[0])] = new
        handle[0] = new
    return table_at(table, new)


cdef void table_remove(Table *table, uint64_t hash, uint32_t handle) noexcept nogil:
    """Remove a record, which must be there; move a few others if memory can be given back."""
    cdef size_t place = place_of(table, hash)
    cdef Segment *segment = table.directory[place]
    cdef int slot = find_slot(segment, hash, handle)
    cdef uint8_t *tags = tags_of(segment)
    if has_empty(lp_load64(tags + (slot & ~7))):
        tags[slot] = EMPTY
    else:
        tags[slot] = WORN
        segment.worn += 1
    segment.live -= 1
    table.count -= 1
    arena_release(&table.arena, handle)
    if table.depth:
        if segment.live < FEW:
            merge(table, place)
    elif segment.bits and segment.live * 8 <= slots_of(segment):
        rebuild(table, place, segment.bits - 1)
    if table.arena.draining:
        drain(table)
    elif arena_drain(&table.arena):
        table.drained = 0


cdef void drain(Table *table) noexcept nogil:
    """Move the records of one more segment out of chunks that are being emptied."""
    cdef Segment *segment = segment_of(table, table.drained << 32)
    cdef uint32_t *handles = handles_of(segment)
    cdef unsigned int slot
    cdef uint32_t old, new
    for slot in range(slots_of(segment)):
        if not tags_of(segment)[slot] & TAKEN or not arena_is_draining(&table.arena, handles[slot]):
            continue
        old = handles[slot]
        new = arena_move(&table.arena, old)
        if new == 0:
            continue
        handles[slot] = new
        if table.moved is not NULL:
            table.moved(table.owner, old, new)
        arena_forget(&table.arena, old)
    table.drained = (table.drained >> (32 - segment.depth)) + 1 << (32 - segment.depth)
    if table.drained >> 32:
        arena_end_drain(&table.arena)


cdef int table_put(Table *table, const uint8_t *key, size_t n) noexcept nogil:
    """Add a record that is only a key. 1: added; 0: it was there; -1: no memory."""
    cdef uint64_t hash = table_hash(key, n)
    cdef uint32_t handle
    cdef uint8_t *record
    if table_find(table, hash, key, n):
        return 0
    record = table_add(table, hash, key_room(n) + n, &handle)
    if record is NULL:
        return -1
    put_key(record, key, n)
    return 1


cdef bint table_discard(Table *table, const uint8_t *key, size_t n) noexcept nogil:
    """Remove the record of a key; returns whether it was there."""
    cdef uint64_t hash = table_hash(key, n)
    cdef uint32_t handle = table_find(table, hash, key, n)
    if handle:
        table_remove(table, hash, handle)
    return handle != 0


# --- All records ------------------------------------------------------------------------------------------------------


cdef uint32_t table_next(const Table *table, TableWalk *walk) noexcept nogil:
    """The next record; 0: the end."""
    cdef const Segment *segment
    cdef unsigned int slot
    if table.directory is NULL:
        return 0
    while walk.segment >> table.depth == 0:
        segment = table.directory[walk.segment]
        slot = walk.slot
        while slot < slots_of(segment):
            if tags_of(segment)[slot] & TAKEN:
                walk.slot = slot + 1
                return handles_of(segment)[slot]
            slot += 1
        walk.slot = 0
        walk.segment += <uint64_t>1 << (table.depth - segment.depth)
        if walk.segment >> table.depth == 0:
            prefetch_records(table, table.directory[walk.segment])
    return 0


cdef uint64_t table_scan(const Table *table, uint64_t cursor, uint32_t *handles, uint32_t *count) noexcept nogil:
    """The records whose hashes start at the cursor and are of its group; the next cursor, 0: the end."""
    cdef const Segment *segment
    cdef unsigned int mask, group, slot, width, _tried
    cdef uint64_t word, left, hash, bound
    cdef uint32_t handle
    count[0] = 0
    cursor &= <uint64_t>0xFFFFFFFF
    if table.directory is NULL:
        return 0
    segment = segment_of(table, cursor << 32)
    mask = (1 << segment.bits) - 1
    width = 32 - segment.depth - segment.bits
    bound = ((cursor >> width) + 1) << width
    group = group_of(segment, cursor << 32)
    for _tried in range(mask + 1):
        word = lp_load64(tags_of(segment) + 8 * group)
        left = taken(word)
        while left:
            slot = 8 * group + trailing_zeros(left) // 8
            handle = handles_of(segment)[slot]
            hash = hash_at(table, handle) >> 32
            if cursor <= hash < bound:
                handles[count[0]] = handle
                count[0] += 1
            left &= left - 1
        if has_empty(word):
            break
        group = (group + 1) & mask
    return 0 if bound >> 32 else bound


cdef inline uint64_t random_word() noexcept nogil:
    """The next of a sequence of random numbers (SplitMix64)."""
    cdef uint64_t x
    secret[2] += <uint64_t>0x9E3779B97F4A7C15
    x = secret[2]
    x = (x ^ x >> 30) * <uint64_t>0xBF58476D1CE4E5B9
    x = (x ^ x >> 27) * <uint64_t>0x94D049BB133111EB
    return x ^ x >> 31


cdef uint64_t random_below(uint64_t bound) noexcept nogil:
    """A number from 0 to bound - 1, each as likely."""
    cdef uint64_t reach = <uint64_t>0xFFFFFFFFFFFFFFFF // bound * bound
    cdef uint64_t x = random_word()
    while x >= reach:
        x = random_word()
    return x % bound


cdef uint32_t table_random(const Table *table) noexcept nogil:
    """A record, each as likely; 0: the table is empty."""
    cdef const Segment *segment
    cdef uint64_t random, place
    cdef unsigned int slot
    if table.count == 0:
        return 0
    while True:
        random = random_word()
        place = (random >> 1) >> (63 - table.depth)
        segment = table.directory[place]
        if place & (((<uint64_t>1) << (table.depth - segment.depth)) - 1):
            continue        # a segment with several places in the directory counts once
        slot = <unsigned int>random & (slots_of(segment) - 1)
        if tags_of(segment)[slot] & TAKEN:
            return handles_of(segment)[slot]


cdef int table_copy(Table *to, const Table *table) noexcept nogil:
    """Make a copy. -1: no memory, `to` is empty."""
    cdef uint64_t at = 0
    cdef size_t size
    cdef const Segment *segment
    cdef Segment *made
    table_init(to, table.head)
    if table.directory is NULL:
        return 0
    if arena_copy(&to.arena, &table.arena) < 0:
        return -1
    to.directory = <Segment **>malloc(sizeof(Segment *) << table.depth)
    if to.directory is NULL:
        arena_clear(&to.arena)
        return -1
    memset(to.directory, 0, sizeof(Segment *) << table.depth)
    to.depth = table.depth
    to.held = sizeof(Segment *) << table.depth
    while at >> table.depth == 0:
        segment = table.directory[at]
        size = segment_bytes(segment.bits)
        made = <Segment *>malloc(size)
        if made is NULL:
            table_clear(to)
            return -1
        memcpy(made, segment, size)
        to.held += size
        point(to, at, segment.depth, made)
        at += <uint64_t>1 << (table.depth - segment.depth)
    to.count = table.count
    to.segments = table.segments
    to.deepest = table.deepest
    return 0


cdef void table_clear(Table *table) noexcept nogil:
    """Free everything."""
    cdef uint64_t at = 0
    cdef Segment *segment
    while table.directory is not NULL and at >> table.depth == 0:
        segment = table.directory[at]
        if segment is NULL:
            break           # a copy that was not finished
        at += <uint64_t>1 << (table.depth - segment.depth)
        free(segment)
    free(table.directory)
    arena_clear(&table.arena)
    table.directory = NULL
    table.count = table.held = table.drained = 0
    table.segments = table.deepest = 0
    table.depth = 0


cdef const char *table_check(const Table *table) noexcept nogil:
    """NULL, or which invariant does not hold. O(n)."""
    cdef uint64_t at = 0, count = 0, held = 0, segments = 0, deepest = 0, records = 0, place, hash
    cdef const Segment *segment
    cdef unsigned int slot, live, worn
    cdef uint32_t number
    cdef uint8_t tag
    cdef size_t n
    cdef const uint8_t *key
    for number in range(1, table.arena.count):
        records += table.arena.chunks[number].live
    if records != table.count:
        return b"the arena has not as many records as the table"
    if table.directory is NULL:
        if table.count or table.held:
            return b"records without a directory"
        return arena_check(&table.arena)
    held = sizeof(Segment *) << table.depth
    while at >> table.depth == 0:
        segment = table.directory[at]
        if segment.depth > table.depth or at & (((<uint64_t>1) << (table.depth - segment.depth)) - 1):
            return b"a segment has another depth than its places in the directory"
        if table.depth and segment.bits != MOST_BITS:
            return b"one of several segments is small"
        for place in range(at, at + (<uint64_t>1 << (table.depth - segment.depth))):
            if table.directory[place] is not segment:
                return b"the places of a segment differ"
        live = worn = 0
        for slot in range(slots_of(segment)):
            tag = tags_of(segment)[slot]
            worn += tag == WORN
            if not tag & TAKEN:
                if tag > WORN:
                    return b"an unknown tag"
                continue
            live += 1
            key = table_key(table, handles_of(segment)[slot], &n)
            hash = table_hash(key, n)
            if tag != tag_of(hash) or segment_of(table, hash) is not segment:
                return b"a record has another hash than its place says"
            if table_find(table, hash, key, n) != handles_of(segment)[slot]:
                return b"a record is not found"
        if live != segment.live or worn != segment.worn:
            return b"a segment counts its slots wrong"
        if live + worn > limit_of(segment.bits):
            return b"a segment is too full"
        count += live
        segments += 1
        deepest += segment.depth == table.depth
        held += segment_bytes(segment.bits)
        at += <uint64_t>1 << (table.depth - segment.depth)
    if count != table.count or segments != table.segments or deepest != table.deepest or held != table.held:
        return b"the totals of the table are not the sums of its segments"
    return arena_check(&table.arena)
