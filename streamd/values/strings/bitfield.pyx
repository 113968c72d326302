# cython: language_level=3, boundscheck=False, wraparound=False
"""BITFIELD and BITFIELD_RO: integers of 1 to 64 bits, anywhere in a string.

Behaviour: Redis 8.6, as seen on a running server.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint64_t
from libc.string cimport strlen

from streamd.core.args cimport is_word, require_int64
from streamd.core.context cimport Context
from streamd.core.spec import KeysAt, block, command, integer, key, multiple, oneof, optional, string, token
from streamd.errors import CommandError, OptionSyntaxError
from streamd.heap cimport free, malloc
from streamd.keyspace.key_record cimport KeyRecord
from streamd.numbers cimport read_int64
from streamd.values.strings.bit_offsets cimport require_bit_offset
from streamd.values.strings.bits cimport get_field, set_field
from streamd.values.strings.stored cimport (
    find_string, find_string_for_write, mark_raw, open_string, string_written, written_bytes,
)

__all__ = ["bitfield", "bitfield_ro"]

cdef extern from *:
    bint add_overflows "__builtin_add_overflow"(int64_t a, int64_t b, int64_t *sum) noexcept nogil


cdef enum FieldAction:
    FIELD_GET
    FIELD_SET
    FIELD_INCRBY


cdef enum Overflow:
    OVERFLOW_WRAP
    OVERFLOW_SAT
    OVERFLOW_FAIL


cdef struct FieldType:
    bint is_signed
    int bits


cdef struct FieldStep:
    FieldAction action
    FieldType type
    Overflow overflow       # what happens to a number that does not fit
    uint64_t at             # first bit
    int64_t operand         # of SET and INCRBY


# --- The request ------------------------------------------------------------------------------------------------------


cdef FieldType require_type(bytes text) except *:
    """A type of integer, such as `i16` or `u8`."""
    cdef FieldType found
    cdef const char *p = PyBytes_AS_STRING(text)
    cdef int64_t bits
    found.is_signed = p[0] == b'i'
    found.bits = 0
    # As in Redis, a NUL ends the number.
    if (found.is_signed or p[0] == b'u') and read_int64(p + 1, strlen(p + 1), &bits):
        if 1 <= bits <= (64 if found.is_signed else 63):
            found.bits = <int>bits
            return found
    raise CommandError(
        "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is."
    )


cdef Overflow require_overflow(bytes text) except *:
    if is_word(text, "WRAP"):
        return OVERFLOW_WRAP
    if is_word(text, "SAT"):
        return OVERFLOW_SAT
    if is_word(text, "FAIL"):
        return OVERFLOW_FAIL
    raise CommandError("ERR Invalid OVERFLOW type specified")


cdef bint parse_action(bytes text, FieldAction *out) noexcept:
    if is_word(text, "GET"):
        out[0] = FIELD_GET
    elif is_word(text, "SET"):
        out[0] = FIELD_SET
    elif is_word(text, "INCRBY"):
        out[0] = FIELD_INCRBY
    else:
        return False
    return True


cdef inline Py_ssize_t operands_of(FieldAction action) noexcept:
    """How many words follow that of an action."""
    return 2 if action == FIELD_GET else 3


cdef Py_ssize_t parse_steps(Context ctx, list args, FieldStep *steps) except -1:
    """Read the whole request into `steps`, which has room for them; returns how many there are."""
    cdef Py_ssize_t at = 2, count = 0, argc = len(args)
    cdef Overflow overflow = OVERFLOW_WRAP
    cdef FieldStep *step
    while at < argc:
        step = &steps[count]
        if is_word(<bytes>args[at], "OVERFLOW") and at + 1 < argc:
            overflow = require_overflow(<bytes>args[at + 1])
            at += 2
            continue
        if not parse_action(<bytes>args[at], &step.action) or argc - at - 1 < operands_of(step.action):
            raise OptionSyntaxError
        step.type = require_type(<bytes>args[at + 1])
        step.at = <uint64_t>require_bit_offset(ctx, <bytes>args[at + 2], step.type.bits)
        step.overflow = overflow
        step.operand = 0 if step.action == FIELD_GET else require_int64(<bytes>args[at + 3])
        at += 1 + operands_of(step.action)
        count += 1
    return count


cdef Py_ssize_t written_size(const FieldStep *steps, Py_ssize_t count) noexcept:
    """Bytes up to the last one that is written; 0: nothing is."""
    cdef Py_ssize_t i
    cdef uint64_t end = 0
    for i in range(count):
        if steps[i].action != FIELD_GET:
            end = max(end, steps[i].at + <uint64_t>steps[i].type.bits)
    return <Py_ssize_t>((end + 7) >> 3)


def key_flags(list args not None):
    """What this BITFIELD does with its key, for COMMAND GETKEYSANDFLAGS; a malformed one may do anything."""
    cdef Py_ssize_t at = 2, argc = len(args)
    cdef FieldAction action
    while at < argc:
        if is_word(<bytes>args[at], "OVERFLOW") and at + 1 < argc:
            at += 2
        elif parse_action(<bytes>args[at], &action) and action == FIELD_GET and at + 2 < argc:
            at += 3
        else:
            return "RW access update"
    return "RO access"


# --- Numbers of some bits ---------------------------------------------------------------------------------------------


cdef int64_t extended(uint64_t value, FieldType type) noexcept:
    """The number that the bits of a field are."""
    if type.is_signed and type.bits < 64 and value >> (type.bits - 1) & 1:
        value |= ~<uint64_t>0 << type.bits
    return <int64_t>value


cdef int64_t highest(FieldType type) noexcept:
    return INT64_MAX if type.bits == 64 else <int64_t>((<uint64_t>1 << (type.bits - type.is_signed)) - 1)


cdef int64_t lowest(FieldType type) noexcept:
    return -highest(type) - 1 if type.is_signed else 0


cdef int excess(int64_t number, int64_t increment, FieldType type, int64_t *sum) noexcept:
    """Whether a sum is too high (1) for a type, too low (-1), or fits (0); `sum` has its lowest 64 bits."""
    if add_overflows(number, increment, sum):
        return 1 if increment > 0 else -1
    return (sum[0] > highest(type)) - (sum[0] < lowest(type))


cdef bint outcome(const FieldStep *step, int64_t old, int64_t *new) noexcept:
    """What a SET or INCRBY makes of the number in its field; False when it fails."""
    cdef int beyond
    cdef FieldType type = step.type
    if step.action == FIELD_INCRBY:
        beyond = excess(old, step.operand, type, new)
    else:
        beyond = excess(step.operand, 0, type, new)
        if beyond < 0 and (not type.is_signed or highest(type) - INT64_MAX > step.operand):
            # As in Redis, which saturates some numbers at the wrong end: those below zero where only positive ones
            # fit, and those so far below the range that their distance from its upper end exceeds 63 bits.
            beyond = 1
    if beyond == 0:
        return True
    if step.overflow == OVERFLOW_SAT:
        new[0] = highest(type) if beyond > 0 else lowest(type)
    elif type.bits < 64:
        new[0] = extended(<uint64_t>new[0] & ((<uint64_t>1 << type.bits) - 1), type)
    return step.overflow != OVERFLOW_FAIL


# --- The commands -----------------------------------------------------------------------------------------------------


cdef int read_fields(Context ctx, bytes text, const FieldStep *steps, Py_ssize_t count) except -1:
    """Answer a request that only reads."""
    cdef const uint8_t *data = NULL
    cdef Py_ssize_t i, size = 0
    if text is not None:
        data = <const uint8_t *>PyBytes_AS_STRING(text)
        size = PyBytes_GET_SIZE(text)
    ctx.reply.array(count)
    for i in range(count):
        ctx.reply.integer(extended(get_field(data, size, steps[i].at, steps[i].type.bits), steps[i].type))
    return 0


cdef Py_ssize_t write_fields(Context ctx, uint8_t *data, Py_ssize_t size, bint has_grown, const FieldStep *steps,
                             Py_ssize_t count) except -1:
    """Answer a request that writes to a string that is long enough; returns the changes.

    has_grown  the string has become longer: then every number that was written is a change
    """
    cdef Py_ssize_t i, changes = 0
    cdef int64_t old, new
    ctx.reply.array(count)
    for i in range(count):
        old = extended(get_field(data, size, steps[i].at, steps[i].type.bits), steps[i].type)
        if steps[i].action == FIELD_GET:
            ctx.reply.integer(old)
        elif outcome(&steps[i], old, &new):
            ctx.reply.integer(old if steps[i].action == FIELD_SET else new)
            set_field(data, steps[i].at, steps[i].type.bits, <uint64_t>new)
            changes += has_grown or old != new
        else:
            ctx.reply.null()
    return changes


cdef int change(Context ctx, bytes name, const FieldStep *steps, Py_ssize_t count, Py_ssize_t size) except -1:
    """Run a request that writes up to `size` bytes."""
    cdef bytes present = find_string_for_write(ctx.db, name)
    cdef bint has_grown = present is None or PyBytes_GET_SIZE(present) < size
    cdef KeyRecord *record
    cdef Py_ssize_t changes
    present = None          # so that it can be written in place
    record = open_string(ctx.db, name, size)
    size = PyBytes_GET_SIZE(<object>record.held)
    changes = write_fields(ctx, <uint8_t *>written_bytes(record), size, has_grown, steps, count)
    if changes or has_grown:
        # A string that has only become longer is propagated too, lest replicas differ; Redis forgets it.
        string_written(ctx.db, record, b"setbit" if changes else None)
        ctx.dirty += max(changes, 1)
    else:
        mark_raw(ctx.db, name)
    return 0


cdef int run(Context ctx, list args, bint is_read_only) except -1:
    cdef FieldStep *steps = <FieldStep *>malloc((<size_t>len(args) // 3 + 1) * sizeof(FieldStep))
    cdef Py_ssize_t count, size
    if steps is NULL:
        raise MemoryError("no memory for a request")
    try:
        count = parse_steps(ctx, args, steps)
        size = written_size(steps, count)
        if size == 0:
            read_fields(ctx, find_string(ctx.db, <bytes>args[1]), steps, count)
        elif is_read_only:
            raise CommandError("ERR BITFIELD_RO only supports the GET subcommand")
        else:
            change(ctx, <bytes>args[1], steps, count, size)
    finally:
        free(steps)
    return 0


FIELD = (string("encoding"), integer("offset"))


@command(
    "BITFIELD", arity=-2, group="bitmap", flags="write denyoom", since="3.2.0",
    keys=KeysAt(1, flags="RW access update variable_flags", notes="GET alone only reads the key"), key_flags=key_flags,
    complexity="O(1) for each subcommand",
    summary="Reads and changes integers of any number of bits in the string that a key holds.",
    args=(
        key(),
        optional(multiple(oneof(
            "operation",
            block("get-block", *FIELD, token="GET"),
            block(
                "write",
                optional(oneof("overflow-block", token("WRAP"), token("SAT"), token("FAIL"), token="OVERFLOW")),
                oneof(
                    "write-operation",
                    block("set-block", *FIELD, integer("value"), token="SET"),
                    block("incrby-block", *FIELD, integer("increment"), token="INCRBY"),
                ),
            ),
        ))),
    ),
)
def bitfield(Context ctx not None, list args not None):
    run(ctx, args, False)


@command(
    "BITFIELD_RO", arity=-2, group="bitmap", flags="readonly fast", keys=KeysAt(1), since="6.0.0",
    complexity="O(1) for each subcommand",
    summary="Reads integers of any number of bits in the string that a key holds.",
    args=(key(), optional(multiple(block("get-block", *FIELD, token="GET"), with_token=True))),
)
def bitfield_ro(Context ctx not None, list args not None):
    run(ctx, args, True)
