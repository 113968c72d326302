"""AbsentFields: the lines of INFO about features that are not supported, as far as tools are known to read them."""

from __future__ import annotations

import streamd.absent.absent_settings  # noqa: F401  (declares them)
from streamd.core.capability import Capability
from streamd.core.host import Host
from streamd.core.info import Field

__all__ = ["AbsentFields"]

DEFRAGMENTATION = (
    "active_defrag_hits", "active_defrag_misses", "active_defrag_key_hits", "active_defrag_key_misses",
    "total_active_defrag_time", "current_active_defrag_time",
)  # fmt: skip


class AbsentFields(Capability):
    """Modules, and the defragmentation of memory."""

    info = {
        "memory": (Field("active_defrag_running", 0),),
        "persistence": (Field("module_fork_in_progress", 0), Field("module_fork_last_cow_size", 0)),
        "stats": tuple(Field(name, 0) for name in DEFRAGMENTATION),
    }

    def __init__(self, host: Host) -> None:
        pass
