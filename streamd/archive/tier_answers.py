"""Answers to a server whose clients read below the first entry in memory: archived entries, or the reason why they cannot be read.

Each answer begins with the question whether the server's stream is the archived one, by the rule that trims follow (same_stream.py). What
was found is kept, and stands as long as the manifests are the same, the key has the same stream, nothing was loaded into it, and additions,
trims and deletions alone can have led from its state of then to the present one; each time, its growth and its gaps are looked at again.

    1. up to which ID archivers have trimmed    2. the manifests    3. is it the stream, without a gap?    4. the rows

In this order: whatever has been trimmed by 1 is named by the manifests of 2, or this archive does not have it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from streamd.archive.archive_errors import ArchiveError, CorruptArchiveError, IncarnationError, MissingFileError
from streamd.archive.boundary import can_have_become, check_incarnation, find_gap
from streamd.archive.layout import Layout
from streamd.archive.live_stream import has_entry, need_state
from streamd.archive.lock import trimmed_to
from streamd.archive.manifest import Manifest
from streamd.archive.manifest_log import LOOKS, ManifestLog
from streamd.archive.origin import check_identity, replaced_by
from streamd.archive.parquet import bounds_within
from streamd.archive.row_group_cache import RowGroupCache
from streamd.archive.same_stream import check_is_archived_stream
from streamd.client.client_errors import DataLossError
from streamd.client.connection import Connection
from streamd.client.key_names import stream_name
from streamd.client.points import format_entry_id, parse_entry_id, unpack_id
from streamd.client.stream_info import StreamInfo
from streamd.client.tier_frames import TierAnswer, TierQuestion
from streamd.errors import StreamdError
from streamd.printable import key_in_one_line

__all__ = ["TierAnswers"]

PIECE = 100
"""Rows that are decoded at a time."""

SPARE = 1000
"""Rows above the question's limit: what is trimmed until the reply is written need not be asked for again."""

SPARE_BYTES = 1 << 20
"""Of these rows, at most."""


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
        layout = Layout(self._place)
        found = layout.id
        if found != self._id:
            self._cache.clear()
            self._logs.clear()
            self._verdicts.clear()
            self._id = found
        return layout

    def _read_log(self, layout: Layout, stream: str) -> ManifestLog:
        known = self._logs.get(stream)
        if known is not None and known.last is not None and not is_unchanged(known, known.last):
            # Manifests do not change: another copy of this archive has taken its place.
            self._cache.clear()
            self._logs.clear()
            self._verdicts.clear()
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
            for each in self._slices(layout, log, asked.first, high, -1, is_reverse=False, ids=asked.ids):
                rows.add(each)
            return rows.answer(log.boundary, limit_of(state), low, high)
        is_enough = self._add(rows, asked, layout, log, limit)
        if is_enough and asked.is_reverse:
            low = rows.last
        if is_enough and not asked.is_reverse:
            high = rows.last
        else:
            high = self._add_spare(rows, asked, layout, log, max(low, limit + 1), high)
        left = self._rows_above(layout, log, rows.highest or asked.first - 1) if asked.ahead else 0
        return rows.answer(log.boundary, limit_of(state), low, high, left)

    def _add(self, rows: Rows, asked: TierQuestion, layout: Layout, log: ManifestLog, limit: int) -> bool:
        """Add the rows from `first` to the limit. True: that is enough, and there may be more."""
        most = -1 if asked.ahead else asked.count
        for each in self._slices(layout, log, asked.first, limit, most, is_reverse=asked.is_reverse):
            if rows.add(each):
                return True
        return 0 < asked.count <= rows.count

    def _add_spare(self, rows: Rows, asked: TierQuestion, layout: Layout, log: ManifestLog, low: int, high: int) -> int:
        """Add some of the rows in [low, high], which are above the limit; returns up to where they are complete."""
        most = SPARE if asked.is_reverse or asked.count < 0 else min(SPARE, asked.count - rows.count)
        for each in self._slices(layout, log, low, high, most, is_reverse=False):
            most -= each.num_rows
            if not rows.add_spare(each):
                return max(rows.highest, low - 1)
        return high if most else rows.highest

    def _rows_above(self, layout: Layout, log: ManifestLog, number: int) -> int:
        found = 0
        for file in log.files:
            if file.first > number:
                found += file.rows
            elif file.last > number:
                for at, group in enumerate(file.row_groups):
                    if group.first > number:
                        found += group.rows
                    elif group.last > number:
                        table = self._cache.read(layout.root, file, at)
                        found += table.num_rows - bounds_within(table.column("id"), 0, number)[1]
        return found

    def _slices(
        self,
        layout: Layout,
        log: ManifestLog,
        low: int,
        high: int,
        most: int,
        *,
        is_reverse: bool,
        ids: Sequence[int] | None = None,
    ) -> Iterator[pa.Table]:
        """The archived rows with IDs in [low, high], at most `most` (-1: all): pieces in the order of the walk, each ascending.

        ids  only these, in order
        """
        if low > high:
            return
        groups = [
            (file, at)
            for file in log.files
            if file.last >= low and file.first <= high
            for at, group in enumerate(file.row_groups)
            if group.last >= low and group.first <= high and (ids is None or has_between(ids, group.first, group.last))
        ]
        for file, at in reversed(groups) if is_reverse else groups:
            if most == 0:
                return
            table = self._cache.read(layout.root, file, at)
            if ids is not None:
                yield from rows_with(table, ids)
                continue
            start, stop = bounds_within(table.column("id"), low, high)
            if most > 0:
                start, stop = (max(start, stop - most), stop) if is_reverse else (start, min(stop, start + most))
                most -= stop - start
            if stop > start:
                yield table.slice(start, stop - start)


class Rows:
    """The rows of an answer, in the order of the walk, and spare ones, which are above them: IDs, and elements of a RESP array.

    is_cut  a group asked for more than `max_bytes` allow
    """

    def __init__(self, asked: TierQuestion) -> None:
        self._asked = asked
        self._found: list[tuple[int, bytes]] = []
        self._spare: list[tuple[int, bytes]] = []
        self._size = 0
        self._spare_size = 0
        self.is_cut = False

    def add(self, table: pa.Table) -> bool:
        """Add rows one by one. True: what has been added is enough."""
        asked = self._asked
        for entry_id, element in elements_of(table, is_reverse=asked.is_reverse):
            if self._size + len(element) > asked.max_bytes and self._is_full():
                return True
            self._found.append((entry_id, element))
            self._size += len(element)
            if 0 < asked.enough <= self._size or (0 < asked.ahead <= self._size and 0 < asked.count <= self.count):
                return True
        return False

    def _is_full(self) -> bool:
        """Whether the next row, with which there are more than `max_bytes`, is left for the next request.

        That a group, or a consumer with what is pending for it, gets on, a single entry may be larger.
        """
        asked = self._asked
        if asked.ahead and self._found:
            self.is_cut = not 0 < asked.count <= self.count
            return True
        if asked.ahead or (asked.ids is not None and len(asked.ids) == 1):
            return False
        raise TooLargeError(
            f"the archived part of the reply is larger than stream-archive-max-reply ({asked.max_bytes} bytes); use COUNT"
        )

    def add_spare(self, table: pa.Table) -> bool:
        """Add spare rows, ascending. False: there is no room for all of them."""
        room = min(SPARE_BYTES, self._asked.max_bytes - self._size)
        for entry_id, element in elements_of(table, is_reverse=False):
            if self._spare_size + len(element) > room:
                return False
            self._spare.append((entry_id, element))
            self._spare_size += len(element)
        return True

    @property
    def count(self) -> int:
        """Without spare rows."""
        return len(self._found)

    @property
    def last(self) -> int:
        """The ID of the row that was added last, without spare rows."""
        return self._found[-1][0]

    @property
    def highest(self) -> int:
        """The highest ID; 0: there are no rows."""
        return max((rows[at][0] for rows in (self._found, self._spare) if rows for at in (0, -1)), default=0)

    def answer(self, boundary: int, live_limit: int, low: int, high: int, left: int = 0) -> TierAnswer:
        asked = self._asked
        ahead = self._found[asked.count :] if asked.ahead and asked.count > 0 else []
        rows = [*reversed(self._spare), *self._found] if asked.is_reverse else [*self._found, *self._spare]
        index, size = array("Q"), 0
        for entry_id, element in rows:
            size += len(element)
            index.extend((*unpack_id(entry_id), size))
        return TierAnswer(
            boundary=boundary,
            live_limit=live_limit,
            left=left,
            low=low,
            high=high,
            is_cut=self.is_cut,
            spare=self._spare_size + sum(len(element) for _, element in ahead),
            rows=index.tobytes(),
            data=b"".join(element for _, element in rows),
        )


def elements_of(table: pa.Table, *, is_reverse: bool) -> Iterator[tuple[int, bytes]]:
    """ID and element of each row of a table, in the order of a walk."""
    for piece in pieces_of(table, is_reverse=is_reverse):
        rows = list(zip(piece.column(0).to_pylist(), piece.column(1).to_pylist(), strict=True))
        for text, fields in reversed(rows) if is_reverse else rows:
            yield parse_entry_id(text.encode()), element_of(text.encode(), fields)


def element_of(entry_id: bytes, fields: list[dict[str, bytes]]) -> bytes:
    pieces = [b"*2\r\n$%d\r\n%b\r\n*%d\r\n" % (len(entry_id), entry_id, 2 * len(fields))]
    for pair in fields:
        field, value = pair["field"], pair["value"]
        pieces.append(b"$%d\r\n%b\r\n$%d\r\n%b\r\n" % (len(field), field, len(value), value))
    return b"".join(pieces)


def is_unchanged(log: ManifestLog, last: Manifest) -> bool:
    """Whether the last manifest that was read is still there, and the same; archivers never remove the last one."""
    try:
        found = Manifest.from_bytes(log.path(last.sequence).read_bytes(), log.stream)
    except FileNotFoundError:
        raise CorruptArchiveError(f"{log.path(last.sequence)} is missing") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptArchiveError(f"{log.path(last.sequence)} is not a valid manifest here: {error}") from error
    return (found.run, found.token, found.high) == (last.run, last.token, last.high)


def pieces_of(table: pa.Table, *, is_reverse: bool) -> Iterator[pa.Table]:
    """The rows of a table in pieces of PIECE, in the order of a walk."""
    starts = range(0, table.num_rows, PIECE)
    for start in reversed(starts) if is_reverse else starts:
        yield table.slice(start, PIECE)


def has_between(ids: Sequence[int], first: int, last: int) -> bool:
    at = bisect_left(ids, first)
    return at < len(ids) and ids[at] <= last


def rows_with(table: pa.Table, ids: Sequence[int]) -> Iterator[pa.Table]:
    """The rows of a table with these IDs, in order."""
    column = table.column("id")
    first, last = parse_entry_id(column[0].as_py()), last_id(table)
    for each in ids[bisect_left(ids, first) : bisect_right(ids, last)]:
        start, stop = bounds_within(column, each, each)
        if stop > start:
            yield table.slice(start, 1)


def last_id(table: pa.Table) -> int:
    return parse_entry_id(table.column("id")[table.num_rows - 1].as_py())


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
