# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Rows of the archive as the reply that XRANGE would give of them.

So a user's schema means the same for what is archived and for what is on the server: both go through one decoder, with
its casts, its rules for fields that come twice, and its column of what does not fit.

    *2\\r\\n                                          rows
      *2\\r\\n  $3\\r\\n5-1\\r\\n  *4\\r\\n  $1\\r\\na\\r\\n  $2\\r\\n20\\r\\n ...    ID, then fields and values in turn

Called for each record batch by history.py. The arrays come from Parquet files of the archive: their types are checked
here, their buffers are those that Arrow's reader has checked.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, uintptr_t
from libc.string cimport memcpy

__all__ = ["encode_reply"]


cdef struct Strings:
    const int32_t *offsets      # one more than there are strings; borrowed from an Arrow buffer
    const char *data            # borrowed; NULL when all strings are empty


cdef Py_ssize_t digits(Py_ssize_t n) noexcept nogil:
    """Decimal digits of a number that is not negative."""
    cdef Py_ssize_t count = 1
    while n >= 10:
        n //= 10
        count += 1
    return count


cdef inline char *put_header(char *p, char kind, Py_ssize_t n) noexcept nogil:
    """`<kind><n>\\r\\n`; returns the place behind."""
    cdef Py_ssize_t count = digits(n)
    cdef Py_ssize_t at
    p[0] = kind
    for at in range(count, 0, -1):
        p[at] = <char>(48 + n % 10)
        n //= 10
    p[count + 1] = b'\r'
    p[count + 2] = b'\n'
    return p + count + 3


cdef inline char *put_string(char *p, Strings *strings, Py_ssize_t at) noexcept nogil:
    cdef Py_ssize_t start = strings.offsets[at]
    cdef Py_ssize_t length = strings.offsets[at + 1] - start
    p = put_header(p, b'$', length)
    if length:
        memcpy(p, strings.data + start, length)
    p[length] = b'\r'
    p[length + 1] = b'\n'
    return p + length + 2


cdef inline Py_ssize_t string_size(Strings *strings, Py_ssize_t at) noexcept nogil:
    cdef Py_ssize_t length = strings.offsets[at + 1] - strings.offsets[at]
    return digits(length) + length + 5


cdef Py_ssize_t reply_size(
    Py_ssize_t rows, Strings *ids, const int32_t *lists, Strings *fields, Strings *values
) noexcept nogil:
    cdef Py_ssize_t size = 3 + digits(rows)
    cdef Py_ssize_t row, pair
    for row in range(rows):
        size += 4 + string_size(ids, row) + 3 + digits(2 * (lists[row + 1] - lists[row]))
        for pair in range(lists[row], lists[row + 1]):
            size += string_size(fields, pair) + string_size(values, pair)
    return size


cdef void put_reply(
    char *p, Py_ssize_t rows, Strings *ids, const int32_t *lists, Strings *fields, Strings *values
) noexcept nogil:
    cdef Py_ssize_t row, pair
    p = put_header(p, b'*', rows)
    for row in range(rows):
        p = put_string(put_header(p, b'*', 2), ids, row)
        p = put_header(p, b'*', 2 * (lists[row + 1] - lists[row]))
        for pair in range(lists[row], lists[row + 1]):
            p = put_string(put_string(p, fields, pair), values, pair)


cdef Strings strings_of(object array) except *:
    """The strings of a StringArray or BinaryArray, which must outlive them."""
    cdef Strings found
    if str(array.type) not in ("string", "binary") or array.null_count:
        raise TypeError(f"expected strings or binaries without nulls, got {array.type} with {array.null_count} nulls")
    _, offsets, data = array.buffers()
    found.offsets = NULL
    if len(array):
        found.offsets = <const int32_t *><uintptr_t>offsets.address + <Py_ssize_t>array.offset
    found.data = NULL if data is None else <const char *><uintptr_t>data.address
    return found


def encode_reply(ids, fields):
    """The reply for rows with these IDs (a StringArray) and fields (a ListArray of structs of field and value)."""
    cdef Py_ssize_t rows = len(ids)
    cdef Strings id_strings, field_strings, value_strings
    cdef const int32_t *lists
    if len(fields) != rows or fields.null_count:
        raise TypeError(f"expected the fields of {rows} rows, got {len(fields)} with {fields.null_count} nulls")
    if rows == 0:
        return b"*0\r\n"
    entries = fields.values
    names, contents = entries.field(0), entries.field(1)
    id_strings = strings_of(ids)
    field_strings = strings_of(names)
    value_strings = strings_of(contents)
    lists = <const int32_t *><uintptr_t>fields.buffers()[1].address + <Py_ssize_t>fields.offset
    cdef Py_ssize_t size
    with nogil:
        size = reply_size(rows, &id_strings, lists, &field_strings, &value_strings)
    reply = PyBytes_FromStringAndSize(NULL, size)
    cdef char *p = PyBytes_AS_STRING(reply)
    with nogil:
        put_reply(p, rows, &id_strings, lists, &field_strings, &value_strings)
    return reply
