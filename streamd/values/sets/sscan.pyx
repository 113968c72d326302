# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""SSCAN. Behaviour: Redis 8.6; cursors are those of engine/table.pyx."""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memset

from streamd.core.context cimport Context
from streamd.engine.glob cimport Glob
from streamd.engine.listpack cimport LpValue
from streamd.engine.table cimport TABLE_PAGE, Table, table_key, table_scan
from streamd.numbers cimport INT64_ROOM
from streamd.protocol.reply cimport ReplyWriter
from streamd.values.sets.access cimport find_set, reply_member
from streamd.values.sets.set_value cimport FORM_TABLE, Set, SetWalk, set_next, text_of

from streamd.core.scans import ElementScanOptions, parse_cursor
from streamd.core.spec import KeysAt, command, integer, key, optional, pattern

__all__ = []


cdef int64_t reply_wanted(ReplyWriter reply, const LpValue *member, Glob wanted) except -1:
    """A member, if it matches the pattern; returns how many were written: 1 or 0."""
    cdef char digits[INT64_ROOM]
    cdef const char *s
    cdef size_t n
    if wanted is not None:
        s = <const char *>text_of(member, digits, &n)
        if not wanted.matches(s, <Py_ssize_t>n):
            return 0
    reply_member(reply, member)
    return 1


cdef uint64_t scan_table(
    ReplyWriter reply, const Table *table, uint64_t cursor, int64_t limit, Glob wanted, int64_t *written
) except? 0:
    """About `limit` members from a cursor on; returns the next cursor."""
    cdef uint32_t handles[TABLE_PAGE]
    cdef uint32_t count, at
    cdef LpValue member
    cdef size_t n
    while True:
        cursor = table_scan(table, cursor, handles, &count)
        for at in range(count):
            member.data = table_key(table, handles[at], &n)
            member.length = n
            written[0] += reply_wanted(reply, &member, wanted)
        limit -= count
        if cursor == 0 or limit <= 0:
            return cursor


@command(
    "SSCAN", arity=-3, group="set", flags="readonly", keys=KeysAt(1), since="2.8.0",
    summary="Returns members of a set, some with each call.",
    complexity="O(1) for every call, O(N) for all calls together with N being the number of members",
    tips=("nondeterministic_output",),
    args=(key(), integer("cursor"), optional(pattern("pattern", "MATCH")), optional(integer("count", "COUNT"))),
)
def sscan(Context ctx not None, list args not None):
    cdef uint64_t cursor = parse_cursor(args[2])
    cdef Set set = find_set(ctx, <bytes>args[1])
    cdef Glob wanted = None
    cdef ReplyWriter elements
    cdef int64_t written = 0
    cdef SetWalk walk
    cdef LpValue member
    if set is None:
        ctx.reply.array_header(2)
        ctx.reply.bulk(b"0")
        ctx.reply.array_header(0)
        return
    options = ElementScanOptions.parse(args[3:])
    if options.pattern is not None and options.pattern != b"*":
        wanted = Glob(options.pattern)
    # Cursor and header come before the members, but are known only after them.
    elements = ReplyWriter.__new__(ReplyWriter, ctx.reply.resp)
    if set.form == FORM_TABLE:
        cursor = scan_table(elements, <Table *>set.body, cursor, options.limit, wanted, &written)
    else:
        cursor = 0
        memset(&walk, 0, sizeof(walk))
        while set_next(set, &walk, &member):
            written += reply_wanted(elements, &member, wanted)
    ctx.reply.array_header(2)
    ctx.reply.bulk(b"%d" % cursor)
    ctx.reply.array_header(written)
    ctx.reply.raw_c(elements.data, elements.length)
