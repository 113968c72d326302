"""Outbox: where all parts of the core leave what is to be sent, logged and done; and how this node describes itself in headers."""

from __future__ import annotations

from collections.abc import Iterable

from .actions import Action, Log, Save, Send, SlotsLeft
from .node_lines import format_state
from .nodes import Flag, Link, Node, State
from .packets import FORCE_ACK, KNOWS_EXTENSIONS, NO_ID, PAUSED, Header, encode, encode_again
from .slots import slots_of

__all__ = ["Outbox"]


class Outbox:
    """See the head of the module."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._actions: list[Action] = []
        self._model = b""  # a packet of this node
        self._described: tuple[int, ...] = ()  # what its header was made of

    @property
    def length(self) -> int:
        return len(self._actions)

    def do(self, action: Action) -> None:
        self._actions.append(action)

    def log(self, text: str, level: str = "notice") -> None:
        self._actions.append(Log(level, text))

    def take(self) -> list[Action]:
        """All actions since the last call; first what the file and the subscribers must know."""
        state = self._state
        first: list[Action] = []
        if state.must_save:
            first.append(Save(format_state(state), state.must_sync))
            if state.must_sync:
                state.sync_due_ms = 0
            state.must_save = state.must_sync = False
        if state.left_slots:
            first.append(SlotsLeft(slots_of(state.left_slots)))
            state.left_slots = 0
        actions, self._actions = self._actions, []
        return first + actions

    # --- Packets -------------------------------------------------------------------------------------------------------

    def compose(
        self, type_: int, body: bytes = b"", *, count: int = 0, extension_count: int = 0, force_ack: bool = False
    ) -> bytes:
        """A packet of this node. A replica speaks with the epoch and the slots of its primary."""
        state = self._state
        message_flags = KNOWS_EXTENSIONS | (PAUSED if state.is_paused else 0) | (FORCE_ACK if force_ack else 0)
        described = state.revision, state.is_ok, message_flags, state.myself.flags
        if described != self._described:
            self._described, self._model = described, encode(self._describe(type_, message_flags))
        return encode_again(self._model, type_, state.local.offset, body, count=count, extension_count=extension_count)

    def _describe(self, type_: int, message_flags: int) -> Header:
        state = self._state
        options, myself = state.options, state.myself
        speaker = myself if myself.primary is None else myself.primary
        port, other_port = state.main_ports(myself)
        return Header(
            port=port,
            type=type_,
            current_epoch=state.current_epoch,
            config_epoch=speaker.config_epoch,
            offset=state.local.offset,
            sender=myself.id,
            slot_bytes=speaker.slot_bytes,
            primary_id=NO_ID if myself.primary is None else myself.primary.id,
            ip=options.announce_ip,
            other_port=other_port,
            bus_port=myself.bus_port,
            flags=myself.flags,
            is_ok=state.is_ok,
            message_flags=message_flags,
        )

    def send(self, link: Link, type_: int, packet: bytes) -> None:
        self._actions.append(Send(link.id, packet))
        self._state.sent[type_] = self._state.sent.get(type_, 0) + 1

    def send_to(self, nodes: Iterable[Node], type_: int, packet: bytes) -> None:
        """Send a packet to those nodes that a link leads to, and that are known well enough."""
        for node in nodes:
            if node.link is not None and not node.flags & (Flag.MYSELF | Flag.HANDSHAKE):
                self.send(node.link, type_, packet)

    def broadcast(self, type_: int, packet: bytes) -> None:
        self.send_to(self._state.nodes.values(), type_, packet)
