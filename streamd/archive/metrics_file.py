"""Metrics of an archive for Prometheus, in a file that node_exporter's textfile collector reads.

An archiver writes it after each run over the streams: a process that runs for a minute has no port that could be scraped. The file is
replaced atomically, and tells what `archive status` tells (status.py), plus what the runs that this process made have left in its memory
where the server does not answer: a lag is left out then, but not when the last run succeeded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, InfoMetricFamily, Metric

from streamd.archive.layout import Layout
from streamd.archive.manifest_log import archived_streams
from streamd.archive.run_outcome import Round
from streamd.archive.status import StreamStatus, read_status
from streamd.client.archive_runs import ArchiveRun
from streamd.disk import replace_file
from streamd.errors import StreamdError
from streamd.printable import key_text

__all__ = ["MetricsFile"]


class MetricsFile:
    """The file with the metrics of one archive.

    path            of the file
    archive         the archive's path
    options         where the server is, as for `archive`
    ignored_groups  groups that hold up no trim
    every_ms        how often runs are repeated; None: nobody has said
    """

    def __init__(
        self,
        path: str,
        archive: str,
        options: Mapping[str, str],
        *,
        ignored_groups: frozenset[str] = frozenset(),
        every_ms: int | None = None,
    ) -> None:
        self._path = path
        self._archive = archive
        self._options = {name: value for name, value in options.items() if name not in ("streams", "streamPattern")}
        self._ignored = ignored_groups
        self._every_ms = every_ms
        self._runs: dict[str, ArchiveRun] = {}  # the last ones over each stream that were seen

    def write(self, last: Round) -> None:
        """Replace the file. Raises OSError."""
        statuses = self._read(last.streams)
        self._runs.update((each.stream, each.last_run) for each in statuses if each.last_run is not None)
        replace_file(self._path, generate_latest(Families([*self._families(last, statuses)])))

    def _read(self, found: Iterable[str]) -> list[StreamStatus]:
        """The state of the streams of the archive, and of others that a run has found, as far as it can be read."""
        for options in (self._options, None):
            with suppress(StreamdError, OSError):
                streams = sorted({*archived_streams(Layout(self._archive)), *found})
                return read_status(self._archive, options, streams) if streams else []
        return []

    def _families(self, last: Round, statuses: list[StreamStatus]) -> Iterator[Metric]:
        yield gauge("last_run_timestamp_seconds", "When the last run over all streams ended.", last.at_s)
        yield gauge("last_run_duration_seconds", "How long it took.", last.seconds)
        yield gauge("last_run_failed", "Whether some stream was not archived.", int(last.failed))
        if self._every_ms is not None:
            yield gauge("interval_seconds", "How often runs are repeated.", self._every_ms / 1000)
        yield from archived(statuses)
        yield from self._held(statuses)
        yield from ended(self._runs)

    def _held(self, statuses: list[StreamStatus]) -> Iterator[Metric]:
        yield samples(
            "stream_held_by_group", "A group that still needs archived entries, which therefore are not trimmed.", ("stream", "group"),
            (
                ((each.stream, group), 1)
                for each in statuses
                for group in each.held_by
                if group not in self._ignored
            ),
        )  # fmt: skip
        yield per_stream(
            "stream_held_by_readers", "Whether archived entries are not trimmed because somebody reads them.",
            ((each.stream, int(each.held_by_readers is not None)) for each in statuses if each.on_server is not None),
        )  # fmt: skip


class Families:
    """What prometheus_client takes for a registry."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def archived(statuses: list[StreamStatus]) -> Iterator[Metric]:
    """What is in the archive, and what is not yet."""
    yield per_stream("stream_rows", "Archived entries.", ((each.stream, each.rows) for each in statuses))
    yield per_stream("stream_files", "Files that hold them.", ((each.stream, each.files) for each in statuses))
    yield per_stream("stream_bytes", "Size of these files.", ((each.stream, each.bytes) for each in statuses))
    yield per_stream(
        "stream_lag_entries", "Entries of the stream that are not archived yet, also those that are not old enough.",
        ((each.stream, each.behind_entries) for each in statuses),
    )  # fmt: skip
    yield per_stream(
        "stream_lag_seconds", "How long the first of them has been in the stream.",
        ((each.stream, None if each.behind_ms is None else each.behind_ms / 1000) for each in statuses),
    )  # fmt: skip
    yield per_stream(
        "stream_refused", "Whether the stream of the server is not the archived one, or has a gap, so that runs refuse it.",
        ((each.stream, int(each.fault is not None)) for each in statuses if each.on_server is not None),
    )  # fmt: skip


def ended(runs: Mapping[str, ArchiveRun]) -> Iterator[Metric]:
    """How runs over streams ended."""
    for name, text, moments in (
        ("success", "succeeded", {stream: run.success_ms for stream, run in runs.items()}),
        ("failure", "failed", {stream: run.error_ms for stream, run in runs.items()}),
    ):
        yield per_stream(
            f"stream_last_{name}_timestamp_seconds", f"When a run over the stream last {text}, by the server's clock.",
            ((stream, None if moment is None else moment / 1000) for stream, moment in moments.items()),
        )  # fmt: skip
    yield per_stream(
        "stream_failing", "Whether the last run over the stream failed.",
        ((stream, int(run.has_failed)) for stream, run in runs.items()),
    )  # fmt: skip
    errors = InfoMetricFamily("streamd_archive_stream_last_error", "The kind of the last error.", labels=("stream",))
    for stream, run in runs.items():
        if run.error_kind is not None:
            errors.add_metric([key_text(stream)], {"kind": run.error_kind})
    yield errors


def gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"streamd_archive_{name}", text, value)


def samples(
    name: str, text: str, labels: tuple[str, ...], values: Iterable[tuple[tuple[str, ...], float | None]]
) -> Metric:
    """Values of streams; those that are None are unknown, and left out."""
    metric = GaugeMetricFamily(f"streamd_archive_{name}", text, labels=labels)
    for words, value in values:
        if value is not None:
            metric.add_metric([key_text(each) for each in words], value)
    return metric


def per_stream(name: str, text: str, values: Iterable[tuple[str, float | None]]) -> Metric:
    return samples(name, text, ("stream",), (((stream,), value) for stream, value in values))
