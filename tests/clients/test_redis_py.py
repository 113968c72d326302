"""redis-py, as a user calls it: every stream method, blocking reads, pipelines, pools, several databases.

Runs against streamd always, and against a real Redis when there is one (marked `real`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from support.redis_py import connection_arguments, read_entries
from support.servers import Server, eventually

PAYLOAD = {"sensor-id": "1234", "temperature": "19.8"}


@pytest.fixture
def client(server: Server, protocol: int | None) -> Iterator[redis.Redis]:
    with redis.Redis(**connection_arguments(server.port, protocol)) as client:
        yield client


def fill(client: redis.Redis, count: int = 5, key: str = "s") -> list[str]:
    return [client.xadd(key, {"n": n}, id=f"{n}-1") for n in range(1, count + 1)]


# --- Adding, reading, trimming --------------------------------------------------------------------------------------


def test_an_added_entry_is_read_back(client: redis.Redis) -> None:
    entry_id = client.xadd("s", PAYLOAD)
    assert client.xlen("s") == 1
    assert client.xrange("s") == [(entry_id, PAYLOAD)]
    assert abs(int(entry_id.split("-")[0]) / 1000 - time.time()) < 60


def test_automatic_ids_only_grow(client: redis.Redis) -> None:
    ids = [tuple(map(int, client.xadd("s", PAYLOAD).split("-"))) for _ in range(50)]
    assert ids == sorted(set(ids))


def test_xadd_options(client: redis.Redis) -> None:
    assert client.xadd("s", PAYLOAD, nomkstream=True) is None
    fill(client, 10)
    client.xadd("s", PAYLOAD, id="11-1", maxlen=5, approximate=False)
    assert client.xlen("s") == 5
    client.xadd("s", PAYLOAD, id="12-1", minid="10", approximate=False)
    assert [entry_id for entry_id, _ in client.xrange("s")] == ["10-1", "11-1", "12-1"]
    assert client.xadd("s", PAYLOAD, id="12-*") == "12-2"
    client.xadd("s", PAYLOAD, id="13-1", maxlen=0, approximate=True, limit=100)
    client.xadd("s", PAYLOAD, id="14-1", maxlen=1, approximate=False, ref_policy="DELREF")
    assert client.xlen("s") == 1


def test_idempotent_adding(client: redis.Redis) -> None:
    first = client.xadd("s", PAYLOAD, idmp=("producer", b"message-1"))
    assert client.xadd("s", PAYLOAD, idmp=("producer", b"message-1")) == first
    second = client.xadd("s", PAYLOAD, idmpauto="producer")
    assert client.xadd("s", PAYLOAD, idmpauto="producer") == second
    assert client.xlen("s") == 2
    assert client.xcfgset("s", idmp_maxsize=5)


def test_ranges(client: redis.Redis) -> None:
    fill(client)
    assert [i for i, _ in client.xrange("s", "2", "(4-1")] == ["2-1", "3-1"]
    assert [i for i, _ in client.xrange("s", count=2)] == ["1-1", "2-1"]
    assert [i for i, _ in client.xrevrange("s", "4", "2")] == ["4-1", "3-1", "2-1"]
    assert [i for i, _ in client.xrevrange("s", count=1)] == ["5-1"]
    assert client.xrange("none") == []


def test_xread(client: redis.Redis) -> None:
    fill(client, 3)
    fill(client, 2, key="t")
    got = read_entries(client.xread({"s": "1-1", "t": "0", "none": "0"}, count=1))
    assert got == {"s": [("2-1", {"n": "2"})], "t": [("1-1", {"n": "1"})]}
    assert read_entries(client.xread({"s": "+"})) == {"s": [("3-1", {"n": "3"})]}
    assert not client.xread({"s": "$"})


def test_limits_of_a_whole_reply(server: Server, client: redis.Redis) -> None:
    if server.name == "redis":
        pytest.skip("needs Redis 8.10")
    fill(client, 3)
    fill(client, 3, key="t")
    client.xgroup_create("s", "g", "0")
    client.xgroup_create("t", "g", "0")
    both = {"s": "0", "t": "0"}
    got = read_entries(client.xread(both, count=2, max_count=3))
    assert {key: len(entries) for key, entries in got.items()} == {"s": 2, "t": 1}
    assert list(read_entries(client.xread(both, max_size=1))) == ["s"]
    new = {"s": ">", "t": ">"}
    got = read_entries(client.xreadgroup("g", "c", new, max_count=2))
    assert {key: len(entries) for key, entries in got.items()} == {"s": 2}
    assert client.xinfo_consumers("t", "g") == []
    got = read_entries(client.xreadgroup("g", "c", new, block=1, max_size=1))
    assert got == {"s": [("3-1", {"n": "3"})]}
    with pytest.raises(redis.ResponseError, match="MAXCOUNT must be greater than or equal to COUNT"):
        client.execute_command("XREAD", "COUNT", 2, "MAXCOUNT", 1, "STREAMS", "s", "0")


def test_trimming_and_deleting(client: redis.Redis) -> None:
    fill(client, 10)
    assert client.xtrim("s", maxlen=8, approximate=False) == 2
    assert client.xtrim("s", minid="5", approximate=False) == 2
    assert client.xtrim("s", maxlen=1, approximate=True) == 0
    assert client.xdel("s", "5-1", "99-1") == 1
    assert client.xdelex("s", "6-1", "99-1", ref_policy="DELREF") == [1, -1]
    assert client.xlen("s") == 4


def test_binary_fields_survive(server: Server, protocol: int | None) -> None:
    with redis.Redis(**connection_arguments(server.port, protocol, decode_responses=False)) as client:
        fields = {bytes(range(256)): b"\r\n$5\r\n", b"": b"", b"big": b"x" * 100_000}
        client.xadd(b"\x00key", fields, id="1-1")
        assert client.xrange(b"\x00key") == [(b"1-1", fields)]


# --- Groups ---------------------------------------------------------------------------------------------------------


def test_a_group_from_creation_to_destruction(client: redis.Redis) -> None:
    assert client.xgroup_create("s", "g", id="$", mkstream=True)
    with pytest.raises(redis.ResponseError, match="Consumer Group name already exists"):
        client.xgroup_create("s", "g")
    ids = fill(client, 4)
    assert read_entries(client.xreadgroup("g", "alice", {"s": ">"}, count=2)) == {
        "s": [("1-1", {"n": "1"}), ("2-1", {"n": "2"})]
    }
    assert list(read_entries(client.xreadgroup("g", "bob", {"s": ">"}))["s"]) == [
        ("3-1", {"n": "3"}),
        ("4-1", {"n": "4"}),
    ]
    assert client.xpending("s", "g") == {
        "pending": 4,
        "min": "1-1",
        "max": "4-1",
        "consumers": [{"name": "alice", "pending": 2}, {"name": "bob", "pending": 2}],
    }
    rows = client.xpending_range("s", "g", "-", "+", 10, consumername="alice")
    assert [(row["message_id"], row["consumer"], row["times_delivered"]) for row in rows] == [
        ("1-1", "alice", 1),
        ("2-1", "alice", 1),
    ]
    assert client.xack("s", "g", "1-1", "1-1") == 1
    assert [i for i, _ in read_entries(client.xreadgroup("g", "alice", {"s": "0"}))["s"]] == ["2-1"]
    assert client.xackdel("s", "g", "2-1", ref_policy="ACKED") == [1]
    assert client.xlen("s") == 3
    assert client.xgroup_setid("s", "g", "0")
    assert client.xgroup_createconsumer("s", "g", "carol") == 1
    assert client.xgroup_delconsumer("s", "g", "bob") == 2
    assert client.xgroup_destroy("s", "g")
    assert client.xinfo_groups("s") == []
    assert ids == ["1-1", "2-1", "3-1", "4-1"]


def test_claiming(client: redis.Redis) -> None:
    client.xgroup_create("s", "g", id="0", mkstream=True)
    fill(client, 3)
    client.xreadgroup("g", "alice", {"s": ">"})
    assert client.xclaim("s", "g", "bob", 0, ["1-1"]) == [("1-1", {"n": "1"})]
    assert client.xclaim("s", "g", "bob", 0, ["2-1"], justid=True) == ["2-1"]
    assert client.xclaim("s", "g", "bob", 1_000_000, ["3-1"]) == []
    client.xclaim("s", "g", "bob", 0, ["3-1"], idle=2_000_000, retrycount=7)
    row = client.xpending_range("s", "g", "3-1", "3-1", 1)[0]
    assert (row["consumer"], row["times_delivered"]) == ("bob", 7)
    assert row["time_since_delivered"] >= 2_000_000
    client.xdel("s", "1-1")
    cursor, entries, deleted = client.xautoclaim("s", "g", "carol", 0, count=2)
    assert (cursor, entries, deleted) == ("3-1", [("2-1", {"n": "2"})], ["1-1"])
    assert client.xautoclaim("s", "g", "carol", 0, start_id=cursor, justid=True) == ["3-1"]


def test_claiming_while_reading(client: redis.Redis) -> None:
    client.xgroup_create("s", "g", id="0", mkstream=True)
    fill(client, 2)
    client.xreadgroup("g", "alice", {"s": ">"}, count=1)
    client.xclaim("s", "g", "alice", 0, ["1-1"], idle=2_000_000, justid=True)
    client.execute_command("PING")
    entries = read_entries(client.xreadgroup("g", "bob", {"s": ">"}, claim_min_idle_time=1_000_000))["s"]
    assert [entry[0] for entry in entries] == ["1-1", "2-1"]


def test_noack(client: redis.Redis) -> None:
    client.xgroup_create("s", "g", id="0", mkstream=True)
    fill(client, 2)
    client.xreadgroup("g", "alice", {"s": ">"}, noack=True)
    assert client.xpending("s", "g")["pending"] == 0


def test_giving_back(streamd_server: Server, protocol: int | None) -> None:
    """Redis has that since 8.8."""
    with redis.Redis(**connection_arguments(streamd_server.port, protocol)) as client:
        client.flushall()
        client.xgroup_create("s", "g", id="0", mkstream=True)
        fill(client, 4)
        client.xreadgroup("g", "alice", {"s": ">"}, count=3)
        assert client.xnack("s", "g", "FAIL", "3-1", "1-1") == 2
        assert client.xnack("s", "g", "SILENT", "9-9") == 0
        assert client.xnack("s", "g", "FATAL", "4-1", retrycount=5, force=True) == 1
        assert client.xpending("s", "g") == {
            "pending": 4, "min": "1-1", "max": "4-1", "consumers": [{"name": "alice", "pending": 1}],
        }  # fmt: skip
        rows = client.xpending_range("s", "g", "-", "+", 10)
        assert [(row["message_id"], row["consumer"], row["times_delivered"]) for row in rows] == [
            ("1-1", "", 1), ("2-1", "alice", 1), ("3-1", "", 1), ("4-1", "", 5),
        ]  # fmt: skip
        assert [row["time_since_delivered"] for row in rows if not row["consumer"]] == [-1, -1, -1]
        (group,) = client.xinfo_stream("s", full=True)["groups"]
        assert (group["pel-count"], group["nacked-count"]) == (4, 3)
        with pytest.raises(redis.ResponseError, match="Invalid stream ID"):
            client.xnack("s", "g", "FAIL", "x")
        reply = client.xreadgroup("g", "bob", {"s": ">"}, count=2, claim_min_idle_time=100_000)
        entries = reply["s"][0] if isinstance(reply, dict) else reply[0][1]
        assert [entry[0] for entry in entries] == ["3-1", "1-1"]
        assert client.xautoclaim("s", "g", "carol", min_idle_time=100_000)[1] == [("4-1", {"n": "4"})]


def test_xinfo(client: redis.Redis) -> None:
    client.xgroup_create("s", "g", id="0", mkstream=True)
    fill(client, 3)
    client.xreadgroup("g", "alice", {"s": ">"}, count=2)
    info = client.xinfo_stream("s")
    assert {name: info[name] for name in ("length", "groups", "last-generated-id", "entries-added")} == {
        "length": 3,
        "groups": 1,
        "last-generated-id": "3-1",
        "entries-added": 3,
    }
    assert info["first-entry"] == ("1-1", {"n": "1"})
    full = client.xinfo_stream("s", full=True)
    assert full["groups"][0]["consumers"][0]["pel-count"] == 2
    group = client.xinfo_groups("s")[0]
    assert {
        name: group[name] for name in ("name", "consumers", "pending", "last-delivered-id", "entries-read", "lag")
    } == {
        "name": "g",
        "consumers": 1,
        "pending": 2,
        "last-delivered-id": "2-1",
        "entries-read": 2,
        "lag": 1,
    }
    consumer = client.xinfo_consumers("s", "g")[0]
    assert consumer["name"] == "alice"
    assert consumer["pending"] == 2
    assert consumer["idle"] >= 0


# --- Blocking -------------------------------------------------------------------------------------------------------


def test_a_blocking_read_waits_for_its_time_and_gives_nothing(client: redis.Redis) -> None:
    started = time.monotonic()
    assert not client.xread({"s": "$"}, block=100)
    assert 0.099 <= time.monotonic() - started < 60


def test_a_blocking_read_is_woken_by_an_entry(server: Server, client: redis.Redis, protocol: int | None) -> None:
    got: list[object] = []

    def read() -> None:
        with redis.Redis(**connection_arguments(server.port, protocol)) as reader:
            got.append(read_entries(reader.xread({"s": "$"}, block=0)))

    thread = threading.Thread(target=read)
    thread.start()
    eventually(lambda: client.info("clients")["blocked_clients"] == 1)
    client.xadd("s", PAYLOAD, id="1-1")
    thread.join(60)
    assert got == [{"s": [("1-1", PAYLOAD)]}]


def test_group_readers_share_what_comes(server: Server, client: redis.Redis, protocol: int | None) -> None:
    client.xgroup_create("s", "g", mkstream=True)
    got: list[str] = []

    def work(name: str) -> None:
        with redis.Redis(**connection_arguments(server.port, protocol)) as worker:
            while True:
                try:
                    reply = worker.xreadgroup("g", name, {"s": ">"}, count=10, block=0)
                except redis.ResponseError:  # the group is gone: the end of the test
                    return
                ids = [entry_id for entry_id, _ in read_entries(reply)["s"]]
                got.extend(ids)
                worker.xack("s", "g", *ids)

    threads = [threading.Thread(target=work, args=(f"worker-{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    sent = [client.xadd("s", {"n": n}) for n in range(200)]
    eventually(lambda: len(got) == len(sent))
    eventually(lambda: client.info("clients")["blocked_clients"] == len(threads))
    assert client.xpending("s", "g")["pending"] == 0
    client.xgroup_destroy("s", "g")
    for thread in threads:
        thread.join(60)
    assert sorted(got) == sorted(sent)


def test_a_blocking_read_fails_when_its_group_goes(server: Server, client: redis.Redis, protocol: int | None) -> None:
    client.xgroup_create("s", "g", mkstream=True)
    errors: list[str] = []

    def read() -> None:
        with redis.Redis(**connection_arguments(server.port, protocol)) as reader:
            try:
                reader.xreadgroup("g", "a", {"s": ">"}, block=0)
            except redis.ResponseError as error:
                errors.append(str(error))

    thread = threading.Thread(target=read)
    thread.start()
    eventually(lambda: client.info("clients")["blocked_clients"] == 1)
    client.delete("s")
    thread.join(60)
    assert len(errors) == 1
    assert "No such key 's' or consumer group 'g'" in errors[0]


# --- Connections ----------------------------------------------------------------------------------------------------


def test_a_pipeline_without_a_transaction(client: redis.Redis) -> None:
    with client.pipeline(transaction=False) as pipe:
        for n in range(500):
            pipe.xadd("s", {"n": n}, id=f"{n + 1}-0")
        pipe.xlen("s")
        pipe.xrange("s", count=1)
        results = pipe.execute()
    assert results[:2] == ["1-0", "2-0"]
    assert results[-2:] == [500, [("1-0", {"n": "0"})]]


def test_errors_inside_a_pipeline_are_the_command_s_own(client: redis.Redis) -> None:
    with client.pipeline(transaction=False) as pipe:
        pipe.xadd("s", PAYLOAD, id="1-1")
        pipe.xadd("s", PAYLOAD, id="1-1")
        pipe.get("s")
        pipe.xlen("s")
        results = pipe.execute(raise_on_error=False)
    assert results[0] == "1-1"
    assert [type(r) for r in results[1:3]] == [redis.ResponseError, redis.ResponseError]
    assert results[3] == 1


def test_a_pool_shared_by_threads(server: Server, protocol: int | None) -> None:
    pool = redis.ConnectionPool(**connection_arguments(server.port, protocol, max_connections=20))
    client = redis.Redis(connection_pool=pool)

    def add(worker: int) -> None:
        for n in range(50):
            client.xadd("s", {"worker": worker, "n": n})

    threads = [threading.Thread(target=add, args=(worker,)) for worker in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert client.xlen("s") == 500
    pool.disconnect()


def test_a_large_reply_and_a_large_request(client: redis.Redis) -> None:
    client.xadd("s", {"big": "x" * 5_000_000}, id="1-1")
    assert client.xrange("s")[0][1]["big"] == "x" * 5_000_000
    with client.pipeline(transaction=False) as pipe:
        for n in range(10_000):
            pipe.xadd("t", {"n": n}, id=f"{n + 1}-0")
        pipe.execute()
    assert len(client.xrange("t")) == 10_000


def test_databases_are_separate(server: Server, client: redis.Redis, protocol: int | None) -> None:
    client.xadd("s", PAYLOAD)
    with redis.Redis(**connection_arguments(server.port, protocol, db=3)) as other:
        assert other.exists("s") == 0
        other.set("text", "value")
        assert other.dbsize() == 1
    assert client.dbsize() == 1


def test_the_client_s_name_is_known(server: Server, protocol: int | None) -> None:
    with redis.Redis(**connection_arguments(server.port, protocol, client_name="reader-7")) as client:
        assert client.client_getname() == "reader-7"
        mine = next(c for c in client.client_list() if c["id"] == str(client.client_id()))
        assert mine["name"] == "reader-7"
        assert mine["lib-name"].startswith("redis-py")


def test_a_password(new_streamd, protocol: int | None) -> None:
    server = new_streamd(requirepass="secret")
    with redis.Redis(**connection_arguments(server.port, protocol, password="secret")) as client:
        assert client.ping()
    with (
        redis.Redis(
            **connection_arguments(server.port, protocol, password="wrong", retry=Retry(NoBackoff(), 0))
        ) as client,
        pytest.raises(redis.AuthenticationError, match="invalid username-password pair"),
    ):
        client.ping()


def test_a_unix_socket(new_streamd, protocol: int | None, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("u") / "s"
    new_streamd(unixsocket=str(path))
    arguments = connection_arguments(0, protocol)
    del arguments["host"], arguments["port"]
    with redis.Redis(unix_socket_path=str(path), **arguments) as client:
        assert client.xadd("s", PAYLOAD, id="1-1") == "1-1"


# --- Keys -----------------------------------------------------------------------------------------------------------


def test_generic_commands(client: redis.Redis) -> None:
    client.xadd("s", PAYLOAD, id="1-1")
    client.set("text", "value")
    assert client.type("s") == "stream"
    assert client.exists("s", "text", "none") == 2
    assert sorted(client.scan_iter(count=1)) == ["s", "text"]
    assert list(client.scan_iter(_type="STREAM")) == ["s"]
    assert sorted(client.keys("*")) == ["s", "text"]
    assert client.expire("s", 1000)
    assert 900 < client.ttl("s") <= 1000
    assert client.persist("s")
    assert client.ttl("s") == -1
    assert client.copy("s", "copy")
    assert client.rename("copy", "moved")
    assert client.xlen("moved") == 1
    assert client.object("encoding", "s") == "stream"
    assert client.touch("s") == 1
    assert client.delete("s", "text", "moved") == 3
    assert client.dbsize() == 0


def test_server_commands(client: redis.Redis) -> None:
    assert client.ping()
    assert client.echo("hello") == "hello"
    assert client.config_get("stream-node-max-entries") == {"stream-node-max-entries": "100"}
    assert client.config_set("stream-node-max-entries", 50)
    assert client.config_set("stream-node-max-entries", 100)
    assert client.info()["redis_version"].count(".") == 2
    assert abs(client.time()[0] - time.time()) < 60
    assert client.command_count() > 50
    assert "xadd" in client.command()
    assert client.command_getkeys("XREAD", "STREAMS", "a", "b", "0", "0") == ["a", "b"]
    with pytest.raises(redis.ResponseError, match="unknown command"):
        client.execute_command("NOSUCH")
    client.set("text", "v")
    with pytest.raises(redis.ResponseError, match="wrong kind of value"):
        client.xlen("text")
