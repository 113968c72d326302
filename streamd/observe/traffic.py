"""Traffic: what the dispatcher has counted, and rates and peaks of the last seconds, for INFO."""

from __future__ import annotations

import time
from operator import attrgetter

from streamd.core.capability import Capability
from streamd.core.host import Host
from streamd.core.info import Field, Fields, ratio
from streamd.observe.rates import Rate, RecentMost

__all__ = ["Traffic"]


class Traffic(Capability):
    """The dispatcher's counters, and samples of them.

    recent_input   bytes of requests not yet run, maximum of one client
    recent_output  bytes of unsent replies, maximum of one client
    rates          of the last samples: commands, kB read and kB written per second, turns per second, us of one
    """

    info = {
        "clients": (
            Fields(
                "client_recent_max_input_buffer client_recent_max_output_buffer",
                lambda self: (self.recent_input.most, self.recent_output.most),
            ),
        ),
        "threads": (Field("io_thread_0", lambda self: self.dispatcher.thread_text()),),
        "stats": (
            Fields(
                "total_commands_processed total_net_input_bytes total_net_output_bytes unexpected_error_replies"
                " total_error_replies total_reads_processed total_writes_processed client_query_buffer_limit_disconnections"
                " client_output_buffer_limit_disconnections eventloop_cycles eventloop_duration_sum eventloop_duration_cmd_sum"
                " total_client_processing_events commands_per_parse_batch_sum commands_per_parse_batch_cnt"
                " commands_per_parse_batch_avg",
                lambda self: self.dispatcher.counters(),
            ),
            Fields(
                "instantaneous_ops_per_sec instantaneous_input_kbps instantaneous_output_kbps"
                " instantaneous_eventloop_cycles_per_sec instantaneous_eventloop_duration_usec",
                attrgetter("rates"),
            ),
            Field("io_threaded_reads_processed", 0),
            Field("io_threaded_writes_processed", 0),
            Field("io_threaded_total_prefetch_batches", 0),
            Field("io_threaded_total_prefetch_entries", 0),
            Field("reply_buffer_shrinks", 0),
            Field("reply_buffer_expands", 0),
        ),
    }

    def __init__(self, host: Host) -> None:
        self.dispatcher = host.dispatcher
        self.recent_input = RecentMost()
        self.recent_output = RecentMost()
        self.reset_statistics()

    def reset_statistics(self) -> None:
        self.ops_per_second, self.input_rate, self.output_rate = Rate(), Rate(), Rate()
        self.turn_rate, self.turn_time_rate = Rate(), Rate()
        self.find_rates()

    def cron(self, now_ms: int) -> None:
        now = time.monotonic()
        dispatcher = self.dispatcher
        self.ops_per_second.sample(now, dispatcher.total_commands)
        self.input_rate.sample(now, dispatcher.net_input_bytes)
        self.output_rate.sample(now, dispatcher.net_output_bytes)
        self.turn_rate.sample(now, dispatcher.turns)
        self.turn_time_rate.sample(now, dispatcher.turns_us)
        most_input, most_output = dispatcher.take_peaks()
        self.recent_input.sample(now, most_input)
        self.recent_output.sample(now, most_output)
        self.find_rates()

    def find_rates(self) -> None:
        turns = self.turn_rate.per_second()
        self.rates = (
            int(self.ops_per_second.per_second()),
            self.input_rate.per_second() / 1024,
            self.output_rate.per_second() / 1024,
            int(turns),
            int(ratio(self.turn_time_rate.per_second(), turns)),
        )
