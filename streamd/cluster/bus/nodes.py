"""The knowledge of a node of the cluster: itself, the other nodes, the owners of slots, and the epochs.

`State` is shared by all parts of the core. It keeps three views of the slots in step, which only its methods change:

    node.slots            the set that a node owns (slots.pyx), and the same as bytes: which packets are compared with
    state.owners[slot]    the node that owns a slot, or None
    state.unclaimed       slots whose owner has stopped claiming them: anyone who does takes them, and no UPDATE names them

A node is a primary or a replica by its flags; `node.primary` is None for a primary, and for a replica whose primary is not known.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from .options import Local, Options
from .slots import SLOT_BYTES, SLOT_COUNT, ranges_of, slots_of, to_bytes

__all__ = ["Flag", "Link", "Node", "State", "make_id"]


class Flag:
    """Bits of a node, as on the wire."""

    PRIMARY = 1
    REPLICA = 2
    PFAIL = 4  # it does not answer, as far as this node sees
    FAIL = 8  # a majority agrees
    MYSELF = 16
    HANDSHAKE = 32  # not identified yet: its id is a random one
    NOADDR = 64  # its address is unknown
    MEET = 128  # greet it with MEET
    MIGRATE_TO = 256  # a primary that had replicas: others may move to it
    NOFAILOVER = 512
    EXTENSIONS = 1024  # it understands extensions


_NO_SLOTS = bytes(SLOT_BYTES)

_SYNC_WITHIN_MS = 1000
"""How old changes of owners are when nodes.conf is synced, if that need not be done at once: as with `appendfsync everysec`."""


@dataclass(slots=True, eq=False)
class Link:
    """A connection of the bus. Packets of this node go out on those that it opened; answers, on those that the peer opened."""

    id: int
    is_inbound: bool  # opened by the peer
    created_ms: int
    node: Node | None  # who is at the other end; of an inbound link None until it has identified itself
    peer_ip: str = ""
    local_ip: str = ""  # the address of this server that the peer has connected to; "" if not known
    is_open: bool = False  # outgoing: the connection is established
    heard: bytes = b""  # how its node has described itself in the last PING or PONG, if that changed nothing
    heard_revision: int = -1  # of the state, at that time


@dataclass(slots=True, eq=False)
class Node:
    """A node of the cluster, as this one sees it. Times are Unix times in ms, 0 for never."""

    id: bytes  # 40 characters
    flags: int
    created_ms: int
    shard_id: bytes
    ip: str = ""
    port: int = 0  # for clients without TLS, 0: none
    tls_port: int = 0
    bus_port: int = 0
    hostname: str = ""
    human_name: str = ""
    primary: Node | None = None
    replicas: list[Node] = field(default_factory=list)
    config_epoch: int = 0
    slots: int = 0
    slot_count: int = 0
    slot_bitmap: bytes | None = _NO_SLOTS  # the same as bytes, once they have been asked for
    slot_text: str | None = None  # the same as in nodes.conf, once it has been asked for
    offset: int = 0  # replication offset, as last heard
    ping_sent_ms: int = 0  # since when a PING is unanswered
    has_hung_up: bool = False  # it has closed an open connection, and none has been opened since
    pong_received_ms: int = 0
    data_received_ms: int = 0
    fail_ms: int = 0  # when FAIL was set
    voted_ms: int = 0  # of a primary: when this node last voted for one of its replicas
    orphaned_ms: int = 0  # of a primary: since when none of its replicas works
    reports: dict[Node, int] = field(default_factory=dict)  # who says that it fails, and when they last said so
    link: Link | None = None  # opened by this node
    inbound: Link | None = None  # opened by the other one

    @property
    def slot_bytes(self) -> bytes:
        if self.slot_bitmap is None:
            self.slot_bitmap = to_bytes(self.slots)
        return self.slot_bitmap

    @property
    def is_primary(self) -> bool:
        return bool(self.flags & Flag.PRIMARY)

    @property
    def is_replica(self) -> bool:
        return bool(self.flags & Flag.REPLICA)

    @property
    def is_myself(self) -> bool:
        return bool(self.flags & Flag.MYSELF)

    @property
    def in_handshake(self) -> bool:
        return bool(self.flags & Flag.HANDSHAKE)

    @property
    def is_failed(self) -> bool:
        return bool(self.flags & Flag.FAIL)

    @property
    def has_address(self) -> bool:
        return not self.flags & Flag.NOADDR

    @property
    def is_voter(self) -> bool:
        """Primaries with slots count for majorities, and vote."""
        return bool(self.flags & Flag.PRIMARY and self.slot_count)

    @property
    def shard_primary(self) -> Node | None:
        """Itself for a primary; None for a replica without a known one."""
        return self if self.flags & Flag.PRIMARY else self.primary

    def count_working_replicas(self) -> int:
        return sum(not each.flags & (Flag.FAIL | Flag.PFAIL) for each in self.replicas)


def make_id(random: Random) -> bytes:
    """A new id of a node or a shard: 40 hexadecimal digits."""
    return b"%040x" % random.getrandbits(160)


class State:
    """See the head of the module.

    The server reads it for its replies (CLUSTER NODES, SLOTS, SHARDS ...) and for routing; only the core changes it.
    """

    def __init__(self, myself: Node, options: Options, local: Local, random: Random, now_ms: int) -> None:
        self.options = options
        self.local = local
        self.random = random
        self.now_ms = now_ms  # set at the begin of every input
        self.started_ms = now_ms
        self.myself = myself
        self.nodes: dict[bytes, Node] = {myself.id: myself}  # by id, those in handshake too
        self.owners: list[Node | None] = [None] * SLOT_COUNT
        self.assigned = 0  # the slots that have an owner
        self.unclaimed = 0
        self.migrating: dict[int, Node] = {}  # slots of this node that are being moved, and to whom
        self.importing: dict[int, Node] = {}  # slots that are being moved to this node, and from whom
        self.current_epoch = 0
        self.last_vote_epoch = 0
        self.revision = 0  # counts changes of nodes, slots, epochs and settings
        self.is_ok = False  # cluster_state
        self.size = 1  # primaries with slots
        self.forgotten: dict[bytes, int] = {}  # ids of forgotten nodes, until when they must not come back
        self.internal_secret = make_id(random)
        self.sent: dict[int, int] = {}  # packets by type
        self.received: dict[int, int] = {}
        self.damaged_count = 0  # packets that were dropped
        self.must_save = False  # nodes.conf is out of date
        self.must_sync = False  # and losing it would break a promise
        # When it must be synced at the latest, since owners of slots have changed; 0: they have not.
        self.sync_due_ms = 0
        self.must_judge = False  # whether the cluster serves may have changed
        self.is_paused = False  # writes are paused: a replica of this primary is taking over
        self.left_slots = 0  # slots that have left the shard of this node, not reported yet
        self.touched_slots = 0  # slots whose owner has changed since the router was told

    # --- Nodes ---------------------------------------------------------------------------------------------------------

    def find(self, node_id: bytes) -> Node | None:
        return self.nodes.get(node_id)

    def add(self, node: Node) -> None:
        self.revision += 1
        self.nodes[node.id] = node

    def rename(self, node: Node, node_id: bytes) -> None:
        self.revision += 1
        del self.nodes[node.id]
        node.id = node_id
        self.nodes[node_id] = node

    def remove(self, node: Node) -> None:
        """Forget a node that has no links any more: its slots, its replicas, what it has reported."""
        self.revision += 1
        for moving in (self.migrating, self.importing):
            for slot in [slot for slot, other in moving.items() if other is node]:
                del moving[slot]
        self.unassign(node.slots)
        for other in self.nodes.values():
            other.reports.pop(node, None)
        for replica in node.replicas:
            replica.primary = None
        self.detach(node)
        del self.nodes[node.id]

    def detach(self, replica: Node) -> None:
        """Take a replica from its primary."""
        primary, replica.primary = replica.primary, None
        if primary is not None and replica in primary.replicas:
            primary.replicas.remove(replica)
            if not primary.replicas:
                primary.flags &= ~Flag.MIGRATE_TO

    def attach(self, replica: Node, primary: Node) -> None:
        """Give a replica to a primary, from any other one."""
        self.detach(replica)
        replica.flags = replica.flags & ~(Flag.PRIMARY | Flag.MIGRATE_TO) | Flag.REPLICA
        replica.primary = primary
        primary.replicas.append(replica)
        primary.flags |= Flag.MIGRATE_TO
        replica.shard_id = primary.shard_id
        self.changed()

    def make_primary(self, node: Node) -> None:
        """Make a node a primary, unless it is one."""
        if node.is_primary:
            return
        had_primary = node.primary is not None
        self.detach(node)
        node.flags = node.flags & ~Flag.REPLICA | Flag.PRIMARY
        if had_primary and not node.is_myself:
            node.flags |= Flag.MIGRATE_TO
        self.changed()

    # --- Slots ---------------------------------------------------------------------------------------------------------

    def assign(self, slots: int, node: Node) -> None:
        """Give slots to a primary, whoever owns them now."""
        new = slots ^ (slots & node.slots)  # `~` of a large integer is slow
        self._take(new)
        self._set_owner(new, node)
        self.assigned |= new
        if self.unclaimed:
            self.unclaimed &= ~slots
        self._change_slots(node, new, new.bit_count())

    def unassign(self, slots: int) -> None:
        """Take slots from their owners."""
        slots &= self.assigned
        self._take(slots)
        self._set_owner(slots, None)
        self.assigned &= ~slots
        self.unclaimed &= ~slots

    def _take(self, slots: int) -> None:
        left = slots & self.assigned
        while left:
            owner = self.owners[(left & -left).bit_length() - 1]
            assert owner is not None
            taken = owner.slots & left
            left ^= taken
            if owner is self.myself.shard_primary:
                self.left_slots |= taken
            self._change_slots(owner, taken, -taken.bit_count())

    def _set_owner(self, slots: int, owner: Node | None) -> None:
        self.touched_slots |= slots
        for first, last in ranges_of(slots):
            self.owners[first : last + 1] = [owner] * (last - first + 1)

    def _change_slots(self, node: Node, changed: int, difference: int) -> None:
        """Give slots to a node, or take some of its own: `difference` is their number, negative if they are taken."""
        if changed:
            node.slots ^= changed
            node.slot_count += difference
            node.slot_bitmap = node.slot_text = None
            self.must_judge = True
            self.slots_changed()

    # --- Ports -----------------------------------------------------------------------------------------------------------

    def main_ports(self, node: Node) -> tuple[int, int]:
        """The port of a node that packets name first, and the other one."""
        return (node.tls_port, node.port) if self.options.is_tls else (node.port, node.tls_port)

    def set_address(self, node: Node, ip: str, ports: tuple[int, int], bus_port: int) -> None:
        """ports: as `main_ports` returns them."""
        node.ip, node.bus_port = ip, bus_port
        node.tls_port, node.port = ports if self.options.is_tls else reversed(ports)
        node.flags &= ~Flag.NOADDR
        self.changed()

    # --- Voters ----------------------------------------------------------------------------------------------------------

    def find_voters(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.slot_count and node.is_primary]

    # --- Epochs ----------------------------------------------------------------------------------------------------------

    def greatest_epoch(self) -> int:
        return max(self.current_epoch, *(node.config_epoch for node in self.nodes.values()))

    # --- What follows from changes -----------------------------------------------------------------------------------------

    def changed(self, *, sync: bool = False) -> None:
        """Note that nodes.conf is out of date; sync: its loss would break a promise (epochs, votes, a node's slots)."""
        self.revision += 1
        self.must_save = self.must_judge = True
        self.must_sync |= sync

    def slots_changed(self) -> None:
        """Note that owners of slots have changed, or where slots are being moved: keys of others' slots are deleted at the start."""
        self.sync_due_ms = self.sync_due_ms or self.now_ms + _SYNC_WITHIN_MS
        self.revision += 1
        self.must_save = True
        self.must_sync |= self.local.is_durable

    def check_invariants(self) -> None:
        """Walk everything, and assert what must hold."""
        assert self.nodes[self.myself.id] is self.myself
        assert self.myself.flags & Flag.MYSELF
        assigned = 0
        for node_id, node in self.nodes.items():
            assert node.id == node_id
            assert not node.is_primary or not node.is_replica
            assert not node.is_primary or node.primary is None
            assert node.slot_bytes == to_bytes(node.slots)
            assert node.slot_count == node.slots.bit_count()
            assert not node.slots & assigned, "two owners"
            assert all(self.owners[slot] is node for slot in slots_of(node.slots))
            assert node.primary is None or node in node.primary.replicas
            assert all(replica.primary is node and replica.is_replica for replica in node.replicas)
            assert all(other in self.nodes.values() for other in node.reports)
            assert node.link is None or (node.link.node is node and not node.link.is_inbound)
            assert node.inbound is None or (node.inbound.node is node and node.inbound.is_inbound)
            assert node.config_epoch <= self.current_epoch or node is not self.myself
            assigned |= node.slots
        assert assigned == self.assigned
        assert not self.unclaimed & ~assigned
        assert sum(owner is not None for owner in self.owners) == assigned.bit_count()
