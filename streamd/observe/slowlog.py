"""SlowLog: the requests that took longest to run, newest first.

The dispatcher passes it commands that took at least slowlog-log-slower-than (`command_took`); SLOWLOG lists them.
Long requests are truncated, so that entries stay small.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from streamd.core.capability import Capability
from streamd.core.client import Client
from streamd.core.host import Host
from streamd.core.info import Fields
from streamd.core.redaction import redacted
from streamd.core.route import Route
from streamd.integers import INT64_MAX

__all__ = ["SlowLog", "SlowRequest", "SlowTotals"]


NEVER = INT64_MAX


@dataclass(slots=True)
class SlowTotals:
    """Totals of logged requests, of all or of one command, since the statistics were reset."""

    count: int = 0
    sum_us: int = 0
    max_us: int = 0

    def add(self, took_us: int) -> None:
        self.count += 1
        self.sum_us += took_us
        self.max_us = max(self.max_us, took_us)


class SlowRequest(NamedTuple):
    """An entry.

    id       number of entries logged before it
    at_s     Unix time at the end of its execution
    took_us  without the time that it waited for a key
    args     the request, truncated
    address  of the client, as CLIENT LIST shows it
    name     of the client
    argc     how many arguments the request had
    """

    id: int
    at_s: int
    took_us: int
    args: Sequence[bytes]
    address: bytes
    name: bytes
    argc: int


class SlowLog(Capability):
    """The log. Its limits are applied when an entry is added: lowering them changes nothing until then.

    max_len    entries that are kept
    max_args   arguments of an entry that are kept; the last one states how many were omitted, if any
    max_bytes  bytes of each argument that are kept
    totals     what has been logged since the statistics were reset; `by_command`: the same by full names
    """

    info = {
        "stats": (
            Fields(
                "slowlog_commands_count slowlog_commands_time_ms_sum slowlog_commands_time_ms_max",
                lambda self: (self.totals.count, self.totals.sum_us / 1000, self.totals.max_us / 1000),
            ),
        ),
    }

    def __init__(
        self, host: Host | None = None, *, max_len: int = 128, max_args: int = 32, max_bytes: int = 128
    ) -> None:
        self._config = None if host is None else host.config
        self.max_len = max_len
        self.max_args = max_args
        self.max_bytes = max_bytes
        self.totals = SlowTotals()
        self.by_command: dict[str, SlowTotals] = {}
        self._entries: deque[SlowRequest] = deque()
        self._next_id = 0

    def apply_settings(self) -> None:
        config = self._config
        if config is not None:
            self.max_len = config.slowlog_max_len
            self.max_args = config.slowlog_entry_max_argc
            self.max_bytes = config.slowlog_entry_max_string_len
            limit_us = config.slowlog_log_slower_than
            self.slow_us = limit_us if limit_us >= 0 else NEVER

    def command_took(self, client: Client, route: Route, args: list[bytes], took_us: int) -> int:
        command = route.command
        if "skip_slowlog" not in command.flags:
            self.add(
                redacted(command.full_name, args), took_us, command=command.full_name, at_s=int(time.time()),
                address=client.address.encode("utf-8", "surrogateescape"), name=client.name,
            )  # fmt: skip
        return 0

    def __len__(self) -> int:
        return len(self._entries)

    def add(
        self, args: Sequence[bytes], took_us: int, *, command: str, at_s: int, address: bytes, name: bytes
    ) -> None:  # fmt: skip
        """Log a request of a command; nothing happens when the log's length is 0."""
        if self.max_len == 0:
            return
        self.totals.add(took_us)
        self.by_command.setdefault(command, SlowTotals()).add(took_us)
        kept = cut(args, self.max_args, self.max_bytes)
        self._entries.appendleft(SlowRequest(self._next_id, at_s, took_us, kept, address, name, len(args)))
        self._next_id += 1
        while len(self._entries) > self.max_len:
            self._entries.pop()

    def newest(self, count: int) -> list[SlowRequest]:
        """At most `count` entries, newest first; all when it is negative."""
        return list(self._entries if count < 0 else islice(self._entries, count))

    def reset_statistics(self) -> None:
        """CONFIG RESETSTAT: reset the totals; the entries stay."""
        self.totals = SlowTotals()
        self.by_command.clear()

    def clear(self) -> None:
        """Clear the entries; numbering continues."""
        self._entries.clear()


def cut(args: Sequence[bytes], max_args: int, max_bytes: int) -> list[bytes]:
    """A request with at most `max_args` arguments of `max_bytes`, and in place of the rest, how much was omitted."""
    kept = args if len(args) <= max_args else args[: max_args - 1]
    short = [
        arg if len(arg) <= max_bytes else b"%s... (%d more bytes)" % (arg[:max_bytes], len(arg) - max_bytes)
        for arg in kept
    ]
    if len(kept) < len(args):
        short.append(b"... (%d more arguments)" % (len(args) - len(kept)))
    return short
