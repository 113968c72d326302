# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Entries as replies: where the layout of entries and RESP meet.

An entry is sent as [id, [field, value, ...]], in RESP2 and RESP3 alike. It is copied from the listpack into the
reply buffer, element by element; nothing becomes a Python object. Space is reserved before each element, so an entry of
any size costs no more than its own bytes. When out of memory, MemoryError leaves a partial reply behind: the
dispatcher drops what a failed command has written.
"""

from libc.stdint cimport int64_t
from libc.string cimport memcpy

from streamd.engine.ids cimport StreamID
from streamd.engine.listpack cimport LpValue
from streamd.numbers cimport INT64_ROOM, put_header, put_int64
from streamd.protocol.reply cimport SMALL_REPLY, ReplyWriter
from streamd.values.streams.stream cimport Stream, StreamCursor, cursor_find, cursor_next, cursor_pair, cursor_seek

__all__: list[str] = []

cdef enum:
    # Maximum size of an element besides the bytes of a string: `$`, up to 20 digits, CR LF twice; or a number of 20
    # characters with the header `$20`.
    ELEMENT_ROOM = 32


cdef char *put_integer(char *p, int64_t number) noexcept nogil:
    """Write an integer as a bulk string; returns the end."""
    cdef char digits[INT64_ROOM]
    cdef size_t n = put_int64(digits, number)
    p = put_header(p, c'$', n)
    memcpy(p, digits, n)
    p += n
    p[0] = c'\r'
    p[1] = c'\n'
    return p + 2


cdef inline char *put_element(char *p, const LpValue *value) noexcept nogil:
    """Write an element as a bulk string; returns the end."""
    if value.data is NULL:
        return put_integer(p, value.number)
    p = put_header(p, c'$', value.length)
    memcpy(p, value.data, value.length)
    p += value.length
    p[0] = c'\r'
    p[1] = c'\n'
    return p + 2


cdef inline size_t room_for(const LpValue *value) noexcept nogil:
    return ELEMENT_ROOM if value.data is NULL else ELEMENT_ROOM + value.length


cdef int write_fields(ReplyWriter reply, StreamCursor *cursor) except -1:
    cdef LpValue field, value
    cdef char *p = reply.grow(SMALL_REPLY)
    cdef const char *stop = reply.data + reply.capacity
    cdef size_t room
    p = put_header(p, c'*', 2 * cursor.pairs)
    while cursor.pairs_left:
        cursor_pair(cursor, &field, &value)
        room = room_for(&field) + room_for(&value)
        if <size_t>(stop - p) < room:
            reply.length = p - reply.data
            p = reply.grow(room)
            stop = reply.data + reply.capacity
        p = put_element(p, &field)
        p = put_element(p, &value)
    reply.length = p - reply.data
    return 0


cdef int write_entry(ReplyWriter reply, StreamCursor *cursor) except -1:
    cdef char *p = reply.grow(SMALL_REPLY)
    memcpy(p, b"*2\r\n", 4)
    reply.length += 4
    reply.bulk_id(cursor.id.ms, cursor.id.seq)
    return write_fields(reply, cursor)


cdef int64_t write_entries(ReplyWriter reply, StreamCursor *cursor, int64_t limit) except -1:
    cdef size_t opened
    cdef int64_t n = 0
    if limit == 0:
        reply.array_header(0)
        return 0
    # Most walks with a limit reach it; the header is widened when there is more.
    opened = reply.open_array(limit if limit > 0 else 10)
    while n != limit and cursor_next(cursor):
        write_entry(reply, cursor)
        n += 1
        if reply.is_cut:
            break                   # the rest will not be sent
    reply.close_array(opened, n)
    return n


cdef int64_t write_range(
    ReplyWriter reply, Stream stream, StreamID first, StreamID last, bint reverse, int64_t limit
) except -1:
    cdef StreamCursor cursor
    cursor_seek(stream, &cursor, first, last, reverse)
    if limit < 0 or limit > <int64_t>stream.length:
        limit = <int64_t>stream.length
    return write_entries(reply, &cursor, limit)


cdef bint write_found(ReplyWriter reply, Stream stream, StreamID id) except -1:
    cdef StreamCursor cursor
    if not cursor_find(stream, &cursor, id):
        return False
    write_entry(reply, &cursor)
    return True
