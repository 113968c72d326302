"""Which rows a task writes."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Task"]


@dataclass(frozen=True)
class Task:
    """Identifies what a task writes.

    query      ID of the streaming query, or name of the batch write
    batch      number of the micro-batch; 0 in a batch write
    partition  number of the partition
    attempt    names the run of the query, or of the batch write; the same for all of its tasks, and those that are tried again
    """

    query: str
    batch: int
    partition: int
    attempt: str = "0"
