"""Pairs of servers, streamd beside a real Redis, and what is observed of both."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.compare.differential import Pair, PairPool, Tally
from support.compare.events import EventWatch
from support.compare.logs import Log, open_logs
from support.servers import Server


@pytest.fixture(scope="session")
def pairs(streamd_server: Server, redis_server: Server, tally: Tally) -> Iterator[PairPool]:
    """Pairs of connections for the whole run; who uses one empties the servers first."""
    pool = PairPool(streamd_server, redis_server, tally)
    yield pool
    pool.close()


@pytest.fixture(params=[2, 3], ids=["RESP2", "RESP3"])
def pair(request: pytest.FixtureRequest, streamd_server: Server, redis_server: Server, tally: Tally) -> Iterator[Pair]:
    """A fresh pair of connections, in each of the protocols, to emptied servers."""
    pair = Pair(streamd_server, redis_server, request.param, tally)
    yield pair
    pair.close()


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Log, Log]]:
    """Servers of their own, and what each writes to its append-only file."""
    yield from open_logs(tmp_path_factory)


@pytest.fixture(scope="module")
def watch(streamd_server: Server, redis_server: Server) -> Iterator[EventWatch]:
    """The keyspace events of both servers."""
    with EventWatch(streamd_server, redis_server) as watch:
        yield watch
