"""Nodes of a cluster as processes: streamd and real Redis servers, on 127.0.0.1, each with a bus port of its own.

`start_cluster` starts nodes of any kinds and makes them one cluster with CLUSTER commands, faster than redis-cli does, which waits whole
seconds. `Nodes.wait` waits until all agree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from ..replicas.nodes import Node, wait_until
from ..servers import free_port
from ..wire import Argument

__all__ = ["CLUSTER_SETTINGS", "Nodes", "join", "start_cluster", "start_cluster_node"]

CLUSTER_SETTINGS: Mapping[str, str] = {
    "cluster-enabled": "yes", "cluster-node-timeout": "2000", "repl-diskless-sync-delay": "0", "appendonly": "no",
}  # fmt: skip

NewNode = Callable[..., Node]


def start_cluster_node(new_node: NewNode, kind: str, **settings: str) -> Node:
    """A node that knows no other."""
    given = {**CLUSTER_SETTINGS, "cluster-port": str(free_port())}
    if settings.get("tls_cluster") == "yes":
        given["tls-port"] = str(free_port())
    return new_node(kind, **{name.replace("-", "_"): value for name, value in given.items()} | settings)


class Nodes(list[Node]):
    """The nodes of a cluster, those that became primaries first."""

    def ask(self, node: Node, *words: Argument) -> str:
        """The reply of a node as text."""
        value = node.call(*words).value
        return value.decode() if isinstance(value, bytes) else str(value)

    def id_of(self, node: Node) -> str:
        return self.ask(node, "CLUSTER", "MYID")

    def lines(self, node: Node) -> dict[str, list[str]]:
        """CLUSTER NODES of a node: the words of each line, by ID."""
        return {words[0]: words for line in self.ask(node, "CLUSTER", "NODES").splitlines() if (words := line.split())}

    def state(self, node: Node, field: str = "cluster_state") -> str:
        """A field of CLUSTER INFO; empty while the node refuses the command because it is loading."""
        lines = self.ask(node, "CLUSTER", "INFO").split("\r\n")
        return dict(line.split(":", 1) for line in lines if ":" in line).get(field, "")

    def owners(self, node: Node) -> dict[str, str]:
        """Runs of slots by the ID of their owner, as a node sees them."""
        return {name: " ".join(words[8:]) for name, words in self.lines(node).items() if len(words) > 8}

    def shards(self, node: Node) -> frozenset[frozenset[str]]:
        """The running nodes as a node sees them, by shard: a node that knows others from gossip alone does not know their shards yet."""
        found = node.call("CLUSTER", "SHARDS").plain()
        if not isinstance(found, list):
            return frozenset()
        running = {self.id_of(each) for each in self.running}
        nodes = ([dict(zip(flat[::2], flat[1::2], strict=True)) for flat in shard[3]] for shard in found)
        groups = (frozenset(each[b"id"].decode() for each in members) & running for members in nodes)
        return frozenset(group for group in groups if group)

    @property
    def running(self) -> list[Node]:
        return [node for node in self if node.is_running]

    def agree(self) -> bool:
        """Whether all running nodes are up, and see the same owners, and replicas have their link."""
        running = self.running
        views = [self.owners(node) for node in running]
        return (
            all(self.state(node) == "ok" for node in running)
            and all(view == views[0] for view in views)
            and all(len(self.lines(node)) >= len(running) for node in running)
            and all("handshake" not in self.ask(node, "CLUSTER", "NODES") for node in running)
            and all(self._is_linked(node) for node in running)
            and len({self.shards(node) for node in running}) == 1
        )

    def _is_linked(self, node: Node) -> bool:
        text = self.ask(node, "INFO", "replication")
        return "role:master" in text or "master_link_status:up" in text

    def wait(self, what: str = "the nodes agree") -> None:
        wait_until(self.agree, what)

    def owner_of(self, slot: int) -> Node:
        """The node that serves a slot."""
        found = self.owner_of_or_none(slot)
        assert found is not None, f"nobody has the slot {slot}"
        return found

    def owner_of_or_none(self, slot: int) -> Node | None:
        """The running node that takes itself for the owner of a slot."""
        for node in self.running:
            for words in self.lines(node).values():
                if "myself" in words[2] and any(contains(run, slot) for run in words[8:]):
                    return node
        return None

    def replica_of(self, primary: Node) -> Node:
        name = self.id_of(primary)
        for node in self.running:
            if self.lines(node)[self.id_of(node)][3] == name:
                return node
        raise AssertionError(f"{name} has no replica")


def contains(run: str, slot: int) -> bool:
    if run.startswith("["):
        return False
    first, _, last = run.partition("-")
    return int(first) <= slot <= int(last or first)


def join(nodes: Sequence[Node]) -> None:
    """Let the nodes meet the first one."""
    first = nodes[0]
    bus_port = first.call("CONFIG", "GET", "cluster-port").value[1].value.decode()
    for node in nodes[1:]:
        assert node.call("CLUSTER", "MEET", "127.0.0.1", str(first.port), bus_port).value == b"OK"


def start_cluster(new_node: NewNode, primaries: Sequence[str], replicas: Sequence[str] = (), **settings: str) -> Nodes:
    """A cluster whose slots are divided evenly; the n-th replica is one of the n-th primary."""
    with ThreadPoolExecutor() as pool:
        nodes = Nodes(pool.map(lambda kind: start_cluster_node(new_node, kind, **settings), (*primaries, *replicas)))
    for number, node in enumerate(nodes):
        node.call("CLUSTER", "SET-CONFIG-EPOCH", str(number + 1))
    share = 16384 / len(primaries)
    for number, node in enumerate(nodes[: len(primaries)]):
        first, last = round(number * share), round((number + 1) * share) - 1
        assert node.call("CLUSTER", "ADDSLOTSRANGE", str(first), str(last)).value == b"OK"
    join(nodes)
    for number, replica in enumerate(nodes[len(primaries) :]):
        primary = nodes.id_of(nodes[number % len(primaries)])
        wait_until(
            lambda replica=replica, primary=primary: primary in nodes.lines(replica), "the replica knows its primary"
        )
        assert replica.call("CLUSTER", "REPLICATE", primary).value == b"OK"
    nodes.wait()
    return nodes
