# cython: language_level=3
"""How long a client waits, as the commands that pop take it: in seconds, with a fraction.

The timeouts of streams are whole milliseconds: `args.parse_timeout`.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport INT64_MAX

from streamd.errors import CommandError

__all__ = []

cdef extern from "<math.h>" nogil:
    long double ceill(long double value)
    bint isnan(long double value)

cdef extern from "<stdlib.h>" nogil:
    long double strtold(const char *text, char **end)

cdef enum:
    LONGEST = 255       # bytes of a number that Redis reads


cdef long long parse_seconds(bytes text, long long now_ms) except -1:
    """The timeout in milliseconds, rounded up; 0: forever. It must end within the range of Unix times; CommandError."""
    cdef const char *start = PyBytes_AS_STRING(text)
    cdef char *end
    cdef long double value
    cdef Py_ssize_t size = PyBytes_GET_SIZE(text)
    if size == 0 or size > LONGEST or start[0] in b" \t\n\v\f\r":
        raise CommandError("ERR timeout is not a float or out of range")
    value = strtold(start, &end)
    if end != start + size or isnan(value):
        raise CommandError("ERR timeout is not a float or out of range")
    value *= 1000
    if value > <long double>INT64_MAX:
        raise CommandError("ERR timeout is out of range")
    value = ceill(value)
    if value < 0:
        raise CommandError("ERR timeout is negative")
    if value > <long double>(INT64_MAX - now_ms):
        raise CommandError("ERR timeout is out of range")
    return <long long>value
