# cython: language_level=3
"""An ordered map from fixed-size byte keys to records, as an adaptive radix tree (C structs, no Python objects).

A record is the caller's struct whose FIRST bytes are its key (big-endian, so that bytes compare like numbers); the
tree holds pointers and never owns or frees a record. A key must not change while its record is in the tree, and the
record's address must be even (any malloc'ed one is). A key passed to a function may be the one inside the record.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t


cdef struct Rax:
    void *root            # tagged pointer to a record or an inner node; NULL when empty
    void *last            # the record with the greatest key, NULL when empty
    size_t count          # records
    size_t redis_nodes    # radix-tree-nodes as shown by XINFO STREAM; 1 when empty
    size_t memory         # bytes malloc'ed for inner nodes
    unsigned int key_len  # bytes of a key, at most 32


cdef void rax_init(Rax *tree, unsigned int key_len) noexcept nogil
cdef void rax_drain(Rax *tree, void (*release)(void *record) noexcept nogil) noexcept nogil
    # empties the tree; passes each record, in key order, to `release`, which may free it
cdef int rax_insert(Rax *tree, void *record) except -1 nogil
    # 1 inserted, 0 the key already exists (unchanged); MemoryError (unchanged)
cdef int rax_try_insert(Rax *tree, void *record) noexcept nogil             # the same with -1 instead of MemoryError
cdef void *rax_replace(Rax *tree, void *record) noexcept nogil
    # replaces the record with the same key; returns the old one, or NULL: no such key (unchanged)
cdef void *rax_remove(Rax *tree, const uint8_t *key) noexcept nogil         # the record, or NULL when missing
cdef void *rax_floor(const Rax *tree, const uint8_t *key) noexcept nogil    # greatest record <= key
cdef void *rax_lower(const Rax *tree, const uint8_t *key) noexcept nogil    # greatest record < key
cdef void *rax_higher(const Rax *tree, const uint8_t *key) noexcept nogil   # smallest record > key
cdef void *rax_first(const Rax *tree) noexcept nogil
cdef void *rax_last(const Rax *tree) noexcept nogil
cdef size_t rax_gather(
    const Rax *tree, const uint8_t *from_key, const void *last, void **out, size_t room) noexcept nogil
    # the records from the smallest >= from_key up to `last`, which must be one of them, or the first `room` (at least
    # 1) of those, into `out`; returns how many
# Weights, for callers that want to know how much comes before a key: the tree adds them up, the records keep them. Keys
# must then be inserted in ascending order. The last record always counts as weighing 0, so that it may grow at no cost;
# a record must weigh 0, too, when it is inserted or removed. So a caller calls rax_weigh with its weight when another
# has been inserted after it, with less than 0 before it is removed, and with less than 0 when it has become the last.
ctypedef uint64_t (*rax_weight)(const void *record) noexcept nogil          # what a record weighs now
cdef void rax_weigh(Rax *tree, const uint8_t *key, int64_t more) noexcept nogil
    # the record with this key, which must be there, weighs so much more
cdef uint64_t rax_weight_before(const Rax *tree, const uint8_t *key, rax_weight weigh) noexcept nogil
    # of all records below this key, which must be that of a record
cdef int rax_check_weights(const Rax *tree, rax_weight weigh) except -1     # walks everything; AssertionError
cdef int rax_check(const Rax *tree) except -1                               # walks everything; AssertionError


cdef inline void store_be64(uint8_t *p, uint64_t v) noexcept nogil:
    cdef int i
    for i in range(8):
        p[i] = <uint8_t>(v >> (56 - 8 * i))


cdef inline uint64_t load_be64(const uint8_t *p) noexcept nogil:
    cdef uint64_t v = 0
    cdef int i
    for i in range(8):
        v = (v << 8) | p[i]
    return v
