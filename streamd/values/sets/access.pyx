# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Sets in a database: finding one, noting that it has changed, storing a result; and members in replies."""

from libc.string cimport memset

from streamd.keyspace.listener cimport EVENT_SET
from streamd.keyspace.value_type cimport number_of
from streamd.values.sets.set_value cimport SetWalk, set_next

from streamd.errors import WrongTypeError

__all__ = []


cdef int wrong_type() except -1:
    raise WrongTypeError


cdef Set find_set(Context ctx, bytes key):
    value = ctx.db.find(key)
    if value is not None and type(value) is not Set:
        wrong_type()
    return <Set>value


cdef Set find_set_for_write(Context ctx, bytes key):
    value = ctx.db.find_for_write(key)
    if value is not None and type(value) is not Set:
        wrong_type()
    return <Set>value


cdef int add_set(Context ctx, bytes key, Set set) except -1:
    """Store a set under a key that is missing."""
    ctx.db.add_typed(key, set, number_of(set))
    return 0


cdef int note_change(Database db, bytes key, Set set, uint64_t before) except -1:
    """The set under a key, which had `before` members, has changed."""
    if set.count != before:
        db.resized(number_of(set), <Py_ssize_t>before, <Py_ssize_t>set.count)
    return db.touched(key)


cdef int drop_if_empty(Database db, bytes key, Set set) except -1:
    """After the events of a removal: an empty set does not exist."""
    if set.count == 0:
        db.delete(key, True)
    return 0


cdef int store_result(Context ctx, bytes key, Set result, bytes event) except -1:
    """Store the result of a command under a key, whatever it held, and reply with its size; an empty one removes it."""
    if result.count:
        ctx.db.set_typed(key, result, number_of(result), False)
        ctx.db.event(EVENT_SET, event, key)
        ctx.dirty += 1
    elif ctx.db.delete(key, True):
        ctx.dirty += 1
    return ctx.reply.integer(<int64_t>result.count)


cdef int reply_member(ReplyWriter reply, const LpValue *member) except -1:
    """A member as a bulk string."""
    if member.data is NULL:
        return reply.bulk_int64(member.number)
    return reply.bulk_c(<const char *>member.data, member.length)


cdef int reply_members(ReplyWriter reply, Set set) except -1:
    """All members."""
    cdef SetWalk walk
    cdef LpValue member
    memset(&walk, 0, sizeof(walk))
    while set_next(set, &walk, &member):
        reply_member(reply, &member)
    return 0
