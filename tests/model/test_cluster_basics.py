"""A simulated cluster: it comes up, fails over, and comes back; each step as an operator would see it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.cluster.simulation import NODE_TIMEOUT_MS, SimulatedNode, Simulation

from streamd.cluster.bus import actions
from streamd.cluster.bus.packets import PacketType
from streamd.cluster.bus.slots import SLOT_COUNT


@pytest.fixture
def simulation() -> Simulation:
    simulation = Simulation(seed=1)
    simulation.start(primaries=3, replicas=1)
    return simulation


def primaries(simulation: Simulation) -> list[int]:
    return [node.index for node in simulation.nodes if node.is_up and node.live.state.myself.slots]


def config_epoch(node: SimulatedNode) -> int:
    return node.live.state.myself.config_epoch


def check_all(simulation: Simulation) -> None:
    for node in simulation.nodes:
        if node.is_up:
            node.live.check_invariants()


def test_nodes_that_met_agree(simulation: Simulation) -> None:
    assert primaries(simulation) == [0, 1, 2]
    assert simulation.is_converged()
    check_all(simulation)


def when_pings_leave(simulation: Simulation, node: SimulatedNode) -> list[float]:
    sent: list[float] = []

    def watch(sender: SimulatedNode, action: actions.Action | None) -> None:
        if sender is node and isinstance(action, actions.Send) and action.packet[13] == PacketType.PING:
            sent.append(simulation.now)

    simulation.watchers.append(watch)
    simulation.run(20 * NODE_TIMEOUT_MS)
    return sent


def test_pings_leave_together() -> None:
    """So their answers come together, which a server reads in one turn."""
    simulation = Simulation(seed=1)
    simulation.start(primaries=8, replicas=0)
    simulation.run(10 * NODE_TIMEOUT_MS)
    sent = when_pings_leave(simulation, simulation.nodes[0])
    assert len(sent) > 3 * len(set(sent))


def test_a_replica_takes_the_place_of_a_primary_that_dies(simulation: Simulation) -> None:
    simulation.crash(simulation.nodes[0])
    assert simulation.run_until(lambda: primaries(simulation) == [1, 2, 3], 10 * NODE_TIMEOUT_MS)
    assert config_epoch(simulation.nodes[3]) == 7
    simulation.restart(simulation.nodes[0])
    assert simulation.run_until(simulation.is_converged, 10 * NODE_TIMEOUT_MS)
    assert simulation.nodes[0].followed == simulation.nodes[3].live.state.myself.id
    check_all(simulation)


def test_without_a_majority_nothing_is_decided(simulation: Simulation) -> None:
    simulation.crash(simulation.nodes[0])
    simulation.crash(simulation.nodes[1])
    simulation.run(20 * NODE_TIMEOUT_MS)
    assert primaries(simulation) == [2]
    assert not any(node.live.state.is_ok for node in simulation.nodes if node.is_up)


@pytest.mark.parametrize("mode", ["", "force", "takeover"])
def test_a_replica_takes_over_on_request(simulation: Simulation, mode: str) -> None:
    simulation.do(simulation.nodes[4], lambda core: core.fail_over(mode))
    assert simulation.run_until(lambda: primaries(simulation) == [0, 2, 4], 2 * NODE_TIMEOUT_MS)
    assert simulation.run_until(simulation.is_converged, 10 * NODE_TIMEOUT_MS)
    assert not any(node.live.state.is_paused for node in simulation.nodes)
    check_all(simulation)


@pytest.mark.parametrize(("more", "leader"), [(-1, 0), (1, 3)], ids=["old-primary-has-more", "new-primary-has-more"])
def test_two_nodes_that_follow_each_other_agree_on_the_one_with_more_data(
    simulation: Simulation, more: int, leader: int
) -> None:
    """The new primary comes back with a nodes.conf older than its election, in which it is a replica of the old one."""
    old, new = simulation.nodes[0], simulation.nodes[3]
    before = new.files[-1]
    simulation.do(new, lambda core: core.fail_over(""))
    assert simulation.run_until(lambda: primaries(simulation) == [1, 2, 3], 2 * NODE_TIMEOUT_MS)
    assert simulation.run_until(simulation.is_converged, 10 * NODE_TIMEOUT_MS)
    simulation.crash(new)
    new.offset = old.offset + more
    simulation.restart(new, before)
    assert simulation.run_until(simulation.is_converged, 10 * NODE_TIMEOUT_MS)
    assert primaries(simulation) == sorted([1, 2, leader])
    check_all(simulation)


def test_a_forgotten_node_stays_away(simulation: Simulation) -> None:
    gone = simulation.nodes[5]
    gone_id = gone.live.state.myself.id
    simulation.crash(gone)
    simulation.do(simulation.nodes[0], lambda core: core.forget(gone_id))
    assert simulation.run_until(
        lambda: not any(gone_id in node.live.state.nodes for node in simulation.nodes if node.is_up),
        5 * NODE_TIMEOUT_MS,
    )
    simulation.run(20 * NODE_TIMEOUT_MS)
    assert not any(gone_id in node.live.state.nodes for node in simulation.nodes if node.is_up)


def test_a_slot_moves_and_everybody_learns_it(simulation: Simulation) -> None:
    source, target = simulation.nodes[0], simulation.nodes[1]
    source_id, target_id = (node.live.state.myself.id for node in (source, target))
    simulation.do(target, lambda core: core.set_slot_importing(5, source_id))
    simulation.do(source, lambda core: core.set_slot_migrating(5, target_id))
    simulation.do(target, lambda core: core.set_slot_node(5, target_id, 0))
    simulation.do(source, lambda core: core.set_slot_node(5, target_id, 0))
    assert simulation.run_until(
        lambda: all(node.live.state.owners[5].id == target_id for node in simulation.nodes), 5 * NODE_TIMEOUT_MS
    )
    assert config_epoch(target) == 7
    check_all(simulation)


def test_a_replica_moves_to_a_primary_without_any() -> None:
    simulation = Simulation(seed=2)
    simulation.start(primaries=3, replicas=2)
    for index in (3, 6):  # both replicas of node 0
        simulation.crash(simulation.nodes[index])
    orphan = simulation.nodes[0].live.state.myself.id
    assert simulation.run_until(
        lambda: any(node.followed == orphan for node in simulation.nodes if node.is_up), 20 * NODE_TIMEOUT_MS
    )
    check_all(simulation)


def test_no_replica_stays_behind_a_primary_that_became_a_replica() -> None:
    """Node 6 was away when its primary got a slot more, so the successor's slots are not those that its primary had."""
    simulation = Simulation(seed=3)
    simulation.start(primaries=3, replicas=2)
    for node in simulation.nodes:
        simulation.crash(node)
        node.options = replace(node.options, allow_replica_migration=False)
        simulation.restart(node)
    assert simulation.run_until(simulation.is_converged, 20 * NODE_TIMEOUT_MS)
    old, other, successor, late = (simulation.nodes[index] for index in (0, 1, 3, 6))
    assert late.followed == successor.followed == old.live.state.myself.id
    simulation.crash(late)
    slot = next(slot for slot, owner in enumerate(other.live.state.owners) if owner is other.live.state.myself)
    simulation.do(old, lambda core: core.take_slots([slot]))
    assert simulation.run_until(lambda: not other.live.state.owners[slot].is_myself, 5 * NODE_TIMEOUT_MS)
    simulation.crash(old)
    assert simulation.run_until(lambda: bool(successor.live.state.myself.slots), 20 * NODE_TIMEOUT_MS)
    for node in (late, old):
        simulation.restart(node)
    name = successor.live.state.myself.id
    assert simulation.run_until(lambda: late.followed == old.followed == name, 20 * NODE_TIMEOUT_MS)
    check_all(simulation)


def restart_all(simulation: Simulation, nodes: list[SimulatedNode]) -> None:
    for node in simulation.nodes:
        simulation.crash(node)
    for node in nodes:
        simulation.restart(node)


def test_primaries_serve_as_soon_as_all_have_answered(simulation: Simulation) -> None:
    restart_all(simulation, simulation.nodes)
    assert simulation.run_until(simulation.is_converged, 1000)


def test_a_primary_that_waits_for_an_answer_serves_after_two_seconds(simulation: Simulation) -> None:
    restart_all(simulation, simulation.nodes[:5])
    simulation.run(1900)
    assert not any(node.live.state.is_ok for node in simulation.nodes[:3])
    assert simulation.run_until(lambda: all(node.live.state.is_ok for node in simulation.nodes[:3]), 500)


def test_a_primary_that_was_replaced_never_serves_again(simulation: Simulation) -> None:
    old = simulation.nodes[0]
    simulation.crash(old)
    assert simulation.run_until(lambda: primaries(simulation) == [1, 2, 3], 10 * NODE_TIMEOUT_MS)
    simulation.restart(old)
    for _ in range(100):
        state = old.live.state
        assert not (state.is_ok and state.myself.slots)
        simulation.run(10)
    assert simulation.run_until(simulation.is_converged, 10 * NODE_TIMEOUT_MS)


def test_the_first_slots_of_a_node_are_served_at_once() -> None:
    simulation = Simulation(seed=4)
    node = simulation.add_node()
    simulation.run(5000)
    simulation.do(node, lambda core: core.add_slots(range(SLOT_COUNT)))
    assert node.live.state.is_ok


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_hundred_nodes_fail_over() -> None:
    simulation = Simulation(seed=3, node_timeout_ms=5000)
    simulation.start_known(primaries=50, replicas=1)
    assert simulation.run_until(simulation.is_converged, 60_000)
    simulation.crash(simulation.nodes[0])
    assert simulation.run_until(lambda: 50 in primaries(simulation), 60_000)
    simulation.restart(simulation.nodes[0])
    assert simulation.run_until(simulation.is_converged, 60_000)
    check_all(simulation)
