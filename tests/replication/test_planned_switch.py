"""FAILOVER under clients that ask for announcements: an unmodified redis-py loses no request, and sends none twice."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
import redis
import redis.asyncio
from support.replicas.nodes import Node, wait_in_sync, wait_until
from support.servers import free_port, python_environment, server_arguments, wait_for_start
from support.wire import Reply, Wire

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

ASK = ("CLIENT", "MAINT_NOTIFICATIONS", "ON", "moving-endpoint-type")


class OtherNode(Node):
    """On another address with the same port, as on another machine: of a MOVING redis-py takes the host alone."""

    host = "127.0.0.2"


class Pair:
    """A primary, and a replica that is online and in sync; `swap` exchanges the names."""

    def __init__(self, primary: Node, replica: Node) -> None:
        self.primary, self.replica = primary, replica
        assert replica.must("REPLICAOF", primary.host, str(primary.port)).value == b"OK"
        self.wait()

    def wait(self) -> None:
        wait_until(lambda: "state=online" in self.primary.info().get("slave0", ""), "the replica is online")
        wait_in_sync(self.primary, self.replica)

    def swap(self) -> None:
        """FAILOVER, until it has succeeded."""
        assert self.primary.must("FAILOVER").value == b"OK"
        wait_until(lambda: self.replica.info()["role"] == "master", "the replica is the primary")
        self.primary, self.replica = self.replica, self.primary
        self.wait()


def can_bind(host: str) -> bool:
    with socket.socket() as probe, suppress(OSError):
        probe.bind((host, 0))
        return True
    return False


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    if not can_bind(OtherNode.host):
        pytest.skip(f"{OtherNode.host} is no address of this machine")
    port = free_port()
    with ExitStack() as stack:
        nodes = []
        for kind in (Node, OtherNode):
            folder = tmp_path / kind.host
            folder.mkdir()
            settings = {"bind": kind.host, "replica-announce-ip": kind.host, "repl-diskless-sync-delay": "0"}
            node = kind(kind.host, server_arguments(port, settings), port, folder, python_environment())
            stack.callback(node.stop)
            wait_for_start(node)
            nodes.append(node)
        yield Pair(*nodes)


@pytest.fixture
def connect() -> Iterator[Callable[..., Wire]]:
    """Connections that are closed at the end: the protocol and the words of a first request."""
    with ExitStack() as stack:

        def make(node: Node, protocol: int, *words: str) -> Wire:
            wire = stack.enter_context(node.connect(protocol))
            if words:
                assert wire.call(*words).value == b"OK"
            return wire

        yield make


# --- redis-py as it is ------------------------------------------------------------------------------------------------


class Writers:
    """Threads and tasks that append 0, 1, 2 ... to a stream each, as fast as the replies arrive."""

    def __init__(self, node: Node, threads: int = 4, tasks: int = 4) -> None:
        self.counts = {f"t{number}": 0 for number in range(threads)} | {f"a{number}": 0 for number in range(tasks)}
        self.errors: list[BaseException] = []
        self._place = {"host": node.host, "port": node.port}
        self._stops = threading.Event()
        self._client = redis.Redis(**self._place)
        targets = [lambda name=name: self._write(name) for name in self.counts if name[0] == "t"]
        self._threads = [threading.Thread(target=target) for target in (*targets, self._run_tasks)]
        for thread in self._threads:
            thread.start()

    def _write(self, name: str) -> None:
        try:
            while not self._stops.is_set():
                self._client.xadd(name, {"n": self.counts[name]})
                self.counts[name] += 1
        except BaseException as error:
            self.errors.append(error)

    def _run_tasks(self) -> None:
        asyncio.run(self._write_all())

    async def _write_all(self) -> None:
        async with redis.asyncio.Redis(**self._place) as client:
            await asyncio.gather(*(self._write_later(client, name) for name in self.counts if name[0] == "a"))

    async def _write_later(self, client: redis.asyncio.Redis, name: str) -> None:
        try:
            while not self._stops.is_set():
                await client.xadd(name, {"n": self.counts[name]})
                self.counts[name] += 1
        except BaseException as error:
            self.errors.append(error)

    def wait_for_more(self) -> None:
        """Every one has got twenty more replies, or an error."""
        goal = {name: count + 20 for name, count in self.counts.items()}
        wait_until(
            lambda: self.errors or all(count >= goal[name] for name, count in self.counts.items()), "clients write"
        )

    def stop(self) -> None:
        self._stops.set()
        for thread in self._threads:
            thread.join()
        self._client.close()


def written(node: Node, name: str) -> list[int]:
    return [int(entry.value[1].value[1].value) for entry in node.must("XRANGE", name, "-", "+").value]


def test_redis_py_loses_nothing_and_repeats_nothing(pair: Pair) -> None:
    writers = Writers(pair.primary)
    try:
        writers.wait_for_more()
        for _ in range(2):  # there and back
            pair.swap()
            writers.wait_for_more()
    finally:
        writers.stop()
    assert not writers.errors
    for name, count in writers.counts.items():
        assert written(pair.primary, name) == list(range(count))


def test_redis_py_goes_on_reading_as_a_consumer(pair: Pair) -> None:
    """It waits while the primary changes, and gets the next entry from the new one."""
    pair.primary.must("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
    pair.wait()
    got: list[object] = []
    with redis.Redis(pair.primary.host, pair.primary.port, decode_responses=True) as client:
        thread = threading.Thread(target=lambda: got.append(client.xreadgroup("g", "c", {"s": ">"}, block=4000)))
        thread.start()
        wait_until(lambda: pair.primary.info("clients")["blocked_clients"] == "1", "the consumer waits")
        pair.swap()
        wait_until(lambda: pair.primary.info("clients")["blocked_clients"] == "1", "it waits at the new primary")
        pair.primary.must("XADD", "s", "1-1", "f", "v")
        thread.join()
    assert got == [[["s", [("1-1", {"f": "v"})]]]]


def test_redis_py_that_was_not_connected_finds_the_primary(pair: Pair) -> None:
    place = {"host": pair.primary.host, "port": pair.primary.port}
    pair.swap()
    with redis.Redis(**place) as client:
        assert client.set("k", "v")
    assert pair.primary.must("GET", "k").value == b"v"


# --- What is sent -----------------------------------------------------------------------------------------------------


def words_of(push: Reply) -> list[object]:
    assert push.kind == ">"
    return [part.value for part in push.value]


@pytest.mark.parametrize("endpoint", ["internal-ip", "external-fqdn", "none"])
def test_the_announcements_of_a_failover(pair: Pair, connect: Callable[..., Wire], endpoint: str) -> None:
    primary, replica = pair.primary, pair.replica
    wires = [connect(primary, 3, *ASK, endpoint) for _ in range(2)]
    pair.swap()
    address = None if endpoint == "none" else f"{replica.host}:{replica.port}".encode()
    seen = [[words_of(wire.read()) for _ in range(3)] for wire in wires]
    (begins, begun, seconds), (ends, ended), (moves, moved, ttl, where) = seen[0]
    assert (begins, ends, moves, where) == (b"FAILING_OVER", b"FAILED_OVER", b"MOVING", address)
    assert begun < ended < moved
    assert seconds >= 1
    assert ttl >= 1
    assert seen[0] == seen[1]
    assert wires[0].call("GET", "k").kind == "_"
    wires[0].send("SET", "k", "1")
    assert wires[0].read_to_end() == b""  # without a reply: it was not executed


def test_writes_that_wait_when_the_failover_is_given_up_are_executed(pair: Pair, connect: Callable[..., Wire]) -> None:
    pair.replica.freeze()
    wire = connect(pair.primary, 3, *ASK, "internal-ip")
    pair.primary.must("FAILOVER")
    assert words_of(wire.read())[0] == b"FAILING_OVER"
    wire.send("SET", "k", "1")
    wait_until(lambda: pair.primary.info("clients")["blocked_clients"] == "1", "the write waits")
    pair.primary.must("FAILOVER", "ABORT")
    assert words_of(wire.read())[0] == b"FAILED_OVER"
    assert wire.read().value == b"OK"
    pair.replica.thaw()


def test_a_write_waits_until_the_new_primary_has_answered(pair: Pair, connect: Callable[..., Wire]) -> None:
    primary, replica = pair.primary, pair.replica
    replica.freeze()
    wire = connect(primary, 3, *ASK, "internal-ip")
    primary.must("FAILOVER", "TO", replica.host, str(replica.port), "FORCE", "TIMEOUT", "1")
    wait_until(lambda: primary.info()["master_failover_state"] == "failover-in-progress", "the replica is asked")
    wire.send("SET", "k", "1")
    wait_until(lambda: primary.info("clients")["blocked_clients"] == "1", "the write waits")
    replica.thaw()
    assert [words_of(wire.read())[0] for _ in range(3)] == [b"FAILING_OVER", b"FAILED_OVER", b"MOVING"]
    assert wire.read_to_end() == b""


@pytest.mark.parametrize(("protocol", "words"), [(2, ()), (3, ()), (3, ("CLIENT", "MAINT_NOTIFICATIONS", "OFF"))])
def test_others_see_nothing_new(
    pair: Pair, connect: Callable[..., Wire], protocol: int, words: tuple[str, ...]
) -> None:
    wire = connect(pair.primary, protocol)
    if words:
        assert wire.call(*ASK, "internal-ip").value == b"OK"
        assert wire.call(*words).value == b"OK"
    waiting = connect(pair.primary, protocol)
    waiting.send("BLPOP", "list", "0")
    wait_until(lambda: pair.primary.info("clients")["blocked_clients"] == "1", "a client waits")
    pair.swap()
    assert wire.call("SET", "k", "1").value == b"READONLY You can't write against a read only replica."
    assert waiting.read().value.startswith(b"UNBLOCKED ")


def test_reset_ends_the_announcements(pair: Pair, connect: Callable[..., Wire]) -> None:
    wire = connect(pair.primary, 3, *ASK, "internal-ip")
    assert wire.call("RESET").value == b"RESET"
    assert wire.call("HELLO", "3").kind == "%"
    pair.swap()
    assert wire.call("SET", "k", "1").value == b"READONLY You can't write against a read only replica."


def test_a_server_that_is_replaced_by_hand_sends_nobody_on(pair: Pair, connect: Callable[..., Wire]) -> None:
    wire = connect(pair.primary, 3, *ASK, "internal-ip")
    old, new = pair.primary, pair.replica
    new.must("REPLICAOF", "NO", "ONE")
    old.must("REPLICAOF", new.host, str(new.port))
    assert wire.call("SET", "k", "1").value == b"READONLY You can't write against a read only replica."


BAD = {
    "CLIENT MAINT_NOTIFICATIONS": "ERR wrong number of arguments for 'client|maint_notifications' command",
    "CLIENT MAINT_NOTIFICATIONS PERHAPS": "ERR syntax error",
    "CLIENT MAINT_NOTIFICATIONS ON moving-endpoint-type": "ERR syntax error",
    "CLIENT MAINT_NOTIFICATIONS ON endpoint internal-ip": "ERR syntax error",
    "CLIENT MAINT_NOTIFICATIONS ON moving-endpoint-type internal-ip more": "ERR syntax error",
    "CLIENT MAINT_NOTIFICATIONS ON moving-endpoint-type ipv6": "ERR Unknown moving-endpoint-type 'ipv6'. It is one of"
    " internal-ip, internal-fqdn, external-ip, external-fqdn, none.",
}


def test_bad_requests(new_node: Callable[..., Node]) -> None:
    node = new_node("streamd")
    for line, error in BAD.items():
        assert node.call(*line.split()).value.decode() == error
    no_pushes = node.call(*ASK, "internal-ip").value.decode()
    assert no_pushes == "ERR CLIENT MAINT_NOTIFICATIONS ON needs RESP3. Send HELLO 3 first."
    assert node.call("CLIENT", "MAINT_NOTIFICATIONS", "OFF").value == b"OK"
    with node.connect(3) as wire:
        assert wire.call("client", "maint_notifications", "on", "Moving-Endpoint-Type", "None").value == b"OK"
        assert wire.call("CLIENT", "MAINT_NOTIFICATIONS", "ON").value == b"OK"
