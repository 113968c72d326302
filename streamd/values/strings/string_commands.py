"""Strings: the commands related to SET and GET, which are in get_set.pyx. A string is a Python `bytes` object in the database.

streamd is not a store of strings; these commands exist because every client library, tool and test of Redis uses some
of them, and because streams need keys of another type beside them. Behaviour: Redis 8.6, as seen on a running server.
"""

from __future__ import annotations

from streamd.core.args import integer as read_integer
from streamd.core.context import Context
from streamd.core.spec import (
    KeysAt,
    KeysCounted,
    block,
    command,
    double,
    integer,
    key,
    multiple,
    oneof,
    optional,
    string,
    token,
    unix_time,
)
from streamd.digests import xxh3_hex
from streamd.errors import CommandError, NotIntegerError, OptionSyntaxError
from streamd.integers import INT32_MAX
from streamd.keyspace.listener import EVENTS
from streamd.values.strings.set_options import (
    COMPARISONS,
    UNITS,
    SetOptions,
    expiry_at_ms,
    is_met,
    operand_of,
)
from streamd.values.strings.stored import (
    append_string,
    change_string,
    find_string,
    find_string_for_write,
    set_string,
)
from streamd.values.strings.string_type import ENCODING_BY_LENGTH, ENCODING_RAW

__all__ = ["set_with_options"]


# --- Shared by the handlers ------------------------------------------------------------------------------------------


def store_expiring(ctx: Context, name: bytes, value: bytes, at_ms: int, effect: list[bytes] | None = None) -> None:
    """Store a string that expires at a Unix time in ms. What is propagated does not depend on when it is replayed.

    effect  the request, when it is such a one itself
    """
    set_string(ctx.db, name, value)
    ctx.db.set_expiry(name, at_ms)
    ctx.dirty += 1
    if ctx.is_propagating:
        ctx.propagate(effect or [b"SET", name, value, b"PXAT", b"%d" % at_ms])


def check_length(ctx: Context, length: int) -> None:
    """Raise CommandError when a string of `length` bytes would be too long."""
    if length > ctx.config.proto_max_bulk_len:
        raise CommandError("ERR string exceeds maximum allowed size (proto-max-bulk-len)")


# --- SET and its variants --------------------------------------------------------------------------------------------


def set_with_options(ctx: Context, args: list[bytes]) -> None:
    """A SET with options; the command is declared in get_set.pyx."""
    name, value = args[1], args[2]
    options = SetOptions.parse(args[3:])
    at_ms = -1 if options.unit is None else expiry_at_ms(options.time, options.unit, ctx.now_ms, "set")
    present = find_string(ctx.db, name) if options.returns_old else None
    is_there = name in ctx.db
    if is_there if options.only_missing else options.only_existing and not is_there:
        is_stored = False
    else:
        if options.comparison is not None and is_there and not options.returns_old:
            present = find_string(ctx.db, name)
        is_stored = options.is_met(present)
    if is_stored and at_ms >= 0:
        store_expiring(ctx, name, value, at_ms, args if options.unit == "PXAT" else None)
    elif is_stored:
        set_string(ctx.db, name, value, options.keeps_expiry)
        ctx.dirty += 1
        if options.returns_old and ctx.is_propagating:
            ctx.propagate([*args[:3], *(word for word in args[3:] if word.upper() != b"GET")])
    if options.returns_old:
        ctx.reply.bulk(present)
    elif is_stored:
        ctx.reply.ok()
    else:
        ctx.reply.null()


@command(
    "SETNX", arity=3, group="string", flags="write denyoom fast", keys=KeysAt(1, flags="OW insert"), since="1.0.0",
    summary="Stores a string under a key that does not exist.", deprecated_since="2.6.12",
    replaced_by="`SET` with the `NX` argument", args=(key(), string("value")),
)  # fmt: skip
def setnx(ctx: Context, args: list[bytes]) -> None:
    if ctx.db.find_for_write(args[1]) is not None:
        ctx.reply.integer(0)
        return
    set_string(ctx.db, args[1], args[2])
    ctx.dirty += 1
    ctx.reply.integer(1)


def _set_expiring(ctx: Context, args: list[bytes], unit: str, command_name: str) -> None:
    _, name, time, value = args
    store_expiring(ctx, name, value, expiry_at_ms(time, unit, ctx.now_ms, command_name))
    ctx.reply.ok()


@command(
    "SETEX", arity=4, group="string", flags="write denyoom", keys=KeysAt(1, flags="OW update"), since="2.0.0",
    summary="Stores a string under a key that expires after some seconds.", deprecated_since="2.6.12",
    replaced_by="`SET` with the `EX` argument", args=(key(), integer("seconds"), string("value")),
)  # fmt: skip
def setex(ctx: Context, args: list[bytes]) -> None:
    _set_expiring(ctx, args, "EX", "setex")


@command(
    "PSETEX", arity=4, group="string", flags="write denyoom", keys=KeysAt(1, flags="OW update"), since="2.6.0",
    summary="Stores a string under a key that expires after some milliseconds.", deprecated_since="2.6.12",
    replaced_by="`SET` with the `PX` argument", args=(key(), integer("milliseconds"), string("value")),
)  # fmt: skip
def psetex(ctx: Context, args: list[bytes]) -> None:
    _set_expiring(ctx, args, "PX", "psetex")


# --- The variants of GET -----------------------------------------------------------------------------------------------


@command(
    "GETDEL", arity=2, group="string", flags="write fast", keys=KeysAt(1, flags="RW access delete"), since="6.2.0",
    summary="Returns the string that a key holds, and deletes the key.", args=(key(),),
)  # fmt: skip
def getdel(ctx: Context, args: list[bytes]) -> None:
    value = find_string(ctx.db, args[1])
    if value is not None:
        ctx.db.delete(args[1], True)
        ctx.dirty += 1
        if ctx.is_propagating:
            ctx.propagate([b"DEL", args[1]])
    ctx.reply.bulk(value)


@command(
    "GETSET", arity=3, group="string", flags="write denyoom fast", keys=KeysAt(1, flags="RW access update"), since="1.0.0",
    summary="Stores a string under a key, and returns the string that was there.", deprecated_since="6.2.0",
    replaced_by="`SET` with the `!GET` argument", args=(key(), string("value")),
)  # fmt: skip
def getset(ctx: Context, args: list[bytes]) -> None:
    _, name, value = args
    ctx.reply.bulk(find_string(ctx.db, name))
    set_string(ctx.db, name, value)
    ctx.dirty += 1
    if ctx.is_propagating:
        ctx.propagate([b"SET", name, value])


def _delex_key_flags(args: list[bytes]) -> str:
    """What this DELEX does with its key, for COMMAND GETKEYSANDFLAGS."""
    return "RM delete" if len(args) == 2 else "RW delete"


@command(
    "DELEX", arity=-2, group="string", flags="write fast", keys=KeysAt(1, flags="RW delete variable_flags"), since="8.4.0",
    key_flags=_delex_key_flags, complexity="O(1); O(N) for digests, with N being the length of the string",
    summary="Deletes a key if it holds a certain string.",
    args=(key(), optional(oneof(
        "condition", string("ifeq-value", "IFEQ"), string("ifne-value", "IFNE"), integer("ifdeq-digest", "IFDEQ"),
        integer("ifdne-digest", "IFDNE"),
    ))),
)  # fmt: skip
def delex(ctx: Context, args: list[bytes]) -> None:
    name = args[1]
    if len(args) == 2:
        is_deleted = ctx.db.delete(name, True)
        ctx.dirty += is_deleted
        ctx.reply.integer(is_deleted)
        return
    if len(args) != 4:
        raise CommandError("ERR wrong number of arguments for 'delex' command")
    present = ctx.db.find(name)
    if present is None:
        ctx.reply.integer(0)
        return
    if not isinstance(present, bytes):
        raise CommandError("ERR Key should be of string type if conditions are specified")
    comparison = args[2].decode("latin-1").upper()
    if comparison not in COMPARISONS:
        raise CommandError("ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE")
    is_deleted = is_met(comparison, args[3], present)
    if is_deleted:
        ctx.db.delete(name, True)
        ctx.dirty += 1
        if ctx.is_propagating:
            ctx.propagate([b"DEL", name])
    ctx.reply.integer(is_deleted)


@command(
    "DIGEST", arity=2, group="string", flags="readonly fast", keys=KeysAt(1), since="8.4.0",
    complexity="O(N) with N being the length of the string",
    summary="Returns the XXH3 digest of the string that a key holds, as IFDEQ and IFDNE compare it.", args=(key(),),
)  # fmt: skip
def digest(ctx: Context, args: list[bytes]) -> None:
    present = find_string(ctx.db, args[1])
    ctx.reply.bulk(None if present is None else xxh3_hex(present))


def _parse_getex(words: list[bytes]) -> tuple[str | None, bytes]:
    """The option of a GETEX (EX, PX, EXAT, PXAT, PERSIST, or None) and its argument; OptionSyntaxError."""
    option, time = None, b""
    rest = iter(words)
    for text in rest:
        word = text.decode("latin-1").upper()
        if option not in (None, word) or word not in (*UNITS, "PERSIST"):
            raise OptionSyntaxError
        option = word
        if word != "PERSIST":
            time = operand_of(rest)
    return option, time


@command(
    "GETEX", arity=-2, group="string", flags="write fast", since="6.2.0",
    keys=KeysAt(1, flags="RW access update", notes="the expiry is changed"),
    summary="Returns the string that a key holds, and sets or removes the expiry of the key.",
    args=(key(), optional(oneof(
        "expiration", integer("seconds", "EX"), integer("milliseconds", "PX"), unix_time("unix-time-seconds", "EXAT"),
        unix_time("unix-time-milliseconds", "PXAT"), token("PERSIST"),
    ))),
)  # fmt: skip
def getex(ctx: Context, args: list[bytes]) -> None:
    name = args[1]
    option, time = _parse_getex(args[2:])
    value = find_string(ctx.db, name)
    if value is None:
        ctx.reply.null()
        return
    if option == "PERSIST":
        if ctx.db.persist(name):
            ctx.dirty += 1
            if ctx.is_propagating:
                ctx.propagate([b"PERSIST", name])
    elif option is not None:
        at_ms = expiry_at_ms(time, option, ctx.now_ms, "getex")
        if at_ms <= ctx.now_ms:
            ctx.db.delete(name, True)
            effect = [b"DEL", name]
        else:
            ctx.db.set_expiry(name, at_ms)
            effect = [b"PEXPIREAT", name, b"%d" % at_ms]
        ctx.dirty += 1
        if ctx.is_propagating:
            ctx.propagate(effect)
    ctx.reply.bulk(value)


@command(
    "STRLEN", arity=2, group="string", flags="readonly fast", keys=KeysAt(1, flags="RO"), since="2.2.0",
    summary="Returns the number of bytes of the string that a key holds.", args=(key(),),
)  # fmt: skip
def strlen(ctx: Context, args: list[bytes]) -> None:
    ctx.reply.integer(len(find_string(ctx.db, args[1]) or b""))


@command(
    "GETRANGE", arity=4, group="string", flags="readonly", keys=KeysAt(1), since="2.4.0",
    complexity="O(N) with N being the number of bytes returned",
    summary="Returns a part of the string that a key holds.", args=(key(), integer("start"), integer("end")),
)  # fmt: skip
def getrange(ctx: Context, args: list[bytes]) -> None:
    _range(ctx, args)


@command(
    "SUBSTR", arity=4, group="string", flags="readonly", keys=KeysAt(1), since="1.0.0",
    complexity="O(N) with N being the number of bytes returned", deprecated_since="2.0.0", replaced_by="`GETRANGE`",
    summary="Returns a part of the string that a key holds.", args=(key(), integer("start"), integer("end")),
)  # fmt: skip
def substr(ctx: Context, args: list[bytes]) -> None:
    _range(ctx, args)


def _range(ctx: Context, args: list[bytes]) -> None:
    start, end = read_integer(args[2]), read_integer(args[3])
    value = find_string(ctx.db, args[1]) or b""
    if start < 0 and end < 0 and start > end:
        ctx.reply.bulk(b"")
        return
    # Positions before the first byte are treated as the first, also for the end.
    first = start if start >= 0 else max(0, start + len(value))
    last = end if end >= 0 else max(0, end + len(value))
    ctx.reply.bulk(value[first : last + 1])


# --- Several keys ----------------------------------------------------------------------------------------------------


@command(
    "MGET", arity=-2, group="string", flags="readonly fast", keys=KeysAt(1, -1), since="1.0.0",
    complexity="O(N) with N being the number of keys", tips=("request_policy:multi_shard",),
    summary="Returns the strings that several keys hold.", args=(multiple(key()),),
)  # fmt: skip
def mget(ctx: Context, args: list[bytes]) -> None:
    ctx.reply.array(len(args) - 1)
    for name in args[1:]:
        value = ctx.db.find(name)
        ctx.reply.bulk(value if isinstance(value, bytes) else None)


def _pairs(args: list[bytes], command_name: str) -> list[tuple[bytes, bytes]]:
    if len(args) % 2 == 0:
        raise CommandError(f"ERR wrong number of arguments for '{command_name}' command")
    return list(zip(args[1::2], args[2::2], strict=True))


@command(
    "MSET", arity=-3, group="string", flags="write denyoom", keys=KeysAt(1, -1, 2, flags="OW update"), since="1.0.1",
    complexity="O(N) with N being the number of keys",
    tips=("request_policy:multi_shard", "response_policy:all_succeeded"),
    summary="Stores strings under several keys, and replaces values of any type.",
    args=(multiple(block("data", key(), string("value"))),),
)  # fmt: skip
def mset(ctx: Context, args: list[bytes]) -> None:
    for name, value in _pairs(args, "mset"):
        set_string(ctx.db, name, value)
        ctx.dirty += 1
    ctx.reply.ok()


@command(
    "MSETNX", arity=-3, group="string", flags="write denyoom", keys=KeysAt(1, -1, 2, flags="OW insert"), since="1.0.1",
    complexity="O(N) with N being the number of keys",
    summary="Stores strings under several keys if none of them exists.",
    args=(multiple(block("data", key(), string("value"))),),
)  # fmt: skip
def msetnx(ctx: Context, args: list[bytes]) -> None:
    pairs = _pairs(args, "msetnx")
    if any(ctx.db.find_for_write(name) is not None for name, _ in pairs):
        ctx.reply.integer(0)
        return
    for name, value in pairs:
        set_string(ctx.db, name, value)
        ctx.dirty += 1
    ctx.reply.integer(1)


def _parse_msetex(args: list[bytes]) -> tuple[list[tuple[bytes, bytes]], SetOptions, int]:
    """The pairs of an MSETEX, its options, and where those start; CommandError."""
    try:
        count = read_integer(args[1])
    except NotIntegerError:
        count = 0
    if not 0 < count <= INT32_MAX:
        raise CommandError("ERR invalid numkeys value")
    end = 2 + 2 * count
    if end > len(args):
        raise CommandError("ERR wrong number of key-value pairs")
    options = SetOptions.parse(args[end:])
    if options.returns_old or options.comparison is not None:
        raise OptionSyntaxError
    return list(zip(args[2:end:2], args[3:end:2], strict=True)), options, end


@command(
    "MSETEX", arity=-4, group="string", flags="write denyoom", keys=KeysCounted(1, 2, flags="OW update"), since="8.4.0",
    complexity="O(N) with N being the number of keys",
    tips=("request_policy:multi_shard", "response_policy:all_succeeded"),
    summary="Stores strings under several keys with a common expiry; with NX or XX only if none or all of them exist.",
    args=(
        integer("numkeys"), multiple(block("data", key(), string("value"))),
        optional(oneof("condition", token("NX"), token("XX"))),
        optional(oneof(
            "expiration", integer("seconds", "EX"), integer("milliseconds", "PX"), unix_time("unix-time-seconds", "EXAT"),
            unix_time("unix-time-milliseconds", "PXAT"), token("KEEPTTL"),
        )),
    ),
)  # fmt: skip
def msetex(ctx: Context, args: list[bytes]) -> None:
    pairs, options, options_at = _parse_msetex(args)
    at_ms = -1 if options.unit is None else expiry_at_ms(options.time, options.unit, ctx.now_ms, "msetex")
    for name, _ in pairs if options.only_missing or options.only_existing else ():
        if (ctx.db.find_for_write(name) is None) is not options.only_missing:
            ctx.reply.integer(0)
            return
    for name, value in pairs:
        ctx.db.set(name, value, options.keeps_expiry)
        if options.unit is not None:
            ctx.db.set_expiry(name, at_ms)
        ctx.db.event(EVENTS["string"], b"set", name)
        ctx.dirty += 1
    if options.unit in ("EX", "PX") and ctx.is_propagating:
        # The last time counts. What is propagated does not depend on when it is replayed.
        unit_at = max(at for at in range(options_at, len(args)) if args[at].upper() == options.unit.encode())
        ctx.propagate([*args[:unit_at], b"PXAT", b"%d" % at_ms, *args[unit_at + 2 :]])
    ctx.reply.integer(1)


# --- Numbers ---------------------------------------------------------------------------------------------------------


@command(
    "INCRBYFLOAT", arity=3, group="string", flags="write denyoom fast", keys=KeysAt(1, flags="RW access update"),
    since="2.6.0", summary="Adds to the floating-point number that a key holds; a missing key counts as 0.",
    args=(key(), double("increment")),
)  # fmt: skip
def incrbyfloat(ctx: Context, args: list[bytes]) -> None:
    from streamd.long_double import LongDouble

    present = find_string_for_write(ctx.db, args[1])
    number = LongDouble() if present is None else LongDouble.parse(present)
    increment = LongDouble.parse(args[2])
    if number is None or increment is None:
        raise CommandError("ERR value is not a valid float")
    total = number + increment
    if not total.is_finite:
        raise CommandError("ERR increment would produce NaN or Infinity")
    text = total.format()
    change_string(ctx.db, args[1], text, b"incrbyfloat", ENCODING_BY_LENGTH)
    ctx.dirty += 1
    if ctx.is_propagating:
        ctx.propagate([b"SET", args[1], text, b"KEEPTTL"])
    ctx.reply.bulk(text)


# --- Parts of a string -----------------------------------------------------------------------------------------------


@command(
    "APPEND", arity=3, group="string", flags="write denyoom fast", keys=KeysAt(1, flags="RW insert"), since="2.0.0",
    complexity="O(N) with N being the length of the string after it",
    summary="Appends to the string that a key holds; a missing key counts as empty.", args=(key(), string("value")),
)  # fmt: skip
def append(ctx: Context, args: list[bytes]) -> None:
    name, more = args[1], args[2]
    present = find_string_for_write(ctx.db, name)
    if present is None:
        change_string(ctx.db, name, more, b"append")
        length = len(more)
    else:
        length = len(present) + len(more)
        check_length(ctx, length)
        del present  # so that it can grow in place
        append_string(ctx.db, name, more)
    ctx.dirty += 1
    ctx.reply.integer(length)


@command(
    "SETRANGE", arity=4, group="string", flags="write denyoom", keys=KeysAt(1, flags="RW update"), since="2.2.0",
    complexity="O(N) with N being the length of the string after it",
    summary="Overwrites a part of the string that a key holds, and fills a gap before it with zero bytes.",
    args=(key(), integer("offset"), string("value")),
)  # fmt: skip
def setrange(ctx: Context, args: list[bytes]) -> None:
    name, offset, part = args[1], read_integer(args[2]), args[3]
    if offset < 0:
        raise CommandError("ERR offset is out of range")
    present = find_string_for_write(ctx.db, name) or b""
    if not part:
        ctx.reply.integer(len(present))
        return
    check_length(ctx, offset + len(part))
    text = present[:offset].ljust(offset, b"\0") + part + present[offset + len(part) :]
    change_string(ctx.db, name, text, b"setrange", ENCODING_RAW)
    ctx.dirty += 1
    ctx.reply.integer(len(text))
