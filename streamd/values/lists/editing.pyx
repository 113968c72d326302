# cython: language_level=3, boundscheck=False, wraparound=False
"""LSET, LINSERT, LREM and LTRIM: changes inside lists. Behaviour: Redis 8.6, as seen on a running server."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport INT64_MIN, UINT64_MAX, int64_t, uint8_t, uint64_t

from streamd.core.args cimport is_word, require_int64
from streamd.core.context cimport Context
from streamd.keyspace.key_record cimport KeyRecord, value_of
from streamd.values.lists.list_arguments cimport begin_change, end_change, find_record
from streamd.values.lists.list_limits cimport fill_of
from streamd.values.lists.list_value cimport Cursor, List

from streamd.core.spec import KeysAt, command, integer, key, oneof, string, token
from streamd.errors import CommandError, NoSuchKeyError, OptionSyntaxError

__all__ = ["linsert", "lrem", "lset", "ltrim"]


@command(
    "LSET", arity=4, group="list", flags="write denyoom", keys=KeysAt(1, flags="RW update"), since="1.0.0",
    complexity="O(N), with N the nodes of the list between the element and the nearer end",
    summary="Replaces the element of a list at an index.", args=(key(), integer("index"), string("element")),
)  # fmt: skip
def lset(Context ctx not None, list args not None):
    cdef bytes name = <bytes>args[1]
    cdef bytes element = <bytes>args[3]
    cdef KeyRecord *record = find_record(ctx, name)
    cdef List value
    cdef Cursor cursor
    cdef int64_t index
    cdef int fill = fill_of(ctx)
    if record is NULL:
        raise NoSuchKeyError
    index = require_int64(<bytes>args[2])
    value = <List>value_of(record)
    value.grow_out(<size_t>PyBytes_GET_SIZE(element), 1, fill)
    if not value.seek(index, &cursor):
        raise CommandError("ERR index out of range")
    begin_change(ctx, record)
    value.replace(&cursor, <const uint8_t *>PyBytes_AS_STRING(element), <size_t>PyBytes_GET_SIZE(element))
    value.shrink_back(fill, 2)
    end_change(ctx, record, name, b"lset")
    ctx.dirty += 1
    ctx.reply.ok()


@command(
    "LINSERT", arity=5, group="list", flags="write denyoom", keys=KeysAt(1, flags="RW insert"), since="2.2.0",
    complexity="O(N), with N the elements before the one that is searched for",
    summary="Inserts an element into a list before or after the first one that equals a value.",
    args=(key(), oneof("where", token("BEFORE"), token("AFTER")), string("pivot"), string("element")),
)  # fmt: skip
def linsert(Context ctx not None, list args not None):
    cdef bytes name = <bytes>args[1]
    cdef bytes pivot = <bytes>args[3]
    cdef bytes element = <bytes>args[4]
    cdef bint after = is_word(<bytes>args[2], b"AFTER")
    cdef KeyRecord *record
    cdef List value
    cdef Cursor cursor
    cdef uint64_t nodes
    cdef int fill = fill_of(ctx)
    if not after and not is_word(<bytes>args[2], b"BEFORE"):
        raise OptionSyntaxError
    record = find_record(ctx, name)
    if record is NULL:
        ctx.reply.integer(0)
        return
    value = <List>value_of(record)
    value.grow_out(<size_t>PyBytes_GET_SIZE(element), 1, fill)
    if not value.find(<const uint8_t *>PyBytes_AS_STRING(pivot), <size_t>PyBytes_GET_SIZE(pivot), &cursor):
        ctx.reply.integer(-1)
        return
    begin_change(ctx, record)
    nodes = value.nodes
    value.insert(&cursor, <const uint8_t *>PyBytes_AS_STRING(element), <size_t>PyBytes_GET_SIZE(element), after)
    if value.nodes > nodes:
        value.merge_around(cursor.node)
    end_change(ctx, record, name, b"linsert")
    ctx.dirty += 1
    ctx.reply.integer(<long long>value.length)


@command(
    "LREM", arity=4, group="list", flags="write", keys=KeysAt(1, flags="RW delete"), since="1.0.0",
    complexity="O(N), with N the elements that are compared",
    summary="Removes elements of a list that equal a value: a number of them from the head, or the tail, or all.",
    args=(key(), integer("count"), string("element")),
)  # fmt: skip
def lrem(Context ctx not None, list args not None):
    cdef bytes name = <bytes>args[1]
    cdef bytes element = <bytes>args[3]
    cdef long long count = require_int64(<bytes>args[2])
    cdef KeyRecord *record
    cdef List value
    cdef uint64_t removed
    if count == INT64_MIN:
        raise CommandError(
            "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807"
        )
    record = find_record(ctx, name)
    if record is NULL:
        ctx.reply.integer(0)
        return
    value = <List>value_of(record)
    begin_change(ctx, record)
    removed = value.remove(
        <const uint8_t *>PyBytes_AS_STRING(element), <size_t>PyBytes_GET_SIZE(element),
        UINT64_MAX if count == 0 else <uint64_t>(count if count > 0 else -count), count < 0,
    )
    if removed:
        value.shrink_back(fill_of(ctx), 2)
        end_change(ctx, record, name, b"lrem")
        ctx.dirty += removed
    else:
        ctx.db.weigh(record, 1)
    ctx.reply.integer(<long long>removed)


@command(
    "LTRIM", arity=4, group="list", flags="write", keys=KeysAt(1, flags="RW delete"), since="1.0.0",
    complexity="O(N), with N the elements that are removed",
    summary="Removes all elements of a list but those from one index to another.",
    args=(key(), integer("start"), integer("stop")),
)  # fmt: skip
def ltrim(Context ctx not None, list args not None):
    cdef bytes name = <bytes>args[1]
    cdef long long start = require_int64(<bytes>args[2])
    cdef long long stop = require_int64(<bytes>args[3])
    cdef KeyRecord *record = find_record(ctx, name)
    cdef List value
    cdef long long length, at_head, at_tail
    if record is NULL:
        ctx.reply.ok()
        return
    value = <List>value_of(record)
    length = <long long>value.length
    if start < 0:
        start = max(0, start + length)
    if stop < 0:
        stop += length
    stop = min(stop, length - 1)
    if start > stop:
        at_head, at_tail = length, 0
    else:
        at_head, at_tail = start, length - 1 - stop
    begin_change(ctx, record)
    value.trim(<uint64_t>at_head, <uint64_t>at_tail)
    value.shrink_back(fill_of(ctx), 2)
    end_change(ctx, record, name, b"ltrim")
    ctx.dirty += <unsigned long long>(at_head + at_tail)
    ctx.reply.ok()
