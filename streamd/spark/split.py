"""Cutting streams into partitions: which streams there are, where their ranges begin and end, and how to share them out.

    find_streams     the streams that options name, or that match their pattern
    find_extents     first and last entry of ranges, and lengths of streams: one round trip for all
    plan_partitions  the partitions of a batch read
    ask_slices       parts of ranges, by a server that cuts them and a user who may ask for it
    find_cuts        IDs that cut one range into parts of about equal size, on any server

streamd cuts a range into parts of equal length when it is asked (STREAMD.SPLIT): exact, and as good as free. No other server
tells the ID of the n-th entry. There are two ways then:

    scan      read the range once and keep every n-th ID: exact; used when a partition has a greatest size
    probes    look at a few entries at many places, look closer where it changes, and add up: see `Density`
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from pyspark.sql.datasource import InputPartition

from streamd.spark.connect import SPLIT_COMMAND, Connection, Features, server_features
from streamd.spark.errors import ServerError
from streamd.spark.ids import MAX_ID, MIN_ID, first_id_of, format_entry_id, last_id_of, ms_of, parse_entry_id
from streamd.spark.keys import stream_key, stream_name
from streamd.spark.options import SourceOptions
from streamd.spark.ranges import scan_range

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
    "stream_key",
]

ENTRIES_PER_PARTITION = 20_000
"""Partitions smaller than this cost more to start than to read."""

MOST_ENTRIES = 2_000_000
"""Partitions are not larger than about this, so that a task that fails does not have to do too much again."""

MOST_SLICES = 1_000
"""Into how many parts STREAMD.SPLIT cuts a range at once, at most; and how many all requests sent in one go may ask for."""

PROBE_COUNT = 16
"""Entries that a probe looks at."""

EDGE = PROBE_COUNT // 2
"""So many of them do not count when it is asked how dense the others lie, next to what is not known."""

MAX_PROBES = 1_500
"""After so many, what is not known stays estimated. A probe costs about 0.1 ms, half of it here."""

PIECES_AT_A_TIME = 24
CUTS = 3
"""How many pieces are cut in a round trip, and into how many."""

SCAN_COUNT = 1_000
"""COUNT of SCAN."""


@dataclass(frozen=True)
class StreamRange(InputPartition):
    """A partition: the entries of one stream from `start` to `end`, both included.

    first  the first entry of the stream when this was planned, or -1 when it is not to be watched: when a later one is
           the first after reading, entries of the range may have gone meanwhile
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
            return sorted(map(stream_name, found))


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
                # More than tasks at a time, so that what is uneven evens out.
                parts = min(
                    _share(extent.length, total, 4 * parallelism), _parts_of(extent.length, ENTRIES_PER_PARTITION)
                )
            cuts = find_cuts(connection, extent, parts, features)
        partitions += ranges_between(extent, cuts)
    return partitions


def _plan_slices(
    connection: Connection, options: SourceOptions, wanted: Sequence[tuple[str, int, int]], parallelism: int
) -> list[StreamRange]:
    """The partitions when the server cuts: as many as tasks run at a time, as all are equally long."""
    # Before the ranges: when the stream is trimmed between the two, this only is an ID that was the first one earlier.
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
    """The first entries of streams, of those that have one."""
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
    """How many parts of a greatest size there are."""
    return max(1, -(-length // most))


@dataclass(frozen=True)
class Slice:
    """A part of a range as the server cut it: its first and last entry, and how many there are."""

    first: int
    last: int
    count: int


class SplitForbiddenError(ServerError):
    """The server cuts streams, but not for this user: access control lists may name the commands that they allow. The
    connection's features say so from then on."""


def ask_slices(
    connection: Connection,
    bounds: Sequence[tuple[str, int, int]],
    parts: Sequence[int],
    limits: Sequence[int] | None = None,
) -> list[list[Slice]]:
    """Ranges (stream, start, end) cut by the server into so many parts each, equally long but for one entry; in one round
    trip for MOST_SLICES of them. Only for a server that can (`Features.has_streamd_helpers`). A range has as many parts as
    entries at most.

    limits  only so many entries of each range, the first ones
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
    """Which requests for so many parts are sent in one go: [start, stop), several small ones or one of MOST_SLICES."""
    start, total = 0, 0
    for at, count in enumerate(parts):
        if total + count > MOST_SLICES:
            yield start, at
            start, total = at, 0
        total += count
    yield start, len(parts)


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
        with contextlib.suppress(SplitForbiddenError):
            (slices,) = ask_slices(connection, [(extent.stream, extent.first, extent.last)], [parts])
            return [each.first for each in slices[1:]]
    density = Density(connection, stream_key(extent.stream), extent.first, extent.last)
    density.refine(parts, extent.length)
    return density.cuts(parts)


# --- Probes ---------------------------------------------------------------------------------------------------------------
#
# A probe asks for the entries next to an ID. A piece of the range is known by the first few entries in it, its head, and by
# the last few, its tail:
#
#     start   head: 1 2 3                      tail: 7 8 9    end
#       |-----+++-----------------------------------+++--------|
#
# Where head and tail meet, the piece is known exactly. Elsewhere they say how dense the entries lie at both ends, and the
# number is estimated by the mean. Dense means: entries per millisecond while the piece spans several, else entries per
# sequence number, which mostly follow each other. Pieces whose ends differ most are cut further, and, as long as fewer
# entries are accounted for than the stream has, the widest ones, until they are known exactly or the burst in them is found.


@dataclass
class Piece:
    """A part of the range, with entries at both ends of what is not known of it.

    start, end  inclusive
    head, tail  its first and last entries, up to PROBE_COUNT each, in order; the same list when these are all
    head_per_ms, tail_per_ms   how many entries the millisecond has where the head ends, and where the tail begins
    """

    start: int
    end: int
    head: list[int]
    tail: list[int]
    head_per_ms: float = 1.0
    tail_per_ms: float = 1.0

    @property
    def is_known(self) -> bool:
        return len(self.head) < PROBE_COUNT or self.head[-1] >= self.tail[0]

    @property
    def known(self) -> list[int]:
        """Its entries, when it is known; else the first and the last ones."""
        return sorted({*self.head, *self.tail})

    @property
    def is_within_a_ms(self) -> bool:
        return ms_of(self.head[0]) == ms_of(self.tail[-1])

    def rates(self) -> tuple[float, float]:
        """How many entries there are in a unit of `width` at both ends."""
        head, tail = self.head, self.tail
        if self.is_within_a_ms:
            return (len(head) - 1) / (head[-1] - head[0]), (len(tail) - 1) / (tail[-1] - tail[0])
        low_span = ms_of(head[-1]) - ms_of(head[EDGE])
        high_span = ms_of(tail[-EDGE - 1]) - ms_of(tail[0])
        low = (len(head) - 1 - EDGE) / low_span if low_span > 1 else self.head_per_ms
        high = (len(tail) - 1 - EDGE) / high_span if high_span > 1 else self.tail_per_ms
        return low, high

    @property
    def width(self) -> int:
        """Distance of what is not known, in sequence numbers or milliseconds."""
        low, high = self.head[-1], self.tail[0]
        return high - low if self.is_within_a_ms else max(1, ms_of(high) - ms_of(low))

    @property
    def estimate(self) -> float:
        if self.is_known:
            return float(len(self.known))
        low, high = self.rates()
        return 2 * PROBE_COUNT + (low + high) / 2 * self.width

    @property
    def doubt(self) -> float:
        """By how much the estimate may be wrong: when all were as dense as one end or the other, and a part of it anyway."""
        if self.is_known:
            return 0.0
        low, high = self.rates()
        return (abs(high - low) / 2 + min(low, high) / 8) * self.width

    def places(self, count: int) -> list[int]:
        """IDs that cut what is not known into pieces of equal width."""
        low, high = self.head[-1], self.tail[0]
        if self.is_within_a_ms:
            found = {low + (high - low) * at // count for at in range(1, count)}
        else:
            found = {first_id_of(ms_of(low) + -(-(ms_of(high) - ms_of(low)) * at // count)) for at in range(1, count)}
        return sorted(each for each in found if low < each <= high)

    def at(self, ahead: float) -> int:
        """The ID of about the entry number `ahead`, counted from 0."""
        if self.is_known:
            return self.known[min(int(ahead), len(self.known) - 1)]
        if ahead < PROBE_COUNT:
            return self.head[int(ahead)]
        part = min(1.0, (ahead - PROBE_COUNT) / max(1.0, self.estimate - 2 * PROBE_COUNT))
        low, high = self.head[-1], self.tail[0]
        if self.is_within_a_ms:
            return low + int((high - low) * part)
        return min(high, max(low, first_id_of(ms_of(low) + round((ms_of(high) - ms_of(low)) * part))))


class Density:
    """How the entries of a range lie, estimated from a few of them at each of some hundred places."""

    def __init__(self, connection: Connection, key: bytes, first: int, last: int) -> None:
        self._connection = connection
        self._key = key
        self.probes = 0
        self.pieces = self._pieces([(first, [], last)])

    def refine(self, parts: int, at_most: int) -> None:
        """Look closer until no piece is in doubt by more than a fraction of a part, or the probes are used up.

        at_most  what the range can hold: the length of the stream
        """
        while self.probes < MAX_PROBES:
            estimated = sum(piece.estimate for piece in self.pieces)
            fraction = min(at_most, estimated) / parts / 16
            chosen = {id(each) for each in sorted(self.pieces, key=lambda piece: -piece.doubt)[:PIECES_AT_A_TIME]}
            chosen &= {id(piece) for piece in self.pieces if piece.doubt > fraction}
            if at_most - estimated > fraction * 4:
                # A burst is hidden between ends that are thin: somewhere, so the widest pieces come first.
                unknown = [
                    piece for piece in self.pieces if not piece.is_known and ms_of(piece.end) > ms_of(piece.start)
                ]
                chosen |= {id(each) for each in sorted(unknown, key=lambda piece: -piece.width)[:PIECES_AT_A_TIME]}
            if not chosen:
                return
            cut = [(piece.start, piece.places(CUTS), piece.end) for piece in self.pieces if id(piece) in chosen]
            fresh = self._pieces(cut)
            kept = [piece for piece in self.pieces if id(piece) not in chosen]
            self.pieces = sorted([*kept, *fresh], key=lambda piece: piece.start)

    def _pieces(self, ranges: Sequence[tuple[int, Sequence[int], int]]) -> list[Piece]:
        """The pieces of ranges (start, places to cut, end), probed; those without entries are left out."""
        bounds = []
        for start, places, end in ranges:
            edges = [start, *places, end + 1]
            bounds += [(low, high - 1) for low, high in pairwise(edges) if low < high]
        requests: list[tuple[bytes | str | int, ...]] = []
        for low, high in bounds:
            requests += [
                ("XRANGE", self._key, id_text(low), id_text(high), "COUNT", PROBE_COUNT),
                ("XREVRANGE", self._key, id_text(high), id_text(low), "COUNT", PROBE_COUNT),
            ]
        replies = [[_quick_id(entry[0]) for entry in reply] for reply in self._ask(requests)]
        pieces = [
            Piece(low, high, head, tail[::-1])
            for (low, high), head, tail in zip(bounds, replies[::2], replies[1::2], strict=True)
            if head
        ]
        self._count_in_ms(pieces)
        return pieces

    def _count_in_ms(self, pieces: Sequence[Piece]) -> None:
        """Ask where the millisecond ends that a head breaks off in, and where the one begins that a tail begins in."""
        wanted: list[tuple[Piece, bool]] = []
        requests: list[tuple[bytes | str | int, ...]] = []
        for piece in pieces:
            if piece.is_known or piece.is_within_a_ms:
                continue
            if ms_of(piece.head[-1]) - ms_of(piece.head[EDGE]) <= 1:
                wanted.append((piece, True))
                last = id_text(last_id_of(ms_of(piece.head[-1])))
                requests.append(("XREVRANGE", self._key, last, id_text(piece.head[-1]), "COUNT", 1))
            if ms_of(piece.tail[-EDGE - 1]) - ms_of(piece.tail[0]) <= 1:
                wanted.append((piece, False))
                first = id_text(first_id_of(ms_of(piece.tail[0])))
                requests.append(("XRANGE", self._key, first, id_text(piece.tail[0]), "COUNT", 1))
        for (piece, is_head), reply in zip(wanted, self._ask(requests), strict=True):
            far = _quick_id(reply[0][0]) if reply else piece.head[-1] if is_head else piece.tail[0]
            ids = [each for each in (piece.head if is_head else piece.tail) if ms_of(each) == ms_of(far)] or [far]
            density = (len(ids) - 1) / (ids[-1] - ids[0]) if len(ids) > 1 else 1.0
            per_ms = len(ids) + (far - ids[-1] if is_head else ids[0] - far) * density
            if is_head:
                piece.head_per_ms = per_ms
            else:
                piece.tail_per_ms = per_ms

    def _ask(self, requests: Sequence[tuple[bytes | str | int, ...]]) -> list[Any]:
        self.probes += len(requests)
        return self._connection.pipeline(requests)

    def cuts(self, parts: int) -> list[int]:
        """The IDs at equal shares of the estimated number of entries."""
        sums = [0.0]
        for piece in self.pieces:
            sums.append(sums[-1] + piece.estimate)
        found: list[int] = []
        for part in range(1, parts):
            target = sums[-1] * part / parts
            at = min(bisect_right(sums, target) - 1, len(self.pieces) - 1)
            cut = self.pieces[at].at(target - sums[at])
            if cut > (found[-1] if found else self.pieces[0].head[0]):
                found.append(cut)
        return found


def _quick_id(text: bytes) -> int:
    """An ID as a server writes it."""
    ms, _, seq = text.partition(b"-")
    return int(ms) << 64 | int(seq)
