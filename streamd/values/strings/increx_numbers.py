"""The numbers of INCREX: integers of 64 bits, or C's long doubles, and the bounds that a request sets for them.

Apart from the command, since fractions take memory that a server without such requests does not need.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from streamd.core.args import integer as read_integer
from streamd.errors import CommandError, NotIntegerError
from streamd.integers import INT64_MAX, INT64_MIN
from streamd.long_double import GREATEST, LongDouble

__all__ = ["Number", "Range", "number_text", "read_number", "rounded"]

Number = int | Fraction


def read_number(text: bytes, is_float: bool, what: str, if_infinite: str) -> Number:
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
    return read_number(text, is_float, name, f"{name} is not a valid float")


class Range(NamedTuple):
    """The bounds for a sum; by default, those of its type."""

    lower: Number
    upper: Number

    @classmethod
    def of(cls, lower_text: bytes | None, upper_text: bytes | None, is_float: bool) -> Range:
        """The bounds that LBOUND and UBOUND give, None where one was not given; CommandError."""
        least, greatest = (-GREATEST, GREATEST) if is_float else (INT64_MIN, INT64_MAX)
        lower = _read_bound(lower_text, is_float, "LBOUND", least, (b"-inf", b"-infinity"))
        upper = _read_bound(upper_text, is_float, "UBOUND", greatest, (b"inf", b"infinity", b"+inf", b"+infinity"))
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


def rounded(exact: Number, is_float: bool) -> Number:
    """A sum as its type represents it; one beyond the type's bounds stays exact."""
    if not is_float:
        return exact
    value = (LongDouble(Fraction(exact)) + LongDouble()).value
    return exact if value is None else value


def number_text(number: Number, is_float: bool) -> bytes:
    """A number as a key holds it."""
    return LongDouble(Fraction(number)).format() if is_float else b"%d" % number
