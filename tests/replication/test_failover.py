"""Fail-overs by Sentinels under load: nothing acknowledged is lost where that is promised, and the rest is counted.

What a round is, and what the modes promise, is in support.failover.rounds; `python -m tests.support.failover.rounds` plays hundreds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.failover.faults import (
    AHEAD,
    FAULTS,
    HIDE,
    ISOLATE_WITH_CLIENTS,
    KILL,
    KILL_LAGGING,
    NEW_SENTINELS,
    POWER_CUT,
    RESTART,
    RESTART_REPLICA,
    RETURN,
    SWITCH,
    TWO_DEATHS,
    Fault,
)
from support.failover.rounds import EXEMPTIONS, LOSS_FREE, PLAIN, WAITAOF, Cluster, Mode, Result, play
from support.servers import target_is_redis

pytestmark = [pytest.mark.long, pytest.mark.real, pytest.mark.timeout(300)]

DOCS = Path(__file__).parents[2] / "docs"
STREAMD = ["streamd"] * 3
REDIS = ["redis"] * 3

NewCluster = Callable[..., Cluster]


@pytest.fixture
def new_cluster(tmp_path: Path) -> Iterator[NewCluster]:
    """Start a cluster: `new_cluster(kinds, mode=..., ...)`; it ends with the test."""
    started: list[Cluster] = []

    def start(kinds: Sequence[str], **options: Any) -> Cluster:
        folder = tmp_path / f"cluster{len(started)}"
        folder.mkdir()
        started.append(Cluster(folder, kinds, **options))
        return started[-1]

    yield start
    for cluster in started:
        cluster.close()


def loss_free(durable: int = 1) -> Mode:
    """The mode in which streamd waits for replicas; a Redis that stands in for it has clients that wait."""
    return (WAITAOF if target_is_redis() else LOSS_FREE).with_durable(durable)


def assert_right(result: Result) -> None:
    print(result)
    assert not result.wrong


def play_as_planned(start: Callable[[], Cluster], fault: Fault, seed: int) -> Result:
    """A round in which no other fail-over happened: when the machine is busy, Sentinels take nodes for dead that are not."""
    for _ in range(5):
        result = play(start(), fault, seed)
        assert_right(result)
        if not result.unplanned:
            return result
    raise AssertionError("in each round there were fail-overs without a fault")


def test_what_is_not_promised_is_said_by_the_page() -> None:
    page = " ".join((DOCS / "replication.md").read_text(encoding="utf-8").replace("`", "").split())
    assert [sentence for sentence in EXEMPTIONS if sentence not in page] == []


# --- The harness itself, with Redis ----------------------------------------------------------------------------------------


def test_the_harness_finds_what_asynchronous_replication_loses(new_cluster: NewCluster) -> None:
    result = play(new_cluster(REDIS, mode=PLAIN), KILL_LAGGING, seed=1)
    assert_right(result)
    assert result.lost
    assert result.order


def test_redis_loses_nothing_that_waitaof_has_confirmed(new_cluster: NewCluster) -> None:
    assert_right(play(new_cluster(REDIS, mode=WAITAOF), KILL_LAGGING, seed=2))


def test_one_confirmation_of_two_is_not_enough_when_a_living_primary_is_replaced(new_cluster: NewCluster) -> None:
    cluster = new_cluster(REDIS, mode=WAITAOF)
    for seed in range(3, 11):  # something is lost if it is written between two steps of the Sentinels, which is often
        result = play(cluster, HIDE, seed)
        assert_right(result)  # it is not promised
        if result.lost:
            return
    pytest.fail("nothing was lost in any round")


# --- streamd ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [KILL, KILL_LAGGING, ISOLATE_WITH_CLIENTS], ids=lambda fault: fault.name)
def test_nothing_is_lost_when_one_replica_must_have_it(new_cluster: NewCluster, fault: Fault) -> None:
    result = play_as_planned(lambda: new_cluster(STREAMD, mode=loss_free()), fault, seed=4)
    assert not result.lost


def test_nothing_is_lost_when_a_living_primary_is_replaced_and_all_replicas_must_have_it(
    new_cluster: NewCluster,
) -> None:
    result = play(new_cluster(STREAMD, mode=loss_free(durable=2)), HIDE, seed=5)
    assert_right(result)
    assert not result.lost  # however many fail-overs there were


only_streamd = pytest.mark.skipif(
    target_is_redis(), reason="where clients ask for confirmations, a living primary goes on meanwhile"
)


@only_streamd
@pytest.mark.parametrize("fault", [HIDE, RETURN, TWO_DEATHS, POWER_CUT, AHEAD], ids=lambda fault: fault.name)
def test_nothing_is_lost_whoever_is_promoted_and_whoever_returns(new_cluster: NewCluster, fault: Fault) -> None:
    result = play(new_cluster(STREAMD, mode=LOSS_FREE), fault, seed=8)
    assert_right(result)
    assert not result.lost  # however many fail-overs there were
    assert not result.exemption


@only_streamd
def test_nothing_is_lost_when_a_service_is_maintained(new_cluster: NewCluster) -> None:
    cluster = new_cluster(STREAMD, mode=LOSS_FREE)
    for seed, fault in enumerate([RESTART_REPLICA, RESTART, SWITCH, NEW_SENTINELS]):
        result = play(cluster, fault, seed)
        assert_right(result)
        assert not result.lost
        assert not result.exemption


@pytest.mark.parametrize("kinds", [["streamd", "redis", "redis"], ["redis", "streamd", "streamd"]], ids="-".join)
def test_streamd_and_redis_take_over_from_each_other(new_cluster: NewCluster, kinds: list[str]) -> None:
    result = play_as_planned(lambda: new_cluster(kinds, mode=WAITAOF), KILL, seed=6)
    assert result.pairing == f"{kinds[0]} -> {kinds[1]}"


def test_sentinels_turn_the_old_primary_into_a_replica(new_cluster: NewCluster) -> None:
    assert_right(play(new_cluster(STREAMD, mode=PLAIN), KILL, seed=7, is_patient=True))


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("durable", [1, 2])
def test_many_faults_one_after_the_other(new_cluster: NewCluster, durable: int) -> None:
    cluster = new_cluster(STREAMD, mode=loss_free(durable))
    for seed, fault in enumerate([*FAULTS.values()] * 3):
        assert_right(play(cluster, fault, seed))
