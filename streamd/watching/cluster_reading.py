"""What all nodes of a cluster say of themselves and of their streams: a `ClusterLook`, which is a `Look` at the whole.

Any node is given; the others are found with CLUSTER SHARDS, at each look again, so that a fail-over and slots that move in between do
no harm: a node that does not answer is noted, and the others are looked at.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from streamd.client.archive_runs import ArchiveRun
from streamd.client.client_errors import ServerError, UnreachableError
from streamd.client.connection import dial
from streamd.client.place import Place
from streamd.client.shards import Shard, ShardNode, parse_shards
from streamd.clustering.view import NodeView, parse_nodes
from streamd.watching.look import Asker, Limits, Look, PendingEntry, Reader, SlowCommand, parse_info

__all__ = ["ClusterLook", "ClusterReader", "NodeLook", "reader_of"]

T = TypeVar("T")

SUMMED = (
    "blocked_clients", "connected_clients", "maxmemory", "total_commands_processed", "total_net_input_bytes",
    "total_net_output_bytes", "used_cpu_sys", "used_cpu_user", "used_memory",
)  # fmt: skip
"""The fields of INFO that are those of the whole when they are added."""


@dataclass
class NodeLook:
    """What a node said.

    shard    the one that it belongs to
    look     at itself, with the streams of a primary; None: it did not answer, and `problem` is why
    state    the fields of CLUSTER INFO
    view     the nodes as it sees them, by ID
    """

    node: ShardNode
    shard: Shard
    look: Look | None = None
    problem: str = ""
    state: dict[str, str] = field(default_factory=dict)
    view: dict[str, NodeView] = field(default_factory=dict)


@dataclass
class ClusterLook(Look):
    """All that its nodes said; as a `Look`, the streams of all primaries, and the sums of their figures.

    nodes   primaries ahead of their replicas, in the order of their slots
    shards  as the node sees them that was asked
    """

    nodes: list[NodeLook] = field(default_factory=list)
    shards: list[Shard] = field(default_factory=list)

    @property
    def primaries(self) -> list[NodeLook]:
        """Those that answered."""
        return [each for each in self.nodes if each.node.is_primary and each.look is not None]

    def find(self, node_id: str) -> NodeLook | None:
        return next((each for each in self.nodes if each.node.id == node_id), None)


class ClusterReader:
    """Readers of all nodes. Raises UnreachableError when no node answers, and ServerError when the login is refused."""

    def __init__(self, place: Place, limits: Limits, connect: Callable[[Place], Asker] = dial) -> None:
        self.place = place
        self.limits = limits
        self.connect = connect
        self._known = [place]
        self._readers: dict[Place, Reader] = {}
        self.last: ClusterLook | None = None

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()

    def reader(self, place: Place) -> Reader:
        """The reader of a node."""
        if place not in self._readers:
            self._readers[place] = Reader(place, self.limits, self.connect)
        return self._readers[place]

    def _ask(self, place: Place, action: Callable[[Reader], T]) -> T:
        """What an action gets of a node, whose connection is given up when it breaks."""
        try:
            return action(self.reader(place))
        except UnreachableError:
            broken = self._readers.pop(place, None)
            if broken is not None:
                broken.close()
            raise

    def _shards(self) -> tuple[Place, list[Shard]]:
        """The shards as the first node sees them that answers."""
        failure: UnreachableError | None = None
        for place in self._known:
            try:
                reply = self._ask(place, lambda reader: reader.asker.command("CLUSTER", "SHARDS"))
            except UnreachableError as error:
                failure = failure or error
                continue
            shards = parse_shards(reply, place)
            self._known = list(
                dict.fromkeys([place, *(node.place for shard in shards for node in shard.nodes), *self._known])
            )
            return place, shards
        raise failure or UnreachableError(f"No node of the cluster at {self.place} answers")

    # --- As a Reader -------------------------------------------------------------------------------------------------

    def look(self, *, streams: bool = True) -> ClusterLook:
        """Look at all nodes, and at the streams of the primaries unless told not to."""
        began = time.monotonic()
        _, shards = self._shards()
        nodes = [
            NodeLook(node, shard)
            for shard in shards
            for node in sorted(shard.nodes, key=lambda node: (not node.is_primary, str(node.place)))
        ]
        for each in nodes:
            try:
                self._ask(each.node.place, lambda reader, each=each: self._look_at(reader, each, streams=streams))  # type: ignore[misc]
            except (UnreachableError, ServerError) as error:
                each.problem = str(error)
        looks = [each.look for each in nodes if each.look is not None and each.node.is_primary]
        if not looks:
            problems = [each.problem for each in nodes if each.problem]
            raise UnreachableError(
                f"No primary of the cluster at {self.place} answers: {(problems or ['none is known'])[0]}"
            )
        self.last = ClusterLook(
            at_s=began, now_ms=max(look.now_ms for look in looks), round_trip_s=max(look.round_trip_s for look in looks),
            info=summed_info(looks), streams={key: value for look in looks for key, value in look.streams.items()},
            is_whole=all(look.is_whole for look in looks),
            refused={name: error for look in looks for name, error in look.refused.items()}, nodes=nodes, shards=shards,
        )  # fmt: skip
        return self.last

    def _look_at(self, reader: Reader, each: NodeLook, *, streams: bool) -> None:
        look = reader.look(streams=streams and each.node.is_primary)
        state, view = reader.ask([["CLUSTER", "INFO"], ["CLUSTER", "NODES"]])
        each.state = parse_info(state)
        each.view = parse_nodes(view.decode(errors="replace")) if isinstance(view, bytes) else {}
        each.look = look

    def slow_commands(self, count: int) -> list[SlowCommand]:
        """The newest lines of the slow logs of all primaries, newest first."""
        found = [line for reader in self._primaries() for line in reader.slow_commands(count)]
        return sorted(found, key=lambda line: -line.at_s)[:count]

    def archive_runs(self, keys: Iterable[bytes]) -> dict[bytes, list[ArchiveRun]]:
        """The last run over each of these streams into each archive, which is recorded in the slot of the stream."""
        found: dict[bytes, list[ArchiveRun]] = {}
        for key in keys:
            if (reader := self._reader_of(key)) is not None:
                found |= reader.archive_runs([key])
        return found

    def pending(self, places: Sequence[tuple[bytes, bytes]], count: int) -> list[list[PendingEntry]]:
        """Of each (stream, group) the pending entries with the smallest IDs."""
        readers = [self._reader_of(key) for key, _ in places]
        return [
            [] if reader is None else reader.pending([place], count)[0]
            for reader, place in zip(readers, places, strict=True)
        ]

    def fields(self, key: bytes, entry_id: str) -> list[tuple[bytes, bytes]] | None:
        """The fields and values of an entry; None if there is no such entry."""
        reader = self._reader_of(key)
        return None if reader is None else reader.fields(key, entry_id)

    def _reader_of(self, key: bytes) -> Reader | None:
        """The reader of the primary that had a stream at the last look; None: nobody had it, or that one does not answer any more."""
        looks = self.last.primaries if self.last is not None else ()
        place = next((each.node.place for each in looks if each.look is not None and key in each.look.streams), None)
        return None if place is None else self._readers.get(place)

    def _primaries(self) -> Iterator[Reader]:
        """The readers of the primaries that answered at the last look."""
        for each in self.last.primaries if self.last is not None else ():
            if each.node.place in self._readers:
                yield self._readers[each.node.place]


def summed_info(looks: Sequence[Look]) -> dict[str, str]:
    """INFO of the whole: what the first one says, sums of what can be added, and the statistics of commands of all."""
    info = dict(looks[0].info)
    for name in SUMMED:
        if name in info:
            total = sum(float(look.info.get(name, 0)) for look in looks)
            info[name] = f"{total:.6f}" if "." in info[name] else str(round(total))
    info["role"] = "master"
    info["uptime_in_seconds"] = str(min(look.number("uptime_in_seconds") for look in looks))
    for prefix, add in (("cmdstat_", added_calls), ("latency_percentiles_usec_", greatest)):
        for name in {name for look in looks for name in look.info if name.startswith(prefix)}:
            told = [statistics(look.info[name]) for look in looks if name in look.info]
            info[name] = ",".join(f"{key}={value}" for key, value in add(told).items())
    return info


def statistics(text: str) -> dict[str, float]:
    """The numbers of a line `name=value,...`."""
    return {name: float(value) for each in text.split(",") for name, _, value in [each.partition("=")] if value}


def added_calls(told: Sequence[dict[str, float]]) -> dict[str, Any]:
    names = ("calls", "usec", "rejected_calls", "failed_calls")
    sums = {name: round(sum(each.get(name, 0) for each in told)) for name in names}
    return {**sums, "usec_per_call": f"{sums['usec'] / max(sums['calls'], 1):.2f}"}


def greatest(told: Sequence[dict[str, float]]) -> dict[str, Any]:
    """Percentiles cannot be added: those of the slowest node."""
    return {name: max(each.get(name, 0.0) for each in told) for name in told[0]}


def reader_of(place: Place, limits: Limits) -> Reader | ClusterReader:
    """A reader of a server, or of all nodes of the cluster that it belongs to. Raises UnreachableError, ServerError."""
    reader = Reader(place, limits)
    try:
        info = parse_info(reader.ask([["INFO", "cluster"]])[0])
    except BaseException:
        reader.close()
        raise
    if info.get("cluster_enabled") != "1":
        return reader
    reader.close()
    return ClusterReader(place, limits)
