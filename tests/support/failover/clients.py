"""Clients of a service whose primary changes. They repeat nothing, and know whether a request was sent."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry
from redis.sentinel import MasterNotFoundError, Sentinel, SentinelManagedConnection

__all__ = ["Address", "client_of_owner", "client_of_sentinels", "sent"]

Address = tuple[str, int]
SILENCE_S = 0.5
"""How long a client waits for a reply."""

sent = threading.local()
"""`value`: whether the thread's last request was sent to a server; before, it certainly did nothing."""


class _Tracked(redis.Connection):
    """A connection that tells whether a request was sent; those of the connection's own beginning do not count."""

    def connect_check_health(self, *args: Any, **options: Any) -> None:
        try:
            super().connect_check_health(*args, **options)
        finally:
            sent.value = False

    def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        if not self._sock:
            self.connect_check_health(check_health=False)
        sent.value = True
        super().send_packed_command(command, check_health)


class _SentinelConnection(_Tracked, SentinelManagedConnection):
    """To the primary that Sentinels name."""


class _Finder(Sentinel):
    """Looks for the primary at Sentinels, which may be replaced. `told`: where the operator has said, if that was done."""

    def __init__(self, addresses: Callable[[], list[Address]], told: Callable[[], int | None], **options: Any) -> None:
        self._find_addresses = addresses
        self._told = told
        self._addresses = addresses()
        super().__init__(self._addresses, **options)

    def discover_master(self, service_name: str) -> Address:
        if (told := self._told()) is not None:
            return "127.0.0.1", told
        if self._addresses != self._find_addresses():
            self._addresses = self._find_addresses()
            self.sentinels = [redis.Redis(host, port, **self.sentinel_kwargs) for host, port in self._addresses]
        host, port = super().discover_master(service_name)
        return host, port


def client_of_sentinels(
    service: str, addresses: Callable[[], list[Address]], told: Callable[[], int | None]
) -> redis.Redis:
    """The primary, wherever it is."""
    finder = _Finder(addresses, told, socket_timeout=SILENCE_S, retry=Retry(NoBackoff(), 0))
    client: redis.Redis = finder.master_for(
        service, connection_class=_SentinelConnection, socket_timeout=SILENCE_S, retry=Retry(NoBackoff(), 0)
    )
    client.response_callbacks.clear()  # replies as they came: the same from a command, a script and a transaction
    return client


class _OwnerConnection(_Tracked):
    """To the node of a cluster that another one names as the owner of a slot."""

    def __init__(
        self, *, slot: int, nodes: Callable[[], Sequence[Address]], told: Callable[[], int | None], **options: Any
    ) -> None:
        super().__init__(**options)
        self._slot, self._nodes, self._told = slot, nodes, told

    def connect(self) -> None:
        if not self._sock:
            self.host, self.port = self._find()
        super().connect()

    def _find(self) -> Address:
        if (told := self._told()) is not None:
            return "127.0.0.1", told
        addresses = list(self._nodes())
        for host, port in random.sample(addresses, len(addresses)):
            with (
                suppress(RedisError),
                redis.Redis(host, port, socket_timeout=SILENCE_S, retry=Retry(NoBackoff(), 0)) as node,
            ):
                for first, last, primary, *_ in node.execute_command("CLUSTER SLOTS", NEVER_DECODE=True):
                    if first <= self._slot <= last:
                        return primary[0].decode(), primary[1]
        raise MasterNotFoundError("no node knows who has the slot")


def client_of_owner(slot: int, nodes: Callable[[], Sequence[Address]], told: Callable[[], int | None]) -> redis.Redis:
    """The owner of a slot, whichever that is; after a redirection, the pool is to be disconnected."""
    pool = redis.ConnectionPool(
        connection_class=_OwnerConnection, slot=slot, nodes=nodes, told=told,
        socket_timeout=SILENCE_S, retry=Retry(NoBackoff(), 0),
    )  # fmt: skip
    client = redis.Redis(connection_pool=pool)
    client.response_callbacks.clear()
    return client
