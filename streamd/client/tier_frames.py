"""What a server and a process that reads the archive for it say to each other, over one socket.

    frame       kind (1 byte), length of the payload (4 bytes, big-endian), payload

    to the reader   ASK      a TierQuestion
                    REPLIES  bytes that the server answers to the reader's own requests
    from it         READY    it can read; with a text: it cannot, and why
                    REQUESTS bytes of requests to the server, as of any client
                    ANSWER   a TierAnswer: the end of the question

A reader answers one question at a time. Its requests to the server are those that decide whether the stream is the archived one.
"""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from streamd.packed_entries import PackedEntries

__all__ = ["ANSWER", "ASK", "READY", "REPLIES", "REQUESTS", "Frames", "TierAnswer", "TierQuestion", "frame"]

ASK, REPLIES, READY, REQUESTS, ANSWER = b"?", b"<", b"!", b">", b"="
HEAD = 5


def frame(kind: bytes, payload: bytes | bytearray | memoryview = b"") -> bytes:
    return b"".join((kind, len(payload).to_bytes(4, "big"), payload))


class Frames:
    """Bytes in, frames out. A payload is put together where it stays: copying a megabyte at its end would make others wait."""

    def __init__(self) -> None:
        self._whole: deque[tuple[bytes, bytearray]] = deque()
        self._head = bytearray()
        self._payload: bytearray | None = None  # of the frame that has begun, if its length is known
        self._missing = 0  # bytes of it

    def feed(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            if self._payload is None:
                taken = HEAD - len(self._head)
                self._head += left[:taken]
                left = left[taken:]
                if len(self._head) < HEAD:
                    return
                self._missing = int.from_bytes(self._head[1:], "big")
                self._payload = bytearray(self._missing)
            taken = min(len(left), self._missing)
            at = len(self._payload) - self._missing
            memoryview(self._payload)[at : at + taken] = left[:taken]
            left = left[taken:]
            self._missing -= taken
            if not self._missing:
                self._whole.append((bytes(self._head[:1]), self._payload))
                self._head.clear()
                self._payload = None

    def next(self) -> tuple[bytes, bytearray] | None:
        """Kind and payload of the next frame; None when more bytes are needed."""
        return self._whole.popleft() if self._whole else None


@dataclass(frozen=True)
class TierQuestion:
    """Which archived entries a server needs.

    key          of the stream, in database `db`
    incarnation  changes when another stream takes the place of the key
    first, last  IDs; both inclusive
    limit        the last ID at or below which entries may have left memory
    count        how many entries at or below that are needed, at most; -1: all; 0: none, but `facts`
    enough       of these entries so many bytes are enough, whatever `count` is; 0: they are not
    ahead        so many bytes are wanted, even if these are more than `count` entries; 0: they are not. Then `left` is, too
    ids          only these entries, in order; None: all
    may_be_cut   the first ones of `ids` will do
    max_bytes    of the reply; a longer one is an error, or, with `ahead` or `may_be_cut`, cut
    """

    key: bytes
    db: int
    incarnation: int
    first: int = 0
    last: int = 0
    limit: int = 0
    is_reverse: bool = False
    count: int = 0
    enough: int = 0
    ahead: int = 0
    ids: tuple[int, ...] | None = None
    may_be_cut: bool = False
    max_bytes: int = 0

    def to_bytes(self) -> bytes:
        return json.dumps({**self.__dict__, "key": self.key.hex()}).encode()

    @classmethod
    def from_bytes(cls, data: bytes | bytearray) -> TierQuestion:
        found = json.loads(data)
        return cls(**{**found, "key": bytes.fromhex(found["key"])})


@dataclass(frozen=True)
class TierAnswer:
    """Archived entries of a range, or why they cannot be read.

    error       empty on success
    boundary    what is at or below this ID is archived; 0: nothing is
    live_limit  the ID before the first entry in memory when the stream was compared; the last ID if there was none
    left        archived entries above the last one
    low, high   the entries of the range with IDs in [low, high] are complete
    is_cut      these are fewer than were asked for, since more are not allowed in a reply
    spare       bytes of entries that were not asked for, but may be needed when the answer arrives
    entries     in the order of the range
    facts       what is archived of the stream
    """

    error: str = ""
    boundary: int = 0
    live_limit: int = 0
    left: int = 0
    low: int = 0
    high: int = 0
    is_cut: bool = False
    spare: int = 0
    entries: PackedEntries = field(default_factory=PackedEntries)
    facts: dict[str, Any] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        head = {name: value for name, value in self.__dict__.items() if name != "entries"}
        line = json.dumps({**head, "index": len(self.entries.index)}).encode()
        return b"".join((line, b"\n", self.entries.index, self.entries.data))

    @classmethod
    def from_bytes(cls, payload: bytes | bytearray) -> TierAnswer:
        end = payload.index(b"\n")
        head = json.loads(payload[:end])
        size = head.pop("index")
        rest = memoryview(payload)[end + 1 :]
        return cls(**head, entries=PackedEntries(rest[:size], rest[size:]))
