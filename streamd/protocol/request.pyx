# cython: language_level=3, boundscheck=False, wraparound=False
"""RequestParser: bytes in, requests out. It owns a buffer and nothing else: no socket, no clock, no command names.

    *2\\r\\n$4\\r\\nXLEN\\r\\n$1\\r\\ns\\r\\n      ->  [b"XLEN", b"s"]      a multibulk request
    XLEN "s"\\r\\n                        ->  [b"XLEN", b"s"]      an inline command
    *0\\r\\n     and     \\r\\n             ->  []                   an empty request: no reply, go on

The contract: `feed(data)` takes the bytes; `next_request()` is called until it returns None, which means that more
bytes are needed. For bytes that are not a request, it raises ProtocolError, whose text is the whole error line; the
connection is then closed after that one reply, and the parser is not called again. An empty text means: close at once,
without this reply and without unsent replies (a web browser was tricked into talking to us, see `is_http`).

    input          pos                                     size
      |  read already  |  unread: the rest of a line or argument  |       one block: a fed object, or our own buffer
      +----------------+------------------------------------------+

The bytes are parsed in place, in the object that was fed, or in memory that is lent from `feed_in_place` to `leave`;
only an unfinished rest is copied, to the parser's own buffer. Arguments are finished one by one and kept between
calls, so no byte is read again when more arrive. A long, incomplete argument is collected in its own final object
(`partial`), which grows with the bytes actually received, and may be received there (`place`); or a thread collects it,
and hands it over (`awaits`, `adopt`). So time is linear in the bytes fed, however they are split, and memory in use is
bounded by about twice the bytes received: announced sizes reserve at most FIRST_ROOM, which the system provides as it
is used. A limit on the query buffer must check `buffered` and `pending_args_size`. An idle parser, which has no
unfinished request, holds no memory.

Invariants: pos <= size, scanned <= size - pos; input is NULL exactly when nothing is unread (between calls); buffer is
NULL or the input; args is None exactly when missing is 0; partial is NULL unless bulk_len >= LONG_BULK.

Rules, limits and texts are those of Redis 8.6, as seen on a running server, with one intended difference: Redis 8.6.3
does not reply when an invalid bulk header arrives in a different packet than the start of its request; here the
outcome does not depend on how the bytes were split.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE, PyList_New
from cpython.ref cimport Py_INCREF, Py_XDECREF, PyObject
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memchr, memcpy, memmove

from streamd.heap cimport count_object, free, malloc, realloc
from streamd.numbers cimport read_int64

from streamd.errors import ProtocolError, one_line
from streamd.protocol.inline import split_line

__all__ = ["DEFAULT_MAX_BULK_LEN", "RequestParser", "forget_words"]


cdef extern from "<strings.h>" nogil:
    int strcasecmp(const char *a, const char *b)

cdef extern from "Python.h":
    # As plain pointers: `resize` replaces an object that has one reference, and PyList_SET_ITEM steals a reference.
    PyObject *new_bytes "PyBytes_FromStringAndSize"(const char *p, Py_ssize_t n) except NULL
    int resize_bytes "_PyBytes_Resize"(PyObject **held, Py_ssize_t n) except -1
    char *bytes_data "PyBytes_AS_STRING"(PyObject *held)
    Py_ssize_t bytes_size "PyBytes_GET_SIZE"(PyObject *held)
    void list_set_item "PyList_SET_ITEM"(list held, Py_ssize_t i, PyObject *item)
    int list_append "PyList_Append"(list held, PyObject *item) except -1

cdef enum:
    MAX_LINE = 65536                # bytes of a line without an end
    MAX_COUNT = 2147483647          # arguments
    STRANGER_COUNT = 10             # arguments, before authentication
    STRANGER_BULK = 16384           # bytes of an argument, before authentication
    LONG_BULK = 32768               # an incomplete argument of at least this size is collected in its own object
    FIRST_ROOM = 1 << 20            # bytes of such an object at first: what it grows to may be copied
    MIN_BUFFER = 256
    MAX_SIZED_LIST = 64             # a longer list of arguments grows as they arrive
    MORE = 2                        # result of read_count: more bytes are needed
    BYTES_OVERHEAD = 48             # per argument: the object's header, rounding, its place in the list

DEFAULT_MAX_BULK_LEN = 512 * 1024 * 1024


# --- Numbers --------------------------------------------------------------------------------------------------------

cdef inline const char *short_number(const char *p, const char *end, int64_t *out) noexcept nogil:
    """Read a number of one to nine canonical digits, followed by CR and one more byte; returns the CR, or NULL."""
    cdef const char *q = p
    cdef const char *stop = end - 1 if end - p <= 10 else p + 10
    cdef int64_t value = 0
    while q < stop and c'0' <= q[0] <= c'9':
        value = value * 10 + (q[0] - c'0')
        q += 1
    if q >= stop or q[0] != c'\r' or q == p or (p[0] == c'0' and q - p > 1):
        return NULL
    out[0] = value
    return q


# --- Recently seen words --------------------------------------------------------------------------------------------
#
# Command names, keys and field names repeat from request to request. A short argument equal to a recent one is the
# same object again: that saves its allocation, and its hash is known when the command or the key is looked up (a fifth
# of the time to parse a typical XADD). There is one slot per hash, the newest wins; a miss costs a comparison.

cdef enum:
    RECENT_BITS = 8
    RECENT_MAX_SIZE = 16

cdef PyObject *recent[1 << RECENT_BITS]      # each a bytes object, owned, or NULL; shared, guarded by the GIL


cdef inline void ends_of(const char *p, Py_ssize_t n, uint64_t *head, uint64_t *tail) noexcept nogil:
    """First and last bytes of a word of 2 to RECENT_MAX_SIZE bytes; they overlap, so they cover the whole word."""
    cdef uint32_t short_head = 0, short_tail = 0
    if n >= 8:
        memcpy(head, p, 8)
        memcpy(tail, p + n - 8, 8)
    elif n >= 4:
        memcpy(&short_head, p, 4)
        memcpy(&short_tail, p + n - 4, 4)
        head[0] = short_head
        tail[0] = short_tail
    else:
        head[0] = <unsigned char>p[0]
        tail[0] = (<unsigned int><unsigned char>p[1] << 8) | <unsigned char>p[n - 1]


cdef inline PyObject **place_of(uint64_t head, uint64_t tail, Py_ssize_t n) noexcept nogil:
    """The slot of a word with these ends."""
    head = (head ^ <uint64_t>n << 56) * <uint64_t>0x9E3779B97F4A7C15 ^ tail * <uint64_t>0xC2B2AE3D27D4EB4F
    return &recent[head >> (64 - RECENT_BITS)]


cdef inline bint has_ends(PyObject *word, uint64_t head, uint64_t tail, Py_ssize_t n) noexcept:
    """Whether a cached word (or NULL) is the word of n bytes with these ends."""
    cdef uint64_t word_head = 0, word_tail = 0
    if word is NULL or bytes_size(word) != n:
        return False
    ends_of(bytes_data(word), n, &word_head, &word_tail)
    return word_head == head and word_tail == tail


cdef inline PyObject *find_or_keep(const char *p, Py_ssize_t n) except NULL:
    """As new_argument."""
    cdef PyObject *word
    cdef PyObject **place
    cdef uint64_t head = 0, tail = 0
    if n < 2 or n > RECENT_MAX_SIZE:
        return new_bytes(p, n)
    ends_of(p, n, &head, &tail)
    place = place_of(head, tail, n)
    word = place[0]
    if not has_ends(word, head, tail, n):
        word = new_bytes(p, n)
        Py_XDECREF(place[0])
        place[0] = word
    Py_INCREF(<bytes>word)
    return word


cdef PyObject *new_argument(const char *p, Py_ssize_t n) except NULL:
    """A bytes object of n bytes at p, with one reference for the caller."""
    return find_or_keep(p, n)


def forget_words(list words not None):
    """Remove these words from the cache: they may be passwords."""
    cdef PyObject **place
    cdef PyObject *kept
    cdef uint64_t head = 0, tail = 0
    cdef bytes word
    for word in words:
        if 2 <= PyBytes_GET_SIZE(word) <= RECENT_MAX_SIZE:
            ends_of(PyBytes_AS_STRING(word), PyBytes_GET_SIZE(word), &head, &tail)
            place = place_of(head, tail, PyBytes_GET_SIZE(word))
            kept = place[0]
            if has_ends(kept, head, tail, PyBytes_GET_SIZE(word)):
                place[0] = NULL
                Py_XDECREF(kept)


# --- The parser -----------------------------------------------------------------------------------------------------

cdef bint is_http(const char *name) noexcept nogil:
    """Whether a request comes from a web browser that was tricked into connecting: `POST / HTTP/1.1`, `Host: ...`.

    The body of such a request might contain commands, so the connection must end. A NUL ends the name, as in Redis.
    """
    if name[0] == c'P' or name[0] == c'p':
        return strcasecmp(name, "post") == 0
    if name[0] == c'H' or name[0] == c'h':
        return strcasecmp(name, "host:") == 0
    return False


@cython.final
@cython.no_gc
cdef class RequestParser:
    """The requests of one connection. See the top of the module for the contract.

    authenticated  False: the peer may send at most ten arguments of 16 KiB each; may be set between any two requests
    max_bulk_len   longest argument in bytes (proto-max-bulk-len)
    """

    def __cinit__(self, bint authenticated=False, long long max_bulk_len=DEFAULT_MAX_BULK_LEN):
        self.authenticated = authenticated
        self.max_bulk_len = max_bulk_len
        self.bulk_len = -1

    def __dealloc__(self):
        free(self.buffer)
        Py_XDECREF(self.partial)
        count_object(-self.counted)

    def __repr__(self):
        return f"<RequestParser, {self.buffered} bytes buffered, {self.missing} arguments missing>"

    # --- Input ------------------------------------------------------------------------------------------------------

    cpdef int feed(self, bytes data) except -1:
        """Take bytes as received from the peer. The object is kept until its bytes are parsed."""
        cdef Py_ssize_t n = PyBytes_GET_SIZE(data)
        if self.input is not NULL:
            return self.append(PyBytes_AS_STRING(data), n)
        if n:
            self.source = data
            self.input = PyBytes_AS_STRING(data)
            self.size = n
        return 0

    cdef int feed_in_place(self, const char *p, Py_ssize_t n) except -1:
        """Take n bytes, at least one, that are parsed where they are, and stay as they are until `leave`."""
        if self.input is not NULL:
            return self.append(p, n)
        self.input = p
        self.size = n
        return 0

    cdef int leave(self) except -1:
        """Copy what has not been read of lent memory."""
        if self.input is not NULL and self.buffer is NULL and self.source is None:
            return self.keep()
        return 0

    cdef Py_ssize_t place(self, char **place) except -1:
        """Where more of a long, partly received argument may be written, and how much; `partial_size` grows by that.

        0: it is to be fed, as all other input.
        """
        if self.partial is NULL or self.input is not NULL or self.partial_size == self.bulk_len:
            return 0
        self.widen(1)
        place[0] = bytes_data(self.partial) + self.partial_size
        return bytes_size(self.partial) - self.partial_size

    cdef bint awaits(self, Py_ssize_t n, Py_ssize_t received) noexcept:
        """Whether what comes next is a long argument of n bytes, of which nothing has been fed.

        If so, `received` bytes of it are collected elsewhere, and count as unread input.
        """
        if self.bulk_len != n or n < LONG_BULK or self.input is not NULL or self.partial is not NULL:
            return False
        self.away = received
        return True

    cdef void adopt(self, bytes arg) noexcept:
        """Take an argument that it awaits; its line end is fed next."""
        Py_INCREF(arg)
        self.partial = <PyObject *>arg
        self.partial_size = self.bulk_len
        self.away = 0

    cdef int append(self, const char *p, Py_ssize_t n) except -1:
        """Append n bytes to the unread ones, in the buffer."""
        cdef Py_ssize_t unread = self.size - self.pos
        cdef Py_ssize_t room = self.capacity
        cdef char *block
        if self.buffer is not NULL and self.pos and n > self.capacity - self.size:
            memmove(self.buffer, self.buffer + self.pos, unread)
            self.pos = 0
            self.size = unread
            if unread + n > room // 2:
                room *= 2       # the next move is half a block away: each byte moves a bounded number of times
        if self.buffer is NULL or unread + n > self.capacity or room > self.capacity:
            room = max(room, <Py_ssize_t>MIN_BUFFER)
            while room < unread + n:
                room *= 2
            block = <char *>realloc(self.buffer, <size_t>room)
            if block is NULL:
                raise MemoryError("no memory for a request")
            if self.buffer is NULL:
                memcpy(block, self.input + self.pos, unread)
                self.source = None
                self.pos = 0
                self.size = unread
            self.buffer = block
            self.input = block
            self.capacity = room
        memcpy(self.buffer + self.size, p, n)
        self.size += n
        return 0

    cdef int keep(self) except -1:
        """Copy the unread rest of a fed object, which is then no longer needed; free an oversized buffer."""
        cdef Py_ssize_t unread = self.size - self.pos
        cdef Py_ssize_t room = max(2 * unread, <Py_ssize_t>MIN_BUFFER)
        cdef char *block
        self.count(self.args_size + self.partial_size + self.away)
        if unread == 0:
            self.drop_input()
            return 0
        if self.buffer is not NULL and 2 * room >= self.capacity:
            return 0
        block = <char *>malloc(<size_t>room)
        if block is NULL:
            raise MemoryError("no memory for a request")
        memcpy(block, self.input + self.pos, unread)
        free(self.buffer)
        self.source = None
        self.buffer = block
        self.input = block
        self.capacity = room
        self.pos = 0
        self.size = unread
        return 0

    cdef void count(self, Py_ssize_t size) noexcept:
        """Count the bytes of an unfinished request as used memory."""
        count_object(size - self.counted)
        self.counted = size

    cdef void drop_input(self) noexcept:
        """Drop the input, read or not."""
        free(self.buffer)
        self.buffer = NULL
        self.capacity = 0
        self.source = None
        self.input = NULL
        self.pos = 0
        self.size = 0
        self.scanned = 0

    cdef void reset(self) noexcept:
        """Drop the input and the unfinished request."""
        self.drop_input()
        Py_XDECREF(self.partial)
        self.partial = NULL
        self.partial_size = self.away = 0
        self.args = None
        self.filled = 0
        self.missing = 0
        self.args_size = 0
        self.bulk_len = -1
        self.count(0)

    cdef int fail(self, str text) except -1:
        """Drop everything and raise ProtocolError."""
        self.reset()
        raise ProtocolError(text)

    # --- Requests ---------------------------------------------------------------------------------------------------

    cpdef list next_request(self):
        """The next request as a list of its arguments, [] for an empty request, None if more bytes are needed.

        Raises ProtocolError. O(bytes of the request), however many calls they arrived in.
        """
        cdef int found
        if self.missing == 0:
            if self.input is NULL:
                return None
            if self.input[self.pos] != c'*':
                return self.read_inline()
            found = self.read_count()
            if found == 0:
                if self.pos == self.size:
                    self.drop_input()
                return []
            if found == MORE:
                self.keep()
                return None
        while self.missing:
            if self.bulk_len < 0:
                self.read_plain_arguments()
                if not self.missing:
                    break
                if not self.read_bulk_len():
                    self.keep()
                    return None
            if self.partial is NULL and self.size - self.pos - 2 >= self.bulk_len:
                # The two bytes after an argument are a line end, but are not checked.
                if self.authenticated:
                    self.add(new_argument(self.input + self.pos, self.bulk_len))
                else:
                    # They may include passwords: no words of a stranger are cached.
                    self.add(new_bytes(self.input + self.pos, self.bulk_len))
                self.pos += self.bulk_len + 2
                self.bulk_len = -1
            elif not self.read_partial():
                self.keep()
                return None
        return self.finish()

    cdef int read_plain_arguments(self) except -1:
        """Read arguments as long as they are completely received and have a header of at most four digits.

        That covers nearly all input, so it is one loop over local variables. Anything unusual, valid or not, is left to
        the careful functions: nothing is decided here.
        """
        cdef const char *p = self.input + self.pos
        cdef const char *q
        cdef const char *end = self.input + self.size
        cdef list args = self.args
        cdef Py_ssize_t filled = self.filled
        cdef Py_ssize_t last = min(PyList_GET_SIZE(args), filled + self.missing)
        cdef Py_ssize_t length
        cdef Py_ssize_t total = 0
        cdef unsigned int digit
        # Words of a stranger are not cached: they may include passwords.
        if self.partial is not NULL or not self.authenticated:
            return 0
        while filled < last and end - p >= 8 and p[0] == c'$':
            digit = <unsigned char>p[1] - <unsigned int>c'0'
            if digit > 9:
                break
            length = digit
            q = p + 2
            while q[0] != c'\r' and q < p + 5 and length:
                digit = <unsigned char>q[0] - <unsigned int>c'0'
                if digit > 9:
                    break
                length = 10 * length + digit
                q += 1
            if q[0] != c'\r' or length > self.max_bulk_len or end - q - 4 < length:
                break
            list_set_item(args, filled, find_or_keep(q + 2, length))
            filled += 1
            total += length
            p = q + 4 + length
        if filled != self.filled:
            self.missing -= filled - self.filled
            self.filled = filled
            self.args_size += total
            self.pos = p - self.input
            self.scanned = 0    # left by a header that was incomplete before
        return 0

    cdef list finish(self):
        """Return the finished request."""
        cdef list args = self.args
        self.args = None
        self.filled = 0
        self.args_size = 0
        if self.counted:
            self.count(0)
        if self.pos == self.size:
            self.drop_input()
        if is_http(bytes_data(PyList_GET_ITEM(args, 0))):
            self.fail("")
        return args

    cdef int add(self, PyObject *arg) except -1:
        """Add an argument to the request; its reference moves into the list."""
        self.args_size += bytes_size(arg)
        if self.filled < PyList_GET_SIZE(self.args):
            list_set_item(self.args, self.filled, arg)
        else:
            try:
                list_append(self.args, arg)
            finally:
                Py_XDECREF(arg)
        self.filled += 1
        self.missing -= 1
        return 0

    cdef Py_ssize_t find(self, char wanted, bint stops_at_nul, str too_big) except -2:
        """Offset from `pos` of the next byte `wanted`; -1 if not received: `scanned` is then how far it searched.

        stops_at_nul  Redis searches for some line ends as in a C string: after a NUL it finds none, and waits until the
                      line is too long. `scanned` then stays at the NUL.
        too_big       the error for a line longer than MAX_LINE; None: no limit
        """
        cdef Py_ssize_t unread = self.size - self.pos
        cdef const char *line = self.input + self.pos
        cdef const char *start = line + self.scanned
        cdef const char *unread_end = line + unread
        cdef const char *end = NULL
        cdef const char *nul = NULL
        if start < unread_end:
            if stops_at_nul and start[0] == 0:
                nul = start
            else:
                end = <const char *>memchr(start, wanted, <size_t>(unread_end - start))
                if stops_at_nul:
                    nul = <const char *>memchr(start, 0, <size_t>((end if end is not NULL else unread_end) - start))
        if end is not NULL and nul is NULL:
            return end - line
        if too_big is not None and unread > MAX_LINE:
            self.fail(too_big)
        self.scanned = (nul if nul is not NULL else unread_end) - line
        return -1

    cdef Py_ssize_t find_line_end(self, bint stops_at_nul, str too_big) except -2:
        """As `find`, for a CR followed by another byte."""
        cdef Py_ssize_t end = self.find(c'\r', stops_at_nul, too_big)
        if end >= 0 and end == self.size - self.pos - 1:
            self.scanned = end
            return -1
        return end

    cdef int read_count(self) except -1:
        """Read `*<n>` and start a request: 1; 0 for an empty request; MORE if the line is incomplete."""
        cdef const char *line = self.input + self.pos
        cdef int64_t count = 0
        cdef Py_ssize_t length
        cdef const char *end = short_number(line + 1, self.input + self.size, &count)
        if end is not NULL:
            length = end - line
        else:
            length = self.find_line_end(True, "ERR Protocol error: too big mbulk count string")
            if length < 0:
                return MORE
            if not read_int64(line + 1, <size_t>(length - 1), &count) or count > MAX_COUNT:
                self.fail("ERR Protocol error: invalid multibulk length")
        if count > STRANGER_COUNT and not self.authenticated:
            self.fail("ERR Protocol error: unauthenticated multibulk length")
        self.pos += length + 2
        self.scanned = 0
        if count <= 0:
            return 0
        self.args = PyList_New(count if count <= MAX_SIZED_LIST else 0)
        self.missing = count
        return 1

    cdef bint read_bulk_len(self) except -1:
        """Read `$<n>`; False if the line is incomplete."""
        cdef const char *line = self.input + self.pos
        cdef const char *end = NULL
        cdef int64_t length = 0
        cdef Py_ssize_t line_length
        if self.size - self.pos > 3 and line[0] == c'$':
            end = short_number(line + 1, self.input + self.size, &length)
        if end is not NULL:
            line_length = end - line
        else:
            line_length = self.find_line_end(False, None)  # Redis 8.6 waits for the line end, however long the line is
            if line_length < 0:
                return False
            if line[0] != c'$':
                self.fail(f"ERR Protocol error: expected '$', got '{one_line(line[:1])}'")
            if not read_int64(line + 1, <size_t>(line_length - 1), &length) or length < 0:
                length = -1
        if not 0 <= length <= self.max_bulk_len:
            self.fail("ERR Protocol error: invalid bulk length")
        if length > STRANGER_BULK and not self.authenticated:
            self.fail("ERR Protocol error: unauthenticated bulk length")
        self.pos += line_length + 2
        self.scanned = 0
        self.bulk_len = length
        return True

    cdef bint read_partial(self) except -1:
        """Read more of an incomplete argument; True if that completes it."""
        cdef Py_ssize_t unread = self.size - self.pos
        cdef Py_ssize_t taken
        cdef PyObject *arg
        if self.partial is NULL:
            if self.bulk_len < LONG_BULK or unread < LONG_BULK // 2:
                return False
            self.partial = new_bytes(NULL, min(self.bulk_len, max(2 * unread, <Py_ssize_t>FIRST_ROOM)))
        taken = min(unread, self.bulk_len - self.partial_size)
        self.widen(taken)
        if taken:
            memcpy(bytes_data(self.partial) + self.partial_size, self.input + self.pos, <size_t>taken)
            self.partial_size += taken
            self.pos += taken
        if self.partial_size < self.bulk_len or self.size - self.pos < 2:
            return False
        # The object has grown to exactly bulk_len by now: every size above is capped by it.
        arg = self.partial
        self.partial = NULL
        self.partial_size = 0
        self.pos += 2
        self.bulk_len = -1
        self.add(arg)
        return True

    cdef int widen(self, Py_ssize_t more) except -1:
        """Make room for more of an incomplete argument."""
        if more > bytes_size(self.partial) - self.partial_size:
            try:
                resize_bytes(&self.partial, min(self.bulk_len, 2 * (self.partial_size + more)))
            except MemoryError:
                self.reset()
                raise
        return 0

    cdef list read_inline(self):
        """Read a line that does not start with `*`: an inline command."""
        cdef const char *line = self.input + self.pos
        cdef Py_ssize_t length = self.find(c'\n', True, "ERR Protocol error: too big inline request")
        cdef list words = None
        if length < 0:
            self.keep()
            return None
        self.pos += length + 1
        self.scanned = 0
        if length and line[length - 1] == c'\r':
            length -= 1
        try:
            words = split_line(PyBytes_FromStringAndSize(line, length))
        except ValueError:
            pass
        if words is None:
            self.fail("ERR Protocol error: unbalanced quotes in request")
        if self.pos == self.size:
            self.drop_input()
        if words and is_http(bytes_data(PyList_GET_ITEM(words, 0))):
            self.fail("")
        return words

    # --- Everything else --------------------------------------------------------------------------------------------

    cpdef bytes drain(self):
        """All input that did not become a request; the parser is empty again.

        If it is fed to another parser, that one continues as this one would have. The finished part of an unfinished
        request is encoded again; everything else is unchanged.
        """
        cdef Py_ssize_t i
        parts = []
        if self.missing:
            parts.append(b"*%d\r\n" % (self.filled + self.missing))
            for i in range(self.filled):
                arg = <bytes>PyList_GET_ITEM(self.args, i)
                parts += (b"$%d\r\n" % len(arg), arg, b"\r\n")
            if self.bulk_len >= 0:
                parts.append(b"$%d\r\n" % self.bulk_len)
            if self.partial is not NULL:
                parts.append(PyBytes_FromStringAndSize(bytes_data(self.partial), self.partial_size))
        if self.pos < self.size:
            parts.append(PyBytes_FromStringAndSize(self.input + self.pos, self.size - self.pos))
        self.reset()
        return b"".join(parts)

    def clear(self):
        """Drop all input."""
        self.reset()

    cdef Py_ssize_t memory(self) noexcept:
        """Approximate bytes of memory held, without the parser itself; malloc's overhead is an estimate."""
        cdef Py_ssize_t held = self.capacity + self.args_size + self.partial_size + self.away
        held += self.filled * BYTES_OVERHEAD
        if self.source is not None:
            held += PyBytes_GET_SIZE(self.source)
        return held

    cdef Py_ssize_t unread(self) noexcept:
        return self.size - self.pos + self.partial_size + self.away

    @property
    def buffered(self):
        """Bytes of input that have not become arguments: the query buffer, `qbuf` in CLIENT LIST."""
        return self.unread()

    @property
    def pending_args_size(self):
        """Bytes of the finished arguments of the unfinished request: `argv-mem` in CLIENT LIST, without overhead."""
        return self.args_size

    @property
    def allocated(self):
        """Bytes of memory held, roughly."""
        return self.memory()

    def check_invariants(self):
        """Assert the invariants of the fields stated at the top of this module. Only between calls."""
        assert 0 <= self.pos <= self.size and 0 <= self.scanned <= self.size - self.pos
        assert (self.input is NULL) == (self.pos == self.size)
        if self.buffer is not NULL:
            assert self.input == self.buffer and self.size <= self.capacity and self.source is None
        else:
            assert self.capacity == 0
        if self.source is not None:
            assert self.input == PyBytes_AS_STRING(self.source) and self.size == len(self.source)
        assert (self.args is None) == (self.missing == 0)
        if self.args is None:
            assert self.filled == 0 and self.args_size == 0 and self.bulk_len == -1 and self.partial is NULL
        else:
            sizes = [len(<bytes>PyList_GET_ITEM(self.args, i)) for i in range(self.filled)]
            assert sum(sizes) == self.args_size
            assert len(self.args) == (self.filled if self.filled + self.missing > MAX_SIZED_LIST
                                      else self.filled + self.missing)
        if self.partial is not NULL:
            assert self.bulk_len >= LONG_BULK and self.partial_size <= bytes_size(self.partial) <= self.bulk_len
        else:
            assert self.partial_size == 0
        assert not self.away or self.bulk_len >= LONG_BULK
