# cython: language_level=3
"""Entries of a stream as bytes of a reply, with an index. See packed_entries.pyx."""

from libc.stdint cimport uint64_t


cdef struct PackedRow:
    uint64_t ms
    uint64_t seq
    uint64_t end            # where the entry ends in the data; it begins where the one before it ends


cdef class PackedEntries:

    cdef readonly bytes index           # of PackedRow
    cdef readonly object data
    cdef readonly Py_ssize_t count
    cdef const PackedRow *rows          # borrowed from `index`
    cdef const char *text               # borrowed from `data`
    cdef const unsigned char[::1] view  # holds `data`

    cdef inline size_t begin_of(self, Py_ssize_t at) noexcept:
        return self.rows[at - 1].end if at else 0

    cdef inline const char *text_of(self, Py_ssize_t at) noexcept:
        return self.text + self.begin_of(at)

    cdef inline size_t size_between(self, Py_ssize_t start, Py_ssize_t stop) noexcept:
        return self.begin_of(stop) - self.begin_of(start)
