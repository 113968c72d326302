"""Nodes of a cluster, streamd and Redis: fail-over after kill -9, slots that move under PINGs, and XADD with and without the cluster.

    python -m benchmarks.shards [--rounds 10] [--slots 1000] [--streams 10000] [--entries 1000000] [--only failover|moving|append]

failover  three primaries, the first with a replica; from the kill of the primary until a SET of one of its keys is served again, with
          cluster-node-timeout 2000. The killed node comes back as a replica before the next round.
moving    slots with `entries` entries in `streams` streams move from one of two nodes to the other: at once (CLUSTER MIGRATION), and one
          after the other (SETSLOT, MIGRATE of ten keys at a time, as redis-cli does); the time, and the longest PING of either node.
append    CPU of the server per XADD, P=1 and P=16, as a node of a cluster that has all slots, and without a cluster.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from benchmarks.append import FIELDS
from benchmarks.cases import measure, send_all
from benchmarks.load import Requests, make_request
from benchmarks.servers import (
    Server,
    describe_machine,
    end,
    end_in_order,
    find_binary,
    find_servers,
    spawn,
    start_server,
)
from streamd.client.client_errors import ServerError, UnreachableError
from streamd.client.place import Place
from streamd.cluster.bus.slots import SLOT_COUNT
from streamd.clustering.deadline_waits import Patience
from streamd.clustering.forming import form
from streamd.clustering.node_connection import Node
from streamd.clustering.shares import Move
from streamd.clustering.slot_moves import carry_out
from streamd.keyspace.hash_slot import slot_of

NODE_TIMEOUT_MS = 2000
PING_EVERY_S = 0.001
KEYS_PER_MIGRATE = 10


class Member:
    """A node, and its process, which may be killed and started again on its port, in its folder."""

    def __init__(self, name: str, folder: Path) -> None:
        is_own = name == "streamd"
        self._command = [sys.executable, "-m", "streamd", "server"] if is_own else [str(find_binary(name))]
        folder.mkdir()
        self._options = ["--cluster-enabled", "yes", "--cluster-node-timeout", str(NODE_TIMEOUT_MS), "--save", "", "--dir", str(folder),
                         "--repl-diskless-sync-delay", "0", "--cluster-config-file", "nodes.conf"]  # fmt: skip
        self.server, self._process = spawn(name, self._command, self._options)
        self.node = Node(Place("127.0.0.1", self.server.port))

    def kill(self) -> None:
        self.node.close()
        self._process.kill()
        self._process.wait()

    def start(self) -> None:
        self._process = subprocess.Popen(
            [*self._command, "--port", str(self.server.port), *self._options], stdout=subprocess.DEVNULL
        )

    def end(self) -> None:
        self.node.close()
        end(self._process)


@contextmanager
def members(name: str, count: int, replicas_of_first: int = 0) -> Iterator[list[Member]]:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        made: list[Member] = []
        for number in range(count + replicas_of_first):
            made.append(Member(name, Path(folder) / str(number)))
            stack.callback(made[-1].end)
        form([member.node for member in made[:count]], 0, Patience())
        for member in made[count:]:
            _join(member.node, made[0].node)
        yield made


def _join(node: Node, primary: Node) -> None:
    node.ask("CLUSTER", "MEET", "127.0.0.1", primary.place.port)
    _wait(lambda: primary.id in node.nodes(), "the replica knows its primary")
    node.ask("CLUSTER", "REPLICATE", primary.id)
    _wait(lambda: _is_linked(node), "the replica has its link")


def _is_linked(node: Node) -> bool:
    with suppress(ServerError, UnreachableError):
        return node.info("replication").get("master_link_status") == "up"
    return False


def _wait(condition: Callable[[], bool], what: str) -> None:
    Patience(timeout_s=120).wait(condition, lambda: f"{what}: not within two minutes")


# --- Fail-over ----------------------------------------------------------------------------------------------------------


def fail_over(name: str, rounds: int) -> list[float]:
    """Seconds until a key of the killed primary can be written again."""
    seconds: list[float] = []
    key = next(f"k{number}" for number in range(100_000) if slot_of(f"k{number}".encode()) < SLOT_COUNT // 4)
    with members(name, 3, replicas_of_first=1) as made:
        primary, replica = made[0], made[3]
        for _ in range(rounds):
            primary.node.ask("SET", key, "v")
            time.sleep(1)  # PONGs of both, as in a cluster that has been running
            begin = time.monotonic()
            primary.kill()
            _wait(lambda replica=replica: _serves(replica.node, key), "the replica serves")
            seconds.append(time.monotonic() - begin)
            primary.start()
            _wait(primary.node.answers, "the killed node answers")
            _wait(lambda node=primary.node: _is_linked(node), "the killed node is a replica")
            primary, replica = replica, primary
    return seconds


def _serves(node: Node, key: str) -> bool:
    with suppress(ServerError, UnreachableError):
        return node.ask("SET", key, "v") is not None
    return False


# --- Moving slots -------------------------------------------------------------------------------------------------------


class Pinger:
    """Sends PING after PING to a server, and keeps the longest time of one, in s."""

    def __init__(self, server: Server) -> None:
        self.longest_s = 0.0
        self._server = server
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Pinger:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        request = make_request("PING")
        with self._server.connect() as sock:
            while not self._is_over.wait(PING_EVERY_S):
                begin = time.monotonic()
                sock.sendall(request)
                sock.recv(64)
                self.longest_s = max(self.longest_s, time.monotonic() - begin)


def move_slots(name: str, slots: int, streams: int, entries: int) -> list[tuple[str, float, float]]:
    """For each way of moving: its name, the seconds, and the longest PING in s."""
    found = []
    with members(name, 2) as made:
        source, target = made
        keys = [f"{number}" for number in range(streams * SLOT_COUNT // slots) if slot_of(b"%d" % number) < slots][
            :streams
        ]
        each = -(-entries // len(keys))
        send_all(source.server, (make_request("XADD", key, *FIELDS) for key in keys for _ in range(each)))
        for way, move in (("CLUSTER MIGRATION", _migrate), ("SETSLOT, MIGRATE", _move_one_by_one)):
            with Pinger(source.server) as one, Pinger(target.server) as other:
                begin = time.monotonic()
                move(source.node, target.node, slots)
                taken = time.monotonic() - begin
            found.append((way, taken, max(one.longest_s, other.longest_s)))
            _wait(lambda source=source: not source.node.ask("CLUSTER", "COUNTKEYSINSLOT", 0), "the keys are deleted")
            source, target = target, source
    return found


def _migrate(source: Node, target: Node, slots: int) -> None:
    move = Move(source.id, target.id, tuple(range(slots)))
    carry_out([move], {source.id: source, target.id: target}, Patience(timeout_s=600), lambda _: None)


def _move_one_by_one(source: Node, target: Node, slots: int) -> None:
    for slot in range(slots):
        target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id)
        while keys := source.ask("CLUSTER", "GETKEYSINSLOT", slot, KEYS_PER_MIGRATE):
            source.ask(
                "MIGRATE", "127.0.0.1", target.place.port, "", 0, 60_000, "KEYS", *(key.decode() for key in keys)
            )
        for node in (target, source):
            node.ask("CLUSTER", "SETSLOT", slot, "NODE", target.id)


# --- XADD ---------------------------------------------------------------------------------------------------------------


def append(name: str, rounds: int) -> dict[int, tuple[float, float]]:
    """Server CPU in us per XADD, without and with a cluster, by pipeline depth: the medians of alternating rounds."""
    request = Requests([make_request("XADD", "mystream", *FIELDS)])
    found = {}
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        settings = ("--cluster-enabled", "yes", "--cluster-config-file", f"{folder}/nodes.conf")
        plain, node = stack.enter_context(start_server(name)), stack.enter_context(start_server(name, *settings))
        node.send("CLUSTER", "ADDSLOTSRANGE", 0, SLOT_COUNT - 1)
        _wait(lambda: b"cluster_state:ok" in node.send("CLUSTER", "INFO"), "the node serves")
        for depth, total in ((1, 40_000), (16, 300_000)):
            us: tuple[list[float], list[float]] = ([], [])
            for _ in range(rounds):
                for server, samples in zip((plain, node), us, strict=True):
                    server.send("DEL", "mystream")
                    sample = measure(server, request, total, depth=depth)
                    samples.append(sample.cpu_s / sample.operations * 1e6)
            found[depth] = (statistics.median(us[0]), statistics.median(us[1]))
    return found


# --- Tables -------------------------------------------------------------------------------------------------------------


@click.command()
@click.option("--rounds", default=10, show_default=True, help="Fail-overs of each server, and rounds of XADD.")
@click.option("--slots", default=1000, show_default=True, help="Slots that move.")
@click.option("--streams", default=10_000, show_default=True, help="Streams in them.")
@click.option("--entries", default=1_000_000, show_default=True, help="Entries in all streams.")
@click.option("--only", type=click.Choice(["failover", "moving", "append"]), help="One of the three.")
def main(rounds: int, slots: int, streams: int, entries: int, only: str | None) -> None:
    """Fail-over, moving slots and XADD on real nodes, beside Redis."""
    end_in_order()
    names, missing = find_servers(("streamd", "redis"))
    console = Console()
    if missing:
        console.print(f"not found: {', '.join(missing)}")
    if only in (None, "failover"):
        rows = [(name, fail_over(name, rounds)) for name in names]
        show(console, "Fail-over, s", ("", "median", "longest"),
             [(name, f"{statistics.median(s):.2f}", f"{max(s):.2f}") for name, s in rows])  # fmt: skip
    if only in (None, "moving"):
        show(console, f"{slots:,} slots, {entries:,} entries in {streams:,} streams", ("", "way", "s", "longest PING, ms"),
             [(name, way, f"{s:.2f}", f"{ping * 1000:.1f}") for name in names for way, s, ping in move_slots(name, slots, streams, entries)])  # fmt: skip
    if only in (None, "append"):
        show(console, "XADD, us of CPU", ("", "P", "without", "in a cluster", "ratio"),
             [(name, str(depth), f"{plain:.2f}", f"{node:.2f}", f"{node / plain:.3f}")
              for name in names for depth, (plain, node) in append(name, rounds).items()])  # fmt: skip
    with ExitStack() as stack:
        servers = [stack.enter_context(start_server(name)) for name in names]
        console.print(describe_machine(*servers, rounds=rounds))


def show(console: Console, title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = Table(*head, title=title)
    for row in rows:
        table.add_row(*row)
    console.print(table)


if __name__ == "__main__":
    main()
