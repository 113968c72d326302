"""Primary: what a server does for its replicas.

A replica asks for the stream from some place of a history (PSYNC). If that place is in the backlog, it goes on from there;
otherwise it gets a snapshot first. Replicas that ask at about the same time share one snapshot, which is why a snapshot
without a file waits a little (repl-diskless-sync-delay).

    HANDSHAKE ─▶ WAIT_START ─▶ WAIT_END ─┬───────────▶ ONLINE        without a file: the child has written to the connection
        │                                └─▶ SEND ───▶ ONLINE        with a file: the file is sent when it is complete
        ├─▶ WAIT_CHANNEL ─▶ SEND_AND_STREAM ─────────▶ ONLINE        the snapshot goes through a connection of its own
        └───────────────────────────────────────────▶ ONLINE        a partial resynchronisation

From the moment the snapshot begins, the stream is kept for each replica (its feed), and sent behind the snapshot.
Behaviour and log lines: Redis 8.6.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from mmap import mmap
from struct import calcsize

from streamd.core.capability import Capability
from streamd.core.client import CLIENT_STATES, Client
from streamd.core.dispatch import SERVER_STATES
from streamd.core.host import Host
from streamd.core.info import Field, Fields, Lines
from streamd.core.route import Route
from streamd.errors import REPLICAS_READ_NO_KEYS, TOO_FEW_REPLICAS
from streamd.persistence.child import Child, Report
from streamd.persistence.persistence import Persistence
from streamd.persistence.rdb.write import RdbWriter
from streamd.persistence.writing import now_ms
from streamd.replication.full_sync import ConnectionsSink, FileFlow, SocketRelay
from streamd.replication.replica import Replica, ReplicaState
from streamd.replication.replication import Replication

__all__ = ["Primary"]

log = logging.getLogger("streamd")

START_DELAY_S = 0.002
"""What a request for a snapshot waits at least, so that earlier replies have been sent."""

INFO_STATES = {
    ReplicaState.WAIT_CHANNEL: "wait_rdb_channel",
    ReplicaState.WAIT_START: "wait_bgsave",
    ReplicaState.WAIT_END: "wait_bgsave",
    ReplicaState.SEND: "send_bulk",
    ReplicaState.SEND_AND_STREAM: "send_bulk_and_stream",
    ReplicaState.ONLINE: "online",
}


LAST_DROPPED = "Diskless rdb transfer, last replica dropped, killing fork child."
OF_REPLICAS = frozenset({"replconf", "psync", "sync"})
"""The commands that a replica may send."""


class Primary(Capability):
    """
    sync_full, sync_partial_ok, sync_partial_err  how often which answer was given
    """

    rests = True
    info = {
        "replication": (
            Field("connected_slaves", lambda self: self.count_connected() if self.replicas else 0),
            Lines("min_slaves_good_slaves", lambda self: self.good_lines()),
            Lines("slaves", lambda self: self.lines() if self.replicas else ()),
        ),
        "stats": (
            Fields(
                "sync_full sync_partial_ok sync_partial_err",
                lambda self: (self.sync_full, self.sync_partial_ok, self.sync_partial_err),
            ),
        ),
    }

    refusal_rank = 31

    def __init__(self, host: Host) -> None:
        self._host = host
        self._config = host.config
        self._persistence = host.get(Persistence)
        self._replication = host.get(Replication)
        self.replicas = self._replication.replicas
        self._unattached: dict[int, Replica] = {}
        """Connections that have sent REPLCONF but not asked for the stream."""
        self._group: list[Replica] = []
        """Those for which a child is writing a snapshot to their connections."""
        self.skips_turns = True
        self._left: list[Replica] = []
        """Those of them whose connections are closed, for the whole snapshot, or part of it: the child knows."""
        self._patience_s = memoryview(mmap(-1, calcsize("d"))).cast("d")
        """repl-timeout, shared with the child: it may be changed during a transfer."""
        self._has_made_file = False
        self._transfers: dict[int, SocketRelay | FileFlow] = {}
        """Snapshots that pass through this process, by the ID of the connection."""
        self._without_replicas_since = time.monotonic()
        self._pinged_at = time.monotonic()
        self.client_bits = CLIENT_STATES["replica"]
        self.server_bits = SERVER_STATES["few-replicas"]
        self.reset_statistics()
        self._persistence.saving.writer.replication_aux = self._replication.snapshot_aux

    def reset_statistics(self) -> None:
        self.sync_full = self.sync_partial_ok = self.sync_partial_err = 0

    def apply_settings(self) -> None:
        self.count_good()

    # --- INFO ---------------------------------------------------------------------------------------------------------

    def lines(self) -> Iterator[str]:
        """A line for each replica."""
        number = 0
        for replica in self.replicas.values():
            state = INFO_STATES.get(replica.state)
            if state is not None and replica.ip and not replica.is_rdb_channel:
                lag = replica.lag_s if replica.is_online else 0
                yield (
                    f"slave{number}:ip={replica.ip},port={replica.port},state={state},offset={replica.ack_offset},"
                    f"lag={lag},io-thread=0"
                )
                number += 1

    def count_connected(self) -> int:
        return sum(not each.is_rdb_channel for each in self.replicas.values())

    def good_lines(self) -> Sequence[str]:
        """The line with the number of replicas that min-replicas-to-write counts, if that is set."""
        if self._config.min_replicas_to_write and self._config.min_replicas_max_lag:
            return (f"min_slaves_good_slaves:{self.good}",)
        return ()

    # --- Requests -----------------------------------------------------------------------------------------------------

    def count_good(self) -> None:
        """Count the replicas that keep up, and refuse writes while there are too few."""
        wanted, max_lag = self._config.min_replicas_to_write, self._config.min_replicas_max_lag
        self.good = sum(each.is_online and each.lag_s <= max_lag for each in self.replicas.values())
        is_short = bool(wanted and max_lag and self.good < wanted and not self._replication.is_replica)
        self._host.dispatcher.change_state(SERVER_STATES["few-replicas"], is_short)

    def find_refusal(self, client: Client, route: Route, args: list[bytes]) -> str | None:
        if client.id in self.replicas:
            return None if route.command.full_name in OF_REPLICAS else REPLICAS_READ_NO_KEYS
        if self._host.dispatcher.is_write(client, route):
            return TOO_FEW_REPLICAS
        return None

    def record(self, client: Client) -> Replica:
        """What is known of a connection that speaks the language of replicas."""
        replica = self.replicas.get(client.id)
        if replica is None:
            replica = self._unattached.setdefault(client.id, Replica(client))
        return replica

    def acknowledge(self, client: Client, offset: int, fack_offset: int | None) -> None:
        """REPLCONF ACK."""
        replica = self.replicas.get(client.id)
        if replica is None:
            return
        replica.ack_offset = max(replica.ack_offset, offset)
        if fack_offset is not None:
            replica.fack_offset = max(replica.fack_offset, fack_offset)
        replica.ack_at = time.monotonic()
        replica.has_acknowledged = True
        if replica.starts_on_ack and replica.is_online:
            replica.starts_on_ack = False
            replica.begin_stream()
        elif replica.start_offset or not self._group:
            self._finish_channel(replica)  # while it loads the snapshot, it acknowledges 0

    def client_gone(self, client: Client) -> None:
        self._unattached.pop(client.id, None)
        replica = self.replicas.pop(client.id, None)
        if replica is None:
            return
        replica.drop_feed()
        if replica.wants_data and not replica.is_rdb_channel:
            self._replication.data_taken()
        if transfer := self._transfers.pop(client.id, None):
            transfer.close()
        if replica.is_rdb_channel:
            log.info("Connection with replica (rdbchannel) %s lost.", replica.name)
        elif replica.state is not ReplicaState.SENT:
            log.info("Connection with replica %s lost.", replica.name)
        if replica.is_online and not (replica.has_acknowledged or replica.is_old):
            log.warning(
                "Replica %s left without acknowledging its snapshot, which has the form of Redis %s. If it is an older Redis,"
                " set rdb-form to its release; see also its own log.", replica.name, self._config.rdb_form,
            )  # fmt: skip
        if not self.replicas:
            self.skips_turns = True
            self._without_replicas_since = time.monotonic()
        if replica in self._group:
            self._group.remove(replica)
            replica.hang_up()
            if replica.wants_stream:
                self._end_transfer()
            else:
                self._left.append(replica)
        self.count_good()

    def _end_transfer(self) -> None:
        """Kill the child that writes to connections when nobody is left to read."""
        if not self._group and not self._left and self._persistence.children.current is not None:
            log.warning(LAST_DROPPED)
            self._persistence.children.kill()

    # --- Asking for the stream ----------------------------------------------------------------------------------------

    def attach(self, replica: Replica, replid: str | None, offset: int) -> None:
        """PSYNC, or SYNC, which knows no history (replid None): continue from the byte at `offset`, or after a snapshot."""
        client = replica.client
        log.info("Replica %s asks for synchronization", replica.name)
        replica.is_old = replid is None
        if replid is not None:
            if self._continue(replica, replid, offset):
                return
            if replid != "?":
                self.sync_partial_err += 1
        if not replica.is_rdb_channel:  # the other connection has been counted
            self.sync_full += 1
        if not self._replication.has_backlog:
            self._replication.change_id()
            self._replication.open_backlog()
            log.info(
                "Replication backlog created, my new replication IDs are '%s' and '%s'",
                self._replication.replid, self._replication.replid2,
            )  # fmt: skip
        self._register(replica)
        if self._wants_channel(replica):
            log.info("Replica %s is capable of rdb channel synchronization, and partial sync isn't possible. "
                     "Full sync will continue with dedicated rdb channel.", replica.name)  # fmt: skip
            replica.state = ReplicaState.WAIT_CHANNEL
            client.reply.simple(b"RDBCHANNELSYNC %d" % client.id)
            return
        replica.state = ReplicaState.WAIT_START
        replica.waits_since = time.monotonic()
        if self._share_file(replica):
            return
        if self._is_diskless(replica) and self._config.repl_diskless_sync_delay:
            log.info("Delay next BGSAVE for diskless SYNC")
        self._host.loop.call_later(START_DELAY_S, self._begin_if_due)

    def _register(self, replica: Replica) -> None:
        client = replica.client
        self._unattached.pop(client.id, None)
        self.replicas[client.id] = replica
        self._host.wake(self)
        self._host.wake(self._replication)
        self.skips_turns = False
        client.become_replica()
        if self._config.repl_disable_tcp_nodelay and client.transport is not None:
            sock = client.transport.get_extra_info("socket")
            if sock is not None and sock.family != socket.AF_UNIX:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0)

    def _continue(self, replica: Replica, replid: str, offset: int) -> bool:
        """A partial resynchronisation, if that is possible."""
        replication, client = self._replication, replica.client
        asked = replid.lower()
        is_known = asked == replication.replid or (asked == replication.replid2 and offset <= replication.second_offset)
        if not is_known:
            if replid == "?":
                beside = " (rdb-channel)" if replica.is_rdb_channel else ""
                log.info("Full resync requested by replica %s%s", replica.name, beside)
            elif asked == replication.replid2:
                log.info(
                    "Partial resynchronization not accepted: Requested offset for second ID was %d, but I can reply up to %d",
                    offset, replication.second_offset,
                )  # fmt: skip
            else:
                log.info(
                    "Partial resynchronization not accepted: Replication ID mismatch (Replica asked for '%s', my"
                    " replication IDs are '%s' and '%s')", replid, replication.replid, replication.replid2,
                )  # fmt: skip
            return False
        limit = self._host.dispatcher.replica_output_limit
        unsent = (
            replication.stream.offset + 1 - offset
        )  # of which the stream may hold more than the backlog, for others
        if not replication.stream.holds(offset) or 0 < limit < unsent:
            log.info("Unable to partial resync with replica %s for lack of backlog (Replica request was: %d).",
                     replica.name, offset)  # fmt: skip
            return False
        self.sync_partial_ok += 1
        self._register(replica)
        knows_ids = "psync2" in replica.capabilities
        client.reply.simple(b"CONTINUE " + replication.replid.encode() if knows_ids else b"CONTINUE")
        replica.start_offset = replica.ack_offset = offset - 1
        replica.feed = replication.stream.feed_from(offset)
        self._put_online(replica)
        replica.begin_stream()
        log.info(
            "Partial resynchronization request from %s accepted. Sending %d bytes of backlog starting from offset %d.",
            replica.name, replica.feed.unsent(), offset,
        )  # fmt: skip
        return True

    def _put_online(self, replica: Replica) -> None:
        replica.state = ReplicaState.ONLINE
        replica.ack_at = time.monotonic()
        self.count_good()

    # --- Snapshots ----------------------------------------------------------------------------------------------------

    def _is_diskless(self, replica: Replica) -> bool:
        wants_socket = self._config.repl_diskless_sync or replica.rdb_filter is not None
        return "eof" in replica.capabilities and wants_socket

    def _wants_channel(self, replica: Replica) -> bool:
        return (
            "rdb-channel-repl" in replica.capabilities
            and self._config.repl_rdb_channel
            and self._is_diskless(replica)
            and not (replica.is_rdb_channel or replica.is_rdb_only or replica.is_old)
        )

    def _share_file(self, replica: Replica) -> bool:
        """Join those who wait for a file that is being written, if there are any: the stream since then is still here."""
        if self._is_diskless(replica):
            return False
        for other in self.replicas.values():
            if other.state is ReplicaState.WAIT_END and other not in self._group and other.feed is not None:
                replica.client.reply.raw(self._prepare(replica, other.start_offset))
                log.info("Waiting for end of BGSAVE for SYNC")
                return True
        return False

    def _begin_if_due(self) -> None:
        """Begin a snapshot for those who wait for one, unless a child is running or it is too early."""
        for each in list(self.replicas.values()):
            if each.has_lost_main and each.state is ReplicaState.WAIT_START:
                each.close()
        waiting = [each for each in self.replicas.values() if each.state is ReplicaState.WAIT_START]
        if not waiting or self._persistence.children.current is not None or self._host.is_loading:
            return
        first = waiting[0]
        is_diskless = self._is_diskless(first)
        group = [each for each in waiting if self._fits(each, first)]
        if is_diskless and not self._is_over_delay(group):
            return
        if any(each.client.output_size() for each in group):
            self._host.loop.call_later(START_DELAY_S, self._begin_if_due)
        elif is_diskless:
            self._begin_to_connections(group)
        else:
            self._begin_to_file(group)

    def _fits(self, replica: Replica, other: Replica) -> bool:
        """Whether both can be sent the same snapshot."""
        return (
            self._is_diskless(replica) == self._is_diskless(other)
            and replica.rdb_filter == other.rdb_filter
            and replica.wants_uncompressed == other.wants_uncompressed
        )

    def _is_over_delay(self, group: list[Replica]) -> bool:
        enough = self._config.repl_diskless_sync_max_replicas
        waited_s = time.monotonic() - min(each.waits_since for each in group)
        return bool(waited_s >= self._config.repl_diskless_sync_delay or 0 < enough <= len(group))

    def _prepare(self, replica: Replica, offset: int) -> bytes:
        """Keep the stream for a replica from `offset` on; returns the line that precedes its snapshot."""
        replica.state = ReplicaState.WAIT_END
        replica.start_offset = replica.ack_offset = offset
        stream = self._replication.stream
        line = f"FULLRESYNC {self._replication.replid} {offset}".encode()
        if replica.main is not None:
            replica.main.start_offset = offset
            replica.main.feed = stream.feed_from(offset + 1)
            replica.main.state = ReplicaState.SEND_AND_STREAM
            replica.main.begin_stream()
            log.info("Starting to deliver RDB and replication stream to replica: %s", replica.main.name)
        elif not replica.is_rdb_only:
            replica.feed = stream.feed_from(offset + 1)
        return b"" if replica.is_old else b"+%s\r\n" % line

    def _begin_to_file(self, group: list[Replica]) -> None:
        log.info("Starting BGSAVE for SYNC with target: disk")
        if not self._persistence.saving.start_for_replicas(self._file_ended):
            log.warning("BGSAVE for replication failed")
            for replica in group:
                replica.close()
            return
        self._has_made_file = True
        offset = self._replication.offset
        self._replication.stream.select_again()
        for replica in group:
            replica.client.reply.raw(self._prepare(replica, offset))
            replica.client.send_later()

    def _file_ended(self, is_written: bool) -> None:
        """The snapshot is written: send it."""
        waiting = [each for each in self.replicas.values() if each.state is ReplicaState.WAIT_END]
        for replica in waiting:
            if not is_written:
                log.warning("SYNC failed. BGSAVE child returned an error")
                replica.close()
                continue
            replica.state = ReplicaState.SEND
            try:
                file = open(self._persistence.directory.snapshot_path, "rb", buffering=0)  # noqa: SIM115 (FileFlow closes it)
            except OSError as error:
                log.warning("SYNC failed. Can't open/stat DB after BGSAVE: %s", error.strerror)
                replica.close()
                continue
            flow = self._transfers[replica.client.id] = FileFlow(file, replica, self._sent)
            replica.client.outflow = flow
            replica.client.reply.raw(flow.header)
            replica.client.send_later()
        self._begin_if_due()

    def _sent(self, replica: Replica) -> None:
        """A snapshot has passed through this process."""
        del self._transfers[replica.client.id]
        replica.client.outflow = None
        self._transmitted(replica)
        if not any(each.state in (ReplicaState.WAIT_END, ReplicaState.SEND) for each in self.replicas.values()):
            self._remove_file()

    def _remove_file(self) -> None:
        """rdb-del-sync-files: a server that keeps nothing on disk keeps no snapshot that was made for replicas either."""
        if self._has_made_file and self._config.rdb_del_sync_files and self._persistence.has_no_files:
            self._has_made_file = False
            log.info("Removing the RDB file used to feed replicas in a persistence-less instance")
            with suppress(OSError):
                os.unlink(self._persistence.directory.snapshot_path)

    def _begin_to_connections(self, group: list[Replica]) -> None:
        """Fork a child that writes the snapshot to all connections of a group."""
        beside = " (rdb-channel)" if group[0].is_rdb_channel else ""
        log.info("Starting BGSAVE for SYNC with target: replicas sockets%s", beside)
        offset = self._replication.offset
        self._replication.stream.select_again()
        mark = os.urandom(20).hex().encode()
        heads: dict[int, bytes] = {}
        names: dict[int, str] = {}
        relays: list[SocketRelay] = []
        for replica in group:
            fd = replica.client.fileno
            if not replica.client.is_plain:
                relay = self._transfers[replica.client.id] = SocketRelay(replica.client, self._host.loop)
                replica.client.outflow = relay
                relays.append(relay)
                fd = relay.far_end.fileno()
            names[fd] = replica.name
            heads[fd] = self._prepare(replica, offset) + b"$EOF:%s\r\n" % mark
            replica.client.is_held = True
        rdb_filter = group[0].rdb_filter
        self._patience_s[0] = self._config.repl_timeout
        writer = self._persistence.saving.writer
        options = writer.write_options(
            self._config.rdb_form, self._replication.snapshot_aux(), compressed=not group[0].wants_uncompressed
        )
        databases = self._host.databases if rdb_filter is None else []
        libraries = writer.libraries() if rdb_filter is None or "functions" in rdb_filter else []
        used_memory = writer.used_memory()

        def job(report: Report) -> None:
            def give_up(fd: int) -> None:
                report.log(logging.WARNING, f"Disconnecting timedout replica (full sync): {names[fd]}")

            sink = ConnectionsSink(heads, self._patience_s, give_up)
            rdb = RdbWriter(sink, options)
            rdb.write(
                databases,
                now_ms=now_ms(),
                used_memory=used_memory,
                progress=writer.slowed(report.keys),
                libraries=libraries,
            )
            sink.write(mark)
            sink.finish()
            for line in rdb.losses.describe(options.form):
                report.log(logging.WARNING, line)

        self._group = group
        try:
            child = self._persistence.children.start(
                "rdb", job, self._connections_ended, keys_total=writer.count_keys(), kept=heads
            )
        except OSError as error:
            log.warning("Can't save in background: fork: %s", error.strerror)
            self._group = []
            for replica in group:
                replica.close()
            return
        for relay in relays:
            relay.far_end.close()
        log.info("Background RDB transfer started by pid %d to replica socket", child.pid)

    def _connections_ended(self, child: Child) -> None:
        """The child has written the snapshot to the connections that are left, or has failed."""
        group, self._group = self._group, []
        left, self._left = self._left, []
        if child.error:
            if left and not group:
                log.warning(LAST_DROPPED)
            log.warning("Background transfer error" if not child.signal else "Background transfer terminated by signal %d",
                        *([child.signal] if child.signal else []))  # fmt: skip
        else:
            if group and not group[0].is_rdb_channel:
                log.info("Diskless rdb transfer, done reading from pipe, %d replicas still up.", len(group))
            log.info("Background RDB transfer terminated with success")
        for main in [each.main for each in left if each.main is not None and each.main.client.id in self.replicas]:
            if child.error:
                main.close()
            else:
                self._finish_channel(main)
        for replica in group:
            replica.client.is_held = False
            if child.error:
                replica.close()
                continue
            relay = self._transfers.get(replica.client.id)
            if isinstance(relay, SocketRelay):
                relay.when_done(partial(self._sent, replica))
            else:
                self._transmitted(replica)
        self._begin_if_due()

    def _finish_channel(self, replica: Replica) -> None:
        """A replica that was sent its snapshot on another connection is online when it has loaded that."""
        if replica.state is ReplicaState.SEND_AND_STREAM and replica.ack_offset >= replica.start_offset:
            self._put_online(replica)
            log.info("Synchronization with replica %s succeeded", replica.name)

    def _transmitted(self, replica: Replica) -> None:
        """A replica has been sent its snapshot; the stream follows."""
        client = replica.client
        if not replica.wants_stream:
            replica.state = ReplicaState.SENT
            client.close_after_reply = True
            client.send_later()
            if replica.main is not None:
                self._finish_channel(replica.main)
            return
        is_diskless = self._is_diskless(replica)
        self._put_online(replica)
        if is_diskless:
            # How long the snapshot is, the replica only knows when it has seen its end.
            replica.starts_on_ack = True
            log.info("Streamed RDB transfer with replica %s succeeded (socket). Waiting for REPLCONF ACK from replica to enable streaming",
                     replica.name)  # fmt: skip
        else:
            replica.begin_stream()
        log.info("Synchronization with replica %s succeeded", replica.name)

    # --- Turns and time -----------------------------------------------------------------------------------------------

    def before_replies(self) -> int:
        """The effects of this turn are in the stream: send them."""
        self._replication.send()
        return 0

    def cron(self, now_ms: int) -> None:
        self._begin_if_due()
        self._limit_output()

    def _limit_output(self) -> None:
        """Close the replicas for which too much of the stream has piled up while they get their snapshot."""
        limit = self._host.dispatcher.replica_output_limit
        for replica in list(self.replicas.values()) if limit else ():
            if replica.feed is not None and not replica.is_fed and replica.feed.unsent() > limit:
                log.warning("Client id=%d addr=%s closed for overcoming of output buffer limits.",
                            replica.client.id, replica.client.address)  # fmt: skip
                replica.close()

    def each_second(self, now_ms: int) -> None:
        now = time.monotonic()
        self._patience_s[0] = self._config.repl_timeout
        for replica in list(self.replicas.values()):
            if replica.state in (ReplicaState.WAIT_START, ReplicaState.WAIT_END) and not replica.client.is_held:
                replica.client.reply.raw(b"\n")
                replica.client.send_later()
            elif replica.is_online and not replica.is_old and now - replica.ack_at > self._config.repl_timeout:
                log.warning("Disconnecting timedout replica (streaming sync): %s", replica.name)
                replica.close()
            elif replica.state is ReplicaState.SEND_AND_STREAM and now - replica.ack_at > self._config.repl_timeout:
                log.warning("Disconnecting timedout replica (full sync): %s", replica.name)
                replica.close()
        if (
            self.replicas
            and not self._replication.is_replica
            and now - self._pinged_at >= self._config.repl_ping_replica_period
        ):
            self._pinged_at = now
            self._replication.say([b"ping"])
            self._replication.send()
        self.count_good()
        self._free_backlog(now)

    def _free_backlog(self, now: float) -> None:
        """Free the backlog when there has been no replica for long; those who come later need a full resync."""
        ttl_s = self._config.repl_backlog_ttl
        if self.replicas or not ttl_s or self._replication.is_replica or not self._replication.has_backlog:
            return
        if now - self._without_replicas_since > ttl_s:
            self._replication.change_id()
            self._replication.close_backlog()
            log.info("Replication backlog freed after %d seconds without connected replicas.", ttl_s)

    def close(self) -> None:
        for transfer in self._transfers.values():
            transfer.close()
