# cython: language_level=3, boundscheck=False, wraparound=False
"""ZSCAN: the members of a sorted set, a few at a time. Behaviour: Redis 8.6, as seen on a running server.

Unlike anywhere else, the scores of a large set have seventeen digits here, needed or not.
"""

from cpython.list cimport PyList_GET_ITEM
from libc.stdint cimport uint32_t, uint64_t

from streamd.core.context cimport Context
from streamd.engine.glob cimport Glob
from streamd.engine.table cimport TABLE_PAGE, table_scan
from streamd.numbers cimport INT64_ROOM
from streamd.protocol.reply cimport ReplyWriter
from streamd.values.sorted_sets.access cimport find_sorted_set, reply_member
from streamd.values.sorted_sets.large cimport large_get
from streamd.values.sorted_sets.packed cimport Item, member_text
from streamd.values.sorted_sets.sorted_set cimport SortedSet, Walk

from streamd.core.scans import ElementScanOptions, parse_cursor
from streamd.core.spec import KeysAt, command, integer, key, optional, pattern

__all__ = ["zscan"]


cdef int reply_if(ReplyWriter reply, const Item *item, Glob wanted, bint is_large) except -1:
    """Reply with a member that matches and its score; how many elements these are."""
    cdef char digits[INT64_ROOM]
    cdef size_t n
    cdef const char *text
    if wanted is not None:
        text = <const char *>member_text(&item.member, digits, &n)
        if not wanted.matches(text, <Py_ssize_t>n):
            return 0
    reply_member(reply, &item.member)
    if is_large:
        reply.bulk(b"%.17g" % item.score)
    else:
        reply.bulk_double(item.score)
    return 2


cdef uint64_t scan_large(ReplyWriter reply, SortedSet set, uint64_t cursor, uint64_t limit, Glob wanted) except? 0:
    """Reply with the members from a cursor on, about `limit` of them; the next cursor."""
    cdef uint32_t handles[TABLE_PAGE]
    cdef uint32_t count, i
    cdef uint64_t seen = 0
    cdef long long elements = 0
    cdef size_t opened = reply.open_array(20)
    cdef Item item
    while True:
        cursor = table_scan(&set.large.table, cursor, &handles[0], &count)
        for i in range(count):
            large_get(set.large, handles[i], &item)
            elements += reply_if(reply, &item, wanted, True)
        seen += count
        if cursor == 0 or seen >= limit:
            break
    reply.close_array(opened, elements)
    return cursor


cdef int scan_packed(ReplyWriter reply, SortedSet set, Glob wanted) except -1:
    """Reply with all members."""
    cdef Walk walk
    cdef Item item
    cdef long long elements = 0
    cdef size_t opened = reply.open_array(<long long>(2 * set.count()))
    set.seek(0, &walk)
    while set.next(&walk, &item):
        elements += reply_if(reply, &item, wanted, False)
    return reply.close_array(opened, elements)


@command(
    "ZSCAN", arity=-3, group="sorted-set", flags="readonly", since="2.8.0",
    keys=KeysAt(1),
    complexity="O(1) for each call, O(N) for all members",
    summary="Iterates over the members of a sorted set, with their scores.",
    tips=("nondeterministic_output",),
    args=(key(), integer("cursor"), optional(pattern("pattern", "MATCH")), optional(integer("count", "COUNT"))),
)
def zscan(Context ctx not None, list args not None):
    cdef ReplyWriter reply = ctx.reply
    cdef ReplyWriter members
    cdef uint64_t cursor = parse_cursor(<bytes>PyList_GET_ITEM(args, 2))
    cdef SortedSet set = find_sorted_set(ctx, <bytes>PyList_GET_ITEM(args, 1))
    options = ElementScanOptions.parse(args[3:]) if set is not None else None
    reply.array_header(2)
    if set is None:
        reply.bulk(b"0")
        reply.array_header(0)
        return
    wanted = None if options.pattern is None or options.pattern == b"*" else Glob(options.pattern)
    if set.large is NULL:
        reply.bulk(b"0")
        scan_packed(reply, set, wanted)
        return
    # The next cursor comes first in the reply, and is known last.
    members = ReplyWriter(reply.resp)
    reply.bulk(b"%d" % scan_large(members, set, cursor, options.limit, wanted))
    reply.raw_c(members.data, members.length)
