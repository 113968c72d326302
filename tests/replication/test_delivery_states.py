"""All rules of delivery at once: whatever is killed when, an entry is in exactly one state.

An entry is scheduled in `later`, moves to `jobs`, is delivered by the group `workers`, and ends acknowledged, as a dead letter or
expired. Each has a number, by which it is found again.
"""

from __future__ import annotations

import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from support.replicas.durable import LOSS_FREE
from support.replicas.nodes import Node, assert_same_state, wait_in_sync
from support.servers import Server, eventually
from support.wire import ConnectionClosed, Reply, Wire

pytestmark = pytest.mark.long

StartServer = Callable[..., Server]
NewNode = Callable[..., Node]

GROUP_RULE = "MAXDELIVERIES 2 DEADLETTER dead BACKOFF 2 ACKWAIT 30 CONSUMERPENDING 50 ISOLATE 2"
FILE = "appendonlydir/appendonly.aof.1.incr.aof"


def set_rules(wire: Wire) -> None:
    rules = [
        "STREAMD.STREAM SET later FEEDS jobs DUE due UNIQUE user EXPIRES until",
        "STREAMD.STREAM SET jobs EXPIRES until",
        "STREAMD.GROUP SET jobs workers " + GROUP_RULE,
        "XGROUP CREATE jobs workers 0 MKSTREAM",
    ]
    for line in rules:
        assert wire.call(*line.split()) == Reply("+", b"OK")


class Load:
    """Producers and consumers of a server, until they are stopped or it is gone."""

    def __init__(self, server: Server, seed: int, first: int) -> None:
        self.server, self.seed, self.first = server, seed, first
        self.added: list[int] = []
        self.may_vanish: set[int] = set()
        self.acknowledged: set[int] = set()
        self.stopped = threading.Event()
        self.threads = [
            threading.Thread(target=self.run, args=(part,)) for part in (self.produce, self.consume, self.consume)
        ]
        for thread in self.threads:
            thread.start()

    def run(self, part: Callable[[Wire], None]) -> None:
        with suppress(ConnectionClosed, OSError), self.server.connect() as wire:
            part(wire)

    def produce(self, wire: Wire) -> None:
        chance, number = random.Random(self.seed), self.first
        while not self.stopped.is_set():
            number += 1
            now = int(time.time() * 1000)
            fields: list[object] = ["due", now + chance.randrange(-20, 60)]
            if chance.random() < 0.2:
                fields += ["user", chance.randrange(20)]
                self.may_vanish.add(number)
            if chance.random() < 0.2:
                fields += ["until", now + chance.randrange(200)]
                self.may_vanish.add(number)
            if wire.call("XADD", "later", "*", *fields, "job", number).kind == "$":
                self.added.append(number)

    def consume(self, wire: Wire) -> None:
        chance = random.Random(self.seed)
        name = f"c{wire.client_id()}"
        while not self.stopped.is_set():
            reply = wire.call(
                "XREADGROUP", "GROUP", "workers", name, "COUNT", 5, "BLOCK", 20, "CLAIM", 0, "STREAMS", "jobs", ">"
            ).plain()  # fmt: skip
            for entry in reply[0][1] if isinstance(reply, list) else ():
                action = chance.random()
                if action < 0.6:
                    done = wire.call("XACK", "jobs", "workers", entry[0])
                    if done == Reply(":", 1):
                        self.acknowledged.add(int(entry[1][-1]))
                elif action < 0.9:
                    mode = chance.choice(["FAIL", "FAIL", "FATAL", "SILENT"])
                    wire.call("XNACK", "jobs", "workers", mode, "IDS", 1, entry[0])

    def stop(self) -> None:
        self.stopped.set()
        for thread in self.threads:
            thread.join()


def find_states(wire: Wire) -> dict[int, list[str]]:
    """The states of each number, all at one instant."""
    wire.send("MULTI")
    requests = [
        "XRANGE later - +", "XRANGE jobs - +", "XRANGE dead - +", "XPENDING jobs workers - + 1000000", "XINFO GROUPS jobs",
    ]  # fmt: skip
    for request in requests:
        wire.send(*request.split())
    wire.send("EXEC")
    later, jobs, dead, pending, groups = [wire.read() for _ in range(len(requests) + 2)][-1].plain()
    if not groups:
        return {}
    last = id_of(dict(zip(groups[0][::2], groups[0][1::2], strict=True))[b"last-delivered-id"])
    in_hands = {row[0] for row in pending}
    letters = {}
    found: dict[int, list[str]] = {}
    for _, fields in dead:
        about = dict(zip(fields[::2], fields[1::2], strict=True))
        assert about[b"dlq.id"] not in letters, "a second dead letter of an entry"
        letters[about[b"dlq.id"]] = about
        if b"job" in about and about[b"dlq.id"] not in {entry[0] for entry in jobs}:  # it has expired since
            found.setdefault(int(about[b"job"]), []).append("dead")
    for _, fields in later:
        found.setdefault(int(fields[-1]), []).append("waiting")
    for name, fields in jobs:
        states = found.setdefault(int(fields[-1]), [])
        if name in in_hands:
            states.append("pending")
        if name in letters:
            states.append("dead")
        if id_of(name) > last:
            states.append("undelivered")
        elif name not in in_hands and name not in letters:
            states.append("acknowledged")
    return found


def id_of(text: bytes) -> tuple[int, ...]:
    return tuple(map(int, text.split(b"-")))


def check(wire: Wire, loads: list[Load]) -> dict[int, list[str]]:
    """Every entry that was added is in exactly one state, and what was acknowledged stays so."""
    found = find_states(wire)
    several = {number: states for number, states in found.items() if len(states) != 1}
    assert not several
    for load in loads:
        gone = set(load.added) - set(found) - load.may_vanish
        assert not gone
        again = {
            number: found[number] for number in load.acknowledged & set(found) if found[number] != ["acknowledged"]
        }
        assert not again
    return found


def work_until(server: Server, load: Load, wire: Wire, count: int) -> None:
    """Wait until so many entries have been moved to `jobs`, and some to `dead`."""
    some = wire.call("XLEN", "dead").value + 3
    eventually(lambda: wire.call("XLEN", "jobs").value >= count and wire.call("XLEN", "dead").value >= some)


def settle(wire: Wire) -> None:
    """Wait until nothing waits any more, and what is left is given up by itself."""
    eventually(lambda: wire.call("XLEN", "later").value == 0)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_server_that_is_killed_under_load(new_streamd: StartServer, seed: int) -> None:
    server = new_streamd(appendonly="yes", appendfsync="always")
    with server.connect() as wire:
        set_rules(wire)
    loads: list[Load] = []
    for kill in range(3):
        load = Load(server, 10 * seed + kill, 100_000 * (kill + 1))
        loads.append(load)
        with server.connect() as wire:
            work_until(
                server, load, wire, wire.call("XLEN", "jobs").value + random.Random(seed * kill).randrange(50, 300)
            )
        server.kill()
        load.stop()
        server.restart()
        with server.connect() as wire:
            check(wire, loads)
    with server.connect() as wire:
        settle(wire)
        check(wire, loads)


def unit_ends(data: bytes) -> Iterator[int]:
    """Where the units of an append-only file end: commands, or transactions as a whole."""
    at, is_open = 0, False
    while at < len(data):
        words, end = read_command(data, at)
        is_open = words[0] == b"MULTI" or (is_open and words[0] != b"EXEC")
        at = end
        if not is_open:
            yield at


def read_command(data: bytes, at: int) -> tuple[list[bytes], int]:
    line = data.index(b"\r\n", at)
    if data[at : at + 1] == b"#":  # an annotation
        return [b"#"], line + 2
    count, at = int(data[at + 1 : line]), line + 2
    words = []
    for _ in range(count):
        line = data.index(b"\r\n", at)
        size, at = int(data[at + 1 : line]), line + 2
        words.append(data[at : at + size])
        at += size + 2
    return words, at


def test_a_file_that_ends_anywhere(new_streamd: StartServer, tmp_path: Path) -> None:
    """After each unit of the file, and in the middle of it: what a power cut, or a replica that was cut off, is left with."""
    source = new_streamd(appendonly="yes", appendfsync="always")
    with source.connect() as wire:
        set_rules(wire)
        load = Load(source, 5, 0)
        work_until(source, load, wire, 300)
    load.stop()
    source.kill()
    data = (source.folder / FILE).read_bytes()
    ends = list(unit_ends(data))
    assert len(ends) > 500
    chance = random.Random(3)
    cuts = sorted(chance.sample(ends[6:], 40))
    cuts += [chance.randrange(ends[6], len(data)) for _ in range(40)]
    target = new_streamd(appendonly="yes", aof_load_truncated="yes")
    for cut in cuts:
        target.kill()
        cut_file(source.folder, target.folder, cut)
        target.restart()
        with target.connect() as wire:
            check(wire, [])


def cut_file(source: Path, target: Path, size: int) -> None:
    shutil.rmtree(target / "appendonlydir")
    shutil.copytree(source / "appendonlydir", target / "appendonlydir")
    with (target / FILE).open("r+b") as file:
        file.truncate(size)


@pytest.mark.parametrize("seed", [1, 2])
def test_fail_overs_under_load(new_node: NewNode, seed: int) -> None:
    """A primary dies, and its replica, which had on disk what was acknowledged, goes on; twice."""
    nodes = [new_node("streamd", **LOSS_FREE) for _ in range(2)]
    nodes[1].follow(nodes[0])
    wait_in_sync(*nodes)
    eventually(lambda: nodes[0].info()["durable_fenced"] == "0")
    with nodes[0].connect() as wire:
        set_rules(wire)
    loads: list[Load] = []
    for number in range(2):
        primary, replica = nodes
        load = Load(primary, 10 * seed + number, 100_000 * (number + 1))
        loads.append(load)
        with primary.connect() as wire:
            work_until(primary, load, wire, wire.call("XLEN", "jobs").value + random.Random(seed).randrange(50, 300))
        primary.kill()
        load.stop()
        replica.follow(None)
        primary.restart()
        primary.follow(replica)
        wait_in_sync(replica, primary)
        eventually(lambda: replica.info()["durable_fenced"] == "0")  # noqa: B023
        with replica.connect() as wire:
            check(wire, loads)
        nodes.reverse()
    with nodes[0].connect() as wire:
        settle(wire)
        check(wire, loads)
    wait_in_sync(*nodes)
    assert_same_state(*nodes, without=frozenset({b"radix-tree-keys", b"radix-tree-nodes"}))
