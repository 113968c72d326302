# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""A sorted set that is not small: each member is a record, which a table finds by member and a tree by rank.

    record     score: 8 bytes | length of the member | member          in the arena of the table
    table      hash of the member  ->  handle
    tree       rank  ->  handle, in the order of scores, and of members with equal scores

So a member of 16 bytes takes 28 bytes as a record, and the handles of table and tree 4 bytes each, in places that are
about three quarters full. When the table moves a record, its handle in the tree is replaced.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from streamd.engine.counted_tree cimport (
    CUT_NONE, Leaf, TreeKey, tree_append, tree_check, tree_clear, tree_insert, tree_rank, tree_remove,
    tree_replace,
)
from streamd.engine.table cimport (
    key_room, put_key, table_add, table_at, table_check, table_clear, table_copy, table_find, table_hash, table_init,
    table_key, table_memory, table_remove,
)
from streamd.heap cimport free, malloc
from streamd.values.sorted_sets.packed cimport compare_bytes, score_prefix

__all__ = []


# --- What the tree asks ---------------------------------------------------------------------------------------------


cdef uint64_t prefix_of(const void *owner, uint32_t handle) noexcept nogil:
    return score_prefix(large_score(<const Large *>owner, handle))


cdef int compare_member(const void *owner, uint32_t handle, const TreeKey *key) noexcept nogil:
    cdef size_t n
    cdef const uint8_t *member = table_key(&(<const Large *>owner).table, handle, &n)
    return compare_bytes(member, n, <const uint8_t *>key.rest, key.size)


cdef inline void set_key(TreeKey *key, const uint8_t *s, size_t n, double score) noexcept nogil:
    key.cut = CUT_NONE
    key.prefix = score_prefix(score)
    key.rest = s
    key.size = n


cdef inline void key_of(const Large *large, uint32_t handle, TreeKey *key) noexcept nogil:
    """The key of a member, whose bytes stay where they are."""
    cdef size_t n
    cdef const uint8_t *member = table_key(&large.table, handle, &n)
    set_key(key, member, n, large_score(large, handle))


cdef void record_moved(void *owner, uint32_t old, uint32_t new) noexcept nogil:
    cdef Large *large = <Large *>owner
    cdef TreeKey key
    key_of(large, old, &key)
    tree_replace(&large.tree, &key, old, new)


# --- The whole ------------------------------------------------------------------------------------------------------


cdef Large *large_new() noexcept nogil:
    cdef Large *large = <Large *>malloc(sizeof(Large))
    if large is not NULL:
        table_init(&large.table, SCORE_BYTES)
        join(large)
    return large


cdef void join(Large *large) noexcept nogil:
    """Give a table its tree, which is empty."""
    large.table.moved = record_moved
    large.table.owner = large
    large.tree.root = large.tree.first = large.tree.last = NULL
    large.tree.count = large.tree.held = 0
    large.tree.depth = 0
    large.tree.owner = large
    large.tree.prefix = prefix_of
    large.tree.compare = compare_member


cdef void large_free(Large *large) noexcept nogil:
    tree_clear(&large.tree)
    table_clear(&large.table)
    free(large)


cdef Large *large_copy(const Large *large) noexcept nogil:
    cdef Large *copy = large_new()
    cdef Leaf *leaf = large.tree.first
    cdef unsigned int i
    if copy is NULL:
        return NULL
    if table_copy(&copy.table, &large.table) < 0:
        large_free(copy)
        return NULL
    copy.table.moved = record_moved
    copy.table.owner = copy
    while leaf is not NULL:
        for i in range(leaf.count):
            if tree_append(&copy.tree, prefix_of(copy, leaf.handles[i]), leaf.handles[i]) < 0:
                large_free(copy)
                return NULL
        leaf = leaf.next
    return copy


cdef size_t large_memory(const Large *large) noexcept nogil:
    return sizeof(Large) + <size_t>(table_memory(&large.table) + large.tree.held)


# --- Members --------------------------------------------------------------------------------------------------------


cdef uint32_t add_record(Large *large, uint64_t hash, const uint8_t *s, size_t n, double score) noexcept nogil:
    """A record of a new member, in the table alone. 0: no memory."""
    cdef uint32_t handle
    cdef uint8_t *record = table_add(&large.table, hash, SCORE_BYTES + key_room(n) + n, &handle)
    if record is NULL:
        return 0
    memcpy(record, &score, SCORE_BYTES)
    put_key(record + SCORE_BYTES, s, n)
    return handle


cdef uint32_t large_add(Large *large, uint64_t hash, const uint8_t *s, size_t n, double score) noexcept nogil:
    cdef uint32_t handle = add_record(large, hash, s, n, score)
    cdef TreeKey key
    if handle == 0:
        return 0
    set_key(&key, s, n, score)
    if tree_insert(&large.tree, &key, handle) < 0:
        table_remove(&large.table, hash, handle)
        return 0
    return handle


cdef int large_append(Large *large, const uint8_t *s, size_t n, double score) noexcept nogil:
    cdef uint64_t hash = table_hash(s, n), prefix = score_prefix(score), last
    cdef uint32_t handle
    cdef TreeKey key
    if table_find(&large.table, hash, s, n):
        return 1
    if large.tree.last is not NULL:
        handle = large.tree.last.handles[large.tree.last.count - 1]
        last = prefix_of(large, handle)
        set_key(&key, s, n, score)
        if last > prefix or (last == prefix and compare_member(large, handle, &key) >= 0):
            return 1
    handle = add_record(large, hash, s, n, score)
    if handle == 0:
        return -1
    if tree_append(&large.tree, prefix, handle) < 0:
        table_remove(&large.table, hash, handle)
        return -1
    return 0


cdef int large_move(Large *large, uint32_t handle, double score) noexcept nogil:
    cdef double old = large_score(large, handle)
    cdef TreeKey key
    key_of(large, handle, &key)
    if key.prefix != score_prefix(score):
        tree_remove(&large.tree, &key, handle)
        key.prefix = score_prefix(score)
        memcpy(table_at(&large.table, handle), &score, SCORE_BYTES)
        if tree_insert(&large.tree, &key, handle) < 0:
            # What was freed a moment ago is taken again: there is memory for it.
            memcpy(table_at(&large.table, handle), &old, SCORE_BYTES)
            key.prefix = score_prefix(old)
            tree_insert(&large.tree, &key, handle)
            return -1
        return 0
    memcpy(table_at(&large.table, handle), &score, SCORE_BYTES)
    return 0


cdef void large_remove(Large *large, uint32_t handle) noexcept nogil:
    cdef TreeKey key
    cdef uint64_t hash
    key_of(large, handle, &key)
    hash = table_hash(<const uint8_t *>key.rest, key.size)
    tree_remove(&large.tree, &key, handle)
    table_remove(&large.table, hash, handle)


cdef uint64_t large_rank(const Large *large, uint32_t handle) noexcept nogil:
    cdef TreeKey key
    key_of(large, handle, &key)
    return tree_rank(&large.tree, &key, handle, NULL)


cdef const char *large_check(const Large *large) noexcept nogil:
    cdef const char *wrong = table_check(&large.table)
    cdef Leaf *leaf = large.tree.first
    cdef uint32_t before = 0
    cdef TreeKey key
    cdef size_t n
    cdef const uint8_t *member
    cdef unsigned int i
    if wrong is NULL:
        wrong = tree_check(&large.tree)
    if wrong is not NULL:
        return wrong
    if large.table.count != large.tree.count:
        return b"each record is in the tree"
    if large.table.owner is not large or large.tree.owner is not large:
        return b"table and tree belong together"
    while leaf is not NULL:
        for i in range(leaf.count):
            member = table_key(&large.table, leaf.handles[i], &n)
            if table_find(&large.table, table_hash(member, n), member, n) != leaf.handles[i]:
                return b"the tree has the handles of the table"
            if before:
                key_of(large, leaf.handles[i], &key)
                if prefix_of(large, before) == key.prefix and compare_member(large, before, &key) >= 0:
                    return b"members with equal scores are in order"
            before = leaf.handles[i]
        leaf = leaf.next
    return NULL
