"""What a capability contributes to INFO: fields, each a name and how to find its value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

__all__ = ["Field"]

C = TypeVar("C")


@dataclass(frozen=True)
class Field(Generic[C]):
    """A line of INFO: name and value. `value` is called with the capability; a fixed value stands for itself."""

    name: str
    value: Callable[[C], object] | str | int

    def read(self, capability: Any) -> object:
        """The value now."""
        return self.value(capability) if callable(self.value) else self.value

    def line(self, capability: Any) -> str:
        return f"{self.name}:{self.read(capability)}"
