# cython: language_level=3
"""The streams that rules in the configuration are about. See default_streams.pyx."""

from streamd.core.capability cimport Capability
from streamd.keyspace.database cimport Database


cdef class DefaultStreams(Capability):
    cdef object host
    cdef readonly object defaults         # Defaults
    cdef object lines                     # the settings that it was made of
    cdef readonly bint is_on              # there are lines
    cdef readonly int version             # changes with the lines, and when more streams were found by a walk
    cdef list found                       # by database: set of keys
    cdef list fresh                       # the same, as the present walk finds them
    cdef int db_index                     # where the walk is
    cdef unsigned long long cursor
    cdef bint is_urgent                   # the walk goes on at once: there may be many that are not known
    cdef bint was_held

    cdef set streams_of(self, Database db)
    cdef int walk(self) except -1
