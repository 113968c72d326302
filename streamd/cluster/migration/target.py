"""Import: this node as the target of an atomic slot migration.

    first connection    AUTH, CONF NODE-ID, SYNC <task> <slots>      changes of the keys, kept until the snapshot has been run
    second connection   AUTH, RDBCHANNEL <task>                      the snapshot: commands, run as they arrive

Both carry commands, which an `ImportClient` runs. Clients do not see the keys before this node owns the slots: it becomes the owner when
STREAM-EOF arrives, after which the source sends nothing more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from streamd.cluster.bus.nodes import Node
from streamd.cluster.handing_over import open_connection
from streamd.cluster.migration.import_client import ImportClient
from streamd.cluster.migration.tasks import Task
from streamd.core.host import Host
from streamd.errors import CommandError, ProtocolError, StreamdError
from streamd.protocol.request_bytes import encode_request
from streamd.replication.durability import Durability
from streamd.replication.primary_connection import Connection
from streamd.replication.replication import Replication

__all__ = ["Import"]

log = logging.getLogger("streamd")

SLICE_US = 2000
"""How long commands are run before clients get their turn."""
ACK_EVERY_S = 0.1
ASK_AGAIN_S = 0.005
UNLIMITED = 1 << 62
CATCH_UP_KEPT = 1 << 20
"""Bytes of changes that are kept before the source has to wait, once the snapshot has been run."""
SYNCSLOTS = [b"CLUSTER", b"SYNCSLOTS"]


class ImportFailedError(StreamdError):
    """The migration cannot go on; the text is what STATUS shows."""


class Import:
    """
    task      what is imported
    peak      the most bytes of changes that were kept
    """

    def __init__(
        self,
        host: Host,
        task: Task,
        *,
        myself: bytes,
        secret: bytes,
        source: Node,
        take_over: Callable[[Task], object],
        failed: Callable[[str], object],
    ) -> None:
        """take_over: called when everything is here; failed: called once with the reason when the task cannot go on."""
        self._host = host
        self._config = host.config
        self._myself, self._secret, self._source = myself, secret, source
        self._take_over, self._failed = take_over, failed
        self.task = task
        self.peak = 0
        self._client = ImportClient(host.dispatcher)
        self._main: Connection | None = None
        self._connections: list[Connection] = []
        self._ack_timer: asyncio.TimerHandle | None = None
        self._applied = 0
        self._work: asyncio.Task[None] | None = None

    @property
    def kept_bytes(self) -> int:
        """Bytes of changes that wait for the end of the snapshot."""
        return self._main.size if self._main is not None else 0

    def start(self) -> None:
        self._work = self._host.loop.create_task(self._run())

    def close(self) -> None:
        """Drop both connections; nothing is run any more."""
        if self._ack_timer is not None:
            self._ack_timer.cancel()
        if self._work is not None:
            self._work.cancel()
        for connection in self._connections:
            connection.close()

    def break_off(self, is_main: bool) -> None:
        """Close one of the connections, as if the other node had."""
        for connection in self._connections[:1] if is_main else self._connections[1:]:
            connection.transport.abort()
            connection.take()

    async def _run(self) -> None:
        try:
            await self._import()
        except (StreamdError, OSError) as error:
            self._failed(str(error))
        except Exception as error:
            log.exception("Unexpected error while importing slots", exc_info=error)
            self._failed(str(error))

    async def _import(self) -> None:
        task = self.task
        task.state = "connecting"
        main = self._main = await self._connect("Main channel")
        await self._log_in(main, "Main channel")
        task.state = "handshake-reply"
        await self._ask(main, "Main channel", "SYNCSLOTS CONF", "CONF", "NODE-ID", self._myself)
        task.state = "syncslots-reply"
        bounds = [bound for run in task.ranges for bound in run]
        await self._ask(
            main, "Main channel", "SYNCSLOTS SYNC", "SYNC", task.id, *bounds, expected=b"+RDBCHANNELSYNCSLOTS"
        )
        task.state = "init-rdbchannel"
        task.channel_state = "connecting"
        channel = await self._connect("RDB channel")
        await self._log_in(channel, "RDB channel")
        task.channel_state = "rdbchannel-reply"
        await self._ask(
            channel, "RDB channel", "SYNCSLOTS RDBCHANNEL", "RDBCHANNEL", task.id, expected=b"+SLOTSSNAPSHOT"
        )
        task.state, task.channel_state = "accumulate-buffer", "rdbchannel-transfer"
        main.most = self._config.replica_full_sync_buffer_limit or UNLIMITED
        await self._run_commands(channel, b"SNAPSHOT-EOF", "RDB channel")
        channel.close()
        task.channel_state = "completed"
        task.state = "streaming-buffer"
        self.peak = max(self.peak, main.peak)
        self._client = ImportClient(self._host.dispatcher)
        self._applied = 0
        if data := main.take():
            self._client.feed(data)
            self._applied = len(data)
        main.most = CATCH_UP_KEPT
        main.hold(False)
        await self._wait_until_safe(main)  # the source holds back writes as soon as it hears from this one
        task.state = "wait-stream-eof"
        self._acknowledge()
        await self._run_commands(main, b"STREAM-EOF", "Main channel")
        for _ in range(3):  # turns in which the end of the connection would be seen
            await asyncio.sleep(0)
        await self._wait_until_safe(main)
        task.state = "takeover"
        self._take_over(task)

    async def _wait_until_safe(self, main: Connection) -> None:
        """Where replies wait for replicas (min-replicas-durable), so does the hand-over: the source will delete the keys.

        A source that has given up has closed the connection, and serves the slots again.
        """
        durability, offset = self._host.get(Durability), self._host.get(Replication).offset
        while not durability.is_safe(offset) and not main.is_lost:
            await asyncio.sleep(ASK_AGAIN_S)
        if main.is_lost:
            raise ImportFailedError(self.task.explain("Main channel - Connection with the source lost"))

    # --- Connections -----------------------------------------------------------------------------------------------------------

    async def _connect(self, name: str) -> Connection:
        try:
            connection = await open_connection(self._host, self._source)
        except (OSError, TimeoutError) as error:
            reason = getattr(error, "strerror", None) or str(error) or "timed out"
            raise ImportFailedError(self.task.explain(f"{name} - Failed to connect to source node: {reason}")) from None
        self._connections.append(connection)
        return connection

    async def _log_in(self, connection: Connection, name: str) -> None:
        if name == "Main channel":
            self.task.state = "auth-reply"
        else:
            self.task.channel_state = "auth-reply"
        connection.write(encode_request("AUTH", "internal connection", self._secret))
        await self._expect(connection, name, "AUTH", b"+OK")

    async def _ask(
        self, connection: Connection, name: str, step: str, *words: bytes | str | int, expected: bytes = b"+OK"
    ) -> None:
        connection.write(encode_request(*SYNCSLOTS, *words))
        await self._expect(connection, name, f"CLUSTER {step}", expected)

    async def _expect(self, connection: Connection, name: str, step: str, expected: bytes) -> None:
        line = await self._next(connection.read_line(), name)
        if line != expected:
            shown = line.decode("utf-8", "replace")
            raise ImportFailedError(
                self.task.explain(
                    f"{name} - Failed to sync with source node: Error reply to {step} from the source: {shown}"
                )
            )

    async def _next(self, reading: Coroutine[Any, Any, bytes], name: str) -> bytes:
        """What a connection delivers. Raises ImportFailedError."""
        try:
            return await reading
        except StreamdError as error:
            raise ImportFailedError(self.task.explain(f"{name} - Connection lost: {error}")) from None

    # --- Commands ---------------------------------------------------------------------------------------------------------------

    async def _run_commands(self, connection: Connection, end: bytes, name: str) -> None:
        """Run what arrives until CLUSTER SYNCSLOTS `end`; what follows it stays in the connection."""
        while not await self._run_ready(connection, end, name):
            data = await self._next(connection.read_some(), name)
            self._client.feed(data)
            self._applied += len(data)

    async def _run_ready(self, connection: Connection, end: bytes, name: str) -> bool:
        client, dispatcher = self._client, self._host.dispatcher
        while True:
            while dispatcher.is_busy:  # a script is in the middle of its changes
                await asyncio.sleep(ACK_EVERY_S)
            try:
                args = client.run_some(SLICE_US)
            except (CommandError, ProtocolError) as error:
                raise ImportFailedError(
                    self.task.explain(f"{name} - A command of the source has failed: {error}")
                ) from error
            if args is None:
                return False
            if not args:
                await asyncio.sleep(0)
            elif args[2].upper() == end:
                return True
            elif args[2].upper() == b"FAIL":
                reason = args[3].decode("utf-8", "replace") if len(args) > 3 else ""
                raise ImportFailedError(self.task.explain(f"{name} - The source has failed: {reason}"))

    def _acknowledge(self) -> None:
        """Tell the source, ten times a second, how much of the changes has been run."""
        self._ack_timer = self._host.loop.call_later(ACK_EVERY_S, self._acknowledge)
        if self._main is not None:
            applied = self._applied - self._client.unrun
            self._main.write(encode_request(*SYNCSLOTS, "ACK", "wait-stream-eof", applied))
