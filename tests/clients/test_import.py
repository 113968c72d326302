"""`streamd import`: a Redis moves to another server while it is in use, and what stands in the way is said before.

The source is a real Redis. The target is streamd and, to prove the tests, another Redis in some.
"""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from support.importing import Running, words_of
from support.importing import run_import as run
from support.servers import Server, eventually, find_oracle, free_port, python_environment, wait_for_start

from streamd.client.place import Place
from streamd.importing import as_replica
from streamd.importing.peers import ImportFailedError
from streamd.importing.run import Plan, run_import

pytestmark = [pytest.mark.long, pytest.mark.real]

StartServer = Callable[..., Server]
DEADLINE_S = 200
ENTRIES = 100_000
STREAMS = 20
CHANGED = ("masteruser", "masterauth", "tls-replication", "rdb-skip-unsupported")
"""The settings of a target that an import may change."""


# --- Servers and programs --------------------------------------------------------------------------------------------------


@pytest.fixture
def source(new_redis: StartServer) -> Server:
    return new_redis(repl_diskless_sync_delay="0")


@pytest.fixture
def target(new_streamd: StartServer) -> Server:
    return new_streamd(masteruser="somebody")


@pytest.fixture(params=["streamd", "redis"])
def either_target(request: pytest.FixtureRequest) -> Server:
    """Also a Redis, to prove the test."""
    start: StartServer = request.getfixturevalue(f"new_{request.param}")
    return start(masteruser="somebody")


@pytest.fixture
def redis_target(new_redis: StartServer) -> Server:
    """For what has to do with the source alone."""
    return new_redis()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def start_one(*arguments: Any) -> Running:
        started.append(Running(words_of(*arguments), tmp_path / "import.log"))
        return started[-1]

    yield start_one
    for each in started:
        each.close()


def client_of(server: Server, db: int = 0) -> redis.Redis:
    return redis.Redis(port=server.port, db=db, protocol=2, decode_responses=True)


def settings_of(server: Server) -> dict[str, str]:
    with client_of(server) as client:
        return {name: value for each in CHANGED for name, value in client.config_get(each).items()}


@contextmanager
def put_back(target: Server) -> Iterator[None]:
    """The target is a primary with its own settings afterwards."""
    before = settings_of(target)
    yield
    with client_of(target) as client:
        assert client.execute_command("ROLE")[0] in ("master", b"master")
    assert settings_of(target) == before


# --- Data ----------------------------------------------------------------------------------------------------------------------


def add_unsupported(client: redis.Redis, key: str) -> None:
    """A value of a type that streamd does not have: a vector set."""
    client.execute_command("VADD", key, "VALUES", 3, 1, 2, 3, "alice")


def fill(server: Server, entries: int = ENTRIES, *, with_unsupported: bool = True) -> None:
    """Streams with groups and pending entries, strings with and without expiry, in two databases; one vector set."""
    with client_of(server) as client:
        pipe = client.pipeline(transaction=False)
        for at in range(entries):
            pipe.xadd(f"readings:{at % STREAMS}", {"sensor": at % 7, "value": at}, id=f"{1_700_000_000_000 + at}-0")
        for number in range(STREAMS):
            key = f"readings:{number}"
            pipe.xgroup_create(key, "workers", "0")
            pipe.xreadgroup("workers", f"worker-{number % 3}", {key: ">"}, count=50)
            pipe.xack(key, "workers", f"{1_700_000_000_000 + number}-0")
        for number in range(1000):
            pipe.set(f"count:{number}", number, px=10_000_000 if number % 2 else None)
        pipe.execute()
        if with_unsupported:
            add_unsupported(client, "session:4711")
    with client_of(server, 5) as client:
        client.xadd("elsewhere", {"a": 1}, id="1-1")
        client.set("short", "lived", px=20_000_000)


def assert_same_data(ours: Server, theirs: Server) -> None:
    """All streams and strings, their groups, pending entries and expiry."""
    for db in (0, 5):
        with client_of(ours, db) as mine, client_of(theirs, db) as other:
            wanted = {key for kind in ("stream", "string") for key in other.scan_iter(count=1000, _type=kind)}
            found = {key for kind in ("stream", "string") for key in mine.scan_iter(count=1000, _type=kind)}
            assert found == wanted
            for key in sorted(key for key in wanted if other.type(key) == "stream"):
                assert mine.xrange(key) == other.xrange(key)
                assert mine.xinfo_groups(key) == other.xinfo_groups(key)
                for group in other.xinfo_groups(key):
                    pending = [each.xpending_range(key, group["name"], "-", "+", 100) for each in (mine, other)]
                    for each in (entry for found in pending for entry in found):
                        del each["time_since_delivered"]
                    assert pending[0] == pending[1]
            strings = sorted(key for key in wanted if other.type(key) == "string")
            assert mine.mget(strings) == other.mget(strings)
            for key in strings:
                assert abs(mine.pttl(key) - other.pttl(key)) < 30_000
                assert (mine.pttl(key) == -1) == (other.pttl(key) == -1)


class Writer:
    """Appends to the stream `live` until it is stopped, or nobody answers; `acknowledged` entries have been answered."""

    def __init__(self, server: Server) -> None:
        self.acknowledged = 0
        self._client = client_of(server)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with self._client as client:
            while not self._ends.is_set():
                try:
                    client.xadd("live", {"n": self.acknowledged})
                except redis.ConnectionError:
                    return
                self.acknowledged += 1

    def stop(self) -> None:
        self._ends.set()
        self._thread.join()


@pytest.fixture
def writer(source: Server) -> Iterator[Writer]:
    writing = Writer(source)
    yield writing
    with client_of(source) as client:
        client.client_unpause()
    writing.stop()


# --- As a replica --------------------------------------------------------------------------------------------------------------


def test_everything_arrives(source: Server, either_target: Server) -> None:
    fill(source, ENTRIES if either_target.name == "streamd" else ENTRIES // 10)
    with put_back(either_target):
        said = run(source, either_target, "--skip-unsupported")
    assert_same_data(either_target, source)
    with client_of(either_target) as client:
        assert client.exists("session:4711") == (either_target.name == "redis")
    assert f"{1022:,} keys in 2 databases" in said
    assert "such as session:4711" in said
    assert "received" in said.splitlines()[-1]


def of_every_encoding(client: redis.Redis) -> dict[str, str]:
    """Values of every type in every encoding, with expiries of keys and of fields; their encodings."""
    call = client.execute_command
    many = range(700)
    call("SET", "int", 12)
    call("SET", "embstr", "abc", "EX", 10_000)
    call("SETBIT", "raw", 4000, 1)
    call("PFADD", "sparse", *range(20))
    call("PFADD", "dense", *range(5000))
    call("HSET", "listpack", "f", "v", "n", 5)
    call("HSET", "listpackex", "f", "v", "g", "w")
    call("HSET", "hashtable", *(word for n in many for word in (f"f{n}", n)))
    call("HSET", "hashtable:expiring", *(word for n in many for word in (f"f{n}", n)))
    for key in ("listpackex", "hashtable:expiring"):
        call("HEXPIRE", key, 10_000, "FIELDS", 1, "f" if key == "listpackex" else "f7")
    call("RPUSH", "listpack:list", "a", 1, "b")
    call("RPUSH", "quicklist", *("e" * (n % 90) + str(n) for n in range(3000)), "x" * 20_000)
    call("SADD", "intset", 3, 1, 70_000, 2**40)
    call("SADD", "listpack:set", "a", "1")
    call("SADD", "hashtable:set", *(f"m{n}" for n in many))
    call("ZADD", "listpack:zset", 1, "a", "-inf", "b", 0.1, "c")
    call("ZADD", "skiplist", *(word for n in many for word in (n / 3, f"m{n}")))
    call("PEXPIRE", "skiplist", 10_000_000)
    call("XADD", "stream", "1-1", "f", "v")
    call("XGROUP", "CREATE", "stream", "g", 0)
    call("XREADGROUP", "GROUP", "g", "c", "STREAMS", "stream", ">")
    return {key: call("OBJECT", "ENCODING", key) for key in client.scan_iter()}


def test_values_of_every_encoding_arrive_with_the_same_digest(source: Server, either_target: Server) -> None:
    with client_of(source) as client:
        encodings = of_every_encoding(client)
        assert {*encodings.values()} == {
            "int", "embstr", "raw", "listpack", "listpackex", "hashtable", "quicklist", "intset", "skiplist", "stream",
        }  # fmt: skip
        digest = client.execute_command("DEBUG", "DIGEST")
        times = client.hpexpiretime("listpackex", "f", "g") + client.hpexpiretime("hashtable:expiring", "f7", "f8")
        run(source, either_target)
    with client_of(either_target) as client:
        assert client.execute_command("DEBUG", "DIGEST") == digest
        assert {key: client.execute_command("OBJECT", "ENCODING", key) for key in encodings} == encodings
        assert (
            client.hpexpiretime("listpackex", "f", "g") + client.hpexpiretime("hashtable:expiring", "f7", "f8") == times
        )
        assert client.dbsize() == len(encodings)


def test_nothing_is_changed_when_something_cannot_be_taken(source: Server, target: Server) -> None:
    with client_of(source) as client:
        client.set("plain", 1)
        for number in range(12):
            add_unsupported(client, f"session:{number}")
            add_unsupported(client, f"queue:550e8400-e29b-41d4-a716-4466554400{number:02}:jobs")
    with put_back(target):
        error = run(source, target, status=1)
        said = subprocess.run(words_of(source, target), capture_output=True, text=True, timeout=DEADLINE_S,
                              env=python_environment(), check=False).stdout  # fmt: skip
    assert error == "Error: Nothing was changed: 24 keys cannot be taken. --skip-unsupported leaves them out\n"
    assert "12  vectorset  session:*   such as session:" in said
    assert "12  vectorset  queue:*:jobs   such as queue:550e8400" in said
    with client_of(target) as client:
        assert client.dbsize() == 0


@pytest.mark.parametrize("options", [(), ("--copy",)])
def test_functions_are_taken(source: Server, target: Server, options: tuple[str, ...]) -> None:
    with client_of(source) as client:
        client.function_load("#!lua name=mine\nredis.register_function('f', function() return 1 end)")
    with put_back(target):
        said = run(source, target, *options)
    assert "The source has 1 library of functions, which the target gets, too: mine" in said
    with client_of(target) as client:
        assert client.fcall("f", 0) == 1
        client.function_flush()
    with client_of(source) as client:
        client.function_flush()


def test_a_single_database(source: Server, target: Server) -> None:
    fill(source, 1000)
    with put_back(target):
        said = run(f"redis://127.0.0.1:{source.port}/5", target)
    assert "2 keys in 1 database" in said
    with client_of(target) as client, client_of(target, 5) as other:
        assert client.dbsize() == 0
        assert other.dbsize() == 2
        assert other.xlen("elsewhere") == 1


def test_data_of_the_target_are_dropped_only_if_asked_for(source: Server, target: Server) -> None:
    fill(source, 1000, with_unsupported=False)
    with client_of(target) as client:
        client.set("mine", 1)
        assert "holds 1 keys: --replace drops them" in run(source, target, status=1)
        assert client.get("mine") == "1"
        run(source, target, "--replace")
        assert client.get("mine") is None
    assert_same_data(target, source)


def test_no_acknowledged_write_is_missing_when_the_source_is_paused(
    source: Server, either_target: Server, writer: Writer, start: Callable[..., Running]
) -> None:
    fill(source, 1000, with_unsupported=False)
    with put_back(either_target):
        running = start(source, either_target, "--follow", "--pause-source", "600")
        running.wait_for("lag ")
        running.press_enter()
        assert running.end() == 0, running.said()
    with client_of(either_target) as client, client_of(source) as other:
        assert client.xlen("live") == other.xlen("live") > 0
        assert client.xlen("live") >= writer.acknowledged
        assert_same_data(either_target, source)
    assert "Writes to the source are paused for 600 s" in running.said()
    assert "has been changed since" not in running.said()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_promotes_a_target_that_follows(
    source: Server, redis_target: Server, start: Callable[..., Running], number: int
) -> None:
    with client_of(source) as client:
        client.xadd("readings", {"a": 1})
    with put_back(redis_target):
        running = start(source, redis_target, "--follow")
        running.wait_for("lag 0 bytes")
        with client_of(source) as client:
            client.xadd("readings", {"a": 2})
        running.process.send_signal(number)
        assert running.end() == 0, running.said()
    with client_of(redis_target) as client:
        assert client.xlen("readings") == 2


def test_a_small_lag_promotes_by_itself(source: Server, target: Server, writer: Writer) -> None:
    with put_back(target):
        run(source, target, "--follow", "--until-lag", "1000000", "--pause-source", "600")
    with client_of(target) as client:
        assert client.xlen("live") >= writer.acknowledged > 0


def test_writes_after_the_promotion_are_mentioned(
    source: Server, redis_target: Server, writer: Writer, start: Callable[..., Running]
) -> None:
    running = start(source, redis_target, "--follow")
    running.wait_for("lag ")
    running.press_enter()
    eventually(lambda: "is a primary" in running.said() or "behind" in running.said(), DEADLINE_S, "the promotion")
    if "is a primary" not in running.said():
        running.press_enter()
    assert running.end() == 0, running.said()
    assert "The source has been changed since, by" in running.said()


def test_a_source_that_is_gone_does_not_hold_the_target(
    source: Server, redis_target: Server, start: Callable[..., Running]
) -> None:
    with client_of(source) as client:
        client.xadd("readings", {"a": 1})
    with put_back(redis_target):
        running = start(source, redis_target, "--follow")
        running.wait_for("lag 0 bytes")
        source.kill()
        running.wait_for("the link is down")
        running.press_enter()
        running.wait_for("or ask again")
        running.press_enter()
        assert running.end() == 0, running.said()
    assert "may be missing" in running.said()
    with client_of(redis_target) as client:
        assert client.xlen("readings") == 1


def test_an_import_that_is_stopped_puts_the_target_back(
    source: Server, target: Server, start: Callable[..., Running]
) -> None:
    with client_of(source) as client:
        client.config_set("repl-diskless-sync-delay", 1000)
        client.set("a", 1)
    with put_back(target):
        running = start(source, target)
        running.wait_for("connecting", "receiving")  # a source may be quick to answer, and slow to send
        running.process.send_signal(signal.SIGINT)
        assert running.end() == 130
    assert "Stopped. The target is a primary again, with its settings as they were. It holds no keys" in running.said()


# --- Key by key ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("forbids", ["acl", "rename-command"])
def test_a_source_without_psync_is_copied_key_by_key(
    new_redis: StartServer, target: Server, tmp_path: Path, forbids: str
) -> None:
    if forbids == "acl":
        source = new_redis()
        url = f"redis://mover:secret@127.0.0.1:{source.port}"
        reason = "this user may not use"
    else:
        source = new_redis(rename_command='PSYNC ""')
        url = f"redis://127.0.0.1:{source.port}"
        reason = "it has no command PSYNC"
    fill(source, 2000)
    if forbids == "acl":
        with client_of(source) as client:
            client.execute_command(
                "ACL", "SETUSER", "mover", "on", ">secret", "~*", "+@all", "-psync", "-sync", "-replconf"
            )
    with put_back(target):
        said = run(url, target, "--skip-unsupported")
        assert "holds" in run(url, target, "--skip-unsupported", status=1)
        assert "cannot be followed" in run(url, target, "--follow", "--replace", status=1)
    assert reason in said
    assert "stop the writers for an exact copy" in said
    assert_same_data(target, source)
    with client_of(target) as client:
        assert not client.exists("session:4711")


def test_a_copy_replaces_what_the_target_holds(source: Server, either_target: Server) -> None:
    fill(source, 1000, with_unsupported=False)
    with client_of(either_target) as client:
        client.set("mine", 1)
    run(source, either_target, "--copy", "--replace")
    assert_same_data(either_target, source)


def test_a_key_of_a_newer_format_is_told(source: Server, tmp_path: Path) -> None:
    with old_redis(tmp_path) as old, client_of(source) as client:
        client.xadd("readings", {"a": 1})
        error = run(source, old, "--copy", status=1)
    assert "cannot read the format of the source, which is a newer one" in error


# --- The way back ----------------------------------------------------------------------------------------------------------------


def follow_and_promote(replica: Server, primary: Server) -> None:
    """As docs/migration.md describes it."""
    with client_of(replica) as client, client_of(primary) as other:
        client.replicaof("127.0.0.1", primary.port)
        eventually(lambda: client.info("replication")["master_link_status"] == "up", DEADLINE_S, "the link")
        other.xadd("readings:0", {"last": 1})
        other.client_pause(600_000, all=False)
        offset = other.info("replication")["master_repl_offset"]
        eventually(lambda: client.info("replication")["slave_repl_offset"] >= offset, DEADLINE_S, "the offset")
        client.replicaof("NO", "ONE")


def test_a_redis_takes_over_from_streamd(new_streamd: StartServer, new_redis: StartServer) -> None:
    ours, theirs = new_streamd(repl_diskless_sync_delay="0"), new_redis()
    fill(ours, 2000, with_unsupported=False)
    follow_and_promote(theirs, ours)
    assert_same_data(theirs, ours)


def test_an_old_redis_takes_over_from_streamd(new_streamd: StartServer, tmp_path: Path) -> None:
    ours = new_streamd(repl_diskless_sync_delay="0", rdb_form="7.0")
    with old_redis(tmp_path) as old, client_of(old) as client, client_of(ours) as other:
        other.xadd("readings:0", {"a": 1})
        follow_and_promote(old, ours)
        assert client.xrange("readings:0") == other.xrange("readings:0")


# --- What cannot be -------------------------------------------------------------------------------------------------------------


@contextmanager
def old_redis(folder: Path) -> Iterator[Server]:
    """A Redis from before 7.2, which cannot read what the newest writes."""
    found = shutil.which("redis-server")
    oracle = find_oracle()
    if found is None or oracle is None or Path(found).parent == oracle.folder:
        pytest.skip("no second, older redis-server on the PATH")
    version = subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout
    if "v=7.0" not in version and "v=6" not in version:
        pytest.skip("the redis-server on the PATH is not older than 7.2")
    port = free_port()
    own = folder / "old"
    own.mkdir()
    server = wait_for_start(Server("old", [found, "--port", str(port), "--save", ""], port, own, {}))
    try:
        yield server
    finally:
        server.stop()


def test_a_target_that_cannot_read_the_snapshot_is_told(source: Server, tmp_path: Path) -> None:
    with old_redis(tmp_path) as old, client_of(source) as client:
        client.xadd("readings", {"a": 1})
        with put_back(old):
            error = run(source, old, status=1)
    assert "speaks Redis 7.0" in error or "speaks Redis 6" in error
    assert "does not accept the snapshot of the source, which speaks Redis 8" in error
    assert "The target is a primary again" in error


class Silent:
    """A screen that keeps lines, and nobody who asks."""

    times = 0

    def __init__(self) -> None:
        self.lines: list[str] = []

    def line(self, text: str) -> None:
        self.lines.append(text)

    def progress(self, step: str, done: int, size: int, text: str) -> None:
        self.lines.append(step)

    def finish(self) -> None:
        self.lines.append("")

    def wait(self, seconds: float, *, listens: bool = False) -> None:
        threading.Event().wait(seconds)


class Interfering(Silent):
    """Adds a vector set to a server when the survey is over."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self.server = server

    def line(self, text: str) -> None:
        with client_of(self.server) as client:
            add_unsupported(client, "session:late")


def test_what_a_target_says_about_its_link_is_told(
    source: Server, target: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(as_replica, "FAILING_S", 0.5)
    with client_of(source) as client:
        client.set("a", 1)
    screen = Interfering(source)
    with (
        put_back(target),
        pytest.raises(ImportFailedError, match=r"cannot follow the source: .*session:late") as caught,
    ):
        run_import(Place(port=source.port), Place(port=target.port), Plan(), screen, screen)
    assert "It holds no keys" in str(caught.value)


def test_a_source_that_the_target_does_not_reach(
    source: Server, target: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(as_replica, "SILENT_S", 0.5)
    screen = Silent()
    with (
        put_back(target),
        pytest.raises(ImportFailedError, match=r"does not get through to the source at 127\.0\.0\.1:1;"),
    ):
        run_import(Place(port=source.port), Place(port=target.port), Plan(address=("127.0.0.1", 1)), screen, screen)


def test_wrong_addresses_and_logins(new_redis: StartServer, redis_target: Server) -> None:
    guarded = new_redis(requirepass="secret")
    nobody = free_port()
    for url, expected in {
        f"redis://127.0.0.1:{nobody}": f"The source 127.0.0.1:{nobody}: Could not connect",
        "redis://there.is.no.such.host.invalid": "Could not connect",
        f"redis://:wrong@127.0.0.1:{guarded.port}": "does not accept the login: WRONGPASS",
        f"redis://127.0.0.1:{guarded.port}": "refuses INFO: NOAUTH",
        f"http://127.0.0.1:{guarded.port}": "a URL begins with redis://",
        f"redis://127.0.0.1:{guarded.port}/abc": "the database is a number",
    }.items():
        assert expected in run(url, redis_target, status=1)
    assert f"The target 127.0.0.1:{nobody}: Could not connect" in run(
        redis_target, f"redis://127.0.0.1:{nobody}", status=1
    )
    assert "omit /3" in run(redis_target, f"redis://127.0.0.1:{redis_target.port}/3", status=1)
    assert "are the same server" in run(redis_target, redis_target, status=1)


def test_what_is_no_redis_is_told(redis_target: Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet() -> None:
            for _ in range(2):  # the connection is tried again
                peer, _ = listener.accept()
                with peer:
                    peer.sendall(b"SSH-2.0-OpenSSH_9.9\r\n")
                    peer.recv(100)

        thread = threading.Thread(target=greet)
        thread.start()
        error = run(f"redis://127.0.0.1:{listener.getsockname()[1]}", redis_target, status=1)
        thread.join()
    assert "does not speak the protocol of Redis" in error


def test_clusters_and_replicas(new_redis: StartServer, source: Server, redis_target: Server) -> None:
    cluster = new_redis(cluster_enabled="yes", cluster_port=str(free_port()))
    assert "is a node of a cluster" in run(cluster, redis_target, status=1)
    assert "does not serve all slots" in run(source, cluster, status=1)
    with client_of(redis_target) as client:
        client.replicaof("127.0.0.1", source.port)
        assert f"is a replica of 127.0.0.1:{source.port}" in run(source, redis_target, status=1)
        eventually(lambda: client.info()["master_link_status"] == "up", DEADLINE_S, "the link")
        assert "is the primary of the source" in run(redis_target, source, status=1)
        assert "is a replica: pausing" in run(redis_target, new_redis(), "--follow", "--pause-source", "1", status=1)
        client.replicaof("127.0.0.1", free_port())
        assert "has lost its primary" in run(redis_target, source, status=1)


def test_more_databases_than_the_target_has(new_redis: StartServer, redis_target: Server) -> None:
    source = new_redis(databases="20")
    with client_of(source, 17) as client:
        client.set("a", 1)
    assert "has 16 databases, the source uses number 17" in run(source, redis_target, status=1)


def test_passwords_come_from_the_environment_and_from_files(
    new_redis: StartServer, target: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = new_redis(requirepass="main secret", repl_diskless_sync_delay="0")
    with redis.Redis(port=source.port, password="main secret", protocol=2) as client:
        client.execute_command("ACL", "SETUSER", "mover", "on", ">a secret", "~*", "+@all")
        client.set("a", 1)
    (tmp_path / "password").write_text("a secret\n")
    monkeypatch.setenv("SOURCE_PASSWORD", "main secret")
    with put_back(target):
        run(source, target, "--password-env", "SOURCE_PASSWORD")
        run(source, target, "--user", "mover", "--password-file", str(tmp_path / "password"), "--replace")
    assert "no environment variable NONE_SUCH" in run(source, target, "--password-env", "NONE_SUCH", status=1)


@pytest.mark.parametrize("kind", ["streamd", "redis"])
def test_tls_to_the_source(
    new_redis: StartServer, request: pytest.FixtureRequest, certificate: Path, kind: str
) -> None:
    port, file = str(free_port()), str(certificate)
    tls = {"tls_cert_file": file, "tls_key_file": file, "tls_ca_cert_file": file}
    source = new_redis(tls_port=port, repl_diskless_sync_delay="0", **tls)
    target = request.getfixturevalue(f"new_{kind}")(**tls)
    with client_of(source) as client:
        client.set("a", 1)
    url = f"rediss://localhost:{port}"
    with put_back(target):
        run(url, target, "--cacert", file, "--cert", file)
        run(url, target, "--insecure", "--cert", file, "--replace")
    assert "certificate verify failed" in run(url, target, "--replace", status=1)
    with client_of(target) as client:
        assert client.get("a") == "1"


@pytest.mark.parametrize("way", [(), ("--copy",)], ids=["replica", "copy"])
def test_what_an_import_leaves_out_stays_in_files(
    new_redis: StartServer, new_streamd: StartServer, way: tuple[str, ...]
) -> None:
    """The target has read a Redis's snapshot in part before; neither that one nor the source's other keys are lost."""
    first, source = new_redis(), new_redis()
    with client_of(first) as client:
        add_unsupported(client, "own")
        client.xadd("mine", {"a": 1})
        client.save()
    first.stop()
    fill(source, 100)
    target = new_streamd(dir=str(first.folder), rdb_skip_unsupported="yes")
    with put_back(target):
        run(source, target, "--skip-unsupported", "--replace", *way)
    assert_same_data(target, source)
    with client_of(target) as client:
        client.save()
    target.stop()
    held = set()
    for at, file in enumerate(sorted(first.folder.glob("*.whole-*"))):
        folder = first.folder / f"whole{at}"
        folder.mkdir()
        (folder / "dump.rdb").write_bytes(file.read_bytes())
        with client_of(new_redis(dir=str(folder))) as client:
            held |= set(client.keys())
    assert {"own", "mine"} <= held
    assert ("session:4711" in held) == (not way)
    again = new_streamd(dir=str(first.folder))
    assert_same_data(again, source)
    with client_of(source) as client:
        assert client.execute_command("VCARD", "session:4711") == 1
