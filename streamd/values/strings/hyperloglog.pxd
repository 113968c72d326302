# cython: language_level=3
"""HyperLogLogs as strings. See hyperloglog.pyx."""

cimport cython
from libc.stdint cimport int64_t, uint8_t

cdef enum:
    REGISTERS = 1 << 14


cdef enum HllEncoding:
    HLL_DENSE = 0
    HLL_SPARSE = 1


cdef HllEncoding check_hll(bytes string) except *                       # WRONGTYPE unless it looks like one
cdef int64_t cached_count(bytes string) noexcept                        # -1: none, or not up to date
cdef int64_t count_hll(bytes string) except -1                          # the estimate; INVALIDOBJ
cdef int64_t count_registers(const uint8_t *maxima) noexcept
cdef int merge_hll(bytes string, uint8_t *maxima) except -1             # into REGISTERS bytes; INVALIDOBJ
cdef bint add_dense(uint8_t *data, bytes element) noexcept              # whether a register changed
cdef void cache_count(uint8_t *data, int64_t count) noexcept
cdef void invalidate_count(uint8_t *data) noexcept


@cython.final
cdef class Sketch:
    cdef uint8_t *data              # owned: the whole string
    cdef Py_ssize_t size            # bytes used
    cdef Py_ssize_t capacity
    cdef Py_ssize_t max_sparse      # bytes that it may have while it is sparse

    cdef bint add(self, bytes element) except -1                        # whether a register changed; INVALIDOBJ
    cdef bint raise_register(self, int register, int count) except -1   # as add
    cdef int make_dense(self) except -1                                 # INVALIDOBJ
    cdef int take_maxima(self, const uint8_t *maxima) except -1
    cdef bytes string(self)                                             # with the cached count out of date
    cdef int replace(self, Py_ssize_t at, Py_ssize_t old, const uint8_t *codes, Py_ssize_t new) except -1
    cdef int join_equal(self, Py_ssize_t at) noexcept
