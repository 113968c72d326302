"""Simulated clusters in trouble: no promise is broken, and what is whole again works again. Planted bugs are found.

A failure prints its seed and what happened; `python -m tests.support.cluster.chaos --seed N` replays it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from support.cluster.bugs import BUGS
from support.cluster.chaos import Outcome, play, play_partition, play_storms

from streamd.cluster.bus.core import ClusterCore

Scenario = Callable[..., Outcome]

SHORT = partial(play, faults=5)

pytestmark = pytest.mark.long


def check(scenario: Scenario, seeds: range) -> None:
    for seed in seeds:
        outcome = scenario(seed)
        assert not outcome.wrong, outcome.report()


@pytest.mark.parametrize("first", range(1000, 1120, 20))
def test_promises_hold_through_faults(first: int) -> None:
    check(SHORT, range(first, first + 20))


@pytest.mark.parametrize("first", range(0, 12, 4))
def test_promises_hold_through_storms(first: int) -> None:
    check(partial(play_storms, storms=2), range(first, first + 4))


def test_a_majority_serves_and_a_minority_does_not() -> None:
    check(play_partition, range(8))


def test_nodes_with_old_files_catch_up() -> None:
    check(partial(SHORT, old_files=True), range(10))


def test_what_operators_do_is_agreed_on() -> None:
    check(partial(SHORT, operators=True), range(20))


class ReadsEverything(ClusterCore):
    """A core that treats each packet as if it said something new about its sender."""

    def _make_parts(self) -> None:
        super()._make_parts()
        self.receiver.remember = lambda link, packet: None  # type: ignore[method-assign]


class TicksAlways(ClusterCore):
    """A core that never regards a tick as superfluous."""

    def must_tick(self, now_ms: int) -> bool:
        super().must_tick(now_ms)
        return True


@pytest.mark.parametrize("scenario", [play, play_storms, partial(play, old_files=True), partial(play, operators=True)])
@pytest.mark.parametrize("thorough", [ReadsEverything, TicksAlways])
def test_what_is_left_out_would_have_had_no_effect(scenario: Scenario, thorough: type[ClusterCore]) -> None:
    for seed in range(500, 503):
        assert scenario(seed).trace == scenario(seed, thorough).trace


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", range(0, 3000, 100))
def test_promises_hold_through_many_faults(first: int) -> None:
    check(play, range(first, first + 100))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "scenario", [play_storms, play_partition, partial(play, old_files=True), partial(play, operators=True)]
)
def test_promises_hold_in_many_scenarios(scenario: Scenario) -> None:
    check(scenario, range(100, 300))


def find(scenario: Scenario, bug: str, limit: int) -> None:
    """The bug must be found, and by what it breaks, within some seeds."""
    for seed in range(limit):
        outcome = scenario(seed, BUGS[bug])
        if outcome.wrong:
            print(f"{bug}: found by seed {seed}: {outcome.wrong}")
            return
    raise AssertionError(f"{limit} seeds do not find {bug}")


@pytest.mark.parametrize(
    ("scenario", "bug", "limit"),
    [
        (SHORT, "EpochReused", 20),
        (SHORT, "EpochNotSaved", 100),
        (SHORT, "FailOnOneReport", 20),
        (play, "UpdateIgnored", 30),
        (play_storms, "VoteForAnybody", 5),
        (play_storms, "VoteNotSynced", 20),
        (play_storms, "VoteNotSaved", 60),
    ],
)
def test_a_bug_is_found(scenario: Scenario, bug: str, limit: int) -> None:
    find(scenario, bug, limit)
