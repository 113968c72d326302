"""A primary as its replicas see it: which syncs it grants, what it sends, whom it counts, and whom it drops.

Replicas are played over raw sockets, so that they can also be wrong, slow or silent. With STREAMD_TEST_TARGET=redis the
tests run against a real Redis, which proves them.
"""

from __future__ import annotations

import random
import re
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.files.rdb import load
from support.replicas.nodes import DEADLINE_S, Node, Proxy, assert_same_state, wait_in_sync, wait_until
from support.replicas.raw_replica import FullSync, RawReplica, parse_stream
from support.servers import find_oracle
from support.wire import ConnectionClosed, Reply, Wire, encode_request

from streamd.keyspace.database import Database

pytestmark = pytest.mark.long

NewNode = Callable[..., Node]

SMALL_BACKLOG = {"repl_backlog_size": "16384", "repl_ping_replica_period": "3600"}
NO_REPLID = "0" * 40


@pytest.fixture(scope="module")
def shared(new_shared_node: NewNode) -> Node:
    """One primary for all tests that leave it as it was."""
    return new_shared_node("streamd", repl_ping_replica_period="3600", repl_backlog_size="64mb")


@pytest.fixture
def primary(shared: Node) -> Node:
    """A primary that is empty and has no replicas."""
    wait_until(lambda: shared.info()["connected_slaves"] == "0", "the replicas of earlier tests gone")
    for request in (("SELECT", "0"), ("FLUSHALL",)):
        shared.must(*request)
    return shared


@pytest.fixture
def replicas(primary: Node) -> Iterator[Callable[[], RawReplica]]:
    """Make raw replicas of `primary`, which are closed in the end."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(RawReplica(primary))


NewReplica = Callable[[], RawReplica]


def loaded(sync: FullSync) -> list[Database]:
    """The databases of a snapshot."""
    return load(sync.payload)


# --- Which sync is granted ------------------------------------------------------------------------------------------


class History:
    """A primary with a small backlog that has forgotten its first bytes, and all bytes of its stream."""

    def __init__(self, node: Node) -> None:
        self.node = node
        with RawReplica(node) as replica:
            self.start = replica.attach().offset
            for number in range(400):
                node.must("SET", f"key:{number}", "v" * 100)
            self.stream = replica.read_stream(node.offset)
        self.replid = replica.replid

    @property
    def first(self) -> int:
        """The first byte that the backlog holds."""
        return int(self.node.info()["repl_backlog_first_byte_offset"])

    @property
    def end(self) -> int:
        return self.node.offset

    def bytes_from(self, offset: int) -> bytes:
        """The stream from the byte with this number, counted from 1."""
        return self.stream[offset - 1 - self.start :]

    def ask(self, replid: bytes, offset: int) -> tuple[bytes, bytes]:
        """The answer to PSYNC, and when it is +CONTINUE what follows."""
        with RawReplica(self.node) as replica:
            replica.introduce("eof", "psync2")
            answer = replica.psync(replid, offset)
            rest = replica.read_exactly(self.end + 1 - offset) if answer.startswith(b"+CONTINUE") else b""
            return answer, rest


@pytest.fixture(scope="module")
def history(new_shared_node: NewNode) -> History:
    found = History(new_shared_node("streamd", **SMALL_BACKLOG))
    assert found.first > found.start + 1, "the backlog is too large for this test"
    return found


@pytest.mark.parametrize("where", ["first", "first + 1", "middle", "end", "end + 1"])
def test_what_the_backlog_holds_is_sent_from_the_byte_that_is_wanted(history: History, where: str) -> None:
    middle = (history.first + history.end) // 2
    offset = int(eval(where, {"first": history.first, "end": history.end, "middle": middle}))
    answer, rest = history.ask(history.replid, offset)
    assert answer == b"+CONTINUE " + history.replid
    assert rest == history.bytes_from(offset)


@pytest.mark.parametrize("where", ["first - 1", "end + 2", "1", "0", "-1", "9223372036854775807"])
def test_what_the_backlog_does_not_hold_needs_a_full_sync(history: History, where: str) -> None:
    offset = int(eval(where, {"first": history.first, "end": history.end}))
    answer, _ = history.ask(history.replid, offset)
    assert answer == b"+FULLRESYNC %s %d" % (history.replid, history.end)


def test_the_replication_id_is_compared_without_case(history: History) -> None:
    answer, _ = history.ask(history.replid.upper(), history.end + 1)
    assert answer == b"+CONTINUE " + history.replid


@pytest.mark.parametrize("replid", [b"?", b"0" * 40, b"f" * 40, b"f" * 41, b"", b"x"])
def test_another_history_needs_a_full_sync(history: History, replid: bytes) -> None:
    answer, _ = history.ask(replid, history.end + 1)
    assert answer == b"+FULLRESYNC %s %d" % (history.replid, history.end)


def test_a_replica_that_does_not_know_psync2_is_not_told_the_id(history: History) -> None:
    with RawReplica(history.node) as replica:
        replica.offset = history.end
        assert replica.psync(history.replid, history.end + 1) == b"+CONTINUE"
        assert history.node.must("SET", "k", "v").value == b"OK"
        told = replica.read_stream(history.end)
        assert parse_stream(told)[-1] == (b"SET", b"k", b"v")
    history.stream += told


@pytest.mark.parametrize("way", ["restart", "promotion"])
def test_the_id_before_is_good_up_to_where_it_ended(new_node: NewNode, tmp_path: Path, way: str) -> None:
    """Both a primary that comes back with its snapshot and a replica that becomes a primary have a second ID."""
    first = new_node("streamd", save="3600 1", repl_ping_replica_period="3600")
    second = first
    if way == "promotion":
        second = new_node("streamd")
        second.follow(first)
        wait_in_sync(first, second)
    else:
        with RawReplica(first) as replica:
            replica.attach()
    for number in range(50):
        first.must("INCR", f"n:{number % 3}")
    old = first.info()["master_replid"].encode()
    if way == "promotion":
        wait_in_sync(first, second)
        ended = first.offset
        second.follow(None)
    else:
        ended = first.offset
        first.stop()  # with a snapshot
        first.start()
    info = second.info()
    assert info["master_replid2"].encode() == old
    assert info["master_replid"].encode() != old
    assert int(info["second_repl_offset"]) == ended + 1
    second.must("SET", "after", "it")
    new = second.info()["master_replid"].encode()
    asked = {
        (old, ended + 1): b"+CONTINUE " + new,
        (old, ended + 2): b"+FULLRESYNC",
        (new, ended + 2): b"+CONTINUE " + new,
        (new, ended + 1): b"+CONTINUE " + new,
    }
    for (replid, offset), wanted in asked.items():
        with RawReplica(second) as replica:
            replica.introduce("eof", "psync2")
            answer = replica.psync(replid, offset)
            assert answer.startswith(wanted), (replid, offset, ended, answer)
            if offset == ended + 1 and answer.startswith(b"+CONTINUE"):
                replica.offset = ended
                commands = replica.read_commands()
                assert [each for each in commands if each[0] != b"SELECT"] == [(b"SET", b"after", b"it")]


def test_the_id_changes_when_the_backlog_is_given_up(new_node: NewNode) -> None:
    node = new_node("streamd", repl_backlog_ttl="1")
    with RawReplica(node) as replica:
        replica.attach()
        before = node.info()
        assert before["repl_backlog_active"] == "1"
    wait_until(lambda: node.info()["repl_backlog_active"] == "0", "no backlog")
    after = node.info()
    assert after["master_replid"] != before["master_replid"]
    assert after["master_replid2"] == NO_REPLID
    assert (after["repl_backlog_histlen"], after["repl_backlog_first_byte_offset"]) == ("0", "0")


@pytest.mark.parametrize("seed", range(3))
def test_a_link_cut_anywhere_under_load_is_resumed_without_loss(primary: Node, replicas: NewReplica, seed: int) -> None:
    """One replica is never cut, the other one after random numbers of bytes: both read the same stream."""
    chance = random.Random(seed)
    whole = replicas()
    whole.attach()
    start = whole.offset
    replid = whole.replid
    stopped = threading.Event()

    def load_it() -> None:
        with Wire(primary.port) as wire:
            number = 0
            while not stopped.is_set():
                number += 1
                wire.pipeline([("SET", f"key:{number % 10}", "x" * (number % 50)), ("PUBLISH", "c", number)])

    writer = threading.Thread(target=load_it)
    writer.start()
    pieces = b""
    try:
        for _ in range(30):
            with RawReplica(primary) as cut:
                cut.introduce("eof", "psync2")
                answer = cut.psync(replid, start + len(pieces) + 1)
                assert answer == b"+CONTINUE " + replid
                pieces += cut.read_exactly(chance.randrange(200))
    finally:
        stopped.set()
        writer.join()
    with RawReplica(primary) as last:
        last.resume(replid, start + len(pieces))
        pieces += last.read_stream(primary.offset)
    assert pieces == whole.read_stream(primary.offset)


# --- A full sync ----------------------------------------------------------------------------------------------------


FORMS = {
    "diskless, with the capability": ("yes", ("eof", "psync2"), True),
    "diskless, without the capability": ("yes", ("psync2",), False),
    "by a file, with the capability": ("no", ("eof", "psync2"), False),
    "by a file, without any": ("no", (), False),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_snapshot_has_a_length_or_a_mark(primary: Node, replicas: NewReplica, form: str) -> None:
    diskless, capabilities, has_mark = FORMS[form]
    primary.must("CONFIG", "SET", "repl-diskless-sync", diskless)
    try:
        primary.must("SET", "text", "v" * 1000)
        primary.line("XADD s 1-1 f v")
        replica = replicas()
        replica.introduce(*capabilities)
        sync = replica.read_full_sync(replica.psync())
        assert (sync.mark is not None) is has_mark
        assert sync.payload.startswith(b"REDIS00")
        assert sorted(loaded(sync)[0].keys()) == [b"s", b"text"]
        wait_until(lambda: replica.state == "online", "an online replica")
        primary.must("SET", "more", "v")
        if has_mark:
            # Nothing follows a mark that the replica might not have seen yet, in this turn and those of more commands.
            for _ in range(3):
                primary.must("PING")
            assert not replica.is_closed()
            assert not replica.buffer
            replica.ack()
        assert replica.read_commands() == [(b"SELECT", b"0"), (b"SET", b"more", b"v")]
    finally:
        primary.must("CONFIG", "SET", "repl-diskless-sync", "yes")


def test_the_snapshot_says_where_it_belongs(primary: Node, replicas: NewReplica) -> None:
    primary.must("SELECT", "3")
    primary.must("SET", "k", "v")
    sync = replicas().attach()
    fields = dict(re.findall(rb"\xfa.(repl-[a-z-]+)(?:.)([0-9a-f]{40}|.)", sync.payload, re.DOTALL))
    assert fields[b"repl-id"] == sync.replid
    assert b"repl-offset" in fields
    assert b"repl-stream-db" in fields


@pytest.mark.parametrize("inline", [True, False], ids=["inline", "array"])
def test_sync_of_old_replicas(primary: Node, replicas: NewReplica, inline: bool) -> None:
    primary.must("SET", "k", "v")
    replica = replicas()
    replica.send_bytes(b"SYNC\r\n" if inline else encode_request(("SYNC",)))
    sync = replica.read_full_sync()
    assert sync.mark is None
    assert [*loaded(sync)[0].keys()] == [b"k"]
    primary.must("SET", "k", "w")
    wanted = encode_request(("SELECT", "0")) + encode_request(("SET", "k", "w"))
    assert replica.read_exactly(len(wanted)) == wanted


def test_writes_after_the_offset_come_in_the_stream_and_none_is_lost(primary: Node, replicas: NewReplica) -> None:
    """Counters in the snapshot and the increments after it add up, although writes never stop."""
    stopped = threading.Event()

    def load_it() -> None:
        with Wire(primary.port) as wire:
            while not stopped.is_set():
                wire.pipeline([("INCR", "n")] * 20)

    for number in range(2000):
        primary.must("SET", f"filler:{number}", "x" * 500)
    writer = threading.Thread(target=load_it)
    writer.start()
    try:
        wait_until(lambda: primary.must("GET", "n").value, "a first write")
        together = [replicas() for _ in range(3)]
        syncs = [replica.attach() for replica in together]
    finally:
        stopped.set()
        writer.join()
    wanted = int(primary.must("GET", "n").value)
    for replica, sync in zip(together, syncs, strict=True):
        commands = replica.read_commands()
        assert commands[0] == (b"SELECT", b"0")
        assert {each for each in commands if each[0] != b"SELECT"} <= {(b"INCR", b"n")}
        counted = loaded(sync)[0].peek(b"n")
        assert int(counted) + commands.count((b"INCR", b"n")) == wanted  # type: ignore[call-overload]


def test_those_who_wait_for_a_snapshot_are_kept_alive_and_share_it(new_node: NewNode) -> None:
    node = new_node("streamd", repl_diskless_sync_delay="5")
    with RawReplica(node) as first, RawReplica(node) as second:
        for replica in (first, second):
            replica.introduce("eof", "psync2")
            replica.send("PSYNC", "?", "-1")
        wait_until(lambda: second.state is not None, "both replicas known")
        assert {first.state, second.state} <= {"wait_bgsave", "send_bulk", "online"}
        syncs = [replica.read_full_sync(replica.read_line()) for replica in (first, second)]
        assert first.newlines > 0
        assert syncs[0].offset == syncs[1].offset
        assert syncs[0].payload == syncs[1].payload


def test_enough_replicas_need_not_wait_for_more(new_node: NewNode) -> None:
    node = new_node("streamd", repl_diskless_sync_delay="600", repl_diskless_sync_max_replicas="2")
    with RawReplica(node) as first, RawReplica(node) as second:
        first.introduce("eof", "psync2")
        first.send("PSYNC", "?", "-1")
        wait_until(lambda: first.state == "wait_bgsave", "the first one waiting")
        second.attach()
        first.read_full_sync(first.read_line())


def test_a_replica_that_leaves_during_a_snapshot_leaves_nothing(primary: Node, replicas: NewReplica) -> None:
    for number in range(3000):
        primary.must("SET", f"filler:{number}", "x" * 2000)
    leaving = replicas()
    leaving.introduce("eof", "psync2")
    assert leaving.psync().startswith(b"+FULLRESYNC")
    leaving.close()
    wait_until(lambda: primary.info()["connected_slaves"] == "0", "no replicas")
    wait_until(lambda: primary.info("persistence")["rdb_bgsave_in_progress"] == "0", "no child")
    assert len([*loaded(replicas().attach())[0].keys()]) == 3000


def open_channel(main: RawReplica, channel: RawReplica) -> FullSync:
    """Sync over two connections: the snapshot, which comes over `channel`; `main` is then where the stream begins."""
    main.introduce("eof", "psync2", "rdb-channel-repl")
    answer = main.psync()
    assert answer.startswith(b"+RDBCHANNELSYNC "), answer
    said = (
        "rdb-only",
        1,
        "rdb-channel",
        1,
        "main-ch-client-id",
        answer.split()[1],
        "listening-port",
        main.listening_port,
    )
    assert channel.ask("REPLCONF", "capa", "eof", *said) == b"+OK"
    sync = channel.read_full_sync(channel.psync())
    main.replid, main.offset = channel.replid, channel.offset
    return sync


def test_a_snapshot_on_a_connection_of_its_own(primary: Node, replicas: NewReplica) -> None:
    primary.must("SET", "k", "v")
    main, channel = replicas(), replicas()
    sync = open_channel(main, channel)
    assert sync.mark is not None
    assert [*loaded(sync)[0].keys()] == [b"k"]
    # The stream comes without waiting for an acknowledgement.
    primary.must("SET", "k", "w")
    assert main.read_commands() == [(b"SELECT", b"0"), (b"SET", b"k", b"w")]
    channel.close()
    main.come_online()
    primary.must("SET", "k", "x")
    assert main.read_commands() == [(b"SET", b"k", b"x")]
    wait_until(lambda: primary.info()["connected_slaves"] == "1", "only the main connection")


def test_a_main_connection_that_is_lost_takes_its_channel_with_it(primary: Node, replicas: NewReplica) -> None:
    main, channel = replicas(), replicas()
    main.introduce("eof", "psync2", "rdb-channel-repl")
    assert main.psync().startswith(b"+RDBCHANNELSYNC ")
    main.close()
    wait_until(lambda: primary.info()["connected_slaves"] == "0", "no replicas")
    refused = channel.ask("REPLCONF", "main-ch-client-id", main.listening_port)
    assert refused.startswith(b"-ERR Unrecognized RDB client id")


@pytest.mark.parametrize("waits", [False, True])
def test_a_channel_whose_main_connection_is_lost_gets_no_snapshot(new_node: NewNode, waits: bool) -> None:
    """Before the channel asks for the snapshot, or while it waits for its beginning."""
    primary, other = new_node("streamd", repl_diskless_sync_delay="1"), new_node("streamd")
    with RawReplica(primary) as main, RawReplica(primary) as channel:
        main.introduce("eof", "psync2", "rdb-channel-repl")
        number = main.psync().split()[1]
        assert channel.ask("REPLCONF", "rdb-only", 1, "rdb-channel", 1, "main-ch-client-id", number) == b"+OK"
        if waits:
            channel.send("PSYNC", "?", -1)
            wait_until(lambda: "requested by replica" in primary.log(), "it has asked")
        main.close()
        wait_until(lambda: not is_client(primary, number), "the main connection is closed")
        if not waits:
            channel.send("PSYNC", "?", -1)
        with pytest.raises(ConnectionClosed, match="before the end"):
            channel.read_line()
    other.must("SET", "k", "v")
    primary.follow(other)  # no place in its own stream is kept for anybody
    wait_until(lambda: primary.call("GET", "k").value == b"v", "it has the data of the other server")


def is_client(node: Node, number: bytes) -> bool:
    return node.call("CLIENT", "LIST", "ID", number).value != b""


@pytest.mark.parametrize("side", ["primary", "replica"])
def test_a_channel_is_not_used_when_one_side_does_not_want_it(primary: Node, replicas: NewReplica, side: str) -> None:
    primary.must("CONFIG", "SET", "repl-rdb-channel", "no" if side == "primary" else "yes")
    try:
        replica = replicas()
        replica.introduce("eof", "psync2", *(["rdb-channel-repl"] if side == "primary" else []))
        replica.read_full_sync(replica.psync())
        replica.come_online()
    finally:
        primary.must("CONFIG", "SET", "repl-rdb-channel", "yes")


# --- What is answered -----------------------------------------------------------------------------------------------

NO_REPLY = b"(nothing)"
ANSWERS: dict[str, bytes] = {
    "REPLCONF": b"+OK",
    "REPLCONF a": b"-ERR syntax error",
    "REPLCONF listening-port": b"-ERR syntax error",
    "REPLCONF listening-port x": b"-ERR value is not an integer or out of range",
    "REPLCONF listening-port 7": b"+OK",
    "REPLCONF LISTENING-PORT 7 Ip-Address 1.2.3.4": b"+OK",
    "REPLCONF ip-address " + "a" * 300: (
        b"-ERR REPLCONF ip-address provided by replica instance is too long: 300 bytes"
    ),
    "REPLCONF capa eof capa psync2 capa what": b"+OK",
    "REPLCONF capa": b"-ERR syntax error",
    "REPLCONF version 8": b"-ERR Unrecognized REPLCONF option: version",
    "REPLCONF capa eof foo bar": b"-ERR Unrecognized REPLCONF option: foo",
    "REPLCONF rdb-only 1": b"+OK",
    "REPLCONF rdb-only x": b"-ERR value is not an integer or out of range",
    "REPLCONF rdb-filter-only functions": b"+OK",
    'REPLCONF rdb-filter-only ""': b"+OK",
    "REPLCONF rdb-filter-only foo": b"-ERR Unsupported rdb-filter-only option: foo",
    "REPLCONF main-ch-client-id 7": b"-ERR Unrecognized RDB client id: 7",
    "REPLCONF main-ch-client-id x": b"-ERR value is not an integer or out of range",
    "REPLCONF rdb-no-compress 1": b"+OK",
    "REPLCONF rdb-no-compress x": b"-ERR value is not an integer or out of range",
    "REPLCONF ACK 5": NO_REPLY,
    "REPLCONF ack x": NO_REPLY,
    "REPLCONF ACK 1 FACK 2": NO_REPLY,
    "REPLCONF GETACK *": NO_REPLY,
    "PSYNC": b"-ERR wrong number of arguments for 'psync' command",
    "PSYNC ?": b"-ERR wrong number of arguments for 'psync' command",
    "PSYNC ? x": b"-ERR value is not an integer or out of range",
    "PSYNC ? -1 FAILOVER": b"-ERR PSYNC FAILOVER can't be sent to a master.",
    "SYNC 1": b"-ERR wrong number of arguments for 'sync' command",
    "WAIT": b"-ERR wrong number of arguments for 'wait' command",
    "WAIT 1": b"-ERR wrong number of arguments for 'wait' command",
    "WAIT 1 0 0": b"-ERR wrong number of arguments for 'wait' command",
    "WAIT x 0": b"-ERR value is not an integer or out of range",
    "WAIT 0 x": b"-ERR timeout is not an integer or out of range",
    "WAIT 0 -1": b"-ERR timeout is negative",
    "WAIT -1 0": b":0",
    "WAIT 5 1": b":0",
    "WAITAOF 1 1": b"-ERR wrong number of arguments for 'waitaof' command",
    "WAITAOF 1 0 0": b"-ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.",
    "WAITAOF 2 0 0": b"-ERR value is out of range, value must between 0 and 1",
    "WAITAOF -1 0 0": b"-ERR value is out of range, value must between 0 and 1",
    "WAITAOF 0 0 -1": b"-ERR timeout is negative",
    "WAITAOF x 0 0": b"-ERR value is not an integer or out of range",
    "WAITAOF 0 x 0": b"-ERR value is out of range, must be positive",
    "WAITAOF 0 -1 1": b"-ERR value is out of range, must be positive",
    "FAILOVER": b"-ERR FAILOVER requires connected replicas.",
    "FAILOVER ABORT": b"-ERR No failover in progress.",
    "FAILOVER TIMEOUT 0": b"-ERR FAILOVER timeout must be greater than 0",
    "FAILOVER TIMEOUT x": b"-ERR value is not an integer or out of range",
    "FAILOVER TO a 1 FORCE": b"-ERR FAILOVER requires connected replicas.",
    "FAILOVER TO a": b"-ERR syntax error",
    "FAILOVER what": b"-ERR syntax error",
    "REPLICAOF NO ONE": b"+OK",
    "slaveof no one": b"+OK",
    "REPLICAOF a x": b"-ERR Invalid master port",
    "REPLICAOF a -1": b"-ERR Invalid master port",
    "REPLICAOF a 70000": b"-ERR Invalid master port",
    "REPLICAOF no": b"-ERR wrong number of arguments for 'replicaof' command",
    "ROLE x": b"-ERR wrong number of arguments for 'role' command",
}


def test_errors_and_answers(primary: Node) -> None:
    for line, wanted in ANSWERS.items():
        with primary.connect() as wire:
            wire.send(*(b"" if word == '""' else word for word in line.split()))
            wire.send("ECHO", "end")
            found = wire.read_raw_line().rstrip()
            assert (NO_REPLY if found == b"$3" else found) == wanted, line


def test_a_replica_may_say_several_things_at_once(primary: Node, replicas: NewReplica) -> None:
    replica = replicas()
    said = ("listening-port", replica.listening_port, "ip-address", "name.of.it", "capa", "eof", "capa", "psync2")
    assert replica.ask("REPLCONF", *said) == b"+OK"
    replica.read_full_sync(replica.psync())
    replica.come_online()
    assert replica.fields["ip"] == "name.of.it"
    role = primary.must("ROLE").plain()
    assert role[2] == [[b"name.of.it", b"%d" % replica.listening_port, b"%d" % replica.offset]]


def test_syncs_are_refused_in_a_transaction_and_behind_replies(replicas: NewReplica) -> None:
    for request in (("PSYNC", "?", "-1"), ("SYNC",)):
        replica = replicas()
        assert replica.ask("MULTI") == b"+OK"
        assert replica.ask(*request) == b"-ERR Command not allowed inside a transaction"
        replica = replicas()
        replica.send_bytes(encode_request(("PING",)) + encode_request(request))
        assert replica.read_line() == b"+PONG"
        assert replica.read_line() == b"-ERR SYNC and PSYNC are invalid with pending output"


def test_a_replica_whose_own_link_is_down_grants_nothing(new_node: NewNode) -> None:
    node = new_node("streamd")
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        node.must("REPLICAOF", "127.0.0.1", nobody.getsockname()[1])
        for request in (("PSYNC", "?", "-1"), ("SYNC",)):
            with RawReplica(node) as replica:
                refusal = b"-NOMASTERLINK Can't SYNC while not connected with my master"
                assert replica.ask(*request) == refusal
        wait = node.call("WAIT", "0", "0")
        assert wait.value.startswith(b"ERR WAIT cannot be used with replica instances."), wait
        assert node.call("FAILOVER").value == b"ERR FAILOVER is not valid when server is a replica."


# --- WAIT and WAITAOF -----------------------------------------------------------------------------------------------


def test_wait_counts_those_who_have_what_this_client_wrote(primary: Node, replicas: NewReplica) -> None:
    first, second = replicas(), replicas()
    first.attach()
    second.attach()
    with primary.connect(timeout_s=DEADLINE_S) as idle:
        primary.must("SET", "k", "v")
        # Who has written nothing waits for nothing.
        assert idle.call("WAIT", "2", "0") == Reply(":", 2)
    assert primary.must("WAIT", "2", "1") == Reply(":", 0)
    assert primary.must("WAIT", "0", "0") == Reply(":", 0)
    first.read_commands()
    first.ack()
    wait_until(lambda: primary.must("WAIT", "0", "0") == Reply(":", 1), "one acknowledgement")
    with primary.connect(timeout_s=DEADLINE_S) as waiting:
        waiting.call("SET", "k", "w")
        waiting.send("WAIT", "2", "0")
        wait_until(lambda: primary.info("clients")["blocked_clients"] == "1", "a client that waits")
        for replica in (first, second):
            replica.ack(primary.offset)
        assert waiting.read() == Reply(":", 2)
        # Acknowledgements that fall short of it do not count.
        waiting.call("SET", "k", "x")
        waiting.send("WAIT", "1", "0")
        wait_until(lambda: primary.info("clients")["blocked_clients"] == "1", "a client that waits")
        first.ack(primary.offset - 38)  # GETACK is 37 bytes
        assert primary.must("CLIENT", "UNBLOCK", waiting_id(primary)) == Reply(":", 1)
        assert waiting.read() == Reply(":", 0)


def waiting_id(node: Node) -> str:
    """The ID of the client that is blocked."""
    (found,) = [client["id"] for client in clients_of(node) if "b" in client["flags"]]
    return found


def clients_of(node: Node, *arguments: str) -> list[dict[str, str]]:
    """The lines of CLIENT LIST."""
    lines = node.must("CLIENT", "LIST", *arguments).value.decode().splitlines()
    return [dict(each.split("=", 1) for each in line.split(" ")) for line in lines]


def test_wait_in_a_transaction_does_not_wait(primary: Node, replicas: NewReplica) -> None:
    replicas().attach()
    lines = [("SET", "k", "v"), ("MULTI",), ("SET", "k", "w"), ("WAIT", "1", "0"), ("EXEC",)]
    with primary.connect() as wire:
        assert wire.pipeline(lines)[-1].plain() == [b"OK", 0]


def test_a_client_that_waits_is_told_when_its_server_becomes_a_replica(new_node: NewNode) -> None:
    node, other = new_node("streamd"), new_node("streamd")
    with node.connect(timeout_s=DEADLINE_S) as waiting:
        waiting.call("SET", "k", "v")
        waiting.send("WAIT", "1", "0")
        wait_until(lambda: node.info("clients")["blocked_clients"] == "1", "a client that waits")
        node.follow(other)
        text = b"UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)"
        assert waiting.read() == Reply("-", text)


def test_waitaof_counts_files(new_node: NewNode) -> None:
    node = new_node("streamd", appendonly="yes", appendfsync="everysec")
    with RawReplica(node) as replica:
        replica.attach()
        with node.connect(timeout_s=DEADLINE_S) as wire:
            wire.call("SET", "k", "v")
            assert wire.call("WAITAOF", "1", "0", "0").plain() == [1, 0]
            replica.read_commands()
            replica.ack()
            assert wire.call("WAITAOF", "0", "1", "1").plain() == [1, 0]
            replica.send("REPLCONF", "ACK", replica.offset, "FACK", replica.offset)
            assert wire.call("WAITAOF", "1", "1", "0").plain() == [1, 1]
            wire.call("SET", "k", "w")
            wire.send("WAITAOF", "0", "1", "0")
            wait_until(lambda: node.info("clients")["blocked_clients"] == "1", "a client that waits")
            replica.send("REPLCONF", "ACK", node.offset, "FACK", node.offset)
            assert wire.read().plain()[1] == 1


# --- What is shown --------------------------------------------------------------------------------------------------


ONLY_HERE = frozenset({"master_link_down_reason"})
"""What streamd shows and Redis does not; see docs/differences.md."""


def names_of(node: Node) -> list[str]:
    return [re.sub(r"^slave\d+$", "slaveN", name) for name in node.info() if name not in ONLY_HERE]


@pytest.mark.real
def test_info_has_the_fields_of_redis_in_their_order(new_node: NewNode) -> None:
    shown = []
    for kind in ("streamd", "redis"):
        primary, replica = new_node(kind, min_replicas_to_write="1"), new_node(kind)
        alone, never_up = names_of(primary), names_of(replica)
        with socket.create_server(("127.0.0.1", 0)) as nobody:
            replica.must("REPLICAOF", "127.0.0.1", nobody.getsockname()[1])
            down = names_of(replica)
        replica.follow(primary)
        wait_in_sync(primary, replica)
        wait_until(lambda primary=primary: not primary.call("SET", "k", "v").is_error, "a good replica")
        both = names_of(primary), names_of(replica)
        (line,) = [value for name, value in primary.info().items() if re.fullmatch(r"slave\d", name)]
        fields = [each.split("=")[0] for each in line.split(",")]
        primary.kill()
        wait_until(lambda replica=replica: not replica.has_link(), "the link down")
        shown.append((alone, never_up, down, *both, fields, names_of(replica)))
    for ours, theirs in zip(*shown, strict=True):
        assert ours == theirs


def test_what_info_and_role_say_of_replicas(primary: Node, replicas: NewReplica) -> None:
    replica = replicas()
    replica.introduce("eof", "psync2")
    assert primary.must("ROLE").plain() == [b"master", primary.offset, []]
    replica.read_full_sync(replica.psync())
    replica.come_online()
    primary.must("SET", "k", "v")
    wait_until(lambda: replica.fields["offset"] == str(replica.offset), "the acknowledgement")
    fields = replica.fields
    assert fields.pop("io-thread") == "0"
    assert 0 <= int(fields.pop("lag")) < 60
    wanted = {"ip": "127.0.0.1", "port": str(replica.listening_port), "state": "online", "offset": str(replica.offset)}
    assert fields == wanted
    assert primary.info()["connected_slaves"] == "1"
    replica.read_commands()
    replica.ack()
    wait_until(lambda: replica.fields["offset"] == str(primary.offset), "the acknowledgement")
    port = b"%d" % replica.listening_port
    offset = b"%d" % primary.offset
    assert primary.must("ROLE").plain() == [b"master", primary.offset, [[b"127.0.0.1", port, offset]]]
    replica.close()
    wait_until(lambda: primary.info()["connected_slaves"] == "0", "no replicas")


def test_replicas_among_the_clients(primary: Node, replicas: NewReplica) -> None:
    first, second = replicas(), replicas()
    first.attach()
    second.attach()
    for kind in ("replica", "slave"):
        clients = clients_of(primary, "TYPE", kind)
        assert [(client["flags"], client["cmd"]) for client in clients] == [("S", "replconf")] * 2
    assert "S" not in {client["flags"] for client in clients_of(primary, "TYPE", "normal")}
    assert primary.must("CLIENT", "KILL", "TYPE", "normal") == Reply(":", 0)
    number = clients_of(primary, "TYPE", "replica")[0]["id"]
    assert primary.must("CLIENT", "KILL", "ID", number) == Reply(":", 1)
    assert primary.must("CLIENT", "KILL", "TYPE", "replica") == Reply(":", 1)
    for replica in (first, second):
        assert replica.read_to_end() == b""
    assert primary.info()["connected_slaves"] == "0"


def test_a_replica_among_the_figures(primary: Node, replicas: NewReplica) -> None:
    before = primary.info("stats")
    replica = replicas()
    replica.attach()
    resumed = replicas()
    resumed.resume(replica.replid, replica.offset)
    replicas().attach()
    refused = replicas()
    refused.introduce("eof")
    refused.psync("f" * 40, 5)
    after = primary.info("stats")
    grown = {name: int(after[name]) - int(before[name]) for name in after if name.startswith("sync_")}
    assert grown == {"sync_full": 3, "sync_partial_ok": 1, "sync_partial_err": 1}


# --- Replicas that are wrong, slow or silent ------------------------------------------------------------------------


@pytest.mark.parametrize("line", ["GET k", "SET k w", "FLUSHALL", "KEYS *", "XADD s * f v", "PING", "PUBLISH c m"])
def test_a_replica_that_sends_commands_is_dropped(primary: Node, replicas: NewReplica, line: str) -> None:
    """No reply may get into the stream."""
    primary.must("SET", "k", "v")
    replica = replicas()
    replica.attach()
    replica.send(*line.split())
    said = replica.read_to_end().replace(encode_request(("ping",)), b"")
    assert said in (b"", b"-ERR Replica can't interact with the keyspace\r\n")
    assert primary.must("GET", "k").value == b"v"
    assert primary.must("DBSIZE").value == 1
    assert primary.info()["connected_slaves"] == "0"


def test_a_replica_that_asks_again_is_ignored(primary: Node, replicas: NewReplica) -> None:
    replica = replicas()
    replica.attach()
    for request in (("PSYNC", "?", "-1"), ("SYNC",), ("REPLCONF", "GETACK", "*")):
        replica.send(*request)
    primary.must("SET", "k", "v")
    assert replica.read_commands() == [(b"SELECT", b"0"), (b"SET", b"k", b"v")]


@pytest.mark.parametrize("said", [10**15, 2**63 - 1, -1, 2**63, "x"], ids=str)
def test_a_replica_that_lies_about_its_offset(primary: Node, replicas: NewReplica, said: int | str) -> None:
    """What it says is shown, or ignored when it is no number or goes back; the server goes on."""
    replica, honest = replicas(), replicas()
    replica.attach()
    honest.attach()
    replica.send("REPLCONF", "ACK", said)
    primary.must("SET", "k", "v")
    assert replica.read_commands() == honest.read_commands() == [(b"SELECT", b"0"), (b"SET", b"k", b"v")]
    honest.ack()
    wait_until(lambda: honest.fields["offset"] == str(honest.offset), "the acknowledgement")
    assert primary.must("WAIT", "1", "0").value >= 1
    assert primary.info()["connected_slaves"] == "2"


@pytest.mark.parametrize("seed", range(3))
def test_replicas_that_send_garbage(primary: Node, replicas: NewReplica, seed: int) -> None:
    chance = random.Random(seed)
    honest = replicas()
    honest.attach()
    for _ in range(20):
        with RawReplica(primary) as replica:
            if chance.random() < 0.5:
                replica.introduce("eof", "psync2")
                replica.send("PSYNC", honest.replid, honest.offset + 1)
            junk = chance.choice(
                [chance.randbytes(chance.randrange(1, 300)), b"*1\r\n$-5\r\n", b"*3\r\n$8\r\nREPLCONF\r\n", b"\r\n\n\n"]
            )
            replica.send_bytes(junk)
    primary.must("SET", "k", "v")
    assert honest.read_commands() == [(b"SELECT", b"0"), (b"SET", b"k", b"v")]
    wait_until(lambda: primary.info()["connected_slaves"] == "1", "only one replica")


def test_newlines_of_replicas_are_ignored(primary: Node, replicas: NewReplica) -> None:
    """A replica that loads sends them."""
    replica = replicas()
    replica.introduce("eof", "psync2")
    answer = replica.psync()
    replica.send_bytes(b"\n\n")
    replica.read_full_sync(answer)
    replica.send_bytes(b"\n")
    replica.come_online()
    primary.must("SET", "k", "v")
    assert replica.read_commands() == [(b"SELECT", b"0"), (b"SET", b"k", b"v")]


def test_a_replica_that_does_not_read_is_dropped(new_node: NewNode) -> None:
    node = new_node(
        "streamd", **SMALL_BACKLOG, client_output_buffer_limit="replica 1mb 0 0"
    )  # what it may be behind is at least the backlog
    with RawReplica(node) as stalled, RawReplica(node) as reading:
        stalled.attach()
        reading.attach()
        value = "x" * 100_000
        written = 0
        while node.info()["connected_slaves"] == "2":
            node.must("SET", "k", value)
            written += 1
            reading.is_closed()
            reading.offset += len(reading.buffer)
            reading.buffer.clear()
            assert written < 3000, "300 MB are waiting for a replica that does not read"
        assert stalled.state is None
        assert reading.state == "online"
        assert int(node.info("clients")["connected_clients"]) >= 1


def test_a_replica_that_is_silent_is_dropped(new_node: NewNode) -> None:
    """All but those who used SYNC, which do not acknowledge."""
    node = new_node("streamd")
    with RawReplica(node) as silent, RawReplica(node) as speaking, RawReplica(node) as old:
        old.introduce()
        old.send_bytes(b"SYNC\r\n")
        old.read_full_sync()
        silent.attach()
        speaking.attach()
        node.must("CONFIG", "SET", "repl-timeout", "8")

        def is_dropped() -> bool:
            speaking.ack()
            return silent.state is None

        wait_until(is_dropped, "the silent replica dropped")
        assert speaking.state == "online"
        assert old.state == "online"
        wait_until(silent.is_closed, "the end of its connection")


def test_replicas_are_pinged(new_node: NewNode) -> None:
    node = new_node("streamd", repl_ping_replica_period="1")
    with RawReplica(node) as replica:
        replica.attach()
        ping = b"*1\r\n$4\r\nping\r\n"
        wait_until(lambda: node.offset > replica.offset, "a ping")
        commands = replica.read_commands(pings=True)
        assert commands[0] in ((b"SELECT", b"0"), (b"ping",))
        assert encode_request(commands[-1]) == ping


def test_writes_need_enough_good_replicas(new_node: NewNode) -> None:
    node = new_node("streamd", min_replicas_to_write="1", min_replicas_max_lag="3600")
    refusal = Reply("-", b"NOREPLICAS Not enough good replicas to write.")
    assert node.info()["min_slaves_good_slaves"] == "0"
    assert node.call("SET", "k", "v") == refusal
    with node.connect() as wire:
        replies = wire.pipeline([("MULTI",), ("SET", "k", "v"), ("EXEC",)])
        assert replies[1] == refusal
        assert replies[2].value.startswith(b"EXECABORT")
    assert node.must("GET", "k").value is None
    assert not node.call("PUBLISH", "c", "m").is_error
    with RawReplica(node) as replica:
        replica.attach()
        wait_until(lambda: node.info()["min_slaves_good_slaves"] == "1", "a good replica")
        node.must("SET", "k", "v")
        node.line("XGROUP CREATE s g $ MKSTREAM")
        node.must("CONFIG", "SET", "min-replicas-max-lag", "2")
        wait_until(lambda: node.info()["min_slaves_good_slaves"] == "0", "a lagging replica")
        assert node.call("SET", "k", "w") == refusal
        assert node.call("XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">") == refusal

        def is_open() -> bool:
            replica.ack()
            return not node.call("SET", "k", "w").is_error

        wait_until(is_open, "writes again")
        node.must("CONFIG", "SET", "min-replicas-max-lag", "0")
        assert "min_slaves_good_slaves" not in node.info()
        node.must("SET", "k", "w")


def test_many_replicas_come_and_go_and_their_memory_comes_back(new_node: NewNode) -> None:
    node = new_node("streamd", repl_diskless_sync_delay="1")
    for number in range(100):
        node.must("SET", f"filler:{number}", "x" * 1000)

    def hundred_come() -> None:
        with ExitStack() as stack:
            together = [stack.enter_context(RawReplica(node)) for _ in range(100)]
            for replica in together:
                replica.introduce("eof", "psync2")
                replica.send("PSYNC", "?", "-1")
            for replica in together:
                assert len(loaded(replica.read_full_sync(replica.read_line()))[0]) == 100
            wait_until(lambda: all_online(together), "all online")
            for number in range(100):
                node.must("SET", f"filler:{number}", "y" * 1000)
            streams = [replica.read_commands() for replica in together[::25]]
            assert len(streams[0]) == 101
            assert all(stream == streams[0] for stream in streams)
        wait_until(lambda: node.info()["connected_slaves"] == "0", "no replicas")

    def all_online(together: list[RawReplica]) -> bool:
        for replica in together:
            replica.ack()
        info = node.info()
        return sum("state=online" in value for value in info.values()) == 100

    hundred_come()
    node.must("FLUSHALL", "SYNC")
    before = memory_of(node)
    for number in range(100):
        node.must("SET", f"filler:{number}", "x" * 1000)
    hundred_come()
    node.must("FLUSHALL", "SYNC")
    assert memory_of(node) - before < 1 << 20
    assert node.info("memory")["mem_clients_slaves"] == "0"


def memory_of(node: Node) -> int:
    return int(node.info("memory")["used_memory"])


# --- redis-cli ------------------------------------------------------------------------------------------------------


def cli(node: Node, *arguments: str) -> list[str]:
    oracle = find_oracle()
    assert oracle is not None
    return [oracle.cli, "-p", str(node.port), *arguments]


@pytest.mark.real
def test_redis_cli_takes_a_snapshot(primary: Node, tmp_path: Path) -> None:
    primary.must("SET", "k", "v")
    primary.line("XADD s 1-1 f v")
    path = tmp_path / "taken.rdb"
    done = subprocess.run(cli(primary, "--rdb", str(path)), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done
    assert sorted(load(path.read_bytes())[0].keys()) == [b"k", b"s"]
    wait_until(lambda: primary.info()["connected_slaves"] == "0", "the replica gone")


@pytest.mark.real
def test_redis_cli_takes_the_functions(primary: Node, tmp_path: Path) -> None:
    primary.must("SET", "k", "v")
    path = tmp_path / "taken.rdb"
    command = cli(primary, "--functions-rdb", str(path))
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done
    assert len(load(path.read_bytes())[0]) == 0


@pytest.mark.real
def test_redis_cli_shows_the_stream(primary: Node) -> None:
    primary.must("SET", "k", "v")
    with subprocess.Popen(cli(primary, "--replica"), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            wait_until(lambda: primary.info()["connected_slaves"] == "1", "the replica")
            wait_until(lambda: "state=online" in primary.info().get("slave0", ""), "the replica online")
            primary.must("SET", "shown", "there")
            assert process.stdout is not None
            while b"shown" not in (line := process.stdout.readline()):
                assert line, process.stderr
            assert line.strip() == b'"SET","shown","there"'
        finally:
            process.kill()


# --- A link with a proxy --------------------------------------------------------------------------------------------


def test_a_replica_behind_a_slow_link_gets_everything(primary: Node, new_node: NewNode) -> None:
    replica = new_node("streamd")
    with Proxy(primary.port) as proxy:
        proxy.delay_s = 0.02
        for number in range(100):
            primary.must("SET", f"key:{number}", "x" * 1000)
        replica.follow(proxy)
        for number in range(100):
            primary.must("INCR", f"n:{number % 7}")
        assert len(assert_same_state(primary, replica)) == 107
        replica.follow(None)


def test_a_replica_that_leaves_while_it_is_sent_a_file(new_node: NewNode) -> None:
    primary = new_node("streamd", repl_diskless_sync="no", rdbcompression="no")
    primary.must("SET", "k", b"v" * (32 << 20))
    for _ in range(3):
        with RawReplica(primary) as replica:
            replica.introduce("psync2")
            assert replica.psync().startswith(b"+FULLRESYNC")
            assert replica.read_line().startswith(b"$")
            replica.read_exactly(100_000)
            replica.socket.setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )  # RST: writing fails
        wait_until(lambda: primary.info()["connected_slaves"] == "0", "the replica gone")
    assert "Traceback" not in primary.log()
    with RawReplica(primary) as replica:
        assert len(replica.attach("psync2").payload) > 32 << 20


# --- Memory of the stream --------------------------------------------------------------------------------------------


def memory(node: Node) -> dict[str, int]:
    fields = ("used_memory", "mem_not_counted_for_evict", "mem_total_replication_buffers")
    info = node.info("memory")
    return {field: int(info[field]) for field in fields}


@pytest.mark.real
@pytest.mark.parametrize("kind", ["streamd", "redis"])
@pytest.mark.parametrize("policy", ["allkeys-lru", "noeviction"])
def test_what_is_kept_for_a_slow_replica_costs_no_key(new_node: NewNode, kind: str, policy: str) -> None:
    primary = new_node(kind, repl_timeout="3600", client_output_buffer_limit="replica 0 0 0")
    for i in range(100):
        primary.must("SET", f"k{i}", b"x" * 10_000)
    with RawReplica(primary) as replica:
        replica.attach()
        primary.must("PUBLISH", "c", b"z" * (2 << 20))  # the backlog is full
        replica.read_commands()
        limit = memory(primary)["used_memory"] + (2 << 20)
        primary.must("CONFIG", "SET", "maxmemory-policy", policy, "maxmemory", limit)
        for _ in range(200):
            primary.must("PUBLISH", "c", b"z" * 100_000)
        assert memory(primary)["mem_not_counted_for_evict"] > 8 << 20
        primary.must("SET", "k0", b"y")
        assert primary.must("DBSIZE").value == 100
        replica.read_commands()
        wait_until(lambda: memory(primary)["mem_not_counted_for_evict"] < 1 << 20, "what the replica has read dropped")


@pytest.mark.parametrize("unit", ["a value", "a transaction"])
def test_a_large_unit_is_kept_no_longer_than_the_backlog_needs_it(new_node: NewNode, unit: str) -> None:
    primary = new_node("streamd", repl_ping_replica_period="3600")
    with RawReplica(primary) as replica:
        replica.attach()
        with primary.connect() as wire:
            if unit == "a value":
                wire.call("SET", "k", b"x" * (20 << 20))
            else:
                wire.pipeline([("MULTI",), *[("SET", "k", b"x" * 100_000)] * 200, ("EXEC",)])
        replica.read_commands()
        wait_until(lambda: memory(primary)["mem_total_replication_buffers"] < 3 << 20, "the stream cut to the backlog")
        assert int(primary.info()["repl_backlog_histlen"]) >= 1 << 20


@pytest.mark.real
@pytest.mark.parametrize("kind", ["streamd", "redis"])
def test_a_replica_may_lag_as_far_as_the_backlog_goes(new_node: NewNode, kind: str) -> None:
    primary = new_node(
        kind, repl_backlog_size="64mb", client_output_buffer_limit="replica 1mb 0 0", repl_timeout="3600",
        repl_ping_replica_period="3600",
    )  # fmt: skip
    with RawReplica(primary) as replica:
        replica.attach()
        for _ in range(300):
            primary.must("PUBLISH", "c", b"z" * 100_000)
        assert len(replica.read_commands()) == 301  # and a SELECT
        start, replid = replica.offset, replica.replid
        replica.close()
    for _ in range(300):
        primary.must("PUBLISH", "c", b"z" * 100_000)
    with RawReplica(primary) as replica:
        replica.resume(replid, start)
        assert len(replica.read_commands()) == 300


@pytest.mark.real
@pytest.mark.parametrize("kind", ["streamd", "redis"])
def test_a_snapshot_on_disk_is_shared_by_a_replica_that_comes_later(new_node: NewNode, kind: str) -> None:
    primary = new_node(
        kind, repl_diskless_sync="no", repl_ping_replica_period="3600", rdb_key_save_delay="20000", save=""
    )
    for i in range(50):
        primary.must("SET", f"k{i}", "1")
    with RawReplica(primary) as first, RawReplica(primary) as second:
        syncs = []
        for replica in (first, second):
            replica.introduce("eof", "psync2")
            syncs.append(replica.psync())
            primary.must("PUBLISH", "c", "between")
        first.read_full_sync(syncs[0])
        second.read_full_sync(syncs[1])
        assert second.replid == first.replid
        for replica in (first, second):
            replica.come_online()
        assert second.read_commands()[-1] == first.read_commands()[-1] == (b"PUBLISH", b"c", b"between")
        assert primary.info("stats")["sync_full"] == "2"


@pytest.mark.real
@pytest.mark.parametrize("kind", ["streamd", "redis"])
@pytest.mark.parametrize("how", ["snapshot", "append-only file"])
def test_keys_that_expired_while_a_primary_was_down_go_from_replicas(new_node: NewNode, kind: str, how: str) -> None:
    settings = {"save": "3600 1"} if how == "snapshot" else {"appendonly": "yes", "save": ""}
    primary = new_node(kind, repl_ping_replica_period="3600", **settings)
    replica = new_node(kind)
    replica.follow(primary)
    wait_in_sync(primary, replica)
    for i in range(20):
        primary.must("SET", f"k{i}", "1", "PX", 800 if i else 1_000_000)
    wait_in_sync(primary, replica)
    primary.stop()
    wait_until(lambda: all(replica.must("PTTL", f"k{i}").value < 0 for i in range(1, 20)), "the keys expired")
    primary.start()
    wait_in_sync(primary, replica)
    wait_until(lambda: (primary.must("DBSIZE").value, replica.must("DBSIZE").value) == (1, 1), "the keys gone")
    if how == "snapshot":
        assert primary.info("stats")["sync_partial_ok"] == "1"
