"""Server: all capabilities on one event loop.

A program runs `Server` in its own loop (`await server.start()`, `await server.wait_closed()`); `launch.run` is the
whole life of a server process, and `streamd.embedded` a server inside another program.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from streamd.absent.absent_fields import AbsentFields
from streamd.caching.tracking import Tracking
from streamd.clients.connections import Connections
from streamd.clients.maintenance import Maintenance
from streamd.clients.pause import Pause
from streamd.cluster.cluster import Cluster
from streamd.cluster.migration.migrations import SlotMigrations
from streamd.cluster.routing import Routing
from streamd.cluster.slot_statistics import SlotStatistics
from streamd.console.console_port import Console
from streamd.core.capability import Capability
from streamd.core.host import Host
from streamd.keyspace.commands.expiry import Expiry
from streamd.keyspace.commands.freeing import Freeing
from streamd.keyspace.commands.migration import MigrationTargets
from streamd.keyspace.commands.statistics import KeyStatistics
from streamd.memory.accounting import Memory
from streamd.memory.eviction import Eviction
from streamd.memory.measurement import Measurement
from streamd.observe.command_statistics import CommandStatistics
from streamd.observe.hotkeys import HotKeys
from streamd.observe.info_report import Info
from streamd.observe.latency import LatencyMonitor
from streamd.observe.metrics.endpoint import Metrics
from streamd.observe.monitor import Monitors
from streamd.observe.slowlog import SlowLog
from streamd.observe.traffic import Traffic
from streamd.persistence.info_fields import PersistenceFields
from streamd.persistence.payloads import Payloads
from streamd.persistence.persistence import Persistence
from streamd.process.listening import ListenError
from streamd.pubsub.events import KeyEvents
from streamd.pubsub.hub import Hub
from streamd.replication.durability import Durability
from streamd.replication.failover import Failover
from streamd.replication.following import Following
from streamd.replication.primary import Primary
from streamd.replication.refusals import ReplicaRefusals
from streamd.replication.replacement import Replacement
from streamd.replication.replication import Replication
from streamd.replication.views import Views
from streamd.replication.wait_commands import Waiting
from streamd.scripting.functions import Functions
from streamd.scripting.scripts import Scripts
from streamd.serve.about import About
from streamd.serve.collector import Collector
from streamd.serve.families import load_all, renamed_table
from streamd.serve.listeners import Listeners
from streamd.serve.process import Process
from streamd.serve.shutdown import Shutdown
from streamd.serve.tls import make_context
from streamd.sockets.loop import ServerLoop
from streamd.tiered.archive_folder import TieredReads
from streamd.users.acl import Acl
from streamd.values.hashes.hash_limits import HashLimits
from streamd.values.lists.list_limits import ListLimits
from streamd.values.sets.set_limits import SetLimits
from streamd.values.sorted_sets.sorted_set_limits import SortedSetLimits
from streamd.values.streams.dead_letter_timer import DeadLetters
from streamd.values.streams.default_streams import DefaultStreams
from streamd.values.streams.rule_timer import StreamRules
from streamd.values.streams.stream_settings import StreamLimits

if TYPE_CHECKING:
    from streamd.settings.config import Config

load_all()

__all__ = ["CAPABILITIES", "ListenError", "Server"]

log = logging.getLogger("streamd")
log.addHandler(logging.NullHandler())  # silent inside another program, unless that program adds a handler

CAPABILITIES: list[Callable[[Any], Capability]] = [
    Process, About, SlowLog, LatencyMonitor, HotKeys, CommandStatistics, Info, Acl, Hub, KeyEvents, Tracking, Monitors,
    Eviction, Measurement, Memory, HashLimits, ListLimits, SetLimits, SortedSetLimits, StreamLimits, DefaultStreams, DeadLetters, StreamRules, Persistence, PersistenceFields, Payloads, Replication, Waiting, Views, Replacement, Durability, Primary,
    ReplicaRefusals, Following, Maintenance, Failover, Scripts, Functions, Shutdown, Connections,
    Listeners, Pause, Routing, Cluster, SlotMigrations, SlotStatistics, Expiry, Freeing, KeyStatistics, MigrationTargets, AbsentFields, TieredReads, Traffic, Collector,
    Metrics, Console,
]  # fmt: skip
"""All capabilities, in the order in which they are called: to apply settings, before replies, in each cron step."""


class Server(Host):
    """A server in an event loop.

    any_port     listen on a free port instead of the configured one; `port` is that port
    is_embedded  whether the server runs inside another program
    """

    def __init__(self, config: Config, *, any_port: bool = False, is_embedded: bool = True) -> None:
        super().__init__(config, renamed_table(config))
        self.is_embedded = is_embedded
        self.cron_loops = 0
        self._any_port = any_port
        self._cancel_cron: Callable[[], object] = lambda: None
        self._stopped: asyncio.Event

    async def start(self) -> None:
        """Listen, load the data from disk, and serve.

        Raises ListenError when an address is not available, LoadError when the data cannot be read.
        """
        self._stopped = asyncio.Event()
        self.open(asyncio.get_running_loop(), CAPABILITIES)
        self.get(Shutdown).stop = self._stop
        try:
            await self._begin()
        except BaseException:
            if not self.is_stopped:
                self._stop()
            raise

    async def _begin(self) -> None:
        self.apply_settings()
        await self.get(Listeners).open(any_port=self._any_port)
        await self.get(Metrics).open()
        await self.get(Console).open()
        if self.is_stopped:
            return
        self.get(MigrationTargets).make_tls = self.get(Following).make_tls
        if self.config.tls_cluster:
            self.get(Cluster).use_tls(make_context(self.config))
        await self.get(Cluster).open()
        log.info("Running mode=%s, port=%d.", "cluster" if self.config.cluster_enabled else "standalone", self.port)
        log.info("Server initialized")
        await self.get(Persistence).loader.load()
        if not self.is_stopped:
            self.get(Following).begin()
            self.get(Cluster).data_loaded()
            self._plan_cron()

    @property
    def port(self) -> int:
        """The TCP port that the server listens on; 0 if there is none."""
        return self.get(Listeners).port

    @property
    def tls_port(self) -> int:
        """The TLS port; 0 if there is none."""
        return self.get(Listeners).tls_port

    @property
    def is_stopped(self) -> bool:
        """Whether it has been asked to stop, possibly before it was ready."""
        return self._stopped.is_set()

    @property
    def exit_code(self) -> int:
        """The exit code of the process, once the server has stopped."""
        return self.get(Shutdown).exit_code

    async def wait_closed(self) -> None:
        """Return when the server has stopped."""
        await self._stopped.wait()

    def request_shutdown(self, *, save: bool | None = None, force: bool = False) -> bool:
        """Stop; see `Shutdown.request`."""
        return self.get(Shutdown).request(save=save, force=force)

    def abort(self) -> None:
        """Stop at once; see `Shutdown.abort`."""
        self.get(Shutdown).abort()

    def _stop(self) -> None:
        """Stop listening and working; unsent replies are still sent to clients."""
        self._cancel_cron()
        self.get(Shutdown).is_done = True
        self.get(Listeners).close()
        for capability in self.capabilities:
            if not isinstance(capability, (Listeners, Persistence)):
                capability.close()
        self.get(Persistence).close()
        self.get(Listeners).finish()
        if self.is_embedded:  # else its thread ends with the process
            self.trash.close()
        self._stopped.set()

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Callable[[], object]:
        if not isinstance(self.loop, ServerLoop):
            return super().call_later(seconds, callback)
        self.loop.events.call_later(seconds, callback)
        return partial(self.loop.events.cancel, callback)

    def _plan_cron(self) -> None:
        self._cancel_cron = self.call_later(1 / self.config.hz, self._cron)

    def _cron(self) -> None:
        """The work done `hz` times a second, a bounded amount each time."""
        self._plan_cron()
        self.cron_loops += 1
        if self.config.watchdog_period:
            self.get(Process).beat()
        if self.is_cron_paused:
            return
        if self.dispatcher.is_busy:
            for step in self.busy_steps:
                step(self.dispatcher.unix_ms())
            return
        self._run_steps(is_second=self.cron_loops % self.config.hz == 0)

    def _run_steps(self, *, is_second: bool) -> None:
        now_ms = self.dispatcher.unix_ms()
        shutdown = self.get(Shutdown)
        for step in self.cron_steps:
            step(now_ms)
            if shutdown.is_done:  # by this step
                return
        if is_second:
            for step in self.second_steps:
                step(now_ms)
        self.dispatcher.cron()

    def advance(self, by_us: int) -> None:
        self.dispatcher.advance(by_us)
        self._run_steps(is_second=True)
        self.get(StreamRules).catch_up()
        self.blocked.catch_up()
        self.get(StreamRules).catch_up()
