from collections.abc import Iterator
from typing import Any

from typing_extensions import disjoint_base

from streamd.core.context import Context
from streamd.engine.value_type import ValueType

__all__ = ["ValueLoader"]

@disjoint_base
class ValueLoader:
    value: Any
    is_strict: bool
    @property
    def type(self) -> ValueType: ...
    @property
    def window(self) -> Any: ...
    def __init__(self, type: ValueType, window: Any) -> None: ...
    def begin(self, rdb_type: int) -> Iterator[None] | None: ...
    def take_over(self, context: Context) -> None: ...
