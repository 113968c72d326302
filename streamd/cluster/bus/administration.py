"""The CLUSTER commands that change something, except FAILOVER (takeover.py). Everything is checked before anything changes."""

from __future__ import annotations

from collections.abc import Iterable

from streamd.errors import CommandError

from .actions import DeleteKeys, DropData
from .claims import Claims
from .gossip import Gossiping
from .links import Links
from .nodes import Flag, Node, State, make_id
from .outbox import Outbox
from .role import Role
from .slots import from_slots, slots_of

__all__ = ["Administration"]


class Administration:
    """See the head of the module."""

    def __init__(
        self, state: State, outbox: Outbox, links: Links, gossiping: Gossiping, claims: Claims, role: Role
    ) -> None:
        self._state = state
        self._outbox = outbox
        self._links = links
        self._gossiping = gossiping
        self._claims = claims
        self._role = role

    # --- Nodes -----------------------------------------------------------------------------------------------------------

    def meet(self, ip: str, port: int, bus_port: int) -> None:
        """Begin a handshake, unless one with this address is under way."""
        state = self._state
        if any(node.in_handshake and node.ip == ip and node.bus_port == bus_port for node in state.nodes.values()):
            return
        node = Node(make_id(state.random), Flag.HANDSHAKE | Flag.MEET, state.now_ms, make_id(state.random))
        state.set_address(node, ip, (port, 0), bus_port)
        state.add(node)

    def forget(self, node_id: bytes) -> None:
        state = self._state
        node = state.find(node_id)
        if node is None:
            if self._gossiping.is_forgotten(node_id):
                return
            raise CommandError(f"ERR Unknown node {node_id.decode('latin-1')}")
        if node is state.myself:
            raise CommandError("ERR I tried hard but I can't forget myself...")
        if node is state.myself.primary:
            raise CommandError("ERR Can't forget my master!")
        self._gossiping.forget(node)

    def replicate(self, node_id: bytes) -> None:
        state, myself = self._state, self._state.myself
        node = state.find(node_id)
        if node is None:
            raise CommandError(f"ERR Unknown node {node_id.decode('latin-1')}")
        if node is myself:
            raise CommandError("ERR Can't replicate myself")
        if node.is_replica:
            raise CommandError("ERR I can only replicate a master, not a replica.")
        if myself.is_primary and (myself.slots or state.local.key_count):
            raise CommandError("ERR To set a master the node must be empty and without assigned slots.")
        self._role.follow(node)

    # --- Slots -----------------------------------------------------------------------------------------------------------

    def add_slots(self, slots: Iterable[int]) -> None:
        wanted = self._collect(slots, "busy")
        for slot in slots_of(wanted):
            self._state.importing.pop(slot, None)
        self._state.assign(wanted, self._state.myself)

    def delete_slots(self, slots: Iterable[int]) -> None:
        self._state.unassign(self._collect(slots, "unassigned"))

    def _collect(self, slots: Iterable[int], refused: str) -> int:
        """A set of the slots, all of which must be free ("busy") or assigned ("unassigned")."""
        assigned, seen = self._state.assigned, 0
        for slot in slots:
            if bool(assigned >> slot & 1) is (refused == "busy"):
                raise CommandError(f"ERR Slot {slot} is already {refused}")
            if seen >> slot & 1:
                raise CommandError(f"ERR Slot {slot} specified multiple times")
            seen |= 1 << slot
        return seen

    def flush_slots(self) -> None:
        if self._state.local.key_count:
            raise CommandError("ERR DB must be empty to perform CLUSTER FLUSHSLOTS.")
        self._state.unassign(self._state.myself.slots)

    def set_slot_migrating(self, slot: int, node_id: bytes) -> None:
        self._check_primary()
        if self._state.owners[slot] is not self._state.myself:
            raise CommandError(f"ERR I'm not the owner of hash slot {slot}")
        node = self._find_primary(node_id, "ERR I don't know about node {}")
        self._state.migrating[slot] = node
        self._state.slots_changed()

    def set_slot_importing(self, slot: int, node_id: bytes) -> None:
        self._check_primary()
        if self._state.owners[slot] is self._state.myself:
            raise CommandError(f"ERR I'm already the owner of hash slot {slot}")
        node = self._find_primary(node_id, "ERR I don't know about node {}")
        self._state.importing[slot] = node
        self._state.slots_changed()

    def set_slot_stable(self, slot: int) -> None:
        self._check_primary()
        self._state.migrating.pop(slot, None)
        self._state.importing.pop(slot, None)
        self._state.slots_changed()

    def set_slot_node(self, slot: int, node_id: bytes, key_count: int) -> None:
        """The end of moving a slot, on the node that gives it, the one that gets it, or any other."""
        self._check_primary()
        state, myself = self._state, self._state.myself
        node = self._find_primary(node_id, "ERR Unknown node {}")
        was_mine = state.owners[slot] is myself
        if was_mine and node is not myself and key_count:
            raise CommandError(
                f"ERR Can't assign hashslot {slot} to a different node while I still hold keys for this hash slot."
            )
        if not key_count and state.migrating.pop(slot, None) is not None:
            state.slots_changed()
        state.assign(1 << slot, node)
        if was_mine and not myself.slots and not state.importing and state.options.allow_replica_migration:
            self._outbox.log(f"Configuration change detected. Reconfiguring myself as a replica of {node.id.decode()}")
            self._role.follow(node)
        if node is myself and slot in state.importing:
            if self._claims.bump_epoch():
                self._outbox.log(f"configEpoch set to {state.current_epoch} after importing slot {slot}", "warning")
            del state.importing[slot]
            self._gossiping.announce_slot()

    def take_slots(self, slots: Iterable[int]) -> None:
        taken = from_slots(slots)
        self._state.assign(taken, self._state.myself)
        self._state.changed(sync=True)  # the source deletes the keys
        self._claims.bump_epoch()
        self._gossiping.broadcast_pong()

    def claim_loaded_slots(self, slots: Iterable[int]) -> None:
        state, myself = self._state, self._state.myself
        if not myself.is_primary:
            return
        strange = from_slots(slots) & ~myself.slots
        free = strange & ~state.assigned
        for slot in slots_of(free):
            self._outbox.log(f"I have keys for unassigned slot {slot}. Taking responsibility for it.")
        state.assign(free, myself)
        self._claims.leave_behind(strange)
        foreign = strange & ~free & ~from_slots(state.importing)
        for slot in slots_of(foreign):
            self._outbox.log(
                f"I have keys for slot {slot}, but the slot is assigned to another node. Deleting keys in the slot."
            )
        if foreign:
            self._outbox.do(DeleteKeys(slots_of(foreign)))

    def _check_primary(self) -> None:
        if not self._state.myself.is_primary:
            raise CommandError("ERR Please use SETSLOT only with masters.")

    def _find_primary(self, node_id: bytes, unknown: str) -> Node:
        node = self._state.find(node_id)
        if node is None:
            raise CommandError(unknown.format(node_id.decode("latin-1")))
        if node.is_replica:
            raise CommandError("ERR Target node is not a master")
        return node

    # --- Epochs and all ----------------------------------------------------------------------------------------------------

    def set_config_epoch(self, epoch: int) -> None:
        state = self._state
        if epoch < 0:
            raise CommandError(f"ERR Invalid config epoch specified: {epoch}")
        if len(state.nodes) > 1:
            raise CommandError(
                "ERR The user can assign a config epoch only when the node does not know any other node."
            )
        if state.myself.config_epoch:
            raise CommandError("ERR Node config epoch is already non-zero")
        state.myself.config_epoch = epoch
        state.current_epoch = max(state.current_epoch, epoch)
        self._outbox.log(f"configEpoch set to {epoch} via CLUSTER SET-CONFIG-EPOCH")
        state.changed(sync=True)

    def bump_epoch(self) -> str:
        is_bumped = self._claims.bump_epoch()
        if is_bumped:
            self._gossiping.broadcast_pong()
        return f"{'BUMPED' if is_bumped else 'STILL'} {self._state.myself.config_epoch}"

    def reset(self, *, hard: bool) -> None:
        state, myself = self._state, self._state.myself
        was_replica = myself.is_replica
        if not was_replica and state.local.key_count:
            raise CommandError("ERR CLUSTER RESET can't be called with master nodes containing keys")
        self._role.end_hand_over()
        shard_primary = myself.shard_primary
        state.left_slots |= shard_primary.slots if shard_primary is not None else 0
        if was_replica:
            self._role.lead()
            self._outbox.do(DropData())
        state.migrating.clear()
        state.importing.clear()
        state.unassign(state.assigned)
        for node in [*state.nodes.values()]:
            if node is not myself:
                self._links.remove_node(node)
        state.forgotten.clear()
        if hard or was_replica:
            myself.shard_id = make_id(state.random)
        if hard:
            state.current_epoch = state.last_vote_epoch = myself.config_epoch = 0
            old_id = myself.id.decode()
            state.rename(myself, make_id(state.random))
            self._outbox.log(f"Node hard reset, now I'm {myself.id.decode()}, no longer {old_id}")
        state.changed(sync=True)
