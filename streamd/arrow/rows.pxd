# cython: language_level=3
"""Entries as rows of a table; see rows.pyx."""

from libc.stdint cimport uint64_t
from streamd.arrow.columns cimport Builder

# What fills a column.
cdef enum Source:
    FROM_ID
    FROM_MS
    FROM_SEQ
    FROM_TIME
    FROM_STREAM
    FROM_FIELDS
    FROM_FIELD                      # the entry's field of the column's name
    FROM_FAULT                      # the whole entry as JSON, when a value did not fit

cdef struct Column:
    Source source
    const char *name    # of the field to look for; borrowed from the list of names
    size_t name_length

cdef struct Span:
    size_t at           # from a base that is given with it
    size_t length

cdef struct Entry:
    uint64_t ms
    uint64_t seq
    const char *id      # as text; borrowed, as all texts are
    size_t id_length
    const char *names   # what the spans of fields count from ...
    const char *values  # ... and those of values; the same when they are in one buffer
    const Span *spans   # field and value in turn
    size_t pairs
    size_t size         # bytes that all its fields and values have at most


cdef class RowBuilder:

    cdef Builder *builders          # owned; `columns` of them
    cdef Column *columns            # owned: what fills each of them
    cdef int width                  # how many columns there are
    cdef int mode
    cdef bint has_fields             # a column takes the value of a field
    cdef int fault_column           # the column that gets what does not fit, or -1
    cdef list names                 # keeps the names of the columns alive
    cdef bytes stream
    cdef const char *stream_text    # its bytes
    cdef size_t stream_length
    cdef object schema
    cdef list types                 # Arrow types of the columns
    cdef int guesses[64]            # see find_fields
    cdef Span *found                # owned: for each column, its value in this entry; length -1: none
    cdef readonly Py_ssize_t rows   # that `take` would return

    cdef int add(self, const Entry *entry) noexcept nogil
    cdef void find_fields(self, const Entry *entry) noexcept nogil
    cdef int column_named(self, const char *p, size_t n) noexcept nogil
    cdef object misfit(self, const Entry *entry)
    cdef object failure(self, int outcome, const Entry *entry)
