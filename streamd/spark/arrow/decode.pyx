# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""EntryDecoder: bytes of XRANGE replies in, Arrow record batches out, with no Python object per entry or value.

    *2\\r\\n                                                          a reply: so many entries
      *2\\r\\n  $3\\r\\n5-1\\r\\n  *2\\r\\n  $1\\r\\na\\r\\n  $2\\r\\n20\\r\\n    an entry: ID, then fields and values
      *2\\r\\n ...

The contract: receive into `space()`, tell `advance(n)` how much came, until it returns True: the reply is whole.
`take()` gives the rows so far as a batch; between two replies, or in the middle of one. Entries are decoded as they
become complete, however the bytes are cut; only of the entry that is not complete something is remembered:

    input         pos                 pos + cursor          size                     room
      | entries done |  parts known     |  not looked at yet  |  what space() gives  |
      +--------------+------------------+---------------------+----------------------+
                       spans: where the entry's strings are, counted from pos

so time is linear in the bytes, and memory is bounded by the longest entry, a receive buffer, and the rows not taken.

Every column has a Builder, the buffers of one Arrow array: values or offsets with bytes, and a bitmap of what is not
null from the first null on. `take` hands the blocks over to Python objects (Block), which free them when Arrow lets go
of them, and starts new ones. The row of an entry is built column by column from the spans; in mode DROPMALFORMED a row
that did not fit is taken back (every builder can drop its last row).

Always: pos <= pos + cursor <= size <= room; all builders have the same number of rows between entries; offsets have one
element more than rows.

Trust: the bytes come from a server that the user named, but are checked as if they did not: lengths against what is
there, counts against nothing, since they reserve nothing.
"""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from libc.math cimport INFINITY, NAN
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy, memmove, memset
from streamd.heap cimport free, malloc, realloc

import json

from streamd.errors import ProtocolError
from streamd.spark.errors import MalformedError, ServerError

__all__ = ["EntryDecoder"]

cdef extern from *:
    ctypedef unsigned long long uint128_t "unsigned __int128"   # the compiler knows its true width

cdef extern from "Python.h":
    double PyOS_string_to_double(const char *s, char **endptr, void *overflow) except? -1.0

cdef enum:
    RECEIVE_BYTES = 256 * 1024      # room that space() gives at least
    MAX_LINE = 32                   # bytes of a header line
    MAX_NUMBER = 512                # characters of a number that are looked at
    MAX_ERROR_LINE = 64 * 1024

# What a step of decoding says. Negative: it failed.
cdef enum Outcome:
    BAD_BYTES = -4                  # no reply to XRANGE
    MISFIT = -3                     # a value that its column's type cannot take, in mode FAILFAST
    TOO_LARGE = -2                  # strings of one batch above what 32-bit offsets can count
    NO_MEMORY = -1
    MORE = 0                        # more bytes are needed
    DONE = 1

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

cdef enum Mode:
    PERMISSIVE
    DROP
    FAIL

SOURCES = {
    "id": FROM_ID, "ms": FROM_MS, "seq": FROM_SEQ, "time": FROM_TIME, "stream": FROM_STREAM, "fields": FROM_FIELDS,
    "field": FROM_FIELD, "corrupt": FROM_FAULT,
}
KINDS = {
    "string": TEXT, "binary": TEXT, "boolean": BOOLEAN, "tinyint": INT8, "smallint": INT16, "int": INT32,
    "bigint": INT64, "float": FLOAT32, "double": FLOAT64, "decimal": DECIMAL, "timestamp": TIMESTAMP, "date": DATE,
    "pairs": PAIRS, "map": PAIRS,
}
MODES = {"PERMISSIVE": PERMISSIVE, "DROPMALFORMED": DROP, "FAILFAST": FAIL}


# --- Blocks of memory ------------------------------------------------------------------------------------------------

cdef struct Bytes:
    char *data      # owned by who holds the struct; NULL when room is 0
    size_t length   # bytes used
    size_t room     # bytes there are


cdef inline int reserve(Bytes *block, size_t more) noexcept nogil:
    """Make room for so many bytes behind those used. May move. False when there is no memory."""
    if block.length + more <= block.room:
        return True
    return grow(block, block.length + more)


cdef int grow(Bytes *block, size_t needed) noexcept nogil:
    cdef size_t room = block.room * 2 if block.room * 2 > needed else needed
    if room < 1024:
        room = 1024
    cdef char *moved = <char *>realloc(block.data, room)
    if moved is NULL:
        return False
    block.data = moved
    block.room = room
    return True


cdef inline int add_bytes(Bytes *block, const char *p, size_t n) noexcept nogil:
    if not reserve(block, n):
        return False
    memcpy(block.data + block.length, p, n)
    block.length += n
    return True


cdef inline int add_int32(Bytes *block, int32_t value) noexcept nogil:
    return add_bytes(block, <const char *>&value, sizeof(int32_t))


cdef class Block:
    """A block of memory as a Python object that Arrow can hold: read-only, freed with the object."""

    cdef char *data      # owned
    cdef Py_ssize_t length

    def __dealloc__(self):
        free(self.data)

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.length, 1, flags)


cdef Block hand_over(Bytes *block):
    """The block as a Python object; the struct is empty afterwards."""
    cdef Block made = Block()
    if block.data is NULL and not reserve(block, 1):     # Arrow wants an address even of nothing
        raise MemoryError
    made.data = block.data
    made.length = block.length
    memset(block, 0, sizeof(Bytes))
    return made


# --- Columns ---------------------------------------------------------------------------------------------------------

cdef struct Builder:
    Source source
    Kind kind
    int precision       # of a decimal
    int scale
    const char *name    # of the field to look for; borrowed from the decoder's list of names
    size_t name_length
    Py_ssize_t rows
    Py_ssize_t nulls    # while 0, there is no bitmap
    Bytes valid         # bitmap, from the first null on
    Bytes offsets       # int32: of strings, or of lists
    Bytes data          # values, or the bytes of strings
    Bytes names         # PAIRS: bytes of all fields of all rows ...
    Bytes name_offsets  # ... and where they begin
    Bytes values        # PAIRS: the same of the values
    Bytes value_offsets
    size_t undo_data    # bytes used before the last row, for taking it back
    size_t undo_names
    size_t undo_values
    size_t undo_pairs   # elements of name_offsets


cdef void free_builder(Builder *b) noexcept nogil:
    free(b.valid.data)
    free(b.offsets.data)
    free(b.data.data)
    free(b.names.data)
    free(b.name_offsets.data)
    free(b.values.data)
    free(b.value_offsets.data)


cdef int start_builder(Builder *b) noexcept nogil:
    """Begin with no rows: offsets begin with a zero."""
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
    """Bytes of a value; 0 when values are no whole bytes of equal number."""
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


cdef int set_bit(Bytes *bitmap, Py_ssize_t at, int value) noexcept nogil:
    """Set a bit at the end of a bitmap, or one before it."""
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


cdef inline int mark_valid(Builder *b) noexcept nogil:
    """Count the row just appended as not null."""
    if b.nulls and not set_bit(&b.valid, b.rows, 1):
        return False
    b.rows += 1
    return True


cdef int append_null(Builder *b) noexcept nogil:
    cdef char zeros[16]
    cdef size_t whole
    memset(zeros, 0, 16)
    b.undo_data = b.data.length
    if b.nulls == 0:
        # The bitmap begins: all rows before are not null.
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


cdef int take_back(Builder *b) noexcept nogil:
    """Drop the last row."""
    b.rows -= 1
    if b.nulls and not (<uint8_t>b.valid.data[b.rows >> 3] >> (b.rows & 7)) & 1:
        b.nulls -= 1
        # Without nulls there is no bitmap; the next null fills it anew.
    if b.kind != BOOLEAN:
        b.data.length = b.undo_data
    if b.kind == TEXT or b.kind == PAIRS:
        b.offsets.length -= sizeof(int32_t)
    if b.kind == PAIRS:
        b.names.length = b.undo_names
        b.values.length = b.undo_values
        b.name_offsets.length = b.undo_pairs * sizeof(int32_t)
        b.value_offsets.length = b.undo_pairs * sizeof(int32_t)
    return True


# --- Texts to values -------------------------------------------------------------------------------------------------
#
# Each reads the whole text, white space around it aside, and is false when it is no such value.

cdef inline int is_digit(char c) noexcept nogil:
    return c'0' <= c <= c'9'


cdef inline int is_space(char c) noexcept nogil:
    return c == c' ' or c'\t' <= c <= c'\r'


cdef inline void trim(const char **p, size_t *n) noexcept nogil:
    while n[0] > 0 and is_space(p[0][0]):
        p[0] += 1
        n[0] -= 1
    while n[0] > 0 and is_space(p[0][n[0] - 1]):
        n[0] -= 1


cdef int read_unsigned(const char *p, size_t n, uint64_t *out) noexcept nogil:
    """One or more digits that fit into 64 bits."""
    cdef uint64_t value = 0
    cdef uint64_t digit
    cdef size_t i
    if n == 0:
        return False
    for i in range(n):
        if not is_digit(p[i]):
            return False
        digit = <uint64_t>(p[i] - c'0')
        if i >= 19 and value > (<uint64_t>-1 - digit) // 10:
            return False
        value = value * 10 + digit
    out[0] = value
    return True


cdef int read_integer(const char *p, size_t n, int64_t low, int64_t high, int64_t *out) noexcept nogil:
    cdef uint64_t size
    cdef int is_negative = False
    trim(&p, &n)
    if n > 0 and (p[0] == c'-' or p[0] == c'+'):
        is_negative = p[0] == c'-'
        p += 1
        n -= 1
    if not read_unsigned(p, n, &size):
        return False
    if is_negative:
        # low is negative: -(low + 1) + 1 is its size without overflow.
        if size > <uint64_t>(-(low + 1)) + 1:
            return False
        out[0] = <int64_t>(0 - size)
    else:
        if size > <uint64_t>high:
            return False
        out[0] = <int64_t>size
    return True


cdef int matches(const char *p, size_t n, const char *word, size_t word_length) noexcept nogil:
    """Whether the text is the (lower-case) word, in whatever case."""
    cdef size_t i
    if n != word_length:
        return False
    for i in range(n):
        if (p[i] | 32) != word[i]:
            return False
    return True


cdef double[23] POWERS
for _exponent in range(23):
    POWERS[_exponent] = float(f"1e{_exponent}")      # all exact


cdef int read_double(const char *p, size_t n, double *out) noexcept nogil:
    cdef uint64_t mantissa = 0
    cdef int digits = 0, seen = 0, exponent = 0, written = 0, is_negative = False, exponent_negative = False
    cdef const char *q
    cdef const char *end
    trim(&p, &n)
    if n == 0 or n > MAX_NUMBER:
        return False
    q = p
    end = p + n
    if q[0] == c'-' or q[0] == c'+':
        is_negative = q[0] == c'-'
        q += 1
    if q < end and not is_digit(q[0]) and q[0] != c'.':
        if matches(q, end - q, b"nan", 3):
            out[0] = NAN
        elif matches(q, end - q, b"inf", 3) or matches(q, end - q, b"infinity", 8):
            out[0] = -INFINITY if is_negative else INFINITY
        else:
            return False
        return True
    while q < end and is_digit(q[0]):
        seen += 1
        if digits or q[0] != c'0':
            digits += 1
            if digits <= 19:
                mantissa = mantissa * 10 + <uint64_t>(q[0] - c'0')
        q += 1
    if q < end and q[0] == c'.':
        q += 1
        while q < end and is_digit(q[0]):
            seen += 1
            exponent -= 1
            if digits or q[0] != c'0':
                digits += 1
                if digits <= 19:
                    mantissa = mantissa * 10 + <uint64_t>(q[0] - c'0')
            q += 1
    if seen == 0:
        return False
    if q < end and (q[0] == c'e' or q[0] == c'E'):
        q += 1
        if q < end and (q[0] == c'-' or q[0] == c'+'):
            exponent_negative = q[0] == c'-'
            q += 1
        if q == end:
            return False
        while q < end and is_digit(q[0]):
            if written < 100000:
                written = written * 10 + (q[0] - c'0')
            q += 1
        exponent += -written if exponent_negative else written
    if q != end:
        return False
    # Both are exact as doubles, so that one multiplication or division rounds correctly.
    if digits <= 19 and mantissa <= (<uint64_t>1 << 53) and -22 <= exponent <= 22:
        out[0] = <double>mantissa
        if exponent < 0:
            out[0] /= POWERS[-exponent]
        else:
            out[0] *= POWERS[exponent]
        if is_negative:
            out[0] = -out[0]
        return True
    return slow_double(p, n, out)


cdef int slow_double(const char *p, size_t n, double *out) noexcept nogil:
    """The same by Python, which knows no locale."""
    cdef char copy[MAX_NUMBER + 1]
    memcpy(copy, p, n)
    copy[n] = 0
    with gil:
        try:
            out[0] = PyOS_string_to_double(copy, NULL, NULL)     # above the greatest: infinity
        except ValueError:
            return False
    return True


cdef int read_boolean(const char *p, size_t n, int *out) noexcept nogil:
    trim(&p, &n)
    if matches(p, n, b"true", 4) or matches(p, n, b"t", 1) or matches(p, n, b"yes", 3) or matches(p, n, b"y", 1):
        out[0] = True
    elif matches(p, n, b"false", 5) or matches(p, n, b"f", 1) or matches(p, n, b"no", 2) or matches(p, n, b"n", 1):
        out[0] = False
    elif n == 1 and (p[0] == c'0' or p[0] == c'1'):
        out[0] = p[0] == c'1'
    else:
        return False
    return True


cdef int read_decimal(const char *p, size_t n, int precision, int scale, uint128_t *out) noexcept nogil:
    """A number as `value * 10^scale`, rounded half away from zero; false when it has more digits than `precision`."""
    cdef const char *q
    cdef const char *end
    cdef const char *first
    cdef int is_negative = False, exponent_negative = False, seen_point = False, rounds_up = False
    cdef long before_point = 0, count = 0, exponent = 0, cut, index = 0, digits = 0
    cdef uint128_t value = 0
    cdef uint128_t limit = 1
    trim(&p, &n)
    if n == 0 or n > MAX_NUMBER:
        return False
    q = p
    end = p + n
    if q[0] == c'-' or q[0] == c'+':
        is_negative = q[0] == c'-'
        q += 1
    first = q
    while q < end and (is_digit(q[0]) or (q[0] == c'.' and not seen_point)):
        if q[0] == c'.':
            seen_point = True
        else:
            count += 1
            if not seen_point:
                before_point += 1
        q += 1
    if count == 0:
        return False
    if q < end and (q[0] == c'e' or q[0] == c'E'):
        end = q
        q += 1
        if q < p + n and (q[0] == c'-' or q[0] == c'+'):
            exponent_negative = q[0] == c'-'
            q += 1
        if q == p + n:
            return False
        while q < p + n and is_digit(q[0]):
            if exponent < 100000:
                exponent = exponent * 10 + (q[0] - c'0')
            q += 1
        if exponent_negative:
            exponent = -exponent
    if q != p + n:
        return False
    # Digits before index `cut` are kept, the one there decides the rounding.
    cut = before_point + exponent + scale
    q = first
    while q < end:
        if q[0] != c'.':
            if index < cut:
                if value or q[0] != c'0':
                    digits += 1
                    if digits > precision:
                        return False
                value = value * 10 + <uint128_t>(q[0] - c'0')
            elif index == cut:
                rounds_up = q[0] >= c'5'
            index += 1
        q += 1
    while index < cut and value:
        digits += 1
        if digits > precision:
            return False
        value = value * 10
        index += 1
    value += <uint128_t>rounds_up
    while precision > 0:
        limit = limit * 10
        precision -= 1
    if value >= limit:
        return False
    out[0] = 0 - value if is_negative else value
    return True


cdef int two_digits(const char *p, int high) noexcept nogil:
    """A number of two digits up to `high`, or -1."""
    cdef int value
    if not is_digit(p[0]) or not is_digit(p[1]):
        return -1
    value = (p[0] - c'0') * 10 + (p[1] - c'0')
    return value if value <= high else -1


cdef int days_of_month(int year, int month) noexcept nogil:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month == 4 or month == 6 or month == 9 or month == 11 else 31


cdef int read_date(const char *p, size_t n, int64_t *days) noexcept nogil:
    """`YYYY-MM-DD` as days since 1970."""
    cdef int year, month, day, high, low, era, of_era, of_year
    if n != 10 or p[4] != c'-' or p[7] != c'-':
        return False
    high = two_digits(p, 99)
    low = two_digits(p + 2, 99)
    month = two_digits(p + 5, 12)
    day = two_digits(p + 8, 31)
    if high < 0 or low < 0 or month < 1 or day < 1:
        return False
    year = high * 100 + low
    if year == 0 or day > days_of_month(year, month):
        return False
    # Years that begin in March end with their leap day; in 400 of them there are 146097 days.
    if month <= 2:
        year -= 1
    era = year // 400
    of_era = year - era * 400
    of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    days[0] = <int64_t>era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468
    return True


cdef int read_timestamp(const char *p, size_t n, int64_t *micros) noexcept nogil:
    """Unix time in ms, or ISO 8601 with day, or day and time; UTC when it names no zone. As microseconds."""
    cdef int64_t number, days, seconds
    cdef int hours, minutes, second = 0, digits = 0, sign
    cdef int64_t fraction = 0
    cdef const char *end
    trim(&p, &n)
    if read_integer(p, n, -9223372036854775, 9223372036854775, &number):
        micros[0] = number * 1000
        return True
    if n < 10 or not read_date(p, 10, &days):
        return False
    micros[0] = days * 86400000000LL
    if n == 10:
        return True
    end = p + n
    p += 10
    if (p[0] != c'T' and p[0] != c't' and p[0] != c' ') or end - p < 6 or p[3] != c':':
        return False
    hours = two_digits(p + 1, 23)
    minutes = two_digits(p + 4, 59)
    if hours < 0 or minutes < 0:
        return False
    p += 6
    if p < end and p[0] == c':':
        if end - p < 3:
            return False
        second = two_digits(p + 1, 59)
        if second < 0:
            return False
        p += 3
        if p < end and (p[0] == c'.' or p[0] == c','):
            p += 1
            while p < end and is_digit(p[0]):
                if digits < 6:
                    fraction = fraction * 10 + (p[0] - c'0')
                digits += 1
                p += 1
            if digits == 0:
                return False
            while digits < 6:
                fraction *= 10
                digits += 1
    seconds = <int64_t>hours * 3600 + minutes * 60 + second
    if p < end:
        if (p[0] == c'Z' or p[0] == c'z') and end - p == 1:
            p += 1
        elif (p[0] == c'+' or p[0] == c'-') and (end - p == 3 or end - p == 5 or end - p == 6):
            sign = -1 if p[0] == c'-' else 1
            hours = two_digits(p + 1, 18)
            minutes = 0
            if end - p > 3:
                if end - p == 6 and p[3] != c':':
                    return False
                minutes = two_digits(end - 2, 59)
            if hours < 0 or minutes < 0:
                return False
            seconds -= sign * (hours * 3600 + minutes * 60)
        else:
            return False
    micros[0] += seconds * 1000000 + fraction
    return True


cdef int append_cast(Builder *b, const char *p, size_t n) noexcept nogil:
    """Append a text as a value of the column's type: DONE, MORE when it is none (nothing is appended), or a failure."""
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


# --- Headers of replies ----------------------------------------------------------------------------------------------

cdef inline int read_header(
    const char *p, const char *end, char marker, int64_t *out, const char **after
) noexcept nogil:
    """Read `<marker><number>\\r\\n`; DONE with what stands behind it, MORE, or BAD_BYTES."""
    cdef const char *q = p + 1
    cdef int64_t value = 0
    cdef int is_negative = False
    if p >= end:
        return MORE
    if p[0] != marker:
        return BAD_BYTES
    if q < end and q[0] == c'-':
        is_negative = True
        q += 1
    while q < end and is_digit(q[0]):
        value = value * 10 + (q[0] - c'0')
        q += 1
        if q - p > 20:
            return BAD_BYTES
    if end - q < 2:
        return MORE if q == end or q[0] == c'\r' else BAD_BYTES
    if q[0] != c'\r' or q[1] != c'\n' or q - p < 2 + is_negative:
        return BAD_BYTES
    out[0] = -value if is_negative else value
    after[0] = q + 2
    return DONE


cdef struct Span:
    size_t at       # from the beginning of the entry
    size_t length


# --- The decoder -----------------------------------------------------------------------------------------------------

@cython.final
cdef class EntryDecoder:

    cdef Builder *builders          # owned; `columns` of them
    cdef int columns
    cdef int mode
    cdef int has_fields             # a column takes the value of a field
    cdef int fault_column           # the column that gets what does not fit, or -1
    cdef list names                 # keeps the builders' names alive
    cdef bytes stream
    cdef const char *stream_text    # its bytes
    cdef size_t stream_length
    cdef object schema
    cdef list types                 # Arrow types of the columns
    # The buffer, as drawn above; owned.
    cdef char *input
    cdef size_t pos
    cdef size_t size
    cdef size_t room
    # The entry that is not complete.
    cdef size_t cursor              # how far it is known, from pos
    cdef int stage                  # 0: before it, 1: before its ID, 2: before its count, 3: among its strings
    cdef size_t wanted              # strings it has, fields and values together
    cdef Span id
    cdef Span *spans                # owned: its strings so far
    cdef size_t span_count
    cdef size_t span_room
    # The reply: entries it has, -1 before it is known; those that have come.
    cdef int64_t reply_length
    cdef readonly int64_t reply_entries
    # For each place in an entry, the column that its field filled last time (-1: none): entries look alike.
    cdef int guesses[64]
    cdef Span *found                # owned: for each column, its value in this entry; length -1: none
    # What `take` would return, and the bytes of replies that it came from.
    cdef readonly Py_ssize_t rows
    cdef readonly size_t row_bytes
    # Totals.
    cdef readonly uint64_t total_entries
    cdef readonly uint64_t total_bytes     # of their entries, as replies on the wire
    cdef uint64_t first_ms
    cdef uint64_t first_seq
    cdef uint64_t last_ms
    cdef uint64_t last_seq
    cdef uint64_t every
    cdef Bytes noted                # marks: ms, seq and bytes before, three uint64 each

    def __cinit__(self, columns, schema, bytes stream not None, *, mode="PERMISSIVE", every=0):
        cdef Py_ssize_t i
        self.columns = len(columns)
        self.mode = MODES[mode]
        self.stream = stream
        self.stream_text = stream
        self.stream_length = len(stream)
        self.schema = schema
        self.types = [schema.field(i).type for i in range(self.columns)] if self.columns else []
        self.names = [column.name.encode() for column in columns]
        self.every = every
        self.fault_column = -1
        self.reply_length = -1
        for i in range(64):
            self.guesses[i] = -1
        self.builders = <Builder *>malloc((self.columns + 1) * sizeof(Builder))
        self.found = <Span *>malloc((self.columns + 1) * sizeof(Span))
        if self.builders is NULL or self.found is NULL:
            raise MemoryError
        memset(self.builders, 0, (self.columns + 1) * sizeof(Builder))
        for i in range(self.columns):
            self.builders[i].source = SOURCES[columns[i].source]
            self.builders[i].kind = KINDS[columns[i].kind]
            self.builders[i].precision = columns[i].precision
            self.builders[i].scale = columns[i].scale
            self.builders[i].name = <bytes>self.names[i]
            self.builders[i].name_length = len(<bytes>self.names[i])
            if self.builders[i].source == FROM_FIELD:
                self.has_fields = True
            if self.builders[i].source == FROM_FAULT:
                self.fault_column = i
            if not start_builder(&self.builders[i]):
                raise MemoryError

    def __dealloc__(self):
        cdef int i
        if self.builders is not NULL:
            for i in range(self.columns):
                free_builder(&self.builders[i])
        free(self.builders)
        free(self.found)
        free(self.input)
        free(self.spans)
        free(self.noted.data)

    # --- Receiving --------------------------------------------------------------------------------------------------

    def space(self):
        cdef char *moved
        cdef size_t needed
        if self.pos > 0:
            # What is left is less than an entry; it goes to the front.
            memmove(self.input, self.input + self.pos, self.size - self.pos)
            self.size -= self.pos
            self.pos = 0
        if self.room - self.size < RECEIVE_BYTES:
            needed = self.size * 2 + RECEIVE_BYTES
            moved = <char *>realloc(self.input, needed)
            if moved is NULL:
                raise MemoryError
            self.input = moved
            self.room = needed
        return <char[:self.room - self.size]>(self.input + self.size)

    def advance(self, Py_ssize_t received):
        cdef int outcome
        if received < 0 or <size_t>received > self.room - self.size:
            raise ValueError("more than there was room for")
        self.size += received
        if self.reply_length < 0 or self.reply_entries == self.reply_length:
            outcome = self.begin_reply()
            if outcome != DONE:
                return self.judge(outcome)
        with nogil:
            outcome = self.read_entries()
        return self.judge(outcome)

    def reset(self):
        self.pos = self.size = self.cursor = 0
        self.stage = 0
        self.span_count = 0
        self.reply_length = -1
        self.reply_entries = 0

    cdef judge(self, int outcome):
        if outcome >= 0:
            return outcome == DONE
        if outcome == NO_MEMORY:
            raise MemoryError
        if outcome == TOO_LARGE:
            raise MalformedError(f"an entry of {self.stream!r} is too large for one Arrow batch (2 GB)")
        if outcome == MISFIT:
            raise self.misfit()
        raise ProtocolError("the server's answer is no reply to XRANGE")

    cdef int begin_reply(self) except -100:
        """Read the head of a reply. DONE, MORE or BAD_BYTES; raises ServerError when it is an error."""
        cdef const char *p = self.input + self.pos
        cdef const char *end = self.input + self.size
        cdef const char *line_end
        cdef int64_t count = 0
        cdef int outcome
        if p == end:
            return MORE
        if p[0] == c'-':
            line_end = <const char *>memchr(p, c'\n', end - p)
            if line_end is NULL:
                return MORE if end - p < MAX_ERROR_LINE else BAD_BYTES
            text = p[1:line_end - p].rstrip(b"\r").decode(errors="replace")
            self.pos += line_end + 1 - p
            self.reply_length = -1
            raise ServerError(text)
        outcome = read_header(p, end, c'*', &count, &p)
        if outcome != DONE:
            return outcome
        self.pos = p - self.input
        self.reply_length = count if count > 0 else 0
        self.reply_entries = 0
        return DONE

    cdef int read_entries(self) noexcept nogil:
        """Decode all entries that are complete. DONE when the reply is."""
        cdef int outcome
        while self.reply_entries < self.reply_length:
            outcome = self.skim()
            if outcome != DONE:
                return outcome
            outcome = self.accept()
            if outcome != DONE:
                return outcome
            self.pos += self.cursor
            self.cursor = 0
            self.stage = 0
            self.span_count = 0
            self.reply_entries += 1
        return DONE

    cdef int skim(self) noexcept nogil:
        """Find the strings of the entry at pos, going on where it stopped. DONE, MORE, BAD_BYTES or NO_MEMORY."""
        cdef const char *start = self.input + self.pos
        cdef const char *end = self.input + self.size
        cdef const char *p = start + self.cursor
        cdef const char *q = p
        cdef int64_t n = 0
        cdef int outcome
        if self.stage == 0:
            outcome = read_header(p, end, c'*', &n, &p)
            if outcome != DONE or n != 2:
                return BAD_BYTES if outcome == DONE else outcome
            self.stage = 1
            self.cursor = p - start
        if self.stage == 1:
            outcome = read_string(p, end, &n, &q)
            if outcome != DONE:
                return outcome
            self.id.at = q - start
            self.id.length = n
            p = q + n + 2
            self.stage = 2
            self.cursor = p - start
        if self.stage == 2:
            outcome = read_header(p, end, c'*', &n, &p)
            if outcome != DONE:
                return outcome
            if n > 0 and n % 2 != 0:
                return BAD_BYTES
            self.wanted = n if n > 0 else 0
            self.stage = 3
            self.cursor = p - start
        while self.span_count < self.wanted:
            outcome = read_string(p, end, &n, &q)
            if outcome != DONE:
                return outcome
            if self.span_count == self.span_room and not self.grow_spans():
                return NO_MEMORY
            self.spans[self.span_count].at = q - start
            self.spans[self.span_count].length = n
            self.span_count += 1
            p = q + n + 2
            self.cursor = p - start
        return DONE

    cdef int grow_spans(self) noexcept nogil:
        cdef size_t room = self.span_room * 2 if self.span_room else 64
        cdef Span *moved = <Span *>realloc(self.spans, room * sizeof(Span))
        if moved is NULL:
            return False
        self.spans = moved
        self.span_room = room
        return True

    # --- Building rows ----------------------------------------------------------------------------------------------

    cdef int accept(self) noexcept nogil:
        """Make a row of the entry that is complete, and count it."""
        cdef uint64_t ms = 0, seq = 0
        cdef int outcome = DONE
        if not self.read_id(&ms, &seq):
            return BAD_BYTES
        if self.every and self.total_entries % self.every == 0 and not self.note(ms, seq):
            return NO_MEMORY
        if self.columns:
            outcome = self.build(ms, seq)
            if outcome != DONE:
                return outcome
            self.row_bytes += self.cursor
        if self.total_entries == 0:
            self.first_ms = ms
            self.first_seq = seq
        self.last_ms = ms
        self.last_seq = seq
        self.total_entries += 1
        self.total_bytes += self.cursor
        return DONE

    cdef int read_id(self, uint64_t *ms, uint64_t *seq) noexcept nogil:
        cdef const char *p = self.input + self.pos + self.id.at
        cdef const char *dash = <const char *>memchr(p, c'-', self.id.length)
        if dash is NULL:
            return False
        return read_unsigned(p, dash - p, ms) and read_unsigned(dash + 1, self.id.length - (dash + 1 - p), seq)

    cdef int note(self, uint64_t ms, uint64_t seq) noexcept nogil:
        return (
            add_bytes(&self.noted, <const char *>&ms, 8)
            and add_bytes(&self.noted, <const char *>&seq, 8)
            and add_bytes(&self.noted, <const char *>&self.total_bytes, 8)
        )

    cdef int build(self, uint64_t ms, uint64_t seq) noexcept nogil:
        cdef const char *entry = self.input + self.pos
        cdef Builder *b
        cdef int i, outcome = DONE, fits = True
        cdef uint128_t wide
        if self.has_fields:
            self.find_fields()
        for i in range(self.columns):
            b = &self.builders[i]
            if b.source == FROM_FIELD:
                if self.found[i].length == <size_t>-1:
                    outcome = append_null(b)
                else:
                    outcome = append_cast(b, entry + self.found[i].at, self.found[i].length)
                    if outcome == MORE:
                        fits = False
                        if self.mode == FAIL:
                            return MISFIT
                        outcome = append_null(b)
            elif b.source == FROM_ID:
                outcome = append_text(b, entry + self.id.at, self.id.length)
            elif b.source == FROM_MS or b.source == FROM_SEQ:
                if b.kind == DECIMAL:
                    wide = ms if b.source == FROM_MS else seq
                    outcome = append_value(b, &wide, 16)
                else:
                    outcome = append_unsigned(b, ms if b.source == FROM_MS else seq)
            elif b.source == FROM_TIME:
                outcome = append_int64(b, <int64_t>ms * 1000) if ms <= <uint64_t>9223372036854775LL else append_null(b)
            elif b.source == FROM_STREAM:
                outcome = append_text(b, self.stream_text, self.stream_length)
            elif b.source == FROM_FIELDS:
                outcome = self.append_pairs(b)
            if outcome != DONE:
                return outcome
        if self.fault_column >= 0:
            b = &self.builders[self.fault_column]
            outcome = append_null(b) if fits else self.append_fault(b)
            if outcome != DONE:
                return outcome
        if not fits and self.mode == DROP:
            for i in range(self.columns):
                take_back(&self.builders[i])
        else:
            self.rows += 1
        return DONE

    cdef void find_fields(self) noexcept nogil:
        """Fill `found`: for each column the value of its field, the last one when there are several."""
        cdef const char *entry = self.input + self.pos
        cdef size_t k, pairs = self.span_count // 2
        cdef int column
        for column in range(self.columns):
            self.found[column].length = <size_t>-1
        for k in range(pairs):
            column = self.guesses[k & 63]
            if column < 0 or not self.is_named(column, entry + self.spans[2 * k].at, self.spans[2 * k].length):
                column = self.column_named(entry + self.spans[2 * k].at, self.spans[2 * k].length)
                if column < 0:
                    continue
                self.guesses[k & 63] = column
            self.found[column] = self.spans[2 * k + 1]

    cdef inline int is_named(self, int column, const char *p, size_t n) noexcept nogil:
        cdef Builder *b = &self.builders[column]
        return b.name_length == n and memcmp(b.name, p, n) == 0

    cdef int column_named(self, const char *p, size_t n) noexcept nogil:
        cdef int column
        for column in range(self.columns):
            if self.builders[column].source == FROM_FIELD and self.is_named(column, p, n):
                return column
        return -1

    cdef int append_pairs(self, Builder *b) noexcept nogil:
        cdef const char *entry = self.input + self.pos
        cdef size_t k, pairs = self.span_count // 2
        b.undo_names = b.names.length
        b.undo_values = b.values.length
        b.undo_pairs = b.name_offsets.length // sizeof(int32_t)
        b.undo_data = b.data.length
        if not reserve(&b.name_offsets, pairs * 4) or not reserve(&b.value_offsets, pairs * 4):
            return NO_MEMORY
        # The strings of the entry lie within `cursor` bytes: one check and one reservation for all.
        if b.names.length + b.values.length + self.cursor > INT32_MAX:
            return TOO_LARGE
        if not reserve(&b.names, self.cursor) or not reserve(&b.values, self.cursor):
            return NO_MEMORY
        for k in range(pairs):
            add_reserved(&b.names, &b.name_offsets, entry + self.spans[2 * k].at, self.spans[2 * k].length)
            add_reserved(&b.values, &b.value_offsets, entry + self.spans[2 * k + 1].at, self.spans[2 * k + 1].length)
        if not add_int32(&b.offsets, <int32_t>(b.name_offsets.length // sizeof(int32_t) - 1)) or not mark_valid(b):
            return NO_MEMORY
        return DONE

    cdef int append_fault(self, Builder *b) noexcept nogil:
        with gil:
            try:
                said = self.as_json()
                return append_text(b, <const char *><bytes>said, len(said))
            except MemoryError:
                return NO_MEMORY

    cdef bytes text_of(self, Span span):
        cdef const char *p = self.input + self.pos + span.at
        return p[:span.length]

    cdef bytes as_json(self):
        """The fields of the entry at pos as a JSON object, in order and with duplicates; bad UTF-8 as `\\xff`."""
        cdef size_t k
        parts = []
        for k in range(self.span_count // 2):
            name, value = self.text_of(self.spans[2 * k]), self.text_of(self.spans[2 * k + 1])
            parts.append(f"{quoted(name)}:{quoted(value)}")
        return ("{" + ",".join(parts) + "}").encode()

    cdef misfit(self):
        """What to raise for the entry at pos, which has a value that does not fit."""
        cdef int i
        cdef Builder trial
        for i in range(self.columns):
            if self.builders[i].source != FROM_FIELD or self.found[i].length == <size_t>-1:
                continue
            trial = self.builders[i]
            value = self.text_of(self.found[i])
            # On a builder of its own, so that the real one stays as it is.
            memset(&trial.valid, 0, sizeof(Bytes))
            memset(&trial.offsets, 0, sizeof(Bytes))
            memset(&trial.data, 0, sizeof(Bytes))
            trial.rows = trial.nulls = 0
            outcome = append_cast(&trial, value, len(value))
            free(trial.offsets.data)
            free(trial.data.data)
            if outcome == MORE:
                return MalformedError(
                    f"entry {self.text_of(self.id).decode()} of stream "
                    f"{self.stream.decode(errors='backslashreplace')}: "
                    f"field {self.names[i].decode()} is no {self.types[i]}: {value[:100]!r}"
                )
        return MalformedError("an entry does not fit the schema")

    # --- Giving out -------------------------------------------------------------------------------------------------

    def take(self):
        import pyarrow

        cdef int i
        arrays = []
        for i in range(self.columns):
            arrays.append(self.take_column(pyarrow, &self.builders[i], self.types[i]))
            if not start_builder(&self.builders[i]):
                raise MemoryError
        self.rows = 0
        self.row_bytes = 0
        return pyarrow.RecordBatch.from_arrays(arrays, schema=self.schema)

    cdef take_column(self, pyarrow, Builder *b, kind):
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

    @property
    def first_id(self):
        return (int(self.first_ms) << 64 | int(self.first_seq)) if self.total_entries else -1

    @property
    def last_id(self):
        return (int(self.last_ms) << 64 | int(self.last_seq)) if self.total_entries else -1

    @property
    def marks(self):
        cdef uint64_t *noted = <uint64_t *>self.noted.data
        cdef size_t i
        return [int(noted[3 * i]) << 64 | int(noted[3 * i + 1]) for i in range(self.noted.length // 24)]

    @property
    def mark_bytes(self):
        cdef uint64_t *noted = <uint64_t *>self.noted.data
        cdef size_t i
        return [int(noted[3 * i + 2]) for i in range(self.noted.length // 24)]

    def check_invariants(self):
        """Assert what must hold between calls."""
        cdef int i
        cdef Builder *b
        assert self.pos + self.cursor <= self.size <= self.room
        assert self.span_count <= self.span_room
        for i in range(self.columns):
            b = &self.builders[i]
            assert b.rows == self.rows and 0 <= b.nulls <= b.rows
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


cdef inline void add_reserved(Bytes *data, Bytes *offsets, const char *p, size_t n) noexcept nogil:
    """Append a string and its offset, for which there is room."""
    memcpy(data.data + data.length, p, n)
    data.length += n
    (<int32_t *>(offsets.data + offsets.length))[0] = <int32_t>data.length
    offsets.length += sizeof(int32_t)


cdef inline int append_unsigned(Builder *b, uint64_t value) noexcept nogil:
    return append_int64(b, <int64_t>value) if value <= <uint64_t>9223372036854775807LL else append_null(b)


cdef inline int read_string(const char *p, const char *end, int64_t *length, const char **text) noexcept nogil:
    """Read `$<n>\\r\\n<n bytes>\\r\\n`: DONE with where the bytes are, MORE, or BAD_BYTES."""
    cdef int outcome = read_header(p, end, c'$', length, text)
    if outcome != DONE:
        return outcome
    if length[0] < 0 or length[0] > INT32_MAX:
        return BAD_BYTES
    return DONE if end - text[0] >= length[0] + 2 else MORE


cdef check_offsets(Bytes *offsets, size_t end):
    cdef int32_t *at = <int32_t *>offsets.data
    cdef size_t i, count = offsets.length // 4
    assert count > 0 and at[0] == 0 and <size_t>at[count - 1] == end
    for i in range(1, count):
        assert at[i - 1] <= at[i]


cdef quoted(bytes text):
    return json.dumps(text.decode("utf-8", "backslashreplace"), ensure_ascii=False)
