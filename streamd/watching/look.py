"""What a server says of itself and of its streams, read at a bounded cost: a `Look`.

    reader = Reader(Place.from_url("redis://localhost"), Limits())
    look = reader.look()
    look.streams[b"orders"].groups[0].lag

Works with Redis 7.0 and newer, Valkey and streamd. Everything is asked in pipelines of a bounded length, so that the server serves
others in between. What the user may not ask, or the server does not know, is noted in `refused` and left out.

Cost of a look: the keys are scanned once in `RESCAN_S` (up to `Limits.keys` of them); of each stream XINFO STREAM, MEMORY USAGE,
PTTL and XINFO GROUPS; of each group XPENDING, XINFO CONSUMERS and, unless it has read all, one entry.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol, TypeVar

from streamd.client.archive_runs import ArchiveRun, parse_runs, runs_key
from streamd.client.client_errors import ServerError
from streamd.client.connection import Reply, dial
from streamd.client.key_names import stream_name
from streamd.client.place import Place
from streamd.client.replies import as_text, text_map
from streamd.entry_id import parse_id
from streamd.stream_state import ConsumerState, GroupState, StreamState

__all__ = ["LargeKey", "Limits", "Look", "PendingEntry", "Reader", "Request", "Rules", "SlowCommand"]

PER_SCAN = 1000
PER_PIPELINE = 200
RESCAN_S = 30.0

Request = Sequence[str | bytes | int]
T = TypeVar("T")


NO_REFUSALS = ("NOGROUP", "WRONGTYPE", "MOVED", "ERR no such key", "ERR invalid start ID")
"""What is said when a key or a group has gone meanwhile, a node of a cluster does not have a key, or nothing can follow an ID."""


@dataclass(frozen=True)
class Limits:
    """How much is looked at.

    match      pattern of keys
    keys       keys that are scanned
    streams    streams that are looked at
    consumers  consumers of each group
    """

    match: str = "*"
    keys: int = 100_000
    streams: int = 1000
    consumers: int = 100


@dataclass
class Look:
    """What a server said at a moment.

    at_s          when, by a clock of this machine that does not jump
    now_ms        the same in Unix time by the clock of the server, which is that of entry IDs
    round_trip_s  the time of a request
    info          the fields of INFO
    streams       by key
    is_whole      there are no streams beyond the limits
    refused       what was not answered: the request's name and the error
    """

    at_s: float
    now_ms: int
    round_trip_s: float
    info: dict[str, str]
    streams: dict[bytes, StreamState] = field(default_factory=dict)
    is_whole: bool = True
    refused: dict[str, str] = field(default_factory=dict)

    def number(self, name: str) -> int:
        """A field of INFO; 0 if there is none."""
        text = self.info.get(name, "")
        return int(float(text)) if text.replace(".", "", 1).replace("-", "", 1).isdecimal() else 0

    @property
    def is_replica(self) -> bool:
        return self.info.get("role") == "slave"

    def groups(self) -> Iterator[tuple[StreamState, GroupState]]:
        for stream in self.streams.values():
            for group in stream.groups:
                yield stream, group


@dataclass
class Rules:
    """The rules that apply, as STREAMD.STREAM GET and STREAMD.GROUP GET return them.

    streams  by key
    groups   by key and name
    """

    streams: dict[bytes, dict[str, Any]] = field(default_factory=dict)
    groups: dict[tuple[bytes, bytes], dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class PendingEntry:
    """An entry that was delivered and not acknowledged."""

    entry_id: str
    consumer: bytes
    idle_ms: int
    deliveries: int


@dataclass(frozen=True)
class SlowCommand:
    """A line of the slow log; `at_s` is Unix time."""

    at_s: int
    took_us: int
    words: tuple[bytes, ...]
    client: str


@dataclass(frozen=True)
class LargeKey:
    """A key of another type than a stream, with many elements.

    bytes   of memory; None: unknown
    ttl_ms  of the key; None: it does not expire
    """

    key: bytes
    type: str
    elements: int
    bytes: int | None
    ttl_ms: int | None


LENGTHS = {"hash": "HLEN", "list": "LLEN", "set": "SCARD", "zset": "ZCARD"}
"""The command that counts the elements of a type."""
SIZES = re.compile(r"(?P<edge>\d+)(?P<unit>[KMGTP]?)=")
"""In INFO keysizes: the lower edge of a class of sizes; a unit is 1024 of the one before."""


class Asker(Protocol):
    """What a reader asks through: a `Connection`, or something like it."""

    def command(self, *words: str | bytes | int) -> Reply: ...
    def pipeline(self, requests: Sequence[Request], *, raise_errors: bool) -> list[Reply]: ...
    def close(self) -> None: ...


class Reader:
    """A connection that looks. Raises UnreachableError, and ServerError when the login is refused."""

    def __init__(self, place: Place, limits: Limits, connect: Callable[[Place], Asker] = dial) -> None:
        self.place = place
        self.limits = limits
        self.asker = connect(place)
        self.refused: dict[str, str] = {}
        self._keys: list[bytes] = []
        self._is_whole = True
        self._scanned_at = float("-inf")

    def close(self) -> None:
        self.asker.close()

    def ask(self, requests: Iterable[Request]) -> list[Reply | None]:
        """Send requests in pipelines; the replies in order, None for what was refused."""
        found: list[Reply | None] = []
        for some in batched(requests, PER_PIPELINE):
            replies = self.asker.pipeline(some, raise_errors=False)
            found += map(self._accepted, some, replies)
        return found

    def _accepted(self, request: Request, reply: Reply) -> Reply | None:
        if not isinstance(reply, ServerError):
            return reply
        name = as_text(request[0])
        if not str(reply).startswith(NO_REFUSALS):
            self.refused.setdefault(
                f"{name} {as_text(request[1])}" if name in ("XINFO", "CONFIG") else name, str(reply)
            )
        return None

    # --- The server --------------------------------------------------------------------------------------------------

    def look(self, *, streams: bool = True) -> Look:
        """Look at the server, and at its streams unless told not to."""
        began = time.monotonic()
        clock = self.asker.command("TIME")
        round_trip_s = time.monotonic() - began
        now_ms = int(clock[0]) * 1000 + int(clock[1]) // 1000
        info = parse_info(self.ask([["INFO", "everything"]])[0])
        look = Look(began, now_ms, round_trip_s, info, refused=self.refused)
        if streams:
            look.streams = {stream.key: stream for stream in self._streams(self._found_keys())}
            look.is_whole = self._is_whole
        return look

    def config(self, names: Iterable[str]) -> dict[str, str]:
        """These settings, as far as the server has them and tells."""
        return {
            as_text(name): as_text(value)
            for reply in self.ask([["CONFIG", "GET", *names]])
            for name, value in text_map(reply or []).items()
        }

    def slow_commands(self, count: int) -> list[SlowCommand]:
        """The newest lines of the slow log, newest first."""
        return [
            SlowCommand(int(line[1]), int(line[2]), tuple(map(bytes, line[3])), as_text(line[4]) if line[4:] else "")
            for line in self.ask([["SLOWLOG", "GET", count]])[0] or []
        ]

    # --- Other keys --------------------------------------------------------------------------------------------------

    def large_keys(self, look: Look, least: int) -> list[LargeKey]:
        """Keys with at least so many elements, the largest first. Keys are scanned only where INFO does not say that there are none."""
        if not may_have_sizes(look.info, least):
            return []
        found: list[LargeKey] = []
        for kind, length in LENGTHS.items():
            cursor, seen = b"0", 0
            while True:
                request: Request = ["SCAN", cursor, "MATCH", self.limits.match, "COUNT", PER_SCAN, "TYPE", kind]
                reply = self.ask([request])[0]
                if reply is None:
                    break
                cursor, keys = reply
                seen += PER_SCAN
                lengths = self.ask((length, key) for key in keys)
                large = [(key, n) for key, n in zip(keys, lengths, strict=True) if n is not None and n >= least]
                told = batched(
                    self.ask(each for key, _ in large for each in (("MEMORY", "USAGE", key), ("PTTL", key))), 2
                )
                found += (
                    LargeKey(key, kind, n, used, ttl if ttl is not None and ttl >= 0 else None)
                    for (key, n), (used, ttl) in zip(large, told, strict=True)
                )
                if cursor == b"0" or seen >= self.limits.keys:
                    break
        return sorted({each.key: each for each in found}.values(), key=lambda each: -each.elements)

    # --- Streams -----------------------------------------------------------------------------------------------------

    def _found_keys(self) -> list[bytes]:
        if time.monotonic() >= self._scanned_at + RESCAN_S:
            self._keys, self._is_whole = self._scan()
            self._scanned_at = time.monotonic()
        return self._keys

    def _scan(self) -> tuple[list[bytes], bool]:
        """The keys of streams within the limits, in order, and whether these are all."""
        found: dict[bytes, None] = {}
        cursor, seen = b"0", 0
        while True:
            request: Request = ["SCAN", cursor, "MATCH", self.limits.match, "COUNT", PER_SCAN, "TYPE", "stream"]
            reply = self.ask([request])[0]
            if reply is None:
                return sorted(found), True
            cursor, keys = reply
            seen += PER_SCAN
            found.update(dict.fromkeys(keys))
            if len(found) > self.limits.streams:
                return sorted([*found][: self.limits.streams]), False
            if cursor == b"0" or seen >= self.limits.keys:
                return sorted(found), cursor == b"0"

    def _streams(self, keys: Sequence[bytes]) -> list[StreamState]:
        asked = 4
        replies = self.ask(
            request
            for key in keys
            for request in (
                ("XINFO", "STREAM", key),
                ("XINFO", "GROUPS", key),
                ("MEMORY", "USAGE", key),
                ("PTTL", key),
            )
        )
        found: list[StreamState] = []
        groups: list[tuple[StreamState, dict[str, Any]]] = []
        for key, (stream, of_groups, used, ttl) in zip(keys, batched(replies, asked), strict=True):
            if stream is not None:
                found.append(make_stream(key, text_map(stream), used, ttl))
                groups += [(found[-1], text_map(each)) for each in of_groups or []]
        self._add_groups(groups)
        return found

    def _add_groups(self, groups: Sequence[tuple[StreamState, dict[str, Any]]]) -> None:
        asked = 3
        replies = self.ask(
            request
            for stream, group in groups
            for request in (
                ("XPENDING", stream.key, group["name"]),
                ("XINFO", "CONSUMERS", stream.key, group["name"]),
                (
                    "XRANGE",
                    stream.key,
                    b"(" + group["last-delivered-id"],
                    "+",
                    "COUNT",
                    0 if group.get("lag") == 0 else 1,
                ),
            )
        )
        for (stream, group), (summary, consumers, following) in zip(groups, batched(replies, asked), strict=True):
            made = make_group(group, following, summary)
            made.consumers = [make_consumer(text_map(each)) for each in (consumers or [])[: self.limits.consumers]]
            stream.groups.append(made)

    def archive_runs(self, keys: Iterable[bytes]) -> dict[bytes, list[ArchiveRun]]:
        """The last run over each of these streams into each archive."""
        wanted = list(keys)
        replies = self.ask(("GET", runs_key(stream_name(key))) for key in wanted)
        return {
            key: list(parse_runs(reply).values())
            for key, reply in zip(wanted, replies, strict=True)
            if reply is not None
        }

    def rules(self, look: Look) -> Rules:
        """The rules of these streams and groups; none of a server that has no rules."""
        found = Rules()
        if "streamd_version" not in look.info:
            return found
        for key, reply in zip(
            look.streams, self.ask(("STREAMD.STREAM", "GET", key) for key in look.streams), strict=True
        ):
            if reply is not None:
                found.streams[key] = text_map(reply)
        places = [(stream.key, group.name) for stream, group in look.groups()]
        for place, reply in zip(places, self.ask(("STREAMD.GROUP", "GET", *place) for place in places), strict=True):
            if reply is not None:
                found.groups[place] = text_map(reply)
        return found

    def pending(self, places: Sequence[tuple[bytes, bytes]], count: int) -> list[list[PendingEntry]]:
        """Of each (stream, group) the pending entries with the smallest IDs."""
        return [
            [PendingEntry(as_text(entry_id), owner, idle, times) for entry_id, owner, idle, times in reply or []]
            for reply in self.ask(("XPENDING", key, group, "-", "+", count) for key, group in places)
        ]

    def fields(self, key: bytes, entry_id: str) -> list[tuple[bytes, bytes]] | None:
        """The fields and values of an entry; None if there is no such entry."""
        found = self.ask([["XRANGE", key, entry_id, entry_id]])[0]
        return [(field, value) for field, value in batched(found[0][1], 2)] if found else None


def make_stream(key: bytes, told: dict[str, Any], used: int | None, ttl_ms: int | None) -> StreamState:
    first, last = told.get("first-entry"), told.get("last-entry")
    return StreamState(
        key=key,
        length=told["length"],
        entries_added=told.get("entries-added", told["length"]),
        first_id=id_of(first[0]) if first else None,
        last_id=id_of(last[0]) if last else None,
        bytes=used,
        ttl_ms=ttl_ms if ttl_ms is not None and ttl_ms >= 0 else None,
    )


def make_group(told: dict[str, Any], following: Reply | None, pending: Reply | None) -> GroupState:
    """A group without its consumers, as XINFO GROUPS tells.

    following  the reply of XRANGE with the first entry that it has not read
    pending    the reply of XPENDING, its summary
    Each may be an error, or None when it was not asked for.
    """
    lag = told.get("lag")  # below 0 where ENTRIESREAD was set higher than what was added
    return GroupState(
        name=told["name"],
        last_delivered=id_of(told["last-delivered-id"]) or (0, 0),
        entries_read=told.get("entries-read"),
        lag=lag if lag is not None and lag >= 0 else None,
        next_id=id_of(following[0][0]) if isinstance(following, list) and following else None,
        pending=told["pending"],
        oldest_pending=id_of(pending[1]) if isinstance(pending, list) else None,
        consumer_count=told["consumers"],
    )


def make_consumer(told: dict[str, Any]) -> ConsumerState:
    inactive = told.get("inactive")
    return ConsumerState(
        name=told["name"],
        pending=told["pending"],
        idle_ms=told["idle"],
        inactive_ms=inactive if inactive is not None and inactive >= 0 else None,
    )


def may_have_sizes(info: dict[str, str], least: int) -> bool:
    """Whether values with at least so many elements may exist, by INFO keysizes; servers before Redis 8 do not tell."""
    told = [value for name, value in info.items() if re.fullmatch(r"db\d+_distrib_\w+_items", name)]
    edges = (
        int(each["edge"]) << 10 * " KMGTP".index(each["unit"] or " ")
        for value in told
        for each in SIZES.finditer(value)
    )
    knows = any("_distrib_" in name for name in info)
    return not knows or any(2 * edge > least for edge in edges)


def id_of(text: bytes | None) -> tuple[int, int] | None:
    return None if text is None else parse_id(text)


def parse_info(reply: Reply | None) -> dict[str, str]:
    lines = reply.decode("utf-8", "replace").splitlines() if isinstance(reply, bytes) else []
    return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))


def batched(items: Iterable[T], count: int) -> Iterator[tuple[T, ...]]:
    """The items in tuples of `count`, the last one shorter."""
    left = iter(items)
    while some := tuple(islice(left, count)):
        yield some
