# cython: language_level=3
"""What will be written to the append-only file next. See buffer.pyx."""

cimport cython
from cpython.object cimport PyObject

from streamd.core.effects cimport EffectSink


cdef struct ByteBuffer:
    char *data                 # owned; NULL: nothing allocated
    Py_ssize_t size            # bytes in use
    Py_ssize_t capacity        # bytes allocated


cdef char *buffer_room(ByteBuffer *buffer, Py_ssize_t n) except NULL      # room for n more bytes; may move
cdef int buffer_put(ByteBuffer *buffer, const char *p, Py_ssize_t n) except -1
cdef int buffer_put_count(ByteBuffer *buffer, char mark, unsigned long long n) except -1   # `*3\r\n`, `$12\r\n`
cdef int buffer_put_bulk(ByteBuffer *buffer, const char *p, Py_ssize_t n) except -1        # `$3\r\nabc\r\n`
cdef int buffer_put_command(ByteBuffer *buffer, list args) except -1


@cython.final
cdef class AofBuffer(EffectSink):
    cdef public bint is_open            # False: what is appended is dropped
    cdef public bint has_timestamps     # note the time, once a second
    cdef readonly long long commands    # appended so far
    cdef int selected                   # the database that the last command was for; -1: none, or a new file starts
    cdef long long stamp_s              # the last time noted, Unix seconds
    cdef ByteBuffer held                # what has not been written
    cdef char nothing                   # what an empty memoryview points to
    cdef int exports                    # live memoryviews of it

    cpdef int append(self, int db_index, list args, long long now_ms) except -1
    cdef int stamp(self, long long now_ms) except -1
    cdef int put(self, int db_index, list args) except -1
    cdef int check_unexported(self) except -1
