"""INCREX: add to a number within bounds, and set or remove the expiry of its key, atomically.

Redis has it since 8.8. Behaviour: its manual and tests; where they are silent, INCRBY, INCRBYFLOAT and GETEX.
"""

from __future__ import annotations

from typing import NamedTuple

from streamd.core.context import Context
from streamd.core.spec import KeysAt, command, double, integer, key, oneof, optional, string, token, unix_time
from streamd.errors import CommandError, OptionSyntaxError
from streamd.integers import INT64_MAX, INT64_MIN
from streamd.values.strings.set_options import UNITS, expiry_at_ms
from streamd.values.strings.stored import change_string, find_string_for_write
from streamd.values.strings.string_type import ENCODING_BY_LENGTH, ENCODING_BY_VALUE

__all__ = ["IncrexOptions"]


# --- The request -----------------------------------------------------------------------------------------------------

FLAGS = ("SATURATE", "PERSIST", "ENX")
WITH_OPERAND = ("BYINT", "BYFLOAT", "LBOUND", "UBOUND", *UNITS)
EXCLUDED = {
    "BYINT": ("BYFLOAT",),
    "BYFLOAT": ("BYINT",),
    "ENX": ("PERSIST",),
    "PERSIST": ("ENX", *UNITS),
    **dict.fromkeys(UNITS, ("PERSIST", *UNITS)),
}
"""For each option, the other options that it excludes."""


class IncrexOptions(NamedTuple):
    """The options after the key of an INCREX; numbers are unparsed.

    is_float      BYFLOAT
    increment     the argument of BYINT or BYFLOAT
    lower, upper  those of LBOUND and UBOUND, or None
    is_saturated  SATURATE: a sum beyond a bound becomes the bound
    unit, time    EX, PX, EXAT or PXAT, or None, and its argument
    persists      PERSIST
    only_new      ENX: an existing expiry stays
    """

    is_float: bool = False
    increment: bytes = b"1"
    lower: bytes | None = None
    upper: bytes | None = None
    is_saturated: bool = False
    unit: str | None = None
    time: bytes = b""
    persists: bool = False
    only_new: bool = False

    @classmethod
    def parse(cls, words: list[bytes]) -> IncrexOptions:
        """Read the options, in any order; OptionSyntaxError when one is unknown, repeated, incomplete or excluded."""
        found: dict[str, bytes] = {}
        rest = iter(words)
        for text in rest:
            word = text.decode("latin-1").upper()
            if word in found or not found.keys().isdisjoint(EXCLUDED.get(word, ())):
                raise OptionSyntaxError
            operand = b"" if word in FLAGS else next(rest, None) if word in WITH_OPERAND else None
            if operand is None:
                raise OptionSyntaxError
            found[word] = operand
        unit = next((word for word in UNITS if word in found), None)
        if "ENX" in found and unit is None:
            raise CommandError("ERR ENX flag requires an expiration")
        return cls(
            is_float="BYFLOAT" in found,
            increment=found.get("BYFLOAT", found.get("BYINT", b"1")),
            lower=found.get("LBOUND"),
            upper=found.get("UBOUND"),
            is_saturated="SATURATE" in found,
            unit=unit,
            time=b"" if unit is None else found[unit],
            persists="PERSIST" in found,
            only_new="ENX" in found,
        )


# --- The command -----------------------------------------------------------------------------------------------------


@command(
    "INCREX", arity=-2, group="string", flags="write denyoom fast", keys=KeysAt(1, flags="RW access update"),
    since="8.8.0",
    summary="Adds to the number that a key holds, within bounds, and sets or removes the expiry of the key.",
    args=(
        key(),
        optional(oneof("increment", double("float", "BYFLOAT"), integer("integer", "BYINT"))),
        optional(token("SATURATE")),
        optional(string("lowerbound", "LBOUND")),
        optional(string("upperbound", "UBOUND")),
        optional(oneof(
            "expiration", integer("seconds", "EX"), integer("milliseconds", "PX"), unix_time("unix-time-seconds", "EXAT"),
            unix_time("unix-time-milliseconds", "PXAT"), token("PERSIST"),
        )),
        optional(token("ENX")),
    ),
)  # fmt: skip
def increx(ctx: Context, args: list[bytes]) -> None:
    from streamd.values.strings.increx_numbers import Range, number_text, read_number, rounded

    name = args[1]
    options = IncrexOptions.parse(args[2:])
    is_float = options.is_float
    increment = read_number(options.increment, is_float, "Increment", "BYFLOAT increment cannot be Infinity")
    bounds = Range.of(options.lower, options.upper, is_float)
    at_ms = -1 if options.unit is None else expiry_at_ms(options.time, options.unit, ctx.now_ms, "increx")
    text = find_string_for_write(ctx.db, name)
    present = 0 if text is None else read_number(text, is_float, "value", "value cannot be Infinity")
    total = bounds.place(rounded(present + increment, is_float), options.is_saturated)
    if total is None:
        _answer(ctx, is_float, number_text(present, is_float), b"0")
        return
    applied = total - present
    if not is_float and not INT64_MIN <= applied <= INT64_MAX:
        raise CommandError("ERR applied increment would overflow")
    if options.only_new and ctx.db.expiry(name) >= 0:
        at_ms = -1
    text = number_text(total, is_float)
    _store(ctx, name, text, options, at_ms)
    _answer(ctx, is_float, text, number_text(rounded(applied, is_float), is_float))


def _store(ctx: Context, name: bytes, text: bytes, options: IncrexOptions, at_ms: int) -> None:
    """Store the sum, set the expiry to `at_ms` (-1: as before), and propagate what an older Redis understands."""
    ctx.dirty += 1
    if 0 <= at_ms <= ctx.now_ms:
        ctx.db.delete(name, True)
        effect = [b"DEL", name]
    else:
        event, hint = (b"incrbyfloat", ENCODING_BY_LENGTH) if options.is_float else (b"incrby", ENCODING_BY_VALUE)
        change_string(ctx.db, name, text, event, hint)
        effect = [b"SET", name, text]
        if at_ms >= 0:
            ctx.db.set_expiry(name, at_ms)
            effect += [b"PXAT", b"%d" % at_ms]
        elif options.persists:
            ctx.db.persist(name)
        else:
            effect.append(b"KEEPTTL")
    if ctx.is_propagating:
        ctx.propagate(effect)


def _answer(ctx: Context, is_float: bool, value: bytes, applied: bytes) -> None:
    reply = ctx.reply
    reply.array(2)
    for number in (value, applied):
        if not is_float:
            reply.integer(int(number))
        elif reply.resp == 3:
            reply.raw(b",%s\r\n" % number)  # all digits, which are more than a double has
        else:
            reply.bulk(number)
