# cython: language_level=3
"""A hash: fields and their values. See hash.pyx."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint64_t

from streamd.engine.listpack cimport LpValue
from streamd.engine.table cimport TableWalk
from streamd.keyspace.timed_values cimport TimedValue
from streamd.values.hashes.pairs cimport NEVER, HashItem


cdef enum HashForm:
    # How a hash is stored: `form` of its TimedValue.
    FORM_PACKED                # one listpack, see pairs.pyx
    FORM_PACKED_TIMED          # one listpack in which each field has an expiry, or none
    FORM_TABLE                 # a hash table, see field_table.pyx


@cython.final
@cython.no_gc
cdef class Hash(TimedValue):
    cdef void *body            # a listpack or a FieldTable, by `form`; owned; NULL: it has been taken away
    cdef readonly uint64_t count       # fields, including those that have expired but are still there


cdef struct HashWalk:
    # Where a walk over all fields is; all zero: at the start. The hash must not change during the walk.
    uint64_t place
    TableWalk table


cdef Hash new_hash()
cdef Hash table_hash_of(uint64_t expected)                   # an empty one, in the form of a table
cdef Hash hash_of_listpack(uint8_t *lp, unsigned int width)   # takes the block; `count` is up to the caller
cdef bint hash_find(Hash hash, bytes name, HashItem *out) noexcept
cdef bint hash_next(Hash hash, HashWalk *walk, HashItem *out) noexcept
cdef bint hash_at(Hash hash, uint64_t place, HashItem *out) noexcept     # the item at a valid place
cdef bint hash_random(Hash hash, HashItem *out) noexcept     # each field as likely as the others; False: it is empty
cdef bint hash_first_due(Hash hash, HashItem *out) noexcept  # the field that expires first
cdef int64_t hash_due(Hash hash) noexcept                    # the earliest expiry of a field, or NEVER
# Items are invalid after these.
cdef int hash_add(Hash hash, LpValue field, LpValue value, int64_t expire_at_ms) except -1   # must be a new field
cdef int hash_set(Hash hash, const HashItem *item, LpValue value, int64_t expire_at_ms) except -1
cdef int hash_set_expiry(Hash hash, const HashItem *item, int64_t expire_at_ms) except -1
cdef int hash_remove(Hash hash, const HashItem *item) except -1
cdef int hash_to_timed(Hash hash) except -1                  # a form in which fields may have an expiry
cdef int hash_to_table(Hash hash) except -1
cdef void *hash_close(Hash hash, unsigned char *form) noexcept   # take its listpack; NULL: it must stay as it is
cdef Hash hash_open(uint8_t *lp, int form)                   # the hash that it was
cdef uint64_t hash_bytes(Hash hash) noexcept                 # of memory, without the object itself


cdef inline LpValue text_in(bytes text) noexcept:
    """The bytes of an object, borrowed, as a value."""
    cdef LpValue value
    value.data = <const uint8_t *>PyBytes_AS_STRING(text)
    value.length = <uint64_t>PyBytes_GET_SIZE(text)
    value.number = 0
    return value


cdef inline bytes bytes_of(const LpValue *value):
    if value.data is NULL:
        return b"%d" % value.number
    return PyBytes_FromStringAndSize(<const char *>value.data, <Py_ssize_t>value.length)
