# cython: language_level=3, boundscheck=False, wraparound=False
"""The reader of replies: bytes of RESP2 or RESP3 in, however they are cut, Python values out.

    reader.feed(b"*2\r\n:1\r\n+O")     reader.next() is UNREAD
    reader.feed(b"K\r\n")              reader.next() == [1, b"OK"]

Replies become: bytes for strings, `Status` for simple ones, int, float, bool, None, list, dict for maps, `SetReply`,
`Push`, `Verbatim`; an error is a `ServerError`, inside another reply too. Attributes are dropped. It owns a buffer and
nothing else: no socket, no clock. The time is linear in the bytes fed; an array that has begun is kept as a frame, not
read again from its start.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memchr, memcpy, memmove

from streamd.client.client_errors import ServerError
from streamd.client.reply_types import UNREAD, Push, SetReply, Status, Verbatim
from streamd.errors import ProtocolError

__all__ = ["ReplyReader"]

cdef enum:
    FIRST_CAPACITY = 64 * 1024
    KEPT_CAPACITY = 1024 * 1024   # a larger buffer is freed when it is empty
    MAX_DEPTH = 1000              # of aggregates inside each other
    SHOWN = 40                    # bytes of what is not understood that the error shows


@cython.final
@cython.freelist(16)
@cython.no_gc
cdef class Frame:
    """An aggregate whose elements are still to come."""

    cdef char kind          # its first byte: * ~ > % |
    cdef int64_t left       # elements that are missing
    cdef list items
    cdef Frame outer        # what it is an element of


cdef object finished(Frame frame):
    """The value of an aggregate that has all its elements."""
    cdef list items = frame.items
    if frame.kind == c'*':
        return items
    if frame.kind == c'~':
        return SetReply(items)
    if frame.kind == c'>':
        return Push(items)
    return {as_key(items[at]): items[at + 1] for at in range(0, len(items), 2)}


def as_key(value):
    """A reply as the key of a map."""
    return tuple(map(as_key, value)) if isinstance(value, list) else value


@cython.final
cdef class ReplyReader:
    cdef uint8_t *_data     # the buffer, owned; NULL: none yet
    cdef size_t _size       # its capacity
    cdef size_t _at         # what is before has been read
    cdef size_t _end        # what is from here on is free
    cdef Frame _frame       # the innermost aggregate that is not complete
    cdef int _depth         # how many are not complete

    def __dealloc__(self):
        free(self._data)

    def feed(self, bytes data not None):
        """Keep bytes to read."""
        cdef size_t count = PyBytes_GET_SIZE(data)
        cdef size_t held = self._end - self._at, size
        cdef uint8_t *grown
        if self._at and (self._at == self._end or self._end + count > self._size):
            if held:
                memmove(self._data, self._data + self._at, held)
            self._at, self._end = 0, held
        if held == 0 and self._size > KEPT_CAPACITY:
            free(self._data)
            self._data, self._size = NULL, 0
        if self._end + count > self._size:
            size = max(<size_t>FIRST_CAPACITY, 2 * self._size, self._end + count)
            grown = <uint8_t *>realloc(self._data, size)
            if grown == NULL:
                raise MemoryError
            self._data, self._size = grown, size
        memcpy(self._data + self._end, PyBytes_AS_STRING(data), count)
        self._end += count

    def next(self):
        """The next reply; UNREAD when more bytes are needed.

        Raises ProtocolError, after which it is not called again.
        """
        cdef Frame frame
        while True:
            value = self._element()
            if value is UNREAD:
                return UNREAD
            if isinstance(value, Frame):
                frame = <Frame>value
                if frame.left:
                    frame.outer = self._frame
                    self._frame = frame
                    self._depth += 1
                    if self._depth > MAX_DEPTH:
                        raise ProtocolError(f"replies more than {MAX_DEPTH} deep")
                    continue
                if frame.kind == c'|':
                    continue
                value = finished(frame)
            while (frame := self._frame) is not None:
                frame.items.append(value)
                frame.left -= 1
                if frame.left:
                    break
                self._frame = frame.outer
                self._depth -= 1
                if frame.kind == c'|':
                    break
                value = finished(frame)
            else:
                return value

    cdef object _element(self):
        """The next value, a Frame for the head of an aggregate, or UNREAD; then nothing of it has been taken."""
        cdef uint8_t *line = self._data + self._at
        cdef size_t held = self._end - self._at
        cdef uint8_t *end
        cdef uint8_t kind
        cdef Py_ssize_t length
        cdef int64_t number
        cdef Frame frame
        if held == 0:
            return UNREAD
        kind = line[0]
        if memchr(b"$+-:(*~>%|,#_=!", kind, 15) == NULL:
            raise ProtocolError(repr(PyBytes_FromStringAndSize(<char *>line, min(held, SHOWN)).partition(b"\r\n")[0]))
        end = <uint8_t *>memchr(line, c'\r', held)
        if end == NULL or end + 1 == line + held:
            return UNREAD
        length = end - line - 1
        if end[1] != c'\n':
            raise ProtocolError(repr(PyBytes_FromStringAndSize(<char *>line, min(length + 1, SHOWN))))
        if kind == c'+' or kind == c'-' or kind == c',' or kind == c'#' or kind == c'_' or kind == c'(':
            text = PyBytes_FromStringAndSize(<char *>line + 1, length)
            self._at += length + 3
            if kind == c'+':
                return Status(text)
            if kind == c'-':
                return ServerError(text.decode("utf-8", "replace"))
            if kind == c',':
                return float(text)
            if kind == c'(':
                return int(text)
            return None if kind == c'_' else text == b"t"
        number = find_number(line + 1, length)
        if kind == c':':
            self._at += length + 3
            return number
        if number < 0:
            self._at += length + 3
            return None
        if kind == c'$' or kind == c'=' or kind == c'!':
            if <int64_t>held - length - 5 < number:
                return UNREAD
            text = PyBytes_FromStringAndSize(<char *>line + length + 3, number)
            self._at += length + number + 5
            if kind == c'$':
                return text
            return Verbatim(text[4:]) if kind == c'=' else ServerError(text.decode("utf-8", "replace"))
        self._at += length + 3
        frame = Frame.__new__(Frame)
        frame.kind, frame.items = kind, []
        frame.left = 2 * number if kind == c'%' or kind == c'|' else number
        return frame


cdef int64_t find_number(const uint8_t *digits, Py_ssize_t count) except? -1:
    """The number in a line. Raises ProtocolError."""
    cdef int64_t number = 0
    cdef Py_ssize_t at = 1 if count and (digits[0] == c'-' or digits[0] == c'+') else 0
    if at == count or count > 20:
        raise ProtocolError(repr(PyBytes_FromStringAndSize(<char *>digits, min(count, SHOWN))))
    while at < count:
        if not c'0' <= digits[at] <= c'9':
            raise ProtocolError(repr(PyBytes_FromStringAndSize(<char *>digits, count)))
        number = number * 10 + (digits[at] - c'0')
        at += 1
    return -number if digits[0] == c'-' else number
