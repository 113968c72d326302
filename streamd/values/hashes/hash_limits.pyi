from typing import Any, final

from streamd.core.capability import Capability

@final
class HashLimits(Capability):
    @property
    def max_fields(self) -> int: ...
    @property
    def max_bytes(self) -> int: ...
    def __init__(self, host: Any) -> None: ...
