# cython: language_level=3
"""What clients that wait for streams ask. See waiting.pyx."""

cimport cython

from streamd.core.question cimport Question


@cython.final
@cython.no_gc
cdef class GroupQuestion(Question):
    cdef bytes group


cdef Question stream_question(bytes group, bint claims, bint in_line)
