# cython: language_level=3, boundscheck=False, wraparound=False
"""AofReader: walks the commands of one append-only file, and reports exactly where it becomes invalid.

    #TS:1700000000\\r\\n                                  an annotation, skipped (one line, at most 1023 bytes)
    *1 MULTI  *5 XADD s 1-1 f v  *3 XACK s g 1-1  *1 EXEC     a group: run when its EXEC has been read, or not at all
    *5 XADD s 1-2 f v                                     a command

`replay` hands each command to a callable; that is the loop that loads a file, so it is compiled, and repeated words
are the same objects. `next_command` returns the commands one by one, with MULTI and EXEC, for checkers.

Two faults are distinguished (AofFault.is_cut): the file ends too early, as after a crash during a write; or its bytes
cannot be part of a command. `whole` and `valid` describe what comes before: up to `whole` every command is complete,
and `valid` is where to truncate the file, before a MULTI whose EXEC is missing.

A command is what Redis's server accepts as one: numbers may be followed by other characters, and the two bytes after an
argument are ignored. `strict` checks both, as Redis's checker does, and refuses MULTI inside MULTI, and EXEC without
MULTI. One difference: an annotation without its line end counts as cut off. Redis accepts it, and what it then appends
becomes part of that line.
"""

cimport cython
from cpython.buffer cimport PyBUF_WRITE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_New
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF
from libc.stdlib cimport free, realloc
from libc.string cimport memchr, memmove

from streamd.errors import CommandError, StreamdError, UnknownCommandError
from streamd.protocol.request cimport new_argument

__all__ = ["STATE_PREFIX", "AofFault", "AofReader"]

cdef extern from "<strings.h>" nogil:
    int strncasecmp(const char *a, const char *b, size_t n)

cdef extern from "Python.h":
    void list_set_item "PyList_SET_ITEM"(list held, Py_ssize_t i, PyObject *item)     # steals the reference
    int list_append "PyList_Append"(list held, PyObject *item) except -1
    object PyMemoryView_FromMemory(char *mem, Py_ssize_t size, int flags)

cdef enum:
    MAX_LINE = 1023             # bytes that Redis reads as one line
    READ_SIZE = 1 << 20         # bytes asked for at a time
    MAX_SIZED_LIST = 64         # a longer list of arguments grows as they are read

STATE_PREFIX = b"#STREAMD:"
"""Annotations with this prefix hold what no command can express; see command_writer. Redis skips all annotations."""


class AofFault(StreamdError):
    """The bytes at `offset` cannot be read.

    offset    of the wrong bytes, or of the end of the file
    expected  what should be there
    found     what is there, at most 16 bytes; empty at the end
    is_cut    the file ends too early; otherwise its content is wrong
    """

    def __init__(self, offset, expected, found, is_cut):
        there = "the end of the file" if is_cut or not found else repr(found)[1:]
        super().__init__(f"at offset {offset}: expected {expected}, found {there}")
        self.offset = offset
        self.expected = expected
        self.found = found
        self.is_cut = is_cut


cdef inline bint is_command(list args, const char *word, Py_ssize_t n) noexcept:
    """Whether a command is the given word, in any case."""
    cdef PyObject *name = <PyObject *>args[0]
    return PyBytes_GET_SIZE(<object>name) == n and strncasecmp(PyBytes_AS_STRING(<object>name), word, <size_t>n) == 0


@cython.final
cdef class AofReader:
    """The commands of a file.

    file    an unbuffered binary file, or anything with readinto(view); read from its current position
    size    bytes of the whole file
    offset  the current position of the file
    strict  see the head of this module
    """

    def __cinit__(self, file, long long size, long long offset=0, bint strict=False):
        self.file = file
        self.size = size
        self.strict = strict
        self.base = self.whole = self.valid = offset
        self.multi_at = self.stamp_s = -1

    def __dealloc__(self):
        free(self.buffer)

    def __repr__(self):
        return f"<AofReader at {self.whole} of {self.size}>"

    # --- Bytes ------------------------------------------------------------------------------------------------------

    cdef Py_ssize_t fill(self, Py_ssize_t wanted) except -1:
        """Read until the buffer has `wanted` bytes from `start` on; returns how many, fewer only at end of file.

        Offsets from `start` stay valid; pointers do not.
        """
        cdef Py_ssize_t room = self.capacity
        cdef Py_ssize_t got
        cdef char *block
        while self.filled - self.start < wanted:
            if self.base + self.filled >= self.size:
                break
            if self.start and self.capacity - self.start < max(wanted, <Py_ssize_t>READ_SIZE):
                memmove(self.buffer, self.buffer + self.start, <size_t>(self.filled - self.start))
                self.base += self.start
                self.filled -= self.start
                self.start = 0
            # Room for the rest of the file, or for what is wanted, is enough: announced lengths may be wrong.
            room = max(self.capacity, <Py_ssize_t>min(<long long>2 * READ_SIZE, self.size - self.base + 1))
            while room < self.start + wanted and self.base + room < self.size:
                room *= 2
            if room > self.capacity:
                block = <char *>realloc(self.buffer, <size_t>room)
                if block is NULL:
                    raise MemoryError("no memory to read the append-only file")
                self.buffer = block
                self.capacity = room
            got = self.file.readinto(
                PyMemoryView_FromMemory(self.buffer + self.filled, self.capacity - self.filled, PyBUF_WRITE)
            )
            if not got:
                self.size = self.base + self.filled      # it has shrunk since its size was determined
                break
            self.filled += got
        return self.filled - self.start

    cdef Py_ssize_t find_line(self, Py_ssize_t at) except -1:
        """Where the line that starts at `at` (from `start`) ends, its line end included; `at` at the end of the file.

        Without a line end it is cut off at MAX_LINE, as Redis reads it, or at the end of the file.
        """
        cdef Py_ssize_t there = self.filled - self.start
        cdef const char *line
        cdef const char *end
        if there - at < MAX_LINE:
            there = self.fill(at + MAX_LINE)
        if there <= at:
            return at
        there = min(there - at, <Py_ssize_t>MAX_LINE)
        line = self.buffer + self.start + at
        end = <const char *>memchr(line, c'\n', <size_t>there)
        return at + (there if end is NULL else end - line + 1)

    cdef long long read_number(self, Py_ssize_t at, Py_ssize_t end, bint *canonical) noexcept:
        """The number that starts at `at` (from `start`), before `end`, as read by C's strtol.

        canonical  whether it is digits without leading zeros, followed by CR LF and nothing else
        """
        cdef const char *p = self.buffer + self.start + at
        cdef const char *stop = self.buffer + self.start + end
        cdef const char *digits
        cdef bint negative = False
        cdef long long value = 0
        canonical[0] = False
        while p < stop and (p[0] == c' ' or c'\t' <= p[0] <= c'\r'):
            p += 1
        if p < stop and (p[0] == c'-' or p[0] == c'+'):
            negative = p[0] == c'-'
            p += 1
        digits = p
        while p < stop and c'0' <= p[0] <= c'9':
            if value < (<long long>1 << 58):
                value = value * 10 + (p[0] - c'0')
            p += 1
        canonical[0] = (
            p == stop - 2 and p[0] == c'\r' and p[1] == c'\n' and digits == self.buffer + self.start + at and p > digits
            and (digits[0] != c'0' or p == digits + 1)
        )
        return -value if negative else value

    cdef bytes shown(self, Py_ssize_t at):
        """A few bytes at `at` (from `start`)."""
        cdef Py_ssize_t there = self.fill(at + 16) - at
        if there <= 0:
            return b""
        return PyBytes_FromStringAndSize(self.buffer + self.start + at, min(there, <Py_ssize_t>16))

    cdef int fail(self, Py_ssize_t at, str expected, bint is_cut=False) except -1:
        """Raise the fault for the bytes at `at` (from `start`); is_cut: for the end of the file."""
        if is_cut:
            raise AofFault(self.size, expected, b"", True)
        raise AofFault(self.base + self.start + at, expected, self.shown(at), False)

    # --- Commands ---------------------------------------------------------------------------------------------------

    cdef list read(self):
        """The next command; None at the end. Annotations are skipped, except those that `replay` acts on: []."""
        cdef Py_ssize_t end
        cdef char first
        while True:
            end = self.find_line(0)
            if end == 0:
                return None
            first = self.buffer[self.start]
            if first == c'*':
                return self.read_command(end)
            if first != c'#':
                self.fail(0, "'*' or '#'")
            if self.read_annotation(end):
                return []

    cdef int read_annotation(self, Py_ssize_t line_end) except -1:
        """Skip an annotation; 1 when it holds streamd's state: it then remains the next thing to read."""
        cdef const char *line = self.buffer + self.start
        cdef bint canonical
        if line[line_end - 1] != c'\n':
            if self.base + self.start + line_end >= self.size:
                self.fail(line_end, "the end of an annotation", is_cut=True)
            if self.strict:
                self.fail(line_end, "the end of an annotation")
        if line_end > 4 and strncasecmp(line, b"#TS:", 4) == 0:
            self.stamp_s = self.read_number(4, line_end, &canonical)
        elif line_end > 9 and strncasecmp(line, b"#STREAMD:", 9) == 0 and not self.strict:
            return 1
        self.pass_over(line_end)
        return 0

    cdef int pass_over(self, Py_ssize_t n) except -1:
        """Advance by n bytes, which are complete."""
        self.start += n
        self.whole = self.base + self.start
        if self.group is None and self.multi_at < 0:
            self.valid = self.whole
        return 0

    cdef list read_command(self, Py_ssize_t line_end):
        """Read a command whose first line is in the buffer."""
        cdef bint canonical
        cdef long long count
        cdef long long length
        cdef long long i
        cdef Py_ssize_t at = line_end
        cdef Py_ssize_t end
        cdef bint is_sized
        cdef PyObject *arg
        cdef list args
        if line_end == 1 and self.base + self.start + 1 >= self.size:
            self.fail(1, "the number of arguments", is_cut=True)
        count = self.read_number(1, line_end, &canonical)
        if self.strict and not canonical and self.base + self.start + line_end >= self.size:
            self.fail(line_end, "the number of arguments and a line end", is_cut=True)
        if count < 1 or count > 2147483647 or (self.strict and not canonical):
            self.fail(1, "the number of arguments")
        is_sized = count <= MAX_SIZED_LIST
        args = PyList_New(count if is_sized else 0)
        for i in range(count):
            end = self.find_line(at)
            if end == at:
                self.fail(at, f"argument {i + 1} of {count}", is_cut=True)
            if self.buffer[self.start + at] != c'$':
                self.fail(at, f"'$' and the length of argument {i + 1} of {count}")
            length = self.read_number(at + 1, end, &canonical)
            if self.strict and not canonical and self.base + self.start + end >= self.size:
                self.fail(end, "the length of an argument and a line end", is_cut=True)
            if length < 0 or (self.strict and not canonical):
                self.fail(at + 1, f"the length of argument {i + 1} of {count}")
            at = end
            # No overflow: whatever was announced, the file has no more than that.
            if length > self.size - self.base - self.start - at - 2:
                self.fail(at, f"{length} bytes and a line end", is_cut=True)
            if self.fill(at + <Py_ssize_t>length + 2) < at + <Py_ssize_t>length + 2:
                self.fail(at, f"{length} bytes and a line end", is_cut=True)
            arg = new_argument(self.buffer + self.start + at, <Py_ssize_t>length)
            if is_sized:
                list_set_item(args, <Py_ssize_t>i, arg)
            else:
                try:
                    list_append(args, arg)
                finally:
                    Py_DECREF(<object>arg)
            at += <Py_ssize_t>length + 2
            if self.strict and (
                self.buffer[self.start + at - 2] != c'\r' or self.buffer[self.start + at - 1] != c'\n'
            ):
                self.fail(at - 2, "a line end")
        self.note_group(args)
        self.start += at
        self.whole = self.base + self.start
        self.commands += 1
        return args

    cdef int note_group(self, list args) except -1:
        """Whether a command starts or ends a group; `strict`: raise the fault if it cannot."""
        if is_command(args, b"MULTI", 5):
            if self.multi_at >= 0:
                if self.strict:
                    self.fail(0, "no MULTI inside MULTI")
            else:
                self.multi_at = self.base + self.start
        elif is_command(args, b"EXEC", 4):
            if self.multi_at < 0 and self.strict:
                self.fail(0, "no EXEC without MULTI")
            self.multi_at = -1
        return 0

    def next_command(self):
        """The next command as a list of bytes, MULTI and EXEC too; None at the end. Raises AofFault, OSError."""
        cdef list args = self.read()
        while args is not None and not args:
            self.pass_over(self.find_line(0))
            args = self.read()
        if args is None and self.multi_at >= 0:
            self.fail(0, "EXEC", is_cut=True)
        if self.multi_at < 0:
            self.valid = self.whole
        return args

    def replay(self, apply not None, long long limit, restore=None, failed=None, knows=None):
        """Pass at most about `limit` commands to `apply`; False when the end of the file has been reached.

        apply    called with the arguments; a group is passed on when its EXEC has been read, without MULTI and EXEC.
                 CommandErrors are ignored, as in Redis, except UnknownCommandError
        restore  called for annotations with streamd's state, with the text after the prefix and the last command,
                 which is empty at the start of the file
        failed   called with the arguments and the CommandError when a command fails
        knows    called with the commands of a group when they are read; raises UnknownCommandError when there is no
                 such command. Otherwise damage in an EXEC would pass for a group whose end is missing
        Raises AofFault, OSError, UnknownCommandError and whatever else `apply` raises. After AofFault, `whole` and
        `valid` tell where; no part of an open group has been passed on.
        """
        cdef list args
        cdef list each
        cdef Py_ssize_t end
        while limit > 0:
            args = self.read()
            if args is None:
                if self.group is not None:
                    self.fail(0, "EXEC", is_cut=True)
                self.valid = self.whole
                return False
            if not args:
                end = self.find_line(0)
                if restore is not None and self.group is None:
                    text = PyBytes_FromStringAndSize(self.buffer + self.start + 9, end - 9)
                    restore(text.rstrip(b"\r\n"), [] if self.last is None else self.last)
                self.pass_over(end)
                continue
            if self.multi_at >= 0:
                if self.group is None:
                    self.group = []
                elif not is_command(args, b"MULTI", 5):
                    if knows is not None:
                        knows(args)
                    self.group.append(args)
                continue
            limit -= 1
            if self.group is not None:
                each_group = self.group
                self.group = None
                limit -= len(each_group)
                for each in each_group:
                    self.run(apply, each, failed)
            elif not is_command(args, b"EXEC", 4):
                self.run(apply, args, failed)
            self.valid = self.whole
        return True

    cdef int run(self, object apply, list args, object failed) except -1:
        """Pass one command to `apply`."""
        try:
            apply(args)
        except UnknownCommandError:
            raise
        except CommandError as error:
            if failed is not None:
                failed(args, error)
        self.last = args
        return 0

    def check_invariants(self):
        """Assert the invariants of the fields."""
        assert 0 <= self.start <= self.filled <= self.capacity
        assert self.valid <= self.whole <= self.size
        assert self.base + self.filled <= self.size
