# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Sorted sets in a database: finding one, noting that it has changed, storing a result; and members in replies."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from streamd.core.context cimport Context
from streamd.engine.counted_tree cimport TreePlace, tree_handle, tree_step, tree_step_back
from streamd.engine.table cimport get_key, table_at
from streamd.keyspace.database cimport Database
from streamd.keyspace.listener cimport EVENT_SORTED_SET
from streamd.keyspace.value_type cimport number_of
from streamd.numbers cimport INT64_ROOM, count_digits, put_digits, put_header
from streamd.protocol.doubles cimport DOUBLE_ROOM, is_integral, put_double
from streamd.protocol.reply cimport ReplyWriter
from streamd.values.sorted_sets.large cimport Large, SCORE_BYTES
from streamd.values.sorted_sets.packed cimport member_text
from streamd.values.sorted_sets.sorted_set cimport Walk

from streamd.errors import WrongTypeError

__all__ = []

cdef extern from *:
    void prefetch "__builtin_prefetch"(const void *address) noexcept nogil

cdef enum:
    AHEAD = 6               # records between the one that is written and the one that is fetched
    ITEM_ROOM = 128         # more than a member and its score take in a reply, apart from the bytes of the member


cdef int wrong_type() except -1:
    raise WrongTypeError


cdef SortedSet find_sorted_set(Context ctx, bytes key):
    value = ctx.db.find(key)
    if value is not None and type(value) is not SortedSet:
        wrong_type()
    return <SortedSet>value


cdef SortedSet find_sorted_set_for_write(Context ctx, bytes key):
    value = ctx.db.find_for_write(key)
    if value is not None and type(value) is not SortedSet:
        wrong_type()
    return <SortedSet>value


# --- Changes --------------------------------------------------------------------------------------------------------


cdef int note_change(Database db, bytes key, SortedSet set, uint64_t before) except -1:
    """The set under a key, which had `before` members, has changed."""
    cdef uint64_t count = set.count()
    if count != before:
        db.resized(number_of(set), <Py_ssize_t>before, <Py_ssize_t>count)
    return db.touched(key)


cdef int finish_removal(Context ctx, bytes key, SortedSet set, uint64_t before, bytes event) except -1:
    """Members have been removed, if there are fewer than before: report it. An empty set does not exist."""
    cdef uint64_t count = set.count()
    if count == before:
        return 0
    ctx.dirty += before - count
    note_change(ctx.db, key, set, before)
    ctx.db.event(EVENT_SORTED_SET, event, key)
    if count == 0:
        ctx.db.delete(key, True)
    return 0


cdef int append_to_result(SortedSet result, const Item *item, SortedSetLimits limits) except -1:
    """Append a member to a new set, which becomes large when it has to."""
    cdef char digits[INT64_ROOM]
    cdef size_t n
    cdef const uint8_t *text = member_text(&item.member, digits, &n)
    if result.large is NULL and not result.fits(result.count() + 1, n, limits.max_members, limits.max_bytes):
        result.enlarge()
    return result.append(text, n, item.score)


cdef int store_result(Context ctx, bytes key, SortedSet result, bytes event) except -1:
    """Store a result under a key, whatever it held, and reply with its size; an empty one removes the key."""
    cdef uint64_t count = result.count()
    if count:
        ctx.db.set_typed(key, result, number_of(result), False)
        ctx.db.event(EVENT_SORTED_SET, event, key)
        ctx.dirty += 1
    elif ctx.db.delete(key, True):
        ctx.dirty += 1
    return ctx.reply.integer(<int64_t>count)


# --- Replies --------------------------------------------------------------------------------------------------------


cdef bytes member_bytes(const LpValue *member):
    cdef char digits[INT64_ROOM]
    cdef size_t n
    cdef const uint8_t *text = member_text(member, digits, &n)
    return PyBytes_FromStringAndSize(<const char *>text, <Py_ssize_t>n)


cdef int reply_member(ReplyWriter reply, const LpValue *member) except -1:
    """A member as a bulk string."""
    if member.data is NULL:
        return reply.bulk_int64(member.number)
    return reply.bulk_c(<const char *>member.data, member.length)


cdef int reply_pair(ReplyWriter reply, const Item *item) except -1:
    if reply.resp == 3:
        reply.array_header(2)
    reply_member(reply, &item.member)
    return reply.double(item.score)


cdef int reply_pairs_header(ReplyWriter reply, int64_t pairs) except -1:
    """The header of an array of `reply_pair`s."""
    return reply.array_header(pairs if reply.resp == 3 else 2 * pairs)


cdef int reply_range(
    ReplyWriter reply, SortedSet set, uint64_t rank, uint64_t members, bint backwards, bint with_scores
) except -1:
    """An array of so many members from a rank on, downwards if `backwards`."""
    cdef Walk walk
    cdef Item item
    if with_scores:
        reply_pairs_header(reply, <int64_t>members)
    else:
        reply.array_header(<int64_t>members)
    if members == 0:
        return 0
    set.seek(rank, &walk)
    if set.large is not NULL:
        return reply_large(reply, set.large, &walk.place, members, backwards, with_scores)
    while members:
        members -= 1
        if backwards:
            set.back(&walk, &item)
        else:
            set.next(&walk, &item)
        if with_scores:
            reply_pair(reply, &item)
        else:
            reply_member(reply, &item.member)
    return 0


cdef inline char *put_bulk(char *p, const uint8_t *s, size_t n) noexcept nogil:
    """Write a bulk string; returns its end."""
    p = put_header(p, c'$', n)
    memcpy(p, s, n)
    p[n] = c'\r'
    p[n + 1] = c'\n'
    return p + n + 2


cdef inline char *put_score(char *p, double score, int resp) noexcept nogil:
    """Write a double as a reply, in less than ITEM_ROOM bytes; returns its end."""
    cdef char text[DOUBLE_ROOM]
    cdef size_t n
    if is_integral(score) and score > 0:
        n = count_digits(<uint64_t>score)
        if resp == 2:
            p = put_header(p, c'$', n)
        else:
            p[0] = c','
            p += 1
        put_digits(p, <uint64_t>score, n)
    else:
        n = put_double(text, score)
        if resp == 2:
            return put_bulk(p, <const uint8_t *>text, n)
        p[0] = c','
        p += 1
        memcpy(p, text, n)
    p[n] = c'\r'
    p[n + 1] = c'\n'
    return p + n + 2


cdef int reply_large(
    ReplyWriter reply, const Large *large, TreePlace *place, uint64_t members, bint backwards, bint with_scores
) except -1:
    """Members of a large set, from a place on: the inner loop of all ranges.

    Records lie anywhere in memory, so that most of the time would be spent waiting for them: some are fetched ahead.
    """
    cdef const uint8_t *record
    cdef const uint8_t *member
    cdef double score
    cdef char *start
    cdef char *p
    cdef size_t n
    cdef int ahead
    while members:
        members -= 1
        ahead = <int>place.at - AHEAD if backwards else <int>place.at + AHEAD
        if 0 <= ahead < place.leaf.count:
            prefetch(table_at(&large.table, place.leaf.handles[ahead]))
        record = table_at(&large.table, tree_handle(place))
        member = get_key(record + SCORE_BYTES, &n)
        start = p = reply.grow(n + ITEM_ROOM)
        if with_scores and reply.resp == 3:
            memcpy(p, "*2\r\n", 4)
            p += 4
        p = put_bulk(p, member, n)
        if with_scores:
            memcpy(&score, record, SCORE_BYTES)
            p = put_score(p, score, reply.resp)
        reply.length += <size_t>(p - start)
        if backwards:
            tree_step_back(place)
        else:
            tree_step(place)
    return 0
