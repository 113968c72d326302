# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""RowCaster: lossless rows, as an archive has them, in; rows of a user's table out. Arrow on both sides.

    ids     "5-1"      "6-1"            a StringArray
    fields  [(a,20)]   [(a,21),(b,x)]   a ListArray of structs of BinaryArrays, whose strings are read in place

Called for each record batch that archive/full_history.py reads from a file when rows must be cast. The types of the
arrays are checked here; their buffers are those that Arrow's Parquet reader has checked.
"""

cimport cython
from libc.stdint cimport int32_t, uintptr_t
from libc.string cimport memchr
from streamd.heap cimport free, realloc
from streamd.arrow.casts cimport read_unsigned
from streamd.arrow.columns cimport BAD_BYTES, DONE, NO_MEMORY
from streamd.arrow.rows cimport Entry, RowBuilder, Span

__all__ = ["RowCaster"]

cdef struct Strings:
    const int32_t *offsets      # one more than there are strings; borrowed from an Arrow buffer
    const char *data            # borrowed


cdef const char *EMPTY = b""


cdef Strings strings_of(object array) except *:
    """The strings of a StringArray or BinaryArray, which must outlive them."""
    cdef Strings found
    if str(array.type) not in ("string", "binary") or array.null_count:
        raise TypeError(f"expected strings or binaries without nulls, got {array.type} with {array.null_count} nulls")
    _, offsets, data = array.buffers()
    found.offsets = NULL
    if len(array):
        found.offsets = <const int32_t *><uintptr_t>offsets.address + <Py_ssize_t>array.offset
    found.data = EMPTY if data is None else <const char *><uintptr_t>data.address
    return found


cdef inline Span span_of(Strings *strings, Py_ssize_t at) noexcept nogil:
    cdef Span span
    span.at = strings.offsets[at]
    span.length = strings.offsets[at + 1] - strings.offsets[at]
    return span


@cython.final
cdef class RowCaster:

    cdef RowBuilder builder
    cdef Span *spans            # owned: the strings of one entry
    cdef size_t room            # how many spans there is room for

    def __cinit__(self, table, bytes stream not None):
        self.builder = RowBuilder(table, stream)

    def __dealloc__(self):
        free(self.spans)

    def cast(self, ids, fields):
        cdef Py_ssize_t rows = len(ids)
        cdef Py_ssize_t row
        cdef int outcome = DONE
        cdef Strings id_strings, names, values
        cdef const int32_t *lists
        cdef Entry entry
        if len(fields) != rows or fields.null_count:
            raise TypeError(f"expected the fields of {rows} rows, got {len(fields)} with {fields.null_count} nulls")
        if rows == 0:
            return self.builder.take()
        entries = fields.values
        # Kept until the end: they own what is borrowed.
        field_array, value_array = entries.field(0), entries.field(1)
        id_strings = strings_of(ids)
        names = strings_of(field_array)
        values = strings_of(value_array)
        lists = <const int32_t *><uintptr_t>fields.buffers()[1].address + <Py_ssize_t>fields.offset
        with nogil:
            for row in range(rows):
                outcome = self.add(&entry, &id_strings, row, &names, &values, lists[row], lists[row + 1])
                if outcome != DONE:
                    break
        if outcome == BAD_BYTES:
            raise ValueError(f"{ids[row]} is not an entry ID")
        if outcome != DONE:
            raise self.builder.failure(outcome, &entry)
        return self.builder.take()

    cdef int add(
        self, Entry *entry, Strings *ids, Py_ssize_t row, Strings *names, Strings *values, size_t first, size_t last
    ) noexcept nogil:
        """Add the row with the pairs [first, last). DONE, BAD_BYTES for a bad ID, or a failure of the builder."""
        cdef size_t k
        cdef Span *spans
        if 2 * (last - first) > self.room and not self.grow(2 * (last - first)):
            return NO_MEMORY
        spans = self.spans
        entry.names = names.data
        entry.values = values.data
        entry.spans = spans
        entry.pairs = last - first
        entry.size = 0
        for k in range(entry.pairs):
            spans[2 * k] = span_of(names, first + k)
            spans[2 * k + 1] = span_of(values, first + k)
            entry.size += spans[2 * k].length + spans[2 * k + 1].length
        if not set_id(entry, ids, row):
            return BAD_BYTES
        return self.builder.add(entry)

    cdef bint grow(self, size_t needed) noexcept nogil:
        cdef Span *moved = <Span *>realloc(self.spans, 2 * needed * sizeof(Span))
        if moved is NULL:
            return False
        self.spans = moved
        self.room = 2 * needed
        return True


cdef int set_id(Entry *entry, Strings *ids, Py_ssize_t row) noexcept nogil:
    """Give an entry the ID of a row. False when that is not an ID."""
    cdef Span span = span_of(ids, row)
    cdef const char *p = ids.data + span.at
    cdef const char *dash = <const char *>memchr(p, c'-', span.length)
    if dash is NULL:
        return False
    entry.id = p
    entry.id_length = span.length
    return (
        read_unsigned(p, dash - p, &entry.ms)
        and read_unsigned(dash + 1, span.length - (dash + 1 - p), &entry.seq)
    )
