"""INFO: sections, fields, numbers, of a server without sockets. The same beside a real Redis is a differential test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.commands.hosts import Host, Peer

from streamd.core.capability import Capability
from streamd.core.info import Field, Fields, Lines, Section, human_size
from streamd.keyspace.commands.expiry import Expiry
from streamd.memory import resident
from streamd.memory.eviction import Eviction
from streamd.memory.measurement import MemoryReport
from streamd.observe.info_report import ORDER, Info
from streamd.observe.traffic import Traffic
from streamd.persistence.persistence import Persistence
from streamd.persistence.start_loading import Loading
from streamd.replication.replication import Replication
from streamd.serve.about import About


@pytest.fixture
def host() -> Iterator[Host]:
    with Host() as host:
        yield host


def render(host: Host, *names: str) -> str:
    return host.server.get(Info).render(names).decode()


def ask_all(peer: Peer, *requests: str) -> None:
    """Send requests; their replies, if there are any, do not matter."""
    for request in requests:
        peer.send(*request.split())
    peer.read()


def fields(text: str) -> dict[str, str]:
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)


def titles(text: str) -> list[str]:
    return [line.removeprefix("# ") for line in text.splitlines() if line.startswith("# ")]


ALL = [
    "Server", "Clients", "Memory", "Persistence", "Threads", "Stats", "Replication", "CPU", "Hotkeys", "Modules",
    "Commandstats", "Errorstats", "Latencystats", "Cluster", "Keyspace", "Keysizes", "Delivery",
]  # fmt: skip
DEFAULT = [title for title in ALL if title not in ("Commandstats", "Latencystats", "Delivery")]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ([], DEFAULT),
        (["default"], DEFAULT),
        (["all"], ALL),
        (["everything"], ALL),
        (["ALL", "x"], ALL),
        (["server", "default"], DEFAULT),
        (["default", "commandstats"], [*DEFAULT[:10], "Commandstats", *DEFAULT[10:]]),
        (["cpu", "CLIENTS", "cpu"], ["Clients", "CPU"]),
        (["nope"], []),
        ([""], []),
    ],
)
def test_sections_come_in_a_fixed_order(asked: list[str], expected: list[str], host: Host) -> None:
    assert titles(render(host, *asked)) == expected


def test_lines_and_sections_are_separated_as_in_redis(host: Host) -> None:
    assert render(host, "cluster", "hotkeys") == "# Hotkeys\r\n\r\n# Cluster\r\ncluster_enabled:0\r\n"
    assert render(host, "nope") == ""


# --- From the capabilities -----------------------------------------------------------------------------------------------


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[Host]:
    """A server with all that INFO may speak of: a log, files that are being read, a session of HOTKEYS, a primary."""
    with Host(dir=str(tmp_path)) as host:
        ask_all(
            host.connect(),
            "CONFIG SET appendonly yes",
            "HOTKEYS START METRICS 1 CPU",
            "SET k v",
            "FOO",
            "REPLICAOF x 1",
        )
        host.server.get(Persistence).loader.loading = Loading()
        yield host


def test_every_field_has_its_place(busy: Host) -> None:
    """What capabilities contribute, and the order: neither has a name that the other does not know."""
    found: dict[str, list[str]] = {}
    for line in render(busy, "everything").splitlines():
        if line.startswith("# "):
            names = found[line.removeprefix("# ")] = []
        elif line:
            names.append(line.partition(":")[0])
    order = {title: list(names) for title, names in ORDER.items()}
    assert order["Server"].pop() == "listeners"
    assert order["Server"].pop() == "shutdown_in_milliseconds"  # it is not about to stop
    order["Server"].append("listener0")
    replication = order["Replication"]
    # Nor a replica, nor has it tried to reach its primary.
    for lines in ("min_slaves_good_slaves", "slaves", "master_link_down_reason", "master_sync_total_bytes"):
        replication.remove(lines)
    replication[replication.index("master_link_up_since_seconds")] = "master_link_down_since_seconds"
    for title in ("Commandstats", "Errorstats", "Latencystats", "Keyspace", "Keysizes"):
        assert found.pop(title)
        assert not order.pop(title)
    assert found == order


def test_every_line_has_a_name_of_its_own_and_a_value(busy: Host) -> None:
    lines = [line for line in render(busy, "all").splitlines() if line and not line.startswith("# ")]
    assert all(line.partition(":")[2] or line == "config_file:" for line in lines)
    names = [line.partition(":")[0] for line in lines]
    assert len(names) == len(set(names))


class Toys(Capability):
    """A capability of this test: fields of a section of Redis's, and a section of its own."""

    info = {
        "cluster": (Field("toys", lambda self: self.count), Field("cluster_size", 1)),
        "toys": (
            Fields("best_toy price", lambda self: (self.best.upper(), 1 / 3) if self.best else None),
            Lines("each", lambda self: (f"toy{number}:red" for number in range(self.count))),
        ),
    }

    def __init__(self, host: Any) -> None:
        self.count = 2
        self.best: str | None = None


def test_what_a_new_capability_contributes_comes_last(host: Host) -> None:
    toys = Toys(host.server)
    host.server.dispatcher.take_capabilities([*host.server.capabilities, toys])
    host.server.get(Info).start()
    assert titles(render(host, "everything")) == [*ALL, "Toys"]
    assert render(host, "cluster") == "# Cluster\r\ncluster_enabled:0\r\ntoys:2\r\ncluster_size:1\r\n"
    assert render(host, "toys") == "# Toys\r\ntoy0:red\r\ntoy1:red\r\n"
    toys.count, toys.best = 1, "bear"
    assert render(host, "toys") == "# Toys\r\nbest_toy:BEAR\r\nprice:0.33\r\ntoy0:red\r\n"
    parts = [(toys, part) for part in Toys.info["toys"]]
    assert Section("Toys", ("each", "price"), parts).lines() == ["# Toys", "toy0:red", "price:0.33", "best_toy:BEAR"]


@pytest.mark.parametrize("again", [False, True], ids=["new section", "same section"])
def test_a_section_shows_the_values_of_now(again: bool) -> None:
    states: list[tuple[tuple[object, ...] | None, object, list[str]]] = [
        ((1, "first", 2048), 7, []),
        ((1, "first", 2048), 7, ["x:1"]),
        ((100_000, "a", 12), 2.5, ["x:1", "y:2"]),
        (None, "text", ["x:1", "y:2"]),
        (None, 10**30, []),
        ((-5, "caf\u00e9", 3 << 30), 0, ["longer:1"]),
        ((5, "", 0), True, ["longer:2"]),
    ]
    expected = [
        ["# Toys", "a:1", "b:first", "c:2.00K", "one:7", "end:0"],
        ["# Toys", "a:1", "b:first", "c:2.00K", "x:1", "one:7", "end:0"],
        ["# Toys", "a:100000", "b:a", "c:12B", "x:1", "y:2", "one:2.50", "end:0"],
        ["# Toys", "x:1", "y:2", "one:text", "end:0"],
        ["# Toys", f"one:{10**30}", "end:0"],
        ["# Toys", "a:-5", "b:caf\u00e9", "c:3.00G", "longer:1", "one:0", "end:0"],
        ["# Toys", "a:5", "b:", "c:0B", "longer:2", "one:1", "end:0"],
    ]

    class Toys(Capability):
        at = 0

    toys = Toys()

    def make() -> Section:
        parts: tuple[Field[Toys] | Fields[Toys] | Lines[Toys], ...] = (
            Fields("a b c:size", lambda self: states[self.at][0]),
            Lines("many", lambda self: iter(states[self.at][2])),
            Field("one", lambda self: states[self.at][1]),
            Field("end", 0),
        )
        return Section("Toys", ("a", "b", "c", "many", "one", "end"), [(toys, part) for part in parts])

    section = make()
    for toys.at in (*range(len(states)), 2, 0, 3, 6, 6, 1):
        assert (section if again else make()).lines() == expected[toys.at]


def test_names_and_values_are_of_the_same_number() -> None:
    section = Section("Toys", (), [(None, Fields("one two", lambda _: (1, 2, 3)))])
    with pytest.raises(ValueError, match="3 values for 2 names"):
        section.lines()


# --- Values --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def counted(host: Host) -> Host:
    """A server with a past: keys, errors, subscriptions; two clients wait, one of them as a reader of a group."""
    first = host.connect()
    first.ask("CONFIG", "SET", "slowlog-log-slower-than", -1)  # on a busy machine anything may be slow
    first.ask("CONFIG", "RESETSTAT")
    reader, waiting, patient, listening, caching = (host.connect() for _ in range(5))
    ask_all(
        reader, "SET a 1", "SET b 22", f"SET m {'x' * 3000}", "SET e -", "EXPIRE e 1000", "GET a", "GET none", "SET a 1"
    )
    ask_all(reader, "XADD s 1-1 f v", "XADD s 1-1 f v", "XLEN a", "XGROUP CREATE", "NOTHING", "WATCH a b")
    ask_all(waiting, "XGROUP CREATE s g $", "XREADGROUP GROUP g c BLOCK 0 STREAMS s >")
    ask_all(patient, "XREAD BLOCK 100000 STREAMS s t $ $")
    ask_all(listening, "SUBSCRIBE x y", "PSUBSCRIBE z*")
    ask_all(caching, "HELLO 3", "CLIENT TRACKING ON BCAST PREFIX p PREFIX q", "AUTH nobody secret")
    return host


def test_fields_tell_what_the_server_knows(counted: Host) -> None:
    server = counted.server
    server.get(About).run_id, server.get(Replication).replid = "a" * 40, "b" * 40
    expiry = server.get(Expiry)
    expiry.expired_keys, expiry.cycles_cut, expiry.cycle_us = 23, 24, 25_999
    traffic = server.get(Traffic)
    for rate, value in (
        (traffic.ops_per_second, 13), (traffic.input_rate, 2048), (traffic.turn_rate, 10), (traffic.turn_time_rate, 2000),
    ):  # fmt: skip
        rate.sample(0.0, 0)
        rate.sample(1.0, value)
    traffic.recent_input.sample(0.0, 21)
    traffic.recent_output.sample(0.0, 22)
    dispatcher = server.dispatcher
    found = fields(render(counted, "all"))
    expected = {
        "redis_version": "8.6.3", "redis_mode": "standalone", "run_id": "a" * 40, "tcp_port": "6379",
        "connected_clients": "6", "maxclients": "10000", "blocked_clients": "2", "clients_in_timeout_table": "1",
        "total_blocking_keys": "2", "total_blocking_keys_on_nokey": "1", "pubsub_clients": "1", "tracking_clients": "1",
        "watching_clients": "1", "total_watched_keys": "2",
        "client_recent_max_input_buffer": "21", "client_recent_max_output_buffer": "22",
        "mem_clients_normal": str(sum(client.memory_usage() for client in server.clients.values())),
        "lazyfree_pending_objects": "0", "lazyfreed_objects": str(server.trash.freed_objects()), "maxmemory_policy": "noeviction",
        "rdb_changes_since_last_save": str(server.get(Persistence).saving.changes()),
        "rdb_last_save_time": str(server.get(Persistence).saving.last_save), "aof_enabled": "0",
        "io_thread_0": f"clients=6,reads={dispatcher.total_reads},writes={dispatcher.total_writes}",
        "total_connections_received": "5", "total_commands_processed": str(dispatcher.total_commands),
        "instantaneous_ops_per_sec": "13", "instantaneous_input_kbps": "2.00", "instantaneous_output_kbps": "0.00",
        "instantaneous_eventloop_cycles_per_sec": "10", "instantaneous_eventloop_duration_usec": "200",
        "keyspace_hits": str(sum(db.hits for db in server.databases)), "expired_keys_active": "23",
        "keyspace_misses": str(sum(db.misses for db in server.databases)),
        "expired_time_cap_reached_count": "24", "expire_cycle_cpu_milliseconds": "25",
        "pubsub_channels": "2", "pubsub_patterns": "1", "pubsubshard_channels": "0", "tracking_total_prefixes": "2",
        "total_error_replies": "5", "acl_access_denied_auth": "1", "eventloop_cycles": str(dispatcher.turns),
        "commands_per_parse_batch_sum": str(dispatcher.batched_commands),
        "commands_per_parse_batch_avg": f"{dispatcher.batched_commands / dispatcher.batches:.2f}",
        "role": "master", "master_replid": "b" * 40,
        "errorstat_ERR": "count=3", "errorstat_WRONGTYPE": "count=1", "errorstat_WRONGPASS": "count=1",
        "db0": f"keys=5,expires=1,avg_ttl={server.databases[0].avg_ttl},subexpiry=0",
        "db0_distrib_strings_sizes": "1=2,2=1,2K=1",
    }  # fmt: skip
    assert {name: found.get(name) for name in expected} == expected
    for name in ("keyspace_hits", "keyspace_misses", "eventloop_cycles", "rdb_changes_since_last_save"):
        assert int(found[name]) > 0, name
    assert "db1" not in found


def test_databases_are_listed_while_they_have_keys(host: Host) -> None:
    peer = host.connect()

    def shown(*requests: str) -> list[str]:
        ask_all(peer, *requests)
        return render(host, "keyspace").splitlines()[1:]

    line = "db{}:keys={},expires={},avg_ttl=0,subexpiry={}".format
    assert shown() == []
    assert shown("SET a 1") == shown() == [line(0, 1, 0, 0)]
    assert shown("SELECT 3", "SET a 1", "SET b 1") == shown() == [line(0, 1, 0, 0), line(3, 2, 0, 0)]
    assert shown("SWAPDB 0 3") == [line(0, 2, 0, 0), line(3, 1, 0, 0)]
    assert shown("FLUSHDB") == shown("SELECT 2") == [line(0, 2, 0, 0)]
    assert shown("SELECT 3", "SET a 1", "SELECT 0", "FLUSHDB") == [line(3, 1, 0, 0)]
    assert shown("HSET h f v", "HEXPIRE h 100 FIELDS 1 f") == [line(0, 1, 0, 1), line(3, 1, 0, 0)]
    assert shown("EXPIRE h 100")[0].startswith("db0:keys=1,expires=1,avg_ttl=")
    assert shown("FLUSHALL") == []


def test_numbers_are_shown_while_there_are_any(tmp_path: Path) -> None:
    with Host(dir=str(tmp_path)) as host:
        peer = host.connect()
        ask_all(peer, "CONFIG SET appendonly yes")
        for count in (0, 1, 0, 0, 2):
            ask_all(peer, f"CONFIG SET min-replicas-durable {count}")
            found = [name for name in fields(render(host, "replication")) if name.startswith("durable_")]
            assert found.count("durable_replies_refused") == len(found) // 8 == (1 if count else 0)


def test_commands_are_counted_with_what_they_took(counted: Host) -> None:
    found = fields(render(counted, "commandstats", "latencystats"))
    assert found["cmdstat_xadd"].startswith("calls=2,usec=")
    assert found["cmdstat_xadd"].endswith(",rejected_calls=0,failed_calls=1")
    assert found["cmdstat_xgroup|create"].endswith(",rejected_calls=1,failed_calls=0")
    route = counted.server.dispatcher.routes.by_full_name["xadd"]
    assert f",usec={route.usec},usec_per_call={route.usec / 2:.2f}," in found["cmdstat_xadd"]
    assert route.histogram is not None
    values = ",".join(f"p{name}={route.histogram.percentile_us(float(name)):.3f}" for name in ("50", "99", "99.9"))
    assert found["latency_percentiles_usec_xadd"] == values
    assert "cmdstat_xrange" not in found
    assert not any("slowlog" in value for value in found.values())


def test_slow_commands_are_counted_apart(host: Host) -> None:
    ask_all(host.connect(), "CONFIG SET slowlog-log-slower-than 0", "ECHO x", "ECHO y")
    found = fields(render(host, "commandstats", "stats"))
    assert ",slowlog_count=2,slowlog_time_ms_sum=" in found["cmdstat_echo"]
    assert found["slowlog_commands_count"] == "3"


def test_statistics_begin_again(counted: Host) -> None:
    counted.connect().ask("CONFIG", "RESETSTAT")
    found = fields(render(counted, "all"))
    names = (
        "total_connections_received", "total_error_replies", "keyspace_hits", "keyspace_misses", "expired_keys",
        "slowlog_commands_count", "instantaneous_ops_per_sec",
    )  # fmt: skip
    assert {name: found[name] for name in names} == dict.fromkeys(names, "0")
    assert not any(name.startswith(("errorstat_", "cmdstat_xadd")) for name in found)


def test_listeners_are_those_there_are() -> None:
    with Host(port=0, unixsocket="/run/streamd.sock") as host:
        found = fields(render(host, "server"))
    assert found["listener1"] == "name=unix,bind=/run/streamd.sock"
    assert "listener0" not in found


def test_memory_adds_up(host: Host) -> None:
    found = fields(render(host, "memory"))
    assert int(found["used_memory_rss"]) > 1 << 20
    assert int(found["used_memory_peak"]) >= int(found["used_memory"]) == int(found["allocator_allocated"]) > 0
    assert found["used_memory_human"] == human_size(int(found["used_memory"]))


def test_nothing_is_divided_by_zero(host: Host) -> None:
    host.connect().ask("CONFIG", "RESETSTAT")
    assert fields(render(host, "stats"))["instantaneous_eventloop_duration_usec"] == "0"
    report = MemoryReport()
    assert report.fragmentation == report.dataset_percent == report.bytes_per_key == 0
    host.server.get(Eviction).peak = 0
    assert fields(render(host, "memory"))["used_memory_peak_perc"] == "100.00%"


def test_memory_is_reported_where_there_is_no_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_proc(*args: object, **more: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr("builtins.open", no_proc)
    assert resident.resident_memory() > 1 << 20


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0B"),
        (1023, "1023B"),
        (1024, "1.00K"),
        (781896, "763.57K"),
        (1 << 20, "1.00M"),
        (25276502016, "23.54G"),
        (1 << 40, "1.00T"),
        (1 << 62, "4096.00P"),
    ],
)
def test_sizes_for_people(size: int, text: str) -> None:
    assert human_size(size) == text
