"""Shards with min-replicas-durable lose nothing: writes and deliveries of clients at work while nodes die and slots move.

What a round is, is in support.failover.shards; `python -m tests.support.failover.shards` plays hundreds.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.failover.shards import SHARD_FAULTS, Shards, play_on_shards
from support.servers import target_is_redis

pytestmark = [
    pytest.mark.long, pytest.mark.real, pytest.mark.timeout(300),
    pytest.mark.skipif(target_is_redis(), reason="Redis has no min-replicas-durable"),
]  # fmt: skip

OFTEN = ("kill primary", "migration, source dies", "migration, target dies", "migration to one alone")
FAULTS = [
    pytest.param(name, marks=() if name in OFTEN else pytest.mark.slow, id=name.replace(" ", "-").replace(",", ""))
    for name in SHARD_FAULTS
]


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shards]:
    with Shards(tmp_path_factory.mktemp("shards")) as started:
        yield started


@pytest.mark.parametrize("fault", FAULTS)
def test_shards_lose_nothing(shards: Shards, fault: str) -> None:
    result = play_on_shards(shards, SHARD_FAULTS[fault], seed=1)
    print(result)
    assert not result.wrong
