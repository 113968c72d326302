"""CommandStatistics: what INFO says of each command: calls, time, errors."""

from __future__ import annotations

from collections.abc import Iterator

from streamd.core.capability import Capability
from streamd.core.host import Host
from streamd.core.info import Lines, ratio
from streamd.observe.slowlog import SlowLog
from streamd.settings.kinds import Percentiles

__all__ = ["CommandStatistics"]

UNSAFE = str.maketrans("#:", "__")
"""What would not be understood in the name of a field."""


class CommandStatistics(Capability):
    """What is counted for each command, and each error."""

    info = {
        "commandstats": (Lines("commands", lambda self: self.command_lines()),),
        "errorstats": (Lines("errors", lambda self: self.error_lines() if self._dispatcher.errorstats else ()),),
        "latencystats": (Lines("percentiles", lambda self: self.latency_lines()),),
    }

    def __init__(self, host: Host) -> None:
        self._config = host.config
        self._dispatcher = host.dispatcher
        self._slowlog = host.get(SlowLog)

    def command_lines(self) -> Iterator[str]:
        for route in self._dispatcher.routes.used():
            name = route.command.full_name
            slow = self._slowlog.by_command.get(name)
            logged = (
                ""
                if slow is None
                else (
                    f",slowlog_count={slow.count},slowlog_time_ms_sum={slow.sum_us / 1000:.2f}"
                    f",slowlog_time_ms_max={slow.max_us / 1000:.2f}"
                )
            )
            yield (
                f"cmdstat_{name}:calls={route.calls},usec={route.usec},"
                f"usec_per_call={ratio(route.usec, route.calls):.2f},"
                f"rejected_calls={route.rejected_calls},failed_calls={route.failed_calls}{logged}"
            )

    def error_lines(self) -> Iterator[str]:
        """Errors answered, by their code."""
        for code, count in sorted(self._dispatcher.errorstats.items()):
            shown = code.translate(UNSAFE).encode("latin-1", "replace").decode("utf-8", "surrogateescape")
            yield f"errorstat_{shown}:count={count}"

    def latency_lines(self) -> Iterator[str]:
        """Percentiles of what each command took, in us."""
        if not self._config.latency_tracking:
            return
        wanted = self._config.latency_tracking_info_percentiles
        names = Percentiles().format(wanted).split()
        for route in self._dispatcher.routes.used():
            histogram = route.histogram
            if histogram is not None:
                values = (
                    f"p{text}={histogram.percentile_us(number):.3f}" for text, number in zip(names, wanted, strict=True)
                )
                yield f"latency_percentiles_usec_{route.command.full_name}:{','.join(values)}"
