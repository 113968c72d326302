"""Links that break: at every byte of the handshake, of the snapshot and of the stream, in both directions.

However it breaks, the old data stays until the new is whole, a transaction is never seen in part, and in the end the
replica holds what the primary holds. Marked `real`; the long runs try every byte, the short ones a sample.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from support.replicas.nodes import Node, Proxy, assert_same_state, state_of, wait_in_sync, wait_until

pytestmark = [pytest.mark.long, pytest.mark.real]

NewNode = Callable[..., Node]

PAIRS = [("streamd", "streamd"), ("redis", "streamd"), ("streamd", "redis")]
OLD = {"old": "v", "older": "w"}


@dataclass
class Link:
    """A primary with some data, a node that becomes its replica through a proxy, and what is sent for that.

    handshake  bytes that the primary sends before the snapshot
    down, up   bytes that each of the two sends until the snapshot has been loaded
    """

    primary: Node
    replica: Node
    proxy: Proxy
    handshake: int = 0
    down: int = 0
    up: int = 0

    def measure(self) -> None:
        """Count the bytes of a sync that is not cut: the fewest of three, as a slow one has more, which keep the link alive."""
        counts = []
        for _ in range(3):
            self.be_alone()
            self.proxy.passed = {True: 0, False: 0}
            self.replica.follow(self.proxy)
            wait_in_sync(self.primary, self.replica)
            counts.append((self.proxy.passed[True], self.proxy.passed[False]))
        self.down, self.up = (min(some) for some in zip(*counts, strict=True))

    def be_alone(self) -> None:
        """Make the replica a primary with old data of its own."""
        self.replica.follow(None)
        self.replica.must("FLUSHALL")
        for key, value in OLD.items():
            self.replica.must("SET", key, value)

    def has_old_data(self) -> bool:
        wanted = {(0, key.encode()): (b"string", -1, value.encode()) for key, value in OLD.items()}
        return state_of(self.replica) == wanted

    def cut_at(self, position: int, *, down: bool) -> None:
        """Begin a full sync that ends behind this byte; the replica must have what it had, or, after its last word, all."""
        self.be_alone()
        self.proxy.refuse = False
        self.proxy.cut_after(position, down=down)
        cuts = self.proxy.cuts
        self.replica.follow(self.proxy)
        what = f"byte {position} of what the {'primary' if down else 'replica'} says"
        wait_until(lambda: self.proxy.cuts > cuts, what)
        wait_until(lambda: self.replica.is_cut_off(), f"the end of the sync after {what}")
        is_whole = not down and state_of(self.replica) == state_of(self.primary)
        assert is_whole or self.has_old_data(), f"the old data is gone after {what}: {state_of(self.replica)}"

    def finish(self) -> None:
        """The link is whole again, and the replica is given nothing but time."""
        self.proxy.refuse = False
        wait_in_sync(self.primary, self.replica)
        assert_same_state(self.primary, self.replica)


@contextmanager
def linked(pair: tuple[str, str], new: NewNode, *, channel: str = "no", **settings: str) -> Iterator[Link]:
    quiet = {"repl_rdb_channel": channel, "repl_ping_replica_period": "3600"}
    primary, replica = new(pair[0], **quiet), new(pair[1], **quiet, **settings)
    for line in ("SET text v", "XADD s 1-1 f v", "XADD s 1-2 f v", "XGROUP CREATE s g 0", "SELECT 3", "SET other v"):
        primary.line(line)
    with Proxy(primary.port) as proxy:
        yield Link(primary, replica, proxy)


@pytest.fixture(scope="module", params=PAIRS, ids=" > ".join)
def link(request: pytest.FixtureRequest, new_shared_node: NewNode) -> Iterator[Link]:
    with linked(request.param, new_shared_node) as link:
        link.measure()
        yield link


@pytest.fixture(scope="module", params=PAIRS, ids=" > ".join)
def double_link(request: pytest.FixtureRequest, new_shared_node: NewNode) -> Iterator[Link]:
    """The same with a connection of its own for the snapshot."""
    with linked(request.param, new_shared_node, channel="yes") as link:
        link.measure()
        yield link


def sample(total: int, count: int, seed: int) -> list[int]:
    """Some positions of `total`, the first and the last among them."""
    return sorted({1, total, *random.Random(seed).sample(range(1, total + 1), min(count, total))})


def cut_everywhere(link: Link, positions: Iterable[int], *, down: bool) -> None:
    for position in positions:
        link.cut_at(position, down=down)
    link.finish()


def test_a_sync_cut_in_what_the_primary_says(link: Link) -> None:
    """The whole sync is some hundred bytes: replies, the header, the snapshot, its mark."""
    cut_everywhere(link, sample(link.down - 1, 30, seed=1), down=True)


def test_a_sync_cut_in_what_the_replica_says(link: Link) -> None:
    cut_everywhere(link, sample(link.up, 15, seed=2), down=False)


def test_a_sync_over_two_connections_cut_in_what_is_said(double_link: Link) -> None:
    """Which byte of which connection is the last one differs from time to time."""
    cut_everywhere(double_link, sample(double_link.down - 1, 12, seed=6), down=True)
    cut_everywhere(double_link, sample(double_link.up, 6, seed=7), down=False)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("down", [True, False], ids=["down", "up"])
def test_a_sync_cut_at_every_byte(link: Link, down: bool) -> None:
    cut_everywhere(link, range(1, link.down if down else link.up + 1), down=down)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("down", [True, False], ids=["down", "up"])
def test_a_sync_over_two_connections_cut_at_every_byte(double_link: Link, down: bool) -> None:
    cut_everywhere(double_link, range(1, double_link.down if down else double_link.up + 1), down=down)


@pytest.mark.parametrize(("kind", "load"), [("streamd", "disabled"), ("redis", "swapdb")])
def test_a_large_snapshot_cut_anywhere(new_node: NewNode, kind: str, load: str) -> None:
    """Data of many pieces; the old data can be read all the time."""
    chance = random.Random(3)
    with linked((kind, "streamd"), new_node, repl_diskless_load=load) as link:
        with link.primary.connect() as wire:
            for number in range(300):
                wire.call("SET", f"large:{number}", chance.randbytes(3000))
        link.measure()
        for position in sample(link.down - 1, 5, seed=4):
            link.cut_at(position, down=True)
        link.finish()


# --- Cuts of the stream ---------------------------------------------------------------------------------------------


class Switch:
    """Two proxies to one primary: a replica that is moved to the other one reconnects at once, and goes on."""

    def __init__(self, primary: Node) -> None:
        self.proxies = [Proxy(primary.port), Proxy(primary.port)]

    def __enter__(self) -> Switch:
        return self

    def __exit__(self, *exc: object) -> None:
        for proxy in self.proxies:
            proxy.close()

    @property
    def current(self) -> Proxy:
        return self.proxies[0]

    def turn(self, replica: Node) -> None:
        self.proxies.reverse()
        self.current.refuse = False
        replica.follow(self.current)


# It begins in the database in which the one before ended: a replica must remember it, whatever has happened in between.
STORY = """
    SET first {n}
    SELECT 0
    MULTI
    SET pair:1 {n}
    XADD s * n {n}
    SET pair:2 {n}
    EXEC
    XGROUP CREATE s g{n} 0
    XREADGROUP GROUP g{n} alice COUNT 2 STREAMS s >
    INCR count
    SET soon v PX 1
    SELECT 5
    XADD t * f v
    PUBLISH c m
"""


def play(primary: Node, number: int) -> None:
    for line in STORY.format(n=number).strip().splitlines():
        primary.line(line)


def cut_stream(primary: Node, replica: Node, positions: Iterable[int] | None, count: int) -> None:
    """Cut the stream of a story at some bytes, or at `count` of them; every time it is gone on with, not begun anew."""
    with Switch(primary) as switch:
        switch.turn(replica)
        wait_in_sync(primary, replica)
        before = primary.offset
        play(primary, 0)
        wait_in_sync(primary, replica)
        length = primary.offset - before
        fulls = primary.info("stats")["sync_full"]
        for number, position in enumerate(positions or sample(length - 60, count, seed=5), 1):
            if position >= length:
                break
            cuts = switch.current.cuts
            switch.current.cut_after(position)
            play(primary, number)
            wait_until(lambda cuts=cuts: switch.current.cuts > cuts, f"byte {position} of {length}")
            wait_until(lambda: not replica.has_link(), "the link down")
            pair = [replica.must("GET", key).value for key in ("pair:1", "pair:2")]
            assert pair[0] == pair[1], f"a part of a transaction after byte {position}"
            switch.turn(replica)
            wait_in_sync(primary, replica)
            assert primary.info("stats")["sync_full"] == fulls, f"a full sync after byte {position}"
        assert_same_state(primary, replica)
        replica.follow(None)


@pytest.mark.parametrize("pair", PAIRS, ids=" > ".join)
def test_a_stream_that_is_cut_is_continued(new_node: NewNode, pair: tuple[str, str]) -> None:
    cut_stream(new_node(pair[0]), new_node(pair[1]), None, 15)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("pair", PAIRS, ids=" > ".join)
def test_a_stream_cut_at_every_byte_is_continued(new_node: NewNode, pair: tuple[str, str]) -> None:
    cut_stream(new_node(pair[0]), new_node(pair[1]), range(1, 10_000), 0)


@pytest.mark.parametrize("pair", PAIRS, ids=" > ".join)
def test_a_chain_that_is_cut_in_the_middle_is_continued(new_node: NewNode, pair: tuple[str, str]) -> None:
    """The replica of a replica keeps its link, and hears what its primary hears, when it hears it."""
    primary, middle, last = new_node(pair[0]), new_node(pair[1]), new_node("streamd")
    with Proxy(primary.port) as proxy:
        middle.follow(proxy)
        wait_in_sync(primary, middle)
        last.follow(middle)
        wait_in_sync(middle, last)
        fulls = int(middle.info("stats")["sync_full"])
        for number, position in enumerate((20, 77), 1):
            proxy.cut_after(position)
            play(primary, number)
            wait_until(lambda: not middle.has_link(), "the link down")
            proxy.refuse = False
            wait_in_sync(primary, middle)
            wait_in_sync(middle, last)
        assert_same_state(primary, middle, last)
        assert int(middle.info("stats")["sync_full"]) == fulls


# --- Silence --------------------------------------------------------------------------------------------------------


def be_impatient(*nodes: Node) -> None:
    """Give up a silent link soon; called when there is one, as a full sync may take longer than that."""
    for node in nodes:
        node.must("CONFIG", "SET", "repl-timeout", "2", "repl-ping-replica-period", "1")


@pytest.mark.parametrize(("kind", "way"), [("streamd", "swallow"), ("redis", "hold")])
def test_a_link_that_falls_silent_is_given_up_and_made_again(new_node: NewNode, kind: str, way: str) -> None:
    primary, replica = new_node(kind), new_node("streamd")
    with Proxy(primary.port) as proxy:
        replica.follow(proxy)
        wait_in_sync(primary, replica)
        be_impatient(primary, replica)
        getattr(proxy, way)()
        play(primary, 1)
        wait_until(lambda: not replica.has_link(), "the link down")
        wait_until(lambda: primary.info()["connected_slaves"] == "0", "no replicas")
        play(primary, 2)
        proxy.heal()
        assert_same_state(primary, replica)
    assert int(primary.info("stats")["sync_full"]) == 1


def test_a_primary_that_stops_for_a_while_keeps_its_replica(new_node: NewNode) -> None:
    primary, replica = new_node("redis"), new_node("streamd")
    replica.follow(primary)
    wait_in_sync(primary, replica)
    be_impatient(primary, replica)
    play(primary, 1)
    wait_in_sync(primary, replica)
    primary.freeze()
    wait_until(lambda: not replica.has_link(), "the link down")
    assert replica.must("GET", "count").value == b"1"
    primary.thaw()
    play(primary, 2)
    assert_same_state(primary, replica)
    assert int(primary.info("stats")["sync_full"]) == 1


@pytest.mark.parametrize("pair", PAIRS, ids=" > ".join)
def test_who_ends_comes_back_and_goes_on(new_node: NewNode, pair: tuple[str, str]) -> None:
    """Who was stopped, or was killed after a snapshot, goes on where its snapshot ends."""
    primary = new_node(pair[0], save="3600 1")
    replica = new_node(pair[1], save="3600 1", replicaof=f"127.0.0.1 {primary.port}")
    play(primary, 1)
    wait_in_sync(primary, replica)
    replica.stop()
    play(primary, 2)
    replica.start()
    assert_same_state(primary, replica)
    replica.must("SAVE")
    replica.kill()
    play(primary, 3)
    replica.start()
    assert_same_state(primary, replica)
    assert int(primary.info("stats")["sync_full"]) == 1
    # A primary that was stopped knows its old history; the stream behind its snapshot is gone.
    wait_in_sync(primary, replica)
    primary.stop()
    primary.start()
    play(primary, 4)
    assert_same_state(primary, replica)
    assert int(primary.info("stats")["sync_full"]) == 0
