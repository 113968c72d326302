"""Nodes that are killed while slots move, just before each of their writes, syncs and renames: one owner is left, with everything.

One of the two dies, or with `both` the other one at once after it, the source and the target in turn first. The append-only file and nodes.conf are two files: whichever of them is behind when the node starts again, no key is lost, none is in two
places, and both nodes agree on the owner. With `power`, what was not synced is lost, too. Slots move in both ways: by CLUSTER MIGRATION, and
by SETSLOT and MIGRATE, as `redis-cli --cluster reshard` sends them; after the latter `redis-cli --cluster fix` repairs what is left half done.
"""

from __future__ import annotations

import itertools
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from support.cluster.moves import begin, keys_inside
from support.cluster.nodes import Nodes, start_cluster
from support.cluster.redis_cli import cluster_cli, place, start_cluster_cli
from support.files.fsync_shim import PowerLoss, find_compiler
from support.replicas.nodes import Node, wait_until
from support.wire import ConnectionClosed

from streamd.keyspace.hash_slot import tag_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_compiler() is None, reason="needs Linux and a C compiler"),
]

NewNode = Callable[..., Node]
KEYS = 30


def preload(node: Node, scratch: Path) -> PowerLoss:
    """Start a node again with the library that kills it."""
    node.stop()
    power = PowerLoss(node.folder, scratch)
    node.environment |= power.environment()
    node.start()
    return power


def names_in(slot: int) -> list[str]:
    return [f"{{{tag_of(slot).decode()}}}{number}" for number in range(KEYS)]


def nothing_moves(nodes: Nodes) -> bool:
    """Whether no task is left: one that has failed is tried again by the target."""
    return all(nodes.state(node, "cluster_slot_migration_active_tasks") == "0" for node in nodes)


def is_over(nodes: Nodes, victim: Node) -> bool:
    with suppress(OSError, ConnectionClosed):
        return not victim.is_running or nothing_moves(nodes)
    return not victim.is_running


def has_each_once(nodes: Nodes, slots: Sequence[int]) -> bool:
    return sum(map(keys_inside, nodes)) == KEYS * len(slots)


def assert_one_owner(nodes: Nodes, slots: Sequence[int]) -> None:
    """Each of the slots has one owner, which has all of their keys, and the other node has none."""
    nodes.wait()
    for slot in slots:
        owner = nodes.owner_of(slot)
        found = owner.call("EXISTS", *names_in(slot)).value
        assert found == KEYS, f"slot {slot} of {owner.name}; keys inside: {[*map(keys_inside, nodes)]}"
    wait_until(lambda: has_each_once(nodes, slots), "each key is in one place")


class Victims:
    """The nodes of a pair that are killed: the source, the target, or both."""

    def __init__(self, nodes: Nodes, side: str, scratch: Path) -> None:
        self._nodes = {"source": nodes[:1], "target": nodes[1:], "both": nodes}[side]
        scratch.mkdir()
        self._powers = [preload(node, scratch / str(number)) for number, node in enumerate(self._nodes)]

    def arm(self, number: int, operation: str) -> Node:
        """Have one of them killed before one of its next operations, which is counted from 1; returns it."""
        at = number % len(self._nodes)
        first = self._nodes[at]
        self._powers[at].rules(f"since {number} 0", f"{operation} kill {(number + 1) // len(self._nodes)}")
        for node in self._nodes:
            node.process.sent.add(signal.SIGKILL)
        return first

    def kill(self) -> None:
        """Kill those that still run."""
        for node in self._nodes:
            if node.is_running:
                node.kill()

    def restart(self, loss: str) -> None:
        for node, power in zip(self._nodes, self._powers, strict=True):
            node.hang_up()
            if loss == "power":
                power.happen()
            power.renew()
        for node in self._nodes:
            node.start()


@pytest.mark.parametrize("operation", ["write", "fsync", "rename"])
@pytest.mark.parametrize("loss", ["process", "power"])
@pytest.mark.parametrize("side", ["source", "target", "both"])
def test_one_owner_has_everything(new_node: NewNode, tmp_path: Path, side: str, loss: str, operation: str) -> None:
    nodes = start_cluster(new_node, ("streamd", "streamd"), appendonly="yes", appendfsync="always")
    victims = Victims(nodes, side, tmp_path / "scratch")
    nodes.wait()
    slots: list[int] = []
    survivals = 0  # in a row: none of the nodes does that so often
    while survivals < (2 if side == "both" else 1):
        slot = fill_next(nodes, slots)
        victim = victims.arm(slot, operation)
        with suppress(OSError, ConnectionClosed):
            begin(nodes[1], slot, slot)
        wait_until(lambda victim=victim: is_over(nodes, victim), "it is killed, or has moved the slot")
        survivals = survivals + 1 if victim.is_running else 0
        if survivals:
            wait_until(lambda: has_each_once(nodes, slots), "the keys are deleted at the source")
        victims.kill()
        victims.restart(loss)
        wait_until(lambda: nothing_moves(nodes), "nothing moves")
        assert_one_owner(nodes, slots)
    assert len(slots) > 2


# --- SETSLOT and MIGRATE ------------------------------------------------------------------------------------------------------

KEYS_AT_ONCE = 10


def reshard(nodes: Nodes, slot: int) -> Iterator[None]:
    """Move a slot from the first node to the second, in the steps of redis-cli. A refusal raises AssertionError."""
    source, target = nodes
    target.must("CLUSTER", "SETSLOT", str(slot), "IMPORTING", nodes.id_of(source))
    yield
    source.must("CLUSTER", "SETSLOT", str(slot), "MIGRATING", nodes.id_of(target))
    yield
    while keys := source.must("CLUSTER", "GETKEYSINSLOT", str(slot), str(KEYS_AT_ONCE)).plain():
        source.must("MIGRATE", "127.0.0.1", str(target.port), "", "0", "60000", "KEYS", *keys)
        yield
    for node in (target, source):
        node.must("CLUSTER", "SETSLOT", str(slot), "NODE", nodes.id_of(target))
        yield


def repair(nodes: Nodes) -> None:
    wait_until(lambda: all(nodes.state(node) == "ok" for node in nodes), "the nodes serve")
    print(cluster_cli("fix", place(nodes[0]), expects=None))
    wait_until(lambda: "[ERR]" not in cluster_cli("check", place(nodes[1]), expects=None), "nothing is left to repair")
    for node in nodes:
        assert "[" not in nodes.ask(node, "CLUSTER", "NODES"), "a slot is still being moved"
    # Otherwise SETSLOT NODE takes no new epoch, and the source, if it has a greater one, takes the slot back.
    wait_until(lambda: know_epochs(nodes), "each node knows the epoch that redis-cli has given to the other one")


def know_epochs(nodes: Nodes) -> bool:
    return len({tuple(sorted((name, words[6]) for name, words in nodes.lines(node).items())) for node in nodes}) == 1


def fill_next(nodes: Nodes, slots: list[int]) -> int:
    """Add the slot after the last of `slots`, and give it keys; returns it."""
    slots.append(slot := len(slots) + 1)
    for name in names_in(slot):
        nodes[0].must("SET", name, "v")
    return slot


@pytest.mark.parametrize("kinds", [("streamd", "streamd"), ("streamd", "redis"), ("redis", "streamd")], ids="-".join)
def test_a_reshard_that_ends_after_any_step_can_be_repaired(new_node: NewNode, kinds: tuple[str, str]) -> None:
    nodes = start_cluster(new_node, kinds)
    slots: list[int] = []
    is_last = False
    while not is_last:
        slot = fill_next(nodes, slots)
        # With most of the keys at the target, redis-cli makes that the owner; a Redis that hears of it before redis-cli goes on deletes
        # the other keys.
        steps = slot + (kinds[0] == "redis" and slot == 4)
        is_last = len(list(itertools.islice(reshard(nodes, slot), steps))) < steps
        repair(nodes)
        assert_one_owner(nodes, slots)
    assert len(slots) == KEYS // KEYS_AT_ONCE + 5


@pytest.mark.parametrize("operation", ["write", "fsync", "rename"])
@pytest.mark.parametrize("loss", ["process", "power"])
@pytest.mark.parametrize("side", ["source", "target", "both"])
def test_a_reshard_whose_node_is_killed_can_be_repaired(
    new_node: NewNode, tmp_path: Path, side: str, loss: str, operation: str
) -> None:
    nodes = start_cluster(new_node, ("streamd", "streamd"), appendonly="yes", appendfsync="always")
    victims = Victims(nodes, side, tmp_path / "scratch")
    nodes.wait()
    slots: list[int] = []
    survivals = 0  # in a row: none of the nodes does that so often
    while survivals < (2 if side == "both" else 1):
        slot = fill_next(nodes, slots)
        victim = victims.arm(slot, operation)
        try:
            list(reshard(nodes, slot))
            survivals += 1
        except (OSError, ConnectionClosed, AssertionError):
            wait_until(lambda victim=victim: not victim.is_running, "it is killed")
            survivals = 0
        victims.kill()
        victims.restart(loss)
        repair(nodes)
        assert_one_owner(nodes, slots)
    assert len(slots) > 2


# --- redis-cli ----------------------------------------------------------------------------------------------------------------

RESHARDED = 150


@pytest.mark.parametrize("kinds", [("streamd", "streamd"), ("streamd", "redis"), ("redis", "streamd")], ids="-".join)
def test_a_reshard_whose_redis_cli_is_killed_can_be_repaired(new_node: NewNode, kinds: tuple[str, str]) -> None:
    nodes = start_cluster(new_node, kinds)
    source, target = nodes
    slots: list[int] = []
    for _ in range(RESHARDED):
        fill_next(nodes, slots)
    statuses = []
    for part in (1, 3, 5):
        arrived = keys_inside(target)
        with start_cluster_cli(
            "reshard", place(source), "--cluster-from", nodes.id_of(source), "--cluster-to", nodes.id_of(target),
            "--cluster-slots", str(RESHARDED // 3), "--cluster-yes",
        ) as process:  # fmt: skip
            enough = arrived + KEYS * RESHARDED * part // 20
            wait_until(lambda e=enough, p=process: keys_inside(target) >= e or p.poll() is not None, "keys have moved")
            process.kill()
        statuses.append(process.returncode)
        repair(nodes)
        assert_one_owner(nodes, slots)
    assert -signal.SIGKILL in statuses
