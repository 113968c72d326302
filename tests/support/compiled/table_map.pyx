# cython: language_level=3, boundscheck=False, wraparound=False
"""TableMap: tables as a dict of Python's."""

cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from streamd.engine.siphash cimport siphash
from streamd.engine.table cimport (
    TABLE_PAGE, Table, TableWalk, get_key, key_room, put_key, secret, table_add, table_at, table_check, table_clear,
    table_copy, table_find, table_hash, table_init, table_key, table_memory, table_next, table_random, table_remove,
    table_reserve, table_resize, table_scan,
)

__all__ = ["TableMap", "hash_of", "repeat_hashes"]


def repeat_hashes(int seed):
    """Hashes and random numbers of this process, from now on, follow from a seed; existing tables become invalid."""
    secret[0], secret[1], secret[2] = seed, ~seed & 0xFFFFFFFF, 7 * seed


def hash_of(bytes text not None, bytes key not None):
    """SipHash-1-3 of a text under a key of 16 bytes."""
    cdef uint64_t words[2]
    memcpy(words, <const char *>key, 16)
    return siphash(<const uint8_t *><const char *>text, len(text), words)


@cython.final
@cython.no_gc
cdef class TableMap:
    """A dict from `bytes` to `bytes`; each record has a head of eight bytes with the length of its value.

    `moves` counts the records that were moved to empty a chunk, `index` is a second index of all handles, by key.
    """

    cdef Table table        # owns all records
    cdef readonly dict index
    cdef readonly int moves

    def __cinit__(self):
        table_init(&self.table, 8)
        self.table.owner = <void *>self
        self.table.moved = <void (*)(void *, uint32_t, uint32_t) noexcept nogil>note_move

    def __init__(self):
        self.index = {}

    def __dealloc__(self):
        table_clear(&self.table)

    cdef uint32_t find(self, bytes key) noexcept:
        cdef const uint8_t *p = <const uint8_t *><const char *>key
        return table_find(&self.table, table_hash(p, len(key)), p, len(key))

    cdef bytes key_at(self, uint32_t handle):
        cdef size_t n
        cdef const uint8_t *p = table_key(&self.table, handle, &n)
        return p[:n]

    cdef bytes value_at(self, uint32_t handle):
        cdef uint8_t *p = table_at(&self.table, handle)
        cdef uint64_t length = (<uint64_t *>p)[0]
        cdef size_t n
        cdef const uint8_t *end = get_key(p + 8, &n) + n
        return end[:length]

    def reserve(self, uint64_t count):
        if table_reserve(&self.table, count) < 0:
            raise MemoryError

    def get(self, bytes key not None):
        cdef uint32_t handle = self.find(key)
        return self.value_at(handle) if handle else None

    def set(self, bytes key not None, bytes value not None):
        """Whether the key is new."""
        cdef const uint8_t *p = <const uint8_t *><const char *>key
        cdef size_t n = len(key)
        cdef uint64_t hash = table_hash(p, n)
        cdef uint32_t handle = table_find(&self.table, hash, p, n)
        cdef bint is_new = handle == 0
        cdef size_t size = 8 + key_room(n) + n + <size_t>len(value)
        cdef uint8_t *record
        if is_new:
            record = table_add(&self.table, hash, size, &handle)
        else:
            record = table_resize(&self.table, hash, &handle, size)
        if record is NULL:
            raise MemoryError
        (<uint64_t *>record)[0] = len(value)
        if is_new:
            put_key(record + 8, p, n)
        memcpy(record + 8 + key_room(n) + n, <const char *>value, len(value))
        self.index[key] = handle
        return is_new

    def pop(self, bytes key not None):
        cdef uint32_t handle = self.find(key)
        if not handle:
            return None
        value = self.value_at(handle)
        del self.index[key]
        table_remove(&self.table, table_hash(<const uint8_t *><const char *>key, len(key)), handle)
        return value

    def items(self):
        cdef TableWalk walk = TableWalk(0, 0)
        cdef uint32_t handle
        found = []
        while True:
            handle = table_next(&self.table, &walk)
            if not handle:
                return found
            found.append((self.key_at(handle), self.value_at(handle)))

    def scan(self, uint64_t cursor):
        """The next cursor, and keys."""
        cdef uint32_t handles[TABLE_PAGE]
        cdef uint32_t count
        cursor = table_scan(&self.table, cursor, handles, &count)
        return cursor, [self.key_at(handles[at]) for at in range(count)]

    def random(self):
        cdef uint32_t handle = table_random(&self.table)
        return self.key_at(handle) if handle else None

    def copy(self):
        cdef TableMap copied = TableMap()
        if table_copy(&copied.table, &self.table) < 0:
            raise MemoryError
        copied.table.owner = <void *>copied
        copied.table.moved = self.table.moved
        copied.index.update(self.index)
        return copied

    def clear(self):
        table_clear(&self.table)
        self.index.clear()

    def check_invariants(self):
        """All of the table's, and that the second index has the handles of all keys."""
        cdef const char *reason = table_check(&self.table)
        assert reason is NULL, (<bytes>reason).decode()
        assert len(self.index) == <Py_ssize_t>self.table.count
        for key, handle in self.index.items():
            assert self.find(key) == handle, key

    @property
    def memory(self):
        return table_memory(&self.table)

    @property
    def depth(self):
        return self.table.depth

    def __len__(self):
        return self.table.count


cdef void note_move(void *owner, uint32_t old, uint32_t new) noexcept with gil:
    """The record of a handle has another one; the old one can still be read."""
    cdef TableMap map = <TableMap>owner
    assert map.index[map.key_at(old)] == old
    assert map.key_at(new) == map.key_at(old)
    map.index[map.key_at(new)] = new
    map.moves += 1
