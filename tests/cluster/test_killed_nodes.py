"""Nodes that are killed while slots move, just before each of their writes, syncs and renames: one owner is left, with everything.

The append-only file and nodes.conf are two files: whichever of them is behind when the node starts again, no key is lost, none is in two
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
from support.cluster.redis_cli import cluster_cli, place
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
        assert owner.call("EXISTS", *names_in(slot)).value == KEYS, f"slot {slot}"
    wait_until(lambda: has_each_once(nodes, slots), "each key is in one place")


@pytest.mark.parametrize("operation", ["write", "fsync", "rename"])
@pytest.mark.parametrize("loss", ["process", "power"])
@pytest.mark.parametrize("side", ["source", "target"])
def test_one_owner_has_everything(new_node: NewNode, tmp_path: Path, side: str, loss: str, operation: str) -> None:
    nodes = start_cluster(new_node, ("streamd", "streamd"), appendonly="yes", appendfsync="always")
    source, target = nodes
    victim = source if side == "source" else target
    power = preload(victim, tmp_path / "scratch")
    nodes.wait()
    slots: list[int] = []
    for number in itertools.count(1):
        slots.append(slot := number)
        for name in names_in(slot):
            source.must("SET", name, "v")
        power.rules(f"since {number} 0", f"{operation} kill {number}")
        victim.process.sent.add(signal.SIGKILL)
        with suppress(OSError, ConnectionClosed):
            begin(target, slot, slot)
        wait_until(lambda: is_over(nodes, victim), "it is killed, or has moved the slot")
        is_last = victim.is_running  # it does not do that so often
        if is_last:
            wait_until(lambda: has_each_once(nodes, slots), "the keys are deleted at the source")
            victim.kill()
        victim.hang_up()
        if loss == "power":
            power.happen()
        power.renew()
        victim.start()
        wait_until(lambda: nothing_moves(nodes), "nothing moves")
        assert_one_owner(nodes, slots)
        if is_last:
            break
    assert len(slots) > 1


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
    cluster_cli("fix", place(nodes[0]), expects=None)
    wait_until(lambda: "[ERR]" not in cluster_cli("check", place(nodes[1]), expects=None), "nothing is left to repair")
    for node in nodes:
        assert "[" not in nodes.ask(node, "CLUSTER", "NODES"), "a slot is still being moved"


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
        is_last = len(list(itertools.islice(reshard(nodes, slot), slot))) < slot
        repair(nodes)
        assert_one_owner(nodes, slots)
    assert len(slots) == KEYS // KEYS_AT_ONCE + 5


@pytest.mark.parametrize("operation", ["write", "fsync", "rename"])
@pytest.mark.parametrize("loss", ["process", "power"])
@pytest.mark.parametrize("side", ["source", "target"])
def test_a_reshard_whose_node_is_killed_can_be_repaired(
    new_node: NewNode, tmp_path: Path, side: str, loss: str, operation: str
) -> None:
    nodes = start_cluster(new_node, ("streamd", "streamd"), appendonly="yes", appendfsync="always")
    victim = nodes[side == "target"]
    power = preload(victim, tmp_path / "scratch")
    nodes.wait()
    slots: list[int] = []
    is_last = False
    while not is_last:
        slot = fill_next(nodes, slots)
        power.rules(f"since {slot} 0", f"{operation} kill {slot}")
        victim.process.sent.add(signal.SIGKILL)
        with suppress(OSError, ConnectionClosed, AssertionError):
            list(reshard(nodes, slot))
            is_last = True  # it does not do that so often
        if is_last:
            victim.kill()
        else:
            wait_until(lambda: not victim.is_running, "it is killed")
        victim.hang_up()
        if loss == "power":
            power.happen()
        power.renew()
        victim.start()
        repair(nodes)
        assert_one_owner(nodes, slots)
    assert len(slots) > 1
