# cython: language_level=3
"""What handlers of lists share. See list_arguments.pyx."""

from libc.stdint cimport int64_t, uint64_t

from streamd.core.context cimport Context
from streamd.engine.listpack cimport LpValue
from streamd.keyspace.key_record cimport KeyRecord
from streamd.protocol.reply cimport ReplyWriter
from streamd.values.lists.list_value cimport Cursor, List

cdef List find_list(Context ctx, bytes name)                    # to be read; None: no such key; WrongTypeError
cdef KeyRecord *find_record(Context ctx, bytes name) except? NULL      # to be changed; likewise
cdef int add_elements(
    Context ctx, KeyRecord *record, bytes name, List value, list args, Py_ssize_t first, bint at_head) except -1
cdef int take_elements(
    Context ctx, KeyRecord *record, bytes name, uint64_t count, bint at_head, ReplyWriter reply) except -1
cdef int begin_change(Context ctx, KeyRecord *record) except -1
cdef int end_change(Context ctx, KeyRecord *record, bytes name, bytes event) except -1
cdef bint parse_end(bytes text) except -1                       # LEFT: True
cdef int write_value(ReplyWriter reply, const LpValue *value) except -1
cdef bytes value_bytes(const LpValue *value)
cdef int64_t write_elements(ReplyWriter reply, List value, Cursor *cursor, uint64_t count, bint backwards) except -1
