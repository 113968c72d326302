# cython: language_level=3, boundscheck=False, wraparound=False
"""Listpacks as `bytes`."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from streamd.engine.listpack cimport (
    LP_END, LP_HEADER, LP_ROOM, LpValue, lp_bytes, lp_convert, lp_get, lp_previous, lp_put, lp_replace_int,
    lp_set_header, lp_skip, lp_validate,
)
from streamd.heap cimport free, malloc
from streamd.numbers cimport read_int64

__all__ = ["convert", "decode", "decode_backwards", "encode", "replace_int", "validate"]


def encode(list values not None):
    """The listpack of a list of bytes. O(bytes)."""
    cdef size_t room = LP_HEADER + 1
    cdef bytes value, done
    cdef uint8_t *lp
    cdef uint8_t *p
    for value in values:
        room += <size_t>PyBytes_GET_SIZE(value) + LP_ROOM
    if room > <size_t>0xFFFFFFFF:
        raise ValueError("a listpack has at most 4 GiB")
    lp = <uint8_t *>malloc(room)
    if lp is NULL:
        raise MemoryError
    p = lp + LP_HEADER
    for value in values:
        p = lp_put(p, <const uint8_t *>PyBytes_AS_STRING(value), <size_t>PyBytes_GET_SIZE(value))
    p[0] = LP_END
    lp_set_header(lp, p - lp + 1, <uint64_t>len(values))
    try:
        done = PyBytes_FromStringAndSize(<char *>lp, p - lp + 1)
    finally:
        free(lp)
    return done


def decode(bytes listpack not None):
    """The elements of a listpack as bytes, integers as decimal; raises ValueError when the bytes are not a listpack."""
    cdef const uint8_t *lp = <const uint8_t *>PyBytes_AS_STRING(listpack)
    cdef const uint8_t *p = lp + LP_HEADER
    cdef size_t offset = 0
    cdef LpValue value
    cdef const char *reason = lp_validate(lp, <size_t>PyBytes_GET_SIZE(listpack), &offset)
    cdef list values = []
    if reason is not NULL:
        raise ValueError(f"{reason.decode()} at offset {offset}")
    while p[0] != LP_END:
        p = lp_get(p, &value)
        values.append(b"%d" % value.number if value.data is NULL else value.data[:value.length])
    return values


def decode_backwards(bytes listpack not None):
    """Like `decode`, but walked from the right; the last element comes first."""
    cdef const uint8_t *lp = <const uint8_t *>PyBytes_AS_STRING(listpack)
    cdef const uint8_t *p
    cdef LpValue value
    cdef list values = []
    decode(listpack)
    p = lp + lp_bytes(lp) - 1
    while p > lp + LP_HEADER:
        p = lp_previous(p)
        lp_get(p, &value)
        values.append(b"%d" % value.number if value.data is NULL else value.data[:value.length])
    return values


def replace_int(bytes listpack not None, Py_ssize_t index, int64_t value):
    """The listpack with the integer `value` in place of the integer at `index`."""
    cdef size_t size = <size_t>PyBytes_GET_SIZE(listpack)
    cdef uint8_t *lp
    cdef const uint8_t *p
    cdef int64_t old
    cdef Py_ssize_t _i
    cdef list values = decode(listpack)
    cdef bytes text = values[index]
    if not read_int64(PyBytes_AS_STRING(text), <size_t>PyBytes_GET_SIZE(text), &old):
        raise ValueError("no integer there")
    lp = <uint8_t *>malloc(size + LP_ROOM)
    if lp is NULL:
        raise MemoryError
    memcpy(lp, PyBytes_AS_STRING(listpack), size)
    p = lp + LP_HEADER
    for _i in range(index % len(values)):
        p = lp_skip(p)
    lp_replace_int(lp, <uint8_t *>p, value)
    try:
        return PyBytes_FromStringAndSize(<char *>lp, <Py_ssize_t>lp_bytes(lp))
    finally:
        free(lp)


def convert(bytes listpack not None, *, bint narrow):
    """The listpack with back-lengths as Redis 8.8 writes them (narrow), or as older releases do. O(bytes).

    Input that needs no change, or is not a listpack, is returned unchanged.
    """
    cdef size_t size
    cdef uint8_t *converted
    cdef int done = 0
    if len(listpack) > LP_HEADER:
        done = lp_convert(
            <const uint8_t *>PyBytes_AS_STRING(listpack), <size_t>PyBytes_GET_SIZE(listpack), narrow, &converted, &size)
    if done < 0:
        raise MemoryError
    if done == 0:
        return listpack
    try:
        return PyBytes_FromStringAndSize(<char *>converted, <Py_ssize_t>size)
    finally:
        free(converted)


def validate(bytes listpack not None):
    """None when the bytes are a listpack, otherwise (offset, reason) of the first fault. O(bytes)."""
    cdef size_t offset = 0
    cdef const char *reason = lp_validate(
        <const uint8_t *>PyBytes_AS_STRING(listpack), <size_t>PyBytes_GET_SIZE(listpack), &offset)
    return None if reason is NULL else (offset, reason.decode())
