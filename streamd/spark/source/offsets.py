"""How far a streaming query has read, as the checkpoint has it, and how lost entries are detected.

An offset is a JSON object with sorted keys; Spark compares offsets as texts. For every stream:

    {"streams": {"readings": {"added": 1010,             entries-added of the stream when it was looked at
                              "at": "1700-5",            everything up to this ID has been read
                              "archived": true,          what follows is looked for in the archive first; otherwise left out
                              "last": "1800-0",          last-generated-id then; left out when it is `at`
                              "next": "1701-0",          the first entry above `at`; left out when there was none
                              "parts": [["1600-0", 500], ["1650-2", 510]],
                              "read": 1000}},            entries-added as of `at`; left out when unknown, or `added`
     "version": 1}

`parts` is what the batch that ends at this offset reads of the stream, cut for its tasks: for each part its first
entry, and the number of its entries when that is known; a part ends where the next one starts, the last one at `at`. So
the partitions of a batch follow from the offset at its end alone, and a batch that is replayed has the same ones. It
also makes the first batch safe: if a query dies in it, Spark asks for the initial offset again, which for `latest` is
another one by then; what the batch reads was written down before that. A stream of which the batch reads nothing has no
`parts`.

Loss is found by comparing a Position with the StreamInfo of now (`find_loss`):

    the key is gone, last-generated-id or entries-added is lower    another stream of the same name
    there was a `next` entry, and it and all before it are gone     trimmed before it was read
    there was none, and since then more was added than is there     the same

With `archived`, only another stream of the same name is a loss: planner.py reads what an archiver has trimmed from the archive.
Entries deleted one by one (XDEL) are not a loss as long as an entry before them remains; otherwise this looks like a trim.

No I/O. Used by planner.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from streamd.client.points import format_entry_id, parse_entry_id
from streamd.client.stream_info import StreamInfo
from streamd.errors import StreamdError

__all__ = ["Lag", "Loss", "Offset", "OffsetError", "Part", "Position", "find_loss"]

VERSION = 1


class OffsetError(StreamdError, ValueError):
    """An offset in a checkpoint that this version does not understand."""


# --- Where a query is in a stream -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """What one task reads of one stream: entries from `low` to `high`, both included.

    low    ID of an entry that was there when the batch was planned
    count  how many entries there were; None: not counted
    """

    stream: str
    low: int
    high: int
    count: int | None


@dataclass(frozen=True)
class Position:
    """How far a stream has been read; see the head of the file.

    at     all entries up to this ID have been read, or are excluded
    last   last-generated-id when the stream was looked at; 0: there was no stream, or nothing in it yet
    added  entries-added at that time; None: the server does not count
    read   entries-added as of `at`; None: not known
    next   the first entry above `at` at that time; None: there was none
    cuts   first entry and number of entries (or None) of each part of the batch that ends here
    is_archived  entries above `at` may have been archived and trimmed
    """

    at: int = 0
    last: int = 0
    added: int | None = 0
    read: int | None = 0
    next: int | None = None
    cuts: tuple[tuple[int, int | None], ...] = ()
    is_archived: bool = False

    @property
    def is_blank(self) -> bool:
        """There was no stream then, or one to which nothing had ever been added."""
        return self.last == 0 and not self.added and self.next is None

    @property
    def is_caught_up(self) -> bool:
        """Nothing was left to read when the stream was looked at, and everything later is to be read."""
        return self.next is None and self.at <= self.last

    @property
    def count(self) -> int | None:
        """Entries of the batch that ends here; None when not all of its parts are counted."""
        total = 0
        for _low, count in self.cuts:
            if count is None:
                return None
            total += count
        return total

    def parts(self, stream: str) -> Iterator[Part]:
        """What the batch that ends here reads of this stream, in order."""
        for n, (low, count) in enumerate(self.cuts):
            high = self.cuts[n + 1][0] - 1 if n + 1 < len(self.cuts) else self.at
            yield Part(stream, low, high, count)

    def rested(self) -> Position:
        """The same position in an offset whose batch reads nothing of the stream."""
        return replace(self, cuts=()) if self.cuts else self

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self.added is not None:
            found["added"] = self.added
        if self.is_archived:
            found["archived"] = True
        found["at"] = format_entry_id(self.at)
        if self.last != self.at:
            found["last"] = format_entry_id(self.last)
        if self.next is not None:
            found["next"] = format_entry_id(self.next)
        if self.cuts:
            found["parts"] = [[format_entry_id(low), count] for low, count in self.cuts]
        if self.read is not None and self.read != self.added:
            found["read"] = self.read
        elif self.read is None and self.added is not None:
            found["read"] = None
        return found

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Position:
        at = parse_entry_id(value["at"])
        added = value.get("added")
        following = value.get("next")
        return cls(
            at=at,
            last=parse_entry_id(value["last"]) if "last" in value else at,
            added=added,
            read=value.get("read", added),
            next=None if following is None else parse_entry_id(following),
            cuts=tuple((parse_entry_id(low), count) for low, count in value.get("parts", ())),
            is_archived=value.get("archived", False),
        )


@dataclass(frozen=True)
class Offset:
    """How far a query has read each of its streams, by name."""

    positions: Mapping[str, Position] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Canonical: equal offsets give equal texts, since keys are sorted and derivable values left out."""
        streams = {name: self.positions[name].to_json() for name in sorted(self.positions)}
        return {"streams": streams, "version": VERSION}

    @classmethod
    def from_json(cls, value: Any) -> Offset:
        """Raises OffsetError."""
        if not isinstance(value, dict) or value.get("version") != VERSION:
            raise OffsetError(f"the checkpoint holds an offset that this version does not understand: {value!r:.200}")
        try:
            return cls({name: Position.from_json(each) for name, each in value["streams"].items()})
        except (KeyError, TypeError, ValueError) as error:
            raise OffsetError(f"the checkpoint holds a broken offset ({error!r}): {value!r:.200}") from None

    def parts(self) -> list[Part]:
        """What the batch that ends here reads, in the order of the streams' names."""
        return [part for name in sorted(self.positions) for part in self.positions[name].parts(name)]

    def advanced(self, changed: Mapping[str, Position]) -> Offset:
        """The offset at the end of a batch that moves only these positions."""
        return Offset({**{name: each.rested() for name, each in self.positions.items()}, **changed})


def end_of_stream(info: StreamInfo, cuts: tuple[tuple[int, int | None], ...] = ()) -> Position:
    """The position at the end of a stream."""
    return Position(
        at=info.last_generated,
        last=info.last_generated,
        added=info.entries_added,
        read=info.entries_added,
        next=None,
        cuts=cuts,
    )


def inside_stream(
    before: Position, info: StreamInfo, at: int, following: int | None, cuts: tuple[tuple[int, int | None], ...] = ()
) -> Position:
    """The position at an ID that is not the last one.

    before     the position from which it is reached, by the parts in `cuts`
    following  the first entry above `at`; None: there is none
    """
    made = Position(at=at, last=info.last_generated, added=info.entries_added, read=None, next=following, cuts=cuts)
    return replace(made, read=_entries_read(before, info, made))


def _entries_read(before: Position, info: StreamInfo, made: Position) -> int | None:
    """The counter entries-added as of the new position; None if that cannot be known."""
    if info.entries_added is None or made.count is None:
        return None
    if info.has_none_up_to(before.at):
        # All entries are above the old position; those above the new one are what the batch leaves.
        return info.entries_added - (info.length - made.count)
    if before.read is not None and info.max_deleted is not None and info.max_deleted <= before.at:
        return before.read + made.count
    return None


@dataclass(frozen=True)
class Lag:
    """What a stream has behind a position.

    end      its last ID; 0: it has none
    entries  how many entries, at most: those deleted with XDEL may be counted; None: unknown
    first    ID of the first of them; None: nothing is behind, or it is unknown
    """

    end: int
    entries: int | None = 0
    first: int | None = None

    @classmethod
    def of(cls, position: Position, first: int | None, info: StreamInfo | None) -> Lag:
        if info is None or position.at >= info.last_generated:
            return cls(0 if info is None else info.last_generated)
        if info.has_none_up_to(position.at):
            return cls(info.last_generated, info.length, info.first_entry)
        is_known = info.entries_added is not None and position.read is not None
        return cls(info.last_generated, (info.entries_added or 0) - (position.read or 0) if is_known else None, first)


# --- Loss -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Loss:
    """Entries that were to be read but are gone.

    is_other_stream  the stream has been deleted or recreated: the position means nothing in it
    text             what happened, as a sentence
    """

    is_other_stream: bool
    text: str


def find_loss(stream: str, position: Position, info: StreamInfo | None) -> Loss | None:
    """Whether entries after a position are gone, judging by what the server reports now.

    info  None: there is no such key
    """
    if info is None and position.is_blank:
        return None
    if info is None:
        return Loss(True, f"stream {stream} has been deleted after it was read up to {format_entry_id(position.at)}")
    if info.last_generated < position.last:
        return Loss(
            True,
            f"stream {stream} was recreated, or its server has gone back to an earlier state: its last ID is "
            f"{format_entry_id(info.last_generated)}, but was {format_entry_id(position.last)}",
        )
    if info.entries_added is not None and position.added is not None and info.entries_added < position.added:
        return Loss(
            True,
            f"stream {stream} was recreated: {info.entries_added} entries were ever added to it, "
            f"but {position.added} when it was last looked at",
        )
    if position.is_archived:
        return None
    if position.next is not None:
        return _loss_of_next(stream, position.next, info)
    return _loss_by_count(stream, position, info)


def _loss_of_next(stream: str, following: int, info: StreamInfo) -> Loss | None:
    """There was an entry above the position; it still exists, or was deleted individually, or is lost."""
    if not info.has_none_up_to(following):
        return None
    return Loss(
        False,
        f"entries of stream {stream} from {format_entry_id(following)} on were removed before they were read; {_left(info)}",
    )


def _loss_by_count(stream: str, position: Position, info: StreamInfo) -> Loss | None:
    """Nothing was above the position: what was added since must be there."""
    if info.entries_added is None or position.added is None or not position.is_caught_up:
        return None
    if not info.has_none_up_to(position.at):
        return None
    missing = info.entries_added - position.added - info.length
    if missing == 0:
        return None
    if missing < 0:
        return Loss(
            True,
            f"stream {stream} was recreated: it holds {info.length} entries after {format_entry_id(position.at)}, "
            f"though only {info.entries_added - position.added} were added to the one that was read",
        )
    return Loss(
        False,
        f"{missing} entries of stream {stream} after {format_entry_id(position.at)} were removed before they were read; {_left(info)}",
    )


def _left(info: StreamInfo) -> str:
    first = info.first_entry
    left = "nothing is left" if first is None else f"the first one left is {format_entry_id(first)}"
    if info.max_deleted:
        left += f" (trimmed, or deleted one by one: XDEL was used up to {format_entry_id(info.max_deleted)})"
    return left
