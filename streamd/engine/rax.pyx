# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The radix tree: an ordered map from fixed-size byte keys to records.

A stream keeps its listpacks in one (16-byte keys, the master IDs); a pending entries list keeps its chunks in several.
Interface and ownership: rax.pxd.

Shape. An inner node branches on one byte of the key: it stores the index of that byte, its `depth`, and one child for
each value that occurs there. Depths grow on the way down; bytes that all keys of a subtree share are not stored at all,
because the records at the bottom have them. So a tree of these three keys of four bytes is two nodes and three records:

      61 62 63 64      "abcd"            [depth 1]
      61 62 66 67      "abfg"       62 /           \\ 7a
      61 7a 00 00      "az.."       [depth 2]      record az..
                                63 /         \\ 66
                          record abcd       record abfg

A search walks down by the bytes the nodes ask for and compares the whole key once, with the record it reaches.

Where a key belongs. Walk down; where the key's byte has no child, go on to any record below: all of them agree on the
bytes before that node's depth. The first byte in which this record and the key differ is where the key leaves
the tree, whichever record it was: `d`. A second walk from the root stops at the first pointer P that is a record or a
node of depth >= d. Either P is a node of depth d, which has no child for the key's byte, or all records below P share
byte d and lie on one side of the key. Insertion and all ordered queries start from there, and are O(key_len).

Nodes come in four sizes, for 4, 16, 48 and 256 children; those of the first three keep their bytes in ascending order.
They grow when full and shrink with some slack, so that repeatedly adding and removing a key at the limit moves nothing.

Weights. A record may have a weight, such as the number of entries of a listpack. The record keeps it, and each inner
node has the sum of those below it. What comes before a key is then added up on the way down: at each node, the children
to the left of the way, or, if they are fewer, those to the right, which are subtracted from the sum of the node. A tree
whose caller never calls `rax_weigh` has sums of 0, and does nothing for them.

`redis_nodes` is the number of nodes in Redis's own radix tree for the same keys: one per record and one per branch,
and one more in front of each for the shared bytes between its parent's branch byte and itself, if there are any. Redis
compresses again after deletions, so the number depends only on the keys; every change adds the difference it makes.

Invariants: see rax_check.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint64_t, uintptr_t
from streamd.heap cimport free, malloc
from libc.string cimport memchr, memcmp, memcpy, memmove, memset

__all__ = []


cdef extern from *:
    void prefetch "__builtin_prefetch" (const void *address) noexcept nogil


cdef enum:
    MAX_KEY_LEN = 32
    AHEAD = 16             # children whose memory is prefetched

cdef enum NodeKind:
    NODE4
    NODE16
    NODE48
    NODE256


cdef struct Node:
    uint8_t kind      # NodeKind
    uint8_t depth     # index of the byte of the key that chooses the child
    uint16_t count    # children, 2 to the capacity
    uint8_t below[8]  # a uint64_t, the weight of all records below; as bytes it needs no padding around it

# The first three: children[i] is the child for byte keys[i]; keys ascend. Children are tagged like Rax.root.
cdef struct Node4:
    Node head
    uint8_t keys[4]
    void *children[4]

cdef struct Node16:
    Node head
    uint8_t keys[16]
    void *children[16]

cdef struct Node48:
    Node head
    uint8_t keys[48]
    void *children[48]

# The fourth: children[b] is the child for byte b, or NULL.
cdef struct Node256:
    Node head
    uint16_t lowest         # no child has a smaller byte: removing from the head need not scan from 0
    void *children[256]


# --- Tagged pointers: an odd one is a record's address plus 1, an even one a node -----------------------------------


cdef inline bint is_record(const void *pointer) noexcept nogil:
    return <uintptr_t>pointer & 1


cdef inline void *tag(void *record) noexcept nogil:
    return <uint8_t *>record + 1


cdef inline void *untag(const void *pointer) noexcept nogil:
    return <uint8_t *>pointer - 1


# --- One node -------------------------------------------------------------------------------------------------------


cdef inline size_t node_size(int kind) noexcept nogil:
    if kind == NODE4:
        return sizeof(Node4)
    if kind == NODE16:
        return sizeof(Node16)
    if kind == NODE48:
        return sizeof(Node48)
    return sizeof(Node256)


cdef inline int node_capacity(int kind) noexcept nogil:
    if kind == NODE4:
        return 4
    if kind == NODE16:
        return 16
    if kind == NODE48:
        return 48
    return 256


cdef inline int node_low_water(int kind) noexcept nogil:
    """Number of children at which a node of this kind shrinks to the next smaller kind."""
    if kind == NODE16:
        return 3
    if kind == NODE48:
        return 12
    if kind == NODE256:
        return 37
    return 0


cdef inline uint8_t *node_keys(const Node *node) noexcept nogil:
    """The bytes of a node that is not a Node256."""
    return <uint8_t *>node + sizeof(Node)


cdef inline void **node_children(const Node *node) noexcept nogil:
    if node.kind == NODE4:
        return (<Node4 *>node).children
    if node.kind == NODE16:
        return (<Node16 *>node).children
    if node.kind == NODE48:
        return (<Node48 *>node).children
    return (<Node256 *>node).children


cdef inline int keys_below(const Node *node, uint8_t byte) noexcept nogil:
    """How many bytes of a sorted node are below `byte`, which is its position in the node."""
    cdef const uint8_t *keys = node_keys(node)
    cdef int count = node.count
    cdef int below = 0
    cdef int i
    if keys[count - 1] < byte:      # growing keys always end here
        return count
    for i in range(count):
        below += keys[i] < byte
    return below


cdef inline void **child_slot(const Node *node, uint8_t byte) noexcept nogil:
    """Where the child for `byte` is kept, or NULL when there is none."""
    cdef const uint8_t *keys
    cdef const uint8_t *found
    cdef void **slot
    cdef int i
    if node.kind == NODE4:
        keys = (<Node4 *>node).keys
        for i in range(node.count):
            if keys[i] == byte:
                return &(<Node4 *>node).children[i]
        return NULL
    if node.kind == NODE256:
        slot = &(<Node256 *>node).children[byte]
        return slot if slot[0] is not NULL else NULL
    keys = node_keys(node)
    found = <const uint8_t *>memchr(keys, byte, node.count)
    return NULL if found is NULL else node_children(node) + (found - keys)


cdef inline void *child_above(const Node *node, int byte) noexcept nogil:
    """The child for the smallest byte above `byte` (-1: smallest of all), or NULL."""
    cdef void **children = node_children(node)
    cdef int i
    if node.kind == NODE256:
        for i in range(max(byte + 1, <int>(<const Node256 *>node).lowest), 256):
            if children[i] is not NULL:
                return children[i]
        return NULL
    i = 0 if byte < 0 else node.count if byte == 255 else keys_below(node, <uint8_t>(byte + 1))
    return children[i] if i < node.count else NULL


cdef inline void *child_below(const Node *node, int byte) noexcept nogil:
    """The child for the greatest byte below `byte` (256: greatest of all), or NULL."""
    cdef void **children = node_children(node)
    cdef int i
    if node.kind == NODE256:
        for i in range(byte - 1, -1, -1):
            if children[i] is not NULL:
                return children[i]
        return NULL
    i = node.count if byte > 255 else keys_below(node, <uint8_t>byte)
    return children[i - 1] if i > 0 else NULL


cdef inline uint64_t weight_below(const Node *node) noexcept nogil:
    cdef uint64_t weight
    memcpy(&weight, node.below, sizeof(uint64_t))
    return weight


cdef inline void set_below(Node *node, uint64_t weight) noexcept nogil:
    memcpy(node.below, &weight, sizeof(uint64_t))


cdef Node *new_node(Rax *tree, int kind, uint8_t depth) noexcept nogil:
    """A node without children, or NULL when out of memory."""
    cdef Node *node = <Node *>malloc(node_size(kind))
    if node is NULL:
        return NULL
    if kind == NODE256:
        memset(node, 0, sizeof(Node256))
    node.kind = <uint8_t>kind
    node.depth = depth
    node.count = 0
    set_below(node, 0)
    tree.memory += node_size(kind)
    return node


cdef void free_node(Rax *tree, Node *node) noexcept nogil:
    tree.memory -= node_size(node.kind)
    free(node)


cdef void put_child(Node *node, uint8_t byte, void *child) noexcept nogil:
    """Add a child to a node that has room and no child for `byte`."""
    cdef void **children = node_children(node)
    cdef uint8_t *keys
    cdef int at
    if node.kind == NODE256:
        children[byte] = child
        (<Node256 *>node).lowest = min((<Node256 *>node).lowest, byte)
        node.count += 1
        return
    keys = node_keys(node)
    at = keys_below(node, byte) if node.count else 0
    memmove(keys + at + 1, keys + at, node.count - at)
    memmove(children + at + 1, children + at, (node.count - at) * sizeof(void *))
    keys[at] = byte
    children[at] = child
    node.count += 1


cdef bint change_kind(Rax *tree, void **slot, int kind) noexcept nogil:
    """Move the node at `slot` into one of another size; False, with no change, when out of memory."""
    cdef Node *old = <Node *>slot[0]
    cdef Node *new = new_node(tree, kind, old.depth)
    cdef void **old_children = node_children(old)
    cdef void **new_children
    cdef uint8_t *keys
    cdef int i, at = 0
    if new is NULL:
        return False
    new_children = node_children(new)
    if kind == NODE256:
        keys = node_keys(old)
        (<Node256 *>new).lowest = keys[0]
        for i in range(old.count):
            new_children[keys[i]] = old_children[i]
    elif old.kind == NODE256:
        keys = node_keys(new)
        for i in range(256):
            if old_children[i] is not NULL:
                keys[at] = <uint8_t>i
                new_children[at] = old_children[i]
                at += 1
    else:
        memcpy(node_keys(new), node_keys(old), old.count)
        memcpy(new_children, old_children, old.count * sizeof(void *))
    new.count = old.count
    memcpy(new.below, old.below, sizeof(uint64_t))
    slot[0] = new
    free_node(tree, old)
    return True


cdef void drop_child(Rax *tree, void **slot, uint8_t byte) noexcept nogil:
    """Remove a child of the node at `slot`. A node left with one child is replaced by that child."""
    cdef Node *node = <Node *>slot[0]
    cdef void **children = node_children(node)
    cdef uint8_t *keys
    cdef int at
    if node.kind == NODE256:
        children[byte] = NULL
        node.count -= 1
        if byte == (<Node256 *>node).lowest:
            while children[(<Node256 *>node).lowest] is NULL:   # there is another: a node has at least two
                (<Node256 *>node).lowest += 1
    else:
        keys = node_keys(node)
        at = keys_below(node, byte)
        node.count -= 1
        memmove(keys + at, keys + at + 1, node.count - at)
        memmove(children + at, children + at + 1, (node.count - at) * sizeof(void *))
    if node.count == 1:
        slot[0] = child_above(node, -1)
        free_node(tree, node)
    elif node.count == node_low_water(node.kind):
        change_kind(tree, slot, node.kind - 1)      # out of memory: it stays large, which is harmless


# --- Redis's count of nodes -----------------------------------------------------------------------------------------


cdef inline size_t redis_cost(const Rax *tree, const void *pointer, unsigned int start) noexcept nogil:
    """Nodes Redis has for what `pointer` is, without its children, when its bytes from `start` on are its own."""
    cdef unsigned int end = tree.key_len if is_record(pointer) else (<const Node *>pointer).depth
    return 2 if end > start else 1


# --- Walks ----------------------------------------------------------------------------------------------------------


cdef inline void *smallest(const void *pointer) noexcept nogil:
    """The first record below a non-NULL tagged pointer."""
    while not is_record(pointer):
        pointer = child_above(<const Node *>pointer, -1)
    return untag(pointer)


cdef inline void *greatest(const void *pointer) noexcept nogil:
    """The last record below a non-NULL tagged pointer."""
    while not is_record(pointer):
        pointer = child_below(<const Node *>pointer, 256)
    return untag(pointer)


cdef inline void *nearest(const Rax *tree, const uint8_t *key) noexcept nogil:
    """A record of a non-empty tree that shares the most leading bytes with `key`; there may be others."""
    cdef const void *pointer = tree.root
    cdef const Node *node
    cdef void **slot
    cdef void *below
    while not is_record(pointer):
        node = <const Node *>pointer
        slot = child_slot(node, key[node.depth])
        if slot is NULL:
            below = child_below(node, key[node.depth])
            return greatest(below) if below is not NULL else smallest(node)
        pointer = slot[0]
    return untag(pointer)


cdef inline unsigned int first_difference(const uint8_t *a, const uint8_t *b, unsigned int length) noexcept nogil:
    """Index of the first byte that differs, or `length`."""
    cdef unsigned int i = 0
    while i + 8 <= length and memcmp(a + i, b + i, 8) == 0:
        i += 8
    while i < length and a[i] == b[i]:
        i += 1
    return i


cdef void *rax_higher(const Rax *tree, const uint8_t *key) noexcept nogil:
    """The smallest record > key, or NULL."""
    cdef const void *pointer = tree.root
    cdef const void *after = NULL       # subtree that follows the path walked so far
    cdef const void *beside
    cdef const uint8_t *record
    cdef const Node *node
    cdef unsigned int d
    if pointer is NULL:
        return NULL
    record = <const uint8_t *>nearest(tree, key)
    d = first_difference(record, key, tree.key_len)
    while not is_record(pointer):
        node = <const Node *>pointer
        if node.depth > d:
            break
        beside = child_above(node, key[node.depth])
        if beside is not NULL:
            after = beside
        if node.depth == d:             # no child for this byte: all records above it are in `after`
            return NULL if after is NULL else smallest(after)
        pointer = child_slot(node, key[node.depth])[0]
    if d < tree.key_len and key[d] < record[d]:
        return smallest(pointer)
    return NULL if after is NULL else smallest(after)


cdef void *search_down(const Rax *tree, const uint8_t *key, bint inclusive) noexcept nogil:
    """The greatest record below `key`, or at it when `inclusive`; NULL when there is none."""
    cdef const void *pointer = tree.root
    cdef const void *before = NULL      # subtree that precedes the path walked so far
    cdef const void *beside
    cdef const uint8_t *record
    cdef const Node *node
    cdef unsigned int d
    if pointer is NULL:
        return NULL
    record = <const uint8_t *>nearest(tree, key)
    d = first_difference(record, key, tree.key_len)
    if d == tree.key_len and inclusive:
        return <void *>record
    while not is_record(pointer):
        node = <const Node *>pointer
        if node.depth > d:
            break
        beside = child_below(node, key[node.depth])
        if beside is not NULL:
            before = beside
        if node.depth == d:             # no child for this byte: all records below it are in `before`
            return NULL if before is NULL else greatest(before)
        pointer = child_slot(node, key[node.depth])[0]
    if d < tree.key_len and key[d] > record[d]:
        return greatest(pointer)
    return NULL if before is NULL else greatest(before)


# --- The tree -------------------------------------------------------------------------------------------------------


cdef int no_memory() except -1 with gil:
    raise MemoryError("no memory for a radix tree node")


cdef void rax_init(Rax *tree, unsigned int key_len) noexcept nogil:
    """An empty tree for keys of `key_len` bytes, 1 to 32."""
    tree.root = NULL
    tree.last = NULL
    tree.count = 0
    tree.redis_nodes = 1
    tree.memory = 0
    tree.key_len = key_len


cdef void drain(Rax *tree, void *pointer, void (*release)(void *record) noexcept nogil) noexcept nogil:
    # Recursion depth is at most key_len.
    cdef Node *node
    cdef void **children
    cdef int i
    if is_record(pointer):
        if release is not NULL:
            release(untag(pointer))
        return
    node = <Node *>pointer
    children = node_children(node)
    for i in range(256 if node.kind == NODE256 else node.count):
        if children[i] is not NULL:
            drain(tree, children[i], release)
    free_node(tree, node)


cdef void rax_drain(Rax *tree, void (*release)(void *record) noexcept nogil) noexcept nogil:
    """Empty the tree and pass each record, in key order, to `release`, which may free it. O(n)."""
    if tree.root is not NULL:
        drain(tree, tree.root, release)
    rax_init(tree, tree.key_len)


cdef int rax_insert(Rax *tree, void *record) except -1 nogil:
    """Add a record: 1, or 0 with no change when its key already exists. MemoryError: no change either."""
    cdef int added = rax_try_insert(tree, record)
    return added if added >= 0 else no_memory()


cdef int rax_try_insert(Rax *tree, void *record) noexcept nogil:
    """rax_insert for callers that have something to undo: -1 when out of memory, nothing is raised."""
    cdef const uint8_t *key = <const uint8_t *>record
    cdef const uint8_t *near
    cdef void **slot = &tree.root
    cdef unsigned int d, start = 0      # start: first byte of the key that belongs to the subtree at `slot`
    cdef Node *node
    if tree.root is NULL:
        tree.root = tag(record)
        tree.last = record
        tree.count = 1
        tree.redis_nodes = redis_cost(tree, tree.root, 0)
        return 1
    near = <const uint8_t *>nearest(tree, key)
    d = first_difference(near, key, tree.key_len)
    if d == tree.key_len:
        return 0
    while not is_record(slot[0]):
        node = <Node *>slot[0]
        if node.depth >= d:
            break
        start = node.depth + 1
        slot = child_slot(node, key[node.depth])
    if not is_record(slot[0]) and (<Node *>slot[0]).depth == d:
        node = <Node *>slot[0]
        if node.count == node_capacity(node.kind) and not change_kind(tree, slot, node.kind + 1):
            return -1
        put_child(<Node *>slot[0], key[d], tag(record))
    else:
        node = new_node(tree, NODE4, <uint8_t>d)
        if node is NULL:
            return -1
        tree.redis_nodes -= redis_cost(tree, slot[0], start)
        tree.redis_nodes += redis_cost(tree, slot[0], d + 1)
        tree.redis_nodes += redis_cost(tree, node, start)
        put_child(node, near[d], slot[0])
        put_child(node, key[d], tag(record))
        if not is_record(slot[0]):              # a record that is there weighs 0 now: see rax.pxd
            set_below(node, weight_below(<const Node *>slot[0]))
        slot[0] = node
    tree.redis_nodes += redis_cost(tree, tag(record), d + 1)
    tree.count += 1
    if memcmp(key, tree.last, tree.key_len) > 0:
        tree.last = record
    return 1


cdef void *rax_replace(Rax *tree, void *record) noexcept nogil:
    """Replace the record with the same key by `record` and return the old one; NULL, with no change, when missing."""
    cdef const uint8_t *key = <const uint8_t *>record
    cdef void **slot = &tree.root
    cdef void *old
    if tree.root is NULL:
        return NULL
    while not is_record(slot[0]):
        slot = child_slot(<Node *>slot[0], key[(<Node *>slot[0]).depth])
        if slot is NULL:
            return NULL
    old = untag(slot[0])
    if memcmp(old, key, tree.key_len) != 0:
        return NULL
    slot[0] = tag(record)
    if tree.last == old:
        tree.last = record
    return old


cdef void *rax_remove(Rax *tree, const uint8_t *key) noexcept nogil:
    """Remove the record with this key and return it; NULL when there is none. Never fails."""
    cdef void **slot = &tree.root       # ends up at the record
    cdef void **parent = NULL           # slot of the node that has it as a child
    cdef unsigned int start = 0         # first byte of the key below the parent's branch byte
    cdef unsigned int parent_start = 0  # the same, one node up
    cdef Node *node
    cdef void *record
    if tree.root is NULL:
        return NULL
    while not is_record(slot[0]):
        node = <Node *>slot[0]
        parent = slot
        parent_start = start
        start = node.depth + 1
        slot = child_slot(node, key[node.depth])
        if slot is NULL:
            return NULL
    record = untag(slot[0])
    if memcmp(record, key, tree.key_len) != 0:
        return NULL
    if parent is NULL:
        rax_init(tree, tree.key_len)
        return record
    tree.redis_nodes -= redis_cost(tree, slot[0], start)
    node = <Node *>parent[0]
    if node.count == 2:                 # the other child takes the place of the node
        tree.redis_nodes -= redis_cost(tree, node, parent_start)
        drop_child(tree, parent, (<uint8_t *>record)[start - 1])
        tree.redis_nodes -= redis_cost(tree, parent[0], start)
        tree.redis_nodes += redis_cost(tree, parent[0], parent_start)
    else:
        drop_child(tree, parent, (<uint8_t *>record)[start - 1])
    tree.count -= 1
    if tree.last == record:
        tree.last = greatest(tree.root)
    return record


cdef void *rax_floor(const Rax *tree, const uint8_t *key) noexcept nogil:
    """The greatest record <= key, or NULL."""
    if tree.last is not NULL and memcmp(tree.last, key, tree.key_len) <= 0:
        return tree.last
    return search_down(tree, key, True)


cdef void *rax_lower(const Rax *tree, const uint8_t *key) noexcept nogil:
    """The greatest record < key, or NULL."""
    return search_down(tree, key, False)


cdef void *rax_first(const Rax *tree) noexcept nogil:
    """The record with the smallest key, or NULL."""
    return NULL if tree.root is NULL else smallest(tree.root)


cdef void *rax_last(const Rax *tree) noexcept nogil:
    """The record with the greatest key, or NULL. O(1)."""
    return tree.last


# --- Many records at once: 2 ns for each, while rax_higher takes about 100 --------------------------------------------


cdef struct Gathering:
    const uint8_t *key      # where it starts
    unsigned int key_len
    const void *last        # where it ends
    void **out
    size_t room             # records that `out` takes, at least 1
    size_t count            # records gathered


cdef bint gather_below(const void *pointer, bint is_above, Gathering *gathering) noexcept nogil:
    """Gather what is below a tagged pointer; False when the last wanted one was reached. Recurses at most key_len deep.

    is_above  all of it is known to be above the key
    """
    cdef const Node *node
    cdef void **children
    cdef int i, byte, order, wanted
    if is_record(pointer):
        if is_above or memcmp(untag(pointer), gathering.key, gathering.key_len) >= 0:
            gathering.out[gathering.count] = untag(pointer)
            gathering.count += 1
        return untag(pointer) != gathering.last and gathering.count < gathering.room
    node = <const Node *>pointer
    wanted = 0
    if not is_above:
        order = memcmp(smallest(pointer), gathering.key, node.depth)
        if order < 0:
            return True
        if order == 0:
            wanted = gathering.key[node.depth]
        else:
            is_above = True
    children = node_children(node)
    for i in range(256 if node.kind == NODE256 else node.count):
        if children[i] is NULL:
            continue
        byte = i if node.kind == NODE256 else node_keys(node)[i]
        if not is_above and byte < wanted:
            continue
        if not gather_below(children[i], is_above or byte > wanted, gathering):
            return False
    return True


cdef size_t rax_gather(
    const Rax *tree, const uint8_t *from_key, const void *last, void **out, size_t room
) noexcept nogil:
    """The records from the smallest >= `from_key` up to `last`, at most the first `room`, into `out`; returns how many.

    `last` must be one of them, `room` at least 1. O(log n), plus 2 ns for each returned.
    """
    cdef Gathering gathering
    gathering.key = from_key
    gathering.key_len = tree.key_len
    gathering.last = last
    gathering.out = out
    gathering.room = room
    gathering.count = 0
    if tree.root is not NULL:
        gather_below(tree.root, False, &gathering)
    return gathering.count


# --- Weights --------------------------------------------------------------------------------------------------------


cdef void rax_weigh(Rax *tree, const uint8_t *key, int64_t more) noexcept nogil:
    """The weight of the record with this key, which must be there, has grown by `more`. O(key_len)."""
    cdef void *pointer = tree.root
    cdef Node *node
    while not is_record(pointer):
        node = <Node *>pointer
        set_below(node, weight_below(node) + <uint64_t>more)
        pointer = child_slot(node, key[node.depth])[0]


cdef inline uint64_t weight_of(
    const Rax *tree, const void **children, int start, int stop, rax_weight weigh
) noexcept nogil:
    """The weight of some of the children of a node. Nearly all of the time is waiting for their memory."""
    cdef uint64_t total = 0
    cdef const void *child
    cdef int i
    for i in range(start, min(start + AHEAD, stop)):
        prefetch(children[i])
    for i in range(start, stop):
        if i + AHEAD < stop:
            prefetch(children[i + AHEAD])
        child = children[i]
        if child is NULL:
            continue
        if not is_record(child):
            total += weight_below(<const Node *>child)
        elif untag(child) != tree.last:
            total += weigh(untag(child))
    return total


cdef uint64_t rax_weight_before(const Rax *tree, const uint8_t *key, rax_weight weigh) noexcept nogil:
    """The weight of all records below this key, which must be that of a record. At most 128 children on each level."""
    cdef uint64_t total = 0
    cdef const void *pointer = tree.root
    cdef const Node *node
    cdef const void **children
    cdef int at, stop
    while not is_record(pointer):
        node = <const Node *>pointer
        children = <const void **>node_children(node)
        at = key[node.depth]
        stop = 256
        if node.kind != NODE256:
            at = keys_below(node, <uint8_t>at)
            stop = node.count
        if 2 * at <= stop:
            total += weight_of(tree, children, 0, at, weigh)
        else:
            total += weight_below(node) - weight_of(tree, children, at, stop, weigh)
        pointer = children[at]
    return total


# --- Invariants -----------------------------------------------------------------------------------------------------


cdef struct Census:
    size_t count          # records seen
    size_t redis_nodes
    size_t memory
    const uint8_t *last   # last record seen; NULL at first


cdef int expect(bint holds, str what) except -1:
    if not holds:
        raise AssertionError(what)
    return 0


cdef int check_below(const Rax *tree, const void *pointer, unsigned int start, Census *census) except -1:
    """Check a subtree whose parent branches on byte `start` - 1; add up its contents."""
    cdef const uint8_t *record
    cdef const uint8_t *sample
    cdef const Node *node
    cdef void **children
    cdef int i, previous = -1, found = 0
    census.redis_nodes += redis_cost(tree, pointer, start)
    if is_record(pointer):
        record = <const uint8_t *>untag(pointer)
        expect(census.last is NULL or memcmp(census.last, record, tree.key_len) < 0, "records ascend")
        census.last = record
        census.count += 1
        return 0
    node = <const Node *>pointer
    expect(node.kind <= NODE256, "a node is of a known kind")
    expect(start <= node.depth < tree.key_len, "depths grow downwards and stay inside the key")
    expect(2 <= node.count <= node_capacity(node.kind), "a node has two children at least, and room for all")
    census.memory += node_size(node.kind)
    sample = <const uint8_t *>smallest(pointer)
    children = node_children(node)
    for i in range(256 if node.kind == NODE256 else node.count):
        if children[i] is NULL:
            expect(node.kind == NODE256, "only a Node256 has gaps")
            continue
        found += 1
        byte = i if node.kind == NODE256 else node_keys(node)[i]
        expect(previous < byte, "bytes ascend in a node")
        if node.kind == NODE256:
            expect((<const Node256 *>node).lowest <= byte, "no child of a Node256 is below its lowest byte")
        previous = byte
        record = <const uint8_t *>smallest(children[i])
        expect(record[node.depth] == byte, "a child's records have its byte")
        expect(memcmp(record, sample, node.depth) == 0, "a node's records share the bytes before its depth")
        check_below(tree, children[i], node.depth + 1, census)
    return expect(found == node.count, "a node knows how many children it has")


cdef int rax_check(const Rax *tree) except -1:
    """Walk everything and raise AssertionError when something is wrong. O(n)."""
    cdef Census census
    memset(&census, 0, sizeof(Census))
    expect(1 <= tree.key_len <= MAX_KEY_LEN, "keys have 1 to 32 bytes")
    if tree.root is NULL:
        census.redis_nodes = 1
    else:
        check_below(tree, tree.root, 0, &census)
    expect(census.count == tree.count, "the number of records")
    expect(census.memory == tree.memory, "bytes of the nodes")
    expect(census.redis_nodes == tree.redis_nodes, "Redis's number of nodes")
    return expect(<const uint8_t *>tree.last == census.last, "the last record")


cdef int check_weight(const Rax *tree, const void *pointer, rax_weight weigh, uint64_t *total) except -1:
    cdef const Node *node = <const Node *>pointer
    cdef void **children
    cdef uint64_t below = 0
    cdef int i
    if is_record(pointer):
        if untag(pointer) != tree.last:
            total[0] += weigh(untag(pointer))
        return 0
    children = node_children(node)
    for i in range(256 if node.kind == NODE256 else node.count):
        if children[i] is not NULL:
            check_weight(tree, children[i], weigh, &below)
    total[0] += below
    return expect(below == weight_below(node), "the weight below a node")


cdef int rax_check_weights(const Rax *tree, rax_weight weigh) except -1:
    """Add up all weights and raise AssertionError when a sum is wrong. O(n)."""
    cdef uint64_t total = 0
    return 0 if tree.root is NULL else check_weight(tree, tree.root, weigh, &total)
