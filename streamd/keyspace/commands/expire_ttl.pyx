# cython: language_level=3, boundscheck=False, wraparound=False
"""EXPIRE, TTL and related commands: compiled, since caches and locks run one with most writes. Behaviour: Redis 8.6."""

from streamd.core.args cimport require_int64
from streamd.core.context cimport Context

from streamd.core.spec import KeysAt, command, integer, key, oneof, optional, token, unix_time
from streamd.errors import CommandError, invalid_expire_time, printable

__all__ = [
    "allows", "conditions_of", "expire", "expireat", "expiretime", "persist", "pexpire", "pexpireat", "pexpiretime",
    "pttl", "ttl",
]

cdef extern from *:
    bint multiplication_overflows "__builtin_mul_overflow"(long long a, long long b, long long *product) noexcept nogil
    bint addition_overflows "__builtin_add_overflow"(long long a, long long b, long long *sum) noexcept nogil


# --- Expiry: setting -------------------------------------------------------------------------------------------------


cdef enum Condition:
    # Of EXPIRE and related commands; a set.
    NX = 1
    XX = 2
    GT = 4
    LT = 8

cdef dict CONDITIONS = {b"NX": NX, b"XX": XX, b"GT": GT, b"LT": LT}


def conditions_of(list words not None):
    """The conditions given, a set of Condition; CommandError when one is unknown or when they conflict."""
    cdef int given = 0
    for text in words:
        if text.upper() not in CONDITIONS:
            raise CommandError(f"ERR Unsupported option {printable(text)}")
        given |= CONDITIONS[text.upper()]
    if given & NX and given != NX:
        raise CommandError("ERR NX and XX, GT or LT options at the same time are not compatible")
    if given & GT and given & LT:
        raise CommandError("ERR GT and LT options at the same time are not compatible")
    return given


cpdef bint allows(int conditions, long long present, long long at_ms) noexcept:
    """Whether the expiry may become `at_ms` when it is now `present`; -1: none, later than any time."""
    if present == -1:
        return not conditions & (XX | GT)
    if conditions & NX:
        return False
    return not (conditions & GT and at_ms <= present or conditions & LT and at_ms >= present)


cdef int expire_key(Context ctx, list args, str command_name, long long scale, long long base_ms) except -1:
    """Set a key's expiry; a time that has passed deletes the key.

    scale    milliseconds in a unit of the argument
    base_ms  what the argument counts from
    """
    cdef bytes name = args[1]
    cdef int conditions = conditions_of(args[3:]) if len(args) > 3 else 0
    cdef long long time = require_int64(args[2])
    cdef long long at_ms
    if multiplication_overflows(time, scale, &at_ms) or addition_overflows(at_ms, base_ms, &at_ms):
        raise CommandError(invalid_expire_time(command_name))
    if ctx.db.find_for_write(name) is None or not allows(conditions, ctx.db.expiry(name), at_ms):
        return ctx.reply.integer(0)
    if at_ms <= ctx.now_ms and not ctx.is_replaying:
        ctx.db.delete(name, True)
        if ctx.is_propagating:
            ctx.propagate([b"DEL", name])
    else:
        ctx.db.set_expiry(name, max(0, at_ms))
        if ctx.is_propagating:
            ctx.propagate([b"PEXPIREAT", name, b"%d" % at_ms, *args[3:]])
    ctx.dirty += 1
    return ctx.reply.integer(1)


def _expiring(name, since, summary, time):
    """The declaration of EXPIRE and related commands."""
    return command(
        name, arity=-3, group="generic", flags="write fast", keys=KeysAt(1, flags="RW update"), since=since,
        summary=summary, history=(("7.0.0", "`NX`, `XX`, `GT` and `LT`."),),
        args=(key(), time, optional(
            oneof("condition", token("NX"), token("XX"), token("GT"), token("LT")), since="7.0.0",
        )),
    )


@_expiring("EXPIRE", "1.0.0", "Lets a key expire after some seconds.", integer("seconds"))
def expire(Context ctx not None, list args not None):
    expire_key(ctx, args, "expire", 1000, ctx.now_ms)


@_expiring("PEXPIRE", "2.6.0", "Lets a key expire after some milliseconds.", integer("milliseconds"))
def pexpire(Context ctx not None, list args not None):
    expire_key(ctx, args, "pexpire", 1, ctx.now_ms)


@_expiring("EXPIREAT", "1.2.0", "Lets a key expire at a Unix time in seconds.", unix_time("unix-time-seconds"))
def expireat(Context ctx not None, list args not None):
    expire_key(ctx, args, "expireat", 1000, 0)


@_expiring(
    "PEXPIREAT", "2.6.0", "Lets a key expire at a Unix time in milliseconds.", unix_time("unix-time-milliseconds")
)
def pexpireat(Context ctx not None, list args not None):
    expire_key(ctx, args, "pexpireat", 1, 0)


@command(
    "PERSIST", arity=2, group="generic", flags="write fast", keys=KeysAt(1, flags="RW update"), since="2.2.0",
    summary="Removes the expiry of a key.", args=(key(),),
)
def persist(Context ctx not None, list args not None):
    ctx.db.find_for_write(args[1])
    is_changed = ctx.db.persist(args[1])
    ctx.dirty += is_changed
    ctx.reply.integer(is_changed)


# --- Expiry: reading -------------------------------------------------------------------------------------------------


cdef long long expiry_of(Context ctx, bytes name) except? -3:
    """When a key expires, as Unix time in ms; -1 when it does not, -2 when it is missing. A lookup, not an access."""
    return -2 if ctx.db.find_untouched(name) is None else ctx.db.expiry(name)


cdef long long seconds(long long ms) noexcept:
    return ms // 1000 + (ms % 1000 >= 500)


@command(
    "TTL", arity=2, group="generic", flags="readonly fast", keys=KeysAt(1), since="1.0.0",
    tips=("nondeterministic_output",), history=(("2.8.0", "-2 for a missing key."),),
    summary="Returns after how many seconds a key expires.", args=(key(),),
)
def ttl(Context ctx not None, list args not None):
    cdef long long at_ms = expiry_of(ctx, args[1])
    ctx.reply.integer(at_ms if at_ms < 0 else seconds(at_ms - ctx.now_ms))


@command(
    "PTTL", arity=2, group="generic", flags="readonly fast", keys=KeysAt(1), since="2.6.0",
    tips=("nondeterministic_output",), history=(("2.8.0", "-2 for a missing key."),),
    summary="Returns after how many milliseconds a key expires.", args=(key(),),
)
def pttl(Context ctx not None, list args not None):
    cdef long long at_ms = expiry_of(ctx, args[1])
    ctx.reply.integer(at_ms if at_ms < 0 else at_ms - ctx.now_ms)


@command(
    "EXPIRETIME", arity=2, group="generic", flags="readonly fast", keys=KeysAt(1), since="7.0.0",
    summary="Returns the Unix time in seconds at which a key expires.", args=(key(),),
)
def expiretime(Context ctx not None, list args not None):
    cdef long long at_ms = expiry_of(ctx, args[1])
    ctx.reply.integer(at_ms if at_ms < 0 else seconds(at_ms))


@command(
    "PEXPIRETIME", arity=2, group="generic", flags="readonly fast", keys=KeysAt(1), since="7.0.0",
    summary="Returns the Unix time in milliseconds at which a key expires.", args=(key(),),
)
def pexpiretime(Context ctx not None, list args not None):
    ctx.reply.integer(expiry_of(ctx, args[1]))
