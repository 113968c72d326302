from typing import final

from typing_extensions import disjoint_base

from streamd.core.capability import Capability
from streamd.core.client import Client
from streamd.core.host import Host

__all__ = ["CLIENT_BYTES", "Eviction", "MemoryReport"]

CLIENT_BYTES: int

@final
class MemoryReport:
    used: int
    peak: int
    peak_ms: int
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
    peak_ms: int
    startup: int
    clients_limit: int
    evicted_clients: int
    def __init__(self, host: Host) -> None: ...
    def used(self) -> int: ...
    def has_room(self) -> bool: ...
    def measure(self, resident: int, code: tuple[int, int, int]) -> MemoryReport: ...
    @property
    def current_excess_ms(self) -> int: ...
    @property
    def total_excess_ms(self) -> int: ...
    def reset_statistics(self) -> None: ...
    def make_room(self) -> bool: ...
    def go_on(self) -> None: ...
    def weigh_all(self) -> None: ...
    def weigh(self, client: Client) -> int: ...
    def evict_clients(self) -> int: ...
