from collections.abc import Iterable, Mapping, Sequence
from typing import Self

from typing_extensions import disjoint_base

from streamd.core.spec import Command

@disjoint_base
class Catalogue:
    def __init__(self, commands: Iterable[tuple[int, Command]]) -> None: ...
    def __len__(self) -> int: ...

@disjoint_base
class Rules:
    def __new__(
        cls,
        commands: bytes,
        first_args: Mapping[int, Iterable[bytes]],
        keys: Iterable[tuple[bytes, int]],
        all_keys: bool,
        channels: Iterable[bytes],
        all_channels: bool,
    ) -> Self: ...
    @property
    def allows_everything(self) -> bool: ...

@disjoint_base
class Permissions:
    allow_everything: bool
    def __new__(cls, catalogue: Catalogue, sets: Sequence[Rules]) -> Self: ...
    def find_denial(self, number: int, args: list[bytes]) -> tuple[int, int] | None: ...
    def allow_channel(self, name: bytes, is_pattern: bool = False) -> bool: ...
