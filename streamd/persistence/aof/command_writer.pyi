from collections.abc import Callable, Iterable
from typing import Protocol, final

from streamd.keyspace.database import Database
from streamd.persistence.rdb.format import WriteOptions

class _Sink(Protocol):
    def write(self, data: bytes, /) -> object: ...

@final
class CommandWriter:
    def __new__(
        cls,
        sink: _Sink,
        *,
        options: WriteOptions | None = None,
        timestamp_s: int | None = None,
    ) -> CommandWriter: ...
    @property
    def options(self) -> WriteOptions: ...
    @property
    def db_index(self) -> int: ...
    @property
    def bytes_written(self) -> int: ...
    @property
    def keys_written(self) -> int: ...
    def begin(self, words: int) -> int: ...
    def word(self, word: bytes) -> int: ...
    def write(
        self,
        databases: Iterable[Database],
        progress: Callable[[int], object] | None = None,
        libraries: Iterable[bytes] = (),
    ) -> None: ...
