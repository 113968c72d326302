# cython: language_level=3
"""Hashes in a database, for the handlers of their commands. See access.pyx."""

from libc.stdint cimport int64_t, uint64_t

from streamd.core.context cimport Context
from streamd.engine.listpack cimport LpValue
from streamd.keyspace.database cimport Database
from streamd.protocol.reply cimport ReplyWriter
from streamd.values.hashes.hash cimport Hash
from streamd.values.hashes.pairs cimport HashItem


cdef enum:
    KEPT = -2                  # an expiry: that which the field has


cdef Hash find_hash(Context ctx, bytes key)                  # None: there is no key; WrongTypeError
cdef Hash find_hash_for_write(Context ctx, bytes key)
cdef int check_lengths(Context ctx, Hash hash, list args, Py_ssize_t first, Py_ssize_t end) except -1
cdef int check_item(Context ctx, Hash hash, bytes field, LpValue value) except -1
cdef int check_count(Context ctx, Hash hash) except -1
cdef bint put_field(Context ctx, Hash hash, bytes field, bytes value, int64_t expire_at_ms) except -1
cdef int store_new(Context ctx, bytes key, Hash hash) except -1
cdef int note_change(Database db, bytes key, Hash hash, uint64_t before) except -1
cdef int drop_if_empty(Database db, bytes key, Hash hash) except -1
cdef bint find_live(Database db, bytes key, Hash hash, bytes field, HashItem *out) except -1
cdef bint find_among(
    Database db, bytes key, Hash hash, bytes field, HashItem *out, bint *has_removed) except -1
cdef int remove_expired(Database db, bytes key, Hash hash, const HashItem *item) except -1
cdef int report_expired(Database db, bytes key, Hash hash) except -1
cdef uint64_t live_count(Database db, Hash hash) noexcept
cdef int reply_text(ReplyWriter reply, const LpValue *value) except -1


cdef inline bint has_passed(Database db, int64_t expire_at_ms) noexcept:
    """Whether a field with this expiry (or NEVER) is to be hidden."""
    return 0 <= expire_at_ms < db.now_ms and not db.keeps_expired
