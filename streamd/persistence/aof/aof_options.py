"""Settings of an append-only file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["AofOptions"]

FsyncPolicy = Literal["always", "everysec", "no"]


@dataclass
class AofOptions:
    """Settings; those from `appendfsync` on may change at any time.

    directory            `dir`
    dirname              `appenddirname`
    filename             `appendfilename`: prefix of the names of all files
    appendfsync          when to sync
    no_fsync_on_rewrite  do not sync while a child is writing
    use_rdb_preamble     bases are snapshots; otherwise commands
    keep_history         keep files that are no longer needed (aof-disable-auto-gc)
    rewrite_percentage   rewrite when the files have grown by this percentage since the last rewrite; 0: never
    rewrite_min_size     ... and have at least this many bytes
    """

    directory: str = "."
    dirname: str = "appendonlydir"
    filename: str = "appendonly.aof"
    appendfsync: FsyncPolicy = "everysec"
    no_fsync_on_rewrite: bool = False
    use_rdb_preamble: bool = True
    keep_history: bool = False
    rewrite_percentage: int = 100
    rewrite_min_size: int = 64 * 1024 * 1024
