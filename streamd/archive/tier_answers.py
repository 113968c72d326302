"""Answers to a server whose clients read below the first entry in memory: archived entries, or the reason why they cannot be read.

Each answer begins with the question whether the server's stream is the archived one, by the rule that trims follow (same_stream.py). What
was found is kept, and stands as long as the manifests are the same, the key has the same stream, nothing was loaded into it, and additions,
trims and deletions alone can have led from its state of then to the present one; each time, its growth and its gaps are looked at again.

    1. up to which ID archivers have trimmed    2. the manifests    3. is it the stream, without a gap?    4. the rows

In this order: whatever has been trimmed by 1 is named by the manifests of 2, or this archive does not have it.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from streamd.archive.archive_errors import ArchiveError, CorruptArchiveError, IncarnationError, MissingFileError
from streamd.archive.boundary import can_have_become, check_incarnation, find_gap
from streamd.archive.layout import Layout
from streamd.archive.live_stream import has_entry, need_state
from streamd.archive.lock import trimmed_to
from streamd.archive.manifest import FileRecord, Manifest
from streamd.archive.manifest_log import LOOKS, ManifestLog
from streamd.archive.origin import check_identity, replaced_by
from streamd.archive.row_group_cache import RowGroupCache
from streamd.archive.same_stream import check_is_archived_stream
from streamd.arrow.entry_batches import EntryBatch, EntryPacker
from streamd.client.client_errors import DataLossError
from streamd.client.connection import Connection
from streamd.client.key_names import stream_name
from streamd.client.points import MAX_ID, format_entry_id, parse_entry_id
from streamd.client.stream_info import StreamInfo
from streamd.client.tier_frames import TierAnswer, TierQuestion
from streamd.errors import StreamdError
from streamd.printable import key_in_one_line

__all__ = ["TierAnswers"]

SPARE = 1000
"""Rows above the question's limit: what is trimmed until the reply is written need not be asked for again."""

SPARE_BYTES = 1 << 20
"""Of these rows, at most."""

ALL = sys.maxsize

Piece = tuple[EntryBatch, int, int]
"""Rows [start, stop) of a batch."""


@dataclass(frozen=True)
class Verdict:
    """Of a stream that was found to be the archived one: when, and as what."""

    incarnation: int
    manifest: tuple[int, str]
    replaced: bytes
    state: StreamInfo


class TooLargeError(ArchiveError):
    """The reply would be larger than the server accepts."""


class TierAnswers:
    """The answers from one archive.

    place        its folder, or its URL
    cache_bytes  what to keep of row groups
    """

    def __init__(self, place: str, cache_bytes: int) -> None:
        self._place = place
        self._cache = RowGroupCache(cache_bytes)
        self._opened: Layout | None = None
        self._id: str | None = None
        self._logs: dict[str, ManifestLog] = {}
        self._verdicts: dict[tuple[int, str], Verdict] = {}

    def answer(self, asked: TierQuestion, connection: Connection) -> TierAnswer:
        try:
            return self._answer(asked, connection)
        except (StreamdError, OSError, ValueError, pa.ArrowException) as error:
            return TierAnswer(error=" ".join(str(error).split()) or type(error).__name__)

    def _answer(self, asked: TierQuestion, connection: Connection) -> TierAnswer:
        layout, stream = self._layout(), stream_name(asked.key)
        for look in range(LOOKS):
            trimmed = trimmed_to(connection, stream)
            log = self._read_log(layout, stream)
            if trimmed is not None and parse_entry_id(trimmed) > log.boundary:
                raise ArchiveError(
                    f"{key_in_one_line(stream)} is trimmed up to {trimmed}, and archived here only up to "
                    f"{format_entry_id(log.boundary)}: it is archived elsewhere, and what was trimmed then is not here"
                )
            if log.last is None:
                return TierAnswer(low=asked.first, high=asked.last, facts=facts_of(log))
            try:
                state = self._check(asked, connection, layout, log, log.last)
                if not asked.count:
                    return TierAnswer(boundary=log.boundary, live_limit=limit_of(state), facts=facts_of(log))
                return self._rows(asked, layout, log, state)
            except (MissingFileError, DataLossError, IncarnationError):
                # An archiver may have published meanwhile, and trimmed, or replaced files.
                if look + 1 == LOOKS or self._read_log(layout, stream).sequence == log.sequence:
                    raise
        raise AssertionError

    # --- The archive -------------------------------------------------------------------------------------------------

    def _layout(self) -> Layout:
        # Once: it has the connections to an object store.
        layout = self._opened = self._opened or Layout(self._place)
        found = layout.id
        if found != self._id:
            self._forget()
            self._id = found
        return layout

    def _forget(self) -> None:
        """Drop what was read: it may be of another archive."""
        self._cache.clear()
        self._logs.clear()
        self._verdicts.clear()

    def _read_log(self, layout: Layout, stream: str) -> ManifestLog:
        known = self._logs.get(stream)
        if known is not None and known.last is not None and not is_unchanged(layout, known, known.last):
            self._forget()
            known = None
        log = ManifestLog.read(layout, stream, known=known)
        self._logs[stream] = log
        return log

    # --- The stream --------------------------------------------------------------------------------------------------

    def _check(
        self, asked: TierQuestion, connection: Connection, layout: Layout, log: ManifestLog, last: Manifest
    ) -> StreamInfo:
        """The state of the server's stream. Raises IncarnationError, DataLossError."""
        known = self._verdicts.get((asked.db, log.stream))
        replaced = replaced_by(connection, log.stream)
        state = need_state(connection, log.stream)
        manifest = (last.sequence, last.run)
        if (
            known is not None
            and (known.incarnation, known.manifest, known.replaced) == (asked.incarnation, manifest, replaced)
            and can_have_become(known.state, state)
        ):
            check_incarnation(state, last)
            check_identity(connection, log)
            is_there = last.next_id is not None and has_entry(connection, log.stream, last.next_id)
            gap = find_gap(state, last, next_is_there=is_there)
            if gap is None or not gap.is_certain:
                return state
        own = check_is_archived_stream(connection, layout, log)
        state = own.need_state()
        self._verdicts[asked.db, log.stream] = Verdict(asked.incarnation, manifest, own.replaced, state)
        return state

    # --- The rows ----------------------------------------------------------------------------------------------------

    def _rows(self, asked: TierQuestion, layout: Layout, log: ManifestLog, state: StreamInfo) -> TierAnswer:
        high = min(asked.last, log.boundary)
        limit = min(max(asked.limit, limit_of(state)), high)
        rows = Rows(asked)
        low = asked.first
        if asked.ids is not None:
            if any(rows.add(*each) for each in self._pieces_with(layout, log, asked.ids)) and rows.is_cut:
                high = rows.last
            return rows.answer(log.boundary, limit_of(state), low, high)
        pieces = self._pieces(layout, log, asked.first, limit, is_reverse=asked.is_reverse)
        is_enough = any(rows.add(*each) for each in pieces) or rows.has_count
        if is_enough and asked.is_reverse:
            low = rows.last
        if is_enough and not asked.is_reverse:
            high = rows.last
        else:
            high = self._add_spare(rows, layout, log, max(low, limit + 1), high)
        left = self._rows_above(layout, log, rows.highest or asked.first - 1) if asked.ahead else 0
        return rows.answer(log.boundary, limit_of(state), low, high, left)

    def _add_spare(self, rows: Rows, layout: Layout, log: ManifestLog, low: int, high: int) -> int:
        """Add some of the rows in [low, high], which are above the limit; returns up to where they are complete."""
        for each in self._pieces(layout, log, low, high):
            if not rows.add_spare(*each):
                return max(rows.highest, low - 1)
        return high

    def _rows_above(self, layout: Layout, log: ManifestLog, number: int) -> int:
        found = 0
        for file, at in self._groups(log, number + 1, MAX_ID):
            group = file.row_groups[at]
            found += group.rows
            if group.first <= number:
                found -= sum(stop - start for _, start, stop in self._cache.rows(layout.root, file, at, 0, number))
        return found

    def _groups(self, log: ManifestLog, low: int, high: int) -> list[tuple[FileRecord, int]]:
        """The row groups that have IDs in [low, high]: the file, and the place in it of each."""
        return [
            (file, at)
            for file in log.files
            if file.last >= low and file.first <= high
            for at, group in enumerate(file.row_groups)
            if group.last >= low and group.first <= high
        ]

    def _pieces(
        self, layout: Layout, log: ManifestLog, low: int, high: int, *, is_reverse: bool = False
    ) -> Iterator[Piece]:
        """The archived rows with IDs in [low, high], in the order of the walk; the rows of each piece ascend."""
        groups = self._groups(log, low, high) if low <= high else []
        for file, at in reversed(groups) if is_reverse else groups:
            pieces = self._cache.rows(layout.root, file, at, low, high)
            yield from reversed(list(pieces)) if is_reverse else pieces

    def _pieces_with(self, layout: Layout, log: ManifestLog, ids: Sequence[int]) -> Iterator[Piece]:
        """The archived rows with these IDs, in order."""
        for file, at in self._groups(log, ids[0], ids[-1]):
            group = file.row_groups[at]
            wanted = ids[bisect_left(ids, group.first) : bisect_right(ids, group.last)]
            if wanted:
                for batch, _, _ in self._cache.rows(layout.root, file, at, wanted[0], wanted[-1]):
                    yield from ((batch, *batch.between(each, each)) for each in wanted)


class Rows:
    """The rows of an answer, in the order of the walk, and spare ones, which are above them.

    is_cut  more was asked for than `max_bytes` allow, and less will do
    """

    def __init__(self, asked: TierQuestion) -> None:
        self._asked = asked
        self._found = EntryPacker()
        self._spare = EntryPacker()
        self.is_cut = False

    def add(self, batch: EntryBatch, start: int, stop: int) -> bool:
        """Add rows. True: what has been added is enough."""
        asked = self._asked
        while start < stop:
            added = self._pack(batch, start, stop, asked.max_bytes)
            if not added:
                if self._is_full():
                    return True
                at = stop - 1 if asked.is_reverse else start
                added = self._pack(batch, at, at + 1, ALL)
            if self._has_all and self._found.size >= asked.ahead:
                return True
            start, stop = (start, stop - added) if asked.is_reverse else (start + added, stop)
        return False

    def _pack(self, batch: EntryBatch, start: int, stop: int, most_bytes: int) -> int:
        asked = self._asked
        return self._found.add(
            batch,
            start,
            stop,
            is_reverse=asked.is_reverse,
            most_bytes=most_bytes,
            least_bytes=asked.ahead,
            enough_rows=asked.count if asked.count > 0 else ALL,
            enough_bytes=asked.enough or ALL,
        )

    @property
    def _has_all(self) -> bool:
        """Whether there is what was asked for, without what is read ahead."""
        return self.has_count or 0 < self._asked.enough <= self._found.size

    @property
    def has_count(self) -> bool:
        return 0 < self._asked.count <= self._found.count

    def _is_full(self) -> bool:
        """Whether the next row, with which there are more than `max_bytes`, is left for the next request.

        That a group, or a consumer with what is pending for it, gets on, a single entry may be larger.
        """
        asked = self._asked
        may_be_cut = asked.ahead or asked.may_be_cut
        if may_be_cut and self._found.count:
            self.is_cut = not self._has_all
            return True
        if may_be_cut or (asked.ids is not None and len(asked.ids) == 1):
            return False
        raise TooLargeError(
            f"the archived part of the reply is larger than stream-archive-max-reply ({asked.max_bytes} bytes); use COUNT"
        )

    def add_spare(self, batch: EntryBatch, start: int, stop: int) -> bool:
        """Add spare rows, ascending. False: there is no room for more, or no need."""
        asked, most = self._asked, SPARE
        if asked.count > 0 and not asked.is_reverse:
            most = min(SPARE, asked.count - self._found.count)
        room = max(0, min(SPARE_BYTES, asked.max_bytes - self._found.size))
        added = self._spare.add(batch, start, stop, most_bytes=room, enough_rows=most, enough_bytes=ALL)
        return added == stop - start and self._spare.count < most

    @property
    def last(self) -> int:
        """The ID of the row that was added last, without spare rows."""
        return self._found.id_at(self._found.count - 1)

    @property
    def highest(self) -> int:
        """The highest ID; 0: there are no rows."""
        ends = ((rows, at) for rows in (self._found, self._spare) if rows.count for at in (0, rows.count - 1))
        return max((rows.id_at(at) for rows, at in ends), default=0)

    def answer(self, boundary: int, live_limit: int, low: int, high: int, left: int = 0) -> TierAnswer:
        asked, found, spare = self._asked, self._found, self._spare
        ahead = found.size - found.size_of(asked.count) if asked.ahead and self.has_count else 0
        if asked.is_reverse:
            found, rest = EntryPacker(), found
            found.add_all(spare, is_reverse=True)
            found.add_all(rest)
        elif spare.count:
            found.add_all(spare)
        return TierAnswer(
            boundary=boundary,
            live_limit=live_limit,
            left=left,
            low=low,
            high=high,
            is_cut=self.is_cut,
            spare=spare.size + ahead,
            entries=found.packed(),
        )


def is_unchanged(layout: Layout, log: ManifestLog, last: Manifest) -> bool:
    """Whether the last manifest that was read is still there, and the same.

    Manifests do not change: if it is another one, another copy of the archive has taken its place. It is removed only when
    checkpoints above it have summarized it. Raises CorruptArchiveError if it is missing without that.
    """
    try:
        found = Manifest.from_bytes(log.path(last.sequence).read_bytes(), log.stream)
    except FileNotFoundError:
        if ManifestLog.read(layout, log.stream).sequence <= last.sequence:
            raise CorruptArchiveError(f"{log.path(last.sequence)} is missing") from None
        return False
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptArchiveError(f"{log.path(last.sequence)} is not a valid manifest here: {error}") from error
    return (found.run, found.token, found.high) == (last.run, last.token, last.high)


def limit_of(state: StreamInfo) -> int:
    """The ID before the first entry in memory; the last ID of an empty stream."""
    return state.last_generated if state.first_entry is None else state.first_entry - 1


def facts_of(log: ManifestLog) -> dict[str, int | str]:
    """What STREAMD.HISTORY shows."""
    files = log.files
    return {
        "entries": log.rows,
        "first-id": format_entry_id(files[0].first) if files else "",
        "last-id": format_entry_id(files[-1].last) if files else "",
        "boundary": format_entry_id(log.boundary),
        "files": len(files),
        "bytes": sum(each.size for each in files),
    }
