# cython: language_level=3
"""Sets in a database. See access.pyx."""

from libc.stdint cimport int64_t, uint64_t

from streamd.core.context cimport Context
from streamd.engine.listpack cimport LpValue
from streamd.keyspace.database cimport Database
from streamd.protocol.reply cimport ReplyWriter
from streamd.values.sets.set_value cimport Set

cdef Set find_set(Context ctx, bytes key)                  # None: the key is missing; raises WrongTypeError
cdef Set find_set_for_write(Context ctx, bytes key)
cdef int add_set(Context ctx, bytes key, Set set) except -1             # under a key that is missing
cdef int note_change(Database db, bytes key, Set set, uint64_t before) except -1
cdef int store_result(Context ctx, bytes key, Set result, bytes event) except -1
cdef int drop_if_empty(Database db, bytes key, Set set) except -1
cdef int reply_member(ReplyWriter reply, const LpValue *member) except -1
cdef int reply_members(ReplyWriter reply, Set set) except -1            # without a header
