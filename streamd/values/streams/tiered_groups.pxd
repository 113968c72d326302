# cython: language_level=3
"""Consumer groups that read entries that are not in memory. See tiered_groups.pyx."""

cimport cython
from libc.stdint cimport int64_t, uint64_t

from streamd.core.context cimport Context
from streamd.engine.ids cimport StreamID
from streamd.protocol.reply cimport ReplyWriter
from streamd.values.streams.group cimport Consumer, Group
from streamd.values.streams.read_quota cimport Quota
from streamd.values.streams.ruled_group cimport RuledGroup
from streamd.values.streams.stream cimport Stream


# Where an entry is that is not in memory.
cdef enum Whereabouts:
    GONE                # it was deleted
    ARCHIVED            # it was read
    UNREAD              # it may be archived, and was not read: nobody needs it, or the client does not wait


cdef struct Delivery:
    int64_t now_ms
    int64_t most        # entries; 0: no limit
    int64_t written     # entries of the stream that are in the reply so far
    bint no_ack
    bint with_idle      # the reply shows idle times and delivery counts


@cython.final
cdef class ArchivedPending:
    # The pending entries of a request that are not in memory.
    cdef StreamID limit             # the last ID at or below which entries may be archived
    cdef object part                # what was read; None: nothing
    cdef set ids                    # of those to be read, as numbers
    cdef bint may_be_cut            # if all are too long for a reply, the first ones will do; the others are UNREAD
    cdef bint is_read               # they are read before anything is replied

    cdef object wanted(self, Context ctx, bytes key, Stream stream)     # a TierRange of what was added
    cdef int add(self, Stream stream, StreamID id) except -1        # an entry is needed, if it is not in memory
    cdef bint ask(self, Context ctx, list args, bytes key, Stream stream, Py_ssize_t place) except -1
        # Read what was added. False: the client waits, and the request will be run again.
    cdef Whereabouts find(self, StreamID id) except *
    cdef int write(self, ReplyWriter reply, StreamID id, bint with_idle=*) except -1    # an entry that is ARCHIVED
    cdef list pairs(self, StreamID id)                              # its fields and values


cdef ArchivedPending archived_pending(Context ctx, bytes key, Stream stream)
    # None: no group reads the archive, or nothing was ever removed.
cdef ArchivedPending archived_for_server(Context ctx, bytes key, Stream stream)
    # The same where what is added will be read, whoever asks.
cdef bint is_maybe_archived(Context ctx, bytes key, Stream stream, StreamID id) except -1
    # Whether an entry is not in memory, and groups read the archive, which may have it.
cdef int refuse_archived(Context ctx, bytes key, Stream stream, Group group) except -1
    # Raises CommandError where a transaction or a script would read on behind archived entries.
cdef bint find_archived_key(object entries, Py_ssize_t at, bytes field, uint64_t *key) except -1
    # As find_key, of an entry that was read.
    #
    # entries  PackedEntries; untyped, since their memoryview would become a part of every module that needs this file
cdef bint next_archived(Context ctx, RuledGroup ruled, object part) except -1
    # Go to the next row of a part that may be delivered in a group that is ordered by key, part.start, passing over
    # others. False at the end, or when HELD are waiting.
cdef bint deliver_archived(
    Context ctx, bytes key, Stream stream, Group group, RuledGroup ordered, Consumer consumer, object part,
    Quota *quota, Delivery *delivery
) except -1
    # Deliver the entries of a part, and write them; delivery.written grows. False: HELD are waiting.
    #
    # ordered  the group, if it is ordered by key
cdef int propagate_archived(
    Context ctx, bytes key, Group group, bytes consumer, bytes id, bytes delivery_ms, bytes deliveries, bytes last_id
) except -1
    # As propagate_pending, of an entry that is not in memory.
