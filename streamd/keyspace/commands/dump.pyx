# cython: language_level=3, boundscheck=False, wraparound=False
"""DUMP and RESTORE: the value of a key as bytes, and back. Compiled, since slots move by them.

The format is described in persistence/payloads.py. Behaviour: Redis 8.6, as seen on a running server.
"""

cimport cython
from libc.stdint cimport INT64_MAX

from streamd.core.args cimport require_int64
from streamd.core.context cimport Context

from streamd.core.spec import KeysAt, command, integer, key, optional, string, token
from streamd.errors import CommandError, OptionSyntaxError
from streamd.keyspace.listener import EVENTS
from streamd.persistence.payloads import Payloads

__all__ = ["restore"]

cdef enum:
    IDLE_RANGE_S = 1 << 24     # Redis counts idle time with a 24-bit clock, so longer times wrap around to 0

cdef int GENERIC = EVENTS["generic"]


@command(
    "DUMP", arity=2, group="generic", flags="readonly", keys=KeysAt(1, flags="RO access"), since="2.6.0",
    complexity="O(N) with N being the bytes of the value", tips=("nondeterministic_output",),
    summary="Returns the value of a key as a payload for RESTORE.", args=(key(),),
)  # fmt: skip
def dump(Context ctx not None, list args not None):
    value = ctx.db.find(args[1])
    ctx.reply.bulk(None if value is None else ctx.get(Payloads).dump(value))


@cython.final
@cython.no_gc
cdef class RestoreOptions:
    """The options after the payload of a RESTORE."""

    cdef bint replaces         # REPLACE: the key may already exist
    cdef bint is_absolute      # ABSTTL: the time is a Unix time
    cdef long long idle_s      # IDLETIME: how long the key has not been used, in seconds; -1: not given
    cdef long long frequency   # FREQ: how often it is used, 0 to 255; -1: not given

    def __cinit__(self):
        self.idle_s = self.frequency = -1


cdef RestoreOptions parse_options(list words):
    """Read the options, in any order. Raises OptionSyntaxError, NotIntegerError, CommandError."""
    cdef RestoreOptions options = RestoreOptions()
    rest = iter(words)
    for text in rest:
        word = text.upper()
        if word == b"REPLACE":
            options.replaces = True
        elif word == b"ABSTTL":
            options.is_absolute = True
        elif word == b"IDLETIME" and options.frequency == -1 and (number := next(rest, None)) is not None:
            options.idle_s = require_int64(number)
            if options.idle_s < 0:
                raise CommandError("ERR Invalid IDLETIME value, must be >= 0")
        elif word == b"FREQ" and options.idle_s == -1 and (number := next(rest, None)) is not None:
            options.frequency = require_int64(number)
            if not 0 <= options.frequency <= 255:
                raise CommandError("ERR Invalid FREQ value, must be >= 0 and <= 255")
        else:
            raise OptionSyntaxError
    return options


cdef RestoreOptions NO_OPTIONS = RestoreOptions()


@command(
    "RESTORE", arity=-4, group="generic", flags="write denyoom", categories="dangerous", since="2.6.0",
    keys=KeysAt(1, flags="OW update"), complexity="O(N) with N being the bytes of the value",
    summary="Creates a key from a payload of DUMP.",
    history=(("3.0.0", "`REPLACE`."), ("5.0.0", "`ABSTTL`."), ("5.0.0", "`IDLETIME` and `FREQ`.")),
    args=(
        key(), integer("ttl"), string("serialized-value"), optional(token("REPLACE"), since="3.0.0"),
        optional(token("ABSTTL"), since="5.0.0"), optional(integer("seconds", "IDLETIME"), since="5.0.0"),
        optional(integer("frequency", "FREQ"), since="5.0.0"),
    ),
)  # fmt: skip
def restore(Context ctx not None, list args not None):
    cdef bytes name = args[1], payload = args[3]
    cdef RestoreOptions options = parse_options(args[4:]) if len(args) > 4 else NO_OPTIONS
    cdef long long ttl, expire_at_ms
    if not options.replaces and name in ctx.db:
        raise CommandError("BUSYKEY Target key name already exists.")
    ttl = require_int64(args[2])
    if ttl < 0:
        raise CommandError("ERR Invalid TTL value, must be >= 0")
    value = ctx.get(Payloads).restore(payload)
    # Redis treats a time beyond 63 bits as already passed.
    expire_at_ms = ttl
    if not options.is_absolute and ttl:
        expire_at_ms = ttl + ctx.now_ms if ttl <= INT64_MAX - ctx.now_ms else 1
    if 0 < expire_at_ms <= ctx.now_ms and not ctx.is_replaying:
        ctx.db.expired_keys += 1
        if ctx.db.delete(name, True):
            ctx.dirty += 1
            if ctx.is_propagating:
                ctx.propagate([b"DEL", name])
        ctx.reply.ok()
        return
    if options.replaces:
        ctx.db.delete(name)
    ctx.db.add(name, value)
    if expire_at_ms:
        ctx.db.set_expiry(name, expire_at_ms)
    if options is not NO_OPTIONS:
        idle_ms = options.idle_s % IDLE_RANGE_S * 1000
        ctx.db.set_access(name, -1 if options.idle_s < 0 else max(0, ctx.now_ms - idle_ms), <int>options.frequency)
    if ctx.is_propagating and ttl and not options.is_absolute:
        ctx.propagate([args[0], name, b"%d" % expire_at_ms, payload, *args[4:], b"ABSTTL"])
    ctx.dirty += 1
    ctx.db.event(GENERIC, b"restore", name)
    ctx.reply.ok()
