"""A scrape: the metrics of a server, read in slices between which its clients are served.

The server's own metrics are read from the fields of INFO, those of commands from the command table, those of capabilities from
`Capability.metric_samples`, those of values by their types (ValueType.metrics), which bound what that costs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Protocol

from streamd.core.histogram import BOUNDS_US, Histogram
from streamd.core.host import Host
from streamd.core.slices import Slices
from streamd.keyspace.database import with_keys
from streamd.keyspace.value_type import registered_types
from streamd.observe.info_report import Info
from streamd.observe.metrics.exposition import Exposition, escaped
from streamd.observe.metrics.metric_families import (
    COMMAND,
    DURATION,
    ERRORS,
    KEYS_OF_TYPE,
    OF_DATABASE,
    OF_INFO,
    OF_REPLICA,
    OWN,
    SERVER,
    Family,
)

__all__ = ["Scraper", "ValueMetrics"]

LINES_AT_ONCE = 500

WORDS = {"ok": 1, "up": 1, "err": 0, "down": 0}
"""What INFO says instead of a number."""


class ValueMetrics(Protocol):
    """The metrics of the values of one type.

    left_out  what was not read in the last scrape, and how much of it
    """

    left_out: Mapping[str, int]

    async def read(self, slices: Slices) -> Mapping[Family, list[str]]:
        """The samples, by metric, as they are written."""


class Scraper:
    """Makes the text of scrapes, one at a time."""

    def __init__(self, host: Host) -> None:
        self._host = host
        found = [each.metrics(host) for each in registered_types()]
        self._sources: list[ValueMetrics] = [each for each in found if each is not None]
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
        left_out: dict[str, int] = {}
        for source in self._sources:
            lines = await source.read(slices)
            left_out |= source.left_out
            for family, found in lines.items():
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
        yield exposition.samples(
            KEYS_OF_TYPE,
            (
                ({"db": str(db.index), "type": each.name.decode()}, count)
                for db in with_keys(self._host.databases)
                for each in registered_types()
                if (count := sum(count for _, count in db.sizes_by_power(each)))
            ),
        )
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
        for capability in self._host.capabilities:
            for family, samples in capability.metric_samples():
                yield exposition.samples(family, samples)
                await slices.breathe()

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
