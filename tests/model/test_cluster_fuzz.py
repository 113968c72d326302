"""Damaged, invented and hostile packets: a node drops them or believes them, but it never fails, and its file stays readable."""

from __future__ import annotations

from random import Random

import pytest
from support.cluster.simulation import SimulatedNode, Simulation

from streamd.cluster.bus import actions
from streamd.cluster.bus.node_lines import format_state
from streamd.cluster.bus.nodes_conf import parse_state
from streamd.cluster.bus.options import Local
from streamd.cluster.bus.packets import HEADER_LENGTH

FIELDS = (
    (10, 2),
    (12, 2),
    (14, 2),
    (16, 8),
    (24, 8),
    (32, 8),
    (40, 40),
    (80, 2048),
    (2128, 40),
    (2168, 46),
    (2214, 2),
    (2246, 10),
)
"""Offset and length of what a header has after its length."""


class Fuzzer:
    """A node among others, and packets that they have sent it, to be damaged."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.simulation = Simulation(seed)
        self.packets: list[bytes] = []
        self.simulation.watchers.append(self._collect)
        self.simulation.start(primaries=3, replicas=1)
        self.simulation.crash(self.simulation.nodes[1])
        self.simulation.run(10_000)  # a failure, an election, votes and updates are among the packets
        self.simulation.restart(self.simulation.nodes[1])
        self.simulation.run(2_000)
        self.node = self.simulation.nodes[self.chance.choice((0, 3))]
        self.core = self.node.live
        self.core.take_actions()
        self.now_ms = self.simulation.clock(self.node)

    def _collect(self, node: SimulatedNode, action: actions.Action | None) -> None:
        if isinstance(action, actions.Send) and (action.packet[13] > 2 or len(self.packets) < 200):
            self.packets.append(action.packet)

    def step(self) -> None:
        """Feed one damaged packet on some link; whatever happens then is done."""
        links = [link.id for node in self.core.state.nodes.values() for link in (node.link, node.inbound) if link]
        self.now_ms += self.chance.choice((0, 1, 100))
        if self.chance.random() < 0.3 or not links:
            link = self.core.link_accepted("10.9.9.9", self.node.ip, self.now_ms)
        else:
            link = self.chance.choice(links)
        self.core.receive(link, self.damage(self.chance.choice(self.packets)), self.now_ms)
        if self.chance.random() < 0.3:
            self.core.link_closed(link, self.now_ms)
        if self.chance.random() < 0.1:
            self.core.tick(self.now_ms)
        self.core.take_actions()

    def damage(self, packet: bytes) -> bytes:
        changed = bytearray(packet)
        for _ in range(self.chance.choice((0, 1, 1, 2, 5))):
            kind = self.chance.randrange(6)
            if kind == 0:  # any byte
                changed[self.chance.randrange(len(changed))] = self.chance.randrange(256)
            elif kind == 1:  # a field of another packet
                start, size = self.chance.choice(FIELDS)
                changed[start : start + size] = self.chance.choice(self.packets)[start : start + size]
            elif kind == 2:  # a field at its bounds
                start, size = self.chance.choice(FIELDS)
                changed[start : start + size] = self.chance.choice((bytes(size), b"\xff" * size))
            elif kind == 3:  # the body of another packet
                changed[HEADER_LENGTH:] = self.chance.choice(self.packets)[HEADER_LENGTH:]
            elif kind == 4:  # cut, or longer
                del changed[max(HEADER_LENGTH, len(changed) - self.chance.randrange(1, 200)) :]
                changed += bytes(self.chance.choice((0, 8, 100)))
            else:  # the sender, or its primary, is another known node
                start = self.chance.choice((40, 2128))
                changed[start : start + 40] = self.chance.choice([*self.core.state.nodes])
        if self.chance.random() < 0.95:
            changed[4:8] = len(changed).to_bytes(4, "big")
        return bytes(changed)

    def check(self) -> None:
        self.core.check_invariants()
        saved = format_state(self.core.state)
        parsed = parse_state(saved, self.node.options, Local(), Random(1), self.now_ms)
        parsed.check_invariants()
        assert parsed.myself.id == self.core.state.myself.id
        assert parsed.assigned == self.core.state.assigned & ~self.core.state.unclaimed
        self.core.describe_nodes()
        self.core.describe_state()


def fuzz(seed: int, count: int) -> None:
    fuzzer = Fuzzer(seed)
    for number in range(count):
        fuzzer.step()
        if number % 100 == 99:
            fuzzer.check()
    assert fuzzer.core.state.damaged_count > count / 10


@pytest.mark.parametrize("seed", range(4))
def test_a_node_survives_damaged_packets(seed: int) -> None:
    fuzz(seed, 1000)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(100, 150))
def test_a_node_survives_many_damaged_packets(seed: int) -> None:
    fuzz(seed, 2000)
