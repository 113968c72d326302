"""Shards of a cluster that must not lose anything, clients at work on a slot, and faults: rounds as in support.failover.rounds.

    with Shards(folder) as shards:
        result = play_on_shards(shards, SHARD_FAULTS["kill primary"], seed=1)
    assert not result.wrong

    python -m tests.support.failover.shards --rounds 100 --seed 1

Two shards of three streamd nodes each hold everything (min-replicas-durable 1); a third primary, with one slot, votes. The clients write to
one slot, which faults may move to the other shard, by CLUSTER MIGRATION.
"""

from __future__ import annotations

import argparse
import itertools
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import redis

from ..cluster.nodes import Nodes, join, start_cluster_node
from ..replicas.nodes import Node, start_node, wait_until
from .clients import Address, client_of_owner
from .cluster import LOSS_FREE, NO_ANSWER, Mode
from .rounds import GROUP, LIBRARY, Load, Result, examine

__all__ = ["SHARD_FAULTS", "Shards", "play_on_shards"]

SLOT = 100
SECOND_SHARD, VOTER = 8192, 16383
"""The first slot of the second shard, and the slot of the node that only votes."""


class Member:
    """A data node, as rounds see it."""

    def __init__(self, node: Node) -> None:
        self.node = node

    @property
    def kind(self) -> str:
        return self.node.kind

    def __str__(self) -> str:
        return self.node.name


class Shards:
    """Six nodes that hold data and one that votes. Told and mode are those of support.failover.cluster.Cluster."""

    mode: Mode = LOSS_FREE

    def __init__(self, folder: Path, node_timeout_ms: int = 2000) -> None:
        self.rounds = itertools.count()
        self.told: int | None = None
        self._numbers = itertools.count()
        # 0: a replica may take over however long it has had no link, also if it has just started.
        settings = {
            "cluster_node_timeout": str(node_timeout_ms),
            "cluster_replica_validity_factor": "0",
        }
        loss_free = {name.replace("-", "_"): value for name, value in LOSS_FREE.settings.items()} | settings

        def new_node(kind: str, **given: str) -> Node:
            number = next(self._numbers)
            own = folder / f"node{number}"
            own.mkdir()
            started.append(start_node(own, kind, given | self.settings_of(number), f"node{number}"))
            return started[-1]

        started = self.nodes = Nodes()
        try:
            with ThreadPoolExecutor() as pool:
                starting = [pool.submit(start_cluster_node, new_node, "streamd", **loss_free) for _ in range(6)]
                starting.append(pool.submit(start_cluster_node, new_node, "redis", **settings))
            self.nodes = Nodes(each.result() for each in starting)
            self.voter = self.nodes[6]
            self._form()
        except BaseException:
            self.close()
            raise

    def _form(self) -> None:
        nodes = self.nodes
        for number, node in enumerate(nodes):
            node.call("CLUSTER", "SET-CONFIG-EPOCH", str(number + 1))
        for node, first, last in (
            (nodes[0], 0, SECOND_SHARD - 1),
            (nodes[3], SECOND_SHARD, VOTER - 1),
            (nodes[6], VOTER, VOTER),
        ):
            node.must("CLUSTER", "ADDSLOTSRANGE", str(first), str(last))
        join(nodes)
        for primary, replicas in ((nodes[0], nodes[1:3]), (nodes[3], nodes[4:6])):
            name = nodes.id_of(primary)
            for replica in replicas:
                wait_until(
                    lambda replica=replica, name=name: name in nodes.lines(replica), "the replica knows its primary"
                )
                replica.must("CLUSTER", "REPLICATE", name)
        self.wait_until_healthy()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def settings_of(self, number: int) -> dict[str, str]:
        """Settings of a node of its own."""
        return {}

    def heal(self) -> None:
        """End what a fault has done to the network."""

    def close(self) -> None:
        for node in self.nodes:
            node.thaw()
            if node.is_running:
                node.kill()

    # --- Who is who

    def addresses(self) -> list[Address]:
        return [("127.0.0.1", node.port) for node in self.nodes if node.is_running]

    def client(self, *, is_told: bool) -> redis.Redis:
        """The owner of the slot; `is_told`: the node that the operator names, while that one does."""
        return client_of_owner(SLOT, self.addresses, lambda: self.told if is_told else None)

    def owner_name(self) -> str:
        """The ID of the owner of the slot, as the node sees it that only votes."""
        return next((name for name, runs in self.nodes.owners(self.voter).items() if _has(runs, SLOT)), "")

    def owner(self) -> Node:
        return self._named(self.owner_name())

    def _named(self, name: str) -> Node:
        return next(node for node in self.nodes if node.is_running and self.nodes.id_of(node) == name)

    def shard_of(self, node: Node) -> list[Node]:
        """All nodes of the shard of a node."""
        number = self.nodes.index(node) // 3 * 3
        return self.nodes[number : number + 3]

    @property
    def members(self) -> list[Member]:
        """Those that hold the slot."""
        return [Member(node) for node in self.shard_of(self.owner())]

    def primary(self) -> Member:
        return Member(self.owner())

    # --- Waiting

    def wait_until_replaced(self, name: str) -> None:
        wait_until(lambda: self.owner_name() not in ("", name), f"another owner than {name}")

    def wait_until_healthy(self) -> None:
        """Wait until all nodes run, agree, and replicas have everything."""
        wait_until(self._is_healthy, "all nodes agree and are in sync")

    def _is_healthy(self) -> bool:
        try:
            if len(self.nodes.running) < len(self.nodes) or not self.nodes.agree():
                return False
            infos = [node.info() for node in self.nodes[:6]]
        except NO_ANSWER:
            return False
        for shard in (infos[:3], infos[3:]):
            primaries = [info for info in shard if info["role"] == "master"]
            if len(primaries) != 1 or any(
                info["master_repl_offset"] != primaries[0]["master_repl_offset"] for info in shard
            ):
                return False
        return True

    def logs(self) -> str:
        return "\n".join(f"--- {node.name}\n{node.log()[-3000:]}" for node in self.nodes)


def _has(runs: str, slot: int) -> bool:
    bounds = [run.partition("-") for run in runs.split() if not run.startswith("[")]
    return any(int(first) <= slot <= int(last or first) for first, _, last in bounds)


# --- Faults -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Move:
    """A fault that may move the slot. `strike` returns the ID of the node whose replacement is waited for; empty: none."""

    name: str
    strike: Callable[[Shards, Node, random.Random], str]
    is_cut_off: bool = False
    target: str = "primary"
    failovers: int = 0
    is_simple: bool = False


def _others(shards: Shards, node: Node) -> list[Node]:
    return [each for each in shards.shard_of(node) if each is not node]


def _kill(shards: Shards, victim: Node, chance: random.Random) -> str:
    name = shards.nodes.id_of(victim)
    victim.kill()
    return name


def _freeze(shards: Shards, victim: Node, chance: random.Random) -> str:
    name = shards.nodes.id_of(victim)
    victim.hang_up()
    victim.freeze()
    return name


def _kill_lagging(shards: Shards, victim: Node, chance: random.Random) -> str:
    """It dies with writes that nobody has confirmed; its replicas were stopped."""
    name, others, offset = shards.nodes.id_of(victim), _others(shards, victim), victim.offset
    for other in others:
        other.hang_up()
        other.freeze()
    until = time.monotonic() + 0.4
    wait_until(lambda: victim.offset > offset + 10_000 or time.monotonic() > until, "writes that nobody confirms")
    victim.kill()
    for other in others:
        other.thaw()
    return name


def _kill_with_replica(shards: Shards, victim: Node, chance: random.Random) -> str:
    name = shards.nodes.id_of(victim)
    chance.choice(_others(shards, victim)).kill()
    victim.kill()
    return name


def _kill_two(shards: Shards, victim: Node, chance: random.Random) -> str:
    """It dies, and its successor as well before it has come back."""
    name = shards.nodes.id_of(victim)
    victim.kill()
    shards.wait_until_replaced(name)
    successor = shards.owner()
    victim.start()
    name = shards.nodes.id_of(successor)
    successor.kill()
    return name


def _cut_power(shards: Shards, victim: Node, chance: random.Random) -> str:
    for node in shards.nodes:
        node.kill()
    shards.voter.start()
    return ""


def _switch(shards: Shards, victim: Node, chance: random.Random) -> str:
    """CLUSTER FAILOVER at a replica, in one of its three forms."""
    name = shards.nodes.id_of(victim)
    form = chance.choice([[], ["FORCE"], ["TAKEOVER"]])
    chance.choice(_others(shards, victim)).must("CLUSTER", "FAILOVER", *form)
    return name


def _restart(shards: Shards, victim: Node, chance: random.Random) -> str:
    victim.stop()
    victim.start()
    return ""


def _kill_replica(shards: Shards, victim: Node, chance: random.Random) -> str:
    chance.choice(_others(shards, victim)).kill()
    return ""


def _migrate(shards: Shards, victim: Node, chance: random.Random) -> str:
    """CLUSTER MIGRATION of the slot to the other shard."""
    name = shards.nodes.id_of(victim)
    _start_migration(_find_target(shards, victim))
    return name


def _find_target(shards: Shards, victim: Node) -> Node:
    """The primary of the other shard."""
    other = next(node for node in (shards.nodes[0], shards.nodes[3]) if node not in shards.shard_of(victim))
    return next(node for node in shards.shard_of(other) if node.info()["role"] == "master")


def _start_migration(target: Node) -> None:
    target.must("CLUSTER", "MIGRATION", "IMPORT", str(SLOT), str(SLOT))


def _migrate_to_one_alone(shards: Shards, victim: Node, chance: random.Random) -> str:
    """The new owner dies, and its replicas had died before they could have everything."""
    target = _find_target(shards, victim)
    others = _others(shards, target)
    for other in others:
        other.kill()
    name = shards.nodes.id_of(target)
    _start_migration(target)
    time_out = time.monotonic() + 1.5
    wait_until(lambda: shards.owner_name() == name or time.monotonic() > time_out, "the new owner")
    target.kill()
    for other in others:
        other.start()
    wait_until(lambda: any(other.info()["role"] == "master" for other in others), "a successor")
    return ""


def _move_by_hand(shards: Shards, victim: Node, chance: random.Random) -> str:
    """SETSLOT and MIGRATE, as redis-cli moves slots; the new owner dies as soon as it is one."""
    target = _find_target(shards, victim)
    source_id, target_id = shards.nodes.id_of(victim), shards.nodes.id_of(target)
    target.must("CLUSTER", "SETSLOT", str(SLOT), "IMPORTING", source_id)
    victim.must("CLUSTER", "SETSLOT", str(SLOT), "MIGRATING", target_id)
    while keys := victim.must("CLUSTER", "GETKEYSINSLOT", str(SLOT), "100").plain():
        victim.must("MIGRATE", "127.0.0.1", str(target.port), "", "0", "10000", "KEYS", *keys)
    for node in (target, victim):
        node.must("CLUSTER", "SETSLOT", str(SLOT), "NODE", target_id)
    target.kill()
    return ""


def _migrate_and_kill(which: str) -> Callable[[Shards, Node, random.Random], str]:
    def strike(shards: Shards, victim: Node, chance: random.Random) -> str:
        """The same, and a node dies somewhere in it."""
        target = _find_target(shards, victim)
        _start_migration(target)
        time_out = time.monotonic() + chance.random() * 0.3
        wait_until(lambda: time.monotonic() > time_out, "a moment of the migration")
        dying = target if which == "target" else victim
        if which == "target" and chance.random() < 0.5:
            # As soon as it owns the slot, which is when its replicas may not have everything.
            name = shards.nodes.id_of(target)
            with suppress(AssertionError, *NO_ANSWER):
                wait_until(lambda: shards.owner_name() == name, "the new owner", 5)
        dying.kill()
        return ""

    return strike


SHARD_FAULTS = {
    fault.name: fault
    for fault in (
        Move("kill primary", _kill),
        Move("freeze primary", _freeze),
        Move("kill lagging primary", _kill_lagging),
        Move("kill primary and replica", _kill_with_replica),
        Move("two deaths", _kill_two),
        Move("power cut", _cut_power),
        Move("planned switch", _switch),
        Move("restart primary", _restart),
        Move("kill replica", _kill_replica),
        Move("migration", _migrate),
        Move("migration, target dies", _migrate_and_kill("target")),
        Move("moved by hand, target dies", _move_by_hand),
        Move("migration to one alone", _migrate_to_one_alone),
        Move("migration, source dies", _migrate_and_kill("source")),
    )
}


def play_on_shards(shards: Shards, fault: Move, seed: int, *, before: int = 100, after: int = 80) -> Result:
    """A round: clients at work, the fault, its end, and what is there in the end."""
    chance = random.Random(seed)
    started = time.monotonic()
    victim = shards.owner()
    key = _key_of(SLOT, next(shards.rounds))
    for node in (shards.nodes[0], shards.nodes[3]):
        primary = next(each for each in shards.shard_of(node) if each.info()["role"] == "master")
        primary.must("FUNCTION", "LOAD", "REPLACE", LIBRARY)
    victim.must("XGROUP", "CREATE", key, GROUP, "0", "MKSTREAM")
    shards.wait_until_healthy()
    result = Result(fault, seed, "", shards.mode, replicas=2)  # type: ignore[arg-type]
    first = shards.nodes.index(victim)
    with Load(shards, key, seed) as load:  # type: ignore[arg-type]
        load.wait_for_adds(before + chance.randint(0, 30))
        shards.told = victim.port
        replaced = fault.strike(shards, victim, chance)
        if replaced:
            shards.wait_until_replaced(replaced)
        shards.told = None
        shards.heal()
        if chance.random() < 0.5 and fault.name in ("kill primary", "planned switch", "migration", "kill replica"):
            load.wait_for_adds(after)
        for node in chance.sample(shards.nodes, len(shards.nodes)):
            node.thaw()
            if not node.is_running:
                node.start()
        shards.wait_until_healthy()
        load.wait_for_adds(after)
    shards.wait_until_healthy()
    result.pairing = f"{first} -> {shards.nodes.index(shards.owner())}"
    for member in shards.members:
        member.node.must("READONLY")
    examine(shards, load, key, result)  # type: ignore[arg-type]
    result.wall_s = time.monotonic() - started
    return result


def _key_of(slot: int, number: int) -> bytes:
    """The n-th key of a slot."""
    tags = (tag for tag in (b"%d" % count for count in itertools.count()) if redis.crc.key_slot(tag) == slot)
    return b"{%s}%d" % (next(tags), number)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.support.failover.shards", description="Faults in loss-free shards."
    )
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1, help="of the first round; each round has the next")
    parser.add_argument("--fault", action="append", choices=SHARD_FAULTS, help="only these; may be repeated")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    faults = [SHARD_FAULTS[name] for name in options.fault or SHARD_FAULTS]
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="streamd-shards-") as folder, Shards(Path(folder)) as shards:
        for seed in range(options.seed, options.seed + options.rounds):
            try:
                result = play_on_shards(shards, faults[seed % len(faults)], seed)
            except BaseException:
                print(faults[seed % len(faults)].name, seed, shards.logs(), flush=True)
                raise
            print(result, flush=True)
            wrong += bool(result.wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
