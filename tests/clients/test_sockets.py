"""Plain connections: on sockets of our own, on transports of the event loop, on threads. Every test runs on all three."""

from __future__ import annotations

import itertools
import resource
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.servers import Server, eventually, start_streamd
from support.wire import Argument, Reply, Wire, encode_request

StartServer = Callable[..., Server]

WAYS = {"ours": {}, "the loop's": {"socket-poller": "no"}, "threads": {"io-threads": "4"}}


@pytest.fixture(scope="module", params=WAYS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("sockets")
    running = start_streamd(folder, {**WAYS[request.param], "unixsocket": str(folder / "s"), "rdb-key-save-delay": "0"})
    yield running
    assert running.is_running, running.log()
    running.end()


def request(*words: Argument) -> bytes:
    return encode_request(words)


def descriptors(server: Server) -> int:
    return len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))


def clients(wire: Wire) -> int:
    listed = wire.call("CLIENT", "LIST").value
    return len(listed.splitlines())


def unix_connection(server: Server) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.settimeout(60)
    made.connect(str(server.folder / "s"))
    return made


def read_exactly(sock: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size and (piece := sock.recv(size - len(found))):
        found += piece
    return found


def read_to_end(sock: socket.socket) -> bytes:
    found = b""
    while piece := sock.recv(65536):
        found += piece
    return found


def test_requests_cut_anywhere_are_answered(server: Server, wire: Wire) -> None:
    """Each piece arrives alone: a reply to an earlier request on the same connection shows that it has."""
    requests = request("SET", "k", "x" * 40) + b"GET k\r\n" + request("APPEND", "k", "y")
    expected = b"+OK\r\n$40\r\n" + b"x" * 40 + b"\r\n:41\r\n"
    for cut in range(1, len(requests)):
        with socket.create_connection(("127.0.0.1", server.port), 60) as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.sendall(b"PING\r\n" + requests[:cut])
            assert read_exactly(sock, 7) == b"+PONG\r\n"
            sock.sendall(requests[cut:])
            assert read_exactly(sock, len(expected)) == expected


def test_unfinished_requests_of_many_clients_do_not_mix(server: Server, wire: Wire) -> None:
    """What is left of a request is kept for its client when the next one receives."""
    with ExitStack() as stack:
        several = [stack.enter_context(server.connect()) for _ in range(50)]
        for size in (10, 1000, 20_000, 70_000, 200_000):
            values = [bytes([65 + at % 26]) * size + b"%d" % at for at in range(len(several))]
            requests = [request("SET", f"k{at}", value) for at, value in enumerate(values)]
            for part in range(4):
                for each, data in zip(several, requests, strict=True):
                    step = len(data) // 4 + 1
                    each.socket.sendall(data[part * step : (part + 1) * step])
            assert [each.read() for each in several] == [Reply("+", b"OK")] * len(several)
            assert [wire.call("GET", f"k{at}").value for at in range(len(several))] == values


def test_a_long_pipeline_is_answered_in_order(server: Server, wire: Wire) -> None:
    count = 50_000
    wire.socket.sendall(b"".join(request("INCR", "n") for _ in range(count)))
    assert read_exactly(wire.socket, len(b"".join(b":%d\r\n" % (at + 1) for at in range(count)))).splitlines() == [
        b":%d" % (at + 1) for at in range(count)
    ]


def test_what_waits_behind_a_request_is_kept_while_others_send(server: Server, wire: Wire) -> None:
    """A pipeline beyond its share of a turn, and one behind a request that waits, go on with their own bytes."""
    count = 20_000
    with ExitStack() as stack:
        several = [stack.enter_context(server.connect()) for _ in range(6)]
        waiting = stack.enter_context(server.connect())
        waiting.socket.sendall(request("BLPOP", "list", "0") + request("ECHO", "behind") * 3)
        eventually(lambda: b"blocked_clients:1" in wire.call("INFO", "clients").value, what="it waits")
        for at, each in enumerate(several):
            sender = threading.Thread(target=each.socket.sendall, args=(request("ECHO", f"{at:06}") * count,))
            sender.start()
            stack.callback(sender.join)
        for at, each in enumerate(several):
            expected = b"$6\r\n%06d\r\n" % at * count
            assert read_exactly(each.socket, len(expected)) == expected
        wire.call("RPUSH", "list", "x")
        assert waiting.read().plain() == [b"list", b"x"]
        assert [waiting.read() for _ in range(3)] == [Reply("$", b"behind")] * 3


def test_one_who_sends_no_more_gets_its_replies(server: Server) -> None:
    for sock in (socket.create_connection(("127.0.0.1", server.port), 60), unix_connection(server)):
        with sock:
            sock.sendall(request("ECHO", "x" * 3_000_000) + b"PING\r\n")
            sock.shutdown(socket.SHUT_WR)
            assert read_to_end(sock) == b"$3000000\r\n" + b"x" * 3_000_000 + b"\r\n+PONG\r\n"


def test_one_who_reads_late_gets_everything(server: Server, wire: Wire) -> None:
    wire.call("SET", "k", "x" * 1_000_000)
    with server.connect() as late:
        late.socket.sendall(request("GET", "k") * 40)
        eventually(lambda: clients_with_output(wire), what="its replies wait")
        assert [len(late.read().value) for _ in range(40)] == [1_000_000] * 40
        assert late.call("PING") == Reply("+", b"PONG")


def clients_with_output(wire: Wire) -> bool:
    return any(
        b" oll=0" not in line or b" omem=0" not in line for line in wire.call("CLIENT", "LIST").value.splitlines()
    )


def test_one_who_resets_in_the_middle_of_a_reply_leaves_nothing(server: Server, wire: Wire) -> None:
    wire.call("SET", "k", "x" * 1_000_000)
    before = descriptors(server)
    for _ in range(20):
        sock = socket.create_connection(("127.0.0.1", server.port), 60)
        sock.sendall(request("GET", "k") * 20)
        assert read_exactly(sock, 100_000)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()
    eventually(lambda: clients(wire) == 1, what="all have gone")
    eventually(lambda: descriptors(server) <= before, what="their descriptors are closed")


@pytest.mark.parametrize("is_paused", [False, True], ids=["waiting", "paused"])
def test_one_who_resets_while_it_waits_gets_no_message(is_paused: bool, server: Server, wire: Wire) -> None:
    """Nothing is delivered to a consumer that has gone: the next one gets it."""
    wire.call("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
    gone = socket.create_connection(("127.0.0.1", server.port), 60)
    if is_paused:
        wire.call("CLIENT", "PAUSE", "600000", "WRITE")
    gone.sendall(request("XREADGROUP", "GROUP", "g", "gone", "BLOCK", "0", "STREAMS", "s", ">"))
    eventually(lambda: b"blocked_clients:1" in wire.call("INFO", "clients").value, what="it waits")
    gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    gone.close()
    eventually(lambda: clients(wire) == 1, what="it has gone")
    if is_paused:
        wire.call("CLIENT", "UNPAUSE")
    wire.call("XADD", "s", "1-1", "f", "v")
    assert wire.call("XPENDING", "s", "g").value[0] == Reply(":", 0)
    reply = wire.call("XREADGROUP", "GROUP", "g", "here", "STREAMS", "s", ">")
    assert reply.plain() == [[b"s", [[b"1-1", [b"f", b"v"]]]]]


def test_one_who_is_killed_by_another_in_the_same_turn(server: Server, wire: Wire) -> None:
    """Both have sent when the server looks again: it was busy."""
    for _ in range(20):
        with server.connect() as victim, server.connect() as killer:
            number = victim.call("CLIENT", "ID").value
            wire.socket.sendall(request("DEBUG", "SLEEP", "0.02"))
            killer.socket.sendall(request("CLIENT", "KILL", "ID", str(number)))
            victim.socket.sendall(request("PING") * 3)
            assert wire.read() == Reply("+", b"OK")
            assert killer.read() == Reply(":", 1)
            assert read_to_end_or_reset(victim.socket) in (b"", b"+PONG\r\n" * 3)
    assert wire.call("PING") == Reply("+", b"PONG")


def read_to_end_or_reset(sock: socket.socket) -> bytes:
    try:
        return read_to_end(sock)
    except ConnectionResetError:
        return b""


def test_connections_that_close_while_a_child_holds_them(server: Server, wire: Wire) -> None:
    """Events of a descriptor that a child still has must not reach the connection that was closed, or the next one."""
    for at in range(200):
        wire.call("SET", f"k{at}", "v")
    wire.call("CONFIG", "SET", "rdb-key-save-delay", "10000")
    several = [server.connect() for _ in range(50)]
    for each in several:
        each.call("PING")
    assert wire.call("BGSAVE").value.startswith(b"Background saving started")
    for each in several:
        each.socket.sendall(b"PING\r\n")
        each.socket.close()
    for _ in range(50):
        with server.connect() as another:
            assert another.call("PING") == Reply("+", b"PONG")
    wire.call("CONFIG", "SET", "rdb-key-save-delay", "0")
    eventually(lambda: b"rdb_bgsave_in_progress:0" in wire.call("INFO", "persistence").value, what="the child ends")
    eventually(lambda: clients(wire) == 1, what="all have gone")


@pytest.mark.parametrize("count", [2_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_a_storm_of_connections(count: int, server: Server, wire: Wire) -> None:
    before = descriptors(server)
    for _ in range(count // 100):
        with ExitStack() as stack:
            several = [
                stack.enter_context(socket.create_connection(("127.0.0.1", server.port), 60)) for _ in range(100)
            ]
            for sock in several:
                sock.sendall(b"PING\r\n")
            assert [read_exactly(sock, 7) for sock in several] == [b"+PONG\r\n"] * 100
    eventually(lambda: descriptors(server) <= before, what="their descriptors are closed")
    assert clients(wire) == 1


def test_accepting_goes_on_when_descriptors_are_free_again(new_streamd: StartServer) -> None:
    """Only sockets of our own: uvloop closes the connections for which it has no descriptor."""
    server = new_streamd()
    with server.connect() as wire:
        wire.call("PING")
        used = {int(path.name) for path in Path(f"/proc/{server.process.pid}/fd").iterdir()}
        limit = next(most for most in itertools.count() if len(set(range(most)) - used) == 5)
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (limit, limit))
        waiting = []
        for _ in range(10):
            sock = socket.create_connection(("127.0.0.1", server.port), 60)
            sock.sendall(b"PING\r\n")
            waiting.append(sock)
        assert read_exactly(waiting[0], 7) == b"+PONG\r\n"
        eventually(lambda: "accept: Too many open files" in server.log(), what="descriptors are exhausted")
        assert wire.call("PING") == Reply("+", b"PONG")
        for sock in waiting[:5]:
            sock.close()
        assert [read_exactly(sock, 7) for sock in waiting[5:]] == [b"+PONG\r\n"] * 5
        for sock in waiting[5:]:
            sock.close()


def test_the_addresses_of_both_ends_are_shown(server: Server, wire: Wire) -> None:
    own = wire.socket.getsockname()
    line = wire.call("CLIENT", "INFO").value.decode()
    assert f" addr=127.0.0.1:{own[1]} laddr=127.0.0.1:{server.port} " in line
    with unix_connection(server) as sock:
        sock.sendall(b"CLIENT INFO\r\n")
        assert f" addr={server.folder / 's'}:0 ".encode() in sock.recv(4096)


# --- Long messages to many, which are shared between connections --------------------------------------------------------

SIZES = (10, 1000, 2048, 5000, 70_000, 3, 300_000, 20, 2100, 2100, 2100, 1)
"""Below and above what is shared, in an order in which both follow each other."""
ROUNDS = 4
"""So that those who do not read yet have more than the kernel holds for them."""


def test_long_and_short_messages_arrive_in_order(server: Server, wire: Wire) -> None:
    """With either protocol, by channel, pattern and shard channel, at once and late, and to the one who publishes."""
    payloads = [b"%d:" % at + b"m" * size for at, size in enumerate(SIZES)]
    with ExitStack() as stack:
        listeners = [stack.enter_context(server.connect(protocol)) for protocol in (2, 3, 2, 3, 2, 3)]
        late = [stack.enter_context(server.connect(protocol)) for protocol in (2, 3)]
        for one, protocol in zip(late, (2, 3), strict=True):  # which the kernel holds little for
            one.close()
            one.socket = unix_connection(server)
            one.call("HELLO", protocol)
        publisher = stack.enter_context(server.connect(3))
        for listener in [*listeners, *late, publisher]:
            listener.call("SUBSCRIBE", "c:1")
            listener.call("PSUBSCRIBE", "c:*")
            listener.call("SSUBSCRIBE", "s")
        for payload in payloads * ROUNDS:
            publisher.send_bytes(
                request("PUBLISH", "c:1", payload) + request("SPUBLISH", "s", payload) + request("PING", payload)
            )
        expected = [
            words
            for payload in payloads * ROUNDS
            for words in (
                [b"message", b"c:1", payload],
                [b"pmessage", b"c:*", b"c:1", payload],
                [b"smessage", b"s", payload],
            )
        ]
        own: list[list[bytes]] = []
        replies: list[int | bytes] = []
        while len(own) < len(expected) or len(replies) < 3 * ROUNDS * len(payloads):
            reply = publisher.read()
            if reply.kind == ">":
                own.append([each.value for each in reply.value])
            else:
                replies.append(reply.value)
        assert own == expected
        assert replies == [each for payload in payloads * ROUNDS for each in (18, 9, payload)]
        for listener in [*listeners, *late]:
            listener.send("PING", "end")
        for listener in [*listeners, *late]:
            for words in expected:
                assert [each.value for each in listener.read().value] == words
            listener.read()


def used_memory(wire: Wire) -> int:
    info = wire.call("INFO", "memory").value
    return int(info.split(b"used_memory:")[1].split(b"\r\n")[0])


def test_messages_that_many_have_not_read_are_held_once(server: Server, wire: Wire) -> None:
    """And count for each of them; those that go on reading get them all."""
    subscribers, count, payload = 100, 100, b"m" * 65536
    wire.call("CONFIG", "SET", "client-output-buffer-limit", "pubsub 0 0 0")
    before = used_memory(wire)
    with ExitStack() as stack:
        several = [stack.enter_context(server.connect(2 + at % 2)) for at in range(subscribers)]
        for one in several:
            one.call("SUBSCRIBE", "c")
        for _ in range(count):
            assert wire.call("PUBLISH", "c", payload).value == subscribers
        listed = wire.call("CLIENT", "LIST", "TYPE", "PUBSUB").value.splitlines()
        omem = [int(line.split(b" omem=")[1].split()[0]) for line in listed]
        assert len(omem) == subscribers
        # What the kernel holds of 6.5 MB is not known: some MB.
        assert sum(omem) > subscribers * 1_000_000
        assert used_memory(wire) - before < 2 * count * len(payload) + subscribers * 200_000 < sum(omem) // 2
        for one in several[::2]:
            for _ in range(count):
                assert one.read().value[2].value == payload
            assert one.call("PING").value is not None
        killed = wire.call("CLIENT", "KILL", "TYPE", "PUBSUB").value
        assert killed == subscribers
        eventually(lambda: clients(wire) == 1, what="the end of the subscribers")
        eventually(lambda: used_memory(wire) - before < 5_000_000, what="no message is held any more")


def test_messages_go_on_when_others_of_their_readers_leave(server: Server, wire: Wire) -> None:
    payload = b"m" * 20_000
    with ExitStack() as stack:
        staying = [stack.enter_context(server.connect()) for _ in range(8)]
        for one in staying:
            one.call("SUBSCRIBE", "c")
        for at in range(40):
            leaving = stack.enter_context(server.connect())
            leaving_id = leaving.call("CLIENT", "ID").value
            leaving.call("SUBSCRIBE", "c")
            for _ in range(10):
                wire.send("PUBLISH", "c", b"%d:" % at + payload)
            if at % 2:
                leaving.close()
            else:
                wire.send("CLIENT", "KILL", "ID", leaving_id)
            for one in staying:
                for _ in range(10):
                    assert one.read().value[2].value == b"%d:" % at + payload
            for _ in range(11 - at % 2):
                assert wire.read().kind == ":"
