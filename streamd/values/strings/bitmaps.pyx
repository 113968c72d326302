# cython: language_level=3, boundscheck=False, wraparound=False
"""SETBIT, GETBIT, BITCOUNT, BITPOS and BITOP: strings as rows of bits.

Behaviour: Redis 8.6, as seen on a running server.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t

from streamd.core.args cimport is_word, parse_int64, require_int64
from streamd.core.context cimport Context
from streamd.core.spec import KeysAt, block, command, integer, key, multiple, oneof, optional, token
from streamd.errors import CommandError, OptionSyntaxError
from streamd.keyspace.database cimport Database
from streamd.keyspace.key_record cimport KeyRecord
from streamd.keyspace.listener cimport EVENT_STRING
from streamd.values.strings.bit_offsets cimport require_bit_offset
from streamd.values.strings.bits cimport (
    BITS_AND, BITS_ANDOR, BITS_DIFF, BITS_DIFF1, BITS_NOT, BITS_ONE, BITS_OR, BITS_XOR, BitOperation, combine,
    count_bits, find_bit, get_field, set_field,
)
from streamd.values.strings.stored cimport (
    find_string, find_string_for_write, mark_raw, open_string, string_written, written_bytes,
)
from streamd.values.strings.string_type cimport HINT_RAW

__all__ = ["bitcount", "bitop", "bitpos", "getbit", "setbit"]


cdef inline const uint8_t *data_of(bytes string) noexcept:
    return <const uint8_t *>PyBytes_AS_STRING(string)


# --- Single bits ------------------------------------------------------------------------------------------------------


@command(
    "SETBIT", arity=4, group="bitmap", flags="write denyoom", keys=KeysAt(1, flags="RW access update"), since="2.2.0",
    summary="Sets or clears a bit of the string that a key holds, and returns what it was; the string grows as needed.",
    args=(key(), integer("offset"), integer("value")),
)
def setbit(Context ctx not None, list args not None):
    cdef Database db = ctx.db
    cdef bytes name = <bytes>args[1]
    cdef int64_t at = require_bit_offset(ctx, <bytes>args[2], 0)
    cdef long long value
    cdef bint old = False
    cdef bytes string
    cdef KeyRecord *record
    if not parse_int64(<bytes>args[3], &value) or not 0 <= value <= 1:
        raise CommandError("ERR bit is not an integer or out of range")
    string = find_string_for_write(db, name)
    if string is not None and at >> 3 < PyBytes_GET_SIZE(string):
        old = get_field(data_of(string), PyBytes_GET_SIZE(string), at, 1)
        if old == value:
            mark_raw(db, name)
            ctx.reply.integer(old)
            return
    string = None       # so that it can be written in place
    record = open_string(db, name, (at >> 3) + 1)
    set_field(<uint8_t *>written_bytes(record), at, 1, value)
    string_written(db, record, b"setbit")
    ctx.dirty += 1
    ctx.reply.integer(old)


@command(
    "GETBIT", arity=3, group="bitmap", flags="readonly fast", keys=KeysAt(1), since="2.2.0",
    summary="Returns a bit of the string that a key holds.", args=(key(), integer("offset")),
)
def getbit(Context ctx not None, list args not None):
    cdef int64_t at = require_bit_offset(ctx, <bytes>args[2], 0)
    cdef bytes string = find_string(ctx.db, <bytes>args[1])
    ctx.reply.integer(0 if string is None else <int64_t>get_field(data_of(string), PyBytes_GET_SIZE(string), at, 1))


# --- Ranges -----------------------------------------------------------------------------------------------------------


cdef bint counts_in_bits(bytes unit) except -1:
    """Whether the unit of a range is BIT, not BYTE."""
    if is_word(unit, "BIT"):
        return True
    if is_word(unit, "BYTE"):
        return False
    raise OptionSyntaxError


cdef bint clip(Py_ssize_t size, bint is_in_bits, int64_t *start, int64_t *end) noexcept:
    """Turn a range into one of bits within a string of `size` bytes; False when it is empty.

    Negative positions count from the end; those before the first byte are treated as the first.
    """
    cdef int64_t total = size << 3 if is_in_bits else size
    if start[0] < 0:
        start[0] = max(0, total + start[0])
    if end[0] < 0:
        end[0] = max(0, total + end[0])
    if end[0] >= total:
        end[0] = total - 1
    if start[0] > end[0]:
        return False
    if not is_in_bits:
        start[0] <<= 3
        end[0] = (end[0] << 3) + 7
    return True


RANGE_UNIT = optional(oneof("unit", token("BYTE"), token("BIT"), since="7.0.0"))
BIT_HISTORY = (("7.0.0", "`BYTE` and `BIT`."),)


@command(
    "BITCOUNT", arity=-2, group="bitmap", flags="readonly", keys=KeysAt(1), since="2.6.0",
    complexity="O(N) with N being the length of the range",
    summary="Returns how many bits of the string that a key holds, or of a part of it, are set.", history=BIT_HISTORY,
    args=(key(), optional(block("range", integer("start"), integer("end"), RANGE_UNIT))),
)
def bitcount(Context ctx not None, list args not None):
    cdef Py_ssize_t argc = len(args)
    cdef int64_t start = 0, end = -1
    cdef bint is_in_bits = False
    cdef bytes string
    if argc not in (2, 4, 5):
        raise OptionSyntaxError
    if argc > 2:
        start = require_int64(<bytes>args[2])
        end = require_int64(<bytes>args[3])
        is_in_bits = argc == 5 and counts_in_bits(<bytes>args[4])
    string = find_string(ctx.db, <bytes>args[1])
    # A range that is the wrong way round is empty, however short the string is.
    if string is None or start < 0 and end < 0 and start > end:
        ctx.reply.integer(0)
    elif clip(PyBytes_GET_SIZE(string), is_in_bits, &start, &end):
        ctx.reply.integer(count_bits(data_of(string), start, end))
    else:
        ctx.reply.integer(0)


@command(
    "BITPOS", arity=-3, group="bitmap", flags="readonly", keys=KeysAt(1), since="2.8.7",
    complexity="O(N) with N being the length of the range", history=BIT_HISTORY,
    summary="Returns the first bit of the string that a key holds, or of a part of it, that is set or clear.",
    args=(
        key(), integer("bit"),
        optional(block(
            "range", integer("start"), optional(block("end-unit-block", integer("end"), RANGE_UNIT)),
        )),
    ),
)
def bitpos(Context ctx not None, list args not None):
    cdef Py_ssize_t argc = len(args)
    cdef int64_t bit = require_int64(<bytes>args[2]), start = 0, end = -1, found = -1
    cdef bint is_in_bits = False
    cdef bytes string
    if not 0 <= bit <= 1:
        raise CommandError("ERR The bit argument must be 1 or 0.")
    if argc > 6:
        raise OptionSyntaxError
    if argc > 3:
        start = require_int64(<bytes>args[3])
    if argc > 5:
        is_in_bits = counts_in_bits(<bytes>args[5])
    if argc > 4:
        end = require_int64(<bytes>args[4])
    string = find_string(ctx.db, <bytes>args[1])
    if string is None:
        ctx.reply.integer(-bit)
        return
    if clip(PyBytes_GET_SIZE(string), is_in_bits, &start, &end):
        found = find_bit(data_of(string), start, end, bit)
        if found < 0 and not bit and argc < 5:
            found = end + 1     # without an end of the range, zeros follow the string
    ctx.reply.integer(found)


# --- Several strings --------------------------------------------------------------------------------------------------

OPERATIONS = {
    b"AND": BITS_AND, b"OR": BITS_OR, b"XOR": BITS_XOR, b"NOT": BITS_NOT, b"DIFF": BITS_DIFF, b"DIFF1": BITS_DIFF1,
    b"ANDOR": BITS_ANDOR, b"ONE": BITS_ONE,
}


@command(
    "BITOP", arity=-4, group="bitmap", flags="write denyoom", since="2.6.0",
    keys=(KeysAt(2, flags="OW update"), KeysAt(3, -1)),
    complexity="O(N) with N being the total length of the strings",
    summary="Stores the result of an operation on the bits of several strings, and returns its length in bytes.",
    args=(
        oneof("operation", *[token(name.decode()) for name in OPERATIONS]), key("destkey"), multiple(key("key", 1)),
    ),
)
def bitop(Context ctx not None, list args not None):
    cdef Database db = ctx.db
    cdef bytes target = <bytes>args[2], result, string
    cdef bytes word = (<bytes>args[1]).upper()
    cdef list strings = []
    found = OPERATIONS.get(word)
    if found is None:
        raise OptionSyntaxError
    if found == BITS_NOT and len(args) != 4:
        raise CommandError("ERR BITOP NOT must be called with a single source key.")
    if found in (BITS_DIFF, BITS_DIFF1, BITS_ANDOR) and len(args) < 5:
        raise CommandError(f"ERR BITOP {word.decode()} must be called with at least two source keys.")
    for name in args[3:]:
        string = find_string(db, <bytes>name)
        strings.append(b"" if string is None else string)
    result = combine(strings, <BitOperation><int>found)
    if result:
        db.set(target, result)
        db.lookup(target).hint = HINT_RAW
        db.event(EVENT_STRING, b"set", target)
        ctx.dirty += 1
    elif db.delete(target, True):
        ctx.dirty += 1
    ctx.reply.integer(len(result))
