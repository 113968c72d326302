"""Search for entries whose fields contain a text, from an ID on, a bounded number of entries at a time."""

from __future__ import annotations

from typing import Any

from streamd.console.asked import Asked, answers
from streamd.console.guard import RefusedError
from streamd.console.streams import PAGE_ENTRIES, entry_json, page_size
from streamd.core.slices import Slices

__all__: list[str] = []

SEARCHED = 20_000
"""Entries that one request searches."""
AT_ONCE = 500


@answers("GET", "search")
async def search(asked: Asked) -> dict[str, Any]:
    """Entries with a text in a field's name or value, the newest first; `field=text` looks at the values of one field.

    looked  entries that were looked at
    next    where to go on, if there is more
    """
    key, wanted = asked.name("key"), asked.name("text").lower()
    if not wanted:
        raise RefusedError(400, "The search text is empty.")
    start = asked.query.get("start") or b"+"
    count = await page_size(asked, key, AT_ONCE)
    slices, looked = Slices(), 0
    found: list[dict[str, Any]] = []
    while looked < SEARCHED and len(found) < PAGE_ENTRIES:
        reply = await asked.connection.call("XREVRANGE", key, start, "-", "COUNT", count, db=asked.db)
        for entry_id, fields in reply:
            looked += 1
            start = b"(" + entry_id
            if matches(fields, wanted):
                found.append(entry_json(entry_id, fields))
                if len(found) == PAGE_ENTRIES:
                    break
            await slices.breathe()
        else:
            if len(reply) < count:
                return {"entries": found, "looked": looked, "next": None}
    return {"entries": found, "looked": looked, "next": start.decode()}


def matches(fields: list[bytes], wanted: bytes) -> bool:
    """Whether the fields and values of an entry contain a text in lower case."""
    if any(wanted in each.lower() for each in fields):
        return True
    name, separator, value = wanted.partition(b"=")
    return bool(separator) and any(
        fields[at].lower() == name and value in fields[at + 1].lower() for at in range(0, len(fields), 2)
    )
