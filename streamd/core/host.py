"""Host: what capabilities are built on, and where they find each other.

It is created with the settings; `open` creates what needs the event loop. Then the capabilities are added, each
created with the host, and `get` finds one by its type.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any, TypeVar

from streamd.core.blocking import BlockedClients
from streamd.core.capability import Capability
from streamd.core.client import Client
from streamd.core.dispatch import Dispatcher, overrides
from streamd.core.spec import CommandTable
from streamd.keyspace.database import Database
from streamd.keyspace.lazyfree import LazyFree
from streamd.process.supervisor import Supervisor
from streamd.settings.config import Config

__all__ = ["Host"]

T = TypeVar("T")


class Host:
    """A server as its capabilities see it.

    config        the settings; CONFIG SET changes them while the server runs
    commands      the command table, with the renames of the configuration
    databases     by index, as SELECT numbers them
    trash         frees large objects in the background
    loop          the event loop
    dispatcher    runs requests; holds the clients and the statistics
    clients       all of them, by ID
    blocked       clients that wait for keys
    capabilities  in the order in which they are called
    cron_steps    what those do that override `cron` and do not rest, in that order; `busy_steps`, `second_steps` likewise
    memory_users  capabilities whose memory counts as used
    supervisor    is told of the life of the server's process
    is_embedded   whether the server runs inside another program
    is_cron_paused  DEBUG PAUSE-CRON
    is_loading    files are being read
    """

    loop: asyncio.AbstractEventLoop
    dispatcher: Dispatcher
    clients: dict[int, Client]
    blocked: BlockedClients

    def __init__(self, config: Config, commands: CommandTable) -> None:
        self.config = config
        self.commands = commands
        self.trash = LazyFree()
        self.databases = [Database(index, trash=self.trash) for index in range(config.databases)]
        self.capabilities: list[Capability] = []
        self.cron_steps: list[Callable[[int], None]] = []
        self.busy_steps: list[Callable[[int], None]] = []
        self.second_steps: list[Callable[[int], None]] = []
        self.memory_users: list[Capability] = []
        self.supervisor = Supervisor()
        self.is_embedded = True
        self.is_cron_paused = False
        self.is_loading = False
        self._parts: dict[type, Any] = {}

    def open(self, loop: asyncio.AbstractEventLoop, capabilities: list[Callable[[Any], Capability]]) -> None:
        """Create the dispatcher and the capabilities; each capability can find those created before it."""
        self.loop = loop
        self.dispatcher = Dispatcher(self.commands, self.databases, loop)
        self.clients, self.blocked = self.dispatcher.clients, self.dispatcher.blocked
        self.dispatcher.context.config = self.config
        self.dispatcher.context.parts = self._parts
        for part in (self, self.config, self.dispatcher):
            self.put(part)
        for make in capabilities:
            capability = make(self)
            self.put(capability)
            self.capabilities.append(capability)
        self.dispatcher.take_capabilities(self.capabilities)
        self._list_cron_steps()
        self.busy_steps = [each.cron_while_busy for each in self.capabilities if overrides(each, "cron_while_busy")]
        self.second_steps = [each.each_second for each in self.capabilities if overrides(each, "each_second")]
        for capability in self.capabilities:
            capability.start()
        self.config.callbacks["refresh"] = self.apply_settings

    # --- Parts --------------------------------------------------------------------------------------------------------

    def put(self, part: object) -> None:
        """Register a part, so that `get` finds it by its type and by its base classes."""
        for kind in type(part).__mro__:
            if kind not in (Capability, object):
                self._parts[kind] = part

    def get(self, kind: type[T]) -> T:
        """The part of a given type; raises KeyError if there is none."""
        found: T = self._parts[kind]
        return found

    def find(self, kind: type[T]) -> T | None:
        """As `get`, but None if there is none."""
        return self._parts.get(kind)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Callable[[], object]:
        """As the loop's, and without a turn of the loop if it is one of our own; returns what cancels it."""
        return self.loop.call_later(seconds, callback).cancel

    def wake(self, capability: Capability) -> None:
        """From now on, call the `cron` of a capability that has rested. May be called by a signal handler."""
        if capability.rests:
            capability.rests = False
            self._list_cron_steps()

    def _list_cron_steps(self) -> None:
        self.cron_steps = [each.cron for each in self.capabilities if overrides(each, "cron") and not each.rests]

    # --- Events for all capabilities ----------------------------------------------------------------------------------

    def apply_settings(self) -> None:
        """Update all copies of settings; raises ConfigError."""
        for capability in self.capabilities:
            capability.apply_settings()
        self.dispatcher.follow_capabilities()

    def reset_statistics(self) -> None:
        """CONFIG RESETSTAT: reset the counters."""
        self.dispatcher.reset_stats()
        self.trash.reset_statistics()
        for capability in self.capabilities:
            capability.reset_statistics()

    def permissions_change(self) -> None:
        """The permissions of users are about to change."""
        for capability in self.capabilities:
            capability.permissions_change()

    def child_begins(self) -> None:
        """Called in a forked child process."""
        for capability in self.capabilities:
            capability.child_begins()

    def abort(self) -> None:
        """Stop immediately, without sending anything: pending replies would be false."""
        raise NotImplementedError

    def advance(self, by_us: int) -> None:
        """Set the Unix time of this server forward by some microseconds, for tests, and do what is due then.

        Entries move before clients that wait for them time out. Connections, replication and the bus of a cluster have clocks
        of their own, which go on as before.
        """
        raise NotImplementedError

    # --- Clients ------------------------------------------------------------------------------------------------------

    def disconnect_blocked(self, text: str, kept: Collection[Client] = ()) -> None:
        """Answer clients that wait for keys, or for replicas, with an error, and close their connections.

        A flush that waits has been done: it is answered as such. Those of `kept` go on waiting, and so does a shutdown.
        """
        for blocked in list(self.blocked):
            request = blocked.request
            if blocked.client in kept or not (request.can_unblock or request.timeout_reply):
                continue
            blocked.client.close_after_reply = True
            if blocked.request.can_unblock:
                self.blocked.fail(blocked, text)
            else:
                self.blocked.time_out(blocked)

    def kill(self, client: Client) -> None:
        """Close a connection now; a client that closes itself gets its reply first."""
        if client is self.dispatcher.context.client:
            client.close_after_reply = True
        else:
            client.close()

    def select(self, client: Client, index: int) -> None:
        """Select a database for a client; the index has been checked."""
        client.select(self.databases[index])
        self.dispatcher.context.db = self.databases[index]

    def reset(self, client: Client) -> None:
        """RESET: restore the initial state of the connection."""
        for capability in self.dispatcher.capabilities:
            capability.client_reset(client)
        client.reset(needs_password=self.dispatcher.needs_password)
        self.dispatcher.context.db = self.databases[0]
