"""Exactly once by a marker, at `<markerPrefix><query>:<partition>`, which is moved in the transaction of each chunk:

    7 4000 9f3c2a11              of batch 7, 4000 rows are written; CRC-32 of their requests
    7 4000 9f3c2a11 3998,3999    these two of them were refused, and are still to be written

Rows come in the same order whenever a batch is repeated, so it does not matter which attempt of a task wrote them. Two
attempts that run at the same time (one was given up, but has not noticed) take turns: when the other attempt has moved
the marker, the transaction fails, and this attempt continues where the other is. An attempt that finds the marker of a
later batch stops. A batch that is repeated with other rows is detected by the CRC, and is an error instead of a loss; the sink
of Spark finds it before the first row (journal.py).
"""

from __future__ import annotations

import dataclasses
import re
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from streamd.client.client_errors import DeliveryError, ServerError
from streamd.client.connection import Connection, Link, Request, pack_command
from streamd.client.key_names import stream_key
from streamd.transfer.batch_rows import BatchRows
from streamd.transfer.chunk_delivery import MULTI, Delivery, find_refused
from streamd.transfer.task import Task
from streamd.transfer.write_options import SinkOptions

__all__ = ["Marked", "Marker", "marker_key"]


@dataclass(frozen=True)
class Marker:
    """How far the rows of a partition are written; its text form is at the head of the file."""

    batch: int
    rows: int = 0
    crc: int = 0
    missing: tuple[int, ...] = ()

    def to_bytes(self) -> bytes:
        missing = " " + ",".join(map(str, self.missing)) if self.missing else ""
        return f"{self.batch} {self.rows} {self.crc:08x}{missing}".encode()

    @classmethod
    def parse(cls, key: bytes, raw: bytes | None) -> Marker:
        """Raises DeliveryError for a value that was not written by this module."""
        if raw is None:
            return cls(-1)
        found = re.fullmatch(rb"(\d+) (\d+) ([0-9a-f]{8})(?: ([\d,]+))?", raw)
        if found is None:
            raise DeliveryError(
                f"key {key.decode(errors='backslashreplace')} should hold a marker, but holds something else"
            )
        missing = tuple(map(int, found[4].split(b","))) if found[4] else ()
        return cls(int(found[1]), int(found[2]), int(found[3], 16), missing)


def marker_key(options: SinkOptions, task: Task) -> bytes:
    return stream_key(f"{options.marker_prefix}{task.query}:{task.partition}")


class Marked(Delivery):
    """Exactly once by a marker; see the head of the file."""

    def __init__(self, options: SinkOptions, task: Task, link: Link, marker_ttl_ms: int | None) -> None:
        super().__init__(options, task, link)
        self._key = marker_key(options, task)
        self._ttl = () if marker_ttl_ms is None else ("PX", marker_ttl_ms)
        self._arming = pack_command(("WATCH", self._key)) + pack_command(("GET", self._key)) + MULTI
        self._arming_count = 3
        self._marker = Marker(-1)  # the server's state
        self._row = 0  # rows of the partition that are written, by this attempt or another
        self._first_crc = 0  # where the CRC begins, in the marker, too
        self._crc = 0  # of their requests
        self._refused: set[int] = set()  # rows that the marker counts, though they were refused
        self._checked: set[bytes] = set()  # keys that are streams, or nothing yet

    def begin(self, streams: Iterable[bytes], agree: Callable[[], int]) -> None:
        """Prepare for rows of these streams: check them, then learn from `agree` with which CRC the marker begins."""
        self.link.ask(lambda connection: self._settle(connection))
        self.link.ask(lambda connection: self._check_streams(connection, [*streams]))
        self._first_crc = self._crc = agree()

    def _take_arming(self, connection: Connection, replies: list[Any]) -> None:
        self._marker = Marker.parse(self._key, replies[1])
        super()._take_arming(connection, replies)

    def _write(self, connection: Connection, rows: BatchRows, start: int, stop: int) -> int:
        self._note_missing(connection)
        self._check_streams(connection, [*rows.streams(start, stop)])
        while True:
            self._arm(connection)
            marker = self._of_this_batch()
            if marker.rows > self._row:
                stop = min(stop, start + marker.rows - self._row)
            data = rows.encode(start, stop)
            crc = zlib.crc32(data, self._crc)
            if marker.rows > self._row:
                is_done = self._pass_over(connection, rows, start, stop, crc, marker)
            else:
                is_done = self._append(connection, rows, start, stop, data, crc, marker)
            if is_done:
                self._row += stop - start
                self._crc = crc
                return stop

    def _of_this_batch(self) -> Marker:
        """The marker, or what it would be at the start of this batch. Raises DeliveryError when it is beyond both."""
        marker, batch = self._marker, self._task.batch
        if marker.batch > batch:
            raise DeliveryError(
                f"partition {self._task.partition} of batch {batch} is overtaken: marker {self._name} is of batch "
                f"{marker.batch}. If the checkpoint was restored on purpose, delete the markers of the query"
            )
        if marker.batch < batch:
            marker = Marker(batch)
        if marker.rows < self._row or (marker.rows == 0 and marker.crc != self._first_crc):
            raise DeliveryError(f"marker {self._name} is gone or was reset while rows were written")
        return marker

    def _append(
        self, connection: Connection, rows: BatchRows, start: int, stop: int, data: bytes, crc: int, marker: Marker
    ) -> bool:
        """Write a chunk and move the marker; False when another attempt has moved it."""
        count = stop - start
        moved = Marker(marker.batch, marker.rows + count, crc, marker.missing)
        replies = self._transact(connection, data, count, [self._set(moved), *self._extra(rows, start, stop)])
        if replies is None:
            return False
        refused = find_refused(replies, count)
        self._refused.update(self._row + at for at in refused)
        self._note_missing(connection)
        self._refuse(rows, range(start, stop), replies, refused)
        return True

    def _pass_over(
        self, connection: Connection, rows: BatchRows, start: int, stop: int, crc: int, marker: Marker
    ) -> bool:
        """Skip rows that the marker covers, but write those refused before; False when the marker has moved."""
        reached = self._row + stop - start
        if self._options.verify_replay and reached == marker.rows and crc != marker.crc:
            raise self._mismatch()
        missing = [row for row in marker.missing if self._row <= row < reached]
        if not missing:
            return True
        numbers = [start + row - self._row for row in missing]
        data = b"".join(rows.encode(number, number + 1) for number in numbers)
        rest = dataclasses.replace(marker, missing=tuple(row for row in marker.missing if row not in missing))
        replies = self._transact(connection, data, len(missing), [self._set(rest)])
        if replies is None:
            return False
        refused = find_refused(replies, len(missing))
        self._refused.update(missing[at] for at in refused)
        self._note_missing(connection)
        self._refuse(rows, numbers, replies, refused)
        return True

    def _note_missing(self, connection: Connection) -> None:
        """Record refused rows in the marker, even if another attempt has moved it."""
        while self._refused:
            self._arm(connection)
            missing = tuple(sorted({*self._marker.missing, *self._refused}))
            noted = dataclasses.replace(self._marker, missing=missing)
            if noted.batch != self._task.batch or self._transact(connection, b"", 0, [self._set(noted)]) is not None:
                self._refused.clear()

    def _set(self, marker: Marker) -> Request:
        return ("SET", self._key, marker.to_bytes(), *self._ttl)

    def _check_streams(self, connection: Connection, streams: Sequence[bytes]) -> None:
        """Raise for keys that would refuse rows, before anything is written: transactions are not rolled back."""
        new = [stream for stream in streams if stream not in self._checked]
        if not new:
            return
        self._disarm(connection)
        for stream, kind in zip(new, connection.pipeline([("TYPE", stream) for stream in new]), strict=True):
            if kind not in (b"stream", b"none"):
                raise self._refusal(stream, ServerError("WRONGTYPE"))
            if kind == b"none" and not self._options.create:
                raise self._refusal(stream, None)
        self._checked.update(new)

    def finish(self) -> None:
        if self._row == 0:
            return
        marker = self._marker
        if marker.batch != self._task.batch:
            return
        if marker.rows != self._row and self._options.verify_replay:
            raise self._mismatch()
        if marker.missing:
            raise DeliveryError(f"some rows were refused; marker {self._name} names them, the next attempt writes them")

    @property
    def _name(self) -> str:
        return self._key.decode(errors="backslashreplace")

    def _mismatch(self) -> DeliveryError:
        return DeliveryError(
            f"partition {self._task.partition} of batch {self._task.batch} is repeated with other rows than those that were "
            f"written (marker {self._name}): the query's result depends on more than its input, or the query was changed. "
            "Use idempotencyKey for such a query; verifyReplay=false skips by number, whatever the rows are"
        )
