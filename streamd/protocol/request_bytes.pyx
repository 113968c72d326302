# cython: language_level=3, boundscheck=False, wraparound=False
"""Requests as bytes: what the append-only file and replicas get.

    buffer_put_command(&buffer, [b"GET", b"k"])   ->   *2 $3 GET $1 k      each word followed by CR LF

A ByteBuffer is plain memory that its owner frees; it is for C callers. `encode_request` is for the others.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from streamd.numbers cimport LINE_ROOM, put_line

__all__ = ["encode_request"]

cdef enum:
    FIRST_CAPACITY = 16 * 1024


cdef char *buffer_room(ByteBuffer *buffer, Py_ssize_t n) except NULL:
    """Make room for n more bytes, which count only once the caller adds them to `size`. May move the buffer."""
    cdef Py_ssize_t wanted
    cdef char *block
    if n <= buffer.capacity - buffer.size:
        return buffer.data + buffer.size
    wanted = max(buffer.capacity * 2, <Py_ssize_t>FIRST_CAPACITY)
    while wanted < buffer.size + n:
        wanted *= 2
    block = <char *>realloc(buffer.data, <size_t>wanted)
    if block is NULL:
        raise MemoryError("no memory for requests")
    buffer.data = block
    buffer.capacity = wanted
    return block + buffer.size


cdef int buffer_fit(ByteBuffer *buffer) except -1:
    """Give back what is allocated beyond the bytes in use, of which there are some."""
    cdef char *block = <char *>realloc(buffer.data, <size_t>buffer.size)
    if block is not NULL:
        buffer.data = block
        buffer.capacity = buffer.size
    return 0


cdef int buffer_put(ByteBuffer *buffer, const char *p, Py_ssize_t n) except -1:
    memcpy(buffer_room(buffer, n), p, <size_t>n)
    buffer.size += n
    return 0


cdef int buffer_put_count(ByteBuffer *buffer, char mark, unsigned long long n) except -1:
    buffer.size += put_line(buffer_room(buffer, LINE_ROOM), mark, <long long>n)
    return 0


cdef int buffer_put_bulk(ByteBuffer *buffer, const char *p, Py_ssize_t n) except -1:
    cdef char *start = buffer_room(buffer, n + LINE_ROOM + 2)
    cdef char *out = start + put_line(start, c'$', n)
    memcpy(out, p, <size_t>n)
    out += n
    out[0] = c'\r'
    out[1] = c'\n'
    buffer.size += out + 2 - start
    return 0


cdef int buffer_put_command(ByteBuffer *buffer, list args) except -1:
    """Append a request; `args` are bytes objects, at least one."""
    cdef Py_ssize_t n = PyList_GET_SIZE(args)
    cdef Py_ssize_t wanted = LINE_ROOM
    cdef Py_ssize_t i
    cdef Py_ssize_t length
    cdef char *start
    cdef char *out
    for i in range(n):
        if not isinstance(<object>PyList_GET_ITEM(args, i), bytes):
            raise TypeError("arguments are bytes")
        wanted += PyBytes_GET_SIZE(<object>PyList_GET_ITEM(args, i)) + LINE_ROOM + 2
    start = buffer_room(buffer, wanted)
    out = start + put_line(start, c'*', n)
    for i in range(n):
        length = PyBytes_GET_SIZE(<object>PyList_GET_ITEM(args, i))
        out += put_line(out, c'$', length)
        memcpy(out, PyBytes_AS_STRING(<object>PyList_GET_ITEM(args, i)), <size_t>length)
        out += length
        out[0] = c'\r'
        out[1] = c'\n'
        out += 2
    buffer.size += out - start
    return 0


def encode_request(*words):
    """A request as bytes; words are bytes, text or integers, at least one."""
    cdef ByteBuffer buffer
    cdef list args = [
        word if isinstance(word, bytes) else str(word).encode("utf-8", "surrogateescape") for word in words
    ]
    memset(&buffer, 0, sizeof(buffer))
    try:
        buffer_put_command(&buffer, args)
        return PyBytes_FromStringAndSize(buffer.data, buffer.size)
    finally:
        free(buffer.data)
