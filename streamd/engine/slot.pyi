from typing import Any, final

__all__ = ["ACCESS_MODES", "ENCODING_BY_LENGTH", "ENCODING_BY_VALUE", "ENCODING_RAW", "Slot"]

ENCODING_BY_VALUE: int
ENCODING_BY_LENGTH: int
ENCODING_RAW: int
ACCESS_MODES: dict[str, int]

@final
class Slot:
    key: bytes
    value: Any
    expire_at_ms: int
    accessed_ms: int
    encoding_hint: int
    uses: int
    used_minute: int
    @property
    def encoding(self) -> bytes: ...
