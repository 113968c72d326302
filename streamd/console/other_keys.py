"""Keys of other types than streams: their type, size and time to live, and the start of strings."""

from __future__ import annotations

from typing import Any

from streamd.client.client_errors import ServerError
from streamd.client.replies import as_text
from streamd.console.asked import Asked, answers
from streamd.console.json_bytes import shown, shown_start
from streamd.console.streams import PER_SCAN, WHOLE_VALUE_SHOWN, allowed
from streamd.core.slices import Slices

__all__: list[str] = []

KEYS_SHOWN = 1000
KEYS_LOOKED_AT = 100_000


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


@answers("GET", "string")
async def string(asked: Asked) -> dict[str, Any]:
    """The start of a string."""
    key = asked.name("key")
    size = await asked.connection.call("STRLEN", key, db=asked.db)
    start = await asked.connection.call("GETRANGE", key, 0, WHOLE_VALUE_SHOWN, db=asked.db)
    return {"value": shown_start(start, WHOLE_VALUE_SHOWN), "size": size}
