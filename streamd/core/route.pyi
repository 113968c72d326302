from collections.abc import Mapping
from typing import final

from streamd.core.histogram import Histogram
from streamd.core.spec import Command

@final
class Route:
    command: Command
    flags: int
    index: int
    calls: int
    usec: int
    rejected_calls: int
    failed_calls: int
    @property
    def histogram(self) -> Histogram | None: ...
    def __init__(self, command: Command) -> None: ...
    def leaves(self) -> list[Route]: ...

@final
class Routes:
    by_full_name: dict[str, Route]
    def __init__(self, commands: Mapping[str, Command]) -> None: ...
    def used(self) -> list[Route]: ...
    def reset_statistics(self) -> None: ...
