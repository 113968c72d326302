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

from streamd.errors import CommandError

from .actions import Action, Sync
from .administration import Administration
from .claims import Claims
from .description import describe_state
from .elections import Elections
from .failures import Failures
from .gossip import Gossiping
from .links import Links
from .node_lines import describe_node
from .nodes import Flag, Link, Node, State, make_id
from .nodes_conf import parse_state
from .options import Local, Options
from .outbox import Outbox
from .packets import PacketError, PacketType, decode, encode_message
from .receiving import Receiver
from .replica_migration import ReplicaMigration
from .role import Role
from .takeover import Takeover

__all__ = ["ClusterCore"]


class ClusterCore:
    """See the head of the module."""

    state: State
    local: Local

    failures_type: type[Failures] = Failures  # tests plant bugs by other ones
    claims_type: type[Claims] = Claims
    elections_type: type[Elections] = Elections

    def __init__(self, options: Options, random: Random, now_ms: int, saved: bytes | None = None) -> None:
        """A node that starts.

        random  draws ids, delays and whom to talk to; a fresh node takes its id from it
        saved   the content of nodes.conf, or None for a new node: then the first actions contain a Save
        Raises NodesFileError, which names the line, when the file is damaged (nodes_conf.py).
        """
        self.local = Local()
        if saved is None:
            myself = Node(make_id(random), Flag.MYSELF | Flag.PRIMARY, now_ms, make_id(random))
            self.state = State(myself, options, self.local, random, now_ms)
            self.state.changed(sync=True)
        else:
            self.state = parse_state(saved, options, self.local, random, now_ms)
        self._skew_ms = 0  # by how much the clock went back while this node ran
        self.dropped_type = -1  # DEBUG DROP-CLUSTER-PACKET-FILTER: packets of this type are dropped
        self.outbox = Outbox(self.state)
        self._make_parts()
        self._apply_options()
        self.role.check_followed()

    def take_actions(self) -> list[Action]:
        """The actions to carry out now, in order; each is returned once. A Save comes first, before all packets."""
        return self.outbox.take()

    def configure(self, options: Options, now_ms: int) -> None:
        """Take over changed settings. They reach the other nodes with the next packets."""
        self._advance(now_ms)
        self.state.options = options
        self._apply_options()
        self.state.changed()

    def check_invariants(self) -> None:
        """Assert everything that must hold between inputs."""
        self.state.check_invariants()
        self.links.check_invariants()

    def _make_parts(self) -> None:
        """The parts, lower ones first."""
        state, outbox = self.state, self.outbox
        self.links = Links(state, outbox)
        self.failures = self.failures_type(state, outbox, self.links)
        self.gossiping = Gossiping(state, outbox, self.links, self.failures)
        self.role = Role(state, outbox)
        self.claims = self.claims_type(state, outbox, self.gossiping, self.role)
        self.elections = self.elections_type(state, outbox, self.gossiping, self.failures, self.claims, self.role)
        self.takeover = Takeover(state, outbox, self.gossiping, self.claims, self.elections, self.role)
        self.migration = ReplicaMigration(state, outbox, self.role)
        self.administration = Administration(state, outbox, self.links, self.gossiping, self.claims, self.role)
        self.receiver = Receiver(
            state,
            outbox,
            self.links,
            self.gossiping,
            self.failures,
            self.claims,
            self.elections,
            self.takeover,
            self.role,
        )

    def _apply_options(self) -> None:
        """Describe this node according to the settings."""
        options, myself = self.state.options, self.state.myself
        myself.port, myself.tls_port, myself.bus_port = options.port, options.tls_port, options.bus_port
        myself.hostname, myself.human_name = options.announce_hostname, options.announce_human_nodename
        myself.ip = options.announce_ip or myself.ip
        myself.flags &= ~Flag.NOFAILOVER
        if options.replica_no_failover:
            myself.flags |= Flag.NOFAILOVER

    def _advance(self, now_ms: int) -> None:
        """Set the time. If the clock is set back, time stands still for a moment and then continues."""
        now_ms += self._skew_ms
        if now_ms < self.state.now_ms:
            self._skew_ms += self.state.now_ms - now_ms
            now_ms = self.state.now_ms
        self.state.now_ms = now_ms

    def _judge(self) -> None:
        if self.state.must_judge:
            self.failures.judge()

    def _get(self, node_id: bytes) -> Node:
        node = self.state.find(node_id)
        if node is None:
            raise CommandError(f"ERR Unknown node {node_id.decode('latin-1')}")
        return node

    # --- Time and links ------------------------------------------------------------------------------------------------

    def must_tick(self, now_ms: int) -> bool:
        """Whether `tick` has anything to do. Of a primary that knows few nodes, most have not. O(known nodes)."""
        self._advance(now_ms)
        state = self.state
        if state.myself.is_replica or state.must_judge or not state.is_ok or 0 < state.sync_due_ms <= state.now_ms:
            return True
        if self.role.hand_over is not None or self.claims.has_lost_slots or self.failures.suspects:
            return True
        return self.gossiping.is_due()

    def tick(self, now_ms: int) -> None:
        """Everything that time alone causes; to be called every 100 ms. O(known nodes)."""
        if not self.must_tick(now_ms):
            return
        if 0 < self.state.sync_due_ms <= self.state.now_ms:
            self.state.sync_due_ms = 0
            self.outbox.do(Sync())
        self.links.reconnect()
        self.gossiping.tick()
        self.failures.tick()
        self.gossiping.report_suspects()
        self.role.check_followed()
        self.claims.tick()
        self.takeover.tick()
        self.elections.tick()
        self.migration.tick()
        if self.state.must_judge or not self.state.is_ok:
            self.failures.judge()

    def announce(self, now_ms: int) -> None:
        """What an AnnounceLater asked for."""
        self._advance(now_ms)
        self.gossiping.announce_rest()

    def link_accepted(self, peer_ip: str, local_ip: str, now_ms: int) -> int:
        """A peer has connected to the bus of this node. Returns the number of the link."""
        self._advance(now_ms)
        return self.links.accept(peer_ip, local_ip).id

    def link_opened(self, number: int, local_ip: str, now_ms: int) -> None:
        """A connection that a Connect asked for is established."""
        self._advance(now_ms)
        link = self.links.find(number)
        if link is None or link.node is None:
            return
        link.is_open, link.local_ip = True, local_ip
        node = link.node
        node.has_hung_up = False
        # The age of an unanswered PING is what failures are detected by: a new link does not make it younger.
        waiting_since_ms = node.ping_sent_ms
        self.gossiping.send(link, PacketType.MEET if node.flags & Flag.MEET else PacketType.PING)
        node.ping_sent_ms = waiting_since_ms or self.state.now_ms
        node.flags &= ~Flag.MEET

    def link_closed(self, number: int, now_ms: int) -> None:
        """A connection is lost, or could not be made, or the limit of its unsent bytes is exceeded. Unknown links are ignored."""
        self._advance(now_ms)
        if (link := self.links.find(number)) is None:
            return
        if (node := link.node) is not None and not link.is_inbound:
            # It owes an answer from now on, not from the next PING.
            node.ping_sent_ms = node.ping_sent_ms or self.state.now_ms
            node.has_hung_up = node.has_hung_up or link.is_open
        self.links.forget(link)

    def receive(self, number: int, data: bytes, now_ms: int) -> None:
        """Bytes from a link, cut anywhere. Unknown links are ignored. Never raises for anything that a peer may send."""
        self._advance(now_ms)
        link = self.links.find(number)
        if link is None:
            return
        reader = self.links.reader(link)
        reader.feed(data)
        try:
            while self.links.find(number) is link and (packet := reader.next_packet()) is not None:
                self._receive_packet(link, packet)
        except PacketError as error:
            self.state.damaged_count += 1
            self.outbox.log(f"Closing a link of the cluster bus: {error}", "debug")
            self.links.close(link)
        self._judge()

    def _receive_packet(self, link: Link, packet: bytes) -> None:
        """A damaged packet is dropped, and counted; the link stays."""
        type_ = int.from_bytes(packet[12:14], "big")
        if type_ < len(PacketType.NAMES):
            self.state.received[type_] = self.state.received.get(type_, 0) + 1
        repeats = type_ <= PacketType.PONG and type_ != self.dropped_type
        if repeats and self.receiver.receive_repeated(link, packet):
            return
        try:
            decoded = decode(packet)
        except PacketError as error:
            self.state.damaged_count += 1
            self.outbox.log(f"Dropping a packet of the cluster bus: {error}", "debug")
            return
        if type_ == self.dropped_type:
            return
        before = self.state.revision, self.outbox.length + (type_ == PacketType.PING)
        self.receiver.receive(link, decoded)
        if repeats and before == (self.state.revision, self.outbox.length):
            self.receiver.remember(link, packet)

    def publish(self, channel: bytes, message: bytes, *, is_sharded: bool) -> None:
        """Send a message to all nodes; a sharded one, to those of this shard."""
        type_ = PacketType.PUBLISHSHARD if is_sharded else PacketType.PUBLISH
        packet = self.outbox.compose(type_, encode_message(channel, message))
        shard_id = self.state.myself.shard_id
        nodes = self.state.nodes.values()
        self.outbox.send_to([node for node in nodes if not is_sharded or node.shard_id == shard_id], type_, packet)

    # --- CLUSTER commands: each raises CommandError with Redis's text, before anything has changed ------------------------

    def meet(self, ip: str, port: int, bus_port: int) -> None:
        """CLUSTER MEET. ip: a literal address; ports 1 to 65535; the server parses and checks all of them."""
        self.administration.meet(ip, port, bus_port)
        self._judge()

    def forget(self, node_id: bytes) -> None:
        """CLUSTER FORGET: remove a node, and keep it away for a minute; other nodes learn it from extensions."""
        self.administration.forget(node_id)
        self._judge()

    def replicate(self, node_id: bytes) -> None:
        """CLUSTER REPLICATE. Refused for a primary that has slots or keys (`local.key_count`)."""
        self.administration.replicate(node_id)
        self._judge()

    def add_slots(self, slots: Iterable[int]) -> None:
        """CLUSTER ADDSLOTS and ADDSLOTSRANGE, of slots from 0 to 16383: all or none. A slot that occurs twice is refused."""
        self.administration.add_slots(slots)
        self._judge()

    def delete_slots(self, slots: Iterable[int]) -> None:
        """CLUSTER DELSLOTS and DELSLOTSRANGE: forget the owners of slots; all or none."""
        self.administration.delete_slots(slots)
        self._judge()

    def flush_slots(self) -> None:
        """CLUSTER FLUSHSLOTS. Refused while there are keys (`local.key_count`)."""
        self.administration.flush_slots()
        self._judge()

    def set_slot_migrating(self, slot: int, node_id: bytes) -> None:
        """CLUSTER SETSLOT MIGRATING."""
        self.administration.set_slot_migrating(slot, node_id)
        self._judge()

    def set_slot_importing(self, slot: int, node_id: bytes) -> None:
        """CLUSTER SETSLOT IMPORTING."""
        self.administration.set_slot_importing(slot, node_id)
        self._judge()

    def set_slot_stable(self, slot: int) -> None:
        """CLUSTER SETSLOT STABLE."""
        self.administration.set_slot_stable(slot)
        self._judge()

    def set_slot_node(self, slot: int, node_id: bytes, key_count: int) -> None:
        """CLUSTER SETSLOT NODE. key_count: keys of the slot that are here."""
        self.administration.set_slot_node(slot, node_id, key_count)
        self._judge()

    def take_slots(self, slots: Iterable[int]) -> None:
        """Become the owner of slots by a new epoch, without a vote: the end of an atomic migration to this node."""
        self.administration.take_slots(slots)
        self._judge()

    def claim_loaded_slots(self, slots: Iterable[int]) -> None:
        """After loading, on a primary: reconcile the slots that have keys here with the configuration.

        Those without an owner are taken; keys of those of other nodes are deleted (DeleteKeys), unless they are imported.
        """
        self.administration.claim_loaded_slots(slots)
        self._judge()

    def fail_over(self, mode: str = "") -> None:
        """CLUSTER FAILOVER: ask the primary to hand over; mode "force": without asking it; "takeover": without votes."""
        self.takeover.start(mode)
        self._judge()

    def reset(self, *, hard: bool) -> None:
        """CLUSTER RESET. Refused for a primary that has keys (`local.key_count`)."""
        self.administration.reset(hard=hard)
        self._judge()

    def set_config_epoch(self, epoch: int) -> None:
        """CLUSTER SET-CONFIG-EPOCH, of a node that knows no other."""
        self.administration.set_config_epoch(epoch)
        self._judge()

    def bump_epoch(self) -> str:
        """CLUSTER BUMPEPOCH. Returns the reply, `BUMPED 7` or `STILL 7`."""
        return self.administration.bump_epoch()

    def save_config(self) -> None:
        """CLUSTER SAVECONFIG."""
        self.state.changed(sync=True)

    def kill_links(self, node_id: bytes, direction: str) -> None:
        """DEBUG CLUSTERLINK KILL. direction: "to" the node, "from" it, or "all"."""
        node = self._get(node_id)
        if direction not in ("to", "from", "all"):
            raise CommandError(f"ERR Unknown direction {direction}")
        for link, name in ((node.link, "to"), (node.inbound, "from")):
            if link is not None and direction in (name, "all"):
                self.links.close(link)

    # --- What replies show -------------------------------------------------------------------------------------------------

    def describe_nodes(self) -> str:
        """CLUSTER NODES: a line for each node, ended by newlines."""
        return "".join(f"{describe_node(self.state, node)}\n" for node in self.state.nodes.values())

    def describe_replicas(self, node_id: bytes) -> list[str]:
        """CLUSTER REPLICAS: the lines of a primary's replicas."""
        node = self._get(node_id)
        if node.is_replica:
            raise CommandError("ERR The specified node is not a master")
        return [describe_node(self.state, replica) for replica in node.replicas]

    def describe_state(self) -> list[tuple[str, str]]:
        """The fields of CLUSTER INFO that the core knows, in order: cluster_state to cluster_stats_messages_received."""
        return describe_state(self.state)

    def count_failure_reports(self, node_id: bytes) -> int:
        """CLUSTER COUNT-FAILURE-REPORTS."""
        return self.failures.count_reports(self._get(node_id))
