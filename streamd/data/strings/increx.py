"""INCREX: add to a number within bounds, and set or remove the expiry of its key, atomically.

Redis has it since 8.8. Behaviour: its manual and tests; where they are silent, INCRBY, INCRBYFLOAT and GETEX.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from streamd.core.args import integer as read_integer
from streamd.core.context import Context
from streamd.core.spec import KeysAt, command, double, integer, key, oneof, optional, string, token, unix_time
from streamd.data.strings.long_double import GREATEST, LongDouble
from streamd.data.strings.set_options import INT64_MAX, UNITS, expiry_at_ms
from streamd.data.strings.strings import find_string_for_write
from streamd.engine.slot import ENCODING_BY_LENGTH, ENCODING_BY_VALUE
from streamd.errors import CommandError, NotIntegerError, OptionSyntaxError

__all__ = ["IncrexOptions", "Range"]

Number = int | Fraction

INT64_MIN = -(2**63)


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


# --- The numbers -----------------------------------------------------------------------------------------------------


def _read(text: bytes, is_float: bool, what: str, if_infinite: str) -> Number:
    """A number; CommandError when it is not a number, or infinite."""
    if not is_float:
        try:
            return int(read_integer(text))
        except NotIntegerError:
            raise CommandError(f"ERR {what} is not an integer or out of range") from None
    number = LongDouble.parse(text)
    if number is None:
        raise CommandError(f"ERR {what} is not a valid float")
    if number.value is None:
        raise CommandError(f"ERR {if_infinite}")
    return number.value


def _read_bound(text: bytes | None, is_float: bool, name: str, widest: Number, infinite: tuple[bytes, ...]) -> Number:
    """A bound; `widest` when none is given, or an infinite one that sets no limit."""
    if text is None or (is_float and text.lower() in infinite):
        return widest
    return _read(text, is_float, name, f"{name} is not a valid float")


class Range(NamedTuple):
    """The bounds for a sum; by default, those of its type."""

    lower: Number
    upper: Number

    @classmethod
    def of(cls, options: IncrexOptions) -> Range:
        """The bounds of a request; CommandError."""
        least, greatest = (-GREATEST, GREATEST) if options.is_float else (INT64_MIN, INT64_MAX)
        lower = _read_bound(options.lower, options.is_float, "LBOUND", least, (b"-inf", b"-infinity"))
        upper = _read_bound(
            options.upper, options.is_float, "UBOUND", greatest, (b"inf", b"infinity", b"+inf", b"+infinity")
        )
        if lower > upper:
            raise CommandError("ERR LBOUND can't be greater than UBOUND")
        return cls(lower, upper)

    def place(self, total: Number, is_saturated: bool) -> Number | None:
        """The sum if it is within the bounds, or the bound that replaces it; None when neither is allowed."""
        if self.lower <= total <= self.upper:
            return total
        if not is_saturated:
            return None
        return self.upper if total > self.upper else self.lower


def _rounded(exact: Number, is_float: bool) -> Number:
    """A sum as its type represents it; one beyond the type's bounds stays exact."""
    if not is_float:
        return exact
    value = (LongDouble(Fraction(exact)) + LongDouble()).value
    return exact if value is None else value


def _text(number: Number, is_float: bool) -> bytes:
    return LongDouble(Fraction(number)).format() if is_float else b"%d" % number


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
    name = args[1]
    options = IncrexOptions.parse(args[2:])
    is_float = options.is_float
    increment = _read(options.increment, is_float, "Increment", "BYFLOAT increment cannot be Infinity")
    bounds = Range.of(options)
    at_ms = -1 if options.unit is None else expiry_at_ms(options.time, options.unit, ctx.now_ms, "increx")
    text = find_string_for_write(ctx, name)
    present = 0 if text is None else _read(text, is_float, "value", "value cannot be Infinity")
    total = bounds.place(_rounded(present + increment, is_float), options.is_saturated)
    if total is None:
        _answer(ctx, present, 0, is_float)
        return
    applied = total - present
    if not is_float and not INT64_MIN <= applied <= INT64_MAX:
        raise CommandError("ERR applied increment would overflow")
    if options.only_new and ctx.db.expiry(name) >= 0:
        at_ms = -1
    _store(ctx, name, _text(total, is_float), options, at_ms)
    _answer(ctx, total, _rounded(applied, is_float), is_float)


def _store(ctx: Context, name: bytes, text: bytes, options: IncrexOptions, at_ms: int) -> None:
    """Store the sum, set the expiry to `at_ms` (-1: as before), and propagate what an older Redis understands."""
    ctx.dirty += 1
    if 0 <= at_ms <= ctx.now_ms:
        ctx.db.delete(name, True)
        effect = [b"DEL", name]
    else:
        event, hint = (b"incrbyfloat", ENCODING_BY_LENGTH) if options.is_float else (b"incrby", ENCODING_BY_VALUE)
        ctx.db.change_string(name, text, event, hint)
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


def _answer(ctx: Context, value: Number, applied: Number, is_float: bool) -> None:
    reply = ctx.reply
    reply.array(2)
    for number in (value, applied):
        if not is_float:
            reply.integer(int(number))
        elif reply.resp == 3:
            reply.raw(b",%s\r\n" % _text(number, True))  # all digits, which are more than a double has
        else:
            reply.bulk(_text(number, True))
