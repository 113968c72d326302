from collections.abc import Callable, Iterable
from typing import Any, Protocol, final

from streamd.keyspace.database import Database
from streamd.persistence.rdb.format import Losses, WriteOptions

class _Sink(Protocol):
    def write(self, data: bytes, /) -> object: ...

@final
class RdbWriter:
    def __init__(self, sink: _Sink | None, options: WriteOptions | None = None) -> None: ...
    @property
    def options(self) -> WriteOptions: ...
    @property
    def version(self) -> int: ...
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

def dump_value(value: Any, options: WriteOptions | None = None) -> bytes: ...
def dump_libraries(libraries: Iterable[bytes], options: WriteOptions | None = None) -> bytes: ...
