"""The protocol of min-replicas-durable, searched: no state is reached in which an acknowledged write is lost.

Each rule that servers keep is switched off once: then the search finds a loss by itself, and prints a way to it. So the
model can tell a protocol that holds from one that does not. test_failover_search.py goes through more faults.
"""

from __future__ import annotations

import time

import pytest
from support.failover.protocol import NOW, Anything, Model, find_stuck, search

BEFORE = NOW.without("views")
"""A new primary waits until replicas have its data, and does not ask what they have that it lacks."""


def assert_nothing_is_lost(model: Model) -> None:
    started = time.monotonic()
    found = search(model)
    print(f"{model}: {found.states} states in {time.monotonic() - started:.0f} s")
    assert not found.trace, found


def assert_something_is_lost(model: Model) -> list[str]:
    found = search(model)
    print(found)
    assert found.trace
    return found.trace


# --- Nothing is lost ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("durable", [1, 2])
def test_nothing_is_lost_by_any_two_orders(durable: int) -> None:
    assert_nothing_is_lost(Anything(durable, faults=2))


def test_nothing_is_lost_by_a_planned_switch() -> None:
    assert_nothing_is_lost(Model(faults=1, kinds=frozenset({"planned"})))


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("durable", "orders"), [(1, 6), (2, 8)])
def test_nothing_is_lost_by_any_orders(durable: int, orders: int) -> None:
    assert_nothing_is_lost(Anything(durable, faults=orders))


@pytest.mark.parametrize("durable", [1, 2])
def test_nothing_is_lost_by_one_fault_of_any_kind_beside_sentinels(durable: int) -> None:
    assert_nothing_is_lost(Model(durable, faults=1))


# --- A rule is missing ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["planned", "death", "freeze", "cut", "power"])
def test_without_views_one_fault_is_enough(kind: str) -> None:
    trace = assert_something_is_lost(Model(rules=BEFORE, faults=1, kinds=frozenset({kind}), watches=True))
    assert sum(step.startswith("FAULT") for step in trace) == 1


def test_without_views_a_replaced_primary_that_returns_with_its_replica_acknowledges() -> None:
    model = Model(rules=BEFORE, faults=1, kinds=frozenset({"death"}), watches=True, calm=True)
    trace = assert_something_is_lost(model)
    assert any("returns" in step for step in trace)


def test_a_script_that_does_not_wait_is_lost() -> None:
    trace = assert_something_is_lost(Anything(rules=NOW.without("scripts"), faults=2))
    assert any("script" in step for step in trace)


@pytest.mark.parametrize(("rule", "orders"), [("follow", 2), ("mark", 2), ("chain", 2), ("above", 3)])
def test_each_rule_of_views_is_needed(rule: str, orders: int) -> None:
    assert_something_is_lost(Anything(rules=NOW.without(rule), faults=orders))


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["rank", "disk"])
def test_what_is_later_and_what_was_promised_must_be_known(rule: str) -> None:
    assert_something_is_lost(Anything(rules=NOW.without(rule), faults=4))


# --- Service comes back -----------------------------------------------------------------------------------------------------


def test_service_can_come_back_after_a_planned_switch() -> None:
    found = find_stuck(Model(faults=1, writes=1, kinds=frozenset({"planned"}), watches=True))
    assert not found.trace, found


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("durable", [1, 2])
def test_service_can_come_back_after_one_fault_of_any_kind(durable: int) -> None:
    found = find_stuck(Model(durable, faults=1, writes=1, watches=True))
    assert not found.trace, found


@pytest.mark.parametrize("is_forgotten", [True, False])
def test_sentinels_that_were_replaced_one_by_one_are_not_waited_for(is_forgotten: bool) -> None:
    rules = NOW if is_forgotten else NOW.without("forget")
    found = find_stuck(Model(rules=rules, faults=3, writes=1, kinds=frozenset({"sentinel"}), watches=True))
    print(found)
    assert bool(found.trace) is not is_forgotten
