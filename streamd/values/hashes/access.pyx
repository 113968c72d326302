# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Hashes in a database: finding one, noting that it has changed, and fields whose time has come.

A field expires when the time of the database is beyond its expiry. It is removed by the active cycle (hash_type.pyx),
or by a command that meets it (`find_live`); on a replica, in CLIENT PAUSE and while a file is replayed it stays until
a command removes it; until then it is hidden, except during a replay.
"""

from cpython.bytes cimport PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memset

from streamd.core.context cimport Context
from streamd.engine.listpack cimport LpValue
from streamd.keyspace.database cimport Database
from streamd.keyspace.listener cimport EVENT_HASH
from streamd.keyspace.value_type cimport number_of
from streamd.numbers cimport INT64_ROOM, put_int64
from streamd.protocol.reply cimport ReplyWriter
from streamd.values.hashes.hash cimport (
    FORM_PACKED, FORM_TABLE, Hash, HashWalk, bytes_of, hash_add, hash_due, hash_find, hash_next, hash_remove, hash_set,
    hash_to_table, text_in,
)
from streamd.values.hashes.hash_limits cimport HashLimits, limits_in
from streamd.values.hashes.pairs cimport NEVER, HashItem

from streamd.errors import WrongTypeError

__all__ = []


cdef int wrong_type() except -1:
    raise WrongTypeError


cdef Hash find_hash(Context ctx, bytes key):
    value = ctx.db.find(key)
    if value is not None and type(value) is not Hash:
        wrong_type()
    return <Hash>value


cdef Hash find_hash_for_write(Context ctx, bytes key):
    value = ctx.db.find_for_write(key)
    if value is not None and type(value) is not Hash:
        wrong_type()
    return <Hash>value


cdef int reply_text(ReplyWriter reply, const LpValue *value) except -1:
    """A field or value as a bulk string."""
    if value.data is NULL:
        return reply.bulk_int64(value.number)
    return reply.bulk_c(<const char *>value.data, value.length)


# --- Changes ----------------------------------------------------------------------------------------------------------


cdef int check_lengths(Context ctx, Hash hash, list args, Py_ssize_t first, Py_ssize_t end) except -1:
    """Before fields and values args[first:end] are stored: change the form if there are too many, or one is too long.

    As in Redis, the arguments decide: fields may repeat.
    """
    cdef HashLimits limits
    cdef Py_ssize_t at
    if hash.form == FORM_TABLE:
        return 0
    limits = limits_in(ctx)
    if <uint64_t>(end - first) // 2 > limits.max_fields:
        return hash_to_table(hash)
    for at in range(first, end):
        if <uint64_t>PyBytes_GET_SIZE(<bytes>args[at]) > limits.max_bytes:
            return hash_to_table(hash)
    return 0


cdef int check_item(Context ctx, Hash hash, bytes field, LpValue value) except -1:
    """As check_lengths, for one field and its value."""
    cdef char digits[INT64_ROOM]
    cdef uint64_t most
    if hash.form == FORM_TABLE:
        return 0
    most = limits_in(ctx).max_bytes
    if value.data is NULL:
        value.length = put_int64(digits, value.number)
    if <uint64_t>PyBytes_GET_SIZE(field) > most or value.length > most:
        return hash_to_table(hash)
    return 0


cdef int check_count(Context ctx, Hash hash) except -1:
    """After a field was added: change the form if there are too many."""
    if hash.form != FORM_TABLE and hash.count > limits_in(ctx).max_fields:
        return hash_to_table(hash)
    return 0


cdef bint put_field(Context ctx, Hash hash, bytes field, bytes value, int64_t expire_at_ms) except -1:
    """Store a field with value and expiry (KEPT: the one it has), whatever it had; returns whether it is new."""
    cdef HashItem item
    if hash_find(hash, field, &item):
        hash_set(hash, &item, text_in(value), item.expire_at_ms if expire_at_ms == KEPT else expire_at_ms)
        return False
    hash_add(hash, text_in(field), text_in(value), NEVER if expire_at_ms == KEPT else expire_at_ms)
    check_count(ctx, hash)
    return True


cdef int store_new(Context ctx, bytes key, Hash hash) except -1:
    """Add a key with a hash that is not empty."""
    ctx.db.add_typed(key, hash, number_of(hash))
    return 0


cdef int note_change(Database db, bytes key, Hash hash, uint64_t before) except -1:
    """The hash under a key, which had `before` fields, has changed."""
    if hash.count != before:
        db.resized(number_of(hash), <Py_ssize_t>before, <Py_ssize_t>hash.count)
    if hash.form != FORM_PACKED:
        db.retime(key, hash, hash_due(hash))
    return db.touched(key)


cdef int drop_if_empty(Database db, bytes key, Hash hash) except -1:
    """After the events of a removal: an empty hash does not exist."""
    if hash.count == 0:
        db.delete(key, True)
    return 0


# --- Fields whose time has come ---------------------------------------------------------------------------------------


cdef bint find_live(Database db, bytes key, Hash hash, bytes field, HashItem *out) except -1:
    """Find a field; one whose time has come is removed, unless removing waits, and counts as missing.

    The hash may be empty, and no longer in the database, afterwards.
    """
    cdef bint has_removed = False
    cdef bint found = find_among(db, key, hash, field, out, &has_removed)
    if has_removed:
        report_expired(db, key, hash)
    return found


cdef bint find_among(Database db, bytes key, Hash hash, bytes field, HashItem *out, bint *has_removed) except -1:
    """As find_live, for one of several fields: when all have been looked up, `report_expired` must follow a removal."""
    if not hash_find(hash, field, out):
        return False
    if not has_passed(db, out.expire_at_ms):
        return True
    if not db.holds_expired:
        remove_expired(db, key, hash, out)
        has_removed[0] = True
    return False


cdef int remove_expired(Database db, bytes key, Hash hash, const HashItem *item) except -1:
    """Remove a field whose time has come, and propagate that. `report_expired` must follow."""
    cdef uint64_t before = hash.count
    cdef bytes field = bytes_of(&item.field)
    hash_remove(hash, item)
    db.expired_parts += 1
    db.listener.value_reduced(db, [b"HDEL", key, field])
    return note_change(db, key, hash, before)


cdef int report_expired(Database db, bytes key, Hash hash) except -1:
    """Fields have been removed because their time had come."""
    db.event(EVENT_HASH, b"hexpired", key)
    return drop_if_empty(db, key, hash)


cdef uint64_t live_count(Database db, Hash hash) noexcept:
    """How many fields have not expired. O(1) as long as all have not."""
    cdef HashWalk walk
    cdef HashItem item
    cdef uint64_t count = 0
    if not has_passed(db, hash_due(hash)):
        return hash.count
    memset(&walk, 0, sizeof(walk))
    while hash_next(hash, &walk, &item):
        count += not has_passed(db, item.expire_at_ms)
    return count
