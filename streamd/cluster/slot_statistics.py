"""SlotStatistics: what CLUSTER SLOT-STATS reports of each slot (cluster-slot-stats-enabled).

Requests are counted for the slot of their first key. Memory is not counted with each change, but measured by a walk over all keys, some in
each cron step, so that the figures of a large node are some seconds old.
"""

from __future__ import annotations

from array import array

from streamd.cluster.cluster import Cluster
from streamd.cluster.routing import Routing
from streamd.core.capability import Capability
from streamd.core.client import Client
from streamd.core.host import Host
from streamd.core.route import Route
from streamd.errors import ConfigError
from streamd.integers import INT64_MAX
from streamd.keyspace.hash_slot import SLOTS, slot_of

__all__ = ["METRICS", "SlotStatistics"]

METRICS = ("key-count", "memory-bytes", "cpu-usec", "network-bytes-in", "network-bytes-out")
"""In the order of replies."""
KEYS_AT_A_TIME = 2000
"""Keys whose memory is measured in one cron step."""


def zeros() -> array[int]:
    return array("q", bytes(8 * SLOTS))


class SlotStatistics(Capability):
    """
    metrics  those that are reported; none before the settings are applied for the first time
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._config = host.config
        self._routing = host.get(Routing)
        self._cluster = host.get(Cluster)
        self.rests = not self._cluster.is_on
        self.metrics: tuple[str, ...] = ()
        self._memory = self._measured = zeros()
        self._cursor = 0
        self.reset_statistics()

    def apply_settings(self) -> None:
        given = set(self._config.cluster_slot_stats_enabled)
        has_all = "yes" in given
        wanted = {"key-count"}
        if has_all or "mem" in given:
            wanted.add("memory-bytes")
        if has_all or "cpu" in given:
            wanted.add("cpu-usec")
        if has_all or "net" in given:
            wanted |= {"network-bytes-in", "network-bytes-out"}
        if self._cluster.is_on and self.metrics and "memory-bytes" in wanted - {*self.metrics}:
            raise ConfigError("cluster-slot-stats-enabled", "memory tracking cannot be enabled at runtime")
        self.metrics = tuple(name for name in METRICS if name in wanted)
        counts = self._cluster.is_on and not wanted.isdisjoint({"cpu-usec", "network-bytes-in"})
        self.slow_us = 0 if counts else INT64_MAX

    def reset_statistics(self) -> None:
        self._cpu_us, self._bytes_in, self._bytes_out = zeros(), zeros(), zeros()

    def command_took(self, client: Client, route: Route, args: list[bytes], took_us: int) -> int:
        slot = self._routing.slot_of_request(route, args)
        if slot >= 0:
            self._cpu_us[slot] += took_us
            self._bytes_in[slot] += sum(len(arg) + len(str(len(arg))) + 5 for arg in args) + len(str(len(args))) + 3
            if not self._host.dispatcher.context.in_transaction:
                self._bytes_out[slot] += self._host.dispatcher.reply_size
        return 0

    def cron(self, now_ms: int) -> None:
        """Measure the memory of some keys; when all were met, the new figures are complete."""
        if "memory-bytes" not in self.metrics or not self._cluster.is_on:
            return
        db = self._host.databases[0]
        if not self._cursor:
            self._measured = zeros()
        self._cursor, records = db.records(self._cursor, KEYS_AT_A_TIME)
        for record in records:
            self._measured[slot_of(record.key)] += db.key_memory(record.key)
        if not self._cursor:
            self._memory = self._measured

    def value(self, metric: str, slot: int) -> int:
        """A figure of a slot."""
        if metric == "key-count":
            return self._host.databases[0].count_in_slot(slot)
        counters = {
            "memory-bytes": self._memory, "cpu-usec": self._cpu_us, "network-bytes-in": self._bytes_in,
            "network-bytes-out": self._bytes_out,
        }  # fmt: skip
        return counters[metric][slot]

    def describe(self, slot: int) -> dict[bytes, int]:
        """All figures of a slot."""
        return {metric.encode(): self.value(metric, slot) for metric in self.metrics}
