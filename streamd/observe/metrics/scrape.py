"""A scrape: the metrics of a server, read in slices between which its clients are served.

The server's own metrics are read from the fields of INFO, those of commands from the command table, those of streams and groups from
the engine. Costs are bounded by the settings metrics-max-streams and metrics-max-consumers, and by the constants below.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field

from streamd.core.histogram import BOUNDS_US, Histogram
from streamd.core.host import Host
from streamd.core.slices import Slices
from streamd.engine.database import Database
from streamd.engine.delivery import lag, next_unread
from streamd.engine.glob import Glob
from streamd.engine.group import Group
from streamd.engine.stream import Stream
from streamd.observe.info import Info
from streamd.observe.metrics.exposition import Exposition, escaped
from streamd.observe.metrics.families import (
    COMMAND,
    CONSUMER,
    DURATION,
    ERRORS,
    GROUP,
    OF_DATABASE,
    OF_INFO,
    OF_REPLICA,
    OWN,
    SERVER,
    STREAM,
    Family,
)
from streamd.stream_state import EARLIEST_MS, ConsumerState, GroupState, StreamState

__all__ = ["Scraper"]

KEYS_PER_SCRAPE = 100_000
"""Keys that are looked at to find streams; where there are more, the next scrape goes on."""
KEYS_PER_STEP = 500
PENDING_LOOKED_AT = 1000
"""Pending entries of a group whose deliveries are counted."""
LINES_AT_ONCE = 500

WORDS = {"ok": 1, "up": 1, "err": 0, "down": 0}
"""What INFO says instead of a number."""


@dataclass
class Lines:
    """The samples of the metrics of streams, by metric, as they are written."""

    of: dict[Family, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for families in (STREAM, GROUP, CONSUMER):
            self.of |= {family: [] for family in families.values()}


class Scraper:
    """Makes the text of scrapes, one at a time."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._known: dict[tuple[int, bytes], None] = {}
        self._scanned = (0, 0)
        self._has_more = False
        self._busy = asyncio.Lock()
        self._making: dict[str, asyncio.Task[list[bytes]]] = {}  # by content type
        self.cpu_s = 0.0
        self.scrapes = 0

    async def text(self, exposition: Exposition) -> list[bytes]:
        """The text in pieces. Those who ask while it is made get the same one."""
        kind = exposition.content_type
        making = self._making.get(kind)
        if making is None:
            making = self._making[kind] = self._host.loop.create_task(self._make(exposition))
            making.add_done_callback(lambda _: self._making.pop(kind))
        return await asyncio.shield(making)

    async def _make(self, exposition: Exposition) -> list[bytes]:
        async with self._busy:
            slices = Slices()
            pieces = [piece async for piece in self._pieces(exposition, slices)]
            slices.pause()
            self.cpu_s += slices.cpu_s
            self.scrapes += 1
        return pieces

    async def _pieces(self, exposition: Exposition, slices: Slices) -> AsyncIterator[bytes]:
        async for piece in self._server(exposition, slices):
            yield piece
        async for piece in self._commands(exposition, slices):
            yield piece
        lines = Lines()
        left_out = await self._read_streams(lines, slices)
        for family, found in lines.of.items():
            yield exposition.head(family)
            for at in range(0, len(found), LINES_AT_ONCE):
                yield "".join(found[at : at + LINES_AT_ONCE]).encode()
                await slices.breathe()
        yield exposition.samples(OWN["left_out"], (({"what": what}, value) for what, value in left_out.items()))
        yield exposition.samples(OWN["cpu"], [({}, self.cpu_s)])
        yield exposition.samples(OWN["scrapes"], [({}, self.scrapes)])
        yield exposition.end

    # --- The server --------------------------------------------------------------------------------------------------

    async def _server(self, exposition: Exposition, slices: Slices) -> AsyncIterator[bytes]:
        fields: dict[str, str] = {}
        for section in self._host.get(Info).sections:
            if section.name not in ("commandstats", "latencystats", "keysizes"):
                fields.update((name, value) for name, _, value in (line.partition(":") for line in section.lines()))
                await slices.breathe()
        names = {"version": "streamd_version", "redis_version": "redis_version", "role": "role", "run_id": "run_id"}
        yield exposition.samples(SERVER, [({label: fields[name] for label, name in names.items()}, 1)])
        for family in OF_INFO:
            if family.field in fields:
                yield exposition.samples(family, [({}, number(fields[family.field]) * family.scale)])
                await slices.breathe()
        databases = {
            name[2:]: parts(value) for name, value in fields.items() if name[:2] == "db" and name[2:].isdecimal()
        }
        for family in OF_DATABASE:
            values = (({"db": db}, number(told[family.field]) * family.scale) for db, told in databases.items())
            yield exposition.samples(family, values)
        replicas = [parts(value) for name, value in fields.items() if name[:5] == "slave" and name[5:].isdecimal()]
        for family in OF_REPLICA:
            yield exposition.samples(
                family,
                (
                    ({"address": f"{told['ip']}:{told['port']}", "state": told["state"]}, number(told[family.field]))
                    for told in replicas
                ),
            )
        codes = {
            name.removeprefix("errorstat_"): parts(value)
            for name, value in fields.items()
            if name.startswith("errorstat_")
        }
        yield exposition.samples(ERRORS, (({"code": code}, number(told["count"])) for code, told in codes.items()))

    async def _commands(self, exposition: Exposition, slices: Slices) -> AsyncIterator[bytes]:
        routes = self._host.dispatcher.routes.by_full_name
        failed, rejected = COMMAND
        yield exposition.samples(
            failed, (({"command": name}, route.failed_calls) for name, route in routes.items() if route.failed_calls)
        )
        yield exposition.samples(
            rejected,
            (({"command": name}, route.rejected_calls) for name, route in routes.items() if route.rejected_calls),
        )
        yield exposition.head(DURATION)
        for name, route in routes.items():
            if route.histogram is not None and route.histogram.count:
                yield histogram_lines(name, route.histogram, route.usec).encode()
                await slices.breathe()

    # --- Streams -----------------------------------------------------------------------------------------------------

    async def _read_streams(self, lines: Lines, slices: Slices) -> dict[str, int]:
        """Read the streams; the result says whether any were left out."""
        config = self._host.config
        await self._find_streams(slices)
        consumers_left, consumers_left_out = config.metrics_max_consumers, 0
        for index, key in list(self._known):
            database = self._host.databases[index]
            stream = None if database.is_overdue(key) else database.peek(key)
            if not isinstance(stream, Stream):
                self._known.pop((index, key), None)
                continue
            labels = f'{{db="{index}",stream="{escaped(key)}"'
            now_ms = int(time.time() * 1000)
            add_stream(lines, labels, StreamState(
                key=key, length=stream.length, entries_added=stream.entries_added, first_id=None,
                last_id=stream.last_entry_id, bytes=stream.memory_usage(),
            ))  # fmt: skip
            for group in list(stream.groups.values()):
                state = state_of(stream, group, now_ms, consumers_left)
                consumers_left -= len(state.consumers)
                consumers_left_out |= len(state.consumers) < state.consumer_count
                often = (
                    group.count_delivered_above(config.metrics_max_deliveries, PENDING_LOOKED_AT)
                    if state.pending
                    else 0
                )
                add_group(lines, f'{labels},group="{escaped(group.name)}"', state, often, now_ms)
                await slices.breathe()
            await slices.breathe()
        return {"streams": int(self._has_more), "consumers": int(consumers_left_out)}

    async def _find_streams(self, slices: Slices) -> None:
        """Look for the streams that the settings ask for. They stay known, in the order in which they were found."""
        config = self._host.config
        glob, most = Glob(config.metrics_streams.encode("utf-8", "surrogateescape")), config.metrics_max_streams
        for index, key in list(self._known):
            if not glob.match(key) or len(self._known) > most:
                del self._known[index, key]
        self._has_more = False
        databases = [database for database in self._host.databases if len(database)]
        left = KEYS_PER_SCRAPE
        for database, cursor in self._round(databases):
            while left > 0:
                cursor, slots = database.slots(cursor, KEYS_PER_STEP)
                left -= KEYS_PER_STEP
                for slot in slots:
                    place = database.index, slot.key
                    if isinstance(slot.value, Stream) and place not in self._known and glob.match(slot.key):
                        if len(self._known) >= most:
                            self._has_more = True
                        else:
                            self._known[place] = None
                await slices.breathe()
                self._scanned = database.index, cursor
                if not cursor:
                    break

    def _round(self, databases: list[Database]) -> Iterator[tuple[Database, int]]:
        """The databases from where the last scrape has stopped, each with the cursor to begin with."""
        index, cursor = self._scanned
        later = [database for database in databases if database.index >= index]
        for database in [*later, *(each for each in databases if each.index < index)]:
            yield database, cursor if database.index == index else 0


def number(text: str) -> float:
    """A value of INFO; integers stay integers."""
    if text in WORDS:
        return WORDS[text]
    return float(text) if "." in text else int(text)


def parts(text: str) -> Mapping[str, str]:
    return dict(each.split("=", 1) for each in text.split(",") if "=" in each)


def histogram_lines(command: str, histogram: Histogram, usec: int) -> str:
    """The samples of a command: how many calls took at most so long, the time of all, and how many there were."""
    label = f'{{command="{escaped(command)}"'
    counts = dict(histogram.cumulative())
    seen = 0
    lines = []
    for bound in BOUNDS_US:
        seen = counts.get(bound, seen)
        lines.append(f'{DURATION.name}_bucket{label},le="{bound / 1e6!r}"}} {seen}\n')
    lines.append(f'{DURATION.name}_bucket{label},le="+Inf"}} {histogram.count}\n')
    lines.append(f"{DURATION.name}_count{label}}} {histogram.count}\n")
    lines.append(f"{DURATION.name}_sum{label}}} {usec / 1e6!r}\n")
    return "".join(lines)


def state_of(stream: Stream, group: Group, now_ms: int, most_consumers: int) -> GroupState:
    """A group as it is, with the first of its consumers."""
    consumers = group.consumers
    return GroupState(
        name=group.name,
        last_delivered=group.last_delivered_id,
        entries_read=group.entries_read if group.entries_read >= 0 else None,
        lag=lag(stream, group),
        next_id=next_unread(stream, group),
        pending=group.pending_count,
        oldest_pending=group.oldest_pending_id,
        consumer_count=len(consumers),
        consumers=[
            ConsumerState(each.name, group.pending_count_of(each.name), now_ms - each.seen_ms)
            for each in list(consumers.values())[:most_consumers]
        ] if most_consumers > 0 else [],
    )  # fmt: skip


def add_stream(lines: Lines, labels: str, state: StreamState) -> None:
    of = lines.of
    of[STREAM["entries"]].append(f"streamd_stream_entries{labels}}} {state.length}\n")
    of[STREAM["memory"]].append(f"streamd_stream_memory_bytes{labels}}} {state.bytes}\n")
    of[STREAM["added"]].append(f"streamd_stream_entries_added_total{labels}}} {state.entries_added}\n")
    of[STREAM["removed"]].append(
        f"streamd_stream_entries_removed_total{labels}}} {state.entries_added - state.length}\n"
    )
    if state.last_id is not None and state.last_id[0] >= EARLIEST_MS:
        of[STREAM["last"]].append(
            f"streamd_stream_last_entry_timestamp_seconds{labels}}} {state.last_id[0] / 1000!r}\n"
        )


def add_group(lines: Lines, labels: str, state: GroupState, often: int, now_ms: int) -> None:
    of = lines.of
    lag_s, oldest_s = state.lag_s(now_ms), state.oldest_pending_s(now_ms)
    if state.lag is not None:
        of[GROUP["lag"]].append(f"streamd_group_lag_entries{labels}}} {state.lag}\n")
    if lag_s is not None:
        of[GROUP["lag_s"]].append(f"streamd_group_lag_seconds{labels}}} {lag_s!r}\n")
    if state.entries_read is not None:
        of[GROUP["read"]].append(f"streamd_group_entries_read_total{labels}}} {state.entries_read}\n")
    of[GROUP["pending"]].append(f"streamd_group_pending_entries{labels}}} {state.pending}\n")
    if oldest_s is not None:
        of[GROUP["oldest"]].append(f"streamd_group_oldest_pending_seconds{labels}}} {oldest_s!r}\n")
    of[GROUP["often"]].append(f"streamd_group_often_delivered_entries{labels}}} {often}\n")
    of[GROUP["consumers"]].append(f"streamd_group_consumers{labels}}} {state.consumer_count}\n")
    for consumer in state.consumers:
        own = f'{labels},consumer="{escaped(consumer.name)}"'
        of[CONSUMER["pending"]].append(f"streamd_consumer_pending_entries{own}}} {consumer.pending}\n")
        seen_s = (now_ms - consumer.idle_ms) / 1000
        of[CONSUMER["seen"]].append(f"streamd_consumer_last_seen_timestamp_seconds{own}}} {seen_s!r}\n")
