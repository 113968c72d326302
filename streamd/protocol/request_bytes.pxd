# cython: language_level=3
"""Requests as bytes, in memory that grows. See request_bytes.pyx."""


cdef struct ByteBuffer:
    char *data                 # owned; NULL: nothing allocated
    Py_ssize_t size            # bytes in use
    Py_ssize_t capacity        # bytes allocated


cdef char *buffer_room(ByteBuffer *buffer, Py_ssize_t n) except NULL      # room for n more bytes; may move
cdef int buffer_fit(ByteBuffer *buffer) except -1        # it will not grow any more; may move
cdef int buffer_put(ByteBuffer *buffer, const char *p, Py_ssize_t n) except -1
cdef int buffer_put_count(ByteBuffer *buffer, char mark, unsigned long long n) except -1   # `*3\r\n`, `$12\r\n`
cdef int buffer_put_bulk(ByteBuffer *buffer, const char *p, Py_ssize_t n) except -1        # `$3\r\nabc\r\n`
cdef int buffer_put_command(ByteBuffer *buffer, list args) except -1
