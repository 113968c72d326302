"""streamd as a replica of a primary that says what the test wants: cuts, garbage, offsets, old protocols."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from support.replicas.fake_primary import REPLID, FakeLink, FakePrimary
from support.replicas.nodes import Node, wait_until
from support.wire import encode_request

from streamd.keyspace.database import Database
from streamd.persistence.rdb.format import WriteOptions
from streamd.persistence.rdb.write import RdbWriter

pytestmark = pytest.mark.long

NewNode = Callable[..., Node]

MARK = b"m" * 40


def snapshot(keys: dict[bytes, bytes], *, database: int = 0, **aux: str | int) -> bytes:
    """An RDB with these strings."""
    databases = [Database(index) for index in range(database + 1)]
    for key, value in keys.items():
        databases[database].add(key, value)
    written: list[bytes] = []

    class Sink:
        def write(self, data: bytes) -> None:
            written.append(bytes(data))

    RdbWriter(Sink(), WriteOptions(aux=aux)).write(databases, now_ms=0)
    return b"".join(written)


@pytest.fixture
def primary() -> Iterator[FakePrimary]:
    with FakePrimary() as primary:
        yield primary


@pytest.fixture
def replica(new_node: NewNode) -> Node:
    return new_node("streamd", repl_rdb_channel="no")


def connect(replica: Node, primary: FakePrimary) -> FakeLink:
    """Let the replica follow, up to its PSYNC."""
    replica.must("REPLICAOF", "127.0.0.1", primary.port)
    link = primary.accept()
    link.shake_hands()
    return link


def again(replica: Node, primary: FakePrimary) -> FakeLink:
    """The next attempt of the replica, at once, up to its PSYNC."""
    replica.must("CONFIG", "SET", "masteruser", "")
    link = primary.accept()
    link.shake_hands()
    return link


def in_sync(replica: Node, primary: FakePrimary, keys: dict[bytes, bytes], offset: int = 100) -> FakeLink:
    link = connect(replica, primary)
    link.send_snapshot(snapshot(keys), offset=offset)
    link.wait_for_ack(offset)
    return link


# --- The handshake --------------------------------------------------------------------------------------------------


def test_the_handshake_has_redis_order(new_node: NewNode, primary: FakePrimary) -> None:
    replica = new_node(
        "streamd", masterauth="pass", masteruser="user", replica_announce_ip="10.0.0.1", replica_announce_port="77",
        repl_diskless_load="swapdb",
    )  # fmt: skip
    replica.must("REPLICAOF", "127.0.0.1", primary.port)
    *requests, psync = primary.accept().shake_hands()
    assert requests == [
        ["PING"], ["AUTH", "user", "pass"], ["REPLCONF", "listening-port", "77"], ["REPLCONF", "ip-address", "10.0.0.1"],
        ["REPLCONF", "rdb-no-compress", "1"],
        ["REPLCONF", "capa", "eof", "capa", "psync2", "capa", "rdb-channel-repl"],
    ]  # fmt: skip
    assert psync[0] == "PSYNC"
    assert psync[2] == "1"


def test_a_primary_that_knows_no_replconf_is_followed(replica: Node, primary: FakePrimary) -> None:
    replica.must("REPLICAOF", "127.0.0.1", primary.port)
    link = primary.accept()
    while (request := link.read_request())[0] != "PSYNC":
        link.send(b"+PONG\r\n" if request == ["PING"] else b"-ERR Unrecognized REPLCONF option\r\n")
    link.send_snapshot(snapshot({b"k": b"v"}))
    link.wait_for_ack(0)
    assert replica.must("GET", "k").value == b"v"


def test_an_error_reply_to_psync_leads_to_sync(replica: Node, primary: FakePrimary) -> None:
    link = connect(replica, primary)
    link.send(b"-ERR unknown command 'PSYNC'\r\n")
    assert link.read_request() == ["SYNC"]
    payload = snapshot({b"k": b"old protocol"})
    link.send(b"\n\n$%d\r\n" % len(payload) + payload)
    link.send_stream(("SET", "a", "1"))
    wait_until(lambda: replica.call("GET", "a").value == b"1", "the stream")
    assert replica.must("GET", "k").value == b"old protocol"
    link.close()
    link = again(replica, primary)
    assert link.psync == ["PSYNC", "?", "-1"]


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "is not a Redis"),
        (b"-LOADING Redis is loading the dataset in memory\r\n", "Error reply to PING"),
        (b"-ERR max number of clients reached\r\n", "Error reply to PING from master: '-ERR max number"),
    ],
)
def test_a_wrong_answer_to_ping_is_explained(replica: Node, primary: FakePrimary, answer: bytes, line: str) -> None:
    replica.must("REPLICAOF", "127.0.0.1", primary.port)
    link = primary.accept()
    assert link.read_request() == ["PING"]
    link.send(answer)
    wait_until(lambda: line in replica.log(), "a line that explains it")


def test_a_primary_that_cannot_yet_is_asked_again(replica: Node, primary: FakePrimary) -> None:
    link = connect(replica, primary)
    link.send(b"-NOMASTERLINK Can't SYNC while not connected with my master\r\n")
    link = again(replica, primary)
    link.send(b"-LOADING Redis is loading the dataset in memory\r\n")
    link = again(replica, primary)
    link.send_snapshot(snapshot({b"k": b"v"}))
    link.wait_for_ack(0)


# --- The snapshot ---------------------------------------------------------------------------------------------------


def conversation(link: FakeLink, script: bytes, budget: int) -> None:
    """Answer the handshake and send a snapshot, `script`, but no more than `budget` bytes in all; then close."""
    try:
        while budget:
            request = link.read_request()
            answer = script if request[0] == "PSYNC" else b"+PONG\r\n" if request == ["PING"] else b"+OK\r\n"
            link.send(answer[:budget])
            budget -= min(budget, len(answer))
    except (EOFError, OSError):
        pass
    link.close()


@pytest.mark.parametrize("mode", ["disabled", "swapdb"])
@pytest.mark.parametrize("mark", [b"", MARK])
def test_a_link_cut_at_any_byte_costs_no_data(replica: Node, primary: FakePrimary, mode: str, mark: bytes) -> None:
    replica.must("CONFIG", "SET", "repl-diskless-load", mode)
    replica.line("SET own data")
    payload = snapshot({b"k": b"v"})
    head, tail = (b"$EOF:%s\r\n" % mark, mark) if mark else (b"$%d\r\n" % len(payload), b"")
    script = b"+FULLRESYNC %s 100\r\n" % REPLID.encode() + head + payload + tail
    whole = len(b"+PONG\r\n") + (3 if mode == "swapdb" else 2) * len(b"+OK\r\n") + len(script)
    replica.must("REPLICAOF", "127.0.0.1", primary.port)
    for budget in range(whole):
        conversation(primary.accept(), script, budget)
        replica.must("CONFIG", "SET", "masteruser", "")
    wait_until(lambda: replica.call("GET", "own").value == b"data", "the end of the last attempt")
    wait_until(lambda: not list(replica.folder.glob("temp-*")), "the removal of the last file")
    link = primary.accept()
    link.shake_hands()
    link.send(script)
    link.wait_for_ack(100)
    assert replica.must("KEYS", "*").plain() == [b"k"]
    assert "Traceback" not in replica.log()


@pytest.mark.parametrize("mode", ["disabled", "swapdb"])
def test_a_damaged_snapshot_costs_no_data(replica: Node, primary: FakePrimary, mode: str) -> None:
    replica.must("CONFIG", "SET", "repl-diskless-load", mode)
    replica.line("SET own data")
    payload = snapshot({b"k%d" % at: b"v" for at in range(100)})
    link = connect(replica, primary)
    for at in (5, 9, 40, len(payload) // 2, len(payload) - 3):
        damaged = bytearray(payload)
        damaged[at] ^= 0x55
        mark = replica.log_mark()
        link.send_snapshot(bytes(damaged), mark=MARK)
        wait_until(lambda mark=mark: "Failed trying to load" in replica.log_since(mark), "a line about the damage")
        link = again(replica, primary)
    assert replica.must("GET", "own").value == b"data"
    link.send_snapshot(payload, mark=MARK)
    link.wait_for_ack(0)
    assert replica.must("DBSIZE").value == 100


def test_data_that_was_dropped_is_of_no_history(new_node: NewNode, primary: FakePrimary) -> None:
    replica = new_node("streamd", repl_rdb_channel="no", repl_diskless_load="flushdb")
    link = in_sync(replica, primary, {b"k": b"v"}, offset=100)
    link.close()
    link = again(replica, primary)
    assert link.psync == ["PSYNC", REPLID, "101"]
    link.send_snapshot(snapshot({b"k": b"v"})[:-20] + bytes(20), offset=200, mark=MARK)
    wait_until(lambda: "Failed trying to load" in replica.log(), "a line about the damage")
    link = again(replica, primary)
    assert link.psync[1] != REPLID
    assert replica.must("DBSIZE").value == 0


def test_another_primary_is_followed_at_once_whatever_the_link_does(replica: Node, primary: FakePrimary) -> None:
    payload = snapshot({b"k": b"v"})
    for sent in (
        b"",
        b"+FULLRESYNC %s 0\r\n" % REPLID.encode(),
        b"+FULLRESYNC %s 0\r\n$99999\r\nREDIS" % REPLID.encode(),
    ):
        for _ in range(3):
            link = connect(replica, primary)
            link.send(sent)
            replica.must("REPLICAOF", "127.0.0.1", "1")
    link = connect(replica, primary)
    link.send_snapshot(payload, offset=7)
    link.wait_for_ack(7)
    assert replica.info()["master_link_status"] == "up"
    wait_until(lambda: not list(replica.folder.glob("temp-*")), "the removal of unfinished files")
    assert "Traceback" not in replica.log()


def test_a_snapshot_of_a_newer_redis_is_explained(replica: Node, primary: FakePrimary) -> None:
    link = connect(replica, primary)
    link.send_snapshot(snapshot({}).replace(b"REDIS0013", b"REDIS0099"))
    wait_until(lambda: "Can't handle RDB format version 99" in replica.log(), "the line of Redis")
    wait_until(lambda: "use an older primary, or a newer streamd" in replica.log(), "what to do")


def test_more_databases_than_there_are_cost_no_data(new_node: NewNode, primary: FakePrimary) -> None:
    replica = new_node("streamd", databases="4", repl_rdb_channel="no")
    replica.line("SET own data")
    for mode in ("disabled", "swapdb"):
        replica.must("CONFIG", "SET", "repl-diskless-load", mode)
        mark = replica.log_mark()
        replica.must("REPLICAOF", "NO", "ONE")
        link = connect(replica, primary)
        link.send_snapshot(snapshot({b"k": b"v"}, database=4))
        wait_until(lambda mark=mark: "a database below 4" in replica.log_since(mark), "a line about the database")
    assert replica.must("GET", "own").value == b"data"


@pytest.mark.parametrize("head", [b"+OK\r\n", b"-ERR no snapshot\r\n", b"$-1\r\n", b"$EOF:short\r\n"])
def test_what_is_no_snapshot_is_refused(replica: Node, primary: FakePrimary, head: bytes) -> None:
    link = connect(replica, primary)
    link.send(b"+FULLRESYNC %s 0\r\n" % REPLID.encode() + head)
    text = "MASTER aborted replication with an error: ERR no" if head[:1] == b"-" else "Bad protocol from MASTER"
    wait_until(lambda: text in replica.log(), "a line about it")


def test_newlines_keep_the_link_alive_before_the_snapshot(new_node: NewNode, primary: FakePrimary) -> None:
    replica = new_node("streamd", repl_rdb_channel="no", repl_timeout="5")
    link = connect(replica, primary)
    done = threading.Event()

    def keep_alive() -> None:
        while not done.wait(0.2):
            link.send(b"\n")

    thread = threading.Thread(target=keep_alive)
    thread.start()
    wait_until(lambda: int(replica.info()["master_current_sync_attempts"]) == 1, "an attempt")
    waited = threading.Event()
    assert not waited.wait(7)
    done.set()
    thread.join()
    link.send_snapshot(snapshot({b"k": b"v"}))
    link.wait_for_ack(0)
    assert replica.info()["master_total_sync_attempts"] == "1"


def test_the_database_of_the_stream_is_in_the_snapshot(replica: Node, primary: FakePrimary) -> None:
    link = connect(replica, primary)
    link.send_snapshot(snapshot({}, **{"repl-stream-db": 3}))
    link.send_stream(("SET", "k", "v"))
    wait_until(lambda: "db3" in replica.info("keyspace"), "the key in database 3")


# --- The stream -----------------------------------------------------------------------------------------------------


def test_offsets_count_complete_commands(replica: Node, primary: FakePrimary) -> None:
    link = in_sync(replica, primary, {}, offset=100)
    size = link.send_stream(("SELECT", "0"), ("SET", "k", "v"))
    link.send(b"\n\n")
    link.send(encode_request(("SET", "k", "not whole"))[:-3])
    link.wait_for_ack(100 + size)
    link.close()
    link = again(replica, primary)
    assert link.psync == ["PSYNC", REPLID, str(100 + size + 1)]
    link.send(b"+CONTINUE\r\n")
    more = link.send_stream(("SET", "k", "whole"))
    link.wait_for_ack(100 + size + more)
    assert replica.must("GET", "k").value == b"whole"


def test_getack_is_answered_without_itself(replica: Node, primary: FakePrimary) -> None:
    link = in_sync(replica, primary, {}, offset=100)
    data = encode_request(("SET", "k", "v"))
    link.send(data + encode_request(("REPLCONF", "GETACK", "*")) + data)
    assert link.read_acks() in (100, 100 + len(data))
    link.wait_for_ack(100 + 2 * len(data) + 37)


def test_a_transaction_that_is_cut_is_asked_for_again(replica: Node, primary: FakePrimary) -> None:
    link = in_sync(replica, primary, {}, offset=100)
    first = link.send_stream(("SET", "a", "1"))
    link.send_stream(("MULTI",), ("SET", "a", "2"), ("SET", "b", "2"))
    link.wait_for_ack(100 + first)
    link.close()
    link = again(replica, primary)
    assert link.psync[2] == str(100 + first + 1)
    assert replica.must("MGET", "a", "b").plain() == [b"1", None]


def test_a_stream_with_a_new_id_is_taken_over(replica: Node, primary: FakePrimary) -> None:
    link = in_sync(replica, primary, {}, offset=150)
    link.close()
    link = again(replica, primary)
    link.send(b"+CONTINUE %s\r\n" % (b"e" * 40))
    link.wait_for_ack(150)
    info = replica.info()
    assert (info["master_replid"], info["master_replid2"], info["second_repl_offset"]) == ("e" * 40, REPLID, "151")


@pytest.mark.parametrize("garbage", [b"GET / HTTP/1.1\r\n", b"*1\r\n$x\r\n", b"*-5x\r\n"])
def test_garbage_in_the_stream_leads_to_a_full_resync(replica: Node, primary: FakePrimary, garbage: bytes) -> None:
    link = in_sync(replica, primary, {b"k": b"v"})
    link.send(garbage)
    wait_until(lambda: not replica.has_link(), "the end of the link")
    link = again(replica, primary)
    assert link.psync == ["PSYNC", "?", "-1"]
    assert replica.must("GET", "k").value == b"v"


def test_an_unknown_database_in_the_stream_drops_the_link(new_node: NewNode, primary: FakePrimary) -> None:
    replica = new_node("streamd", databases="4", repl_rdb_channel="no")
    link = in_sync(replica, primary, {b"k": b"v"})
    link.send_stream(("SELECT", "9"), ("SET", "k", "of database 9"))
    wait_until(lambda: "database 9" in replica.log(), "a line about the database")
    wait_until(lambda: not replica.has_link(), "the end of the link")
    assert replica.must("GET", "k").value == b"v"


def test_a_command_that_fails_is_logged_as_redis_does(replica: Node, primary: FakePrimary) -> None:
    link = in_sync(replica, primary, {b"k": b"v"})
    link.send_stream(("XADD", "k", "1-1", "f", "v"), ("SET", "after", "1"))
    wait_until(lambda: replica.call("GET", "after").value == b"1", "the stream")
    assert (
        "== CRITICAL == This replica is sending an error to its master: '-WRONGTYPE Operation against a key holding the"
        " wrong kind of value' after processing the command 'xadd'"
    ) in replica.log()
    assert replica.info("stats")["unexpected_error_replies"] == "1"


def test_a_long_stream_leaves_time_for_clients(replica: Node, primary: FakePrimary) -> None:
    link = in_sync(replica, primary, {}, offset=0)
    data = encode_request(("XADD", "s", "*", "field", "value")) * 20_000
    sent, is_enough = [], threading.Event()

    def send_without_end() -> None:
        while not is_enough.is_set():
            link.send(data)
            sent.append(len(data))

    thread = threading.Thread(target=send_without_end)
    thread.start()
    lengths = set()
    try:
        # There is always more to be received, so who is answered is answered in between.
        wait_until(lambda: lengths.add(replica.must("XLEN", "s").value) or len(lengths) > 5, "several answers")
    finally:
        is_enough.set()
        thread.join()
    link.wait_for_ack(sum(sent))
    assert replica.must("XLEN", "s").value == 20_000 * len(sent)


def test_a_long_argument_is_received_in_pieces(replica: Node, primary: FakePrimary) -> None:
    link = in_sync(replica, primary, {}, offset=0)
    value = b"x" * (20 << 20)
    size = link.send_stream(("SET", "long", value))
    link.wait_for_ack(size)
    assert replica.must("STRLEN", "long").value == len(value)


def test_the_stream_waits_during_a_pause(replica: Node, primary: FakePrimary) -> None:
    link = in_sync(replica, primary, {b"k": b"old"}, offset=0)
    replica.must("CLIENT", "PAUSE", "100000", "WRITE")
    size = link.send_stream(("SET", "k", "new"))
    assert link.read_acks() == 0
    assert replica.must("GET", "k").value == b"old"
    replica.must("CLIENT", "UNPAUSE")
    link.wait_for_ack(size)
    assert replica.must("GET", "k").value == b"new"


# --- A second connection for the snapshot ------------------------------------------------------------------------------


def channel(new_node: NewNode, primary: FakePrimary, **settings: str) -> tuple[Node, FakeLink, FakeLink]:
    """A replica that has been sent to a second connection, and both connections; the second one is at its PSYNC."""
    replica = new_node("streamd", **settings)
    main = connect(replica, primary)
    main.send(b"+RDBCHANNELSYNC 7\r\n")
    second = primary.accept()
    *_, configuration, _ = second.shake_hands()
    assert " ".join(configuration[:10]) == (
        "REPLCONF capa eof rdb-only 1 rdb-channel 1 main-ch-client-id 7 listening-port"
    )
    assert second.psync == ["PSYNC", "?", "-1"]
    return replica, main, second


def test_the_stream_is_kept_while_the_snapshot_arrives(new_node: NewNode, primary: FakePrimary) -> None:
    replica, main, second = channel(new_node, primary)
    size = main.send_stream(("SELECT", "0"), ("SET", "k", "newer"))
    wait_until(lambda: replica.info()["replica_full_sync_buffer_size"] == str(size), "the stream")
    assert main.read_acks() == 0
    second.send_snapshot(snapshot({b"k": b"older"}), offset=50, mark=MARK)
    main.wait_for_ack(50 + size)
    assert replica.must("GET", "k").value == b"newer"
    with pytest.raises(EOFError):  # noqa: PT011  it says nothing
        second.read_request()


def test_what_is_kept_is_limited(new_node: NewNode, primary: FakePrimary) -> None:
    replica, main, second = channel(new_node, primary, replica_full_sync_buffer_limit="1mb")
    data = b"".join(encode_request(("SET", f"k{at}", b"x" * 10000)) for at in range(2000))
    thread = threading.Thread(target=main.send, args=(data,))
    thread.start()
    wait_until(lambda: int(replica.info()["replica_full_sync_buffer_size"]) >= 1 << 20, "a full buffer")
    assert int(replica.info()["replica_full_sync_buffer_size"]) < 4 << 20
    second.send_snapshot(snapshot({}), mark=MARK)
    thread.join()
    main.wait_for_ack(len(data))
    assert replica.must("DBSIZE").value == 2000
    assert int(replica.info()["replica_full_sync_buffer_peak"]) >= 1 << 20


@pytest.mark.parametrize("which", ["main", "second"])
def test_the_loss_of_either_connection_ends_the_attempt(new_node: NewNode, primary: FakePrimary, which: str) -> None:
    replica, main, second = channel(new_node, primary)
    replica_data = snapshot({b"k": b"v"})
    if which == "main":
        main.close()
        with suppress(ConnectionError):  # the replica may have closed it already
            second.send_snapshot(replica_data, mark=MARK)
    else:
        second.send(b"+FULLRESYNC %s 0\r\n$EOF:%s\r\n" % (REPLID.encode(), MARK) + replica_data[:50])
        second.close()
    link = again(replica, primary)
    for connection in (main, second):
        if connection.connection.fileno() >= 0:
            connection.wait_for_end()
    link.send_snapshot(replica_data)
    link.wait_for_ack(0)


# --- Far too much of something ----------------------------------------------------------------------------------------

FLOOD = b"\n" * (4 << 20)
"""Keepalives of a year. Whoever reads them one at a time from all that has arrived takes minutes."""


def test_a_flood_of_newlines_is_read_in_every_state(replica: Node, primary: FakePrimary) -> None:
    replica.must("REPLICAOF", "127.0.0.1", primary.port)
    link = primary.accept()
    while (request := link.read_request())[0] != "PSYNC":
        link.send(FLOOD + (b"+PONG\r\n" if request == ["PING"] else b"+OK\r\n"))
    link.send(FLOOD)
    payload = snapshot({b"k": b"v"})
    link.send(b"+FULLRESYNC %s 100\r\n" % REPLID.encode() + FLOOD)
    link.send(b"$%d\r\n" % len(payload) + payload)
    link.send(FLOOD)
    sent = link.send_stream(("SET", "a", "1"))
    link.send(b"\n*0\r\n" * 200_000)
    sent += link.send_stream(("SET", "b", "2"))
    wait_until(lambda: replica.call("GET", "b").value == b"2", "the stream")
    assert replica.must("GET", "k").value == b"v"
    link.wait_for_ack(100 + sent)


def test_clients_are_served_while_requests_that_run_nothing_flood_in(replica: Node, primary: FakePrimary) -> None:
    link = in_sync(replica, primary, {})
    ended = threading.Event()
    flood = encode_request(("REPLCONF", "GETACK", "*")) * 2000 + encode_request(("MULTI",))
    flood += encode_request(("PING",)) * 2000 + encode_request(("DISCARD",))

    def send() -> None:
        with suppress(OSError):
            while not ended.is_set():
                link.send(flood)

    sender = threading.Thread(target=send)
    receiver = threading.Thread(target=link.wait_for_end)
    sender.start()
    receiver.start()
    try:
        for _ in range(100):
            assert replica.must("PING").value == b"PONG"
    finally:
        ended.set()
        replica.must("REPLICAOF", "NO", "ONE")
        sender.join()
        receiver.join()


@pytest.mark.parametrize(
    "answer",
    [
        b"+FULLRESYNC %s 99999999999999999999\r\n" % REPLID.encode(),
        b"+FULLRESYNC %s %s\r\n" % (REPLID.encode(), b"9" * 5000),
        b"+FULLRESYNC %s %s\r\n" % (REPLID.encode(), "²".encode()),
        b"+FULLRESYNC %s 1\r\n$%s\r\n" % (REPLID.encode(), b"9" * 5000),
        b"+FULLRESYNC %s 1\r\n$99999999999999999999\r\n" % REPLID.encode(),
    ],
)
def test_numbers_beyond_all_bounds_are_refused(replica: Node, primary: FakePrimary, answer: bytes) -> None:
    replica.must("SET", "kept", "1")
    link = connect(replica, primary)
    link.send(answer)
    link.wait_for_end()
    link = again(replica, primary)
    assert "Unexpected error" not in replica.log()
    link.send_snapshot(snapshot({b"k": b"v"}))
    link.wait_for_ack(0)
