"""What counts as a number in the value of a field, for all computations, in Spark and without it.

Decimal notation, with or without exponent. Not accepted, though Python or Java would: `1_000`, `0x1p3`, `1.5d`, `inf`,
`nan`.
"""

from __future__ import annotations

import re

__all__ = ["NUMBER_PATTERN", "find_number"]

NUMBER_PATTERN = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
"""Read alike by Python and Java."""

_NUMBER = re.compile(NUMBER_PATTERN.encode())


def find_number(value: bytes) -> float | None:
    """The number that a value represents; None when it is not a number, or beyond what a double can hold."""
    if _NUMBER.fullmatch(value) is None:
        return None
    number = float(value)
    return number if abs(number) != float("inf") else None
