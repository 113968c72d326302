"""Cluster: this server as a node of a Redis Cluster.

The core (`bus.core.ClusterCore`) knows the cluster and decides; this capability is its connection to the world:

    connections, the clock, commands ─▶ core ─▶ actions ─▶ connections, nodes.conf, replication, keys, clients, the log

After each input `settle` carries out the actions of the core in order. Only nodes.conf and packets wait for the end of the turn
of the event loop: the file is written once, then replies are sent, then packets, so that nothing leaves that promises more than
the file, and a client does not wait for what a packet makes another node of this machine do. Without `cluster-enabled` there is no
core, and nothing here has any effect.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

import streamd.cluster.settings  # noqa: F401  (declares them)
from streamd.clients.maintenance import Maintenance
from streamd.clients.pause import Pause
from streamd.cluster.announcing import Announcing
from streamd.cluster.bus import actions
from streamd.cluster.bus.core import ClusterCore
from streamd.cluster.bus.options import Options
from streamd.cluster.bus.slots import ranges_of
from streamd.cluster.bus_connections import BusLinks
from streamd.cluster.channels import end_subscriptions
from streamd.cluster.handing_over import ask_to_take_over, find_successor
from streamd.cluster.node_metrics import node_metrics
from streamd.cluster.nodes_file import NodesFile
from streamd.cluster.routing import Routing
from streamd.cluster.topology import Topology
from streamd.core.capability import Capability
from streamd.core.host import Host
from streamd.core.info import Field
from streamd.errors import CommandError, StartError, StreamdError
from streamd.observe.hotkeys import HotKeys
from streamd.persistence.persistence import Persistence
from streamd.process.listening import ListenError, PortListener
from streamd.pubsub.hub import Hub
from streamd.replication.following import Following
from streamd.replication.replication import Replication

__all__ = ["Cluster"]

log = logging.getLogger("streamd")

TICK_S = 0.1
BUS_OFFSET = 10_000
"""From the port for clients to that of the bus, unless cluster-port says otherwise."""
LARGEST_PORT = 65_535
LEVELS = {"debug": logging.DEBUG, "verbose": logging.DEBUG, "notice": logging.INFO, "warning": logging.WARNING}
DISABLED = "ERR This instance has cluster support disabled"


class BusPort:
    """The settings of the bus as a PortListener reads them."""

    def __init__(self, config: Any) -> None:
        self._config = config

    @property
    def bus_port(self) -> int:
        config = self._config
        main = config.tls_port if config.tls_cluster or not config.port else config.port
        return int(config.cluster_port or main + BUS_OFFSET)

    @property
    def bind(self) -> tuple[str, ...]:
        found: tuple[str, ...] = self._config.bind
        return found

    @property
    def tcp_backlog(self) -> int:
        return int(self._config.tcp_backlog)


class Input:
    """`with` it: the core is up to date for an input, and its actions are carried out afterwards."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def __enter__(self) -> ClusterCore:
        self._cluster.update_local()
        return self._cluster.core

    def __exit__(self, kind: type[BaseException] | None, error: object, traceback: object) -> None:
        if kind is None:
            self._cluster.settle()


class Cluster(Capability):
    """
    is_on     cluster-enabled
    core      the knowledge and the decisions of the node; only while `is_on`
    topology  the same as clients see it
    links     the connections of the bus
    input     around each input of the core
    view_changed     called when the slots of this node, or its role, may have changed
    slots_to_delete  given the slots that this node has lost, those whose keys are to be deleted now
    hand_over_begins  called when a replica asks to take over
    """

    info = {
        "clients": (Field("cluster_connections", 0),),
        "memory": (Field("mem_cluster_links", 0),),
        "cluster": (Field("cluster_enabled", 0),),
    }

    core: ClusterCore
    topology: Topology
    links: BusLinks

    def __init__(self, host: Host) -> None:
        self._host = host
        self._config = host.config
        self.is_on: bool = host.config.cluster_enabled
        self.rests = not self.is_on
        self.view_changed: Callable[[], object] = lambda: None
        self.slots_to_delete: Callable[[list[int]], list[int]] = list
        self.hand_over_begins: Callable[[], object] = lambda: None
        self._cancel_tick: Callable[[], object] = lambda: None
        self._cancel_announcement: Callable[[], object] = lambda: None
        self._ticked_at = 0.0
        self._handing_over: asyncio.Task[None] | None = None
        self._due_file: actions.Save | None = None  # to be written at the end of this turn
        self._due_packets: list[actions.Send] = []  # to be sent after that
        self._due_sync = False  # the file is to be synced, by the next step of the cron
        self.skips_turns = True
        self.input = Input(self)
        if self.is_on:
            self._take_over()

    def _take_over(self) -> None:
        host, config = self._host, self._config
        self.info = {  # type: ignore[misc]  # of this server: without a cluster its values are fixed
            "clients": (Field("cluster_connections", lambda self: len(self.links)),),
            "memory": (Field("mem_cluster_links", lambda self: self.links.memory),),
            "cluster": (Field("cluster_enabled", 1),),
        }
        if config.replicaof:
            raise StartError("replicaof directive not allowed in cluster mode")
        if config.databases > 1:
            log.warning(
                "WARNING: Changing databases number from %d to 1 since we are in cluster mode", config.databases
            )
            config.databases = 1
            del host.databases[1:]
        self._db = host.databases[0]
        self._db.keep_by_slot()
        self._routing = host.get(Routing)
        self._replication = host.get(Replication)
        self._following = host.get(Following)
        self._clock_ms = time.time() * 1000 - time.monotonic() * 1000
        self._is_settling = False
        self._must_look_at_waits = False
        host.get(HotKeys).own_slots = lambda: list(ranges_of(self.core.state.myself.slots))
        self.links = BusLinks(host.loop, self)
        self.links.may_accept = lambda: not (self._host.is_loading and self.core.state.myself.is_primary)
        self._bus_port = BusPort(config)
        if self._bus_port.bus_port > LARGEST_PORT:
            raise StartError(
                "Redis port number too high. Cluster communication port is 10,000 port numbers higher than your Redis port. Your"
                " Redis port number must be 55535 or less."
            )
        self._listener = PortListener(host.loop, self._bus_port, "bus-port", self.links.accept)
        self._do: dict[type, Callable[[Any], object]] = {
            actions.Save: self._keep_file,
            actions.Sync: self._note_sync,
            actions.Connect: lambda action: self.links.connect(action.link, action.ip, action.port),
            actions.Send: self._due_packets.append,
            actions.Close: lambda action: self.links.close_link(action.link),
            actions.Follow: self._follow,
            actions.Promote: lambda action: self._following.promote(),
            actions.AnnounceLater: self._announce_later,
            actions.DropData: lambda action: self._drop_data(),
            actions.DeleteKeys: lambda action: self.delete_keys(self.slots_to_delete(action.slots)),
            actions.SlotsLeft: lambda action: end_subscriptions(self._host.get(Hub), action.slots),
            actions.StateChanged: lambda action: None,
            actions.PauseWrites: self._pause,
            actions.ResumeWrites: lambda action: self._resume(),
            actions.Deliver: self._deliver,
            actions.Log: lambda action: log.log(LEVELS[action.level], "%s", action.text),
        }
        self._file = NodesFile(
            host.get(Persistence).directory.path(config.cluster_config_file), free=host.trash.free_later
        )

    # --- Life ------------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Read nodes.conf. Raises StartError."""
        if not self.is_on:
            return
        saved = self._file.open()
        try:
            self.core = ClusterCore(self._options(), Random(), self.now_ms, saved=saved)
        except StreamdError as error:
            raise StartError(f"Unrecoverable error: {error}") from error
        self.core.local.count_keys = self._db.count_in_slot
        found = "No cluster configuration found" if saved is None else "Node configuration loaded"
        log.info("%s, I'm %s", found, self.core.state.myself.id.decode())
        self.topology = Topology(self._config, self.core)
        self._announcing = Announcing(self._host.get(Maintenance), self.topology, self.core.state)
        self._routing.begin(self.topology)
        self._db.shown = self.topology.shown
        self._host.get(Hub).relay = self._publish
        myself = self.core.state.myself
        if myself.is_replica:
            primary = myself.primary
            self._following.expect(primary.ip if primary else "", self._port_of(primary) if primary else 0)
        self.settle()
        self.before_replies()

    async def open(self) -> None:
        """Listen on the port of the bus; raises ListenError."""
        if self.is_on:
            self.core.configure(self._options(), self.now_ms)
            try:
                await self._listener.start()
            except ListenError as error:
                raise ListenError(str(error), f"port {self._bus_port.bus_port} (cluster)") from error

    def data_loaded(self) -> None:
        """The data is loaded: begin to work. Raises StartError when it contradicts nodes.conf."""
        if not self.is_on:
            return
        with self.input:
            if self.core.state.myself.is_primary:
                self.core.claim_loaded_slots(self._db.used_slots())
        self._tick()

    def close(self) -> None:
        if not self.is_on:
            return
        self._cancel_tick()
        self._cancel_announcement()
        if self._handing_over is not None:
            self._handing_over.cancel()
        self.before_replies()
        self._send_packets()
        self._listener.close()
        self.links.close()
        self._file.close()

    def apply_settings(self) -> None:
        if not self.is_on:
            return
        config = self._config
        self._routing.reads_when_down = config.cluster_allow_reads_when_down
        self._routing.channels_when_down = config.cluster_allow_pubsubshard_when_down
        self._routing.crosses_slots = config.cluster_allow_cross_slot_reads
        self.links.send_limit = config.cluster_link_sendbuf_limit
        self.links.source_address = config.bind_source_addr
        if config.tls_cluster:
            self.links.make_tls = self._following.make_tls
        with self.input:
            self.core.configure(self._options(), self.now_ms)

    def use_tls(self, context: Any) -> None:
        """The context with which connections of the bus are accepted (tls-cluster)."""
        self._listener.context = context

    def _options(self) -> Options:
        config = self._config
        return Options(
            port=config.cluster_announce_port or config.port,
            tls_port=config.cluster_announce_tls_port or config.tls_port,
            bus_port=config.cluster_announce_bus_port or self._bus_port.bus_port,
            is_tls=config.tls_cluster,
            announce_ip=config.cluster_announce_ip,
            announce_hostname=config.cluster_announce_hostname,
            announce_human_nodename=config.cluster_announce_human_nodename,
            node_timeout_ms=config.cluster_node_timeout,
            ping_interval_ms=config.cluster_ping_interval,
            require_full_coverage=config.cluster_require_full_coverage,
            replica_validity_factor=config.cluster_replica_validity_factor,
            replica_no_failover=config.cluster_replica_no_failover,
            migration_barrier=config.cluster_migration_barrier,
            allow_replica_migration=config.cluster_allow_replica_migration and not config.min_replicas_durable,
            repl_ping_period_s=config.repl_ping_replica_period,
        )

    # --- Inputs of the core ------------------------------------------------------------------------------------------------

    @property
    def now_ms(self) -> int:
        """Unix time in ms that never goes back."""
        return int(self._clock_ms + time.monotonic() * 1000)

    def update_local(self) -> None:
        """Bring what the core knows of the data up to date."""
        local, following, config = self.core.local, self._following, self._config
        local.offset = self._replication.offset
        local.key_count = len(self._db)
        if self.core.state.myself.is_replica:
            local.is_link_up = following.is_link_up
            heard_at = following.heard_at
            local.silence_ms = self.now_ms if heard_at is None else int((time.monotonic() - heard_at) * 1000)
        local.is_durable = config.min_replicas_durable > 0 or (config.appendonly and config.appendfsync == "always")

    def settle(self) -> None:
        """Carry out the actions of the core."""
        if self._is_settling:
            return  # an action has led to another input: the loop below goes on
        self._is_settling = True
        try:
            self._refresh()
            while wanted := self.core.take_actions():
                for action in wanted:
                    self._do[type(action)](action)
                self._refresh()
        finally:
            self._is_settling = False
        if self._due_file is not None or self._due_packets:
            self.skips_turns = False
            self._host.dispatcher.ask_before_replies()

    def before_replies(self) -> int:
        """The end of a turn: nodes.conf comes before the replies and the packets of this turn."""
        self.skips_turns = True
        file, self._due_file = self._due_file, None
        if file is not None:
            packets = self._due_packets.copy()
            self._due_packets.clear()
            if not self._save(file):  # the server has ended; what depends on the file is never sent
                return 0
            self._due_packets[:0] = packets
        if self._due_packets and self._host.dispatcher.has_replies:
            self._host.loop.call_soon(self._send_packets)
        else:
            self._send_packets()
        return 0

    def _send_packets(self) -> None:
        if self._due_file is not None:
            return  # they come after it: this is called again
        packets = self._due_packets.copy()
        self._due_packets.clear()
        for action in packets:
            self.links.send(action.link, action.packet)

    def _refresh(self) -> None:
        """Notify the router and the database when the slots, or the state of the cluster, have changed."""
        if not self.topology.update():
            return
        self._routing.is_up = self.core.state.is_ok
        self._must_look_at_waits = True
        self.view_changed()

    def _tick(self) -> None:
        # The cron calls this, so that the server wakes once for both.
        self._ticked_at = time.monotonic()
        if self._config.hz < 1 / TICK_S:
            self._cancel_tick()
            self._cancel_tick = self._host.call_later(TICK_S, self._tick)
        if not self._host.is_cron_paused and self.core.must_tick(self.now_ms):
            self._host.dispatcher.run_turn(self._tick_core)

    def _tick_core(self) -> None:
        with self.input as core:
            core.tick(self.now_ms)

    def _announce(self) -> None:
        self._host.dispatcher.run_turn(self._announce_core)

    def _announce_core(self) -> None:
        with self.input as core:
            core.announce(self.now_ms)

    def link_accepted(self, peer_ip: str, local_ip: str) -> int:
        with self.input as core:
            return core.link_accepted(peer_ip, local_ip, self.now_ms)

    def link_opened(self, link: int, local_ip: str) -> None:
        with self.input as core:
            core.link_opened(link, local_ip, self.now_ms)

    def link_closed(self, link: int) -> None:
        with self.input as core:
            core.link_closed(link, self.now_ms)

    def received(self, link: int, data: bytes) -> None:
        self._host.dispatcher.run_turn(self._receive, link, data)

    def _receive(self, link: int, data: bytes) -> None:
        with self.input as core:
            core.receive(link, data, self.now_ms)

    def _publish(self, channel: bytes, message: bytes, is_sharded: bool) -> None:
        """A client of this node has published a message: pass it on to other nodes."""
        with self.input as core:
            core.publish(channel, message, is_sharded=is_sharded)

    def command(self) -> Input:
        """As `input`, for a command. Raises CommandError without a cluster."""
        self.check_on()
        return self.input

    def check_on(self) -> None:
        """Raise CommandError unless this server is a node of a cluster."""
        if not self.is_on:
            raise CommandError(DISABLED)

    def hand_over(self, failed: Callable[[], object]) -> bool:
        """Ask a replica of this primary to take over; False: it has no replica. `failed` is called if the replica refuses."""
        state = self.core.state
        successor = find_successor(state) if state.myself.is_primary else None
        if successor is None:
            return False

        async def ask() -> None:
            if not await ask_to_take_over(self._host, successor, state.internal_secret):
                failed()

        self._handing_over = self._host.loop.create_task(ask())
        return True

    def has_slot(self, slot: int) -> bool:
        """Whether the shard of this node owns a slot."""
        myself = self.core.state.myself
        return self.core.state.owners[slot] is (myself.primary if myself.is_replica else myself)

    def shows(self, slot: int) -> bool:
        """Whether the keys of a slot are shown: its shard is this one, or it is being moved here."""
        return self._db.shown is not None and self._db.shown[slot] != 0

    # --- Outputs -------------------------------------------------------------------------------------------------------------

    def _keep_file(self, action: actions.Save) -> None:
        """Replace the file that is due; it is synced if one of them must be."""
        due = self._due_file
        self._due_file = actions.Save(action.content, action.must_sync or (due is not None and due.must_sync))

    def _save(self, action: actions.Save) -> bool:
        try:
            self._file.save(action.content, must_sync=action.must_sync)
        except OSError as error:
            self._end_without_file(error)
            return False
        return True

    def _note_sync(self, action: actions.Sync) -> None:
        self._due_sync = True  # this turn may still write the file

    def _end_without_file(self, error: OSError) -> None:
        log.critical("Fatal: can't update cluster config file %s: %s", self._file.path, error.strerror)
        self._host.abort()

    def _sync_failed(self, error: OSError) -> None:
        """Called on the thread that syncs."""
        self._host.loop.call_soon_threadsafe(self._end_without_file, error)

    def _port_of(self, node: Any) -> int:
        """The port at which this server replicates from a node."""
        return int(node.tls_port if self._config.tls_replication else node.port)

    def _follow(self, action: actions.Follow) -> None:
        place = (action.ip, self._port_of(action))
        if not self._replication.is_replica or place != (self._following.host, self._following.port):
            self._following.follow(*place)

    def _drop_data(self) -> None:
        self._db.flush()
        for capability in self._host.dispatcher.capabilities:
            capability.data_dropped()

    def delete_keys(self, slots: list[int]) -> None:
        """Delete the keys of slots, on replicas and in files, too."""
        db, changes = self._db, self._host.dispatcher.key_changes
        for slot in slots:
            for key in db.keys_in_slot(slot, len(db)):
                changes.key_removed(db, key)
                db.delete(key)

    def _announce_later(self, action: actions.AnnounceLater) -> None:
        self._cancel_announcement = self._host.call_later(action.delay_ms / 1000, self._announce)

    def _pause(self, action: actions.PauseWrites) -> None:
        self._replication.is_handing_over = True
        self.hand_over_begins()
        self._announcing.begin_hand_over()
        until = time.monotonic() + action.duration_ms / 1000
        self._host.get(Pause).begin(until, writes_only=True, purpose="cluster failover")

    def _resume(self) -> None:
        self._replication.is_handing_over = False
        self._announcing.end_hand_over()
        self._host.get(Pause).end("cluster failover")

    def _deliver(self, action: actions.Deliver) -> None:
        self._host.get(Hub).publish(action.channel, action.message, action.is_sharded)

    def cron_while_busy(self, now_ms: int) -> None:
        if self.is_on and time.monotonic() - self._ticked_at > TICK_S / 2:
            self._tick()

    # --- Clients that wait ------------------------------------------------------------------------------------------------------

    def metric_samples(self) -> Iterable[tuple[Any, Any]]:
        return node_metrics(self.core.state) if self.is_on else ()

    def cron(self, now_ms: int) -> None:
        """Tick; redirect clients that wait for keys of slots that are no longer served here."""
        if self._due_sync:
            self._due_sync = not self._file.sync_later(self._sync_failed)
        self.cron_while_busy(now_ms)
        self._file.free_replaced()
        if not self._must_look_at_waits:
            return
        self._must_look_at_waits = False
        self._announcing.look()
        for blocked in list(self._host.blocked):
            keys = blocked.request.keys
            if keys and blocked.client.transport is not None:
                is_write = "write" in blocked.client.last_command.flags
                refusal = self._routing.find_wait_refusal(blocked.client, keys, is_write)
                if refusal is not None:
                    self._host.blocked.fail(blocked, refusal)
