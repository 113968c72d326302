"""A stream followed live: server-sent events, each with the entries that have come.

    event: entries   id: 5-0   data: {"entries": [...], "skipped": true}     skipped: more had come than are shown
    event: refused             data: {"error": "..."}                        the end

The id is that of the last entry; a browser that connects anew names it as `Last-Event-ID`, and gets what came meanwhile.
A connection of its own waits for entries with XREAD. At most `ENTRIES` are sent in `EVERY_S`; of a stream that gets more, the newest.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from streamd.client.client_errors import ServerError
from streamd.client.replies import as_text
from streamd.console.asked import Asked, answers
from streamd.console.guard import HEADERS, RefusedError
from streamd.console.inner_client import Connection, GoneError
from streamd.console.streams import entry_json, page_size
from streamd.core.slices import Slices
from streamd.entry_id import parse_id
from streamd.process.http_port import break_off, write

if TYPE_CHECKING:
    from aiohttp import web

__all__: list[str] = []

ENTRIES = 50
EVERY_S = 0.25
WAIT_MS = 1000
"""How long one XREAD waits; then it is looked whether somebody is still there."""
QUIET = 15
"""After so many of them without an entry a comment is sent, for proxies that close what is silent."""


@answers("GET", "tail")
async def tail(asked: Asked) -> web.StreamResponse:
    """Entries added from now on."""
    from aiohttp import web

    connection = asked.sessions.new_tail(asked.session)
    try:
        # Fails before there is a response, if it is not allowed.
        key, since = asked.name("key"), await _start(asked)
        response = web.StreamResponse(headers={**HEADERS, "Content-Type": "text/event-stream"})
        try:
            await _follow(connection, asked, key, since, response)
        except (ServerError, GoneError) as error:
            said = str(error) or "The session has ended."
            await write(asked.request, response, event("refused", json.dumps({"error": said})))
        except Exception:
            break_off(asked.request)
            raise
    finally:
        asked.session.tails.discard(connection)
        connection.close()
    return response


async def _follow(connection: Connection, asked: Asked, key: bytes, since: bytes, response: web.StreamResponse) -> None:
    """Send what comes after an ID while it is wanted; raises ServerError, GoneError, TimeoutError, ConnectionError."""
    await write(asked.request, response, b": follows\nid: " + since + b"\n\n")
    quiet = 0
    while is_wanted(asked):
        found, is_skipping = await _wait(connection, asked, key, since)
        if found:
            since = found[-1][0]
            slices, shown = Slices(), []
            for each in found:
                shown.append(json.dumps(entry_json(*each)))
                await slices.breathe()
            data = f'{{"entries": [{", ".join(shown)}], "skipped": {json.dumps(is_skipping)}}}'
            await write(asked.request, response, event("entries", data, since))
            await asyncio.sleep(EVERY_S)
        quiet = 0 if found else quiet + 1
        if quiet == QUIET:
            await write(asked.request, response, b": waits\n\n")
            quiet = 0


def is_wanted(asked: Asked) -> bool:
    """Whether the browser is still connected, and its session has not ended."""
    transport = asked.request.transport
    return transport is not None and not transport.is_closing() and asked.sessions.find(asked.session.token) is not None


def event(name: str, data: str, entry_id: bytes | None = None) -> bytes:
    of = "" if entry_id is None else f"id: {as_text(entry_id)}\n"
    return f"event: {name}\n{of}data: {data}\n\n".encode()


async def _start(asked: Asked) -> bytes:
    """The ID after which entries are sent; raises ServerError, RefusedError."""
    reply = await asked.connection.call("XREVRANGE", asked.name("key"), "+", "-", "COUNT", 1, db=asked.db)
    seen = asked.request.headers.get("Last-Event-ID", "").encode("utf-8", "surrogateescape")
    if seen and parse_id(seen) is None:
        raise RefusedError(400, "An entry ID looks like 1700000000000-0.")
    return seen or (reply[0][0] if reply else b"0-0")


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
