"""What the bus of a cluster costs a node, by the number of nodes: gossip, and messages of PUBLISH.

    python -m benchmarks.cluster [--nodes 10,100,1000] [--seconds 60] [--timeout 15000] [--seed 1] [--real N]

One core (streamd.cluster.bus) runs in virtual time among peers that are played: each answers its PING at once, and sends it one as often as
it is sent one, all with a tenth of the nodes as gossip. Half of the nodes are primaries with slots, each has a replica; nothing fails. The
first table has what the node sends per second, and the time of the processor for receiving, deciding and sending; sockets are not in it. The
second one has the same for one message of 100 bytes on a channel of four: at the node that a client has sent it to, and at any other.
"""

from __future__ import annotations

import time
from random import Random

import click

from benchmarks.servers import describe_machine, find_servers
from benchmarks.shards import NODE_TIMEOUT_MS, members
from streamd.cluster.bus import actions
from streamd.cluster.bus.core import ClusterCore
from streamd.cluster.bus.nodes import Node
from streamd.cluster.bus.options import Options
from streamd.cluster.bus.packets import (
    KNOWS_EXTENSIONS,
    NO_ID,
    Extensions,
    Gossip,
    Header,
    PacketType,
    encode,
    encode_extensions,
    encode_gossip,
)
from streamd.cluster.bus.slots import SLOT_COUNT

MESSAGE = b"news", b"x" * 100
MESSAGES = 2000
START_MS = 1_800_000_000_000
TICK_MS = 100


class Crowd:
    """A core, and the peers that it knows."""

    def __init__(self, count: int, timeout_ms: int, seed: int) -> None:
        self.random = Random(seed)
        self.now_ms = START_MS
        options = Options(port=7000, bus_port=17000, node_timeout_ms=timeout_ms, announce_ip="10.0.0.0")
        self.core = ClusterCore(options, Random(seed), self.now_ms, describe(count))
        self.peers = [node for node in self.core.state.nodes.values() if not node.is_myself]
        self.inbound = {node.id: self.core.link_accepted(node.ip, "10.0.0.0", self.now_ms) for node in self.peers}
        self.connected: dict[int, Node] = {}
        self.due: list[tuple[int, bytes]] = []  # links and packets that come at the next tick
        self.packet_count = 0
        self.byte_count = 0
        self.core_s = 0.0

    def run(self, seconds: float) -> None:
        for _ in range(int(seconds * 1000 / TICK_MS)):
            self.now_ms += TICK_MS
            due, self.due = self.due, []
            begin = time.process_time()
            self.core.tick(self.now_ms)
            for link, packet in due:
                self.core.receive(link, packet, self.now_ms)
            taken = self.core.take_actions()
            self.core_s += time.process_time() - begin
            for action in taken:
                self.act(action)

    def publish(self) -> tuple[float, int, float, float]:
        """Of a message: packets, bytes of each, the time at its node, and at another one, in seconds."""
        packets: list[bytes] = []
        begin = time.process_time()
        for _ in range(MESSAGES):
            self.core.publish(*MESSAGE, is_sharded=False)
            packets = [action.packet for action in self.core.take_actions() if isinstance(action, actions.Send)]
        sender_s = time.process_time() - begin
        peer, own_id = self.peers[0], self.core.state.myself.id
        arriving = packets[0].replace(own_id, peer.id)
        begin = time.process_time()
        delivered = 0
        for _ in range(MESSAGES):
            self.core.receive(self.inbound[peer.id], arriving, self.now_ms)
            delivered += sum(isinstance(action, actions.Deliver) for action in self.core.take_actions())
        if delivered != MESSAGES:
            raise SystemExit(f"{delivered} of {MESSAGES} messages have arrived")
        return len(packets), len(arriving), sender_s / MESSAGES, (time.process_time() - begin) / MESSAGES

    def act(self, action: actions.Action) -> None:
        if isinstance(action, actions.Connect):
            self.connected[action.link] = next(node for node in self.peers if node.ip == action.ip)
            self.core.link_opened(action.link, "10.0.0.0", self.now_ms)
        elif isinstance(action, actions.Send):
            self.packet_count += 1
            self.byte_count += len(action.packet)
            if action.packet[13] == PacketType.PING:
                peer = self.connected[action.link]
                self.due.append((action.link, self.speak(peer, PacketType.PONG)))
                self.due.append((self.inbound[peer.id], self.speak(peer, PacketType.PING)))

    def speak(self, peer: Node, type_: int) -> bytes:
        """A packet of a peer."""
        state = self.core.state
        speaker = peer.primary or peer
        header = Header(
            7000, type_, state.current_epoch, speaker.config_epoch, 0, peer.id, speaker.slot_bytes,
            NO_ID if peer.primary is None else speaker.id, peer.ip, 0, 17000, peer.flags, True, KNOWS_EXTENSIONS,
        )  # fmt: skip
        about = self.random.sample(self.peers, min(max(3, len(self.peers) // 10), len(self.peers)))
        entries = [
            Gossip(node.id, 0, self.now_ms // 1000, node.ip.encode(), 7000, 17000, node.flags, 0) for node in about
        ]
        count, extensions = encode_extensions(Extensions(shard_id=peer.shard_id, secret=state.internal_secret))
        return encode(header, encode_gossip(entries) + extensions, count=len(entries), extension_count=count)


def describe(count: int) -> bytes:
    """nodes.conf of the first of some nodes that know each other."""
    primaries = count // 2
    lines = []
    for number in range(2 * primaries):
        index = number % primaries
        first, end = SLOT_COUNT * index // primaries, SLOT_COUNT * (index + 1) // primaries
        role = f"master - 0 0 {index + 1} connected {first}-{end - 1}"
        if number >= primaries:
            role = f"slave {index:040x} 0 0 {index + 1} connected"
        address = f"10.0.{number // 256}.{number % 256}:7000@17000,,tls-port=0,shard-id={index:040x}"
        lines.append(f"{number:040x} {address} {'myself,' if number == 0 else ''}{role}")
    return "\n".join([*lines, f"vars currentEpoch {primaries} lastVoteEpoch 0\n"]).encode()


def measure_real(name: str, count: int, seconds: float) -> tuple[float, float]:
    """Of a node among idle ones: packets sent per second, and CPU ms per second; the means of all."""

    def look() -> tuple[int, float]:
        lines = [line for each in made for line in each.node.ask("CLUSTER", "INFO").decode().split("\r\n")]
        sent = sum(int(line.split(":")[1]) for line in lines if line.startswith("cluster_stats_messages_sent:"))
        return sent, sum(each.server.cpu_s() for each in made)

    with members(name, count) as made:
        time.sleep(NODE_TIMEOUT_MS / 1000)  # until PINGs are spread
        before = look()
        time.sleep(seconds)
        packets, cpu_s = (now - then for now, then in zip(look(), before, strict=True))
    return packets / count / seconds, cpu_s * 1000 / count / seconds


@click.command()
@click.option("--nodes", default="10,100,1000", show_default=True, help="Numbers of nodes.")
@click.option("--seconds", default=60.0, show_default=True, help="Virtual seconds to measure.")
@click.option("--timeout", default=15000, show_default=True, help="cluster-node-timeout in ms.")
@click.option("--seed", default=1, show_default=True, help="Seed.")
@click.option("--real", default=0, help="Measure gossip of so many primaries as processes instead, beside Redis.")
def main(nodes: str, seconds: float, timeout: int, seed: int, real: int) -> None:
    """Measure what gossip and messages cost a node of a cluster."""
    if real:
        click.echo(f"{'':>8} {'nodes':>6} {'packets/s':>10} {'CPU ms/s':>9}")
        for name in find_servers(("streamd", "redis"))[0]:
            packets, cpu_ms = measure_real(name, real, seconds)
            click.echo(f"{name:>8} {real:6} {packets:10.1f} {cpu_ms:9.2f}")
        return
    click.echo(describe_machine(cluster_node_timeout=timeout, seed=seed))
    click.echo(f"{'nodes':>6} {'packets/s':>10} {'KiB/s':>8} {'bytes/packet':>13} {'CPU ms/s':>9}")
    crowds = []
    for count in map(int, nodes.split(",")):
        crowd = Crowd(count, timeout, seed)
        crowd.run(timeout / 1000)  # until PINGs are spread
        crowd.packet_count, crowd.byte_count, crowd.core_s = 0, 0, 0.0
        crowd.run(seconds)
        packets, sent = crowd.packet_count, crowd.byte_count
        click.echo(
            f"{count:6} {packets / seconds:10.1f} {sent / seconds / 1024:8.1f} {sent / packets:13.0f} "
            f"{crowd.core_s * 1000 / seconds:9.2f}"
        )
        crowds.append((count, crowd))
    click.echo(f"\n{'nodes':>6} {'packets':>10} {'bytes':>8} {'us, its node':>13} {'us, others':>11}")
    for count, crowd in crowds:
        packets, size, own_s, other_s = crowd.publish()
        click.echo(f"{count:6} {packets:10} {size:8} {own_s * 1e6:13.1f} {other_s * 1e6:11.1f}")


if __name__ == "__main__":
    main()
