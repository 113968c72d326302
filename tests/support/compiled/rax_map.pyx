# cython: language_level=3, boundscheck=False, wraparound=False
"""RaxMap: the radix tree as a map of Python's."""

cimport cython
from libc.stdint cimport SIZE_MAX, int64_t, uint8_t
from libc.string cimport memcmp, memcpy, memset

from streamd.engine.rax cimport (
    Rax, rax_check, rax_drain, rax_first, rax_floor, rax_gather, rax_higher, rax_init,
    rax_insert, rax_last, rax_lower, rax_remove, rax_replace,
)
from streamd.heap cimport free, malloc

__all__ = ["RaxMap"]


cdef enum:
    MAX_KEY_LEN = 32


cdef struct MapRecord:
    uint8_t key[MAX_KEY_LEN]
    int64_t value


cdef void release_map_record(void *record) noexcept nogil:
    free(record)


@cython.final
@cython.no_gc
cdef class RaxMap:
    """A sorted map from `bytes` of one length to integers.

    key_len  bytes of every key, 1 to 32
    Queries return `(key, value)`, or None when nothing fits. A key of another length raises ValueError.
    """

    cdef Rax tree       # owns its records, MapRecords

    def __cinit__(self, int key_len=16):
        rax_init(&self.tree, 16)
        if not 1 <= key_len <= MAX_KEY_LEN:
            raise ValueError("key_len must be 1 to 32")
        self.tree.key_len = key_len

    def __dealloc__(self):
        rax_drain(&self.tree, release_map_record)

    cdef const uint8_t *padded(self, bytes key) except NULL:
        """The bytes of a key, checked."""
        if len(key) != <Py_ssize_t>self.tree.key_len:
            raise ValueError(f"a key has {self.tree.key_len} bytes")
        return <const uint8_t *><const char *>key

    cdef tuple item(self, void *record):
        if record is NULL:
            return None
        return (<char *>record)[:self.tree.key_len], (<MapRecord *>record).value

    def insert(self, bytes key not None, int64_t value=0):
        """Add a key; False, with no change, when it already exists."""
        cdef const uint8_t *raw = self.padded(key)
        cdef MapRecord *record = <MapRecord *>malloc(sizeof(MapRecord))
        cdef int added = 0
        if record is NULL:
            raise MemoryError
        memset(record, 0, sizeof(MapRecord))
        memcpy(record.key, raw, self.tree.key_len)
        record.value = value
        try:
            added = rax_insert(&self.tree, record)
        finally:
            if not added:
                free(record)
        return added == 1

    def replace(self, bytes key not None, int64_t value):
        """Replace the record with this key by a new one; returns its old value, or None with no change."""
        cdef const uint8_t *raw = self.padded(key)
        cdef MapRecord *record = <MapRecord *>malloc(sizeof(MapRecord))
        cdef MapRecord *old
        if record is NULL:
            raise MemoryError
        memset(record, 0, sizeof(MapRecord))
        memcpy(record.key, raw, self.tree.key_len)
        record.value = value
        old = <MapRecord *>rax_replace(&self.tree, record)
        if old is NULL:
            free(record)
            return None
        found = old.value
        free(old)
        return found

    def remove(self, bytes key not None):
        """Remove a key; returns its value, or None when it is missing."""
        cdef MapRecord *record = <MapRecord *>rax_remove(&self.tree, self.padded(key))
        if record is NULL:
            return None
        value = record.value
        free(record)
        return value

    def clear(self):
        """Remove all keys."""
        rax_drain(&self.tree, release_map_record)

    def find(self, bytes key not None):
        """The value of a key, or None."""
        found = self.floor(key)
        return found[1] if found is not None and found[0] == key else None

    def floor(self, bytes key not None):
        """The item with the greatest key <= `key`."""
        return self.item(rax_floor(&self.tree, self.padded(key)))

    def lower(self, bytes key not None):
        """The item with the greatest key < `key`."""
        return self.item(rax_lower(&self.tree, self.padded(key)))

    def higher(self, bytes key not None):
        """The item with the smallest key > `key`."""
        return self.item(rax_higher(&self.tree, self.padded(key)))

    def first(self):
        """The item with the smallest key."""
        return self.item(rax_first(&self.tree))

    def last(self):
        """The item with the greatest key."""
        return self.item(rax_last(&self.tree))

    def between(self, bytes first not None, bytes last not None, size_t limit=SIZE_MAX):
        """`(key, value)` from `first` to `last`, both included, in order: the first `limit` of them."""
        cdef const uint8_t *low = self.padded(first)
        cdef void *end = rax_floor(&self.tree, self.padded(last))
        cdef void **found
        cdef size_t i, count, room = min(limit, self.tree.count)
        if end is NULL or memcmp(end, low, self.tree.key_len) < 0 or room == 0:
            return []
        found = <void **>malloc(room * sizeof(void *))
        if found is NULL:
            raise MemoryError
        try:
            count = rax_gather(&self.tree, low, end, found, room)
            return [self.item(found[i]) for i in range(count)]
        finally:
            free(found)

    def items(self):
        """All items in ascending order, as a list."""
        cdef void *record = rax_first(&self.tree)
        found = []
        while record is not NULL:
            found.append(self.item(record))
            record = rax_higher(&self.tree, <const uint8_t *>record)
        return found

    def __len__(self):
        return self.tree.count

    @property
    def redis_nodes(self):
        """Number of nodes in Redis's own radix tree for these keys."""
        return self.tree.redis_nodes

    @property
    def memory(self):
        """Bytes used by the inner nodes."""
        return self.tree.memory

    def check_invariants(self):
        """Raise AssertionError when the tree is damaged. O(n)."""
        rax_check(&self.tree)
