# cython: language_level=3, boundscheck=False, wraparound=False
"""XREAD after IDs below the first entry in memory: the archive first, then memory. See tiered_ranges.pyx.

The archived part of each stream is a range of its own. When all of them are there, the reply is written as from memory:
COUNT limits the entries of each stream, wherever they are, MAXCOUNT and MAXSIZE the whole reply.
"""

from libc.stdint cimport UINT64_MAX, int64_t

from streamd.core.context cimport Context
from streamd.engine.ids cimport StreamID, id_cmp, id_decrement, id_increment, make_id
from streamd.packed_entries cimport PackedEntries
from streamd.protocol.reply cimport ReplyWriter
from streamd.values.streams.entry_replies cimport write_entry
from streamd.values.streams.read_quota cimport Quota, close_entries, has_enough_bytes, open_entries, share_of
from streamd.values.streams.stream cimport Stream, StreamCursor, cursor_next, cursor_seek
from streamd.values.streams.tiered_ranges cimport Removed, id_of, number_of, reaches_archive

from streamd.core.tiers import TierRange

__all__: list[str] = []

cdef StreamID MAX_ID = make_id(UINT64_MAX, UINT64_MAX)


cdef bint ask_archive(
    Context ctx, list args, bytes key, Stream stream, StreamID after, bint is_last, int64_t count, int64_t enough,
    bytes group, Py_ssize_t place, list parts
) except -1:
    cdef Removed removed
    cdef StreamID first = after
    if not id_increment(&first) or not reaches_archive(ctx, key, stream, first, &removed):
        return True
    if is_last:
        # The last entry that there ever was: memory may have an earlier one, which a group needs.
        first, count = make_id(0, 0), 1
    part = ctx.tiers.read(ctx, args, TierRange(
        key, stream, number_of(first), number_of(MAX_ID), is_last, count, number_of(removed.live),
        number_of(removed.trimmed), enough, group,
    ), place)
    parts[place] = part
    return part is not None


cdef StreamID start_in_memory(object part, StreamID after):
    cdef StreamID border = id_of(part.border)
    return border if id_cmp(border, after) > 0 else after


cdef bint has_entries(Stream stream, object part, StreamID after) except -1:
    return part.count > 0 or (stream.length > 0 and id_cmp(stream.last_live_id(), start_in_memory(part, after)) > 0)


cdef int write_from_both(
    ReplyWriter reply, Quota *quota, Stream stream, object part, StreamID after, int64_t count
) except -1:
    """Write the entries of one stream, at most `count` (0: no limit), and no more than fit in the reply."""
    cdef PackedEntries entries = part.entries
    cdef Py_ssize_t at = part.start, stop = part.stop
    cdef StreamCursor cursor
    cdef int64_t limit = share_of(quota, count)
    cdef int64_t n = 0
    cdef int64_t expected = <int64_t>stream.length + (stop - at)
    cdef size_t opened = open_entries(reply, quota, min(limit, expected) if limit else expected)
    after = start_in_memory(part, after)
    if part.is_reverse and stream.length and id_cmp(stream.last_live_id(), after) > 0:
        stop = at                   # the last one is in memory
        after = stream.last_live_id()
        id_decrement(&after)
    while at < stop and n != (limit or -1) and not reply.is_cut and not has_enough_bytes(quota, reply, n):
        reply.raw_c(entries.text_of(at), entries.size_between(at, at + 1))
        at += 1
        n += 1
    if at == stop and id_increment(&after):
        cursor_seek(stream, &cursor, after, MAX_ID, False)
        while (
            n != (limit or -1) and not reply.is_cut and not has_enough_bytes(quota, reply, n) and cursor_next(&cursor)
        ):
            write_entry(reply, &cursor)
            n += 1
    return close_entries(reply, quota, opened, n)
