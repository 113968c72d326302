"""FAILOVER: every form and text as Redis's, and a hand-over that loses nothing, whoever hands over to whom."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from support.replicas.nodes import Node, assert_same_state, wait_in_sync, wait_until
from support.wire import Reply, Wire

pytestmark = [pytest.mark.long, pytest.mark.real, pytest.mark.timeout(300)]

NewNode = Callable[..., Node]

PAIRS = [("streamd", "streamd"), ("streamd", "redis"), ("redis", "streamd")]
every_pair = pytest.mark.parametrize("kinds", PAIRS, ids=" to ".join)

FORMS = """
    FAILOVER
    FAILOVER ABORT
    FAILOVER ABORT ABORT
    FAILOVER ABORT TIMEOUT 5
    FAILOVER NOTHING
    FAILOVER TIMEOUT
    FAILOVER TIMEOUT 0
    FAILOVER TIMEOUT -1
    FAILOVER TIMEOUT x
    FAILOVER TIMEOUT 99999999999999999999
    FAILOVER TIMEOUT 5 TIMEOUT 6
    FAILOVER TO
    FAILOVER TO 127.0.0.1
    FAILOVER TO 127.0.0.1 x
    FAILOVER TO 127.0.0.1 1
    FAILOVER TO 127.0.0.1 1 TO 127.0.0.1 1
    FAILOVER TO 127.0.0.1 99999999
    FAILOVER TO localhost {port}
    FAILOVER TO 127.0.0.1 1 FORCE
    FAILOVER TO 127.0.0.1 1 FORCE TIMEOUT 5
    FAILOVER TO 127.0.0.1 {port} FORCE
    FAILOVER FORCE
    FAILOVER FORCE FORCE
    FAILOVER FORCE TIMEOUT 5
    FAILOVER TIMEOUT 5 TO 127.0.0.1 {port} ABORT
    PSYNC ? -1 FAILOVER
"""
"""Forms that begin nothing, where there is a replica at {port}; but for the first, which it alone makes succeed."""


def forms(port: int, *, first: bool) -> list[str]:
    lines = [line.strip().format(port=port) for line in FORMS.strip().splitlines()]
    return lines if first else lines[1:]


def answers(node: Node, lines: list[str]) -> dict[str, Reply]:
    """The reply to each line, each over a connection of its own."""
    found = {}
    for line in lines:
        with node.connect() as wire:
            found[line] = wire.call(*line.split())
    return found


def pair_up(new_node: NewNode, *kinds: str) -> tuple[Node, Node]:
    """A primary and a replica in sync."""
    primary, replica = (new_node(kind) for kind in kinds)
    replica.follow(primary)
    primary.must("XADD", "s", "1-1", "f", "v")
    wait_in_sync(primary, replica)
    wait_until(lambda: "state=online" in primary.info().get("slave0", ""), "a replica that is online for its primary")
    return primary, replica


def state(node: Node) -> str:
    return node.info()["master_failover_state"]


@contextmanager
def frozen(node: Node) -> Iterator[None]:
    node.freeze()
    try:
        yield
    finally:
        node.thaw()


# --- Texts ------------------------------------------------------------------------------------------------------------------


def test_forms_without_a_replica(new_node: NewNode) -> None:
    lines = forms(1, first=True)
    assert answers(new_node("streamd"), lines) == answers(new_node("redis"), lines)


def test_forms_with_a_replica(new_node: NewNode) -> None:
    (ours, our_replica), (theirs, their_replica) = (pair_up(new_node, kind, "redis") for kind in ("streamd", "redis"))
    found = answers(ours, forms(our_replica.port, first=False))
    wanted = answers(theirs, forms(their_replica.port, first=False))
    assert list(found.values()) == list(wanted.values())
    assert ours.info()["role"] == theirs.info()["role"] == "master"


def test_forms_on_a_replica(new_node: NewNode) -> None:
    ours, theirs = (pair_up(new_node, "redis", kind)[1] for kind in ("streamd", "redis"))
    lines = [line for line in forms(1, first=True) if not line.startswith("PSYNC")]
    assert answers(ours, lines) == answers(theirs, lines)


def test_forms_during_a_failover(new_node: NewNode) -> None:
    found = []
    for kind in ("streamd", "redis"):
        primary, replica = pair_up(new_node, kind, "redis")
        with frozen(replica):
            primary.must("XADD", "s", "2-1", "f", "v")
            primary.line("FAILOVER")
            lines = ["FAILOVER", "FAILOVER TIMEOUT 5", "FAILOVER TO 127.0.0.1 1", "FAILOVER TIMEOUT 0", "FAILOVER FORCE",
                     "REPLICAOF NO ONE", "REPLICAOF 127.0.0.1 1", "REPLICAOF 127.0.0.1 x", "XLEN s", "ROLE", "PING",
                     "FAILOVER ABORT", "FAILOVER ABORT", "XADD s 3-1 f v"]  # fmt: skip
            replies = answers(primary, lines)
            role = replies.pop("ROLE").value[0].value
            found.append((role, replies, state(primary)))
        wait_in_sync(primary, replica)
    assert found[0] == found[1]


def test_replicas_are_not_served_during_a_failover(new_node: NewNode) -> None:
    found = []
    for kind in ("streamd", "redis"):
        primary, replica = pair_up(new_node, kind, "redis")
        with frozen(replica):
            primary.must("XADD", "s", "2-1", "f", "v")
            primary.line("FAILOVER")
            found.append(answers(primary, ["PSYNC ? -1", "SYNC"]))
            primary.line("FAILOVER ABORT")
    assert found[0] == found[1]


# --- The hand-over ------------------------------------------------------------------------------------------------------------


class Writer:
    """Adds entries one after the other, to the node that is the primary, and remembers those that were acknowledged."""

    def __init__(self, *nodes: Node) -> None:
        self.nodes = nodes
        self.acknowledged: list[bytes] = []
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def __enter__(self) -> Writer:
        self.thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stopped.set()
        self.thread.join(60)
        assert not self.thread.is_alive()

    def run(self) -> None:
        wires = itertools.cycle([Wire(node.port, timeout_s=60) for node in self.nodes])
        wire = next(wires)
        while not self.stopped.is_set():
            reply = wire.call("XADD", "s", "*", "f", "v")
            if reply.is_error:
                assert reply.value.startswith(b"READONLY"), reply
                wire = next(wires)
            else:
                self.acknowledged.append(reply.value)
        for _ in self.nodes:
            next(wires).close()

    def wait_for_more(self, count: int) -> None:
        wanted = len(self.acknowledged) + count
        wait_until(lambda: len(self.acknowledged) >= wanted, f"{count} more entries")


def assert_handed_over(old: Node, new: Node) -> None:
    wait_until(lambda: old.info()["role"] == "slave" and old.has_link(), "the old primary is a replica")
    assert new.info()["role"] == "master"
    assert state(old) == state(new) == "no-failover"


@every_pair
@pytest.mark.parametrize("form", ["FAILOVER", "FAILOVER TO 127.0.0.1 {port}", "failover timeout 60000"])
def test_nothing_is_lost_in_a_handover(new_node: NewNode, kinds: tuple[str, str], form: str) -> None:
    primary, replica = pair_up(new_node, *kinds)
    with Writer(primary, replica) as writer:
        writer.wait_for_more(50)
        primary.line(form.format(port=replica.port))
        assert_handed_over(primary, replica)
        writer.wait_for_more(50)
    assert_same_state(replica, primary)
    there = [entry.value[0].value for entry in replica.must("XRANGE", "s", "-", "+").value]
    assert there == [b"1-1", *writer.acknowledged]


@every_pair
def test_the_old_primary_continues_where_it_was(new_node: NewNode, kinds: tuple[str, str]) -> None:
    primary, replica = pair_up(new_node, *kinds)
    replid = primary.info()["master_replid"]
    syncs = replica.info("stats")["sync_full"]
    primary.line("FAILOVER")
    assert_handed_over(primary, replica)
    info = replica.info()
    assert info["master_replid2"] == replid
    assert info["master_replid"] == primary.info()["master_replid"] != replid
    stats = replica.info("stats")
    assert (stats["sync_full"], stats["sync_partial_ok"]) == (syncs, "1")
    replica.line("FAILOVER")
    assert_handed_over(replica, primary)


@every_pair
def test_writes_wait_while_a_replica_catches_up_and_go_on_after_an_abort(
    new_node: NewNode, kinds: tuple[str, str]
) -> None:
    primary, replica = pair_up(new_node, *kinds)
    with frozen(replica), primary.connect() as wire:
        primary.must("XADD", "s", "2-1", "f", "v")
        primary.line("FAILOVER")
        assert state(primary) == "waiting-for-sync"
        wire.send("XADD", "s", "3-1", "f", "v")
        assert primary.must("XLEN", "s").value == 2
        primary.line("FAILOVER ABORT")
        assert state(primary) == "no-failover"
        assert wire.read().value == b"3-1"
    wait_in_sync(primary, replica)


@every_pair
def test_a_failover_that_takes_too_long_ends(new_node: NewNode, kinds: tuple[str, str]) -> None:
    primary, replica = pair_up(new_node, *kinds)
    with frozen(replica):
        primary.must("XADD", "s", "2-1", "f", "v")
        primary.line("FAILOVER TIMEOUT 100")
        assert primary.must("XADD", "s", "3-1", "f", "v").value == b"3-1"  # it has waited for the end
        assert state(primary) == "no-failover"
    wait_in_sync(primary, replica)


@every_pair
def test_a_forced_failover_does_not_wait_for_the_replica(new_node: NewNode, kinds: tuple[str, str]) -> None:
    primary, replica = pair_up(new_node, *kinds)
    with frozen(replica):
        primary.must("XADD", "s", "2-1", "f", "v")
        primary.line(f"FAILOVER TO 127.0.0.1 {replica.port} FORCE TIMEOUT 100")
        wait_until(lambda: state(primary) == "failover-in-progress", "the hand-over")
    assert_handed_over(primary, replica)
    assert_same_state(replica, primary)


@every_pair
def test_the_chosen_replica_of_two_is_promoted(new_node: NewNode, kinds: tuple[str, str]) -> None:
    primary, chosen = pair_up(new_node, *kinds)
    other = new_node("redis")
    other.follow(primary)
    wait_in_sync(primary, chosen, other)
    primary.line(f"FAILOVER TO 127.0.0.1 {chosen.port}")
    assert_handed_over(primary, chosen)
    assert other.info()["role"] == "slave"
    assert chosen.must("XADD", "s", "5-1", "f", "v").value == b"5-1"


@every_pair
def test_client_unpause_does_not_end_the_pause_of_a_failover(new_node: NewNode, kinds: tuple[str, str]) -> None:
    primary, replica = pair_up(new_node, *kinds)
    with frozen(replica):
        primary.must("XADD", "s", "2-1", "f", "v")
        primary.line("FAILOVER")
        primary.line("CLIENT UNPAUSE")
        with primary.connect() as wire:
            wire.send("XADD", "s", "3-1", "f", "v")
            wait_until(lambda: primary.info("clients")["blocked_clients"] == "1", "a write that waits")
            primary.line("FAILOVER ABORT")
            assert wire.read().value == b"3-1"
