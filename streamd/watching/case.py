"""A case: what `streamd doctor` has seen of a server, and what counts as a problem."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from streamd.client.archive_runs import ArchiveRun
from streamd.client.place import Place
from streamd.client.replies import as_text
from streamd.stream_state import GroupState, StreamState
from streamd.watching.look import LargeKey, Look, PendingEntry, Reader, Rules, SlowCommand

__all__ = ["Case", "Thresholds"]

SETTINGS = (
    "appendfsync", "appendonly", "bind", "client-output-buffer-limit", "latency-tracking", "maxmemory", "maxmemory-policy",
    "min-replicas-durable", "min-replicas-max-lag", "min-replicas-to-write", "no-appendfsync-on-rewrite", "port",
    "protected-mode", "repl-backlog-size", "repl-ping-replica-period", "repl-timeout", "save",
    "slowlog-log-slower-than", "slowlog-max-len", "stop-writes-on-bgsave-error", "stream-node-max-bytes",
    "stream-node-max-entries", "tls-port",
)  # fmt: skip
SLOW_LINES = 128


@dataclass(frozen=True)
class Thresholds:
    """From where on something is found worth telling.

    lag          entries that a group has to read
    gone_s       how long ago a consumer was seen
    deliveries   of an entry; more than that is too many
    length       entries of a stream without a bound
    memory_days  until memory ends
    done         entries that are kept though all groups have acknowledged them
    elements     of a hash, list, set or sorted set
    slow_ms      of a command
    replica_s    how far a replica is behind, or how long ago it was heard of
    held_s       by how much a group's first unacknowledged entry is older than the last archived one, or how old it is if trimming waits for it
    skew         of a primary of a cluster: its slots, memory or commands by the mean of all
    hot          share of a cluster's entries that one stream gets
    """

    lag: int = 100
    gone_s: float = 600.0
    deliveries: int = 5
    length: int = 1000
    memory_days: float = 30.0
    done: int = 10_000
    elements: int = 1_000_000
    slow_ms: float = 10.0
    replica_s: float = 10.0
    held_s: float = 3600.0
    skew: float = 1.5
    hot: float = 0.5


@dataclass
class Case:
    """What was seen.

    place       where the server is
    looks       in order of time; rates are between the first and the last
    thresholds  what counts
    """

    place: Place
    reader: Reader
    looks: list[Look]
    thresholds: Thresholds

    @property
    def look(self) -> Look:
        """The last one."""
        return self.looks[-1]

    @property
    def seconds(self) -> float:
        return self.looks[-1].at_s - self.looks[0].at_s

    @cached_property
    def settings(self) -> dict[str, str]:
        """The settings that checks look at; none where CONFIG is not allowed."""
        return self.reader.config(SETTINGS)

    @cached_property
    def large_keys(self) -> list[LargeKey]:
        """Keys of other types than streams with more than `elements` or, if they are hashes, a hundredth of that."""
        return self.reader.large_keys(self.look, max(1, self.thresholds.elements // 100))

    @cached_property
    def archive_runs(self) -> dict[bytes, list[ArchiveRun]]:
        """The last runs of archivers over streams."""
        return self.reader.archive_runs(self.look.streams)

    @cached_property
    def rules(self) -> Rules:
        """The rules of streams and groups."""
        return self.reader.rules(self.look)

    @cached_property
    def slow_commands(self) -> list[SlowCommand]:
        return self.reader.slow_commands(SLOW_LINES)

    @cached_property
    def is_open(self) -> bool | None:
        """Whether the default user needs no password; None: it cannot be known."""
        user = self.reader.ask([["ACL", "GETUSER", "default"]])[0]
        if user is not None:
            flags = {as_text(each) for each in dict(zip(user[::2], user[1::2], strict=True)).get(b"flags", [])}
            return "on" in flags and "nopass" in flags
        return True if self.place.password is None else None

    @property
    def memory_limit(self) -> int:
        """Bytes that data may take: `maxmemory`, or what the machine has; 0: unknown."""
        return self.look.number("maxmemory") or self.look.number("total_system_memory")

    def pending(self, count: int) -> Iterator[tuple[tuple[StreamState, GroupState], list[PendingEntry]]]:
        """The groups that have pending entries, with the first of these."""
        held = [(stream, group) for stream, group in self.look.groups() if group.pending]
        found = self.reader.pending([(stream.key, group.name) for stream, group in held], count)
        return zip(held, found, strict=True)

    def setting(self, name: str) -> int:
        """A setting that is a number; 0 if it is unknown."""
        text = self.settings.get(name, "0")
        return int(text) if text.removeprefix("-").isdecimal() else 0
