"""What users of the console may change, where `http-allow-writes` is on and their permissions allow it."""

from __future__ import annotations

from typing import Any

from streamd.client.replies import as_text
from streamd.console.asked import Asked, answers
from streamd.console.guard import RefusedError
from streamd.entry_id import parse_id

__all__: list[str] = []

CLAIMED_AT_ONCE = 500
CLAIM_PAGES = 20
"""Of entries that one request claims."""


@answers("POST", "ack")
async def ack(asked: Asked) -> dict[str, Any]:
    """XACK: pending entries are done."""
    done = await asked.connection.call("XACK", asked.name("key"), asked.name("group"), *asked.ids(), db=asked.db)
    return {"done": done}


@answers("POST", "claim")
async def claim(asked: Asked) -> dict[str, Any]:
    """XCLAIM: pending entries become those of another consumer. They do not count as delivered once more."""
    moved = await asked.connection.call(
        "XCLAIM",
        asked.name("key"),
        asked.name("group"),
        asked.name("consumer"),
        asked.number("idle_ms", 0),
        *asked.ids(),
        "JUSTID",
        db=asked.db,
    )
    return {"done": len(moved)}


@answers("POST", "claim-all")
async def claim_all(asked: Asked) -> dict[str, Any]:
    """XCLAIM of what is pending of one consumer (`from`) for another, from an ID on; `next` is where to go on, if there is more."""
    key, group, owner, to = (asked.name(each) for each in ("key", "group", "from", "consumer"))
    if owner == to:
        raise RefusedError(400, "The entries are already pending for that consumer.")
    start = asked.name("start") if "start" in asked.body else b"-"
    done = 0
    for _ in range(CLAIM_PAGES):
        found = await asked.connection.call("XPENDING", key, group, start, "+", CLAIMED_AT_ONCE, owner, db=asked.db)
        if not found:
            return {"done": done, "next": None}
        ids = [each[0] for each in found]
        done += len(await asked.connection.call("XCLAIM", key, group, to, 0, *ids, "JUSTID", db=asked.db))
        start = b"(" + ids[-1]
    return {"done": done, "next": as_text(start)}


@answers("POST", "delete-consumer")
async def delete_consumer(asked: Asked) -> dict[str, Any]:
    """XGROUP DELCONSUMER; what was pending there is forgotten."""
    names = asked.name("key"), asked.name("group"), asked.name("consumer")
    return {"done": await asked.connection.call("XGROUP", "DELCONSUMER", *names, db=asked.db)}


@answers("POST", "trim")
async def trim(asked: Asked) -> dict[str, Any]:
    """XTRIM, exactly: to a length, or to the entries from an ID on."""
    if "min_id" in asked.body:
        min_id = asked.name("min_id")
        if parse_id(min_id) is None:
            raise RefusedError(400, "An entry ID looks like 1700000000000-0.")
        bound: tuple[bytes | str | int, ...] = ("MINID", min_id)
    else:
        bound = ("MAXLEN", asked.number("max_length"))
    return {"done": await asked.connection.call("XTRIM", asked.name("key"), *bound, db=asked.db)}


@answers("POST", "delete-key")
async def delete_key(asked: Asked) -> dict[str, Any]:
    """UNLINK of a key of any type."""
    return {"done": await asked.connection.call("UNLINK", asked.name("key"), db=asked.db)}
