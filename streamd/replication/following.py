"""Following: this server as a replica: whom it follows, the link to it, and what clients see of that.

    REPLICAOF, or replicaof at the start ─▶ follow ─▶ attempts of Link, again and again ─▶ PrimaryClient, the stream
    REPLICAOF NO ONE                     ─▶ promote

While the server is a replica, one task (`_keep_linked`) makes an attempt, waits until the link has ended, and makes the
next one: at once after a link that was up, else after a while. An attempt that fails like the one before logs nothing.

States of the link, as ROLE shows them: none (a primary), connect, connecting, handshake, sync, connected. Behaviour:
Redis 8.6.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

from streamd.core.capability import Capability
from streamd.core.client import Client
from streamd.core.host import Host
from streamd.core.info import Field, Fields, Lines
from streamd.errors import ReplicationError, StreamdError, StreamLostError, printable
from streamd.integers import find_count
from streamd.memory.eviction import Eviction
from streamd.observe.rates import Rate
from streamd.persistence.persistence import Persistence
from streamd.persistence.start_loading import LoadError
from streamd.process.log import show_role
from streamd.protocol.request_bytes import encode_request
from streamd.replication.apply import PrimaryClient
from streamd.replication.link import Link, Point, Progress, Snapshot
from streamd.replication.refusals import ReplicaRefusals
from streamd.replication.replacement import Replacement
from streamd.replication.replication import Replication
from streamd.replication.views import Views

__all__ = ["Following"]

log = logging.getLogger("streamd")

RETRY_S = 1.0
"""The wait before an attempt that follows a failed one; it grows with further failures, up to RETRY_MOST_S."""
RETRY_MOST_S = 5.0
LASTING_RETRY_S = 5.0
"""The same for failures that only a person can mend: each attempt may cost the primary a snapshot."""
LASTING_RETRY_MOST_S = 120.0
GROWTH = 2.0
DISK_LOG_S = 10.0
"""Seconds between two log lines about changes that are applied though the disk does not take them."""

UNBLOCKED_TEXT = "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)"


class Following(Capability):
    """
    host, port  of the primary; empty and 0: this server is a primary
    state       of the link
    client      the connection that carries the stream; None while the link is down
    kept_peak   the most bytes of the stream that waited for the snapshot of the last full resync
    make_tls    makes the context for tls-replication; set by what knows the certificates
    """

    host: str
    port: int

    rests = True
    info = {
        "replication": (
            Fields(
                "master_host master_port master_link_status master_last_io_seconds_ago master_sync_in_progress"
                " slave_read_repl_offset slave_repl_offset replica_full_sync_buffer_size replica_full_sync_buffer_peak"
                " master_current_sync_attempts master_total_sync_attempts total_disconnect_time_sec slave_priority"
                " slave_read_only replica_announced",
                lambda self: self._figures() if self._dispatcher.is_replica else None,
            ),
            Lines("master_link_down_reason", lambda self: self._reason_lines() if self._dispatcher.is_replica else ()),
            Lines(
                "master_sync_total_bytes", lambda self: self._progress_lines() if self._dispatcher.is_replica else ()
            ),
            Lines(
                "master_link_up_since_seconds", lambda self: self._link_lines() if self._dispatcher.is_replica else ()
            ),
        ),
        "memory": (Field("mem_replica_full_sync_buffer", lambda self: self.kept_bytes()),),
        "stats": (
            Fields(
                "total_net_repl_input_bytes instantaneous_input_repl_kbps",
                lambda self: (self.input_bytes, self.input_rate.per_second() / 1024),
            ),
        ),
    }

    def __init__(self, host: Host) -> None:
        self._server = host
        self._dispatcher = host.dispatcher
        self._config = host.config
        self._replication = host.get(Replication)
        self._replacement = host.get(Replacement)
        self._replacement.observers.append(self._follow_link)
        self._views = host.get(Views)
        self._views.follow_for_data = self.follow_for_data
        self._replication.data_taken = self._data_taken
        self._views.observers.append(self._follow_limit)
        self._persistence = host.get(Persistence)
        self._eviction = host.get(Eviction)
        self._refusals = host.get(ReplicaRefusals)
        self._refusals.set_write_errors(self._persistence.find_write_error)
        self.make_tls: Callable[[], ssl.SSLContext] = ssl.create_default_context
        self.host, self.port = "", 0
        self.state = "none"
        self.client: PrimaryClient | None = None
        self.kept_peak = 0
        self.attempts = 0
        self.total_attempts = 0
        self._link: Link | None = None
        self._task: asyncio.Task[None] | None = None
        self._stream_over: asyncio.Future[ReplicationError | None] | None = None
        self._retry = asyncio.Event()
        self._has_begun = False
        self._must_resync = True
        self._is_old_protocol = False
        self._is_handing_over = False
        self.handed_over: Callable[[bool], None] = lambda is_done: None
        self.keeps_waiting: Callable[[], list[Client]] = list
        self._wanted_offset: int | None = None
        """It follows one of its replicas, which has more than it, up to this offset; then it is the primary again."""
        self._last_failure = ""
        self._is_failure_lasting = False
        self._failures = 0
        self._up_since = 0.0
        self._down_since: float | None = None
        self._down_before_s = 0.0
        self._asked_offset = 0
        self.skips_turns = True
        self._skipped: set[str] = set()
        self._disk_logged_at = 0.0
        self.reset_statistics()
        if self._config.replicaof:
            self.host, self.port = self._config.replicaof[0], int(self._config.replicaof[1])
            self._replication.follow(True)

    # --- What there is to know ---------------------------------------------------------------------------------------

    @property
    def is_replica(self) -> bool:
        return self._replication.is_replica

    @property
    def is_link_up(self) -> bool:
        return self.client is not None

    @property
    def last_io_s(self) -> int:
        """Seconds since the primary has sent something; -1 while the link is down."""
        return int(time.monotonic() - self.client.last_interaction) if self.client is not None else -1

    @property
    def heard_at(self) -> float | None:
        """When the primary has sent something last, or when the link broke, in monotonic seconds; None: it was never up."""
        return self.client.last_interaction if self.client is not None else self._down_since

    @property
    def unexecuted(self) -> int:
        """Bytes of the stream that have arrived and were not executed."""
        return self.client.unexecuted if self.client is not None else 0

    @property
    def progress(self) -> Progress | None:
        """Of the snapshot that is being received."""
        return self._link.progress if self._link is not None else None

    def kept_bytes(self) -> int:
        """Bytes of the stream that wait until the snapshot has been loaded."""
        return self._link.kept_bytes if self._link is not None else 0

    @property
    def down_s(self) -> float:
        """Seconds that the link was down since this server follows its primary."""
        since = self._down_since
        return self._down_before_s + (time.monotonic() - since if since is not None else 0.0)

    def _figures(self) -> tuple[object, ...]:
        return (
            self.host,
            self.port,
            "up" if self.is_link_up else "down",
            self.last_io_s,
            self.state == "sync",
            self._replication.offset + self.unexecuted,
            self._replication.offset,
            self.kept_bytes(),
            max(self.kept_bytes(), self.kept_peak),
            self.attempts,
            self.total_attempts,
            int(self.down_s),
            self._config.replica_priority,
            self._config.replica_read_only,
            self._config.replica_announced,
        )

    def _reason_lines(self) -> Iterator[str]:
        if not self.is_link_up and self._last_failure:
            yield f"master_link_down_reason:{self._last_failure}"

    def _progress_lines(self) -> Iterator[str]:
        progress = self.progress
        if progress is not None:
            total, read = progress.total, progress.read
            yield f"master_sync_total_bytes:{total}"
            yield f"master_sync_read_bytes:{read}"
            yield f"master_sync_left_bytes:{total - read}"
            yield f"master_sync_perc:{100 * read / total if total else 0:.2f}"
            yield f"master_sync_last_io_seconds_ago:{int(time.monotonic() - progress.last_io)}"

    def _link_lines(self) -> Iterator[str]:
        if self.is_link_up:
            yield f"master_link_up_since_seconds:{int(time.monotonic() - self._up_since)}"
            yield "master_client_io_thread:0"
        else:
            down_s = int(time.monotonic() - self._down_since) if self._down_since is not None else -1
            yield f"master_link_down_since_seconds:{down_s}"

    # --- Life --------------------------------------------------------------------------------------------------------

    def apply_settings(self) -> None:
        self._follow_limit()
        self._follow_link()
        self._retry.set()

    def _follow_limit(self) -> None:
        """Evict only where that is this server's to decide."""
        is_ignored = self.is_replica and self._config.replica_ignore_maxmemory
        self._eviction.is_off = is_ignored or self._replication.is_silent

    def begin(self) -> None:
        """The data has been loaded: take up its history, and the link."""
        self._has_begun = True
        aux = self._persistence.loader.aux
        replid, offset = aux.get("repl-id", ""), find_count(aux.get("repl-offset", ""))
        if len(replid) == 40 and offset is not None:
            self._replication.restore(replid, offset)
            if self.is_replica:
                self._must_resync = False
                self._take_stream_db(find_count(aux.get("repl-stream-db", "")))
                self._report_aux(aux)
            else:
                self._replication.branch_off()
                self._replication.report_deleted(self._persistence.loader.dropped_keys)
        self._persistence.loader.dropped_keys = []
        self._views.data_loaded()
        if self.is_replica:
            self._start_link()

    def _report_aux(self, aux: Mapping[str, str]) -> None:
        for observe in self._replication.aux_observers:
            observe(aux)

    def close(self) -> None:
        self._stop_link()

    def cron(self, now_ms: int) -> None:
        self.input_rate.sample(time.monotonic(), self.input_bytes)

    def each_second(self, now_ms: int) -> None:
        if self._link is not None:
            self._link.keep_alive()
        if self.client is not None:
            if time.monotonic() - self.client.last_interaction > self._config.repl_timeout:
                log.warning("MASTER timeout: no data nor PING received...")
                self.client.close()
            else:
                self._acknowledge(self._replication.offset)

    def pause_ended(self) -> None:
        """The stream waits during CLIENT PAUSE, and while a script takes too long, as in Redis."""
        if self.client is not None:
            self._server.loop.call_soon(self.client.resume)

    def reset_statistics(self) -> None:
        self.input_bytes = 0
        self.input_rate = Rate()

    def _follow_link(self) -> None:
        """Bring up to date what depends on the role and on whether the link is up."""
        self._replication.is_link_up = self.is_link_up
        is_stale = not self.is_link_up and not self._config.replica_serve_stale_data
        is_read_only = self._config.replica_read_only if self.is_replica else self._replacement.is_refusing
        self._refusals.refuse(is_read_only, self.is_replica and is_stale)
        show_role(is_replica=self.is_replica)
        is_writable = self.is_replica and not self._config.replica_read_only
        for db in self._server.databases:
            if is_writable != (db.own_expiries is not None):
                db.own_expiries = set() if is_writable else None

    # --- Roles -------------------------------------------------------------------------------------------------------

    def expect(self, host: str, port: int) -> None:
        """Be a replica from the start, before the data is loaded. Without a host, the link waits for `follow`."""
        self.host, self.port = host, port
        self._replication.follow(True)

    def follow(self, host: str, port: int, *, is_handing_over: bool = False, wanted_offset: int | None = None) -> None:
        """Become a replica of another server, or of another one than so far.

        is_handing_over  it is a replica of this one, and shall become the primary; `handed_over` is called when it has
                         answered; those of `keeps_waiting` are not disconnected before
        wanted_offset    it is a replica of this one, which becomes the primary again when it has its data up to there
        """
        was_primary = not self.is_replica
        self._stop_link()
        self._wanted_offset = wanted_offset
        self._views.is_taking_over = wanted_offset is not None
        self.host, self.port = host, port
        if not self._config.cluster_enabled:
            self._config.replicaof = (host, str(port))
        kept = self.keeps_waiting() if is_handing_over or self._config.cluster_enabled else []
        if not is_handing_over:  # a cluster redirects those that wait for keys
            kept = [client for client in kept if client.blocked.request.keys]
        self._server.disconnect_blocked(UNBLOCKED_TEXT, kept)
        if was_primary:
            log.info(
                "Before turning into a replica, using my own master parameters to synthesize a cached master: I may be"
                " able to synchronize with the new master with just a partial transfer."
            )
            self._replication.follow(True)
            self._must_resync = False
            self._take_stream_db(0)
        self._is_handing_over = is_handing_over
        if was_primary:
            self._down_since, self._down_before_s = None, 0.0
        self._last_failure, self._failures = "", 0
        self.attempts = self.total_attempts = 0
        self.apply_settings()
        self._start_link()

    def follow_for_data(self, host: str, port: int, offset: int) -> None:
        """A primary that is not established takes over what one of its replicas has, up to this offset."""
        if self.is_replica or not self._replication.is_silent:
            return
        self._replication.return_to_branch()
        self.follow(host, port, wanted_offset=offset)

    def _data_taken(self) -> None:
        """The primary has taken over what is here: it will let this server follow it now."""
        self._retry.set()

    def _look_at_data(self) -> None:
        """Become the primary again, if everything wanted is here."""
        if self._wanted_offset is not None and self._replication.offset >= self._wanted_offset:
            self._server.loop.call_soon(self._end_for_data)

    def _end_for_data(self) -> None:
        if self._wanted_offset is not None:
            self.promote()

    def promote(self) -> None:
        """Become a primary, with the data that there is."""
        if not self.is_replica:
            return
        self._stop_link()
        log.info("Discarding previously cached master state.")
        self._wanted_offset = None
        self._views.is_taking_over = False
        self.host, self.port = "", 0
        self._config.replicaof = ()
        self.state = "none"
        self._replication.promote()
        self.apply_settings()

    def _start_link(self) -> None:
        if not self._has_begun or not self.host:
            return
        self.state = "connect"
        self._task = self._server.loop.create_task(self._keep_linked())

    def _stop_link(self) -> None:
        """End the link and the attempts to make one."""
        self._drop_client()
        if self._link is not None:
            self._link.close()
            self._link = None
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._stream_over = None

    def _drop_client(self) -> bool:
        """End the stream; False if there was none."""
        client, self.client = self.client, None
        if client is None:
            return False
        client.stop()
        log.info("Connection with master lost.")
        log.info("Caching the disconnected master state.")
        self._down_since = time.monotonic()
        return True

    # --- The link ----------------------------------------------------------------------------------------------------

    async def _keep_linked(self) -> None:
        """Make the link, again and again."""
        was_up = False
        while True:
            self.state = "connect"
            self._retry.clear()
            try:
                self._say(f"{'Reconnecting' if was_up else 'Connecting'} to MASTER {self.host}:{self.port}")
                was_up = False
                was_up = await self._link_once()
            except ReplicationError as error:
                self._note_failure(error)
            except LoadError as error:
                self._note_failure(ReplicationError(str(error)))
            except StreamdError as error:
                self._note_failure(ReplicationError(str(error), is_lasting=True))
            except Exception as error:
                log.exception("Unexpected error while following the primary")
                self._note_failure(ReplicationError(f"unexpected error: {error!r}", is_lasting=True))
            finally:
                if self._task is asyncio.current_task():  # else another link has been begun
                    self._link_ended()
            if self._wanted_offset is not None:
                self._server.loop.call_soon(self._end_for_data)
                return
            if was_up:
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(self._wait_s):
                    await self._retry.wait()

    async def _link_once(self) -> bool:
        """One attempt, and the link that it makes. Returns whether the link was up; raises ReplicationError."""
        self._server.wake(self)
        self.attempts += 1
        self.total_attempts += 1
        replication = self._replication
        wanted = None if self._must_resync else Point(replication.replid, replication.offset)
        self._link = link = Link(
            self._server, self.host, self.port,
            entered=self._enter, say=self._say, received=self._count_input, make_tls=self.make_tls,
        )  # fmt: skip
        try:
            reached = await link.open(
                wanted, is_handing_over=self._is_handing_over, is_for_data=self._wanted_offset is not None,
            )  # fmt: skip
            self._take_up(link, reached)
        except BaseException:
            link.close()
            raise
        self._link = None
        assert self._stream_over is not None  # noqa: S101
        failure = await self._stream_over
        if failure is not None:
            raise failure
        return True

    def _take_up(self, link: Link, reached: Point | Snapshot) -> None:
        """The primary's data is here: the connection carries the stream from now on."""
        replication = self._replication
        self._is_old_protocol = False
        if isinstance(reached, Snapshot):
            point = reached.point
            self._is_old_protocol = not point.replid
            replication.adopt(point.replid or os.urandom(20).hex(), max(0, point.offset))
            self._views.adopted(reached.view)
            self._take_stream_db(reached.stream_db)
            self._report_aux(reached.aux)
            self.kept_peak = link.kept_peak
            outcome = "Finished with success"
        else:
            if reached.replid != replication.replid:
                log.info("Master replication ID changed to %s", reached.replid)
            replication.continue_as(reached.replid)
            log.info("MASTER <-> REPLICA sync: Master accepted a Partial Resynchronization.")
            outcome = "Partial Resynchronization accepted"
        self._must_resync = self._is_old_protocol
        connection = link.main
        assert connection is not None  # noqa: S101
        self._stream_over = self._server.loop.create_future()
        self.client = client = PrimaryClient(self._server.dispatcher)
        client.begin(self, replication.stream_db)
        self._last_failure, self._failures = "", 0
        was_handed_over, self._is_handing_over = self._is_handing_over, False
        if was_handed_over:
            self.handed_over(True)
        now = time.monotonic()
        if self._down_since is not None:
            self._down_before_s += now - self._down_since
            self._down_since = None
        self._up_since = now
        self._enter("connected")
        self._follow_link()
        self._server.supervisor.tell(
            f"STATUS=MASTER <-> REPLICA sync: {outcome}. Ready to accept connections in read-write mode."
        )
        transport = connection.transport
        transport.set_protocol(client)
        client.connection_made(transport)
        self._acknowledge(replication.offset)
        received = connection.take()
        connection.hold(False)
        client.data_received(received)
        if link.has_kept:
            log.info(
                "MASTER <-> REPLICA sync: Successfully streamed replication buffer into the db (%d bytes in total)",
                len(received),
            )
        self._look_at_data()
        if was_handed_over and self._views.is_on:
            client.close()  # it has a view only now, which has to be joined

    def _link_ended(self) -> None:
        """The link is down; its stream may be continued."""
        if self._drop_client():
            self.attempts = 0
        self._link = None
        self._stream_over = None
        if self.is_replica:
            self.state = "connect"
            self._follow_link()

    def _note_failure(self, error: ReplicationError) -> None:
        """Log why an attempt has failed, unless it is the reason of the last time."""
        if isinstance(error, StreamLostError):
            self._must_resync = True
        self._failures += 1
        text = str(error)
        if text != self._last_failure:
            self._failures = 1
            log.warning("%s", text)
        self._last_failure = text
        self._is_failure_lasting = error.is_lasting
        if self._is_handing_over:
            self._is_handing_over = False
            self._server.loop.call_soon(self.handed_over, False)

    @property
    def _wait_s(self) -> float:
        """How long to wait before the next attempt, in seconds."""
        first, most = (LASTING_RETRY_S, LASTING_RETRY_MOST_S) if self._is_failure_lasting else (RETRY_S, RETRY_MOST_S)
        return min(most, first * GROWTH ** min(self._failures // 2, 16))

    def _enter(self, state: str) -> None:
        self.state = state

    def _say(self, text: str) -> None:
        """Log a step of an attempt; those that follow a failure repeat what was logged."""
        log.log(logging.DEBUG if self._last_failure else logging.INFO, "%s", text)

    def _count_input(self, size: int) -> None:
        self.input_bytes += size

    def _take_stream_db(self, index: int | None) -> None:
        self._replication.stream_db = index if index is not None and index < len(self._server.databases) else 0

    # --- What the stream tells, see PrimaryClient --------------------------------------------------------------------

    def stream_passed(self, data: bytes) -> None:
        """These bytes have been executed."""
        client = self.client
        if client is not None:
            self._replication.stream_db = client.db_index
            self.input_bytes += len(data)
            self._replication.feed_raw(data)
            self._look_at_data()

    def stream_marked(self, word: bytes) -> None:
        """A view begins here."""
        self._views.stream_marked(word)

    def stream_asked(self, unpassed: int) -> None:
        """REPLCONF GETACK: tell how far the stream has been executed; `unpassed` bytes more than have been passed on."""
        offset = self._replication.offset + unpassed
        if self._persistence.append_only.is_on:
            self._asked_offset = offset
            self.skips_turns = False
            self._server.dispatcher.ask_before_replies()
        else:
            self._acknowledge(offset)

    def before_replies(self) -> int:
        """Answer the primary's question, now that what it has sent is in the append-only file."""
        self.skips_turns = True
        self._acknowledge(self._asked_offset)
        return 0

    def stream_refused(self) -> None:
        """Commands are about to be executed while clients are refused some: is that because of this server's disk?"""
        if not self._persistence.find_write_error():
            return
        if not self._config.replica_ignore_disk_write_errors:
            log.critical("Replica was unable to write command to disk.")
            self._server.abort()
        elif time.monotonic() - self._disk_logged_at > DISK_LOG_S:
            self._disk_logged_at = time.monotonic()
            log.warning("Replica is applying a command even though it is unable to write to disk.")

    def stream_unknown(self, args: list[bytes], reason: str) -> None:
        """The stream has a command that does not exist here. Raises ReplicationError, unless such are left out."""
        name = printable(args[0][:64]).upper()
        key = f" for key '{printable(args[1][:128])}'" if len(args) > 1 else ""
        if not self._config.rdb_skip_unsupported:
            raise ReplicationError(
                f"MASTER {self.host}:{self.port} has sent the command {name}{key}, which is not supported here"
                f" ({reason}). The link is dropped, and the data remains unchanged. Keep only types that are supported on the"
                " primary, or set rdb-skip-unsupported to yes to skip such commands.", is_lasting=True,
            )  # fmt: skip
        if name not in self._skipped:
            self._skipped.add(name)
            log.warning("Skipping the command %s of the primary, which is not supported. First%s", name, key)

    def stream_error(self, text: str, command: str, args: list[bytes]) -> None:
        """A command of the stream has failed: the data is not what the primary has.

        Raises ReplicationError when what follows would go to a wrong database.
        """
        if command == "select":
            raise ReplicationError(
                f"MASTER {self.host}:{self.port} uses database {printable(args[1][:20])}, and this server has"
                f" {len(self._server.databases)}: set databases as it is there.", is_lasting=True,
            )  # fmt: skip
        log.warning(
            "== CRITICAL == This replica is sending an error to its master: '-%s' after processing the command '%s'",
            text, command,
        )  # fmt: skip
        if self._config.propagation_error_behavior != "ignore":
            log.critical(
                "This replica panicked sending an error to its master after processing the command '%s'", command
            )
            self._server.abort()

    def stream_failed(self, error: StreamdError) -> None:
        """The stream cannot be executed any further."""
        if not isinstance(error, ReplicationError):
            error = StreamLostError(f"Protocol error from master: {error}. All data is transferred again.")
        self._end_stream(error)

    def stream_ended(self, client: PrimaryClient) -> None:
        """The connection is closed."""
        if client is self.client:
            self._end_stream(None)

    def _end_stream(self, failure: ReplicationError | None) -> None:
        if self._stream_over is not None and not self._stream_over.done():
            self._stream_over.set_result(failure)

    def _acknowledge(self, offset: int) -> None:
        """Tell the primary how far its stream has been executed, and how far it is on the disk."""
        client = self.client
        if client is None or client.transport is None or client.transport.is_closing() or self._is_old_protocol:
            return
        words: tuple[str | int, ...] = ("REPLCONF", "ACK", offset)
        append_only = self._persistence.append_only
        if append_only.is_on:
            words = (*words, "FACK", min(offset, append_only.aof.tail.synced_offset))
        client.tell(encode_request(*words))
