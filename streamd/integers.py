"""The bounds of C's integers, beyond which Redis refuses numbers."""

from __future__ import annotations

__all__ = ["INT32_MAX", "INT32_MIN", "INT64_MAX", "INT64_MIN", "UINT64_MAX", "find_count"]

INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
UINT64_MAX = 2**64 - 1


def find_count(text: str) -> int | None:
    """The number from 0 to INT64_MAX that `text` is in decimal digits; None if it is no such number."""
    is_number = len(text) <= len(str(INT64_MAX)) and text.isascii() and text.isdigit()
    return int(text) if is_number and int(text) <= INT64_MAX else None
