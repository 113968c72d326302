"""Decides whether the stream on a server is the one that was archived, before anything trims, answers, restores, deletes or verifies.

A server stores nothing that distinguishes a stream from another one under the same key: a stream that was deleted and written again,
renamed, restored, loaded or copied there may have the same IDs, last ID and counters. What is at or below the archive's boundary on the
server would be trimmed, or left out of a history, because the archive has it. So these are compared, in this order:

    name       the data on the server has the name that manifests record (origin.py)
    growth     the last ID, the number of entries ever added and the entries that are there have grown together (boundary.py)
    ends       the first and the last entry at or below the boundary are archived, with the same fields
    the rest   every entry at or below the boundary is archived with the same fields; only where additions, trims and deletions cannot
               have made the stream what it is since it was last compared, where the server does not know the last manifest (a copy was
               archived, or the server was set back), where `streamd load` has written to the stream since, or if `depth` is "content"

The first three cost a few requests and at most two row groups, however long the stream is. Where all of what XINFO STREAM says agrees,
entries that were changed in the middle only, by deleting the stream and writing it again, are found by `content` alone. (Its numbers of
nodes say nothing: they depend on how entries were removed, and change when an append-only file is loaded.)

Entries that were deleted from the archive, or accepted as they are by `--accept-server`, may be on the server and not in the archive.
Manifests record them (`excused`): IDs, divided into pieces, and a digest of the last entry of each piece. Up to PIECES entries have a
piece each, so that all are known; of more, or of more ranges, only samples are. They apply to these entries only: if an entry with a
digest has other fields, or none of them is left but others are, the stream is another one. Deletions at their end, and runs at their
start and end, remove pieces that are gone from the manifests, and record the last entry of a piece that is left: entries at the other
IDs are then new ones, which have not been accepted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from streamd.archive.archive_errors import IncarnationError, VerifyError
from streamd.archive.archived_rows import find_archived, read_archived
from streamd.archive.boundary import Gap, check_incarnation, find_gap, has_fewer_removed
from streamd.archive.layout import Layout
from streamd.archive.live_stream import find_state, has_entry, read_entries
from streamd.archive.manifest import Excused, Range, joined
from streamd.archive.manifest_log import ManifestLog
from streamd.archive.origin import check_identity, find_note, is_noted, other_server, replaced_by
from streamd.archive.parquet import without
from streamd.archive.verify import Depth, count_gone
from streamd.arrow.entry_table import default_table
from streamd.client.client_errors import DataLossError, MissingStreamError
from streamd.client.connection import Connection, connect
from streamd.client.key_names import stream_key
from streamd.client.points import MAX_ID, format_entry_id, parse_entry_id
from streamd.client.stream_info import StreamInfo
from streamd.client.url_options import ConnectionOptions

__all__ = ["OwnStream", "check_ends", "check_is_archived_stream", "excuse", "live_faults", "still_excused"]

Entry = tuple[int, list[bytes]]
"""ID, and fields and values in turn."""

FETCH = 1000
"""Entries of one request where excused ones are read or passed over."""

PIECES = 64
"""Up to this number, excused entries have a digest each."""


@dataclass(frozen=True)
class OwnStream:
    """What was found of a stream that is the archived one.

    state       None: the server has no such stream
    gap         entries that went before they were archived; None: none did, as far as that shows
    difference  what does not agree, and was accepted
    replaced    what `streamd load` has noted when it wrote to the stream
    """

    stream: str
    state: StreamInfo | None
    gap: Gap | None = None
    difference: IncarnationError | None = None
    replaced: bytes = b""

    def need_state(self) -> StreamInfo:
        """Raises MissingStreamError when there is no such stream."""
        if self.state is None:
            raise MissingStreamError(self.stream)
        return self.state


def check_is_archived_stream(
    connection: Connection,
    layout: Layout,
    log: ManifestLog,
    *,
    depth: Depth = "ids",
    allow_gaps: bool = False,
    may_be_gone: bool = False,
    accepts_server: bool = False,
) -> OwnStream:
    """Raise IncarnationError unless a server's stream is the one of the manifests; see the head of the file.

    allow_gaps      entries may be missing that were not archived; otherwise DataLossError is raised when some were trimmed
    may_be_gone     the server may have no such stream
    accepts_server  the user says that this is the right server: its name, and entries that differ, are no error
    """
    last, replaced = log.last, replaced_by(connection, log.stream)
    note = None if last is None else find_note(connection, layout, log.stream)
    state = find_state(connection, log.stream)
    if last is None or (state is None and may_be_gone):
        return OwnStream(log.stream, state, replaced=replaced)
    state = check_incarnation(state, last)
    has_name = accepts_server or check_identity(connection, log)
    next_is_there = last.next_id is not None and has_entry(connection, log.stream, last.next_id)
    gap = find_gap(state, last, next_is_there=next_is_there)
    if gap is not None and gap.is_certain and not allow_gaps:
        raise DataLossError(f"{gap.text}; `archive run --allow-gaps` archives the rest")
    difference = None
    try:
        is_suspect = depth == "content" or has_fewer_removed(state, last) or not is_noted(note, last, replaced, state)
        check_live(connection, layout, log, state, is_suspect=is_suspect)
    except IncarnationError as error:
        if not accepts_server:
            raise error if has_name else other_server(connection, None) from error
        difference = error
    return OwnStream(log.stream, state, gap, difference, replaced)


def live_faults(options: ConnectionOptions, layout: Layout, stream: str) -> list[str]:
    """What is wrong with the stream that a server has now, all of whose archived entries are compared; nothing when it has none."""
    with connect(options.live_only().at(stream)) as connection:
        try:
            log = ManifestLog.read(layout, stream)
            check_is_archived_stream(connection, layout, log, depth="content", may_be_gone=True)
        except (IncarnationError, DataLossError) as error:
            return [str(error)]
    return []


def check_live(
    connection: Connection, layout: Layout, log: ManifestLog, state: StreamInfo, *, is_suspect: bool
) -> None:
    """Raise IncarnationError unless what the server holds of the archived range is archived as it is there.

    is_suspect  look at all of it, not at its ends only
    """
    if log.last is None or state.first_entry is None or state.first_entry > log.boundary:
        return
    excused = check_excused(connection, log, log.last.excused)
    check_ends(connection, log.stream, layout, log, state.first_entry, log.boundary, excused)
    if is_suspect:
        check_all(connection, layout, log, state.first_entry, excused)


def check_ends(
    connection: Connection,
    stream: str,
    layout: Layout,
    log: ManifestLog,
    low: int,
    high: int,
    excused: Sequence[Range] = (),
) -> None:
    """Raise IncarnationError unless the first and the last entry of a stream with IDs in [low, high] are archived as they are.

    stream   where the entries are, which may be another one than that of the manifests
    excused  IDs that do not count
    """
    first = find_end(connection, stream, low, high, excused, is_first=True)
    if first is None:
        return
    check_entry(connection, stream, layout, log, first)
    last = find_end(connection, stream, low, high, excused, is_first=False)
    if last is not None and last[0] != first[0]:
        check_entry(connection, stream, layout, log, last)


def find_end(
    connection: Connection, stream: str, low: int, high: int, excused: Sequence[Range], *, is_first: bool
) -> Entry | None:
    """The first or last entry with an ID in [low, high] that is not excused."""
    count = 1
    while low <= high:
        bounds = format_entry_id(low), format_entry_id(min(high, MAX_ID))
        words = ("XRANGE", *bounds) if is_first else ("XREVRANGE", *reversed(bounds))
        found = connection.command(words[0], stream_key(stream), *words[1:], "COUNT", count)
        for entry_id, fields in found:
            number = parse_entry_id(entry_id)
            if not any(bottom <= number <= top for bottom, top in excused):
                return number, fields
            low, high = (number + 1, high) if is_first else (low, number - 1)
        if len(found) < count:
            return None
        count = FETCH
    return None


def check_excused(connection: Connection, log: ManifestLog, pieces: Sequence[Excused]) -> list[Range]:
    """The IDs that are excused. Raises IncarnationError when an entry with a digest is another one than then."""
    is_same = compare_excused(with_last(connection, log.stream, pieces))
    if not all(is_same):
        fault = "entries that were accepted, or deleted from the archive, have other fields now"
        raise other_entries(connection, log.stream, log, fault)
    return joined(ranges_of(pieces)) if is_same else []


def still_excused(connection: Connection, stream: str, pieces: Sequence[Excused]) -> tuple[Excused, ...]:
    """The pieces of which something is on the server, each up to the last entry that is left."""
    left = with_last(connection, stream, pieces)
    others = tuple(each for each in pieces if not each.digest) if left else ()
    is_same = compare_excused(left)
    if not is_same or not all(is_same):  # the next check refuses the stream
        return (*(piece for piece, _ in left), *others)
    return (*(Excused(piece.low, entry[0], digest_of(entry)) for piece, entry in left), *others)


def compare_excused(pieces: Iterable[tuple[Excused, Entry]]) -> list[bool]:
    """For each piece whose last entry of then is still there, whether it has the same fields."""
    return [digest_of(entry) == piece.digest for piece, entry in pieces if entry[0] == piece.high]


def with_last(connection: Connection, stream: str, pieces: Sequence[Excused]) -> list[tuple[Excused, Entry]]:
    """The pieces with a digest of which something is on the server, each with the last entry there."""
    pieces = [each for each in pieces if each.digest]
    found = last_ones(connection, stream, ranges_of(pieces))
    return [(piece, entry) for piece, entry in zip(pieces, found, strict=True) if entry is not None]


def excuse(connection: Connection, stream: str, ranges: Iterable[Range], high: int) -> Iterator[Excused]:
    """What the server holds now in ranges of IDs, up to `high`, as pieces for a manifest."""
    if (state := find_state(connection, stream)) is None:
        return
    first = MAX_ID + 1 if state.first_entry is None else state.first_entry
    met = [(low, min(top, high)) for low, top in ranges if low <= high and min(top, high) >= first]
    size, step = max(1, -(-state.length // PIECES)), max(1, -(-len(met) // PIECES))
    yield from (Excused(low, top, "") for at, (low, top) in enumerate(met) if at % step)
    looked_at = met[::step]
    for (low, _), last in zip(looked_at, last_ones(connection, stream, looked_at), strict=True):
        if last is None:
            continue
        if low == last[0]:
            yield Excused(low, low, digest_of(last))
            continue
        count = 0
        for entry in entries_in(connection, stream, low, last[0]):
            low = entry[0] if count == 0 else low
            count += 1
            if count == size or entry[0] == last[0]:
                yield Excused(low, entry[0], digest_of(entry))
                count = 0


def ranges_of(pieces: Iterable[Excused]) -> list[Range]:
    return [(each.low, each.high) for each in pieces]


def last_ones(connection: Connection, stream: str, ranges: Sequence[Range]) -> Iterator[Entry | None]:
    """The last entry that the server holds in each of the ranges."""
    key = stream_key(stream)
    for start in range(0, len(ranges), FETCH):
        bounds = [
            (format_entry_id(min(high, MAX_ID)), format_entry_id(low)) for low, high in ranges[start : start + FETCH]
        ]
        for found in connection.pipeline([("XREVRANGE", key, *each, "COUNT", 1) for each in bounds]):
            yield (parse_entry_id(found[0][0]), found[0][1]) if found else None


def entries_in(connection: Connection, stream: str, low: int, high: int) -> Iterator[Entry]:
    while low <= high:
        bounds = format_entry_id(low), format_entry_id(high)
        found = connection.command("XRANGE", stream_key(stream), *bounds, "COUNT", FETCH)
        for entry_id, fields in found:
            number = parse_entry_id(entry_id)
            yield number, fields
            low = number + 1
        if len(found) < FETCH:
            return


def digest_of(entry: Entry) -> str:
    digest = hashlib.sha256()
    for each in entry[1]:
        digest.update(b"%d:" % len(each) + each)
    return digest.hexdigest()[:32]


def check_entry(connection: Connection, stream: str, layout: Layout, log: ManifestLog, entry: Entry) -> None:
    number, fields = entry
    archived = find_archived(layout, log, number)
    if archived != fields:
        fault = "is not in the archive" if archived is None else "has other fields in the archive"
        raise other_entries(connection, stream, log, f"entry {format_entry_id(number)} {fault}")


def check_all(connection: Connection, layout: Layout, log: ManifestLog, first: int, excused: Sequence[Range]) -> None:
    columns = ("id", "fields")
    archived = read_archived(layout, log.stream, first, log.boundary, columns, log=log)
    own = connection if connection.is_only else None
    held = read_entries(connection.options, log.stream, first, log.boundary, default_table(*columns), connection=own)
    try:
        count_gone(archived, without(held, excused), f"on {connection.place}")
    except VerifyError as error:
        raise other_entries(connection, log.stream, log, str(error)) from None


def other_entries(connection: Connection, stream: str, log: ManifestLog, fault: str) -> IncarnationError:
    return IncarnationError(
        f"stream {stream!r} on {connection.place} differs from what is archived up to {format_entry_id(log.boundary)}: {fault}. "
        "A copy of the server has been archived in its place, or the stream was recreated or set back: a new stream needs a new archive, "
        "and `archive run --accept-server` gives up the entries in question"
    )
