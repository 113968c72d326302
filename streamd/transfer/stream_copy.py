"""The state of a stream apart from its entries, which an exported stream has in a file next to its data.

    read_state(connection, stream)      the state at one moment
    check(connection, state)            whether a server can have it
    restore(connection, key, state)     give it, but for the expiry, to a stream whose entries are there
    expiry(key, state)                  the request for that

    {"format": "streamd-stream", "version": 2, "stream": "readings", "rows": 3,
     "last_generated_id": "5-0", "entries_added": 4, "max_deleted_id": "2-0", "expires_at_ms": null,
     "idmp": {"duration_s": 100, "max_size": 100}, "gone": ["2-0"],
     "groups": [{"name": "g", "last_delivered_id": "3-0", "entries_read": 2, "consumers": ["c"],
                 "pending": [["2-0", "c", 1700000000000, 1]]}]}

A pending entry is its ID, its consumer, the Unix time in ms of its delivery, and how often it was delivered. One that was given back
(XNACK) has no consumer, null, and no time; `""` is the name of a consumer. Names that are not UTF-8 have lone surrogates. (In version 1
both were `""`.)

`gone` lists the pending IDs whose entries no longer exist. No command makes a missing entry pending, so these entries are added with the
others, as `placeholder` describes, and deleted at the end.

When a consumer was last seen or active is shown by servers, but no command sets it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from streamd.client.client_errors import MissingStreamError, ServerError
from streamd.client.connection import Connection, Request, server_features
from streamd.client.key_names import stream_key, stream_name
from streamd.client.points import MAX_ID, format_entry_id, parse_entry_id
from streamd.client.replies import pairs
from streamd.transfer.move_error import MoveError

__all__ = ["GroupCopy", "StreamCopy", "check", "expiry", "read_state", "restore"]

FORMAT, VERSION = "streamd-stream", 2

CLAIMED_AT_ONCE = 500
"""IDs of one XCLAIM, XDEL or XNACK."""

ATTEMPTS = 5
"""How often the state is read again because more entries became pending while it was asked for."""

SENT_AT_ONCE = 200
"""Requests of one round trip."""

Pending = tuple[str, str | None, int, int]
"""ID, consumer (None: given back), Unix time of the delivery in ms, number of deliveries."""


@dataclass(frozen=True)
class GroupCopy:
    """A consumer group."""

    name: str
    last_delivered_id: str
    entries_read: int | None
    consumers: tuple[str, ...] = ()
    pending: tuple[Pending, ...] = ()  # by ID


@dataclass(frozen=True)
class StreamCopy:
    """The state of a stream; see the head of the file. None: the server did not say it."""

    stream: str
    rows: int
    last_generated_id: str
    entries_added: int | None = None
    max_deleted_id: str | None = None
    expires_at_ms: int | None = None
    idmp: Mapping[str, int] | None = None
    gone: tuple[str, ...] = ()
    groups: tuple[GroupCopy, ...] = ()

    def exported(self, rows: int, gone: Iterable[str]) -> StreamCopy:
        """The state, with the findings from reading the entries."""
        return replace(self, rows=rows, gone=tuple(sorted(gone, key=parse_entry_id)))

    @property
    def pending_ids(self) -> set[str]:
        return {each[0] for group in self.groups for each in group.pending}

    def is_of_same_stream(self, other: StreamCopy) -> bool:
        """Whether nothing was added, delivered or acknowledged between the two, however exactly their servers count."""
        return self._progress() == other._progress()

    def _progress(self) -> object:
        groups = {
            each.name: (each.last_delivered_id, sorted(pending[:2] for pending in each.pending)) for each in self.groups
        }
        return self.rows, self.last_generated_id, groups

    def to_bytes(self) -> bytes:
        return json.dumps({"format": FORMAT, "version": VERSION, **asdict(self)}).encode() + b"\n"

    @classmethod
    def parse(cls, path: str, raw: bytes) -> StreamCopy:
        """Raises MoveError for what `to_bytes` has not written."""
        try:
            found = json.loads(raw)
            if found.pop("format") != FORMAT or (version := found.pop("version")) not in (1, VERSION):
                raise ValueError("another format, or a newer version")
            for each in found["groups"]:
                if version == 1:
                    each["pending"] = [
                        [at, name if name or time else None, time, n] for at, name, time, n in each["pending"]
                    ]
            groups = tuple(
                GroupCopy(
                    **{**each, "consumers": tuple(each["consumers"]), "pending": tuple(map(tuple, each["pending"]))}
                )
                for each in found.pop("groups")
            )
            return cls(**{**found, "gone": tuple(found["gone"])}, groups=groups)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise MoveError(f"{path} does not hold the state of a stream: {error}") from None


# --- Reading --------------------------------------------------------------------------------------------------------------


def read_state(connection: Connection, stream: str) -> StreamCopy:
    """The state of a stream, as of one moment. Raises MissingStreamError when there is no such stream, and MoveError.

    The reply holds all pending entries, and as many entries as the group with the most of them has pending: about 1 KB of memory
    for each. The server makes it in one command.
    """
    key = stream_key(stream)
    for _ in range(ATTEMPTS):
        try:
            groups = [pairs(each) for each in connection.command("XINFO", "GROUPS", key)]
            most = max((each[b"pending"] for each in groups), default=0)
            # COUNT 0 means all entries.
            reply = pairs(connection.command("XINFO", "STREAM", key, "FULL", "COUNT", most + 1))
        except ServerError as error:
            raise MissingStreamError(stream) if error.is_missing_key else error from None
        copies = [pairs(each) for each in reply[b"groups"]]
        if all(each[b"pel-count"] == len(each[b"pending"]) for each in copies):
            break
    else:
        raise MoveError(
            f"more and more entries of stream {stream!r} become pending: try again when its consumers are calmer"
        )
    (expires,) = connection.pipeline([("PEXPIRETIME", key)], raise_errors=False)
    return StreamCopy(
        stream=stream,
        rows=reply[b"length"],
        last_generated_id=reply[b"last-generated-id"].decode(),
        entries_added=reply.get(b"entries-added"),
        max_deleted_id=None if b"max-deleted-entry-id" not in reply else reply[b"max-deleted-entry-id"].decode(),
        expires_at_ms=expires if isinstance(expires, int) and expires >= 0 else None,
        idmp=None
        if b"idmp-duration" not in reply
        else {"duration_s": reply[b"idmp-duration"], "max_size": reply[b"idmp-maxsize"]},
        groups=tuple(map(group_of, copies)),
    )


def group_of(found: Mapping[bytes, Any]) -> GroupCopy:
    # An entry that was given back is shown as if its consumer had the empty name, which a consumer may have: that one lists its own.
    consumers = map(pairs, found[b"consumers"])
    nameless = {entry[0] for each in consumers if not each[b"name"] for entry in each[b"pending"]}
    return GroupCopy(
        name=stream_name(found[b"name"]),
        last_delivered_id=found[b"last-delivered-id"].decode(),
        entries_read=found.get(b"entries-read"),
        consumers=tuple(stream_name(pairs(each)[b"name"]) for each in found[b"consumers"]),
        pending=tuple(
            (each[0].decode(), stream_name(each[1]) if each[1] or each[0] in nameless else None, each[2], each[3])
            for each in found[b"pending"]
        ),
    )


# --- Restoring ------------------------------------------------------------------------------------------------------------


@dataclass
class Claims:
    """Pending entries that one request can make: of one consumer, delivered at the same time and as often."""

    consumer: str
    time_ms: int
    count: int
    ids: list[str] = field(default_factory=list)


def check(connection: Connection, state: StreamCopy) -> None:
    """Raise MoveError when the server cannot have this state."""
    is_needed = any(consumer is None for group in state.groups for _, consumer, _, _ in group.pending)
    if is_needed and not connection.command("COMMAND", "INFO", "XNACK")[0]:
        raise MoveError(f"stream {state.stream!r} has entries that were given back by XNACK, which this server lacks")


def restore(connection: Connection, key: bytes, state: StreamCopy, *, then: Sequence[Request] = ()) -> None:
    """Give a stream the state of another. Its entries, and placeholders for those gone, are there.

    then  requests to be executed with the last ones, in one transaction; before it, all may be repeated
    Raises ServerError.
    """
    features = server_features(connection)
    has_counters = features.redis_version >= (7,)
    send(connection, groups_made(key, state, has_counters=has_counters), ignored="BUSYGROUP")
    send(connection, claims_made(key, state))
    send(connection, returned(key, state))
    last: list[Request] = list(placeholders_removed(key, state, first_entry(connection, key, state)))
    if state.last_generated_id != "0-0":
        last.append(("XSETID", key, state.last_generated_id, *counters(state, is_wanted=has_counters)))
    # XSETID may have moved what the groups have read.
    last += [group_set(key, group, has_counters=has_counters) for group in state.groups]
    if state.idmp is not None and features.has_idmp:
        words: Request = ("IDMP-DURATION", state.idmp["duration_s"], "IDMP-MAXSIZE", state.idmp["max_size"])
        current = pairs(connection.command("XINFO", "STREAM", key))
        if (current[b"idmp-duration"], current[b"idmp-maxsize"]) != (words[1], words[3]):
            last.append(("XCFGSET", key, *words))
    connection.transaction([*last, *then])


def expiry(key: bytes, state: StreamCopy) -> list[Request]:
    """What makes a stream expire as the other does; nothing when that does not."""
    return [] if state.expires_at_ms is None else [("PEXPIREAT", key, state.expires_at_ms)]


def counters(state: StreamCopy, *, is_wanted: bool) -> Request:
    if not is_wanted or state.entries_added is None or state.max_deleted_id is None:
        return ()
    return ("ENTRIESADDED", state.entries_added, "MAXDELETEDID", state.max_deleted_id)


def entries_read(group: GroupCopy, *, is_wanted: bool) -> Request:
    return ("ENTRIESREAD", group.entries_read) if is_wanted and group.entries_read is not None else ()


def groups_made(key: bytes, state: StreamCopy, *, has_counters: bool) -> Iterator[Request]:
    """The groups with their consumers; a stream without any entry or group, too."""
    if not state.groups and not state.rows and not state.gone:
        yield ("XGROUP", "CREATE", key, "-", "$", "MKSTREAM")
        yield ("XGROUP", "DESTROY", key, "-")
    for group in state.groups:
        name = stream_key(group.name)
        read = entries_read(group, is_wanted=has_counters)
        yield ("XGROUP", "CREATE", key, name, group.last_delivered_id, "MKSTREAM", *read)
        for consumer in group.consumers:
            yield ("XGROUP", "CREATECONSUMER", key, name, stream_key(consumer))


def group_set(key: bytes, group: GroupCopy, *, has_counters: bool) -> Request:
    read = entries_read(group, is_wanted=has_counters)
    return ("XGROUP", "SETID", key, stream_key(group.name), group.last_delivered_id, *read)


def claims_made(key: bytes, state: StreamCopy) -> Iterator[Request]:
    for group in state.groups:
        claims: dict[tuple[str, int, int], Claims] = {}
        for entry_id, consumer, time_ms, count in group.pending:
            if consumer is not None:
                claim = claims.setdefault((consumer, time_ms, count), Claims(consumer, time_ms, count))
                claim.ids.append(entry_id)
        for each in claims.values():
            for ids in cut(each.ids):
                yield (
                    "XCLAIM", key, stream_key(group.name), stream_key(each.consumer), 0, *ids,
                    "TIME", each.time_ms, "RETRYCOUNT", each.count, "FORCE", "JUSTID",
                )  # fmt: skip


def returned(key: bytes, state: StreamCopy) -> Iterator[Request]:
    """The requests for pending entries that were given back."""
    for group in state.groups:
        counts: dict[int, list[str]] = {}
        for entry_id, consumer, _, count in group.pending:
            if consumer is None:
                counts.setdefault(count, []).append(entry_id)
        for count, all_ids in counts.items():
            for ids in cut(all_ids):
                words: Request = ("IDS", len(ids), *ids, "RETRYCOUNT", count, "FORCE")
                yield ("XNACK", key, stream_key(group.name), "FAIL", *words)


def first_entry(connection: Connection, key: bytes, state: StreamCopy) -> int:
    """The ID of the first entry that is not a placeholder; MAX_ID if all are."""
    gone = set(state.gone)
    found = connection.command("XRANGE", key, "-", "+", "COUNT", len(gone) + 1) if gone else []
    ids = (entry_id.decode() for entry_id, _ in found)
    return next((parse_entry_id(each) for each in ids if each not in gone), MAX_ID)


def placeholders_removed(key: bytes, state: StreamCopy, first: int) -> Iterator[Request]:
    """Delete the entries that stand for those gone. What was trimmed is trimmed, which is not counted as a deletion.

    first  the ID of the first other entry: what is gone above it was deleted, perhaps after the state was read
    """
    if state.gone and not state.rows:
        yield ("XTRIM", key, "MAXLEN", 0)
        return
    deleted = parse_entry_id(state.max_deleted_id or "0-0")
    trimmed = [each for each in state.gone if deleted < parse_entry_id(each) < first]
    for ids in cut([each for each in state.gone if not deleted < parse_entry_id(each) < first]):
        yield ("XDEL", key, *ids)
    if trimmed:
        yield ("XTRIM", key, "MINID", format_entry_id(parse_entry_id(trimmed[-1]) + 1))


def cut(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(ids), CLAIMED_AT_ONCE):
        yield ids[start : start + CLAIMED_AT_ONCE]


def send(connection: Connection, requests: Iterable[Request], *, ignored: str = "") -> None:
    """Send requests, some at a time. Raises ServerError, but not with the code `ignored`."""
    held: list[Request] = []

    def flush() -> None:
        for reply in connection.pipeline(held, raise_errors=False):
            if isinstance(reply, ServerError) and reply.code != ignored:
                raise reply
        held.clear()

    for request in requests:
        held.append(request)
        if len(held) >= SENT_AT_ONCE:
            flush()
    flush()
