"""A stream followed live: server-sent events, each with the entries that have come.

    event: entries   data: {"entries": [...], "skipped": true}     skipped: more had come than are shown
    event: refused   data: {"error": "..."}                        the end

A connection of its own waits for entries with XREAD. At most `ENTRIES` are sent in `EVERY_S`; of a stream that gets more, the newest.
A browser that does not read is given up after `SEND_S`.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from streamd.console.asked import Asked, answers
from streamd.console.connection import Connection, GoneError
from streamd.console.guard import HEADERS
from streamd.console.streams import entry_json, page_size
from streamd.shell.caller import ReplyError
from streamd.shell.replies import as_text

if TYPE_CHECKING:
    from aiohttp import web

__all__: list[str] = []

ENTRIES = 50
EVERY_S = 0.25
WAIT_MS = 15_000
"""Without entries for so long, a comment is sent: it shows whether somebody is still there."""
SEND_S = 10.0


@answers("GET", "tail")
async def tail(asked: Asked) -> web.StreamResponse:
    """Entries added from now on."""
    from aiohttp import web

    connection = asked.sessions.new_tail(asked.session)
    try:
        # Fails before there is a response, if it is not allowed.
        key, since = asked.name("key"), await _last_id(asked)
        response = web.StreamResponse(headers={**HEADERS, "Content-Type": "text/event-stream"})
        await _send(response, asked.request, ": follows\n\n")
        try:
            while True:
                found, is_skipping = await _wait(connection, asked, key, since)
                if found:
                    since = found[-1][0]
                    shown = [entry_json(*each) for each in found]
                    await _send(response, asked.request, event("entries", {"entries": shown, "skipped": is_skipping}))
                    await asyncio.sleep(EVERY_S)
                else:
                    await _send(response, asked.request, ": waits\n\n")
                if asked.sessions.find(asked.session.token) is None:
                    break
        except (ReplyError, GoneError) as error:
            await _send(response, asked.request, event("refused", {"error": str(error) or "The session has ended."}))
    except (TimeoutError, ConnectionError):
        if asked.request.transport is not None:
            asked.request.transport.abort()
    finally:
        asked.session.tails.discard(connection)
        connection.close()
    return response


def event(name: str, data: dict[str, Any]) -> str:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"


async def _send(response: web.StreamResponse, request: web.BaseRequest, text: str) -> None:
    async with asyncio.timeout(SEND_S):
        if not response.prepared:
            await response.prepare(request)
        await response.write(text.encode())


async def _last_id(asked: Asked) -> bytes:
    """The ID after which new entries come; raises ReplyError."""
    reply = await asked.connection.call("XREVRANGE", asked.name("key"), "+", "-", "COUNT", 1, db=asked.db)
    return reply[0][0] if reply else b"0-0"


async def _wait(
    connection: Connection, asked: Asked, key: bytes, since: bytes
) -> tuple[list[tuple[bytes, list[bytes]]], bool]:
    """The entries after an ID, at least one unless there was none for `WAIT_MS`; and whether some are left out."""
    count = await page_size(asked, key, ENTRIES)
    reply = await connection.call("XREAD", "COUNT", count, "BLOCK", WAIT_MS, "STREAMS", key, since, db=asked.db)
    if reply is None:
        return [], False
    found = reply[0][1]
    if len(found) < count:
        return found, False
    newest = await connection.call("XREVRANGE", key, "+", "(" + as_text(since), "COUNT", count, db=asked.db)
    return newest[::-1], bool(newest) and newest[-1][0] != found[0][0]
