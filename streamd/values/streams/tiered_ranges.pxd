# cython: language_level=3
"""Ranges of which a part is not in memory. See tiered_ranges.pyx."""

from libc.stdint cimport int64_t

from streamd.core.context cimport Context
from streamd.engine.ids cimport StreamID
from streamd.values.streams.stream cimport Stream


cdef struct Removed:
    # Which entries may have left memory.
    StreamID limit          # the last ID at or below which they may; the higher one of these:
    StreamID live           # the ID before the first entry in memory; the last ID of an empty stream
    StreamID trimmed        # up to which ID archivers have trimmed, perhaps around entries that are still in memory


cdef bint find_removed(Context ctx, bytes key, Stream stream, Removed *out) except -1
    # False: nothing was ever removed. Only if ctx.tiers is not None, as the next one.
cdef bint waits_for_archive(Context ctx) except -1
    # Whether a client reads the archive: a transaction and a script do not wait.
cdef bint reaches_archive(Context ctx, bytes key, Stream stream, StreamID first, Removed *out) except -1
    # Whether entries from an ID on may be archived that are not in memory, and the client reads the archive.
cdef object number_of(StreamID id)
cdef StreamID id_of(object number)
cdef bint write_both_tiers(
    Context ctx, list args, bytes key, Stream stream, StreamID first, StreamID last, bint reverse, int64_t count
) except -1
    # As write_range, with the archived entries; True: it has replied, or the client waits. False, and nothing was
    # done: what is in memory is all there is. Only if ctx.tiers is not None.
