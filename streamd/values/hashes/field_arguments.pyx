# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The arguments of the commands that expire fields: which fields, and what for. No state, no replies.

Three dialects, whose errors differ: HTTL and its like want FIELDS at a fixed place; HEXPIRE has its time at one, the
rest in any order; HGETEX and HSETEX have all in any order. Order of checks and texts: Redis 8.6, as seen on a running
server.
"""

from cpython.list cimport PyList_GET_SIZE
from libc.stdint cimport INT32_MAX, int64_t
from libc.string cimport memset

from streamd.core.args cimport is_word, parse_int64, require_int64
from streamd.values.hashes.pairs cimport NEVER

from streamd.errors import CommandError, invalid_expire_time, printable

__all__ = []

cdef int64_t LATEST_MS = (<int64_t>1 << 46) - 1

cdef object WRONG_NUMBER = "ERR wrong number of arguments"


cdef int begin(FieldOptions *out) except -1:
    memset(out, 0, sizeof(FieldOptions))
    out.step = 1
    out.at_ms = NEVER
    return 0


cdef int parse_plain(list args, FieldOptions *out) except -1:
    """Read `FIELDS n field ...` behind the key."""
    cdef long long count
    begin(out)
    if not is_word(<bytes>args[2], b"FIELDS"):
        raise CommandError("ERR Mandatory argument FIELDS is missing or not at the right position")
    if not parse_int64(<bytes>args[3], &count) or count < 1:
        raise CommandError("ERR Number of fields must be a positive integer")
    if count != PyList_GET_SIZE(args) - 4:
        raise CommandError("ERR The `numfields` parameter must match the number of arguments")
    out.first = 4
    out.count = <Py_ssize_t>count
    return 0


cdef int64_t require_time(bytes text, long long base_ms, int scale, str command_name) except -1:
    """An expiry in seconds or ms from `base_ms` on, as Unix time in ms."""
    cdef long long time = require_int64(text)
    if time < 0:
        raise CommandError("ERR invalid expire time, must be >= 0")
    if time > (LATEST_MS - base_ms) // scale:
        raise CommandError(invalid_expire_time(command_name))
    return base_ms + time * scale


cdef Py_ssize_t take_fields(list args, Py_ssize_t at, str wrong_count, str cut_off, FieldOptions *out) except -1:
    """Read `n field ...` behind the FIELDS at `at`; returns the index of what follows."""
    cdef long long count
    if out.first:
        raise CommandError("ERR FIELDS keyword specified multiple times")
    if at + 2 >= PyList_GET_SIZE(args):
        raise CommandError(cut_off)
    if not parse_int64(<bytes>args[at + 1], &count) or not 1 <= count <= INT32_MAX:
        raise CommandError(wrong_count)
    out.first = at + 2
    out.count = <Py_ssize_t>count
    if out.first + out.count * out.step > PyList_GET_SIZE(args):
        raise CommandError(WRONG_NUMBER)
    return out.first + out.count * out.step


cdef int parse_hexpire(list args, long long base_ms, int scale, str command_name, FieldOptions *out) except -1:
    cdef Py_ssize_t at = 3
    cdef FieldCondition condition
    cdef bint is_ambiguous = False
    cdef bytes text
    begin(out)
    out.at_ms = require_time(<bytes>args[2], base_ms, scale, command_name)
    while at < PyList_GET_SIZE(args):
        text = <bytes>args[at]
        if is_word(text, b"FIELDS"):
            at = take_fields(
                args, at, "ERR Parameter `numFields` should be greater than 0",
                "ERR FIELDS requires at least numfields and one field argument", out,
            )
            continue
        if is_word(text, b"NX"):
            condition = IF_MISSING
        elif is_word(text, b"XX"):
            condition = IF_PRESENT
        elif is_word(text, b"GT"):
            condition = IF_GREATER
        elif is_word(text, b"LT"):
            condition = IF_LESS
        else:
            raise CommandError(f"ERR unknown argument: {printable(text)}")
        is_ambiguous |= out.condition != IF_ANY and out.condition != condition
        out.condition = condition
        at += 1
    if not out.first:
        raise CommandError("ERR missing FIELDS argument")
    if is_ambiguous:
        raise CommandError("ERR Multiple condition flags specified")
    return 0


cdef int unit_of(bytes text) noexcept:
    """1000 for EX and EXAT, 1 for PX and PXAT, negative if the time is absolute; 0: another word."""
    if is_word(text, b"EX"):
        return 1000
    if is_word(text, b"PX"):
        return 1
    if is_word(text, b"EXAT"):
        return -1000
    return -1 if is_word(text, b"PXAT") else 0


cdef int parse_mixed(list args, long long now_ms, str command_name, str last, FieldOptions *out) except -1:
    """Read the arguments behind the key, in any order.

    last  the word besides the times: PERSIST or KEEPTTL
    """
    cdef Py_ssize_t at = 2
    cdef bint has_expiry = False, is_last, is_condition
    cdef int unit
    cdef bytes text
    while at < PyList_GET_SIZE(args):
        text = <bytes>args[at]
        unit = unit_of(text)
        if is_word(text, b"FIELDS"):
            at = take_fields(args, at, "ERR invalid number of fields", WRONG_NUMBER, out)
            continue
        is_last = is_word(text, b"PERSIST") or is_word(text, b"KEEPTTL")
        is_condition = is_word(text, b"FNX") or is_word(text, b"FXX")
        if (is_last and not is_word(text, last.encode())) or (is_condition and out.step == 1):
            raise CommandError("ERR unknown argument")
        if unit or is_last:
            if has_expiry:
                raise CommandError(f"ERR Only one of EX, PX, EXAT, PXAT or {last} arguments can be specified")
            has_expiry = True
            if unit:
                at += 1
                if at == PyList_GET_SIZE(args):
                    raise CommandError("ERR missing expire time")
                out.time_at = at
                out.at_ms = require_time(
                    <bytes>args[at], now_ms if unit > 0 else 0, unit if unit > 0 else -unit, command_name)
            out.keeps = is_last and last == "KEEPTTL"
        elif is_condition:
            if out.condition != IF_ANY:
                raise CommandError("ERR Only one of FXX or FNX arguments can be specified")
            out.condition = IF_MISSING if is_word(text, b"FNX") else IF_PRESENT
        else:
            raise CommandError(f"ERR unknown argument: {printable(text)}")
        at += 1
    if not out.first:
        raise CommandError("ERR missing FIELDS argument")
    if not has_expiry and out.step == 1:
        out.keeps = True
    return 0


cdef int parse_hgetex(list args, long long now_ms, FieldOptions *out) except -1:
    begin(out)
    return parse_mixed(args, now_ms, "hgetex", "PERSIST", out)


cdef int parse_hsetex(list args, long long now_ms, FieldOptions *out) except -1:
    begin(out)
    out.step = 2
    return parse_mixed(args, now_ms, "hsetex", "KEEPTTL", out)
