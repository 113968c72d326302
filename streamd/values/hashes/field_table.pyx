# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Fields and values in a hash table: hashes that are not small.

A record of the table is a field with all that belongs to it:

    +------------------+--------------------+-----------------+----------------+-------+
    | length and field | length of value, T | expiry, 8 bytes | place, 4 bytes | value |       see engine/table.pxd;
    |                  | 1, 2 or 5 bytes    |       only if T is set           |       |       expiry: Unix time in ms
    +------------------+--------------------+-----------------+----------------+-------+

    0Tvvvvvv                    value of 0 .. 63 bytes
    10Tvvvvv vvvvvvvv           value of 64 .. 8191 bytes, high bits first
    11T00000 and 4 bytes        value of any length

Expiry and place are in the machine's byte order. A field without expiry costs nothing for it. Those with one are in a
binary heap, `times`, ordered by time; `place` is where they are in it, so that an expiry changes or goes in O(log n),
and the heap always leads to the records that are due.
The table moves records to return memory: `moved` keeps the heap up to date.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from streamd.engine.listpack cimport LpValue
from streamd.engine.table cimport (
    TableWalk, key_room, put_key, table_add, table_check, table_clear, table_copy, table_find,
    table_hash, table_init, table_key, table_memory, table_next, table_remove, table_reserve, table_resize,
)
from streamd.heap cimport calloc, free, malloc, realloc
from streamd.numbers cimport INT64_ROOM, put_int64
from streamd.values.hashes.pairs cimport NEVER

__all__ = []

cdef enum:
    TIMED = 12                 # bytes of expiry and place
    LEAST_ROOM = 16


# --- Records ----------------------------------------------------------------------------------------------------------


cdef inline size_t head_room(uint64_t n) noexcept nogil:
    """Bytes of the head of a value of n bytes."""
    return 1 if n < 64 else 2 if n < 8192 else 5


cdef inline uint8_t *put_head(uint8_t *p, uint64_t n, bint is_timed) noexcept nogil:
    """Write the head of a value; returns its end."""
    if n < 64:
        p[0] = <uint8_t>n | (0x40 if is_timed else 0)
        return p + 1
    if n < 8192:
        p[0] = 0x80 | <uint8_t>(n >> 8) | (0x20 if is_timed else 0)
        p[1] = <uint8_t>n
        return p + 2
    p[0] = 0xE0 if is_timed else 0xC0
    p[1] = <uint8_t>n
    p[2] = <uint8_t>(n >> 8)
    p[3] = <uint8_t>(n >> 16)
    p[4] = <uint8_t>(n >> 24)
    return p + 5


cdef inline const uint8_t *get_head(const uint8_t *p, uint64_t *n, bint *is_timed) noexcept nogil:
    """Read the head of a value; returns its end."""
    cdef uint8_t b = p[0]
    if b < 0x80:
        n[0] = b & 0x3F
        is_timed[0] = b & 0x40 != 0
        return p + 1
    is_timed[0] = b & 0x20 != 0
    if b < 0xC0:
        n[0] = <uint64_t>(b & 0x1F) << 8 | p[1]
        return p + 2
    n[0] = p[1] | <uint64_t>p[2] << 8 | <uint64_t>p[3] << 16 | <uint64_t>p[4] << 24
    return p + 5


cdef inline uint8_t *timing_of(const FieldTable *fields, uint32_t handle) noexcept nogil:
    """Expiry and place of the record of a field that expires; NULL for any other."""
    cdef size_t n
    cdef uint64_t length
    cdef bint is_timed
    cdef const uint8_t *p = table_key(&fields.table, handle, &n)
    p = get_head(p + n, &length, &is_timed)
    return <uint8_t *>p if is_timed else NULL


cdef inline uint32_t place_of(const FieldTable *fields, uint32_t handle) noexcept nogil:
    cdef uint32_t place
    memcpy(&place, timing_of(fields, handle) + 8, 4)
    return place


cdef inline size_t text_of(LpValue *value, char *digits) noexcept nogil:
    """Let `value` be text, in `digits` if it is a number; returns its length."""
    if value.data is NULL:
        value.length = put_int64(digits, value.number)
        value.data = <const uint8_t *>digits
    return value.length


cdef void fields_read(const FieldTable *fields, uint32_t handle, HashItem *out) noexcept nogil:
    """Read the record with a handle."""
    cdef size_t n
    cdef bint is_timed
    cdef const uint8_t *p = table_key(&fields.table, handle, &n)
    out.field.data = p
    out.field.length = n
    p = get_head(p + n, &out.value.length, &is_timed)
    out.expire_at_ms = NEVER
    if is_timed:
        memcpy(&out.expire_at_ms, p, 8)
        p += TIMED
    out.value.data = p
    out.place = handle


cdef bint fields_find(const FieldTable *fields, const uint8_t *name, size_t n, HashItem *out) noexcept nogil:
    cdef uint32_t handle = table_find(&fields.table, table_hash(name, n), name, n)
    if handle == 0:
        return False
    fields_read(fields, handle, out)
    return True


# --- The heap of times ------------------------------------------------------------------------------------------------


cdef inline void put_time(FieldTable *fields, uint64_t place, FieldTime time) noexcept nogil:
    cdef uint32_t number = <uint32_t>place
    fields.times[place] = time
    memcpy(timing_of(fields, time.handle) + 8, &number, 4)


cdef void sift_up(FieldTable *fields, uint64_t place) noexcept nogil:
    """Move an element towards the root until its parent is not later."""
    cdef FieldTime moving = fields.times[place]
    cdef uint64_t parent
    while place > 0:
        parent = (place - 1) >> 1
        if fields.times[parent].at_ms <= moving.at_ms:
            break
        put_time(fields, place, fields.times[parent])
        place = parent
    put_time(fields, place, moving)


cdef void sift_down(FieldTable *fields, uint64_t place) noexcept nogil:
    """Move an element away from the root until no child is earlier."""
    cdef FieldTime moving = fields.times[place]
    cdef uint64_t child
    while True:
        child = 2 * place + 1
        if child >= fields.timed:
            break
        if child + 1 < fields.timed and fields.times[child + 1].at_ms < fields.times[child].at_ms:
            child += 1
        if fields.times[child].at_ms >= moving.at_ms:
            break
        put_time(fields, place, fields.times[child])
        place = child
    put_time(fields, place, moving)


cdef int reserve_time(FieldTable *fields) noexcept nogil:
    """Make room for one more time. -1: no memory."""
    cdef uint64_t room
    cdef FieldTime *moved
    if fields.timed < fields.room:
        return 0
    room = 2 * fields.room if fields.room else LEAST_ROOM
    moved = <FieldTime *>realloc(fields.times, room * sizeof(FieldTime))
    if moved is NULL:
        return -1
    fields.times = moved
    fields.room = room
    return 0


cdef void add_time(FieldTable *fields, uint32_t handle, int64_t at_ms) noexcept nogil:
    """Add a record whose expiry is written; there is room."""
    fields.times[fields.timed] = FieldTime(at_ms, handle)
    fields.timed += 1
    sift_up(fields, fields.timed - 1)


cdef void drop_time(FieldTable *fields, uint32_t handle) noexcept nogil:
    """Forget the time of a record, which is as it was."""
    cdef uint64_t hole = place_of(fields, handle)
    cdef FieldTime *moved
    fields.timed -= 1
    if hole != fields.timed:
        put_time(fields, hole, fields.times[fields.timed])
        sift_up(fields, hole)
        sift_down(fields, hole)
    if fields.room > 4 * LEAST_ROOM and fields.timed < fields.room >> 2:
        moved = <FieldTime *>realloc(fields.times, (fields.room >> 1) * sizeof(FieldTime))
        if moved is not NULL:  # when it cannot shrink, it stays
            fields.times = moved
            fields.room >>= 1


cdef void record_moved(void *owner, uint32_t old, uint32_t new) noexcept nogil:
    """The table has moved a record."""
    cdef FieldTable *fields = <FieldTable *>owner
    if fields.timed and timing_of(fields, new) is not NULL:
        fields.times[place_of(fields, new)].handle = new


cdef int64_t fields_due(const FieldTable *fields) noexcept nogil:
    return fields.times[0].at_ms if fields.timed else NEVER


# --- Changing ---------------------------------------------------------------------------------------------------------


cdef inline void put_rest(
    FieldTable *fields, uint8_t *p, uint32_t handle, LpValue value, int64_t expire_at_ms, uint32_t place
) noexcept nogil:
    """Write what follows the field of a record."""
    p = put_head(p, value.length, expire_at_ms != NEVER)
    if expire_at_ms != NEVER:
        memcpy(p, &expire_at_ms, 8)
        memcpy(p + 8, &place, 4)
        p += TIMED
    memcpy(p, value.data, value.length)


cdef int fields_add(FieldTable *fields, LpValue field, LpValue value, int64_t expire_at_ms) noexcept nogil:
    """Add a field that is not there yet."""
    cdef char digits[2 * INT64_ROOM]
    cdef size_t n = text_of(&field, digits)
    cdef size_t size = key_room(n) + n + head_room(text_of(&value, digits + INT64_ROOM)) + value.length
    cdef uint32_t handle = 0
    cdef uint8_t *record
    if expire_at_ms != NEVER:
        size += TIMED
        if reserve_time(fields) < 0:
            return -1
    record = table_add(&fields.table, table_hash(field.data, n), size, &handle)
    if record is NULL:
        return -1
    put_rest(fields, put_key(record, field.data, n), handle, value, expire_at_ms, 0)
    if expire_at_ms != NEVER:
        add_time(fields, handle, expire_at_ms)
    return 0


cdef int fields_set(FieldTable *fields, const HashItem *item, LpValue value, int64_t expire_at_ms) noexcept nogil:
    """Replace value, which must not be from this table, and expiry of a field."""
    cdef char digits[INT64_ROOM]
    cdef uint32_t handle = <uint32_t>item.place
    cdef size_t n = item.field.length
    cdef size_t size = key_room(n) + n + head_room(text_of(&value, digits)) + value.length
    cdef bint was_timed = item.expire_at_ms != NEVER
    cdef uint32_t place = 0
    cdef uint8_t *record
    if value.length == item.value.length and item.expire_at_ms == expire_at_ms:
        memcpy(<uint8_t *>item.value.data, value.data, value.length)     # the most frequent change
        return 0
    if expire_at_ms != NEVER:
        size += TIMED
        if not was_timed and reserve_time(fields) < 0:
            return -1
    if was_timed and expire_at_ms != NEVER:
        place = place_of(fields, handle)
    elif was_timed:
        # Out of the heap first: it must not lead to a record without a time. A failure puts it back, as there is room.
        drop_time(fields, handle)
    record = table_resize(&fields.table, table_hash(item.field.data, n), &handle, size)
    if record is NULL:
        if was_timed and expire_at_ms == NEVER:
            add_time(fields, handle, item.expire_at_ms)
        return -1
    put_rest(fields, record + key_room(n) + n, handle, value, expire_at_ms, place)
    if expire_at_ms != NEVER:
        if was_timed:
            fields.times[place] = FieldTime(expire_at_ms, handle)
            sift_up(fields, place)
            sift_down(fields, place_of(fields, handle))
        else:
            add_time(fields, handle, expire_at_ms)
    return 0


cdef int fields_set_expiry(FieldTable *fields, const HashItem *item, int64_t expire_at_ms) noexcept nogil:
    """Replace the expiry of a field."""
    cdef uint8_t *timing = timing_of(fields, <uint32_t>item.place)
    cdef LpValue value = item.value
    cdef uint8_t *copy
    cdef int done
    if timing is not NULL and expire_at_ms != NEVER:
        memcpy(timing, &expire_at_ms, 8)
        fields.times[place_of(fields, <uint32_t>item.place)].at_ms = expire_at_ms
        sift_up(fields, place_of(fields, <uint32_t>item.place))
        sift_down(fields, place_of(fields, <uint32_t>item.place))
        return 0
    if timing is NULL and expire_at_ms == NEVER:
        return 0
    copy = <uint8_t *>malloc(value.length + 1)
    if copy is NULL:
        return -1
    memcpy(copy, value.data, value.length)
    value.data = copy
    done = fields_set(fields, item, value, expire_at_ms)
    free(copy)
    return done


cdef void fields_remove(FieldTable *fields, const HashItem *item) noexcept nogil:
    if item.expire_at_ms != NEVER:
        drop_time(fields, <uint32_t>item.place)
    table_remove(&fields.table, table_hash(item.field.data, item.field.length), <uint32_t>item.place)


# --- All of it --------------------------------------------------------------------------------------------------------


cdef FieldTable *fields_new(uint64_t expected) noexcept nogil:
    """An empty one; `expected`: about how many fields will be added at once, 0: not known."""
    cdef FieldTable *fields = <FieldTable *>calloc(1, sizeof(FieldTable))
    if fields is NULL:
        return NULL
    table_init(&fields.table, 0)
    fields.table.moved = record_moved
    fields.table.owner = fields
    if expected and table_reserve(&fields.table, expected) < 0:
        fields_free(fields)
        return NULL
    return fields


cdef FieldTable *fields_copy(const FieldTable *fields) noexcept nogil:
    cdef FieldTable *copy = fields_new(0)
    if copy is NULL:
        return NULL
    if fields.timed:
        copy.times = <FieldTime *>malloc(fields.timed * sizeof(FieldTime))
        if copy.times is NULL:
            fields_free(copy)
            return NULL
        memcpy(copy.times, fields.times, fields.timed * sizeof(FieldTime))
        copy.timed = copy.room = fields.timed
    if table_copy(&copy.table, &fields.table) < 0:
        fields_free(copy)
        return NULL
    copy.table.moved = record_moved
    copy.table.owner = copy
    return copy


cdef void fields_free(FieldTable *fields) noexcept nogil:
    table_clear(&fields.table)
    free(fields.times)
    free(fields)


cdef uint64_t fields_memory(const FieldTable *fields) noexcept nogil:
    """Bytes of memory, all of them."""
    return sizeof(FieldTable) + table_memory(&fields.table) + fields.room * sizeof(FieldTime)


cdef const char *fields_check(const FieldTable *fields) noexcept nogil:
    cdef const char *wrong = table_check(&fields.table)
    cdef TableWalk walk
    cdef HashItem item
    cdef uint64_t timed = 0, place
    cdef uint32_t handle
    if wrong is not NULL:
        return wrong
    memset(&walk, 0, sizeof(walk))
    while True:
        handle = table_next(&fields.table, &walk)
        if handle == 0:
            break
        fields_read(fields, handle, &item)
        if item.expire_at_ms == NEVER:
            continue
        timed += 1
        place = place_of(fields, handle)
        if place >= fields.timed or fields.times[place].handle != handle:
            return b"a field that expires knows its place in the heap"
        if fields.times[place].at_ms != item.expire_at_ms:
            return b"the heap knows the time of a field"
        if place and fields.times[(place - 1) >> 1].at_ms > item.expire_at_ms:
            return b"no parent is later than its child"
    if timed != fields.timed or fields.timed > fields.room:
        return b"fields that expire are in the heap"
    return NULL
