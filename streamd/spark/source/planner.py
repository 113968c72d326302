"""The driver's side of a streaming query: it finds where the next batch ends, by asking the server.

    Planner.initial()                where a new query starts
    Planner.latest(start, ...)       where the batch after `start` ends, cut into parts; None while nothing is new
    Planner.freeze()                 from now on nothing counts as new that comes later (Trigger.AvailableNow)
    Planner.lags()                   what the streams have behind the last batch, as far as known without asking
    Planner.mirror(offset)           move the mirror group, if there is one, to what has been processed

A poll that finds nothing is one round trip, whatever the number of streams:

    XGROUP SETID ...                 only after a batch, and only with a mirror group
    XREAD COUNT 1 STREAMS ...        the first entry behind each position
    SCAN ... TYPE stream             one step, when it is time to look for new streams of a pattern
    XINFO STREAM ...                 each stream, once in CHECK_INTERVAL_S: its reply holds two whole entries

A poll that finds something asks XINFO about these streams in a second one.

Order matters. XREAD comes before XINFO: when XINFO shows that nothing is lost up to now, the entry that XREAD saw is truly
the next one. The batch ends at the last-generated-id that XINFO gave (all that comes later has a higher ID), or inside,
where a limit was reached. Each part starts with an entry that was seen; whoever reads the part checks whether it is still
there (streaming.py).

Where a batch is cut, and where it reaches a limit of entries, streamd reports (STREAMD.SPLIT, two round trips). With other
servers, and for limits in bytes, the entries are scanned, except for a long backlog without limits.

With the option `archive`, a position may lie in the archived part of its stream (`is_archived`): the next batch is then read from
there, until the manifests end at the position (archived_query.py). If entries behind another position are gone, and archived,
the position becomes such a one. As long as a stream has archived entries to read, a batch has no others.

Progress of the mirror group does not wait for Spark's `commit`, which comes a batch late, and never for the last batch of a
run: when Spark asks what comes behind an offset, everything up to it has been processed. The group is never moved forward
by anything else, so entries that may have to be replayed are never acknowledged.

State between polls: the connection, the streams found by the pattern, where streams start that are not in an offset yet
(`_fresh`), positions corrected after a loss (`_corrected`), targets, and caches. None of it is essential: the process
may die.
"""

from __future__ import annotations

import itertools
import logging
import os
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from streamd.client.client_errors import DataLossError, ServerError, UnreachableError
from streamd.client.connection import Connection, Link, server_features
from streamd.client.key_names import stream_key, stream_name
from streamd.client.points import MAX_ID, format_entry_id, parse_entry_id
from streamd.client.replies import pairs
from streamd.client.stream_info import StreamInfo
from streamd.spark.source.offsets import Lag, Offset, Position, end_of_stream, find_loss, inside_stream
from streamd.transfer.partitions import SplitForbiddenError, ask_slices, find_streams, refuse_missing
from streamd.transfer.ranges import RangeScan, scan_range
from streamd.transfer.read_options import SourceOptions

if TYPE_CHECKING:
    from streamd.archive.manifest_log import ManifestLog
    from streamd.spark.source.archived_query import QueryArchive

__all__ = ["ADVICE", "Planner"]

log = logging.getLogger(__name__)

CHECK_INTERVAL_S = 1.0
"""How often XINFO checks all streams: the longest time for which the loss of an idle stream remains unnoticed."""

SCAN_COUNT = 1000
"""COUNT of SCAN."""

SCAN_LIMIT = 500_000
"""Up to this number of entries a batch without limits is scanned before it is read: about 0.2 s."""

MAX_STEP = 1000
"""Maximum number of entries between the places where a batch may be cut."""

ADVICE = "; set failOnDataLoss to false to continue with what is there"


@dataclass
class Candidate:
    """A stream with something to read.

    position  where reading starts
    first     the first entry behind that
    end       the stream's state when the end of the batch was chosen: reading goes up to `end.last_generated`
    """

    position: Position
    first: int
    end: StreamInfo

    @property
    def estimate(self) -> int | None:
        """How many entries there are to read, at most; None when that is not known."""
        known = self.position.is_caught_up and self.end.entries_added is not None and self.position.added is not None
        if known:
            return int(self.end.entries_added or 0) - int(self.position.added or 0)
        return self.end.length if self.end.has_none_up_to(self.position.at) else None


@dataclass
class Scanned:
    """Result of scanning the front of a candidate: `marks` are places to cut, as (entries before, ID)."""

    count: int = 0
    bytes: int = 0
    last: int = 0
    is_complete: bool = False
    marks: list[tuple[int, int]] = field(default_factory=list)

    def add(self, scan: RangeScan, step: int) -> None:
        self.marks += [(self.count + n * step, mark) for n, mark in enumerate(scan.marks)]
        self.count += scan.count
        self.bytes += scan.bytes
        self.is_complete = scan.is_complete
        if scan.count:
            self.last = scan.last_id

    def cuts(self, rows: int, *, is_strict: bool) -> tuple[tuple[int, int | None], ...]:
        """Parts of about this number of entries: equal ones as far as the marks allow; if strict, none larger."""
        if is_strict:
            chosen = self._greedy(rows)
        else:
            parts = max(1, -(-self.count // rows))
            chosen = sorted({self._nearest(self.count * part // parts) for part in range(parts)})
        bounds = [*(self.marks[at][0] for at in chosen), self.count]
        return tuple((self.marks[at][1], bounds[n + 1] - bounds[n]) for n, at in enumerate(chosen))

    def _nearest(self, target: int) -> int:
        """The mark with about this number of entries before it."""
        at = bisect_right(self.marks, target, key=lambda mark: mark[0]) - 1
        if at + 1 < len(self.marks) and self.marks[at + 1][0] - target < target - self.marks[at][0]:
            return at + 1
        return at

    def _greedy(self, rows: int) -> list[int]:
        """Marks that are as far apart as allowed."""
        found, at = [], 0
        while at < len(self.marks):
            found.append(at)
            before = self.marks[at][0]
            if self.count - before <= rows:
                break
            at = max(at + 1, bisect_right(self.marks, before + rows, lo=at + 1, key=lambda mark: mark[0]) - 1)
        return found


@dataclass(frozen=True)
class Chosen:
    """What a batch reads of a candidate: up to `last`, cut into `parts` (first entry, entries).

    is_complete  nothing is left to read, as far as is known
    """

    last: int
    is_complete: bool
    parts: tuple[tuple[int, int | None], ...]


class Replan(Exception):  # not an error: the planner looks again
    """Entries were removed while a batch was being planned."""


class Planner:
    """See the head of the file. Used by one thread."""

    def __init__(self, options: SourceOptions, *, clock: Callable[[], float] = time.monotonic) -> None:
        if (
            options.archive is not None
        ):  # a server that reads the archive itself would pass off its entries as live ones
            options = replace(options, connection=options.connection.live_only())
        self._options = options
        self._clock = clock
        self._link = Link(options.connection)
        self._initial: Offset | None = None
        self._found: set[str] | None = None  # streams of the pattern; None: not looked for yet
        self._cursor: bytes | None = None  # of the SCAN in progress; None: there is none
        self._scanned_at = 0.0
        self._checked_at = -CHECK_INTERVAL_S
        self._fresh: dict[str, Position] = {}
        self._corrected: dict[str, tuple[Position, Position]] = {}  # as in the offset, and as corrected
        self._targets: Mapping[str, StreamInfo | None] | None = None
        self._archive: QueryArchive | None = None
        if options.archive is not None:
            from streamd.spark.source.archived_query import QueryArchive  # needs PyArrow's readers

            self._archive = QueryArchive(options, options.archive)
        self._waiting_since: float | None = None  # for minEntriesPerTrigger
        self._lags: dict[str, Lag] = {}  # as of the last poll that looked at the stream
        self._mirrored: dict[str, int] = {}

    # --- What Spark asks for ----------------------------------------------------------------------------------------------

    def initial(self) -> Offset:
        """Where the query starts without a checkpoint. The same at every call."""
        if self._initial is None:
            self._initial = self._link.ask(self._find_initial)
        return self._initial

    def freeze(self) -> None:
        """Record how far the streams go: `latest` will never go further."""
        self._targets = self._link.ask(self._find_targets)

    def latest(self, start: Offset, *, is_limited: bool) -> Offset | None:
        """Where the batch after `start` ends; None when there is nothing to read now.

        is_limited  the options' limits apply
        Raises DataLossError if the options say so.
        """
        return self._link.ask(lambda connection: self._find_latest(connection, start, is_limited))

    def lags(self) -> Mapping[str, Lag]:
        """What each stream has behind the end of the last batch, as seen by the polls so far."""
        return self._lags

    def mirror(self, offset: Offset) -> None:
        """Move the mirror group to an offset up to which everything has been processed."""
        self._link.ask(lambda connection: self._send_mirror(connection, offset))

    def close(self) -> None:
        self._link.close()

    # --- Which streams ----------------------------------------------------------------------------------------------------

    def _watched(self, connection: Connection, start: Offset) -> list[str]:
        """The streams to read, in the order of their names."""
        if self._options.stream_pattern is None:
            return sorted(self._options.named_streams)
        if self._found is None:
            self._find_all(connection)
        return sorted({*(self._found or ()), *start.positions})

    def _find_all(self, connection: Connection) -> None:
        """Find the streams of the pattern, scanning all keys."""
        if self._options.stream_pattern is None:
            return
        if connection.options.cluster_nodes:
            # Slots may move meanwhile, and a stream that is overlooked now would be taken for a new one later.
            self._found, self._scanned_at = set(find_streams(connection, self._options)), self._clock()
        else:
            self._cursor = b"0"
            while self._cursor is not None:
                self._take_found(connection.command(*self._scan_request()))
        if self._archive is not None:
            self._found = (self._found or set()) | self._archive.streams()

    def _scan_request(self) -> tuple[bytes | str | int, ...]:
        pattern = stream_key(self._options.stream_pattern or "")
        return ("SCAN", self._cursor or b"0", "MATCH", pattern, "COUNT", SCAN_COUNT, "TYPE", "stream")

    def _take_found(self, reply: list[Any]) -> None:
        cursor, keys = reply
        self._found = (self._found or set()) | {stream_name(key) for key in keys}
        self._cursor = None if cursor == b"0" else cursor
        if self._cursor is None:
            self._scanned_at = self._clock()

    def _is_time_to_scan(self) -> bool:
        if self._options.stream_pattern is None or self._targets is not None:
            return False
        return self._cursor is not None or self._clock() - self._scanned_at >= self._options.pattern_interval_ms / 1000

    # --- Where streams start ----------------------------------------------------------------------------------------------

    def _find_initial(self, connection: Connection) -> Offset:
        self._found = None
        names = self._watched(connection, Offset())
        if self._options.fail_on_missing:
            archived = self._archive.streams() if self._archive is not None else ()
            refuse_missing(connection, [each for each in self._options.named_streams if each not in archived])
        offset = Offset(self._find_starts(connection, names, is_new_query=True))
        if self._options.group is not None:
            self._create_mirror(connection, offset)
        return offset

    def _find_starts(self, connection: Connection, names: Sequence[str], *, is_new_query: bool) -> dict[str, Position]:
        """Where reading of streams starts. A stream found later is read from its first entry even if the start is `latest`:
        all of it is new."""
        now_ms = int(time.time() * 1000)
        starts = {}
        for name in names:
            bound = self._options.start_of(name)
            is_from_first = bound.is_earliest or (bound.is_latest and not is_new_query)
            starts[name] = 0 if is_from_first else bound.resolve(now_ms)
        # The entry is requested after XINFO, so one that arrives between the two is above XINFO's last ID.
        inside = [name for name, start in starts.items() if 0 < start < MAX_ID]
        requests: list[tuple[bytes | str | int, ...]] = [("XINFO", "STREAM", stream_key(name)) for name in names]
        requests += [("XRANGE", stream_key(name), format_entry_id(starts[name]), "+", "COUNT", 1) for name in inside]
        replies = connection.pipeline(requests, raise_errors=False)
        infos = {name: self._parse_info(name, reply) for name, reply in zip(names, replies, strict=False)}
        if is_new_query:
            for name in names:
                if infos[name] is None:
                    log.warning("there is no stream %s yet: the query waits for it", name)
        entries = dict(zip(inside, replies[len(names) :], strict=True))
        found = {name: _start(starts[name], infos[name], entries.get(name)) for name in names}
        if self._archive is not None:
            in_archive = (name for name in names if starts[name] != MAX_ID)
            found.update((name, _archived(infos[name], max(starts[name] - 1, 0))) for name in in_archive)
        return found

    def _find_targets(self, connection: Connection) -> dict[str, StreamInfo | None]:
        self._found = None
        names = self._watched(connection, self._initial or Offset())
        return self._infos(connection, names)

    # --- Polling ----------------------------------------------------------------------------------------------------------

    def _find_latest(self, connection: Connection, start: Offset, is_limited: bool) -> Offset | None:
        for _attempt in range(10):
            try:
                return self._poll(connection, start, is_limited)
            except (Replan, SplitForbiddenError):
                continue
        raise UnreachableError("entries were removed repeatedly while a batch was being planned")

    def _poll(self, connection: Connection, start: Offset, is_limited: bool) -> Offset | None:
        names = self._watched(connection, start)
        positions = self._positions(connection, start, names)
        first, infos = self._ask_for_news(connection, start, positions)
        missing = [name for name in first if name not in infos]
        if missing:
            infos.update(self._infos(connection, missing))
        self._check(positions, start, infos)
        if self._archive is not None and (
            changed := self._plan_archived(connection, self._archive, start, positions, is_limited)
        ):
            return Offset({**start.positions, **positions}).advanced(changed)
        live = {name: info for name, info in infos.items() if not positions[name].is_archived}
        self._lags.update((name, Lag.of(positions[name], first.get(name), info)) for name, info in live.items())
        candidates = self._candidates(positions, first, infos)
        if not candidates or (is_limited and not self._is_enough(connection, candidates)):
            return None
        self._waiting_since = None
        changed = self._plan(connection, candidates, is_limited)
        self._lags.update((name, Lag.of(each, each.next, infos[name])) for name, each in changed.items())
        return Offset({**start.positions, **positions}).advanced(changed)

    def _positions(self, connection: Connection, start: Offset, names: Sequence[str]) -> dict[str, Position]:
        """Position of each stream: from the offset, unless corrected after a loss; new streams at their start."""
        fresh = [name for name in names if name not in start.positions and name not in self._fresh]
        if fresh:
            made = self._find_starts(connection, fresh, is_new_query=False)
            self._fresh.update(made)
            if self._options.group is not None:
                self._create_mirror(connection, Offset(made))
        found = {}
        for name in names:
            position = start.positions.get(name)
            if position is None:
                position = self._fresh[name]
            wrong, corrected = self._corrected.get(name, (None, None))
            found[name] = corrected if corrected is not None and wrong == position else position
        return found

    def _ask_for_news(
        self, connection: Connection, start: Offset, positions: Mapping[str, Position]
    ) -> tuple[dict[str, int], dict[str, StreamInfo | None]]:
        """The round trip of every poll: the first entry behind each position that has one, and what XINFO says."""
        now = self._clock()
        names = list(positions)
        moved = self._unmirrored(start)
        requests = [self._setid_request(name, start.positions[name]) for name in moved]
        requests.append(_xread_request(positions))
        if is_scanning := self._is_time_to_scan():
            requests.append(self._scan_request())
        if is_checking := now - self._checked_at >= CHECK_INTERVAL_S:
            requests += [("XINFO", "STREAM", stream_key(name)) for name in names]
        if not names:
            requests = [self._scan_request()] if is_scanning else []
        replies = iter(connection.pipeline(requests, raise_errors=False))
        self._take_mirrored(connection, start, list(itertools.islice(replies, len(moved))) if names else [], moved)
        news = next(replies) if names else None
        if is_scanning:
            self._take_found(_raised(next(replies)))
        infos = {}
        if is_checking and names:
            infos = {name: self._parse_info(name, reply) for name, reply in zip(names, replies, strict=True)}
            self._checked_at = now
        if isinstance(news, ServerError) and news.code == "WRONGTYPE":
            # A key of another type makes the whole request fail. XINFO shows which one it is.
            infos = self._infos(connection, names)
            streams = {name: each for name, each in positions.items() if infos[name] is not None}
            news = connection.command(*_xread_request(streams)) if streams else None
        return _first_entries(_raised(news)), infos

    def _infos(self, connection: Connection, names: Iterable[str]) -> dict[str, StreamInfo | None]:
        names = list(names)
        replies = connection.pipeline([("XINFO", "STREAM", stream_key(name)) for name in names], raise_errors=False)
        return {name: self._parse_info(name, reply) for name, reply in zip(names, replies, strict=True)}

    def _parse_info(self, name: str, reply: Any) -> StreamInfo | None:
        """The reply of XINFO; None if there is no such stream."""
        if isinstance(reply, ServerError):
            if reply.code == "WRONGTYPE":
                if self._options.stream_pattern is not None:
                    return None
                raise ServerError(f"{reply.text} (key {name} is not a stream)")
            if reply.is_missing_key:
                return None
            raise reply
        return StreamInfo.parse(reply)

    # --- Loss -------------------------------------------------------------------------------------------------------------

    def _check(self, positions: Mapping[str, Position], start: Offset, infos: Mapping[str, StreamInfo | None]) -> None:
        """Raise DataLossError for the first stream that lost entries; or continue with what is left (then Replan)."""
        is_corrected = False
        for name, info in infos.items():
            loss = find_loss(name, positions[name], info)
            if loss is None:
                continue
            position, is_corrected = positions[name], True
            archive = None if loss.is_other_stream else self._archive
            if archive is not None and archive.log(name).boundary > position.at:
                self._correct(start, name, _archived(info, position.at))
                continue
            if self._options.fail_on_data_loss:
                raise DataLossError(loss.text + ADVICE)
            log.warning("%s; continuing with what is there", loss.text)
            self._correct(start, name, _corrected(position, info, loss.is_other_stream))
        if is_corrected:
            raise Replan

    def _correct(self, start: Offset, name: str, position: Position) -> None:
        """Read a stream from another position than that of the offset."""
        self._corrected[name] = (start.positions.get(name) or self._fresh[name], position)

    # --- The archive ------------------------------------------------------------------------------------------------------

    def _plan_archived(
        self,
        connection: Connection,
        archive: QueryArchive,
        start: Offset,
        positions: Mapping[str, Position],
        is_limited: bool,
    ) -> dict[str, Position]:
        """The positions after a batch of archived entries; empty if nothing archived can be read now.

        Raises Replan once a position is where the archive ends: it is corrected then.
        """
        from streamd.spark.source.archived_query import archived_lag, rows_above

        behind = self._behind_archive(connection, archive, start, positions)
        left = self._options.max_entries_per_trigger if is_limited else None
        rows = sum(rows_above(manifests, positions[name].at) for name, (manifests, _) in behind.items())
        part_rows = self._rows_of_part(rows if left is None else min(rows, left))
        found = {}
        for name in sorted(behind, key=lambda each: positions[each].at):
            (manifests, info), position = behind[name], positions[name]
            target = None if self._targets is None else self._targets.get(name)
            high = MAX_ID if target is None else target.last_generated
            batch = None if left == 0 else archive.plan(manifests, position.at, high, left, part_rows)
            following = position.next
            if batch is not None:
                left = None if left is None else left - batch.count
                found[name] = replace(_archived(info, batch.last), cuts=batch.cuts)
                following = batch.following
            self._lags[name] = archived_lag(manifests, found.get(name, position).at, following, info)
        return found

    def _behind_archive(
        self, connection: Connection, archive: QueryArchive, start: Offset, positions: Mapping[str, Position]
    ) -> dict[str, tuple[ManifestLog, StreamInfo | None]]:
        """The streams that have archived entries behind their position: their manifests, and the stream."""
        found = {}
        for name in (each for each in positions if positions[each].is_archived):
            at = positions[name].at
            # In this order: see archived_query.py.
            info, live = self._live_position(connection, name, at)
            manifests = archive.checked_log(connection, name)
            if any(file.last > at for file in manifests.files):
                found[name] = (manifests, info)
            else:
                self._correct(start, name, _archived(info, manifests.boundary) if manifests.boundary > at else live)
        if len(found) < sum(each.is_archived for each in positions.values()):
            raise Replan
        return found

    def _live_position(self, connection: Connection, name: str, at: int) -> tuple[StreamInfo | None, Position]:
        """A stream, and the position in it above which no archived entries are left."""
        requests = [
            ("XINFO", "STREAM", stream_key(name)),
            ("XRANGE", stream_key(name), format_entry_id(at + 1), "+", "COUNT", 1),
        ]
        reply, entries = connection.pipeline(requests, raise_errors=False)
        info = self._parse_info(name, reply)
        return info, _start(at + 1, info, entries)

    # --- The next batch ---------------------------------------------------------------------------------------------------

    def _candidates(
        self, positions: Mapping[str, Position], first: Mapping[str, int], infos: Mapping[str, StreamInfo | None]
    ) -> dict[str, Candidate]:
        """The streams with something to read, the one with the oldest entry first."""
        ends = infos if self._targets is None else self._targets
        found = {}
        for name in sorted(first, key=lambda each: (first[each], each)):
            end = ends.get(name)
            if end is not None and first[name] <= end.last_generated and not positions[name].is_archived:
                found[name] = Candidate(positions[name], first[name], end)
        return found

    def _is_enough(self, connection: Connection, candidates: Mapping[str, Candidate]) -> bool:
        """minEntriesPerTrigger: whether there is enough, or the wait was long enough."""
        wanted = self._options.min_entries_per_trigger
        if wanted is None or self._targets is not None:
            return True
        now = self._clock()
        if self._waiting_since is None:
            self._waiting_since = now
        if now - self._waiting_since >= self._options.max_trigger_delay_ms / 1000:
            return True
        for name, each in candidates.items():
            estimate = each.estimate
            # An estimate is an upper bound: even if it suffices, deleted entries may make the count smaller.
            if estimate is None or not each.position.is_caught_up:
                estimate = self._count(connection, name, each, wanted)
            wanted -= estimate
            if wanted <= 0:
                return True
        return False

    def _plan(
        self, connection: Connection, candidates: Mapping[str, Candidate], is_limited: bool
    ) -> dict[str, Position]:
        """The position of each stream at the end of the batch, with the parts that lead there."""
        entries = self._options.max_entries_per_trigger if is_limited else None
        size = self._options.max_bytes_per_trigger if is_limited else None
        if entries is None and size is None:
            return self._plan_all(connection, candidates)
        if size is None and _can_split(connection):
            chosen = self._ask_shares(connection, candidates, entries)
        else:
            chosen = self._cut(self._scan_shares(connection, candidates, entries, size, self._step(entries)))
        return self._positions_behind(connection, candidates, chosen)

    def _plan_all(self, connection: Connection, candidates: Mapping[str, Candidate]) -> dict[str, Position]:
        """Everything there is. Small amounts that need no cutting are not scanned."""
        estimates = [each.estimate for each in candidates.values()]
        total = None if None in estimates else sum(each or 0 for each in estimates)
        is_cut = self._options.min_partitions is not None or self._options.max_records_per_partition is not None
        step = self._step(total)
        found: dict[str, Position] = {}
        scans: dict[str, Scanned] = {}
        rest: dict[str, Candidate] = {}
        for name, each in candidates.items():
            estimate = each.estimate
            if not is_cut and estimate is not None and estimate <= self._options.batch_size:
                found[name] = end_of_stream(each.end, ((each.first, estimate),))
            else:
                rest[name] = each
        if rest and _can_split(connection):
            return {**found, **self._positions_behind(connection, rest, self._ask_shares(connection, rest, None))}
        for name, each in rest.items():
            estimate = each.estimate
            if self._options.max_records_per_partition is None and (estimate is None or estimate > SCAN_LIMIT):
                found[name] = end_of_stream(each.end, self._uncounted_cuts(connection, name, each, estimate, total))
                continue
            scanned = Scanned()
            scanned.add(self._scan(connection, name, each, each.first, step), step)
            scans[name] = scanned
        return {**found, **self._positions_behind(connection, rest, self._cut(scans))}

    def _ask_shares(
        self, connection: Connection, candidates: Mapping[str, Candidate], entries: int | None
    ) -> dict[str, Chosen]:
        """As `_scan_shares` and `_cut`, by asking a server that can count and cut."""
        names = list(candidates)
        bounds = [(name, candidates[name].first, candidates[name].end.last_generated) for name in names]
        limits = None if entries is None else [entries] * len(names)
        whole = dict(zip(names, ask_slices(connection, bounds, [1] * len(names), limits), strict=True))
        if any(not slices or slices[0].first != candidates[name].first for name, slices in whole.items()):
            raise Replan
        counts = {name: slices[0].count for name, slices in whole.items()}
        shares = counts if entries is None else _shares(counts, entries)
        rows = self._rows_of_part(sum(shares.values()))
        bounds = [each for each in bounds if each[0] in shares]
        cut = ask_slices(
            connection,
            bounds,
            [-(-shares[name] // rows) for name, _, _ in bounds],
            [shares[name] for name, _, _ in bounds],
        )
        found = {}
        for (name, first, _), slices in zip(bounds, cut, strict=True):
            if not slices or slices[0].first != first:
                raise Replan
            is_complete = shares[name] == counts[name] and counts[name] != entries
            found[name] = Chosen(slices[-1].last, is_complete, tuple((each.first, each.count) for each in slices))
        return found

    def _count(self, connection: Connection, name: str, candidate: Candidate, limit: int) -> int:
        """How many entries there are to read, up to a limit."""
        if _can_split(connection):
            (slices,) = ask_slices(connection, [(name, candidate.first, candidate.end.last_generated)], [1], [limit])
            return sum(each.count for each in slices)
        return self._scan(connection, name, candidate, candidate.first, 0, limit=limit).count

    def _uncounted_cuts(
        self, connection: Connection, name: str, candidate: Candidate, estimate: int | None, total: int | None
    ) -> tuple[tuple[int, int | None], ...]:
        """Parts of a backlog that is too long to scan, found by probes."""
        from streamd.transfer.partitions import Extent, find_cuts

        first, end = candidate.first, candidate.end
        parts = 4 * self._parallelism  # more than run at a time, so that uneven parts average out
        if estimate is not None and total:
            parts = max(1, -(-parts * estimate // total))
        cuts = find_cuts(connection, Extent(name, first, end.last_generated, end.length, first), parts)
        return ((first, None), *((cut, None) for cut in cuts if first < cut <= end.last_generated))

    def _scan(
        self,
        connection: Connection,
        name: str,
        candidate: Candidate,
        start: int,
        step: int,
        *,
        limit: int | None = None,
        size: int | None = None,
    ) -> RangeScan:
        """Scan entries from `start` on. Raises Replan when the first one has changed."""
        scan = scan_range(
            self._options.connection,
            stream_key(name),
            start,
            candidate.end.last_generated,
            every=step,
            limit=limit,
            max_bytes=size,
            fetch_size=self._options.fetch_size,
            connection=connection,
        )
        if start == candidate.first and scan.first_id != candidate.first:
            raise Replan
        return scan

    def _scan_shares(
        self,
        connection: Connection,
        candidates: Mapping[str, Candidate],
        entries: int | None,
        size: int | None,
        step: int,
    ) -> dict[str, Scanned]:
        """Scan as much as the limits allow, in equal shares; what one stream does not use is given to others.

        When not even one entry of each stream fits, those with the oldest entries come first.
        """
        left_entries = MAX_ID if entries is None else entries
        left_size = MAX_ID if size is None else size
        found: dict[str, Scanned] = {}
        active = list(itertools.islice(candidates, min(left_entries, len(candidates))))
        while active and left_entries > 0 and left_size > 0:
            share = max(1, left_entries // len(active))
            size_share = max(1, left_size // len(active))
            more = []
            for name in active:
                if left_entries <= 0 or left_size <= 0:
                    break
                each, scanned = candidates[name], found.get(name) or Scanned()
                start = scanned.last + 1 if scanned.count else each.first
                limit = None if entries is None else min(share, left_entries)
                scan = self._scan(
                    connection, name, each, start, step, limit=limit, size=None if size is None else size_share
                )
                if found and scan.bytes > left_size:
                    continue  # a single entry exceeds what is left: next time
                scanned.add(scan, step)
                found[name] = scanned
                left_entries -= scan.count
                left_size -= scan.bytes
                if not scan.is_complete:
                    more.append(name)
            active = more
        return {name: each for name, each in found.items() if each.count}

    def _step(self, expected: int | None) -> int:
        """Entries between the places where the batch may be cut."""
        step = MAX_STEP
        if expected is not None:
            step = min(step, max(1, expected // (8 * self._parallelism)))
        most = self._options.max_records_per_partition
        if most is not None:
            # Whole steps give full parts.
            step = most // -(-most // min(step, most))
        return step

    @property
    def _parallelism(self) -> int:
        return self._options.min_partitions or os.cpu_count() or 1

    def _rows_of_part(self, total: int) -> int:
        """How many entries a part of a batch should have."""
        least = 1 if self._options.min_partitions is not None else self._options.batch_size
        rows = max(least, -(-total // self._parallelism))
        return min(rows, self._options.max_records_per_partition or rows)

    def _cut(self, scans: Mapping[str, Scanned]) -> dict[str, Chosen]:
        """What was scanned, cut into parts."""
        rows = self._rows_of_part(sum(each.count for each in scans.values()))
        is_strict = self._options.max_records_per_partition is not None
        return {
            name: Chosen(each.last, each.is_complete, each.cuts(rows, is_strict=is_strict))
            for name, each in scans.items()
        }

    def _positions_behind(
        self, connection: Connection, candidates: Mapping[str, Candidate], chosen: Mapping[str, Chosen]
    ) -> dict[str, Position]:
        """Positions after what a batch reads."""
        inside = [name for name, each in chosen.items() if not each.is_complete]
        requests: list[tuple[bytes | str | int, ...]] = [
            ("XRANGE", stream_key(name), format_entry_id(chosen[name].last + 1), "+", "COUNT", 1) for name in inside
        ]
        following = dict(zip(inside, connection.pipeline(requests), strict=True))
        found = {}
        for name, each in chosen.items():
            candidate = candidates[name]
            if each.is_complete:
                found[name] = end_of_stream(candidate.end, each.parts)
                continue
            entries = following[name]
            behind = parse_entry_id(entries[0][0]) if entries else None
            if behind is not None and behind > candidate.end.last_generated:
                behind = None  # it was added after the stream was looked at
            found[name] = (
                end_of_stream(candidate.end, each.parts)
                if behind is None
                else inside_stream(candidate.position, candidate.end, each.last, behind, each.parts)
            )
        return found

    # --- The mirror group -------------------------------------------------------------------------------------------------

    def _create_mirror(self, connection: Connection, offset: Offset) -> None:
        """Create missing groups; move one that is ahead back, but never one that is behind forward."""
        group = self._options.group or ""
        names = [name for name, each in offset.positions.items() if not each.is_blank]
        made = connection.pipeline(
            [self._group_request("CREATE", name, offset.positions[name]) for name in names], raise_errors=False
        )
        there = []
        for name, reply in zip(names, made, strict=True):
            if isinstance(reply, ServerError) and reply.code == "BUSYGROUP":
                there.append(name)
            elif isinstance(reply, ServerError) and not _is_missing(reply):
                raise reply
        groups = connection.pipeline([("XINFO", "GROUPS", stream_key(name)) for name in there])
        behind = []
        for name, reply in zip(there, groups, strict=True):
            for each in reply:
                fields = pairs(each)
                if fields[b"name"] == group.encode() and (
                    parse_entry_id(fields[b"last-delivered-id"]) > offset.positions[name].at
                ):
                    behind.append(self._setid_request(name, offset.positions[name]))
        connection.pipeline(behind)

    def _unmirrored(self, offset: Offset) -> list[str]:
        """Streams whose group is not at the offset."""
        if self._options.group is None:
            return []
        watched = self._options.named_streams if self._options.stream_pattern is None else offset.positions
        positions = ((name, offset.positions.get(name)) for name in sorted(watched))
        return [name for name, each in positions if each and not each.is_blank and self._mirrored.get(name) != each.at]

    def _send_mirror(self, connection: Connection, offset: Offset) -> None:
        moved = self._unmirrored(offset)
        requests = [self._setid_request(name, offset.positions[name]) for name in moved]
        self._take_mirrored(connection, offset, connection.pipeline(requests, raise_errors=False), moved)

    def _take_mirrored(
        self, connection: Connection, offset: Offset, replies: Sequence[Any], moved: Sequence[str]
    ) -> None:
        """Read the replies to the SETIDs; recreate groups that are gone."""
        for name, reply in zip(moved, replies, strict=True):
            if isinstance(reply, ServerError):
                if reply.code == "NOGROUP":
                    connection.command(*self._group_request("CREATE", name, offset.positions[name]))
                elif not _is_missing(reply):
                    raise reply
            self._mirrored[name] = offset.positions[name].at

    def _setid_request(self, name: str, position: Position) -> tuple[bytes | str | int, ...]:
        return self._group_request("SETID", name, position)

    def _group_request(self, verb: str, name: str, position: Position) -> tuple[bytes | str | int, ...]:
        request: tuple[bytes | str | int, ...] = (
            "XGROUP", verb, stream_key(name), self._options.group or "", format_entry_id(position.at)
        )  # fmt: skip
        return request if position.read is None else (*request, "ENTRIESREAD", position.read)


# --- Parts of the above that need no state --------------------------------------------------------------------------------


def _start(start: int, info: StreamInfo | None, entries: Any) -> Position:
    """The position before the first ID that is to be read.

    start    that ID; 0: the first entry; MAX_ID: only what comes later
    entries  the reply of an XRANGE from there, made after `info`
    """
    if info is None:
        return Position(at=0 if start == MAX_ID else max(start - 1, 0), read=0 if start in (0, MAX_ID) else None)
    if start == MAX_ID:
        return end_of_stream(info)
    if start == 0:
        following = info.first_entry
    else:
        if isinstance(entries, ServerError):
            raise entries
        following = parse_entry_id(entries[0][0]) if entries else None
    at = max(start - 1, 0)
    if following is not None and following <= info.last_generated:
        read = info.entries_added - info.length if start == 0 and info.entries_added is not None else None
        return Position(at=at, last=info.last_generated, added=info.entries_added, read=read, next=following)
    if at <= info.last_generated:
        return end_of_stream(info)
    return Position(at=at, last=info.last_generated, added=info.entries_added, read=None, next=None)


def _archived(info: StreamInfo | None, at: int) -> Position:
    """The position behind which entries may be in the archive only."""
    info = info or StreamInfo(length=0, last_generated=0, first_entry=None)
    return Position(at=at, last=info.last_generated, added=info.entries_added, read=None, is_archived=True)


def _can_split(connection: Connection) -> bool:
    """Whether the server can count and cut ranges."""
    return server_features(connection).has_streamd_helpers


def _shares(counts: Mapping[str, int], limit: int) -> dict[str, int]:
    """How many entries to take of each stream: equal shares; what one does not use is given to others.

    When not even one entry of each fits, the first streams get one.
    """
    found: dict[str, int] = dict.fromkeys(itertools.islice(counts, limit), 0)
    active, left = list(found), limit
    while active and left > 0:
        share = max(1, left // len(active))
        for name in active:
            taken = min(share, left, counts[name] - found[name])
            found[name] += taken
            left -= taken
        active = [name for name in active if found[name] < counts[name]]
    return {name: count for name, count in found.items() if count}


def _corrected(position: Position, info: StreamInfo | None, is_other_stream: bool) -> Position:
    """Where to continue after a loss. In a recreated stream: at its start if its IDs are lower than what was read,
    otherwise after what was read, since IDs usually come from the clock."""
    if info is None:
        return Position()
    if is_other_stream and info.last_generated < position.at:
        return _start(0, info, None)
    following = info.first_entry if info.first_entry is not None and info.first_entry > position.at else None
    return Position(at=position.at, last=info.last_generated, added=info.entries_added, read=None, next=following)


def _xread_request(positions: Mapping[str, Position]) -> tuple[bytes | str | int, ...]:
    keys = [stream_key(name) for name in positions]
    ids = [format_entry_id(each.at) for each in positions.values()]
    return ("XREAD", "COUNT", 1, "STREAMS", *keys, *ids)


def _first_entries(reply: Any) -> dict[str, int]:
    """The ID of the first entry of each stream in an XREAD reply."""
    return {stream_name(key): parse_entry_id(entries[0][0]) for key, entries in reply or ()}


def _raised(reply: Any) -> Any:
    if isinstance(reply, ServerError):
        raise reply
    return reply


def _is_missing(error: ServerError) -> bool:
    """The key is not there."""
    return "requires the key to exist" in error.text or error.is_missing_key
