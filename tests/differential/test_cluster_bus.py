"""The core of a node beside real ones: bytes of their packets, what they understand of ours, failures, elections, hand-overs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.cluster.peer import Peer, free_bus_port
from support.servers import Server, eventually, start_redis
from support.wire import Wire

from streamd.cluster.bus import actions
from streamd.cluster.bus.nodes import Flag, Node
from streamd.cluster.bus.nodes_conf import format_state, parse_state
from streamd.cluster.bus.options import Local, Options
from streamd.cluster.bus.packets import (
    NO_ID,
    PacketType,
    decode,
    encode,
    encode_extensions,
    encode_gossip,
    encode_update,
)
from streamd.cluster.bus.slots import from_ranges

pytestmark = [pytest.mark.real, pytest.mark.long]

TIMEOUT_MS = 2000
DEADLINE_S = 40.0


class RealNode:
    """A redis-server in cluster mode."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.server: Server = start_redis(
            folder,
            {"port": str(free_bus_port()), "cluster-enabled": "yes", "cluster-node-timeout": str(TIMEOUT_MS)},
        )
        self.wire: Wire = self.server.connect()
        self.id = self.call("CLUSTER", "MYID")

    @property
    def port(self) -> int:
        return int(self.call("CONFIG", "GET", "port", index=1))

    def call(self, *words: str, index: int | None = None) -> str:
        value = self.wire.call(*words).plain()
        value = value if index is None else value[index]
        return value.decode() if isinstance(value, bytes) else str(value)

    def lines(self) -> dict[str, list[str]]:
        """CLUSTER NODES: the words of each node, by id."""
        return {line.split()[0]: line.split() for line in self.call("CLUSTER", "NODES").splitlines()}

    def flags(self, node_id: bytes) -> set[str]:
        return {*self.lines().get(node_id.decode(), ["", "", ""])[2].split(",")}
