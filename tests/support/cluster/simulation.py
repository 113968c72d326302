"""A cluster in one process: cores of nodes, a network, disks and clocks, all driven by virtual time and one seed.

    simulation = Simulation(seed=1, core_type=ClusterCore)
    simulation.start(primaries=3, replicas=1)          nodes that know each other, slots and roles given
    simulation.run(5_000)                              five seconds of virtual time
    simulation.crash(node); simulation.restart(node)   a process dies; it comes back with a file that it wrote
    simulation.network.cut(node, other)                packets from one to the other are lost; connections stay
    simulation.nodes, simulation.trace                 what there is; what has happened, as lines

Packets take time, and as the network is told they are lost, doubled and overtaken, which TCP would not do to them, but broken and
made connections would. A node may die between any two of its actions. A file that was written but not synced may be gone after that.
Whatever is random is drawn from the seed, in an order that only the seed decides: a failure can be replayed.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from streamd.cluster.bus import actions
from streamd.cluster.bus.core import ClusterCore
from streamd.cluster.bus.options import Options
from streamd.cluster.bus.packets import PacketType
from streamd.cluster.bus.slots import SLOT_COUNT

__all__ = ["NODE_TIMEOUT_MS", "Network", "SimulatedNode", "Simulation"]

NODE_TIMEOUT_MS = 1000
START_MS = 1_800_000_000_000
TICK_MS = 100


@dataclass(slots=True)
class Network:
    """How packets fare. Rates are probabilities."""

    random: Random
    least_delay_ms: float = 0.2
    greatest_delay_ms: float = 5.0
    loss: float = 0.0
    duplication: float = 0.0
    blocked: set[tuple[int, int]] = field(default_factory=set)  # (from, to)

    def delay_ms(self) -> float:
        return self.random.uniform(self.least_delay_ms, self.greatest_delay_ms)

    def setup_ms(self) -> float:
        """How long it lasts to make or end a connection: packets of data wait in queues, these less."""
        return self.random.uniform(self.least_delay_ms, min(self.greatest_delay_ms, 10.0))

    def cut(self, one: SimulatedNode, other: SimulatedNode, *, both: bool = True) -> None:
        self.blocked.add((one.index, other.index))
        if both:
            self.blocked.add((other.index, one.index))

    def heal(self) -> None:
        self.blocked.clear()
        self.loss = self.duplication = 0.0
        self.greatest_delay_ms = 5.0

    def passes(self, sender: SimulatedNode, receiver: SimulatedNode) -> bool:
        return (sender.index, receiver.index) not in self.blocked

    def times(self) -> int:
        """How often a packet arrives."""
        if self.loss and self.random.random() < self.loss:
            return 0
        return 2 if self.duplication and self.random.random() < self.duplication else 1


@dataclass(slots=True, eq=False)
class SimulatedNode:
    """A process, its disk and its clock."""

    index: int
    ip: str
    options: Options
    core: ClusterCore | None = None  # None while the process is down
    life: int = 0  # counts its processes: what was meant for an earlier one is dropped
    peers: dict[int, tuple[SimulatedNode, int, int]] = field(
        default_factory=dict
    )  # link -> other node, its link, its life
    waiting: dict[int, list[bytes]] = field(default_factory=dict)  # links that are being made -> packets
    files: list[bytes] = field(default_factory=list)  # every nodes.conf that was written, oldest first
    synced: int = (
        0  # how many of them are certainly on the disk: the last of these, or a later one, is there after a crash
    )
    clock_ms: int = 0  # by how much its clock is ahead
    stalled_until: float = 0.0
    offset: int = 0
    followed: bytes | None = None  # whom it replicates from
    heard: float = 0.0  # when it last heard from it
    has_old_file: bool = False  # it was once restarted with a file older than its promises

    @property
    def is_up(self) -> bool:
        return self.core is not None

    @property
    def live(self) -> ClusterCore:
        assert self.core is not None
        return self.core


def ip_of(index: int) -> str:
    return f"10.{index // 65536}.{index // 256 % 256}.{index % 256}"


class Simulation:
    """See the head of the module."""

    def __init__(
        self, seed: int, core_type: type[ClusterCore] = ClusterCore, *, node_timeout_ms: int = NODE_TIMEOUT_MS
    ) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.network = Network(self.random)
        self.core_type = core_type
        self.node_timeout_ms = node_timeout_ms
        self.nodes: list[SimulatedNode] = []
        self.by_id: dict[bytes, SimulatedNode] = {}
        self._by_ip: dict[str, SimulatedNode] = {}
        self.now = 0.0
        self.trace: list[str] = []
        self.crash_rate = 0.0  # how probable it is that a process dies after an action
        self.vote_crash_rate = 0.0  # and after it has voted
        self.revival_ms = 0.0  # processes that died so are started again within this time; 0: never
        self.watchers: list[Callable[[SimulatedNode, actions.Action | None], None]] = []
        self.start_files: list[int] = []  # of each node the first file in which it knows all others
        self.packet_count = 0
        self.byte_count = 0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._event_count = 0

    # --- Time ------------------------------------------------------------------------------------------------------------

    def at(self, time: float, event: Callable[[], None]) -> None:
        self._event_count += 1
        heapq.heappush(self._events, (time, self._event_count, event))

    def after(self, delay_ms: float, event: Callable[[], None]) -> None:
        self.at(self.now + delay_ms, event)

    def run(self, duration_ms: float) -> None:
        """Let time pass."""
        end = self.now + duration_ms
        while self._events and self._events[0][0] <= end:
            self.now, _, event = heapq.heappop(self._events)
            event()
        self.now = end

    def run_until(self, condition: Callable[[], bool], limit_ms: float) -> bool:
        """Let time pass until a condition holds, checked at every tick. Returns whether it does."""
        end = self.now + limit_ms
        while not condition():
            if self.now >= end:
                return False
            self.run(TICK_MS)
        return True

    def note(self, text: str) -> None:
        self.trace.append(f"{self.now:10.1f}  {text}")

    # --- Nodes -------------------------------------------------------------------------------------------------------------

    def add_node(self, **settings: object) -> SimulatedNode:
        node = self._place(**settings)
        self._launch(node, None)
        return node

    def start(self, primaries: int, replicas: int) -> None:
        """Make a cluster as `redis-cli --cluster create` does: epochs, slots, MEET, REPLICATE; and wait until all agree."""
        leaders = [self.add_node() for _ in range(primaries)]
        followers = [self.add_node() for _ in range(primaries * replicas)]
        for number, node in enumerate(self.nodes, 1):
            self.do(node, lambda core, number=number: core.set_config_epoch(number))
        bounds = [SLOT_COUNT * number // primaries for number in range(primaries + 1)]
        for node, first, end in zip(leaders, bounds, bounds[1:], strict=False):
            self.do(node, lambda core, first=first, end=end: core.add_slots(range(first, end)))
        for node in self.nodes[1:]:
            self.do(node, lambda core: core.meet(self.nodes[0].ip, 7000, 17000))
        count = len(self.nodes)
        assert self.run_until(lambda: all(self._knows(node, count) for node in self.nodes), 120_000), "no meeting"
        for number, node in enumerate(followers):
            primary = leaders[number % primaries].live.state.myself.id
            self.do(node, lambda core, primary=primary: core.replicate(primary))
        assert self.run_until(self.is_converged, 120_000), "no agreement after the start"
        for node in self.nodes:
            node.synced = len(node.files)
        self.start_files = [len(node.files) - 1 for node in self.nodes]

    def start_known(self, primaries: int, replicas: int) -> None:
        """The same by files in which all nodes know each other already: hundreds of nodes need not meet."""
        ids = [b"%040x" % number for number in range(primaries * (1 + replicas))]
        lines = []
        for number, node_id in enumerate(ids):
            index = number % primaries
            first, end = SLOT_COUNT * index // primaries, SLOT_COUNT * (index + 1) // primaries
            role = f"master - 0 0 {index + 1} connected {first}-{end - 1}"
            if number >= primaries:
                role = f"slave {ids[index].decode()} 0 0 {index + 1} connected"
            lines.append(f"{node_id.decode()} {ip_of(number)}:7000@17000,,tls-port=0,shard-id={index:040x} {role}")
        for number in range(len(ids)):
            own = lines[number].replace("master", "myself,master").replace("slave", "myself,slave")
            content = "\n".join(
                [*lines[:number], own, *lines[number + 1 :], f"vars currentEpoch {primaries} lastVoteEpoch 0\n"]
            )
            node = self._place()
            node.files.append(content.encode())
            node.synced = 1
            self._launch(node, node.files[0])

    def _place(self, **settings: object) -> SimulatedNode:
        """A machine for another node, without a process."""
        ip = ip_of(len(self.nodes))
        options = Options(
            port=7000, bus_port=17000, node_timeout_ms=self.node_timeout_ms, announce_ip=ip, **settings  # type: ignore[arg-type]
        )  # fmt: skip
        node = SimulatedNode(len(self.nodes), ip, options)
        self.nodes.append(node)
        self._by_ip[ip] = node
        return node

    @staticmethod
    def _knows(node: SimulatedNode, count: int) -> bool:
        nodes = node.live.state.nodes
        return len(nodes) == count and not any(each.in_handshake for each in nodes.values())

    def _launch(self, node: SimulatedNode, saved: bytes | None) -> None:
        """Start a process. Raises NodesFileError."""
        core = self.core_type(node.options, Random(self.random.getrandbits(64)), self.clock(node), saved)
        node.core = core
        node.life += 1
        node.heard = self.now
        self.by_id[core.state.myself.id] = node
        self._drain(node)
        life = node.life
        self.after(self.random.uniform(0, TICK_MS), lambda: self._tick(node, life))

    def clock(self, node: SimulatedNode) -> int:
        return START_MS + int(self.now) + node.clock_ms

    def _tick(self, node: SimulatedNode, life: int) -> None:
        if node.life != life or not node.is_up:
            return
        self.after(TICK_MS, lambda: self._tick(node, life))
        if self.now < node.stalled_until:
            return
        self._replicate(node)
        self.do(node, lambda core: core.tick(self.clock(node)))

    def _replicate(self, node: SimulatedNode) -> None:
        """Data, as far as the core needs to know: primaries are written to, replicas follow while they can reach them."""
        state = node.live.state
        if state.myself.is_primary:
            node.offset += self.random.randrange(100) if state.is_ok and state.myself.slots else 0
            return
        source = self.by_id.get(node.followed or b"")
        if source is not None and self._reaches(source, node) and source.live.state.myself.is_primary:
            node.offset = source.offset
            node.heard = self.now

    def _reaches(self, source: SimulatedNode, node: SimulatedNode) -> bool:
        return source.is_up and self.network.passes(source, node) and self.network.passes(node, source)

    def do(self, node: SimulatedNode, use: Callable[[ClusterCore], object]) -> None:
        """Give an input to a core, and do what it asks for."""
        core = node.core
        if core is None:
            return
        local = core.local
        local.offset = node.offset
        local.silence_ms = int(self.now - node.heard)
        local.is_link_up = local.silence_ms < self.node_timeout_ms
        use(core)
        self._drain(node)

    # --- Crashes -----------------------------------------------------------------------------------------------------------

    def crash(self, node: SimulatedNode, *, power: bool = False) -> None:
        """A process dies. power: so does the machine, and unsynced files with it, perhaps."""
        if not node.is_up:
            return
        node.core = None
        self.note(f"{node.index} dies{', without power' if power else ''}")
        if power and len(node.files) > node.synced:
            keep = self.random.randrange(node.synced, len(node.files) + 1)
            del node.files[max(keep, 1) :]
        for link, (other, other_link, life) in node.peers.items():
            if not power and not node.waiting.get(link):
                self._close_soon(other, other_link, life)
        node.peers.clear()
        node.waiting.clear()

    def _crash_perhaps(self, node: SimulatedNode, action: actions.Action) -> None:
        is_vote = isinstance(action, actions.Send) and action.packet[13] == PacketType.VOTE
        if self.random.random() < (self.vote_crash_rate if is_vote else self.crash_rate):
            self.crash(node, power=self.random.random() < 0.5)
            if self.revival_ms:
                self.after(self.random.uniform(1, self.revival_ms), lambda: self.restart(node))

    def restart(self, node: SimulatedNode, saved: bytes | None = None) -> None:
        """Start a process again. saved: the file that it finds, default: the last one. Raises NodesFileError."""
        if node.is_up:
            return
        self.note(f"{node.index} starts{'' if saved is None else ' with another file'}")
        self._launch(node, node.files[-1] if saved is None else saved)

    # --- Actions -------------------------------------------------------------------------------------------------------------

    def _drain(self, node: SimulatedNode) -> None:
        core = node.core
        if core is None:
            return
        for action in core.take_actions():
            self._act(node, action)
            for watch in self.watchers:
                watch(node, action)
            if self.crash_rate or self.vote_crash_rate:
                self._crash_perhaps(node, action)
            if node.core is not core:
                return
        for watch in self.watchers:
            watch(node, None)

    def _act(self, node: SimulatedNode, action: actions.Action) -> None:
        match action:
            case actions.Send(link, packet):
                self.packet_count += 1
                self.byte_count += len(packet)
                if link in node.waiting:
                    node.waiting[link].append(packet)
                elif link in node.peers:
                    self._send(node, link, packet)
            case actions.Connect(link, ip, _):
                self._connect(node, link, ip)
            case actions.Close(link):
                node.waiting.pop(link, None)
                if (peer := node.peers.pop(link, None)) is not None:
                    self._close_soon(*peer)
            case actions.Save(content, must_sync):
                node.files.append(content)
                if must_sync:
                    node.synced = len(node.files)
            case actions.Sync():
                node.synced = len(node.files)
            case actions.Follow(node_id):
                node.followed = node_id
                self.note(f"{node.index} follows {self._name(node_id)}")
            case actions.Promote():
                node.followed = None
                self.note(f"{node.index} is a primary, epoch {node.live.state.myself.config_epoch}")
            case actions.AnnounceLater(delay_ms):
                self.after(delay_ms, lambda life=node.life: self._announce(node, life))
            case actions.Log(level, text) if level != "debug":
                self.note(f"{node.index}: {self._shorten(text)}")
            case _:
                pass

    def _name(self, node_id: bytes) -> str:
        found = self.by_id.get(node_id)
        return str(found.index) if found is not None else node_id.decode()

    def _shorten(self, text: str) -> str:
        for node_id, node in self.by_id.items():
            text = text.replace(f"{node_id.decode()} ()", str(node.index)).replace(node_id.decode(), str(node.index))
        return text

    # --- The network -----------------------------------------------------------------------------------------------------------

    def _connect(self, node: SimulatedNode, link: int, ip: str) -> None:
        node.waiting[link] = []
        life = node.life
        other = self._by_ip.get(ip)

        def arrive() -> None:
            if node.life != life or link not in node.waiting:
                return
            if other is None or not other.is_up:
                del node.waiting[link]
                self.do(node, lambda core: core.link_closed(link, self.clock(node)))
                return
            if not self.network.passes(node, other) or not self.network.passes(other, node):
                self.after(200, arrive)  # TCP tries again
                return
            number = other.live.link_accepted(node.ip, other.ip, self.clock(other))
            other.peers[number] = (node, link, life)
            node.peers[link] = (other, number, other.life)
            self._drain(other)
            packets = node.waiting.pop(link)
            self.do(node, lambda core: core.link_opened(link, node.ip, self.clock(node)))
            for packet in packets:
                if node.life == life and link in node.peers:
                    self._send(node, link, packet)

        self.after(self.network.setup_ms(), arrive)

    def _send(self, node: SimulatedNode, link: int, packet: bytes) -> None:
        other, other_link, life = node.peers[link]
        for _ in range(self.network.times()):
            self.after(self.network.delay_ms(), lambda: self._deliver(node, other, other_link, life, packet))

    def _deliver(self, sender: SimulatedNode, node: SimulatedNode, link: int, life: int, packet: bytes) -> None:
        if node.life != life or not node.is_up or link not in node.peers or not self.network.passes(sender, node):
            return
        if self.now < node.stalled_until:
            self.at(node.stalled_until, lambda: self._deliver(sender, node, link, life, packet))
            return
        self.do(node, lambda core: core.receive(link, packet, self.clock(node)))

    def _announce(self, node: SimulatedNode, life: int) -> None:
        if node.life == life and node.is_up and self.now >= node.stalled_until:
            self.do(node, lambda core: core.announce(self.clock(node)))

    def _close_soon(self, node: SimulatedNode, link: int, life: int) -> None:
        def close() -> None:
            if node.life == life and node.is_up and node.peers.pop(link, None) is not None:
                self.do(node, lambda core: core.link_closed(link, self.clock(node)))

        self.after(self.network.setup_ms(), close)

    # --- What nodes believe ------------------------------------------------------------------------------------------------------

    def views(self) -> list[object]:
        """The configuration as each live node sees it."""
        return [
            sorted(
                (
                    each.id,
                    each.slots,
                    each.config_epoch if each.is_primary else 0,
                    each.primary.id if each.primary else b"",
                )
                for each in node.live.state.nodes.values()
                if not each.in_handshake
            )
            for node in self.nodes
            if node.is_up
        ]

    def contested(self) -> list[tuple[SimulatedNode, SimulatedNode]]:
        """Pairs of live nodes that both believe to own a slot."""
        owners = [node for node in self.nodes if node.is_up and node.live.state.myself.slots]
        return [
            (one, other)
            for index, one in enumerate(owners)
            for other in owners[:index]
            if one.live.state.myself.slots & other.live.state.myself.slots
        ]

    def each_slot_has_one_owner(self) -> bool:
        """Whether every slot has exactly one live owner, as the owners see it."""
        owned = sum(node.live.state.myself.slot_count for node in self.nodes if node.is_up)
        return owned == SLOT_COUNT and not self.contested()

    def is_converged(self) -> bool:
        """Whether all live nodes see the same configuration, in which the cluster serves."""
        cores = [node.live for node in self.nodes if node.is_up]
        if not all(core.state.is_ok for core in cores):
            return False
        first, *others = self.views()
        return all(view == first for view in others)
