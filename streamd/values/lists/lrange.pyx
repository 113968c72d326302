# cython: language_level=3, boundscheck=False, wraparound=False
"""LRANGE, LINDEX and LPOS: commands that read lists. Behaviour: Redis 8.6, as seen on a running server."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport INT64_MIN, int64_t, uint8_t

from streamd.core.args cimport is_word, parse_int64, require_int64
from streamd.core.context cimport Context
from streamd.engine.listpack cimport LpValue, lp_equals
from streamd.values.lists.list_arguments cimport find_list, write_elements, write_value
from streamd.values.lists.list_value cimport Cursor, List, cursor_next, cursor_previous
from streamd.values.lists.node cimport read_element

from streamd.core.spec import KeysAt, command, integer, key, optional, string
from streamd.errors import CommandError, OptionSyntaxError

__all__ = ["lindex", "lpos", "lrange"]

OUT_OF_RANGE = "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807"


@command(
    "LRANGE", arity=4, group="list", flags="readonly", keys=KeysAt(1), since="1.0.0",
    complexity="O(S+N), with S the nodes of the list before the start, and N the elements that are returned",
    summary="Returns the elements of a list from one index to another, which both count.",
    args=(key(), integer("start"), integer("stop")),
)  # fmt: skip
def lrange(Context ctx not None, list args not None):
    cdef long long start = require_int64(<bytes>args[2])
    cdef long long stop = require_int64(<bytes>args[3])
    cdef List value = find_list(ctx, <bytes>args[1])
    cdef long long length = 0 if value is None else <long long>value.length
    cdef Cursor cursor
    if start < 0:
        start = max(0, start + length)
    if stop < 0:
        stop += length
    stop = min(stop, length - 1)
    if start > stop:
        ctx.reply.array_header(0)
        return
    ctx.reply.array_header(stop - start + 1)
    value.seek(start, &cursor)
    write_elements(ctx.reply, value, &cursor, <unsigned long long>(stop - start + 1), False)


@command(
    "LINDEX", arity=3, group="list", flags="readonly", keys=KeysAt(1), since="1.0.0",
    complexity="O(N), with N the nodes of the list between the element and the nearer end",
    summary="Returns the element of a list at an index.", args=(key(), integer("index")),
)  # fmt: skip
def lindex(Context ctx not None, list args not None):
    cdef List value = find_list(ctx, <bytes>args[1])
    cdef Cursor cursor
    cdef LpValue element
    if value is None:
        ctx.reply.null()
        return
    if not value.seek(require_int64(<bytes>args[2]), &cursor):
        ctx.reply.null()
        return
    read_element(cursor.node, cursor.at, &element)
    write_value(ctx.reply, &element)


cdef struct Search:
    # The options of LPOS.
    long long rank          # which match is the first to be returned; negative: searched from the tail
    long long count         # how many to return; 0: all; -1: one, without an array
    long long max_length    # how many elements to compare; 0: all


cdef int parse_search(list args, Search *search) except -1:
    """Read the options of LPOS; of a repeated one the last counts. CommandError."""
    cdef Py_ssize_t i = 3
    cdef bytes text
    search.rank = 1
    search.count = -1
    search.max_length = 0
    while i < len(args):
        text = <bytes>args[i]
        if i + 1 == len(args):
            raise OptionSyntaxError
        if is_word(text, b"RANK"):
            search.rank = require_int64(<bytes>args[i + 1])
            if search.rank == 0:
                raise CommandError(
                    "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use "
                    "negative to start from the end of the list"
                )
            if search.rank == INT64_MIN:
                raise CommandError(OUT_OF_RANGE)
        elif is_word(text, b"COUNT"):
            if not parse_int64(<bytes>args[i + 1], &search.count) or search.count < 0:
                raise CommandError("ERR COUNT can't be negative")
        elif is_word(text, b"MAXLEN"):
            if not parse_int64(<bytes>args[i + 1], &search.max_length) or search.max_length < 0:
                raise CommandError("ERR MAXLEN can't be negative")
        else:
            raise OptionSyntaxError
        i += 2
    return 0


@command(
    "LPOS", arity=-3, group="list", flags="readonly", keys=KeysAt(1), since="6.0.6",
    complexity="O(N), with N the elements that are compared",
    summary="Returns the indexes of the elements of a list that equal a value.",
    args=(
        key(), string("element"), optional(integer("rank", "RANK")), optional(integer("num-matches", "COUNT")),
        optional(integer("len", "MAXLEN")),
    ),
)  # fmt: skip
def lpos(Context ctx not None, list args not None):
    cdef Search search
    cdef bytes text = <bytes>args[2]
    cdef const uint8_t *s = <const uint8_t *>PyBytes_AS_STRING(text)
    cdef size_t n = <size_t>PyBytes_GET_SIZE(text)
    cdef List value
    cdef Cursor cursor
    cdef LpValue element
    cdef int64_t index, step, skipped, found = 0
    cdef long long compared = 0
    cdef size_t opened = 0
    cdef bint is_there
    parse_search(args, &search)
    value = find_list(ctx, <bytes>args[1])
    if value is None:
        if search.count < 0:
            ctx.reply.null()
        else:
            ctx.reply.array_header(0)
        return
    step = 1 if search.rank > 0 else -1
    skipped = (search.rank if step > 0 else -search.rank) - 1
    index = 0 if step > 0 else <int64_t>value.length - 1
    is_there = value.seek(index, &cursor)
    if search.count >= 0:
        opened = ctx.reply.open_array(min(search.count, 9))
    while is_there and (search.max_length == 0 or compared < search.max_length):
        compared += 1
        read_element(cursor.node, cursor.at, &element)
        if lp_equals(&element, s, n):
            if skipped:
                skipped -= 1
            else:
                ctx.reply.integer(index)
                found += 1
                if search.count < 0 or found == search.count:
                    break
        index += step
        is_there = cursor_next(value, &cursor) if step > 0 else cursor_previous(value, &cursor)
    if search.count >= 0:
        ctx.reply.close_array(opened, found)
    elif not found:
        ctx.reply.null()
