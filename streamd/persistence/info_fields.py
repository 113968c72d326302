"""PersistenceFields: what INFO reports about a server's files."""

from __future__ import annotations

from streamd.core.capability import Capability
from streamd.core.host import Host
from streamd.core.info import Field, Fields
from streamd.persistence.aof.file import OFF
from streamd.persistence.backup import IN_PROGRESS
from streamd.persistence.persistence import Persistence

__all__ = ["PersistenceFields"]


def of_child(self: PersistenceFields) -> tuple[object, ...]:
    """What a forked child does, while one runs."""
    child = self.persistence.children.current
    if child is None:
        return 0, 0, 0, 0.0, 0, 0, 0, -1, 0, -1
    writes_rdb, writes_aof = child.kind == "rdb", child.kind == "aof"
    return (
        child.cow_peak,
        child.cow_bytes,
        child.cow_age_s,
        child.percent,
        child.keys_done,
        child.keys_total,
        writes_rdb,
        child.seconds if writes_rdb else -1,
        writes_aof,
        child.seconds if writes_aof else -1,
    )


def of_snapshots(self: PersistenceFields) -> tuple[object, ...]:
    saving, loader = self.persistence.saving, self.persistence.loader
    loading = loader.loading
    return (
        loading is not None and not loading.is_async,
        loading is not None and loading.is_async,
        saving.changes(),
        saving.last_save,
        "ok" if saving.is_last_ok else "err",
        saving.last_seconds,
        saving.count,
        saving.failures,
        saving.last_cow,
        loader.keys_expired,
        loader.keys_loaded,
        self.persistence.backup.state in IN_PROGRESS,
    )


def of_append_only(self: PersistenceFields) -> tuple[object, ...]:
    append_only = self.persistence.append_only
    aof = append_only.aof
    rewriting, is_on = aof.rewriting, aof.state is not OFF
    return (
        is_on,
        rewriting.is_requested,
        rewriting.last_s,
        "ok" if rewriting.is_last_ok else "err",
        rewriting.count,
        rewriting.failures,
        "err" if is_on and aof.tail.error else "ok",
        append_only.last_cow,
    )


def of_open_log(self: PersistenceFields) -> tuple[object, ...] | None:
    """Shown while there is an append-only file."""
    aof = self.persistence.append_only.aof
    if aof.state is OFF:
        return None
    return (
        aof.current_size,
        aof.base_size,
        aof.rewriting.is_requested,
        len(aof.buffer),
        aof.tail.pending_fsyncs,
        aof.tail.delayed_fsync,
    )


def of_loading(self: PersistenceFields) -> tuple[object, ...] | None:
    """Shown while files are being loaded."""
    loading = self.persistence.loader.loading
    if loading is None:
        return None
    return loading.started_at, loading.total, 0, loading.done, loading.percent, loading.eta_seconds


class PersistenceFields(Capability):
    """The fields of INFO about persistence."""

    info = {
        "persistence": (
            Fields(
                "current_cow_peak current_cow_size current_cow_size_age current_fork_perc current_save_keys_processed"
                " current_save_keys_total rdb_bgsave_in_progress rdb_current_bgsave_time_sec aof_rewrite_in_progress"
                " aof_current_rewrite_time_sec",
                of_child,
            ),
            Fields(
                "loading async_loading rdb_changes_since_last_save rdb_last_save_time rdb_last_bgsave_status"
                " rdb_last_bgsave_time_sec rdb_saves rdb_saves_consecutive_failures rdb_last_cow_size rdb_last_load_keys_expired"
                " rdb_last_load_keys_loaded backup_in_progress",
                of_snapshots,
            ),
            Fields(
                "aof_enabled aof_rewrite_scheduled aof_last_rewrite_time_sec aof_last_bgrewrite_status aof_rewrites"
                " aof_rewrites_consecutive_failures aof_last_write_status aof_last_cow_size",
                of_append_only,
            ),
            Fields(
                "aof_current_size aof_base_size aof_pending_rewrite aof_buffer_length aof_pending_bio_fsync aof_delayed_fsync",
                of_open_log,
            ),
            Fields(
                "loading_start_time loading_total_bytes loading_rdb_used_mem loading_loaded_bytes loading_loaded_perc"
                " loading_eta_seconds",
                of_loading,
            ),
        ),
        "memory": (Field("mem_aof_buffer", lambda self: len(self.persistence.append_only.aof.buffer)),),
        "stats": (
            Fields(
                "latest_fork_usec total_forks",
                lambda self: (self.persistence.children.last_fork_us, self.persistence.children.total_forks),
            ),
            Field("dump_payload_sanitizations", 0),
        ),
    }

    def __init__(self, host: Host) -> None:
        self.persistence = host.get(Persistence)

    def reset_statistics(self) -> None:
        persistence = self.persistence
        persistence.children.last_fork_us = persistence.children.total_forks = 0
        persistence.saving.count = persistence.append_only.aof.rewriting.count = 0
