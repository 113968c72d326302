# cython: language_level=3, boundscheck=False, wraparound=False
"""Arguments of requests, read by handlers: integers, IDs, option words. No state, no replies."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport INT32_MAX, INT32_MIN, INT64_MAX, int64_t
from libc.string cimport strlen

from streamd import entry_id
from streamd.engine.ids cimport StreamID
from streamd.numbers cimport read_int64
from streamd.errors import CommandError, InvalidIDError, NotIntegerError

__all__ = ["database_index", "integer", "is_option", "parse_timeout", "stream_id", "word"]


cdef bint parse_id(bytes text, StreamID *out, unsigned long long missing_seq=0) except -1:
    """Parse a strict ID into `out`; False when it is not valid. The rule is `entry_id.parse_id`.

    The canonical form, one to nineteen digits on each side, is parsed here; anything else is left to the rule.
    """
    cdef const char *p = PyBytes_AS_STRING(text)
    cdef const char *end = p + PyBytes_GET_SIZE(text)
    cdef const char *start = p
    cdef unsigned long long ms = 0, seq = 0
    while p < end and b'0' <= p[0] <= b'9':
        ms = ms * 10 + <unsigned char>(p[0] - c'0')
        p += 1
    if 0 < p - start <= 19:
        if p == end:
            out.ms = ms
            out.seq = missing_seq
            return True
        if p[0] == b'-':
            p += 1
            start = p
            while p < end and b'0' <= p[0] <= b'9':
                seq = seq * 10 + <unsigned char>(p[0] - c'0')
                p += 1
            if p == end and 0 < p - start <= 19:
                out.ms = ms
                out.seq = seq
                return True
    pair = entry_id.parse_id(text, missing_seq)
    if pair is None:
        return False
    out.ms = pair[0]
    out.seq = pair[1]
    return True


cdef int require_id(bytes text, StreamID *out, unsigned long long missing_seq=0) except -1:
    """As parse_id; raises InvalidIDError."""
    if not parse_id(text, out, missing_seq):
        raise InvalidIDError()
    return 0


cdef bint parse_int64(bytes text, long long *out) noexcept:
    """Read the canonical decimal form of a signed 64-bit integer; False when it is anything else."""
    cdef int64_t value
    if not read_int64(PyBytes_AS_STRING(text), <size_t>PyBytes_GET_SIZE(text), &value):
        return False
    out[0] = value
    return True


cdef long long require_int64(bytes text) except? -1:
    """As parse_int64; raises NotIntegerError."""
    cdef long long value = 0
    if not parse_int64(text, &value):
        raise NotIntegerError()
    return value


cpdef long long parse_timeout(bytes text, long long now_ms) except -1:
    """A timeout in milliseconds, which must end within the range of Unix times; raises CommandError."""
    cdef long long timeout_ms
    if not parse_int64(text, &timeout_ms):
        raise CommandError("ERR timeout is not an integer or out of range")
    if timeout_ms < 0:
        raise CommandError("ERR timeout is negative")
    if timeout_ms > INT64_MAX - now_ms:
        raise CommandError("ERR timeout is out of range")
    return timeout_ms


cdef bint is_word(bytes text, const char *upper) noexcept:
    """Whether `text` equals the upper-case word `upper`, ignoring case."""
    cdef const char *p = PyBytes_AS_STRING(text)
    cdef Py_ssize_t n = PyBytes_GET_SIZE(text)
    cdef Py_ssize_t i
    cdef char c
    if <Py_ssize_t>strlen(upper) != n:
        return False
    for i in range(n):
        c = p[i]
        if b'a' <= c <= b'z':
            c -= 32
        if c != upper[i]:
            return False
    return True


def integer(bytes text not None):
    """The signed 64-bit integer whose canonical form is `text`; raises NotIntegerError."""
    return require_int64(text)


def word(bytes text not None):
    """An option word in upper case, for comparison."""
    return text.upper()


def stream_id(bytes text not None, unsigned long long missing_seq=0):
    """A strict entry ID as `(ms, seq)`; raises InvalidIDError.

    missing_seq  the sequence number of an incomplete ID `<ms>`
    """
    cdef StreamID found
    require_id(text, &found, missing_seq)
    return (found.ms, found.seq)


def is_option(bytes text not None, bytes upper not None):
    """Whether `text` is the option word `upper`, ignoring case; `upper` is in upper case."""
    return is_word(text, PyBytes_AS_STRING(upper))


def database_index(bytes text not None):
    """The index of a database, which may not exist."""
    cdef long long index = integer(text)
    if not INT32_MIN <= index <= INT32_MAX:
        raise CommandError(f"ERR value is out of range, value must between {INT32_MIN} and {INT32_MAX}")
    return index
