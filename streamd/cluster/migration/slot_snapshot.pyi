from collections.abc import Callable, Iterable
from typing import Protocol

from streamd.keyspace.database import Database
from streamd.persistence.rdb.format import WriteOptions

class _Sink(Protocol):
    def write(self, data: bytes, /) -> object: ...

def write_slots(
    sink: _Sink,
    db: Database,
    slots: Iterable[int],
    options: WriteOptions,
    libraries: list[bytes],
    progress: Callable[[int], object],
) -> None: ...
