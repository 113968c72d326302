"""Simulated clusters in which a node could believe, or tell others, what nobody has ever claimed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.cluster.simulation import NODE_TIMEOUT_MS, SimulatedNode, Simulation

from streamd.cluster.bus.nodes import Flag
from streamd.cluster.bus.packets import Gossip, PacketType, encode_gossip

SLOT = 5  # of node 0


@pytest.fixture
def simulation() -> Simulation:
    """Primaries 0, 1 and 2; replicas 3, 4 and 5, in this order."""
    simulation = Simulation(seed=1)
    simulation.start(primaries=3, replicas=1)
    return simulation


def node_id(node: SimulatedNode) -> bytes:
    return node.live.state.myself.id


def owner(view: SimulatedNode) -> bytes:
    found = view.live.state.owners[SLOT]
    assert found is not None
    return found.id


def is_unclaimed(view: SimulatedNode) -> bool:
    return bool(view.live.state.unclaimed >> SLOT & 1)


def isolate(simulation: Simulation, node: SimulatedNode) -> None:
    for other in simulation.nodes:
        if other is not node:
            simulation.network.cut(node, other)


def join(simulation: Simulation, one: SimulatedNode, other: SimulatedNode) -> None:
    simulation.network.blocked -= {(one.index, other.index), (other.index, one.index)}


def wait(simulation: Simulation, condition: Callable[[], object]) -> None:
    assert simulation.run_until(condition, 10 * NODE_TIMEOUT_MS)


def knows(simulation: Simulation, epoch: int) -> bool:
    return all(simulation.nodes[index].live.state.current_epoch == epoch for index in (0, 2, 3))


def move_slot_unheard(simulation: Simulation) -> None:
    """The slot moves from 0 to 1, which is cut off: 0 stops claiming it, and nobody hears that 1 does, by epoch 7."""
    source, target = simulation.nodes[:2]
    isolate(simulation, target)
    simulation.do(target, lambda core: core.set_slot_importing(SLOT, node_id(source)))
    simulation.do(source, lambda core: core.set_slot_migrating(SLOT, node_id(target)))
    simulation.do(target, lambda core: core.set_slot_node(SLOT, node_id(target), 0))
    simulation.do(source, lambda core: core.set_slot_node(SLOT, node_id(target), 0))
    wait(simulation, lambda: all(is_unclaimed(simulation.nodes[index]) for index in (2, 3, 5)))
    for epoch, index in enumerate((0, 2), 7):
        simulation.do(simulation.nodes[index], lambda core: core.bump_epoch())
        wait(simulation, lambda epoch=epoch: knows(simulation, epoch))


def test_a_node_that_starts_does_not_repeat_claims_that_were_given_up(simulation: Simulation) -> None:
    source, target, witness = simulation.nodes[:3]
    move_slot_unheard(simulation)
    simulation.do(source, lambda core: core.bump_epoch())
    simulation.do(source, lambda core: core.bump_epoch())
    wait(simulation, lambda: witness.live.state.nodes[node_id(source)].config_epoch == 9)
    isolate(simulation, witness)
    simulation.crash(witness)
    simulation.restart(witness)
    join(simulation, witness, target)
    wait(simulation, lambda: witness.live.state.nodes[node_id(target)].data_received_ms > 0)
    simulation.run(2 * NODE_TIMEOUT_MS)
    assert owner(target) == node_id(target)
    simulation.network.heal()
    wait(simulation, simulation.is_converged)
    assert owner(source) == node_id(target)


def test_the_successor_of_a_primary_does_not_claim_what_that_had_given_up(simulation: Simulation) -> None:
    source, target, witness, successor = simulation.nodes[:4]
    move_slot_unheard(simulation)
    simulation.network.cut(witness, successor)
    simulation.do(successor, lambda core: core.fail_over("takeover"))
    wait(simulation, lambda: witness.live.state.nodes[node_id(source)].is_replica)
    join(simulation, witness, target)
    simulation.run(2 * NODE_TIMEOUT_MS)
    assert owner(target) == node_id(target)
    simulation.network.heal()
    wait(simulation, simulation.is_converged)
    assert owner(source) == node_id(target)


def test_a_slot_that_is_claimed_again_is_no_longer_given_up(simulation: Simulation) -> None:
    source, target, witness = simulation.nodes[:3]
    simulation.do(source, lambda core: core.set_slot_node(SLOT, node_id(target), 0))
    wait(simulation, lambda: is_unclaimed(witness))
    simulation.do(source, lambda core: core.set_slot_node(SLOT, node_id(source), 0))
    wait(simulation, lambda: not is_unclaimed(witness))


def test_a_node_that_imports_a_slot_learns_who_has_replaced_its_owner(simulation: Simulation) -> None:
    source, target, successor = (simulation.nodes[index] for index in (0, 1, 3))
    simulation.do(target, lambda core: core.set_slot_importing(SLOT, node_id(source)))
    simulation.crash(source)
    wait(simulation, lambda: successor.live.state.myself.slots)
    simulation.restart(source)
    wait(simulation, simulation.is_converged)
    wait(simulation, lambda: owner(target) == node_id(successor) and not is_unclaimed(target))


def test_a_primary_with_an_old_file_gets_its_epoch_back(simulation: Simulation) -> None:
    node = simulation.nodes[0]
    old = node.files[-1]
    simulation.do(node, lambda core: core.bump_epoch())
    wait(simulation, simulation.is_converged)
    simulation.crash(node)
    simulation.restart(node, old)
    assert node.live.state.myself.config_epoch == 1
    wait(simulation, simulation.is_converged)
    assert node.live.state.myself.config_epoch == 7


def test_a_replica_that_has_started_again_does_not_take_over_by_the_epoch_of_its_primary(
    simulation: Simulation,
) -> None:
    primary, replica = simulation.nodes[0], simulation.nodes[3]
    simulation.do(primary, lambda core: core.bump_epoch())
    wait(simulation, simulation.is_converged)
    for index in (3, 2):
        simulation.crash(simulation.nodes[index])
        simulation.restart(simulation.nodes[index])
    assert simulation.nodes[2].live.state.nodes[node_id(replica)].config_epoch == 0
    simulation.do(replica, lambda core: core.fail_over("takeover"))
    assert replica.live.state.myself.config_epoch == 8
    wait(simulation, simulation.is_converged)


def test_a_replica_that_reads_in_its_file_that_its_primary_has_failed_convinces_nobody(simulation: Simulation) -> None:
    primary, replica = simulation.nodes[0], simulation.nodes[3]
    primary_id, voters = node_id(primary), simulation.nodes[1:3]
    for voter in voters:
        simulation.network.cut(replica, voter, both=False)
    simulation.crash(primary)
    wait(simulation, lambda: replica.live.state.nodes[primary_id].is_failed)
    simulation.crash(replica)
    simulation.network.heal()
    simulation.restart(primary)
    wait(simulation, lambda: not any(voter.live.state.nodes[primary_id].is_failed for voter in voters))
    simulation.restart(replica)
    for _ in range(100):
        simulation.run(NODE_TIMEOUT_MS / 10)
        assert not any(voter.live.state.nodes[primary_id].is_failed for voter in voters)
    assert simulation.is_converged()
    assert primary.live.state.myself.is_primary


def test_a_majority_is_one_of_the_primaries_that_the_same_packet_makes_known(simulation: Simulation) -> None:
    """A fourth primary takes its first slot, and reports a failure: two of four are no majority."""
    judge, failing = simulation.nodes[:2]
    joining = simulation.add_node()
    simulation.do(joining, lambda core: core.meet(judge.ip, 7000, 17000))
    wait(simulation, simulation.is_converged)
    failing_id = node_id(failing)
    for other in simulation.nodes[2:6]:
        simulation.network.cut(other, judge)
    simulation.crash(failing)
    wait(simulation, lambda: judge.live.state.nodes[failing_id].flags & Flag.PFAIL)
    link = judge.live.state.nodes[node_id(joining)].inbound
    assert link is not None
    simulation.do(joining, lambda core: core.take_slots([SLOT]))
    entry = Gossip(failing_id, 1, 0, failing.ip.encode(), 7000, 17000, Flag.PRIMARY | Flag.PFAIL, 0)
    packet = joining.live.outbox.compose(PacketType.PING, encode_gossip([entry]), count=1)
    simulation.do(judge, lambda core: core.receive(link.id, packet, simulation.clock(judge)))
    assert judge.live.state.size == 4
    assert not judge.live.state.nodes[failing_id].is_failed
