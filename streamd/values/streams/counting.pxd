# cython: language_level=3
"""How many entries of a stream lie between two IDs. See counting.pyx."""

from libc.stdint cimport uint64_t

from streamd.engine.ids cimport StreamID
from streamd.values.streams.stream cimport Stream


cdef uint64_t count_between(Stream stream, StreamID first, StreamID last) noexcept nogil     # both inclusive
cdef uint64_t count_above(Stream stream, StreamID id) noexcept nogil                         # entries with a greater ID
cdef bint first_above(Stream stream, StreamID id, StreamID *out) noexcept nogil              # False: there is none
