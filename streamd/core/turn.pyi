import asyncio

from typing_extensions import disjoint_base

from streamd.core.effects import Effects
from streamd.core.output import OutputLimits

@disjoint_base
class Turn(OutputLimits):
    loop: asyncio.AbstractEventLoop
    effects: Effects
    turns: int
    turns_us: int
