"""nodes.conf comes first: packets and replies that depend on it leave when it is written, and a turn of the event loop writes it once. Then
come the replies of the turn, then its packets.

A node that cannot write it ends; nobody has heard of what it would have said.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from support.cluster.nodes import start_cluster_node
from support.cluster.peer import Peer
from support.replicas.nodes import Node, wait_until
from support.wire import ConnectionClosed, Wire, encode_request

from streamd.cluster.bus.packets import PacketType

pytestmark = [pytest.mark.real, pytest.mark.long]

NewNode = Callable[..., Node]

MOVED_HERE = 0x80
"""IN_MOVED_TO"""


@pytest.fixture
def node(new_node: NewNode) -> Node:
    """A node with all slots."""
    found = start_cluster_node(new_node, "streamd")
    found.must("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
    wait_until(lambda: b"cluster_state:ok" in found.call("CLUSTER", "INFO").value, "the node serves")
    return found


def meet(node: Node, peer: Peer) -> None:
    bus_port = int(node.must("CONFIG", "GET", "cluster-port").value[1].value)
    peer.do(lambda core: core.meet("127.0.0.1", node.port, bus_port))
    me = peer.state.myself.id
    wait_until(lambda: any(each.slot_count for each in peer.state.nodes.values()), "the peer knows the slots")
    wait_until(lambda: has_link_to(node, me), "the node has a link to the peer")


def has_link_to(node: Node, node_id: bytes) -> bool:
    links = [dict(zip(flat[::2], flat[1::2], strict=True)) for flat in node.must("CLUSTER", "LINKS").plain()]
    return any(link[b"direction"] == b"to" and link[b"node"] == node_id for link in links)


def become_replica(node: Node, peer: Peer) -> None:
    primary = node.must("CLUSTER", "MYID").value
    peer.do(lambda core: core.replicate(primary))
    wait_until(lambda: b" slave " in node.must("CLUSTER", "NODES").value, "the node has a replica")


def break_file(node: Node) -> None:
    """What the node would write the next file to is a directory."""
    pid = node.info("server")["process_id"]
    (node.folder / f"nodes.conf.tmp-{pid}").mkdir()


def ended(node: Node) -> bool:
    return "can't update cluster config file" in node.log() and not node.is_running


def test_a_vote_is_in_the_file_when_it_arrives(node: Node) -> None:
    with Peer() as peer:
        meet(node, peer)
        become_replica(node, peer)
        peer.do(lambda core: core.fail_over("force"))
        wait_until(lambda: peer.packets(PacketType.VOTE), "the vote")
        [vote] = peer.packets(PacketType.VOTE)
        epoch = int.from_bytes(vote[16:24], "big")
        assert f"vars currentEpoch {epoch} lastVoteEpoch {epoch}\n" in (node.folder / "nodes.conf").read_text()


def test_a_vote_that_cannot_be_written_is_not_sent(node: Node) -> None:
    with Peer() as peer:
        meet(node, peer)
        become_replica(node, peer)
        break_file(node)
        peer.do(lambda core: core.fail_over("force"))
        wait_until(lambda: ended(node), "the node ends")
        assert not peer.packets(PacketType.VOTE)


def test_an_epoch_that_cannot_be_written_is_neither_sent_nor_answered(node: Node) -> None:
    with Peer() as peer:
        peer.do(lambda core: core.set_config_epoch(7))
        meet(node, peer)
        wait_until(lambda: b"cluster_current_epoch:7" in node.must("CLUSTER", "INFO").value, "the node knows the epoch")
        break_file(node)
        with pytest.raises((ConnectionClosed, ConnectionError)):
            node.call("CLUSTER", "BUMPEPOCH")
        wait_until(lambda: ended(node), "the node ends")
        assert max(int.from_bytes(packet[16:24], "big") for _, packet in peer.received) <= 7


def test_a_slot_that_cannot_be_written_is_not_answered(node: Node) -> None:
    break_file(node)
    with pytest.raises((ConnectionClosed, ConnectionError)):
        node.call("CLUSTER", "DELSLOTS", "7")
    wait_until(lambda: ended(node), "the node ends")


def test_a_slot_that_cannot_be_written_is_not_answered_by_a_node_that_shuts_down(node: Node) -> None:
    break_file(node)
    with node.connect() as wire:
        wire.send_bytes(encode_request(("CLUSTER", "DELSLOTS", "7")) + encode_request(("SHUTDOWN", "NOSAVE")))
        assert wire.read_to_end() == b""
    wait_until(lambda: ended(node), "the node ends")


@contextmanager
def count_new_files(folder: Path, name: str) -> Iterator[list[str]]:
    """The list gets the name each time a file takes it by a rename."""
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.inotify_init1(os.O_NONBLOCK)
    found: list[str] = []
    try:
        assert libc.inotify_add_watch(fd, os.fsencode(folder), MOVED_HERE) >= 0
        yield found
        events = b""
        with suppress(BlockingIOError):
            events = os.read(fd, 1 << 20)
        while events:
            length = struct.unpack_from("iIII", events)[3]
            found += [name] * (events[16 : 16 + length].rstrip(b"\0") == name.encode())
            events = events[16 + length :]
    finally:
        os.close(fd)


def test_a_turn_writes_the_file_once(node: Node) -> None:
    with Peer() as peer, node.connect() as wire:
        meet(node, peer)
        target = peer.state.myself.id
        wire.send("MULTI")
        for slot in range(100):
            wire.send("CLUSTER", "SETSLOT", str(slot), "MIGRATING", target)
        assert not any(wire.read().is_error for _ in range(101))
        with count_new_files(node.folder, "nodes.conf") as found:
            assert wire.call("EXEC").plain() == [b"OK"] * 100
        # A second one may come from a packet of the peer.
        assert 1 <= len(found) <= 2
    text = (node.folder / "nodes.conf").read_text()
    assert all(f"[{slot}->-{target.decode()}]" in text for slot in range(100))


class WatchingPeer(Peer):
    """Notes of each PUBLISH whether its client has the reply when it arrives."""

    def __init__(self, client: Wire) -> None:
        super().__init__()
        self.client = client
        self.noted: list[bool] = []

    def _read(self, link: int) -> None:
        has_reply = self.client.has_input()
        before = len(self.packets(PacketType.PUBLISH))
        super()._read(link)
        self.noted += [has_reply] * (len(self.packets(PacketType.PUBLISH)) - before)


def test_replies_leave_before_packets(node: Node) -> None:
    with node.connect() as wire, WatchingPeer(wire) as peer:
        meet(node, peer)
        for number in range(300):
            wire.send("PUBLISH", "news", "x")
            wait_until(lambda: len(peer.noted) > number, "the packet arrives")  # noqa: B023
            assert wire.read().value == 0
        assert all(peer.noted)
