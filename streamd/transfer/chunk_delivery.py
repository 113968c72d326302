"""The common part of all deliveries: rows are written chunk by chunk, each chunk in a transaction.

A chunk is written whole or not at all, except for rows that the server refuses while it executes (no stream at that
key, an ID that is not above the last one). Each chunk takes one round trip: the start of the next one is sent right after
its EXEC.

    WATCH marker, GET marker, MULTI | XADD ... SET marker, EXEC, WATCH marker, GET marker, MULTI | XADD ... SET marker, EXEC ...
     replies are checked       ---->|                             replies are checked       ---->|

Rows are sent only after MULTI has been accepted: otherwise a server that refuses only MULTI would write rows outside of a
transaction. If EXEC is lost with its connection, the marker shows whether it was executed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from streamd.client.client_errors import DeliveryError, OptionError, ServerError
from streamd.client.connection import TEMPORARY_CODES, Connection, Link, Request, pack_command
from streamd.client.url_options import ConnectionOptions
from streamd.transfer.batch_rows import BatchRows
from streamd.transfer.task import Task
from streamd.transfer.trimming import Trimming
from streamd.transfer.write_options import SinkOptions

__all__ = ["Delivery", "Plain", "WriterLink", "find_refused"]

T = TypeVar("T")

RETRIED_CODES = TEMPORARY_CODES | {"OOM", "NOREPLICAS", "MISCONF"}
"""Errors that may be temporary: those of `connect`, and those of writes (no memory, too few replicas, no disk)."""

MULTI, EXEC = pack_command(("MULTI",)), pack_command(("EXEC",))

QUEUED = b"+QUEUED\r\n"
"""The reply to a request of a transaction that is not refused."""


class WriterLink(Link):
    """A connection for writing: it also retries after temporary errors of writes, and explains the final error."""

    def __init__(self, options: ConnectionOptions) -> None:
        super().__init__(options, RETRIED_CODES)

    def ask(self, action: Callable[[Connection], T]) -> T:
        """As Link.ask. The action itself finds out how far it got before."""
        try:
            return super().ask(action)
        except ServerError as error:
            raise self._explained(error) from None

    def _explained(self, error: ServerError) -> Exception:
        """The error; as an OptionError when an option is its cause."""
        if error.code in ("NOAUTH", "WRONGPASS"):
            return OptionError("password", f"{self.options.place} refuses the login: {error}")
        if error.code == "NOPERM":
            return OptionError("username", f"the user lacks permission at {self.options.place}: {error}")
        if error.code == "OOM":
            return ServerError(f"{error} (at {self.options.place}; maxLen or minId keep streams short)")
        return error


class Delivery:
    """Writes the rows of one task. `deliver` is called with rows in order, `finish` when there are no more."""

    def __init__(self, options: SinkOptions, task: Task, link: Link) -> None:
        self._options = options
        self._task = task
        self.link = link
        self._trimming = Trimming(options)
        self._arming = MULTI
        self._arming_count = 1
        self._armed: Connection | None = None
        """The connection on which MULTI has been accepted and nothing is queued yet."""
        self._settled: Connection | None = None
        """The connection, whose server has reported its features."""
        self.stream_rows: dict[bytes, int] = {}
        """Number of rows of this task for each stream."""

    def deliver(self, rows: BatchRows, start: int, stop: int) -> int:
        """Write the first of the rows [start, stop), at least one of them; return the first that is not written."""
        stop = self.link.ask(lambda connection: self._settle_and_write(connection, rows, start, stop))
        streams = rows.streams(start, stop)
        for stream, count in streams.items():
            self.stream_rows[stream] = self.stream_rows.get(stream, 0) + count
        if self._trimming.is_replaced:
            # Separate from the writing: if it fails, the rows must not be written again.
            self.link.ask(lambda connection: self._trim(connection, [*streams], stop - start))
        return stop

    def finish(self) -> None:
        """Finish when all rows are written. Raises DeliveryError when they differ from those of an earlier attempt."""

    def close(self) -> None:
        self.link.close()

    # Defined by each kind of delivery.

    def _settle(self, connection: Connection) -> None:
        """Examine a server before anything is written to it."""
        self._trimming.settle(connection)

    def _write(self, connection: Connection, rows: BatchRows, start: int, stop: int) -> int:
        """`deliver`, on one connection, after `_settle`; may be called again after a failure."""
        raise NotImplementedError

    # Common to all.

    def _settle_and_write(self, connection: Connection, rows: BatchRows, start: int, stop: int) -> int:
        if self._settled is not connection:
            self._settle(connection)
            self._settled = connection
        return self._write(connection, rows, start, stop)

    def _trim(self, connection: Connection, streams: Sequence[bytes], rows: int) -> None:
        self._disarm(connection)
        self._trimming.trim_acknowledged(connection, streams, rows)

    def _arm(self, connection: Connection) -> None:
        """Open a transaction, unless that happened at the end of the previous one."""
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
        """Execute `count` encoded requests and `extra` ones in the open transaction, and open the next one.

        Returns the replies, with errors among them; None when a watched key was touched. Raises ServerError when nothing
        was executed.
        """
        self._armed = None
        connection.socket_send(data)  # sent separately, because joining would copy it
        connection.socket_send(b"".join([*map(pack_command, extra), EXEC, self._arming]))
        total = count + len(extra)
        queued: list[Any] = []
        if not connection.expect(QUEUED * total):
            queued = connection.replies(total, raise_errors=False)
        done, *next_arming = connection.replies(1 + self._arming_count, raise_errors=False)
        if not any(isinstance(reply, ServerError) for reply in next_arming):
            self._take_arming(connection, next_arming)
        for reply in queued:
            if isinstance(reply, ServerError):
                raise reply
        if isinstance(done, ServerError):
            raise done
        return cast("list[Any] | None", done)

    def _refuse(self, rows: BatchRows, numbers: Sequence[int], replies: list[Any], refused: Sequence[int]) -> None:
        """Raise for the first refused row, and for errors of the requests after the rows.

        numbers  of the rows that `replies` starts with
        refused  which replies are not IDs, and matter
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
            return OptionError("createStream", f"there is no stream {name}, and it must not be created{more}")
        if reply.code == "WRONGTYPE":
            return OptionError(where, f"{name} does not hold a stream{more}")
        if "ID" in reply.text and self._options.id_column is not None:
            return OptionError("idColumn", f"stream {name}: {reply}{more}")
        return DeliveryError(f"stream {name}: {reply}{more}")

    def _extra(self, rows: BatchRows, start: int, stop: int) -> list[Request]:
        return self._trimming.requests([*rows.streams(start, stop)], stop - start)


def find_refused(replies: list[Any], count: int) -> list[int]:
    """Which of the first replies are not IDs."""
    if {*map(type, replies[:count])} <= {bytes}:  # as a rule, and found out quickly
        return []
    return [at for at, reply in enumerate(replies[:count]) if type(reply) is not bytes]


class Plain(Delivery):
    """At least once."""

    def _write(self, connection: Connection, rows: BatchRows, start: int, stop: int) -> int:
        self._arm(connection)
        replies = self._transact(connection, rows.encode(start, stop), stop - start, self._extra(rows, start, stop))
        if replies is not None:
            self._refuse(rows, range(start, stop), replies, find_refused(replies, stop - start))
        return stop
