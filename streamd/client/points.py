"""Entry IDs as 128-bit integers, and the points of a stream as users write them.

An ID `ms-seq` is the number `ms << 64 | seq`: ordered as IDs are, with a next and a previous one, and with distances, so
that a range can be cut into equal parts whatever it consists of (many milliseconds, or the one millisecond of `0-1..0-n`).

    points      `earliest`, `-`, `0`      the first ID there can be
                `latest`, `+`, `$`        the last one (a batch reads up to it, a query starts after it)
                `1526919030474-55`        an ID; `1526919030474` alone is its first, or as an end its last, sequence number
                `(1526919030474-55`       the same, that one ID left out, as XRANGE does
    timestamps  `1526919030474`           Unix time in milliseconds
                `2018-05-21T16:10:30Z`    ISO 8601; UTC when it names no zone
                `-1h`, `-15m`, `-2d12h`   before now; units: ms, s, m, h, d, w
                `now`
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from streamd.entry_id import MAX_PART, format_id, parse_id

__all__ = [
    "MAX_ID",
    "MIN_ID",
    "first_id_of",
    "format_entry_id",
    "last_id_of",
    "ms_of",
    "pack_id",
    "parse_duration_ms",
    "parse_entry_id",
    "parse_point",
    "parse_timestamp_ms",
    "unpack_id",
]

MIN_ID = 0
MAX_ID = 2**128 - 1

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)\s*")
_LONG_UNITS = re.compile(
    r"(?P<ms>milliseconds?|millis|msecs?)|(?P<s>seconds?|secs?)|(?P<m>minutes?|mins?)|(?P<h>hours?)|(?P<d>days?)|(?P<w>weeks?)"
)


def pack_id(ms: int, seq: int) -> int:
    return ms << 64 | seq


def unpack_id(number: int) -> tuple[int, int]:
    return number >> 64, number & MAX_PART


def ms_of(number: int) -> int:
    return number >> 64


def first_id_of(ms: int) -> int:
    """The lowest ID of a millisecond; a time beyond what IDs can hold gives the nearest bound."""
    return min(max(ms, 0) << 64, MAX_ID)


def last_id_of(ms: int) -> int:
    """The highest ID of a millisecond."""
    return pack_id(min(max(ms, 0), MAX_PART), MAX_PART)


def parse_entry_id(text: str | bytes, missing_seq: int = 0) -> int:
    """`ms-seq`, or `ms` alone with the sequence number given, as a number. Raises ValueError."""
    raw = text.encode() if isinstance(text, str) else text
    parsed = parse_id(raw, missing_seq)
    if parsed is None:
        raise ValueError(f"{raw.decode(errors='replace')!r} is not an entry ID; write for example 1526919030474-55")
    return pack_id(*parsed)


def format_entry_id(number: int) -> str:
    return format_id(*unpack_id(number)).decode()


def parse_point(text: str, *, is_end: bool = False) -> int:
    """A point of a stream as an inclusive bound. Raises ValueError.

    is_end  it ends the range: an ID without sequence number is the last of its millisecond, `(` takes the previous ID
    A bound that leaves nothing (after the last ID, before the first) raises too.
    """
    word = text.strip()
    if word.lower() in ("earliest", "-"):
        return MIN_ID
    if word.lower() in ("latest", "+", "$"):
        return MAX_ID
    is_exclusive = word.startswith("(")
    number = parse_entry_id(word[is_exclusive:], MAX_PART if is_end else 0)
    if not is_exclusive:
        return number
    if number == (MIN_ID if is_end else MAX_ID):
        raise ValueError(f"there is no ID {'before' if is_end else 'after'} {word[1:]}")
    return number - 1 if is_end else number + 1


def parse_duration_ms(text: str) -> int:
    """`500ms`, `10s`, `2d12h`, `5 minutes`; a bare number is milliseconds. Raises ValueError."""
    word = _LONG_UNITS.sub(lambda found: str(found.lastgroup), text.strip().lower())
    if word.isascii() and word.isdigit():
        return int(word)
    total, at = 0.0, 0
    while found := _SPAN.match(word, at):
        total += float(found[1]) * _UNITS_MS[found[2]]
        at = found.end()
    if at == 0 or at != len(word):
        raise ValueError(f"{text!r} is not a duration; write for example 500ms, 10s, 15m, 1h, 2d12h")
    return round(total)


def parse_timestamp_ms(text: str, now_ms: int) -> int:
    """A moment as Unix time in milliseconds, rounded down; see the head of the file. Raises ValueError."""
    word = text.strip()
    if word.lower() == "now":
        return now_ms
    if word.startswith("-") and not word[1:].strip().isdigit():
        return max(0, now_ms - parse_duration_ms(word[1:]))
    if word.isascii() and word.isdigit():
        return int(word)
    try:
        moment = datetime.fromisoformat(word)
    except ValueError:
        raise ValueError(
            f"{text!r} is not a time; write for example 1526919030474 (Unix time in ms), 2018-05-21T16:10:30Z, -1h, or now"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    since = moment - epoch
    return since.days * 86_400_000 + since.seconds * 1000 + since.microseconds // 1000
