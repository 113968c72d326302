"""Handing over: this primary asks one of its replicas to take over (SHUTDOWN FAILOVER), as an operator would with CLUSTER FAILOVER."""

from __future__ import annotations

import asyncio
import logging
import ssl

from streamd.cluster.bus.nodes import Flag, Node, State
from streamd.core.host import Host
from streamd.errors import StreamdError
from streamd.protocol.request_bytes import encode_request
from streamd.replication.following import Following
from streamd.replication.primary_connection import Connection

__all__ = ["ask_to_take_over", "find_successor", "open_connection"]

log = logging.getLogger("streamd")

UNABLE = Flag.FAIL | Flag.PFAIL | Flag.NOFAILOVER | Flag.NOADDR


def find_successor(state: State) -> Node | None:
    """The working replica with the most data, or None."""
    able = [each for each in state.myself.replicas if not each.flags & UNABLE and each.link is not None]
    return max(able, key=lambda each: each.offset, default=None)


async def ask_to_take_over(host: Host, node: Node, secret: bytes) -> bool:
    """Send CLUSTER FAILOVER to a replica; return whether it agrees. That it has taken over shows in the role of this node."""
    name = f"{node.id.decode()} ({node.human_name})"
    try:
        connection = await open_connection(host, node)
        try:
            connection.write(encode_request("AUTH", "internal connection", secret))
            connection.write(encode_request("CLUSTER", "FAILOVER"))
            replies = [await connection.read_line() for _ in range(2)]
        finally:
            connection.close()
    except (OSError, TimeoutError, StreamdError) as error:
        log.warning("The replica %s does not take over: %s", name, error)
        return False
    for reply in replies:
        if not reply.startswith(b"+"):
            log.warning("The replica %s does not take over: %s", name, reply.decode("utf-8", "replace"))
            return False
    log.info("The replica %s takes over.", name)
    return True


async def open_connection(host: Host, node: Node) -> Connection:
    """A connection to another node, as replication would open it. Raises OSError, TimeoutError."""
    config = host.config
    context: ssl.SSLContext | None = host.get(Following).make_tls() if config.tls_replication else None
    async with asyncio.timeout(config.repl_timeout):
        _, connection = await host.loop.create_connection(
            lambda: Connection(lambda: float(config.repl_timeout), lambda _: None),
            node.ip, node.tls_port if config.tls_replication else node.port, ssl=context,
            local_addr=(config.bind_source_addr, 0) if config.bind_source_addr else None,
            server_hostname=node.ip if context else None,
        )  # fmt: skip
    return connection
