"""What a report finds out about a stream: the shape of its entries, read from the server, or by the caller with an archive."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from typing import Any

from streamd.client.connection import Connection, server_features
from streamd.client.key_names import stream_key
from streamd.client.points import MAX_ID, MIN_ID
from streamd.client.replies import clock_ms
from streamd.client.stream_info import StreamInfo
from streamd.report.page import Report
from streamd.report.profile import Profile, find_numeric_fields, read_profile

__all__ = ["collect", "render_json"]


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
    progress: Callable[[int], object] = lambda entries: None,
) -> Report:
    """Find out about a stream.

    profile   how to get the shape of the stream: called with the names of numeric fields and the last ID. The default reads
              the newest `limit` entries from `low` to `high`
    fields    numeric fields to show; None: those that are found
    progress  told after each page how many entries have been read
    Raises ServerError, for example when there is no such stream.
    """
    clock, info = connection.pipeline([("TIME",), ("XINFO", "STREAM", stream_key(stream))])
    state = StreamInfo.parse(info)
    high = min(high, state.last_generated)  # later entries have higher IDs
    names = find_numeric_fields(connection, stream, low=low, high=high) if fields is None else list(fields)
    if profile is not None:
        shape = profile(names, high)
    else:
        shape = read_profile(connection, stream, low=low, high=high, limit=limit, fields=names, progress=progress)
    return Report(
        stream=stream,
        server=str(server_features(connection)),
        made_ms=clock_ms(clock),
        length=state.length,
        source=source,
        profile=shape,
    )


def render_json(report: Report) -> str:
    """All of the report, with a replacement character for what is not UTF-8 in names."""

    def text(value: Any) -> Any:
        # Lone surrogates represent bytes that are not UTF-8; JSON files cannot hold them.
        return value.encode(errors="surrogateescape").decode(errors="replace")

    found = dataclasses.asdict(report)
    found["stream"] = text(report.stream)
    found["profile"]["fields"] = [text(name) for name in report.profile.fields]
    return json.dumps(found, ensure_ascii=False, indent=1) + "\n"
