"""What the archiver and the history reader ask of the server, over one connection."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from streamd.arrow.decode import EntryDecoder
from streamd.arrow.entry_table import TableLayout
from streamd.client.client_errors import MissingStreamError, ServerError
from streamd.client.connection import Connection
from streamd.client.key_names import stream_key
from streamd.client.points import MAX_ID, format_entry_id, parse_entry_id
from streamd.client.stream_info import StreamInfo
from streamd.client.url_options import ConnectionOptions
from streamd.transfer.ranges import read_range

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["find_entry_above", "find_state", "has_entry", "need_state", "read_entries"]

FETCH = 2_000
BATCH = 10_000


def find_state(connection: Connection, stream: str) -> StreamInfo | None:
    """What XINFO STREAM says, or None when there is no such stream."""
    try:
        return StreamInfo.parse(connection.command("XINFO", "STREAM", stream_key(stream)))
    except ServerError as error:
        if error.is_missing_key:
            return None
        raise


def need_state(connection: Connection, stream: str) -> StreamInfo:
    """As `find_state`. Raises MissingStreamError when there is no such stream."""
    state = find_state(connection, stream)
    if state is None:
        raise MissingStreamError(stream)
    return state


def has_entry(connection: Connection, stream: str, number: int) -> bool:
    text = format_entry_id(number)
    return bool(connection.command("XRANGE", stream_key(stream), text, text))


def find_entry_above(connection: Connection, stream: str, number: int) -> int | None:
    """The ID of the first entry above an ID."""
    if number >= MAX_ID:
        return None
    found = connection.command("XRANGE", stream_key(stream), format_entry_id(number + 1), "+", "COUNT", 1)
    return parse_entry_id(found[0][0]) if found else None


def read_entries(
    options: ConnectionOptions,
    stream: str,
    low: int,
    high: int,
    table: TableLayout,
    *,
    fetch_size: int = FETCH,
    batch_rows: int = BATCH,
    limit: int | None = None,
    connection: Connection | None = None,
) -> Iterator[pa.RecordBatch]:
    """The entries with IDs in [low, high] as record batches, in order; `limit` of them at most.

    connection  the one to use; None: a connection of its own
    """
    key = stream_key(stream)
    return read_range(
        options,
        EntryDecoder(table, key),
        key,
        low,
        high,
        fetch_size=fetch_size,
        batch_rows=batch_rows,
        limit=limit,
        connection=connection,
    )
