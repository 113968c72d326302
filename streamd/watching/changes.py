"""What has changed between looks: rates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from streamd.stream_state import GroupState, StreamState
from streamd.watching.look import Look

__all__ = ["GroupChange", "StreamChange", "change_of_group", "change_of_stream"]


@dataclass(frozen=True)
class StreamChange:
    """A stream between two looks.

    added     entries
    removed   entries, trimmed or deleted
    in_per_s  added each second
    """

    added: int
    removed: int
    in_per_s: float


@dataclass(frozen=True)
class GroupChange:
    """A group between two looks, or more.

    read        entries; None: unknown
    out_per_s   read each second; None: unknown
    takes_s     mean time from delivery to acknowledgement: pending entries by acknowledgements each second (Little's law);
                None: unknown, or nothing was acknowledged
    has_moved   it has read something
    only_grows  its lag was greater at each look than at the one before
    """

    read: int | None
    out_per_s: float | None
    takes_s: float | None
    has_moved: bool
    only_grows: bool


def change_of_stream(looks: Sequence[Look], key: bytes) -> StreamChange | None:
    """Between the first look and the last; None if it was not there at both, or began anew."""
    first, last = looks[0], looks[-1]
    before, after = first.streams.get(key), last.streams.get(key)
    seconds = last.at_s - first.at_s
    if before is None or after is None or seconds <= 0 or after.entries_added < before.entries_added:
        return None
    added = after.entries_added - before.entries_added
    return StreamChange(added, added - (after.length - before.length), added / seconds)


def change_of_group(looks: Sequence[Look], key: bytes, name: bytes) -> GroupChange | None:
    """Of the group at all looks; None if it was not there at each."""
    states = [find_group(look.streams.get(key), name) for look in looks]
    known = [state for state in states if state is not None]
    if len(known) < len(states) or len(known) < 2:
        return None
    before, after = known[0], known[-1]
    seconds = looks[-1].at_s - looks[0].at_s
    read = None
    if before.entries_read is not None and after.entries_read is not None:
        read = max(0, after.entries_read - before.entries_read)
    acked = 0 if read is None else read - (after.pending - before.pending)
    lags = [state.lag for state in known]
    return GroupChange(
        read=read,
        out_per_s=None if read is None or seconds <= 0 else read / seconds,
        takes_s=(before.pending + after.pending) / 2 * seconds / acked if acked > 0 and seconds > 0 else None,
        has_moved=after.last_delivered != before.last_delivered,
        only_grows=all(a is not None and b is not None and a < b for a, b in pairwise(lags)),
    )


def find_group(stream: StreamState | None, name: bytes) -> GroupState | None:
    return None if stream is None else next((group for group in stream.groups if group.name == name), None)
