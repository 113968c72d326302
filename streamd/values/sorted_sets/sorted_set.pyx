# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""SortedSet: members, each with a score, in the order of scores, and of their bytes where scores are equal.

A small one is packed: one listpack (packed.pyx), in which everything is found by walking. Otherwise it is large: a
table and a tree (large.pyx). The methods work on either; when a set becomes large is for the caller to decide (`fits`),
and it never becomes packed again.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from streamd.engine.counted_tree cimport CUT_NONE, tree_at, tree_handle, tree_rank, tree_step, tree_step_back
from streamd.engine.listpack cimport LP_END, LP_HEADER, lp_bytes, lp_previous, lp_validate
from streamd.engine.listpack_edit cimport LP_MAX_BYTES, lp_copy, lp_end, lp_new
from streamd.engine.table cimport table_hash
from streamd.heap cimport block_memory, free, freed_aside
from streamd.numbers cimport INT64_ROOM
from streamd.values.sorted_sets.large cimport (
    large_add, large_append, large_check, large_copy, large_find, large_free, large_get, large_memory, large_move,
    large_new, large_rank, large_remove, large_score,
)
from streamd.values.sorted_sets.packed cimport (
    member_text, packed_append, packed_check, packed_count, packed_delete, packed_find, packed_get, packed_insert,
    packed_member_size, packed_rank, packed_seek, score_prefix,
)

__all__ = ["SortedSet", "SortedSetRemains"]

cdef enum:
    MEMBERS_PER_BLOCK = 64      # about, of a large set


cdef int no_memory() except -1:
    raise MemoryError("no memory for a sorted set")


@cython.final
@cython.no_gc
cdef class SortedSet:
    """A sorted set. Python sees it as an iterable of pairs of member and score."""

    def __dealloc__(self):
        if self.packed is not NULL:
            free(self.packed)
        if self.large is not NULL:
            large_free(self.large)

    cdef uint64_t count(self) noexcept:
        if self.large is not NULL:
            return self.large.tree.count
        return 0 if self.packed is NULL else packed_count(self.packed)

    # --- One member -------------------------------------------------------------------------------------------------

    cdef bint find(self, const uint8_t *s, size_t n, double *score) noexcept:
        cdef uint32_t handle
        if self.large is NULL:
            return packed_find(self.packed, s, n, score) is not NULL
        handle = large_find(self.large, table_hash(s, n), s, n)
        if handle:
            score[0] = large_score(self.large, handle)
        return handle != 0

    cdef int add(self, const uint8_t *s, size_t n, double score) except -1:
        cdef uint8_t *packed
        if self.large is NULL:
            packed = packed_insert(self.packed, s, n, score)
            if packed is NULL:
                no_memory()
            self.packed = packed
        elif not large_add(self.large, table_hash(s, n), s, n, score):
            no_memory()
        return 0

    cdef int append(self, const uint8_t *s, size_t n, double score) except -1:
        cdef uint8_t *packed
        cdef int refused
        if self.large is NULL:
            packed = packed_append(self.packed, s, n, score)
            if packed is NULL:
                no_memory()
            self.packed = packed
            return 0
        refused = large_append(self.large, s, n, score)
        if refused < 0:
            no_memory()
        return refused

    cdef int move(self, const uint8_t *s, size_t n, double score) except -1:
        cdef const uint8_t *at
        cdef double old
        if self.large is NULL:
            at = packed_find(self.packed, s, n, &old)
            self.packed = packed_delete(self.packed, at)
            return self.add(s, n, score)
        if large_move(self.large, large_find(self.large, table_hash(s, n), s, n), score) < 0:
            no_memory()
        return 0

    cdef bint discard(self, const uint8_t *s, size_t n) noexcept:
        cdef const uint8_t *at
        cdef double score
        cdef uint32_t handle
        if self.large is NULL:
            at = packed_find(self.packed, s, n, &score)
            if at is NULL:
                return False
            self.packed = packed_delete(self.packed, at)
            return True
        handle = large_find(self.large, table_hash(s, n), s, n)
        if handle:
            large_remove(self.large, handle)
        return handle != 0

    cdef int64_t rank(self, const uint8_t *s, size_t n, double *score) noexcept:
        cdef uint32_t handle
        cdef TreeKey key
        if self.large is not NULL:
            handle = large_find(self.large, table_hash(s, n), s, n)
            if handle == 0:
                return -1
            score[0] = large_score(self.large, handle)
            return <int64_t>large_rank(self.large, handle)
        if not self.find(s, n, score):
            return -1
        key.cut = CUT_NONE
        key.prefix = score_prefix(score[0])
        key.rest = s
        key.size = n
        return <int64_t>packed_rank(self.packed, &key)

    # --- Many members -----------------------------------------------------------------------------------------------

    cdef uint64_t rank_of(self, const TreeKey *key) noexcept:
        return packed_rank(self.packed, key) if self.large is NULL else tree_rank(&self.large.tree, key, 0, NULL)

    cdef void seek(self, uint64_t rank, Walk *walk) noexcept:
        if self.large is not NULL:
            tree_at(&self.large.tree, rank, &walk.place)
        elif rank < self.count():
            walk.packed = packed_seek(self.packed, rank)
        else:
            walk.packed = lp_end(self.packed)

    cdef bint next(self, Walk *walk, Item *item) noexcept:
        if self.large is not NULL:
            if walk.place.leaf is NULL:
                return False
            large_get(self.large, tree_handle(&walk.place), item)
            tree_step(&walk.place)
            return True
        if walk.packed[0] == LP_END:
            return False
        walk.packed = packed_get(walk.packed, item)
        return True

    cdef bint back(self, Walk *walk, Item *item) noexcept:
        if self.large is not NULL:
            if walk.place.leaf is NULL:
                return False
            large_get(self.large, tree_handle(&walk.place), item)
            tree_step_back(&walk.place)
            return True
        if walk.packed[0] == LP_END:
            return False
        packed_get(walk.packed, item)
        if walk.packed is self.packed + LP_HEADER:
            walk.packed = lp_end(self.packed)
        else:
            walk.packed = lp_previous(lp_previous(walk.packed))
        return True

    cdef int remove_range(self, uint64_t first, uint64_t members) except -1:
        cdef Walk walk
        while members:
            members -= 1
            self.seek(first, &walk)
            if self.large is NULL:
                self.packed = packed_delete(self.packed, walk.packed)
            else:
                large_remove(self.large, tree_handle(&walk.place))
        return 0

    # --- The form ---------------------------------------------------------------------------------------------------

    cdef bint fits(self, uint64_t members, size_t longest, uint64_t max_members, uint64_t max_bytes) noexcept:
        """Whether the set may stay packed with so many members, the longest new one of so many bytes."""
        if self.large is not NULL:
            return True
        return members <= max_members and longest <= max_bytes and (
            lp_bytes(self.packed) + packed_member_size(<const uint8_t *>"x", 1) + longest < LP_MAX_BYTES
        )

    cdef int enlarge(self) except -1:
        cdef Large *large
        cdef const uint8_t *p
        cdef const uint8_t *text
        cdef char digits[INT64_ROOM]
        cdef size_t n
        cdef Item item
        if self.large is not NULL:
            return 0
        large = large_new()
        if large is NULL:
            no_memory()
        p = self.packed + LP_HEADER
        while p[0] != LP_END:
            p = packed_get(p, &item)
            text = member_text(&item.member, digits, &n)
            if large_append(large, text, n, item.score):
                large_free(large)
                no_memory()
        free(self.packed)
        self.packed = NULL
        self.large = large
        return 0

    cdef SortedSet copy(self):
        cdef SortedSet made = SortedSet.__new__(SortedSet)
        if self.large is NULL:
            made.packed = lp_copy(self.packed)
        else:
            made.large = large_copy(self.large)
        if made.packed is NULL and made.large is NULL:
            no_memory()
        return made

    cdef size_t memory(self) noexcept:
        """Bytes of memory apart from this object."""
        if self.large is not NULL:
            return large_memory(self.large)
        return 0 if self.packed is NULL else block_memory(self.packed)

    cdef void *close(self) noexcept:
        """Take its listpack; NULL: it is large."""
        cdef void *packed = self.packed
        self.packed = NULL
        return packed

    # --- For Python -------------------------------------------------------------------------------------------------

    def __len__(self):
        return self.count()

    def __iter__(self):
        """Pairs of member and score, in order; the set must not change until the last."""
        cdef Walk walk
        cdef Item item
        cdef uint64_t left = self.count()
        cdef const uint8_t *text
        cdef char digits[INT64_ROOM]
        cdef size_t n
        self.seek(0, &walk)
        while left and self.next(&walk, &item):
            left -= 1
            text = member_text(&item.member, digits, &n)
            yield PyBytes_FromStringAndSize(<const char *>text, <Py_ssize_t>n), item.score

    def score(self, bytes member not None):
        """The score of a member, or None."""
        cdef double score
        if not self.find(<const uint8_t *>PyBytes_AS_STRING(member), <size_t>PyBytes_GET_SIZE(member), &score):
            return None
        return score

    @property
    def is_packed(self):
        """Whether it is one listpack."""
        return self.packed is not NULL

    # --- Freeing in the background ----------------------------------------------------------------------------------

    def free_effort(self):
        """About how many blocks of memory there are to free. O(1)."""
        return 0 if self.large is NULL else self.count() // MEMBERS_PER_BLOCK

    def detach(self):
        """Give up a large set's memory, to be freed elsewhere; the set has no form any more, and is empty."""
        cdef SortedSetRemains remains = SortedSetRemains.__new__(SortedSetRemains)
        remains.large = self.large
        self.large = NULL
        return remains

    # --- Checking ---------------------------------------------------------------------------------------------------

    def check_invariants(self):
        """Walk everything and raise AssertionError where the set is inconsistent."""
        cdef const char *wrong
        cdef size_t offset
        assert (self.packed is NULL) != (self.large is NULL), "a set has one form"
        if self.packed is NULL:
            wrong = large_check(self.large)
        else:
            wrong = lp_validate(self.packed, lp_bytes(self.packed), &offset)
            if wrong is NULL:
                wrong = packed_check(self.packed)
        assert wrong is NULL, wrong.decode()


cdef SortedSet sorted_set_of(uint8_t *packed):
    cdef SortedSet made = SortedSet.__new__(SortedSet)
    made.packed = packed
    return made


cdef SortedSet new_sorted_set(bint is_large):
    """An empty set."""
    cdef SortedSet made = SortedSet.__new__(SortedSet)
    if is_large:
        made.large = large_new()
    else:
        made.packed = lp_new()
    if made.packed is NULL and made.large is NULL:
        no_memory()
    return made


@cython.final
@cython.no_gc
cdef class SortedSetRemains:
    """The memory of a large set that is no longer reachable."""

    cdef Large *large           # owned; NULL: freed

    def __dealloc__(self):
        if self.large is not NULL:
            large_free(self.large)

    def free(self):
        """Free all of it, without the interpreter's lock."""
        cdef Large *large = self.large
        cdef size_t size
        self.large = NULL
        if large is NULL:
            return
        with nogil:
            size = large_memory(large)
            large_free(large)
            freed_aside(size)
