"""What the console shows of streams: the list, one stream, its entries, a group, its consumers and pending entries.

Costs are bounded: keys are scanned at most once in `RESCAN_S`, streams by `http-max-streams`, entries by their number and by the bytes
that they are likely to have.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from streamd.client.archive_runs import ArchiveRun, parse_runs, runs_key
from streamd.client.client_errors import ServerError
from streamd.client.key_names import stream_name
from streamd.client.replies import as_text, text_map
from streamd.console.asked import Asked, answers
from streamd.console.guard import RefusedError
from streamd.console.inner_client import Connection, Reply
from streamd.console.json_bytes import shown, shown_start
from streamd.console.sessions import FoundKeys
from streamd.core.slices import Slices
from streamd.entry_id import format_id
from streamd.stream_state import ID, GroupState, StreamState
from streamd.watching.look import make_consumer, make_group, make_stream

__all__ = ["VALUE_SHOWN", "allowed", "entry_json", "may_json", "page_size"]

RESCAN_S = 30.0
"""How old the list of keys may be."""
KEYS_SCANNED = 1_000_000
PER_SCAN = 1000
STREAMS_AT_ONCE = 10
"""Streams that are asked about together."""
GROUPS_SHOWN = 1000
CONSUMERS_SHOWN = 1000
CONSUMERS_ASKED = 10_000
"""Of a group with more consumers none is shown: they are told all at once."""
PAGE_ENTRIES = 100
"""Entries, or pending entries, on a page, at most."""
PAGE_BYTES = 1 << 20
"""... and so many bytes, by the average of the stream."""
VALUE_SHOWN = 256
"""Bytes of a value that are shown in a list of entries."""
WHOLE_VALUE_SHOWN = 64 * 1024
"""... and where one entry is looked at."""
WHOLE_BYTES = 2 << 20
"""... and of all its values together."""
FIELDS_SHOWN = 50
WHOLE_FIELDS_SHOWN = 1000
GROUPS = ("XINFO", "GROUPS")
GONE = ("ERR no such key", "WRONGTYPE", "NOPERM")
"""Errors that mean that a stream is not to be listed any more."""
MEMORY = ("MEMORY", "USAGE")


# --- The list ------------------------------------------------------------------------------------------------------------


@answers("GET", "streams")
async def streams(asked: Asked) -> AsyncIterator[str]:
    """All streams that match a pattern, each with the sum of its groups."""
    return _streams(asked, await _find(asked))


async def _streams(asked: Asked, found: FoundKeys) -> AsyncIterator[str]:
    connection, slices = asked.connection, Slices()
    separator = '{"streams":['
    keys = []
    for key in found.keys:
        if connection.denial("XINFO", "STREAM", key) is None:
            keys.append(key)
        await slices.breathe()
    for at in range(0, len(keys), STREAMS_AT_ONCE):
        for state in await _read(connection, asked.db, keys[at : at + STREAMS_AT_ONCE], slices):
            yield separator + json.dumps(summary_json(state))
            separator = ","
            await slices.breathe()
    now_ms = int(time.time() * 1000)
    rest = {"now_ms": now_ms, "is_whole": found.is_whole}
    yield (separator if separator != "," else "") + "]," + json.dumps(rest)[1:]


async def _find(asked: Asked) -> FoundKeys:
    """The keys of streams, in order; raises ServerError."""
    pattern, most = asked.query.get("match") or b"*", asked.host.config.http_max_streams
    place = asked.db, pattern, most
    found = asked.session.found.get(place)
    if found is not None and time.monotonic() < found.at_s + RESCAN_S:
        return found
    keys: dict[bytes, None] = {}
    cursor, seen = b"0", 0
    while True:
        reply = await asked.connection.call(
            "SCAN", cursor, "MATCH", pattern, "COUNT", PER_SCAN, "TYPE", "stream", db=asked.db
        )
        cursor, some = reply
        keys.update(dict.fromkeys(some))
        seen += PER_SCAN
        if cursor == b"0" or seen >= KEYS_SCANNED or len(keys) > most:
            break
    found = FoundKeys(time.monotonic(), sorted([*keys][:most]), cursor == b"0" and len(keys) <= most)
    asked.session.found = {place: found}
    return found


async def _read(connection: Connection, db: int, keys: Sequence[bytes], slices: Slices) -> list[StreamState]:
    """The streams that are still there, with their groups."""
    # What a user may do with one stream it may do with all that it sees: the command is allowed, or it is not.
    kinds = [("XINFO", "STREAM")]
    kinds += [kind for kind in (GROUPS, MEMORY) if keys and connection.denial(*kind, keys[0]) is None]
    replies = await connection.ask([(*kind, key) for key in keys for kind in kinds], db)
    found: list[StreamState] = []
    groups: list[tuple[StreamState, dict[str, Any]]] = []
    for at, key in enumerate(keys):
        told = dict(zip(kinds, replies[at * len(kinds) : (at + 1) * len(kinds)], strict=True))
        stream, of_groups, used = told[kinds[0]], told.get(GROUPS), told.get(MEMORY)
        if isinstance(stream, ServerError):
            if not str(stream).startswith(GONE):
                raise stream
            continue
        found.append(make_stream(key, text_map(stream), used if isinstance(used, int) else None, None))
        if isinstance(of_groups, list):
            groups += [(found[-1], text_map(each)) for each in of_groups[:GROUPS_SHOWN]]
        await slices.breathe()
    await _add_groups(connection, db, groups, slices)
    return found


async def _add_groups(
    connection: Connection, db: int, groups: Sequence[tuple[StreamState, dict[str, Any]]], slices: Slices
) -> None:
    """Give streams their groups: of those that are behind the first entry that they have not read, too."""
    requests: list[tuple[bytes | str | int, ...]] = []
    for stream, told in groups:
        key, name = stream.key, told["name"]
        if told["lag"] != 0 and connection.denial("XRANGE", key, "-", "+") is None:
            requests.append(("XRANGE", key, b"(" + told["last-delivered-id"], "+", "COUNT", 1))
        else:
            requests.append(())
        has_pending = told["pending"] and connection.denial("XPENDING", key, name) is None
        requests.append(("XPENDING", key, name) if has_pending else ())
        await slices.breathe()
    replies = iter(await connection.ask([each for each in requests if each], db))
    answered: Iterator[Reply] = (next(replies) if each else None for each in requests)
    for stream, told in groups:
        stream.groups.append(make_group(told, next(answered), next(answered)))
        await slices.breathe()


def most_of(values: Sequence[float | None]) -> float | None:
    """The greatest; None when one is unknown."""
    known = [each for each in values if each is not None]
    return None if len(known) < len(values) else max(known, default=0)


def summary_json(stream: StreamState) -> dict[str, Any]:
    now_ms = int(time.time() * 1000)
    return {
        "key": shown(stream.key),
        "length": stream.length,
        "bytes": stream.bytes,
        "added": stream.entries_added,
        "first": id_json(stream.first_id),
        "last": id_json(stream.last_id),
        "groups": len(stream.groups),
        "lag": most_of([group.lag for group in stream.groups]),
        "lag_s": most_of([lag_s(group, now_ms) for group in stream.groups]),
        "pending": sum(group.pending for group in stream.groups),
        "oldest_s": most_of([group.oldest_pending_s(now_ms) for group in stream.groups]),
    }


def lag_s(group: GroupState, now_ms: int) -> float | None:
    """How long the first entry that a group has not read has been waiting; None: unknown."""
    return group.lag_s(now_ms) if group.next_id is not None or group.lag == 0 else None


def id_json(entry_id: ID | None) -> str | None:
    return None if entry_id is None else format_id(*entry_id).decode()


# --- One stream ----------------------------------------------------------------------------------------------------------


@answers("GET", "stream")
async def stream(asked: Asked) -> dict[str, Any]:
    """A stream and its groups."""
    key, connection = asked.name("key"), asked.connection
    told = text_map(await connection.call("XINFO", "STREAM", key, db=asked.db))
    groups, used, ttl, runs = await allowed(
        asked, ("XINFO", "GROUPS", key), ("MEMORY", "USAGE", key), ("PTTL", key), ("GET", runs_key(stream_name(key)))
    )
    state = make_stream(key, told, used, ttl)
    await _add_groups(
        connection, asked.db, [(state, text_map(each)) for each in (groups or [])[:GROUPS_SHOWN]], Slices()
    )
    now_ms = int(time.time() * 1000)
    return summary_json(state) | {
        "now_ms": now_ms,
        "ttl_ms": state.ttl_ms,
        "more_groups": max(0, len(groups or []) - GROUPS_SHOWN),
        "groups": [group_json(each, now_ms) for each in state.groups],
        "archives": [archive_json(each) for each in parse_runs(runs).values()],
        "may": may_json(asked, {"trim": ("XTRIM", key, "MAXLEN", 0)}),
    }


def archive_json(run: ArchiveRun) -> dict[str, Any]:
    """What an archive has of a stream, as of the last run."""
    return {
        "archive": run.archive,
        "first": run.first,
        "last": run.boundary if run.rows else None,
        "rows": run.rows,
        "bytes": run.bytes,
        "at_ms": run.at_ms,
        "success_ms": run.success_ms,
        "error": run.error if run.has_failed else None,
    }


async def allowed(asked: Asked, *requests: tuple[bytes | str | int, ...]) -> list[Reply]:
    """Replies to requests as far as the user may make them; None for others, and for errors."""
    may = [each for each in requests if asked.connection.denial(*each) is None]
    replies = dict(zip(may, await asked.connection.ask(may, asked.db), strict=True))
    return [None if isinstance(replies.get(each), ServerError) else replies.get(each) for each in requests]


def may_json(asked: Asked, requests: dict[str, tuple[bytes | str | int, ...]]) -> dict[str, bool]:
    """Which of some changes the user may make, here and now."""
    allowed = asked.host.config.http_allow_writes
    return {name: allowed and asked.connection.denial(*each) is None for name, each in requests.items()}


def group_json(group: GroupState, now_ms: int) -> dict[str, Any]:
    return {
        "name": shown(group.name),
        "consumers": group.consumer_count,
        "pending": group.pending,
        "last_delivered": id_json(group.last_delivered),
        "read": group.entries_read,
        "lag": group.lag,
        "lag_s": lag_s(group, now_ms),
        "oldest_pending": id_json(group.oldest_pending),
        "oldest_s": group.oldest_pending_s(now_ms),
    }


@answers("GET", "group")
async def group(asked: Asked) -> dict[str, Any]:
    """A group and its consumers."""
    key, name, connection = asked.name("key"), asked.name("group"), asked.connection
    reply = await connection.call("XINFO", "GROUPS", key, db=asked.db)
    told = next((each for each in map(text_map, reply) if each["name"] == name), None)
    if told is None:
        raise RefusedError(404, "The group does not exist.")
    state = StreamState(key, 0, 0, None, None)
    await _add_groups(connection, asked.db, [(state, told)], Slices())
    consumers: list[Any] = []
    if told["consumers"] <= CONSUMERS_ASKED:
        consumers = await connection.call("XINFO", "CONSUMERS", key, name, db=asked.db)
    made = [make_consumer(text_map(each)) for each in consumers[:CONSUMERS_SHOWN]]
    return group_json(state.groups[0], int(time.time() * 1000)) | {
        "consumer_list": [
            {
                "name": shown(each.name),
                "pending": each.pending,
                "idle_ms": each.idle_ms,
                "inactive_ms": each.inactive_ms,
            }
            for each in made
        ],
        "more_consumers": max(0, told["consumers"] - len(made)),
        "may": may_json(
            asked,
            {
                "ack": ("XACK", key, name, "0-1"),
                "claim": ("XCLAIM", key, name, "x", 0, "0-1", "JUSTID"),
                "delete_consumer": ("XGROUP", "DELCONSUMER", key, name, "x"),
            },
        ),
    }


@answers("GET", "pending")
async def pending(asked: Asked) -> dict[str, Any]:
    """A page of the pending entries of a group, or of one of its consumers."""
    count = asked.number("count", PAGE_ENTRIES, least=1, most=PAGE_ENTRIES)
    request: list[bytes | str | int] = ["XPENDING", asked.name("key"), asked.name("group")]
    idle_ms = asked.number("idle_ms", 0)
    request += ["IDLE", idle_ms] if idle_ms else []
    request += [asked.query.get("start") or b"-", "+", count]
    request += [asked.name("consumer")] if "consumer" in asked.query else []
    reply = await asked.connection.call(*request, db=asked.db)
    return {
        "pending": [
            {"id": as_text(entry_id), "consumer": shown(owner), "idle_ms": idle, "deliveries": times}
            for entry_id, owner, idle, times in reply
        ],
        "next": f"({as_text(reply[-1][0])}" if len(reply) == count else None,
    }


# --- Entries -------------------------------------------------------------------------------------------------------------


async def page_size(asked: Asked, key: bytes, most: int) -> int:
    """How many entries of a stream to read at a time: few, if they are large."""
    length, used = await allowed(asked, ("XLEN", key), ("MEMORY", "USAGE", key))
    return most if not length or not used else max(1, min(most, PAGE_BYTES * length // used))


@answers("GET", "entries")
async def entries(asked: Asked) -> dict[str, Any]:
    """A page of entries: from `start` on, the newest first unless `order` is `up`."""
    key, is_up = asked.name("key"), asked.query.get("order") == b"up"
    count = await page_size(asked, key, asked.number("count", PAGE_ENTRIES, least=1, most=PAGE_ENTRIES))
    start, end = (
        asked.query.get("start") or (b"-" if is_up else b"+"),
        asked.query.get("end") or (b"+" if is_up else b"-"),
    )
    name = "XRANGE" if is_up else "XREVRANGE"
    reply = await asked.connection.call(name, key, start, end, "COUNT", count, db=asked.db)
    slices, found = Slices(), []
    for entry_id, fields in reply:
        found.append(entry_json(entry_id, fields))
        await slices.breathe()
    return {"entries": found, "next": f"({found[-1]['id']}" if len(found) == count else None}


@answers("GET", "entry")
async def entry(asked: Asked) -> dict[str, Any]:
    """One entry with all that can be shown of it."""
    key, entry_id = asked.name("key"), asked.name("id")
    reply = await asked.connection.call("XRANGE", key, entry_id, entry_id, "COUNT", 1, db=asked.db)
    if not reply:
        raise RefusedError(404, "The entry does not exist: it was deleted or trimmed.")
    each = WHOLE_BYTES // max(1, min(len(reply[0][1]) // 2, WHOLE_FIELDS_SHOWN))
    return entry_json(*reply[0], values=min(each, WHOLE_VALUE_SHOWN), fields_shown=WHOLE_FIELDS_SHOWN)


@answers("GET", "value")
async def value(asked: Asked) -> bytes:
    """One value of an entry, as it is: a file."""
    key, entry_id = asked.name("key"), asked.name("id")
    reply = await asked.connection.call("XRANGE", key, entry_id, entry_id, "COUNT", 1, db=asked.db)
    at = asked.number("field") * 2 + 1
    if not reply or at >= len(reply[0][1]):
        raise RefusedError(404, "The value does not exist.")
    found: bytes = reply[0][1][at]
    return found


def entry_json(
    entry_id: bytes, fields: Sequence[bytes], *, values: int = VALUE_SHOWN, fields_shown: int = FIELDS_SHOWN
) -> dict[str, Any]:
    return {
        "id": as_text(entry_id),
        "fields": [
            [shown_start(fields[at], values), shown_start(fields[at + 1], values)]
            for at in range(0, min(len(fields), 2 * fields_shown), 2)
        ],
        "more_fields": max(0, len(fields) // 2 - fields_shown),
    }
