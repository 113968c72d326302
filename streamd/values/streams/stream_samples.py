"""Samples of streams for the last hour: entries added, and the lag of groups, see observe/last_hour.py.

Memory is bounded: SAMPLES times at most `STREAMS` streams with `GROUPS` groups each, 8 bytes per figure, are 6 MB.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field

from streamd.core.host import Host
from streamd.core.slices import Slices
from streamd.keyspace.database import Database
from streamd.observe.last_hour import Series, add
from streamd.values.streams.delivery import lag
from streamd.values.streams.stream import Stream

__all__ = ["StreamHistory", "StreamSeries"]

STREAMS = 300
GROUPS = 6
KEYS_PER_SAMPLE = 2000
KEYS_PER_STEP = 500


@dataclass
class StreamSeries:
    """Of a stream: entries added so far, and the lag of its first groups; not a number where it is unknown."""

    added: Series = field(default_factory=lambda: array("d"))
    lags: dict[bytes, Series] = field(default_factory=dict)


class StreamHistory:
    """The last hour of streams.

    streams  by database and key
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._scanned = (0, 0)
        self.streams: dict[tuple[int, bytes], StreamSeries] = {}

    async def sample(self, slices: Slices) -> None:
        """Take a sample of each stream that is known, and look for more."""
        await self._find_streams(slices)
        for (index, key), kept in list(self.streams.items()):
            stream = self._host.databases[index].peek(key)
            if type(stream) is Stream:
                add_stream(kept, stream)
            else:
                del self.streams[index, key]
            await slices.breathe()

    async def _find_streams(self, slices: Slices) -> None:
        """Look at some more keys, from where the last sample has stopped."""
        left = KEYS_PER_SAMPLE
        for database, cursor in self._round():
            while left > 0 and len(self.streams) < STREAMS:
                cursor, records = database.records(cursor, KEYS_PER_STEP)
                left -= KEYS_PER_STEP
                for record in records:
                    if record.type.value_class is Stream and len(self.streams) < STREAMS:
                        self.streams.setdefault((database.index, record.key), StreamSeries())
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


def add_stream(series: StreamSeries, stream: Stream) -> None:
    add(series.added, stream.entries_added)
    groups = list(stream.groups.values())[:GROUPS]
    names = {group.name for group in groups}
    for name in [name for name in series.lags if name not in names]:
        del series.lags[name]
    for group in groups:
        behind = lag(stream, group)
        add(series.lags.setdefault(group.name, array("d")), math.nan if behind is None else behind)
