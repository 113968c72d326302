# cython: language_level=3
"""Ranges of which a part is not in memory. See tiered_ranges.pyx."""

from libc.stdint cimport int64_t

from streamd.core.context cimport Context
from streamd.engine.ids cimport StreamID
from streamd.values.streams.stream cimport Stream


cdef bint write_both_tiers(
    Context ctx, list args, bytes key, Stream stream, StreamID first, StreamID last, bint reverse, int64_t count
) except -1
    # As write_range, with the archived entries; True: it has replied, or the client waits. False, and nothing was
    # done: what is in memory is all there is. Only if ctx.tiers is not None.
