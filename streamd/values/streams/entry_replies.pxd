# cython: language_level=3
"""Entries as replies: from the listpack straight into the reply buffer. See entry_replies.pyx."""

from libc.stdint cimport int64_t

from streamd.engine.ids cimport StreamID
from streamd.protocol.reply cimport ReplyWriter
from streamd.values.streams.stream cimport Stream, StreamCursor


cdef int write_fields(ReplyWriter reply, StreamCursor *cursor) except -1
    # The array [field, value, ...] of the entry that cursor_next reached; once per entry.
cdef int write_entry(ReplyWriter reply, StreamCursor *cursor) except -1
    # The array [id, [field, value, ...]] of that entry.
cdef int64_t write_entries(ReplyWriter reply, StreamCursor *cursor, int64_t limit) except -1
    # The rest of a walk as an array of entries, at most `limit` (negative: all); returns how many.
cdef int64_t write_range(
    ReplyWriter reply, Stream stream, StreamID first, StreamID last, bint reverse, int64_t limit) except -1
    # The array of the entries from first to last, both inclusive, at most `limit` (negative: all); returns how many.
cdef bint write_found(ReplyWriter reply, Stream stream, StreamID id) except -1
    # The entry with this ID; False, with nothing written, when there is no live one.
