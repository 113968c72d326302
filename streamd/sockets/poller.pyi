import asyncio
from typing import Self

from typing_extensions import disjoint_base

from streamd.core.client import ClientHost

@disjoint_base
class Poller:
    def __new__(cls, loop: asyncio.AbstractEventLoop, host: ClientHost) -> Self: ...
    def close(self) -> None: ...
