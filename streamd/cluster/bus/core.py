"""ClusterCore: a node of a Redis Cluster without I/O. Packets, times and commands go in; actions come out.

The server owns sockets, clock and files. It drives the core like this, from one thread:

    core = ClusterCore(options, Random(), now_ms, saved=content_of_nodes_conf_or_None)
    core.tick(now_ms)                                   every 100 ms
    link = core.link_accepted(peer_ip, local_ip, now_ms)
    core.link_opened(link, local_ip, now_ms)            a Connect has succeeded
    core.receive(link, data, now_ms)                    bytes, cut anywhere
    core.link_closed(link, now_ms)                      the connection is lost, or could not be made
    core.meet(...), core.add_slots(...), ...            CLUSTER commands, which raise CommandError with Redis's text
    for action in core.take_actions(): ...              after every input, or once per turn of the loop

`now_ms` is Unix time in ms. It should never go back: use the wall clock at start plus a monotonic one. A jump forward may make
this node suspect others for a moment; no jump makes it break a promise, since promises rest on epochs alone.

Before each input the server brings `core.local` up to date (replication offset and link). The core never reads keys: where a
command depends on keys, their number is an argument, or in `local`.

`core.state` (nodes.State) is there to be read: nodes, owners of slots, epochs, flags. Its nodes change with any input, so keep none of
them across inputs, except as dictionaries by id do.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from .actions import Action
from .nodes import State
from .options import Local, Options

__all__ = ["ClusterCore"]


class ClusterCore:
    """See the head of the module."""

    state: State
    local: Local

    def __init__(self, options: Options, random: Random, now_ms: int, saved: bytes | None = None) -> None:
        """A node that starts.

        random  draws ids, delays and whom to talk to; a fresh node takes its id from it
        saved   the content of nodes.conf, None if there is none: then the first actions contain a Save
        Raises NodesFileError, which names the line, when the file is damaged (nodes_conf.py).
        """
        raise NotImplementedError

    def take_actions(self) -> list[Action]:
        """What is to be done now, in this order; each is handed out once. A Save comes first, before all packets."""
        raise NotImplementedError

    def configure(self, options: Options, now_ms: int) -> None:
        """Take over changed settings. They reach the other nodes with the next packets."""
        raise NotImplementedError

    # --- Time and links ------------------------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        """Everything that time alone causes; to be called every 100 ms. O(known nodes)."""
        raise NotImplementedError

    def link_accepted(self, peer_ip: str, local_ip: str, now_ms: int) -> int:
        """Somebody has connected to the bus of this node. Returns the number of the link."""
        raise NotImplementedError

    def link_opened(self, link: int, local_ip: str, now_ms: int) -> None:
        """A connection that a Connect asked for is established."""
        raise NotImplementedError

    def link_closed(self, link: int, now_ms: int) -> None:
        """A connection is lost, or could not be made, or the limit of its unsent bytes is exceeded. Unknown links are ignored."""
        raise NotImplementedError

    def receive(self, link: int, data: bytes, now_ms: int) -> None:
        """Bytes from a link, cut anywhere. Unknown links are ignored. Never raises for anything that a peer may send."""
        raise NotImplementedError

    def publish(self, channel: bytes, message: bytes, *, is_sharded: bool) -> None:
        """Send a message to all nodes; a sharded one, to those of this shard."""
        raise NotImplementedError

    # --- CLUSTER commands: each raises CommandError with Redis's text, before anything has changed ------------------------

    def meet(self, ip: str, port: int, bus_port: int) -> None:
        """CLUSTER MEET. ip: a literal address; ports 1 to 65535; the server parses and checks all of them."""
        raise NotImplementedError

    def forget(self, node_id: bytes) -> None:
        """CLUSTER FORGET: remove a node, and keep it away for a minute; other nodes learn it from extensions."""
        raise NotImplementedError

    def replicate(self, node_id: bytes) -> None:
        """CLUSTER REPLICATE. Refused for a primary that has slots or keys (`local.key_count`)."""
        raise NotImplementedError

    def add_slots(self, slots: Iterable[int]) -> None:
        """CLUSTER ADDSLOTS and ADDSLOTSRANGE, of slots from 0 to 16383: all or none. A slot that occurs twice is refused."""
        raise NotImplementedError

    def delete_slots(self, slots: Iterable[int]) -> None:
        """CLUSTER DELSLOTS and DELSLOTSRANGE: forget the owners of slots; all or none."""
        raise NotImplementedError

    def flush_slots(self) -> None:
        """CLUSTER FLUSHSLOTS. Refused while there are keys (`local.key_count`)."""
        raise NotImplementedError

    def set_slot_migrating(self, slot: int, node_id: bytes) -> None:
        """CLUSTER SETSLOT MIGRATING."""
        raise NotImplementedError

    def set_slot_importing(self, slot: int, node_id: bytes) -> None:
        """CLUSTER SETSLOT IMPORTING."""
        raise NotImplementedError

    def set_slot_stable(self, slot: int) -> None:
        """CLUSTER SETSLOT STABLE."""
        raise NotImplementedError

    def set_slot_node(self, slot: int, node_id: bytes, key_count: int) -> None:
        """CLUSTER SETSLOT NODE. key_count: keys of the slot that are here."""
        raise NotImplementedError

    def take_slots(self, slots: Iterable[int]) -> None:
        """Become the owner of slots by a new epoch, without a vote: the end of an atomic migration to this node."""
        raise NotImplementedError

    def claim_loaded_slots(self, slots: Iterable[int]) -> None:
        """After loading, on a primary: reconcile the slots that have keys here with the configuration.

        Those without an owner are taken; keys of those of other nodes are deleted (DeleteKeys), unless they are imported.
        """
        raise NotImplementedError

    def fail_over(self, mode: str = "") -> None:
        """CLUSTER FAILOVER: ask the primary to hand over; mode "force": without asking it; "takeover": without votes."""
        raise NotImplementedError

    def reset(self, *, hard: bool) -> None:
        """CLUSTER RESET. Refused for a primary that has keys (`local.key_count`)."""
        raise NotImplementedError

    def set_config_epoch(self, epoch: int) -> None:
        """CLUSTER SET-CONFIG-EPOCH, of a node that knows no other."""
        raise NotImplementedError

    def bump_epoch(self) -> str:
        """CLUSTER BUMPEPOCH. Returns the reply, `BUMPED 7` or `STILL 7`."""
        raise NotImplementedError

    def save_config(self) -> None:
        """CLUSTER SAVECONFIG."""
        raise NotImplementedError

    # --- What replies show -------------------------------------------------------------------------------------------------

    def describe_nodes(self) -> str:
        """CLUSTER NODES: a line for each node, ended by newlines."""
        raise NotImplementedError

    def describe_replicas(self, node_id: bytes) -> list[str]:
        """CLUSTER REPLICAS: the lines of a primary's replicas."""
        raise NotImplementedError

    def describe_state(self) -> list[tuple[str, str]]:
        """The fields of CLUSTER INFO that the core knows, in order: cluster_state to cluster_stats_messages_received."""
        raise NotImplementedError

    def count_failure_reports(self, node_id: bytes) -> int:
        """CLUSTER COUNT-FAILURE-REPORTS."""
        raise NotImplementedError
