"""The board of `streamd top`: the newest look at a server, or at all nodes of a cluster, as a line of figures and tables, with rates since the look before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streamd.entry_id import parse_id
from streamd.printable import in_one_line
from streamd.shell.showing import quoted
from streamd.stream_state import age_s
from streamd.watching.changes import change_of_group, change_of_stream
from streamd.watching.cluster_reading import ClusterLook, ClusterReader, NodeLook
from streamd.watching.findings import PLAIN, duration, number, per_second, size
from streamd.watching.look import Look, Reader, SlowCommand
from streamd.watching.tables import TABLES, Row, short_time

__all__ = ["Board", "name_of"]

SLOW_LINES = 50
PENDING = 200
WORDS = 6
"""Words of a slow command that are shown."""
FIGURES = [column.name for column in TABLES["nodes"].columns]


class Board:
    """What is shown of a server, or of a cluster. `refresh` looks; all else is of the last look and costs nothing, but for `pending` and `entry`."""

    def __init__(self, reader: Reader | ClusterReader) -> None:
        self.reader = reader
        self.looks: list[Look] = []
        self._slow_commands: Sequence[SlowCommand] = ()

    def refresh(self, *, nodes_only: bool = False) -> None:
        """Look at the server, and at its streams and slow log unless only at its nodes. Raises UnreachableError, ServerError."""
        self.looks = [*self.looks[-1:], self.reader.look(streams=not nodes_only)]
        if not nodes_only:
            self._slow_commands = self.reader.slow_commands(SLOW_LINES)

    @property
    def look(self) -> Look:
        return self.looks[-1]

    # --- The line of figures -----------------------------------------------------------------------------------------

    def summary(self) -> Row:
        look = self.look
        before = self.looks[0]
        seconds = look.at_s - before.at_s

        def rate(name: str) -> float | None:
            return max(0, look.number(name) - before.number(name)) / seconds if seconds > 0 else None

        return {
            "server": str(self.reader.place),
            "version": look.info.get("streamd_version")
            or look.info.get("valkey_version")
            or look.info.get("redis_version", "?"),
            "name": "streamd"
            if "streamd_version" in look.info
            else "Valkey"
            if "valkey_version" in look.info
            else "Redis",
            "role": role_of(look),
            "uptime_s": look.number("uptime_in_seconds"),
            "round_trip_s": look.round_trip_s,
            "commands_per_s": rate("total_commands_processed"),
            "input_bytes_per_s": rate("total_net_input_bytes"),
            "output_bytes_per_s": rate("total_net_output_bytes"),
            "cpu_share": rate_of_cpu(before, look),
            "clients": look.number("connected_clients"),
            "blocked_clients": look.number("blocked_clients"),
            "used_memory": look.number("used_memory"),
            "streams": len(look.streams),
            "groups": sum(1 for _ in look.groups()),
            "is_whole": look.is_whole,
        }

    def headlines(self) -> list[str]:
        told = self.summary()

        def shown(name: str, show: Any) -> str:
            return "-" if told[name] is None else show(told[name])

        lines = [
            f"{told['server']}  {told['name']} {told['version']}, {told['role']}, up {duration(told['uptime_s'])}"
            f"  {number(told['streams'])}{'' if told['is_whole'] else '+'} streams, {number(told['groups'])} groups"
            f"  {size(told['used_memory'])}",
            f"{shown('commands_per_s', per_second)} commands/s  in {shown('input_bytes_per_s', size)}/s"
            f"  out {shown('output_bytes_per_s', size)}/s  CPU {shown('cpu_share', lambda share: f'{100 * share:.0f} %')}"
            f"  {number(told['clients'])} clients, {number(told['blocked_clients'])} blocked"
            f"  round trip {short_time(told['round_trip_s'])}",
        ]
        return [in_one_line(each) for each in lines]

    # --- The tables --------------------------------------------------------------------------------------------------

    def rows(self, table: str) -> list[Row]:
        """The rows of a table of TABLES, in no order; `pending` has a method of its own."""
        found: list[Row] = getattr(self, f"_{table}")()
        return found

    def _streams(self) -> list[Row]:
        now_ms, found = self.look.now_ms, []
        for stream in self.look.streams.values():
            change = change_of_stream(self.looks, stream.key)
            seconds = self.look.at_s - self.looks[0].at_s
            found.append(
                {
                    "stream": name_of(stream.key),
                    "length": stream.length,
                    "bytes": stream.bytes,
                    "in_per_s": None if change is None else change.in_per_s,
                    "removed_per_s": None if change is None else change.removed / seconds,
                    "groups": len(stream.groups),
                    "lag": most(group.lag for group in stream.groups),
                    "lag_s": most(group.lag_s(now_ms) for group in stream.groups),
                    "pending": sum(group.pending for group in stream.groups),
                    "last_s": age_s(stream.last_id, now_ms),
                }
            )
        return found

    def _groups(self) -> list[Row]:
        now_ms, found = self.look.now_ms, []
        for stream, group in self.look.groups():
            change = change_of_group(self.looks, stream.key, group.name)
            arrived = change_of_stream(self.looks, stream.key)
            found.append(
                {
                    "stream": name_of(stream.key),
                    "group": name_of(group.name),
                    "lag": group.lag,
                    "lag_s": group.lag_s(now_ms),
                    "in_per_s": None if arrived is None else arrived.in_per_s,
                    "out_per_s": None if change is None else change.out_per_s,
                    "pending": group.pending,
                    "takes_s": None if change is None else change.takes_s,
                    "oldest_pending_s": group.oldest_pending_s(now_ms),
                    "consumers": group.consumer_count,
                    "seen_s": min((each.idle_ms / 1000 for each in group.consumers), default=None),
                }
            )
        return found

    def _consumers(self) -> list[Row]:
        return [
            {
                "stream": name_of(stream.key),
                "group": name_of(group.name),
                "consumer": name_of(each.name),
                "pending": each.pending,
                "seen_s": each.idle_ms / 1000,
                "active_s": None if each.inactive_ms is None else each.inactive_ms / 1000,
            }
            for stream, group in self.look.groups()
            for each in group.consumers
        ]

    def _commands(self) -> list[Row]:
        seconds = self.look.at_s - self.looks[0].at_s
        before = statistics_of(self.looks[0], "cmdstat_")
        times = statistics_of(self.look, "latency_percentiles_usec_")
        found = []
        for name, told in statistics_of(self.look, "cmdstat_").items():
            calls = int(told["calls"])
            earlier = int(before.get(name, {"calls": "0"})["calls"])
            found.append(
                {
                    "command": name,
                    "calls_per_s": max(0, calls - earlier) / seconds if seconds > 0 else None,
                    "calls": calls,
                    "mean_s": float(told["usec_per_call"]) / 1e6,
                    "p50_s": seconds_of(times.get(name, {}).get("p50")),
                    "p99_s": seconds_of(times.get(name, {}).get("p99")),
                    "failed": int(told.get("failed_calls", 0)) + int(told.get("rejected_calls", 0)),
                }
            )
        return found

    def _nodes(self) -> list[Row]:
        if isinstance(self.look, ClusterLook):
            return [self._node(each) for each in self.look.nodes]
        return [self._figures(self.looks[0], self.look) | {"node": str(self.reader.place), "role": role_of(self.look)}]

    def _node(self, each: NodeLook) -> Row:
        """A node of a cluster; one that does not answer has no figures."""
        first = self.looks[0].find(each.node.id) if isinstance(self.looks[0], ClusterLook) else None
        figures = dict.fromkeys(FIGURES)
        if each.look is not None:
            figures = self._figures(first.look if first and first.look else each.look, each.look)
        serves = each.shard.primary
        return figures | {
            "node": str(each.node),
            "role": "primary" if each.node.is_primary else "replica",
            "state": each.node.health if each.look is not None else "no answer",
            "slots": each.shard.slots if each.node.is_primary else 0,
            "behind": None if each.node.is_primary or serves is None else max(0, serves.offset - each.node.offset),
            "epoch": each.view[each.node.id].config_epoch if each.node.id in each.view else None,
        }

    def _figures(self, before: Look, look: Look) -> Row:
        """What a node does; rates since an earlier look."""
        seconds = look.at_s - before.at_s

        def rate(name: str) -> float | None:
            return max(0, look.number(name) - before.number(name)) / seconds if seconds > 0 else None

        return dict.fromkeys(FIGURES) | {
            "state": "online",
            "keys": sum(
                int(value[5:].partition(",")[0])
                for name, value in look.info.items()
                if name.startswith("db") and value.startswith("keys=")
            ),
            "used_memory": look.number("used_memory"),
            "commands_per_s": rate("total_commands_processed"),
            "input_bytes_per_s": rate("total_net_input_bytes"),
            "output_bytes_per_s": rate("total_net_output_bytes"),
            "cpu_share": rate_of_cpu(before, look),
            "clients": look.number("connected_clients"),
        }

    def _slow(self) -> list[Row]:
        now_s = self.look.now_ms // 1000
        return [
            {
                "ago_s": max(0, now_s - each.at_s),
                "took_s": each.took_us / 1e6,
                "command": " ".join(name_of(word) for word in each.words[:WORDS])
                + (" ..." if len(each.words) > WORDS else ""),
                "client": each.client,
            }
            for each in self._slow_commands
        ]

    def pending(self, stream: str, group: str) -> list[Row]:
        """The pending entries of a group, as named in the other tables; the first by ID. Raises UnreachableError."""
        place = self.find(stream, group)
        if place is None:
            return []
        return [
            {
                "id": each.entry_id,
                "consumer": name_of(each.consumer),
                "idle_s": each.idle_ms / 1000,
                "deliveries": each.deliveries,
                "age_s": age_s(parse_id(each.entry_id.encode()), self.look.now_ms),
            }
            for each in self.reader.pending([place], PENDING)[0]
        ]

    def entry(self, stream: str, group: str, entry_id: str) -> list[tuple[str, str]] | None:
        """The fields and values of an entry; None if it is gone. Raises UnreachableError."""
        place = self.find(stream, group)
        found = self.reader.fields(place[0], entry_id) if place is not None else None
        return None if found is None else [(name_of(field), name_of(value)) for field, value in found]

    def find(self, stream: str, group: str) -> tuple[bytes, bytes] | None:
        """The key and the name behind what is shown of them."""
        for each, its_group in self.look.groups():
            if name_of(each.key) == stream and name_of(its_group.name) == group:
                return each.key, its_group.name
        return None

    # --- For programs ------------------------------------------------------------------------------------------------

    def as_dict(self) -> dict[str, Any]:
        return {
            **self.summary(),
            **{name: self.rows(name) for name in ("streams", "groups", "consumers", "commands", "slow", "nodes")},
            "refused": self.look.refused,
        }


def role_of(look: Look) -> str:
    if isinstance(look, ClusterLook):
        return f"a cluster of {len(look.nodes)} nodes"
    return "replica" if look.is_replica else "primary"


def name_of(value: bytes) -> str:
    """A name as it is shown: as text, in quotes if there is anything in it that cannot be."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return quoted(value)
    return text if PLAIN.issuperset(value) or text.isprintable() else quoted(value)


def most(values: Any) -> Any:
    return max((each for each in values if each is not None), default=None)


def seconds_of(us: str | None) -> float | None:
    return None if us is None else float(us) / 1e6


def rate_of_cpu(before: Look, look: Look) -> float | None:
    """The processors that the server used, on average between two looks."""
    seconds = look.at_s - before.at_s
    names = ("used_cpu_sys", "used_cpu_user")
    if seconds <= 0 or not all(name in look.info and name in before.info for name in names):
        return None
    return sum(float(look.info[name]) - float(before.info[name]) for name in names) / seconds


def statistics_of(look: Look, prefix: str) -> dict[str, dict[str, str]]:
    """The lines of INFO `<prefix><command>:name=value,...`, by command."""
    return {
        name.removeprefix(prefix): dict(each.split("=", 1) for each in text.split(",") if "=" in each)
        for name, text in look.info.items()
        if name.startswith(prefix)
    }
