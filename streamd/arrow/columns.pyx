# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The columns of a record batch while they are filled: one Builder each, the buffers of one Arrow array.

A Builder has values, or offsets with bytes, and a bitmap of what is not null from the first null on. `take_column`
transfers its blocks to Python objects, which free them when Arrow releases them; `start_builder` starts new ones. A
Builder can drop its last row, for rows that turn out not to fit.

Always: offsets have one element more than rows.
"""

from libc.string cimport memset
from streamd.heap cimport free
from streamd.arrow.casts cimport (
    read_boolean, read_date, read_decimal, read_double, read_integer, read_timestamp, trim, uint128_t,
)
from streamd.arrow.memory cimport hand_over

__all__ = []


cdef void free_builder(Builder *b) noexcept nogil:
    free(b.valid.data)
    free(b.offsets.data)
    free(b.data.data)
    free(b.names.data)
    free(b.name_offsets.data)
    free(b.values.data)
    free(b.value_offsets.data)


cdef bint start_builder(Builder *b) noexcept nogil:
    """Start without rows: offsets start with a zero."""
    b.rows = 0
    b.nulls = 0
    if b.kind == TEXT or b.kind == PAIRS:
        if not add_int32(&b.offsets, 0):
            return False
    if b.kind == PAIRS:
        if not add_int32(&b.name_offsets, 0) or not add_int32(&b.value_offsets, 0):
            return False
    return True


cdef int width_of(Kind kind) noexcept nogil:
    """Bytes of a value; 0 for kinds without a fixed whole number of bytes."""
    if kind == INT8:
        return 1
    if kind == INT16:
        return 2
    if kind == INT32 or kind == FLOAT32 or kind == DATE:
        return 4
    if kind == INT64 or kind == FLOAT64 or kind == TIMESTAMP:
        return 8
    if kind == DECIMAL:
        return 16
    return 0


cdef bint set_bit(Bytes *bitmap, Py_ssize_t at, int value) noexcept nogil:
    """Set a bit of a bitmap, at its end or before it."""
    cdef size_t byte = <size_t>at >> 3
    cdef uint8_t mask = <uint8_t>(1 << (at & 7))
    if byte >= bitmap.length:
        if not reserve(bitmap, 1):
            return False
        bitmap.data[bitmap.length] = 0
        bitmap.length += 1
    if value:
        bitmap.data[byte] = <char>(<uint8_t>bitmap.data[byte] | mask)
    else:
        bitmap.data[byte] = <char>(<uint8_t>bitmap.data[byte] & ~mask)
    return True


cdef int append_null(Builder *b) noexcept nogil:
    cdef char zeros[16]
    cdef size_t whole
    memset(zeros, 0, 16)
    b.undo_data = b.data.length
    if b.nulls == 0:
        # The bitmap starts: all rows before are not null.
        whole = (<size_t>b.rows >> 3) + 1
        b.valid.length = 0
        if not reserve(&b.valid, whole):
            return NO_MEMORY
        memset(b.valid.data, 255, whole)
        b.valid.length = whole
    if not set_bit(&b.valid, b.rows, 0):
        return NO_MEMORY
    if b.kind == TEXT:
        if not add_int32(&b.offsets, <int32_t>b.data.length):
            return NO_MEMORY
    elif b.kind == BOOLEAN:
        if not set_bit(&b.data, b.rows, 0):
            return NO_MEMORY
    elif not add_bytes(&b.data, zeros, width_of(b.kind)):
        return NO_MEMORY
    b.nulls += 1
    b.rows += 1
    return DONE


cdef void drop_row(Builder *b) noexcept nogil:
    """Drop the last row."""
    b.rows -= 1
    if b.nulls and not (<uint8_t>b.valid.data[b.rows >> 3] >> (b.rows & 7)) & 1:
        b.nulls -= 1
        # Without nulls there is no bitmap; the next null fills it again.
    if b.kind != BOOLEAN:
        b.data.length = b.undo_data
    if b.kind == TEXT or b.kind == PAIRS:
        b.offsets.length -= sizeof(int32_t)
    if b.kind == PAIRS:
        b.names.length = b.undo_names
        b.values.length = b.undo_values
        b.name_offsets.length = b.undo_pairs * sizeof(int32_t)
        b.value_offsets.length = b.undo_pairs * sizeof(int32_t)


cdef int append_cast(Builder *b, const char *p, size_t n) noexcept nogil:
    """Append a text as a value of this type: DONE, MORE if it is not one (nothing is appended), or a failure."""
    cdef int64_t number = 0
    cdef double real = 0
    cdef float short_real
    cdef int flag = 0
    cdef uint128_t scaled = 0
    cdef int32_t number32
    cdef Kind kind = b.kind
    if kind == TEXT:
        return append_text(b, p, n)
    if kind == INT64:
        if not read_integer(p, n, -<int64_t>9223372036854775807 - 1, 9223372036854775807, &number):
            return MORE
        return append_int64(b, number)
    if kind == FLOAT64:
        if not read_double(p, n, &real):
            return MORE
        return append_value(b, &real, 8)
    if kind == FLOAT32:
        if not read_double(p, n, &real):
            return MORE
        short_real = <float>real
        return append_value(b, &short_real, 4)
    if kind == INT32 or kind == INT16 or kind == INT8:
        flag = width_of(kind) * 8 - 1
        if not read_integer(p, n, -(<int64_t>1 << flag), (<int64_t>1 << flag) - 1, &number):
            return MORE
        # Little-endian: the low bytes come first.
        return append_value(b, &number, width_of(kind))
    if kind == BOOLEAN:
        if not read_boolean(p, n, &flag):
            return MORE
        if not set_bit(&b.data, b.rows, flag) or not mark_valid(b):
            return NO_MEMORY
        return DONE
    if kind == DECIMAL:
        if not read_decimal(p, n, b.precision, b.scale, &scaled):
            return MORE
        return append_value(b, &scaled, 16)
    if kind == TIMESTAMP:
        if not read_timestamp(p, n, &number):
            return MORE
        return append_int64(b, number)
    trim(&p, &n)
    if not read_date(p, n, &number):
        return MORE
    number32 = <int32_t>number
    return append_value(b, &number32, 4)


cdef object take_column(object pyarrow, Builder *b, object kind):
    """The rows of a column as an Arrow array of this type. The Builder must be started again."""
    valid = None
    nulls, rows = b.nulls, b.rows
    if nulls:
        valid = pyarrow.py_buffer(hand_over(&b.valid))
    make = pyarrow.Array.from_buffers
    if b.kind == TEXT:
        offsets, data = pyarrow.py_buffer(hand_over(&b.offsets)), pyarrow.py_buffer(hand_over(&b.data))
        return make(kind, rows, [valid, offsets, data], nulls)
    if b.kind != PAIRS:
        return make(kind, rows, [valid, pyarrow.py_buffer(hand_over(&b.data))], nulls)
    pairs = b.name_offsets.length // sizeof(int32_t) - 1
    struct = kind.field(0).type
    strings = []
    for i, offsets, data in (
        (0, hand_over(&b.name_offsets), hand_over(&b.names)), (1, hand_over(&b.value_offsets), hand_over(&b.values))
    ):
        strings.append(
            make(struct.field(i).type, pairs, [None, pyarrow.py_buffer(offsets), pyarrow.py_buffer(data)], 0)
        )
    held = make(struct, pairs, [None], 0, children=strings)
    return make(kind, rows, [valid, pyarrow.py_buffer(hand_over(&b.offsets))], nulls, children=[held])


cdef object check_builder(Builder *b):
    """Assert what must hold between rows."""
    assert 0 <= b.nulls <= b.rows
    if b.nulls:
        assert <size_t>b.rows <= b.valid.length * 8
    if b.kind == TEXT or b.kind == PAIRS:
        assert <size_t>(b.rows + 1) * 4 == b.offsets.length
        check_offsets(&b.offsets, b.data.length if b.kind == TEXT else b.name_offsets.length // 4 - 1)
    elif b.kind != BOOLEAN:
        assert <size_t>(b.rows * width_of(b.kind)) == b.data.length
    if b.kind == PAIRS:
        assert b.name_offsets.length == b.value_offsets.length
        check_offsets(&b.name_offsets, b.names.length)
        check_offsets(&b.value_offsets, b.values.length)


cdef check_offsets(Bytes *offsets, size_t end):
    cdef int32_t *at = <int32_t *>offsets.data
    cdef size_t i, count = offsets.length // 4
    assert count > 0 and at[0] == 0 and <size_t>at[count - 1] == end
    for i in range(1, count):
        assert at[i - 1] <= at[i]
