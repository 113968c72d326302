"""The power fails at a replica, and its primary is lost: what was acknowledged is on the replica's disk.

That is what a replica's FACK says. The shim (support/files/fsync_shim) leaves of its files only what was synced.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.files.fsync_shim import PowerLoss, find_compiler
from support.replicas.nodes import DEADLINE_S, NODE_SETTINGS, Node, wait_until
from support.servers import free_port, python_environment, server_arguments, wait_for_start
from support.wire import Wire

NewNode = Callable[..., Node]

pytestmark = [pytest.mark.long, pytest.mark.skipif(find_compiler() is None, reason="needs Linux and a C compiler")]

SETTINGS = {"appendonly": "yes", "appendfsync": "always"}


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[[], tuple[Node, PowerLoss]]]:
    """Start a replica-to-be whose power can fail."""
    made: list[Node] = []

    def begin_one() -> tuple[Node, PowerLoss]:
        folder = tmp_path / "replica"
        folder.mkdir()
        power = PowerLoss(folder, tmp_path / "scratch")
        port = free_port()
        argv = server_arguments(port, {**NODE_SETTINGS, **SETTINGS})
        node = Node("replica", argv, port, folder, python_environment() | power.environment())
        node.kind = "streamd"
        made.append(node)
        wait_for_start(node)
        return node, power

    yield begin_one
    for node in made:
        node.stop()


def write(wire: Wire, numbers: range) -> list[bytes]:
    """XADDs in one piece; the IDs of the entries that were acknowledged."""
    replies = wire.pipeline([["XADD", "s", f"{number}-1", "field", str(number)] for number in numbers])
    return [reply.value for reply in replies if not reply.is_error]


@pytest.mark.parametrize("seed", range(3))
def test_what_was_acknowledged_is_on_the_replicas_disk(
    new_node: NewNode, begin: Callable[[], tuple[Node, PowerLoss]], seed: int
) -> None:
    chance = random.Random(seed)
    primary = new_node("streamd", **SETTINGS, min_replicas_durable="1", min_replicas_durable_timeout="60000")
    replica, power = begin()
    replica.follow(primary)
    wait_until(lambda: not primary.call("GET", "k").is_error, "a replica that confirms", DEADLINE_S)
    acknowledged: list[bytes] = []
    with primary.connect() as wire:
        at = 1
        for _ in range(chance.randint(3, 30)):
            size = chance.choice([1, 2, 10, 100])
            acknowledged += write(wire, range(at, at + size))
            at += size
        replica.kill()
    power.happen()
    primary.kill()
    power.renew()
    replica.start()
    found = {entry.value[0].value for entry in replica.must("XRANGE", "s", "-", "+").value}
    assert acknowledged
    assert not set(acknowledged) - found


def test_what_a_replica_cannot_sync_is_not_acknowledged(
    new_node: NewNode, begin: Callable[[], tuple[Node, PowerLoss]]
) -> None:
    primary = new_node("streamd", **SETTINGS, min_replicas_durable="1", min_replicas_durable_timeout="1000")
    replica, power = begin()
    replica.follow(primary)
    wait_until(lambda: not primary.call("SET", "k", "before").is_error, "a replica that confirms", DEADLINE_S)
    power.rules(f"fsync {errno.EIO} 1+")
    assert primary.call("SET", "k", "after").value.startswith(b"NOREPLICAS")
    wait_until(lambda: not replica.is_running, "the end of a replica that cannot keep what it got")
