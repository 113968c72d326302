"""Receiving: what each packet does.

A packet is trusted as far as its sender is known: PING and MEET of any node are answered, everything else from an unknown node is ignored.
The other end of a link that this node opened must be the node for which it was opened; a handshake establishes that.
"""

from __future__ import annotations

from .actions import Deliver
from .claims import Claims
from .elections import Elections
from .failures import Failures
from .gossip import Gossiping
from .links import Links
from .nodes import Flag, Link, Node, State, make_id
from .outbox import Outbox
from .packets import KNOWS_EXTENSIONS, Header, Packet, PacketType, decode_gossip, description_of
from .role import Role
from .takeover import Takeover

__all__ = ["Receiver"]

_GREETINGS = (PacketType.PING, PacketType.PONG, PacketType.MEET)


class Receiver:
    """See the head of the module."""

    def __init__(
        self, state: State, outbox: Outbox, links: Links, gossiping: Gossiping, failures: Failures, claims: Claims,
        elections: Elections, takeover: Takeover, role: Role,
    ) -> None:  # fmt: skip
        self._state = state
        self._outbox = outbox
        self._links = links
        self._gossiping = gossiping
        self._failures = failures
        self._claims = claims
        self._elections = elections
        self._takeover = takeover
        self._role = role

    def receive(self, link: Link, packet: Packet) -> None:
        """Act on a decoded packet."""
        header = packet.header
        sender = self._find_sender(link, header)
        if sender is not None:
            if link.is_inbound and not sender.is_myself:
                self._links.identify(link, sender)
            sender.data_received_ms = self._state.now_ms
            if header.message_flags & KNOWS_EXTENSIONS:
                sender.flags |= Flag.EXTENSIONS
            if not sender.in_handshake:
                self._claims.read_epochs(sender, header)
                sender.offset = header.offset
                self._takeover.read_pause(sender, header)
        if header.type in _GREETINGS:
            self._read_greeting(link, packet, sender)
        elif sender is not None and not sender.is_myself:
            self._read_order(sender, packet)

    def receive_repeated(self, link: Link, packet: bytes) -> bool:
        """Act on a PING or PONG whose sender describes itself as in the last one, which changed nothing; False: it is no such packet.

        Nearly all packets are like this. They answer, they bring an offset and gossip.
        """
        sender = link.node
        if link.heard_revision != self._state.revision or sender is None or description_of(packet) != link.heard:
            return False
        sender.data_received_ms = self._state.now_ms
        sender.offset = int.from_bytes(packet[32:40], "big")
        if packet[13] == PacketType.PING:
            self._gossiping.send(link, PacketType.PONG)
        elif not link.is_inbound:
            self._note_answer(sender)
        self._gossiping.read_entries(decode_gossip(packet), sender)
        return True

    def remember(self, link: Link, packet: bytes) -> None:
        """A PING or PONG has changed nothing: nor will the next one that says the same, unless something else changes the state."""
        state, sender = self._state, link.node
        if sender is None or sender.in_handshake or sender.is_myself or packet[40:80] != sender.id:
            return
        if state.unclaimed or state.is_paused or sender is state.myself.primary:
            return  # offsets, slots that nobody claims: more than the description matters
        link.heard, link.heard_revision = description_of(packet), state.revision

    def _note_answer(self, sender: Node) -> None:
        """A PONG has come on a link that this node opened."""
        sender.pong_received_ms = self._state.now_ms
        sender.ping_sent_ms = 0
        self._failures.answered(sender)

    def _find_sender(self, link: Link, header: Header) -> Node | None:
        """Who has sent a packet, if this node knows it: on an identified link that is settled."""
        if link.node is not None and not link.node.in_handshake:
            return link.node
        return self._state.find(header.sender)

    def _read_order(self, sender: Node, packet: Packet) -> None:
        """A packet without gossip."""
        type_ = packet.header.type
        if type_ == PacketType.FAIL:
            failed = self._state.find(packet.failed)
            if failed is not None and not failed.flags & (Flag.FAIL | Flag.MYSELF):
                self._outbox.log(
                    f"FAIL message received from {sender.id.decode()} ({sender.human_name}) about "
                    f"{failed.id.decode()} ({failed.human_name})"
                )
                self._failures.mark_failed(failed)
        elif type_ in (PacketType.PUBLISH, PacketType.PUBLISHSHARD):
            self._outbox.do(Deliver(packet.channel, packet.message, type_ == PacketType.PUBLISHSHARD))
        elif type_ == PacketType.VOTE_REQUEST:
            self._elections.read_request(sender, packet.header)
        elif type_ == PacketType.VOTE:
            self._elections.read_vote(sender, packet.header)
        elif type_ == PacketType.MFSTART:
            self._takeover.read_start(sender)
        elif type_ == PacketType.UPDATE and packet.update is not None:
            self._claims.read_update(packet.update)

    # --- PING, PONG, MEET ------------------------------------------------------------------------------------------------

    def _read_greeting(self, link: Link, packet: Packet, sender: Node | None) -> None:
        header = packet.header
        if header.type != PacketType.PONG:
            self._learn_own_address(link, header)
            if sender is None and header.type == PacketType.MEET:
                self._begin_handshake(link, header)
            self._gossiping.send(link, PacketType.PONG)
        if not link.is_inbound and not self._check_identity(link, header, sender):
            return
        if sender is None:
            return  # if this was the end of a handshake, the next packet will be believed
        sender.flags = sender.flags & ~Flag.NOFAILOVER | header.flags & Flag.NOFAILOVER
        if header.type == PacketType.PING and link.is_inbound and not sender.in_handshake:
            self._update_address(link, header, sender)
        if not link.is_inbound and header.type == PacketType.PONG:
            self._note_answer(sender)
        if sender.is_myself or sender.in_handshake:
            return
        self._takeover.break_circle(sender, header)
        self._claims.read_role(sender, header)
        self._claims.read_slots(sender, header)
        self._claims.remind(sender, header)
        self._claims.resolve_collision(sender)
        self._gossiping.read(packet, sender)

    def _learn_own_address(self, link: Link, header: Header) -> None:
        """Learn the address of this node from another one: this server cannot know it."""
        state, myself = self._state, self._state.myself
        if state.options.announce_ip or not link.local_ip:
            return
        if (header.type == PacketType.MEET or not myself.ip) and myself.ip != link.local_ip:
            myself.ip = link.local_ip
            self._outbox.log(f"IP address for this node updated to {myself.ip}", "warning")
            state.changed()

    def _begin_handshake(self, link: Link, header: Header) -> None:
        """An unknown node was told to meet this one: call back."""
        state = self._state
        node = Node(make_id(state.random), Flag.HANDSHAKE, state.now_ms, make_id(state.random))
        state.set_address(node, header.ip or link.peer_ip, (header.port, header.other_port), header.bus_port)
        state.add(node)

    def _check_identity(self, link: Link, header: Header, sender: Node | None) -> bool:
        """Whether the other end of a link that this node opened is the expected node; end a handshake."""
        node = link.node
        if node is None:
            return False
        if node.in_handshake:
            if sender is not None:
                self._update_address(link, header, sender, ip=node.ip)
                self._links.remove_node(node)
                return False
            self._state.rename(node, header.sender)
            self._outbox.log(f"Handshake with node {node.id.decode()} completed.", "debug")
            role = Flag.REPLICA if header.primary_id else Flag.PRIMARY
            node.flags = node.flags & ~(Flag.HANDSHAKE | Flag.MEET) | role
            node.pong_received_ms = node.data_received_ms = self._state.now_ms
            node.ping_sent_ms = 0
            self._state.changed()
            return True
        if node.id != header.sender:
            self._outbox.log(
                f"PONG contains mismatching sender ID. About node {node.id.decode()} added "
                f"{self._state.now_ms - node.created_ms} ms ago, having flags {node.flags}",
                "debug",
            )
            node.flags |= Flag.NOADDR
            node.ip, node.port, node.tls_port, node.bus_port = "", 0, 0, 0
            self._links.close(link)
            self._state.changed()
            return False
        return True

    def _update_address(self, link: Link, header: Header, sender: Node, ip: str = "") -> None:
        """A node has the address that it announces or connects from; if that is new, connect to it there."""
        state = self._state
        ip = header.ip or ip or link.peer_ip
        ports = (header.port, header.other_port)
        if not ip or link is sender.link or sender.is_myself:
            return
        if (ip, ports, header.bus_port) == (sender.ip, state.main_ports(sender), sender.bus_port):
            return
        state.set_address(sender, ip, ports, header.bus_port)
        if sender.link is not None:
            self._links.close(sender.link)
        self._outbox.log(f"Address updated for node {sender.id.decode()} ({sender.human_name}), now {ip}:{header.port}")
        self._role.check_followed()
