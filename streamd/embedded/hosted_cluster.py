"""A cluster inside another program: embedded servers that are its nodes, and clients for all of it."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from streamd.client.place import Place
from streamd.clustering.deadline_waits import Patience
from streamd.clustering.forming import check_counts, form, frequent_pings, wait_for_agreement
from streamd.clustering.node_connection import BUS_OFFSET, Node
from streamd.embedded.running import EmbeddedServer
from streamd.errors import StreamdError
from streamd.serve.app import ListenError

if TYPE_CHECKING:
    from types import TracebackType

    import redis
    import redis.asyncio

__all__ = ["EmbeddedCluster", "start_cluster"]

ATTEMPTS = 10
PORTS = range(10_000, 22_000)
"""Ports for clients, with those of the bus: below those that systems give to connections."""
TIMEOUT_S = 60.0
GIVEN = ("port", "dir", "cluster_enabled", "cluster_port", "cluster_config_file")


def start_cluster(nodes: int = 3, *, replicas: int = 0, own_process: bool = False, **settings: Any) -> EmbeddedCluster:
    """Start a cluster on free ports of the loopback address and return it when all nodes see `cluster_state:ok`.

    nodes        all of them, replicas included
    replicas     of each primary
    own_process  each node in its own process, not in a thread
    settings     of all nodes, as for `start`, except those that are given to each node: port, dir, cluster_...
    Raises ConfigError for a setting that cannot be accepted, ClusterError when the nodes are too few for the replicas.

    A running event loop is not blocked, as with `start`: use `async with` or `await`.
    """
    cluster = EmbeddedCluster(nodes, replicas, own_process=own_process, settings=settings)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        cluster.wait_until_ready()
    return cluster


class EmbeddedCluster:
    """A running cluster; a context manager, `with` or `async with`, that stops it. Made by `start_cluster`.

    nodes  the servers, those that became primaries first; each can be stopped, killed and restarted
    """

    def __init__(self, nodes: int, replicas: int, *, own_process: bool, settings: dict[str, Any]) -> None:
        for name in settings:
            if name.replace("-", "_") in GIVEN:
                raise StreamdError(f"start_cluster gives each node a {name} of its own")
        if nodes < 1:
            raise StreamdError(f"a cluster has at least one node, not {nodes}")
        check_counts(nodes, replicas)
        self.nodes: list[EmbeddedServer] = []
        self._count = nodes
        self._replicas = replicas
        self._own_process = own_process
        # Replicas log in to their primaries.
        secret = {"masterauth": settings["requirepass"]} if "requirepass" in settings else {}
        self._settings = secret | settings
        self._clients: list[redis.RedisCluster] = []
        self._async_clients: list[redis.asyncio.RedisCluster] = []
        self._is_ready = False

    def wait_until_ready(self) -> None:
        """Return when it serves; raises what prevented that. A second call does nothing."""
        if self._is_ready:
            return
        for attempt in range(ATTEMPTS):
            try:
                self._start_nodes()
                break
            except ListenError:  # a port has been taken since it was found free
                self._stop_nodes()
                if attempt == ATTEMPTS - 1:
                    raise
            except BaseException:
                self._stop_nodes()
                raise
        try:
            with over_the_wire(self.nodes) as found:
                form(found, self._replicas, Patience(timeout_s=TIMEOUT_S))
        except BaseException:
            self._stop_nodes()
            raise
        self._is_ready = True

    def _start_nodes(self) -> None:
        # All begin to start before the first one is waited for.
        for port in free_ports(self._count):
            given = {"port": port, "cluster_enabled": True, "cluster_port": port + BUS_OFFSET}
            self.nodes.append(EmbeddedServer({**self._settings, **given}, own_process=self._own_process))
        for node in self.nodes:
            node.wait_until_ready()

    def wait_until_ok(self) -> None:
        """Return when all nodes that run see `cluster_state:ok` and the same owners of slots; after `restart`, or a fail-over.

        Raises ClusterError after a minute.
        """
        with over_the_wire([node for node in self.nodes if node.is_running]) as found, frequent_pings(found):
            wait_for_agreement(found, Patience(timeout_s=TIMEOUT_S))

    @property
    def url(self) -> str:
        """The URL of the first node, from which clients find the others."""
        self.wait_until_ready()
        return self.nodes[0].url

    # --- Clients ---------------------------------------------------------------------------------------------------

    def client(self, **options: Any) -> redis.RedisCluster:
        """A new RedisCluster of redis-py, created with `options`. It is closed, at the latest, when the cluster stops.

        It waits for a reply as long as the command does, unless `socket_timeout` says otherwise.
        """
        import redis

        client = redis.RedisCluster.from_url(self._url_of_a_running_node(), **{"socket_timeout": None, **options})
        self._clients.append(client)
        return client

    def async_client(self, **options: Any) -> redis.asyncio.RedisCluster:
        """The same for asyncio. It is closed at the end of `async with`; elsewhere close it with `aclose`."""
        import redis.asyncio

        client = redis.asyncio.RedisCluster.from_url(
            self._url_of_a_running_node(), **{"socket_timeout": None, **options}
        )
        self._async_clients.append(client)
        return client

    def _url_of_a_running_node(self) -> str:
        self.wait_until_ready()
        return next((node for node in self.nodes if node.is_running), self.nodes[0]).url

    def flush(self) -> None:
        """Remove all keys of all primaries."""
        self.wait_until_ready()
        with over_the_wire([node for node in self.nodes if node.is_running]) as found:
            for node in found:
                if node.nodes()[node.id].is_primary:
                    node.ask("FLUSHALL")

    def advance(self, seconds: float | timedelta) -> None:
        """Set the time of all running nodes forward; see `EmbeddedServer.advance`."""
        self.wait_until_ready()
        for node in self.nodes:
            if node.is_running:
                node.advance(seconds)

    # --- Its end ---------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Close the clients and stop all nodes; their temporary folders are removed. A second call does nothing."""
        for client in self._clients:
            client.close()
            for node in client.get_nodes():  # type: ignore[no-untyped-call]  # `close` leaves the connections of clients made from a URL open
                if node.redis_connection is not None:
                    node.redis_connection.connection_pool.disconnect()
        self._clients.clear()
        self._is_ready = True  # it does not start again
        self._stop_nodes()

    def _stop_nodes(self) -> None:
        nodes, self.nodes = self.nodes, []
        with ThreadPoolExecutor(max(len(nodes), 1)) as pool:
            stopping = [pool.submit(node.stop) for node in nodes]
        # What kept a node from starting has been raised already.
        for each in stopping if self._is_ready else ():
            each.result()

    # --- with, async with, await -----------------------------------------------------------------------------------

    def __enter__(self) -> EmbeddedCluster:
        self.wait_until_ready()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> EmbeddedCluster:
        await asyncio.get_running_loop().run_in_executor(None, self.wait_until_ready)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for client in self._async_clients:
            await client.aclose()
        self._async_clients.clear()
        await asyncio.sleep(0)  # their transports close in the next turn of the loop
        await asyncio.get_running_loop().run_in_executor(None, self.stop)

    def __await__(self) -> Generator[Any, None, EmbeddedCluster]:
        return self.__aenter__().__await__()


@contextmanager
def over_the_wire(servers: Sequence[EmbeddedServer]) -> Iterator[list[Node]]:
    """Servers as nodes over the wire, whose connections are closed at the end."""
    nodes = [Node(Place.from_url(server.url), server.port + BUS_OFFSET) for server in servers]
    try:
        yield nodes
    finally:
        for node in nodes:
            node.close()


def free_ports(count: int) -> list[int]:
    """Ports of the loopback address that nobody has, nor those of their buses."""
    found: list[int] = []
    for port in random.sample(PORTS, len(PORTS)):
        if len(found) == count:
            break
        if all(map(is_free, (port, port + BUS_OFFSET))):
            found.append(port)
    return found


def is_free(port: int) -> bool:
    with socket.socket() as probe, suppress(OSError):
        probe.bind(("127.0.0.1", port))
        return True
    return False
