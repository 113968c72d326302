"""`streamd archive run`."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import click

from streamd.cli.archive_words import duration_option, positive_duration_option, size_text
from streamd.cli.one_line import errors_in_one_line, say
from streamd.cli.server_options import collect_options, with_server_options
from streamd.printable import in_one_line, key_in_one_line

__all__ = ["run"]

Progress = Callable[[str, str], None]


@click.command()
@click.argument("path", type=click.Path())
@click.argument("named", metavar="[KEY]...", nargs=-1)
@click.option(
    "--stream", "streams", multiple=True, metavar="KEY", help="Archive this stream, like KEY; may be repeated."
)
@click.option("--pattern", metavar="GLOB", help="Archive the streams whose keys match.")
@duration_option("--keep", default="1d", help="Archive only entries older than this.")
@duration_option(
    "--trim-delay", default="15m", help="Keep archived entries on the server for this time, for slow readers."
)
@click.option("--trim/--no-trim", default=True, help="Trim archived entries.  [default: trim]")
@click.option("--ignore-group", multiple=True, metavar="NAME", help="Trim entries that this group has not read.")
@click.option("--allow-gaps", is_flag=True, help="Continue although entries were trimmed before they were archived.")
@click.option(
    "--accept-server", is_flag=True, help="Continue although the server does not seem to be the one that was archived."
)
@click.option(
    "--primary", metavar="URL",
    help="If the server is a replica: the primary, where entries are trimmed.  [default: the one that the replica reports]",
)  # fmt: skip
@click.option(
    "--check", "depth", type=click.Choice(["ids", "content"]), default="ids", show_default=True,
    help="Compare files with the server this thoroughly before a commit.",
)  # fmt: skip
@duration_option("--lock-ttl", default="60s", help="Let another run take over after this time without a renewal.")
@duration_option("--wait", default="0s", help="Wait this long for another run.")
@click.option(
    "--publish", multiple=True, type=click.Choice(["iceberg", "delta"]),
    help="Maintain an open table from now on, as `archive publish` does; may be repeated.",
)  # fmt: skip
@positive_duration_option("--every", help="Repeat the run at this interval until SIGTERM.  [default: run once]")
@click.option(
    "--metrics-file", type=click.Path(dir_okay=False), metavar="PATH",
    help="After each run, write metrics to this file, for the textfile collector of Prometheus's node_exporter.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print a report as JSON, and no progress.")
@with_server_options
def run(
    path: str,
    named: tuple[str, ...],
    streams: tuple[str, ...],
    pattern: str | None,
    keep: int,
    trim_delay: int,
    trim: bool,
    ignore_group: tuple[str, ...],
    allow_gaps: bool,
    accept_server: bool,
    primary: str | None,
    depth: Any,
    lock_ttl: int,
    wait: int,
    publish: tuple[str, ...],
    every: int | None,
    metrics_file: str | None,
    as_json: bool,
    **server: Any,
) -> None:
    """Move entries older than --keep from the streams KEY into the archive at PATH.

    PATH is created if it does not exist. A run may be killed at any point; the next one cleans up. Exit status: 0 all
    streams are archived, 1 some are not (the report gives the reasons), 2 wrong command line.

    With --every, run as a service: report what was archived and what failed, and try again in the next round. SIGTERM ends it after
    the current step, with status 0, or with 1 if the server does not answer.
    """
    streams = named + streams
    if bool(streams) == bool(pattern):
        raise click.UsageError("give either streams or --pattern")
    if every is not None and accept_server:
        raise click.UsageError("--accept-server is a decision about one run: omit --every")
    if every is not None and wait:
        raise click.UsageError("--wait is not needed with --every: the next round tries again")
    options = collect_options(server)
    options |= {"streamPattern": pattern} if pattern else {"streams": json.dumps(streams)}
    with errors_in_one_line():
        keep_little_memory()
        from streamd.archive.archiver import ArchiveSettings, archive
        from streamd.archive.open_format import TableConfig

        settings = ArchiveSettings(
            hot_window_ms=keep,
            trim=trim,
            trim_delay_ms=trim_delay,
            ignored_groups=frozenset(ignore_group),
            allow_gaps=allow_gaps,
            accept_server=accept_server,
            primary=primary,
            depth=depth,
            lock_ttl_ms=max(lock_ttl, 1),
            lock_wait_ms=wait,
            publish=tuple(map(TableConfig, publish)),
            every_ms=every,
        )
        after_round = metrics_writer(metrics_file, path, options, settings)
        if every is not None:
            serve(path, options, settings, after_round, as_json=as_json)
            return
        with shown(enabled=not as_json) as progress, round_told(after_round) as reports:
            report = archive(path, options, settings=settings, progress=progress)
            reports.append(report)
        if as_json:
            say(json.dumps(report.to_json()))
        else:
            print_report(report)
    sys.exit(0 if report.is_success else 1)


def keep_little_memory() -> None:
    """Have all libraries return what they free: otherwise a service that keeps tables has a third more memory."""
    from streamd.heap import keep_little

    keep_little()
    # Read when the libraries are loaded. Arrow's own pools keep what is free, and cost a tenth more CPU time.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    # deltalake's own allocator keeps what is free, too, for each of many threads.
    os.environ.setdefault("_RJEM_MALLOC_CONF", "narenas:1,tcache:false,dirty_decay_ms:0,muzzy_decay_ms:0")
    os.environ.setdefault("TOKIO_WORKER_THREADS", "1")


def metrics_writer(file: str | None, path: str, options: dict[str, str], settings: Any) -> Any:
    """What is called with each Round; None if no metrics are wanted."""
    if file is None:
        return None
    from streamd.archive.metrics_file import MetricsFile

    return MetricsFile(
        file, path, options, ignored_groups=settings.ignored_groups, every_ms=settings.every_ms
    ).write  # fmt: skip


@contextmanager
def round_told(after_round: Any) -> Iterator[list[Any]]:
    """Call `after_round`, unless it is None, when a block ends, which adds its report to a list unless it fails."""
    started = time.monotonic()
    reports: list[Any] = []
    try:
        yield reports
    finally:
        if after_round is not None:
            from streamd.archive.run_outcome import Round

            seconds = time.monotonic() - started
            made = [each.to_round(seconds) for each in reports]
            after_round(*made or [Round(time.time(), seconds, failed=True)])


def serve(path: str, options: dict[str, str], settings: Any, after_round: Any, *, as_json: bool) -> None:
    """Archive until SIGTERM; print a line for what was archived and what failed, or a line of JSON for each round."""
    from streamd.archive.service import ArchiveService
    from streamd.cli.stop_signal import StopSignal

    def tell_failure(text: str) -> None:
        say(json.dumps({"is_success": False, "error": text}) if as_json else stamped(in_one_line(text)))

    def give_up(text: str) -> None:
        tell_failure(text)
        # Not sys.exit, which waits for what the server has not answered.
        os._exit(1)

    def tell_round(report: Any) -> None:
        if as_json:
            say(json.dumps(report.to_json()))
            return
        for each in report.streams:
            if each.status != "nothing" or each.trimmed or each.warnings:
                for line in lines_of(each):
                    say(stamped(line))

    with StopSignal() as stop:
        ArchiveService(
            path, options, settings, stop=stop, tell_round=tell_round, tell_failure=tell_failure, after_round=after_round,
            give_up=give_up,
        ).run()  # fmt: skip


def stamped(text: str) -> str:
    return f"{datetime.now(UTC).isoformat(timespec='seconds')} {text}"


@contextmanager
def shown(*, enabled: bool) -> Iterator[Progress | None]:
    """A progress bar for each stream, on a terminal; otherwise nothing."""
    from rich.console import Console

    console = Console(stderr=True)
    if not enabled or not console.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    with Bars(
        SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.fields[step]}"),
        TimeElapsedColumn(), console=console,
    ) as bars:  # fmt: skip
        tasks: dict[str, Any] = {}

        def progress(stream: str, step: str) -> None:
            if stream not in tasks:
                for task in tasks.values():
                    bars.stop_task(task)
                tasks[stream] = bars.add_task(key_in_one_line(stream), total=1.0, step=step)
            bars.update(tasks[stream], completed=BEFORE[step], step=step)

        yield progress


BEFORE = {"connect": 0.0, "recover": 0.0, "copy": 0.02, "verify": 0.68, "commit": 0.88, "trim": 0.9, "tidy": 0.98}
"""The approximate share of a stream's run that is done before each step."""


def print_report(report: Any) -> None:
    if report.read_from is not None:
        say(f"read from the replica {report.read_from}")
    for each in report.streams:
        for line in lines_of(each):
            say(line)


def lines_of(report: Any) -> Iterator[str]:
    """What a run did with a stream."""
    if report.status == "archived":
        text = f"{report.rows:,} entries up to {report.high} in {report.files} files, {size_text(report.bytes)}"
    else:
        text = report.error or f"nothing to archive above {report.high}"
    text += f"; {report.trimmed:,} trimmed" if report.trimmed else ""
    yield f"{key_in_one_line(report.stream)}: {text} ({report.seconds:.1f} s)"
    for group, until in report.held_by.items():
        yield f"  group {key_in_one_line(group)} still needs what is above {until}"
    for warning in report.warnings:
        yield f"  warning: {warning}"
