"""What `streamd doctor` finds, for the overview.

Its checks speak to a server over a blocking connection, so they run in a thread, one at a time, and ask through a connection of the
session's user. A session examines a database at most once in `EVERY_S`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from streamd.client.client_errors import ServerError, UnreachableError
from streamd.client.connection import Reply
from streamd.client.place import Place
from streamd.console.asked import Asked, answers
from streamd.console.inner_client import Connection, GoneError
from streamd.watching.case import Thresholds
from streamd.watching.diagnosis import Diagnosis, examine
from streamd.watching.look import Limits, Reader, Request

__all__: list[str] = []

EVERY_S = 60.0
INTERVAL_S = 2.0
LIMITS = Limits(keys=10_000, streams=100, consumers=20)
SHOWN = 50
ANSWER_S = 5.0
"""How long the thread waits for the event loop, which may end."""


@answers("GET", "findings")
async def findings(asked: Asked) -> dict[str, Any]:
    """What is wrong with the server, worst first."""
    async with asked.sessions.examining:
        known = asked.session.findings.get(asked.db)
        if known is None or time.monotonic() > known[0] + EVERY_S:
            known = time.monotonic(), as_json(await _examine(asked))
            asked.session.findings[asked.db] = known
        return known[1]


async def _examine(asked: Asked) -> Diagnosis:
    connection = asked.sessions.new_connection(asked.session)
    asked.session.asking.add(connection)
    place = Place(*asked.session.local, db=asked.db)
    loop = asyncio.get_running_loop()
    try:
        reader = Reader(place, LIMITS, lambda _: InnerCaller(connection, asked.db, loop))
        return await asyncio.to_thread(examine, reader, place, Thresholds(), interval_s=INTERVAL_S)
    except UnreachableError as error:
        raise GoneError(str(error)) from None
    finally:
        asked.session.asking.discard(connection)
        connection.close()


def as_json(found: Diagnosis) -> dict[str, Any]:
    return {
        "findings": [
            {name: value for name, value in asdict(each).items() if name not in ("weight", "values")}
            for each in found.findings[:SHOWN]
        ],
        "more": max(0, len(found.findings) - SHOWN),
        "refused": dict(found.look.refused),
        "is_whole": found.look.is_whole,
    }


class InnerCaller:
    """A blocking client for a thread, whose requests are made by a connection of the event loop."""

    def __init__(self, connection: Connection, db: int, loop: asyncio.AbstractEventLoop) -> None:
        self._connection = connection
        self._db = db
        self._loop = loop

    def command(self, *words: bytes | str | int) -> Reply:
        """The reply to a request. Raises ServerError, UnreachableError."""
        return self.pipeline([words])[0]

    def pipeline(self, requests: Sequence[Request], *, raise_errors: bool = True) -> list[Reply]:
        """The replies to requests, in order. Raises UnreachableError, and the first error reply if it is to."""
        work = asyncio.run_coroutine_threadsafe(self._connection.ask(requests, self._db), self._loop)
        try:
            replies = work.result(ANSWER_S)
        except (GoneError, TimeoutError) as error:
            raise UnreachableError(str(error) or "The server does not answer.") from None
        for each in replies if raise_errors else ():
            if isinstance(each, ServerError):
                raise each
        return replies

    def close(self) -> None:
        """The connection is closed by whom has opened it."""
