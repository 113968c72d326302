# cython: language_level=3, boundscheck=False, wraparound=False
"""CommandStatistics: what INFO says of each command: calls, time, errors."""

from streamd.core.capability cimport Capability
from streamd.core.dispatch cimport Dispatcher
from streamd.core.histogram cimport Histogram
from streamd.core.info import Lines
from streamd.core.route cimport Route
from streamd.observe.slowlog import SlowLog
from streamd.settings.kinds import Percentiles

__all__ = ["CommandStatistics"]

UNSAFE = str.maketrans("#:", "__")
"""What would not be understood in the name of a field."""


cdef class CommandStatistics(Capability):
    """What is counted for each command, and each error."""

    cdef object config
    cdef Dispatcher dispatcher
    cdef object slowlog         # SlowLog

    info = {
        "commandstats": (Lines("commands", lambda self: (<CommandStatistics?>self).command_lines()),),
        "errorstats": (Lines("errors", lambda self: (<CommandStatistics?>self).error_lines()),),
        "latencystats": (Lines("percentiles", lambda self: (<CommandStatistics?>self).latency_lines()),),
    }

    def __init__(self, host not None):
        self.config = host.config
        self.dispatcher = host.dispatcher
        self.slowlog = host.get(SlowLog)

    cdef list command_lines(self):
        cdef Route route
        cdef str name, logged
        cdef list lines = []
        by_command = self.slowlog.by_command
        for route in self.dispatcher.routes.used():
            name = route.command.full_name
            slow = by_command.get(name)
            logged = (
                ""
                if slow is None
                else (
                    f",slowlog_count={slow.count},slowlog_time_ms_sum={slow.sum_us / 1000:.2f}"
                    f",slowlog_time_ms_max={slow.max_us / 1000:.2f}"
                )
            )
            lines.append(
                f"cmdstat_{name}:calls={route.calls},usec={route.usec},"
                f"usec_per_call={<double>route.usec / route.calls if route.calls else 0.0:.2f},"
                f"rejected_calls={route.rejected_calls},failed_calls={route.failed_calls}{logged}"
            )
        return lines

    cdef list error_lines(self):
        """Errors answered, by their code."""
        cdef str code
        cdef list lines = []
        if not self.dispatcher.errorstats:
            return lines
        for code, count in sorted(self.dispatcher.errorstats.items()):
            shown = code.translate(UNSAFE).encode("latin-1", "replace").decode("utf-8", "surrogateescape")
            lines.append(f"errorstat_{shown}:count={count}")
        return lines

    cdef list latency_lines(self):
        """Percentiles of what each command took, in us."""
        cdef Route route
        cdef Histogram histogram
        cdef double number
        cdef list lines = []
        if not self.config.latency_tracking:
            return lines
        wanted = self.config.latency_tracking_info_percentiles
        names = Percentiles().format(wanted).split()
        for route in self.dispatcher.routes.used():
            histogram = route.histogram
            if histogram is not None:
                values = ",".join([
                    f"p{text}={histogram.value_at(number) / 1000.0:.3f}" for text, number in zip(names, wanted)
                ])
                lines.append(f"latency_percentiles_usec_{route.command.full_name}:{values}")
        return lines
