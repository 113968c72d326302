"""DUMP and RESTORE: the value of a key as bytes, and back.

The format is described in persistence/payloads.py. Behaviour: Redis 8.6, as seen on a running server.
"""

from __future__ import annotations

from typing import NamedTuple

from streamd.core.args import integer as read_integer
from streamd.core.context import Context
from streamd.core.spec import KeysAt, command, integer, key, optional, string, token
from streamd.errors import CommandError, OptionSyntaxError
from streamd.integers import INT64_MAX
from streamd.keyspace.listener import EVENTS
from streamd.persistence.payloads import Payloads

__all__ = ["RestoreOptions"]

IDLE_RANGE_S = 2**24
"""Redis counts idle time with a 24-bit clock, so longer times wrap around to 0."""


@command(
    "DUMP", arity=2, group="generic", flags="readonly", keys=KeysAt(1, flags="RO access"), since="2.6.0",
    complexity="O(N) with N being the bytes of the value", tips=("nondeterministic_output",),
    summary="Returns the value of a key as a payload for RESTORE.", args=(key(),),
)  # fmt: skip
def dump(ctx: Context, args: list[bytes]) -> None:
    value = ctx.db.find(args[1])
    ctx.reply.bulk(None if value is None else ctx.get(Payloads).dump(value))


class RestoreOptions(NamedTuple):
    """The options after the payload of a RESTORE.

    replaces     REPLACE: the key may already exist
    is_absolute  ABSTTL: the time is a Unix time
    idle_s       IDLETIME: how long the key has not been used, in seconds; -1: not given
    frequency    FREQ: how often it is used, 0 to 255; -1: not given
    """

    replaces: bool = False
    is_absolute: bool = False
    idle_s: int = -1
    frequency: int = -1

    @classmethod
    def parse(cls, words: list[bytes]) -> RestoreOptions:
        """Read the options, in any order. Raises OptionSyntaxError, NotIntegerError, CommandError."""
        replaces = is_absolute = False
        idle_s = frequency = -1
        rest = iter(words)
        for text in rest:
            word = text.upper()
            if word == b"REPLACE":
                replaces = True
            elif word == b"ABSTTL":
                is_absolute = True
            elif word == b"IDLETIME" and frequency == -1 and (number := next(rest, None)) is not None:
                idle_s = read_integer(number)
                if idle_s < 0:
                    raise CommandError("ERR Invalid IDLETIME value, must be >= 0")
            elif word == b"FREQ" and idle_s == -1 and (number := next(rest, None)) is not None:
                frequency = read_integer(number)
                if not 0 <= frequency <= 255:
                    raise CommandError("ERR Invalid FREQ value, must be >= 0 and <= 255")
            else:
                raise OptionSyntaxError
        return cls(replaces, is_absolute, idle_s, frequency)


NO_OPTIONS = RestoreOptions()


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
def restore(ctx: Context, args: list[bytes]) -> None:
    name, payload = args[1], args[3]
    options = RestoreOptions.parse(args[4:]) if len(args) > 4 else NO_OPTIONS
    if not options.replaces and name in ctx.db:
        raise CommandError("BUSYKEY Target key name already exists.")
    ttl = read_integer(args[2])
    if ttl < 0:
        raise CommandError("ERR Invalid TTL value, must be >= 0")
    value = ctx.get(Payloads).restore(payload)
    # Redis treats a time beyond 63 bits as already passed.
    expire_at_ms = ttl if options.is_absolute or ttl == 0 else ttl + ctx.now_ms
    has_passed = 0 < expire_at_ms <= ctx.now_ms or expire_at_ms > INT64_MAX
    if has_passed and not ctx.is_replaying:
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
        ctx.db.set_access(name, -1 if options.idle_s < 0 else max(0, ctx.now_ms - idle_ms), options.frequency)
    if ctx.is_propagating and ttl and not options.is_absolute:
        ctx.propagate([args[0], name, b"%d" % expire_at_ms, payload, *args[4:], b"ABSTTL"])
    ctx.dirty += 1
    ctx.db.event(EVENTS["generic"], b"restore", name)
    ctx.reply.ok()
