"""INFO: what a server says about itself, as sections of fields.

A field is a name and how to find its value; a section is fields in Redis's order, or a function that gives its lines. Names
and order are those of Redis 8.6, so that what reads a Redis reads this server. A field that counts what this server does
not have is left out, unless tools are known to ask for it: then it has the value that says so.

What INFO needs to know of the server is `InfoSource`.
"""

from __future__ import annotations

import os
import platform
import resource
import struct
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any, Protocol

from streamd import REDIS_VERSION, __version__
from streamd.memory.accounting import measure, system_memory
from streamd.settings.table import Percentiles
from streamd.users.acl import Reason

__all__ = ["SECTIONS", "Field", "InfoSource", "Section", "human_size", "render"]


# --- What is asked of the server -----------------------------------------------------------------------------------


class DatabaseSource(Protocol):
    """A database."""

    index: int
    hits: int
    misses: int
    expired_keys: int
    waiters: dict[bytes, Any]
    """Keys that clients wait for; a value has `groups`, true when readers of groups wait."""

    def __len__(self) -> int: ...
    @property
    def expiring(self) -> int:
        """Keys that have an expiry."""

    @property
    def string_sizes(self) -> Sequence[tuple[int, int]]:
        """(least length, strings that are so long and less than twice as long), growing."""

    @property
    def avg_ttl(self) -> int:
        """Their average time to live, in ms."""


class HistogramSource(Protocol):
    def percentile_us(self, percentile: float) -> float: ...


class EntrySource(Protocol):
    """What is counted for a command."""

    calls: int
    usec: int
    rejected_calls: int
    failed_calls: int

    @property
    def histogram(self) -> HistogramSource | None:
        """How long it took."""


class DispatcherSource(Protocol):
    """Counters of the dispatcher."""

    @property
    def routes(self) -> Any: ...

    @property
    def errorstats(self) -> Mapping[str, int]:
        """Errors answered, by their code."""

    @property
    def context(self) -> Any:
        """The Context of handlers; `dirty` counts the changes."""

    total_commands: int
    total_error_replies: int
    unexpected_errors: int
    net_input_bytes: int
    net_output_bytes: int
    total_reads: int
    total_writes: int

    @property
    def hub(self) -> Any:
        """Publish/subscribe."""

    @property
    def keyspace(self) -> Any:
        """Watched keys."""

    @property
    def tracking(self) -> Any:
        """Client-side caching."""

    @property
    def closed_for_input(self) -> int:
        """Clients closed for sending too much at once."""

    @property
    def closed_for_output(self) -> int:
        """Clients closed for not reading."""

    @property
    def processing_events(self) -> int:
        """Times that a client's buffer was searched for requests."""

    @property
    def batches(self) -> int:
        """Of them, those that found some."""

    @property
    def batched_commands(self) -> int: ...
    @property
    def turns(self) -> int:
        """Turns of the event loop that had something to do."""

    @property
    def turns_us(self) -> int: ...
    @property
    def commands_us(self) -> int: ...


class RateSource(Protocol):
    def per_second(self) -> float: ...


class RecentSource(Protocol):
    @property
    def most(self) -> int:
        """The greatest value of the last seconds."""


class TrashSource(Protocol):
    """What waits to be freed."""

    @property
    def pending_objects(self) -> int: ...
    @property
    def freed_objects(self) -> int: ...


class EvictionSource(Protocol):
    """What was removed to make room."""

    @property
    def evicted_keys(self) -> int: ...
    @property
    def evicted_clients(self) -> int: ...
    @property
    def total_excess_ms(self) -> int:
        """For how long the limit of memory was not kept."""

    @property
    def current_excess_ms(self) -> int: ...


class InfoSource(Protocol):
    """The server, as INFO sees it."""

    config: Any  # Config
    run_id: str  # 40 hexadecimal digits
    started_at: float  # Unix time
    started_monotonic: float
    databases: list[Any]  # DatabaseSource
    replication_id: str  # 40 hexadecimal digits
    total_connections: int
    rejected_connections: int
    cron_loops: int
    expired_keys_active: int
    """Keys that were removed because their time had come, and not because somebody asked for them."""
    expire_cycles_cut: int
    """How often there were more of them than time."""
    expire_cycle_us: int

    @property
    def acl(self) -> Any: ...
    @property
    def migration(self) -> Sized:
        """Connections that MIGRATE keeps."""

    @property
    def slowlog(self) -> Any:
        """SlowLog."""

    @property
    def hotkeys(self) -> Any:
        """HotKeys."""

    @property
    def recent_input(self) -> RecentSource:
        """Bytes of requests not yet run, of one client."""

    @property
    def recent_output(self) -> RecentSource:
        """Bytes of unsent replies of one client."""

    @property
    def turn_rate(self) -> RateSource: ...
    @property
    def turn_time_rate(self) -> RateSource:
        """Microseconds."""

    persistence: Any  # Persistence

    @property
    def ops_per_second(self) -> RateSource: ...
    @property
    def input_rate(self) -> RateSource:
        """Bytes."""

    @property
    def output_rate(self) -> RateSource:
        """Bytes."""

    @property
    def port(self) -> int:
        """The TCP port that is listened on; 0 when there is none."""

    @property
    def tls_port(self) -> int: ...

    @property
    def trash(self) -> TrashSource: ...
    @property
    def eviction(self) -> EvictionSource: ...
    @property
    def clients(self) -> Sized: ...
    @property
    def blocked(self) -> BlockedSource: ...
    @property
    def postponed_count(self) -> int:
        """Clients that wait for the end of a pause."""

    @property
    def dispatcher(self) -> DispatcherSource: ...


class BlockedSource(Protocol):
    """Clients that wait; each has `deadline`, infinite without a time-out."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Any]: ...


# --- Numbers -------------------------------------------------------------------------------------------------------


def human_size(size: int) -> str:
    """Bytes for people: `512B`, `1.50K`, `2.00G`."""
    if size < 1024:
        return f"{size}B"
    power = min(5, (size.bit_length() - 1) // 10)
    return f"{size / (1 << 10 * power):.2f}{'BKMGTP'[power]}"


def short(power: int) -> str:
    """A power of two for people, without decimals: `512`, `1K`, `2G`; and 0."""
    thousands = max(0, power.bit_length() - 1) // 10
    return f"{power >> 10 * thousands}{' KMGTP'[thousands].strip()}"


def ratio(part: float, whole: float) -> float:
    """part / whole; 0 when there is no whole."""
    return part / whole if whole else 0.0


# --- Fields and sections -------------------------------------------------------------------------------------------

Value = Callable[[Any], object]


@dataclass(frozen=True)
class Field:
    """A line: name and value. `value` is called with the server, an InfoSource; a fixed value stands for itself."""

    name: str
    value: Value | str | int

    def line(self, server: InfoSource) -> str:
        value = self.value(server) if callable(self.value) else self.value
        return f"{self.name}:{value}"


@dataclass(frozen=True)
class Section:
    """A section: a title, and fields, or a function that gives the lines.

    is_default  whether it is shown when no section is asked for
    """

    title: str
    content: Sequence[Field] | Callable[[Any], Iterable[str]] = ()
    is_default: bool = True

    @property
    def name(self) -> str:
        return self.title.lower()

    def lines(self, server: InfoSource) -> Iterator[str]:
        yield f"# {self.title}"
        if callable(self.content):
            yield from self.content(server)
        else:
            for field in self.content:
                yield field.line(server)


def render(server: InfoSource, names: Iterable[str] = ()) -> str:
    """The text of INFO with these sections; without any, the default ones. Unknown names are passed over."""
    wanted = {name.lower() for name in names} or {"default"}
    has_all = not wanted.isdisjoint({"all", "everything"})
    shown = (
        section
        for section in SECTIONS
        if has_all or section.name in wanted or (section.is_default and "default" in wanted)
    )
    return "\r\n".join("".join(f"{line}\r\n" for line in section.lines(server)) for section in shown)


# --- The sections --------------------------------------------------------------------------------------------------


def uptime_s(server: InfoSource) -> int:
    return int(time.monotonic() - server.started_monotonic)


def listener(server: InfoSource, kind: str, port: int) -> str:
    return f"name={kind}," + "".join(f"bind={address}," for address in server.config.bind) + f"port={port}"


def server_lines(server: InfoSource) -> Iterator[str]:
    for field in SERVER_FIELDS:
        yield field.line(server)
    if server.port:
        yield f"listener0:{listener(server, 'tcp', server.port)}"
    if server.config.unixsocket:
        yield f"listener1:name=unix,bind={server.config.unixsocket}"
    if server.tls_port:
        yield f"listener2:{listener(server, 'tls', server.tls_port)}"


SYSTEM = platform.uname()

SERVER_FIELDS = (
    Field("redis_version", REDIS_VERSION),
    Field("streamd_version", __version__),
    Field("redis_git_sha1", "00000000"),
    Field("redis_git_dirty", 0),
    Field("redis_build_id", f"streamd-{__version__}"),
    Field("redis_mode", "standalone"),
    Field("os", f"{SYSTEM.system} {SYSTEM.release} {SYSTEM.machine}"),
    Field("arch_bits", 8 * struct.calcsize("P")),
    Field("monotonic_clock", "POSIX clock_gettime"),
    Field("multiplexing_api", "libuv"),
    Field("python_version", platform.python_version()),
    Field(
        "gcc_version",
        platform.python_compiler().removeprefix("GCC ") if "GCC" in platform.python_compiler() else "0.0.0",
    ),
    Field("process_id", lambda s: os.getpid()),
    Field("process_supervised", "no"),
    Field("run_id", lambda s: s.run_id),
    Field("tcp_port", lambda s: s.port or s.tls_port),
    Field("server_time_usec", lambda s: time.time_ns() // 1000),
    Field("uptime_in_seconds", uptime_s),
    Field("uptime_in_days", lambda s: uptime_s(s) // 86400),
    Field("hz", lambda s: s.config.hz),
    Field("configured_hz", lambda s: s.config.hz),
    Field("lru_clock", lambda s: int(time.time()) & 0xFFFFFF),
    Field("executable", sys.executable),
    Field("config_file", lambda s: s.config.config_file),
    Field("io_threads_active", 0),
)

CLIENTS_FIELDS = (
    Field("connected_clients", lambda s: len(s.clients)),
    Field("cluster_connections", 0),
    Field("maxclients", lambda s: s.config.maxclients),
    Field("client_recent_max_input_buffer", lambda s: s.recent_input.most),
    Field("client_recent_max_output_buffer", lambda s: s.recent_output.most),
    Field("blocked_clients", lambda s: len(s.blocked) + s.postponed_count),
    Field("tracking_clients", lambda s: s.tracking.client_count),
    Field("pubsub_clients", lambda s: s.hub.client_count),
    Field("watching_clients", lambda s: s.dispatcher.transactions.watching_clients),
    Field("clients_in_timeout_table", lambda s: sum(blocked.deadline != float("inf") for blocked in s.blocked)),
    Field("total_watched_keys", lambda s: s.dispatcher.transactions.total_watched_keys),
    Field("total_blocking_keys", lambda s: sum(len(db.waiters) for db in s.databases)),
    Field(
        "total_blocking_keys_on_nokey",
        lambda s: sum(bool(queues.groups) for db in s.databases for queues in db.waiters.values()),
    ),
)

SCRIPT_MEMORY = (
    "used_memory_lua", "used_memory_vm_eval", "used_memory_lua_human", "used_memory_scripts_eval",
    "number_of_cached_scripts", "number_of_functions", "number_of_libraries", "used_memory_vm_functions",
    "used_memory_vm_total", "used_memory_vm_total_human", "used_memory_functions", "used_memory_scripts",
    "used_memory_scripts_human",
)  # fmt: skip
"""There are no scripts here; exporters ask all the same what they cost."""


def memory_lines(server: InfoSource) -> Iterator[str]:
    report = measure(server)  # type: ignore[arg-type]
    for field in MEMORY_FIELDS:
        value = field.value(report) if callable(field.value) else field.value
        yield f"{field.name}:{value}"


MEMORY_FIELDS = (
    Field("used_memory", lambda m: m.used),
    Field("used_memory_human", lambda m: human_size(m.used)),
    Field("used_memory_rss", lambda m: m.resident),
    Field("used_memory_rss_human", lambda m: human_size(m.resident)),
    Field("used_memory_peak", lambda m: m.peak),
    Field("used_memory_peak_human", lambda m: human_size(m.peak)),
    Field("used_memory_peak_time", lambda m: int(m.peak_time)),
    Field("used_memory_peak_perc", lambda m: f"{100 * ratio(m.used, m.peak):.2f}%"),
    Field("used_memory_overhead", lambda m: m.overhead),
    Field("used_memory_startup", lambda m: m.startup),
    Field("used_memory_dataset", lambda m: m.dataset),
    Field("used_memory_dataset_perc", lambda m: f"{m.dataset_percent:.2f}%"),
    Field("allocator_allocated", lambda m: m.used),
    Field("allocator_active", lambda m: m.used),
    Field("allocator_resident", lambda m: m.resident),
    Field("allocator_muzzy", 0),
    Field("total_system_memory", lambda m: system_memory()),
    Field("total_system_memory_human", lambda m: human_size(system_memory())),
    *(Field(name, "0B" if name.endswith("_human") else 0) for name in SCRIPT_MEMORY),
    Field("maxmemory", lambda m: m.server.config.maxmemory),
    Field("maxmemory_human", lambda m: human_size(m.server.config.maxmemory)),
    Field("maxmemory_policy", lambda m: m.server.config.maxmemory_policy),
    Field("allocator_frag_ratio", "1.00"),
    Field("allocator_frag_bytes", 0),
    Field("allocator_rss_ratio", lambda m: f"{m.fragmentation:.2f}"),
    Field("allocator_rss_bytes", lambda m: m.resident - m.used),
    Field("rss_overhead_ratio", "1.00"),
    Field("rss_overhead_bytes", 0),
    Field("mem_fragmentation_ratio", lambda m: f"{m.fragmentation:.2f}"),
    Field("mem_fragmentation_bytes", lambda m: m.resident - m.used),
    Field("mem_not_counted_for_evict", lambda m: m.uncounted),
    Field("mem_replication_backlog", 0),
    Field("mem_total_replication_buffers", 0),
    Field("mem_replica_full_sync_buffer", 0),
    Field("mem_clients_slaves", lambda m: m.replicas),
    Field("mem_clients_normal", lambda m: m.clients),
    Field("mem_cluster_links", 0),
    Field("mem_aof_buffer", lambda m: len(m.server.persistence.aof.buffer)),
    Field("mem_allocator", "libc"),
    Field("mem_overhead_db_hashtable_rehashing", 0),
    Field("active_defrag_running", 0),
    Field("lazyfree_pending_objects", lambda m: m.server.trash.pending_objects),
    Field("lazyfreed_objects", lambda m: m.server.trash.freed_objects),
)
"""Their values are called with a MemoryReport."""


def of_child(kind: str, value: Value, otherwise: object = 0) -> Value:
    """A value of the forked child while there is one of a kind (`rdb`, `aof`; empty for any), else `otherwise`."""

    def found(server: InfoSource) -> object:
        child = server.persistence.children.current
        return value(child) if child is not None and kind in ("", child.kind) else otherwise

    return found


def status(is_good: bool) -> str:
    return "ok" if is_good else "err"


PERSISTENCE_FIELDS = (
    Field("loading", lambda s: int(s.persistence.loading is not None)),
    Field("async_loading", 0),
    Field("current_cow_peak", of_child("", lambda child: child.cow_peak)),
    Field("current_cow_size", of_child("", lambda child: child.cow_bytes)),
    Field("current_cow_size_age", of_child("", lambda child: child.cow_age_s)),
    Field("current_fork_perc", of_child("", lambda child: f"{child.percent:.2f}", "0.00")),
    Field("current_save_keys_processed", of_child("", lambda child: child.keys_done)),
    Field("current_save_keys_total", of_child("", lambda child: child.keys_total)),
    Field("rdb_changes_since_last_save", lambda s: s.persistence.changes),
    Field("rdb_bgsave_in_progress", of_child("rdb", lambda child: 1)),
    Field("rdb_last_save_time", lambda s: s.persistence.last_save),
    Field("rdb_last_bgsave_status", lambda s: status(s.persistence.is_last_save_ok)),
    Field("rdb_last_bgsave_time_sec", lambda s: s.persistence.last_save_seconds),
    Field("rdb_current_bgsave_time_sec", of_child("rdb", lambda child: child.seconds, -1)),
    Field("rdb_saves", lambda s: s.persistence.saves),
    Field("rdb_saves_consecutive_failures", lambda s: s.persistence.consecutive_save_failures),
    Field("rdb_last_cow_size", lambda s: s.persistence.last_save_cow),
    Field("rdb_last_load_keys_expired", lambda s: s.persistence.keys_expired_at_load),
    Field("rdb_last_load_keys_loaded", lambda s: s.persistence.keys_loaded),
    Field("aof_enabled", lambda s: int(s.persistence.is_logging)),
    Field("aof_rewrite_in_progress", of_child("aof", lambda child: 1)),
    Field("aof_rewrite_scheduled", lambda s: int(s.persistence.aof.rewriting.is_requested)),
    Field("aof_last_rewrite_time_sec", lambda s: s.persistence.aof.rewriting.last_s),
    Field("aof_current_rewrite_time_sec", of_child("aof", lambda child: child.seconds, -1)),
    Field("aof_last_bgrewrite_status", lambda s: status(s.persistence.aof.rewriting.is_last_ok)),
    Field("aof_rewrites", lambda s: s.persistence.aof.rewriting.count),
    Field("aof_rewrites_consecutive_failures", lambda s: s.persistence.aof.rewriting.failures),
    Field("aof_last_write_status", lambda s: status(not s.persistence.aof.write_error)),
    Field("aof_last_cow_size", lambda s: s.persistence.last_rewrite_cow),
    Field("backup_in_progress", lambda s: int(s.persistence.backup.is_in_progress)),
    Field("module_fork_in_progress", 0),
    Field("module_fork_last_cow_size", 0),
)

LOG_FIELDS = (
    Field("aof_current_size", lambda s: s.persistence.aof.current_size),
    Field("aof_base_size", lambda s: s.persistence.aof.base_size),
    Field("aof_pending_rewrite", lambda s: int(s.persistence.aof.rewriting.is_requested)),
    Field("aof_buffer_length", lambda s: len(s.persistence.aof.buffer)),
    Field("aof_pending_bio_fsync", lambda s: s.persistence.aof.tail.pending_fsyncs),
    Field("aof_delayed_fsync", lambda s: s.persistence.aof.tail.delayed_fsync),
)
"""While there is an append-only file."""

LOADING_FIELDS = (
    Field("loading_start_time", lambda s: s.persistence.loading.started_at),
    Field("loading_total_bytes", lambda s: s.persistence.loading.total),
    Field("loading_rdb_used_mem", 0),
    Field("loading_loaded_bytes", lambda s: s.persistence.loading.done),
    Field("loading_loaded_perc", lambda s: f"{s.persistence.loading.percent:.2f}"),
    Field("loading_eta_seconds", lambda s: s.persistence.loading.eta_seconds),
)
"""While files are read."""


def persistence(server: InfoSource) -> Iterator[str]:
    fields = [*PERSISTENCE_FIELDS]
    if server.persistence.is_logging:
        fields += LOG_FIELDS
    if server.persistence.loading is not None:
        fields += LOADING_FIELDS
    for field in fields:
        yield field.line(server)


THREADS_FIELDS = (
    Field(
        "io_thread_0",
        lambda s: f"clients={len(s.clients)},reads={s.dispatcher.total_reads},writes={s.dispatcher.total_writes}",
    ),
)

STATS_FIELDS = (
    Field("total_connections_received", lambda s: s.total_connections),
    Field("total_commands_processed", lambda s: s.dispatcher.total_commands),
    Field("instantaneous_ops_per_sec", lambda s: int(s.ops_per_second.per_second())),
    Field("total_net_input_bytes", lambda s: s.dispatcher.net_input_bytes),
    Field("total_net_output_bytes", lambda s: s.dispatcher.net_output_bytes),
    Field("total_net_repl_input_bytes", 0),
    Field("total_net_repl_output_bytes", 0),
    Field("instantaneous_input_kbps", lambda s: f"{s.input_rate.per_second() / 1024:.2f}"),
    Field("instantaneous_output_kbps", lambda s: f"{s.output_rate.per_second() / 1024:.2f}"),
    Field("instantaneous_input_repl_kbps", "0.00"),
    Field("instantaneous_output_repl_kbps", "0.00"),
    Field("rejected_connections", lambda s: s.rejected_connections),
    Field("sync_full", 0),
    Field("sync_partial_ok", 0),
    Field("sync_partial_err", 0),
    Field("expired_subkeys", 0),
    Field("expired_subkeys_active", 0),
    Field("expired_keys", lambda s: sum(db.expired_keys for db in s.databases)),
    Field("expired_keys_active", lambda s: s.expired_keys_active),
    Field("expired_stale_perc", "0.00"),
    Field("expired_time_cap_reached_count", lambda s: s.expire_cycles_cut),
    Field("expire_cycle_cpu_milliseconds", lambda s: s.expire_cycle_us // 1000),
    Field("evicted_keys", lambda s: s.eviction.evicted_keys),
    Field("evicted_clients", lambda s: s.eviction.evicted_clients),
    Field("evicted_scripts", 0),
    Field("total_eviction_exceeded_time", lambda s: s.eviction.total_excess_ms),
    Field("current_eviction_exceeded_time", lambda s: s.eviction.current_excess_ms),
    Field("keyspace_hits", lambda s: sum(db.hits for db in s.databases)),
    Field("keyspace_misses", lambda s: sum(db.misses for db in s.databases)),
    Field("pubsub_channels", lambda s: len(s.hub.channels)),
    Field("pubsub_patterns", lambda s: len(s.hub.patterns)),
    Field("pubsubshard_channels", lambda s: len(s.hub.shard_channels)),
    Field("latest_fork_usec", lambda s: s.persistence.children.last_fork_us),
    Field("total_forks", lambda s: s.persistence.children.total_forks),
    Field("migrate_cached_sockets", lambda s: len(s.migration)),
    Field("slave_expires_tracked_keys", 0),
    Field("active_defrag_hits", 0),
    Field("active_defrag_misses", 0),
    Field("active_defrag_key_hits", 0),
    Field("active_defrag_key_misses", 0),
    Field("total_active_defrag_time", 0),
    Field("current_active_defrag_time", 0),
    Field("tracking_total_keys", lambda s: s.tracking.total_keys),
    Field("tracking_total_items", lambda s: s.tracking.total_items),
    Field("tracking_total_prefixes", lambda s: s.tracking.total_prefixes),
    Field("unexpected_error_replies", lambda s: s.dispatcher.unexpected_errors),
    Field("total_error_replies", lambda s: s.dispatcher.total_error_replies),
    Field("dump_payload_sanitizations", 0),
    Field("total_reads_processed", lambda s: s.dispatcher.total_reads),
    Field("total_writes_processed", lambda s: s.dispatcher.total_writes),
    Field("io_threaded_reads_processed", 0),
    Field("io_threaded_writes_processed", 0),
    Field("io_threaded_total_prefetch_batches", 0),
    Field("io_threaded_total_prefetch_entries", 0),
    Field("client_query_buffer_limit_disconnections", lambda s: s.dispatcher.closed_for_input),
    Field("client_output_buffer_limit_disconnections", lambda s: s.dispatcher.closed_for_output),
    Field("reply_buffer_shrinks", 0),
    Field("reply_buffer_expands", 0),
    Field("eventloop_cycles", lambda s: s.dispatcher.turns),
    Field("eventloop_duration_sum", lambda s: s.dispatcher.turns_us),
    Field("eventloop_duration_cmd_sum", lambda s: s.dispatcher.commands_us),
    Field("instantaneous_eventloop_cycles_per_sec", lambda s: int(s.turn_rate.per_second())),
    Field(
        "instantaneous_eventloop_duration_usec",
        lambda s: int(ratio(s.turn_time_rate.per_second(), s.turn_rate.per_second())),
    ),
    Field("acl_access_denied_auth", lambda s: s.acl.log.totals[Reason.AUTH]),
    Field("acl_access_denied_cmd", lambda s: s.acl.log.totals[Reason.COMMAND]),
    Field("acl_access_denied_key", lambda s: s.acl.log.totals[Reason.KEY]),
    Field("acl_access_denied_channel", lambda s: s.acl.log.totals[Reason.CHANNEL]),
    Field("acl_access_denied_tls_cert", lambda s: s.acl.log.totals[Reason.TLS_CERT]),
    Field("slowlog_commands_count", lambda s: s.slowlog.totals.count),
    Field("slowlog_commands_time_ms_sum", lambda s: f"{s.slowlog.totals.sum_us / 1000:.2f}"),
    Field("slowlog_commands_time_ms_max", lambda s: f"{s.slowlog.totals.max_us / 1000:.2f}"),
    Field("total_client_processing_events", lambda s: s.dispatcher.processing_events),
    Field("commands_per_parse_batch_sum", lambda s: s.dispatcher.batched_commands),
    Field("commands_per_parse_batch_cnt", lambda s: s.dispatcher.batches),
    Field(
        "commands_per_parse_batch_avg", lambda s: f"{ratio(s.dispatcher.batched_commands, s.dispatcher.batches):.2f}"
    ),
)

REPLICATION_FIELDS = (
    Field("role", "master"),
    Field("connected_slaves", 0),
    Field("master_failover_state", "no-failover"),
    Field("master_replid", lambda s: s.replication_id),
    Field("master_replid2", "0" * 40),
    Field("master_repl_offset", lambda s: s.persistence.replication_offset),
    Field("second_repl_offset", -1),
    Field("repl_backlog_active", 0),
    Field("repl_backlog_size", lambda s: s.config.repl_backlog_size),
    Field("repl_backlog_first_byte_offset", 0),
    Field("repl_backlog_histlen", 0),
)


def cpu(suffix: str, usage: int) -> tuple[Field, Field]:
    return (
        Field(f"used_cpu_sys{suffix}", lambda s: f"{resource.getrusage(usage).ru_stime:.6f}"),
        Field(f"used_cpu_user{suffix}", lambda s: f"{resource.getrusage(usage).ru_utime:.6f}"),
    )


CPU_FIELDS = (
    *cpu("", resource.RUSAGE_SELF),
    *cpu("_children", resource.RUSAGE_CHILDREN),
    *(cpu("_main_thread", resource.RUSAGE_THREAD) if hasattr(resource, "RUSAGE_THREAD") else ()),
)


def commandstats(server: InfoSource) -> Iterator[str]:
    for name, entry in server.dispatcher.routes.by_full_name.items():
        if entry.calls or entry.rejected_calls or entry.failed_calls:
            slow = server.slowlog.by_command.get(name)
            logged = (
                ""
                if slow is None
                else (
                    f",slowlog_count={slow.count},slowlog_time_ms_sum={slow.sum_us / 1000:.2f}"
                    f",slowlog_time_ms_max={slow.max_us / 1000:.2f}"
                )
            )
            yield (
                f"cmdstat_{name}:calls={entry.calls},usec={entry.usec},"
                f"usec_per_call={ratio(entry.usec, entry.calls):.2f},"
                f"rejected_calls={entry.rejected_calls},failed_calls={entry.failed_calls}{logged}"
            )


def latencystats(server: InfoSource) -> Iterator[str]:
    """Percentiles of what each command took, in us."""
    if not server.config.latency_tracking:
        return
    wanted = server.config.latency_tracking_info_percentiles
    names = Percentiles().format(wanted).split()
    for name, entry in server.dispatcher.routes.by_full_name.items():
        histogram = entry.histogram
        if histogram is not None:
            values = (
                f"p{text}={histogram.percentile_us(number):.3f}" for text, number in zip(names, wanted, strict=True)
            )
            yield f"latency_percentiles_usec_{name}:{','.join(values)}"


def hotkeys(server: InfoSource) -> Iterator[str]:
    session = server.hotkeys.session
    if session is not None:
        yield f"hotkeys-tracking-active:{int(session.is_active)}"
        yield "hotkeys-cmd-cpu-time:0"  # as Redis 8.6 has it, whatever commands take


def errorstats(server: InfoSource) -> Iterator[str]:
    for code, count in sorted(server.dispatcher.errorstats.items()):
        yield f"errorstat_{code}:count={count}"


def keyspace(server: InfoSource) -> Iterator[str]:
    for db in server.databases:
        if len(db):
            yield f"db{db.index}:keys={len(db)},expires={db.expiring},avg_ttl={db.avg_ttl},subexpiry=0"


def keysizes(server: InfoSource) -> Iterator[str]:
    """How many strings there are of which length, up to the next power of two; Redis tells nothing of streams either."""
    for db in server.databases:
        if sizes := db.string_sizes:
            yield f"db{db.index}_distrib_strings_sizes:{','.join(f'{short(size)}={count}' for size, count in sizes)}"


SECTIONS = (
    Section("Server", server_lines),
    Section("Clients", CLIENTS_FIELDS),
    Section("Memory", memory_lines),
    Section("Persistence", persistence),
    Section("Threads", THREADS_FIELDS),
    Section("Stats", STATS_FIELDS),
    Section("Replication", REPLICATION_FIELDS),
    Section("CPU", CPU_FIELDS),
    Section("Hotkeys", hotkeys),
    Section("Modules"),
    Section("Commandstats", commandstats, is_default=False),
    Section("Errorstats", errorstats),
    Section("Latencystats", latencystats, is_default=False),
    Section("Cluster", (Field("cluster_enabled", 0),)),
    Section("Keyspace", keyspace),
    Section("Keysizes", keysizes),
)
"""All sections, in the order of INFO."""
