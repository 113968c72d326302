# cython: language_level=3
"""The columns of a record batch while they are filled; see columns.pyx."""

from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint64_t
from streamd.arrow.memory cimport Bytes, add_bytes, add_int32, reserve

# What a step says. Negative: it failed.
cdef enum Outcome:
    BAD_BYTES = -4                  # no reply to XRANGE
    MISFIT = -3                     # a value that its column's type cannot take, in mode FAILFAST
    TOO_LARGE = -2                  # strings of one batch above what 32-bit offsets can count
    NO_MEMORY = -1
    MORE = 0                        # more bytes are needed; of a cast: the text is no such value
    DONE = 1

# How the values of a column are made.
cdef enum Kind:
    TEXT                            # string and binary: the same bytes
    BOOLEAN
    INT8
    INT16
    INT32
    INT64
    FLOAT32
    FLOAT64
    DECIMAL
    TIMESTAMP
    DATE
    PAIRS                           # array<struct<field,value>> and map: the same buffers

cdef struct Builder:
    Kind kind
    int precision       # of a decimal
    int scale
    Py_ssize_t rows
    Py_ssize_t nulls    # while 0, there is no bitmap
    Bytes valid         # bitmap, from the first null on
    Bytes offsets       # int32: of strings, or of lists
    Bytes data          # values, or the bytes of strings
    Bytes names         # PAIRS: bytes of all fields of all rows ...
    Bytes name_offsets  # ... and where they start
    Bytes values        # PAIRS: the same of the values
    Bytes value_offsets
    size_t undo_data    # bytes used before the last row, to drop it
    size_t undo_names
    size_t undo_values
    size_t undo_pairs   # elements of name_offsets


cdef bint start_builder(Builder *b) noexcept nogil
cdef void free_builder(Builder *b) noexcept nogil
cdef bint set_bit(Bytes *bitmap, Py_ssize_t at, int value) noexcept nogil
cdef int append_null(Builder *b) noexcept nogil
cdef int append_cast(Builder *b, const char *p, size_t n) noexcept nogil
cdef void drop_row(Builder *b) noexcept nogil
cdef object take_column(object pyarrow, Builder *b, object kind)
cdef object check_builder(Builder *b)


cdef inline bint mark_valid(Builder *b) noexcept nogil:
    """Count the row just appended as not null."""
    if b.nulls and not set_bit(&b.valid, b.rows, 1):
        return False
    b.rows += 1
    return True


cdef inline int append_text(Builder *b, const char *p, size_t n) noexcept nogil:
    b.undo_data = b.data.length
    if b.data.length + n > INT32_MAX:
        return TOO_LARGE
    if not add_bytes(&b.data, p, n) or not add_int32(&b.offsets, <int32_t>b.data.length) or not mark_valid(b):
        return NO_MEMORY
    return DONE


cdef inline int append_value(Builder *b, const void *value, size_t width) noexcept nogil:
    b.undo_data = b.data.length
    if not add_bytes(&b.data, <const char *>value, width) or not mark_valid(b):
        return NO_MEMORY
    return DONE


cdef inline int append_int64(Builder *b, int64_t value) noexcept nogil:
    return append_value(b, &value, 8)


cdef inline int append_unsigned(Builder *b, uint64_t value) noexcept nogil:
    return append_int64(b, <int64_t>value) if value <= <uint64_t>9223372036854775807LL else append_null(b)
