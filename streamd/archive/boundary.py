"""What may be archived, and what may be trimmed, decided from what the server says. Pure functions; no connection.

Only IDs at which nothing can be added any more may be archived: those up to the stream's last-generated ID. That an
ID's time has passed is not enough, since entries may be added with IDs of the past.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from streamd.archive.archive_errors import IncarnationError
from streamd.archive.manifest import Manifest
from streamd.client.points import format_entry_id, last_id_of
from streamd.client.stream_info import GroupNeeds, StreamInfo

__all__ = [
    "Gap",
    "can_have_become",
    "check_incarnation",
    "choose_end",
    "entries_behind",
    "find_gap",
    "find_gap_in_copy",
    "holders",
    "trim_limit",
]


def choose_end(state: StreamInfo, now_ms: int, hot_window_ms: int) -> int:
    """The last ID to archive: older than the hot window, and one at which nothing can be added any more."""
    cut_ms = now_ms - hot_window_ms
    return min(last_id_of(cut_ms - 1), state.last_generated) if cut_ms > 0 else -1


def check_incarnation(state: StreamInfo | None, last: Manifest) -> StreamInfo:
    """The state. Raises IncarnationError unless the stream can be the one of the last manifest, grown since.

    state  None: there is no such stream
    """
    boundary = format_entry_id(last.high)
    if state is None:
        raise IncarnationError(f"the stream is gone; it is archived up to {boundary}. A new one needs a new archive")
    if state.last_generated < max(last.high, last.last_generated):
        raise IncarnationError(
            f"the stream's last ID is {format_entry_id(state.last_generated)}, below "
            f"{format_entry_id(last.last_generated)}, which it has had: it was recreated, or XSETID set it back. "
            "A new stream needs a new archive"
        )
    if state.entries_added is None or last.entries_added is None:
        return state
    added = state.entries_added - last.entries_added
    if added < 0:
        raise IncarnationError(
            f"the stream has had {state.entries_added} entries, fewer than the {last.entries_added} that it had when it "
            "was archived: it was recreated. A new stream needs a new archive"
        )
    # Every entry that was added since has an ID above the last one of then.
    if added and state.last_generated == last.last_generated:
        raise IncarnationError(
            f"the stream has had {added} more entries than when it was archived, and still the last ID "
            f"{format_entry_id(state.last_generated)}: it was recreated. A new stream needs a new archive"
        )
    if state.first_entry is not None and state.first_entry > last.last_generated and state.length > added:
        raise IncarnationError(
            f"the stream has {state.length} entries above {format_entry_id(last.last_generated)}, its last ID when it was archived, "
            f"and only {added} were added since: it was recreated. A new stream needs a new archive"
        )
    return state


def can_have_become(then: StreamInfo, now: StreamInfo) -> bool:
    """Whether additions, trims and deletions alone can lead from one state of a stream to another.

    Additions have IDs above the last one and are counted; nothing comes back in front of the first entry; and what raises the first ID
    or the highest deleted one removes entries. A stream that XSETID has changed is suspected.
    """
    if now.last_generated < then.last_generated or lowest(now) < lowest(then):
        return False
    if now.entries_added is None or then.entries_added is None:
        return now.length <= then.length or now.last_generated > then.last_generated
    added = now.entries_added - then.entries_added
    if added < 0 or (added > 0) != (now.last_generated > then.last_generated):
        return False
    removed = added + then.length - now.length
    deleted, deleted_then = now.max_deleted or 0, then.max_deleted or 0
    is_raised = deleted > deleted_then or (then.first_entry is not None and now.first_entry != then.first_entry)
    return deleted >= deleted_then and removed >= is_raised


def lowest(state: StreamInfo) -> int:
    """The lowest ID that an entry of a stream has, or can have if it is empty."""
    return state.last_generated + 1 if state.first_entry is None else state.first_entry


def has_fewer_removed(state: StreamInfo, last: Manifest) -> bool:
    """Whether fewer entries have been trimmed or deleted than when the stream was archived: it was written again, or set back."""
    if state.entries_added is None or last.entries_added is None or last.length is None:
        return False
    return state.entries_added - state.length < last.entries_added - last.length


def entries_behind(state: StreamInfo, last: Manifest | None) -> int | None:
    """How many entries of the server are above the last manifest's range, so not archived yet; None: the server does not count.

    No command counts the entries above an ID. Where archived entries are still on the server, it is what was above the range when that was
    chosen, and what was added since: too high by entries that were deleted before they were archived, until nothing that is archived is
    left on the server, or nothing is above it.
    """
    if last is None or state.has_none_up_to(last.high):
        return state.length
    if state.last_generated <= last.high:
        return 0
    if state.entries_added is None or last.entries_added is None or last.above is None:
        return None
    return min(state.length, last.above + max(0, state.entries_added - last.entries_added))


@dataclass(frozen=True)
class Gap:
    """Entries that are gone, and were not archived.

    is_certain  they were trimmed; otherwise they may have been deleted on purpose
    """

    text: str
    is_certain: bool


def find_gap(state: StreamInfo, last: Manifest, *, next_is_there: bool) -> Gap | None:
    """What is gone of the entries above the last manifest's range; None when nothing is, as far as that shows.

    next_is_there  whether the first entry above the range, if the manifest noted one, is still there
    """
    # XDEL records the highest ID it removed, trimming does not: so up to that ID entries may have been deleted on purpose.
    if last.next_id is not None:
        if next_is_there:
            return None
        return Gap(
            f"entry {format_entry_id(last.next_id)}, the first above what is archived, was trimmed or deleted before it was archived",
            state.max_deleted is None or state.max_deleted < last.next_id,
        )
    # There was none: whatever is above the range was added since, and counted. Trimming begins with what is archived.
    if state.entries_added is None or last.entries_added is None:
        return None
    if state.first_entry is not None and state.first_entry <= last.high:
        return None
    missing = state.entries_added - last.entries_added - state.length
    if missing <= 0:
        return None
    return Gap(
        f"{missing} of {missing + state.length} entries that were added above {format_entry_id(last.high)}, up to which the stream is "
        "archived, were trimmed or deleted before they were archived",
        state.max_deleted is None or state.max_deleted <= last.last_generated,
    )


def find_gap_in_copy(
    before: StreamInfo,
    after: StreamInfo,
    *,
    low: int,
    first_above: int | None,
    first: int | None,
    gone: int,
    next_is_there: bool,
) -> Gap | None:
    """What of a range may have been trimmed or deleted by others before it was copied; None when nothing was, as far as that shows.

    before, after  the stream before the copy was begun, and when it had been compared
    low            the last ID below the range
    first_above    the first entry above that, before the copy
    first          the first entry that was copied; None: none was
    next_is_there  the first entry above the range is still there, if there was one; otherwise the next run reports what went
    gone           how many of those copied were no longer there when they were compared
    """
    is_certain = after.max_deleted is None or after.max_deleted == before.max_deleted
    if first_above is not None and (first is None or first > first_above):
        return Gap(f"entry {format_entry_id(first_above)} was trimmed or deleted before it was copied", is_certain)
    if not next_is_there or before.first_entry is None or before.first_entry <= low:
        return None  # what was removed is not, or not only, of the range
    if before.entries_added is None or after.entries_added is None:
        return None
    removed = (after.entries_added - after.length) - (before.entries_added - before.length)
    if removed <= gone:
        return None
    # Trimming begins with the first entry; and XDEL below an earlier one's ID changes no highest ID.
    is_certain = is_certain and after.first_entry != before.first_entry
    return Gap(f"{removed - gone} entries were trimmed or deleted before they were copied", is_certain)


def trim_limit(
    boundary: int,
    *,
    leased: int | None,
    groups: Iterable[GroupNeeds] = (),
    ignored: frozenset[str] = frozenset(),
) -> int:
    """The last ID that may be trimmed away; 0 when nothing may.

    boundary  up to which everything is archived (for long enough)
    leased    the lowest boundary that a reader holds
    groups    those that must not lose anything; empty when the server takes care of them itself (ACKED)
    """
    held = [group.free_until for group in groups if group.name not in ignored]
    return min([boundary, *held, *([] if leased is None else [leased])])


def holders(groups: Iterable[GroupNeeds], boundary: int) -> Mapping[str, str]:
    """The groups that still need entries at or below `boundary`, and up to which ID they need nothing."""
    return {group.name: format_entry_id(group.free_until) for group in groups if group.free_until < boundary}
