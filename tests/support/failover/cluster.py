"""Data nodes, Sentinels and the network between them, for fail-overs; support.failover.rounds has the rounds that are played on them.

Every node, Sentinels included, is reached through a `Network`, which partitions are made of. A node that was stopped comes back as
it went: as a primary, or as a replica of whom it followed.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import redis

from ..replicas.network import Network
from ..replicas.nodes import DEADLINE_S, Node, start_node, wait_until
from ..servers import Server, find_oracle, free_port, python_environment, wait_for_start
from ..wire import ConnectionClosed
from .clients import Address, client_of_sentinels

__all__ = ["LOSS_FREE", "MODES", "PLAIN", "SERVICE", "WAITAOF", "Cluster", "Member", "Mode", "SentinelServer"]

SERVICE = "service"
DOWN_AFTER_MS = 2000
"""Not 1000: Sentinels connect again once a second, and one whose first connection to a new primary fails must not think it dead."""
FAILOVER_TIMEOUT_MS = 2000
NO_ANSWER = (OSError, ConnectionClosed, AssertionError)
"""What asking a node raises while it is away, loads, or closes connections since it was replaced."""


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

    @property
    def has_files(self) -> bool:
        """Whether servers that are killed come back with what they had."""
        return self.settings.get("appendonly") == "yes"

    def with_durable(self, durable: int) -> Mode:
        """The same with another number of replicas."""
        settings = dict(self.settings)
        if "min-replicas-durable" in settings:
            settings["min-replicas-durable"] = str(durable)
        return replace(self, settings=settings, durable=durable)

    def settings_among(self, replicas: int) -> Mapping[str, str]:
        """What each of the servers needs when there are so many replicas."""
        needed = self.needed_among(replicas)
        own = {"min-replicas-durable-to-start": str(needed)} if needed > self.durable else {}
        return {**self.settings, **own}

    def needed_among(self, replicas: int) -> int:
        """How many of the replicas a new primary needs."""
        is_loss_free = "min-replicas-durable" in self.settings
        return replicas - self.durable if is_loss_free and replicas > 2 * self.durable else self.durable


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
    _followed: str = ""

    def kill(self) -> None:
        self.note_role()
        self.node.kill()

    def stop(self) -> None:
        self.note_role()
        self.node.stop()

    def note_role(self) -> None:
        """Whom it follows: nobody who restarts a server forgets that."""
        self._followed = self.followed()

    def followed(self) -> str:
        """The port of the primary that it follows; empty: it is a primary, or does not answer."""
        try:
            info = self.node.info()
        except NO_ANSWER:
            return ""
        return info["master_port"] if info["role"] == "slave" else ""

    def start(self) -> None:
        """Start it again, in the role that it had."""
        self.node.hang_up()
        self.node.start_again(["--replicaof", "127.0.0.1", self._followed] if self._followed else [])

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
    """Data nodes of the given kinds (support.replicas.nodes), the first of which starts as the primary, and Sentinels.

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
        self.told: int | None = None
        """The port at which clients look that do not ask the Sentinels; None: they ask, too."""
        self._sentinel_numbers = itertools.count()
        try:
            every = mode.settings_among(len(kinds) - 1)
            for number, kind in enumerate(kinds):
                self._start_member(number, kind, {**every, **(settings or {}), **(own or {}).get(number, {})})
            for member in self.members[1:]:
                self.follow(member, self.members[0])
            self.wait_until_in_sync()
            for _ in range(sentinels):
                self.sentinels.append(self._start_sentinel(next(self._sentinel_numbers)))
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

    def _start_sentinel(self, number: int) -> SentinelServer:
        oracle = find_oracle()
        assert oracle is not None
        name, address = f"sentinel{number}", f"127.0.2.{number + 1}"
        folder = self.folder / name
        folder.mkdir()
        self.network.add(name, address)
        port = free_port()
        gate = self.network.gate(name)
        self.network.lead(name, port)
        gate_of_primary = self.primary().gate if self.sentinels else self.members[0].gate
        (folder / "sentinel.conf").write_text(
            f"port {port}\nbind 127.0.0.1\nbind-source-addr {address}\ndir {folder}\n"
            f"sentinel announce-ip 127.0.0.1\nsentinel announce-port {gate}\n"
            f"sentinel monitor {SERVICE} 127.0.0.1 {gate_of_primary} {self._quorum}\n"
            f"sentinel down-after-milliseconds {SERVICE} {self._down_after_ms}\n"
            f"sentinel failover-timeout {SERVICE} {self._failover_timeout_ms}\n"
            f"sentinel parallel-syncs {SERVICE} 9\n"
        )
        argv = [oracle.server, str(folder / "sentinel.conf"), "--sentinel"]
        server = SentinelServer(name, argv, port, folder, python_environment())
        wait_for_start(server)
        return server

    def replace_sentinel(self, number: int) -> None:
        """Kill a Sentinel; another one, with an identity and an address of its own, takes its place."""
        self.sentinels[number].kill()
        self.sentinels[number] = self._start_sentinel(next(self._sentinel_numbers))

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

    def addresses(self) -> list[Address]:
        """Of the Sentinels."""
        return [("127.0.0.1", sentinel.port) for sentinel in self.sentinels]

    def client(self, *, is_told: bool) -> redis.Redis:
        """The primary that the Sentinels name; `is_told`: the one that the operator names, while that one does."""
        return client_of_sentinels(SERVICE, self.addresses, lambda: self.told if is_told else None)

    def follow(self, member: Member, primary: Member) -> None:
        """REPLICAOF; a primary that has been replaced closes connections just then."""

        def is_told() -> bool:
            try:
                return bool(member.node.must("REPLICAOF", "127.0.0.1", str(primary.gate)).value.startswith(b"OK"))
            except (OSError, ConnectionClosed):
                return False

        wait_until(is_told, f"{member} follows {primary}")

    def turn(self) -> None:
        """Make replicas of all nodes but the one that the Sentinels take for the primary, as an operator would."""
        primary = self.primary()
        for member in self.replicas():
            if member.followed() != str(primary.gate):
                self.follow(member, primary)

    # --- Waiting

    def wait_until_turned(self) -> None:
        """Wait until the Sentinels have made replicas of all nodes but one."""

        def is_turned() -> bool:
            primary = self.primary()
            return not primary.followed() and all(each.followed() == str(primary.gate) for each in self.replicas())

        wait_until(is_turned, "all nodes follow the primary of the Sentinels")

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
        except NO_ANSWER:
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
