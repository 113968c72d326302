from typing import final

from streamd.core.capability import Capability
from streamd.core.host import Host

@final
class SortedSetLimits(Capability):
    def __init__(self, host: Host | None) -> None: ...
    @property
    def max_members(self) -> int: ...
    @property
    def max_bytes(self) -> int: ...
