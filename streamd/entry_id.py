"""Entry IDs as text: parse, format, compare. Pure Python, no dependencies; an ID is a tuple `(ms, seq)`.

An ID is written `<ms>-<seq>`, both unsigned 64-bit numbers. Tuples compare as IDs do. What Redis accepts is wider than
what it prints: leading zeros, one leading `+`, leading white space, on either part; a NUL byte ends the text.
"""

from __future__ import annotations

import re

__all__ = ["MAX_ID", "MAX_PART", "MIN_ID", "format_id", "parse_id"]

MAX_PART = 2**64 - 1
MIN_ID = (0, 0)
MAX_ID = (MAX_PART, MAX_PART)

MAX_TEXT = 127
"""Longest ID text in bytes that Redis looks at."""

_PART = re.compile(rb"[ \t\n\v\f\r]*\+?([0-9]+)")


def _parse_part(text: bytes) -> int | None:
    match = _PART.fullmatch(text)
    if match is None:
        return None
    number = int(match[1])
    return number if number <= MAX_PART else None


def parse_id(text: bytes, missing_seq: int = 0) -> tuple[int, int] | None:
    """Parse a strict ID (no `-`, `+`, `$`, `>`, `*`), or return None when it is not one.

    missing_seq  the sequence number of an incomplete ID `<ms>`
    Behaviour: Redis 8.6, as seen on a running server.
    """
    if len(text) > MAX_TEXT:
        return None
    ms_text, dash, seq_text = text.partition(b"\0")[0].partition(b"-")
    ms = _parse_part(ms_text)
    seq = _parse_part(seq_text) if dash else missing_seq
    return None if ms is None or seq is None else (ms, seq)


def format_id(ms: int, seq: int) -> bytes:
    """The canonical text of an ID, `<ms>-<seq>`."""
    return b"%d-%d" % (ms, seq)
