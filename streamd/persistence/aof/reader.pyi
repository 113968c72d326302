from collections.abc import Callable
from typing import Protocol, final

from streamd.errors import CommandError, StreamdError

STATE_PREFIX: bytes

class AofFault(StreamdError):
    offset: int
    expected: str
    found: bytes
    is_cut: bool
    def __init__(self, offset: int, expected: str, found: bytes, is_cut: bool) -> None: ...

class _Readable(Protocol):
    def readinto(self, view: memoryview, /) -> int | None: ...

@final
class AofReader:
    def __new__(cls, file: _Readable, size: int, offset: int = 0, strict: bool = False) -> AofReader: ...
    @property
    def strict(self) -> bool: ...
    @property
    def size(self) -> int: ...
    @property
    def whole(self) -> int: ...
    @property
    def valid(self) -> int: ...
    @property
    def commands(self) -> int: ...
    @property
    def stamp_s(self) -> int: ...
    def next_command(self) -> list[bytes] | None: ...
    def replay(
        self,
        apply: Callable[[list[bytes]], object],
        limit: int,
        restore: Callable[[bytes, list[bytes]], object] | None = None,
        failed: Callable[[list[bytes], CommandError], object] | None = None,
        knows: Callable[[list[bytes]], object] | None = None,
    ) -> bool: ...
    def check_invariants(self) -> None: ...
