"""INFO: the server's report about itself, as sections of fields.

The fields belong to the capabilities (`Capability.info`, see core/info.pyx). `ORDER` has their names in the order of Redis
8.6, so that what reads a Redis reads this server; a field or a section that it does not name comes last. A field that
counts what this server does not have is left out, unless tools are known to ask for it: then it has the value that says so.
"""

from __future__ import annotations

from collections.abc import Sequence

from streamd.core.capability import Capability
from streamd.core.host import Host
from streamd.core.info import Section, render

__all__ = ["ORDER", "Info"]


# --- The order -----------------------------------------------------------------------------------------------------

ORDER = {
    "Server": (
        "redis_version", "streamd_version", "redis_git_sha1", "redis_git_dirty", "redis_build_id", "redis_mode", "os",
        "arch_bits", "monotonic_clock", "multiplexing_api", "python_version", "gcc_version", "process_id",
        "process_supervised", "run_id", "tcp_port", "server_time_usec", "uptime_in_seconds", "uptime_in_days", "hz",
        "configured_hz", "lru_clock", "executable", "config_file", "io_threads_active", "shutdown_in_milliseconds", "listeners",
    ),
    "Clients": (
        "connected_clients", "cluster_connections", "maxclients", "client_recent_max_input_buffer",
        "client_recent_max_output_buffer", "blocked_clients", "tracking_clients", "pubsub_clients", "watching_clients",
        "clients_in_timeout_table", "total_watched_keys", "total_blocking_keys", "total_blocking_keys_on_nokey",
    ),
    "Memory": (
        "used_memory", "used_memory_human", "used_memory_rss", "used_memory_rss_human", "used_memory_peak",
        "used_memory_peak_human", "used_memory_peak_time", "used_memory_peak_perc", "used_memory_overhead",
        "used_memory_startup", "used_memory_dataset", "used_memory_dataset_perc", "allocator_allocated", "allocator_active",
        "allocator_resident", "allocator_muzzy", "total_system_memory", "total_system_memory_human", "used_memory_lua",
        "used_memory_vm_eval", "used_memory_lua_human", "used_memory_scripts_eval", "number_of_cached_scripts",
        "number_of_functions", "number_of_libraries", "used_memory_vm_functions", "used_memory_vm_total",
        "used_memory_vm_total_human", "used_memory_functions", "used_memory_scripts", "used_memory_scripts_human",
        "maxmemory", "maxmemory_human", "maxmemory_policy", "allocator_frag_ratio", "allocator_frag_bytes",
        "allocator_rss_ratio", "allocator_rss_bytes", "rss_overhead_ratio", "rss_overhead_bytes", "mem_fragmentation_ratio",
        "mem_fragmentation_bytes", "mem_not_counted_for_evict", "mem_replication_backlog", "mem_total_replication_buffers",
        "mem_replica_full_sync_buffer", "mem_clients_slaves", "mem_clients_normal",
        "mem_cluster_slot_migration_output_buffer", "mem_cluster_slot_migration_input_buffer",
        "mem_cluster_slot_migration_input_buffer_peak", "mem_cluster_links", "mem_aof_buffer",
        "mem_allocator", "mem_overhead_db_hashtable_rehashing", "active_defrag_running", "lazyfree_pending_objects",
        "lazyfreed_objects",
    ),
    "Persistence": (
        "loading", "async_loading", "current_cow_peak", "current_cow_size", "current_cow_size_age", "current_fork_perc",
        "current_save_keys_processed", "current_save_keys_total", "rdb_changes_since_last_save", "rdb_bgsave_in_progress",
        "rdb_last_save_time", "rdb_last_bgsave_status", "rdb_last_bgsave_time_sec", "rdb_current_bgsave_time_sec",
        "rdb_saves", "rdb_saves_consecutive_failures", "rdb_last_cow_size", "rdb_last_load_keys_expired",
        "rdb_last_load_keys_loaded", "aof_enabled", "aof_rewrite_in_progress", "aof_rewrite_scheduled",
        "aof_last_rewrite_time_sec", "aof_current_rewrite_time_sec", "aof_last_bgrewrite_status", "aof_rewrites",
        "aof_rewrites_consecutive_failures", "aof_last_write_status", "aof_last_cow_size", "backup_in_progress",
        "module_fork_in_progress", "module_fork_last_cow_size", "aof_current_size", "aof_base_size", "aof_pending_rewrite",
        "aof_buffer_length", "aof_pending_bio_fsync", "aof_delayed_fsync", "loading_start_time", "loading_total_bytes",
        "loading_rdb_used_mem", "loading_loaded_bytes", "loading_loaded_perc", "loading_eta_seconds",
    ),
    "Threads": ("io_thread_0",),
    "Stats": (
        "total_connections_received", "total_commands_processed", "instantaneous_ops_per_sec", "total_net_input_bytes",
        "total_net_output_bytes", "total_net_repl_input_bytes", "total_net_repl_output_bytes", "instantaneous_input_kbps",
        "instantaneous_output_kbps", "instantaneous_input_repl_kbps", "instantaneous_output_repl_kbps",
        "rejected_connections", "sync_full", "sync_partial_ok", "sync_partial_err", "expired_subkeys",
        "expired_subkeys_active", "expired_keys", "expired_keys_active", "expired_stale_perc",
        "expired_time_cap_reached_count", "expire_cycle_cpu_milliseconds", "evicted_keys", "evicted_clients",
        "evicted_scripts", "total_eviction_exceeded_time", "current_eviction_exceeded_time", "keyspace_hits",
        "keyspace_misses", "pubsub_channels", "pubsub_patterns", "pubsubshard_channels", "latest_fork_usec", "total_forks",
        "migrate_cached_sockets", "slave_expires_tracked_keys", "active_defrag_hits", "active_defrag_misses",
        "active_defrag_key_hits", "active_defrag_key_misses", "total_active_defrag_time", "current_active_defrag_time",
        "tracking_total_keys", "tracking_total_items", "tracking_total_prefixes", "unexpected_error_replies",
        "total_error_replies", "dump_payload_sanitizations", "total_reads_processed", "total_writes_processed",
        "io_threaded_reads_processed", "io_threaded_writes_processed", "io_threaded_total_prefetch_batches",
        "io_threaded_total_prefetch_entries", "client_query_buffer_limit_disconnections",
        "client_output_buffer_limit_disconnections", "reply_buffer_shrinks", "reply_buffer_expands", "eventloop_cycles",
        "eventloop_duration_sum", "eventloop_duration_cmd_sum", "instantaneous_eventloop_cycles_per_sec",
        "instantaneous_eventloop_duration_usec", "acl_access_denied_auth", "acl_access_denied_cmd", "acl_access_denied_key",
        "acl_access_denied_channel", "acl_access_denied_tls_cert", "slowlog_commands_count", "slowlog_commands_time_ms_sum",
        "slowlog_commands_time_ms_max", "total_client_processing_events", "commands_per_parse_batch_sum",
        "commands_per_parse_batch_cnt", "commands_per_parse_batch_avg",
    ),
    "Replication": (
        "role", "master_host", "master_port", "master_link_status", "master_link_down_reason", "master_last_io_seconds_ago",
        "master_sync_in_progress", "slave_read_repl_offset", "slave_repl_offset", "replica_full_sync_buffer_size",
        "replica_full_sync_buffer_peak", "master_sync_total_bytes", "master_current_sync_attempts",
        "master_total_sync_attempts", "master_link_up_since_seconds", "total_disconnect_time_sec", "slave_priority",
        "slave_read_only", "replica_announced", "connected_slaves", "min_slaves_good_slaves", "slaves",
        "master_failover_state", "master_replid", "master_replid2", "master_repl_offset",
        "second_repl_offset", "repl_backlog_active", "repl_backlog_size", "repl_backlog_first_byte_offset",
        "repl_backlog_histlen",
    ),
    "CPU": (
        "used_cpu_sys", "used_cpu_user", "used_cpu_sys_children", "used_cpu_user_children", "used_cpu_sys_main_thread",
        "used_cpu_user_main_thread",
    ),
    "Hotkeys": ("hotkeys-tracking-active", "hotkeys-cmd-cpu-time"),
    "Modules": (),
    "Commandstats": (),
    "Errorstats": (),
    "Latencystats": (),
    "Cluster": ("cluster_enabled",),
    "Keyspace": (),
    "Keysizes": (),
    "Delivery": (
        "dead_letters_moved", "dead_letters_not_moved", "consumers_removed", "trimmed_by_length", "trimmed_by_bytes", "trimmed_by_age",
        "trimmed_by_acked", "trimmed_by_atmost", "entries_delayed_moved", "entries_delayed_replaced", "entries_expired", "entries_with_bad_time",
        "delays_not_moving",
    ),
}  # fmt: skip
"""Titles of sections, and names of fields."""

ON_REQUEST = {"commandstats", "delivery", "latencystats"}
"""Sections that are not shown unless they, or all, are asked for."""


# --- INFO ----------------------------------------------------------------------------------------------------------


class Info(Capability):
    """The sections of a server, in the order of INFO."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.sections: list[Section] = []
        self._default: list[Section] = []

    def start(self) -> None:
        capabilities = self._host.dispatcher.capabilities
        known = {title.lower() for title in ORDER}
        added = dict.fromkeys(name for each in capabilities for name in each.info if name not in known)
        self.sections = [
            Section(title, order, [(each, part) for each in capabilities for part in each.info.get(title.lower(), ())])
            for title, order in (*ORDER.items(), *((name.capitalize(), ()) for name in added))
        ]
        self._default = [section for section in self.sections if section.name not in ON_REQUEST]

    def render(self, names: Sequence[str] = ()) -> bytes:
        """The text of INFO with these sections; without any, the default ones. Unknown names are ignored."""
        if not names:
            return render(self._default)
        wanted = {name.lower() for name in names}
        has_all = not wanted.isdisjoint({"all", "everything"})
        return render(
            [
                section
                for section in self.sections
                if has_all or section.name in wanted or ("default" in wanted and section in self._default)
            ]
        )
