# cython: language_level=3
"""What XREADGROUP delivers in a group that is ordered by key. See ordered_reads.pyx."""

from libc.stdint cimport int64_t

from streamd.core.context cimport Context
from streamd.engine.ids cimport StreamID
from streamd.values.streams.delivery cimport Finder
from streamd.values.streams.pel cimport PelRecord
from streamd.values.streams.ruled_group cimport RuledGroup
from streamd.values.streams.stream cimport StreamCursor
from streamd.values.streams.tiered_groups cimport ArchivedPending


cdef bint has_turn(Context ctx, RuledGroup ruled, StreamID after, object part, ArchivedPending archived) except -1
    # An entry may be delivered. part: new entries that are archived, or None; archived: see next_passed_over.
cdef PelRecord *next_passed_over(
    Context ctx, RuledGroup ruled, Finder *finder, ArchivedPending archived
) except? NULL
    # archived: what was read by ask_in_turn; None: memory has everything
cdef bint next_in_turn(Context ctx, RuledGroup ruled, StreamCursor *cursor) except -1

# --- What is in the archive alone ------------------------------------------------------------------------------------

cdef bint ask_keys(Context ctx, list args, RuledGroup ruled, Py_ssize_t place) except -1
    # Read the keys of pending entries that are in the archive alone. False: the client waits for them.
cdef ArchivedPending ask_in_turn(
    Context ctx, list args, RuledGroup ruled, int64_t count, Py_ssize_t place, bint *waits
)
    # Read what was passed over and may be delivered. waits: the client waits for it.
