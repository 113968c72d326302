from typing_extensions import disjoint_base

from streamd.core.capability import Capability
from streamd.core.host import Host

@disjoint_base
class Eviction(Capability):
    limit: int
    is_off: bool
    peak: int
    startup: int
    evicted_clients: int
    def __init__(self, host: Host) -> None: ...
    def used(self) -> int: ...
    def has_room(self) -> bool: ...
    def reset_statistics(self) -> None: ...
    def go_on(self) -> None: ...
