"""A primary, its replica and a replica of that one, of every mix of streamd and Redis: all hold the same in the end.

The state compared is all that commands show of every key (`support.replicas.nodes.state_of`). Marked `real`.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from hypothesis import Phase, given, settings
from support.commands.mixed_scripts import known_to_7_0, mixed_scripts, without_divergences_of_redis
from support.commands.scripts import SCRIPT_SETTINGS
from support.compare.differential import Request
from support.replicas.nodes import Node, assert_same_state, wait_in_sync, wait_until
from support.servers import target_is_redis
from support.wire import Wire, join_line

pytestmark = [pytest.mark.long, pytest.mark.real]

NewNode = Callable[..., Node]

COMMON = settings(SCRIPT_SETTINGS, phases=(Phase.explicit, Phase.reuse, Phase.generate))  # `Chain.shortened` is faster

CHAINS = [
    "streamd > streamd > streamd",
    "streamd > streamd > redis",
    "streamd > redis > streamd",
    "streamd > redis > redis",
    "redis > streamd > streamd",
    "redis > streamd > redis",
    "redis > redis > streamd",
    "redis-7.0 > streamd > redis",
    "streamd > redis-7.0 > streamd",
    "streamd > streamd > redis-7.0",
]


@dataclass
class Chain:
    """A primary and the replicas that follow it, each the one before."""

    kinds: list[str]
    nodes: list[Node]

    @property
    def primary(self) -> Node:
        return self.nodes[0]

    def play(self, requests: list[Request]) -> None:
        """Run a script on an emptied primary; fail, with a shorter script, when the state is not the same on all nodes."""
        if self.has_redis_first:
            requests = without_divergences_of_redis(requests)
        if "redis-7.0" in self.kinds:
            requests = known_to_7_0(requests)
        difference = self.difference_after(requests)
        if difference:
            shorter, difference = self.shortened(requests, difference)
            lines = "\n".join("    " + join_line(request) for request in shorter)
            raise AssertionError(f"after\n{lines}\n{difference}")

    @property
    def has_redis_first(self) -> bool:
        return self.kinds[0] != "streamd" or target_is_redis()

    def difference_after(self, requests: list[Request]) -> str:
        with self.primary.connect() as wire:
            assert wire.call("FLUSHALL").value == b"OK"
            wire.pipeline(requests)
        # Redis goes on counting the producer of an XADD that a stream refuses because it is exhausted.
        hidden = frozenset({b"pids-tracked"}) if self.has_redis_first else frozenset()
        try:
            assert_same_state(*self.nodes, without=hidden)
        except AssertionError as error:
            return str(error)
        return ""

    def shortened(self, requests: list[Request], difference: str) -> tuple[list[Request], str]:
        """The script without what the difference does not need, as far as half a minute suffices, and the difference."""
        deadline = time.monotonic() + 30
        size = len(requests) // 2
        while size:
            for at in range(len(requests) - size, -1, -size):
                rest = requests[:at] + requests[at + size :]
                if time.monotonic() < deadline and (found := self.difference_after(rest)):
                    requests, difference = rest, found
            size //= 2
        return requests, difference


def start_chain(kinds: list[str], new: NewNode) -> Iterator[Node]:
    """The nodes, each made a replica of the one before."""
    before = None
    for kind in kinds:
        directives = {"rdb_form": "7.0"} if kind == "streamd" and "redis-7.0" in kinds else {}
        node = new(kind, **directives)
        if before is not None:
            node.follow(before)
            wait_in_sync(before, node)
        yield node
        before = node


@pytest.fixture(scope="module", params=CHAINS)
def chain(request: pytest.FixtureRequest, new_shared_node: NewNode) -> Iterator[Chain]:
    kinds = request.param.split(" > ")
    nodes = list(start_chain(kinds, new_shared_node))
    yield Chain(kinds, nodes)
    for node in nodes:
        node.stop()


@settings(COMMON, max_examples=12)
@given(requests=mixed_scripts())
def test_random_writes_make_the_same_state(chain: Chain, requests: list[Request]) -> None:
    chain.play(requests)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@settings(COMMON, max_examples=400)
@given(requests=mixed_scripts((10, 30, 60)))
def test_many_random_writes_make_the_same_state(chain: Chain, requests: list[Request]) -> None:
    chain.play(requests)


def fill(wire: Wire, seed: int, *, is_for_7_0: bool = False) -> None:
    """A bit of everything in three databases, streams of several nodes among it."""
    chance = random.Random(seed)
    for database in (0, 3, 15):
        requests: list[tuple[bytes | str | int, ...]] = [("SELECT", database)]
        for number, text in enumerate([b"", b"v", b"12", b"x" * 70_000, bytes(range(256))]):
            requests.append(("SET", f"text:{number}", text))
        requests.append(("SET", "expiring", "v", "PX", 10_000_000))
        requests.append(("SET", "gone soon", "v", "PX", 30))
        requests.append(("XGROUP", "CREATE", "no entries", "g", "$", "MKSTREAM"))
        for number, count in enumerate((1, 40, 350)):
            key = f"stream:{number}"
            ids = [f"{1000 + at}-{chance.randrange(4)}" for at in range(count)]
            requests += [
                ("XADD", key, each, "f", chance.randrange(10**6), "g", "v" * chance.randrange(90)) for each in ids
            ]
            requests += [("XDEL", key, each) for each in chance.sample(ids, count // 8)]
            for group in ("g", "h"):
                requests.append(("XGROUP", "CREATE", key, group, chance.choice(["0", "1003-0"])))
                for consumer in ("alice", "bob"):
                    read = (
                        "XREADGROUP",
                        "GROUP",
                        group,
                        consumer,
                        "COUNT",
                        chance.choice([2, 60]),
                        "STREAMS",
                        key,
                        ">",
                    )
                    requests.append(read)
                requests.append(("XACK", key, group, *chance.sample(ids, count // 5 + 1)))
            requests += [("XDEL", key, each) for each in chance.sample(ids, count // 20)]
            requests.append(("XTRIM", key, "MAXLEN", count - count // 10))
            requests.append(("PEXPIRE", key, 10_000_000))
        if not is_for_7_0:
            requests += [("XADD", "once", "IDMP", f"p{at % 2}", f"i{at % 4}", "*", "f", at) for at in range(6)]
        wire.pipeline(requests)


def test_what_was_there_before_the_replicas(new_node: NewNode) -> None:
    """Both ways between streamd and Redis, and what the replica had before is gone."""
    for kinds in (["streamd", "redis", "streamd"], ["redis", "streamd", "streamd"]):
        nodes = [new_node(kind) for kind in kinds]
        for node in nodes[1:]:
            node.must("SET", "old", "v")
            node.line("XADD old:stream 1-1 f v")
        with nodes[0].connect() as wire:
            fill(wire, 1)
        nodes[2].follow(nodes[1])
        wait_in_sync(nodes[1], nodes[2])
        nodes[1].follow(nodes[0])
        wait_in_sync(*nodes[:2])
        state = assert_same_state(*nodes)
        assert (0, b"old") not in state
        assert len({database for database, _ in state}) == 3
        for node in nodes:
            node.stop()


@pytest.mark.parametrize("compression", ["yes", "no"])
def test_what_was_there_before_a_redis_7_0(new_node: NewNode, compression: str) -> None:
    old = new_node("redis-7.0", rdbcompression=compression)
    new = new_node("streamd", rdb_form="7.0", rdbcompression=compression)
    last = new_node("redis-7.0")
    with old.connect() as wire:
        fill(wire, 2, is_for_7_0=True)
    new.follow(old)
    wait_in_sync(old, new)
    last.follow(new)
    wait_in_sync(new, last)
    assert len(assert_same_state(old, new, last)) > 20


# --- Every way of a full sync ---------------------------------------------------------------------------------------

PAIRS = [("streamd", "streamd"), ("streamd", "redis"), ("redis", "streamd")]
# Any two of the values meet in one of these: repl-diskless-sync and repl-rdb-channel of the primary, repl-rdb-channel
# and repl-diskless-load of the replica.
WAYS = [
    ("yes", "yes", "yes", "disabled"),
    ("yes", "no", "yes", "swapdb"),
    ("no", "yes", "yes", "swapdb"),
    ("no", "no", "no", "disabled"),
    ("yes", "yes", "no", "on-empty-db"),
    ("yes", "yes", "yes", "swapdb"),
    ("no", "no", "yes", "on-empty-db"),
    ("yes", "yes", "yes", "flushdb"),
    ("no", "no", "no", "flushdb"),
]


class Writer:
    """A thread that writes to a node without end, and does not care what is answered."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.is_stopped = threading.Event()
        self.rounds = 0
        self.thread = threading.Thread(target=self.run)

    def __enter__(self) -> Writer:
        self.thread.start()
        wait_until(lambda: self.rounds, "a first write")
        return self

    def __exit__(self, *exc: object) -> None:
        self.is_stopped.set()
        self.thread.join()

    def run(self) -> None:
        with Wire(self.node.port, timeout_s=60) as wire:
            wire.call("XGROUP", "CREATE", "written", "g", "0", "MKSTREAM")
            while not self.is_stopped.is_set():
                self.rounds += 1
                wire.pipeline(
                    [
                        ("XADD", "written", "MAXLEN", "~", "500", "*", "f", "v" * (self.rounds % 100)),
                        ("XREADGROUP", "GROUP", "g", f"c{self.rounds % 3}", "COUNT", "1", "STREAMS", "written", ">"),
                        ("INCR", "n"),
                        ("SET", f"soon:{self.rounds % 5}", "v", "PX", self.rounds % 30 + 1),
                        ("XACK", "written", "g", "1-1"),
                        ("SELECT", self.rounds % 2),
                        ("MULTI",),
                        ("SET", "pair:1", self.rounds),
                        ("SET", "pair:2", self.rounds),
                        ("EXEC",),
                    ]
                )


@pytest.mark.parametrize("pair", PAIRS, ids=" > ".join)
def test_every_way_of_a_full_sync_under_writes(new_node: NewNode, pair: tuple[str, str]) -> None:
    primary, replica = (new_node(kind) for kind in pair)
    with primary.connect() as wire:
        fill(wire, 3)
    for diskless, channel, own_channel, load in WAYS:
        primary.must("CONFIG", "SET", "repl-diskless-sync", diskless, "repl-rdb-channel", channel)
        replica.must("CONFIG", "SET", "repl-diskless-load", load, "repl-rdb-channel", own_channel)
        before = int(primary.info("stats")["sync_full"])
        with Writer(primary):
            replica.follow(primary)
            wait_until(lambda: replica.has_link(), "the link")
        try:
            assert_same_state(primary, replica)
        except AssertionError as error:
            raise AssertionError(f"{diskless=} {channel=} {own_channel=} {load=}: {error}") from error
        assert int(primary.info("stats")["sync_full"]) == before + 1
        # What it writes by itself makes it need a full sync the next time.
        replica.follow(None)
        replica.must("SET", "own", "v")
    assert replica.is_running


@pytest.mark.real
@pytest.mark.skipif(target_is_redis(), reason="the line is streamd's")
def test_the_log_says_what_an_older_replica_needs(new_node: NewNode) -> None:
    primary = new_node("streamd")
    old = new_node("redis-7.0")
    old.follow(primary)
    wait_until(lambda: "set rdb-form to its release" in primary.log(), "the line in the log")
    primary.must("CONFIG", "SET", "rdb-form", "7.0")
    wait_in_sync(primary, old)
