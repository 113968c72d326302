"""History: figures of the server and of its values over the last hour, for the charts of the console.

Samples are taken every `EVERY_S`, in slices between which clients are served, and only if there is a console. Series of at most
`SAMPLES` figures end with the last sample; those of what was created later are shorter.
"""

from __future__ import annotations

import math
import time
from array import array
from collections.abc import Mapping
from typing import Any, TypeAlias

from streamd.core.host import Host
from streamd.core.slices import Slices
from streamd.keyspace.value_type import registered_types
from streamd.observe.info_report import Info

__all__ = ["FIGURES", "History", "Series", "add"]

EVERY_S = 10
SAMPLES = 360

FIGURES = (
    "total_commands_processed", "total_net_input_bytes", "total_net_output_bytes", "used_memory", "connected_clients",
    "blocked_clients",
)  # fmt: skip
"""Fields of INFO that are kept."""
SECTIONS = ("clients", "memory", "stats")

Series: TypeAlias = "array[float]"


class History:
    """The last hour.

    times    of the samples, Unix seconds
    server   the figures of FIGURES, by name, as long as `times`
    values   the samples that types of value take (ValueType.history), by name
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._next_s = 0.0
        self._is_sampling = False
        self.times: Series = array("d")
        self.server: dict[str, Series] = {name: array("d") for name in FIGURES}
        found = {each.name: each.history(host) for each in registered_types()}
        self.values: dict[bytes, Any] = {name: each for name, each in found.items() if each is not None}

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
            for each in self.values.values():
                await each.sample(slices)
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


def add(series: Series, value: float) -> None:
    """Append a figure, and drop the oldest one when there are too many."""
    series.append(value)
    if len(series) > SAMPLES:
        del series[0]
