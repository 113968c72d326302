# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""CountedTree: handles of 32 bits in the order of the records that they name, and the rank of each, in O(log n).

    inner node     prefixes, firsts      the first record below each child, but for the first child
                   counts, children      how many handles are below each child
    leaf           handles               up to LEAF_ROOM, in order; leaves are linked in both directions

The tree knows its records only by two functions: `prefix` gives 64 bits by which most records differ (a score, a time),
`compare` decides among those with equal prefixes. Inner nodes hold prefixes, so that a search looks at few records on
its way to a leaf: a handle per record, and the memory of one record touched for each halving of one leaf, are what this
tree costs less than a skip list. A record that is in the tree is found in its leaf by its handle; no other is touched.

Leaves grow by LEAF_STEP handles at a time, so that a half-full one does not take the memory of a full one. A full leaf
is cut in half, but a tree that is filled in order leaves full leaves behind. A leaf or inner node with few elements is
merged with a neighbour when both together are not nearly full.

What must hold (tree_check): prefixes, handles and counts of inner nodes are those of what is below; only an empty tree
has an empty leaf; all leaves are at the same depth, and linked in order.

Nothing here needs the GIL. What takes memory takes it before anything changes. Callers: values/sorted_sets.
"""

from libc.stdint cimport uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memmove

from streamd.heap cimport free, malloc, realloc

__all__ = []

cdef enum:
    LEAF_STEP = 16
    FEW_HANDLES = LEAF_ROOM / 4        # a leaf with fewer is merged ...
    MANY_HANDLES = LEAF_ROOM * 3 / 4   # ... if the result has at most so many
    FEW_CHILDREN = INNER_ROOM / 4
    MANY_CHILDREN = INNER_ROOM * 3 / 4

cdef struct Path:
    # The way to a leaf: at each level, the root first, an inner node and the index of its child.
    Inner *nodes[MAX_DEPTH]
    unsigned int at[MAX_DEPTH]
    Leaf *leaf
    unsigned int place         # in the leaf: the first record that does not come before the key


# --- Nodes ----------------------------------------------------------------------------------------------------------


cdef inline size_t leaf_size(unsigned int room) noexcept nogil:
    return sizeof(Leaf) + (room - 1) * sizeof(uint32_t)


cdef Leaf *new_leaf(CountedTree *tree, unsigned int room) noexcept nogil:
    cdef Leaf *leaf = <Leaf *>malloc(leaf_size(room))
    if leaf is not NULL:
        leaf.previous = leaf.next = NULL
        leaf.count = 0
        leaf.room = <uint16_t>room
        tree.held += leaf_size(room)
    return leaf


cdef Inner *new_inner(CountedTree *tree) noexcept nogil:
    cdef Inner *inner = <Inner *>malloc(sizeof(Inner))
    if inner is not NULL:
        inner.count = 0
        tree.held += sizeof(Inner)
    return inner


cdef void free_leaf(CountedTree *tree, Leaf *leaf) noexcept nogil:
    """Free a leaf that leaves the list of leaves, too."""
    if leaf.previous is not NULL:
        leaf.previous.next = leaf.next
    else:
        tree.first = leaf.next
    if leaf.next is not NULL:
        leaf.next.previous = leaf.previous
    else:
        tree.last = leaf.previous
    tree.held -= leaf_size(leaf.room)
    free(leaf)


cdef void free_inner(CountedTree *tree, Inner *inner) noexcept nogil:
    tree.held -= sizeof(Inner)
    free(inner)


cdef Leaf *resize_leaf(CountedTree *tree, Path *path, unsigned int room) noexcept nogil:
    """Another room for the leaf of a path, which may move. NULL: no memory, nothing changed."""
    cdef Leaf *old = path.leaf
    cdef unsigned int before = old.room
    cdef Leaf *leaf = <Leaf *>realloc(old, leaf_size(room))
    if leaf is NULL:
        return NULL
    tree.held += leaf_size(room)
    tree.held -= leaf_size(before)
    leaf.room = <uint16_t>room
    path.leaf = leaf
    if leaf.previous is not NULL:
        leaf.previous.next = leaf
    else:
        tree.first = leaf
    if leaf.next is not NULL:
        leaf.next.previous = leaf
    else:
        tree.last = leaf
    if tree.depth:
        path.nodes[tree.depth - 1].children[path.at[tree.depth - 1]] = leaf
    else:
        tree.root = leaf
    return leaf


cdef inline void open_child(Inner *inner, unsigned int at) noexcept nogil:
    """Make room for a child."""
    cdef unsigned int more = inner.count - at
    memmove(inner.prefixes + at + 1, inner.prefixes + at, more * sizeof(uint64_t))
    memmove(inner.firsts + at + 1, inner.firsts + at, more * sizeof(uint32_t))
    memmove(inner.counts + at + 1, inner.counts + at, more * sizeof(uint32_t))
    memmove(inner.children + at + 1, inner.children + at, more * sizeof(void *))
    inner.count += 1


cdef inline void close_child(Inner *inner, unsigned int at) noexcept nogil:
    """Forget a child."""
    cdef unsigned int more
    inner.count -= 1
    more = inner.count - at
    memmove(inner.prefixes + at, inner.prefixes + at + 1, more * sizeof(uint64_t))
    memmove(inner.firsts + at, inner.firsts + at + 1, more * sizeof(uint32_t))
    memmove(inner.counts + at, inner.counts + at + 1, more * sizeof(uint32_t))
    memmove(inner.children + at, inner.children + at + 1, more * sizeof(void *))


cdef inline void take_children(Inner *to, const Inner *inner, unsigned int at, unsigned int count) noexcept nogil:
    """Copy children to the end of another node."""
    memcpy(to.prefixes + to.count, inner.prefixes + at, count * sizeof(uint64_t))
    memcpy(to.firsts + to.count, inner.firsts + at, count * sizeof(uint32_t))
    memcpy(to.counts + to.count, inner.counts + at, count * sizeof(uint32_t))
    memcpy(to.children + to.count, inner.children + at, count * sizeof(void *))
    to.count += <uint16_t>count


cdef inline uint32_t sum_counts(const Inner *inner, unsigned int count) noexcept nogil:
    """How many handles are below the first `count` children."""
    cdef uint32_t total = 0
    cdef unsigned int i
    for i in range(count):
        total += inner.counts[i]
    return total


# --- Searching ------------------------------------------------------------------------------------------------------


cdef inline bint comes_before(
    const CountedTree *tree, uint64_t prefix, uint32_t handle, const TreeKey *key, bint or_equals
) noexcept nogil:
    """Whether a record comes before a key, or, with or_equals, is the one of the key."""
    cdef int order
    if key.cut >= CUT_BY_REST:
        order = tree.compare(tree.owner, handle, key)
        return order < 0 or (order == 0 and (or_equals or key.cut == CUT_AFTER_REST))
    if prefix != key.prefix:
        return prefix < key.prefix
    if key.cut != CUT_NONE:
        return key.cut == CUT_AFTER
    order = tree.compare(tree.owner, handle, key)
    return order < 0 or (order == 0 and or_equals)


cdef inline unsigned int child_for(const CountedTree *tree, const Inner *inner, const TreeKey *key) noexcept nogil:
    """The child below which the place of a key is."""
    cdef unsigned int low = 1, high = inner.count, middle
    while low < high:
        middle = (low + high) >> 1
        if comes_before(tree, inner.prefixes[middle], inner.firsts[middle], key, True):
            low = middle + 1
        else:
            high = middle
    return low - 1


cdef inline unsigned int place_in(const CountedTree *tree, const Leaf *leaf, const TreeKey *key) noexcept nogil:
    """The first record of a leaf that does not come before a key."""
    cdef unsigned int low = 0, high = leaf.count, middle
    cdef uint64_t prefix = 0
    while low < high:
        middle = (low + high) >> 1
        if key.cut < CUT_BY_REST:
            prefix = tree.prefix(tree.owner, leaf.handles[middle])
        if comes_before(tree, prefix, leaf.handles[middle], key, False):
            low = middle + 1
        else:
            high = middle
    return low


cdef inline unsigned int place_of(const Leaf *leaf, uint32_t handle) noexcept nogil:
    """The place of a handle in a leaf, behind the last if it is not there. No record is looked at."""
    cdef unsigned int at = 0
    while at < leaf.count and leaf.handles[at] != handle:
        at += 1
    return at


cdef bint find_record(const CountedTree *tree, const TreeKey *key, uint32_t handle, Path *path) noexcept nogil:
    """The way to a record; whether it is there."""
    cdef void *node = tree.root
    cdef int level
    if node is NULL:
        return False
    for level in range(tree.depth):
        path.nodes[level] = <Inner *>node
        path.at[level] = child_for(tree, <Inner *>node, key)
        node = path.nodes[level].children[path.at[level]]
    path.leaf = <Leaf *>node
    path.place = place_of(path.leaf, handle)
    return path.place < path.leaf.count


cdef uint64_t tree_rank(
    const CountedTree *tree, const TreeKey *key, uint32_t handle, TreePlace *place
) noexcept nogil:
    cdef void *node = tree.root
    cdef uint64_t rank = 0
    cdef unsigned int at
    cdef int _level
    if node is NULL:
        if place is not NULL:
            place.leaf = NULL
            place.at = 0
        return 0
    for _level in range(tree.depth):
        at = child_for(tree, <Inner *>node, key)
        rank += sum_counts(<Inner *>node, at)
        node = (<Inner *>node).children[at]
    at = place_of(<Leaf *>node, handle) if handle else place_in(tree, <Leaf *>node, key)
    if place is not NULL:
        place.leaf = <Leaf *>node
        place.at = at
        if at == place.leaf.count:
            place.leaf = place.leaf.next
            place.at = 0
    return rank + at


cdef void tree_at(const CountedTree *tree, uint64_t rank, TreePlace *place) noexcept nogil:
    cdef void *node = tree.root
    cdef uint32_t left = <uint32_t>rank
    cdef unsigned int at
    cdef int _level
    if rank >= tree.count:
        place.leaf = NULL
        place.at = 0
        return
    for _level in range(tree.depth):
        at = 0
        while left >= (<Inner *>node).counts[at]:
            left -= (<Inner *>node).counts[at]
            at += 1
        node = (<Inner *>node).children[at]
    place.leaf = <Leaf *>node
    place.at = left


# --- Inserting ------------------------------------------------------------------------------------------------------


cdef int raise_root(CountedTree *tree) noexcept nogil:
    """Put a new root above the old one, its only child. -1: no memory."""
    cdef Inner *inner
    if tree.depth == MAX_DEPTH:
        return -1
    inner = new_inner(tree)
    if inner is NULL:
        return -1
    inner.count = 1
    inner.prefixes[0] = inner.firsts[0] = 0
    inner.counts[0] = <uint32_t>tree.count
    inner.children[0] = tree.root
    tree.root = inner
    tree.depth += 1
    return 0


cdef int split_child(CountedTree *tree, Inner *parent, unsigned int at) noexcept nogil:
    """Cut a full inner node in half; its parent has room. -1: no memory."""
    cdef Inner *left = <Inner *>parent.children[at]
    cdef Inner *right = new_inner(tree)
    if right is NULL:
        return -1
    take_children(right, left, INNER_ROOM / 2, INNER_ROOM / 2)
    left.count = INNER_ROOM / 2
    open_child(parent, at + 1)
    parent.prefixes[at + 1] = right.prefixes[0]
    parent.firsts[at + 1] = right.firsts[0]
    parent.counts[at + 1] = sum_counts(right, right.count)
    parent.counts[at] -= parent.counts[at + 1]
    parent.children[at + 1] = right
    return 0


cdef int path_for_insert(CountedTree *tree, const TreeKey *key, Path *path) noexcept nogil:
    """The way to the place of a key (NULL: to the end); inner nodes on it get room for a child. -1: no memory."""
    cdef void *node
    cdef Inner *inner
    cdef int level = 0
    cdef unsigned int at
    if tree.depth and (<Inner *>tree.root).count == INNER_ROOM and raise_root(tree) < 0:
        return -1
    node = tree.root
    while level < tree.depth:
        inner = <Inner *>node
        at = inner.count - 1 if key is NULL else child_for(tree, inner, key)
        if level + 1 < tree.depth and (<Inner *>inner.children[at]).count == INNER_ROOM:
            if split_child(tree, inner, at) < 0:
                return -1
            if key is NULL or comes_before(tree, inner.prefixes[at + 1], inner.firsts[at + 1], key, True):
                at += 1
        path.nodes[level] = inner
        path.at[level] = at
        node = inner.children[at]
        level += 1
    path.leaf = <Leaf *>node
    path.place = path.leaf.count if key is NULL else place_in(tree, path.leaf, key)
    return 0


cdef int split_leaf(CountedTree *tree, Path *path, uint64_t prefix, uint32_t handle) noexcept nogil:
    """Insert a handle at the place of a path, in a leaf that is full, which becomes two. -1: no memory."""
    cdef Leaf *left = path.leaf
    cdef Leaf *right
    cdef Inner *parent
    cdef unsigned int cut = LEAF_ROOM / 2
    cdef unsigned int at, moved
    if path.place == LEAF_ROOM and left.next is NULL:
        cut = LEAF_ROOM
    elif path.place == 0 and left.previous is NULL:
        cut = LEAF_STEP                # filled from the end: the rest stays full
    if tree.depth == 0:
        if raise_root(tree) < 0:
            return -1
        path.nodes[0] = <Inner *>tree.root
        path.at[0] = 0
    moved = LEAF_ROOM - cut
    right = new_leaf(tree, max(LEAF_STEP, moved + (path.place > cut)))
    if right is NULL:
        return -1
    parent = path.nodes[tree.depth - 1]
    at = path.at[tree.depth - 1]
    memcpy(right.handles, left.handles + cut, moved * sizeof(uint32_t))
    right.count = <uint16_t>moved
    left.count = <uint16_t>cut
    right.previous = left
    right.next = left.next
    if left.next is not NULL:
        left.next.previous = right
    else:
        tree.last = right
    left.next = right
    open_child(parent, at + 1)
    parent.children[at + 1] = right
    if path.place > cut or cut == LEAF_ROOM:
        insert_in(right, path.place - cut, handle)
    else:
        insert_in(left, path.place, handle)
    parent.firsts[at + 1] = right.handles[0]
    parent.prefixes[at + 1] = prefix if right.handles[0] == handle else tree.prefix(tree.owner, right.handles[0])
    parent.counts[at] = left.count
    parent.counts[at + 1] = right.count
    if left.room - left.count >= 2 * LEAF_STEP:
        path.leaf = left
        resize_leaf(tree, path, left.count + LEAF_STEP / 2)
    return 0


cdef inline void insert_in(Leaf *leaf, unsigned int place, uint32_t handle) noexcept nogil:
    """Insert a handle into a leaf that has room."""
    memmove(leaf.handles + place + 1, leaf.handles + place, (leaf.count - place) * sizeof(uint32_t))
    leaf.handles[place] = handle
    leaf.count += 1


cdef int insert_at(CountedTree *tree, Path *path, uint64_t prefix, uint32_t handle) noexcept nogil:
    """Insert a handle at the place of a path. -1: no memory."""
    cdef Leaf *leaf = path.leaf
    cdef int level, above = tree.depth
    if leaf.count == LEAF_ROOM:
        if split_leaf(tree, path, prefix, handle) < 0:
            return -1
        above = tree.depth - 1
    else:
        if leaf.count == leaf.room:
            leaf = resize_leaf(tree, path, min(LEAF_ROOM, leaf.room + LEAF_STEP))
            if leaf is NULL:
                return -1
        insert_in(leaf, path.place, handle)
    for level in range(above):
        path.nodes[level].counts[path.at[level]] += 1
    tree.count += 1
    return 0


cdef int insert_first(CountedTree *tree, uint32_t handle) noexcept nogil:
    """Insert into an empty tree. -1: no memory."""
    cdef Leaf *leaf = new_leaf(tree, LEAF_STEP)
    if leaf is NULL:
        return -1
    leaf.handles[0] = handle
    leaf.count = 1
    tree.root = tree.first = tree.last = leaf
    tree.count = 1
    return 0


cdef int tree_insert(CountedTree *tree, const TreeKey *key, uint32_t handle) noexcept nogil:
    cdef Path path
    if tree.root is NULL:
        return insert_first(tree, handle)
    if path_for_insert(tree, key, &path) < 0:
        return -1
    return insert_at(tree, &path, key.prefix, handle)


cdef int tree_append(CountedTree *tree, uint64_t prefix, uint32_t handle) noexcept nogil:
    cdef Path path
    if tree.root is NULL:
        return insert_first(tree, handle)
    if path_for_insert(tree, NULL, &path) < 0:
        return -1
    return insert_at(tree, &path, prefix, handle)


# --- Removing -------------------------------------------------------------------------------------------------------


cdef void set_first(Path *path, int level, uint64_t prefix, uint32_t handle) noexcept nogil:
    """Note another first record below the child of a path at `level`, where that is noted."""
    while level >= 0:
        if path.at[level]:
            path.nodes[level].prefixes[path.at[level]] = prefix
            path.nodes[level].firsts[path.at[level]] = handle
            return
        level -= 1


cdef void remove_child(CountedTree *tree, Path *path, int level) noexcept nogil:
    """Forget the child of a path at `level`, which is empty and freed; and nodes above that are empty then."""
    cdef Inner *inner
    while True:
        inner = path.nodes[level]
        close_child(inner, path.at[level])
        if inner.count:
            break
        free_inner(tree, inner)
        level -= 1
        if level < 0:
            tree.root = NULL
            tree.depth = 0
            return
    if path.at[level] == 0:
        set_first(path, level - 1, inner.prefixes[0], inner.firsts[0])
    merge_inner(tree, path, level)


cdef void merge_inner(CountedTree *tree, Path *path, int level) noexcept nogil:
    """Merge the node of a path at `level` with a neighbour if both are small, and so on upwards."""
    cdef Inner *inner
    cdef Inner *parent
    cdef unsigned int at, most
    while level > 0 and path.nodes[level].count < FEW_CHILDREN:
        parent = path.nodes[level - 1]
        at = path.at[level - 1]
        most = MANY_CHILDREN - path.nodes[level].count
        if at + 1 < parent.count and (<Inner *>parent.children[at + 1]).count <= most:
            at += 1
        elif at == 0 or (<Inner *>parent.children[at - 1]).count > most:
            break
        inner = <Inner *>parent.children[at]
        inner.prefixes[0] = parent.prefixes[at]
        inner.firsts[0] = parent.firsts[at]
        take_children(<Inner *>parent.children[at - 1], inner, 0, inner.count)
        parent.counts[at - 1] += parent.counts[at]
        free_inner(tree, inner)
        close_child(parent, at)
        level -= 1
    while tree.depth and (<Inner *>tree.root).count == 1:
        inner = <Inner *>tree.root
        tree.root = inner.children[0]
        tree.depth -= 1
        free_inner(tree, inner)


cdef void merge_leaf(CountedTree *tree, Path *path) noexcept nogil:
    """Merge the leaf of a path, which is small, with a neighbour, if that is not too large."""
    cdef int level = tree.depth - 1
    cdef Inner *parent = path.nodes[level]
    cdef unsigned int at = path.at[level]
    cdef Leaf *leaf = path.leaf
    cdef Leaf *right
    if at + 1 < parent.count and (<Leaf *>parent.children[at + 1]).count + leaf.count <= MANY_HANDLES:
        at += 1
    elif at == 0 or (<Leaf *>parent.children[at - 1]).count + leaf.count > MANY_HANDLES:
        return
    right = <Leaf *>parent.children[at]
    path.at[level] = at - 1
    path.leaf = leaf = <Leaf *>parent.children[at - 1]
    if leaf.room < leaf.count + right.count:
        leaf = resize_leaf(tree, path, leaf.count + right.count)
        if leaf is NULL:
            return
    memcpy(leaf.handles + leaf.count, right.handles, right.count * sizeof(uint32_t))
    leaf.count += right.count
    parent.counts[at - 1] = leaf.count
    free_leaf(tree, right)
    close_child(parent, at)
    merge_inner(tree, path, level)


cdef bint tree_remove(CountedTree *tree, const TreeKey *key, uint32_t handle) noexcept nogil:
    cdef Path path
    cdef Leaf *leaf
    cdef int level
    if not find_record(tree, key, handle, &path):
        return False
    leaf = path.leaf
    leaf.count -= 1
    memmove(
        leaf.handles + path.place, leaf.handles + path.place + 1, (leaf.count - path.place) * sizeof(uint32_t)
    )
    for level in range(tree.depth):
        path.nodes[level].counts[path.at[level]] -= 1
    tree.count -= 1
    if leaf.count == 0:
        free_leaf(tree, leaf)
        if tree.depth:
            remove_child(tree, &path, tree.depth - 1)
        else:
            tree.root = NULL
        return True
    if path.place == 0:
        set_first(&path, tree.depth - 1, tree.prefix(tree.owner, leaf.handles[0]), leaf.handles[0])
    if leaf.room - leaf.count >= 2 * LEAF_STEP:
        resize_leaf(tree, &path, leaf.count + LEAF_STEP / 2)
    if tree.depth and path.leaf.count < FEW_HANDLES:
        merge_leaf(tree, &path)
    return True


cdef bint tree_replace(CountedTree *tree, const TreeKey *key, uint32_t handle, uint32_t new) noexcept nogil:
    cdef Path path
    if not find_record(tree, key, handle, &path):
        return False
    path.leaf.handles[path.place] = new
    if path.place == 0:
        set_first(&path, tree.depth - 1, key.prefix, new)
    return True


# --- The whole tree -------------------------------------------------------------------------------------------------


cdef void free_nodes(void *node, int depth) noexcept nogil:
    cdef unsigned int i
    if depth:
        for i in range((<Inner *>node).count):
            free_nodes((<Inner *>node).children[i], depth - 1)
    free(node)


cdef void tree_clear(CountedTree *tree) noexcept nogil:
    if tree.root is not NULL:
        free_nodes(tree.root, tree.depth)
    tree.root = tree.first = tree.last = NULL
    tree.count = tree.held = 0
    tree.depth = 0


cdef const char *check_node(
    const CountedTree *tree, void *node, int depth, uint64_t *count, uint64_t *held, Leaf **last
) noexcept nogil:
    """Check what is below a node: count its handles and bytes, and follow the list of leaves."""
    cdef Inner *inner = <Inner *>node
    cdef Leaf *leaf = <Leaf *>node
    cdef Leaf *before
    cdef uint64_t counted
    cdef unsigned int i
    cdef const char *wrong
    if depth == 0:
        if leaf.count == 0 or leaf.count > leaf.room or leaf.room > LEAF_ROOM:
            return b"a leaf has handles, and room for them"
        if leaf.previous is not last[0] or (last[0] is not NULL and last[0].next is not leaf):
            return b"leaves are linked in order"
        last[0] = leaf
        count[0] += leaf.count
        held[0] += leaf_size(leaf.room)
        return NULL
    held[0] += sizeof(Inner)
    if inner.count == 0 or inner.count > INNER_ROOM:
        return b"an inner node has children, and room for them"
    for i in range(inner.count):
        counted = count[0]
        before = last[0]
        wrong = check_node(tree, inner.children[i], depth - 1, count, held, last)
        if wrong is not NULL:
            return wrong
        if count[0] - counted != inner.counts[i]:
            return b"an inner node counts what is below its children"
        if i:
            leaf = tree.first if before is NULL else before.next
            if inner.firsts[i] != leaf.handles[0]:
                return b"an inner node knows the first record below a child"
            if inner.prefixes[i] != tree.prefix(tree.owner, leaf.handles[0]):
                return b"an inner node knows the prefix of the first record below a child"
    return NULL


cdef const char *tree_check(const CountedTree *tree) noexcept nogil:
    cdef uint64_t count = 0, held = 0
    cdef Leaf *last = NULL
    cdef Leaf *leaf
    cdef const char *wrong
    cdef uint64_t before = 0, prefix
    cdef unsigned int i
    if tree.root is NULL:
        if tree.count or tree.held or tree.depth or tree.first is not NULL or tree.last is not NULL:
            return b"an empty tree has nothing"
        return NULL
    if tree.depth and (<Inner *>tree.root).count == 1:
        return b"the root has two children"
    wrong = check_node(tree, tree.root, tree.depth, &count, &held, &last)
    if wrong is not NULL:
        return wrong
    if last is not tree.last or last.next is not NULL or tree.first.previous is not NULL:
        return b"the tree knows its first and its last leaf"
    if count != tree.count or held != tree.held:
        return b"the tree counts its handles and bytes"
    leaf = tree.first
    while leaf is not NULL:
        for i in range(leaf.count):
            prefix = tree.prefix(tree.owner, leaf.handles[i])
            if prefix < before:
                return b"handles are in the order of their prefixes"
            before = prefix
        leaf = leaf.next
    return NULL
