"""How the entries of a range are distributed, estimated by probes: for servers that cannot report the ID of the n-th entry.

A probe asks for the entries next to an ID. A piece of the range is known by the first few entries in it, its head, and by
the last few, its tail:

    start   head: 1 2 3                      tail: 7 8 9    end
      |-----+++-----------------------------------+++--------|

Where head and tail meet, the piece is known exactly. Elsewhere they show the density at both ends, and the number of
entries is estimated by the mean. Density is entries per millisecond if the piece spans several, otherwise entries per
sequence number, which are mostly consecutive. Pieces whose ends differ most are cut further. As long as fewer entries are
accounted for than the stream has, so are the widest ones, until they are known exactly or the burst in them is found.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from streamd.client.connection import Connection
from streamd.client.points import MAX_ID, MIN_ID, first_id_of, format_entry_id, last_id_of, ms_of

__all__ = ["Density", "id_text"]

PROBE_COUNT = 16
"""Entries that a probe looks at."""

EDGE = PROBE_COUNT // 2
"""This many of them are ignored when the density next to the unknown part is measured."""

MAX_PROBES = 1_500
"""Beyond this number the rest remains an estimate. A probe takes about 0.1 ms, half of it in this process."""

PIECES_AT_A_TIME = 24
CUTS = 3
"""How many pieces are cut in a round trip, and into how many parts each."""


def id_text(number: int) -> str:
    """An ID as a bound of XRANGE. One below the lowest ID makes the range empty."""
    if number < MIN_ID:
        return "0-0"
    return "+" if number >= MAX_ID else format_entry_id(number)


@dataclass
class Piece:
    """A part of the range, with entries at both ends of its unknown part.

    start, end  inclusive
    head, tail  its first and last entries, up to PROBE_COUNT each, in order; the same list when these are all
    head_per_ms, tail_per_ms   how many entries the millisecond has where the head ends, and where the tail starts
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
        """All its entries if it is known; otherwise the first and the last ones."""
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
        """Width of the unknown part, in sequence numbers or milliseconds."""
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
        """By how much the estimate may be wrong: if all of it were as dense as either end, and a share of it in any case."""
        if self.is_known:
            return 0.0
        low, high = self.rates()
        return (abs(high - low) / 2 + min(low, high) / 8) * self.width

    def places(self, count: int) -> list[int]:
        """IDs that cut the unknown part into pieces of equal width."""
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
    """The distribution of the entries of a range, estimated from a few of them in each of some hundred places."""

    def __init__(self, connection: Connection, key: bytes, first: int, last: int) -> None:
        self._connection = connection
        self._key = key
        self.probes = 0
        self.pieces = self._pieces([(first, [], last)])

    def refine(self, parts: int, at_most: int) -> None:
        """Look closer until no piece is in doubt by more than a fraction of a part, or no probes are left.

        at_most  what the range can hold: the length of the stream
        """
        while self.probes < MAX_PROBES:
            estimated = sum(piece.estimate for piece in self.pieces)
            fraction = min(at_most, estimated) / parts / 16
            chosen = {id(each) for each in sorted(self.pieces, key=lambda piece: -piece.doubt)[:PIECES_AT_A_TIME]}
            chosen &= {id(piece) for piece in self.pieces if piece.doubt > fraction}
            if at_most - estimated > fraction * 4:
                # A burst may hide between sparse ends, anywhere, so the widest pieces come first.
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
        """Find the end of the millisecond in which a head ends, and the start of the one in which a tail starts."""
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
