"""streamd as a replica of a real Redis: synchronization, the stream, roles, and what clients see of it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.certificates import OPENSSL, Certificates, make_certificates
from support.compare.effect_stories import GENERIC_STORIES, STREAM_STORIES, UNIT_STORIES
from support.replicas.nodes import Node, Proxy, assert_same_state, wait_in_sync, wait_until
from support.servers import free_port
from support.wire import ConnectionClosed, Reply

pytestmark = [pytest.mark.long, pytest.mark.real]

NewNode = Callable[..., Node]


@pytest.fixture(params=["redis", "redis-7.0"])
def primary(request: pytest.FixtureRequest, new_node: NewNode) -> Node:
    return new_node(request.param)


@pytest.fixture
def redis(new_node: NewNode) -> Node:
    return new_node("redis")


@pytest.fixture
def replica(new_node: NewNode) -> Node:
    return new_node("streamd")


@pytest.fixture
def pair(redis: Node, replica: Node) -> tuple[Node, Node]:
    """A real primary with some data that sends no pings, which would raise its offset, and a replica in sync with it."""
    redis.must("CONFIG", "SET", "repl-ping-replica-period", "3600")
    redis.line("XADD s 1-1 f v")
    redis.line("SET string value")
    follow(replica, redis)
    return redis, replica


def follow(replica: Node, primary: Node | Proxy, through: Node | None = None) -> None:
    replica.follow(primary)
    target = through or primary
    assert isinstance(target, Node)
    wait_in_sync(target, replica)


@contextmanager
def cut(proxy: Proxy, replica: Node, count: int) -> Iterator[None]:
    """Cut the link, once, behind so many bytes of what follows; then it can be made again, and is at once."""
    before = proxy.cuts
    proxy.cut_after(count)
    yield
    wait_until(lambda: proxy.cuts > before, "the cut")
    proxy.refuse = False
    replica.must("CONFIG", "SET", "masteruser", "")  # after any setting of the link it is tried anew, without a wait


def fill(node: Node) -> None:
    """Every sort of data that both have, in two databases."""
    with node.connect() as wire:
        for database in (0, 9):
            wire.call("SELECT", database)
            for at in range(300):
                wire.call("XADD", f"s{at % 7}", f"{at + 1}-{at}", "field", f"value {at}", "n", at)
            wire.call("XGROUP", "CREATE", "s0", "g", "0")
            wire.call("XREADGROUP", "GROUP", "g", "c", "COUNT", "5", "STREAMS", "s0", ">")
            wire.call("SET", "string", "text" * 1000)
            wire.call("SET", "number", "12345", "PX", "10000000")


# --- Synchronization --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["disabled", "swapdb", "on-empty-db", "flushdb"])
@pytest.mark.parametrize("sent", ["mark", "length"])
def test_a_full_resync_brings_all_data(primary: Node, replica: Node, mode: str, sent: str) -> None:
    fill(primary)
    primary.must("CONFIG", "SET", "repl-diskless-sync", "yes" if sent == "mark" else "no")
    replica.must("CONFIG", "SET", "repl-diskless-load", mode)
    replica.line("SET own data")
    follow(replica, primary)
    state = assert_same_state(primary, replica)
    assert (0, b"own") not in state
    assert (9, b"s3") in state


def test_the_rdb_channel_can_be_switched_off(redis: Node, replica: Node) -> None:
    fill(redis)
    replica.must("CONFIG", "SET", "repl-rdb-channel", "no")
    follow(replica, redis)
    assert_same_state(redis, replica)
    assert "RDB channel" not in replica.log()


def test_the_stream_goes_on_behind_the_snapshot(redis: Node, replica: Node) -> None:
    redis.must("CONFIG", "SET", "rdb-key-save-delay", "20000")
    for at in range(200):
        redis.must("SET", f"key {at}", at)
    replica.follow(redis)
    wait_until(lambda: replica.info()["master_sync_in_progress"] == "1", "a synchronization")
    for at in range(200):
        redis.must("XADD", "s", "*", "during", at)
    assert_same_state(redis, replica)


Trio = tuple[Node, Node, Node]


@pytest.fixture(scope="module")
def trio(new_shared_node: NewNode) -> Trio:
    """A real primary with two replicas: a real one, and streamd."""
    redis = new_shared_node("redis", repl_ping_replica_period="3600")
    theirs, ours = new_shared_node("redis"), new_shared_node("streamd")
    for replica in (theirs, ours):
        follow(replica, redis)
    return redis, theirs, ours


STORIES = {**GENERIC_STORIES, **STREAM_STORIES, **UNIT_STORIES}


@pytest.mark.parametrize("name", sorted(STORIES))
def test_effects_have_the_result_that_they_have_on_a_real_replica(trio: Trio, name: str) -> None:
    redis, theirs, ours = trio
    marks = [node.log_mark() for node in (theirs, ours)]
    redis.line("FLUSHALL")
    with redis.connect() as wire:
        for line in STORIES[name].strip().splitlines():
            if line.strip():
                wire.call(*line.split())
    wait_in_sync(redis, ours)
    assert_same_state(theirs, ours)
    their_errors, our_errors = (
        re.findall("== CRITICAL == .*?'$", node.log_since(mark), re.MULTILINE)
        for node, mark in zip((theirs, ours), marks, strict=True)
    )
    assert our_errors == their_errors


def test_a_link_that_was_cut_continues_where_it_was(redis: Node, replica: Node) -> None:
    with Proxy(redis.port) as proxy:
        redis.line("XADD s 1-1 f v")
        follow(replica, proxy, redis)
        for at in range(20):
            with cut(proxy, replica, at * 7):
                for _ in range(10):
                    redis.must("XADD", "s", "*", "field", "x" * at)
                redis.must("MULTI")
                redis.must("SET", "a", at)
                redis.must("XADD", "s", "*", "in", "multi")
                redis.must("EXEC")
        assert_same_state(redis, replica)
    assert redis.info("stats")["sync_full"] == "1"
    assert int(redis.info("stats")["sync_partial_ok"]) >= 1


def test_a_transaction_is_applied_as_a_whole_or_not_at_all(redis: Node, replica: Node) -> None:
    with Proxy(redis.port) as proxy:
        redis.line("MSET a 0 b 0")
        follow(replica, proxy, redis)
        with cut(proxy, replica, 70):
            redis.must("MULTI")
            redis.line("INCR a")
            redis.line("INCR b")
            redis.must("EXEC")
        seen = set()
        wait_until(
            lambda: seen.add(tuple(replica.must("MGET", "a", "b").plain())) or (b"1", b"1") in seen, "both changes"
        )
        assert seen <= {(b"0", b"0"), (b"1", b"1")}
    assert redis.info("stats")["sync_full"] == "1"


def test_a_replica_that_is_started_again_continues(new_node: NewNode, redis: Node) -> None:
    replica = new_node("streamd", save="3600 1", replicaof=f"127.0.0.1 {redis.port}")
    redis.must("SELECT", 9)
    redis.line("XADD s 1-1 f v")
    wait_in_sync(redis, replica)
    replica.stop()
    redis.line("XADD s 2-1 f v")
    replica.start()
    assert_same_state(redis, replica)
    assert redis.info("stats")["sync_full"] == "1"


def test_a_replica_of_the_same_history_is_continued_by_a_primary_that_was_a_replica(
    new_node: NewNode, pair: tuple[Node, Node]
) -> None:
    redis, replica = pair
    other = new_node("streamd")
    follow(other, redis)
    replica.follow(None)
    offset = redis.offset
    assert replica.info()["master_replid2"] == redis.info()["master_replid"]
    assert int(replica.info()["second_repl_offset"]) == offset + 1
    other.follow(replica)
    replica.line("XADD s 5-1 f v")
    assert_same_state(replica, other)
    assert replica.info("stats")["sync_full"] == "0"


def test_a_promoted_redis_is_followed_without_a_full_resync(new_node: NewNode, pair: tuple[Node, Node]) -> None:
    redis, replica = pair
    other = new_node("redis")
    other.follow(redis)
    wait_in_sync(redis, other)
    other.follow(None)
    old = redis.info()["master_replid"]
    follow(replica, other)
    assert other.info("stats")["sync_full"] == "0"
    assert replica.info()["master_replid2"] == old
    other.line("XADD s 9-1 f v")
    assert_same_state(other, replica)


def test_the_file_of_a_full_resync_becomes_the_snapshot(pair: tuple[Node, Node]) -> None:
    _, replica = pair
    assert sorted(path.name for path in replica.folder.glob("*.rdb")) == ["dump.rdb"]


# --- What cannot be synchronized ---------------------------------------------------------------------------------------


def test_a_snapshot_with_other_types_costs_no_data_and_is_explained_once(redis: Node, replica: Node) -> None:
    redis.line("VADD vectors:1 VALUES 3 1 2 3 v")
    replica.line("SET own data")
    for mode in ("disabled", "swapdb"):
        replica.must("CONFIG", "SET", "repl-diskless-load", mode)
        replica.follow(None)
        mark = replica.log_mark()
        replica.follow(redis)
        wait_until(lambda mark=mark: "'vectors:1'" in replica.log_since(mark), "a line about the key")
        replica.must("CONFIG", "SET", "masteruser", "")
        wait_until(lambda: int(replica.info()["master_total_sync_attempts"]) >= 2, "another attempt")
        assert replica.log_since(mark).count("'vectors:1'") == 1
        assert "is a module value" in replica.log_since(mark)
        assert replica.must("GET", "own").value == b"data"
        assert replica.info()["master_link_status"] == "down"
        assert "vectors:1" in replica.info()["master_link_down_reason"]
    wait_until(lambda: not list(replica.folder.glob("temp-*")), "the removal of the file")
    replica.must("CONFIG", "SET", "rdb-skip-unsupported", "yes")
    redis.line("XADD s 1-1 f v")
    wait_in_sync(redis, replica)
    assert replica.must("KEYS", "*").plain() == [b"s"]


def test_a_command_of_another_type_drops_the_link_unless_such_are_skipped(pair: tuple[Node, Node]) -> None:
    redis, replica = pair
    redis.line("VADD vectors:1 VALUES 3 1 2 3 v")
    redis.line("XADD s 2-1 f v")
    wait_until(lambda: "VADD for key 'vectors:1'" in replica.log(), "a line about the command")
    wait_until(lambda: not replica.has_link(), "the link down")
    assert replica.must("XLEN", "s").value == 1
    replica.must("CONFIG", "SET", "rdb-skip-unsupported", "yes")
    wait_in_sync(redis, replica)
    redis.line("VADD vectors:1 VALUES 3 1 2 3 w")
    redis.line("XADD s 3-1 f v")
    wait_in_sync(redis, replica)
    assert replica.must("XLEN", "s").value == 3
    assert replica.log().count("Skipping the command VADD of the primary") == 1
    assert redis.info("stats")["sync_full"] == "1"


def test_a_wrong_password_is_explained(new_node: NewNode, replica: Node) -> None:
    redis = new_node("redis", requirepass="secret")
    replica.follow(redis)
    wait_until(lambda: "set masterauth" in replica.log(), "a line about the missing password")
    replica.must("CONFIG", "SET", "masterauth", "wrong")
    wait_until(lambda: "Unable to AUTH to MASTER: -WRONGPASS" in replica.log(), "a line about the wrong password")
    replica.must("CONFIG", "SET", "masterauth", "secret")
    wait_until(replica.has_link, "the link")
    assert "secret" not in replica.log()


def test_an_address_without_a_server_is_explained_once(replica: Node) -> None:
    replica.must("REPLICAOF", "127.0.0.1", "1")
    wait_until(lambda: int(replica.info()["master_total_sync_attempts"]) >= 3, "three attempts")
    assert replica.log().count("Connection refused") == 1
    assert replica.must("ROLE").plain() == [b"slave", b"127.0.0.1", 1, b"connect", -1]


def test_a_server_that_follows_itself_is_told_so(replica: Node) -> None:
    replica.follow(replica)
    wait_until(lambda: "is this server itself" in replica.log(), "a line that says so")
    replica.follow(None)
    assert replica.must("SET", "k", "v").value == b"OK"


def test_two_servers_that_follow_each_other_are_told_so(new_node: NewNode, replica: Node) -> None:
    redis = new_node("redis")
    replica.follow(redis)
    redis.follow(replica)
    wait_until(lambda: "the two follow each other" in replica.log(), "a line that says so")


# --- Commands and roles ------------------------------------------------------------------------------------------------


def test_replicaof_has_the_replies_of_redis(redis: Node, replica: Node) -> None:
    for words in (
        "x 99999", "x -1", "x 070", "x abc", "no two", "No One", "127.0.0.1 1", "127.0.0.1 1", "localhost 1",
        "LOCALHOST 1", "NO ONE", "x 0",
    ):  # fmt: skip
        for command in ("REPLICAOF", "SLAVEOF"):
            ours, theirs = (node.call(command, *words.split()) for node in (replica, redis))
            assert ours == theirs, words


def test_blocked_clients_are_closed_when_a_primary_becomes_a_replica(redis: Node, replica: Node) -> None:
    with replica.connect() as wire, replica.connect() as subscriber:
        assert subscriber.call("SUBSCRIBE", "c").kind == "*"
        wire.send("XREAD", "BLOCK", "0", "STREAMS", "s", "$")
        wait_until(lambda: replica.info("clients")["blocked_clients"] == "1", "a client that waits")
        replica.follow(redis)
        assert wire.read().value.startswith(b"UNBLOCKED force unblock from blocking operation, instance state changed")
        with pytest.raises(ConnectionClosed, match="before the end"):
            wire.read()
        wait_in_sync(redis, replica)
        redis.must("PUBLISH", "c", "message")
        assert subscriber.read().plain() == [b"message", b"c", b"message"]


def test_readers_that_wait_are_woken_by_the_stream(pair: tuple[Node, Node]) -> None:
    redis, replica = pair
    with replica.connect() as wire, replica.connect() as watching, replica.connect(3) as caching:
        wire.send("XREAD", "BLOCK", "0", "STREAMS", "s", "$")
        watching.call("WATCH", "s")
        caching.call("CLIENT", "TRACKING", "ON")
        caching.call("XRANGE", "s", "-", "+")
        wait_until(lambda: replica.info("clients")["blocked_clients"] == "1", "a client that waits")
        redis.line("XADD s 2-1 f v")
        assert wire.read().plain() == [[b"s", [[b"2-1", [b"f", b"v"]]]]]
        watching.call("MULTI")
        watching.call("PING")
        assert watching.call("EXEC").value is None
        assert caching.read().plain() == [b"invalidate", [b"s"]]


def test_monitor_and_statistics_show_the_commands_of_the_stream(pair: tuple[Node, Node]) -> None:
    redis, replica = pair
    with replica.connect() as wire:
        wire.call("MONITOR")
        redis.line("XADD s 2-1 f v")
        line = wire.read().value.decode()
        while "XADD" not in line:
            line = wire.read().value.decode()
        assert re.fullmatch(rf"\d+\.\d+ \[0 127\.0\.0\.1:{redis.port}\] \"XADD\" \"s\" \"2-1\" \"f\" \"v\"", line)
    assert replica.info("commandstats")["cmdstat_xadd"].startswith("calls=1,")
    listed = replica.must("CLIENT", "LIST", "TYPE", "master").value.decode()
    assert f"addr=127.0.0.1:{redis.port}" in listed
    assert " flags=M " in listed
    assert " user=(superuser) " in listed


def test_client_kill_type_master_makes_the_link_again(pair: tuple[Node, Node]) -> None:
    redis, replica = pair
    assert replica.must("CLIENT", "KILL", "TYPE", "master").value == 1
    wait_until(lambda: redis.info("stats")["sync_partial_ok"] == "1", "the link made again")
    wait_in_sync(redis, replica)
    assert redis.info("stats")["sync_full"] == "1"
    assert redis.info("stats")["sync_partial_ok"] == "1"


def test_writes_are_refused_with_redis_texts(new_node: NewNode, pair: tuple[Node, Node]) -> None:
    redis, replica = pair
    theirs = new_node("redis")
    theirs.follow(redis)
    wait_in_sync(redis, theirs)
    for line in (
        "XADD s * f v", "SET k v", "XREADGROUP GROUP g c STREAMS s >", "XGROUP CREATE s g $", "DEL s", "PUBLISH c m",
        "GET string", "FLUSHALL", "WAIT 1 1", "MULTI", "SET k v", "EXEC", "MULTI", "GET string", "EXEC", "XREAD STREAMS s $",
    ):  # fmt: skip
        ours, redis_says = replica.call(*line.split()), theirs.call(*line.split())
        assert ours == redis_says, line


def test_a_replica_that_must_not_be_stale_refuses_while_the_link_is_down(new_node: NewNode) -> None:
    nodes = [new_node(kind) for kind in ("streamd", "redis")]
    for node in nodes:
        node.must("CONFIG", "SET", "replica-serve-stale-data", "no")
        node.must("REPLICAOF", "127.0.0.1", "1")
    for line in (
        "PING", "GET k", "SET k v", "XRANGE s - +", "CONFIG GET maxclients", "SELECT 1", "PUBLISH c m", "MULTI", "GET k", "EXEC",
        "MULTI", "PUBLISH c m", "EXEC",
    ):  # fmt: skip
        ours, theirs = (node.call(*line.split()) for node in nodes)
        assert ours == theirs, line


def test_sentinels_transaction_promotes_and_turns_back(
    tmp_path: Path, new_node: NewNode, pair: tuple[Node, Node]
) -> None:
    redis, replica = pair
    with replica.connect() as wire, replica.connect() as other:
        assert other.call("PING").value == b"PONG"
        replies = wire.pipeline(
            [
                ("MULTI",),
                ("SLAVEOF", "NO", "ONE"),
                ("CONFIG", "REWRITE"),
                ("CLIENT", "KILL", "TYPE", "normal"),
                ("EXEC",),
            ]
        )
        assert replies[-1].value[0] == Reply("+", b"OK")
        assert other.read_to_end() == b""
    replica.hang_up()
    assert replica.must("ROLE").plain()[0] == b"master"
    with replica.connect() as wire:
        replies = wire.pipeline(
            [("MULTI",), ("SLAVEOF", "127.0.0.1", str(redis.port)), ("CONFIG", "REWRITE"), ("EXEC",)]
        )
        assert replies[-1].value[0] == Reply("+", b"OK")
    wait_in_sync(redis, replica)


def test_config_rewrite_keeps_the_primary(tmp_path: Path, new_node: NewNode, redis: Node) -> None:
    path = tmp_path / "streamd.conf"
    path.write_text("port 0\n")
    replica = new_node("streamd")
    assert replica.must("CONFIG", "GET", "replicaof").plain() == [b"replicaof", b""]
    follow(replica, redis)
    assert replica.must("CONFIG", "GET", "replicaof").plain() == [b"replicaof", f"127.0.0.1 {redis.port}".encode()]


# --- Expiry ---------------------------------------------------------------------------------------------------------------


def test_an_expired_key_is_missing_but_kept_until_the_primary_removes_it(pair: tuple[Node, Node]) -> None:
    redis, replica = pair
    redis.line("DEBUG SET-ACTIVE-EXPIRE 0")
    redis.line("SET e v PX 1")
    redis.line("XADD s 2-1 f v")
    wait_in_sync(redis, replica)
    wait_until(lambda: replica.must("GET", "e").value is None, "the expiry")
    assert replica.must("EXISTS", "e").value == 0
    assert replica.must("DBSIZE").value == 3
    redis.line("GET e")
    wait_in_sync(redis, replica)
    assert replica.must("DBSIZE").value == 2


def test_a_writable_replica_expires_its_own_keys_and_tells_nobody(pair: tuple[Node, Node]) -> None:
    redis, replica = pair
    replica.must("CONFIG", "SET", "replica-read-only", "no")
    offset = replica.offset
    replica.must("SET", "own", "v", "PX", "1000000")
    assert replica.info("stats")["slave_expires_tracked_keys"] == "1"
    replica.must("PEXPIRE", "own", "1")
    wait_until(lambda: replica.must("DBSIZE").value == 2, "the expiry of its own key")
    wait_until(lambda: replica.info("stats")["slave_expires_tracked_keys"] == "0", "no key of its own")
    wait_in_sync(redis, replica)
    assert redis.must("EXISTS", "own").value == 0
    assert replica.info()["master_replid"] == redis.info()["master_replid"]
    assert replica.offset >= offset


# --- Files ---------------------------------------------------------------------------------------------------------------


def test_the_append_only_file_of_a_replica_has_what_was_applied(new_node: NewNode, redis: Node) -> None:
    fill(redis)
    replica = new_node("streamd", appendonly="yes", replicaof=f"127.0.0.1 {redis.port}")
    wait_in_sync(redis, replica)
    for at in range(50):
        redis.must("XADD", "after", "*", "n", at)
    redis.must("MULTI")
    redis.line("SET a 1")
    redis.line("SET b 2")
    redis.must("EXEC")
    state = assert_same_state(redis, replica)
    wait_until(lambda: replica.info("persistence")["aof_rewrite_in_progress"] == "0", "the rewrite")
    redis.stop()
    replica.stop()
    alone = new_node("streamd")
    alone.stop()
    settings = ["--appendonly", "yes", "--dir", str(replica.folder)]
    alone._argv = [*alone._argv, *settings]
    alone.start()
    assert {key for _, key in state} >= set(alone.must("KEYS", "*").plain())
    assert alone.must("XLEN", "after").value == 50
    assert alone.must("MGET", "a", "b").plain() == [b"1", b"2"]


def test_the_acknowledgement_says_what_is_on_the_disk(new_node: NewNode, redis: Node) -> None:
    replica = new_node("streamd", appendonly="yes", appendfsync="always", replicaof=f"127.0.0.1 {redis.port}")
    wait_in_sync(redis, replica)
    wait_until(lambda: replica.info("persistence")["aof_rewrite_in_progress"] == "0", "the rewrite")
    redis.line("XADD s 1-1 f v")
    assert redis.must("WAITAOF", "0", "1", "30000").plain() == [0, 1]


# --- While it loads ---------------------------------------------------------------------------------------------------------


def test_clients_are_served_while_swapdb_loads_a_newer_state(redis: Node, new_node: NewNode) -> None:
    replica = new_node("streamd", repl_diskless_load="swapdb")
    redis.must("CONFIG", "SET", "repl-backlog-size", "16384")
    fill(redis)
    for at in range(300):
        redis.must("SET", f"key {at}", "old")
    with Proxy(redis.port) as proxy:
        follow(replica, proxy, redis)
        proxy.refuse = True
        proxy.cut()
        for at in range(300):
            redis.must("SET", f"key {at}", "new" * 100)
        redis.must("CONFIG", "SET", "rdb-key-save-delay", "10000")
        seen = set()

        def has_new_state() -> bool:
            seen.add(replica.info("persistence")["async_loading"])
            seen.add(replica.must("GET", "key 299").value)
            return b"new" * 100 in seen

        assert not has_new_state()
        proxy.refuse = False
        wait_until(has_new_state, "the new state")
        assert seen == {"0", "1", b"old", b"new" * 100}
        assert_same_state(redis, replica)
    assert redis.info("stats")["sync_full"] == "2"


def test_a_silent_primary_is_given_up_and_found_again(redis: Node, new_node: NewNode) -> None:
    replica = new_node("streamd", repl_timeout="2")
    redis.must("CONFIG", "SET", "repl-ping-replica-period", "1")
    follow(replica, redis)
    redis.freeze()
    mark = replica.log_mark()
    wait_until(lambda: "MASTER timeout: no data nor PING received..." in replica.log_since(mark), "the timeout")
    wait_until(lambda: not replica.has_link(), "the link down")
    redis.thaw()
    wait_in_sync(redis, replica)


def test_the_server_stops_whatever_the_link_does(redis: Node, new_node: NewNode) -> None:
    for mode in ("disabled", "swapdb"):
        replica = new_node("streamd", repl_diskless_load=mode)
        # Redis sends a snapshot in pieces of many kilobytes: a key of each is enough for the first to come soon.
        redis.must("CONFIG", "SET", "rdbcompression", "no")
        redis.must("CONFIG", "SET", "rdb-key-save-delay", "100000")
        for at in range(100):
            redis.must("SET", f"key {at}", "x" * 20_000)
        replica.follow(redis)
        wait_until(lambda replica=replica: "receiving streamed RDB" in replica.log(), "the snapshot")
        started = time.monotonic()
        assert replica.stop() == 0
        assert time.monotonic() - started < 30
        assert list(replica.folder.glob("temp-*")) == []
        assert "Traceback" not in replica.log()
        assert "never" not in replica.log()


# --- Replicas of replicas ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["streamd", "redis"])
def test_a_replica_of_a_replica_gets_the_same_bytes(new_node: NewNode, redis: Node, replica: Node, kind: str) -> None:
    fill(redis)
    with Proxy(redis.port) as proxy:
        follow(replica, proxy, redis)
        below = new_node(kind)
        below.must("SELECT", 9)
        below.follow(replica)
        wait_in_sync(replica, below)
        with redis.connect() as wire:
            wire.call("SELECT", 9)
            for at in range(20):
                with cut(proxy, replica, at * 11):
                    wire.call("MULTI")
                    wire.call("XADD", "s", "*", "n", at)
                    wire.call("SET", "n", at)
                    wire.call("EXEC")
                    wire.call("PUBLISH", "c", at)
        wait_in_sync(redis, replica, below)
        assert_same_state(redis, replica, below)
    assert below.info()["master_replid"] == redis.info()["master_replid"]
    assert replica.info("stats")["sync_full"] == "1"
    assert redis.info("stats")["sync_full"] == "1"


def test_a_full_resync_of_a_replica_reaches_those_below(new_node: NewNode, pair: tuple[Node, Node]) -> None:
    _, replica = pair
    below = new_node("redis")
    below.follow(replica)
    wait_in_sync(replica, below)
    other = new_node("redis")
    other.line("XADD other 1-1 f v")
    follow(replica, other)
    assert_same_state(other, replica, below)
    assert replica.info("stats")["sync_full"] == "2"


def test_the_tree_stays_together_when_its_middle_is_promoted(new_node: NewNode, pair: tuple[Node, Node]) -> None:
    redis, replica = pair
    below = [new_node("redis"), new_node("streamd")]
    for node in below:
        node.follow(replica)
        wait_in_sync(replica, node)
    full = replica.info("stats")["sync_full"]
    replica.follow(None)
    replica.line("XADD s 9-1 f v")
    assert_same_state(replica, *below)
    follow(redis, replica)
    assert_same_state(replica, redis, *below)
    assert replica.info("stats")["sync_full"] == full, "the old primary continues as well"


def test_a_replica_whose_link_is_down_has_nothing_for_others(new_node: NewNode, replica: Node) -> None:
    replica.must("REPLICAOF", "127.0.0.1", "1")
    for command in (("PSYNC", "?", "-1"), ("SYNC",)):
        with replica.connect() as wire:
            assert wire.call(*command).value == b"NOMASTERLINK Can't SYNC while not connected with my master"


# --- TLS --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    if OPENSSL is None:
        pytest.skip("no openssl program to make certificates with")
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.mark.parametrize("kind", ["redis", "streamd"])
@pytest.mark.parametrize("mode", ["disabled", "swapdb"])
def test_a_primary_is_followed_over_tls(new_node: NewNode, certificates: Certificates, kind: str, mode: str) -> None:
    port = free_port()
    primary = new_node(kind, tls_port=str(port), **certificates.directives)
    fill(primary)
    replica = new_node("streamd", tls_replication="yes", repl_diskless_load=mode, **certificates.directives)
    replica.must("REPLICAOF", "127.0.0.1", port)
    wait_in_sync(primary, replica)
    primary.line("XADD s 1000-1 f v")
    assert_same_state(primary, replica)


def test_an_untrusted_certificate_is_explained(new_node: NewNode, certificates: Certificates, redis: Node) -> None:
    port = free_port()
    new_node("redis", tls_port=str(port), **certificates.directives)
    trusting = {**certificates.directives, "tls_ca_cert_file": certificates.certificate("stranger")}
    replica = new_node("streamd", tls_replication="yes", repl_timeout="2", **trusting)
    replica.must("REPLICAOF", "127.0.0.1", port)
    wait_until(lambda: "Check tls-replication" in replica.log(), "a line about TLS")
    replica.must("REPLICAOF", "127.0.0.1", redis.port)
    wait_until(lambda: "and that the port speaks TLS" in replica.log(), "a line about a port without TLS")


# --- Restarts -----------------------------------------------------------------------------------------------------------


def test_a_primary_that_is_started_again_continues_with_its_replicas(new_node: NewNode) -> None:
    primary = new_node("streamd", save="3600 1", repl_ping_replica_period="3600")
    theirs, ours = new_node("redis"), new_node("streamd")
    primary.must("SELECT", 3)
    primary.line("XADD s 1-1 f v")
    for node in (theirs, ours):
        follow(node, primary)
    primary.line("XADD s 2-1 f v")
    wait_in_sync(primary, theirs, ours)
    old, offset = primary.info()["master_replid"], primary.offset
    primary.stop()
    primary.start()
    info = primary.info()
    assert info["master_replid2"] == old
    assert info["second_repl_offset"] == str(int(info["master_repl_offset"]) + 1)
    assert int(info["master_repl_offset"]) >= offset
    primary.must("SELECT", 3)
    primary.line("XADD s 3-1 f v")
    assert_same_state(primary, theirs, ours)
    assert primary.info("stats")["sync_full"] == "0"


@pytest.mark.parametrize("appendonly", ["yes", "no"])
def test_a_replica_that_was_killed_catches_up(new_node: NewNode, redis: Node, appendonly: str) -> None:
    replica = new_node("streamd", appendonly=appendonly, replicaof=f"127.0.0.1 {redis.port}")
    fill(redis)
    wait_in_sync(redis, replica)
    replica.kill()
    redis.line("XADD s1 99999-1 f v")
    replica.start()
    assert_same_state(redis, replica)


def test_a_full_disk_ends_a_replica_that_may_not_ignore_it(new_node: NewNode, redis: Node) -> None:
    replica = new_node("streamd", save="1 1", enable_protected_configs="yes", replicaof=f"127.0.0.1 {redis.port}")
    wait_in_sync(redis, replica)
    replica.must("CONFIG", "SET", "replica-ignore-disk-write-errors", "yes")
    replica.folder.joinpath("away").mkdir()
    replica.must("CONFIG", "SET", "dir", str(replica.folder / "away"))
    replica.folder.joinpath("away").rmdir()
    redis.line("SET k v")
    wait_until(lambda: replica.info("persistence")["rdb_last_bgsave_status"] == "err", "a failed snapshot")
    redis.line("SET k w")
    wait_in_sync(redis, replica)
    assert "Replica is applying a command even though it is unable to write to disk." in replica.log()
    replica.must("CONFIG", "SET", "replica-ignore-disk-write-errors", "no")
    redis.line("SET k x")
    wait_until(lambda: not replica.is_running, "the end of the replica")
    assert "Replica was unable to write command to disk." in replica.log()


# --- INFO ---------------------------------------------------------------------------------------------------------------


def test_info_and_role_are_those_of_a_real_replica(trio: Trio) -> None:
    _, theirs, ours = trio
    wait_in_sync(trio[0], ours)
    wait_in_sync(trio[0], theirs)
    their_info, our_info = theirs.info(), ours.info()
    assert list(our_info) == list(their_info)
    varying = {"master_link_up_since_seconds", "master_last_io_seconds_ago", "repl_backlog_first_byte_offset",
               "repl_backlog_histlen", "total_disconnect_time_sec", "replica_full_sync_buffer_peak"}  # fmt: skip
    assert {name: value for name, value in our_info.items() if name not in varying} == {
        name: value for name, value in their_info.items() if name not in varying
    }
    assert ours.must("ROLE").plain() == theirs.must("ROLE").plain()
    for protocol in (2, 3):
        with ours.connect(protocol) as wire:
            assert b"replica" in str(wire.call("HELLO", protocol).plain()).encode()


def test_info_while_the_link_is_down(new_node: NewNode) -> None:
    nodes = [new_node(kind, replicaof="127.0.0.1 1") for kind in ("streamd", "redis")]
    found = [node.info() for node in nodes]
    wait_until(lambda: "master_link_down_reason" in nodes[0].info(), "the first failure")
    ours = nodes[0].info()
    del ours["master_link_down_reason"]
    assert list(ours) == list(found[1])
    assert ours["master_link_down_since_seconds"] == found[1]["master_link_down_since_seconds"] == "-1"
    assert ours["master_last_io_seconds_ago"] == "-1"


def test_the_stream_goes_on_after_a_script_that_took_too_long(pair: tuple[Node, Node]) -> None:
    primary, replica = pair
    primary.must("CONFIG", "SET", "repl-ping-replica-period", "3600")  # nothing else comes that would wake it
    replica.must("CONFIG", "SET", "busy-reply-threshold", "50")
    with replica.connect() as caller:
        caller.send("EVAL", "while true do end", "0")
        wait_until(lambda: replica.call("PING").value.startswith(b"BUSY"), "the script is slow")
        primary.line("SET during 1")
        primary.line("XADD s 2-1 f v")
        replica.must("SCRIPT", "KILL")
        assert caller.read(60).value.startswith(b"ERR Script killed by user")
    wait_in_sync(primary, replica)
    assert_same_state(primary, replica)


# --- What INFO says of time, and of the process -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["streamd", "redis"])
def test_the_time_without_a_link_is_counted_across_primaries(new_node: NewNode, kind: str) -> None:
    primary, replica = new_node("redis"), new_node(kind)

    def seconds(field: str) -> int:
        return int(replica.info()[field])

    replica.must("REPLICAOF", "127.0.0.1", free_port())
    assert (seconds("master_link_down_since_seconds"), seconds("total_disconnect_time_sec")) == (-1, 0)
    replica.follow(primary)
    wait_in_sync(primary, replica)
    replica.must("REPLICAOF", "127.0.0.1", free_port())
    wait_until(lambda: seconds("master_link_down_since_seconds") >= 2, "the time since the link was up")
    replica.must("REPLICAOF", "127.0.0.1", free_port())
    assert seconds("master_link_down_since_seconds") >= 2
    assert seconds("total_disconnect_time_sec") >= 2
    replica.follow(primary)
    wait_in_sync(primary, replica)
    assert seconds("total_disconnect_time_sec") >= 2


@pytest.mark.parametrize("kind", ["streamd", "redis"])
def test_what_arrives_during_a_pause_has_been_read_but_not_executed(new_node: NewNode, kind: str) -> None:
    primary, replica = new_node("redis", repl_ping_replica_period="3600"), new_node(kind)
    replica.follow(primary)
    wait_in_sync(primary, replica)
    replica.must("CLIENT", "PAUSE", "100000", "WRITE")
    primary.must("SET", "k", "v")
    offset = primary.offset
    wait_until(lambda: int(replica.info()["slave_read_repl_offset"]) == offset, "the write read")
    assert int(replica.info()["slave_repl_offset"]) < offset
    replica.must("CLIENT", "UNPAUSE")
    wait_in_sync(primary, replica)


@pytest.mark.parametrize("kind", ["streamd", "redis"])
def test_a_change_of_the_role_changes_the_out_of_memory_score(new_node: NewNode, kind: str) -> None:
    primary = new_node("redis")
    node = new_node(kind, oom_score_adj="absolute", oom_score_adj_values="10 20 30")

    def score() -> int:
        return int(Path(f"/proc/{node.process.pid}/oom_score_adj").read_text())

    assert score() == 10
    node.follow(primary)
    assert score() == 20
    node.follow(None)
    assert score() == 10


@pytest.mark.parametrize("kind", ["streamd", "redis"])
def test_a_shutdown_that_waits_says_how_long(new_node: NewNode, kind: str) -> None:
    primary, replica = new_node(kind, shutdown_timeout="60"), new_node("redis")
    replica.follow(primary)
    wait_in_sync(primary, replica)
    assert "shutdown_in_milliseconds" not in primary.info("server")
    replica.freeze()
    primary.must("SET", "k", "v")
    primary.process.terminate()
    wait_until(lambda: "shutdown_in_milliseconds" in primary.info("server"), "a shutdown that waits")
    fields = list(primary.info("server"))
    assert fields.index("shutdown_in_milliseconds") == fields.index("io_threads_active") + 1
    assert 0 < int(primary.info("server")["shutdown_in_milliseconds"]) <= 60_000
    replica.thaw()
    primary.process.wait()
