"""Server: wires listeners, clients, databases, configuration and time together, and runs them in one event loop.

`run(config)` is the whole life of a server process and returns its exit code. A program that embeds a server uses `Server`
inside its own loop (`await server.start()`, `await server.wait_closed()`), or `streamd.embedded`.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import secrets
import signal
import socket
import ssl
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from streamd import REDIS_VERSION, __version__
from streamd.caching.tracking import ClientTracking
from streamd.core.blocking import BlockedClients
from streamd.core.client import Client
from streamd.core.execute import Dispatcher
from streamd.core.log import VERBOSE, interject
from streamd.core.spec import table
from streamd.data.migration import MigrationTargets
from streamd.debug import crash
from streamd.engine.database import Database, has_due
from streamd.engine.lazyfree import LazyFree
from streamd.errors import AclError, ConfigError
from streamd.memory.accounting import Memory
from streamd.memory.eviction import Eviction
from streamd.observe.hotkeys import HotKeys
from streamd.observe.info import render as render_info
from streamd.observe.latency import LatencyMonitor
from streamd.observe.rates import Rate, RecentMost
from streamd.observe.slowlog import SlowLog
from streamd.persistence.keeper import LoadError, Persistence
from streamd.persistence.payloads import Payloads
from streamd.persistence.rdb.format import FORMS
from streamd.serve.families import load_all
from streamd.serve.listening import ListenError, PortListener
from streamd.serve.loop import run_in_new_loop
from streamd.serve.process import Process
from streamd.serve.tls import TlsError, find_common_name, make_context
from streamd.serve.warnings import warn_about_system, warn_about_users
from streamd.users.acl import Acl

if TYPE_CHECKING:
    from streamd.caching.tracking_commands import TrackingOptions
    from streamd.observe.monitor import Monitors
    from streamd.settings.config import Config

__all__ = ["ListenError", "Server", "run"]

log = logging.getLogger("streamd")
log.addHandler(logging.NullHandler())  # silent inside another program, unless that program listens

MAX_CLIENTS_ERROR = b"-ERR max number of clients reached\r\n"
PROTECTED_ERROR = (
    b"-DENIED Redis is running in protected mode because protected mode is enabled and no password is set for the"
    b" default user. In this mode connections are only accepted from the loopback interface. If you want to connect from"
    b" external computers to Redis you may adopt one of the following solutions: 1) Just disable protected mode sending"
    b" the command 'CONFIG SET protected-mode no' from the loopback interface by connecting to Redis from the same host"
    b" the server is running, however MAKE SURE Redis is not publicly accessible from internet if you do so. Use CONFIG"
    b" REWRITE to make this change permanent. 2) Alternatively you can just disable the protected mode by editing the"
    b" Redis configuration file, and setting the protected mode option to 'no', and then restarting the server. 3) If you"
    b" started the server manually just for testing, restart it with the '--protected-mode no' option. 4) Set up an"
    b" authentication password for the default user. NOTE: You only need to do one of the above things in order for the"
    b" server to start accepting connections from the outside.\r\n"
)
"""The answer to strangers in protected mode, as clients of Redis know it."""
YOUNG_OBJECTS_LIMIT = 50_000
"""Collectable objects made since the last collection that make the cron collect the young ones."""
EXPIRE_STEP = 100
"""Expired keys that are removed between two looks at the clock."""
FREE_SLICE_OBJECTS = 1000
"""Objects of a flushed database that are given up at a time, about 0.3 ms; then others get their turn."""
FREE_SLICE_PAUSE_S = 0.002
SIGNAL_GRACE_S = 0.01
"""Between a signal that asks for a shutdown and the shutdown: requests that are there already may call it off."""


class Server:
    """A server in an event loop.

    config      the settings (Config); CONFIG SET changes them while the server runs
    any_port    listen on a free port instead of the configured one; `port` tells which
    commands    the command table, renamed as the configuration says
    databases   by index, as SELECT numbers them
    dispatcher  runs requests; holds the clients and what is counted
    payloads    what DUMP and RESTORE need
    blocked     clients that wait for keys
    hotkeys     looks for the keys with most load, when asked to
    migration   connections to servers that keys are given to
    """

    def __init__(self, config: Config, *, any_port: bool = False) -> None:
        load_all()
        self._any_port = any_port
        self.config = config
        self.commands = table.copy()
        for old, new in config.rename_command:
            self.commands.rename(old, new)
        self.run_id = secrets.token_hex(20)
        self.replication_id = secrets.token_hex(20)
        self.started_at = time.time()
        self.started_monotonic = time.monotonic()
        self.trash = LazyFree()
        self.slowlog = SlowLog()
        self.latency = LatencyMonitor()
        self.databases = [Database(index, trash=self.trash) for index in range(config.databases)]
        self.payloads = Payloads(self)
        self.active_expire = True
        self.is_cron_paused = False
        self.total_connections = 0
        self.rejected_connections = 0
        self.cron_loops = 0
        self.ops_per_second = Rate()
        self.input_rate = Rate()
        self.output_rate = Rate()
        self.turn_rate = Rate()
        self.turn_time_rate = Rate()
        self.recent_input = RecentMost()
        self.recent_output = RecentMost()
        self.expired_keys_active = 0
        self.expire_cycles_cut = 0
        self.expire_cycle_us = 0
        self.is_embedded = True
        self.exit_code = 0
        self.process: Process | None = None
        """None in a program that embeds the server."""
        self.shutdown_signal: int | None = None
        """SIGTERM or SIGINT, until the shutdown that it asks for has been called off or has failed."""
        self.blocked: BlockedClients
        self.dispatcher: Dispatcher
        self.acl: Acl
        self.hotkeys: HotKeys
        self.migration: MigrationTargets
        self.eviction: Eviction
        self.memory: Memory
        self.persistence: Persistence
        self._loop: asyncio.AbstractEventLoop
        self._tcp: PortListener
        self._tls: PortListener
        self._unix_listener: asyncio.AbstractServer | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._cron_handle: asyncio.TimerHandle | None = None
        self._slice_handle: asyncio.TimerHandle | None = None
        self._flushers: list[Client] = []
        """Clients that wait until a flushed database has been given up."""
        self._pause_until = 0.0
        self._pause_handle: asyncio.TimerHandle | None = None
        self._postponed: dict[int, Client] = {}
        self._stopped: asyncio.Event

    # --- Life ------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen, load what is on the disk, and serve.

        Raises ListenError when an address is not to be had, LoadError when the data cannot be read.
        """
        self._loop = asyncio.get_running_loop()
        self._stopped = asyncio.Event()
        self.blocked = BlockedClients(self._loop)
        self.dispatcher = Dispatcher(self, self._loop)
        self.blocked.dispatcher = self.dispatcher
        self.hotkeys = HotKeys(self.dispatcher, self._loop)
        self.migration = MigrationTargets(self._loop)
        make_client = partial(Client, self.dispatcher)
        self._tcp = PortListener(self._loop, self.config, "port", make_client, any_port=self._any_port)
        self._tls = PortListener(self._loop, self.config, "tls-port", make_client)
        self.dispatcher.context.config = self.config
        self._load_users()
        self.eviction = Eviction(self, self.dispatcher)
        self.memory = Memory(self)
        self.persistence = Persistence(self, self._loop)
        if self.process is not None:
            self.persistence.children.begin = self.process.begin_child
        self.apply_all_settings()
        self.config.callbacks |= {"listen-tls": self._relisten_tls, "tls": self._reload_tls}
        self.config.callbacks |= {
            "refresh": self.apply_all_settings,
            "listen": self._relisten,
            "append-only": self._switch_append_only,
            "directory": self.persistence.change_directory,
            "save-points": self.persistence.change_save_points,
        }
        await self._listen()
        if self._any_port:
            # From here on it is the port that was asked for: CONFIG GET tells it, and CONFIG SET bind keeps it.
            self.config.port = self.port
            self._any_port = self._tcp.any_port = False
        if self._stopped.is_set():
            return
        log.info("Running mode=standalone, port=%d.", self.port)
        log.info("Server initialized")
        try:
            await self.persistence.load()
        except LoadError:
            self._stop()
            raise
        if self._stopped.is_set():
            return
        self._cron_handle = self._loop.call_later(1 / self.config.hz, self._cron)

    def _load_users(self) -> None:
        """Make the users that the configuration declares; raises AclError."""
        self.acl = Acl(self)
        for warning in self.acl.load_at_start():
            log.warning("%s", warning)
        self.config.callbacks["password"] = self.acl.set_password
        self.config.user_lines = self.acl.config_lines

    @property
    def is_stopped(self) -> bool:
        """Whether it has been told to stop, and does; also before it was ready."""
        return self._stopped.is_set()

    async def wait_closed(self) -> None:
        """Return when the server has stopped."""
        await self._stopped.wait()

    def signal_shutdown(self, number: int) -> None:
        """SIGTERM or SIGINT, from a signal handler, which interrupts anything. A SIGINT that is not the first ends at once."""
        if number == signal.SIGINT and self.shutdown_signal is not None:
            interject("You insist... exiting now.")
            self.persistence.remove_temporary_snapshot()
            os._exit(1)
        interject(f"Received {signal.Signals(number).name} scheduling shutdown...")
        self.shutdown_signal = number
        self._loop.call_soon_threadsafe(self._loop.call_later, SIGNAL_GRACE_S, self._follow_signal)

    def _follow_signal(self) -> None:
        """Begin the shutdown that a signal has asked for."""
        if self.shutdown_signal is None or self.is_cron_paused:
            return
        is_interrupt = self.shutdown_signal == signal.SIGINT
        words = self.config.shutdown_on_sigint if is_interrupt else self.config.shutdown_on_sigterm
        save = True if "save" in words else False if "nosave" in words else None
        self.request_shutdown(save=save, force="force" in words)

    def abort_shutdown(self) -> bool:
        """SHUTDOWN ABORT: call off what a signal has asked for; False when it has not, or the shutdown goes on already."""
        if self.shutdown_signal is None:
            return False
        self.shutdown_signal = None
        log.info("Shutdown manually aborted.")
        return True

    def request_shutdown(self, *, save: bool | None = None, force: bool = False) -> bool:
        """Stop: bring the data to the disk, give unsent replies to the kernel, close every client.

        save   write a snapshot, or do not; None: when there are save points
        force  stop though the data cannot be written
        Returns False, and goes on, when the data cannot be written.
        """
        if self._stopped.is_set():
            return True
        log.info("User requested shutdown...")
        if self.persistence.loading is not None:
            log.warning("Received shutdown signal during loading, exiting now.")
            self.persistence.abandon_loading()
        elif not self.persistence.finish(save=save, force=force):
            self.shutdown_signal = None
            log.warning("Errors trying to shut down the server. Check the logs for more information.")
            return False
        self._stop()
        return True

    def _stop(self) -> None:
        """Stop to listen and to work; what clients have not been sent yet is sent."""
        self._tcp.close()
        self._tls.close()
        if self._unix_listener is not None:
            self._unix_listener.close()
            log.info("Removing the unix socket file.")
            with suppress(OSError):
                os.unlink(self.config.unixsocket)
        for handle in (self._cron_handle, self._pause_handle, self._slice_handle):
            if handle is not None:
                handle.cancel()
        self.migration.close()
        for client in list(self.clients.values()):
            client.shut_down()
        self.persistence.close()
        self._stopped.set()

    def crash(self, *, is_fault: bool) -> None:
        """DEBUG SEGFAULT and its kind: die, of a fault or of an abort. A program that embeds the server dies with it."""
        if is_fault:
            crash.die()
        os.abort()

    def abort(self) -> None:
        """Stop at once, with nothing sent to anybody: what clients would be told is not true."""
        for client in list(self.clients.values()):
            client.close()
        self.exit_code = 1
        self._stop()

    # --- Listening -------------------------------------------------------------------------------------------------

    @property
    def port(self) -> int:
        """The TCP port that is listened on; 0 when there is none."""
        return self._tcp.port

    @property
    def tls_port(self) -> int:
        """The port for TLS; 0 when there is none."""
        return self._tls.port

    async def _listen(self) -> None:
        config = self.config
        if config.tls_port:
            try:
                self._tls.context = make_context(config)
            except TlsError as error:
                log.warning("%s", error)
                raise TlsError("Failed to configure TLS. Check logs for more info.") from error
        await self._tcp.start()
        await self._tls.start()
        if config.unixsocket:
            await self._listen_unix(config.unixsocket, config.unixsocketperm)

    def _relisten(self) -> None:
        """CONFIG SET port or bind; raises ConfigError."""
        self._tcp.follow_settings()
        self._tls.follow_settings()

    def _relisten_tls(self) -> None:
        """CONFIG SET tls-port; raises ConfigError."""
        if self.config.tls_port:
            self._tls.context = self._make_tls_context("tls-port")
        self._tls.follow_settings()

    def _reload_tls(self) -> None:
        """CONFIG SET of a certificate, or of how TLS is spoken; raises ConfigError. Without TLS it is looked at later."""
        if self.config.tls_port:
            self._tls.change_context(self._make_tls_context("tls-cert-file"))

    def _make_tls_context(self, setting: str) -> ssl.SSLContext:
        try:
            return make_context(self.config)
        except TlsError as error:
            log.warning("%s", error)
            raise ConfigError(setting, "Unable to update TLS configuration. Check server logs.") from error

    async def _listen_unix(self, path: str, permissions: int) -> None:
        with suppress(FileNotFoundError):
            os.unlink(path)
        try:
            self._unix_listener = await self._loop.create_unix_server(
                lambda: Client(self.dispatcher, is_unix=True), path, backlog=self.config.tcp_backlog
            )
            if permissions:
                os.chmod(path, permissions)
        except OSError as error:
            log.warning("Failed opening Unix socket: bind: %s", error.strerror)
            raise ListenError(f"cannot listen on {path}", "the Unix socket") from error

    # --- Clients ---------------------------------------------------------------------------------------------------

    @property
    def clients(self) -> dict[int, Client]:
        return self.dispatcher.clients

    @property
    def monitors(self) -> Monitors:
        return self.dispatcher.monitors

    def client_connected(self, client: Client, sock: Any) -> None:
        """Called by every new client: counts it, or turns it away when there are too many."""
        refusal = b""
        if len(self.clients) > self.config.maxclients:
            refusal = MAX_CLIENTS_ERROR
        elif self.config.protected_mode and self.acl.default.is_nopass and not client.is_local:
            refusal = PROTECTED_ERROR
        if refusal:
            self.rejected_connections += 1
            client.close_after_reply = True  # nothing that it sends is run
            client.transport.write(refusal)
            client.transport.close()
            return
        self.total_connections += 1
        if self.config.tls_auth_clients_user == "CN":
            name = find_common_name(client.transport)
            if name is not None:
                self.acl.authenticate_by_certificate(client, name)
        if sock is not None and not client.is_unix and self.config.tcp_keepalive:
            with suppress(OSError):  # more seconds than the system takes
                set_keepalive(sock, self.config.tcp_keepalive)

    def client_disconnected(self, client: Client) -> None:
        """Called by every client whose connection is gone."""
        self._postponed.pop(client.id, None)
        self.eviction.forget(client)

    def kill(self, client: Client) -> None:
        """Close a connection now; the client that asks for its own end gets its reply first."""
        if client is self.dispatcher.context.client:
            client.close_after_reply = True
        else:
            client.close()

    def select(self, client: Client, index: int) -> None:
        """Select a database for a client; the index has been checked."""
        client.select(self.databases[index])
        self.dispatcher.context.db = self.databases[index]

    def reset(self, client: Client) -> None:
        """RESET: the connection is as it was when it was made."""
        self.dispatcher.context.end_transaction()
        self.dispatcher.tracking.disable(client)
        self.dispatcher.hub.drop(client)
        self.dispatcher.monitors.remove(client)
        client.reset(needs_password=self.dispatcher.needs_password)
        self.dispatcher.context.db = self.databases[0]

    def unblock(self, client: Client, error: str | None) -> bool:
        """End the wait of a client: with the null array, or with an error; False when it does not wait."""
        if client.blocked is None or client in self._flushers:
            return False
        if error is None:
            self.blocked.time_out(client.blocked)
        else:
            self.blocked.fail(client.blocked, error)
        return True

    def track(self, client: Client, options: TrackingOptions | None) -> None:
        """CLIENT TRACKING: begin to track what a client reads, or change how; None: end it."""
        tracking = self.dispatcher.tracking
        if options is None:
            tracking.disable(client)
            return
        wanted = ClientTracking(
            redirect=options.redirect,
            is_bcast=options.is_bcast,
            is_optin=options.is_optin,
            is_optout=options.is_optout,
            is_noloop=options.is_noloop,
        )
        tracking.enable(client, wanted, options.prefixes)

    def set_caching(self, client: Client) -> None:
        """CLIENT CACHING."""
        self.dispatcher.tracking.set_caching(client)

    # --- CLIENT PAUSE ----------------------------------------------------------------------------------------------

    def pause(self, until: float, *, writes_only: bool) -> None:
        """Let requests wait until a monotonic time. A pause is only ever made longer and stricter."""
        self._pause_until = max(until, self._pause_until)
        mode = 1 if writes_only else 2
        self.dispatcher.pause = max(mode, self.dispatcher.pause)
        if self._pause_handle is not None:
            self._pause_handle.cancel()
        delay = max(0.0, self._pause_until - time.monotonic())
        self._pause_handle = self._loop.call_later(delay, self.unpause)

    def unpause(self) -> None:
        """End a pause; what waited is run in the order in which it came."""
        if self._pause_handle is not None:
            self._pause_handle.cancel()
            self._pause_handle = None
        self._pause_until = 0.0
        self.dispatcher.pause = 0
        self.eviction.resume()
        self._loop.call_soon(self._run_postponed)

    def postpone(self, client: Client) -> None:
        """Remember that a client holds a request back."""
        self._postponed[client.id] = client

    @property
    def postponed_count(self) -> int:
        """Clients that wait for the end of a pause."""
        return len(self._postponed)

    def _run_postponed(self) -> None:
        self.dispatcher.serve_held_back()
        waiting = list(self._postponed.values())
        self._postponed.clear()
        for client in waiting:
            self.dispatcher.run_postponed(client)

    # --- What it says about itself ---------------------------------------------------------------------------------

    def info(self, sections: Iterable[str] = ()) -> str:
        """The text of INFO; without sections, the default ones."""
        return render_info(self, sections)

    def reset_statistics(self) -> None:
        """CONFIG RESETSTAT: count from here on."""
        self.dispatcher.reset_stats()
        self.total_connections = self.rejected_connections = 0
        for db in self.databases:
            db.hits = db.misses = db.expired_keys = 0
        self.trash.reset_statistics()
        self.eviction.reset_statistics()
        self.slowlog.reset_statistics()
        self.ops_per_second, self.input_rate, self.output_rate = Rate(), Rate(), Rate()
        self.turn_rate, self.turn_time_rate = Rate(), Rate()
        self.expired_keys_active = self.expire_cycles_cut = self.expire_cycle_us = 0

    def _switch_append_only(self) -> None:
        self.persistence.switch_append_only()

    def change_replication_id(self) -> None:
        self.replication_id = secrets.token_hex(20)

    # --- Settings --------------------------------------------------------------------------------------------------

    def apply_all_settings(self) -> None:
        """Bring everything that keeps a copy of a setting up to date."""
        config = self.config
        context = self.dispatcher.context
        context.stream_node_max_bytes = config.stream_node_max_bytes
        context.stream_node_max_entries = config.stream_node_max_entries
        context.stream_idmp_duration = config.stream_idmp_duration
        context.stream_idmp_maxsize = config.stream_idmp_maxsize
        context.has_xnack = FORMS[config.rdb_form].has_xnack
        self.persistence.apply_settings()
        self.dispatcher.max_bulk_len = config.proto_max_bulk_len
        self.dispatcher.query_buffer_limit = config.client_query_buffer_limit
        self.dispatcher.tracking.max_keys = config.tracking_table_max_keys
        for number, name in enumerate(("normal", "replica", "pubsub")):
            limit = config.client_output_buffer_limit[name]
            self.dispatcher.set_output_limit(number, limit.hard_bytes, limit.soft_bytes, limit.soft_seconds)
        self.eviction.configure(config)
        self.dispatcher.keyspace.set_events(config.notify_keyspace_events)
        self.slowlog.max_len = config.slowlog_max_len
        self.slowlog.max_args = config.slowlog_entry_max_argc
        self.slowlog.max_bytes = config.slowlog_entry_max_string_len
        self.latency.threshold_ms = config.latency_monitor_threshold
        self.dispatcher.set_slow_limits(config.slowlog_log_slower_than, config.latency_monitor_threshold)
        self.dispatcher.tracks_latency = config.latency_tracking
        for client in self.clients.values():
            client.parser.max_bulk_len = config.proto_max_bulk_len

    # --- Time ------------------------------------------------------------------------------------------------------

    def _cron(self) -> None:
        """What is done `hz` times a second, each time a bounded amount."""
        self._cron_handle = self._loop.call_later(1 / self.config.hz, self._cron)
        self.cron_loops += 1
        if self.process is not None:
            self.process.beat()
        if self.is_cron_paused:
            return
        if self.shutdown_signal is not None:
            self._loop.call_soon(self._follow_signal)  # behind requests that wait for their turn
        self.persistence.cron()
        now_ms = int(time.time() * 1000)
        if self.active_expire and not self.dispatcher.pause and self.persistence.loading is None:
            self._expire_due(now_ms)
        if self.cron_loops % self.config.hz == 0:
            self._close_idle_clients()
            self.dispatcher.context.idempotency.expire(now_ms)
            if self.eviction.clients_limit:
                self.eviction.weigh_all()
                self.eviction.evict_clients()
        self.dispatcher.cron()
        self.eviction.used()  # for the peak
        now = time.monotonic()
        self.ops_per_second.sample(now, self.dispatcher.total_commands)
        self.input_rate.sample(now, self.dispatcher.net_input_bytes)
        self.output_rate.sample(now, self.dispatcher.net_output_bytes)
        self.turn_rate.sample(now, self.dispatcher.turns)
        self.turn_time_rate.sample(now, self.dispatcher.turns_us)
        most_input, most_output = self.dispatcher.take_peaks()
        self.recent_input.sample(now, most_input)
        self.recent_output.sample(now, most_output)
        if self.trash.has_slices and self._slice_handle is None:
            self._free_slice()
        if not self.is_embedded and gc.get_count()[0] > YOUNG_OBJECTS_LIMIT:
            # Nothing here is meant to become cyclic garbage; errors with their tracebacks may. Survivors are frozen, so
            # that no collection ever looks at them again.
            gc.collect(0)
            gc.freeze()

    def has_much_to_free(self) -> bool:
        """Give up some objects of a flushed database; whether there are more."""
        self.trash.step(FREE_SLICE_OBJECTS)
        return self.trash.has_slices

    def answer_when_freed(self, client: Client) -> None:
        """Let a client that has flushed a database wait until that has been given up, and do it without rests."""
        self._flushers.append(client)
        if self._slice_handle is not None:
            self._slice_handle.cancel()
        self._slice_handle = self._loop.call_later(0, self._free_slice)

    def _free_slice(self) -> None:
        """Give up some objects of a flushed database, and come back soon while there are more."""
        if self.has_much_to_free():
            pause_s = 0.0 if self._flushers else FREE_SLICE_PAUSE_S
            self._slice_handle = self._loop.call_later(pause_s, self._free_slice)
            return
        self._slice_handle = None
        flushers, self._flushers = self._flushers, []
        for client in flushers:
            if client.blocked is not None:
                self.blocked.time_out(client.blocked)

    def _close_idle_clients(self) -> None:
        """The setting `timeout`: close clients that have sent nothing for so long.

        Not those that are expected to be silent: they wait for a key, or for messages, or watch others.
        """
        if not self.config.timeout:
            return
        limit = time.monotonic() - self.config.timeout
        for client in list(self.clients.values()):
            is_waiting = client.blocked is not None or client.postponed is not None
            is_listening = is_waiting or client.is_subscribed or client.is_monitor
            if client.last_interaction < limit and not is_listening:
                log.log(VERBOSE, "Closing idle client")
                client.close()

    def _expire_due(self, now_ms: int) -> None:
        """Remove keys whose time has come, for at most a quarter of the time between two calls."""
        if not has_due(self.databases, now_ms):
            return
        started = time.monotonic()
        limit = started + 0.25 / self.config.hz
        for db in self.databases:
            removed = EXPIRE_STEP
            while removed == EXPIRE_STEP:
                removed = db.expire_due(EXPIRE_STEP)
                self.expired_keys_active += removed
                if removed == EXPIRE_STEP and time.monotonic() >= limit:
                    self.expire_cycles_cut += 1
                    break
        took_us = int((time.monotonic() - started) * 1_000_000)
        self.expire_cycle_us += took_us
        self.latency.add("expire-cycle", took_us // 1000)


def set_keepalive(sock: Any, idle_s: int) -> None:
    """Have the kernel probe an idle connection after `idle_s` seconds, and give it up after three probes more."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    idle = getattr(socket, "TCP_KEEPIDLE", getattr(socket, "TCP_KEEPALIVE", None))
    if idle is not None:
        sock.setsockopt(socket.IPPROTO_TCP, idle, idle_s)
    if hasattr(socket, "TCP_KEEPINTVL"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, idle_s // 3))
    if hasattr(socket, "TCP_KEEPCNT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)


# --- The process ---------------------------------------------------------------------------------------------------


def run(config: Config) -> int:
    """Serve until told to stop; returns the exit code of the process. Logging is set up already."""
    warn_about_system()
    log.info("oO0OoO0OoO0Oo streamd is starting oO0OoO0OoO0Oo")
    log.info("streamd version=%s, speaks Redis %s, pid=%d, just started", __version__, REDIS_VERSION, os.getpid())
    if config.config_file:
        log.info("Configuration loaded")
    else:
        log.warning("Warning: no config file specified, using the default config.")
    if config.dir:
        try:
            os.chdir(config.dir)
        except OSError as error:
            log.critical("Can't chdir to '%s': %s", config.dir, error.strerror)
            return 1
    if config.daemonize and not daemonize():
        return 0
    return run_in_new_loop(_serve(config))


async def _serve(config: Config) -> int:
    server = Server(config)
    server.is_embedded = False
    server.process = Process(server)
    server.process.start()
    # Everything that exists now lives as long as the process: no collection needs to look at it.
    gc.collect()
    gc.freeze()
    gc.disable()
    # Not the loop's own handlers: those run after what is running, which may be what is to be called off, or a long snapshot.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _frame: server.signal_shutdown(number))
    for number in (signal.SIGHUP, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    try:
        await server.start()
    except (AclError, TlsError) as error:
        log.critical("%s", error)
        return 1
    except ListenError as error:
        log.warning("Failed listening on %s, aborting.", error.place)
        return 1
    except LoadError:
        return 1
    if server.is_stopped:
        return server.exit_code
    # Only now: the file may be that of the server that has the port.
    remove_pid_file = write_pid_file(config)
    if server.port:
        log.info("Ready to accept connections tcp")
    if server.tls_port:
        log.info("Ready to accept connections tls")
    if config.unixsocket:
        log.info("Ready to accept connections unix")
    warn_about_users(config, is_open=server.acl.default.is_nopass)
    try:
        await server.wait_closed()
    finally:
        remove_pid_file()
    # One more turn, for the transports to close.
    await asyncio.sleep(0)
    log.warning("streamd is now ready to exit, bye bye...")
    return server.exit_code


def daemonize() -> bool:
    """Go on in the background; False in the process that is to end."""
    if os.fork():
        return False
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    sys.stdout.flush()
    sys.stderr.flush()
    for number in (0, 1, 2):
        os.dup2(null, number)
    return True


def write_pid_file(config: Config) -> Any:
    """Write the pid file when one is asked for (or daemonized); returns what removes it."""
    path = config.pidfile or ("/var/run/redis.pid" if config.daemonize else "")
    if not path:
        return lambda: None
    try:
        with open(path, "w", encoding="ascii") as file:
            file.write(f"{os.getpid()}\n")
    except OSError as error:
        log.warning("Failed to write PID file: %s", error.strerror)
        return lambda: None

    def remove() -> None:
        log.info("Removing the pid file.")
        with suppress(OSError):
            os.unlink(path)

    return remove
