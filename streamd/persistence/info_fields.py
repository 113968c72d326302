"""PersistenceFields: what INFO reports about a server's files."""

from __future__ import annotations

from collections.abc import Callable

from streamd.core.capability import Capability
from streamd.core.host import Host
from streamd.core.info import Field, Fields
from streamd.persistence.aof.file import AppendOnlyFile
from streamd.persistence.child import Child
from streamd.persistence.keeper import Persistence
from streamd.persistence.loading import Loading

__all__ = ["PersistenceFields"]


def of_child(kind: str, value: Callable[[Child], object], otherwise: object = 0) -> Callable[[Persistence], object]:
    """A value of the forked child while one of the given kind runs (`rdb`, `aof`; empty: any), else `otherwise`."""

    def find(persistence: Persistence) -> object:
        child = persistence.children.current
        return value(child) if child is not None and kind in ("", child.kind) else otherwise

    return find


def status(is_good: bool) -> str:
    return "ok" if is_good else "err"


PERSISTENCE_FIELDS: tuple[Field[Persistence], ...] = (
    Field("loading", lambda self: int(self.loader.loading is not None and not self.loader.loading.is_async)),
    Field("async_loading", lambda self: int(self.loader.loading is not None and self.loader.loading.is_async)),
    Field("current_cow_peak", of_child("", lambda child: child.cow_peak)),
    Field("current_cow_size", of_child("", lambda child: child.cow_bytes)),
    Field("current_cow_size_age", of_child("", lambda child: child.cow_age_s)),
    Field("current_fork_perc", of_child("", lambda child: f"{child.percent:.2f}", "0.00")),
    Field("current_save_keys_processed", of_child("", lambda child: child.keys_done)),
    Field("current_save_keys_total", of_child("", lambda child: child.keys_total)),
    Field("rdb_changes_since_last_save", lambda self: self.saving.changes),
    Field("rdb_bgsave_in_progress", of_child("rdb", lambda child: 1)),
    Field("rdb_last_save_time", lambda self: self.saving.last_save),
    Field("rdb_last_bgsave_status", lambda self: status(self.saving.is_last_ok)),
    Field("rdb_last_bgsave_time_sec", lambda self: self.saving.last_seconds),
    Field("rdb_current_bgsave_time_sec", of_child("rdb", lambda child: child.seconds, -1)),
    Field("rdb_saves", lambda self: self.saving.count),
    Field("rdb_saves_consecutive_failures", lambda self: self.saving.failures),
    Field("rdb_last_cow_size", lambda self: self.saving.last_cow),
    Field("rdb_last_load_keys_expired", lambda self: self.loader.keys_expired),
    Field("rdb_last_load_keys_loaded", lambda self: self.loader.keys_loaded),
    Field("aof_enabled", lambda self: int(self.append_only.is_on)),
    Field("aof_rewrite_in_progress", of_child("aof", lambda child: 1)),
    Field("aof_rewrite_scheduled", lambda self: int(self.append_only.aof.rewriting.is_requested)),
    Field("aof_last_rewrite_time_sec", lambda self: self.append_only.aof.rewriting.last_s),
    Field("aof_current_rewrite_time_sec", of_child("aof", lambda child: child.seconds, -1)),
    Field("aof_last_bgrewrite_status", lambda self: status(self.append_only.aof.rewriting.is_last_ok)),
    Field("aof_rewrites", lambda self: self.append_only.aof.rewriting.count),
    Field("aof_rewrites_consecutive_failures", lambda self: self.append_only.aof.rewriting.failures),
    Field("aof_last_write_status", lambda self: status(not self.append_only.aof.write_error)),
    Field("aof_last_cow_size", lambda self: self.append_only.last_cow),
    Field("backup_in_progress", lambda self: int(self.backup.is_in_progress)),
)

LOG_FIELDS: tuple[Field[AppendOnlyFile], ...] = (
    Field("aof_current_size", lambda aof: aof.current_size),
    Field("aof_base_size", lambda aof: aof.base_size),
    Field("aof_pending_rewrite", lambda aof: int(aof.rewriting.is_requested)),
    Field("aof_buffer_length", lambda aof: len(aof.buffer)),
    Field("aof_pending_bio_fsync", lambda aof: aof.tail.pending_fsyncs),
    Field("aof_delayed_fsync", lambda aof: aof.tail.delayed_fsync),
)
"""Shown while there is an append-only file."""

LOADING_FIELDS: tuple[Field[Loading], ...] = (
    Field("loading_start_time", lambda loading: loading.started_at),
    Field("loading_total_bytes", lambda loading: loading.total),
    Field("loading_rdb_used_mem", 0),
    Field("loading_loaded_bytes", lambda loading: loading.done),
    Field("loading_loaded_perc", lambda loading: f"{loading.percent:.2f}"),
    Field("loading_eta_seconds", lambda loading: loading.eta_seconds),
)
"""Shown while files are being loaded."""


class PersistenceFields(Capability):
    """The fields of INFO about persistence."""

    info = {
        "persistence": (
            Fields(lambda self: self.persistence, PERSISTENCE_FIELDS),
            Fields(
                lambda self: self.persistence.append_only.aof if self.persistence.append_only.is_on else None,
                LOG_FIELDS,
            ),
            Fields(lambda self: self.persistence.loader.loading, LOADING_FIELDS),
        ),
        "memory": (Field("mem_aof_buffer", lambda self: len(self.persistence.append_only.aof.buffer)),),
        "stats": (
            Field("latest_fork_usec", lambda self: self.persistence.children.last_fork_us),
            Field("total_forks", lambda self: self.persistence.children.total_forks),
            Field("dump_payload_sanitizations", 0),
        ),
    }

    def __init__(self, host: Host) -> None:
        self.persistence = host.get(Persistence)
