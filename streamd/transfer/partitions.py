"""Cutting streams into partitions: which streams there are, where their ranges start and end, and how they are divided.

    find_streams     the streams that options name, or that match their pattern
    refuse_missing   an error for one that is not there
    find_extents     first and last entry of ranges, and lengths of streams: one round trip for all
    plan_partitions  the partitions of a batch read
    ask_slices       parts of ranges, by a server that can cut them, for a user who has permission
    find_cuts        IDs that cut one range into parts of about equal size, on any server

streamd cuts a range into parts of equal length (STREAMD.SPLIT): exactly, and at almost no cost. No other server reports the
ID of the n-th entry. Then there are two ways:

    scan      read the range once and keep every n-th ID: exact; used when partitions have a maximum size
    probes    look at a few entries in many places, look closer where the density changes, and add up: see density.py
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from streamd.client.client_errors import MissingStreamError, ServerError
from streamd.client.connection import SPLIT_COMMAND, Connection, Features, server_features
from streamd.client.key_names import stream_key, stream_name
from streamd.client.points import MIN_ID, format_entry_id, parse_entry_id
from streamd.client.primaries import on_primaries
from streamd.transfer.density import Density, id_text
from streamd.transfer.ranges import scan_range
from streamd.transfer.read_options import SourceOptions

__all__ = [
    "Extent",
    "Slice",
    "SplitForbiddenError",
    "StreamRange",
    "ask_slices",
    "find_cuts",
    "find_extents",
    "find_streams",
    "plan_partitions",
    "ranges_between",
    "refuse_missing",
]

ENTRIES_PER_PARTITION = 20_000
"""Smaller partitions cost more to start than to read."""

MOST_ENTRIES = 2_000_000
"""Partitions are not much larger than this, so that a failed task does not repeat too much."""

MOST_SLICES = 1_000
"""Maximum number of parts of one STREAMD.SPLIT, and of all those in one round trip."""

SCAN_COUNT = 1_000
"""COUNT of SCAN."""


@dataclass(frozen=True)
class StreamRange:
    """A partition: the entries of one stream from `start` to `end`, both included.

    first  the first entry of the stream when this was planned, or -1 if it need not be checked: if a later entry is
           the first one after reading, entries of the range may have been lost in between
    count  how many entries it had; -1: not counted
    """

    stream: str
    start: int
    end: int
    first: int = -1
    count: int = -1

    def __repr__(self) -> str:
        return f"{self.stream}[{format_entry_id(self.start)} .. {format_entry_id(self.end)}]"


@dataclass(frozen=True)
class Extent:
    """The current extent of a range: its first and last entry, and the length of the whole stream."""

    stream: str
    first: int
    last: int
    length: int
    stream_first: int
    """First entry of the whole stream."""


def find_streams(connection: Connection, options: SourceOptions) -> list[str]:
    """The streams to read: those named, in their order, or those that match, sorted."""
    if options.stream_pattern is None:
        return list(options.named_streams)
    pattern = stream_key(options.stream_pattern)
    if not connection.options.cluster_nodes:
        return sorted(map(stream_name, scan(connection, pattern)))
    return sorted(map(stream_name, on_primaries(connection.options, lambda each: scan(each, pattern))))


def scan(connection: Connection, pattern: bytes) -> set[bytes]:
    """The keys of the streams of a server, or a node, that match."""
    found: set[bytes] = set()
    cursor = b"0"
    while True:
        cursor, keys = connection.command("SCAN", cursor, "MATCH", pattern, "COUNT", SCAN_COUNT, "TYPE", "stream")
        found.update(keys)
        if cursor == b"0":
            return found


def refuse_missing(connection: Connection, streams: Sequence[str]) -> None:
    """Raise MissingStreamError for the first of these keys that does not exist; keys that the user may not query count as
    existing."""
    replies = connection.pipeline([("EXISTS", stream_key(stream)) for stream in streams], raise_errors=False)
    for stream, reply in zip(streams, replies, strict=True):
        if reply == 0:
            raise MissingStreamError(stream, connection.place)


def find_extents(connection: Connection, wanted: Sequence[tuple[str, int, int]]) -> list[Extent]:
    """The extents of ranges (stream, start, end); those without entries are left out. Raises ServerError by stream."""
    requests: list[tuple[bytes | str | int, ...]] = []
    for stream, start, end in wanted:
        key, low, high = stream_key(stream), id_text(max(start, MIN_ID)), id_text(end)
        requests += [
            ("XRANGE", key, low, high, "COUNT", 1),
            ("XREVRANGE", key, high, low, "COUNT", 1),
            ("XRANGE", key, "-", "+", "COUNT", 1),
            ("XLEN", key),
        ]
    replies = _ask_about(connection, [stream for stream, _, _ in wanted for _ in range(4)], requests)
    found = []
    for at, (stream, _, _) in enumerate(wanted):
        first, last, all_first, length = replies[4 * at : 4 * at + 4]
        if first and last:
            ids = [parse_entry_id(each[0][0]) for each in (first, last, all_first or first)]
            found.append(Extent(stream, ids[0], ids[1], length, ids[2]))
    return found


def _ask_about(
    connection: Connection, streams: Sequence[str], requests: Sequence[Sequence[bytes | str | int]]
) -> list[Any]:
    """The replies to requests of which each is about one stream. Raises ServerError that names it."""
    replies = connection.pipeline(requests, raise_errors=False)
    for stream, reply in zip(streams, replies, strict=True):
        if isinstance(reply, ServerError):
            raise ServerError(f"{reply} (stream {stream})")
    return replies


# --- Partitions -----------------------------------------------------------------------------------------------------------


def plan_partitions(
    connection: Connection, options: SourceOptions, wanted: Sequence[tuple[str, int, int]], *, parallelism: int
) -> list[StreamRange]:
    """The partitions of a batch read of ranges (stream, start, end): in the order of streams, then of IDs.

    The ends are fixed here, at the last entries that there are now: what is added later belongs to a later read.
    parallelism  how many tasks run at a time: the default number of partitions
    """
    wanted = [(stream, max(start, MIN_ID), end) for stream, start, end in wanted if start <= end]
    if wanted and server_features(connection).has_streamd_helpers:
        with contextlib.suppress(SplitForbiddenError):
            return _plan_slices(connection, options, wanted, parallelism)
    extents = find_extents(connection, wanted)
    features = server_features(connection) if extents else None
    total = sum(each.length for each in extents)
    partitions: list[StreamRange] = []
    for extent in extents:
        if options.max_records_per_partition is not None:
            cuts = scan_range(
                options.connection,
                stream_key(extent.stream),
                extent.first,
                extent.last,
                every=options.max_records_per_partition,
                fetch_size=options.fetch_size,
                connection=connection,
            ).marks[1:]
            parts = _share(extent.length, total, options.min_partitions or 1)
            if len(cuts) + 1 < parts:
                cuts = find_cuts(connection, extent, parts, features)
        else:
            if options.min_partitions is not None:
                parts = _share(extent.length, total, options.min_partitions)
            else:
                # More than run at a time, so that uneven parts average out.
                parts = min(
                    _share(extent.length, total, 4 * parallelism), _parts_of(extent.length, ENTRIES_PER_PARTITION)
                )
            cuts = find_cuts(connection, extent, parts, features)
        partitions += ranges_between(extent, cuts)
    return partitions


def _plan_slices(
    connection: Connection, options: SourceOptions, wanted: Sequence[tuple[str, int, int]], parallelism: int
) -> list[StreamRange]:
    """The partitions when the server cuts: as many as tasks run at a time, since all are equally long."""
    # Before the ranges: if the stream is trimmed in between, this is merely an earlier first ID.
    stream_firsts = _first_ids(connection, [stream for stream, start, _ in wanted if start > MIN_ID])
    found = ask_slices(connection, wanted, [1] * len(wanted))
    whole = [(stream, slices[0]) for (stream, _, _), slices in zip(wanted, found, strict=True) if slices]
    parts = _count_parts(options, [each.count for _, each in whole], parallelism)
    cut = [(stream, each.first, each.last) for (stream, each), count in zip(whole, parts, strict=True) if count > 1]
    cuts = iter(ask_slices(connection, cut, [count for count in parts if count > 1]))
    return [
        StreamRange(stream, each.first, each.last, stream_firsts.get(stream, one.first), each.count)
        for (stream, one), count in zip(whole, parts, strict=True)
        for each in (next(cuts) if count > 1 else [one])
    ]


def _first_ids(connection: Connection, streams: Sequence[str]) -> dict[str, int]:
    """The first entry of each stream that has one."""
    replies = _ask_about(
        connection, streams, [("XRANGE", stream_key(stream), "-", "+", "COUNT", 1) for stream in streams]
    )
    return {stream: parse_entry_id(reply[0][0]) for stream, reply in zip(streams, replies, strict=True) if reply}


def _count_parts(options: SourceOptions, lengths: Sequence[int], parallelism: int) -> list[int]:
    """Into how many parts ranges of these lengths are cut."""
    total = sum(lengths)
    wanted = options.min_partitions or parallelism * _parts_of(total, parallelism * MOST_ENTRIES)
    parts = [_share(length, total, wanted) for length in lengths]
    if options.min_partitions is None:
        parts = [min(n, _parts_of(length, ENTRIES_PER_PARTITION)) for n, length in zip(parts, lengths, strict=True)]
    most = options.max_records_per_partition
    if most is not None:
        parts = [max(n, _parts_of(length, most)) for n, length in zip(parts, lengths, strict=True)]
    return parts


def _share(length: int, total: int, parts: int) -> int:
    """The share of a stream in a number of partitions, rounded up."""
    return max(1, -(-parts * length // max(total, 1)))


def _parts_of(length: int, most: int) -> int:
    """How many parts a range needs so that none exceeds a maximum size."""
    return max(1, -(-length // most))


@dataclass(frozen=True)
class Slice:
    """A part of a range as the server cut it: its first and last entry, and how many there are."""

    first: int
    last: int
    count: int


class SplitForbiddenError(ServerError):
    """The server can cut streams, but not for this user (ACL). Recorded in the connection's features."""


def ask_slices(
    connection: Connection,
    bounds: Sequence[tuple[str, int, int]],
    parts: Sequence[int],
    limits: Sequence[int] | None = None,
) -> list[list[Slice]]:
    """Ranges (stream, start, end) each cut by the server into a number of parts, whose lengths differ by one entry at most; in one
    round trip for MOST_SLICES of them. Only with `Features.has_streamd_helpers`. A range has as many parts as
    entries at most.

    limits  cut only this number of entries of each range, the first ones
    Raises SplitForbiddenError.
    """
    rounds = [_parts_of(each, MOST_SLICES) for each in parts]
    if max(rounds, default=1) > 1:
        coarse = ask_slices(connection, bounds, rounds, limits)
        inner = [
            (bound[0], each.first, each.last) for bound, slices in zip(bounds, coarse, strict=True) for each in slices
        ]
        counts = [_parts_of(n, many) for n, many, slices in zip(parts, rounds, coarse, strict=True) for _ in slices]
        fine = iter(ask_slices(connection, inner, counts))
        return [[each for _ in slices for each in next(fine)] for slices in coarse]
    streams = [stream for stream, _, _ in bounds]
    requests: list[tuple[bytes | str | int, ...]] = [
        (SPLIT_COMMAND, stream_key(stream), n, id_text(start), id_text(end))
        for (stream, start, end), n in zip(bounds, parts, strict=True)
    ]
    if limits is not None:
        requests = [(*request, "COUNT", limit) for request, limit in zip(requests, limits, strict=True)]
    return [
        [Slice(parse_entry_id(first), parse_entry_id(last), count) for first, last, count in reply]
        for start, stop in _goes(parts)
        for reply in _cut_by_server(connection, streams[start:stop], requests[start:stop])
    ]


def _cut_by_server(
    connection: Connection, streams: Sequence[str], requests: Sequence[Sequence[bytes | str | int]]
) -> list[Any]:
    try:
        return _ask_about(connection, streams, requests)
    except ServerError as error:
        if error.code != "NOPERM":
            raise
        connection.features = replace(server_features(connection), has_streamd_helpers=False)
        raise SplitForbiddenError(error.text) from error


def _goes(parts: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Which requests for these numbers of parts go into one round trip: [start, stop), several small ones or one large one."""
    start, total = 0, 0
    for at, count in enumerate(parts):
        if total + count > MOST_SLICES:
            yield start, at
            start, total = at, 0
        total += count
    yield start, len(parts)


def ranges_between(extent: Extent, cuts: Iterable[int]) -> list[StreamRange]:
    """The ranges that start at the first entry and at each cut."""
    starts = [extent.first, *(cut for cut in cuts if extent.first < cut <= extent.last)]
    ends = [*(cut - 1 for cut in starts[1:]), extent.last]
    return [
        StreamRange(extent.stream, start, end, extent.stream_first)
        for start, end in zip(starts, ends, strict=True)
        if start <= end
    ]


def find_cuts(connection: Connection, extent: Extent, parts: int, features: Features | None = None) -> list[int]:
    """At most `parts - 1` IDs that cut the entries of a range into parts of about equal size, in order.

    features  of the server, when known
    """
    if parts <= 1 or extent.last <= extent.first:
        return []
    if (features or server_features(connection)).has_streamd_helpers:
        with contextlib.suppress(SplitForbiddenError):
            (slices,) = ask_slices(connection, [(extent.stream, extent.first, extent.last)], [parts])
            return [each.first for each in slices[1:]]
    density = Density(connection, stream_key(extent.stream), extent.first, extent.last)
    density.refine(parts, extent.length)
    return density.cuts(parts)
