"""min-replicas-durable, whoever is promoted: what was acknowledged is there, and what is ahead with nothing of it gives way.

The nodes get the commands that Sentinels send, in the order in which that goes wrong. N = 1, one primary and two replicas.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest
from support.replicas.nodes import Node, wait_until
from support.replicas.raw_replica import RawReplica
from support.servers import free_port, target_is_redis

pytestmark = [pytest.mark.long, pytest.mark.skipif(target_is_redis(), reason="min-replicas-durable is streamd's")]

NewNode = Callable[..., Node]

LOSS_FREE = {
    "appendonly": "yes",
    "appendfsync": "always",
    "min_replicas_durable": "1",
    "min_replicas_durable_timeout": "3600000",
}


class Trio(NamedTuple):
    """A primary, and two replicas that follow it."""

    one: Node
    two: Node
    three: Node


@pytest.fixture
def trio(new_node: NewNode) -> Trio:
    one, two, three = (new_node("streamd", **LOSS_FREE) for _ in range(3))
    two.follow(one)
    three.follow(one)
    wait_until(two.has_link, "the link of the second")
    wait_until(three.has_link, "the link of the third")
    serves(one)
    return Trio(one, two, three)


def serves(node: Node) -> None:
    """Wait until a node serves data."""
    wait_until(lambda: not node.call("GET", "k").is_error, "a node that serves data")


def let_go(*nodes: Node) -> None:
    """Let replicas follow a server that is not there: they get nothing any more."""
    for node in nodes:
        assert node.must("REPLICAOF", "127.0.0.1", str(free_port())).value == b"OK"


def add(node: Node, first: int, count: int) -> None:
    """Add entries that are acknowledged."""
    with node.connect() as wire:
        replies = wire.pipeline([["XADD", "s", f"{number}-1", "f", "v"] for number in range(first, first + count)])
        assert not any(reply.is_error for reply in replies), replies


def add_unconfirmed(node: Node, first: int, count: int) -> None:
    """Add entries that nobody confirms."""
    with node.connect() as wire:
        before = node.offset
        wire.send_bytes(b"".join(b"XADD s %d-1 f %b\r\n" % (first + n, b"x" * 100) for n in range(count)))
        wait_until(lambda: node.offset > before + 100 * count, "the entries in the stream")


def entries(node: Node) -> list[int] | None:
    """None: it does not say, for instance because it loads."""
    reply = node.call("XRANGE", "s", "-", "+")
    return None if reply.is_error else [int(entry_id.split(b"-")[0]) for entry_id, _ in reply.plain()]


def holds(node: Node, *wanted: range) -> None:
    """Wait until a node serves, or follows one that does, and has exactly these entries."""
    expected = [number for each in wanted for number in each]

    wait_until(lambda: entries(node) == expected, f"{len(expected)} entries")


def test_a_replica_that_is_behind_takes_over_what_another_has_confirmed(trio: Trio) -> None:
    one, two, three = trio
    let_go(two)
    add(one, 1, 100)
    one.kill()
    two.follow(None)
    three.follow(two)
    holds(two, range(1, 101))
    holds(three, range(1, 101))
    add(two, 200, 10)
    assert "copying it first" in two.log()


def test_the_replica_with_the_most_data_gives_way_if_none_of_it_was_confirmed(trio: Trio) -> None:
    one, two, three = trio
    let_go(two, three)
    add_unconfirmed(one, 1, 1000)
    two.follow(None)
    three.follow(two)
    serves(two)
    add(two, 5000, 50)
    two.kill()
    let_go(one)
    assert one.offset > three.offset
    one.follow(None)
    three.follow(one)
    holds(one, range(5000, 5050))
    holds(three, range(5000, 5050))


def test_what_a_returned_primary_acknowledges_is_kept_when_it_becomes_a_replica(trio: Trio) -> None:
    one, two, three = trio
    add(one, 1, 10)
    let_go(two)
    one.kill()
    two.follow(None)
    one.start()
    three.follow(one)
    serves(one)
    add(one, 100, 50)
    one.follow(two)
    three.follow(two)
    for node in trio:
        holds(node, range(1, 11), range(100, 150))
    add(two, 200, 10)


def test_a_living_primary_goes_on_while_another_is_promoted(trio: Trio) -> None:
    one, two, three = trio
    add(one, 1, 10)
    two.follow(None)
    add(one, 100, 50)
    assert two.call("GET", "k").value.startswith(b"NOREPLICAS")
    three.follow(two)
    holds(two, range(1, 11), range(100, 150))
    with one.connect() as wire:
        wire.send("GET", "k")  # what it would say may be old by now
        add(two, 200, 10)
        one.follow(two)
        assert wire.read().value.startswith(b"NOREPLICAS")
    holds(one, range(1, 11), range(100, 150), range(200, 210))


def test_a_server_knows_where_it_was_after_a_power_cut(trio: Trio) -> None:
    one, two, three = trio
    let_go(two)
    add(one, 1, 500)
    for node in trio:
        node.kill()
    two.start()
    three.start()
    two.follow(None)
    three.follow(two)
    holds(two, range(1, 501))
    holds(three, range(1, 501))


def test_a_rewritten_file_says_where_its_data_is(trio: Trio) -> None:
    one, two, three = trio
    let_go(two)
    add(one, 1, 100)
    three.must("BGREWRITEAOF")
    wait_until(lambda: three.info("persistence")["aof_rewrite_in_progress"] == "0", "the end of the rewrite")
    wait_until(lambda: "Background AOF rewrite finished successfully" in three.log(), "the new base")
    one.kill()
    three.kill()
    three.start()
    two.follow(None)
    three.follow(two)
    holds(two, range(1, 101))


def test_a_replica_that_has_joined_a_later_view_is_not_served_in_an_earlier_one(trio: Trio) -> None:
    one, two, three = trio
    add(one, 1, 10)
    two.follow(None)
    three.follow(two)
    serves(two)
    before = one.info()["durable_view"]
    three.kill()
    three.start()
    three.follow(one)
    wait_until(three.has_link, "the link")
    serves(one)
    assert int(one.info()["durable_view"].split(":")[0]) > int(before.split(":")[0])
    add(one, 100, 10)
    three.follow(two)
    holds(two, range(1, 11), range(100, 110))


@pytest.mark.parametrize("is_primary", [True, False])
def test_a_replica_that_greeted_before_a_view_began_has_to_greet_again(trio: Trio, is_primary: bool) -> None:
    node = trio.one if is_primary else trio.two
    with RawReplica(node) as early:
        early.introduce("eof", "psync2")
        assert early.ask("REPLCONF", "view", "0: 0: 0").startswith(b"+VIEW" if is_primary else b"+OK")
        if is_primary:
            with RawReplica(node) as other:  # it has joined a later view
                assert other.ask("REPLCONF", "view", "1000:other 0: 0").startswith(b"+VIEW 1001:")
        else:
            node.follow(None)
        assert early.psync() == b"-NOMASTERLINK Can't SYNC before you have joined my view"
        assert early.ask("REPLCONF", "view", "0: 0: 0").startswith(b"+VIEW")
        assert early.psync().startswith(b"+FULLRESYNC")


def test_failover_is_followed_by_a_new_view(trio: Trio) -> None:
    one, two, three = trio
    add(one, 1, 10)
    one.must("FAILOVER", "TO", "127.0.0.1", str(two.port))
    wait_until(lambda: two.info()["role"] == "master", "the new primary")
    serves(two)
    add(two, 100, 10)
    wait_until(one.has_link, "the link back")
    add(two, 200, 10)
    three.follow(two)
    for node in trio:
        holds(node, range(1, 11), range(100, 110), range(200, 210))


def test_a_server_without_a_view_is_never_ahead(new_node: NewNode) -> None:
    primary, other = (new_node("streamd", appendonly="yes", appendfsync="always") for _ in range(2))
    for number in range(200):
        other.must("XADD", "s", f"{number + 1}-1", "f", "v")
    primary.must("XADD", "s", "1000-1", "f", "v")
    for node in (primary, other):
        node.must("CONFIG", "SET", "min-replicas-durable", "1")
    other.follow(primary)
    holds(primary, range(1000, 1001))
    holds(other, range(1000, 1001))


def test_a_replica_that_lags_does_not_overwrite_one_that_has_confirmed_more(trio: Trio) -> None:
    one, two, three = trio
    three.must("CLIENT", "PAUSE", "3600000", "WRITE")  # its link is up, and it executes nothing
    add(one, 1, 100)
    syncs = three.info("stats")["sync_full"]
    two.follow(three)
    wait_until(lambda: "Can't SYNC before I have what you have" in two.log(), "a refusal")
    assert three.info("stats")["sync_full"] == syncs
    assert entries(two) == list(range(1, 101))
    three.must("CLIENT", "UNPAUSE")
    wait_until(two.has_link, "the link to a replica that has caught up")
    assert entries(two) == list(range(1, 101))
