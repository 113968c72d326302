# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""XLEN, XRANGE and XREVRANGE: the length of a stream, and ranges of it. Behaviour: Redis 8.6."""

from cpython.list cimport PyList_GET_SIZE
from libc.stdint cimport int64_t

from streamd.core.args cimport is_word, require_int64
from streamd.core.context cimport Context
from streamd.engine.ids cimport StreamID
from streamd.values.streams.arguments cimport argument, find_stream, parse_bound
from streamd.values.streams.entry_replies cimport write_range
from streamd.values.streams.stream cimport Stream
from streamd.values.streams.tiered_ranges cimport write_both_tiers

from streamd.core.spec import KeysAt, command, integer, key, optional, string
from streamd.errors import OptionSyntaxError

__all__ = []


@command(
    "XLEN", arity=2, group="stream", flags="readonly fast", keys=KeysAt(1, flags="RO"), since="5.0.0",
    summary="Returns the number of entries of a stream.",
    args=(key(),),
)
def xlen(Context ctx not None, list args not None):
    cdef Stream stream = find_stream(ctx, argument(args, 1))
    ctx.reply.integer(0 if stream is None else <int64_t>stream.length)


@command(
    "XRANGE", arity=-4, group="stream", flags="readonly", keys=KeysAt(1), since="5.0.0",
    summary="Returns the entries of a stream between two IDs, oldest first.",
    complexity="O(N) with N the entries that are returned; finding the start of the range costs very little.",
    history=(("6.2.0", "A range may leave out its ends, with `(`."),),
    args=(key(), string("start"), string("end"), optional(integer("count", "COUNT"))),
)
def xrange_(Context ctx not None, list args not None):
    answer_range(ctx, args, False)


@command(
    "XREVRANGE", arity=-4, group="stream", flags="readonly", keys=KeysAt(1), since="5.0.0",
    summary="Returns the entries of a stream between two IDs, newest first.",
    complexity="O(N) with N the entries that are returned; finding the start of the range costs very little.",
    history=(("6.2.0", "A range may leave out its ends, with `(`."),),
    args=(key(), string("end"), string("start"), optional(integer("count", "COUNT"))),
)
def xrevrange(Context ctx not None, list args not None):
    answer_range(ctx, args, True)


cdef int answer_range(Context ctx, list args, bint reverse) except -1:
    cdef StreamID first, last
    cdef Stream stream
    cdef bytes name
    cdef Py_ssize_t i
    cdef long long count = -1
    cdef bint is_limited = False
    parse_bound(argument(args, 3 if reverse else 2), &first, False)
    parse_bound(argument(args, 2 if reverse else 3), &last, True)
    for i in range(4, PyList_GET_SIZE(args), 2):
        if i + 1 == PyList_GET_SIZE(args) or not is_word(argument(args, i), b"COUNT"):
            raise OptionSyntaxError()
        count = require_int64(argument(args, i + 1))
        is_limited = True
    name = argument(args, 1)
    stream = find_stream(ctx, name)
    if stream is None:
        ctx.reply.array_header(0)
    elif is_limited and count <= 0:
        ctx.reply.null_array()
    elif ctx.tiers is None or not write_both_tiers(ctx, args, name, stream, first, last, reverse, count):
        write_range(ctx.reply, stream, first, last, reverse, count)
    return 0
