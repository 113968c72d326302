"""Exactly once by a key of each row: remembered by the server (XADD IDMP), or as a string on servers without IDMP."""

from __future__ import annotations

import hashlib
import math
from typing import Any

from streamd.client.client_errors import OptionError, ServerError
from streamd.client.connection import Connection, Link, Request
from streamd.client.replies import pairs
from streamd.transfer.batch_rows import BatchRows
from streamd.transfer.chunk_delivery import Delivery, find_refused
from streamd.transfer.task import Task
from streamd.transfer.write_options import SinkOptions

__all__ = ["Keyed", "KeyedByString", "key_capacity"]

MOST_IDMP_DURATION_S = 86_400
MOST_IDMP_SIZE = 10_000


def key_capacity(maxsize: int, producers: int) -> int:
    """How many keys are certainly remembered when a hash spreads them over this number of producers."""
    # Four standard deviations below what fits, since the fullest producer is the one that forgets.
    return max(maxsize, int(producers * (maxsize - 4 * math.sqrt(maxsize)))) if producers > 1 else maxsize


class Keyed(Delivery):
    """Exactly once by XADD IDMP.

    Each stream remembers the newest keys of each producer, up to a number and an age. The producer ID is the query and the
    key's hash, so a row has the same one wherever it is in a repeated batch, and the keys that are remembered are
    bounded for the whole query. Rows that cannot all be remembered are refused.
    """

    def __init__(self, options: SinkOptions, task: Task, link: Link) -> None:
        super().__init__(options, task, link)
        self._producer_id = f"{task.query}".encode()
        self._capacities: dict[bytes, int] = {}  # of the streams examined so far

    def _write(self, connection: Connection, rows: BatchRows, start: int, stop: int) -> int:
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
            self._refuse(rows, range(start, stop), replies, find_refused(replies, stop - start))
        return stop

    def _prepare(self, connection: Connection, stream: bytes) -> int:
        """Make a stream remember enough, unless that forgets something; return how many keys it remembers."""
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
            if not info.is_missing_key:
                raise info
            if not options.create:
                raise self._refusal(stream, None)
            # A stream without entries: the first entry would be forgotten by the XCFGSET behind it.
            group = f"streamd:sink:{self._task.query}"
            making = [("XGROUP", "CREATE", stream, group, "$", "MKSTREAM"), ("XGROUP", "DESTROY", stream, group)]
        else:
            found = pairs(info)
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
                "producer, and a change would forget them all. Leave the option off, or do it at a quiet time: XCFGSET "
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
        """What is watched differs from chunk to chunk, so nothing can be done in advance."""

    def _write(self, connection: Connection, rows: BatchRows, start: int, stop: int) -> int:
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
            refused = find_refused(replies, len(new))
            if refused:
                # Refused rows were not written, whatever their strings say.
                connection.command("DEL", *(names[new[at] - start] for at in refused))
            self._refuse(rows, new, replies, refused)
            return stop

    def _name(self, stream: bytes, key: bytes) -> str:
        digest = hashlib.blake2b(len(stream).to_bytes(8, "big") + stream + key, digest_size=16)
        return self._prefix + digest.hexdigest()
