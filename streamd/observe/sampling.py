"""Sampling: rates and peaks of the last seconds, for INFO."""

from __future__ import annotations

import time

from streamd.core.capability import Capability
from streamd.core.host import Host
from streamd.observe.rates import Rate, RecentMost

__all__ = ["Sampling"]


class Sampling(Capability):
    """Samples of the dispatcher's counters.

    recent_input   bytes of requests not yet run, the most of one client
    recent_output  bytes of unsent replies, the most of one client
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self.recent_input = RecentMost()
        self.recent_output = RecentMost()
        self.reset_statistics()

    def reset_statistics(self) -> None:
        self.ops_per_second, self.input_rate, self.output_rate = Rate(), Rate(), Rate()
        self.turn_rate, self.turn_time_rate = Rate(), Rate()

    def cron(self, now_ms: int) -> None:
        now = time.monotonic()
        dispatcher = self._host.dispatcher
        self.ops_per_second.sample(now, dispatcher.total_commands)
        self.input_rate.sample(now, dispatcher.net_input_bytes)
        self.output_rate.sample(now, dispatcher.net_output_bytes)
        self.turn_rate.sample(now, dispatcher.turns)
        self.turn_time_rate.sample(now, dispatcher.turns_us)
        most_input, most_output = dispatcher.take_peaks()
        self.recent_input.sample(now, most_input)
        self.recent_output.sample(now, most_output)
