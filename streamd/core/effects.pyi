from collections.abc import Iterable
from typing import Self, final

from typing_extensions import disjoint_base

from streamd.core.client import ClientHost
from streamd.core.context import Context

@final
class Effect:
    @property
    def db_index(self) -> int: ...
    @property
    def args(self) -> list[bytes]: ...
    def __init__(self, db_index: int, args: list[bytes], is_for_replicas: bool = ...) -> None: ...

@disjoint_base
class EffectSink:
    offset: int
    def take_effects(self, effects: list[Effect], now_ms: int) -> int: ...

@final
class Effects:
    counter: EffectSink | None
    data_offset: int
    @property
    def files(self) -> tuple[EffectSink, ...]: ...
    @property
    def replicas(self) -> tuple[EffectSink, ...]: ...
    def __new__(cls, host: ClientHost, context: Context) -> Self: ...
    def set_files(self, sinks: Iterable[EffectSink]) -> None: ...
    def set_replicas(self, sinks: Iterable[EffectSink]) -> None: ...
