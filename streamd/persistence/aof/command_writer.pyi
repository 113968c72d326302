from collections.abc import Callable, Iterable
from typing import Protocol, final

from streamd.engine.database import Database

__all__ = ["CommandWriter"]

class _Sink(Protocol):
    def write(self, data: bytes, /) -> object: ...

@final
class CommandWriter:
    def __new__(
        cls,
        sink: _Sink,
        *,
        idmp: tuple[int, int] = (100, 100),
        timestamp_s: int | None = None,
        has_xnack: bool = False,
    ) -> CommandWriter: ...
    @property
    def bytes_written(self) -> int: ...
    @property
    def keys_written(self) -> int: ...
    def write(
        self,
        databases: Iterable[Database],
        progress: Callable[[int], object] | None = None,
        libraries: Iterable[bytes] = (),
    ) -> None: ...
