# cython: language_level=3
"""What clients that wait for streams ask. See waiting.pyx."""

cimport cython

from streamd.core.question cimport Question
from streamd.keyspace.database cimport Database


@cython.final
@cython.no_gc
cdef class GroupQuestion(Question):
    cdef bytes group
    cdef bytes consumer


cdef Question stream_question(bytes group, bytes consumer, bint claims, bint in_line)
cdef list consumers_waiting(Database db, bytes key, bytes group)      # names; one that waits twice is in it twice
