# cython: language_level=3, boundscheck=False, wraparound=False
"""A database: its keys, their values, and when they expire.

Every key is one KeyRecord, which is found in two ways:

    shards     by key: SHARDS hash tables (key_index.pyx), chosen by the upper bits of the key's hash. A table is
               rebuilt whole when it grows; with many small ones, no rebuild is long enough to be noticed. A node of a
               cluster has one for each hash slot, so that the keys of a slot are found, counted and removed without a
               look at others. The tables own the records. RANDOMKEY draws one of all slots.
    deadlines  by time, those that expire: a binary heap whose elements carry the time, so that sifting looks at no
               record; each record knows its place in the heap, so that an expiry changes or goes in O(log n).

What must hold (check_invariants): every record is in exactly one shard, under its key; it has a place in the heap
exactly when it has an expiry; no parent in the heap is later than its child.

SCAN needs no state in the server. The place of a key is its shard and, in that, its tag: a number that follows from the
key alone, whatever the sizes of tables are. A walk goes from the highest place to the lowest one, and the cursor is the
number of places that have not been visited: keys at 0 .. cursor - 1 are still to come. So a key that is there from the
first call to the last is returned once. Keys with the same place are returned together, even if they are more than
were asked for. The cursor falls with each call, so a scan ends even when keys are added all the time; one that is too
high is that of the start.

Time is `now_ms`, set by the caller before each command. A key is expired when now_ms is greater than its time; it
counts as missing then, and is removed by the first that meets it, or by expire_due.

Values may have something to do at a time of their own, as hashes do whose fields expire: see timed_values.pyx.

Records are in key_record.pyx, the heap of deadlines in deadlines.pyx, what is noted of accesses in accesses.pyx, and
what is reported to the server in listener.pyx.

Values that take long to free go to `trash` (lazyfree.py). Clients that wait for a key are notified of every change made
here that may end their waiting: `signal_ready`. Behaviour: Redis 8.6, as seen on a running server.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.object cimport PyObject, PyObject_Hash
from libc.stdint cimport uint32_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memset

from streamd.heap cimport heap_bytes
from streamd.keyspace.deadlines cimport Deadline, expiry_of, is_due, wide
from streamd.keyspace.flushed cimport Detached
from streamd.keyspace.hash_slot cimport SLOTS, slot_of_text
from streamd.keyspace.key_index cimport (
    SHARDS, TAG_BITS, Found, KeyIndex, index_bytes, index_clear, index_find, index_next, index_put, index_remove,
    index_reserve, index_step, record_in, shard_of,
)
from streamd.keyspace.lazyfree import LazyFree
from streamd.keyspace.key_record cimport (
    ACCESS_CHANGES, ACCESS_FREQUENCY, LOOKUP_BYTES, NEW_USES, KeyRecord, accessed_of, free_record, hash_of,
    key_of, minute_of, new_record, put_value, record_size, set_accessed, take_value, value_of,
)
from streamd.keyspace.listener cimport (
    EVENT_EVICTED, EVENT_EXPIRED, EVENT_GENERIC, EVENT_KEY_MISS, EVENT_NEW, EVENT_OVERWRITTEN,
    EVENT_TYPE_CHANGED, KeyspaceListener,
)
from streamd.keyspace.timed_values cimport Timed, TimedValue, TimedValues, timed_size
from streamd.keyspace.value_type cimport NO_SIZE, ValueType, number_of, size_class as class_of, type_at

__all__ = [
    "RESERVED", "Database", "KeyView", "has_any_due", "has_due", "has_timed_due", "memory_in_use", "with_keys",
]

cdef enum:
    SLOT_TRIES = 32     # draws of slots, after which a shard is drawn by its number of records
    RANDOM_TRIES = 100  # draws of expired keys, all of which are still there, after which one of them will do

cdef KeyspaceListener NOBODY = KeyspaceListener()

cdef bytes RESERVED_PREFIX = b"streamd:rules:"

RESERVED = RESERVED_PREFIX
"""How the keys begin whose values the server reads itself, however they came: set, loaded, restored, renamed."""


cdef inline bint is_reserved(KeyRecord *record) noexcept:
    cdef Py_ssize_t size = PyBytes_GET_SIZE(RESERVED_PREFIX)
    return record.size > size and memcmp(record.text, PyBytes_AS_STRING(RESERVED_PREFIX), <size_t>size) == 0


@cython.final
cdef class Database:
    """The keys of one database.

    index   as SELECT numbers it
    ready   the dictionary of ready keys, shared by all databases of a server
    trash   LazyFree for large values, shared likewise
    """

    def __init__(self, int index=0, dict ready=None, trash=None):
        self.index = index
        self.waiters = {}
        self.ready = {} if ready is None else ready
        self.trash = LazyFree() if trash is None else trash
        self.touch_on_access = True
        self.listener = NOBODY
        self.shard_count = SHARDS

    def __dealloc__(self):
        self.drop_shards()
        free(self.sizes)

    # --- Slots -----------------------------------------------------------------------------------------------------

    def keep_by_slot(self):
        """Be the database of a node of a cluster: keep keys by hash slot. It must be empty."""
        if self.count:
            raise ValueError("only an empty database can begin to keep its keys by slot")
        self.drop_shards()
        self.by_slot = True
        self.shard_count = SLOTS

    cpdef Py_ssize_t count_in_slot(self, int slot) except -1:
        """Keys in a hash slot, including expired ones that were not accessed yet."""
        return 0 if self.shards is NULL else self.shards[slot].count

    def keys_in_slot(self, int slot, Py_ssize_t limit):
        """At most `limit` keys of a hash slot, in no order, as a list. O(limit)."""
        return self.keys_at(slot, limit)

    def used_slots(self):
        """The hash slots that have keys, ascending."""
        return [slot for slot in range(SLOTS) if self.count_in_slot(slot)]

    cdef bint is_shown(self, const KeyRecord *record) except -1:
        """Whether those who ask for any key, or all of them, are shown this one: its slot is served here."""
        return self.shown is None or self.shown[slot_of_text(<unsigned char *>record.text, record.size)] != 0

    def count_shown(self):
        """Keys in slots that are served here."""
        if self.shown is None:
            return self.count
        return sum([self.count_in_slot(slot) for slot in range(SLOTS) if self.shown[slot]])

    # --- Records -------------------------------------------------------------------------------------------------

    cdef KeyRecord *find_record(self, bytes key) except? NULL:
        """The record of a key, or NULL; expired or not."""
        cdef uint32_t hash
        cdef Py_ssize_t size, number
        if key is None:
            raise TypeError("a key is bytes, not None")
        if self.shards is NULL:
            return NULL
        hash = <uint32_t>PyObject_Hash(key)
        size = PyBytes_GET_SIZE(key)
        if not self.by_slot:
            number = shard_of(hash)
        elif <PyObject *>key == <PyObject *>self.hinted:
            number = self.hinted_slot
        else:
            number = slot_of_text(<unsigned char *>PyBytes_AS_STRING(key), size)
        return index_find(&self.shards[number], PyBytes_AS_STRING(key), size, hash)

    cdef KeyIndex *shard_with(self, const KeyRecord *record, uint32_t hash) noexcept:
        """The shard that a record belongs to; there must be shards."""
        if self.by_slot:
            return &self.shards[slot_of_text(<unsigned char *>record.text, record.size)]
        return &self.shards[shard_of(hash)]

    cdef int make_shards(self) except -1:
        """Make the shards, all empty."""
        self.shards = <KeyIndex *>calloc(self.shard_count, sizeof(KeyIndex))
        if self.shards is NULL:
            raise MemoryError("no memory to find keys")
        return 0

    cdef void drop_shards(self) noexcept:
        """Free the shards, if there are any."""
        cdef Py_ssize_t number
        if self.shards is not NULL:
            for number in range(self.shard_count):
                index_clear(&self.shards[number])
            free(self.shards)
            self.shards = NULL
            self.index_bytes = 0
            self.most_room = 0

    cdef KeyRecord *record_at(self, Py_ssize_t number, uint32_t *at) noexcept:
        """The next record of a shard from the place `at` on, or NULL. `at` is moved behind it."""
        return NULL if self.shards is NULL else index_next(&self.shards[number], at)

    cdef list keys_at(self, Py_ssize_t number, Py_ssize_t limit):
        """At most `limit` keys of a shard, in no order."""
        cdef list found = []
        cdef uint32_t at = 0
        cdef KeyRecord *record
        while len(found) < limit:
            record = self.record_at(number, &at)
            if record is NULL:
                break
            found.append(key_of(record))
        return found

    cdef KeyRecord *lookup(self, bytes key) except? NULL:
        """The record of a key, or NULL; an expired key is removed, unless removing waits."""
        cdef KeyRecord *record = self.find_record(key)
        if record is NULL:
            return NULL
        if is_due(self, record, self.now_ms) and not self.keeps_expired:
            if not self.holds_expired:
                self.expire(record)
            return NULL
        return record

    cdef int insert(self, bytes key, KeyRecord *record) except -1:
        """Give a new record its place in its shard; its key must be missing. A failure frees the record."""
        cdef KeyIndex *shard
        cdef uint32_t hash = <uint32_t>PyObject_Hash(key)
        try:
            if self.shards is NULL:
                self.make_shards()
            shard = self.shard_with(record, hash)
            if index_find(shard, record.text, record.size, hash) is not NULL:
                self.make_way(key)
            self.index_bytes += index_reserve(shard)
        except BaseException:
            free_record(record)
            raise
        self.index_bytes += index_put(shard, record, hash)
        self.most_room = max(self.most_room, shard.room)
        record.used_minute = minute_of(self.now_ms)
        self.weigh(record, 1)
        self.count += 1
        if is_reserved(record):
            self.note_reserved(record)
        return 0

    cdef int note_reserved(self, KeyRecord *record) except -1:
        """A reserved key has come."""
        if self.reserved is None:
            self.reserved = set()
        self.reserved.add(key_of(record))
        return 0

    cdef int forget_reserved(self, KeyRecord *record) except -1:
        """A reserved key goes."""
        self.reserved.remove(key_of(record))
        if not self.reserved:
            self.reserved = None
        return 0

    cdef int make_way(self, bytes key) except -1:
        """Remove a key that has expired, and is only there because removing waits; KeyError for any other."""
        if not self.is_overdue(key):
            raise KeyError(key)
        return self.expire(self.find_record(key))

    cdef object take_out(self, KeyRecord *record):
        """Take a record out of both structures, and free it; its value."""
        value_of(record)        # before anything changes: a closed value is opened, which may fail
        if record.deadline_at >= 0:
            self.drop_deadline(record)
        if is_reserved(record):
            self.forget_reserved(record)
        self.weigh(record, -1)
        self.index_bytes -= index_remove(self.shard_with(record, hash_of(record)), record)
        self.count -= 1
        value = take_value(record)
        free_record(record)
        return value

    cdef int weigh(self, KeyRecord *record, int sign) except -1:
        """Count the memory of a record, with its key and value, in (1) or out (-1)."""
        cdef int size_class = NO_SIZE
        cdef long long due
        cdef ValueType type = type_at(record.type_number)
        cdef object value = value_of(record)
        cdef Py_ssize_t weight = type.weigh(value, &size_class)
        if size_class != NO_SIZE:
            self.sizes_of(record.type_number)[size_class] += sign
        if type.is_timed:
            due = type.due(value) if sign > 0 else -1
            self.retime(None if due < 0 else key_of(record), <TimedValue?>value, due)
        self.object_bytes += sign * weight
        return 0

    cdef int resized(self, int number, Py_ssize_t before, Py_ssize_t after) except -1:
        """A value of a type with a number has changed its size."""
        cdef Py_ssize_t *sizes
        cdef int old = class_of(before), new = class_of(after)
        if old != new:
            sizes = self.sizes_of(number)
            sizes[old] -= 1
            sizes[new] += 1
        return 0

    cdef Py_ssize_t *sizes_of(self, int number) except NULL:
        """How many values of a type there are, by size class."""
        cdef Py_ssize_t *grown
        if number >= self.size_rows:
            grown = <Py_ssize_t *>realloc(self.sizes, (number + 1) * SIZE_CLASSES * sizeof(Py_ssize_t))
            if grown is NULL:
                raise MemoryError("no memory to count values by their size")
            self.sizes = grown
            memset(
                grown + self.size_rows * SIZE_CLASSES, 0,
                (number + 1 - self.size_rows) * SIZE_CLASSES * sizeof(Py_ssize_t),
            )
            self.size_rows = number + 1
        return self.sizes + number * SIZE_CLASSES

    def sizes_by_power(self, ValueType type not None):
        """How many values of a type there are of which size: (least size, values), each up to the next power of two."""
        cdef Py_ssize_t *sizes
        if type.number < 0:
            raise ValueError(f"the type {type.name.decode()} is not registered")
        sizes = self.sizes_of(type.number)
        return [(0 if size == 0 else 1 << (size - 1), sizes[size]) for size in range(SIZE_CLASSES) if sizes[size]]

    cdef int dispose(self, object value, int number) except -1:
        """Free a value that has left the database."""
        if type_at(number).frees_slowly:
            self.trash.release(value)
        return 0

    cdef int expire(self, KeyRecord *record) except -1:
        """Remove a key because its time has come."""
        cdef bytes key = key_of(record)
        cdef int number = record.type_number
        value = self.take_out(record)
        self.expired_keys += 1
        self.signal_ready(key)
        self.dispose(value, number)
        self.listener.key_removed(self, key)
        self.touched(key)
        self.event(EVENT_EXPIRED, b"expired", key)
        return 0

    cdef int overwrite(self, KeyRecord *record, bytes key, object value, int number) except -1:
        """Put another value in place under a key; what belonged to the old value goes with it, the expiry stays."""
        cdef int old_number = record.type_number
        old = value_of(record)
        self.weigh(record, -1)
        put_value(record, value, number)
        self.weigh(record, 1)
        record.hint = 0
        set_accessed(record, self.now_ms)
        self.signal_ready(key)
        self.touched(key)
        if old is not value:
            self.dispose(old, old_number)
        return 0

    cdef int signal_all(self) except -1:
        """Notify all waiting clients of this database."""
        for key in self.waiters:
            self.ready[(self, key)] = None
        return 0

    # --- Reporting changes ---------------------------------------------------------------------------------------

    cpdef int event(self, int kind, bytes event, bytes key) except -1:
        """Tell that something happened to a key: class (EVENT_*, EVENTS) and name of the event."""
        if self.listener.wanted & kind:
            self.listener.key_event(self, kind, event, key)
        return 0

    cpdef int touched(self, bytes key) except -1:
        """Report that a value changed. Changes of whole keys and of expiries are reported by the methods here."""
        if self.listener.wants_touched:
            self.listener.key_touched(self, key)
        if self.access_mode == ACCESS_CHANGES:
            self.note_change(key)
        return 0

    def note_change(self, bytes key not None):
        """Note that a key is changed now, where changes make keys young; watchers are not notified."""
        cdef KeyRecord *record = self.lookup(key)
        if record is not NULL:
            set_accessed(record, self.now_ms)

    cdef int tell_overwritten(self, bytes key, object old, object value) except -1:
        """Tell that a value has taken the place of another one."""
        if self.listener.wanted & (EVENT_OVERWRITTEN | EVENT_TYPE_CHANGED):
            self.event(EVENT_OVERWRITTEN, b"overwritten", key)
            if type(old) is not type(value):
                self.event(EVENT_TYPE_CHANGED, b"type_changed", key)
        return 0

    # --- How often a key is used ---------------------------------------------------------------------------------

    cpdef int frequency(self, bytes key) except -2:
        """How often a key is accessed, on a logarithmic scale from 0 to 255; -1 when it is missing. No access."""
        cdef KeyRecord *record = self.lookup(key)
        return -1 if record is NULL else self.decayed_uses(record)

    cpdef int set_access(self, bytes key, long long accessed_ms, int uses) except -1:
        """Note what another server knew of the accesses of a key: RESTORE. -1: nothing. KeyError: no such key."""
        cdef KeyRecord *record = self.lookup(key)
        if record is NULL:
            raise KeyError(key)
        if accessed_ms >= 0:
            set_accessed(record, accessed_ms)
        if 0 <= uses <= 255:
            record.uses = <unsigned char>uses
            record.used_minute = minute_of(self.now_ms)
        return 0

    # --- Which keys there are, at random -------------------------------------------------------------------------

    cdef Py_ssize_t below(self, Py_ssize_t bound) noexcept:
        """A random number below a bound of at most 2**32."""
        # Low bits of one roll determine low bits of the next: the product has high bits that do not show it.
        cdef unsigned long long number = self.roll() * <unsigned long long>0x2545F4914F6CDD1D >> 32
        return <Py_ssize_t>(number * <unsigned long long>bound >> 32)

    cdef KeyRecord *random_record(self, bint is_expiring) noexcept:
        """Any record, or any of those with an expiry; there must be one. Expired ones too.

        Each is as likely as the others: all shards count as if they had as many slots as the largest one, and a slot
        is drawn until it has a record; where that may take long, a shard by the number of its records, and then a slot.
        """
        cdef KeyIndex *shard
        cdef Py_ssize_t at, number = 0, left
        if is_expiring:
            return self.deadlines[self.below(self.deadline_count)].record
        for _ in range(SLOT_TRIES):
            shard = &self.shards[self.below(self.shard_count)]
            at = self.below(self.most_room)
            if at < shard.room and shard.slots[at]:
                return record_in(shard.slots[at])
        left = self.below(self.count)
        while left >= self.shards[number].count:
            left -= self.shards[number].count
            number += 1
        shard = &self.shards[number]
        while True:
            at = self.below(shard.room)
            if shard.slots[at]:
                return record_in(shard.slots[at])

    cdef KeyRecord *evictable_record(self, bint is_expiring) except? NULL:
        """As `random_record`, but of a slot that is shown, or NULL: keys that arrive from a node are not evicted."""
        cdef KeyRecord *record
        cdef Py_ssize_t first, slot
        cdef uint32_t at
        if self.shown is None:
            return self.random_record(is_expiring)
        for _ in range(RANDOM_TRIES):
            record = self.random_record(is_expiring)
            if self.is_shown(record):
                return record
        first = <Py_ssize_t>(self.roll() % SLOTS)
        for slot in range(SLOTS):
            slot = (first + slot) % SLOTS
            if self.shown[slot]:
                at = 0
                record = self.record_at(slot, &at)
                while record is not NULL:
                    if record.deadline_at >= 0 or not is_expiring:
                        return record
                    record = self.record_at(slot, &at)
        return NULL

    cdef KeyRecord *first_to_expire(self) except? NULL:
        """The record with the earliest deadline of those that may be evicted, or NULL."""
        cdef Py_ssize_t at, found = -1
        if self.deadline_count == 0:
            return NULL
        if self.shown is None or self.is_shown(self.deadlines[0].record):
            return self.deadlines[0].record
        for at in range(self.deadline_count):
            if (found < 0 or self.deadlines[at].at_ms < self.deadlines[found].at_ms) \
                    and self.is_shown(self.deadlines[at].record):
                found = at
        return NULL if found < 0 else self.deadlines[found].record

    # --- Keys and values -----------------------------------------------------------------------------------------

    cpdef object find(self, bytes key):
        """The value of a key for a command that reads it, or None. Counts a hit or a miss."""
        cdef KeyRecord *record = self.lookup(key)
        if record is NULL:
            self.misses += 1
            self.event(EVENT_KEY_MISS, b"keymiss", key)
            return None
        self.hits += 1
        if self.touch_on_access:
            self.note_use(record)
        return value_of(record)

    cpdef object find_untouched(self, bytes key, bint tells=True):
        """As find, for commands that look at a key without using it: no access is noted.

        tells  whether a missing key is reported
        """
        cdef KeyRecord *record = self.lookup(key)
        if record is NULL:
            self.misses += 1
            if tells:
                self.event(EVENT_KEY_MISS, b"keymiss", key)
            return None
        self.hits += 1
        return value_of(record)

    cpdef bint touch(self, bytes key) except -1:
        """Make now the access time of a key, whatever `touch_on_access` says; False, and a miss, when it is missing."""
        cdef KeyRecord *record = self.lookup(key)
        if record is NULL:
            self.misses += 1
            self.event(EVENT_KEY_MISS, b"keymiss", key)
            return False
        self.hits += 1
        self.note_use(record)
        return True

    cpdef object find_for_write(self, bytes key):
        """The value of a key for a command that may change it, or None. Counts neither hit nor miss."""
        cdef KeyRecord *record = self.lookup(key)
        if record is NULL:
            return None
        if self.touch_on_access:
            self.note_use(record)
        return value_of(record)

    cpdef object peek(self, bytes key):
        """The value of a key, or None; nothing is counted and the access time stays."""
        cdef KeyRecord *record = self.lookup(key)
        return None if record is NULL else value_of(record)

    cpdef bint is_overdue(self, bytes key) except -1:
        """Whether a key has expired but still exists because it was not accessed; it stays."""
        cdef KeyRecord *record = self.find_record(key)
        return record is not NULL and is_due(self, record, self.now_ms)

    cpdef int add(self, bytes key, object value) except -1:
        """Store a value under a key that is missing (KeyError when it is not); it has no expiry."""
        self.add_typed(key, value, number_of(value))
        return 0

    cdef KeyRecord *add_typed(self, bytes key, object value, int number) except NULL:
        """As add, of the type with a number; the new record."""
        cdef KeyRecord *record = new_record(key)
        put_value(record, value, number)
        set_accessed(record, self.now_ms)
        self.insert(key, record)
        self.signal_ready(key)
        self.touched(key)
        self.event(EVENT_NEW, b"new", key)
        return record

    cpdef int set(self, bytes key, object value, bint keep_expiry=False) except -1:
        """Store a value under a key, whatever it held. An expiry goes, unless `keep_expiry`."""
        return self.set_typed(key, value, number_of(value), keep_expiry)

    cdef int set_typed(self, bytes key, object value, int number, bint keep_expiry) except -1:
        """As set, of the type with a number."""
        cdef KeyRecord *record = self.lookup(key)
        if record is NULL:
            self.add_typed(key, value, number)
            return 0
        old = value_of(record)      # before anything changes, as in take_out
        if record.deadline_at >= 0 and not keep_expiry:
            self.drop_deadline(record)
        if self.access_mode == ACCESS_FREQUENCY and self.touch_on_access:
            self.note_use(record)
        self.overwrite(record, key, value, number)
        return self.tell_overwritten(key, old, value)

    cpdef bint delete(self, bytes key, bint tells=False) except -1:
        """Remove a key; False when it is missing.

        tells  whether to report the event `del`
        """
        cdef KeyRecord *record = self.lookup(key)
        cdef int number
        if record is NULL:
            return False
        number = record.type_number
        value = self.take_out(record)
        self.signal_ready(key)
        self.touched(key)
        self.dispose(value, number)
        if tells:
            self.event(EVENT_GENERIC, b"del", key)
        return True

    cdef int evict(self, bytes key) except -1:
        """Remove a key, which must be there, to make room; `report_evicted` must follow."""
        cdef KeyRecord *record = self.find_record(key)
        cdef int number = record.type_number
        value = self.take_out(record)
        self.evicted_keys += 1
        self.dispose(value, number)
        return 0

    cdef int report_evicted(self, bytes key) except -1:
        """The second step: report that a key was removed, which may take memory."""
        self.signal_ready(key)
        self.listener.key_removed(self, key)
        self.touched(key)
        self.event(EVENT_EVICTED, b"evicted", key)
        return 0

    def record(self, bytes key not None):
        """The KeyView of a key, or None; nothing is counted and the access time stays."""
        return None if self.lookup(key) is NULL else view_of(self, key)

    def __len__(self):
        """Keys, including expired ones that were not accessed yet, as DBSIZE counts them."""
        return self.count

    def __contains__(self, bytes key not None):
        return self.lookup(key) is not NULL

    # --- Whole keys: rename, move, copy --------------------------------------------------------------------------

    cdef int place(self, bytes key, object value, int number, int hint, long long expire_at_ms) except -1:
        """Store `value`, of the type with a number, under `key`, whatever `key` held; it counts as new.

        hint          of the new record
        expire_at_ms  Unix time in ms; -1: never
        """
        cdef KeyRecord *record = self.lookup(key)
        if record is NULL:
            record = new_record(key)
            put_value(record, value, number)
            self.insert(key, record)
            self.signal_ready(key)
            self.touched(key)
        else:
            self.overwrite(record, key, value, number)
        self.event(EVENT_NEW, b"new", key)
        set_accessed(record, self.now_ms)
        record.uses, record.used_minute = NEW_USES, minute_of(self.now_ms)
        record.hint = <unsigned char>hint
        if expire_at_ms >= 0:
            self.set_deadline(record, expire_at_ms)
            self.note_own_expiry(key)
        elif record.deadline_at >= 0:
            self.drop_deadline(record)
        return 0

    cdef bint relocate(self, KeyRecord *record, Database target, bytes key) except -1:
        """Take a record out and store its value, and what is known of it, under `key` of `target`."""
        cdef long long expire_at_ms = expiry_of(self, record)
        cdef bytes old_key = key_of(record)
        cdef int number = record.type_number
        cdef int hint = type_at(number).moved_hint(old_key, value_of(record), record.hint)
        value = self.take_out(record)
        self.signal_ready(old_key)
        self.touched(old_key)
        target.place(key, value, number, hint, expire_at_ms)
        return True

    cpdef bint rename(self, bytes key, bytes new_key) except -1:
        """Give a key another name, expiry and all; what was there is overwritten. False when `key` is missing."""
        cdef KeyRecord *target
        cdef KeyRecord *record = self.lookup(key)
        if new_key is None:
            raise TypeError("a key is bytes, not None")
        if record is NULL:
            return False
        if key == new_key:
            return True
        target = self.lookup(new_key)
        old = None if target is NULL else value_of(target)
        value = value_of(record)
        self.relocate(record, self, new_key)
        self.event(EVENT_GENERIC, b"rename_from", key)
        self.event(EVENT_GENERIC, b"rename_to", new_key)
        if old is not None:
            self.tell_overwritten(new_key, old, value)
        return True

    cpdef bint move(self, bytes key, Database target) except -1:
        """Move a key to another database; False when it is missing here or there already."""
        cdef KeyRecord *record = self.lookup(key)
        if target is None:
            raise TypeError("there is no database to move to")
        if record is NULL or target.lookup(key) is not NULL:
            return False
        self.relocate(record, target, key)
        self.event(EVENT_GENERIC, b"move_from", key)
        target.event(EVENT_GENERIC, b"move_to", key)
        return True

    cpdef bint copy(self, bytes key, Database target, bytes new_key) except -1:
        """Copy a key, with its expiry, over whatever is at `new_key` of `target`; False when it is missing.

        A key must not be copied to itself.
        """
        cdef KeyRecord *replaced
        cdef int number, hint
        cdef KeyRecord *record = self.lookup(key)
        if target is None:
            raise TypeError("there is no database to copy to")
        if record is NULL:
            return False
        replaced = target.lookup(new_key)
        old = None if replaced is NULL else value_of(replaced)
        number = record.type_number
        value = type_at(number).copy(value_of(record))
        hint = type_at(number).moved_hint(key, value, record.hint)
        target.place(new_key, value, number, hint, expiry_of(self, record))
        target.event(EVENT_GENERIC, b"copy_to", new_key)
        if old is not None:
            target.tell_overwritten(new_key, old, value)
        return True

    # --- Expiry --------------------------------------------------------------------------------------------------

    cpdef long long expiry(self, bytes key) except? -3:
        """When a key expires, as Unix time in ms; -1 when it does not, -2 when it is missing."""
        cdef KeyRecord *record = self.lookup(key)
        return -2 if record is NULL else expiry_of(self, record)

    cpdef bint set_expiry(self, bytes key, long long at_ms) except -1:
        """Let a key expire at a Unix time in ms (0 or later); False when it is missing."""
        cdef KeyRecord *record = self.lookup(key)
        if at_ms < 0:
            raise ValueError("an expiry is a Unix time in ms")
        if record is NULL:
            return False
        self.set_deadline(record, at_ms)
        self.note_own_expiry(key)
        self.touched(key)
        self.event(EVENT_GENERIC, b"expire", key)
        return True

    cdef int note_own_expiry(self, bytes key) except -1:
        """A key got an expiry; if not from the primary, this server has to remove it."""
        if self.own_expiries is not None and not self.keeps_expired:
            self.own_expiries.add(key)
        return 0

    cpdef bint persist(self, bytes key) except -1:
        """Take the expiry of a key away; False when it has none, or is missing."""
        cdef KeyRecord *record = self.lookup(key)
        if record is NULL or record.deadline_at < 0:
            return False
        self.drop_deadline(record)
        self.touched(key)
        self.event(EVENT_GENERIC, b"persist", key)
        return True

    cpdef long long expire_due(self, long long limit) except -1:
        """Remove keys whose time has come, the longest overdue first, but at most `limit`; how many they were."""
        cdef long long removed = 0
        while removed < limit and self.deadline_count and self.deadlines[0].at_ms < self.now_ms:
            self.expire(self.deadlines[0].record)
            removed += 1
        return removed

    def expire_own(self):
        """Remove those of `own_expiries` whose time has come; how many they were. O(own_expiries)."""
        cdef KeyRecord *record
        cdef long long removed = 0
        cdef bytes key
        for key in list(self.own_expiries or ()):
            record = self.find_record(key)
            if record is not NULL and record.deadline_at >= 0 and not is_due(self, record, self.now_ms):
                continue
            self.own_expiries.discard(key)
            if record is not NULL and record.deadline_at >= 0:
                self.expire(record)
                removed += 1
        return removed

    @property
    def expiring(self):
        """Keys that have an expiry."""
        return self.deadline_count

    @property
    def next_expiry_ms(self):
        """The earliest expiry, as Unix time in ms; -1 when no key has one."""
        return self.deadlines[0].at_ms if self.deadline_count else -1

    @property
    def avg_ttl(self):
        """Average time to live, in ms, of the keys that have an expiry; 0 when there is none. Exact, and O(1)."""
        cdef long long average
        if not self.deadline_count:
            return 0
        with cython.cdivision(True):
            average = <long long>(self.deadline_sum / self.deadline_count)
        return max(0, average - self.now_ms)

    # --- Values with a time of their own ---------------------------------------------------------------------------

    cdef int retime(self, bytes key, TimedValue value, long long at_ms) except -1:
        """Let a value of this database be due at a Unix time in ms; -1: never."""
        if at_ms >= 0:
            if self.timed is None:
                self.timed = TimedValues.__new__(TimedValues)
            self.timed.put(value, key, at_ms)
        elif value.timed_place:
            self.timed.drop(value)
        return 0

    cpdef long long run_timed(self, long long limit) except -1:
        """Let values do what is due, the longest overdue first, in at most `limit` steps; how many they were."""
        cdef long long done = 0, at_ms
        cdef TimedValue value
        while done < limit and self.timed is not None and self.timed.count and self.timed.heap[0].at_ms < self.now_ms:
            value = <TimedValue>self.timed.heap[0].value
            at_ms = self.timed.heap[0].at_ms
            done += type_at(number_of(value)).act(self, value.timed_key, value, limit - done)
            assert done or not value.timed_place or self.timed.heap[value.timed_place - 1].at_ms > at_ms, "it goes on"
        return done

    @property
    def timed_values(self):
        """Values that are due at a time of their own."""
        return 0 if self.timed is None else self.timed.count

    @property
    def next_timed_ms(self):
        """When the first of them is due, as Unix time in ms; -1 when there is none."""
        return self.timed.heap[0].at_ms if self.timed is not None and self.timed.count else -1

    # --- All keys ------------------------------------------------------------------------------------------------

    def keys(self):
        """All keys that have not expired, in no order, as a list. O(n)."""
        cdef KeyRecord *record
        cdef list found = []
        cdef uint32_t at
        for number in range(self.shard_count):
            at = 0
            record = self.record_at(number, &at)
            while record is not NULL:
                if not is_due(self, record, self.now_ms) and self.is_shown(record):
                    found.append(key_of(record))
                record = self.record_at(number, &at)
        return found

    def random_key(self):
        """Any key that has not expired, or None; each is as likely as the others.

        While removing waits, and every key has an expiry, an expired key after some tries, as in Redis.
        """
        cdef KeyRecord *record
        cdef int tries = 0
        while self.count:
            record = self.random_record(False)
            if not self.is_shown(record):
                return self.random_shown()
            if not is_due(self, record, self.now_ms):
                return key_of(record)
            if not self.holds_expired:
                self.expire(record)
            elif self.deadline_count == self.count:
                tries += 1
                if tries == RANDOM_TRIES:
                    return key_of(record)
        return None

    cdef bytes random_shown(self):
        """A key of a slot that is served here, or None; found by slot, where keys of others are kept, too."""
        cdef list slots = [slot for slot in range(SLOTS) if self.shown[slot] and self.count_in_slot(slot)]
        cdef Py_ssize_t slot, at
        if not slots:
            return None
        slot = slots[self.below(len(slots))]
        at = self.below(self.shards[slot].count)
        return <bytes>self.keys_at(slot, at + 1)[at]

    cdef unsigned long long walk(
        self, unsigned long long cursor, long long limit, list found, list due
    ) except? 0:
        """One step of a walk over all keys, see the head: the next cursor, after about `limit` records.

        found  gets KeyViews of them
        due    None, or a list that gets the keys of those that have expired; then `found` gets those that are shown
        """
        cdef unsigned long long places = <unsigned long long>self.shard_count << TAG_BITS
        cdef unsigned long long start
        cdef Found records
        cdef Py_ssize_t at
        if limit < 1:
            raise ValueError("limit must be positive")
        if self.shards is NULL:
            return 0
        if cursor == 0 or cursor > places:
            cursor = places
        memset(&records, 0, sizeof(records))
        try:
            while cursor and records.count < limit:
                start = (cursor - 1) >> TAG_BITS << TAG_BITS
                cursor = start + index_step(&self.shards[start >> TAG_BITS], cursor - start, &records)
            for at in range(records.count):
                if due is None:
                    found.append(view_of(self, key_of(records.records[at])))
                elif self.is_shown(records.records[at]):
                    if is_due(self, records.records[at], self.now_ms):
                        due.append(key_of(records.records[at]))
                    else:
                        found.append(view_of(self, key_of(records.records[at])))
        finally:
            free(records.records)
        return cursor

    def scan(self, unsigned long long cursor, long long limit):
        """One step of a walk over all keys: the next cursor, and a list of KeyViews.

        cursor  0 to begin, then what the previous call gave; the walk is over when that is 0
        limit   about how many records to look at, at least 1; those found expired are removed and not returned
        What a walk promises, and why: head of this file.
        """
        cdef list found = [], due = []
        cursor = self.walk(cursor, limit, found, due)
        if not self.holds_expired:
            for key in due:
                self.expire(self.find_record(<bytes>key))
        return cursor, found

    def records(self, unsigned long long cursor, long long limit):
        """One step of a walk over all keys that changes nothing: as `scan`, but expired records stay and are listed."""
        cdef list found = []
        cursor = self.walk(cursor, limit, found, None)
        return cursor, found

    cpdef int flush(self) except -1:
        """Remove all keys. O(1): what they held is released in slices, see LazyFree.step."""
        cdef Detached remains = Detached.__new__(Detached)
        self.listener.flushing(self)
        remains.shards = self.shards
        remains.shard_count = 0 if self.shards is NULL else self.shard_count
        remains.count = self.count
        self.shards = NULL
        self.index_bytes = 0
        self.most_room = 0
        self.count = 0
        self.object_bytes = 0
        self.size_rows = 0
        self.timed = None
        self.reserved = None
        self.trash.release(self.take_deadlines(), 0)
        self.signal_all()
        self.trash.add(remains)
        return 0

    cpdef int swap_with(self, Database other) except -1:
        """Exchange all keys with another database; clients keep waiting in their database, and are all notified."""
        if other is None:
            raise TypeError("there is no database to swap with")
        self.listener.swapping(self, other)
        self.shards, other.shards = other.shards, self.shards
        self.index_bytes, other.index_bytes = other.index_bytes, self.index_bytes
        self.most_room, other.most_room = other.most_room, self.most_room
        self.count, other.count = other.count, self.count
        self.deadlines, other.deadlines = other.deadlines, self.deadlines
        self.deadline_count, other.deadline_count = other.deadline_count, self.deadline_count
        self.deadline_room, other.deadline_room = other.deadline_room, self.deadline_room
        self.deadline_sum, other.deadline_sum = other.deadline_sum, self.deadline_sum
        self.timed, other.timed = other.timed, self.timed
        self.reserved, other.reserved = other.reserved, self.reserved
        self.object_bytes, other.object_bytes = other.object_bytes, self.object_bytes
        self.sizes, other.sizes = other.sizes, self.sizes
        self.size_rows, other.size_rows = other.size_rows, self.size_rows
        self.signal_all()
        if other is not self:
            other.signal_all()
        return 0

    # --- Memory ----------------------------------------------------------------------------------------------------

    cpdef long long memory(self) except -1:
        """Bytes of memory of keys, values as far as their types weigh them, and what finds keys."""
        cdef long long shards = 0 if self.shards is NULL else self.shard_count * <long long>sizeof(KeyIndex)
        return self.object_bytes + shards + self.index_bytes

    cpdef long long key_memory(self, bytes key) except -2:
        """Bytes of memory of a key and its value, with its part of what finds keys; -1 when it is missing. No access.

        An expired key that was not accessed uses memory too, and stays.
        """
        cdef KeyRecord *record = self.find_record(key)
        cdef long long size
        if record is NULL:
            return -1
        size = record_size(record) + LOOKUP_BYTES
        if record.deadline_at >= 0:
            size += sizeof(Deadline)
        value = value_of(record)
        if type_at(record.type_number).is_timed and (<TimedValue>value).timed_place:
            size += <long long>sizeof(Timed) + timed_size(<TimedValue>value)
        return size + type_at(record.type_number).memory(value)

    cpdef long long lookup_bytes(self) except -1:
        """Bytes of memory of what finds keys."""
        return self.memory() - self.object_bytes

    cpdef long long deadline_bytes(self) noexcept:
        """Bytes of memory of the heap of deadlines."""
        return self.deadline_room * <long long>sizeof(Deadline)

    # --- Self-check ----------------------------------------------------------------------------------------------

    def check_invariants(self):
        """Walk everything and assert that the structures agree."""
        cdef KeyRecord *record
        cdef Py_ssize_t at = 0
        cdef uint32_t place
        cdef Py_ssize_t expiring = 0
        cdef long long weight = 0
        cdef int size_class
        cdef Py_ssize_t timed = 0
        cdef list sizes = [0] * SIZE_CLASSES * self.size_rows
        cdef wide total = 0
        reserved = set()
        cdef Py_ssize_t number
        cdef long long slot_bytes = 0, indexed = 0
        if self.shards is not NULL:
            for number in range(self.shard_count):
                slot_bytes += index_bytes(&self.shards[number])
                indexed += self.shards[number].count
                assert len(self.keys_at(number, self.count)) == self.shards[number].count
                assert self.shards[number].room <= self.most_room
        assert self.count == indexed
        assert self.index_bytes == slot_bytes
        for number in range(self.shard_count):
            place = 0
            record = self.record_at(number, &place)
            while record is not NULL:
                assert self.find_record(key_of(record)) is record, "a record is in its shard"
                assert hash_of(record) == <uint32_t>PyObject_Hash(key_of(record))
                assert value_of(record) is not None
                if key_of(record).startswith(RESERVED) and record.size > len(RESERVED):
                    reserved.add(key_of(record))
                assert record.type_number == number_of(value_of(record)), "a record knows the type of its value"
                size_class = NO_SIZE
                weight += type_at(record.type_number).weigh(value_of(record), &size_class)
                if type_at(record.type_number).is_timed and type_at(record.type_number).due(value_of(record)) >= 0:
                    timed += 1
                    assert self.timed.heap[(<TimedValue>value_of(record)).timed_place - 1].at_ms == type_at(
                        record.type_number).due(value_of(record))
                    assert (<TimedValue>value_of(record)).timed_key == key_of(record)
                if size_class != NO_SIZE:
                    sizes[record.type_number * SIZE_CLASSES + size_class] += 1
                at += 1
                if record.deadline_at >= 0:
                    expiring += 1
                    total += expiry_of(self, record)
                    assert record.deadline_at < self.deadline_count
                    assert self.deadlines[record.deadline_at].record is record
                record = self.record_at(number, &place)
        assert at == self.count
        assert expiring == self.deadline_count <= self.deadline_room
        assert total == self.deadline_sum
        assert weight == self.object_bytes
        assert sizes == [self.sizes[at] for at in range(len(sizes))], "values are counted by their size"
        if self.timed is not None:
            self.timed.check_invariants()
        assert timed == self.timed_values
        assert reserved == (self.reserved or set()), "reserved keys are known"
        for at in range(1, self.deadline_count):
            assert self.deadlines[(at - 1) >> 1].at_ms <= self.deadlines[at].at_ms, "no parent is later than its child"


# --- Keys as Python sees them ----------------------------------------------------------------------------------------


@cython.final
@cython.no_gc
cdef class KeyView:
    """What a database knows of a key when it is asked; KeyError when it is no longer there."""

    cdef Database db
    cdef readonly bytes key

    cdef KeyRecord *get_record(self) except NULL:
        cdef KeyRecord *record = self.db.find_record(self.key)
        if record is NULL:
            raise KeyError(self.key)
        return record

    @property
    def value(self):
        return value_of(self.get_record())

    @property
    def accessed_ms(self):
        """Unix time in ms of the last access that counted."""
        return accessed_of(self.get_record())

    @property
    def uses(self):
        """How often it is accessed, on a logarithmic scale."""
        return self.get_record().uses

    @property
    def hint(self):
        """A number that the type keeps of the value."""
        return self.get_record().hint

    @property
    def type(self):
        """The type of the value."""
        return type_at(self.get_record().type_number)

    @property
    def encoding(self):
        """How Redis would store the value, as OBJECT ENCODING says it."""
        cdef KeyRecord *record = self.get_record()
        return type_at(record.type_number).encoding(self.key, value_of(record), record.hint)


cdef KeyView view_of(Database db, bytes key):
    cdef KeyView view = KeyView.__new__(KeyView)
    view.db, view.key = db, key
    return view


def with_keys(list databases not None):
    """Those that have keys."""
    cdef Database db
    cdef list found = []
    for db in databases:
        if db.count:
            found.append(db)
    return found


def memory_in_use(list databases not None):
    """Bytes: all that compiled modules hold, and the `memory` of the databases."""
    cdef Database db
    cdef long long total = heap_bytes()
    for db in databases:
        total += db.memory()
    return total


def has_due(list databases not None, long long now_ms):
    """Bring the time of all databases up to date; whether a key of theirs has expired by then."""
    cdef Database db
    cdef bint found = False
    for db in databases:
        db.now_ms = now_ms
        found |= db.deadline_count and db.deadlines[0].at_ms < now_ms
    return found


def has_any_due(list databases not None, long long now_ms):
    """The same of a key or a value: `has_due` or `has_timed_due`."""
    cdef Database db
    cdef bint found = False
    for db in databases:
        db.now_ms = now_ms
        if db.deadline_count and db.deadlines[0].at_ms < now_ms:
            found = True
        elif db.timed is not None and db.timed.count and db.timed.heap[0].at_ms < now_ms:
            found = True
    return found


def has_timed_due(list databases not None, long long now_ms):
    """Bring the time of all databases up to date; whether a value of theirs has something to do by then."""
    cdef Database db
    cdef bint found = False
    for db in databases:
        db.now_ms = now_ms
        found |= db.timed is not None and db.timed.count and db.timed.heap[0].at_ms < now_ms
    return found
