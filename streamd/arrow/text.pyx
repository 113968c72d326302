# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Columns of the default table as text: times in ISO 8601, fields as JSON objects, with no Python object per row.

    time_texts(array)         timestamp[us] -> string: 2023-11-14T22:13:20.001000+00:00
    field_texts(array, odd)   list<struct<binary, binary>> -> string: {"sensor": "a", "celsius": "19.8"}
    pair_texts(array, odd)    the same for people: sensor=a celsius=19.8

Fields that no JSON object can show, because a name comes twice or bytes are not UTF-8, are left to `odd`, which is
called with the number of the row and returns its text; `pair_texts` leaves to it what is not printable ASCII, too.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uintptr_t
from libc.string cimport memchr, memcmp, memcpy, memset

import pyarrow

from streamd.heap cimport free
from streamd.arrow.memory cimport Bytes, add_bytes, add_int32, hand_over, reserve

__all__ = ["field_texts", "pair_texts", "time_texts"]

cdef enum:
    TIME_SIZE = 48          # of the longest time
    DAY_S = 86400
    MANY_NAMES = 64         # whether names come twice is looked up in a table above this number

    NAMED = 7               # characters that JSON escapes by a letter

cdef const char *ESCAPED = "\"\\\n\r\t\b\f"
cdef const char *LETTERS = "\"\\nrtbf"
cdef const char *HEX = "0123456789abcdef"


cdef struct Texts:
    Bytes data
    Bytes offsets


cdef object take_texts(Texts *texts, Py_ssize_t rows, object valid):
    """The texts as an Arrow array; `valid` is its bitmap, or None."""
    offsets, data = pyarrow.py_buffer(hand_over(&texts.offsets)), pyarrow.py_buffer(hand_over(&texts.data))
    return pyarrow.Array.from_buffers(pyarrow.string(), rows, [valid, offsets, data])


# --- Times -----------------------------------------------------------------------------------------------------------


cdef char *put_digits(char *p, int64_t number, int width) noexcept nogil:
    """A number that is not negative, with zeros before it."""
    cdef char digits[20]
    cdef int count = 0
    while count < width or number:
        digits[count] = <char>(c'0' + number % 10)
        number //= 10
        count += 1
    while count:
        count -= 1
        p[0] = digits[count]
        p += 1
    return p


cdef char *put_time(char *p, int64_t us) noexcept nogil:
    """A time after the epoch, in microseconds."""
    cdef int64_t seconds = us // 1000000, day = seconds // DAY_S, of_day = seconds % DAY_S
    # Years begin in March here, so that the leap day is their last one; 400 of them have 146,097 days.
    cdef int64_t since = day + 719468, era = since // 146097, of_era = since % 146097
    cdef int64_t year_of_era = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
    cdef int64_t of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    cdef int64_t month = (5 * of_year + 2) // 153
    p = put_digits(p, era * 400 + year_of_era + (month >= 10), 4)
    p[0] = c'-'
    p = put_digits(p + 1, month + 3 if month < 10 else month - 9, 2)
    p[0] = c'-'
    p = put_digits(p + 1, of_year - (153 * month + 2) // 5 + 1, 2)
    p[0] = c'T'
    p = put_digits(p + 1, of_day // 3600, 2)
    p[0] = c':'
    p = put_digits(p + 1, of_day // 60 % 60, 2)
    p[0] = c':'
    p = put_digits(p + 1, of_day % 60, 2)
    p[0] = c'.'
    p = put_digits(p + 1, us % 1000000, 6)
    for zone in b"+00:00":
        p[0] = <char>zone
        p += 1
    return p


def time_texts(times):
    """Times as text; nulls stay."""
    cdef Py_ssize_t rows = len(times), at
    cdef const int64_t *values = <const int64_t *><uintptr_t>times.buffers()[1].address + <int64_t>times.offset
    cdef Texts texts
    if times.null_count and times.offset:
        times = pyarrow.concat_arrays([times])  # so that its bitmap starts with its first row
        values = <const int64_t *><uintptr_t>times.buffers()[1].address
    memset(&texts, 0, sizeof(Texts))
    try:
        if not reserve(&texts.data, rows * TIME_SIZE) or not add_int32(&texts.offsets, 0):
            raise MemoryError
        for at in range(rows):
            texts.data.length = put_time(texts.data.data + texts.data.length, max(values[at], 0)) - texts.data.data
            if not add_int32(&texts.offsets, <int32_t>texts.data.length):
                raise MemoryError
        return take_texts(&texts, rows, times.buffers()[0] if times.null_count else None)
    finally:
        free(texts.data.data)
        free(texts.offsets.data)


# --- Fields ----------------------------------------------------------------------------------------------------------


cdef struct Strings:
    const int32_t *offsets
    const char *data


cdef Strings strings_of(object array):
    cdef Strings found
    _, offsets, data = array.buffers()
    found.offsets = <const int32_t *><uintptr_t>offsets.address + <int64_t>array.offset
    found.data = NULL
    if data is not None:
        found.data = <const char *><uintptr_t>data.address
    return found


cdef Py_ssize_t plain_length(const uint8_t *p, Py_ssize_t n) noexcept nogil:
    """How many bytes at the start stand in JSON as they are: whole characters of UTF-8 that need no escape."""
    cdef Py_ssize_t at = 0
    cdef int more, i
    cdef uint32_t code
    cdef uint8_t byte
    while at < n:
        byte = p[at]
        if byte < 0x80:
            if byte < 0x20 or byte == c'"' or byte == c'\\':
                break
            at += 1
            continue
        more = 1 if 0xC2 <= byte < 0xE0 else 2 if 0xE0 <= byte < 0xF0 else 3 if 0xF0 <= byte < 0xF5 else 0
        if more == 0 or at + more >= n:
            break
        code = byte & (0x3F >> more)
        for i in range(1, more + 1):
            if p[at + i] & 0xC0 != 0x80:
                return at
            code = code << 6 | (p[at + i] & 0x3F)
        # Not in the shortest form, half of a pair of UTF-16, or above what Unicode has.
        if (more == 2 and (code < 0x800 or 0xD800 <= code < 0xE000)) or (more == 3 and not 0x10000 <= code < 0x110000):
            break
        at += more + 1
    return at


cdef int add_string(Bytes *out, const char *p, Py_ssize_t n) noexcept nogil:
    """Append a JSON string: 1; 0 if the bytes are not UTF-8, -1 without memory."""
    cdef Py_ssize_t plain
    cdef char escape[6]
    cdef uint8_t byte
    cdef const char *known
    memcpy(escape, b"\\u00", 4)
    if not add_bytes(out, '"', 1):
        return -1
    while True:
        plain = plain_length(<const uint8_t *>p, n)
        if not add_bytes(out, p, plain):
            return -1
        p += plain
        n -= plain
        if n == 0:
            return 1 if add_bytes(out, '"', 1) else -1
        byte = <uint8_t>p[0]
        if byte >= 0x80:
            return 0
        known = <const char *>memchr(ESCAPED, byte, NAMED)
        escape[1] = LETTERS[known - ESCAPED] if known is not NULL else c'u'
        escape[4] = HEX[byte >> 4]
        escape[5] = HEX[byte & 15]
        if not add_bytes(out, escape, 2 if known is not NULL else 6):
            return -1
        p += 1
        n -= 1


cdef bint has_twice(const Strings *names, Py_ssize_t first, Py_ssize_t stop) noexcept nogil:
    """Whether a name comes twice among few."""
    cdef Py_ssize_t i, j
    cdef int32_t size
    for i in range(first + 1, stop):
        size = names.offsets[i + 1] - names.offsets[i]
        for j in range(first, i):
            if names.offsets[j + 1] - names.offsets[j] == size \
                    and memcmp(names.data + names.offsets[i], names.data + names.offsets[j], size) == 0:
                return True
    return False


cdef int add_object(
    Bytes *out, const Strings *names, const Strings *values, Py_ssize_t first, Py_ssize_t stop,
) noexcept nogil:
    """Append the pairs [first, stop) as a JSON object: 1; 0 if they make none, -1 without memory."""
    cdef Py_ssize_t i
    cdef int done
    if stop - first > MANY_NAMES or has_twice(names, first, stop):
        return 0
    if not add_bytes(out, "{", 1):
        return -1
    for i in range(first, stop):
        if i > first and not add_bytes(out, ", ", 2):
            return -1
        done = add_string(out, names.data + names.offsets[i], names.offsets[i + 1] - names.offsets[i])
        if done <= 0:
            return done
        if not add_bytes(out, ": ", 2):
            return -1
        done = add_string(out, values.data + values.offsets[i], values.offsets[i + 1] - values.offsets[i])
        if done <= 0:
            return done
    return 1 if add_bytes(out, "}", 1) else -1


cdef int add_word(Bytes *out, const char *p, Py_ssize_t n) noexcept nogil:
    """Append printable ASCII: 1; 0 if it is something else, -1 without memory."""
    cdef Py_ssize_t at
    for at in range(n):
        if not 0x20 <= <uint8_t>p[at] < 0x7F:
            return 0
    return 1 if add_bytes(out, p, n) else -1


cdef int add_pairs(
    Bytes *out, const Strings *names, const Strings *values, Py_ssize_t first, Py_ssize_t stop,
) noexcept nogil:
    """Append the pairs [first, stop) as `name=value`: 1; 0 if that cannot show them, -1 without memory."""
    cdef Py_ssize_t i
    cdef int done
    if stop - first > MANY_NAMES or has_twice(names, first, stop):
        return 0
    for i in range(first, stop):
        if i > first and not add_bytes(out, " ", 1):
            return -1
        done = add_word(out, names.data + names.offsets[i], names.offsets[i + 1] - names.offsets[i])
        if done <= 0:
            return done
        if not add_bytes(out, "=", 1):
            return -1
        done = add_word(out, values.data + values.offsets[i], values.offsets[i + 1] - values.offsets[i])
        if done <= 0:
            return done
    return 1


ctypedef int (*Adder)(
    Bytes *out, const Strings *names, const Strings *values, Py_ssize_t first, Py_ssize_t stop,
) noexcept nogil


def field_texts(fields, odd):
    """Fields as JSON objects; `odd(row)` returns the text of a row whose fields make none. No row is null."""
    return texts_of(fields, odd, add_object)


def pair_texts(fields, odd):
    """Fields as `name=value`; `odd(row)` returns the text of a row that this cannot show. No row is null."""
    return texts_of(fields, odd, add_pairs)


cdef object texts_of(object fields, object odd, Adder add):
    cdef Py_ssize_t rows = len(fields), at
    cdef const int32_t *starts = <const int32_t *><uintptr_t>fields.buffers()[1].address + <int64_t>fields.offset
    cdef object pairs = fields.values
    cdef Strings names = strings_of(pairs.field(0)), values = strings_of(pairs.field(1))
    cdef Texts texts
    cdef size_t mark
    cdef int done
    cdef bytes text
    memset(&texts, 0, sizeof(Texts))
    try:
        if not add_int32(&texts.offsets, 0):
            raise MemoryError
        for at in range(rows):
            mark = texts.data.length
            done = add(&texts.data, &names, &values, starts[at], starts[at + 1])
            if done == 0:
                texts.data.length = mark
                text = odd(at).encode()
                done = add_bytes(&texts.data, PyBytes_AS_STRING(text), <size_t>PyBytes_GET_SIZE(text)) or -1
            if done < 0 or not add_int32(&texts.offsets, <int32_t>texts.data.length):
                raise MemoryError
        return take_texts(&texts, rows, None)
    finally:
        free(texts.data.data)
        free(texts.offsets.data)
