from typing import Self

from typing_extensions import disjoint_base

from streamd.sockets.poller import Poller

@disjoint_base
class IoThreads:
    def __new__(cls, poller: Poller, count: int) -> Self: ...
    def finish(self) -> None: ...
    def figures(self) -> list[tuple[int, int, int]]: ...
