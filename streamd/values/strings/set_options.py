"""The options of SET and of the commands related to it: what they are, and what they mean for a key.

Behaviour: Redis 8.6, as seen on a running server.
"""

from __future__ import annotations

from typing import NamedTuple

from streamd.core.args import integer as read_integer
from streamd.core.spec import integer, unix_time
from streamd.digests import xxh3_hex
from streamd.errors import CommandError, OptionSyntaxError, invalid_expire_time
from streamd.integers import INT64_MAX

__all__ = [
    "COMPARISONS",
    "EXPIRATIONS",
    "UNITS",
    "SetOptions",
    "expiry_at_ms",
    "is_met",
    "operand_of",
]

UNITS = ("EX", "PX", "EXAT", "PXAT")
COMPARISONS = ("IFEQ", "IFNE", "IFDEQ", "IFDNE")


class SetOptions(NamedTuple):
    """The options after the value of a SET.

    only_missing   NX: the key must be missing
    only_existing  XX: the key must exist
    comparison     IFEQ, IFNE, IFDEQ or IFDNE, or None
    operand        what the current value, or its digest, is compared with
    returns_old    GET: reply with the old value
    unit           EX, PX, EXAT or PXAT, or None
    time           the argument of that option, unparsed
    keeps_expiry   KEEPTTL
    """

    only_missing: bool = False
    only_existing: bool = False
    comparison: str | None = None
    operand: bytes = b""
    returns_old: bool = False
    unit: str | None = None
    time: bytes = b""
    keeps_expiry: bool = False

    @classmethod
    def parse(cls, words: list[bytes]) -> SetOptions:
        """Read the options; OptionSyntaxError when they are unknown, incomplete or conflicting.

        An option may be repeated, and the last one counts; a comparison may not, nor may it be used with NX or XX.
        """
        only_missing = only_existing = returns_old = keeps_expiry = False
        comparison = unit = None
        operand = time = b""
        rest = iter(words)
        for text in rest:
            word = text.decode("latin-1").upper()
            if word == "NX" and not only_existing and comparison is None:
                only_missing = True
            elif word == "XX" and not only_missing and comparison is None:
                only_existing = True
            elif word == "GET":
                returns_old = True
            elif word == "KEEPTTL" and unit is None:
                keeps_expiry = True
            elif word in UNITS and unit in (None, word) and not keeps_expiry:
                unit, time = word, operand_of(rest)
            elif word in COMPARISONS and comparison is None and not only_missing and not only_existing:
                comparison, operand = word, operand_of(rest)
            else:
                raise OptionSyntaxError
        return cls(only_missing, only_existing, comparison, operand, returns_old, unit, time, keeps_expiry)

    @staticmethod
    def key_flags(args: list[bytes]) -> str:
        """What this SET does with its key, for COMMAND GETKEYSANDFLAGS."""
        words = {word.decode("latin-1").upper() for word in args[3:]}
        if "GET" in words:
            return "RW access update"
        return "OW update" if words.isdisjoint(COMPARISONS) else "RW update"

    def is_met(self, present: bytes | None) -> bool:
        """Whether the comparison, if there is one, allows replacing the value `present` (None: the key is missing)."""
        if self.comparison is None:
            return True
        if present is None:
            return self.comparison in ("IFNE", "IFDNE")
        return is_met(self.comparison, self.operand, present)


def is_met(comparison: str, operand: bytes, present: bytes) -> bool:
    """Whether a string, or its digest, satisfies IFEQ, IFNE, IFDEQ or IFDNE; CommandError for a malformed digest."""
    wants_equal = comparison in ("IFEQ", "IFDEQ")
    if comparison in ("IFEQ", "IFNE"):
        return (present == operand) is wants_equal
    if len(operand) != 16:
        raise CommandError("ERR must be exactly 16 hexadecimal characters")
    return (xxh3_hex(present) == operand.lower()) is wants_equal


def operand_of(rest: object) -> bytes:
    """The argument of an option."""
    operand: bytes | None = next(rest, None)  # type: ignore[call-overload]
    if operand is None:
        raise OptionSyntaxError
    return operand


def expiry_at_ms(text: bytes, unit: str, now_ms: int, command_name: str) -> int:
    """The Unix time in ms that an option EX, PX, EXAT or PXAT means; it may have passed already.

    Raises NotIntegerError, or CommandError when the time is not positive or does not fit in 63 bits.
    """
    time = read_integer(text)
    scale = 1000 if unit in ("EX", "EXAT") else 1
    base = now_ms if unit in ("EX", "PX") else 0
    if time <= 0 or time > INT64_MAX // scale or time * scale > INT64_MAX - base:
        raise CommandError(invalid_expire_time(command_name))
    return time * scale + base


EXPIRATIONS = (
    integer("seconds", "EX", since="2.6.12"),
    integer("milliseconds", "PX", since="2.6.12"),
    unix_time("unix-time-seconds", "EXAT", since="6.2.0"),
    unix_time("unix-time-milliseconds", "PXAT", since="6.2.0"),
)
