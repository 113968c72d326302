"""Link: one attempt to follow the primary, from the connection to the moment when it carries the stream.

    connect ─▶ PING, AUTH, REPLCONF ... ─▶ PSYNC ─┬─▶ +CONTINUE ───────────────────────────────────────▶ the stream
                                                  ├─▶ +FULLRESYNC ─▶ snapshot ─▶ load ─────────────────▶
                                                  └─▶ +RDBCHANNELSYNC ─▶ snapshot on a second connection,
                                                                         the stream is kept meanwhile ─▶

Whatever fails raises ReplicationError with the line for the log; the attempt then leaves nothing behind. A snapshot is
received as repl-diskless-load says, and read whole before anything is removed, except with `flushdb`:

    disabled         into a file, which is checked, then loaded in place of the data
    swapdb           into databases of its own, which then replace the data
    on-empty-db      like swapdb if there is no data, else like disabled
    flushdb          like swapdb, but the data is removed first

Messages, their order and the words of the log: Redis 8.6, as seen on the wire.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import ssl
import time
from collections.abc import AsyncGenerator, Callable, Mapping

from streamd.core.host import Host
from streamd.errors import CorruptFileError, ReplicationError, UnsupportedValueError
from streamd.integers import find_count
from streamd.keyspace.database import Database
from streamd.persistence.directory_lock import DirectoryInUseError
from streamd.persistence.persistence import Persistence
from streamd.persistence.start_loading import log_damage
from streamd.protocol.request_bytes import encode_request
from streamd.replication.payload import Header, Parser, Spool, pieces_of, read_header
from streamd.replication.primary_connection import Connection, ConnectionLostError
from streamd.replication.replication import Replication
from streamd.replication.standing import View
from streamd.replication.views import Views

__all__ = ["Link", "Point", "Progress", "Snapshot"]

log = logging.getLogger("streamd")

CLUSTER_BUSY = (b"-NOMASTERLINK", b"-LOADING", b"-MASTERDOWN", b"-BUSY")
"""What a primary answers that cannot synchronize now, but will."""


class Point:
    """A point of a history: its ID, and how many bytes of its stream come before."""

    def __init__(self, replid: str, offset: int) -> None:
        self.replid = replid
        self.offset = offset


class Snapshot:
    """A snapshot that was loaded.

    point      of the history
    aux        its auxiliary fields
    stream_db  the database that the stream behind it has selected
    view       that of its data (see standing.py); empty: the primary knows none
    """

    def __init__(self, point: Point, aux: Mapping[str, str]) -> None:
        self.point = point
        self.aux = aux
        self.stream_db = find_count(aux.get("repl-stream-db", ""))
        self.view = aux.get("repl-view", "")


class Progress:
    """A snapshot that is being received.

    total    bytes; 0: not known
    read     bytes that have arrived
    last_io  when the last ones did, in monotonic seconds
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self.read = 0
        self.last_io = time.monotonic()


class Link:
    """
    host, port   of the primary
    entered      called with the name of each state: connecting, handshake, sync
    say          takes the log lines of the steps
    received     called with the number of bytes that arrived
    make_tls     makes the context for tls-replication; raises StreamdError
    progress     of the snapshot, while one is received
    main         the connection that carries the stream in the end
    has_kept     part of the stream has been kept while a snapshot was received on a second connection
    kept_peak    the most bytes of the stream that were kept while a snapshot was received on a second connection
    """

    def __init__(
        self,
        server: Host,
        host: str,
        port: int,
        *,
        entered: Callable[[str], object],
        say: Callable[[str], object],
        received: Callable[[int], object],
        make_tls: Callable[[], ssl.SSLContext],
    ) -> None:
        self._server = server
        self._config = server.config
        self._replication = server.get(Replication)
        self._persistence = server.get(Persistence)
        self._views = server.get(Views)
        self._host, self._port = host, port
        self._entered = entered
        self._say = say
        self._received = received
        self._make_tls = make_tls
        self._connections: list[Connection] = []
        self._has_rdb_channel = False
        self._is_for_data = False
        self.progress: Progress | None = None
        self.main: Connection | None = None
        self.is_loading = False
        self.kept_peak = 0
        self.has_kept = False

    @property
    def place(self) -> str:
        return f"{self._host}:{self._port}"

    @property
    def kept_bytes(self) -> int:
        """Bytes of the stream that are kept until the snapshot has been loaded."""
        return self.main.size if self._has_rdb_channel and self.main is not None else 0

    def close(self) -> None:
        """Drop all connections at once."""
        for connection in self._connections:
            connection.close()

    def keep_alive(self) -> None:
        """Once a second: the primary must not take a long load for the end of this replica."""
        if self._has_rdb_channel and self.main is not None:
            self.main.write(encode_request("REPLCONF", "ACK", 0))
        elif self.is_loading and self.main is not None:
            self.main.write(b"\n")

    # --- The connection ----------------------------------------------------------------------------------------------

    async def _connect(self) -> Connection:
        """A new connection. Raises ReplicationError."""
        config = self._config
        local = (config.bind_source_addr, 0) if config.bind_source_addr else None
        context = self._make_tls() if config.tls_replication else None
        try:
            async with asyncio.timeout(config.repl_timeout):
                _, connection = await self._server.loop.create_connection(
                    lambda: Connection(lambda: float(config.repl_timeout), self._received),
                    self._host, self._port, local_addr=local, ssl=context,
                )  # fmt: skip
        except TimeoutError:
            raise ReplicationError(
                f"Timeout connecting to the MASTER: {self.place} has not answered for {config.repl_timeout} seconds"
                f" (repl-timeout). Check the address, the network between{', and that the port speaks TLS' * bool(context)}."
            ) from None
        except ssl.SSLError as error:
            raise ReplicationError(
                f"Error condition on socket for SYNC: TLS to {self.place} failed: {error.reason or error}. Check tls-replication,"
                " tls-ca-cert-file and that the primary's port speaks TLS."
            ) from error
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
            raise ReplicationError(
                f"Error condition on socket for SYNC: {reason}. Check that a primary is running at {self.place}."
            ) from error
        self._connections.append(connection)
        return connection

    async def _greet(self, connection: Connection, *configuration: tuple[str | int, ...]) -> None:
        """PING, AUTH, and REPLCONF for each part of the configuration. Raises ReplicationError."""
        config = self._config
        requests = []
        if config.masterauth:
            user = (config.masteruser,) if config.masteruser else ()
            requests.append(encode_request("AUTH", *user, config.masterauth))
        requests += [encode_request("REPLCONF", *words) for words in configuration]
        connection.write(b"".join(requests))
        if config.masterauth:
            reply = await connection.read_line()
            if reply.startswith(b"-"):
                raise ReplicationError(
                    f"Unable to AUTH to MASTER: {shown(reply)}. Check masterauth and masteruser: they must be the"
                    f" password, and the user, of {self.place}.", is_lasting=True,
                )  # fmt: skip
        for words in configuration:
            reply = await connection.read_line()
            if reply.startswith((b"-NOAUTH", b"-NOPERM")):
                raise self._denied(reply)
            if reply.startswith(b"+VIEW "):
                self._views.join(View.parse(reply[6:].decode("latin-1")))
            if reply.startswith(b"-"):
                log.debug("Master does not understand REPLCONF %s: %s", words[0], shown(reply))

    def _denied(self, reply: bytes) -> ReplicationError:
        if reply.startswith(b"-NOAUTH"):
            advice = "The primary wants a password: set masterauth, and masteruser for a user with a name"
        else:
            advice = "The user (masteruser) needs permission for PING, REPLCONF and PSYNC"
        return ReplicationError(f"MASTER {self.place} refuses this replica: {shown(reply)}. {advice}.", is_lasting=True)

    async def _ping(self, connection: Connection) -> None:
        connection.write(encode_request("PING"))
        reply = await connection.read_line()
        if reply.startswith((b"+", b"-NOAUTH", b"-NOPERM", b"-ERR operation not permitted")):
            self._say("Master replied to PING, replication can continue...")
        elif reply.startswith(CLUSTER_BUSY):
            raise ReplicationError(f"Error reply to PING from master: '{shown(reply)}'. Trying again until it can.")
        elif reply.startswith(b"-"):
            raise ReplicationError(f"Error reply to PING from master: '{shown(reply)}'")
        else:
            raise ReplicationError(
                f"Error reply to PING from master: '{shown(reply)}'. The server at {self.place} is not a Redis: check"
                " the host and the port of the primary.", is_lasting=True,
            )  # fmt: skip

    @property
    def _announced(self) -> list[tuple[str | int, ...]]:
        """Where this replica says that it listens."""
        config = self._config
        port = config.replica_announce_port or (
            config.tls_port if config.tls_replication and config.tls_port else config.port
        )
        found: list[tuple[str | int, ...]] = [("listening-port", port)]
        if config.replica_announce_ip:
            found.append(("ip-address", config.replica_announce_ip))
        return found

    # --- An attempt --------------------------------------------------------------------------------------------------

    async def open(
        self, wanted: Point | None, *, is_handing_over: bool = False, is_for_data: bool = False
    ) -> Snapshot | Point:
        """Connect and synchronize; `main` then carries the stream.

        wanted           the point to continue from; None: everything is wanted
        is_handing_over  ask the other server, a replica of this one, to become its primary
        is_for_data      the other server is a replica of this one, and has more than it
        Returns the point that the stream continues from, with the ID that the history has now; a Snapshot if one was
        loaded. Raises ReplicationError.
        """
        config = self._config
        self._entered("connecting")
        self._say("MASTER <-> REPLICA sync started")
        self.main = connection = await self._connect()
        self._entered("handshake")
        self._say("Non blocking connect for SYNC fired the event.")
        capabilities = ["capa", "eof", "capa", "psync2"]
        if config.repl_rdb_channel:
            capabilities += ["capa", "rdb-channel-repl"]
        configuration = [*self._announced, ("capa", *capabilities[1:])]
        if self._is_diskless():
            configuration.insert(-1, ("rdb-no-compress", 1))
        self._is_for_data = is_for_data
        if is_for_data:
            configuration.append(("wants-data", 1))
        elif greeting := self._views.greeting():
            configuration.append(("view", greeting))
        try:
            await self._ping(connection)
            await self._greet(connection, *configuration)
            return await self._synchronize(connection, wanted, is_handing_over=is_handing_over)
        except ConnectionLostError as error:
            what = "receiving bulk data from" if self.progress is not None else "talking to"
            raise ReplicationError(f"I/O error {what} MASTER {self.place}: {error}") from error

    async def _synchronize(
        self, connection: Connection, wanted: Point | None, *, is_handing_over: bool
    ) -> Snapshot | Point:
        failover = ("FAILOVER",) if is_handing_over else ()
        if wanted is None:
            self._say("Partial resynchronization not possible (no cached master)")
            connection.write(encode_request("PSYNC", "?", -1))
        else:
            self._say(f"Trying a partial resynchronization (request {wanted.replid}:{wanted.offset + 1}).")
            connection.write(encode_request("PSYNC", wanted.replid, wanted.offset + 1, *failover))
        reply = await connection.read_line()
        words = reply.decode("utf-8", "replace").split()
        if words[0] == "+CONTINUE" and wanted is not None:
            log.info("Successful partial resynchronization with master.")
            return Point(words[1] if len(words) > 1 and len(words[1]) == 40 else wanted.replid, wanted.offset)
        if is_handing_over and reply.startswith(b"-"):
            raise ReplicationError(f"{self.place} does not take over: {shown(reply)}")
        self._entered("sync")
        if wanted is not None and words[0] in ("+FULLRESYNC", "+RDBCHANNELSYNC"):
            log.info("Discarding previously cached master state.")
        if words[0] == "+FULLRESYNC":
            return await self._resynchronize(connection, self._read_point(words))
        if words[0] == "+RDBCHANNELSYNC" and len(words) > 1:
            self._say("PSYNC is not possible, initialize RDB channel.")
            return await self._resynchronize_beside(connection, words[1])
        if reply.startswith(CLUSTER_BUSY):
            raise ReplicationError(
                f"MASTER is currently unable to PSYNC but should be in the future: {shown(reply)}{self._loop_hint(reply)}"
            )
        if reply.startswith((b"-NOAUTH", b"-NOPERM")):
            raise self._denied(reply)
        if not reply.startswith(b"-"):
            raise ReplicationError(f"Unexpected reply to PSYNC from master: {shown(reply)}")
        self._say(f"Master does not support PSYNC or is in error state (reply: {shown(reply)})")
        self._say("Retrying with SYNC...")
        connection.write(b"SYNC\r\n")
        return await self._resynchronize(connection, None)

    def _loop_hint(self, reply: bytes) -> str:
        """Why a server that is a replica itself may never be able to, as far as that can be seen from here."""
        if not reply.startswith(b"-NOMASTERLINK") or b"taken over" in reply or self.main is None:
            return ""
        own = self.main.address("sockname")
        if any(
            client.transport is not None and client.transport.get_extra_info("peername") == own
            for client in self._server.clients.values()
        ):
            return f". {self.place} is this server itself: give REPLICAOF the address of another one."
        return (
            f". {self.place} is a replica that has no link to its own primary: if that is this server, the two follow each"
            " other, and one of them must get REPLICAOF NO ONE."
        )

    def _read_point(self, words: list[str]) -> Point:
        offset = find_count(words[2]) if len(words) > 2 and len(words[1]) == 40 else None
        if offset is None:
            raise ReplicationError(f"Master replied with wrong +FULLRESYNC syntax: {shown(' '.join(words).encode())}")
        return Point(words[1], offset)

    # --- Full resync -------------------------------------------------------------------------------------------------

    async def _resynchronize(self, connection: Connection, point: Point | None) -> Snapshot:
        """Receive and load a snapshot on the connection that then carries the stream. No point: after SYNC."""
        if point is not None:
            log.info("Full resync from master: %s:%d", point.replid, point.offset)
        return await self._receive(connection, point)

    async def _resynchronize_beside(self, main: Connection, client_id: str) -> Snapshot:
        """Receive and load a snapshot on a second connection, while the first one already carries the stream."""
        main.most = self._config.replica_full_sync_buffer_limit or self._replica_limit() or 1 << 62
        self._has_rdb_channel = True
        try:
            snapshot = await self._receive_beside(client_id)
        finally:
            self._has_rdb_channel = False
        self.kept_peak = main.peak
        self.has_kept = True
        if main.is_lost:
            raise ReplicationError(f"MASTER {self.place} has closed the connection while its snapshot was loaded")
        log.info("MASTER <-> REPLICA sync: Starting to stream replication buffer into the db (%d bytes).", main.size)
        return snapshot

    async def _receive_beside(self, client_id: str) -> Snapshot:
        """Receive and load a snapshot on a second connection."""
        second = await self._connect()
        await self._ping(second)
        words = ["capa", "eof", "rdb-only", "1", "rdb-channel", "1", "main-ch-client-id", client_id]
        for announced in self._announced:
            words += [str(word) for word in announced]
        if self._is_for_data:
            words += ["wants-data", "1"]
        await self._greet(second, tuple(words))
        second.write(encode_request("PSYNC", "?", -1))
        reply = await second.read_line()
        if not reply.startswith(b"+FULLRESYNC"):
            raise ReplicationError(f"Unexpected reply to PSYNC on the RDB channel: {shown(reply)}")
        point = self._read_point(reply.decode("utf-8", "replace").split())
        self._say("Starting to receive RDB and replication stream in parallel.")
        snapshot = await self._receive(second, point)
        second.close()
        return snapshot

    def _replica_limit(self) -> int:
        """The hard limit of the output of replicas, which also limits what a replica keeps."""
        return int(self._config.client_output_buffer_limit["replica"].hard_bytes)

    def _is_diskless(self) -> bool:
        mode = self._config.repl_diskless_load
        return mode in ("swapdb", "flushdb") or (mode == "on-empty-db" and not any(map(len, self._server.databases)))

    async def _receive(self, connection: Connection, point: Point | None) -> Snapshot:
        """Receive and load a snapshot."""
        header = await read_header(connection)
        is_diskless = self._is_diskless()
        target = "parser" if is_diskless else "disk"
        if header.size is None:
            log.info("MASTER <-> REPLICA sync: receiving streamed RDB from master with EOF to %s", target)
        else:
            log.info("MASTER <-> REPLICA sync: receiving %d bytes from master to %s", header.size, target)
        self.progress = Progress(header.size or 0)
        try:
            if is_diskless:
                aux = await self._load_as_it_arrives(connection, header, point)
            else:
                aux = await self._load_from_file(connection, header)
        except UnsupportedValueError as error:
            raise ReplicationError(
                f"The snapshot of MASTER {self.place} cannot be loaded: key '{shown(error.key)}' of database"
                f" {error.database} is a {error.type_name}, a type that is not supported. The old data is"
                " kept. Remove such keys there, or set rdb-skip-unsupported to yes to leave them out.", is_lasting=True,
            ) from error  # fmt: skip
        except CorruptFileError as error:
            log_damage(error)
            advice = ""
            if error.expected.startswith("an RDB format version"):
                advice = " The primary is newer than this server understands: use an older primary, or a newer streamd."
            raise ReplicationError(
                f"Failed trying to load the MASTER synchronization DB from {target}: {error}.{advice}", is_lasting=True
            ) from error
        except DirectoryInUseError as error:
            raise ReplicationError(f"Can't receive the snapshot: {error.strerror}", is_lasting=True) from error
        except OSError as error:
            raise ReplicationError(
                f"Write error or short write writing to the DB dump file needed for MASTER <-> REPLICA synchronization: {error}"
            ) from error
        finally:
            self.progress = None
        log.info("MASTER <-> REPLICA sync: Finished with success")
        if point is None:
            point = Point(aux.get("repl-id", ""), -1)
        return Snapshot(point, aux)

    async def _pieces(self, connection: Connection, header: Header) -> AsyncGenerator[bytes, None]:
        assert self.progress is not None  # noqa: S101
        async for data in pieces_of(connection, header):
            self.progress.read += len(data)
            self.progress.last_io = time.monotonic()
            yield data

    async def _load_from_file(self, connection: Connection, header: Header) -> dict[str, str]:
        """Write the snapshot to a file, check it if there is data to lose, and load it in place of the data.

        Returns its auxiliary fields.
        """
        loader, directory = self._persistence.loader, self._persistence.directory
        directory.claim(directory.here)
        try:
            spool = Spool(directory.path(f"temp-{int(time.time())}.{os.getpid()}.rdb"))
            try:
                async with contextlib.aclosing(self._pieces(connection, header)) as pieces:
                    async for data in pieces:
                        await spool.put(data)
                await spool.finish()
                self.is_loading = True
                self._hold(connection)
                if any(len(db) for db in self._server.databases):
                    await loader.check_received(spool.path)
                self._leave_history()
                aux = await loader.load_received(spool.path)
                if self._config.rdb_del_sync_files and self._persistence.has_no_files:
                    log.info("Removing the RDB file obtained from the primary, since persistence is disabled.")
                else:
                    os.rename(spool.path, directory.snapshot_path)
            finally:
                spool.discard()
        finally:
            self.is_loading = False
            directory.settle()
            connection.hold(False)
        return aux

    def _leave_history(self) -> None:
        """The data is about to be dropped: until other data is loaded, it is not part of any history."""
        self._replication.disconnect_replicas()
        self._replication.change_id()

    def _hold(self, connection: Connection) -> None:
        """Let the stream wait until the snapshot has been loaded, unless it is kept here."""
        if connection is self.main:
            connection.hold(True)

    async def _load_as_it_arrives(self, connection: Connection, header: Header, point: Point | None) -> dict[str, str]:
        """Read the snapshot into databases of its own, which then replace the data. Returns its auxiliary fields."""
        loader = self._persistence.loader
        # With the ID unchanged, the data is an older state of what arrives: it may be read meanwhile.
        is_same = self._config.repl_diskless_load == "swapdb" and point is not None
        is_same = is_same and point is not None and point.replid == self._replication.replid
        options = loader.load_options(is_apart=True)
        databases = [Database(db.index, trash=self._server.trash) for db in self._server.databases]
        self.is_loading = True
        with loader.receiving(header.size or 0, is_async=is_same):
            if self._config.repl_diskless_load == "flushdb":
                log.info("MASTER <-> REPLICA sync: Flushing old data")
                self._leave_history()
                loader.flush()
            log.info("MASTER <-> REPLICA sync: Loading DB in memory")
            parser = Parser(databases, options, "the snapshot of the primary")
            try:
                async with contextlib.aclosing(self._pieces(connection, header)) as pieces:
                    async for data in pieces:
                        loader.note_progress(parser.reader.offset)
                        await parser.put(data)
                self._hold(connection)
                await parser.finish()
                log.info("MASTER <-> REPLICA sync: Swapping active DB with loaded DB")
                loader.take_over(parser.reader)
                log.info("MASTER <-> REPLICA sync: Discarding old DB in background")
            finally:
                parser.discard()
                self.is_loading = False
                connection.hold(False)
                for db in databases:
                    db.flush()
        return parser.reader.aux


def shown(reply: bytes) -> str:
    """The start of what the primary has sent, for the log."""
    return "".join(c if c.isprintable() else "?" for c in reply[:256].decode("utf-8", "replace"))
