from typing import final

from typing_extensions import disjoint_base

from streamd.core.capability import Capability
from streamd.core.host import Host

@final
class MemoryReport:
    used: int
    peak: int
    startup: int
    resident: int
    clients: int
    replicas: int
    lookups: int
    keys: int
    uncounted: int
    scripts: int
    functions: int
    interpreters: int
    @property
    def overhead(self) -> int: ...
    @property
    def dataset(self) -> int: ...
    @property
    def dataset_percent(self) -> float: ...
    @property
    def bytes_per_key(self) -> int: ...
    @property
    def fragmentation(self) -> float: ...
    def figures(self) -> tuple[object, ...]: ...

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
    def measure(self, resident: int, code: tuple[int, int, int]) -> MemoryReport: ...
    def reset_statistics(self) -> None: ...
    def go_on(self) -> None: ...
