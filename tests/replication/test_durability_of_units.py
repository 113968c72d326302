"""min-replicas-durable goes by the commands that a unit has run, whoever ran them: scripts, functions, transactions.

Each `Way` is a unit that writes, or sees a write that no replica has confirmed. Its reply must wait for the confirmation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from support.replicas.durable import LOSS_FREE, UNKNOWN, DurableReplica, attached, wait_held
from support.replicas.nodes import Node, wait_until
from support.wire import Reply, Wire, encode_request

pytestmark = pytest.mark.long

NewNode = Callable[..., Node]

LIBRARY = """#!lua name=lib
redis.register_function('add', function(keys, args) return redis.call('XADD', keys[1], '*', 'f', args[1]) end)
redis.register_function{function_name='see', callback=function(keys) return redis.call('GET', keys[1]) end,
                        flags={'no-writes'}}
redis.register_function{function_name='one', callback=function() return 1 end, flags={'no-writes'}}
"""
OTHER_LIBRARY = "#!lua name=other\nredis.register_function('two', function() return 2 end)"
ADD = "return redis.call('XADD', KEYS[1], '*', 'f', 'v')"
SEE = "return redis.call('GET', KEYS[1])"


@dataclass(frozen=True)
class Way:
    """A way to a reply that acknowledges something.

    unit      the requests, the last of which has that reply
    unseen    a write that another client makes first, and that is not confirmed either; empty: none
    at_once   replies to `unit` that leave at once
    """

    name: str
    unit: tuple[tuple[str, ...], ...]
    unseen: tuple[str, ...] = ()
    at_once: int = 0


def one(name: str, *words: str, unseen: str = "") -> Way:
    """A unit of one request."""
    return Way(name, (words,), tuple(unseen.split()))


def transaction(name: str, *requests: tuple[str, ...], unseen: str = "") -> Way:
    return Way(name, (("MULTI",), *requests, ("EXEC",)), tuple(unseen.split()), at_once=1 + len(requests))


WRITES = (
    one("a script", "EVAL", ADD, "1", "s"),
    one("a script that declares its flags", "EVAL", f"#!lua\n{ADD}", "1", "s"),
    one("a script that fails after it has written", "EVAL", f"{ADD.removeprefix('return ')}\nreturn nope", "1", "s"),
    one("a script that catches an error", "EVAL", f"{ADD}, redis.pcall('GET', KEYS[1])", "1", "s"),
    one("a script that returns nothing", "EVAL", ADD.removeprefix("return "), "1", "s"),
    one("a function", "FCALL", "add", "1", "s", "v"),
    transaction("a script in a transaction", ("EVAL", ADD, "1", "s")),
    transaction("a function behind others in a transaction", ("PING",), ("FCALL", "add", "1", "s", "v"), ("PING",)),
    one("a library that is loaded", "FUNCTION", "LOAD", "REPLACE", OTHER_LIBRARY),
)
READS = (
    one("a script that reads", "EVAL", SEE, "1", "k", unseen="SET k v"),
    one("a script that declares that it reads", "EVAL", f"#!lua flags=no-writes\n{SEE}", "1", "k", unseen="SET k v"),
    one("a script that may only read", "EVAL_RO", SEE, "1", "k", unseen="SET k v"),
    one("a function that reads", "FCALL", "see", "1", "k", unseen="SET k v"),
    one("a function that may only read", "FCALL_RO", "see", "1", "k", unseen="SET k v"),
    one("a script that counts the keys", "EVAL", "return redis.call('DBSIZE')", "0", unseen="SET k v"),
    transaction("a script that reads in a transaction", ("EVAL", SEE, "1", "k"), unseen="SET k v"),
    transaction("a function that reads in a transaction", ("FCALL_RO", "see", "1", "k"), unseen="SET k v"),
    one("a function that is there", "FCALL", "one", "0", unseen="SET k v"),
    one("the list of libraries", "FUNCTION", "LIST", unseen="FUNCTION DELETE lib"),
    one("the dump of libraries", "FUNCTION", "DUMP", unseen="FUNCTION DELETE lib"),
    Way(
        "a transaction that a write has aborted",
        (("WATCH", "k"), ("MULTI",), ("PING",), ("EXEC",)),
        unseen=("SET", "k", "v"),
        at_once=3,
    ),
)


@pytest.fixture(scope="module")
def shared(new_shared_node: NewNode) -> Node:
    settings = {"min_replicas_durable_timeout": "3600000", "enable_debug_command": "yes"}
    return new_shared_node("streamd", **LOSS_FREE, **settings, repl_ping_replica_period="3600")


@pytest.fixture(scope="module")
def shared_replica(shared: Node) -> Iterator[DurableReplica]:
    with attached(shared) as replica:
        yield replica


@pytest.fixture
def replica(shared_replica: DurableReplica) -> DurableReplica:
    """A replica of a primary without data, which it has confirmed."""
    primary = shared_replica.node
    with primary.connect() as wire:
        for request in (("FLUSHALL",), ("FUNCTION", "LOAD", "REPLACE", LIBRARY)):
            wire.send(*request)
            assert not settled(shared_replica, wire).is_error
    return shared_replica


@pytest.fixture
def primary(replica: DurableReplica) -> Node:
    return replica.node


def wait_blocked(primary: Node) -> None:
    wait_until(lambda: primary.info("clients")["blocked_clients"] == "1", "a client that waits")


def settled(replica: DurableReplica, wire: Wire) -> Reply:
    """Confirm everything until the next reply arrives."""

    def has_reply() -> bool:
        replica.confirm()
        return wire.has_input()

    wait_until(has_reply, "a reply that has left")
    return wire.read()


@pytest.mark.parametrize("way", [*WRITES, *READS], ids=lambda way: way.name)
def test_a_reply_waits_for_what_its_unit_did_and_read(primary: Node, replica: DurableReplica, way: Way) -> None:
    with primary.connect() as wire, primary.connect() as other:
        *before, last = way.unit
        wire.send_bytes(b"".join(map(encode_request, before)))
        for _ in range(way.at_once):
            assert not wire.read().is_error
        if way.unseen:
            other.send(*way.unseen)
            wait_held(primary, 1)
        wire.send(*last)
        wait_held(primary, 1 + bool(way.unseen))
        assert not wire.has_input()
        assert settled(replica, wire).value != UNKNOWN


@pytest.mark.parametrize("resp", [2, 3])
@pytest.mark.parametrize(
    "add", [("XADD", "s", "1-1", "f", "v"), ("EVAL", ADD, "1", "s"), ("FCALL", "add", "1", "s", "v")]
)
@pytest.mark.parametrize("read", [("XREAD",), ("XREADGROUP", "GROUP", "g", "c")])
def test_a_reader_that_waited_gets_no_entry_that_is_not_confirmed(
    primary: Node, replica: DurableReplica, read: tuple[str, ...], add: tuple[str, ...], resp: int
) -> None:
    with primary.connect(resp) as reader, primary.connect() as writer:
        writer.send("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
        settled(replica, writer)
        reader.send(*read, "BLOCK", "0", "STREAMS", "s", "$" if read == ("XREAD",) else ">")
        wait_blocked(primary)
        writer.send(*add)
        wait_held(primary, 2)
        assert not reader.has_input()
        assert b"v" in repr(settled(replica, reader)).encode()


def test_readers_of_a_long_entry_get_it_when_it_is_confirmed(primary: Node, replica: DurableReplica) -> None:
    """Their replies are equal, and long enough to be shared: they are held all the same."""
    value = "v" * 10_000
    with primary.connect() as first, primary.connect() as second, primary.connect() as writer:
        writer.send("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
        settled(replica, writer)
        for reader in (first, second):
            reader.send("XREAD", "BLOCK", "0", "STREAMS", "s", "$")
        wait_until(lambda: primary.info("clients")["blocked_clients"] == "2", "clients that wait")
        writer.send("XADD", "s", "1-1", "f", value)
        wait_held(primary, 3)
        assert not first.has_input()
        assert not second.has_input()
        assert settled(replica, first) == second.read()
        assert settled(replica, writer).value == b"1-1"


@pytest.mark.parametrize("end", ["its time", "CLIENT UNBLOCK"])
def test_a_reader_that_waited_in_vain_does_not_report_a_deletion(
    primary: Node, replica: DurableReplica, end: str
) -> None:
    """Its empty reply is true only if the XDEL stays."""
    with primary.connect() as reader, primary.connect() as writer:
        identity = reader.client_id()
        writer.send_bytes(b"MULTI\r\nXADD s 1-1 f v\r\nXDEL s 1-1\r\nEXEC\r\n")
        wait_held(primary, 1)
        reader.send("XREAD", "BLOCK", "1" if end == "its time" else "0", "STREAMS", "s", "0")
        if end == "CLIENT UNBLOCK":
            wait_blocked(primary)
            primary.must("CLIENT", "UNBLOCK", identity)
        wait_held(primary, 2)
        assert not reader.has_input()
        assert settled(replica, reader).value is None


@pytest.mark.parametrize("cause", ["expired", "evicted"])
def test_reads_wait_for_what_nobody_asked_for(primary: Node, replica: DurableReplica, cause: str) -> None:
    """A script that misses a key has seen that it was deleted."""
    primary.must("DEBUG", "SET-ACTIVE-EXPIRE", "0")
    with primary.connect() as wire:
        wire.send("SET", "k", "v", *(("PX", "1") if cause == "expired" else ()))
        assert settled(replica, wire).value == b"OK"
        if cause == "expired":
            since = server_time(primary)
            wait_until(lambda: server_time(primary) > since + 0.001, "its time")
        else:
            primary.must("CONFIG", "SET", "maxmemory-policy", "allkeys-lru", "maxmemory", "1")
            primary.call("ECHO", "anything")
            primary.must("CONFIG", "SET", "maxmemory", "0")
        wire.send("EVAL", "return redis.call('EXISTS', 'k')", "0")
        wait_held(primary, 1)
        assert not wire.has_input()
        assert settled(replica, wire).value == 0


def test_a_script_that_is_interrupted_is_held_by_all_that_it_did(primary: Node, replica: DurableReplica) -> None:
    spin = "local since = os.clock(); while os.clock() - since < 0.1 do end"
    primary.must("CONFIG", "SET", "busy-reply-threshold", "1")
    with primary.connect() as wire:
        wire.send("EVAL", f"local id = redis.call('XADD', KEYS[1], '*', 'f', 'v'); {spin}; return id", "1", "s")
        wait_until(lambda: "Slow script" in primary.log() and not primary.call("INFO").is_error, "its end")
        wait_held(primary, 1)
        assert not wire.has_input()
        assert not settled(replica, wire).is_error
    primary.must("CONFIG", "SET", "busy-reply-threshold", "5000")


@pytest.fixture(scope="module")
def fenced(new_shared_node: NewNode) -> Node:
    return new_shared_node("streamd", **LOSS_FREE)


@pytest.mark.parametrize(
    "way", [way for way in (*WRITES, *READS) if way.unit[0][0] != "WATCH"], ids=lambda way: way.name
)
def test_no_unit_uses_data_behind_the_fence(fenced: Node, way: Way) -> None:
    with fenced.connect() as wire:
        assert "Not enough good replicas to write." in repr(wire.pipeline(way.unit))
        assert fenced.info("keyspace") == {}
        assert fenced.info("memory")["number_of_libraries"] == "0"


def test_a_script_without_data_runs_behind_the_fence(fenced: Node) -> None:
    assert fenced.must("EVAL", "return redis.call('PING')", "0").value == b"PONG"


def test_a_reader_that_waits_claims_nothing_behind_the_fence(primary: Node, replica: DurableReplica) -> None:
    with primary.connect() as wire, primary.connect() as reader:
        for request in ("XGROUP CREATE s g 0 MKSTREAM", "XADD s 1-1 f v", "XREADGROUP GROUP g c STREAMS s >"):
            wire.send(*request.split())
            assert not settled(replica, wire).is_error
        since = server_time(primary)
        reader.send("XREADGROUP", "GROUP", "g", "d", "BLOCK", 0, "CLAIM", 3000, "STREAMS", "s", ">")
        wait_blocked(primary)
        primary.must("CONFIG", "SET", "min-replicas-durable-timeout", "1")
        assert wire.call("SET", "k", "v").value == UNKNOWN
        primary.must("CONFIG", "SET", "min-replicas-durable-timeout", "3600000")
        wait_until(lambda: server_time(primary) > since + 3.1, "an entry that may be claimed")
        assert primary.info()["durable_fenced"] == "1"
        assert primary.info("clients")["blocked_clients"] == "1"
        assert b"1-1" in repr(settled(replica, reader)).encode()


def server_time(node: Node) -> float:
    seconds, microseconds = (int(each) for each in node.must("TIME").plain())
    return seconds + microseconds / 1e6


def test_a_server_that_is_stopped_acknowledges_nothing_more(new_node: NewNode) -> None:
    primary = new_node("streamd", **LOSS_FREE, min_replicas_durable_timeout="3600000", shutdown_timeout="0")
    with attached(primary), primary.connect() as wire:
        wire.send("SET", "k", "v")
        wait_held(primary, 1)
        primary.process.terminate()
        assert wire.read().value == UNKNOWN
    wait_until(lambda: not primary.is_running, "its end")


@pytest.mark.parametrize("way", WRITES[-4:], ids=lambda way: way.name)
def test_what_was_answered_is_on_the_promoted_replica(new_node: NewNode, way: Way) -> None:
    primary, replica = (new_node("streamd", **LOSS_FREE, min_replicas_durable_timeout="3600000") for _ in range(2))
    replica.follow(primary)
    wait_until(lambda: primary.info()["durable_fenced"] == "0", "the end of the fence")
    with primary.connect() as wire:
        if "FCALL" in repr(way.unit):
            assert not wire.call("FUNCTION", "LOAD", LIBRARY).is_error
        for reply in wire.pipeline(way.unit):
            assert not reply.is_error or way.name == "a script that fails after it has written"
        before = primary.offset
        replica.freeze()
        wire.send_bytes(b"".join(map(encode_request, way.unit)))
        wait_until(lambda: primary.offset > before, "the second write")
        primary.kill()
        assert wire.read_to_end().count(b"\r\n") == way.at_once
    replica.kill()
    replica.start()
    replica.must("REPLICAOF", "NO", "ONE")
    replica.must("CONFIG", "SET", "min-replicas-durable", "0")
    assert replica.must("XLEN", "s").value == 1 or "other" in repr(replica.must("FUNCTION", "LIST"))
