"""Reading and scanning a range of one stream: the loops around the compiled decoder.

    read_range(...)   the entries as record batches, one XRANGE at a time, the next one requested before a batch is returned
    scan_range(...)   the same without rows: how many, how many bytes, and the IDs where it can be cut

If a connection breaks, it is opened again, and reading continues after the last complete entry: no entry twice, none lost.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamd.arrow.decode import EntryDecoder
from streamd.client.client_errors import ServerError, UnreachableError
from streamd.client.connection import TEMPORARY_CODES, Attempts, Connection, connect, pack_command
from streamd.client.points import MAX_ID, format_entry_id
from streamd.client.url_options import ConnectionOptions
from streamd.transfer.collector_pause import made_paused

if TYPE_CHECKING:
    import pyarrow

__all__ = ["RangeScan", "read_range", "scan_range"]

BATCH_BYTES = 32 * 1024 * 1024
"""Bytes of replies after which a batch is returned, however few rows it has."""


SIZING_STEP = 500
"""Entries between the marks of a scan for a limit in bytes."""


class RangeReader:
    """Feeds a decoder with the entries of [start, end] of a stream, up to `limit` of them; owns its connection.

    connection  an open one to start with (it remains the caller's), or None
    asks_ahead  the next request is sent before the rows of the last reply are returned; without it, reading may stop
                after any reply, with nothing outstanding
    """

    def __init__(
        self,
        options: ConnectionOptions,
        decoder: EntryDecoder,
        stream: bytes,
        start: int,
        end: int,
        *,
        fetch_size: int,
        limit: int | None = None,
        connection: Connection | None = None,
        asks_ahead: bool = True,
    ) -> None:
        self.decoder = decoder
        self._asks_ahead = asks_ahead
        self._options = options.at_key(stream)
        self._stream = stream
        self._next = start
        self._end = end
        self._fetch_size = fetch_size
        self._limit = limit
        self._given = None if connection is None else connection.at(stream)
        self._connection = self._given
        self.is_at_end = start > end  # all of the range was seen
        self._asked = 0  # COUNT of the outstanding request; 0: none is outstanding

    def fill(self, is_enough: Callable[[], bool]) -> bool:
        """Receive until the decoder has enough; False at the end of the range. Reconnects when the connection breaks."""
        attempts = Attempts(self._options)
        entries = self.decoder.total_entries
        while True:
            try:
                return self._fill(is_enough)
            except UnreachableError as failure:
                error: UnreachableError | ServerError = failure
            except ServerError as failure:
                if failure.code not in TEMPORARY_CODES:
                    raise
                error = failure
            if self.decoder.total_entries != entries:
                attempts.reset()
                entries = self.decoder.total_entries
            self._forget_connection()
            if not attempts.wait():
                raise error

    def _fill(self, is_enough: Callable[[], bool]) -> bool:
        decoder = self.decoder
        while True:
            if not self._asked and (self.is_at_end or not self._ask()):
                return False
            connection = self._connection
            if connection is None:
                raise UnreachableError("the connection is gone")
            is_whole = decoder.advance(connection.receive(decoder.space()))
            if is_whole:
                self.is_at_end = decoder.reply_entries < self._asked
                self._asked = 0
                if decoder.total_entries:
                    self._next = decoder.last_id + 1
                self.is_at_end = self.is_at_end or self._next > self._end
                if self.is_at_end:
                    return False
                if not self._asks_ahead and is_enough():
                    return True
                if not self._ask():
                    return False
            if self._asks_ahead and is_enough():
                return True

    def _ask(self) -> bool:
        """Send the next request; False when nothing is left to read."""
        count = self._fetch_size
        if self._limit is not None:
            count = min(count, self._limit - self.decoder.total_entries)
        if self._next > self._end or count <= 0:
            return False
        if self._connection is None:
            self._connection = connect(self._options)
        end = b"+" if self._end == MAX_ID else format_entry_id(self._end)
        request = pack_command((b"XRANGE", self._stream, format_entry_id(self._next), end, b"COUNT", count))
        self._connection.socket_send(request)
        self._asked = count
        return True

    def _forget_connection(self) -> None:
        self.close()
        self._given = None
        self._asked = 0
        self.decoder.reset()
        if self.decoder.total_entries:
            self._next = self.decoder.last_id + 1

    def close(self) -> None:
        """Close the connection, unless it is the caller's and nothing is outstanding on it."""
        if self._connection is not None and (self._connection is not self._given or self._asked):
            self._connection.close()
        self._connection = None


def read_range(
    options: ConnectionOptions,
    decoder: EntryDecoder,
    stream: bytes,
    start: int,
    end: int,
    *,
    fetch_size: int = 2_000,
    batch_rows: int = 10_000,
    limit: int | None = None,
    connection: Connection | None = None,
) -> Generator[pyarrow.RecordBatch]:
    """The entries of a range, in order, as record batches of about `batch_rows` rows; none when it is empty.

    start, end  inclusive, as 128-bit numbers
    limit       maximum number of entries
    connection  used when given, and left open
    """
    reader = RangeReader(
        options, decoder, stream, start, end, fetch_size=fetch_size, limit=limit, connection=connection
    )

    def is_batch() -> bool:
        return decoder.rows >= batch_rows or decoder.row_bytes >= BATCH_BYTES

    def batches() -> Generator[pyarrow.RecordBatch]:
        try:
            while reader.fill(is_batch):
                yield decoder.take()
            if decoder.rows:
                yield decoder.take()
        finally:
            reader.close()

    return made_paused(batches())


@dataclass(frozen=True)
class RangeScan:
    """What a range holds.

    count, bytes       entries, and their bytes as replies on the wire
    first_id, last_id  of the entries found; -1 if none were
    marks              IDs of the entries 0, every, 2*every ...
    mark_bytes         bytes before each of these
    is_complete        the whole range was seen, not only up to the limit
    """

    count: int
    bytes: int
    first_id: int
    last_id: int
    marks: list[int]
    mark_bytes: list[int]
    is_complete: bool


def scan_range(
    options: ConnectionOptions,
    stream: bytes,
    start: int,
    end: int,
    *,
    every: int = 0,
    limit: int | None = None,
    max_bytes: int | None = None,
    fetch_size: int = 2_000,
    connection: Connection | None = None,
) -> RangeScan:
    """Scan a range without building rows: about 0.1 us of Python and 0.35 us of server for an entry.

    every      note an ID every so many entries
    limit      stop after this number of entries
    max_bytes  stop before the entry that would exceed it, but not before the first; the scan may read a little further
    """
    step = every or (SIZING_STEP if max_bytes is not None else 0)
    decoder = EntryDecoder(None, stream, every=step)
    reader = RangeReader(
        options,
        decoder,
        stream,
        start,
        end,
        fetch_size=fetch_size,
        limit=limit,
        connection=connection,
        asks_ahead=max_bytes is None,
    )
    try:
        reader.fill(lambda: max_bytes is not None and decoder.total_bytes > max_bytes)
    finally:
        reader.close()
    count, size, last_id = decoder.total_entries, decoder.total_bytes, decoder.last_id
    marks, mark_bytes = decoder.marks, decoder.mark_bytes
    if max_bytes is not None and size > max_bytes:
        # The marks show roughly where the limit is; only the last steps before it are scanned entry by entry. mark_bytes[n]
        # are the bytes of the entries before mark n, so the mark before the last one that fits is kept.
        at = max(0, bisect_right(mark_bytes, max_bytes) - 2)
        sizes = EntryDecoder(None, stream, every=1)
        reader = RangeReader(
            options, sizes, stream, marks[at], last_id, fetch_size=fetch_size, limit=2 * step, connection=connection
        )
        try:
            reader.fill(lambda: False)
        finally:
            reader.close()
        ids, ends = sizes.marks, [*sizes.mark_bytes[1:], sizes.total_bytes]
        fits = max(1, bisect_right(ends, max_bytes - mark_bytes[at]))
        if ids and at * step + fits < count:
            count, size, last_id = at * step + fits, mark_bytes[at] + ends[fits - 1], ids[fits - 1]
    kept = -(-count // every) if every else 0
    is_complete = reader.is_at_end and count == decoder.total_entries
    return RangeScan(count, size, decoder.first_id, last_id, marks[:kept], mark_bytes[:kept], is_complete)
