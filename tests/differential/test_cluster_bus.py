"""The core of a cluster node beside real ones: the bytes of their packets, their files, failures, elections, hand-overs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import pytest
from support.cluster.peer import Peer
from support.servers import eventually, free_port, start_redis

from streamd.cluster.bus.node_lines import format_state
from streamd.cluster.bus.nodes import Flag, State
from streamd.cluster.bus.nodes_conf import parse_state
from streamd.cluster.bus.options import Local, Options
from streamd.cluster.bus.packets import (
    HEADER_LENGTH,
    NO_ID,
    Packet,
    PacketType,
    decode,
    encode,
    encode_extensions,
    encode_gossip,
    encode_update,
)

pytestmark = [pytest.mark.real, pytest.mark.long]

TIMEOUT_MS = 2000


class RealNode:
    """A redis-server in cluster mode."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.bus_port = free_port()
        settings = {
            "cluster-enabled": "yes",
            "cluster-node-timeout": str(TIMEOUT_MS),
            "cluster-port": str(self.bus_port),
        }
        self.server = start_redis(folder, settings)
        self.port = self.server.port
        self.wire = self.server.connect()
        self.id = self.call("CLUSTER", "MYID").encode()

    def call(self, *words: str) -> str:
        value = self.wire.call(*words).plain()
        return value.decode() if isinstance(value, bytes) else str(value)

    def line(self, node_id: bytes) -> list[str]:
        """The words of a node in CLUSTER NODES; empty ones if it is not known."""
        lines = (line.split() for line in self.call("CLUSTER", "NODES").splitlines())
        return next((words for words in lines if words[0] == node_id.decode()), [""] * 8)

    def has_link_to(self, node_id: bytes) -> bool:
        """Whether it has opened a link to a node, and has sent something on it."""
        links = [dict(zip(flat[::2], flat[1::2], strict=True)) for flat in self.wire.call("CLUSTER", "LINKS").plain()]
        return any(
            link[b"direction"] == b"to" and link[b"node"] == node_id and b"w" not in link[b"events"] for link in links
        )

    def flags(self, node_id: bytes) -> set[str]:
        return {*self.line(node_id)[2].split(",")}


class RealCluster:
    """Three real primaries and a Peer that they have met."""

    def __init__(self, folder: Path, peer: Peer) -> None:
        self.nodes = [RealNode(folder / str(number)) for number in range(3)]
        self.peer = peer

    def meet(self, ranges: Sequence[str] = ("0 5460", "5461 10921", "10922 16383"), core: range = range(0)) -> None:
        """ranges: of the slots of real nodes, "" for none; core: the slots of the Peer."""
        first = self.nodes[0]
        for number, (node, slots) in enumerate(zip(self.nodes, ranges, strict=True)):
            assert node.call("CLUSTER", "SET-CONFIG-EPOCH", str(number + 1)) == "OK"
            if slots:
                assert node.call("CLUSTER", "ADDSLOTSRANGE", *slots.split()) == "OK"
            if number:
                assert node.call("CLUSTER", "MEET", "127.0.0.1", str(first.port), str(first.bus_port)) == "OK"
        self.peer.do(lambda each: each.add_slots(core))
        self.peer.do(lambda each: each.meet("127.0.0.1", first.port, first.bus_port))
        eventually(lambda: len(self.state.nodes) == 4 and self.state.is_ok, what="the meeting")
        eventually(
            lambda: all("master" in node.flags(self.state.myself.id) for node in self.nodes), what="the same there"
        )
        eventually(lambda: all(node.has_link_to(self.state.myself.id) for node in self.nodes), what="links from there")

    @property
    def state(self) -> State:
        return self.peer.state


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RealCluster]:
    with Peer() as peer:
        cluster = RealCluster(tmp_path, peer)
        try:
            yield cluster
            peer.do(lambda core: core.check_invariants())
            assert peer.state.damaged_count == 0
        finally:
            for node in cluster.nodes:
                node.wire.close()
                node.server.end()


def encode_again(packet: Packet) -> bytes:
    """The bytes of a packet, made of what was read from it."""
    header = packet.header._replace(primary_id=packet.header.primary_id or NO_ID)
    extension_count, extensions = encode_extensions(packet.extensions) if packet.extensions.secret else (0, b"")
    body = packet.failed + (encode_update(packet.update) if packet.update else b"")
    if header.type <= PacketType.MEET:
        body = encode_gossip(packet.gossip) + extensions
    return encode(header, body, count=len(packet.gossip), extension_count=extension_count)


def check_packets(peer: Peer, types: set[int]) -> None:
    """All packets that real nodes have sent can be read, and made again byte for byte; these types are among them."""
    found = {packet[13] for _, packet in peer.received}
    assert types <= found, found
    for _, packet in peer.received:
        assert encode_again(decode(packet)) == packet


def test_a_core_joins_a_cluster_and_both_see_the_same(cluster: RealCluster) -> None:
    cluster.nodes[0].call("CONFIG", "SET", "cluster-announce-hostname", "host.example")
    cluster.nodes[1].call("CONFIG", "SET", "cluster-announce-human-nodename", "second")
    cluster.meet()
    myself = cluster.state.myself

    def is_known() -> bool:
        nodes = [cluster.state.nodes[node.id] for node in cluster.nodes]
        shards = [node.call("CLUSTER", "MYSHARDID").encode() for node in cluster.nodes]
        has_names = nodes[0].hostname == "host.example" and nodes[1].human_name == "second"
        return has_names and [node.shard_id for node in nodes] == shards

    eventually(is_known, what="the names and shards")
    for number, node in enumerate(cluster.nodes):
        mine = cluster.state.nodes[node.id]
        theirs = node.line(node.id)
        assert mine.config_epoch == int(theirs[6]) == number + 1
        assert f"{mine.ip}:{mine.port}@{mine.bus_port}" in theirs[1]
        assert node.line(myself.id)[1] == f"127.0.0.1:{myself.port}@{myself.bus_port}"

    def has_least_secret() -> bool:
        secrets = {decode(packet).extensions.secret for packet in cluster.peer.packets(PacketType.PING)} - {b""}
        return cluster.state.internal_secret in secrets and cluster.state.internal_secret == min(secrets)

    eventually(has_least_secret, what="the secret of all")
    check_packets(cluster.peer, {PacketType.PING, PacketType.PONG})


def test_a_file_of_redis_is_read_and_written_the_same(cluster: RealCluster) -> None:
    cluster.nodes[1].call("CONFIG", "SET", "cluster-announce-hostname", "host.example")
    cluster.meet()
    node = cluster.nodes[1]
    node.call("CLUSTER", "SETSLOT", "6000", "MIGRATING", cluster.nodes[0].id.decode())
    node.call("CLUSTER", "SETSLOT", "10", "IMPORTING", cluster.nodes[0].id.decode())
    node.call("CLUSTER", "SAVECONFIG")
    content = (node.folder / "nodes.conf").read_bytes()
    options = Options(port=node.port, bus_port=node.bus_port)
    written = format_state(parse_state(content, options, Local(), Random(1), 0))
    assert lines_of(written) == lines_of(content)


def lines_of(content: bytes) -> list[list[str]]:
    """The lines of nodes.conf without times, which mean nothing later, and without links, which do not survive."""
    lines = sorted(line.split(" ") for line in content.decode().splitlines())
    return [words[:4] + words[6:7] + words[8:] if words[0] != "vars" else words for words in lines]


def test_a_core_is_elected_by_real_primaries(cluster: RealCluster) -> None:
    cluster.meet()
    gone, *voters = cluster.nodes
    cluster.peer.do(lambda core: core.replicate(gone.id))
    me = cluster.state.myself.id
    eventually(lambda: all("slave" in node.flags(me) for node in cluster.nodes), what="the replica")
    gone.server.kill()
    eventually(lambda: cluster.state.myself.is_primary, what="the election")
    eventually(lambda: all(node.line(me)[8:] == ["0-5460"] for node in voters), what="its slots")
    assert {node.line(me)[6] for node in voters} == {"4"}
    check_packets(cluster.peer, {PacketType.VOTE})
    gone.server.start_again()
    gone.wire.close()
    gone.wire = gone.server.connect()
    eventually(lambda: gone.line(gone.id)[3] == me.decode(), what="the old primary as a replica")
    eventually(lambda: cluster.state.nodes[gone.id].primary is cluster.state.myself, what="the same here")


def test_a_core_votes_for_a_real_replica(cluster: RealCluster) -> None:
    cluster.meet(("0 8191", "", "8192 12287"), core=range(12288, 16384))
    gone, replica, _ = cluster.nodes
    assert replica.call("CLUSTER", "REPLICATE", gone.id.decode()) == "OK"
    eventually(lambda: cluster.state.nodes[replica.id].primary is not None, what="the replica")
    eventually(lambda: "master_link_status:up" in replica.call("INFO", "replication"), what="its data")
    gone.server.kill()
    eventually(lambda: "master" in replica.flags(replica.id), what="the election")
    assert cluster.peer.packets(PacketType.VOTE, sent=True)
    eventually(lambda: cluster.state.nodes[replica.id].slot_count == 8192, what="the same here")
    check_packets(cluster.peer, {PacketType.VOTE_REQUEST})


def test_a_core_takes_over_from_a_real_primary(cluster: RealCluster) -> None:
    cluster.meet()
    primary = cluster.nodes[0]
    cluster.peer.do(lambda core: core.replicate(primary.id))
    me = cluster.state.myself.id
    eventually(lambda: all("slave" in node.flags(me) for node in cluster.nodes), what="the replica")
    cluster.peer.do(lambda core: core.fail_over())
    # A primary that has written nothing is at offset 0, and so is the core: then it may have taken over already.
    eventually(
        lambda: hand_over_offset(cluster.peer) >= 0 or cluster.state.myself.is_primary, what="the offset of the primary"
    )
    cluster.peer.do(lambda core: setattr(core.local, "offset", max(core.local.offset, hand_over_offset(cluster.peer))))
    eventually(lambda: cluster.state.myself.is_primary, what="the hand-over")
    eventually(lambda: primary.line(primary.id)[3] == me.decode(), what="the old primary as a replica")


def hand_over_offset(peer: Peer) -> int:
    hand_over = peer.core.role.hand_over
    return -1 if hand_over is None else hand_over.offset


def test_a_core_sees_a_node_fail_as_the_others_do(cluster: RealCluster) -> None:
    cluster.meet()
    gone, *others = cluster.nodes
    gone.server.kill()
    eventually(lambda: all("fail" in node.flags(gone.id) for node in others), what="FAIL there")
    eventually(lambda: bool(cluster.state.nodes[gone.id].flags & Flag.FAIL), what="FAIL here")
    eventually(lambda: not cluster.state.is_ok, what="the state")
    check_packets(cluster.peer, {PacketType.FAIL})


def test_a_node_that_is_forgotten_here_is_forgotten_there(cluster: RealCluster) -> None:
    cluster.meet()
    gone, *others = cluster.nodes
    gone.server.kill()
    cluster.peer.do(lambda core: core.forget(gone.id))
    eventually(lambda: not any("master" in node.flags(gone.id) for node in others), what="forgetting there")
    assert gone.id not in cluster.state.nodes


def test_a_core_with_an_old_claim_is_corrected(cluster: RealCluster) -> None:
    """It comes back with slots that others own by a greater epoch: it is a replica of the owner.

    It learns that from an UPDATE, or from the owner's own packet, whichever comes first.
    """
    cluster.meet()
    cluster.peer.do(lambda core: core.state.assign(cluster.state.nodes[cluster.nodes[2].id].slots, core.state.myself))
    eventually(lambda: cluster.state.myself.is_replica, what="the demotion")
    assert cluster.state.myself.primary is cluster.state.nodes[cluster.nodes[2].id]
    check_packets(cluster.peer, set())


def test_messages_reach_real_subscribers_and_come_from_them(cluster: RealCluster) -> None:
    cluster.meet()
    node = cluster.nodes[0]
    assert node.wire.call("SUBSCRIBE", "news").plain()[0] == b"subscribe"
    cluster.peer.do(lambda core: core.publish(b"news", b"hello", is_sharded=False))
    assert node.wire.read().plain() == [b"message", b"news", b"hello"]
    assert cluster.nodes[1].call("PUBLISH", "news", "again") == "0"
    eventually(lambda: bool(cluster.peer.packets(PacketType.PUBLISH)), what="the message here")
    [packet] = cluster.peer.packets(PacketType.PUBLISH)
    assert packet[HEADER_LENGTH:] == b"\0\0\0\4\0\0\0\5newsagain"
