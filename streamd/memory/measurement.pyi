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

@disjoint_base
class Measurement(Capability):
    def __init__(self, host: Host) -> None: ...
    def measure(self) -> MemoryReport: ...
    def resident(self) -> int: ...
