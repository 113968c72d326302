"""The metrics: their names, types and help texts.

Times are in seconds, sizes in bytes, moments in Unix time. Counters end with `_total` where they are written.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["COMMAND", "KEYS_OF_TYPE", "OF_DATABASE", "OF_INFO", "OF_REPLICA", "OWN", "SERVER", "Family"]


@dataclass(frozen=True, eq=False)
class Family:
    """A metric.

    name    without `_total`
    kind    gauge, counter, histogram or info
    field   the field of INFO that it is read from; empty: none
    scale   by which that is multiplied
    """

    name: str
    kind: str
    help: str
    field: str = ""
    scale: float = 1


def gauge(field: str, help_text: str, name: str = "", scale: float = 1) -> Family:
    return Family(f"streamd_{name or field}", "gauge", help_text, field, scale)


def counter(field: str, help_text: str, name: str = "", scale: float = 1) -> Family:
    return Family(f"streamd_{name or field.removeprefix('total_')}", "counter", help_text, field, scale)


US, MS = 1e-6, 1e-3

OF_INFO = (
    # Server, clients
    gauge("uptime_in_seconds", "Time since the start.", "uptime_seconds"),
    gauge("connected_clients", "Connected clients."),
    gauge("blocked_clients", "Clients that wait for a key."),
    gauge("maxclients", "Clients that may be connected, by the settings.", "max_clients"),
    gauge("tracking_clients", "Clients that use client-side caching."),
    gauge("pubsub_clients", "Clients with subscriptions."),
    gauge("watching_clients", "Clients that watch keys."),
    gauge("total_watched_keys", "Watched keys.", "watched_keys"),
    gauge("total_blocking_keys", "Keys that clients wait for.", "blocking_keys"),
    gauge("client_recent_max_input_buffer", "The largest input buffer of late.", "client_recent_max_input_buffer_bytes"),
    gauge("client_recent_max_output_buffer", "The largest output buffer of late.", "client_recent_max_output_buffer_bytes"),
    # Memory
    gauge("used_memory", "Memory for data, clients and buffers.", "memory_used_bytes"),
    gauge("used_memory_peak", "The most of it so far.", "memory_used_peak_bytes"),
    gauge("used_memory_overhead", "Its share that is not data.", "memory_used_overhead_bytes"),
    gauge("used_memory_dataset", "Its share that is data.", "memory_used_dataset_bytes"),
    gauge("used_memory_startup", "Memory used right after the start.", "memory_used_startup_bytes"),
    gauge("used_memory_rss", "Resident memory of the process.", "memory_resident_bytes"),
    gauge("maxmemory", "The setting maxmemory; 0: no limit.", "memory_max_bytes"),
    gauge("total_system_memory", "Memory of the machine.", "system_memory_bytes"),
    gauge("mem_fragmentation_ratio", "Resident memory by used memory.", "memory_fragmentation_ratio"),
    gauge("mem_clients_normal", "Memory of ordinary clients.", "memory_clients_bytes"),
    gauge("mem_clients_slaves", "Memory of the connections of replicas.", "memory_replica_connections_bytes"),
    gauge("mem_replication_backlog", "Memory of the backlog.", "memory_replication_backlog_bytes"),
    gauge("mem_aof_buffer", "Memory of changes to be written to the append-only file.", "memory_aof_buffer_bytes"),
    gauge("mem_not_counted_for_evict", "Memory that eviction leaves out.", "memory_not_counted_for_eviction_bytes"),
    gauge("lazyfree_pending_objects", "Objects that are still to be freed."),
    counter("lazyfreed_objects", "Objects freed in the background."),
    # Persistence
    gauge("loading", "Whether data are being loaded."),
    gauge("rdb_changes_since_last_save", "Changes since the last snapshot."),
    gauge("rdb_bgsave_in_progress", "Whether a snapshot is being written."),
    gauge("rdb_last_save_time", "When the last snapshot was written.", "rdb_last_save_timestamp_seconds"),
    gauge("rdb_last_bgsave_status", "Whether the last snapshot succeeded.", "rdb_last_bgsave_ok"),
    gauge("rdb_last_bgsave_time_sec", "Time that it took; -1: none yet.", "rdb_last_bgsave_duration_seconds"),
    gauge("rdb_current_bgsave_time_sec", "Time since it began; -1: none is running.", "rdb_current_bgsave_duration_seconds"),
    counter("rdb_saves", "Snapshots written."),
    gauge("rdb_last_cow_size", "Memory that the last snapshot copied.", "rdb_last_copy_on_write_bytes"),
    gauge("aof_enabled", "Whether there is an append-only file."),
    gauge("aof_rewrite_in_progress", "Whether it is being rewritten."),
    gauge("aof_rewrite_scheduled", "Whether a rewrite waits for a snapshot to end."),
    gauge("aof_last_rewrite_time_sec", "Time that the last rewrite took; -1: none yet.", "aof_last_rewrite_duration_seconds"),
    gauge("aof_current_rewrite_time_sec", "Time since it began; -1: none is running.", "aof_current_rewrite_duration_seconds"),
    gauge("aof_last_bgrewrite_status", "Whether the last rewrite succeeded.", "aof_last_rewrite_ok"),
    gauge("aof_last_write_status", "Whether the last write to it succeeded.", "aof_last_write_ok"),
    counter("aof_rewrites", "Rewrites."),
    gauge("aof_last_cow_size", "Memory that the last rewrite copied.", "aof_last_copy_on_write_bytes"),
    gauge("aof_current_size", "Size of the append-only file.", "aof_current_size_bytes"),
    gauge("aof_base_size", "Its size after the last rewrite.", "aof_base_size_bytes"),
    gauge("aof_pending_rewrite", "Whether a rewrite is about to begin."),
    gauge("aof_buffer_length", "Bytes that are to be written.", "aof_buffer_bytes"),
    gauge("aof_pending_bio_fsync", "Whether the disk is being waited for.", "aof_pending_fsync"),
    counter("aof_delayed_fsync", "Writes that waited for the disk.", "aof_delayed_fsyncs"),
    # Statistics
    counter("total_connections_received", "Connections accepted."),
    counter("rejected_connections", "Connections refused."),
    counter("total_commands_processed", "Commands run."),
    counter("total_net_input_bytes", "Bytes received."),
    counter("total_net_output_bytes", "Bytes sent."),
    counter("total_net_repl_input_bytes", "Bytes received from the primary.", "net_replication_input_bytes"),
    counter("total_net_repl_output_bytes", "Bytes sent to replicas.", "net_replication_output_bytes"),
    counter("total_reads_processed", "Reads of sockets."),
    counter("total_writes_processed", "Writes to sockets."),
    counter("expired_keys", "Keys that have expired."),
    counter("evicted_keys", "Keys that were evicted."),
    counter("evicted_clients", "Clients closed for maxmemory-clients."),
    counter("client_query_buffer_limit_disconnections", "Clients closed for their requests' size."),
    counter("client_output_buffer_limit_disconnections", "Clients closed for what they did not read."),
    counter("keyspace_hits", "Keys that were found."),
    counter("keyspace_misses", "Keys that were not."),
    gauge("pubsub_channels", "Channels with subscribers."),
    gauge("pubsub_patterns", "Patterns with subscribers."),
    gauge("pubsubshard_channels", "Shard channels with subscribers.", "pubsub_shard_channels"),
    gauge("latest_fork_usec", "Time of the last fork.", "latest_fork_seconds", US),
    counter("total_forks", "Children forked."),
    counter("total_error_replies", "Error replies."),
    counter("eventloop_cycles", "Turns of the event loop."),
    counter("eventloop_duration_sum", "Time in them.", "eventloop_duration_seconds", US),
    counter("eventloop_duration_cmd_sum", "Time in commands.", "eventloop_duration_commands_seconds", US),
    counter("acl_access_denied_auth", "Logins refused."),
    counter("acl_access_denied_cmd", "Commands refused for lack of rights.", "acl_access_denied_command"),
    counter("acl_access_denied_key", "Keys refused."),
    counter("acl_access_denied_channel", "Channels refused."),
    gauge("tracking_total_keys", "Keys tracked for client-side caching.", "tracked_keys"),
    counter("slowlog_commands_count", "Commands that were slow.", "slow_commands"),
    counter("slowlog_commands_time_ms_sum", "Time in them.", "slow_commands_duration_seconds", MS),
    # Delivery
    counter("dead_letters_moved", "Entries moved to dead-letter streams."),
    gauge("dead_letters_not_moved", "Entries that cannot be moved there, and are tried again."),
    counter("consumers_removed", "Consumers that were removed because they were idle."),
    counter("entries_delayed_moved", "Entries that were due, and moved."),
    counter("entries_delayed_replaced", "Waiting entries that later ones have replaced."),
    counter("entries_expired", "Entries whose time was over."),
    gauge("entries_with_bad_time", "Entries with a time that is not a number."),
    gauge("delays_not_moving", "Streams whose entries are due and cannot be moved."),
    # Replication
    gauge("connected_slaves", "Connected replicas.", "connected_replicas"),
    gauge("min_slaves_good_slaves", "Replicas that min-replicas-to-write counts.", "good_replicas"),
    gauge("master_repl_offset", "The offset of the stream of replication.", "replication_offset_bytes"),
    gauge("repl_backlog_active", "Whether there is a backlog.", "replication_backlog_active"),
    gauge("repl_backlog_size", "Size of the backlog.", "replication_backlog_size_bytes"),
    gauge("repl_backlog_histlen", "How much is in it.", "replication_backlog_used_bytes"),
    counter("sync_full", "Full resynchronisations of replicas.", "replication_syncs_full"),
    counter("sync_partial_ok", "Partial ones.", "replication_syncs_partial"),
    counter("sync_partial_err", "Partial ones that were refused.", "replication_syncs_refused"),
    gauge("master_link_status", "On a replica: whether the link to the primary is up.", "primary_link_up"),
    gauge("master_last_io_seconds_ago", "On a replica: time since the primary was heard of.", "primary_last_io_seconds"),
    gauge("master_sync_in_progress", "On a replica: whether it is receiving a snapshot.", "primary_sync_in_progress"),
    gauge("slave_repl_offset", "On a replica: the offset that it has applied.", "replica_offset_bytes"),
    # CPU
    counter("used_cpu_sys", "Processor time in the system.", "cpu_sys_seconds"),
    counter("used_cpu_user", "Processor time in the server.", "cpu_user_seconds"),
    counter("used_cpu_sys_children", "The same of children.", "cpu_sys_children_seconds"),
    counter("used_cpu_user_children", "The same of children.", "cpu_user_children_seconds"),
)  # fmt: skip
"""Read from a field of INFO each; those that the server does not show at the moment are left out."""

OF_DATABASE = (
    gauge("keys", "Keys of a database.", "db_keys"),
    gauge("expires", "Its keys that expire.", "db_keys_expiring"),
    gauge("avg_ttl", "Their mean time to live.", "db_average_ttl_seconds", MS),
)
"""Of each database, label `db`."""

KEYS_OF_TYPE = Family(
    "streamd_db_keys_of_type", "gauge", "Keys of a database, labels `db` and `type`, as TYPE names it."
)

OF_REPLICA = (
    gauge("offset", "The offset that a replica has confirmed.", "connected_replica_offset_bytes"),
    gauge("lag", "Time since it was heard of.", "connected_replica_lag_seconds"),
)
"""Of each replica, labels `address` and `state`."""

SERVER = Family("streamd_server", "info", "What runs: labels `version`, `redis_version`, `role`, `run_id`.")
ERRORS = Family("streamd_errors", "counter", "Error replies, label `code`.")
COMMAND = (
    Family("streamd_command_failed_calls", "counter", "Calls of a command that failed, label `command`."),
    Family("streamd_command_rejected_calls", "counter", "Calls that were refused, label `command`."),
)
DURATION = Family(
    "streamd_command_duration_seconds",
    "histogram",
    "How long calls of a command took, label `command` (latency-tracking).",
)

OWN = {
    "left_out": Family(
        "streamd_metrics_left_out", "gauge", "Whether streams or consumers are not told of, label `what`."
    ),
    "cpu": Family("streamd_metrics_cpu_seconds", "counter", "Processor time that scrapes have taken."),
    "scrapes": Family("streamd_metrics_scrapes", "counter", "Scrapes so far."),
}
