"""What a batch is, at `<markerPrefix><query>`: the same rows in the same partitions, whichever attempt writes them.

Spark repeats a batch with as many partitions as the cluster then has cores for, and tells a task neither their number nor
whether it is a repetition. A marker that counts the rows of partition 3 means nothing once the partitions have changed. So
each task reads its partition to the end before it writes the first row, and records in the journal how many rows it has and
a checksum of their requests. The journal is a string that only grows while the batch lasts, a line for each note:

    batch 7 marker              the batch, and how it is written
    attempt 5f1c09d2            what follows belongs to this attempt: a run of the query, or of the batch write
    rows 0 40000 9f3c2a11       partition 0 has 40,000 rows; CRC-32 of their requests
    rows 1 40000 51d20b77
    attempt 77aa01e4            the query was restarted
    start 0                     its task for partition 0 runs
    rows 0 40000 9f3c2a11       the same rows again: what the marker of partition 0 counts is good
    start 1
    refused 1                   partition 1 has other rows than those that were written

Two more notes are rare: `clear 2`, partition 2 has been new to this attempt, and may be written; `void 3`, nothing of partition 3
is written, and its note does not count.

A partition that an earlier attempt has started to write must match its record. One that no attempt has started is written only
when all started ones have been repeated: then none of its rows are theirs, since a batch has the same rows each time. Until
then it waits, which is rare, since tasks start in the order of their partitions. An attempt that has been followed by another
may finish what it has recorded, but starts nothing else.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from streamd.client.client_errors import DeliveryError
from streamd.client.connection import Connection, Link, Request
from streamd.client.key_names import stream_key, stream_name
from streamd.transfer.marked import Marker, marker_key
from streamd.transfer.task import Task
from streamd.transfer.write_options import SinkOptions

__all__ = ["Content", "Journal", "Notes"]

POLL_S = 0.1
LONGEST_IDLE_WAIT_S = 30.0
"""How long a partition waits for others none of which has been started."""


@dataclass(frozen=True)
class Content:
    """The rows of a partition: how many, and the CRC-32 of their requests."""

    rows: int
    crc: int

    def __str__(self) -> str:
        return f"{self.rows} {self.crc:08x}"


@dataclass(frozen=True)
class Noted:
    """What the journal has of a partition.

    attempt   the last one that has found these rows
    is_clear  whether they may be written
    """

    attempt: int
    content: Content
    is_clear: bool


@dataclass
class Notes:
    """A journal that has been read. Attempts are counted from 1."""

    batch: int = -1
    way: str = ""
    attempts: list[str] = field(default_factory=list)
    contents: dict[int, Noted] = field(default_factory=dict)
    """Of each partition that was noted."""
    started: dict[int, int] = field(default_factory=dict)
    """The last attempt that has started each partition."""
    refused: tuple[int, int] = (0, 0)
    """The last attempt that has refused a partition, and which one."""

    @classmethod
    def parse(cls, key: bytes, raw: bytes | None) -> Notes:
        """Raises DeliveryError for a value that was not written by this module."""
        notes = cls()
        if raw is None:
            return notes
        try:
            for line in raw.decode().splitlines():
                notes.take(line)
        except (ValueError, TypeError, KeyError, UnicodeDecodeError):
            raise DeliveryError(
                f"key {stream_name(key)} should hold the journal of a batch, but holds something else"
            ) from None
        return notes

    def take(self, line: str) -> None:
        """Read one more line."""
        kind, first, *rest = line.split(" ")
        match kind, rest:
            case "batch", [*way]:
                self.batch, self.way = int(first), " ".join(way)
            case "attempt", []:
                self.attempts.append(first)
            case "start", []:
                self.started[int(first)] = len(self.attempts)
            case "rows", [rows, crc]:
                self._take_content(int(first), Content(int(rows), int(crc, 16)))
            case "clear", []:
                self.contents[int(first)] = dataclasses.replace(self.contents[int(first)], is_clear=True)
            case "void", []:
                self.contents.pop(int(first), None)
            case "refused", []:
                self.refused = (len(self.attempts), int(first))
            case _:
                raise ValueError(kind)

    def _take_content(self, partition: int, content: Content) -> None:
        before = self.contents.get(partition)
        is_clear = len(self.attempts) == 1 or (before is not None and before.content == content and before.is_clear)
        self.contents[partition] = Noted(len(self.attempts), content, is_clear)

    def unseen(self, partition: int) -> list[int]:
        """The other partitions that were begun by earlier attempts, and are not there again in the last one."""
        last = len(self.attempts)
        return [each for each, noted in self.contents.items() if noted.attempt < last and each != partition]


class Journal:
    """The part of one task.

    suffix  of the names of its markers; empty: they are those that count the rows. Where each slot has markers of its own, the
            journal's need another name: a slot may have the hash tag of the query
    """

    def __init__(self, options: SinkOptions, task: Task, link: Link, ttl_ms: int | None, suffix: bytes = b"") -> None:
        self._task = task
        self._link = link
        self._key = stream_key(f"{options.marker_prefix}{task.query}")
        self._suffix = suffix
        self._marker_key = marker_key(options, task) + suffix
        self._compares = options.verify_replay
        self._ttl_ms = ttl_ms

    def open(self, way: str) -> None:
        """Note the batch and how it is written. Raises DeliveryError when it was begun in another way, or has been overtaken."""
        self._link.ask(lambda connection: self._open(connection, way))

    def agree(self, content: Content) -> int:
        """Note what the partition has; wait until its first row may be written. Return the CRC that its marker begins with.

        Raises DeliveryError when the partitions are not those that an earlier attempt has begun to write.
        """
        agreed, is_clear = self._link.ask(lambda connection: self._note(connection, content))
        if agreed.rows and not is_clear:
            self._wait()
        return agreed.crc

    def begin(self, content: Content) -> None:
        """Note that rows of the partition may be written from here on, where the marker of the journal does not count them."""
        self._link.ask(lambda connection: self._begin(connection, content))

    def _begin(self, connection: Connection, content: Content) -> None:
        while True:
            notes, marker = self._read(connection)
            self._check_turn(notes)
            if not content.rows or marker.rows:
                connection.command("UNWATCH")
                return
            self._check_marker(marker, notes.contents.get(self._task.partition))
            ttl = () if self._ttl_ms is None else ("PX", self._ttl_ms)
            begun = Marker(self._task.batch, content.rows, content.crc).to_bytes()
            if connection.transaction([("SET", self._marker_key, begun, *ttl)]) is not None:
                return

    def _open(self, connection: Connection, way: str) -> None:
        task = self._task
        while True:
            notes, _ = self._read(connection)
            lines = []
            if notes.batch < task.batch:
                lines = [f"batch {task.batch} {way}"]
                notes = Notes()
            elif notes.way != way:
                connection.command("UNWATCH")
                raise DeliveryError(
                    f"batch {task.batch} was begun with delivery {notes.way!r}, and is repeated with {way!r}: some rows would be "
                    f"there twice. Finish it with the options it was begun with, or delete key {self._name} to accept that"
                )
            is_first = not notes.attempts
            if task.attempt not in notes.attempts:
                lines.append(f"attempt {task.attempt}")
            elif notes.attempts[-1] != task.attempt:
                connection.command("UNWATCH")
                raise self._overtaken("another attempt has followed this one")
            if not is_first and notes.started.get(task.partition) != len(notes.attempts):
                lines.append(f"start {task.partition}")
            if self._append(connection, lines, is_new=bool(lines) and lines[0].startswith("batch")):
                return

    def _note(self, connection: Connection, content: Content) -> tuple[Content, bool]:
        """Note the content; return it as the journal has it, and whether it may be written at once."""
        partition = self._task.partition
        while True:
            notes, marker = self._read(connection)
            self._check_turn(notes)
            noted = notes.contents.get(partition)
            self._check_marker(marker, noted)
            lines, marks = [f"rows {partition} {content}"], [self._first_marker(content)]
            if noted is not None and self._is_same(noted.content, content):
                content = noted.content
                lines, marks = [f"rows {partition} {content}"], []
            elif noted is not None and marker.rows:
                self._append(connection, [f"refused {partition}"])
                raise self._other(noted.content, content)
            elif not content.rows:
                lines, marks = [f"void {partition}"] if noted is not None else [], []
            if self._append(connection, lines, marks):
                for line in lines:
                    notes.take(line)
                noted = notes.contents.get(partition)
                return content, noted is None or noted.is_clear

    def _check_marker(self, marker: Marker, noted: Noted | None) -> None:
        name = stream_name(self._marker_key)
        if marker.batch > self._task.batch:
            raise self._overtaken(f"marker {name} is of batch {marker.batch}")
        if noted is None and marker.batch == self._task.batch:
            raise DeliveryError(
                f"marker {name} counts rows of batch {marker.batch} that journal {self._name} does not know: the marker is of an "
                "older version, or the journal was evicted or deleted. Delete the marker, too, to write the batch from its start"
            )
        if noted is not None and marker.batch != self._task.batch:
            raise DeliveryError(f"marker {name} is gone or was reset while rows were written")

    def _first_marker(self, content: Content) -> Request:
        ttl = () if self._ttl_ms is None else ("PX", self._ttl_ms)
        return ("SET", self._marker_key, Marker(self._task.batch, 0, content.crc).to_bytes(), *ttl)

    def _wait(self) -> None:
        """Wait until all partitions that were begun have come again."""
        idle_until = time.monotonic() + LONGEST_IDLE_WAIT_S
        while missing := self._link.ask(self._find_missing):
            if all(is_started for is_started in missing.values()):
                idle_until = time.monotonic() + LONGEST_IDLE_WAIT_S
            elif time.monotonic() > idle_until:
                raise DeliveryError(
                    f"{self._what} waits for partition {min(missing)}, which an earlier attempt has begun to write and this one has "
                    "not started. If the batch has fewer partitions now, repeat it with as many as before"
                )
            time.sleep(POLL_S)

    def _find_missing(self, connection: Connection) -> dict[int, bool]:
        """The partitions to wait for, and whether this attempt has started them. Notes it if there are none yet.

        Those of which no row is written are struck out instead.
        """
        while True:
            notes, _ = self._read(connection)
            self._check_turn(notes)
            unseen = notes.unseen(self._task.partition)
            keys = [self._key + b":%d" % each + self._suffix for each in unseen]
            if keys:
                connection.command("WATCH", *keys)
            found = connection.pipeline([("GET", key) for key in keys])
            markers = [Marker.parse(key, raw) for key, raw in zip(keys, found, strict=True)]
            bare = {
                each: key
                for each, key, marker in zip(unseen, keys, markers, strict=True)
                if marker.batch == self._task.batch and not marker.rows
            }
            lines = [f"void {each}" for each in bare]
            if len(bare) == len(unseen):
                lines.append(f"clear {self._task.partition}")
            # An attempt that is about to write such a partition finds its marker gone, and ends.
            if self._append(connection, lines, [("DEL", key) for key in bare.values()]):
                attempt = len(notes.attempts)
                return {each: notes.started.get(each) == attempt for each in unseen if each not in bare}

    def _check_turn(self, notes: Notes) -> None:
        """Raise unless this attempt is the last one, and may begin a partition."""
        if notes.batch != self._task.batch or self._task.attempt not in notes.attempts:
            if notes.batch > self._task.batch:
                raise self._overtaken(f"journal {self._name} is of batch {notes.batch}")
            raise DeliveryError(f"journal {self._name} is gone or was reset while rows were written")
        if notes.attempts[-1] != self._task.attempt:
            raise self._overtaken("another attempt has followed this one")
        if notes.refused[0] == len(notes.attempts) and notes.refused[1] != self._task.partition:
            raise DeliveryError(
                f"{self._what} is not written: partition {notes.refused[1]} has other rows than those that were written before"
            )

    def _read(self, connection: Connection) -> tuple[Notes, Marker]:
        """The journal and the marker, as they were at one moment, and watched from then on."""
        connection.command("WATCH", self._key, self._marker_key)
        raw, raw_marker = connection.command("MGET", self._key, self._marker_key)
        notes = Notes.parse(self._key, raw)
        if notes.batch > self._task.batch:
            connection.command("UNWATCH")
            raise self._overtaken(
                f"journal {self._name} is of batch {notes.batch}. If the checkpoint was restored on purpose, delete the keys "
                f"{self._name} and {self._name}:*"
            )
        return notes, Marker.parse(self._marker_key, raw_marker)

    def _append(
        self, connection: Connection, lines: Sequence[str], marks: Sequence[Request] = (), *, is_new: bool = False
    ) -> bool:
        """Write lines, unless the journal or another watched key has changed: then False."""
        if not lines:
            connection.command("UNWATCH")
            return True
        text = "".join(f"{line}\n" for line in lines)
        requests: list[Request] = [("SET" if is_new else "APPEND", self._key, text), *marks]
        if self._ttl_ms is not None:
            requests.append(("PEXPIRE", self._key, self._ttl_ms))
        return connection.transaction(requests) is not None

    def _is_same(self, noted: Content, content: Content) -> bool:
        return noted.rows == content.rows and (noted.crc == content.crc or not self._compares)

    def _other(self, noted: Content, content: Content) -> DeliveryError:
        counts = "" if noted.rows == content.rows else f" ({content.rows} rows, not {noted.rows})"
        return DeliveryError(
            f"{self._what} is repeated with other rows than those that were written{counts}, journal {self._name}: it is "
            "partitioned in another way (fewer or more cores, other settings), the query's result depends on more than its "
            "input, or the query or its options were changed. Repeat it as it was; for queries that cannot be repeated use "
            "idempotencyKey"
        )

    def _overtaken(self, why: str) -> DeliveryError:
        return DeliveryError(f"{self._what} is overtaken: {why}")

    @property
    def _what(self) -> str:
        return f"partition {self._task.partition} of batch {self._task.batch}"

    @property
    def _name(self) -> str:
        return stream_name(self._key)
