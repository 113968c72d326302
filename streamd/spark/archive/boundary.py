"""What may be archived, and what may be trimmed, decided from what the server says. Pure functions; no connection.

Only IDs at which nothing can be added any more may be archived: those up to the stream's last-generated ID. That an
ID's time has passed is not enough, since entries may be added with IDs of the past.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from streamd.spark.archive.errors import IncarnationError
from streamd.spark.archive.manifest import Manifest
from streamd.spark.errors import DataLossError
from streamd.spark.wire.ids import format_entry_id, last_id_of, parse_entry_id
from streamd.spark.wire.replies import pairs

__all__ = ["GroupState", "StreamState", "check_incarnation", "choose_end", "holders", "trim_limit"]


@dataclass(frozen=True)
class StreamState:
    """The reply of XINFO STREAM. The fields with None are those that servers before Redis 7 do not have."""

    length: int
    last_generated: int
    first_entry: int | None  # ID of the first entry there is; None: the stream is empty
    entries_added: int | None
    max_deleted: int | None  # highest ID removed by XDEL; trimming does not change it

    @classmethod
    def from_reply(cls, reply: list[Any]) -> StreamState:
        found = pairs(reply)
        first = found.get(b"first-entry")
        return cls(
            length=int(found[b"length"]),
            last_generated=parse_entry_id(found[b"last-generated-id"]),
            first_entry=parse_entry_id(first[0]) if first else None,
            entries_added=found.get(b"entries-added"),
            max_deleted=parse_entry_id(found[b"max-deleted-entry-id"]) if b"max-deleted-entry-id" in found else None,
        )


@dataclass(frozen=True)
class GroupState:
    """What of a consumer group decides how far its stream may be trimmed."""

    name: str
    last_delivered: int
    pending: int  # how many
    first_pending: int | None  # the lowest pending ID

    @classmethod
    def from_replies(cls, info: list[Any], pending: list[Any]) -> GroupState:
        """From one group of XINFO GROUPS, and the summary that XPENDING gives of it."""
        found = pairs(info)
        return cls(
            name=found[b"name"].decode(errors="surrogateescape"),
            last_delivered=parse_entry_id(found[b"last-delivered-id"]),
            pending=int(pending[0]),
            first_pending=parse_entry_id(pending[1]) if pending[1] is not None else None,
        )

    @property
    def free_until(self) -> int:
        """The last ID up to which this group needs nothing: everything is delivered and acknowledged."""
        if self.first_pending is None:
            return self.last_delivered
        return min(self.last_delivered, self.first_pending - 1)


def choose_end(state: StreamState, now_ms: int, hot_window_ms: int) -> int:
    """The last ID to archive: older than the hot window, and one at which nothing can be added any more."""
    cut_ms = now_ms - hot_window_ms
    return min(last_id_of(cut_ms - 1), state.last_generated) if cut_ms > 0 else -1


def check_incarnation(
    state: StreamState | None, last: Manifest | None, *, next_is_there: bool, allow_gaps: bool
) -> None:
    """Raise unless the stream is the one of the last manifest, and nothing was trimmed that is not archived.

    state          None: there is no such stream
    next_is_there  the first entry above the last manifest's range, which it noted, is still there (True without such)
    allow_gaps     archive what is there although entries have been trimmed before they were archived
    """
    if last is None:
        return
    boundary = format_entry_id(last.high)
    if state is None:
        raise IncarnationError(f"the stream is gone; it is archived up to {boundary}. A new one needs a new archive")
    if state.last_generated < max(last.high, last.last_generated):
        raise IncarnationError(
            f"the stream's last ID is {format_entry_id(state.last_generated)}, below "
            f"{format_entry_id(last.last_generated)}, which it has had: it was recreated, or XSETID set it back. "
            "A new stream needs a new archive"
        )
    if state.entries_added is not None and last.entries_added is not None and state.entries_added < last.entries_added:
        raise IncarnationError(
            f"the stream has had {state.entries_added} entries, fewer than the {last.entries_added} that it had when it "
            "was archived: it was recreated. A new stream needs a new archive"
        )
    if next_is_there or allow_gaps or last.next_id is None:
        return
    # XDEL records the highest ID it removed, trimming does not: so up to that ID the entry may have been deleted on
    # purpose.
    if state.max_deleted is None or state.max_deleted < last.next_id:
        raise DataLossError(
            f"entry {format_entry_id(last.next_id)}, the first one that is not archived, has been trimmed, or the stream "
            "was recreated; allow gaps to archive what is left"
        )


def trim_limit(
    boundary: int,
    *,
    leased: int | None,
    groups: Iterable[GroupState] = (),
    ignored: frozenset[str] = frozenset(),
) -> int:
    """The last ID that may be trimmed away; 0 when nothing may.

    boundary  up to which everything is archived (for long enough)
    leased    the lowest boundary that a reader holds
    groups    those that must not lose anything; empty when the server takes care of them itself (ACKED)
    """
    held = [group.free_until for group in groups if group.name not in ignored]
    return min([boundary, *held, *([] if leased is None else [leased])])


def holders(groups: Iterable[GroupState], boundary: int) -> Mapping[str, str]:
    """The groups that still need entries at or below `boundary`, and up to which ID they need nothing."""
    return {group.name: format_entry_id(group.free_until) for group in groups if group.free_until < boundary}
