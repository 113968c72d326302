# cython: language_level=3, boundscheck=False, wraparound=False
"""STREAMD.SPLIT: where to cut a range of a stream into parts of equal length. A command specific to streamd.

Readers that share a stream, as in streamd.spark, need to know where each one should start. With Redis's commands that
takes reading the whole stream, or guessing.
"""

from libc.stdint cimport INT64_MAX, UINT64_MAX, int64_t, uint64_t
from streamd.heap cimport free, malloc

from streamd.core.args cimport is_word, require_int64
from streamd.core.context cimport Context
from streamd.engine.ids cimport StreamID, make_id
from streamd.values.streams.arguments cimport find_stream, parse_bound
from streamd.values.streams.split cimport Part, split_range
from streamd.values.streams.stream cimport Stream

from streamd.core.spec import KeysAt, command, integer, key, optional, block, string
from streamd.errors import COUNT_NOT_POSITIVE, CommandError, OptionSyntaxError

__all__ = []

cdef enum:
    MAX_PARTS = 1_000      # takes 1.5 ms, while other clients wait; a hundred take no longer than one


@command(
    "STREAMD.SPLIT", arity=-3, group="stream", flags="readonly", keys=KeysAt(1), since="0.1.0",
    summary="Cuts a range of a stream into parts of equal length: the first and last ID of each, and its length.",
    complexity=(
        "O(N+P) with N the nodes of the range, as far as COUNT goes, of up to stream-node-max-entries entries each, and"
        " P the parts."
    ),
    args=(
        key(), integer("parts"), optional(block("range", string("start"), string("end"))),
        optional(integer("count", "COUNT")),
    ),
)
def streamd_split(Context ctx not None, list args not None):
    cdef StreamID first, last
    cdef Stream stream
    cdef Part *found
    cdef size_t found_count = 0, i
    cdef Py_ssize_t rest = 3, argc = len(args)
    cdef long long parts = require_int64(args[2])
    cdef long long limit = INT64_MAX
    if not 1 <= parts <= MAX_PARTS:
        raise CommandError(f"ERR parts must be between 1 and {MAX_PARTS}")
    first = make_id(0, 0)
    last = make_id(UINT64_MAX, UINT64_MAX)
    if argc >= 5 and not is_word(args[3], b"COUNT"):
        parse_bound(args[3], &first, False)
        parse_bound(args[4], &last, True)
        rest = 5
    if argc == rest + 2 and is_word(args[rest], b"COUNT"):
        limit = require_int64(args[rest + 1])
        if limit <= 0:
            raise CommandError(COUNT_NOT_POSITIVE)
    elif argc != rest:
        raise OptionSyntaxError()
    stream = find_stream(ctx, args[1])
    if stream is None:
        ctx.reply.array_header(0)
        return
    found = <Part *>malloc(<size_t>parts * sizeof(Part))
    if found is NULL:
        raise MemoryError
    try:
        found_count = split_range(stream, first, last, <uint64_t>limit, <size_t>parts, found)
        ctx.reply.array_header(<int64_t>found_count)
        for i in range(found_count):
            ctx.reply.array_header(3)
            ctx.reply.bulk_id(found[i].first.ms, found[i].first.seq)
            ctx.reply.bulk_id(found[i].last.ms, found[i].last.seq)
            ctx.reply.integer(<int64_t>found[i].length)
    finally:
        free(found)
