# cython: language_level=3
"""What XREADGROUP delivers in a group that is ordered by key. See ordered_reads.pyx."""

from libc.stdint cimport uint64_t

from streamd.core.context cimport Context
from streamd.engine.ids cimport StreamID
from streamd.values.streams.delivery cimport Finder
from streamd.values.streams.pel cimport PelRecord
from streamd.values.streams.ruled_group cimport RuledGroup
from streamd.values.streams.stream cimport StreamCursor


cdef bint has_turn(Context ctx, RuledGroup ruled, StreamID after) except -1     # an entry may be delivered
cdef PelRecord *next_passed_over(Context ctx, RuledGroup ruled, Finder *finder) except? NULL
cdef bint next_in_turn(Context ctx, RuledGroup ruled, StreamCursor *cursor) except -1
