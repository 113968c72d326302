"""Claims: who is primary and who owns which slot, by what nodes say about themselves. The greater config epoch wins.

A node that claims slots by an old epoch gets an UPDATE with their present owner. Sets of slots are compared as a whole: the code loops
only over slots that change owners.
"""

from __future__ import annotations

from .actions import DeleteKeys
from .gossip import Gossiping
from .nodes import Flag, Node, State
from .outbox import Outbox
from .packets import Header, PacketType, Update, encode_update
from .role import Role
from .slots import from_slots, slots_of, to_bytes

__all__ = ["Claims"]

_LOST_KEPT_MS = 60_000
"""How long keys of lost slots stay, hidden, where Redis deletes them at once: `redis-cli --cluster fix` makes the node with most keys of a slot
its owner, and only then sets the slot importing at the others that have some."""


class Claims:
    """See the head of the module."""

    def __init__(self, state: State, outbox: Outbox, gossiping: Gossiping, role: Role) -> None:
        self._state = state
        self._outbox = outbox
        self._gossiping = gossiping
        self._role = role
        self._lost = 0  # slots whose keys are to be deleted
        self._lost_ms = 0  # when the last one was lost

    @property
    def has_lost_slots(self) -> bool:
        """Whether keys are to be deleted later."""
        return self._lost != 0

    # --- Roles -----------------------------------------------------------------------------------------------------------

    def read_role(self, sender: Node, header: Header) -> None:
        """What a PING, PONG or MEET says about the role of its sender."""
        if not header.primary_id:
            self._state.make_primary(sender)
            return
        primary = self._state.find(header.primary_id)
        if primary is sender:
            return  # the packet of another node, on a link that was the sender's
        if sender.is_primary and not self._demote(sender, primary, header):
            return
        if primary is not None and sender.primary is not primary:
            self._state.attach(sender, primary)
        if sender is self._state.myself.primary:
            self._follow_grandparent()

    def _demote(self, sender: Node, primary: Node | None, header: Header) -> bool:
        """A primary announces that it is a replica now. Returns whether this is accepted."""
        state = self._state
        if primary is not None and primary.shard_id == sender.shard_id and sender.slots:
            if sender.config_epoch > header.config_epoch or (primary.is_myself and primary.is_replica):
                self._outbox.log(f"Ignore a stale message of {sender.id.decode()} ({sender.human_name}).", "verbose")
                return False
            # Its replica has replaced it, and need not have said so here yet. What it claims is not known before it does.
            moved = sender.slots
            state.make_primary(primary)
            if primary.is_myself:
                state.unassign(moved)
            else:
                state.assign(moved, primary)
                state.unclaimed |= moved
            primary.config_epoch = max(primary.config_epoch, header.config_epoch)
        else:
            state.unassign(sender.slots)
        sender.flags = sender.flags & ~(Flag.PRIMARY | Flag.MIGRATE_TO) | Flag.REPLICA
        state.changed()
        return True

    # --- Slots -----------------------------------------------------------------------------------------------------------

    def read_slots(self, sender: Node, header: Header) -> None:
        """What a PING, PONG or MEET says about the slots of its sender, or of the sender's primary."""
        owner = sender.shard_primary
        if owner is None:
            return
        if owner.slot_bytes == header.slot_bytes and not owner.slots & self._state.unclaimed:
            return
        claimed = int.from_bytes(header.slot_bytes, "little")
        if sender.is_primary:
            self.update_slots(sender, header.config_epoch, claimed)
        self._correct(sender, owner, header.config_epoch, claimed)

    def update_slots(self, sender: Node, epoch: int, claimed: int) -> None:
        """A primary claims slots by an epoch."""
        state, myself = self._state, self._state.myself
        if sender is myself:
            return
        ours = myself.shard_primary
        ours_before = ours.slots if ours is not None else 0
        mine_before = myself.slots
        if epoch >= sender.config_epoch:  # not what it claimed earlier, which another link brings late
            state.unclaimed = (state.unclaimed | sender.slots & ~claimed) & ~(sender.slots & claimed)
        taken = claimed & ~sender.slots
        taken &= ~self._defended(epoch, taken)
        if state.importing and taken:  # an operator decides about these, as long as somebody claims them
            taken &= ~(from_slots(state.importing) & state.assigned & ~state.unclaimed)
        state.assign(taken, sender)
        left = self.leave_behind(mine_before & taken)
        lost = ours_before & taken
        if lost and ours is not None and not ours.slots and self._may_follow(sender, claimed, lost):
            self._outbox.log(
                f"Configuration change detected. Reconfiguring myself as a replica of {sender.id.decode()} "
                f"({sender.human_name})"
            )
            self._role.follow(sender)
            return
        self._follow_grandparent()
        if lost := mine_before & taken & ~left:
            self._lost |= lost
            self._lost_ms = state.now_ms

    def tick(self) -> None:
        """Delete the keys of lost slots that have not come back, and are not importing."""
        state, myself = self._state, self._state.myself
        if not self._lost or state.now_ms - self._lost_ms < _LOST_KEPT_MS:
            return
        slots, self._lost = self._lost & ~(myself.slots | from_slots(state.importing)), 0
        if slots and myself.is_primary:
            self._outbox.do(DeleteKeys(slots_of(slots)))

    def leave_behind(self, lost: int) -> int:
        """Keep the keys of slots whose target has claimed them before all had moved; returns these slots, which are importing now.

        Redis deletes the keys. `redis-cli --cluster fix` makes the target the owner first if that has more of the keys, and then moves the
        others; it also finds them later, as the slot is open.
        """
        state, left = self._state, 0
        for slot in slots_of(lost & from_slots(state.migrating)):
            owner = state.migrating[slot]
            if state.owners[slot] is owner and state.local.count_keys(slot):
                self._outbox.log(
                    f"I have keys for slot {slot}, which node {owner.id.decode()} ({owner.human_name}) has claimed while it was "
                    "being moved. Setting it to importing state."
                )
                del state.migrating[slot]
                state.importing[slot] = owner
                state.slots_changed()
                left |= 1 << slot
        return left

    def _may_follow(self, sender: Node, claimed: int, lost: int) -> bool:
        """Whether a node of a shard without slots follows the node that took the last ones: without them it serves nobody."""
        if self._state.importing and sender.shard_id != self._state.myself.shard_id:
            return False  # it has keys that the other one has not
        return self._state.options.allow_replica_migration or claimed.bit_count() == lost.bit_count()

    def _defended(self, epoch: int, slots: int) -> int:
        """Those of some slots whose owner has an epoch that is not smaller, and still claims them."""
        defended = 0
        owned = slots & self._state.assigned & ~self._state.unclaimed
        while owned:
            owner = self._state.owners[(owned & -owned).bit_length() - 1]
            assert owner is not None
            if owner.config_epoch >= epoch:
                defended |= owner.slots & owned
            owned &= ~owner.slots
        return defended

    def _follow_grandparent(self) -> None:
        """If my primary has become a replica, follow its primary, to avoid chains."""
        myself = self._state.myself
        grandparent = myself.primary.primary if myself.primary is not None else None
        if grandparent is not None and grandparent is not myself:
            self._role.follow(grandparent)

    def _correct(self, sender: Node, owner: Node, epoch: int, claimed: int) -> None:
        """If the sender claims a slot whose owner has a greater epoch, send it an UPDATE: one per packet."""
        wrong = claimed & self._state.assigned & ~owner.slots
        while wrong:
            other = self._state.owners[(wrong & -wrong).bit_length() - 1]
            assert other is not None
            if other.config_epoch > epoch:
                self._send_update(sender, other)
                return
            wrong &= ~other.slots

    def remind(self, sender: Node, header: Header) -> None:
        """Tell a primary that claims by a smaller epoch than it once had: it has started with an old nodes.conf."""
        if not header.primary_id and header.config_epoch < sender.config_epoch:
            self._send_update(sender, sender)

    def _send_update(self, receiver: Node, owner: Node) -> None:
        if receiver.link is None:
            return
        slots = to_bytes(owner.slots & ~self._state.unclaimed)
        body = encode_update(Update(owner.config_epoch, owner.id, slots))
        self._outbox.send(receiver.link, PacketType.UPDATE, self._outbox.compose(PacketType.UPDATE, body))

    def read_update(self, update: Update) -> None:
        """An UPDATE of a known node: my view of an owner is out of date, or that of my own epoch."""
        node = self._state.find(update.owner)
        if node is None or node.in_handshake or node.config_epoch >= update.config_epoch:
            return
        if node.is_myself and node.is_replica:
            return
        self._state.make_primary(node)
        node.config_epoch = update.config_epoch
        self._state.current_epoch = max(self._state.current_epoch, update.config_epoch)
        self._state.changed(sync=True)
        self.update_slots(node, update.config_epoch, int.from_bytes(update.slot_bytes, "little"))

    # --- Epochs ------------------------------------------------------------------------------------------------------------

    def read_epochs(self, sender: Node, header: Header) -> None:
        """Epochs only grow. The config epoch of a replica's packet is that of its primary; the own one no packet with the own ID changes."""
        state = self._state
        if header.current_epoch > state.current_epoch:
            state.current_epoch = header.current_epoch
            state.changed(sync=True)
        if header.config_epoch > sender.config_epoch and not header.primary_id and not sender.is_myself:
            sender.config_epoch = header.config_epoch
            state.changed(sync=True)

    def resolve_collision(self, sender: Node) -> None:
        """Two primaries have the same config epoch: the one with the smaller id takes a new one."""
        state, myself = self._state, self._state.myself
        if not (sender.is_primary and myself.is_primary and sender.config_epoch == myself.config_epoch):
            return
        if myself.id < sender.id:
            self.take_new_epoch()
            self._gossiping.broadcast_pong()
            self._outbox.log(
                f"WARNING: configEpoch collision with node {sender.id.decode()} ({sender.human_name}). "
                f"configEpoch set to {state.current_epoch}",
                "verbose",
            )

    def take_new_epoch(self) -> None:
        """Take an epoch greater than all known ones, without a vote."""
        state = self._state
        state.current_epoch = state.greatest_epoch() + 1
        state.myself.config_epoch = state.current_epoch
        state.changed(sync=True)

    def bump_epoch(self) -> bool:
        """Take a new epoch unless this node has the greatest one already. Returns whether it did."""
        state = self._state
        if state.myself.config_epoch and state.myself.config_epoch == state.greatest_epoch():
            return False
        self.take_new_epoch()
        return True
