"""Handover: this node as the source of an atomic slot migration.

The node that gets the slots opens two connections. On the second one a forked child writes the keys of the slots (slot_snapshot.pyx). On the first
one every later change of them follows (`SlotFlow`), from the moment of the fork on. When the other side has applied nearly all of that,
writes are held back, and STREAM-EOF says that nothing will follow: it takes the slots, which this node learns on the bus.

    wait-rdbchannel ─▶ wait-bgsave-start ─▶ send-bulk-and-stream ─▶ send-stream ─▶ handoff-prep ─▶ stream-eof ─▶ completed

Until the other node is seen as the owner, this one is, and it goes on when that does not happen in time
(cluster-slot-migration-write-pause-timeout).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from streamd.clients.pause import Pause
from streamd.cluster.migration.slot_snapshot import write_slots
from streamd.cluster.migration.tasks import Task
from streamd.cluster.routing import Routing
from streamd.core.client import Client
from streamd.core.effects import Effect, EffectSink
from streamd.core.host import Host
from streamd.persistence.child import Child, Report
from streamd.persistence.persistence import Persistence
from streamd.persistence.rdb.format import lossless_form
from streamd.protocol.request_bytes import encode_request
from streamd.replication.full_sync import ConnectionsSink, SocketRelay
from streamd.replication.replication import Replication

__all__ = ["Handover"]

log = logging.getLogger("streamd")

PAUSE = "slot migration"
"""Whose pause it is, for `Pause`."""


class SlotFlow(EffectSink):
    """Sends the changes of the keys of a task to the node that gets them.

    sent  bytes so far
    """

    def __init__(self, task: Task, client: Client, routing: Routing) -> None:
        self._task = task
        self._client = client
        self._routing = routing
        self.sent = 0

    def take_effects(self, effects: list[Effect], now_ms: int) -> int:
        for effect in effects:
            slot = self._routing.slot_of_effect(effect.args)
            if slot >= 0 and self._task.has_slot(slot):
                self.send(encode_request(*effect.args))
        return 0

    def send(self, data: bytes) -> None:
        self._client.reply.raw(data)
        self._client.send_later()
        self.sent += len(data)


class Handover:
    """
    task  what is handed over
    main  the connection for changes; `channel`: for the snapshot
    """

    def __init__(self, host: Host, task: Task, main: Client, failed: Callable[[str], object]) -> None:
        """failed: called once with the reason when the task cannot go on."""
        self._host = host
        self._config = host.config
        self._replication = host.get(Replication)
        self._persistence = host.get(Persistence)
        self._pause = host.get(Pause)
        self._failed = failed
        self.task = task
        self.main = main
        self.channel: Client | None = None
        self._flow: SlotFlow | None = None
        self._relay: SocketRelay | None = None
        self._child: Child | None = None
        self._is_paused = False
        self._paused_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._patience_s = [float(self._config.repl_timeout)]
        self._heard_at = time.monotonic()
        self._loaded_at = 0.0
        self._applied = -1  # bytes of changes; nothing before the other node has loaded the snapshot
        task.state, task.channel_state = "wait-rdbchannel", "wait-rdbchannel"

    # --- The snapshot --------------------------------------------------------------------------------------------------------

    def open_channel(self, client: Client) -> None:
        """The other node has opened its second connection."""
        self._heard_at = time.monotonic()
        self.channel = client
        self.task.state, self.task.channel_state = "wait-bgsave-start", "wait-bgsave-start"

    def begin_if_possible(self) -> None:
        """Begin the snapshot, unless another child is running, or a script is in the middle of its changes."""
        if self.task.state != "wait-bgsave-start" or self.channel is None:
            return
        if (
            self._persistence.children.current is not None
            or self._host.dispatcher.is_busy
            or self.channel.output_size()
        ):
            return
        self._begin(self.channel)

    def _begin(self, channel: Client) -> None:
        task, db = self.task, self._host.databases[0]
        channel.come_home()
        fd = channel.fileno
        if not channel.is_plain:
            self._relay = SocketRelay(channel, self._host.loop)
            channel.outflow = self._relay
            fd = self._relay.far_end.fileno()
        channel.is_held = True
        writer = self._persistence.saving.writer
        options = writer.write_options(lossless_form(self._config.rdb_form), {})
        libraries = writer.libraries()

        def job(report: Report) -> None:
            sink = ConnectionsSink({fd: b"+SLOTSSNAPSHOT\r\n"}, self._patience_s, lambda _: None)
            write_slots(sink, db, task.slots(), options, libraries, writer.slowed(report.keys))
            sink.finish()

        keys = sum(map(db.count_in_slot, task.slots()))
        # From here to the fork nothing runs: the snapshot ends where the changes begin.
        self._flow = SlotFlow(task, self.main, self._host.get(Routing))
        try:
            self._child = self._persistence.children.start("rdb", job, self._child_ended, keys_total=keys, kept=[fd])
        except OSError as error:
            self._failed(f"RDB channel - Can't fork: {error.strerror}")
            return
        self._replication.add_sink(self._flow)
        if self._relay is not None:
            self._relay.far_end.close()
        task.state, task.channel_state = "send-bulk-and-stream", "rdbchannel-transfer"
        log.info("Background slots snapshot transfer started by pid %d", self._child.pid)

    def _child_ended(self, child: Child) -> None:
        self._child = None
        channel = self.channel
        if self.task.has_ended or channel is None:
            return
        channel.is_held = False
        if child.error and self._applied < 0:
            # Not at once: FLUSHALL kills the child before it ends the task itself.
            self._host.loop.call_soon(self._failed, f"RDB channel - Slots snapshot failed: {child.error}")
            return
        self._snapshot_ends()
        if self._relay is not None:
            self._relay.when_done(lambda: self._end_channel(channel))
        else:
            self._end_channel(channel)
        self._host.loop.call_soon(self._hand_over_if_due)

    def _snapshot_ends(self) -> None:
        """The child has ended, or the other node has applied all that it writes: whichever this node learns first."""
        if self.task.state == "send-bulk-and-stream":
            self.task.state, self.task.channel_state = "send-stream", "completed"

    def channel_lost(self) -> None:
        """The other node has closed the second connection.

        It does so when it has everything, perhaps before the child has ended here. If it has not, the child cannot write on, or the
        first connection is closed, too.
        """
        if self.task.state == "wait-bgsave-start":
            self._failed("RDB channel - Connection lost")
        elif self._relay is not None:
            self._relay.close()

    def _end_channel(self, channel: Client) -> None:
        if channel.transport is None:
            return
        channel.outflow = None
        channel.close_after_reply = True
        channel.send_later()

    # --- The hand-over ---------------------------------------------------------------------------------------------------------

    @property
    def unsent(self) -> int:
        """Bytes of changes that wait to be sent."""
        return self.main.output_size()

    def acknowledge(self, applied: int) -> None:
        """The other node has applied so many bytes of changes, and the snapshot before."""
        self._heard_at = time.monotonic()
        if self._applied < 0:
            self._loaded_at = self._heard_at
            self._snapshot_ends()
        self._applied = applied
        self._host.loop.call_soon(self._hand_over_if_due)

    def _hand_over_if_due(self) -> None:
        """Hand over if the other node is near the end. Called between requests."""
        task, flow = self.task, self._flow
        if task.state != "send-stream" or flow is None or self._applied < 0 or self._host.dispatcher.is_busy:
            return
        if flow.sent - self._applied > self._config.cluster_slot_migration_handoff_max_lag_bytes:
            return
        if self._replication.is_handing_over:
            return
        task.state = "handoff-prep"
        self._paused_at = time.monotonic()
        timeout_s = self._config.cluster_slot_migration_write_pause_timeout / 1000
        # This timer is due before that of the pause: no write runs before the task has failed.
        self._timer = self._host.loop.call_later(timeout_s, self._pause_ends)
        self._pause.begin(self._paused_at + timeout_s + 1, writes_only=True, purpose=PAUSE)
        self._is_paused = True
        flow.send(encode_request("CLUSTER", "SYNCSLOTS", "STREAM-EOF"))
        task.state = "stream-eof"

    def _pause_ends(self) -> None:
        self._failed("Server paused timeout")

    def look_after(self) -> None:
        """Some times a second: go on when that is possible now, and give up a node that is silent."""
        self.begin_if_possible()
        self._hand_over_if_due()
        self._patience_s[0] = float(self._config.repl_timeout)
        if time.monotonic() - self._heard_at > self._config.repl_timeout and self._child is None:
            self._failed("Main channel - Connection timeout")
            return
        drain_s = self._config.cluster_slot_migration_sync_buffer_drain_timeout / 1000
        if self._applied >= 0 and self.task.state == "send-stream" and time.monotonic() - self._loaded_at > drain_s:
            self._failed("Sync buffer drain timeout")

    def keep_alive(self) -> None:
        """Once a second: the other node waits for the snapshot."""
        if self.task.state == "wait-bgsave-start" and self.channel is not None:
            self.channel.reply.raw(b"\n")
            self.channel.send_later()

    def break_off(self, is_main: bool) -> None:
        """Close one of the connections, as if the other node had."""
        client = self.main if is_main else self.channel
        if client is not None:
            client.close()

    def close(self) -> None:
        """The task has ended: let writes go on, and drop both connections."""
        if self._timer is not None:
            self._timer.cancel()
        if self._flow is not None:
            self._replication.remove_sink(self._flow)
        if self._is_paused:
            self._is_paused = False
            self.task.pause_ms = int((time.monotonic() - self._paused_at) * 1000)
            self._pause.end(PAUSE)
        if self._child is not None and self.task.state != "completed":  # then it is about to end by itself
            self._persistence.children.kill()
        if self._relay is not None:
            self._relay.close()
        for client in (self.channel, self.main):
            if client is not None and client.transport is not None:
                client.outflow = None
                client.is_held = False
                client.close()
