"""SlowLog: the requests that took longest to run, newest first.

The dispatcher decides what is slow (slowlog-log-slower-than) and calls `add`; SLOWLOG shows it. Long requests are cut, so
that an entry stays small whatever was sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

__all__ = ["SlowLog", "SlowRequest"]

MOST_ARGS = 32
MOST_BYTES = 128


@dataclass(frozen=True, slots=True)
class SlowRequest:
    """An entry.

    id       how many were logged before it
    at_s     Unix time at which it had been run
    took_us  without the time that it waited for a key
    args     the request, cut
    address  of the client, as CLIENT LIST shows it
    name     of the client
    """

    id: int
    at_s: int
    took_us: int
    args: Sequence[bytes]
    address: bytes
    name: bytes


class SlowLog:
    """The log. `max_len` is looked at when an entry is added: a smaller one than before removes nothing by itself."""

    def __init__(self, max_len: int = 128) -> None:
        self.max_len = max_len
        self._entries: deque[SlowRequest] = deque()
        self._next_id = 0

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, args: Sequence[bytes], took_us: int, *, at_s: int, address: bytes, name: bytes) -> None:
        """Log a request; nothing happens when the log has no room at all."""
        if self.max_len == 0:
            return
        self._entries.appendleft(SlowRequest(self._next_id, at_s, took_us, cut(args), address, name))
        self._next_id += 1
        while len(self._entries) > self.max_len:
            self._entries.pop()

    def newest(self, count: int) -> list[SlowRequest]:
        """At most `count` entries, newest first; all when it is negative."""
        return list(self._entries if count < 0 else islice(self._entries, count))

    def clear(self) -> None:
        """Forget the entries; numbers go on."""
        self._entries.clear()


def cut(args: Sequence[bytes]) -> list[bytes]:
    """A request with at most MOST_ARGS arguments of MOST_BYTES, and what was left out told in their place."""
    kept = args if len(args) <= MOST_ARGS else args[: MOST_ARGS - 1]
    short = [
        arg if len(arg) <= MOST_BYTES else b"%s... (%d more bytes)" % (arg[:MOST_BYTES], len(arg) - MOST_BYTES)
        for arg in kept
    ]
    if len(kept) < len(args):
        short.append(b"... (%d more arguments)" % (len(args) - len(kept)))
    return short
