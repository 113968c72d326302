"""`metrics-port`: what a scrape gets, read by prometheus_client's own parsers and by promtool."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable
from http.client import HTTPConnection
from typing import Any

import pytest
import redis
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text
from support.servers import Server, eventually, free_port, python_environment
from support.tools import find_tool

import streamd.embedded
from streamd.embedded import EmbeddedCluster
from streamd.errors import ConfigError
from streamd.observe.metrics.metric_families import OF_INFO
from streamd.values.streams.stream_metrics import CONSUMER, GROUP, STREAM

pytestmark = pytest.mark.long

StartServer = Callable[..., Server]
DEADLINE_S = 100
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
DAY_MS = 86_400_000


@pytest.fixture
def server(new_streamd: StartServer) -> Server:
    """With metrics; its port is `metrics_port_of(server)`."""
    return new_streamd(metrics_port=str(free_port()))


def client_of(server: Server, db: int = 0) -> redis.Redis:
    return redis.Redis(port=server.port, db=db, protocol=2, decode_responses=True)


def metrics_port_of(server: Server) -> int:
    with client_of(server) as client:
        return int(client.config_get("metrics-port")["metrics-port"])


def get(port: int, path: str = "/metrics", accept: str = "", method: str = "GET") -> tuple[int, str, str]:
    """Status, content type, text."""
    connection = HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)
    connection.request(method, path, headers={"Accept": accept})
    response = connection.getresponse()
    found = response.status, response.headers["Content-Type"], response.read().decode()
    connection.close()
    return found


def scrape(server: Server) -> dict[str, dict[tuple[str, ...], float]]:
    """The values by sample and by the values of its labels."""
    return scrape_at(metrics_port_of(server))


def scrape_at(port: int) -> dict[str, dict[tuple[str, ...], float]]:
    """As `scrape`."""
    text = get(port, accept=OPENMETRICS)[2]
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in parse_openmetrics(text):
        for sample in family.samples:
            labels = tuple(sample.labels.values())
            assert labels not in found.setdefault(sample.name, {}), (sample.name, labels)
            found[sample.name][labels] = sample.value
    return found


# --- The text ------------------------------------------------------------------------------------------------------------


def test_both_formats_are_read_by_the_parsers_of_prometheus_client(server: Server) -> None:
    with client_of(server) as client:
        client.xadd("orders", {"a": 1})
        client.xgroup_create("orders", "billing", 0)
    port = metrics_port_of(server)
    status, kind, text = get(port, accept=OPENMETRICS)
    assert (status, kind.split(";")[0]) == (200, "application/openmetrics-text")
    assert text.endswith("# EOF\n")
    ours = {family.name: family.type for family in parse_openmetrics(text)}
    status, kind, text = get(port)
    assert (status, kind.split(";")[0]) == (200, "text/plain")
    assert {family.name for family in parse_text(text)} >= ours.keys() - {"streamd_server"}
    assert {family.name for of in (STREAM, GROUP, CONSUMER) for family in of.values()} <= ours.keys()


def test_promtool_has_nothing_to_say(server: Server) -> None:
    promtool = find_tool("promtool")
    with client_of(server) as client:
        client.xadd("orders", {"a": 1})
        client.xgroup_create("orders", "billing", 0)
        client.xreadgroup("billing", "alice", {"orders": ">"})
    text = get(metrics_port_of(server))[2]
    said = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (said.returncode, said.stdout, said.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/", 404), ("POST", "/metrics", 405), ("HEAD", "/metrics", 200)]
)
def test_there_is_nothing_else(server: Server, method: str, path: str, status: int) -> None:
    assert get(metrics_port_of(server), path, method=method)[0] == status


def test_names_of_any_bytes_can_be_read(server: Server) -> None:
    with client_of(server) as client:
        for name in (b'a "quoted"\nname\\', "Bücher".encode(), b"\xff\x00"):
            client.xadd(name, {"a": 1})
    found = scrape(server)["streamd_stream_entries"]
    assert set(found) == {("0", 'a "quoted"\nname\\'), ("0", "Bücher"), ("0", "\\xff\0")}


# --- The values ----------------------------------------------------------------------------------------------------------


def test_every_field_of_info_has_its_metric(server: Server) -> None:
    with client_of(server) as client:
        client.config_set("appendonly", "yes")
        client.set("a", "b")
        shown = client.info("everything")
        found = scrape(server)
    written = {family.name + {"counter": "_total"}.get(family.kind, "") for family in OF_INFO if family.field in shown}
    assert written <= found.keys()
    assert found["streamd_connected_clients"][()] == 1
    assert found["streamd_commands_processed_total"][()] >= 3
    assert found["streamd_aof_last_write_ok"][()] == 1
    assert found["streamd_db_keys"][("0",)] == 1
    assert found["streamd_memory_used_bytes"][()] > 0
    (labels,) = found["streamd_server_info"]
    assert "master" in labels


def test_nodes_of_a_cluster_have_metrics_with_their_shard(
    streamd_start_cluster: Callable[..., EmbeddedCluster],
) -> None:
    cluster = streamd_start_cluster(nodes=6, replicas=1, cluster_node_timeout=3000)
    ports = []
    for node in cluster.nodes:
        ports.append(free_port())
        with node.client() as client:
            client.config_set("metrics-port", ports[-1])
    # Under load a node may seem to fail for a moment.
    eventually(
        lambda: all([*scrape_at(port)["streamd_cluster_failed_nodes"].values()] == [0] for port in ports), DEADLINE_S
    )
    found = [scrape_at(port) for port in ports]
    names = [
        (
            node.client(decode_responses=True).execute_command("CLUSTER", "MYSHARDID"),
            str(each["streamd_cluster_node_info"]),
        )
        for node, each in zip(cluster.nodes, found, strict=True)
    ]
    assert all(shard in labels for shard, labels in names)
    assert len({shard for shard, _ in names}) == 3
    for name, values in {
        "up": [1.0] * 6, "known_nodes": [6.0] * 6,
    }.items():  # fmt: skip
        assert [[*each[f"streamd_cluster_{name}"].values()] for each in found] == [[value] for value in values], name
    slots = [next(iter(each["streamd_cluster_slots"].values())) for each in found]
    assert (sum(slots), sorted(slots)[:3]) == (16384, [0, 0, 0])
    cluster.nodes[5].kill()
    eventually(lambda: [*scrape_at(ports[0])["streamd_cluster_failed_nodes"].values()] == [1], DEADLINE_S)
    cluster.nodes[0].kill()
    eventually(lambda: [*scrape_at(ports[1])["streamd_cluster_failed_nodes"].values()] == [2], DEADLINE_S)


def test_a_server_without_a_cluster_has_no_metrics_of_one(server: Server) -> None:
    assert not [name for name in scrape(server) if name.startswith("streamd_cluster_")]


def test_keys_are_counted_by_type(server: Server) -> None:
    with client_of(server) as client:
        client.set("text", "a")
        client.xadd("stream", {"a": "b"})
        client.xadd("another", {"a": "b"})
        client.hset("hash", "a", "b")
        client.rpush("list", "a", "b")
        client.sadd("set", "a")
        client.zadd("zset", {"a": 1})
        types = ("string", "stream", "hash", "list", "set", "zset")
        expected = {("0", name): 2 if name == "stream" else 1 for name in types}
        assert scrape(server)["streamd_db_keys_of_type"] == expected
        client.delete("another", "hash")
        expected["0", "stream"] = 1
        del expected["0", "hash"]
        assert scrape(server)["streamd_db_keys_of_type"] == expected


def test_the_histogram_of_a_command_counts_its_calls(server: Server) -> None:
    with client_of(server) as client:
        for _ in range(20):
            client.set("a", "b")
        client.execute_command("DEBUG", "SLEEP", "0.01")
        with pytest.raises(redis.ResponseError, match="not an integer"):
            client.incr("a")
        found, stats = scrape(server), client.info("commandstats")
    buckets = {
        labels[1]: value
        for labels, value in found["streamd_command_duration_seconds_bucket"].items()
        if labels[0] == "set"
    }
    assert [*buckets.values()] == sorted(buckets.values())
    assert (buckets["+Inf"], found["streamd_command_duration_seconds_count"][("set",)]) == (20, 20)
    took_s = {name: stats[f"cmdstat_{name}"]["usec"] / 1_000_000 for name in ("set", "debug")}
    for name, seconds in took_s.items():
        assert found["streamd_command_duration_seconds_sum"][(name,)] == pytest.approx(seconds)
    slept = {
        labels[1]: value
        for labels, value in found["streamd_command_duration_seconds_bucket"].items()
        if labels[0] == "debug"
    }
    assert slept["0.008454"] == 0
    assert slept == {bound: float(took_s["debug"] <= float(bound)) for bound in slept}
    assert found["streamd_command_failed_calls_total"][("incrby",)] == 1
    assert found["streamd_errors_total"][("ERR",)] == 1


def test_a_stream_its_groups_and_consumers(server: Server) -> None:
    now_ms = int(time.time() * 1000)
    with client_of(server, db=3) as client:
        for number in range(100):
            client.xadd("orders", {"a": 1}, id=f"{now_ms - DAY_MS + number}-0")
        client.xtrim("orders", maxlen=90, approximate=False)
        client.xgroup_create("orders", "billing", 0)
        read = client.xreadgroup("billing", "alice", {"orders": ">"}, count=40)[0][1]
        client.xack("orders", "billing", *(entry for entry, _ in read[:30]))
        for _ in range(8):
            client.xclaim("orders", "billing", "bob", 0, [read[35][0]])
        client.xgroup_create("orders", "done", "$")
        found = scrape(server)
    stream, billing, done = ("3", "orders"), ("3", "orders", "billing"), ("3", "orders", "done")
    assert found["streamd_stream_entries"][stream] == 90
    assert found["streamd_stream_memory_bytes"][stream] > 500
    assert found["streamd_stream_entries_added_total"][stream] == 100
    assert found["streamd_stream_entries_removed_total"][stream] == 10
    assert found["streamd_stream_last_entry_timestamp_seconds"][stream] == pytest.approx((now_ms - DAY_MS + 99) / 1000)
    assert (found["streamd_group_lag_entries"][billing], found["streamd_group_lag_entries"][done]) == (50, 0)
    assert DAY_MS / 1000 - 1 < found["streamd_group_lag_seconds"][billing] < DAY_MS / 1000 + DEADLINE_S
    assert found["streamd_group_lag_seconds"][done] == 0
    assert found["streamd_group_entries_read_total"][billing] == 50  # with the ten that had been trimmed
    assert (found["streamd_group_pending_entries"][billing], found["streamd_group_pending_entries"][done]) == (10, 0)
    assert DAY_MS / 1000 - 1 < found["streamd_group_oldest_pending_seconds"][billing] < DAY_MS / 1000 + DEADLINE_S
    assert found["streamd_group_often_delivered_entries"][billing] == 1
    assert (found["streamd_group_consumers"][billing], found["streamd_group_consumers"][done]) == (2, 0)
    assert {labels[3]: value for labels, value in found["streamd_consumer_pending_entries"].items()} == {
        "alice": 9,
        "bob": 1,
    }
    seen = [*found["streamd_consumer_last_seen_timestamp_seconds"].values()]
    assert all(now_ms / 1000 - 1 < each < time.time() + 1 for each in seen)


def test_rules_of_streams_and_groups(server: Server) -> None:
    with client_of(server, db=3) as client:
        for rule in (
            "STREAMD.GROUP SET orders billing MAXDELIVERIES 1 DEADLETTER dead BACKOFF 3600000",
            "STREAMD.STREAM SET orders RETAIN LENGTH 4",
            "STREAMD.STREAM SET later FEEDS orders DUE due UNIQUE user",
            "STREAMD.STREAM SET stuck FEEDS text DUE due",
            "STREAMD.STREAM SET short EXPIRES until",
        ):
            client.execute_command(*rule.split())
        client.set("text", "no stream")
        client.xgroup_create("orders", "billing", 0, mkstream=True)
        client.xgroup_create("orders", "free", 0)
        client.xadd("later", {"due": "x"})
        far_ms = 10**15
        for _ in range(2):
            client.xadd("later", {"due": far_ms, "user": 7})
        client.xadd("later", {"due": 0, "job": 1})
        client.xadd("stuck", {"due": 0})
        client.xadd("short", {"until": 0})
        eventually(lambda: client.xlen("orders") == 1)
        for number in range(9):
            client.xadd("orders", {"a": number})
        eventually(lambda: (client.xlen("orders"), client.xlen("short")) == (4, 0))
        [(_, read)] = client.xreadgroup("billing", "alice", {"orders": ">"})
        client.execute_command("XNACK", "orders", "billing", "FATAL", "IDS", 1, read[0][0])
        client.execute_command("STREAMD.GROUP", "SET", "orders", "billing", "MAXDELIVERIES", 5)
        client.execute_command("XNACK", "orders", "billing", "FAIL", "IDS", 1, read[1][0])
        client.delete("dead")
        client.set("dead", "no stream")
        client.execute_command("XNACK", "orders", "billing", "FATAL", "IDS", 1, read[2][0])
        eventually(lambda: scrape(server)["streamd_stream_delays_not_moving"][("3", "stuck")] == 1)
        found = scrape(server)
    billing = ("3", "orders", "billing")
    assert set(found["streamd_group_dead_letters_total"]) == {billing}, "groups without a rule have no such figures"
    names = ("dead_letters_total", "dead_letters_not_moved", "held_back_entries")
    assert [found[f"streamd_group_{name}"][billing] for name in names] == [1, 1, 1]
    later = ("3", "later")
    names = ("entries", "moved_total", "replaced_total", "not_moving")
    assert [found[f"streamd_stream_delay{'s' if name == 'not_moving' else 'ed'}_{name}"][later] for name in names] == [
        2,
        1,
        1,
        0,
    ]
    assert found["streamd_stream_bad_times"][later] == 1
    assert found["streamd_stream_expired_entries_total"][("3", "short")] == 1
    assert found["streamd_stream_trimmed_entries_total"] == {("3", "orders"): 6}
    assert found["streamd_trimmed_entries_total"][("length",)] == 6
    sums = (
        "dead_letters_moved_total",
        "dead_letters_not_moved",
        "entries_delayed_moved_total",
        "entries_expired_total",
        "delays_not_moving",
    )
    assert [found[f"streamd_{name}"][()] for name in sums] == [1, 1, 1, 1, 1]


def test_what_is_told_one_by_one_is_bounded(server: Server) -> None:
    with client_of(server) as client:
        for number in range(20):
            client.xadd(f"stream:{number}", {"a": 1})
            client.xgroup_create(f"stream:{number}", "group", 0)
            client.set(f"string:{number}", "x")
            for name in ("alice", "bob"):
                client.xgroup_createconsumer(f"stream:{number}", "group", name)

        def numbers() -> tuple[int, int, int, float, float]:
            found = scrape(server)
            return (
                len(found["streamd_stream_entries"]),
                len(found["streamd_group_lag_entries"]),
                len(found.get("streamd_consumer_pending_entries", ())),
                found["streamd_metrics_left_out"][("streams",)],
                found["streamd_metrics_left_out"][("consumers",)],
            )

        assert numbers() == (20, 20, 40, 0, 0)
        client.config_set("metrics-max-consumers", 15)
        assert numbers() == (20, 20, 15, 0, 1)
        client.config_set("metrics-max-streams", 7)
        assert numbers() == (7, 7, 14, 1, 0)
        client.config_set("metrics-streams", "stream:1?")
        client.config_set("metrics-max-streams", 100)
        assert numbers() == (10, 10, 15, 0, 1)
        client.config_set("metrics-streams", "nothing")
        assert scrape(server).get("streamd_stream_entries") is None


def test_a_stream_that_is_gone_or_replaced_is_not_told_of(server: Server) -> None:
    with client_of(server) as client:
        for name in ("deleted", "replaced", "expired", "kept"):
            client.xadd(name, {"a": 1})
        assert len(scrape(server)["streamd_stream_entries"]) == 4
        client.delete("deleted")
        client.set("replaced", "x")
        client.execute_command("DEBUG", "SET-ACTIVE-EXPIRE", "0")
        client.pexpire("expired", 1)
        eventually(lambda: client.ttl("expired") == -2, DEADLINE_S)
        assert [labels[1] for labels in scrape(server)["streamd_stream_entries"]] == ["kept"]


def test_many_keys_are_looked_at_bit_by_bit(server: Server) -> None:
    """More keys than a scrape looks at: the streams among them are found in the end, and stay found."""
    with client_of(server) as client:
        client.execute_command("DEBUG", "POPULATE", "150000")
        for number in range(10):
            client.xadd(f"stream:{number}", {"a": 1})
        client.execute_command("DEBUG", "POPULATE", "150000", "more")
    eventually(lambda: len(scrape(server).get("streamd_stream_entries", ())) == 10, DEADLINE_S)
    for _ in range(4):
        assert len(scrape(server)["streamd_stream_entries"]) == 10


def test_who_leaves_in_the_middle_leaves_nothing_behind(server: Server) -> None:
    with client_of(server) as client, client.pipeline(transaction=False) as pipe:
        for number in range(2000):
            pipe.xadd(f"stream:{number}", {"a": 1})
            pipe.xgroup_create(f"stream:{number}", "group", 0)
        pipe.execute()
        client.config_set("metrics-max-streams", 2000)
    port = metrics_port_of(server)
    for _ in range(10):
        with socket.create_connection(("127.0.0.1", port), DEADLINE_S) as sock:
            sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
            assert sock.recv(100).startswith(b"HTTP/1.1 200 OK")
    with socket.create_connection(("127.0.0.1", port), DEADLINE_S) as sock:
        sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")  # and does not read
        assert len(scrape(server)["streamd_stream_entries"]) == 2000


@pytest.mark.parametrize(
    "sent", [b"\x16\x03\x01\x00\xa5garbage\r\n\r\n", b"PING\r\n\r\n", b"GET /metrics HTTP/1.1\r\nHost"]
)
def test_what_is_not_http_is_no_reason_for_a_traceback(server: Server, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", metrics_port_of(server)), DEADLINE_S) as sock:
        sock.sendall(sent)
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(1000):
            pass
    assert scrape(server)
    assert "aiohttp" not in server.log()


# --- The port ------------------------------------------------------------------------------------------------------------


def test_the_port_is_opened_moved_and_closed_while_the_server_runs(new_streamd: StartServer) -> None:
    with client_of(new_streamd()) as client:
        first, second = free_port(), free_port()
        client.config_set("metrics-port", first)
        assert get(first)[0] == 200
        client.config_set("metrics-port", second)
        assert get(second)[0] == 200
        with pytest.raises(OSError, match="refused"):
            get(first)
        client.config_set("metrics-port", 0)
        with pytest.raises(OSError, match="refused"):
            get(second)


def test_a_port_that_is_taken_is_refused(new_streamd: StartServer) -> None:
    first, second = new_streamd(metrics_port=str(free_port())), new_streamd()
    taken = metrics_port_of(first)
    with client_of(second) as client:
        with pytest.raises(redis.ResponseError, match="Unable to listen on this port"):
            client.config_set("metrics-port", taken)
        assert client.config_get("metrics-port") == {"metrics-port": "0"}
    command = [sys.executable, "-m", "streamd", "server", "--port", str(free_port()), "--metrics-port", str(taken)]
    said = subprocess.run(
        command, capture_output=True, text=True, env=python_environment(), timeout=DEADLINE_S, check=False
    )
    assert said.returncode == 1
    assert f"Failed listening on port {taken}" in said.stdout


def test_it_listens_on_this_machine_only_unless_told(new_streamd: StartServer) -> None:
    with client_of(new_streamd(metrics_port=str(free_port()))) as client:
        assert client.config_get("metrics-bind") == {"metrics-bind": "127.0.0.1 -::1"}
        with pytest.raises(redis.ResponseError, match="Failed to bind"):
            client.config_set("metrics-bind", "192.0.2.1")


def run_python(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=python_environment(),
        timeout=DEADLINE_S,
        check=False,
    )


def test_without_a_port_nothing_is_imported_for_it() -> None:
    program = (
        "import sys, streamd.embedded\n"
        "with streamd.embedded.start() as server: server.client().ping()\n"
        "print([name for name in ('aiohttp', 'prometheus_client') if name in sys.modules])\n"
    )
    assert run_python(program).stdout == "[]\n"


def test_without_the_extra_it_says_what_is_missing() -> None:
    program = (
        "import sys; sys.modules['aiohttp'] = None\n"
        "import streamd.embedded\n"
        "with streamd.embedded.start() as server:\n"
        "    try: server.client().config_set('metrics-port', 1234)\n"
        "    except Exception as error: print(error)\n"
    )
    said = run_python(program).stdout
    assert "./install '.[metrics]'" in said
    command = "import sys; sys.modules['aiohttp'] = None; from streamd.cli import main; main(sys.argv[1:])"
    arguments = ["server", "--port", str(free_port()), "--metrics-port", str(free_port())]
    told = subprocess.run(
        [sys.executable, "-c", command, *arguments],
        capture_output=True,
        text=True,
        env=python_environment(),
        timeout=DEADLINE_S,
        check=False,
    )
    assert told.returncode == 1
    assert "needs aiohttp and prometheus_client" in told.stdout


def test_an_embedded_server_has_metrics_too() -> None:
    port = free_port()
    with streamd.embedded.start(metrics_port=port) as server:
        server.client().xadd("orders", {"a": 1})
        assert 'streamd_stream_entries{db="0",stream="orders"} 1' in get(port)[2]
        connection = HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)
        connection.request("GET", "/metrics")
        connection.getresponse().read()  # and stays open
    connection.close()
    with pytest.raises(OSError, match="refused"):
        get(port)


def test_a_number_that_is_no_port_is_refused() -> None:
    values: dict[str, Any] = {"metrics_port": 70000}
    with pytest.raises(ConfigError, match="metrics"), streamd.embedded.start(**values):
        pytest.fail("it started")
