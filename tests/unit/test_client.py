"""What a connection says of its peer."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from streamd.core.blocking import BlockedClients
from streamd.core.client import Client
from streamd.core.execute import Dispatcher
from streamd.engine.database import Database
from streamd.engine.lazyfree import LazyFree


class Transport(asyncio.Transport):
    """A connection with a peer of this name."""

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass


@pytest.mark.parametrize(
    ("peer", "is_unix", "is_local"),
    [
        (("127.0.0.1", 5), False, True),
        (("127.8.0.1", 5), False, True),
        (("::1", 5), False, True),
        (("10.0.0.1", 5), False, False),
        (("128.0.0.1", 5), False, False),
        (("1.127.0.1", 5), False, False),
        (("fe80::1", 5), False, False),
        (("::1:1", 5), False, False),
        ("/tmp/socket", True, True),
    ],
)
def test_a_client_is_local_on_the_same_machine_only(peer: Any, is_unix: bool, is_local: bool) -> None:
    loop = asyncio.new_event_loop()
    server: Any = SimpleNamespace(
        databases=[Database(0, {}, LazyFree())], blocked=BlockedClients(loop), commands={},
        client_connected=lambda client, sock: None, client_disconnected=lambda client: None,
    )  # fmt: skip
    client = Client(Dispatcher(server, loop), is_unix)
    client.connection_made(Transport({"peername": peer, "sockname": peer}))
    assert client.is_local is is_local
    client.connection_lost(None)
    loop.close()
