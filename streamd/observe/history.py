"""History: figures of the server and of its streams over the last hour, for the charts of the console.

Samples are taken every `EVERY_S`, in slices between which clients are served, and only if there is a console. Memory is bounded:
`SAMPLES` times at most `STREAMS` streams with `GROUPS` groups each, 8 bytes per figure, are 6 MB. Series end with the last sample;
those of a stream or group that was created later are shorter.
"""

from __future__ import annotations

import math
import time
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from streamd.core.host import Host
from streamd.core.slices import Slices
from streamd.engine.database import Database
from streamd.engine.delivery import lag
from streamd.engine.stream import Stream
from streamd.observe.info import Info

__all__ = ["FIGURES", "History", "StreamSeries"]

EVERY_S = 10
SAMPLES = 360
STREAMS = 300
GROUPS = 6
KEYS_PER_SAMPLE = 2000
KEYS_PER_STEP = 500

FIGURES = (
    "total_commands_processed", "total_net_input_bytes", "total_net_output_bytes", "used_memory", "connected_clients",
    "blocked_clients",
)  # fmt: skip
"""Fields of INFO that are kept."""
SECTIONS = ("clients", "memory", "stats")

Series: TypeAlias = "array[float]"


@dataclass
class StreamSeries:
    """Of a stream: entries added so far, and the lag of its first groups; not a number where it is unknown."""

    added: Series = field(default_factory=lambda: array("d"))
    lags: dict[bytes, Series] = field(default_factory=dict)


class History:
    """The last hour.

    times    of the samples, Unix seconds
    server   the figures of FIGURES, by name, as long as `times`
    streams  by database and key
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._scanned = (0, 0)
        self._next_s = 0.0
        self._is_sampling = False
        self.times: Series = array("d")
        self.server: dict[str, Series] = {name: array("d") for name in FIGURES}
        self.streams: dict[tuple[int, bytes], StreamSeries] = {}

    def each_second(self) -> None:
        """Take a sample if it is time."""
        now_s = time.monotonic()
        if now_s >= self._next_s and not self._is_sampling:
            self._next_s = now_s + EVERY_S
            self._is_sampling = True
            self._host.loop.create_task(self.sample())

    async def sample(self) -> None:
        try:
            slices = Slices()
            found = self._read_server()
            add(self.times, time.time())
            for name, series in self.server.items():
                add(series, found.get(name, math.nan))
            await slices.breathe()
            await self._find_streams(slices)
            for (index, key), kept in list(self.streams.items()):
                stream = self._host.databases[index].peek(key)
                if isinstance(stream, Stream):
                    add_stream(kept, stream)
                else:
                    del self.streams[index, key]
                await slices.breathe()
        finally:
            self._is_sampling = False

    def _read_server(self) -> Mapping[str, float]:
        found = {}
        for section in self._host.get(Info).sections:
            if section.name in SECTIONS:
                for line in section.lines():
                    name, _, value = line.partition(":")
                    if name in self.server:
                        found[name] = float(value)
        return found

    async def _find_streams(self, slices: Slices) -> None:
        """Look at some more keys, from where the last sample has stopped."""
        left = KEYS_PER_SAMPLE
        for database, cursor in self._round():
            while left > 0 and len(self.streams) < STREAMS:
                cursor, slots = database.slots(cursor, KEYS_PER_STEP)
                left -= KEYS_PER_STEP
                for slot in slots:
                    if isinstance(slot.value, Stream) and len(self.streams) < STREAMS:
                        self.streams.setdefault((database.index, slot.key), StreamSeries())
                await slices.breathe()
                self._scanned = database.index, cursor
                if not cursor:
                    break

    def _round(self) -> Iterator[tuple[Database, int]]:
        index, cursor = self._scanned
        databases = [database for database in self._host.databases if len(database)]
        later = [database for database in databases if database.index >= index]
        for database in [*later, *(each for each in databases if each.index < index)]:
            yield database, cursor if database.index == index else 0


def add(series: Series, value: float) -> None:
    series.append(value)
    if len(series) > SAMPLES:
        del series[0]


def add_stream(series: StreamSeries, stream: Stream) -> None:
    add(series.added, stream.entries_added)
    groups = list(stream.groups.values())[:GROUPS]
    names = {group.name for group in groups}
    for name in [name for name in series.lags if name not in names]:
        del series.lags[name]
    for group in groups:
        behind = lag(stream, group)
        add(series.lags.setdefault(group.name, array("d")), math.nan if behind is None else behind)
