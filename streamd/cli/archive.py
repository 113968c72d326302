"""`streamd archive run | status | verify | restore | delete | publish | schema`."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import click

from streamd.cli.archive_publish import publish
from streamd.cli.archive_run import run
from streamd.cli.archive_schema import schema
from streamd.cli.archive_words import duration_option, positive_duration_option, size_text
from streamd.cli.one_line import errors_in_one_line, say
from streamd.cli.progress_bar import bar
from streamd.cli.server_options import collect_options, with_server_options
from streamd.printable import in_one_line, key_in_one_line, key_text

__all__ = ["group"]


@click.group()
def group() -> None:
    """Move old entries to Parquet files, and restore them."""


group.add_command(run)
group.add_command(publish)
group.add_command(schema)


# --- status ---------------------------------------------------------------------------------------------------------------


@group.command()
@click.argument("path", type=click.Path())
@click.argument("streams", nargs=-1)
@click.option("--offline", is_flag=True, help="Read only the archive; do not connect to a server.")
@positive_duration_option("--max-age", help="Fail if no run over a stream has succeeded within this time.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@with_server_options
def status(
    path: str, streams: tuple[str, ...], offline: bool, max_age: int | None, as_json: bool, **server: Any
) -> None:
    """Show how far STREAMS (default: all) are archived at PATH, how many entries are not, and which groups or readers prevent trimming.

    Exit status: 0 the state is shown, 1 archive or server cannot be read, or, with --max-age, a stream on the server was not archived
    within that time, 2 wrong command line.
    """
    options = collect_options(server)
    if offline and max_age is not None:
        raise click.UsageError("--max-age needs the server, which knows the last runs: omit --offline")
    with errors_in_one_line():
        from streamd.archive.status import read_status

        found = read_status(path, None if offline else options, list(streams) or None)
        if as_json:
            say(json.dumps([each.to_json() for each in found]))
        else:
            print_status(found)
    late = [each for each in found if max_age is not None and each.is_late(max_age)]
    for each in late:
        say(f"{key_in_one_line(each.stream)}: {lateness(each)}", err=True)
    sys.exit(1 if late else 0)


def lateness(status: Any) -> str:
    """Why a stream is late."""
    run = status.last_run
    if run is None:
        return "the server knows no run into this archive"
    since = (
        "no run has succeeded"
        if status.success_age_ms is None
        else f"the last run that succeeded ended {status.success_age_ms / 1000:,.0f} s ago"
    )
    return f"{since}; the last run failed: {in_one_line(run.error)}" if run.has_failed else since


def print_status(found: list[Any]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(
        "stream", "archived to", "entries", "files", "size", "last run", "on server", "behind", "waits", "held by"
    )
    for each in found:
        held = [*map(key_text, each.held_by), *(["readers"] if each.held_by_readers else [])]
        if each.locked_by:
            held.append(f"run {each.locked_by.get('run')}")
        table.add_row(
            Text(key_in_one_line(each.stream)),
            each.boundary,
            f"{each.rows:,}",
            str(each.files),
            size_text(each.bytes),
            "" if each.archived_at_ms is None else time.strftime("%F %T", time.localtime(each.archived_at_ms / 1000)),
            "" if each.on_server is None else f"{each.on_server:,}",
            "" if each.behind_entries is None else f"{each.behind_entries:,}",
            "" if each.behind_ms is None else f"{each.behind_ms / 1000:,.0f} s",
            Text(in_one_line(", ".join(held))),
        )
    Console(width=None if sys.stdout.isatty() else 200).print(table)
    for each in found:
        if each.fault is not None:
            say(f"warning: {key_in_one_line(each.stream)}: {in_one_line(each.fault)}")


# --- verify ---------------------------------------------------------------------------------------------------------------


@group.command()
@click.argument("path", type=click.Path())
@click.argument("streams", nargs=-1)
@click.option("--quick", is_flag=True, help="Check manifests and sizes, not every byte and ID.")
@click.option("--live", is_flag=True, help="Also compare each entry that the server still holds.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, and no progress.")
@with_server_options
def verify(path: str, streams: tuple[str, ...], quick: bool, live: bool, as_json: bool, **server: Any) -> None:
    """Verify that the archive at PATH is complete and unchanged. Exit status: 0 valid, 1 not valid."""
    options = collect_options(server)
    if options and not live:
        raise click.UsageError("no server is needed without --live")
    with errors_in_one_line():
        from streamd.archive.layout import Layout
        from streamd.archive.manifest_log import ManifestLog, archived_streams
        from streamd.archive.same_stream import live_faults
        from streamd.archive.verify import verify_archive
        from streamd.client.url_options import ConnectionOptions

        layout = Layout(path)
        layout.check()
        archived = archived_streams(layout)
        for stream in sorted(set(streams).difference(archived)):
            ManifestLog.read_archived(layout, stream)
        verdicts = []
        for stream in streams or archived:
            with bar(stream, None, is_wanted=not as_json) as progress:
                verdicts.append(verify_archive(layout, stream, quick=quick, progress=progress))
            if live:
                verdicts[-1].faults += live_faults(ConnectionOptions.parse(options), layout, stream)
    if as_json:
        say(json.dumps([each.to_json() for each in verdicts]))
    else:
        for each in verdicts:
            say(
                f"{key_in_one_line(each.stream)}: {'valid' if each.is_whole else 'NOT valid'}; {each.rows:,} entries, "
                f"{each.files} files, {size_text(each.bytes)}, {each.manifests} manifests"
            )
            for fault in each.faults:
                say(f"  {fault}")
            for stranger in each.strangers:
                say(f"  {stranger} belongs to no manifest; the next run removes it")
    sys.exit(0 if all(each.is_whole for each in verdicts) else 1)


# --- restore --------------------------------------------------------------------------------------------------------------


@group.command()
@click.argument("path", type=click.Path())
@click.argument("stream")
@click.option("--into", required=True, metavar="KEY", help="The stream to append to; usually a new key.")
@click.option("--since", metavar="WHEN", help="Start: an ID, a time (2026-01-31T12:00Z), or -1h.  [default: the start]")
@click.option("--until", metavar="WHEN", help="End: an ID (included) or a time (excluded).  [default: the end]")
@click.option("--resume", is_flag=True, help="Continue after the last ID of KEY.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, and no progress.")
@with_server_options
def restore(
    path: str,
    stream: str,
    into: str,
    since: str | None,
    until: str | None,
    resume: bool,
    as_json: bool,
    **server: Any,
) -> None:
    """Append archived entries of STREAM to a stream, with their IDs."""
    options = collect_options(server)
    with errors_in_one_line():
        from streamd.archive.restore import restore as put_back

        low, high = parse_range(since, until)
        with bar(into, None, unit="entries", is_wanted=not as_json) as progress:
            report = put_back(
                path, stream, options, into=into, low=low, high=high, resume=resume, progress=progress
            )  # fmt: skip
    if as_json:
        say(json.dumps(report.to_json()))
    else:
        say(
            f"{report.rows:,} entries into {key_in_one_line(into)}"
            + (f", {report.first} to {report.last}" if report.rows else "")
        )


# --- delete ---------------------------------------------------------------------------------------------------------------


@group.command()
@click.argument("path", type=click.Path())
@click.argument("stream")
@click.option("--id", "ids", multiple=True, metavar="ID", help="Delete this entry; may be repeated.")
@click.option(
    "--ids-from",
    type=click.File(),
    metavar="FILE",
    help="Delete the entries in FILE, one ID per line; - for standard input.",
)
@click.option("--since", metavar="WHEN", help="Start of a range: an ID, a time (2026-01-31T12:00Z), or -1h.")
@click.option("--until", metavar="WHEN", help="End of a range: an ID (included) or a time (excluded).")
@click.option("--archive-only", is_flag=True, help="Do not change the server; it may have lost the stream.")
@click.option("--dry-run", is_flag=True, help="Only count the entries.")
@click.option("--yes", is_flag=True, help="Do not request a confirmation.")
@duration_option("--wait", default="0s", help="Wait this long for a running archiver.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, and no progress; needs --yes or --dry-run.")
@with_server_options
def delete(
    path: str,
    stream: str,
    ids: tuple[str, ...],
    ids_from: Any,
    since: str | None,
    until: str | None,
    archive_only: bool,
    dry_run: bool,
    yes: bool,
    wait: int,
    as_json: bool,
    **server: Any,
) -> None:
    """Delete entries of STREAM permanently: from the archive at PATH, whose files are rewritten, and from the server."""
    options = collect_options(server)
    named = [*ids, *((line.strip() for line in ids_from if line.strip()) if ids_from else ())]
    if not named and since is None and until is None:
        raise click.UsageError("nothing to delete: give --id, --ids-from, --since or --until")
    if as_json and not (yes or dry_run):
        raise click.UsageError("--json needs --yes or --dry-run")
    with errors_in_one_line():
        from streamd.archive.delete import delete as delete_entries
        from streamd.archive.delete import fixed_ranges

        ranges = [parse_whole_id(each) for each in named]
        if since is not None or until is not None:
            ranges.append(parse_range(since, until))
        # Exactly what was counted is deleted: not what arrives while the question waits for its answer.
        ranges = fixed_ranges(stream, options, ranges)

        def run(*, is_trial: bool) -> Any:
            with bar(stream, None, unit="entries", is_wanted=not as_json) as progress:
                return delete_entries(
                    path, stream, options, ranges, archive_only=archive_only, is_trial=is_trial, lock_wait_ms=wait,
                    progress=progress,
                )  # fmt: skip

        if not (yes or dry_run):
            found = run(is_trial=True)
            click.confirm(
                f"Delete {found.archived:,} archived entries and {found.on_server:,} on the server permanently?",
                abort=True,
            )
        report = run(is_trial=dry_run)
    if as_json:
        say(json.dumps(report.to_json()))
    else:
        outcome = "would be deleted" if dry_run else "deleted"
        say(
            f"{key_in_one_line(stream)}: {report.archived:,} archived entries in {report.files} files, and {report.on_server:,} on the "
            f"server, {outcome}"
        )


def parse_whole_id(text: str) -> tuple[int, int]:
    """The range of a single ID, written in full."""
    from streamd.client.points import parse_entry_id

    try:
        number = parse_entry_id(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is not an entry ID: {error}") from None
    if "-" not in text:
        raise click.BadParameter(f"{text!r} is not an entry ID: write it in full, {text}-0")
    return number, number


def parse_range(since: str | None, until: str | None) -> tuple[int, int]:
    """The IDs [low, high] between two points, each an ID or a time."""
    from streamd.client.points import MAX_ID, MIN_ID

    now_ms = int(time.time() * 1000)
    low = MIN_ID if since is None else parse_when(since, now_ms, is_end=False)
    high = MAX_ID if until is None else parse_when(until, now_ms, is_end=True)
    return low, high


def parse_when(text: str, now_ms: int, *, is_end: bool) -> int:
    from streamd.transfer.read_options import Bound

    # Anything in the form of an ID is one; a bare number is a time in ms, which is also the ID of its millisecond.
    try:
        return Bound("id", text).resolve(now_ms, is_end=is_end)
    except ValueError:
        pass
    try:
        return Bound("time", text).resolve(now_ms, is_end=is_end)
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is neither an ID nor a time: {error}") from None
