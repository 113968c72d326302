"""What the rooms of delivery keep for a server, one of each type, made when it is first needed."""

from __future__ import annotations

from typing import Any, TypeVar

from streamd.core.context import Context

__all__ = ["part_of"]

T = TypeVar("T")


def part_of(context: Context, kind: type[T]) -> T:
    """The one of that type that belongs to the server in which commands run."""
    found: Any = context.parts.get(kind)
    if found is None:
        found = context.parts[kind] = kind()
    part: T = found
    return part
