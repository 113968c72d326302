# cython: language_level=3, boundscheck=False, wraparound=False
"""Ranges that begin below the first entry in memory, joined from the archive and from memory.

    IDs   0 ........... border | border + 1 ........... last
          archived             | in memory

Nothing is known here of archives: `ctx.tiers` (core/tiers.py) returns the archived entries as bytes of a reply, and the
border, which is decided again when the reply is written: between two commands nothing changes the stream. Whatever is
at or below the border comes from the archive, even if it is in memory too, since a trim may have left entries that a
group needs and removed others around them; whatever is above it comes from memory.
"""

from libc.stdint cimport UINT64_MAX, int64_t, uint64_t

from streamd.core.client cimport Client
from streamd.core.context cimport Context
from streamd.engine.ids cimport StreamID, id_cmp, id_decrement, id_increment, id_is_zero, make_id
from streamd.packed_entries cimport PackedEntries
from streamd.values.streams.counting cimport count_between
from streamd.values.streams.entry_replies cimport write_entry
from streamd.values.streams.stream cimport Stream, StreamCursor, cursor_next, cursor_seek

from streamd.core.tiers import TierRange

__all__: list[str] = []


cdef bint find_removed(Context ctx, bytes key, Stream stream, Removed *out) except -1:
    out.limit = out.live = live_limit(stream)
    out.trimmed = id_of(ctx.tiers.trimmed_to(ctx.db, key))
    if id_cmp(out.trimmed, out.live) > 0:
        out.limit = out.trimmed
    return stream.entries_added != stream.length or not id_is_zero(out.trimmed)


cdef bint waits_for_archive(Context ctx) except -1:
    return not ctx.in_transaction and (<Client>ctx.client).id not in ctx.tiers.live_only


cdef bint reaches_archive(Context ctx, bytes key, Stream stream, StreamID first, Removed *out) except -1:
    return (
        waits_for_archive(ctx) and find_removed(ctx, key, stream, out) and id_cmp(first, out.limit) <= 0
    )


cdef bint write_both_tiers(
    Context ctx, list args, bytes key, Stream stream, StreamID first, StreamID last, bint reverse, int64_t count
) except -1:
    cdef Removed removed
    if id_cmp(first, last) > 0 or not reaches_archive(ctx, key, stream, first, &removed):
        return False
    if reverse and count > 0 and has_enough_above(stream, removed.limit, first, last, count):
        return False
    part = ctx.tiers.read(ctx, args, TierRange(
        key, stream, number_of(first), number_of(last), reverse, count, number_of(removed.live),
        number_of(removed.trimmed)
    ))
    if part is not None:
        write_joined(ctx, stream, part, first, last, reverse, count)
    return True


cdef int write_joined(
    Context ctx, Stream stream, object part, StreamID first, StreamID last, bint reverse, int64_t count
) except -1:
    cdef size_t opened = ctx.reply.open_array(count if count > 0 else 1000)
    cdef StreamID border = id_of(part.border)
    cdef int64_t n = 0
    if reverse:
        n = write_live(ctx, stream, border, first, last, True, count)
    if n != count:
        n += write_archived(ctx, part, count - n if count > 0 else -1)
    if not reverse and n != count:
        n += write_live(ctx, stream, border, first, last, False, count - n if count > 0 else -1)
    ctx.reply.close_array(opened, n)
    return 0


cdef int64_t write_archived(Context ctx, object part, int64_t most) except -1:
    """The archived entries, at most `most` of them (-1: all); returns how many."""
    cdef PackedEntries entries = part.entries
    cdef Py_ssize_t start = part.start, stop = part.stop
    if most >= 0:
        stop = min(stop, start + most)
    if stop > start:
        ctx.reply.raw_c(entries.text_of(start), entries.size_between(start, stop))
    return stop - start


cdef int64_t write_live(
    Context ctx, Stream stream, StreamID border, StreamID first, StreamID last, bint reverse, int64_t most
) except -1:
    """The entries in memory above the border, at most `most` of them (-1: all); returns how many."""
    cdef StreamCursor cursor
    cdef int64_t n = 0
    if id_cmp(first, border) <= 0:
        first = border
        if not id_increment(&first):
            return 0
    if id_cmp(first, last) > 0:
        return 0
    cursor_seek(stream, &cursor, first, last, reverse)
    while n != most and cursor_next(&cursor):
        write_entry(ctx.reply, &cursor)
        n += 1
        if ctx.reply.is_cut:
            break                   # the rest will not be sent
    return n


cdef StreamID live_limit(Stream stream) noexcept:
    """The ID before the first entry in memory; the last ID of an empty stream."""
    cdef StreamID limit = stream.last_id
    if stream.length:
        limit = stream.first_id
        id_decrement(&limit)
    return limit


cdef bint has_enough_above(Stream stream, StreamID limit, StreamID first, StreamID last, int64_t count) noexcept:
    """Whether so many entries of a range are in memory above an ID."""
    if id_cmp(first, limit) <= 0:
        first = limit
        if not id_increment(&first):
            return False
    return id_cmp(first, last) <= 0 and count_between(stream, first, last) >= <uint64_t>count


cdef object number_of(StreamID id):
    return (<object>id.ms << 64) | id.seq


cdef StreamID id_of(object number):
    return make_id(<uint64_t>(number >> 64), <uint64_t>(number & UINT64_MAX))
