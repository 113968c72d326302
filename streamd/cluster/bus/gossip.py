"""Gossip: PING, PONG and MEET: when they are sent, and what nodes report and learn about each other.

Each packet carries a tenth of the known nodes, at least three, picked at random, and all nodes that this one suspects: so news spreads in
a few rounds. A primary reports a new suspicion to the others at once, where Redis waits for the next PING. Every node is sent a PING after
half of the node timeout at the latest.
"""

from __future__ import annotations

from .actions import AnnounceLater
from .failures import Failures
from .links import Links
from .nodes import Flag, Link, Node, State, make_id
from .outbox import Outbox
from .packets import Extensions, Gossip, Packet, PacketType, encode_extensions, encode_gossip, parse_ip

__all__ = ["Gossiping"]

FORGET_S = 60
"""For how long a forgotten node is kept away."""

_REPORT_EVERY_MS = 1000

_ANNOUNCE_EVERY_MS = 20
"""How often slots are announced that come here one after the other."""

_CHOOSE_EVERY_MS = 1000
"""How often the node that was not heard of for the longest time among some gets a PING, if nodes get one less often than that."""

_TOGETHER_MS = 200
"""By how much a PING may be early if another one is due: packets that come together cost far less than one by one."""

_ACTIVE = Flag.HANDSHAKE | Flag.NOADDR | Flag.PFAIL | Flag.FAIL | Flag.MEET
"""Something may have to be done about a node with one of these at any time."""

_FUTURE_MS = 500  # by how much the clock of another node may be ahead

_COPIED_FLAGS = (
    Flag.PRIMARY | Flag.REPLICA | Flag.PFAIL | Flag.FAIL | Flag.MIGRATE_TO | Flag.NOFAILOVER | Flag.EXTENSIONS
)
"""What is believed about a node that nobody here has met."""


class Gossiping:
    """See the head of the module."""

    def __init__(self, state: State, outbox: Outbox, links: Links, failures: Failures) -> None:
        self._state = state
        self._outbox = outbox
        self._links = links
        self._failures = failures
        self._chosen_ms = state.now_ms  # when a node was last chosen for a PING
        self._reported_ms = 0
        self._announced_ms = 0  # when slots were last announced
        self._must_announce = False
        self._described: tuple[int, bytes] = (-1, b"")
        self._extensions = 0, b""

    # --- Sending -------------------------------------------------------------------------------------------------------

    def send(self, link: Link, type_: int) -> None:
        """Send a PING, PONG or MEET with gossip, and extensions if the other node is known to understand them."""
        state = self._state
        if type_ == PacketType.PING and link.node is not None and not link.is_inbound:
            link.node.ping_sent_ms = state.now_ms
        entries = [self._entry(node) for node in self._pick(link.node)]
        body, extension_count = encode_gossip(entries), 0
        if link.node is not None and link.node.flags & Flag.EXTENSIONS:
            extension_count, extensions = self._encoded_extensions()
            body += extensions
        packet = self._outbox.compose(type_, body, count=len(entries), extension_count=extension_count)
        self._outbox.send(link, type_, packet)

    def broadcast_pong(self) -> None:
        """Announce a change of this node to all others at once."""
        self._send_pong([*self._state.nodes.values()])

    def announce_slot(self) -> None:
        """Announce a slot that has come here: at once, or with others that come soon after an announcement.

        Slots that an operator moves come one by one, each within a millisecond. Redis's packets wait as well, up to 40 ms: Nagle's
        algorithm holds them back.
        """
        if self._state.now_ms - self._announced_ms >= _ANNOUNCE_EVERY_MS:
            self._announce_slots()
        elif not self._must_announce:
            self._must_announce = True
            self._outbox.do(AnnounceLater(_ANNOUNCE_EVERY_MS))

    def announce_rest(self) -> None:
        """Announce slots that have not been announced."""
        if self._must_announce:
            self._announce_slots()

    def _announce_slots(self) -> None:
        self._must_announce, self._announced_ms = False, self._state.now_ms
        self.broadcast_pong()

    def send_pong_to_shard(self) -> None:
        """Announce a change of this node to the other replicas of its primary."""
        primary = self._state.myself.primary
        if primary is not None:
            self._send_pong([*primary.replicas])

    def report_suspects(self) -> None:
        """Report whom this primary suspects to the others that decide: at once, but once a second at most."""
        state, failures = self._state, self._failures
        if failures.has_news and state.now_ms - self._reported_ms >= _REPORT_EVERY_MS:
            failures.has_news, self._reported_ms = False, state.now_ms
            self._send_pong([node for node in state.nodes.values() if node.is_voter])

    def _send_pong(self, nodes: list[Node]) -> None:
        for node in nodes:
            if node.link is not None and not node.flags & (Flag.MYSELF | Flag.HANDSHAKE):
                self.send(node.link, PacketType.PONG)

    def _pick(self, receiver: Node | None) -> list[Node]:
        """The nodes that a packet describes."""
        nodes = [*self._state.nodes.values()]
        wanted = min(max(3, len(nodes) // 10), len(nodes) - 2)
        picked: dict[Node, None] = {}
        unwanted = Flag.MYSELF | Flag.HANDSHAKE | Flag.NOADDR | Flag.PFAIL
        rounds = wanted * 3
        while rounds > 0 and len(picked) < wanted:
            rounds -= 1
            node = nodes[int(self._state.random.random() * len(nodes))]
            if node.flags & unwanted or node is receiver or (node.link is None and not node.slots):
                continue
            picked[node] = None
        for node in self._failures.suspects:
            if (
                node.flags & Flag.PFAIL
                and not node.flags & (Flag.HANDSHAKE | Flag.NOADDR)
                and node.id in self._state.nodes
            ):
                picked[node] = None
        return [*picked]

    def _entry(self, node: Node) -> Gossip:
        main, other = self._state.main_ports(node)
        return Gossip(
            node.id, node.ping_sent_ms // 1000, node.pong_received_ms // 1000, node.ip.encode(), main, node.bus_port,
            node.flags, other,
        )  # fmt: skip

    def _encoded_extensions(self) -> tuple[int, bytes]:
        """The extensions of this node: encoded again when the state has changed, and each time while they contain times."""
        state = self._state
        if state.forgotten:
            return encode_extensions(self._own_extensions())
        described = state.revision, state.internal_secret
        if described != self._described:
            self._described, self._extensions = described, encode_extensions(self._own_extensions())
        return self._extensions

    def _own_extensions(self) -> Extensions:
        state = self._state
        self._forget_old_blacklist()
        forgotten = (
            (node_id, max(1, -(-(until - state.now_ms) // 1000))) for node_id, until in state.forgotten.items()
        )
        return Extensions(
            state.options.announce_hostname, state.options.announce_human_nodename, tuple(forgotten),
            state.myself.shard_id, state.internal_secret,
        )  # fmt: skip

    # --- The schedule ----------------------------------------------------------------------------------------------------

    def is_due(self) -> bool:
        """Whether a PING is due, or a node owes an answer, has no link, or is not known well yet."""
        state = self._state
        interval_ms = self._interval_ms()
        if state.now_ms - self._chosen_ms >= _CHOOSE_EVERY_MS < interval_ms:
            return True
        due_ms = state.now_ms - interval_ms
        for node in state.nodes.values():
            if (
                node.pong_received_ms < due_ms or node.ping_sent_ms or node.link is None or node.flags & _ACTIVE
            ) and not node.flags & Flag.MYSELF:
                return True
        return False

    def _interval_ms(self) -> int:
        """A node whose last PONG is older gets a PING."""
        options = self._state.options
        return options.ping_interval_ms or options.node_timeout_ms // 2

    def tick(self) -> None:
        """Send the PINGs that are due."""
        state, interval_ms = self._state, self._interval_ms()
        if state.now_ms - self._chosen_ms >= _CHOOSE_EVERY_MS < interval_ms:
            self._chosen_ms = state.now_ms
            self._ping_oldest_of_some()
        due_ms = state.now_ms - interval_ms
        unsuitable = Flag.MYSELF | Flag.HANDSHAKE | Flag.NOADDR
        free = [
            (node.pong_received_ms, link)
            for node in state.nodes.values()
            if (link := node.link) is not None and not node.ping_sent_ms and not node.flags & unsuitable
        ]
        if any(answered_ms < due_ms for answered_ms, _ in free):
            due_ms += min(_TOGETHER_MS, interval_ms // 5)
        for answered_ms, link in free:
            if answered_ms < due_ms:
                self.send(link, PacketType.PING)

    def _ping_oldest_of_some(self) -> None:
        """Ping one of five nodes picked at random: the one whose last PONG is the oldest."""
        nodes = [*self._state.nodes.values()]
        picked = [nodes[int(self._state.random.random() * len(nodes))] for _ in range(5)]
        free = [
            node
            for node in picked
            if node.link is not None and node.ping_sent_ms == 0 and not node.flags & (Flag.MYSELF | Flag.HANDSHAKE)
        ]
        if free:
            link = min(free, key=lambda node: node.pong_received_ms).link
            assert link is not None
            self.send(link, PacketType.PING)

    # --- Receiving -------------------------------------------------------------------------------------------------------

    def read(self, packet: Packet, sender: Node) -> None:
        """What a known node says about others, and its extensions."""
        self.read_entries(packet.gossip, sender)
        self._read_extensions(packet.extensions, sender)

    def read_entries(self, entries: list[Gossip], sender: Node) -> None:
        """What a known node says about others."""
        state = self._state
        find, believes = state.nodes.get, sender.is_primary
        trouble = Flag.FAIL | Flag.PFAIL
        for entry in entries:
            node = find(entry.id)
            if node is None:
                self._meet_unknown(entry)
            elif node is not state.myself:
                if believes:
                    if entry.flags & trouble:
                        self._failures.report(node, sender)
                    elif node.reports:
                        self._failures.retract(node, sender)
                if not node.flags & trouble:
                    self._note_pong(node, entry)
                elif not entry.flags & (trouble | Flag.NOADDR) and node.has_address:
                    self._try_other_address(node, entry)

    def _note_pong(self, node: Node, entry: Gossip) -> None:
        """Another node has heard from this one more recently than I have: that saves a PING."""
        heard_ms = entry.pong_received_s * 1000
        is_news = node.pong_received_ms < heard_ms <= self._state.now_ms + _FUTURE_MS
        if is_news and node.ping_sent_ms == 0 and not self._failures.count_reports(node):
            node.pong_received_ms = heard_ms

    def _try_other_address(self, node: Node, entry: Gossip) -> None:
        """I cannot reach a node; the sender can, and perhaps elsewhere."""
        state = self._state
        ip, ports = parse_ip(entry.ip), (entry.port, entry.other_port)
        if ip and (ip, ports, entry.bus_port) != (node.ip, state.main_ports(node), node.bus_port):
            if node.link is not None:
                self._links.close(node.link)
            state.set_address(node, ip, ports, entry.bus_port)

    def _meet_unknown(self, entry: Gossip) -> None:
        """A node that is new to this one."""
        state = self._state
        ip = parse_ip(entry.ip)
        if entry.flags & Flag.NOADDR or not ip or self.is_forgotten(entry.id):
            return
        flags = entry.flags & _COPIED_FLAGS
        if flags & Flag.PRIMARY and flags & Flag.REPLICA:
            return
        node = Node(entry.id, flags, state.now_ms, make_id(state.random))
        if flags & Flag.FAIL:
            node.fail_ms = state.now_ms
        state.set_address(node, ip, (entry.port, entry.other_port), entry.bus_port)
        state.add(node)

    # --- Extensions ----------------------------------------------------------------------------------------------------------

    def _read_extensions(self, extensions: Extensions, sender: Node) -> None:
        state = self._state
        if sender.hostname != extensions.hostname or sender.human_name != extensions.human_name:
            sender.hostname, sender.human_name = extensions.hostname, extensions.human_name
            state.changed()
        shard_id = extensions.shard_id or (sender.primary.shard_id if sender.primary is not None else b"")
        if shard_id and shard_id != sender.shard_id:
            sender.shard_id = shard_id
            if state.myself.primary is sender:
                state.myself.shard_id = shard_id
            state.changed()
        if extensions.secret:
            state.internal_secret = min(state.internal_secret, extensions.secret)
        for node_id, seconds in extensions.forgotten:
            node = state.find(node_id)
            if node is not None and node is not state.myself and node is not state.myself.primary:
                self.forget(node, min(seconds, FORGET_S))

    # --- Forgotten nodes -------------------------------------------------------------------------------------------------------

    def forget(self, node: Node, seconds: int = FORGET_S) -> None:
        """Remove a node, and do not let gossip bring it back for a while."""
        self._state.forgotten[node.id] = self._state.now_ms + seconds * 1000
        self._links.remove_node(node)
        self._state.changed(sync=True)

    def is_forgotten(self, node_id: bytes) -> bool:
        self._forget_old_blacklist()
        return node_id in self._state.forgotten

    def _forget_old_blacklist(self) -> None:
        forgotten, now_ms = self._state.forgotten, self._state.now_ms
        for node_id in [node_id for node_id, until_ms in forgotten.items() if until_ms <= now_ms]:
            del forgotten[node_id]
