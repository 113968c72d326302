"""What a report finds out about a stream, and its forms for programs.

    collect(connection, stream, ...)   look at the stream, and watch its groups for a while: a Report
    render_json(report)                all of it as JSON
    write_tables(report, folder)       the same as Parquet files
    publish(connection, report, key)   the state of the groups, as entries of a stream

The shape of the stream (rate, gaps, numbers) may come from Spark instead (`profile`); the server is asked about groups in
any case, which is cheap.
"""

from __future__ import annotations

import dataclasses
import html
import json
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamd.client.connection import Connection, server_features
from streamd.client.key_names import stream_key
from streamd.client.points import MAX_ID, MIN_ID
from streamd.client.replies import clock_ms
from streamd.client.stream_info import StreamInfo
from streamd.report.groups import (
    Ack,
    DeadLetter,
    GroupLag,
    PendingEntry,
    Throughput,
    Watch,
    find_dead_letters,
)
from streamd.report.model import Findings
from streamd.report.page import render_html
from streamd.report.profile import Profile, find_numeric_fields, read_profile
from streamd.report.records import append_to_stream, write_parquet

__all__ = ["Report", "collect", "last_id", "publish", "render_json", "write_tables"]


@dataclass(frozen=True)
class BinRow:
    """A bin of the profile, as a row of a table."""

    start_ms: int
    width_ms: int
    entries: int
    per_second: float
    longest_gap_ms: int | None


@dataclass(frozen=True)
class Report(Findings):
    """Findings that a notebook displays as a page."""

    def _repr_html_(self) -> str:
        """For notebooks: the page in an iframe, since its style is for a whole page."""
        page = html.escape(render_html(self), quote=True)
        return f'<iframe srcdoc="{page}" sandbox="" style="width: 100%; height: 60rem; border: 0"></iframe>'


# --- Collecting -----------------------------------------------------------------------------------------------------------


def last_id(connection: Connection, stream: str) -> int:
    """The last ID of the stream: later entries have higher ones. Raises ServerError without a stream."""
    info = connection.command("XINFO", "STREAM", stream_key(stream))
    return StreamInfo.parse(info).last_generated


def collect(
    connection: Connection,
    stream: str,
    *,
    profile: Callable[[Sequence[str], int], Profile] | None = None,
    source: str = "read from the server",
    low: int = MIN_ID,
    high: int = MAX_ID,
    limit: int = 1_000_000,
    fields: Sequence[str] | None = None,
    groups: Iterable[str] | None = None,
    watch_s: float = 2.0,
    every_s: float = 0.1,
    above: int = 5,
    pending_limit: int = 100_000,
    progress: Callable[[int], object] = lambda entries: None,
) -> Report:
    """Find out about a stream. Takes `watch_s` if it has groups, plus the time to read its entries.

    profile   how to get the shape of the stream: called with the names of numeric fields and the last ID. The default reads
              the newest `limit` entries from `low` to `high`
    fields    numeric fields to show; None: those that are found
    groups    only these
    watch_s   how long to watch the groups, looking every `every_s`; 0: one look
    above     deliveries beyond which a pending entry is a dead letter
    progress  told after each page how many entries have been read
    Raises ServerError, for example when there is no such stream.
    """
    server = str(server_features(connection))
    high = min(high, last_id(connection, stream))
    names = find_numeric_fields(connection, stream, low=low, high=high) if fields is None else list(fields)
    if profile is not None:
        shape = profile(names, high)
    else:
        shape = read_profile(connection, stream, low=low, high=high, limit=limit, fields=names, progress=progress)
    watch = Watch(connection, stream, None if groups is None else tuple(groups), pending_limit=pending_limit)
    states = watch.look()
    end = time.monotonic() + watch_s
    while states and time.monotonic() + every_s < end:
        time.sleep(every_s)
        states = watch.look()
    clock, length = connection.pipeline([("TIME",), ("XLEN", stream_key(stream))])
    return Report(
        stream=stream,
        server=server,
        made_ms=clock_ms(clock),
        length=length,
        source=source,
        profile=shape,
        states=tuple(states),
        lags=tuple(watch.lags),
        acks=tuple(watch.acks),
        throughputs=tuple(watch.throughputs),
        dead_letters=tuple(find_dead_letters(connection, states, above=above)),
        above=above,
    )


# --- For programs ---------------------------------------------------------------------------------------------------------


def _tables(report: Report) -> list[tuple[str, type[Any], Sequence[Any]]]:
    width = report.profile.bin_ms
    bins = [
        BinRow(
            each.start_ms,
            width,
            each.entries,
            each.entries * 1000 / width,
            each.longest_gap.ms if each.longest_gap else None,
        )
        for each in report.profile.bins
    ]
    return [
        ("bins", BinRow, bins),
        ("groups", GroupLag, report.lags),
        ("throughput", Throughput, report.throughputs),
        ("pending", PendingEntry, [each for state in report.states for each in state.pending]),
        ("acks", Ack, report.acks),
        ("dead_letters", DeadLetter, report.dead_letters),
    ]


def write_tables(report: Report, folder: str | os.PathLike[str]) -> list[Path]:
    """Write a Parquet file for each kind of finding; return their paths."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    written = []
    for name, kind, records in _tables(report):
        path = Path(folder) / f"{name}.parquet"
        write_parquet(kind, records, path)
        written.append(path)
    return written


def publish(connection: Connection, report: Report, key: str, *, maxlen: int | None = None) -> int:
    """Append how each group stands, what it did, and its dead letters to a stream; return the number of entries."""
    newest = {each.group: each for each in report.throughputs}
    records = [*(state.lag for state in report.states), *newest.values(), *report.dead_letters]
    return append_to_stream(connection, key, records, maxlen=maxlen)


def render_json(report: Report) -> str:
    """All of the report; bytes as text, with a replacement character for what is not UTF-8."""

    def plain(value: Any) -> Any:
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {each.name: plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
        if isinstance(value, list | tuple):
            return [plain(each) for each in value]
        if isinstance(value, bytes):
            return value.decode(errors="replace")
        # Lone surrogates represent bytes that are not UTF-8; JSON files cannot hold them.
        return value.encode(errors="surrogateescape").decode(errors="replace") if isinstance(value, str) else value

    return json.dumps(plain(report), ensure_ascii=False, indent=1) + "\n"


# --- The page -------------------------------------------------------------------------------------------------------------
