# cython: language_level=3
"""Sorted sets in a database, and their members in replies. See access.pyx."""

from libc.stdint cimport int64_t, uint64_t

from streamd.core.context cimport Context
from streamd.engine.listpack cimport LpValue
from streamd.keyspace.database cimport Database
from streamd.protocol.reply cimport ReplyWriter
from streamd.values.sorted_sets.packed cimport Item
from streamd.values.sorted_sets.sorted_set cimport SortedSet
from streamd.values.sorted_sets.sorted_set_limits cimport SortedSetLimits

cdef SortedSet find_sorted_set(Context ctx, bytes key)                  # to be read; None; raises WrongTypeError
cdef SortedSet find_sorted_set_for_write(Context ctx, bytes key)        # to be changed
cdef int note_change(Database db, bytes key, SortedSet set, uint64_t before) except -1
cdef int finish_removal(Context ctx, bytes key, SortedSet set, uint64_t before, bytes event) except -1
cdef int append_to_result(SortedSet result, const Item *item, SortedSetLimits limits) except -1
cdef int store_result(Context ctx, bytes key, SortedSet result, bytes event) except -1

cdef bytes member_bytes(const LpValue *member)
cdef int reply_member(ReplyWriter reply, const LpValue *member) except -1
cdef int reply_pair(ReplyWriter reply, const Item *item) except -1      # flat in RESP2, an array in RESP3
cdef int reply_pairs_header(ReplyWriter reply, int64_t pairs) except -1
cdef int reply_range(
    ReplyWriter reply, SortedSet set, uint64_t rank, uint64_t members, bint backwards, bint with_scores) except -1
