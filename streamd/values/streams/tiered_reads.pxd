# cython: language_level=3
"""Reads after an ID of which a part is not in memory. See tiered_reads.pyx."""

from libc.stdint cimport int64_t

from streamd.core.context cimport Context
from streamd.engine.ids cimport StreamID
from streamd.protocol.reply cimport ReplyWriter
from streamd.values.streams.read_quota cimport Quota
from streamd.values.streams.stream cimport Stream


cdef bint ask_archive(
    Context ctx, list args, bytes key, Stream stream, StreamID after, bint is_last, int64_t count, int64_t enough,
    bytes group, Py_ssize_t place, list parts
) except -1
    # Sets parts[place] to the archived entries after an ID, or for `is_last` to the last one, if memory does not have
    # them. False: the client waits for them, and `args` will be run again. Only if ctx.tiers is not None.
    #
    # group  whose consumers share them; None: nobody does
cdef StreamID start_in_memory(object part, StreamID after)   # after which ID entries come from memory
cdef bint has_entries(Stream stream, object part, StreamID after) except -1
cdef int write_from_both(
    ReplyWriter reply, Quota *quota, Stream stream, object part, StreamID after, int64_t count
) except -1
