# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""JSON to entries, with no Python object per row: the inverse of text.pyx.

    parse_lines(data, ...)   JSON Lines -> arrays of IDs, streams and fields, and how many lines these are
    parse_fields(cells)      JSON in the cells of a column -> fields

Fields are list<struct<field: binary, value: binary>>, in the order of the text, duplicates included. They come from an
object, or from a list of pairs. Values become bytes as follows:

    "text"                the text
    1.50, true            the characters as they stand
    null                  null
    {"base64": "AP8="}    the bytes that this encodes; a name may be written like this, too, in a list of pairs
    {...}, [...]          any other: the characters as they stand

It is only checked what must hold to find where values end: a number may have two points.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uintptr_t
from libc.string cimport memchr, memcmp, memset

import pyarrow

from streamd.heap cimport free
from streamd.arrow.memory cimport Bytes, add_bytes, add_int32, hand_over, reserve

__all__ = ["parse_fields", "parse_lines"]

# What a step returns.
cdef enum:
    NO_MEMORY = -1
    WRONG = 0               # the text is not what it should be at the cursor
    DONE = 1

cdef struct Cursor:
    const char *p           # the next character
    const char *end

cdef struct Column:
    Bytes data
    Bytes offsets
    Bytes valid             # a byte for each value: 0, it is null
    Py_ssize_t nulls

cdef struct Rows:
    Column ids
    Column streams
    Column names            # of the pairs of all rows, as are the values
    Column values
    Bytes starts            # for each row its first pair, and the end
    Bytes word              # the name of the member at the cursor
    bint has_fields         # the last object had a member of whole entries

cdef struct Roles:
    const char *id          # borrowed; a length of -1: no member has this role
    Py_ssize_t id_size
    const char *stream
    Py_ssize_t stream_size
    const char *fields
    Py_ssize_t fields_size


# --- Columns ---------------------------------------------------------------------------------------------------------


cdef inline Py_ssize_t count_of(Column *column) noexcept nogil:
    return <Py_ssize_t>column.valid.length


cdef inline int end_value(Column *column, uint8_t is_valid) noexcept nogil:
    """What was appended to the data since the last value is one value."""
    if not add_bytes(&column.valid, <const char *>&is_valid, 1):
        return NO_MEMORY
    if not is_valid:
        column.nulls += 1
    return DONE if add_int32(&column.offsets, <int32_t>column.data.length) else NO_MEMORY


cdef void cut(Column *column, Py_ssize_t count) noexcept nogil:
    """Forget the values from `count` on."""
    cdef Py_ssize_t at
    for at in range(count, count_of(column)):
        if not column.valid.data[at]:
            column.nulls -= 1
    column.valid.length = count
    column.offsets.length = (count + 1) * sizeof(int32_t)
    column.data.length = (<int32_t *>column.offsets.data)[count]


cdef object take(Column *column):
    """The values as an Arrow array of bytes."""
    cdef Py_ssize_t count = count_of(column), at
    cdef Bytes bits
    memset(&bits, 0, sizeof(Bytes))
    valid = None
    if column.nulls:
        if not reserve(&bits, (count + 7) // 8):
            raise MemoryError
        bits.length = (count + 7) // 8
        memset(bits.data, 0, bits.length)
        for at in range(count):
            if column.valid.data[at]:
                bits.data[at >> 3] |= <char>(1 << (at & 7))
        valid = pyarrow.py_buffer(hand_over(&bits))
    offsets, data = pyarrow.py_buffer(hand_over(&column.offsets)), pyarrow.py_buffer(hand_over(&column.data))
    return pyarrow.Array.from_buffers(pyarrow.binary(), count, [valid, offsets, data])


cdef object take_fields(Rows *rows):
    cdef Py_ssize_t count = <Py_ssize_t>(rows.starts.length // sizeof(int32_t))
    starts = pyarrow.Array.from_buffers(pyarrow.int32(), count, [None, pyarrow.py_buffer(hand_over(&rows.starts))])
    pairs = pyarrow.StructArray.from_arrays([take(&rows.names), take(&rows.values)], ["field", "value"])
    return pyarrow.ListArray.from_arrays(starts, pairs)


cdef int begin(Rows *rows) except -1:
    memset(rows, 0, sizeof(Rows))
    if not (
        add_int32(&rows.ids.offsets, 0) and add_int32(&rows.streams.offsets, 0) and add_int32(&rows.names.offsets, 0)
        and add_int32(&rows.values.offsets, 0) and add_int32(&rows.starts, 0)
    ):
        clear(rows)
        raise MemoryError
    return 0


cdef void clear_column(Column *column) noexcept:
    free(column.data.data)
    free(column.offsets.data)
    free(column.valid.data)


cdef void clear(Rows *rows) noexcept:
    clear_column(&rows.ids)
    clear_column(&rows.streams)
    clear_column(&rows.names)
    clear_column(&rows.values)
    free(rows.starts.data)
    free(rows.word.data)


# --- JSON ------------------------------------------------------------------------------------------------------------


cdef inline void skip_space(Cursor *at) noexcept nogil:
    while at.p < at.end and (at.p[0] == c' ' or at.p[0] == c'\t' or at.p[0] == c'\n' or at.p[0] == c'\r'):
        at.p += 1


cdef inline bint is_next(Cursor *at, char wanted) noexcept nogil:
    skip_space(at)
    return at.p < at.end and at.p[0] == wanted


cdef inline bint accept(Cursor *at, char wanted) noexcept nogil:
    """Go past a character, if it is the next one."""
    if not is_next(at, wanted):
        return False
    at.p += 1
    return True


cdef bint hex_of(const char *p, uint32_t *code) noexcept nogil:
    """The number of four hexadecimal digits; False if they are none."""
    cdef int i
    cdef uint8_t byte
    code[0] = 0
    for i in range(4):
        byte = <uint8_t>p[i]
        if c'0' <= byte <= c'9':
            byte -= c'0'
        elif c'a' <= (byte | 0x20) <= c'f':
            byte = (byte | 0x20) - c'a' + 10
        else:
            return False
        code[0] = code[0] << 4 | byte
    return True


cdef int add_code(Bytes *out, uint32_t code) noexcept nogil:
    """Append a character as UTF-8."""
    cdef char text[4]
    cdef int size
    if code < 0x80:
        text[0] = <char>code
        size = 1
    elif code < 0x800:
        text[0] = <char>(0xC0 | code >> 6)
        text[1] = <char>(0x80 | (code & 0x3F))
        size = 2
    elif code < 0x10000:
        text[0] = <char>(0xE0 | code >> 12)
        text[1] = <char>(0x80 | (code >> 6 & 0x3F))
        text[2] = <char>(0x80 | (code & 0x3F))
        size = 3
    else:
        text[0] = <char>(0xF0 | code >> 18)
        text[1] = <char>(0x80 | (code >> 12 & 0x3F))
        text[2] = <char>(0x80 | (code >> 6 & 0x3F))
        text[3] = <char>(0x80 | (code & 0x3F))
        size = 4
    return DONE if add_bytes(out, text, size) else NO_MEMORY


cdef int add_escaped(Cursor *at, Bytes *out) noexcept nogil:
    """Append the character that the escape at the cursor, which stands behind the backslash, means."""
    cdef uint32_t code, low
    cdef char meant
    if at.p >= at.end:
        return WRONG
    meant = at.p[0]
    at.p += 1
    if meant == c'u':
        if at.end - at.p < 4 or not hex_of(at.p, &code):
            return WRONG
        at.p += 4
        if 0xD800 <= code < 0xDC00 and at.end - at.p >= 6 and at.p[0] == c'\\' and at.p[1] == c'u':
            if hex_of(at.p + 2, &low) and 0xDC00 <= low < 0xE000:
                at.p += 6
                code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)
        return add_code(out, code) if not 0xD800 <= code < 0xE000 else WRONG
    if meant == c'n':
        meant = c'\n'
    elif meant == c't':
        meant = c'\t'
    elif meant == c'r':
        meant = c'\r'
    elif meant == c'b':
        meant = c'\b'
    elif meant == c'f':
        meant = c'\f'
    elif meant != c'"' and meant != c'\\' and meant != c'/':
        return WRONG
    return DONE if add_bytes(out, &meant, 1) else NO_MEMORY


cdef int add_text(Cursor *at, Bytes *out) noexcept nogil:
    """Append the string at the cursor, unescaped."""
    cdef const char *start
    cdef int done
    if not accept(at, c'"'):
        return WRONG
    while True:
        start = at.p
        while at.p < at.end and at.p[0] != c'"' and at.p[0] != c'\\':
            at.p += 1
        if at.p >= at.end:
            return WRONG
        if not add_bytes(out, start, at.p - start):
            return NO_MEMORY
        at.p += 1
        if (at.p - 1)[0] == c'"':
            return DONE
        done = add_escaped(at, out)
        if done != DONE:
            return done


cdef bint skip_text(Cursor *at) noexcept nogil:
    """Go past the string at the cursor."""
    at.p += 1
    while at.p < at.end and at.p[0] != c'"':
        at.p += 2 if at.p[0] == c'\\' and at.p + 1 < at.end else 1
    if at.p >= at.end:
        return False
    at.p += 1
    return True


cdef bint skip_value(Cursor *at) noexcept nogil:
    """Go past the value at the cursor, at which there is no space."""
    cdef const char *start = at.p
    cdef Py_ssize_t depth = 0
    cdef char found
    while at.p < at.end:
        found = at.p[0]
        if found == c'"':
            if not skip_text(at):
                return False
        elif found == c'{' or found == c'[':
            depth += 1
            at.p += 1
        elif found == c'}' or found == c']':
            if depth == 0:
                break
            depth -= 1
            at.p += 1
        elif depth == 0 and (found == c',' or found == c' ' or found == c'\n' or found == c'\r' or found == c'\t'):
            break
        else:
            at.p += 1
            continue
        if depth == 0:
            break
    return depth == 0 and at.p > start


cdef bint is_plain(const char *p, Py_ssize_t n) noexcept nogil:
    """Whether this is a number, `true` or `false`."""
    cdef Py_ssize_t i
    if (n == 4 and memcmp(p, b"true", 4) == 0) or (n == 5 and memcmp(p, b"false", 5) == 0):
        return True
    for i in range(n):
        if memchr(b"0123456789+-.eE", p[i], 15) is NULL:
            return False
    return c'0' <= p[n - 1] <= c'9'


cdef int add_base64(Cursor *at, Bytes *out) noexcept nogil:
    """Append the bytes of `{"base64": "..."}`. For any other text, return WRONG and leave the cursor where it was."""
    cdef const char *start = at.p
    cdef size_t length = out.length
    cdef uint32_t held = 0
    cdef int bits = 0
    cdef char byte, decoded
    if accept(at, c'{') and is_next(at, c'"') and at.end - at.p > 8 and memcmp(at.p, b'"base64"', 8) == 0:
        at.p += 8
        if accept(at, c':') and accept(at, c'"'):
            while at.p < at.end:
                byte = at.p[0]
                if c'A' <= byte <= c'Z':
                    byte -= c'A'
                elif c'a' <= byte <= c'z':
                    byte = <char>(byte - c'a' + 26)
                elif c'0' <= byte <= c'9':
                    byte = <char>(byte - c'0' + 52)
                elif byte == c'+':
                    byte = 62
                elif byte == c'/':
                    byte = 63
                else:
                    break
                at.p += 1
                held = held << 6 | <uint32_t>byte
                bits += 6
                if bits >= 8:
                    bits -= 8
                    decoded = <char>(held >> bits & 0xFF)
                    if not add_bytes(out, &decoded, 1):
                        return NO_MEMORY
            while at.p < at.end and at.p[0] == c'=':
                at.p += 1
            if accept(at, c'"') and accept(at, c'}'):
                return DONE
    out.length = length
    at.p = start
    return WRONG


cdef int add_value(Cursor *at, Column *column) noexcept nogil:
    """Append the value at the cursor; the table is at the head of the file."""
    cdef const char *start
    cdef int done
    if is_next(at, c'"'):
        done = add_text(at, &column.data)
        return done if done != DONE else end_value(column, True)
    if is_next(at, c'{'):
        done = add_base64(at, &column.data)
        if done != WRONG:
            return done if done != DONE else end_value(column, True)
    start = at.p
    if not skip_value(at):
        return WRONG
    if at.p - start == 4 and memcmp(start, b"null", 4) == 0:
        return end_value(column, False)
    if start[0] != c'{' and start[0] != c'[' and not is_plain(start, at.p - start):
        at.p = start
        return WRONG
    return end_value(column, True) if add_bytes(&column.data, start, at.p - start) else NO_MEMORY


cdef int add_list(Cursor *at, Rows *rows) noexcept nogil:
    """Append the pairs of the list at the cursor: [["name", "value"], ...]."""
    cdef int done
    at.p += 1
    if accept(at, c']'):
        return DONE
    while True:
        if not accept(at, c'['):
            return WRONG
        done = add_value(at, &rows.names)
        if done == DONE:
            done = add_value(at, &rows.values) if accept(at, c',') else WRONG
        if done != DONE:
            return done
        if not accept(at, c']'):
            return WRONG
        if accept(at, c']'):
            return DONE
        if not accept(at, c','):
            return WRONG


cdef inline bint is_role(const Bytes *word, const char *name, Py_ssize_t size) noexcept nogil:
    return <Py_ssize_t>word.length == size and memcmp(word.data, name, size) == 0


cdef int add_object(Cursor *at, Rows *rows, const Roles *roles, bint skips) noexcept nogil:
    """Append the members of the object at the cursor as pairs. Sets `has_fields`.

    roles  of members that are no fields; NULL: all are
    skips  leave out all members without a role: right if there is one of whole entries
    """
    cdef Py_ssize_t first = count_of(&rows.names), ids = count_of(&rows.ids), streams = count_of(&rows.streams)
    cdef bint has_fields = False
    cdef int done
    at.p += 1
    if accept(at, c'}'):
        rows.has_fields = False
        return DONE
    while True:
        rows.word.length = 0
        done = add_text(at, &rows.word)
        if done != DONE:
            return done
        if not accept(at, c':'):
            return WRONG
        if roles is not NULL and is_role(&rows.word, roles.id, roles.id_size):
            cut(&rows.ids, ids)
            done = add_value(at, &rows.ids)
        elif roles is not NULL and is_role(&rows.word, roles.stream, roles.stream_size):
            cut(&rows.streams, streams)
            done = add_value(at, &rows.streams)
        elif roles is not NULL and is_role(&rows.word, roles.fields, roles.fields_size) and (
            is_next(at, c'{') or is_next(at, c'[')
        ):
            cut(&rows.names, first)
            cut(&rows.values, first)
            has_fields = True
            done = add_pairs(at, rows)
        elif has_fields or skips:
            skip_space(at)
            done = DONE if skip_value(at) else WRONG
        else:
            done = DONE if add_bytes(&rows.names.data, rows.word.data, rows.word.length) else NO_MEMORY
            if done == DONE:
                done = end_value(&rows.names, True)
            if done == DONE:
                done = add_value(at, &rows.values)
        if done != DONE:
            return done
        if accept(at, c'}'):
            rows.has_fields = has_fields
            return DONE
        if not accept(at, c','):
            return WRONG


cdef int add_row(Cursor *at, Rows *rows, const Roles *roles) noexcept nogil:
    """Append the object at the cursor. Other members are not read as long as each row has one of whole entries."""
    cdef Py_ssize_t names = count_of(&rows.names), ids = count_of(&rows.ids), streams = count_of(&rows.streams)
    cdef const char *start = at.p
    cdef int done
    if rows.has_fields:
        done = add_object(at, rows, roles, True)
        if done == NO_MEMORY or (done == DONE and rows.has_fields):
            return done
        at.p = start
        cut(&rows.ids, ids)
        cut(&rows.streams, streams)
        cut(&rows.names, names)
        cut(&rows.values, names)
    return add_object(at, rows, roles, False)


cdef int add_pairs(Cursor *at, Rows *rows) noexcept nogil:
    """Append the pairs of an object, or of a list of pairs."""
    if is_next(at, c'{'):
        return add_object(at, rows, NULL, False)
    if is_next(at, c'['):
        return add_list(at, rows)
    return WRONG


cdef int end_row(Rows *rows) noexcept nogil:
    return DONE if add_int32(&rows.starts, <int32_t>count_of(&rows.names)) else NO_MEMORY


# --- Interface -------------------------------------------------------------------------------------------------------


cdef object failure(int done, str what, int64_t row, Cursor *at, const char *start):
    if done == NO_MEMORY:
        return MemoryError()
    near = at.p[:min(at.end - at.p, 40)].decode("utf-8", "replace")
    return ValueError(f"{what} {row}, character {at.p - start + 1}: wrong JSON for an entry near {near!r}")


def parse_lines(data, bytes id_name, bytes stream_name, bytes fields_name, int64_t first=0):
    cdef Rows rows
    cdef Roles roles
    cdef Cursor at
    cdef const char *p
    cdef const char *end
    cdef Py_ssize_t row = 0, line = 0
    cdef int done = DONE
    cdef Py_buffer view
    roles.id, roles.id_size = NULL, -1
    roles.stream, roles.stream_size = NULL, -1
    roles.fields, roles.fields_size = NULL, -1
    if id_name is not None:
        roles.id, roles.id_size = id_name, len(id_name)
    if stream_name is not None:
        roles.stream, roles.stream_size = stream_name, len(stream_name)
    if fields_name is not None:
        roles.fields, roles.fields_size = fields_name, len(fields_name)
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    begin(&rows)
    try:
        if view.len >= 2**31:
            raise ValueError("too many bytes at once")
        p = <const char *>view.buf
        end = p + view.len
        with nogil:
            while p < end:
                at.p = p
                at.end = <const char *>memchr(p, c'\n', end - p)
                if at.end is NULL:
                    at.end = end
                skip_space(&at)
                if at.p < at.end:
                    done = add_row(&at, &rows, &roles) if at.p[0] == c'{' else WRONG
                    skip_space(&at)
                    if done == DONE and at.p < at.end:
                        done = WRONG
                    row += 1
                    if done == DONE and count_of(&rows.ids) < row:
                        done = end_value(&rows.ids, False)
                    if done == DONE and count_of(&rows.streams) < row:
                        done = end_value(&rows.streams, False)
                    if done == DONE:
                        done = end_row(&rows)
                    if done != DONE:
                        break
                p = at.end + 1
                line += 1
        if done != DONE:
            raise failure(done, "line", first + line + 1, &at, p)
        return take(&rows.ids), take(&rows.streams), take_fields(&rows), line
    finally:
        clear(&rows)
        PyBuffer_Release(&view)


def parse_fields(cells, int64_t first=0):
    cdef Py_ssize_t count = len(cells), row = 0
    cdef const int32_t *offsets
    cdef const char *data
    cdef Rows rows
    cdef Cursor at
    cdef int done = DONE
    cells = pyarrow.concat_arrays([cells.cast(pyarrow.binary()).fill_null(b"")])
    _, held, texts = cells.buffers()
    offsets = <const int32_t *><uintptr_t>held.address + <int64_t>cells.offset if held is not None else NULL
    data = <const char *><uintptr_t>texts.address if texts is not None else NULL
    begin(&rows)
    try:
        with nogil:
            for row in range(count):
                at.p = data + offsets[row]
                at.end = data + offsets[row + 1]
                skip_space(&at)
                if at.p < at.end:
                    done = add_pairs(&at, &rows)
                    skip_space(&at)
                    if done == DONE and at.p < at.end:
                        done = WRONG
                if done == DONE:
                    done = end_row(&rows)
                if done != DONE:
                    break
        if done != DONE:
            raise failure(done, "row", first + row + 1, &at, data + offsets[row])
        return take_fields(&rows)
    finally:
        clear(&rows)
