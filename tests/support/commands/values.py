"""A type of value for tests of databases: values that are slow to free, and that can be seen being freed."""

from __future__ import annotations

import threading
from typing import Any

from streamd.keyspace.value_type import ValueType, register

__all__ = ["Big"]


class Big:
    """A value like a large stream: it says how much work it is to free, and knows whether it has been given away."""

    def __init__(self, effort: int = 1000) -> None:
        self.effort = effort
        self.is_detached = False
        self.freed_by: threading.Thread | None = None
        self.is_freed = threading.Event()

    def free_effort(self) -> int:
        return self.effort

    def detach(self) -> Big:
        assert not self.is_detached, "freed twice"
        self.is_detached = True
        return self

    def free(self) -> None:
        self.freed_by = threading.current_thread()
        self.is_freed.set()


class BigType(ValueType):
    def __init__(self) -> None:
        super().__init__(b"big", Big, frees_slowly=True)

    def weight(self, value: Any) -> int:
        return 64

    def copy(self, value: Any) -> Any:
        assert not value.is_detached
        return Big(value.effort)


register(BigType())
