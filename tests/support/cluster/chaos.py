"""A simulated cluster in trouble: random faults from one seed, after which it must work again, and no promise may be broken.

    outcome = play(seed)                 a cluster of 6 to 15 nodes, some twenty faults
    assert not outcome.wrong, outcome.report()

`python -m tests.support.cluster.chaos --seeds 1000 [--first 1] [--scenario NAME] [--bug NAME]` plays many seeds; `--seed 17` plays one, and
prints its trace: the same as in the test that failed.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress
from dataclasses import dataclass
from random import Random

from streamd.cluster.bus.core import ClusterCore
from streamd.cluster.bus.nodes_conf import NodesFileError
from streamd.cluster.bus.slots import slots_of
from streamd.errors import CommandError

from .promises import Promises
from .simulation import NODE_TIMEOUT_MS, SimulatedNode, Simulation

__all__ = ["SCENARIOS", "Outcome", "play", "play_partition", "play_storms"]

RECOVERY_MS = 60 * NODE_TIMEOUT_MS
"""Within which a cluster must serve and agree again once nothing goes wrong any more."""


@dataclass
class Outcome:
    """How a seed went."""

    seed: int
    wrong: list[str]
    trace: list[str]
    elections: int = 0
    recovery_ms: float = 0.0

    def report(self, lines: int = 200) -> str:
        """What to print of a failure; the seed replays it."""
        return "\n".join([f"seed {self.seed}: {'; '.join(self.wrong)}", *self.trace[-lines:]])


class Chaos:
    """Faults, each a method; `happen` does one of them."""

    def __init__(self, simulation: Simulation, *, old_files: bool = False, operators: bool = False) -> None:
        self._simulation = simulation
        self._network = simulation.network
        self._random = Random(simulation.seed + 1)
        faults = {
            self.kill: 5,
            self.restart: 6,
            self.restart_with_damaged_file: 2,
            self.split: 3,
            self.split_one_way: 3,
            self.isolate: 3,
            self.heal: 5,
            self.disturb: 3,
            self.jump: 2,
            self.stall: 3,
            self.hand_over: 3,
            self.crash_anywhere: 3,
            self.storm: 5,
        }
        if old_files:
            faults[self.restart_with_old_file] = 4
        self._operators = operators
        if operators:
            faults |= {self.move_slots: 8, self.take_over: 3, self.bump: 2}
        self._faults, self._weights = [*faults], [*faults.values()]

    def happen(self) -> None:
        [fault] = self._random.choices(self._faults, self._weights)
        fault()

    def _note(self, text: str) -> None:
        self._simulation.note(f"--- {text}")

    def _up(self) -> list[SimulatedNode]:
        return [node for node in self._simulation.nodes if node.is_up]

    def _down(self) -> list[SimulatedNode]:
        return [node for node in self._simulation.nodes if not node.is_up]

    # --- Processes ---------------------------------------------------------------------------------------------------------

    def kill(self) -> None:
        if len(self._up()) > 1:
            self._simulation.crash(self._random.choice(self._up()), power=self._random.random() < 0.5)

    def restart(self) -> None:
        if self._down():
            self._simulation.restart(self._random.choice(self._down()))

    def restart_with_damaged_file(self) -> None:
        """A node that cannot read its file does not start: it is not a new node without a past."""
        if not self._down():
            return
        node = self._random.choice(self._down())
        damaged = bytearray(node.files[-1])
        start = damaged.index(b"vars ") if self._random.random() < 0.5 else 0
        damaged[self._random.randrange(start, start + 5)] = ord("!")
        try:
            self._simulation.restart(node, bytes(damaged))
        except NodesFileError:
            self._note(f"{node.index} refuses its damaged file")
        else:
            raise AssertionError(f"a damaged file was read: {damaged!r}")

    def restart_with_old_file(self) -> None:
        """One node per cluster: if all nodes of a shard forget, each may take the other for its primary."""
        forgetful = [node for node in self._simulation.nodes if node.has_old_file] or self._down()
        if forgetful and not forgetful[0].is_up:
            node = forgetful[0]
            node.has_old_file = True
            self._simulation.restart(node, self._random.choice(node.files[self._simulation.start_files[node.index] :]))

    def crash_anywhere(self) -> None:
        """For a while processes die between any two of their actions."""
        self._note("crashes")
        self._simulation.crash_rate = self._random.choice((0.0002, 0.001, 0.005))
        self._simulation.revival_ms = self._random.choice((0.0, 100.0, 1000.0))

    def storm(self) -> None:
        """Several primaries die at once, so that there are several candidates; packets are slow; voters die, too, and come back."""
        self._network.blocked.clear()
        self._network.loss = 0.0
        for node in self._down():
            self._simulation.restart(node)
        primaries = [node for node in self._up() if node.live.state.myself.slots]
        gone = self._random.sample(primaries, (len(primaries) - 1) // 2)
        candidates = [
            node
            for node in self._up()
            if node.live.state.myself.primary in {node.live.state.find(each.live.state.myself.id) for each in gone}
        ]
        for node in gone:
            self._simulation.crash(node)
        if self._random.random() < 0.7:
            for number, node in enumerate(candidates):
                for other in candidates[:number]:
                    self._network.cut(node, other)
        self._network.greatest_delay_ms = self._random.choice((5.0, 100.0, 500.0, 1000.0))
        self._simulation.vote_crash_rate = self._random.choice((0.0, 0.5, 1.0))
        self._simulation.revival_ms = 20.0
        self._note(f"storm, delay up to {self._network.greatest_delay_ms} ms")
        self._simulation.run(4 * NODE_TIMEOUT_MS)
        self._simulation.vote_crash_rate = 0.0
        self._network.blocked.clear()

    def stall(self) -> None:
        if self._up():
            node = self._random.choice(self._up())
            duration_ms = self._random.uniform(100, 5 * NODE_TIMEOUT_MS)
            self._note(f"{node.index} stalls for {duration_ms:.0f} ms")
            node.stalled_until = self._simulation.now + duration_ms

    def jump(self) -> None:
        node = self._random.choice(self._simulation.nodes)
        jump_ms = self._random.choice((-1, 1)) * int(10 ** self._random.uniform(2, 8))
        self._note(f"the clock of {node.index} jumps by {jump_ms} ms")
        node.clock_ms += jump_ms

    # --- The network -------------------------------------------------------------------------------------------------------

    def _halves(self) -> tuple[list[SimulatedNode], list[SimulatedNode]]:
        nodes = [*self._simulation.nodes]
        self._random.shuffle(nodes)
        size = self._random.randrange(1, len(nodes))
        return nodes[:size], nodes[size:]

    def split(self) -> None:
        self._cut(*self._halves(), both=True)

    def split_one_way(self) -> None:
        self._cut(*self._halves(), both=False)

    def isolate(self) -> None:
        node = self._random.choice(self._simulation.nodes)
        others = [other for other in self._simulation.nodes if other is not node]
        self._cut([node], others, both=self._random.random() < 0.7)

    def _cut(self, some: list[SimulatedNode], others: list[SimulatedNode], *, both: bool) -> None:
        self._note(f"{[node.index for node in some]} {'<->' if both else '->'} {[node.index for node in others]} cut")
        for node in some:
            for other in others:
                self._network.cut(node, other, both=both)

    def heal(self) -> None:
        self._note("the network is healed")
        self._simulation.crash_rate = self._simulation.vote_crash_rate = self._simulation.revival_ms = 0.0
        self._network.heal()

    def disturb(self) -> None:
        self._network.loss = self._random.choice((0.0, 0.05, 0.3))
        self._network.duplication = self._random.choice((0.0, 0.05, 0.3))
        self._network.greatest_delay_ms = self._random.choice((5.0, 50.0, 500.0))
        self._note(f"loss {self._network.loss}, delay up to {self._network.greatest_delay_ms} ms")

    # --- Requests ----------------------------------------------------------------------------------------------------------

    def hand_over(self) -> None:
        replicas = [
            node
            for node in self._up()
            if node.live.state.myself.primary is not None and not node.live.state.myself.primary.is_failed
        ]
        if replicas:
            node, mode = self._random.choice(replicas), self._random.choice(("", "", "force"))
            if mode or node.live.state.myself.primary.link is not None:  # type: ignore[union-attr]
                self._note(f"{node.index} is asked to take over {mode}")
                self._simulation.do(node, lambda core: core.fail_over(mode))

    def move_slots(self) -> None:
        """As redis-cli does it: if the target knows the epoch of the source, which is why nodes must agree before it begins."""
        owners = [node for node in self._up() if node.live.state.myself.slots]
        if len(owners) < 2:
            return
        source, target = self._random.sample(owners, 2)
        source_id, target_id = (node.live.state.myself.id for node in (source, target))
        known = target.live.state.find(source_id)
        if known is None or known.config_epoch < source.live.state.myself.config_epoch:
            return
        for slot in self._random.sample(slots_of(source.live.state.myself.slots), 1):
            self._note(f"slot {slot} moves from {source.index} to {target.index}")
            with suppress(CommandError):
                self._simulation.do(target, lambda core, slot=slot: core.set_slot_importing(slot, source_id))
                self._simulation.do(source, lambda core, slot=slot: core.set_slot_migrating(slot, target_id))
                self._simulation.do(target, lambda core, slot=slot: core.set_slot_node(slot, target_id, 0))
                if target.is_up:
                    self._simulation.do(source, lambda core, slot=slot: core.set_slot_node(slot, target_id, 0))

    def take_over(self) -> None:
        replicas = [node for node in self._up() if node.live.state.myself.primary is not None]
        if replicas:
            node = self._random.choice(replicas)
            self._note(f"{node.index} takes over without a vote")
            self._simulation.do(node, lambda core: core.fail_over("takeover"))

    def bump(self) -> None:
        if self._up():
            node = self._random.choice(self._up())
            self._note(f"{node.index} takes an epoch")
            self._simulation.do(node, lambda core: core.bump_epoch())

    def end(self) -> None:
        """Nothing goes wrong any more, except that two owners of a slot cannot talk to each other: other nodes must tell them."""
        self.heal()
        for node in self._simulation.nodes:
            node.stalled_until = 0.0
            self._simulation.restart(node)
        # Two that took the same epoch without a vote must meet: only they notice.
        if (contested := self._simulation.contested()) and not self._operators:
            one, other = self._random.choice(contested)
            self._note(f"{one.index} and {other.index} remain cut")
            self._network.cut(one, other)


def play(
    seed: int,
    core_type: type[ClusterCore] = ClusterCore,
    *,
    faults: int = 20,
    old_files: bool = False,
    operators: bool = False,
) -> Outcome:
    """One cluster from its start through some faults until it works again."""
    chance = Random(seed)
    simulation = Simulation(seed, core_type)
    promises = Promises(simulation, elections_only=not operators)
    simulation.start(primaries=chance.choice((3, 3, 4, 5)), replicas=chance.choice((1, 1, 2)))
    chaos = Chaos(simulation, old_files=old_files, operators=operators)
    for _ in range(faults):
        chaos.happen()
        simulation.run(10 ** chance.uniform(1, 3.7))
        if promises.wrong:
            break
    else:
        chaos.end()
        begin = simulation.now
        if not simulation.run_until(simulation.each_slot_has_one_owner, RECOVERY_MS) and not promises.wrong:
            promises.wrong.append("a slot has several owners, or none")
        simulation.network.heal()
        if not simulation.run_until(simulation.is_converged, RECOVERY_MS) and not promises.wrong:
            promises.wrong.append("the cluster does not recover")
        if promises.wrong:
            for node in simulation.nodes:
                simulation.note(f"{node.index}:\n{node.live.describe_nodes() if node.is_up else 'down'}")
        for node in simulation.nodes:
            if node.is_up:
                node.live.check_invariants()
        return _outcome(simulation, promises, simulation.now - begin)
    return _outcome(simulation, promises, 0.0)


def play_storms(seed: int, core_type: type[ClusterCore] = ClusterCore, *, storms: int = 6) -> Outcome:
    """Elections, as many as possible: five primaries, two of which die at once, while packets are slow and voters die."""
    simulation = Simulation(seed, core_type)
    promises = Promises(simulation)
    simulation.start(primaries=5, replicas=1)
    chaos = Chaos(simulation)
    for _ in range(storms):
        chaos.storm()
        chaos.end()
        simulation.run(2 * NODE_TIMEOUT_MS)
        if promises.wrong:
            break
    return _outcome(simulation, promises, 0.0)


def _outcome(simulation: Simulation, promises: Promises, recovery_ms: float) -> Outcome:
    elections = sum("election won" in line for line in simulation.trace)
    return Outcome(simulation.seed, promises.wrong, simulation.trace, elections, recovery_ms)


def play_partition(seed: int, core_type: type[ClusterCore] = ClusterCore) -> Outcome:
    """A partition: the side with most primaries, and a replica of each other one, must serve all slots; the other side must not."""
    chance = Random(seed)
    simulation = Simulation(seed, core_type)
    promises = Promises(simulation)
    primaries = chance.choice((3, 5, 7))
    simulation.start(primaries, replicas=1)
    away = set(chance.sample(range(primaries), primaries // 2))
    minority = [node for node in simulation.nodes if node.index in away]
    # Replicas of the primaries that stay may be on either side.
    minority += [
        node for node in simulation.nodes[primaries:] if node.index - primaries not in away and chance.random() < 0.3
    ]
    majority = [node for node in simulation.nodes if node not in minority]
    for node in minority:
        for other in majority:
            simulation.network.cut(node, other)

    def serves() -> bool:
        return all(node.live.state.is_ok for node in majority) and all(
            simulation.by_id[owner.id] in majority
            for node in majority
            for owner in node.live.state.owners[:: 16384 // 64]
            if owner
        )

    begin = simulation.now
    if not simulation.run_until(serves, 30 * NODE_TIMEOUT_MS):
        promises.wrong.append("the majority does not serve")
    elif any(node.live.state.is_ok for node in minority):
        promises.wrong.append("the minority serves")
    return _outcome(simulation, promises, simulation.now - begin)


SCENARIOS = {each.__name__: each for each in (play, play_storms, play_partition)}


def main() -> None:
    from .bugs import BUGS

    parser = argparse.ArgumentParser(description="Play random faults on simulated clusters.")
    parser.add_argument("--seeds", type=int, default=100, help="how many; default: 100")
    parser.add_argument("--first", type=int, default=1, help="the first of them; default: 1")
    parser.add_argument("--seed", type=int, help="play this one, and print what happens")
    parser.add_argument("--scenario", choices=[*SCENARIOS], default="play", help="default: play")
    parser.add_argument("--old-files", action="store_true", help="restart nodes with old files, too")
    parser.add_argument("--operators", action="store_true", help="move slots and take epochs without votes, too")
    parser.add_argument("--bug", choices=[*BUGS], help="plant a bug")
    arguments = parser.parse_args()
    core_type = BUGS[arguments.bug] if arguments.bug else ClusterCore
    options = {name: True for name in ("old_files", "operators") if getattr(arguments, name)}
    scenario = SCENARIOS[arguments.scenario]
    if arguments.seed is not None:
        outcome = scenario(arguments.seed, core_type, **options)
        print(outcome.report(1 << 30))
        sys.exit(bool(outcome.wrong))
    failed = 0
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        outcome = scenario(seed, core_type, **options)
        if outcome.wrong:
            failed += 1
            print(f"seed {seed}: {'; '.join(outcome.wrong)}", flush=True)
    print(f"{arguments.seeds} seeds, {failed} failed")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
