"""Keys of other types than streams: their type, size and time to live, and what they hold, page by page."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from streamd.client.client_errors import ServerError
from streamd.client.replies import as_text
from streamd.console.asked import Asked, answers
from streamd.console.guard import RefusedError
from streamd.console.json_bytes import shown, shown_start
from streamd.console.streams import PER_SCAN, WHOLE_VALUE_SHOWN, allowed
from streamd.core.slices import Slices

__all__: list[str] = []

KEYS_SHOWN = 1000
KEYS_LOOKED_AT = 100_000
PER_PAGE = 100
"""Elements on a page, about; small hashes and sets come whole."""
ELEMENT_SHOWN = 1000
"""Bytes of an element, a field or a value."""


@answers("GET", "keys")
async def keys(asked: Asked) -> dict[str, Any]:
    """The keys of a database that are not streams, in order."""
    connection, pattern = asked.connection, asked.query.get("match") or b"*"
    found: dict[bytes, str] = {}
    cursor, seen = b"0", 0
    while True:
        cursor, some = await connection.call("SCAN", cursor, "MATCH", pattern, "COUNT", PER_SCAN, db=asked.db)
        some = [key for key in some if connection.denial("TYPE", key) is None]
        kinds = await connection.ask([("TYPE", key) for key in some], asked.db)
        pairs = zip(some, kinds, strict=True)
        found |= {
            key: as_text(kind)
            for key, kind in pairs
            if kind not in (b"stream", b"none") and not isinstance(kind, ServerError)
        }
        seen += PER_SCAN
        if cursor == b"0" or seen >= KEYS_LOOKED_AT or len(found) > KEYS_SHOWN:
            break
    rows, slices = [], Slices()
    for key in sorted(found)[:KEYS_SHOWN]:
        used, ttl = await allowed(asked, ("MEMORY", "USAGE", key), ("PTTL", key))
        row = {
            "key": shown(key),
            "type": found[key],
            "bytes": used,
            "ttl_ms": ttl if ttl is not None and ttl >= 0 else None,
        }
        rows.append(row)
        await slices.breathe()
    return {"keys": rows, "is_whole": cursor == b"0" and len(found) <= KEYS_SHOWN}


@answers("GET", "contents")
async def contents(asked: Asked) -> dict[str, Any]:
    """A page of what a key holds, from `start` on: its type and size, and what `next` is to be, None at the end."""
    key = asked.name("key")
    kind = as_text(await asked.connection.call("TYPE", key, db=asked.db))
    if kind not in PAGES:
        raise RefusedError(409, "The key does not exist." if kind == "none" else f"A {kind} is not shown here.")
    return {"type": kind, **await PAGES[kind](asked, key, asked.number("start", 0, most=2**64 - 1))}


async def string_page(asked: Asked, key: bytes, start: int) -> dict[str, Any]:
    size = await asked.connection.call("STRLEN", key, db=asked.db)
    value = await asked.connection.call("GETRANGE", key, 0, WHOLE_VALUE_SHOWN, db=asked.db)
    return {"size": size, "value": shown_start(value, WHOLE_VALUE_SHOWN), "next": None}


async def list_page(asked: Asked, key: bytes, start: int) -> dict[str, Any]:
    size = await asked.connection.call("LLEN", key, db=asked.db)
    found = await asked.connection.call("LRANGE", key, start, start + PER_PAGE - 1, db=asked.db)
    rows = [[at, element(each)] for at, each in enumerate(found, start)]
    return {"size": size, "rows": rows, "next": start + PER_PAGE if start + PER_PAGE < size else None}


async def sorted_set_page(asked: Asked, key: bytes, start: int) -> dict[str, Any]:
    size = await asked.connection.call("ZCARD", key, db=asked.db)
    words = ("ZRANGE", key, start, start + PER_PAGE - 1, "WITHSCORES")
    rows = [
        [element(member), as_text(score)] for member, score in pairs(await asked.connection.call(*words, db=asked.db))
    ]
    return {"size": size, "rows": rows, "next": start + PER_PAGE if start + PER_PAGE < size else None}


async def set_page(asked: Asked, key: bytes, start: int) -> dict[str, Any]:
    size = await asked.connection.call("SCARD", key, db=asked.db)
    cursor, found = await asked.connection.call("SSCAN", key, start, "COUNT", PER_PAGE, db=asked.db)
    return {"size": size, "rows": [[element(each)] for each in found], "next": following(cursor)}


async def hash_page(asked: Asked, key: bytes, start: int) -> dict[str, Any]:
    size = await asked.connection.call("HLEN", key, db=asked.db)
    cursor, found = await asked.connection.call("HSCAN", key, start, "COUNT", PER_PAGE, db=asked.db)
    rows = pairs(found)
    ttls = None
    if rows:
        (ttls,) = await allowed(asked, ("HPTTL", key, "FIELDS", len(rows), *(field for field, _ in rows)))
    return {
        "size": size,
        "rows": [
            [element(field), element(value), ttl if ttl >= 0 else None]
            for (field, value), ttl in zip(rows, ttls or [-1] * len(rows), strict=True)
        ],
        "next": following(cursor),
    }


PAGES: Mapping[str, Callable[[Asked, bytes, int], Awaitable[dict[str, Any]]]] = {
    "string": string_page, "list": list_page, "set": set_page, "zset": sorted_set_page, "hash": hash_page,
}  # fmt: skip


def element(value: bytes) -> Any:
    return shown_start(value, ELEMENT_SHOWN)


def pairs(found: list[bytes]) -> list[tuple[bytes, bytes]]:
    return list(zip(found[::2], found[1::2], strict=True))


def following(cursor: bytes) -> str | None:
    """A cursor as a text: those of 64 bits are too large for the numbers of a browser."""
    return None if cursor == b"0" else as_text(cursor)
