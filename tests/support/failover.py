"""Fail-overs on purpose: data nodes, three Sentinels, clients at work, a fault, and what is left afterwards.

    with Cluster(folder, ["streamd", "redis"], mode=LOSS_FREE) as cluster:
        result = play(cluster, KILL, seed=1)
    assert not result.wrong

    python -m tests.support.failover --rounds 300 --seed 1        one line per round, a table at the end

A *round* has a stream with a group of its own. Producers add entries, consumers read and acknowledge them, an observer looks at
lengths; all find the primary by redis-py's `Sentinel`, and all write down what they asked, what they were told, and when. A
fault strikes the primary, a replica or a Sentinel; when service is back (or was never away), the fault is healed, the old primary
comes back as a replica, and the clients go on for a while. Then everything acknowledged is compared with what is there, on every
node, and the history is checked for linearizability (support.linearizability).

Modes:

    PLAIN       replication is asynchronous: what was acknowledged just before the fault may be lost, and is counted
    LOSS_FREE   min-replicas-durable, appendfsync always: nothing may be lost, and the history must be linearizable
                (unless a primary that works is replaced and not all replicas are asked for: see `Result.is_safe`)
    WAITAOF     the same without help of the server: clients send WAITAOF after each write and believe only what it confirms;
                Redis can do that as well, which proves the harness

Every node, Sentinels included, is reached through a `Network`, which partitions are made of. Results that change nothing (a
length, a read that found nothing) are checked separately: a primary that was cut off may give stale ones until it learns of its
successor, and gives such that are not durable yet; with Redis as with streamd.
"""

from __future__ import annotations

import argparse
import itertools
import random
import shutil
import signal
import statistics
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import redis
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError, ResponseError, TimeoutError
from redis.retry import Retry
from redis.sentinel import MasterNotFoundError, Sentinel, SentinelManagedConnection

from .linearizability import Ack, Add, Deliver, Entry, EntryId, Length, Operation, Pending, Range, Undecided, check
from .network import CLIENTS, Network
from .replication import DEADLINE_S, Node, start_node, wait_until
from .servers import Server, find_oracle, free_port, python_environment, wait_for_start
from .wire import ConnectionClosed

__all__ = [
    "FAULTS",
    "KILL",
    "LOSS_FREE",
    "MODES",
    "PLAIN",
    "WAITAOF",
    "Cluster",
    "Fault",
    "Member",
    "Mode",
    "Result",
    "Worker",
    "play",
]

SERVICE = "service"
GROUP = b"group"
DOWN_AFTER_MS = 2000
"""Not 1000: Sentinels connect again once a second, and one whose first connection to a new primary fails must not think it dead."""
FAILOVER_TIMEOUT_MS = 2000
SILENCE_S = 0.5
"""How long a client waits for a reply."""
PAUSE_S = 0.002
"""Between two requests of a client, so that a round has thousands of them, not tens of thousands."""
RETRY_S = 0.02


@dataclass(frozen=True)
class Mode:
    """How much the servers promise, and what the clients ask for.

    settings   of every data node
    durable    how many replicas must have a write on disk before it is acknowledged
    asks       clients find that out with WAITAOF; otherwise the server does it
    """

    name: str
    settings: Mapping[str, str]
    durable: int = 0
    asks: bool = False

    def with_durable(self, durable: int) -> Mode:
        """The same with another number of replicas."""
        settings = dict(self.settings)
        if "min-replicas-durable" in settings:
            settings["min-replicas-durable"] = str(durable)
        return replace(self, settings=settings, durable=durable)


AOF = {"appendonly": "yes", "appendfsync": "always"}
PLAIN = Mode("plain", {})
LOSS_FREE = Mode(
    "loss-free",
    {**AOF, "min-replicas-durable": "1", "min-replicas-durable-sentinel-timeout": "1400"},
    durable=1,
)
WAITAOF = Mode("waitaof", AOF, durable=1, asks=True)
MODES = {mode.name: mode for mode in (PLAIN, LOSS_FREE, WAITAOF)}


# --- Processes ----------------------------------------------------------------------------------------------------------


@dataclass
class Member:
    """A data node: its process, and the port under which the others know it."""

    name: str
    node: Node
    gate: int

    @property
    def kind(self) -> str:
        return self.node.kind

    def __str__(self) -> str:
        return f"{self.name} ({self.kind})"


class SentinelServer(Server):
    """A Sentinel. `name` is that in the network."""

    def ask(self, *args: str) -> Any:
        with self.connect(timeout_s=DEADLINE_S) as wire:
            reply = wire.call("SENTINEL", *args)
            assert not reply.is_error, reply
            return reply.plain()

    def primary_gate(self) -> int:
        """The port of the primary, as this Sentinel has it."""
        return int(self.ask("GET-MASTER-ADDR-BY-NAME", SERVICE)[1])

    def fields(self) -> dict[bytes, bytes]:
        """What it says about the primary."""
        flat = self.ask("MASTER", SERVICE)
        return dict(zip(flat[::2], flat[1::2], strict=True))

    def knows(self, replicas: int, sentinels: int) -> bool:
        fields = self.fields()
        wanted = (b"%d" % replicas, b"%d" % sentinels, b"master")
        return (fields[b"num-slaves"], fields[b"num-other-sentinels"], fields[b"flags"]) == wanted


class Cluster:
    """Data nodes of the given kinds (support.replication), the first of which starts as the primary, and Sentinels.

    settings             more settings of data nodes
    own                  more settings of single data nodes, by their number
    down_after_ms        after which silence a Sentinel takes a node for dead
    failover_timeout_ms  after which a step of a fail-over is given up
    """

    def __init__(
        self,
        folder: Path,
        kinds: Sequence[str],
        *,
        mode: Mode = PLAIN,
        settings: Mapping[str, str] | None = None,
        own: Mapping[int, Mapping[str, str]] | None = None,
        sentinels: int = 3,
        down_after_ms: int = DOWN_AFTER_MS,
        failover_timeout_ms: int = FAILOVER_TIMEOUT_MS,
    ) -> None:
        self._quorum = sentinels // 2 + 1
        self._down_after_ms = down_after_ms
        self._failover_timeout_ms = failover_timeout_ms
        self.folder = folder
        self.mode = mode
        self.network = Network()
        self.members: list[Member] = []
        self.sentinels: list[SentinelServer] = []
        self.rounds = itertools.count()
        try:
            for number, kind in enumerate(kinds):
                self._start_member(number, kind, {**mode.settings, **(settings or {}), **(own or {}).get(number, {})})
            for member in self.members[1:]:
                self.follow(member, self.members[0])
            self.wait_until_in_sync()
            for number in range(sentinels):
                self._start_sentinel(number)
            self.wait_until_known()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        for each in (*self.sentinels, *(member.node for member in self.members)):
            if isinstance(each, Node):
                each.hang_up()
            if each.is_running:
                Server.kill(each)
        self.network.close()

    def _start_member(self, number: int, kind: str, settings: Mapping[str, str]) -> None:
        name, address = f"node{number}", f"127.0.1.{number + 1}"
        folder = self.folder / name
        folder.mkdir()
        self.network.add(name, address)
        gate = self.network.gate(name)
        own = {"bind-source-addr": address, "replica-announce-ip": "127.0.0.1", "replica-announce-port": str(gate)}
        node = start_node(folder, kind, {**own, **settings}, name)
        self.network.lead(name, node.port)
        self.members.append(Member(name, node, gate))

    def _start_sentinel(self, number: int) -> None:
        oracle = find_oracle()
        assert oracle is not None
        name, address = f"sentinel{number}", f"127.0.2.{number + 1}"
        folder = self.folder / name
        folder.mkdir()
        self.network.add(name, address)
        port = free_port()
        gate = self.network.gate(name)
        self.network.lead(name, port)
        (folder / "sentinel.conf").write_text(
            f"port {port}\nbind 127.0.0.1\nbind-source-addr {address}\ndir {folder}\n"
            f"sentinel announce-ip 127.0.0.1\nsentinel announce-port {gate}\n"
            f"sentinel monitor {SERVICE} 127.0.0.1 {self.members[0].gate} {self._quorum}\n"
            f"sentinel down-after-milliseconds {SERVICE} {self._down_after_ms}\n"
            f"sentinel failover-timeout {SERVICE} {self._failover_timeout_ms}\n"
            f"sentinel parallel-syncs {SERVICE} 9\n"
        )
        argv = [oracle.server, str(folder / "sentinel.conf"), "--sentinel"]
        server = SentinelServer(name, argv, port, folder, python_environment())
        self.sentinels.append(server)
        wait_for_start(server)

    # --- Who is who

    def member_at(self, gate: int) -> Member:
        return next(member for member in self.members if member.gate == gate)

    def primary(self) -> Member:
        """The data node that most Sentinels take for the primary."""
        votes = Counter(sentinel.primary_gate() for sentinel in self.sentinels if sentinel.is_running)
        return self.member_at(votes.most_common(1)[0][0])

    def epoch(self) -> int:
        """Grows with every fail-over."""
        return max(int(sentinel.fields()[b"config-epoch"]) for sentinel in self.sentinels)

    def replicas(self) -> list[Member]:
        primary = self.primary()
        return [member for member in self.members if member is not primary]

    def addresses(self) -> list[tuple[str, int]]:
        """Of the Sentinels."""
        return [("127.0.0.1", sentinel.port) for sentinel in self.sentinels]

    def follow(self, member: Member, primary: Member) -> None:
        assert member.node.must("REPLICAOF", "127.0.0.1", str(primary.gate)).value.startswith(b"OK")

    # --- Waiting

    def wait_until_known(self) -> None:
        """Wait until every Sentinel knows all others, all replicas, and sees the primary up."""
        others = len(self.sentinels) - 1
        replicas = len(self.members) - 1
        wait_until(
            lambda: all(sentinel.knows(replicas, others) for sentinel in self.sentinels),
            "all Sentinels know each other",
        )

    def wait_until_primary_is_not(self, old: Member) -> float:
        """Wait until all Sentinels have another primary; return when that was, monotonic seconds."""
        wait_until(
            lambda: all(sentinel.primary_gate() != old.gate for sentinel in self.sentinels),
            f"another primary than {old}",
        )
        return time.monotonic()

    def wait_until_in_sync(self) -> None:
        """Wait until there is one primary and all others follow it and have everything it has."""
        wait_until(self._is_in_sync, "all replicas are in sync")

    def _is_in_sync(self) -> bool:
        try:
            infos = {member.gate: member.node.info() for member in self.members}
        except (OSError, ConnectionClosed, AssertionError):
            return False
        primaries = [gate for gate, info in infos.items() if info["role"] == "master"]
        if len(primaries) != 1:
            return False
        offset = infos[primaries[0]]["master_repl_offset"]
        return all(
            info["master_link_status"] == "up" and info["slave_repl_offset"] == offset
            for info in infos.values()
            if info["role"] == "slave" and int(info["master_port"]) == primaries[0]
        ) and all(info["role"] == "master" or int(info["master_port"]) == primaries[0] for info in infos.values())

    def logs(self) -> str:
        """The ends of all logs, for a report."""
        servers: list[Server] = [*(member.node for member in self.members), *self.sentinels]
        return "\n".join(f"--- {each.name}\n{each.log()[-3000:]}" for each in servers)


# --- Clients ------------------------------------------------------------------------------------------------------------

_sent = threading.local()
"""`value`: whether the thread's last request was sent to a server; before, it certainly did nothing."""


class Connection(SentinelManagedConnection):
    """A connection that tells whether a request was sent; those of the connection's own beginning do not count."""

    def connect_check_health(self, *args: Any, **options: Any) -> None:
        try:
            super().connect_check_health(*args, **options)
        finally:
            _sent.value = False

    def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        if not self._sock:
            self.connect_check_health(check_health=False)
        _sent.value = True
        super().send_packed_command(command, check_health)


REFUSALS = ("READONLY", "LOADING", "MASTERDOWN", "UNBLOCKED", "The previous master is now a slave")
"""Beginnings of errors after which the request has certainly done nothing. Not NOREPLICAS: it may come after the fact."""


class NotConfirmed(Exception):
    """WAITAOF did not confirm a write."""


def find_service(addresses: Sequence[tuple[str, int]], **options: Any) -> redis.Redis:
    """The primary, wherever it is. Nothing is repeated: a repeated XADD would be another one."""
    sentinel = Sentinel(addresses, socket_timeout=SILENCE_S, retry=Retry(NoBackoff(), 0))
    return sentinel.master_for(
        SERVICE, connection_class=Connection, socket_timeout=SILENCE_S, retry=Retry(NoBackoff(), 0), **options
    )


@dataclass
class Worker(ABC):
    """A client in a thread of its own, and what it has seen.

    history    operations that happened, or may have
    refused    how often it was certain that nothing had happened
    failures   replies that nobody should get
    """

    name: str
    cluster: Cluster
    key: bytes
    stopped: threading.Event
    seed: int
    history: list[Operation] = field(default_factory=list)
    refused: int = 0
    failures: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chance = random.Random(f"{self.seed}-{self.name}")
        self.thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self.mode = self.cluster.mode

    def _run(self) -> None:
        try:
            with find_service(self.cluster.addresses()) as client:
                while not self.stopped.is_set():
                    self.stopped.wait(PAUSE_S if self.work(client) else RETRY_S)
        except BaseException as error:
            self.failures.append(repr(error))
            raise

    @abstractmethod
    def work(self, client: redis.Redis) -> bool:
        """Ask for something; whether there was an answer."""

    def ask(
        self, client: redis.Redis, operation: Operation, words: Sequence[Any], read: Callable[[Any], Any]
    ) -> Operation | None:
        """Send a request; write down what came of it; return the operation when it was answered.

        operation   without times and result
        read        makes the result from the reply
        """
        _sent.value = False
        invoked = time.monotonic()
        try:
            result = read(self._send(client, words))
        except MasterNotFoundError:
            self.refused += 1
            return None
        except (ConnectionError, TimeoutError, ResponseError, NotConfirmed) as error:
            if not _sent.value or str(error).startswith(REFUSALS):
                self.refused += 1
            else:
                self.history.append(replace(operation, invoked=invoked, returned=None))
                if isinstance(error, NotConfirmed) or str(error).startswith("NOREPLICAS"):
                    client.connection_pool.disconnect()  # there may be another primary: ask a Sentinel
                elif isinstance(error, ResponseError):
                    self.failures.append(f"{words}: {error}")
            return None
        changes: Any = {"invoked": invoked, "returned": time.monotonic(), "result": result}
        answered = replace(operation, **changes)
        self.history.append(answered)
        return answered

    def _send(self, client: redis.Redis, words: Sequence[Any]) -> Any:
        if not self.mode.asks or words[0] in ("XLEN", "XRANGE"):
            return client.execute_command(*words, NEVER_DECODE=True)
        with client.pipeline(transaction=False) as pipeline:
            pipeline.execute_command(*words, NEVER_DECODE=True)
            pipeline.execute_command("WAITAOF", 1, self.mode.durable, int(SILENCE_S * 500))
            reply, confirmation = pipeline.execute(raise_on_error=False)
        if isinstance(reply, Exception):
            raise reply
        if isinstance(confirmation, Exception):  # the server has become a replica in the meantime
            raise NotConfirmed(str(confirmation))
        local, replicas = confirmation
        if local < 1 or replicas < self.mode.durable:
            raise NotConfirmed(f"{local} {replicas}")
        return reply


def to_id(text: bytes) -> EntryId:
    ms, _, serial = text.partition(b"-")
    return int(ms), int(serial)


def to_entries(rows: Iterable[Sequence[Any]]) -> tuple[Entry, ...]:
    return tuple((to_id(entry_id), fields[1]) for entry_id, fields in rows)


def _read_delivery(reply: Any) -> tuple[Entry, ...]:
    """The entries in redis-py's form of a reply to XREADGROUP of one stream."""
    return tuple((to_id(entry_id), fields[b"v"]) for entry_id, fields in (reply[0][1] if reply else ()))


class Producer(Worker):
    """Adds entries, each with a value of its own."""

    def work(self, client: redis.Redis) -> bool:
        value = f"{self.name}-{len(self.history) + self.refused}".encode()
        operation = Add(self.name, self.key, 0, None, value=value)
        return self.ask(client, operation, ["XADD", self.key, "*", "v", value], to_id) is not None


class Consumer(Worker):
    """Reads new entries and acknowledges those that it has received, once more if it heard nothing about that."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.mine: list[EntryId] = []
        self.asked: tuple[EntryId, ...] = ()

    def work(self, client: redis.Redis) -> bool:
        if self.asked or (self.mine and self.chance.random() < 0.6):
            return self._acknowledge(client)
        count = self.chance.choice([1, 3, 10])
        words = ["XREADGROUP", "GROUP", GROUP, self.name, "COUNT", count, "STREAMS", self.key, ">"]
        operation = Deliver(self.name, self.key, 0, None, consumer=self.name.encode(), count=count)
        answered = self.ask(client, operation, words, _read_delivery)
        if isinstance(answered, Deliver):
            self.mine += [entry_id for entry_id, _ in answered.result]
        return answered is not None

    def _acknowledge(self, client: redis.Redis) -> bool:
        some = self.chance.choice([1, 1, 4])
        ids = self.asked = self.asked or tuple(self.chance.sample(self.mine, min(len(self.mine), some)))
        words = ["XACK", self.key, GROUP, *(f"{ms}-{serial}" for ms, serial in ids)]
        answered = self.ask(client, Ack(self.name, self.key, 0, None, ids=ids), words, int)
        if answered is not None:
            self.mine = [entry_id for entry_id in self.mine if entry_id not in ids]
            self.asked = ()
        return answered is not None


class Observer(Worker):
    """Looks at the length and at the newest entries."""

    def work(self, client: redis.Redis) -> bool:
        self.stopped.wait(10 * PAUSE_S)
        return self.ask(client, Length(self.name, self.key, 0, None), ["XLEN", self.key], int) is not None


class Load:
    """Clients at work on a stream, until the block is left."""

    def __init__(self, cluster: Cluster, key: bytes, seed: int) -> None:
        self._stopped = threading.Event()
        kinds: list[tuple[type[Worker], int]] = [(Producer, 3), (Consumer, 3), (Observer, 1)]
        self.workers = [
            kind(f"{kind.__name__.lower()}{number}", cluster, key, self._stopped, seed)
            for kind, many in kinds
            for number in range(many)
        ]

    def __enter__(self) -> Self:
        for worker in self.workers:
            worker.thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stopped.set()
        for worker in self.workers:
            worker.thread.join(DEADLINE_S)
            assert not worker.thread.is_alive(), f"{worker.name} does not end"

    @property
    def history(self) -> list[Operation]:
        return [operation for worker in self.workers for operation in list(worker.history)]

    def wait_for_adds(self, count: int) -> None:
        """Wait until so many XADDs that are sent from now on have been acknowledged."""
        now = time.monotonic()
        begin = [len(worker.history) for worker in self.workers]

        def is_enough() -> bool:
            since = [each for worker, at in zip(self.workers, begin, strict=True) for each in worker.history[at:]]
            adds = [each for each in since if isinstance(each, Add) and each.returned is not None]
            return sum(each.invoked >= now for each in adds) >= count or bool(self.failures)

        wait_until(is_enough, f"{count} acknowledged XADDs")

    @property
    def failures(self) -> list[str]:
        return [failure for worker in self.workers for failure in worker.failures]


# --- Faults -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fault:
    """Something that happens to a node.

    target        whom it strikes: primary, replica, sentinel
    is_failover   another node becomes the primary
    strike, heal  what is done; `heal` brings the process back, or the network; the role of nodes is seen to later
    """

    name: str
    target: str
    is_failover: bool
    strike: Callable[[Cluster, Any, random.Random], None]
    heal: Callable[[Cluster, Any, random.Random], None]


def _kill(cluster: Cluster, victim: Any, chance: random.Random) -> None:
    _process(victim).kill()


def _start(cluster: Cluster, victim: Any, chance: random.Random) -> None:
    server = _process(victim)
    server._start()
    server.wait_until_ready()


def _freeze(cluster: Cluster, victim: Any, chance: random.Random) -> None:
    _process(victim).process.send_signal(signal.SIGSTOP)


def _thaw(cluster: Cluster, victim: Any, chance: random.Random) -> None:
    _process(victim).process.send_signal(signal.SIGCONT)


def _lag_and_kill(cluster: Cluster, victim: Any, chance: random.Random) -> None:
    """It dies with writes that no replica has received."""
    cluster.network.cut([(victim.name, member.name) for member in cluster.members if member is not victim])
    # Clients that wait for replicas write nothing more after their first.
    offset, until = victim.node.offset, time.monotonic() + (0.3 if cluster.mode.durable else DEADLINE_S)
    wait_until(lambda: victim.node.offset > offset + 10_000 or time.monotonic() > until, "writes")
    victim.node.kill()
    cluster.network.heal(drop=True)


def _isolate(cluster: Cluster, victim: Any, chance: random.Random) -> None:
    """Nobody reaches it, clients included."""
    cluster.network.cut([(victim.name, name) for name in (*_others(cluster, victim), CLIENTS)])


def _isolate_with_clients(cluster: Cluster, victim: Any, chance: random.Random) -> None:
    """Clients reach it, other nodes do not: it goes on as if nothing had happened."""
    cluster.network.cut([(victim.name, name) for name in _others(cluster, victim)])


def _hide(cluster: Cluster, victim: Any, chance: random.Random) -> None:
    """Only the Sentinels do not reach it, so they replace a primary that works and has its replicas."""
    cluster.network.cut([(victim.name, sentinel.name) for sentinel in cluster.sentinels])


def _heal(cluster: Cluster, victim: Any, chance: random.Random) -> None:
    cluster.network.heal(drop=chance.random() < 0.5)


def _others(cluster: Cluster, victim: Any) -> list[str]:
    names = [*(member.name for member in cluster.members), *(sentinel.name for sentinel in cluster.sentinels)]
    return [name for name in names if name != victim.name]


def _process(victim: Any) -> Server:
    return victim.node if isinstance(victim, Member) else victim


KILL = Fault("kill primary", "primary", True, _kill, _start)
KILL_LAGGING = Fault("kill lagging primary", "primary", True, _lag_and_kill, _start)
FREEZE = Fault("freeze primary", "primary", True, _freeze, _thaw)
ISOLATE = Fault("isolate primary", "primary", True, _isolate, _heal)
ISOLATE_WITH_CLIENTS = Fault("isolate primary with clients", "primary", True, _isolate_with_clients, _heal)
HIDE = Fault("hide primary from sentinels", "primary", True, _hide, _heal)
KILL_REPLICA = Fault("kill replica", "replica", False, _kill, _start)
FREEZE_REPLICA = Fault("freeze replica", "replica", False, _freeze, _thaw)
ISOLATE_REPLICA = Fault("isolate replica", "replica", False, _isolate, _heal)
ISOLATE_SENTINEL = Fault("isolate sentinel", "sentinel", False, _isolate, _heal)
FAULTS = {
    fault.name: fault
    for fault in (
        KILL, KILL_LAGGING, FREEZE, ISOLATE, ISOLATE_WITH_CLIENTS, HIDE, KILL_REPLICA, FREEZE_REPLICA, ISOLATE_REPLICA, ISOLATE_SENTINEL,
    )
}  # fmt: skip


# --- Rounds -------------------------------------------------------------------------------------------------------------


@dataclass
class Result:
    """What a round showed.

    pairing          kinds of the primary before and after
    acknowledged     writes that were answered
    unknown          requests whose outcome nobody knows
    refused          requests that certainly did nothing
    lost             entries whose XADD was acknowledged and that are not there
    delivered_twice  entries that two reads returned as new
    acked_twice      entries that two XACKs counted
    undone           entries whose XACK was acknowledged and that are pending nevertheless
    outage_s         the longest time without an acknowledged XADD
    away_s           from the fault until all Sentinels had another primary; None without a fail-over
    order            why no order explains the writes; empty if one does
    looks            why no order explains writes and looks; empty if one does
    unplanned        fail-overs that the Sentinels began without a fault, as they do when the machine is too busy
    failures         replies that nobody should get, and differences between nodes
    """

    fault: str
    seed: int
    pairing: str
    mode: Mode
    replicas: int
    acknowledged: int = 0
    unknown: int = 0
    refused: int = 0
    lost: int = 0
    delivered_twice: int = 0
    acked_twice: int = 0
    undone: int = 0
    outage_s: float = 0.0
    away_s: float | None = None
    order: str = ""
    looks: str = ""
    unplanned: int = 0
    failures: list[str] = field(default_factory=list)
    wall_s: float = 0.0

    @property
    def is_safe(self) -> bool:
        """Whether nothing that was acknowledged may be lost.

        While Sentinels replace a primary that works and reaches its replicas, it goes on until they have told all of these to
        follow another one. Only if it needs all of them is that at the moment when the first is promoted.
        """
        is_replaced_alive = self.fault == HIDE.name or self.unplanned > 0
        return self.mode.durable >= (self.replicas if is_replaced_alive else 1)

    @property
    def wrong(self) -> str:
        """What must not happen in this mode and happened; empty when nothing did."""
        found = list(self.failures)
        if self.is_safe:
            counts = {"lost": self.lost, "delivered twice": self.delivered_twice, "undone": self.undone}
            found += [f"{count} entries {what}" for what, count in counts.items() if count]
            found += [self.order] if self.order else []
            if self.fault in (KILL.name, KILL_LAGGING.name) and not self.mode.asks:
                found += [self.looks] if self.looks else []  # the server held reads of what was not safe yet
        return "\n".join(found)

    def __str__(self) -> str:
        away = "" if self.away_s is None else f" new primary after {self.away_s:.1f} s,"
        order = "linearizable" if not self.order else "not linearizable"
        unplanned = f" {self.unplanned} unplanned fail-overs;" if self.unplanned else ""
        looks = "" if not self.looks or self.order else ", but stale or dirty looks"
        return (
            f"seed {self.seed} {self.mode.name} {self.pairing}, {self.fault}: {self.acknowledged} acknowledged,"
            f" {self.unknown} unknown, {self.refused} refused; lost {self.lost}, delivered twice {self.delivered_twice},"
            f" acked twice {self.acked_twice}, undone {self.undone};{unplanned}{away} outage {self.outage_s:.1f} s;"
            f" {order}{looks}; {self.wall_s:.1f} s" + (f"\n  WRONG: {self.wrong}" if self.wrong else "")
        )


def play(
    cluster: Cluster, fault: Fault, seed: int, *, before: int = 150, after: int = 100, is_patient: bool = False
) -> Result:
    """A round; see the head of the module.

    before, after   acknowledged XADDs to wait for before the fault, and after it was healed
    is_patient      leave it to the Sentinels to turn the old primary into a replica, which takes them 10 s and more
    """
    chance = random.Random(seed)
    started = time.monotonic()
    primary = cluster.primary()
    victim = _choose_victim(cluster, fault, chance)
    key = b"stream%d" % next(cluster.rounds)
    primary.node.must("XGROUP", "CREATE", key, GROUP, "0", "MKSTREAM")
    cluster.wait_until_in_sync()
    result = Result(fault.name, seed, "", cluster.mode, replicas=len(cluster.members) - 1)
    epoch = cluster.epoch()
    with Load(cluster, key, seed) as load:
        load.wait_for_adds(before + chance.randint(0, 30))
        struck = time.monotonic()
        fault.strike(cluster, victim, chance)
        if fault.is_failover:
            result.away_s = cluster.wait_until_primary_is_not(primary) - struck
        if _can_go_on(cluster, fault):
            load.wait_for_adds(after)
        fault.heal(cluster, victim, chance)
        if not fault.is_failover and isinstance(victim, Member):
            cluster.follow(victim, primary)
        elif fault.is_failover and not is_patient:
            cluster.follow(victim, cluster.primary())
        cluster.wait_until_known()
        load.wait_for_adds(after)
    cluster.wait_until_in_sync()
    result.unplanned = cluster.epoch() - epoch - fault.is_failover
    result.pairing = f"{primary.kind} -> {cluster.primary().kind}"
    _examine(cluster, load, key, result)
    result.wall_s = time.monotonic() - started
    return result


def _choose_victim(cluster: Cluster, fault: Fault, chance: random.Random) -> Any:
    if fault.target == "primary":
        return cluster.primary()
    return chance.choice(cluster.replicas() if fault.target == "replica" else cluster.sentinels)


def _can_go_on(cluster: Cluster, fault: Fault) -> bool:
    """Whether clients are served while the fault lasts."""
    has_lost_one = fault.target != "sentinel"
    return len(cluster.members) - 1 - has_lost_one >= cluster.mode.durable


def _examine(cluster: Cluster, load: Load, key: bytes, result: Result) -> None:
    """Compare what the clients were told with what is there."""
    history = load.history
    result.failures += load.failures
    result.failures += [f"{each} logged:\n{each.node.traceback()}" for each in cluster.members if each.node.traceback()]
    result.refused = sum(worker.refused for worker in load.workers)
    result.unknown = sum(each.returned is None for each in history)
    last = _final_looks(cluster.primary(), key)
    for member in cluster.members:
        if [each.result for each in _final_looks(member, key)] != [each.result for each in last]:  # type: ignore[attr-defined]
            result.failures.append(f"{member} does not have what {cluster.primary()} has")
    _count(history, last, result)
    writes = [each for each in history if not _is_look(each)]
    result.acknowledged = sum(each.returned is not None for each in writes)
    result.order = _check([*writes, *last], result)
    result.looks = result.order or _check([*history, *last], result)


def _check(history: Sequence[Operation], result: Result) -> str:
    try:
        return check(history, most=2_000_000).reason
    except Undecided as undecided:
        result.failures.append(f"undecided: {undecided}")
        return ""


def _is_look(operation: Operation) -> bool:
    """Whether it was answered and has changed nothing."""
    if isinstance(operation, Length | Range):
        return True
    return operation.returned is not None and isinstance(operation, Deliver | Ack) and not operation.result


def _final_looks(member: Member, key: bytes) -> list[Operation]:
    """All pending entries and all entries of a node, as the last operations of a history."""
    rows = member.node.must("XPENDING", key, GROUP, "-", "+", "1000000").plain()
    pending = tuple((to_id(row[0]), row[1]) for row in rows)
    entries = to_entries(member.node.must("XRANGE", key, "-", "+").plain())
    now = time.monotonic()
    return [
        Pending("end", key, now, now, result=pending),
        Range("end", key, now + 1, now + 1, result=entries),
    ]


def _count(history: Sequence[Operation], last: Sequence[Operation], result: Result) -> None:
    there: set[EntryId] = set()
    pending: set[EntryId] = set()
    values: dict[EntryId, bytes] = {}
    for each in last:
        if isinstance(each, Range):
            values = dict(each.result)
            there = set(values)
        elif isinstance(each, Pending):
            pending = {entry_id for entry_id, _ in each.result}
    adds = [each for each in history if isinstance(each, Add) and each.returned is not None]
    result.lost = sum(each.result not in there or values[each.result] != each.value for each in adds if each.result)
    result.outage_s = _longest_gap(sorted(each.deadline for each in adds))
    deliveries = Counter(entry_id for each in history if isinstance(each, Deliver) for entry_id, _ in each.result)
    result.delivered_twice = sum(count > 1 for count in deliveries.values())
    whole = [each for each in history if isinstance(each, Ack) and each.result == len(each.ids)]
    acks = Counter(entry_id for each in whole for entry_id in each.ids)
    result.acked_twice = sum(count > 1 for count in acks.values())
    result.undone = len(acks.keys() & pending)


def _longest_gap(moments: Sequence[float]) -> float:
    return max((after - before for before, after in itertools.pairwise(moments)), default=0.0)


# --- The long run ---------------------------------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.failover", description="Fail-overs, many of them.")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1, help="of the first round; each round has the next")
    parser.add_argument("--nodes", default="streamd,streamd,streamd", help="kinds, the first is the first primary")
    parser.add_argument("--mode", choices=MODES, default=LOSS_FREE.name)
    parser.add_argument(
        "--durable", type=int, help="how many replicas must have a write (min-replicas-durable, WAITAOF)"
    )
    parser.add_argument("--fault", action="append", choices=FAULTS, help="only these; may be repeated")
    parser.add_argument("--fresh", type=int, default=25, help="rounds after which everything is started anew")
    parser.add_argument("--keep", action="store_true", help="keep the folder with all logs")
    options = parser.parse_args()
    mode = MODES[options.mode] if options.durable is None else MODES[options.mode].with_durable(options.durable)
    faults = [FAULTS[name] for name in options.fault or FAULTS]
    folder = Path(tempfile.mkdtemp(prefix="streamd-failover-"))
    results: list[Result] = []
    try:
        for result in _play_many(folder, options.nodes.split(","), mode, faults, options):
            print(result, flush=True)
            results.append(result)
    finally:
        print(_table(results))
        if options.keep:
            print(f"logs are in {folder}")
        else:
            shutil.rmtree(folder)
    return 1 if any(result.wrong for result in results) else 0


def _play_many(
    folder: Path, kinds: Sequence[str], mode: Mode, faults: Sequence[Fault], options: argparse.Namespace
) -> Iterator[Result]:
    cluster: Cluster | None = None
    try:
        for number in range(options.rounds):
            seed = options.seed + number
            if cluster is None or number % options.fresh == 0:
                if cluster is not None:
                    cluster.close()
                    cluster = None
                own = folder / str(seed)
                own.mkdir()
                cluster = Cluster(own, kinds, mode=mode)
            fault = faults[random.Random(seed).randrange(len(faults))]
            try:
                yield play(cluster, fault, seed)
            except AssertionError as error:
                yield Result(fault.name, seed, "?", mode, len(kinds) - 1, failures=[str(error), cluster.logs()])
                cluster.close()
                cluster = None
    finally:
        if cluster is not None:
            cluster.close()


def _table(results: Sequence[Result]) -> str:
    """Sums by fault and pairing."""
    rows: dict[tuple[str, str], list[Result]] = defaultdict(list)
    for result in results:
        rows[result.fault, result.pairing].append(result)
    head = f"{'fault':30}{'primaries':22}{'rounds':>7}{'acked':>9}{'unknown':>9}{'lost':>6}{'twice':>6}{'undone':>7}"
    lines = [head + f"{'not lin.':>9}{'stale':>6}{'away s':>8}{'outage s':>9}{'wrong':>6}"]
    for (fault, pairing), some in sorted(rows.items()):
        away = [each.away_s for each in some if each.away_s is not None]
        lines.append(
            f"{fault:30}{pairing:22}{len(some):7}{sum(each.acknowledged for each in some):9}"
            f"{sum(each.unknown for each in some):9}{sum(each.lost for each in some):6}"
            f"{sum(each.delivered_twice for each in some):6}{sum(each.undone for each in some):7}"
            f"{sum(bool(each.order) for each in some):9}{sum(bool(each.looks) and not each.order for each in some):6}"
            f"{statistics.median(away) if away else 0:8.1f}{statistics.median(each.outage_s for each in some):9.1f}"
            f"{sum(bool(each.wrong) for each in some):6}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        sys.exit(main())
