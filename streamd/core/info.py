"""What a capability contributes to INFO: lines of sections, as `Capability.info` declares them.

    info = {
        "clients": (
            Field("connected_clients", lambda self: len(self.host.clients)),     a name and its getter
            Field("cluster_connections", 0),                                     a fixed value
        ),
        "hotkeys": (
            Fields(lambda self: self.session, (Field(...), ...)),                fields of one object, looked up once;
        ),                                                                       without that object they are left out
        "commandstats": (Lines("commands", lambda self: self.command_lines()),), any number of lines
    }

observe/info.py combines the sections of all capabilities, in Redis's order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

__all__ = ["Field", "Fields", "Lines", "human_size", "ratio"]

C = TypeVar("C")


@dataclass(frozen=True)
class Field(Generic[C]):
    """A line of INFO: name and value. `value` is called with the capability; a fixed value is used as it is."""

    name: str
    value: Callable[[C], object] | str | int

    def lines(self, capability: Any) -> Iterable[str]:
        value = self.value
        return (f"{self.name}:{value(capability) if callable(value) else value}",)


@dataclass(frozen=True)
class Fields(Generic[C]):
    """Fields of an object that is looked up once for all of them.

    find    called with the capability; returns the object that the fields are called with, or None to leave them out
    fields  the fields
    """

    find: Callable[[C], object]
    fields: tuple[Field[Any] | Lines[Any], ...]


@dataclass(frozen=True)
class Lines(Generic[C]):
    """Lines whose names and number are not known in advance. `read` is called with the capability.

    name  represents them in the order of the section
    """

    name: str
    read: Callable[[C], Iterable[str]]

    def lines(self, capability: Any) -> Iterable[str]:
        return self.read(capability)


def human_size(size: int) -> str:
    """Human-readable bytes: `512B`, `1.50K`, `2.00G`."""
    if size < 1024:
        return f"{size}B"
    power = min(5, (size.bit_length() - 1) // 10)
    return f"{size / (1 << 10 * power):.2f}{'BKMGTP'[power]}"


def ratio(part: float, whole: float) -> float:
    """part / whole; 0 if `whole` is zero."""
    return part / whole if whole else 0.0
