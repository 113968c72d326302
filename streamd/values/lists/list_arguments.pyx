# cython: language_level=3, boundscheck=False, wraparound=False
"""What handlers of lists share: finding one, adding to it, taking from it, writing elements into a reply.

A change begins with `begin_change` and ends with `end_change`, which keep the database's figures of the value, report
the change and remove a list that has become empty.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from streamd.core.args cimport is_word
from streamd.core.context cimport Context
from streamd.engine.listpack cimport LpValue
from streamd.keyspace.database cimport Database
from streamd.keyspace.key_record cimport KeyRecord, value_of
from streamd.keyspace.listener cimport EVENT_LIST
from streamd.keyspace.value_type cimport number_of
from streamd.numbers cimport INT64_ROOM, put_header, put_int64
from streamd.protocol.reply cimport ReplyWriter
from streamd.values.lists.list_limits cimport fill_of
from streamd.values.lists.list_value cimport Cursor, List, cursor_next, cursor_previous
from streamd.values.lists.node cimport read_element

from streamd.errors import OptionSyntaxError, WrongTypeError

__all__ = []

cdef enum:
    ELEMENT_HEAD = 32           # at most what a reply adds to the bytes of an element; or a whole integer
    ROOM_AT_ONCE = 8192         # bytes of a reply for which room is made at a time


# --- Finding ----------------------------------------------------------------------------------------------------------


cdef List find_list(Context ctx, bytes name):
    value = ctx.db.find(name)
    if value is not None and type(value) is not List:
        raise WrongTypeError
    return <List>value


cdef KeyRecord *find_record(Context ctx, bytes name) except? NULL:
    cdef Database db = ctx.db
    cdef KeyRecord *record = db.lookup(name)
    if record is NULL:
        return NULL
    if db.touch_on_access:
        db.note_use(record)
    if type(value_of(record)) is not List:
        raise WrongTypeError
    return record


cdef bint parse_end(bytes text) except -1:
    """Whether the word is LEFT, the head; RIGHT otherwise, or OptionSyntaxError."""
    if is_word(text, b"LEFT"):
        return True
    if is_word(text, b"RIGHT"):
        return False
    raise OptionSyntaxError


# --- Changing ---------------------------------------------------------------------------------------------------------


cdef int begin_change(Context ctx, KeyRecord *record) except -1:
    """A list is about to change in place."""
    return ctx.db.weigh(record, -1)


cdef int end_change(Context ctx, KeyRecord *record, bytes name, bytes event) except -1:
    """A list has changed: report it; remove the key if nothing is left."""
    cdef Database db = ctx.db
    db.weigh(record, 1)
    db.touched(name)
    db.event(EVENT_LIST, event, name)
    if (<List>value_of(record)).length == 0:
        db.delete(name, True)
    return 0


cdef int add_elements(
    Context ctx, KeyRecord *record, bytes name, List value, list args, Py_ssize_t first, bint at_head
) except -1:
    """Push the arguments from `first` on to a list, which is that of the record; None: it is to be added.

    Reports the event of a push.
    """
    cdef int fill = fill_of(ctx)
    cdef Py_ssize_t argc = len(args)
    cdef Py_ssize_t i
    cdef size_t more = 0
    cdef bytes element
    for i in range(first, argc):
        more += <size_t>PyBytes_GET_SIZE(<bytes>PyList_GET_ITEM(args, i))
    if record is not NULL:
        begin_change(ctx, record)
    try:
        value.grow_out(more, <uint64_t>(argc - first), fill)
        for i in range(first, argc):
            element = <bytes>PyList_GET_ITEM(args, i)
            value.push(
                <const uint8_t *>PyBytes_AS_STRING(element), <size_t>PyBytes_GET_SIZE(element), at_head
            )
    finally:
        if record is not NULL:
            ctx.db.weigh(record, 1)
    if record is NULL:
        ctx.db.add_typed(name, value, number_of(value))
    else:
        ctx.db.touched(name)
    return ctx.db.event(EVENT_LIST, b"lpush" if at_head else b"rpush", name)


cdef int take_elements(
    Context ctx, KeyRecord *record, bytes name, uint64_t count, bint at_head, ReplyWriter reply
) except -1:
    """Move up to `count` elements from an end of a list into the reply. Reports the event of a pop."""
    cdef List value = <List>value_of(record)
    cdef LpValue element
    cdef Cursor cursor
    if count == 1:
        value.peek(at_head, &element)
        write_value(reply, &element)
        begin_change(ctx, record)
        value.pop(at_head)
    else:
        if count > value.length:
            count = value.length
        value.seek(0 if at_head else -1, &cursor)
        write_elements(reply, value, &cursor, count, not at_head)
        begin_change(ctx, record)
        value.trim(count if at_head else 0, 0 if at_head else count)
    value.shrink_back(fill_of(ctx), 2)
    return end_change(ctx, record, name, b"lpop" if at_head else b"rpop")


# --- Writing ----------------------------------------------------------------------------------------------------------


cdef int write_value(ReplyWriter reply, const LpValue *value) except -1:
    """Write an element as a bulk string."""
    if value.data is NULL:
        return reply.bulk_int64(value.number)
    return reply.bulk_c(<const char *>value.data, value.length)


cdef bytes value_bytes(const LpValue *value):
    """The text of an element."""
    cdef char digits[INT64_ROOM]
    if value.data is NULL:
        return PyBytes_FromStringAndSize(digits, <Py_ssize_t>put_int64(digits, value.number))
    return PyBytes_FromStringAndSize(<const char *>value.data, <Py_ssize_t>value.length)


cdef inline char *put_element(char *p, const LpValue *value) noexcept nogil:
    cdef char digits[INT64_ROOM]
    cdef size_t n
    if value.data is not NULL:
        p = put_header(p, c'$', value.length)
        memcpy(p, value.data, value.length)
        p += value.length
    else:
        n = put_int64(digits, value.number)
        p = put_header(p, c'$', n)
        memcpy(p, digits, n)
        p += n
    p[0] = c'\r'
    p[1] = c'\n'
    return p + 2


cdef int64_t write_elements(ReplyWriter reply, List value, Cursor *cursor, uint64_t count, bint backwards) except -1:
    """Write `count` elements from a cursor on, which must exist, as bulk strings without a header; returns how many.

    Ends early when the reply is cut: the rest would not be sent.
    """
    cdef LpValue element
    cdef uint64_t left = count
    cdef size_t need
    cdef char *p = reply.grow(ROOM_AT_ONCE if left > 64 else 64 * <size_t>left + 64)
    cdef const char *stop = reply.data + reply.capacity
    while left:
        read_element(cursor.node, cursor.at, &element)
        need = ELEMENT_HEAD + (0 if element.data is NULL else element.length)
        if <size_t>(stop - p) < need:
            reply.length = p - reply.data
            if reply.is_cut:
                break
            p = reply.grow(need if need > ROOM_AT_ONCE else ROOM_AT_ONCE)
            stop = reply.data + reply.capacity
        p = put_element(p, &element)
        left -= 1
        if left == 0 or not (cursor_previous(value, cursor) if backwards else cursor_next(value, cursor)):
            break
    reply.length = p - reply.data
    return <int64_t>(count - left)
