# cython: language_level=3
"""What will be written to the append-only file next. See buffer.pyx."""

cimport cython

from streamd.core.effects cimport EffectSink
from streamd.protocol.request_bytes cimport ByteBuffer


@cython.final
cdef class AofBuffer(EffectSink):
    cdef public bint is_open            # False: what is appended is dropped
    cdef public bint has_timestamps     # note the time, once a second
    cdef int selected                   # the database that the last command was for; -1: none, or a new file starts
    cdef long long stamp_s              # the last time noted, Unix seconds
    cdef ByteBuffer held                # what has not been written
    cdef char nothing                   # what an empty memoryview points to
    cdef int exports                    # live memoryviews of it

    cpdef int append(self, int db_index, list args, long long now_ms) except -1
    cdef int stamp(self, long long now_ms) except -1
    cdef int put(self, int db_index, list args) except -1
    cdef int check_unexported(self) except -1
