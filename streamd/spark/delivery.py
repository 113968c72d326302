"""How the rows of one task get into streams: chunk by chunk, each in a transaction, by one of five deliveries.

    Plain          at least once: a chunk whose reply is lost is written again, a task that is repeated writes all again
    Marked         exactly once: the transaction of a chunk also moves a marker, a string beside the streams, that says how
                   many rows of which batch are written. Who repeats the task passes over that many rows
    Keyed          exactly once by a key of each row (XADD IDMP): the server remembers the keys, repeated rows do nothing
    KeyedByString  the same on servers without IDMP: a string, which expires, for each key
    Identified     the row brings the entry's ID: what the server refuses, because it has that entry, is there already

A chunk is written whole or not at all, except for rows that the server refuses while it executes (no stream at that key,
an ID that is not above the last one). One round trip for each chunk: behind its EXEC goes what the next one needs.

    WATCH marker, GET marker, MULTI | XADD ... SET marker, EXEC, WATCH marker, GET marker, MULTI | XADD ... SET marker, EXEC ...
     answers are looked at     ---->|                             answers are looked at     ---->|

That MULTI has been accepted is known before the first row is sent: otherwise rows would be written, without their
transaction, by a server that refuses MULTI alone. When EXEC is lost with its connection, the marker tells what became of it.

The marker of a query and partition, at `<markerPrefix><query>:<partition>`:

    7 4000 9f3c2a11              of batch 7, 4000 rows are written; CRC-32 of their requests
    7 4000 9f3c2a11 3998,3999    these two of them were refused, and are to be written yet

Rows come in the same order whenever a batch is repeated, so it does not matter which attempt of a task wrote them. Two
attempts that live at the same time (one was given up, but has not noticed) take turns: the one whose marker was moved by
the other loses its transaction and goes on where the other is. An attempt that finds the marker of a later batch ends. A
batch that is repeated with other rows is found by the CRC, and is an error instead of a loss.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import re
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast

from streamd.spark.connect import TEMPORARY_CODES, Connection, Link, pack_command, server_features
from streamd.spark.errors import DeliveryError, OptionError, ServerError
from streamd.spark.ids import MAX_ID, first_id_of, format_entry_id, parse_entry_id, parse_timestamp_ms
from streamd.spark.options import ConnectionOptions, SinkOptions

__all__ = ["Delivery", "Marker", "Rows", "Task", "Trimming", "key_capacity", "open_delivery", "parse_minid"]

Request = Sequence[bytes | str | int]
T = TypeVar("T")

RETRIED_CODES = TEMPORARY_CODES | {"OOM", "NOREPLICAS", "MISCONF"}
"""Refusals that may pass: those of `connect`, and of writes alone (no memory, too few replicas, no disk)."""

MULTI, EXEC = pack_command(("MULTI",)), pack_command(("EXEC",))

LEAST_TRIM_LIMIT = 10_000
"""Entries that one approximate trim may take out, when the options do not say; more when a chunk adds more."""

MOST_IDMP_DURATION_S = 86_400
MOST_IDMP_SIZE = 10_000

WHOLE_ID = re.compile(rb"\d+-\d+")


class Rows(Protocol):
    """Rows of one record batch, ready to be encoded; `start` and `stop` count from its first row."""

    def encode(self, start: int, stop: int, producer_id: bytes = b"") -> bytes:
        """Their XADD requests, in order."""

    def streams(self, start: int, stop: int) -> dict[bytes, int]:
        """The keys they go to, and how many to each."""

    def keys(self, start: int, stop: int) -> list[bytes]:
        """Their idempotency keys."""

    def key_of(self, row: int) -> bytes:
        """The stream of a row."""

    def entry_of(self, row: int) -> tuple[bytes, list[bytes]]:
        """ID, and fields and values in turn, as they are sent."""


@dataclass(frozen=True)
class Task:
    """What a task writes, whichever attempt of it this is.

    query      ID of the streaming query, or name of the batch write
    batch      number of the micro-batch; 0 in a batch write
    partition  number of the partition
    """

    query: str
    batch: int
    partition: int


# --- Connection with attempts ---------------------------------------------------------------------------------------------


class WriterLink(Link):
    """A connection to write by: the refusals of writes alone are waited out too, and what remains is explained."""

    def __init__(self, options: ConnectionOptions) -> None:
        super().__init__(options, RETRIED_CODES)

    def ask(self, action: Callable[[Connection], T]) -> T:
        """As Link.ask. The action finds out itself how far it had come."""
        try:
            return super().ask(action)
        except ServerError as error:
            raise self._explained(error) from None

    def _explained(self, error: ServerError) -> Exception:
        """The error, in the words of the options when one of them is its cause."""
        if error.code in ("NOAUTH", "WRONGPASS"):
            return OptionError("password", f"{self.options.place} does not let us in: {error}")
        if error.code == "NOPERM":
            return OptionError("username", f"the user may not do this at {self.options.place}: {error}")
        if error.code == "OOM":
            return ServerError(f"{error} (at {self.options.place}; maxLen or minId keep streams short)")
        return error


# --- Trimming -------------------------------------------------------------------------------------------------------------


def parse_minid(text: str, now_ms: int) -> int:
    """The value of `minId`: an ID, or the first ID of a moment. Raises ValueError."""
    try:
        return parse_entry_id(text)
    except ValueError:
        return first_id_of(parse_timestamp_ms(text, now_ms))


class Trimming:
    """What is trimmed behind each chunk: one XTRIM for each stream in it, instead of arguments to each XADD. The stream
    is as short after each chunk as it would be, and the requests of rows stay the same from one attempt to the next."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self.is_wanted = options.maxlen is not None or options.minid is not None
        self.is_replaced = False
        """The server has no ACKED; `trim_acknowledged` does it."""
        self._policy: list[str] = []

    def settle(self, connection: Connection) -> None:
        """Find out how the server does what `trimPolicy` says. Raises OptionError when it cannot."""
        policy = self._options.trim_policy
        if not self.is_wanted or policy is None:
            return
        features = server_features(connection)
        self._policy = [policy] if features.has_acked_trim else []
        self.is_replaced = policy == "ACKED" and not features.has_acked_trim
        if policy == "DELREF" and not features.has_acked_trim:
            raise OptionError("trimPolicy", f"{features} has no DELREF; leave it off, or take ACKED")

    def requests(self, streams: Sequence[bytes], rows: int) -> list[Request]:
        """To be sent in the transaction of a chunk."""
        if not self.is_wanted or self.is_replaced:
            return []
        words = self._words(rows, None)
        return [("XTRIM", stream, *words) for stream in streams]

    def _words(self, rows: int, minid: int | None) -> list[str | int]:
        options = self._options
        if minid is None and options.maxlen is not None:
            what: list[str | int] = ["MAXLEN", "=" if options.trim_exactly else "~", options.maxlen]
        else:
            number = self.min_id() if minid is None else minid
            what = ["MINID", "=" if options.trim_exactly else "~", format_entry_id(number)]
        if not options.trim_exactly:
            limit = max(LEAST_TRIM_LIMIT, 2 * rows) if options.trim_limit is None else options.trim_limit
            what += ["LIMIT", limit]
        return what + self._policy

    def min_id(self) -> int:
        return parse_minid(str(self._options.minid), time.time_ns() // 1_000_000)

    def trim_acknowledged(self, connection: Connection, streams: Sequence[bytes], rows: int) -> None:
        """ACKED for servers without it: trim no further than every group has read and acknowledged."""
        for stream in streams:
            wanted = self._wanted_end(connection, stream, rows)
            needed = _needed_id(connection, stream)
            end = wanted if needed is None else min(wanted, needed)
            if end:
                connection.command("XTRIM", stream, *self._words(rows, end))

    def _wanted_end(self, connection: Connection, stream: bytes, rows: int) -> int:
        """The lowest ID that may stay, for the groups' part; 0 when nothing is to go."""
        if self._options.maxlen is None:
            return self.min_id()
        excess = connection.command("XLEN", stream) - self._options.maxlen
        if excess <= 0:
            return 0
        # Only a part of a long excess at a time: the IDs have to be read.
        oldest = connection.command("XRANGE", stream, "-", "+", "COUNT", min(excess, max(LEAST_TRIM_LIMIT, 2 * rows)))
        return parse_entry_id(oldest[-1][0]) + 1 if oldest else 0


def _needed_id(connection: Connection, stream: bytes) -> int | None:
    """The lowest ID that a group of the stream still needs; None when there are no groups."""
    try:
        groups = connection.command("XINFO", "GROUPS", stream)
    except ServerError as error:
        if "no such key" in error.text:
            return None
        raise
    states = [dict(zip(group[::2], group[1::2], strict=True)) for group in groups]
    pending = connection.pipeline([("XPENDING", stream, state[b"name"]) for state in states])
    needed = [parse_entry_id(state[b"last-delivered-id"]) + 1 for state in states]
    needed += [parse_entry_id(first) for _, first, *_ in pending if first is not None]
    return min(needed, default=None)


# --- Deliveries -----------------------------------------------------------------------------------------------------------


class Delivery:
    """Writes the rows of one task. `deliver` is called with rows in order, `finish` when there are no more."""

    def __init__(self, options: SinkOptions, task: Task, link: Link) -> None:
        self._options = options
        self._task = task
        self._link = link
        self._trimming = Trimming(options)
        self._arming = MULTI
        self._arming_count = 1
        self._armed: Connection | None = None
        """The connection on which MULTI has been accepted and nothing is queued yet."""
        self._settled: Connection | None = None
        """The connection whose server has been asked what it can do."""
        self.stream_rows: dict[bytes, int] = {}
        """How many rows this task has had for each stream."""

    def deliver(self, rows: Rows, start: int, stop: int) -> int:
        """Write a beginning of rows [start, stop), at least one of them; return the first that is not written."""
        stop = self._link.ask(lambda connection: self._settle_and_write(connection, rows, start, stop))
        streams = rows.streams(start, stop)
        for stream, count in streams.items():
            self.stream_rows[stream] = self.stream_rows.get(stream, 0) + count
        if self._trimming.is_replaced:
            # Apart from the writing: when it fails, it must not make the rows be written again.
            self._link.ask(lambda connection: self._trim(connection, [*streams], stop - start))
        return stop

    def finish(self) -> None:
        """All rows are written. Raises DeliveryError when they are not those of an earlier attempt."""

    def close(self) -> None:
        self._link.close()

    # Of the single kinds of delivery.

    def _settle(self, connection: Connection) -> None:
        """Look at a server before anything is written to it."""
        self._trimming.settle(connection)

    def _write(self, connection: Connection, rows: Rows, start: int, stop: int) -> int:
        """`deliver`, on one connection, after `_settle`; may be called again when it was cut off."""
        raise NotImplementedError

    # Common to them.

    def _settle_and_write(self, connection: Connection, rows: Rows, start: int, stop: int) -> int:
        if self._settled is not connection:
            self._settle(connection)
            self._settled = connection
        return self._write(connection, rows, start, stop)

    def _trim(self, connection: Connection, streams: Sequence[bytes], rows: int) -> None:
        self._disarm(connection)
        self._trimming.trim_acknowledged(connection, streams, rows)

    def _arm(self, connection: Connection) -> None:
        """Open a transaction, unless the one before has done so."""
        if self._armed is not connection:
            connection.socket_send(self._arming)
            self._take_arming(connection, connection.replies(self._arming_count))

    def _take_arming(self, connection: Connection, replies: list[Any]) -> None:
        """The replies to `_arming`, none of them an error."""
        self._armed = connection

    def _disarm(self, connection: Connection) -> None:
        """Leave the open transaction, so that commands can be executed."""
        if self._armed is connection:
            self._armed = None
            connection.command("DISCARD")

    def _transact(self, connection: Connection, data: bytes, count: int, extra: Sequence[Request]) -> list[Any] | None:
        """Execute `count` encoded requests and `extra` ones, in the transaction that is open, and open the next.

        Returns the replies, with errors among them; None when a watched key was touched. Raises ServerError when nothing
        was executed.
        """
        self._armed = None
        connection.socket_send(data)  # apart from the rest, because joining would copy it
        connection.socket_send(b"".join([*map(pack_command, extra), EXEC, self._arming]))
        total = count + len(extra)
        replies = connection.replies(total + 1 + self._arming_count, raise_errors=False)
        next_arming = replies[total + 1 :]
        if not any(isinstance(reply, ServerError) for reply in next_arming):
            self._take_arming(connection, next_arming)
        if replies[:total].count(b"QUEUED") != total:
            raise next(reply for reply in replies[:total] if isinstance(reply, ServerError))
        done = replies[total]
        if isinstance(done, ServerError):
            raise done
        return cast("list[Any] | None", done)

    def _refuse(self, rows: Rows, numbers: Sequence[int], replies: list[Any], refused: Sequence[int]) -> None:
        """Raise for the first refused row, and for what went wrong with what came behind the rows.

        numbers  of the rows that `replies` begins with
        refused  which replies are no IDs, and matter
        """
        if refused:
            at = refused[0]
            raise self._refusal(rows.key_of(numbers[at]), replies[at], len(refused))
        for reply in replies[len(numbers) :]:
            if isinstance(reply, ServerError):
                raise reply

    def _refusal(self, stream: bytes, reply: Any, count: int = 1) -> Exception:
        name = stream.decode(errors="backslashreplace")
        more = f" (and {count - 1} more rows)" if count > 1 else ""
        where = "streamColumn" if self._options.stream is None else "stream"
        if reply is None:
            return OptionError("createStream", f"there is no stream {name}, and it is not to be made{more}")
        if reply.code == "WRONGTYPE":
            return OptionError(where, f"what {name} holds is no stream{more}")
        if "ID" in reply.text and self._options.id_column is not None:
            return OptionError("idColumn", f"stream {name}: {reply}{more}")
        return DeliveryError(f"stream {name}: {reply}{more}")

    def _extra(self, rows: Rows, start: int, stop: int) -> list[Request]:
        return self._trimming.requests([*rows.streams(start, stop)], stop - start)


def _refused(replies: list[Any], count: int) -> list[int]:
    """Which of the first replies are no IDs."""
    return [at for at, reply in enumerate(replies[:count]) if type(reply) is not bytes]


class Plain(Delivery):
    """At least once."""

    def _write(self, connection: Connection, rows: Rows, start: int, stop: int) -> int:
        self._arm(connection)
        replies = self._transact(connection, rows.encode(start, stop), stop - start, self._extra(rows, start, stop))
        if replies is not None:
            self._refuse(rows, range(start, stop), replies, _refused(replies, stop - start))
        return stop


# --- Exactly once by a marker ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Marker:
    """How far the rows of a partition are written; its text is at the head of the file."""

    batch: int
    rows: int = 0
    crc: int = 0
    missing: tuple[int, ...] = ()

    def to_bytes(self) -> bytes:
        missing = " " + ",".join(map(str, self.missing)) if self.missing else ""
        return f"{self.batch} {self.rows} {self.crc:08x}{missing}".encode()

    @classmethod
    def parse(cls, key: bytes, raw: bytes | None) -> Marker:
        """Raises DeliveryError when it is not of our making."""
        if raw is None:
            return cls(-1)
        found = re.fullmatch(rb"(\d+) (\d+) ([0-9a-f]{8})(?: ([\d,]+))?", raw)
        if found is None:
            raise DeliveryError(
                f"key {key.decode(errors='backslashreplace')} should hold a marker, and holds something else"
            )
        missing = tuple(map(int, found[4].split(b","))) if found[4] else ()
        return cls(int(found[1]), int(found[2]), int(found[3], 16), missing)


class Marked(Delivery):
    """Exactly once by a marker; see the head of the file."""

    def __init__(self, options: SinkOptions, task: Task, link: Link, marker_ttl_ms: int | None) -> None:
        super().__init__(options, task, link)
        self._key = f"{options.marker_prefix}{task.query}:{task.partition}".encode()
        self._ttl = () if marker_ttl_ms is None else ("PX", marker_ttl_ms)
        self._arming = pack_command(("WATCH", self._key)) + pack_command(("GET", self._key)) + MULTI
        self._arming_count = 3
        self._marker = Marker(-1)  # as the server has it
        self._row = 0  # rows of the partition that are written, by this attempt or another
        self._crc = 0  # of their requests
        self._refused: set[int] = set()  # rows that the marker counts, though they were refused
        self._checked: set[bytes] = set()  # keys that are streams, or nothing yet

    def _take_arming(self, connection: Connection, replies: list[Any]) -> None:
        self._marker = Marker.parse(self._key, replies[1])
        super()._take_arming(connection, replies)

    def _write(self, connection: Connection, rows: Rows, start: int, stop: int) -> int:
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
                f"{marker.batch}. When the checkpoint was put back on purpose, delete the markers of the query"
            )
        if marker.batch < batch:
            marker = Marker(batch)
        if marker.rows < self._row:
            raise DeliveryError(f"marker {self._name} is gone or was set back while rows were written")
        return marker

    def _append(
        self, connection: Connection, rows: Rows, start: int, stop: int, data: bytes, crc: int, marker: Marker
    ) -> bool:
        """Write a chunk and move the marker; False when another attempt has moved it."""
        count = stop - start
        moved = Marker(marker.batch, marker.rows + count, crc, marker.missing)
        replies = self._transact(connection, data, count, [self._set(moved), *self._extra(rows, start, stop)])
        if replies is None:
            return False
        refused = _refused(replies, count)
        self._refused.update(self._row + at for at in refused)
        self._note_missing(connection)
        self._refuse(rows, range(start, stop), replies, refused)
        return True

    def _pass_over(self, connection: Connection, rows: Rows, start: int, stop: int, crc: int, marker: Marker) -> bool:
        """Rows that the marker covers: write only what was refused of them before; False when the marker has moved."""
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
        refused = _refused(replies, len(missing))
        self._refused.update(missing[at] for at in refused)
        self._note_missing(connection)
        self._refuse(rows, numbers, replies, refused)
        return True

    def _note_missing(self, connection: Connection) -> None:
        """Put rows that were refused into the marker, whoever has moved it by now."""
        while self._refused:
            self._arm(connection)
            missing = tuple(sorted({*self._marker.missing, *self._refused}))
            noted = dataclasses.replace(self._marker, missing=missing)
            if noted.batch != self._task.batch or self._transact(connection, b"", 0, [self._set(noted)]) is not None:
                self._refused.clear()

    def _set(self, marker: Marker) -> Request:
        return ("SET", self._key, marker.to_bytes(), *self._ttl)

    def _check_streams(self, connection: Connection, streams: Sequence[bytes]) -> None:
        """Raise for keys that would refuse rows, before anything is written: what a transaction has done stays done."""
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


# --- Exactly once by a key ------------------------------------------------------------------------------------------------


def key_capacity(maxsize: int, producers: int) -> int:
    """How many keys are remembered for certain, when they are spread by a hash over so many producers."""
    # Four standard deviations below what fits, since the fullest producer is the one that forgets.
    return max(maxsize, int(producers * (maxsize - 4 * math.sqrt(maxsize)))) if producers > 1 else maxsize


class Keyed(Delivery):
    """Exactly once by XADD IDMP.

    Each stream remembers the newest keys of each producer, up to a number and an age. The producer ID is the query and the
    key's hash, so a row has the same one wherever it comes in a repeated batch, and the keys that are remembered are
    bounded for the whole query. Rows that cannot all be remembered are refused.
    """

    def __init__(self, options: SinkOptions, task: Task, link: Link) -> None:
        super().__init__(options, task, link)
        self._producer_id = f"{task.query}".encode()
        self._capacities: dict[bytes, int] = {}  # of the streams that have been looked at

    def _write(self, connection: Connection, rows: Rows, start: int, stop: int) -> int:
        for stream, count in rows.streams(start, stop).items():
            if stream not in self._capacities:
                self._disarm(connection)
                self._capacities[stream] = self._prepare(connection, stream)
            if self.stream_rows.get(stream, 0) + count > self._capacities[stream]:
                raise OptionError(
                    "idempotencyProducers",
                    f"stream {stream.decode(errors='backslashreplace')} remembers {self._capacities[stream]} keys, and a "
                    "batch has more: a repeated one would be written twice. Raise it, or idempotencyMaxSize, or write less "
                    "at a time",
                )
        self._arm(connection)
        data = rows.encode(start, stop, self._producer_id)
        replies = self._transact(connection, data, stop - start, self._extra(rows, start, stop))
        if replies is not None:
            self._refuse(rows, range(start, stop), replies, _refused(replies, stop - start))
        return stop

    def _prepare(self, connection: Connection, stream: bytes) -> int:
        """Let a stream remember enough, while that forgets nothing; return how many keys it does."""
        while True:
            maxsize = self._try_prepare(connection, stream)
            if maxsize is not None:
                return key_capacity(maxsize, self._options.idmp_producers)

    def _try_prepare(self, connection: Connection, stream: bytes) -> int | None:
        options = self._options
        watched, info = connection.pipeline([("WATCH", stream), ("XINFO", "STREAM", stream)], raise_errors=False)
        if isinstance(watched, ServerError):
            raise watched
        making: list[Request] = []
        have, is_used = (0, 0), False
        if isinstance(info, ServerError):
            if info.code == "WRONGTYPE":
                raise self._refusal(stream, info)
            if "no such key" not in info.text:
                raise info
            if not options.create:
                raise self._refusal(stream, None)
            # A stream without entries: the first entry would be forgotten by the XCFGSET behind it.
            group = f"streamd:sink:{self._task.query}"
            making = [("XGROUP", "CREATE", stream, group, "$", "MKSTREAM"), ("XGROUP", "DESTROY", stream, group)]
        else:
            found = dict(zip(info[::2], info[1::2], strict=True))
            have = (found[b"idmp-duration"], found[b"idmp-maxsize"])
            is_used = bool(found[b"iids-tracked"] or found[b"pids-tracked"])
        default = have if is_used else (MOST_IDMP_DURATION_S, MOST_IDMP_SIZE)
        wanted = (options.idmp_duration_s or default[0], options.idmp_maxsize or default[1])
        if wanted == have:
            connection.command("UNWATCH")
            return wanted[1]
        if is_used:
            # Changing either makes the stream forget every key of every producer.
            name = "idempotencyDuration" if wanted[0] != have[0] else "idempotencyMaxSize"
            raise OptionError(
                name,
                f"stream {stream.decode(errors='backslashreplace')} remembers keys for {have[0]} s and {have[1]} of a "
                "producer, and would forget them all by a change. Leave the option off, or do it at a quiet time: XCFGSET "
                f"IDMP-DURATION {wanted[0]} IDMP-MAXSIZE {wanted[1]}",
            )
        making.append(("XCFGSET", stream, "IDMP-DURATION", wanted[0], "IDMP-MAXSIZE", wanted[1]))
        return wanted[1] if connection.transaction(making) is not None else None


class KeyedByString(Delivery):
    """Exactly once by keys, on servers that remember none: a string for each key, set in the transaction of its row."""

    def __init__(self, options: SinkOptions, task: Task, link: Link) -> None:
        super().__init__(options, task, link)
        self._arming, self._arming_count = b"", 0
        self._prefix = f"{options.marker_prefix}{task.query}:key:"
        self._expiry_s = options.idmp_duration_s or MOST_IDMP_DURATION_S

    def _take_arming(self, connection: Connection, replies: list[Any]) -> None:
        """What is watched differs from chunk to chunk, so there is nothing to do ahead."""

    def _write(self, connection: Connection, rows: Rows, start: int, stop: int) -> int:
        names = [self._name(rows.key_of(start + at), key) for at, key in enumerate(rows.keys(start, stop))]
        first_of = {name: start + at for at, name in reversed([*enumerate(names)])}
        while True:
            _, known, _ = connection.pipeline([("WATCH", *first_of), ("MGET", *first_of), ("MULTI",)])
            new = sorted(row for row, value in zip(first_of.values(), known, strict=True) if value is None)
            if not new:
                connection.command("DISCARD")
                return stop
            data = b"".join(rows.encode(row, row + 1) for row in new)
            marks: list[Request] = [("SET", names[row - start], b"1", "EX", self._expiry_s) for row in new]
            replies = self._transact(connection, data, len(new), [*marks, *self._extra(rows, start, stop)])
            if replies is None:
                continue
            refused = _refused(replies, len(new))
            if refused:
                # What was refused is not there, whatever its string says.
                connection.command("DEL", *(names[new[at] - start] for at in refused))
            self._refuse(rows, new, replies, refused)
            return stop

    def _name(self, stream: bytes, key: bytes) -> str:
        digest = hashlib.blake2b(len(stream).to_bytes(8, "big") + stream + key, digest_size=16)
        return self._prefix + digest.hexdigest()


# --- IDs that the rows bring ----------------------------------------------------------------------------------------------


class Identified(Delivery):
    """The rows bring the IDs. A row that is refused is left out when the stream has that very entry already, or when it
    would have been trimmed at once; otherwise the rows were out of order, which is an error."""

    def _write(self, connection: Connection, rows: Rows, start: int, stop: int) -> int:
        if self._options.delivery == "exactly-once":
            self._check_ids(rows, start, stop)
        self._arm(connection)
        replies = self._transact(connection, rows.encode(start, stop), stop - start, self._extra(rows, start, stop))
        if replies is None:
            return stop
        refused = _refused(replies, stop - start)
        if refused:
            self._disarm(connection)
            is_there = self._find_entries(
                connection, rows, {at: start + at for at in refused if _is_too_low(replies[at])}
            )
            refused = [at for at in refused if at not in is_there]
        self._refuse(rows, range(start, stop), replies, refused)
        return stop

    def _check_ids(self, rows: Rows, start: int, stop: int) -> None:
        for row in range(start, stop):
            entry_id, _ = rows.entry_of(row)
            if not WHOLE_ID.fullmatch(entry_id):
                raise OptionError(
                    "idColumn",
                    f"exactly-once needs IDs like 1526919030474-55, not {entry_id.decode(errors='replace')!r}",
                )

    def _find_entries(self, connection: Connection, rows: Rows, numbers: Mapping[int, int]) -> set[int]:
        """Which refused rows need not be written; `numbers` are those of the rows, by any names."""
        asked = {name: (rows.key_of(row), *rows.entry_of(row)) for name, row in numbers.items()}
        asked = {name: each for name, each in asked.items() if WHOLE_ID.fullmatch(each[1])}
        found = connection.pipeline([("XRANGE", stream, entry_id, entry_id) for stream, entry_id, _ in asked.values()])
        streams = list(dict.fromkeys(stream for stream, _, _ in asked.values()))
        firsts = connection.pipeline([("XRANGE", stream, "-", "+", "COUNT", 1) for stream in streams])
        first_of = {stream: parse_entry_id(first[0][0]) for stream, first in zip(streams, firsts, strict=True) if first}
        is_there = set()
        for (name, (stream, entry_id, fields)), same in zip(asked.items(), found, strict=True):
            if same:
                needless = same[0][1] == fields
            else:
                # What is below the first entry would be trimmed again at once.
                needless = self._trimming.is_wanted and parse_entry_id(entry_id) < first_of.get(stream, MAX_ID)
            if needless:
                is_there.add(name)
        return is_there


def _is_too_low(reply: Any) -> bool:
    return isinstance(reply, ServerError) and "equal or smaller" in reply.text


def open_delivery(options: SinkOptions, task: Task, *, marker_ttl_ms: int | None = None) -> Delivery:
    """The delivery that the options ask for. Connects only when it has to know the server, or to write."""
    link = WriterLink(options.connection)
    if options.idempotency_key is not None:
        has_idmp = link.ask(server_features).has_idmp
        return (Keyed if has_idmp else KeyedByString)(options, task, link)
    if options.id_column is not None:
        return Identified(options, task, link)
    if options.delivery == "exactly-once":
        return Marked(options, task, link, options.marker_ttl_ms if marker_ttl_ms is None else marker_ttl_ms)
    return Plain(options, task, link)
