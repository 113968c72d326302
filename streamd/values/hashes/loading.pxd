# cython: language_level=3
"""Reading a hash out of an RDB stream. See loading.pyx."""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint64_t

from streamd.persistence.rdb.value_loader cimport ValueLoader
from streamd.values.hashes.hash cimport Hash
from streamd.values.hashes.hash_limits cimport HashLimits


@cython.final
cdef class HashLoader(ValueLoader):
    cdef HashLimits limits

    cdef Hash get_packed(self, uint8_t *lp, unsigned int width, int64_t offset)
    cdef int check_packed(self, Hash hash, unsigned int width, int64_t offset) except -1
    cdef Hash get_zipmap(self)
    cdef Hash new_for(self, uint64_t count)
    cdef int add(self, Hash hash, bytes field, bytes value, int64_t expire_at_ms, int64_t offset) except -1
