# cython: language_level=3
"""Fields and values in one listpack: small hashes. See pairs.pyx."""

from libc.stdint cimport int64_t, uint8_t, uint64_t

from streamd.engine.listpack cimport LpValue


cdef enum:
    NEVER = -1                 # an expiry: there is none


cdef struct HashItem:
    # One field of a hash. Valid until the hash changes.
    LpValue field
    LpValue value
    int64_t expire_at_ms       # Unix time in ms, or NEVER
    uint64_t place             # where it is: offset in a listpack; handle in a table
    uint64_t size              # in a listpack: bytes of all its elements


cdef bint pairs_read(const uint8_t *lp, unsigned int width, uint64_t place, HashItem *out) noexcept nogil
    # The item at an offset; False at the end. The next one is at `place + out.size`.
cdef bint pairs_find(const uint8_t *lp, unsigned int width, const uint8_t *name, size_t n, HashItem *out) noexcept nogil
# All that follow return the listpack, which may have moved. NULL: no memory, and nothing has changed.
cdef uint8_t *pairs_add(
    uint8_t *lp, unsigned int width, LpValue field, LpValue value, int64_t expire_at_ms) noexcept nogil
cdef uint8_t *pairs_set_value(uint8_t *lp, const HashItem *item, LpValue value) noexcept nogil
cdef uint8_t *pairs_set_expiry(uint8_t *lp, const HashItem *item, int64_t expire_at_ms) noexcept nogil
cdef uint8_t *pairs_remove(uint8_t *lp, unsigned int width, const HashItem *item) noexcept nogil   # never NULL
cdef uint8_t *pairs_with_expiries(const uint8_t *lp) noexcept nogil      # a copy of width 3
cdef uint8_t *pairs_without_expiries(const uint8_t *lp) noexcept nogil   # a copy of width 2 of one of width 3
cdef int64_t pairs_due(const uint8_t *lp) noexcept nogil                 # the earliest expiry, or NEVER; of width 3
