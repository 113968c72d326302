"""Pairs of servers: streamd beside a real Redis."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.compare.differential import Pair, PairPool, Tally
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
