"""Cutting streams into partitions: which streams there are, where their ranges begin and end, and how to share them out.

    find_streams     the streams that options name, or that match their pattern
    find_extents     first and last entry of ranges, and lengths of streams: one round trip for all
    plan_partitions  the partitions of a batch read
    find_cuts        IDs that cut one range into parts of about equal size

No server tells the ID of the n-th entry, except by streamd's own STREAMD.SPLIT. So there are three ways, from exact to cheap:

    scan      read the range once and keep every n-th ID: exact; used when a partition has a greatest size
    split     ask a server that can
    probes    look at a few entries at many places, where it is dense look closer, and integrate: see `Density`
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from streamd.spark.connect import SPLIT_COMMAND, Connection, Features, server_features
from streamd.spark.errors import ServerError
from streamd.spark.ids import MAX_ID, MIN_ID, format_entry_id, parse_entry_id
from streamd.spark.options import SourceOptions
from streamd.spark.ranges import scan_range

__all__ = [
    "Extent",
    "StreamRange",
    "find_cuts",
    "find_extents",
    "find_streams",
    "name_of",
    "plan_partitions",
    "ranges_between",
    "stream_key",
]

ENTRIES_PER_PARTITION = 10_000
"""Partitions smaller than this cost more to start than to read."""

PROBE_COUNT = 16
"""Entries that a probe looks at."""

MAX_PROBES = 512

SCAN_COUNT = 1_000
"""COUNT of SCAN."""


def stream_key(name: str) -> bytes:
    """The key of a stream by its name in options, offsets and partitions: bytes that are no UTF-8 stand as surrogates."""
    return name.encode("utf-8", "surrogateescape")


def name_of(key: bytes) -> str:
    return key.decode("utf-8", "surrogateescape")


@dataclass(frozen=True)
class StreamRange(InputPartition):
    """A partition: the entries of one stream from `start` to `end`, both included.

    first  the first entry of the stream when this was planned, or -1 when it is not to be watched: when a later one is
           the first after reading, entries of the range may have gone meanwhile
    """

    stream: str
    start: int
    end: int
    first: int = -1

    def __repr__(self) -> str:
        return f"{self.stream}[{format_entry_id(self.start)} .. {format_entry_id(self.end)}]"


@dataclass(frozen=True)
class Extent:
    """A range of a stream as it is now: its first and last entry, and the length of the whole stream."""

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
    found: set[bytes] = set()
    cursor = b"0"
    while True:
        cursor, keys = connection.command(
            "SCAN", cursor, "MATCH", stream_key(options.stream_pattern), "COUNT", SCAN_COUNT, "TYPE", "stream"
        )
        found.update(keys)
        if cursor == b"0":
            return sorted(map(name_of, found))


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
    replies = connection.pipeline(requests, raise_errors=False)
    found = []
    for at, (stream, _, _) in enumerate(wanted):
        first, last, all_first, length = replies[4 * at : 4 * at + 4]
        if isinstance(first, ServerError):
            raise ServerError(f"{first} (stream {stream})")
        if first and last:
            ids = [parse_entry_id(each[0][0]) for each in (first, last, all_first or first)]
            found.append(Extent(stream, ids[0], ids[1], length, ids[2]))
    return found


def id_text(number: int) -> str:
    """An ID as a bound of XRANGE. One before the first ID of all makes a range that is empty."""
    if number < MIN_ID:
        return "0-0"
    return "+" if number >= MAX_ID else format_entry_id(number)


# --- Partitions -----------------------------------------------------------------------------------------------------------


def plan_partitions(
    connection: Connection, options: SourceOptions, wanted: Sequence[tuple[str, int, int]], *, parallelism: int
) -> list[StreamRange]:
    """The partitions of a batch read of ranges (stream, start, end): in the order of streams, then of IDs.

    The ends are fixed here, at the last entries that there are now: what is added later belongs to a later read.
    parallelism  how many tasks run at a time, for when the options name no number of partitions
    """
    extents = find_extents(connection, [each for each in wanted if each[2] >= each[1]])
    total = sum(each.length for each in extents)
    features = server_features(connection) if extents else None
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
            parts = _parts_of(extent, total, options.min_partitions or 1)
            if len(cuts) + 1 < parts:
                cuts = find_cuts(connection, extent, parts, features)
        else:
            if options.min_partitions is not None:
                parts = _parts_of(extent, total, options.min_partitions)
            else:
                # More than tasks at a time, so that what is uneven evens out.
                parts = min(_parts_of(extent, total, 4 * parallelism), -(-extent.length // ENTRIES_PER_PARTITION))
            cuts = find_cuts(connection, extent, parts, features)
        partitions += ranges_between(extent, cuts)
    return partitions


def _parts_of(extent: Extent, total: int, parts: int) -> int:
    """The share of a stream in a number of partitions, rounded up."""
    return max(1, -(-parts * extent.length // max(total, 1)))


def ranges_between(extent: Extent, cuts: Iterable[int]) -> list[StreamRange]:
    """The ranges that begin at the first entry and at each cut."""
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
        reply = connection.command(
            SPLIT_COMMAND, stream_key(extent.stream), id_text(extent.first), id_text(extent.last), parts
        )
        return sorted({parse_entry_id(each) for each in reply} - {extent.first})
    density = Density(connection, stream_key(extent.stream), extent.first, extent.last)
    density.refine(parts)
    return density.cuts(parts)


# --- Probes ---------------------------------------------------------------------------------------------------------------


@dataclass
class Piece:
    """A part of the range, from a probe to the next.

    start, end     inclusive
    ids            the first entries of it, up to PROBE_COUNT
    is_known       these are all
    """

    start: int
    end: int
    ids: list[int]
    is_known: bool

    @property
    def estimate(self) -> float:
        """How many entries it has, when they go on as the first ones do."""
        if self.is_known or len(self.ids) < 2:
            return float(len(self.ids))
        return max(
            float(len(self.ids)), (self.end - self.ids[0] + 1) * (len(self.ids) - 1) / (self.ids[-1] - self.ids[0])
        )


class Density:
    """How the entries of a range lie, estimated from a few of them at each of several hundred places.

    Each round cuts the pieces that seem to hold most into equal widths, and probes each of these in one round trip.
    The width is that of 128-bit numbers, so it goes down into single milliseconds where these hold many entries. A piece
    whose entries are thinned out soon gets a smaller estimate, one that hides a burst behind a thin beginning is found
    because pieces are looked at by width too.
    """

    def __init__(self, connection: Connection, key: bytes, first: int, last: int) -> None:
        self._connection = connection
        self._key = key
        self._probes = 0
        self.pieces: list[Piece] = self._probe([(first, last)])

    def _probe(self, ranges: Sequence[tuple[int, int]]) -> list[Piece]:
        self._probes += len(ranges)
        replies = self._connection.pipeline(
            [("XRANGE", self._key, id_text(low), id_text(high), "COUNT", PROBE_COUNT) for low, high in ranges]
        )
        pieces = []
        for (low, high), entries in zip(ranges, replies, strict=True):
            ids = [parse_entry_id(entry[0]) for entry in entries]
            pieces.append(Piece(low, high, ids, len(ids) < PROBE_COUNT or ids[-1] >= high))
        return pieces

    def refine(self, parts: int) -> None:
        """Look closer until no piece seems to hold more than a fraction of a part, or the probes are used up."""
        while self._probes < MAX_PROBES:
            total = sum(piece.estimate for piece in self.pieces)
            open_pieces = [piece for piece in self.pieces if not piece.is_known]
            heavy = [piece for piece in open_pieces if piece.estimate > total / parts / 8]
            # The widest too, a few in each round: an estimate from the beginning of a piece knows nothing of its end.
            wide = sorted(open_pieces, key=lambda piece: piece.end - piece.start, reverse=True)[:4]
            if not heavy:
                return
            chosen = {id(piece) for piece in [*sorted(heavy, key=lambda p: -p.estimate)[:24], *wide]}
            self._look_closer(chosen)

    def _look_closer(self, chosen: set[int]) -> None:
        ranges: list[tuple[int, int]] = []
        for piece in self.pieces:
            if id(piece) in chosen:
                ranges += _eighths(piece.ids[0], piece.end)
        probed = iter(self._probe(ranges))
        pieces: list[Piece] = []
        for piece in self.pieces:
            if id(piece) in chosen:
                pieces += [next(probed) for _ in _eighths(piece.ids[0], piece.end)]
            else:
                pieces.append(piece)
        self.pieces = [piece for piece in pieces if piece.ids]

    def cuts(self, parts: int) -> list[int]:
        """The IDs at equal shares of the estimated number of entries."""
        sums = [0.0]
        for piece in self.pieces:
            sums.append(sums[-1] + piece.estimate)
        found: list[int] = []
        for part in range(1, parts):
            target = sums[-1] * part / parts
            at = min(bisect_right(sums, target) - 1, len(self.pieces) - 1)
            piece, ahead = self.pieces[at], target - sums[at]
            cut = self._within(piece, ahead)
            if not found or cut > found[-1]:
                found.append(cut)
        return [cut for cut in found if cut > self.pieces[0].ids[0]]

    @staticmethod
    def _within(piece: Piece, ahead: float) -> int:
        """The ID so many entries into a piece."""
        if int(ahead) < len(piece.ids):
            return piece.ids[int(ahead)]
        return piece.ids[0] + int((piece.end - piece.ids[0]) * (ahead / piece.estimate))


def _eighths(low: int, high: int) -> list[tuple[int, int]]:
    from streamd.spark.ids import split_range

    return split_range(low, high, 8)
