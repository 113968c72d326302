from typing import Any, final

from streamd.keyspace.value_type import ValueType

ACCESS_MODES: dict[str, int]

@final
class KeyRecord:
    key: bytes
    value: Any
    expire_at_ms: int
    accessed_ms: int
    hint: int
    uses: int
    @property
    def type(self) -> ValueType: ...
    @property
    def encoding(self) -> bytes: ...
