"""DenialLog: recent denials, for ACL LOG, and how many there were, for INFO."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum

__all__ = ["DenialLog", "LogEntry", "Reason"]

GROUPING_S = 60.0
"""Similar denials within this time are one entry of the log, which counts them."""


class Reason(IntEnum):
    """Why something was denied; the values rank the reasons of several sets of rules."""

    COMMAND = 1
    KEY = 2
    AUTH = 3
    CHANNEL = 4
    TLS_CERT = 5

    @property
    def word(self) -> str:
        """As shown in the log."""
        return self.name.lower().replace("_", "-")


@dataclass
class LogEntry:
    """A group of similar denials.

    context   `toplevel`, `multi` or `lua`
    subject   the command, key or channel that was denied
    client    its line of CLIENT LIST, at the last denial
    created_ms, updated_ms   Unix time of the first denial and of the last
    """

    id: int
    reason: Reason
    context: str
    subject: bytes
    username: bytes
    client: bytes
    created_ms: int
    updated_ms: int
    count: int = 1

    def is_like(self, other: LogEntry) -> bool:
        return (self.reason, self.context, self.subject, self.username) == (
            other.reason,
            other.context,
            other.subject,
            other.username,
        ) and abs(other.updated_ms - self.updated_ms) <= GROUPING_S * 1000


@dataclass
class DenialLog:
    """Recent denials, newest first, and how many there were of each kind since the start.

    max_len  callable: maximum number of entries
    """

    max_len: Callable[[], int]
    entries: deque[LogEntry] = field(default_factory=deque)
    totals: dict[Reason, int] = field(default_factory=lambda: dict.fromkeys(Reason, 0))
    counted: tuple[int, ...] = (0,) * len(Reason)
    """The totals, in the order of Reason."""
    next_id: int = 0

    def add(self, reason: Reason, context: str, subject: bytes, username: bytes, client: bytes) -> None:
        self.totals[reason] += 1
        self.counted = tuple(self.totals.values())
        if not self.max_len():
            self.entries.clear()
            return
        now_ms = time.time_ns() // 1_000_000
        new = LogEntry(self.next_id, reason, context, subject, username, client, now_ms, now_ms)
        # Only the newest ones are compared: a flood of different denials must not cost more with each.
        for old in list(self.entries)[:10]:
            if old.is_like(new):
                self.entries.remove(old)
                old.count += 1
                old.client, old.updated_ms = client, now_ms
                self.entries.appendleft(old)
                return
        self.next_id += 1
        self.entries.appendleft(new)
        while len(self.entries) > self.max_len():
            self.entries.pop()
