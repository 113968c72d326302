# cython: language_level=3
"""Replies, written as RESP2 or RESP3 bytes into one growing C buffer."""

from libc.stdint cimport int64_t, uint64_t


cdef class ReplyWriter:
    cdef char *data               # owned; NULL while empty (an idle connection holds no buffer)
    cdef readonly size_t length   # bytes written and not yet taken
    cdef size_t capacity
    cdef public int resp          # 2 or 3

    # Compiled callers. `raw_c` and all below may move `data`.
    cdef char *grow(self, size_t n) except NULL           # room for n more bytes; returns data + length
    cdef int raw_c(self, const char *p, size_t n) except -1
    cdef int bulk_c(self, const char *p, size_t n) except -1
    cdef int bulk_int64(self, int64_t value) except -1             # a bulk string of the decimal digits
    cdef int bulk_id(self, uint64_t ms, uint64_t seq) except -1    # a bulk string `ms-seq`
    cdef int array_header(self, int64_t n) except -1
    # An aggregate whose size is known only at the end: open, write the elements, close with their number. `expected`
    # is a guess of that number: a right number of digits saves moving the elements.
    cdef size_t open_array(self, int64_t expected) except? 0
    cdef int close_array(self, size_t opened, int64_t n) except -1

    # Python callers and compiled ones
    cpdef int integer(self, int64_t value) except -1
    cpdef int bulk(self, bytes value) except -1
    cpdef int null(self) except -1              # $-1 or _
    cpdef int null_array(self) except -1        # *-1 or _
    cpdef int array(self, int64_t n) except -1
    cpdef int map(self, int64_t n) except -1    # n pairs; a flat array of 2n in RESP2
    cpdef int set(self, int64_t n) except -1    # an array in RESP2
    cpdef int push(self, int64_t n) except -1   # an array in RESP2
    cpdef int ok(self) except -1
    cpdef size_t mark(self)
    cpdef void truncate(self, size_t mark)      # drop what was written since mark
    cpdef bytes take(self)                      # all bytes, and the writer is empty again
    cdef void release(self) noexcept            # forget everything, give the buffer back
