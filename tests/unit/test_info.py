"""INFO: sections, fields, numbers. The server is a stand-in."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from streamd.core.histogram import Histogram
from streamd.memory import accounting as memory
from streamd.observe.info import SECTIONS, human_size, render
from streamd.observe.slowlog import SlowLog
from streamd.settings.config import Config
from streamd.users.acl import DenialLog


class FakeDatabase:
    def __init__(self, index: int, keys: int = 0, **waiters: Any) -> None:
        self.index = index
        self.keys = keys
        self.expiring, self.avg_ttl = keys // 2, 1000
        self.hits, self.misses, self.expired_keys = 5, 3, 2
        self.waiters = waiters
        self.lookup_bytes = self.deadline_bytes = 100
        self.string_sizes = [(0, 1), (1, 2), (512, 3), (1024, 4), (2 << 20, 5)] if keys else []

    def __len__(self) -> int:
        return self.keys


def fake_server(**changes: Any) -> Any:
    """A server with one client that waits for two keys, a reader of a group among others on one of them."""
    histogram = Histogram()
    for us in (1, 2, 3, 4):
        histogram.add(us)
    entry = SimpleNamespace(calls=4, usec=10, rejected_calls=1, failed_calls=2, histogram=histogram)
    refused = SimpleNamespace(calls=0, usec=0, rejected_calls=1, failed_calls=0, histogram=None)
    never = SimpleNamespace(calls=0, usec=0, rejected_calls=0, failed_calls=0, histogram=None)
    plain = SimpleNamespace(groups={}, claimers={})
    grouped = SimpleNamespace(groups={b"g": {}}, claimers={})
    server = SimpleNamespace(
        config=Config(),
        run_id="a" * 40,
        replication_id="b" * 40,
        started_at=1_700_000_000.5,
        started_monotonic=0.0,
        databases=[FakeDatabase(0, 4, a=plain, b=grouped), FakeDatabase(1)],
        trash=SimpleNamespace(pending_objects=7, freed_objects=8),
        acl=SimpleNamespace(log=DenialLog(lambda: 128)),
        total_connections=11,
        rejected_connections=1,
        cron_loops=100,
        ops_per_second=SimpleNamespace(per_second=lambda: 12.9),
        input_rate=SimpleNamespace(per_second=lambda: 2048.0),
        output_rate=SimpleNamespace(per_second=lambda: 0.0),
        turn_rate=SimpleNamespace(per_second=lambda: 10.0),
        turn_time_rate=SimpleNamespace(per_second=lambda: 2000.0),
        recent_input=SimpleNamespace(most=21),
        slowlog=SlowLog(),
        migration=[],
        recent_output=SimpleNamespace(most=22),
        expired_keys_active=23,
        expire_cycles_cut=24,
        expire_cycle_us=25_999,
        port=6379,
        tls_port=0,
        clients={1: SimpleNamespace(memory_usage=lambda: 1000, output_class=0)},
        eviction=SimpleNamespace(
            used=lambda: 5 << 20,
            peak=6 << 20,
            peak_ms=1000,
            startup=1 << 10,
            uncounted_bytes=0,
            evicted_keys=1,
            evicted_clients=2,
            total_excess_ms=3,
            current_excess_ms=4,
        ),
        persistence=SimpleNamespace(
            loading=None,
            is_logging=False,
            changes=9,
            replication_offset=0,
            last_save=1_700_000_000,
            is_last_save_ok=True,
            last_save_seconds=-1,
            last_save_cow=0,
            saves=0,
            consecutive_save_failures=0,
            keys_expired_at_load=0,
            keys_loaded=0,
            last_rewrite_cow=0,
            children=SimpleNamespace(current=None, last_fork_us=48, total_forks=49),
            backup=SimpleNamespace(is_in_progress=False),
            aof=SimpleNamespace(
                rewrite_scheduled=False,
                last_rewrite_s=-1,
                last_rewrite_ok=True,
                rewrites=0,
                rewrite_failures=0,
                write_error=0,
                buffer=b"",
            ),
        ),
        blocked=[SimpleNamespace(deadline=5.0), SimpleNamespace(deadline=float("inf"))],
        postponed_count=0,
        hotkeys=SimpleNamespace(session=None),
        dispatcher=SimpleNamespace(
            entries={"xadd": entry, "xgroup|create": refused, "xlen": never},
            errorstats={"ERR": 3, "WRONGTYPE": 1},
            total_commands=20,
            total_error_replies=4,
            unexpected_errors=0,
            net_input_bytes=300,
            net_output_bytes=400,
            context=SimpleNamespace(dirty=9),
            hub=SimpleNamespace(client_count=31, channels=range(32), patterns=range(33), shard_channels=range(34)),
            keyspace=SimpleNamespace(watching_clients=35, total_watched_keys=36),
            tracking=SimpleNamespace(client_count=44, total_keys=45, total_items=46, total_prefixes=47),
            total_reads=37,
            total_writes=38,
            closed_for_input=39,
            closed_for_output=40,
            processing_events=91,
            batches=4,
            batched_commands=10,
            turns=41,
            turns_us=42,
            commands_us=43,
        ),
    )
    for name, value in changes.items():
        setattr(server, name, value)
    return server


def fields(text: str) -> dict[str, str]:
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)


def titles(text: str) -> list[str]:
    return [line.removeprefix("# ") for line in text.splitlines() if line.startswith("# ")]


ALL = [
    "Server", "Clients", "Memory", "Persistence", "Threads", "Stats", "Replication", "CPU", "Hotkeys", "Modules",
    "Commandstats", "Errorstats", "Latencystats", "Cluster", "Keyspace", "Keysizes",
]  # fmt: skip
DEFAULT = [title for title in ALL if title not in ("Commandstats", "Latencystats")]


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
def test_sections_come_in_a_fixed_order(asked: list[str], expected: list[str]) -> None:
    assert titles(render(fake_server(), asked)) == expected


def test_lines_and_sections_are_separated_as_in_redis() -> None:
    assert render(fake_server(), ["cluster", "hotkeys"]) == "# Hotkeys\r\n\r\n# Cluster\r\ncluster_enabled:0\r\n"
    assert render(fake_server(), ["nope"]) == ""


def test_field_names_are_unique() -> None:
    names = [line.split(":")[0] for line in render(fake_server(), ["all"]).splitlines() if ":" in line]
    assert len(names) == len(set(names))


def test_fields_tell_what_the_server_knows() -> None:
    found = fields(render(fake_server(), ["all"]))
    expected = {
        "redis_version": "8.6.3", "redis_mode": "standalone", "run_id": "a" * 40, "tcp_port": "6379",
        "listener0": "name=tcp,bind=*,bind=-::*,port=6379",
        "connected_clients": "1", "blocked_clients": "2", "clients_in_timeout_table": "1",
        "total_blocking_keys": "2", "total_blocking_keys_on_nokey": "1",
        "mem_clients_normal": "1000", "lazyfree_pending_objects": "7", "lazyfreed_objects": "8",
        "rdb_changes_since_last_save": "9", "rdb_last_save_time": "1700000000",
        "total_connections_received": "11", "total_commands_processed": "20", "instantaneous_ops_per_sec": "12",
        "instantaneous_input_kbps": "2.00", "keyspace_hits": "10", "keyspace_misses": "6", "expired_keys": "4",
        "role": "master", "master_replid": "b" * 40,
        "cmdstat_xadd": "calls=4,usec=10,usec_per_call=2.50,rejected_calls=1,failed_calls=2",
        "cmdstat_xgroup|create": "calls=0,usec=0,usec_per_call=0.00,rejected_calls=1,failed_calls=0",
        "errorstat_ERR": "count=3",
        "latency_percentiles_usec_xadd": "p50=2.007,p99=4.015,p99.9=4.015",
        "client_recent_max_input_buffer": "21", "client_recent_max_output_buffer": "22",
        "expired_keys_active": "23", "expired_time_cap_reached_count": "24", "expire_cycle_cpu_milliseconds": "25",
        "pubsub_clients": "31", "pubsub_channels": "32", "pubsub_patterns": "33", "pubsubshard_channels": "34",
        "tracking_clients": "44", "tracking_total_keys": "45", "tracking_total_items": "46",
        "tracking_total_prefixes": "47", "latest_fork_usec": "48", "total_forks": "49", "watching_clients": "35", "total_watched_keys": "36", "total_reads_processed": "37",
        "total_writes_processed": "38", "client_query_buffer_limit_disconnections": "39",
        "client_output_buffer_limit_disconnections": "40", "eventloop_cycles": "41", "eventloop_duration_sum": "42",
        "eventloop_duration_cmd_sum": "43", "instantaneous_eventloop_cycles_per_sec": "10",
        "instantaneous_eventloop_duration_usec": "200",
        "db0_distrib_strings_sizes": "0=1,1=2,512=3,1K=4,2M=5", "db0": "keys=4,expires=2,avg_ttl=1000,subexpiry=0",
    }  # fmt: skip
    assert {name: found.get(name) for name in expected} == expected
    assert "cmdstat_xlen" not in found
    assert "db1" not in found


def test_listeners_are_those_there_are() -> None:
    server = fake_server(port=0)
    server.config.unixsocket = "/run/streamd.sock"
    assert fields(render(server, ["server"]))["listener1"] == "name=unix,bind=/run/streamd.sock"
    assert "listener0" not in fields(render(fake_server(port=0), ["server"]))


def test_memory_adds_up(monkeypatch: pytest.MonkeyPatch) -> None:
    found = fields(render(fake_server(), ["memory"]))
    assert int(found["used_memory_rss"]) > 1 << 20
    assert int(found["used_memory_peak"]) * 1.5 > int(found["used_memory"])
    assert found["used_memory_human"].endswith("M")


def test_nothing_is_divided_by_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "resident_memory", lambda: 0)
    server = fake_server(turn_rate=SimpleNamespace(per_second=lambda: 0.0))
    server.eviction = SimpleNamespace(**{**vars(server.eviction), "used": lambda: 0, "peak": 0, "startup": 0})
    found = fields(render(server, ["all"]))
    assert found["used_memory_peak_perc"] == "0.00%"
    assert found["used_memory_dataset_perc"] == "0.00%"


def test_memory_is_reported_where_there_is_no_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_proc(*args: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr("builtins.open", no_proc)
    assert memory.resident_memory() > 1 << 20


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


def test_every_section_has_lines_of_names_and_values() -> None:
    server = fake_server()
    for section in SECTIONS:
        first, *rest = section.lines(server)
        assert first == f"# {section.title}"
        assert all(line.partition(":")[2] or line == "config_file:" for line in rest), section.title
