# cython: language_level=3
"""CountedTree: handles in order, with the rank of each. A B+ tree whose inner nodes count. See counted_tree.pyx."""

from libc.stdint cimport uint16_t, uint32_t, uint64_t


cdef enum:
    LEAF_ROOM = 128     # most handles of a leaf
    INNER_ROOM = 64     # most children of an inner node
    MAX_DEPTH = 12      # of inner nodes above a leaf: more than 2**32 handles can need


# What a key is compared by.
cdef enum TreeCut:
    CUT_NONE            # prefix, then rest: the place of one record
    CUT_BEFORE          # before all records with that prefix
    CUT_AFTER           # after all records with that prefix
    CUT_BY_REST         # by the rest alone, for records that all have one prefix
    CUT_AFTER_REST      # likewise, and after the record that equals it


cdef struct TreeKey:
    # What to look for.
    TreeCut cut
    uint64_t prefix
    const void *rest           # what `compare` makes of it; unused with CUT_BEFORE and CUT_AFTER
    size_t size                # likewise


ctypedef uint64_t (*tree_prefix)(const void *owner, uint32_t handle) noexcept nogil
    # The prefix of a record: records with a lower one come first.
ctypedef int (*tree_compare)(const void *owner, uint32_t handle, const TreeKey *key) noexcept nogil
    # Below, at or above 0 as the rest of a record comes before, equals, or comes after that of the key.


cdef struct Leaf:
    Leaf *previous             # NULL: it is the first
    Leaf *next                 # NULL: it is the last
    uint16_t count
    uint16_t room              # handles that there is memory for
    uint32_t handles[1]        # of `room`


cdef struct Inner:
    uint16_t count
    uint64_t prefixes[INNER_ROOM]      # of the first record below each child but the first
    uint32_t firsts[INNER_ROOM]        # its handle
    uint32_t counts[INNER_ROOM]        # of handles below each child
    void *children[INNER_ROOM]         # owned: Inner, or Leaf on the lowest level


cdef struct CountedTree:
    void *root                 # owned: a Leaf if depth is 0, else an Inner; NULL: empty
    Leaf *first                # NULL: empty
    Leaf *last
    uint64_t count
    uint64_t held              # bytes of memory of all nodes
    int depth                  # levels of inner nodes
    const void *owner          # passed to both functions
    tree_prefix prefix
    tree_compare compare


cdef struct TreePlace:
    # A record in the order; leaf is NULL: none. Dead after the next change of the tree.
    Leaf *leaf
    unsigned int at


cdef inline uint32_t tree_handle(const TreePlace *place) noexcept nogil:
    return place.leaf.handles[place.at]


cdef inline void tree_step(TreePlace *place) noexcept nogil:
    """Go to the next record."""
    place.at += 1
    if place.at == place.leaf.count:
        place.leaf = place.leaf.next
        place.at = 0


cdef inline void tree_step_back(TreePlace *place) noexcept nogil:
    """Go to the previous record."""
    if place.at == 0:
        place.leaf = place.leaf.previous
        place.at = 0 if place.leaf is NULL else place.leaf.count
        if place.leaf is NULL:
            return
    place.at -= 1


cdef int tree_insert(CountedTree *tree, const TreeKey *key, uint32_t handle) noexcept nogil
    # The key (CUT_NONE) is that of the handle, and not in the tree. -1: no memory, nothing changed; else 0.
cdef int tree_append(CountedTree *tree, uint64_t prefix, uint32_t handle) noexcept nogil
    # Likewise, at the end, where it belongs.
cdef bint tree_remove(CountedTree *tree, const TreeKey *key, uint32_t handle) noexcept nogil
    # The key (CUT_NONE) is that of the handle. False: not there.
cdef bint tree_replace(CountedTree *tree, const TreeKey *key, uint32_t handle, uint32_t new) noexcept nogil
    # Another handle for a record, likewise.
cdef uint64_t tree_rank(
    const CountedTree *tree, const TreeKey *key, uint32_t handle, TreePlace *place
) noexcept nogil
    # How many records come before the key; and the first that does not (place may be NULL). The handle is that of the
    # record with this key, if it is in the tree and known, else 0.
cdef void tree_at(const CountedTree *tree, uint64_t rank, TreePlace *place) noexcept nogil
cdef void tree_clear(CountedTree *tree) noexcept nogil     # frees everything; the tree is empty then
cdef const char *tree_check(const CountedTree *tree) noexcept nogil    # NULL, or which invariant does not hold
