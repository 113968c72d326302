"""What a finding is, and how its figures are written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from streamd.shell.showing import quoted

__all__ = ["PLAIN", "SEVERITIES", "Finding", "counted", "duration", "number", "per_second", "size", "word"]

SEVERITIES = ("critical", "warning", "notice")

PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:/@{}+")


@dataclass(frozen=True)
class Finding:
    """Something that is wrong with a server.

    severity  one of SEVERITIES
    kind      its name: `group-lag-grows`
    subject   what has it, as a person would say; empty: the server
    figure    what was seen, with numbers
    why       why that matters
    fix      commands for `streamd cli` or `redis-cli`, and remarks behind `#`
    weight    within a kind and severity the greatest comes first
    values    the numbers, for programs
    node      the node of a cluster that has it; empty: the server, or the whole cluster
    """

    severity: str
    kind: str
    subject: str
    figure: str
    why: str
    fix: tuple[str, ...]
    weight: float = 0.0
    values: dict[str, Any] = field(default_factory=dict)
    node: str = ""


def word(value: bytes) -> str:
    """A word of a command, in quotes where it needs them."""
    return value.decode() if value and PLAIN.issuperset(value) else quoted(value)


def number(value: float) -> str:
    return f"{value:,.0f}"


def counted(count: int, singular: str, plural: str = "") -> str:
    """As `1 stream`, `12 streams`."""
    return f"{number(count)} {singular if count == 1 else plural or singular + 's'}"


def per_second(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


UNITS_OF_TIME = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"))


def duration(seconds: float) -> str:
    """As `4.1 h`."""
    for unit, name in UNITS_OF_TIME:
        if seconds >= unit:
            count = seconds / unit
            return f"{count:,.0f} {name}" if count >= 10 else f"{count:.1f} {name}"
    return f"{seconds:.0f} s" if seconds >= 10 or seconds == int(seconds) else f"{seconds:.1f} s"


def size(count: float) -> str:
    """Bytes, as `1.2 GiB`."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:,.0f} {unit}" if unit == "bytes" or count >= 10 else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:,.1f} TiB"
