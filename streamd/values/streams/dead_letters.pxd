# cython: language_level=3
"""Pending entries that are not delivered again. See dead_letters.pyx."""

from streamd.core.context cimport Context
from streamd.engine.ids cimport StreamID
from streamd.values.streams.ruled_group cimport RuledGroup
from streamd.values.streams.tiered_groups cimport ArchivedPending


cdef bint move(Context ctx, RuledGroup ruled, StreamID id, bint is_fatal, ArchivedPending archived=?) except -1
    # False: it stays pending.
cdef int move_all(Context ctx, RuledGroup ruled, list ids) except -1
