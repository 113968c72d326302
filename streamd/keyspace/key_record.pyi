from typing import Any, final

from streamd.keyspace.value_type import ValueType

ACCESS_MODES: dict[str, int]

@final
class KeyRecord:
    key: bytes
    hint: int
    uses: int
    @property
    def value(self) -> Any: ...
    @property
    def accessed_ms(self) -> int: ...
    @property
    def type(self) -> ValueType: ...
    @property
    def encoding(self) -> bytes: ...
