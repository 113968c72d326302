"""What may ail the archives of streams, by what archivers note on the server (client/archive_runs.py). Each check yields findings."""

from __future__ import annotations

from collections.abc import Iterator

from streamd.client.archive_runs import ArchiveRun, runs_key
from streamd.client.key_names import stream_key, stream_name
from streamd.entry_id import format_id, parse_id
from streamd.printable import in_one_line
from streamd.stream_state import StreamState, is_time
from streamd.watching.case import Case
from streamd.watching.findings import Finding, duration, word

__all__ = ["ARCHIVE_CHECKS"]

LATE_RUNS = 3
"""So many usual times may pass without a success ..."""
LATE_S = 60.0
"""... and this one."""
GAP = "DataLossError"
"""The error of a run that has found that entries had gone before they were archived."""


def runs(case: Case) -> Iterator[tuple[StreamState, ArchiveRun]]:
    for key, found in case.archive_runs.items():
        for run in found:
            yield case.look.streams[key], run


def success_s(case: Case, run: ArchiveRun) -> float | None:
    """How long ago a run succeeded; None: never."""
    return None if run.success_ms is None else max(0, case.look.now_ms - run.success_ms) / 1000


def is_late(case: Case, run: ArchiveRun) -> bool:
    """Whether no run has succeeded for longer than usual."""
    since_s = success_s(case, run)
    if run.usual_ms is None:
        return False
    return since_s is None or since_s > LATE_RUNS * run.usual_ms / 1000 + LATE_S


def last_success(case: Case, run: ArchiveRun) -> str:
    since_s = success_s(case, run)
    return "No run has succeeded" if since_s is None else f"The last run that succeeded ended {duration(since_s)} ago"


def end_of(stream: StreamState) -> str:
    """What to do where a stream is not to be archived any more."""
    return f"# DEL {word(runs_key(stream_name(stream.key)).encode())}   if it is no longer to be archived"


def failing(case: Case) -> Iterator[Finding]:
    """Streams over which the last run has failed."""
    for stream, run in runs(case):
        if not run.has_failed:
            continue
        is_gap, archive = run.error_kind == GAP, in_one_line(run.archive)
        yield Finding(
            "critical" if is_gap or is_late(case, run) else "warning",
            "archive-gap" if is_gap else "archive-fails",
            f"stream {word(stream.key)}, archive {archive}",
            f"{last_success(case, run)}; the last one failed: {in_one_line(run.error or '')}.",
            "Entries were trimmed or deleted before they were archived; nothing is archived and trimmed until that is accepted."
            if is_gap
            else "Nothing is archived and trimmed: the stream grows, or others trim it and its history has a gap.",
            (
                f"# streamd archive run {archive} --stream {word(stream.key)} --allow-gaps   accepts the gap"
                if is_gap
                else f"# streamd archive status {archive} {word(stream.key)}",
                end_of(stream),
            ),
            success_s(case, run) or 0.0,
            {"error": run.error, "error_kind": run.error_kind, "success_s": success_s(case, run)},
        )


def late(case: Case) -> Iterator[Finding]:
    """Streams over which no run has succeeded for longer than usual, though none has failed."""
    for stream, run in runs(case):
        if run.has_failed or not is_late(case, run):
            continue
        usual_s, since_s = (run.usual_ms or 0) / 1000, success_s(case, run)
        yield Finding(
            "warning",
            "archive-late",
            f"stream {word(stream.key)}, archive {in_one_line(run.archive)}",
            f"{last_success(case, run)}; usually runs are {duration(usual_s)} apart.",
            "The archiver does not run, or does not find the stream: the stream grows, or others trim it and its history has a gap.",
            ("# is the service, or the timer, still running, and does its pattern match the stream?", end_of(stream)),
            since_s or 0.0,
            {"success_s": since_s, "usual_s": usual_s},
        )


def held(case: Case) -> Iterator[Finding]:
    """Groups that need entries much older than the last archived one, which therefore stay in memory."""
    for stream, run in runs(case):
        boundary = parse_id(run.boundary.encode())
        if (
            boundary is None
            or stream.first_id is None
            or stream.first_id > boundary
            or not is_time(boundary[0], case.look.now_ms)
        ):
            continue
        for group in stream.groups:
            needed = max(group.done_before, stream.first_id)
            held_s = (boundary[0] - needed[0]) / 1000
            if group.name not in map(stream_key, run.held_by) or needed > boundary or held_s < case.thresholds.held_s:
                continue
            yield Finding(
                "warning",
                "archive-held",
                f"stream {word(stream.key)}, group {word(group.name)}",
                f"The stream is archived up to {run.boundary}; the group needs entries from {format_id(*needed).decode()} on,"
                f" which are {duration(held_s)} older.",
                "Entries that a group has not acknowledged are not trimmed: they stay in memory though they are archived.",
                (
                    f"XINFO CONSUMERS {word(stream.key)} {word(group.name)}",
                    f"# start its consumers, or archive with --ignore-group {word(group.name)}",
                ),
                held_s,
                {"held_s": held_s, "boundary": run.boundary},
            )


ARCHIVE_CHECKS = (failing, late, held)
