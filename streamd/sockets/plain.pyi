import socket
from collections.abc import Callable
from typing import Self

from typing_extensions import disjoint_base

from streamd.core.client import Client
from streamd.sockets.poller import Poller

@disjoint_base
class SocketListener:
    def __new__(cls, poller: Poller, sock: socket.socket, make_client: Callable[[], Client]) -> Self: ...
    def close(self) -> None: ...
