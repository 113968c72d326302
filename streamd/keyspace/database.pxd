# cython: language_level=3
"""A database: keys, their values and expiries. Contract in database.pyx."""

cimport cython
from libc.stdint cimport uint32_t

from streamd.keyspace.accesses cimport Accesses
from streamd.keyspace.key_index cimport KeyIndex
from streamd.keyspace.key_record cimport KeyRecord
from streamd.keyspace.listener cimport KeyspaceListener
from streamd.keyspace.timed_values cimport TimedValue, TimedValues


cdef enum:
    SIZE_CLASSES = 48                       # of values, by their size


@cython.final
cdef class Database(Accesses):
    cdef readonly int index               # as SELECT numbers it
    cdef public dict waiters              # key -> whatever the server keeps for clients that wait for it
    cdef public dict ready                # (database, key) -> None in order: `waiters` keys that changed; one for all
    cdef public bint keeps_expired        # True while a file is replayed: keys go by its DEL, whatever the time
    cdef public bint holds_expired        # True in CLIENT PAUSE, on a replica: expired keys are missing, removed later
    cdef public set own_expiries          # keys whose expiry is not the primary's, on a writable replica; else None
    cdef readonly set reserved            # keys that begin with RESERVED, not to be changed by others; or None
    cdef public bint touch_on_access      # False: reads and writes leave the access time alone (CLIENT NO-TOUCH)
    cdef readonly long long object_bytes  # of memory for records, keys and values, as far as their types weigh them
    cdef Py_ssize_t *sizes                # owned: for each type by number, its values in SIZE_CLASSES, see size_class
    cdef int size_rows                    # types that there is room for in `sizes`
    cdef long long index_bytes            # of memory for the slots of all shards
    cdef TimedValues timed                # values that are due at a time of their own; None: there have been none
    cdef public long long expired_parts   # of values, removed because their time had come
    cdef public long long hits            # lookups for reading that found their key
    cdef public long long misses          # ... and that did not
    cdef public long long expired_keys    # keys removed because their time had come
    cdef public long long evicted_keys    # keys removed to make room
    cdef readonly object trash            # LazyFree: takes what is too big to be freed on the spot

    cdef public KeyspaceListener listener  # notified of events of keys; one for all databases of a server

    cdef KeyIndex *shards                 # [shard_count], owned, by the hash's upper bits, or by slot; NULL: none yet
    cdef Py_ssize_t shard_count
    cdef readonly bint by_slot            # a node of a cluster: a shard for each hash slot
    cdef object hinted                    # a key whose slot is known already: that of the running request; None: none
    cdef int hinted_slot                  # its slot
    cdef public bytearray shown           # by slot: not 0 where keys are shown to those who ask for any; None: all are
    cdef public list leaving              # slots whose keys are being deleted, and no longer shown; None: never any
    cdef uint32_t most_room               # slots of no shard have been more
    cdef Py_ssize_t count                 # records

    # Each value has a type, see value_type.pyx. An expired key counts as missing, and is removed when it is met.
    cpdef object find(self, bytes key)              # for reading: the value or None; counts hits and misses
    cpdef object find_untouched(self, bytes key, bint tells=*)   # as find, but is no access (TYPE, TTL, OBJECT)
    cpdef bint touch(self, bytes key) except -1     # as find, and an access even without touch_on_access (TOUCH)
    cpdef object find_for_write(self, bytes key)    # for changing: the value or None; counts nothing
    cpdef object peek(self, bytes key)              # the value or None; neither counted nor an access
    cpdef bint is_overdue(self, bytes key) except -1    # whether it has expired but was not accessed since
    cpdef int add(self, bytes key, object value) except -1           # the key must be missing
    cpdef int set(self, bytes key, object value, bint keep_expiry=*) except -1   # add or overwrite
    cdef int set_typed(self, bytes key, object value, int number, bint keep_expiry) except -1    # as set, of that type
    cpdef bint delete(self, bytes key, bint tells=*) except -1   # True when there was something
    cdef int evict(self, bytes key) except -1           # delete it, to make room; then
    cdef int report_evicted(self, bytes key) except -1  # notify the listener
    cpdef int frequency(self, bytes key) except -2  # how often it is accessed, 0 to 255; -1: no such key
    cpdef int set_access(self, bytes key, long long accessed_ms, int uses) except -1
    cpdef long long key_memory(self, bytes key) except -2   # bytes of a key and its value; -1: no such key
    cpdef long long memory(self) except -1          # bytes, without what values count themselves
    cpdef long long lookup_bytes(self) except -1    # ... of what finds keys
    cpdef long long deadline_bytes(self) noexcept   # ... of the heap of deadlines
    cpdef long long expiry(self, bytes key) except? -3               # Unix ms; -1: never expires, -2: no such key
    cpdef bint set_expiry(self, bytes key, long long at_ms) except -1
    cpdef bint persist(self, bytes key) except -1
    cdef int retime(self, bytes key, TimedValue value, long long at_ms) except -1    # -1: never due
    cpdef long long run_timed(self, long long limit) except -1       # at most `limit` steps; how many
    cpdef long long expire_due(self, long long limit) except -1      # removes at most `limit` keys; how many
    cpdef bint rename(self, bytes key, bytes new_key) except -1
    cpdef bint move(self, bytes key, Database target) except -1
    cpdef bint copy(self, bytes key, Database target, bytes new_key) except -1
    cpdef int flush(self) except -1
    cpdef Py_ssize_t count_in_slot(self, int slot) except -1
    cdef bint is_shown(self, const KeyRecord *record) except -1
    cpdef int swap_with(self, Database other) except -1
    cdef inline int signal_ready(self, bytes key) except -1:
        """Report that `key` changed in a way that may serve a waiting client. Costs one test when no client waits."""
        if self.waiters and key in self.waiters:
            self.ready[(self, key)] = None
        return 0

    cpdef int event(self, int kind, bytes event, bytes key) except -1    # something happened to a key; EventClass, name
    cpdef int touched(self, bytes key) except -1                         # the value of a key changed in place
    cdef KeyRecord *find_record(self, bytes key) except? NULL
    cdef KeyRecord *lookup(self, bytes key) except? NULL
    cdef Py_ssize_t below(self, Py_ssize_t bound) noexcept
    cdef bytes random_shown(self)
    cdef unsigned long long walk(self, unsigned long long cursor, long long limit, list found, list due) except? 0
    cdef list keys_at(self, Py_ssize_t number, Py_ssize_t limit)
    cdef KeyRecord *random_record(self, bint is_expiring) noexcept
    cdef KeyRecord *evictable_record(self, bint is_expiring) except? NULL
    cdef KeyRecord *first_to_expire(self) except? NULL
    cdef int weigh(self, KeyRecord *record, int sign) except -1
    cdef int tell_overwritten(self, bytes key, object old, object value) except -1
    cdef int insert(self, bytes key, KeyRecord *record) except -1
    cdef int note_reserved(self, KeyRecord *record) except -1
    cdef int forget_reserved(self, KeyRecord *record) except -1
    cdef int make_way(self, bytes key) except -1
    cdef KeyRecord *record_at(self, Py_ssize_t number, uint32_t *at) noexcept
    cdef int make_shards(self) except -1
    cdef KeyIndex *shard_with(self, const KeyRecord *record, uint32_t hash) noexcept
    cdef void drop_shards(self) noexcept
    cdef object take_out(self, KeyRecord *record)
    cdef int resized(self, int number, Py_ssize_t before, Py_ssize_t after) except -1
    cdef Py_ssize_t *sizes_of(self, int number) except NULL
    cdef KeyRecord *add_typed(self, bytes key, object value, int number) except NULL
    cdef int overwrite(self, KeyRecord *record, bytes key, object value, int number) except -1
    cdef int place(self, bytes key, object value, int number, int hint, long long expire_at_ms) except -1
    cdef bint relocate(self, KeyRecord *record, Database target, bytes key) except -1
    cdef int expire(self, KeyRecord *record) except -1
    cdef int note_own_expiry(self, bytes key) except -1
    cdef int dispose(self, object value, int number) except -1
    cdef int signal_all(self) except -1
