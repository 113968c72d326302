import socket
from collections.abc import Callable

from typing_extensions import disjoint_base

from streamd.core.client import Client
from streamd.sockets.poller import Poller

@disjoint_base
class SocketListener:
    def __init__(self, poller: Poller, sock: socket.socket, make_client: Callable[[], Client]) -> None: ...
    def close(self) -> None: ...
