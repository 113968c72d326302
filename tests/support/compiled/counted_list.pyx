# cython: language_level=3, boundscheck=False, wraparound=False
"""CountedList: the counted tree as an ordered list of different pairs of numbers."""

cimport cython
from libc.stdint cimport uint32_t, uint64_t

from streamd.engine.counted_tree cimport (
    CUT_AFTER, CUT_BEFORE, CUT_NONE, CountedTree, TreeKey, TreePlace, tree_append, tree_at, tree_check, tree_clear,
    tree_handle, tree_insert, tree_rank, tree_remove, tree_replace, tree_step, tree_step_back,
)
from streamd.heap cimport free, realloc

__all__ = ["CountedList"]


cdef enum:
    NOBODY = 0xFFFFFF           # a handle that no pair has


cdef struct Pair:
    uint64_t prefix
    uint64_t rest


cdef uint64_t prefix_of(const void *owner, uint32_t handle) noexcept nogil:
    return (<const Pair **>owner)[0][handle].prefix


cdef int compare_rest(const void *owner, uint32_t handle, const TreeKey *key) noexcept nogil:
    cdef uint64_t rest = (<const Pair **>owner)[0][handle].rest
    return -1 if rest < key.size else 1 if rest > key.size else 0


@cython.final
cdef class CountedList:
    """Pairs (prefix, rest) in order. A pair's handle is the place where it is kept."""

    cdef CountedTree tree
    cdef Pair *pairs            # owned; the tree is given the address of this field
    cdef uint32_t room
    cdef uint32_t used
    cdef dict handles           # pair -> handle

    def __cinit__(self):
        self.tree.owner = <void *>&self.pairs
        self.tree.prefix = prefix_of
        self.tree.compare = compare_rest
        self.used = 1
        self.handles = {}

    def __dealloc__(self):
        tree_clear(&self.tree)
        free(self.pairs)

    def __len__(self):
        return self.tree.count

    cdef uint32_t keep(self, uint64_t prefix, uint64_t rest) except 0:
        if self.used >= self.room:
            self.room = 2 * self.room + 8
            self.pairs = <Pair *>realloc(self.pairs, self.room * sizeof(Pair))
        self.pairs[self.used].prefix = prefix
        self.pairs[self.used].rest = rest
        self.used += 1
        self.handles[prefix, rest] = self.used - 1
        return self.used - 1

    cdef TreeKey key(self, uint64_t prefix, uint64_t rest):
        cdef TreeKey key
        key.cut = CUT_NONE
        key.prefix = prefix
        key.rest = NULL
        key.size = rest
        return key

    def insert(self, uint64_t prefix, uint64_t rest):
        cdef TreeKey key = self.key(prefix, rest)
        assert tree_insert(&self.tree, &key, self.keep(prefix, rest)) == 0

    def append(self, uint64_t prefix, uint64_t rest):
        assert tree_append(&self.tree, prefix, self.keep(prefix, rest)) == 0

    def remove(self, uint64_t prefix, uint64_t rest):
        """Whether it was there."""
        cdef TreeKey key = self.key(prefix, rest)
        cdef uint32_t handle = self.handles.pop((prefix, rest), NOBODY)
        if not tree_remove(&self.tree, &key, handle):
            return False
        # Whoever looks at it again sees nonsense.
        self.pairs[handle].prefix = self.pairs[handle].rest = 0x5555
        return True

    def rename(self, uint64_t prefix, uint64_t rest):
        """Give a pair another handle; whether it is there."""
        cdef TreeKey key = self.key(prefix, rest)
        cdef uint32_t handle = self.handles.get((prefix, rest), NOBODY)
        cdef bint is_there = tree_replace(&self.tree, &key, handle, self.keep(prefix, rest))
        if not is_there:
            del self.handles[prefix, rest]
        return is_there

    def rank(self, uint64_t prefix, rest=None, bint after=False):
        """How many come before a pair, or before (after) all with a prefix; and the pair there, or None."""
        cdef TreeKey key = self.key(prefix, 0 if rest is None else rest)
        cdef TreePlace place
        if rest is None:
            key.cut = CUT_AFTER if after else CUT_BEFORE
        found = tree_rank(&self.tree, &key, 0, &place)
        if rest is not None and (prefix, rest) in self.handles:
            assert tree_rank(&self.tree, &key, self.handles[prefix, rest], NULL) == found
        return found, self.pair(&place)

    cdef object pair(self, const TreePlace *place):
        if place.leaf is NULL:
            return None
        return self.pairs[tree_handle(place)].prefix, self.pairs[tree_handle(place)].rest

    def __getitem__(self, uint64_t rank):
        cdef TreePlace place
        tree_at(&self.tree, rank, &place)
        return self.pair(&place)

    def walk(self, uint64_t rank, bint backwards=False):
        """All pairs from a rank on."""
        cdef TreePlace place
        cdef list found = []
        tree_at(&self.tree, rank, &place)
        while place.leaf is not NULL:
            found.append(self.pair(&place))
            if backwards:
                tree_step_back(&place)
            else:
                tree_step(&place)
        return found

    @property
    def held(self):
        """Bytes of memory of the nodes."""
        return self.tree.held

    def check(self):
        cdef const char *wrong = tree_check(&self.tree)
        assert wrong is NULL, wrong.decode()
