"""What the scans have in common: SCAN, HSCAN, SSCAN, ZSCAN. Behaviour: Redis 8.6, as seen on a running server."""

from __future__ import annotations

import re
from typing import NamedTuple

from streamd.core.args import integer as read_integer
from streamd.errors import CommandError, OptionSyntaxError
from streamd.integers import INT64_MAX, UINT64_MAX

__all__ = ["ElementScanOptions", "parse_cursor"]

INVALID_CURSOR = "ERR invalid cursor"

_CURSOR = re.compile(rb"[ \t\n\v\f\r]*([+-]?)([0-9]+)")


def parse_cursor(text: bytes) -> int:
    """The cursor of a scan; CommandError when it is not a valid one.

    Read like C's strtoull, with all its quirks: leading white space, a sign, and a negative number that is not in
    canonical form counts down from 2**64. A zero byte ends the text.
    """
    text = text.partition(b"\0")[0]
    found = _CURSOR.fullmatch(text)
    if found is None or len(digits := found[2].lstrip(b"0")) > 20:
        raise CommandError(INVALID_CURSOR)
    number = int(digits or b"0")
    is_negative = found[1] == b"-"
    if number > UINT64_MAX or (is_negative and number <= INT64_MAX + 1 and text == b"-%d" % number != b"-0"):
        raise CommandError(INVALID_CURSOR)
    return -number & UINT64_MAX if is_negative else number


class ElementScanOptions(NamedTuple):
    """The options after the cursor of a scan of the elements of one key.

    pattern         what they must match, or None
    limit           about how many of them to visit (COUNT)
    is_without_values  NOVALUES: the fields of a hash alone
    """

    pattern: bytes | None = None
    limit: int = 10
    is_without_values: bool = False

    @classmethod
    def parse(cls, words: list[bytes], *, has_values: bool = False) -> ElementScanOptions:
        """Read the options; the last one of each kind counts. CommandError, OptionSyntaxError, NotIntegerError.

        has_values  whether the elements are fields of a hash
        """
        wanted, limit, is_without_values = None, 10, False
        rest = iter(words)
        for text in rest:
            word = text.upper()
            if word == b"NOVALUES":
                if not has_values:
                    raise CommandError("ERR NOVALUES option can only be used in HSCAN")
                is_without_values = True
                continue
            if word not in (b"COUNT", b"MATCH") or (operand := next(rest, None)) is None:
                raise OptionSyntaxError
            if word == b"MATCH":
                wanted = operand
                continue
            limit = read_integer(operand)
            if limit < 1:
                raise OptionSyntaxError
        return cls(wanted, limit, is_without_values)
