from collections.abc import Callable, Iterable
from typing import Protocol, final

from streamd.engine.database import Database
from streamd.engine.stream import Stream
from streamd.persistence.rdb.format import Losses, WriteOptions

__all__ = ["RdbWriter", "dump_libraries", "dump_value"]

class _Sink(Protocol):
    def write(self, data: bytes, /) -> object: ...

@final
class RdbWriter:
    def __init__(self, sink: _Sink | None, options: WriteOptions | None = None) -> None: ...
    @property
    def bytes_written(self) -> int: ...
    @property
    def keys_written(self) -> int: ...
    @property
    def losses(self) -> Losses: ...
    def write(
        self,
        databases: Iterable[Database],
        *,
        now_ms: int,
        used_memory: int = 0,
        progress: Callable[[int], object] | None = None,
        libraries: Iterable[bytes] = (),
    ) -> None: ...

def dump_libraries(libraries: Iterable[bytes], options: WriteOptions | None = None) -> bytes: ...
def dump_value(value: Stream | bytes, options: WriteOptions | None = None) -> bytes: ...
