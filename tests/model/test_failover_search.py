"""The protocol of min-replicas-durable, searched by the compiled program: three faults of any kind.

The model in Python is the definition. So first all steps of both are compared: from all states that one fault leads to, with
each rule switched off too, and from states that random steps lead to.
"""

from __future__ import annotations

import random
import time

import pytest
from support.failover.protocol import NOW, Model, State, canonical, search
from support.failover.search import find_steps_compiled, pack, search_compiled, unpack
from support.files.fsync_shim import find_compiler

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="needs Linux and a C compiler")

RULES = ["scripts", "views", "follow", "above", "rank", "chain", "disk", "mark"]


def assert_nothing_is_lost(model: Model) -> None:
    started = time.monotonic()
    found = search_compiled(model)
    print(f"{model}: {found.states} states in {time.monotonic() - started:.0f} s")
    assert not found.trace, found


def assert_same_steps(model: Model, states: list[State]) -> set[State | None]:
    """Returns where they lead; None: a promise is broken there."""
    led: set[State | None] = set()
    names: dict[bytes, State] = {}
    for state, compiled in zip(states, find_steps_compiled(model, states), strict=True):
        expected = {None if after.wrong else canonical(after) for _, after in model.steps(state)}
        names |= {each: canonical(unpack(each)) for each in compiled if each is not None and each not in names}
        assert {each and names[each] for each in compiled} == expected, state
        led |= expected
    assert len(led - {None}) == len(names), "what is one state here are two there"
    return led


@pytest.mark.long
@pytest.mark.parametrize("durable", [1, 2])
@pytest.mark.parametrize("off", ["", *RULES])
def test_all_steps_after_one_fault_are_the_same(durable: int, off: str) -> None:
    model = Model(durable, NOW.without(*off.split()), faults=1, writes=1)
    found: set[State | None] = {canonical(model.first())}
    new = found
    while new:
        new = assert_same_steps(model, [state for state in new if state is not None]) - found
        found |= new
    assert bool(search_compiled(model).trace) is (None in found)


@pytest.mark.parametrize("durable", [1, 2])
def test_random_steps_are_the_same(durable: int) -> None:
    model = Model(durable, faults=5, writes=3)
    chance = random.Random(durable)
    states = []
    for _ in range(50):
        state = canonical(model.first())
        for _ in range(60):
            following = [after for _, after in model.steps(state)]
            if not following:
                break
            state = canonical(chance.choice(following))
            states.append(state)
    assert all(unpack(pack(state)) == state for state in states)
    assert_same_steps(model, states)


@pytest.mark.parametrize("durable", [1, 2])
def test_the_number_of_states_is_the_same(durable: int) -> None:
    model = Model(durable, faults=1, writes=1)
    assert search_compiled(model) == search(model)


@pytest.mark.parametrize("durable", [1, 2])
def test_nothing_is_lost_by_two_faults_of_any_kind(durable: int) -> None:
    assert_nothing_is_lost(Model(durable, faults=2, writes=1))


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("durable", [1, 2])
def test_nothing_is_lost_by_three_faults_of_any_kind(durable: int) -> None:
    assert_nothing_is_lost(Model(durable, faults=3))


@pytest.mark.parametrize("rule", RULES)
def test_without_any_one_rule_two_faults_are_enough_beside_sentinels(rule: str) -> None:
    found = search_compiled(Model(rules=NOW.without(rule), faults=2, writes=1))
    print(found)
    assert found.trace[-1].startswith("WRONG")
    assert sum(step.startswith("FAULT") for step in found.trace) <= 2
