"""INFO beside a real Redis: the same sections and fields in the same order, and the same values where both count. `real`."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator

import pytest
from support.compare.differential import Pair
from support.compare.observing import command_counts, info_fields, same_story
from support.servers import Server, eventually
from support.wire import Wire

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif("STREAMD_TEST_IO_THREADS" in os.environ, reason="the real Redis has no threads"),
]

StartServer = Callable[..., Server]

OUR_OWN = {"streamd_version", "python_version"}
OUR_SECTION = "# Delivery"
"""Shown last, and only when it or everything is asked for."""
NEWER = {
    "backup_in_progress", "slowlog_commands_count", "slowlog_commands_time_ms_sum", "slowlog_commands_time_ms_max",
    "total_client_processing_events", "commands_per_parse_batch_sum", "commands_per_parse_batch_cnt",
    "commands_per_parse_batch_avg",
}  # fmt: skip
"""Fields of releases after the one that is compared with."""
LEFT_OUT = {
    "atomicvar_api": "an option of Redis's build",
    "module": "there are no modules",
}
"""Fields of a real Redis that are not here, and why."""


def sections(wire: Wire, *names: str) -> dict[str, list[str]]:
    """Section -> its field names, both in order."""
    found: dict[str, list[str]] = {}
    for line in wire.call("INFO", *names).value.decode().removeprefix("txt:").split("\r\n"):
        if line.startswith("# "):
            found[line] = fields = []
        elif line:
            fields.append(line.partition(":")[0])
    return found


@pytest.fixture(autouse=True)
def nobody_else(streamd_server: Server, redis_server: Server) -> None:
    """Connections that other tests have left to the garbage collector are closed."""
    gc.collect()
    with streamd_server.connect() as ours, redis_server.connect() as theirs:
        eventually(lambda: len({info_fields(wire, "clients")["connected_clients"] for wire in (ours, theirs)}) == 1)


@pytest.fixture
def busy(pair: Pair) -> Iterator[Pair]:
    """Servers with the same small past: keys in two databases, a client that waits, errors."""
    waiting = [server.connect() for server in pair.servers]
    for wire, reader in zip(pair.wires, waiting, strict=True):
        wire.call("CONFIG", "RESETSTAT")
        for request in (
            ("SET", "k", "v"), ("SET", "big", b"x" * 3000), ("XADD", "s", "1-1", "f", "v"), ("XADD", "s", "1-1", "f", "v"),
            ("GET", "s"), ("GET", "k"), ("GET", "none"), ("SELECT", "3"), ("SET", "e", "", "EX", "1000"), ("SELECT", "0"),
            ("XGROUP", "CREATE", "s", "g", "$"), ("FOO",), ("GET",),
        ):  # fmt: skip
            wire.call(*request)
        reader.send("XREADGROUP", "GROUP", "g", "c", "BLOCK", "0", "STREAMS", "s", ">")
        eventually(lambda wire=wire: info_fields(wire, "clients")["blocked_clients"] == "1")
    yield pair
    for reader in waiting:
        reader.close()


@pytest.mark.parametrize(
    "names",
    [
        [], ["default"], ["all"], ["everything"], ["server", "stats"], ["keyspace", "Server"],
        ["commandstats", "default"], ["nothing"],
    ],
)  # fmt: skip
def test_sections_and_fields_are_those_of_redis(names: list[str], busy: Pair) -> None:
    ours, theirs = (sections(wire, *names) for wire in busy.wires)
    assert [title for title in ours if title != OUR_SECTION] == list(theirs)
    assert (list(ours)[-1:] == [OUR_SECTION]) == bool({"all", "everything"} & set(names))
    for title in theirs:
        mine = [name for name in ours[title] if name not in OUR_OWN | NEWER]
        its = [name for name in theirs[title] if name not in LEFT_OUT]
        if title in ("# Commandstats", "# Latencystats"):
            mine, its = sorted(mine), sorted(its)
        assert mine == its, title


def test_nothing_is_left_out_without_need(busy: Pair) -> None:
    """The list above has nothing that a real Redis does not show, or that is shown here by now."""
    ours, theirs = (info_fields(wire, "everything") for wire in busy.wires)
    assert set(LEFT_OUT) <= set(theirs)
    assert not set(LEFT_OUT) & set(ours)
    assert set(ours) >= OUR_OWN


_SAME = """
redis_version redis_git_sha1 redis_git_dirty redis_mode os arch_bits process_supervised hz configured_hz config_file
io_threads_active uptime_in_days connected_clients cluster_connections maxclients blocked_clients tracking_clients pubsub_clients
watching_clients clients_in_timeout_table total_watched_keys total_blocking_keys total_blocking_keys_on_nokey
total_system_memory maxmemory maxmemory_human maxmemory_policy mem_not_counted_for_evict mem_replication_backlog
mem_total_replication_buffers mem_clients_slaves mem_cluster_links mem_aof_buffer active_defrag_running
loading async_loading current_cow_peak current_cow_size current_cow_size_age current_fork_perc
current_save_keys_processed current_save_keys_total rdb_bgsave_in_progress
rdb_last_bgsave_status rdb_current_bgsave_time_sec rdb_saves rdb_saves_consecutive_failures aof_enabled
aof_rewrite_in_progress aof_rewrite_scheduled aof_last_rewrite_time_sec aof_current_rewrite_time_sec
aof_last_bgrewrite_status aof_rewrites aof_rewrites_consecutive_failures aof_last_write_status
total_net_repl_input_bytes total_net_repl_output_bytes rejected_connections sync_full
sync_partial_ok sync_partial_err expired_subkeys expired_keys expired_keys_active evicted_keys evicted_clients keyspace_hits
keyspace_misses pubsub_channels pubsub_patterns pubsubshard_channels
tracking_total_keys tracking_total_items tracking_total_prefixes unexpected_error_replies total_error_replies
client_query_buffer_limit_disconnections client_output_buffer_limit_disconnections
role connected_slaves master_failover_state
second_repl_offset repl_backlog_active repl_backlog_size cluster_enabled
errorstat_ERR errorstat_WRONGTYPE db0 db0_distrib_strings_sizes db3_distrib_strings_sizes
"""
SAME = _SAME.split()


def test_what_both_count_has_the_same_value(busy: Pair) -> None:
    ours, theirs = (info_fields(wire, "everything") for wire in busy.wires)
    assert {name: ours.get(name) for name in SAME} == {name: theirs.get(name) for name in SAME}


def test_commands_are_counted_alike(busy: Pair) -> None:
    """Calls, refusals and failures; not the time. A request that waits is counted when it has been answered."""

    def counts(wire: Wire) -> dict[str, str]:
        fields = info_fields(wire, "commandstats")
        return {name: command_counts(value) for name, value in fields.items() if "info" not in name}

    for _ in range(2):
        ours, theirs = map(counts, busy.wires)
        assert ours == theirs
        for wire in busy.wires:
            wire.call("XADD", "s", "*", "f", "v")
            eventually(lambda wire=wire: info_fields(wire, "clients")["blocked_clients"] == "0")


def test_counters_that_grow(busy: Pair) -> None:
    """Values that depend on the program, but must be there and move."""
    for wire in busy.wires:
        before = info_fields(wire, "stats", "server")
        for _ in range(20):
            wire.call("ECHO", b"x" * 1000)
        after = info_fields(wire, "stats", "server")
        for name, least in (
            ("total_commands_processed", 21), ("total_net_input_bytes", 20_000), ("total_net_output_bytes", 20_000),
            ("total_reads_processed", 20), ("total_writes_processed", 20), ("eventloop_cycles", 20),
            ("eventloop_duration_sum", 1), ("eventloop_duration_cmd_sum", 1), ("server_time_usec", 1),
        ):  # fmt: skip
            assert int(after[name]) - int(before[name]) >= least, name


def test_resetstat_resets_what_redis_resets(busy: Pair) -> None:
    text = """total_connections_received total_commands_processed expired_keys keyspace_hits keyspace_misses
        rejected_connections total_error_replies unexpected_error_replies evicted_keys evicted_clients total_forks
        expired_keys_active expired_time_cap_reached_count client_output_buffer_limit_disconnections rdb_saves
        aof_rewrites latest_fork_usec"""
    names = text.split()

    def after_reset(wire: Wire) -> object:
        wire.call("BGSAVE")
        eventually(lambda: info_fields(wire, "persistence")["rdb_bgsave_in_progress"] == "0", what="the snapshot ends")
        wire.call("CONFIG", "RESETSTAT")
        found = info_fields(wire, "everything")
        left = sorted(name for name in found if name.startswith(("cmdstat_", "errorstat_", "latency_percentiles")))
        return {name: found[name] for name in names}, left

    ours, theirs = map(after_reset, busy.wires)
    assert ours == theirs


def test_subscribers_watchers_and_trackers_are_counted(streamd_server: Server, redis_server: Server) -> None:
    text = """pubsub_clients watching_clients tracking_clients total_watched_keys pubsub_channels pubsub_patterns
        pubsubshard_channels tracking_total_prefixes blocked_clients clients_in_timeout_table total_blocking_keys
        total_blocking_keys_on_nokey connected_clients"""
    names = text.split()

    def story(server: Server) -> object:
        with server.connect() as wire, server.connect() as a, server.connect(3) as b, server.connect() as c:
            wire.call("FLUSHALL")
            a.call("SUBSCRIBE", "x")
            a.call("PSUBSCRIBE", "x*")
            a.call("SSUBSCRIBE", "y")
            b.call("WATCH", "k", "l")
            b.call("CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", "p")
            c.send("XREAD", "BLOCK", "50000", "STREAMS", "s", "t", "$", "$")
            eventually(lambda: info_fields(wire, "clients")["blocked_clients"] == "1")
            found = info_fields(wire, "everything")
            return {name: found[name] for name in names}

    same_story(story, streamd_server, redis_server)


def test_recent_buffers_are_notified(streamd_server: Server) -> None:
    """The longest request and the longest reply of the last seconds."""
    with streamd_server.connect() as wire:
        wire.call("SET", "k", b"x" * 3_000_000)
        wire.call("GET", "k")

        def is_told() -> bool:
            found = info_fields(wire, "clients")
            return int(found["client_recent_max_input_buffer"]) > 100_000

        eventually(is_told)


def test_expiry_is_counted(new_streamd: StartServer, new_redis: StartServer) -> None:
    def story(server: Server) -> object:
        with server.connect() as wire:
            wire.pipeline([("SET", f"k{number}", "v", "PX", "1") for number in range(300)])
            eventually(lambda: info_fields(wire, "stats")["expired_keys"] == "300")
            found = info_fields(wire, "stats")
            return found["expired_keys_active"], found["expired_subkeys"]

    same_story(story, new_streamd(), new_redis())


def test_strings_are_counted_by_length(pair: Pair) -> None:
    lengths = [0, 1, 2, 3, 4, 7, 8, 15, 16, 31, 32, 63, 100, 511, 512, 1023, 1024, 4095, 4096, 1 << 20]
    pair.run([("SET", f"k{length}", b"x" * length) for length in lengths])
    steps = [
        ("APPEND", "k1", "xxxx"), ("SETRANGE", "k2", "10", "x"), ("DEL", "k3", "k4"), ("RENAME", "k7", "k8"), ("COPY", "k15", "n"),
        ("SET", "k16", ""), ("INCR", "n2"), ("GETDEL", "k31"), ("MOVE", "k32", "1"), ("SWAPDB", "0", "1"), ("FLUSHDB",),
        ("EXPIREAT", "k32", "1"), ("GET", "k32"),
    ]  # fmt: skip
    for step in steps:
        for wire in pair.wires:
            wire.call(*step)
        ours, theirs = (info_fields(wire, "keysizes") for wire in pair.wires)
        assert ours == theirs, step


def test_what_monitoring_tools_read_is_there(streamd_server: Server) -> None:
    """Sentinel, redis-cli --stat, and exporters fail, or show nothing, without these."""
    text = """run_id role connected_slaves master_replid master_repl_offset redis_version tcp_port uptime_in_seconds used_memory
        used_memory_human used_memory_rss connected_clients blocked_clients total_commands_processed
        total_connections_received aof_rewrite_in_progress rdb_bgsave_in_progress aof_enabled loading mem_fragmentation_ratio
        instantaneous_ops_per_sec used_cpu_sys used_cpu_user maxmemory_policy process_id executable latest_fork_usec
        slave_expires_tracked_keys acl_access_denied_auth expired_stale_perc repl_backlog_size cluster_enabled"""
    names = text.split()
    with streamd_server.connect() as wire:
        assert set(names) <= set(info_fields(wire, "everything"))
