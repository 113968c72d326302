# cython: language_level=3
"""Fields and values in a hash table: hashes that are not small. See field_table.pyx."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from streamd.engine.listpack cimport LpValue
from streamd.engine.table cimport Table
from streamd.values.hashes.pairs cimport HashItem


cdef struct FieldTime:
    # When a field expires.
    int64_t at_ms              # Unix time in ms
    uint32_t handle            # of its record


cdef struct FieldTable:
    Table table                # a record for each field
    FieldTime *times           # owned; a binary heap of those that expire: no parent is later than its child
    uint64_t timed             # fields that expire
    uint64_t room              # elements of `times` that there is memory for


cdef FieldTable *fields_new(uint64_t expected) noexcept nogil           # NULL: no memory
cdef FieldTable *fields_copy(const FieldTable *fields) noexcept nogil   # NULL: no memory
cdef void fields_free(FieldTable *fields) noexcept nogil
cdef uint64_t fields_memory(const FieldTable *fields) noexcept nogil
cdef void fields_read(const FieldTable *fields, uint32_t handle, HashItem *out) noexcept nogil
cdef bint fields_find(const FieldTable *fields, const uint8_t *name, size_t n, HashItem *out) noexcept nogil
# All items are invalid after these; -1: no memory, and nothing has changed.
cdef int fields_add(FieldTable *fields, LpValue field, LpValue value, int64_t expire_at_ms) noexcept nogil
cdef int fields_set(FieldTable *fields, const HashItem *item, LpValue value, int64_t expire_at_ms) noexcept nogil
cdef int fields_set_expiry(FieldTable *fields, const HashItem *item, int64_t expire_at_ms) noexcept nogil
cdef void fields_remove(FieldTable *fields, const HashItem *item) noexcept nogil
cdef int64_t fields_due(const FieldTable *fields) noexcept nogil        # the earliest expiry, or NEVER
cdef const char *fields_check(const FieldTable *fields) noexcept nogil  # NULL, or which invariant does not hold
