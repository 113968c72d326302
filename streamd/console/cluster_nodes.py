"""All nodes of the cluster that the server belongs to, each with its own figures.

The other nodes are queried over the network, with the login of replication (masteruser, masterauth, tls-replication), in a thread. One
look serves all sessions.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any, cast

from streamd.client.client_errors import ServerError, UnreachableError
from streamd.client.place import Place
from streamd.client.shards import parse_shards
from streamd.console.asked import Asked, answers
from streamd.console.guard import RefusedError
from streamd.console.server_figures import refuse
from streamd.core.host import Host
from streamd.watching.board import Board
from streamd.watching.cluster_reading import ClusterLook, ClusterReader
from streamd.watching.look import Limits

__all__: list[str] = []

EVERY_S = 2.0
REQUESTS = (("INFO",), ("CLUSTER", "INFO"), ("CLUSTER", "NODES"))
"""The requests that other nodes get; the session's user must be allowed to make them here."""


@answers("GET", "cluster")
async def cluster(asked: Asked) -> dict[str, Any]:
    for request in REQUESTS:
        refuse(asked, *request)
    shards = await asked.connection.call("CLUSTER", "SHARDS")
    async with asked.sessions.looking:
        board = asked.sessions.board
        if board is None or time.monotonic() > board.look.at_s + EVERY_S:
            board = board or Board(ClusterReader(place_of(asked.host, asked.session.local[0], shards), Limits()))
            try:
                await asyncio.to_thread(board.refresh, nodes_only=True)
            except UnreachableError as error:
                raise RefusedError(503, str(error)) from None
            except ServerError as error:
                raise RefusedError(
                    409, f"The nodes refuse the login of replication, masteruser and masterauth: {error}"
                ) from None
            asked.sessions.board = board
        return as_json(board)


def place_of(host: Host, address: str, shards: Sequence[Any]) -> Place:
    """A node that is asked for all others, and how to log in there.

    address  of this machine, for nodes that do not know their own
    """
    config = host.config
    base = Place(
        address, config.tls_port if config.tls_replication else config.port,
        username=config.masteruser or None, password=config.masterauth or None, is_tls=config.tls_replication,
        ca_file=config.tls_ca_cert_file or None, cert_file=config.tls_client_cert_file or config.tls_cert_file or None,
        key_file=config.tls_client_key_file or config.tls_key_file or None, is_verified=bool(config.tls_ca_cert_file),
        checks_host=False,
    )  # fmt: skip
    nodes = [node for shard in parse_shards(shards, base) for node in shard.nodes]
    return next((node.place for node in nodes if node.health == "online"), base)


def as_json(board: Board) -> dict[str, Any]:
    look = cast(ClusterLook, board.look)
    return {
        "now_ms": look.now_ms,
        "slots": sum(each.shard.slots for each in look.primaries),
        "nodes": [
            row
            | {"id": each.node.id, "ranges": each.shard.ranges if each.node.is_primary else (), "problem": each.problem}
            for each, row in zip(look.nodes, board.rows("nodes"), strict=True)
        ],
    }
