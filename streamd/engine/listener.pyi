from typing import Any

from typing_extensions import disjoint_base

__all__ = ["EVENTS", "KeyspaceListener"]

EVENTS: dict[str, int]

@disjoint_base
class KeyspaceListener:
    wanted: int
    wants_touched: bool
    def key_event(self, db: Any, kind: int, event: bytes, key: bytes) -> int: ...
    def key_touched(self, db: Any, key: bytes) -> int: ...
    def key_removed(self, db: Any, key: bytes) -> int: ...
    def flushing(self, db: Any) -> int: ...
    def swapping(self, db: Any, other: Any) -> int: ...
