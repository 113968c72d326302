"""Task: one move of slots, as one of its two nodes sees it, and as CLUSTER MIGRATION STATUS shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

__all__ = ["CHANNELS", "STATES", "Task", "merge_ranges", "parse_ranges_text", "ranges_text"]

NOT_ENDED = -1
CHANNELS = ("import-main-channel", "import-rdb-channel", "migrate-main-channel", "migrate-rdb-channel")
STATES = (
    "none", "connecting", "auth-reply", "canceled", "failed", "completed", "send-handshake", "handshake-reply", "send-syncslots",
    "syncslots-reply", "init-rdbchannel", "accumulate-buffer", "ready-to-stream", "streaming-buffer", "wait-stream-eof",
    "takeover", "wait-rdbchannel", "wait-bgsave-start", "send-bulk-and-stream", "send-stream", "handoff-prep", "handoff",
    "stream-eof", "rdbchannel-request", "rdbchannel-reply", "rdbchannel-transfer",
)  # fmt: skip


class Task:
    """
    id           40 characters, given by the node that imports
    ranges       first and last slots, ascending
    source       ID of the node that has the slots; `dest`: of the one that gets them
    is_import    whether this node gets them
    state        the last step that was begun, in Redis's words; `channel_state`: of the connection for the snapshot
    reached      called when a step is begun, with the name of its connection (CHANNELS) and the step
    last_error   why the last attempt failed
    retries      attempts after the first one
    pause_ms     how long writes had to wait for the hand-over
    """

    def __init__(
        self, id: bytes, ranges: list[tuple[int, int]], source: bytes, dest: bytes, *, is_import: bool, now_ms: int
    ) -> None:
        self.id = id
        self.ranges = ranges
        self.source, self.dest = source, dest
        self.is_import = is_import
        self.reached: Callable[[str, str], object] = lambda channel, state: None
        self._state = "none"
        self._channel_state = "none"
        self.last_error = ""
        self.retries = 0
        self.created_ms = self.started_ms = now_ms
        self.ended_ms = NOT_ENDED
        self.pause_ms = 0

    @property
    def state(self) -> str:
        return self._state

    @state.setter
    def state(self, state: str) -> None:
        self._state = state
        self.reached(f"{self.operation}-main-channel", state)

    @property
    def channel_state(self) -> str:
        return self._channel_state

    @channel_state.setter
    def channel_state(self, state: str) -> None:
        self._channel_state = state
        self.reached(f"{self.operation}-rdb-channel", state)

    @property
    def operation(self) -> str:
        return "import" if self.is_import else "migrate"

    @property
    def has_ended(self) -> bool:
        return self.ended_ms != NOT_ENDED

    def slots(self) -> Iterator[int]:
        for first, last in self.ranges:
            yield from range(first, last + 1)

    def has_slot(self, slot: int) -> bool:
        return any(first <= slot <= last for first, last in self.ranges)

    def explain(self, text: str) -> str:
        """A reason for a failure, with where the task stood."""
        return f"{text} (state: {self.state}, rdb_channel_state: {self.channel_state})"

    def end(self, state: str, now_ms: int) -> None:
        self.state, self.ended_ms = state, now_ms

    def describe(self) -> dict[bytes, Any]:
        """An element of CLUSTER MIGRATION STATUS."""
        return {
            b"id": self.id,
            b"slots": ranges_text(self.ranges).encode(),
            b"source": self.source,
            b"dest": self.dest,
            b"operation": self.operation.encode(),
            b"state": self.state.encode(),
            b"last_error": self.last_error.encode(),
            b"retries": self.retries,
            b"create_time": self.created_ms,
            b"start_time": self.started_ms,
            b"end_time": self.ended_ms,
            b"write_pause_ms": self.pause_ms,
        }

    def notice(self, state: str) -> bytes:
        """What the replicas of both nodes are sent of it."""
        head = b":".join((self.id, self.source, self.dest, self.operation.encode(), state.encode()))
        return head + b":" + ranges_text(self.ranges).encode()


def ranges_text(ranges: Iterable[tuple[int, int]]) -> str:
    """Ranges of slots as STATUS and notices write them: `0-0 7-9`."""
    return " ".join(f"{first}-{last}" for first, last in ranges)


def parse_ranges_text(text: bytes) -> list[tuple[int, int]]:
    """The opposite of `ranges_text`. Raises ValueError."""
    found = []
    for word in text.split():
        first, last = word.split(b"-")
        found.append((int(first), int(last)))
    return found


def merge_ranges(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges without overlaps in ascending order, those that touch joined."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if found and found[-1][1] + 1 == first:
            found[-1] = (found[-1][0], last)
        else:
            found.append((first, last))
    return found
