# cython: language_level=3, boundscheck=False, wraparound=False
"""Slot: one key of a database, with its value, expiry and accesses."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t

from streamd.numbers cimport read_int64

__all__ = ["ACCESS_MODES", "ENCODING_BY_LENGTH", "ENCODING_BY_VALUE", "ENCODING_RAW", "Slot"]

cdef enum:
    EMBEDDED_MAX = 41   # bytes of key and string together that Redis 8.6 keeps in one block ("embstr")

ENCODING_BY_VALUE = HINT_BY_VALUE
ENCODING_BY_LENGTH = HINT_BY_LENGTH
ENCODING_RAW = HINT_RAW

ACCESS_MODES = {"time": ACCESS_TIME, "frequency": ACCESS_FREQUENCY, "changes": ACCESS_CHANGES}
"""AccessMode, for Python."""


cdef bint is_integer(bytes text) noexcept:
    """Whether a string reads as a signed 64-bit integer in canonical form."""
    cdef int64_t value
    return read_int64(PyBytes_AS_STRING(text), <size_t>PyBytes_GET_SIZE(text), &value)


@cython.final
@cython.no_gc
cdef class Slot:
    """One key of a database with its value, expiry and accesses. Read-only for Python; owned by its database."""

    def __cinit__(self):
        self.expire_at_ms = -1
        self.deadline_at = -1
        self.uses = NEW_USES

    @property
    def encoding(self):
        """How Redis would store the value, as OBJECT ENCODING says it."""
        if type(self.value) is not bytes:
            return b"stream"
        if self.encoding_hint == HINT_RAW:
            return b"raw"
        if self.encoding_hint == HINT_BY_VALUE and is_integer(self.value):
            return b"int"
        return b"embstr" if PyBytes_GET_SIZE(self.key) + PyBytes_GET_SIZE(self.value) <= EMBEDDED_MAX else b"raw"
