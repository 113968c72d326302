# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Traffic: what the dispatcher has counted, and rates and peaks of the last seconds, for INFO."""

from libc.stdint cimport int64_t

from streamd.core.capability cimport Capability
from streamd.core.clock cimport monotonic_us
from streamd.core.dispatch cimport Dispatcher
from streamd.core.info cimport hundredths, numbers
from streamd.observe.rates cimport Rate, RecentMost

from streamd.core.info import Field, Lines

__all__ = ["Traffic"]


cdef int read_counters(object capability, int64_t *to) except -1:
    cdef Dispatcher dispatcher = (<Traffic>capability).dispatcher
    to[0], to[1], to[2] = dispatcher.total_commands, dispatcher.net_input_bytes, dispatcher.net_output_bytes
    to[3], to[4] = dispatcher.unexpected_errors, dispatcher.total_error_replies
    to[5], to[6] = dispatcher.total_reads, dispatcher.total_writes
    if dispatcher.io_threads is not None:
        to[6] += sum([writes for _, _, writes in (<Traffic>capability).by_thread()])
    to[7], to[8] = dispatcher.closed_for_input, dispatcher.closed_for_output
    to[9], to[10], to[11] = dispatcher.turns, dispatcher.turns_us, dispatcher.commands_us
    to[12], to[13], to[14] = dispatcher.processing_events, dispatcher.batched_commands, dispatcher.batches
    to[15] = hundredths(<double>to[13] / to[14]) if to[14] else 0
    return 0


cdef int read_done_by_threads(object capability, int64_t *to) except -1:
    to[0] = to[1] = 0
    if (<Traffic>capability).dispatcher.io_threads is not None:
        for _, reads, writes in (<Traffic>capability).by_thread():
            to[0] += reads
            to[1] += writes
    return 0


cdef int read_rates(object capability, int64_t *to) except -1:
    cdef Traffic traffic = <Traffic>capability
    cdef double turns = traffic.turn_rate.per_second()
    to[0] = <int64_t>traffic.ops_per_second.per_second()
    to[1] = hundredths(traffic.input_rate.per_second() / 1024)
    to[2] = hundredths(traffic.output_rate.per_second() / 1024)
    to[3] = <int64_t>turns
    to[4] = <int64_t>(traffic.turn_time_rate.per_second() / turns) if turns else 0
    return 0


cdef int read_peaks(object capability, int64_t *to) except -1:
    to[0], to[1] = (<Traffic>capability).recent_input.most(), (<Traffic>capability).recent_output.most()
    return 0


cdef class Traffic(Capability):
    """The dispatcher's counters, and samples of them.

    recent_input   bytes of requests not yet run, maximum of one client
    recent_output  bytes of unsent replies, maximum of one client
    """

    cdef Dispatcher dispatcher
    cdef list before                        # what the threads had done when statistics were last reset
    cdef readonly RecentMost recent_input
    cdef readonly RecentMost recent_output
    cdef readonly Rate ops_per_second
    cdef readonly Rate input_rate           # bytes per second
    cdef readonly Rate output_rate
    cdef readonly Rate turn_rate
    cdef readonly Rate turn_time_rate       # us per second

    info = {
        "clients": (numbers("client_recent_max_input_buffer client_recent_max_output_buffer", read_peaks),),
        "threads": (Lines("io_thread_0", lambda self: (<Traffic?>self).thread_lines()),),
        "stats": (
            numbers(
                "total_commands_processed total_net_input_bytes total_net_output_bytes unexpected_error_replies"
                " total_error_replies total_reads_processed total_writes_processed"
                " client_query_buffer_limit_disconnections client_output_buffer_limit_disconnections eventloop_cycles"
                " eventloop_duration_sum eventloop_duration_cmd_sum total_client_processing_events"
                " commands_per_parse_batch_sum commands_per_parse_batch_cnt commands_per_parse_batch_avg:hundredths",
                read_counters,
            ),
            numbers(
                "instantaneous_ops_per_sec instantaneous_input_kbps:hundredths instantaneous_output_kbps:hundredths"
                " instantaneous_eventloop_cycles_per_sec instantaneous_eventloop_duration_usec",
                read_rates,
            ),
            numbers("io_threaded_reads_processed io_threaded_writes_processed", read_done_by_threads),
            Field("io_threaded_total_prefetch_batches", 0),
            Field("io_threaded_total_prefetch_entries", 0),
            Field("reply_buffer_shrinks", 0),
            Field("reply_buffer_expands", 0),
        ),
    }

    def __init__(self, host not None):
        self.dispatcher = host.dispatcher
        self.recent_input, self.recent_output = RecentMost(), RecentMost()
        self.reset_statistics()

    def reset_statistics(self):
        self.ops_per_second, self.input_rate, self.output_rate = Rate(), Rate(), Rate()
        self.turn_rate, self.turn_time_rate = Rate(), Rate()
        self.before = []
        self.before = self.by_thread()

    def cron(self, long long now_ms):
        cdef double now = monotonic_us() / 1e6
        cdef Dispatcher dispatcher = self.dispatcher
        self.ops_per_second.sample(now, dispatcher.total_commands)
        self.input_rate.sample(now, dispatcher.net_input_bytes)
        self.output_rate.sample(now, dispatcher.net_output_bytes)
        self.turn_rate.sample(now, dispatcher.turns)
        self.turn_time_rate.sample(now, dispatcher.turns_us)
        most_input, most_output = dispatcher.take_peaks()
        self.recent_input.sample(now, most_input)
        self.recent_output.sample(now, most_output)

    cdef list by_thread(self):
        """What each thread but the loop's has done since statistics were reset: [(clients, reads, writes)]."""
        if self.dispatcher.io_threads is None:
            return []
        figures = self.dispatcher.io_threads.figures()
        before = self.before or [(0, 0, 0)] * len(figures)
        return [
            (clients, reads - reads_before, writes - writes_before)
            for (clients, reads, writes), (_, reads_before, writes_before) in zip(figures, before, strict=True)
        ]

    cdef list thread_lines(self):
        """What each thread for clients has done; the loop's is number 0."""
        cdef Dispatcher dispatcher = self.dispatcher
        clients, reads, others = len(dispatcher.clients), dispatcher.total_reads, []
        for its_clients, its_reads, its_writes in self.by_thread():
            clients, reads = clients - its_clients, reads - its_reads
            others.append(f"io_thread_{len(others) + 1}:clients={its_clients},reads={its_reads},writes={its_writes}")
        return [f"io_thread_0:clients={clients},reads={max(0, reads)},writes={dispatcher.total_writes}", *others]
