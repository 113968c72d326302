"""The servers that client tests run against: streamd, and a real Redis to prove the tests (marked `real`)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.servers import Server
from support.wire import Wire


@pytest.fixture(params=["streamd", pytest.param("redis", marks=pytest.mark.real)])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """An emptied server."""
    running: Server = request.getfixturevalue(f"{request.param}_server")
    with running.connect() as wire:
        assert wire.call("FLUSHALL").value == b"OK"
    return running


@pytest.fixture
def wire(server: Server) -> Iterator[Wire]:
    """A connection to the server of a file of tests, which is empty."""
    with server.connect() as made:
        made.call("FLUSHALL")
        yield made


@pytest.fixture(params=[None, 2, 3], ids=["default", "RESP2", "RESP3"])
def protocol(request: pytest.FixtureRequest) -> int | None:
    """What redis-py is asked to speak; by default it speaks RESP3 and gives replies in RESP2's shapes."""
    return request.param
