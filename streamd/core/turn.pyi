import asyncio
from collections.abc import Callable

from typing_extensions import disjoint_base

from streamd.core.effects import Effects
from streamd.core.output import OutputLimits

@disjoint_base
class Turn(OutputLimits):
    loop: asyncio.AbstractEventLoop
    effects: Effects
    turns: int
    turns_us: int
    @property
    def has_replies(self) -> bool: ...
    def run_turn(self, call: Callable[..., object], *args: object) -> None: ...
