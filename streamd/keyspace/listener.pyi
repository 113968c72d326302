from typing import Any

from typing_extensions import disjoint_base

EVENTS: dict[str, int]

@disjoint_base
class KeyspaceListener:
    wanted: int
    def flushing(self, db: Any) -> int: ...
