"""The floating-point numbers of INCRBYFLOAT and INCREX: x86 extended precision, on every machine.

Redis computes with C's `long double` and replies with seventeen decimals, so its digits show the 64-bit mantissa of the
machines it mostly runs on. Neither Python nor every C compiler has that type; here a number is an exact fraction,
rounded to 64 bits, to nearest and ties to even, wherever the processor would round it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

__all__ = ["GREATEST", "LongDouble"]

MANTISSA_BITS = 64
GREATEST_EXPONENT = 16383
LEAST_EXPONENT = -16445
"""The exponent of the smallest nonzero number."""

GREATEST = Fraction((2**MANTISSA_BITS - 1) * 2 ** (GREATEST_EXPONENT - MANTISSA_BITS + 1))
"""The greatest finite number."""

MAX_TEXT = 5 * 1024
"""Redis does not accept texts of this length, in bytes, as numbers."""

FARTHEST = {10: 11_000, 16: 40_000}
"""The greatest exponent allowed in a decimal, or hexadecimal, text."""

DECIMALS = 17

AT_ONCE = 4000
"""Digits converted at once: Python refuses more than 4300."""

_DECIMAL = re.compile(rb"([+-]?)(?:([0-9]+)\.?([0-9]*)|\.([0-9]+))(?:[eE]([+-]?[0-9]+))?")
_HEX = re.compile(rb"([+-]?)0[xX](?:([0-9a-fA-F]+)\.?([0-9a-fA-F]*)|\.([0-9a-fA-F]+))(?:[pP]([+-]?[0-9]+))?")
_INFINITY = re.compile(rb"[+-]?(?:inf|infinity)", re.IGNORECASE)


def _round(exact: Fraction) -> Fraction | None:
    """The nearest number that the type can hold; None when it is beyond the greatest one."""
    if not exact:
        return exact
    magnitude = abs(exact)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if magnitude < Fraction(2) ** exponent:
        exponent -= 1
    unit = Fraction(2) ** (max(exponent, LEAST_EXPONENT + MANTISSA_BITS - 1) - MANTISSA_BITS + 1)
    rounded = round(exact / unit) * unit
    return None if abs(rounded) >= Fraction(2) ** (GREATEST_EXPONENT + 1) else rounded


def _decimal(number: int) -> str:
    """The digits of a number that may have more of them than `str` accepts."""
    head, tail = divmod(number, 10**AT_ONCE)
    return f"{head}{tail:0{AT_ONCE}d}" if head else str(tail)


def _read_digits(digits: bytes, base: int) -> int:
    """The number written by the digits, however many there are."""
    number = 0
    for start in range(0, len(digits), AT_ONCE):
        piece = digits[start : start + AT_ONCE]
        number = number * base ** len(piece) + int(piece, base)
    return number


@dataclass(frozen=True, slots=True)
class LongDouble:
    """A number; `value` is None when not finite."""

    value: Fraction | None = Fraction(0)

    @property
    def is_finite(self) -> bool:
        return self.value is not None

    @classmethod
    def parse(cls, text: bytes) -> LongDouble | None:
        """Read a number as strtold does, or return None when the text is not a number, or out of range."""
        if len(text) >= MAX_TEXT:
            return None
        if _INFINITY.fullmatch(text):
            return cls(None)
        base, power = 10, 10
        match = _DECIMAL.fullmatch(text)
        if match is None:
            base, power = 16, 2
            match = _HEX.fullmatch(text)
        if match is None:
            return None
        sign, whole, part, bare_part, exponent_text = match.groups(b"")
        decimals = part or bare_part
        mantissa = _read_digits(whole + decimals, base)
        if not mantissa:
            return cls(Fraction(0))
        # Beyond these no text of MAX_TEXT bytes is in range, and the power would take long to compute.
        exponent = int(exponent_text or b"0") if len(exponent_text) < 100 else FARTHEST[base] + 1
        if abs(exponent) > FARTHEST[base]:
            return None
        exact = mantissa * Fraction(power) ** exponent / base ** len(decimals)
        rounded = _round(-exact if sign == b"-" else exact)
        return cls(rounded) if rounded else None

    def __add__(self, other: LongDouble) -> LongDouble:
        if self.value is None or other.value is None:
            return LongDouble(None)
        return LongDouble(_round(self.value + other.value))

    def format(self) -> bytes:
        """At most seventeen decimals, without trailing zeros. ValueError when the number is not finite."""
        if self.value is None:
            raise ValueError("an infinite number has no digits")
        scaled = round(abs(self.value) * 10**DECIMALS)
        whole, part = divmod(scaled, 10**DECIMALS)
        decimals = f"{part:0{DECIMALS}d}".rstrip("0")
        sign = "-" if self.value < 0 and scaled else ""
        return (sign + _decimal(whole) + ("." + decimals if decimals else "")).encode()
