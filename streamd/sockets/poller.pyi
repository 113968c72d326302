import asyncio

from typing_extensions import disjoint_base

from streamd.core.client import ClientHost

@disjoint_base
class Poller:
    def __init__(self, loop: asyncio.AbstractEventLoop, host: ClientHost) -> None: ...
    def close(self) -> None: ...
