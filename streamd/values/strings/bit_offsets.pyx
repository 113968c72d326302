# cython: language_level=3, boundscheck=False, wraparound=False
"""Offsets of bits, as the commands on bitmaps and on fields of bits accept them."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport INT64_MAX, int64_t

from streamd.core.context cimport Context
from streamd.errors import CommandError
from streamd.numbers cimport read_int64

__all__: list = []

cdef enum:
    ALWAYS_ALLOWED = 1 << 20    # bytes: the least that proto-max-bulk-len may be set to


cdef int64_t require_bit_offset(Context ctx, bytes text, int width) except -1:
    """The offset of a bit; raises CommandError when it is no offset, or when the string would become too long.

    width  of a field in bits: `#3` is the fourth field of that width. 0: single bits, which are not numbered so
    """
    cdef const char *p = PyBytes_AS_STRING(text)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(text)
    cdef int64_t number = 0
    cdef int64_t factor = 1
    if width and size and p[0] == b'#':
        p += 1
        size -= 1
        factor = width
    if (
        not read_int64(p, <size_t>size, &number) or not 0 <= number <= INT64_MAX // factor
        or (number * factor >> 3 >= ALWAYS_ALLOWED and is_too_far(ctx, number * factor >> 3))
    ):
        raise CommandError("ERR bit offset is not an integer or out of range")
    return number * factor


cdef bint is_too_far(Context ctx, int64_t byte) except -1:
    """Whether a string may not be so long; what a primary or a file asks for is done."""
    return not ctx.is_replaying and byte >= ctx.config.proto_max_bulk_len
