"""Visit: a connection to an HTTP port, served by aiohttp within bounds of memory and time.

aiohttp parses and answers. This class bounds what a client could use without limit: at most `REQUEST_BYTES` of a request are kept, and
the rest of a longer one is dropped until the connection ends; a request must be complete within `REQUEST_S`; a reply that is not read
is dropped after `SEND_S`, and no other is started before it has been read. Bodies are not decompressed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager

from aiohttp import web

from streamd.process.http_guard import REQUEST_BYTES, network_of

__all__ = ["Visit"]

KEPT_S = 75.0
"""How long a connection is kept open for another request."""
REQUEST_S = 10.0
"""From the first byte of a request to its last."""
SEND_S = 10.0
"""After which a connection is given up whose other end does not read."""
LINGER_S = 1.0
"""How long the rest of a refused body is read and dropped, so that the refusal arrives."""

SILENT = logging.Logger("aiohttp of streamd", logging.CRITICAL + 1)
"""aiohttp logs requests that are no HTTP with tracebacks; what goes wrong in answers is logged where they are made."""


class Visit(web.RequestHandler):
    """A connection.

    network    whom it counts for
    opened_s   monotonic; lower for those that were opened earlier
    """

    __slots__ = (
        "_began_s",
        "_changed",
        "_has_room",
        "_idle_s",
        "_received",
        "_request",
        "_stuck_s",
        "network",
        "opened_s",
    )

    def __init__(
        self, server: web.Server, loop: asyncio.AbstractEventLoop, changed: Callable[[Visit, bool], None]
    ) -> None:
        super().__init__(
            server,
            loop=loop,
            access_log=None,  # type: ignore[arg-type]
            logger=SILENT,
            keepalive_timeout=KEPT_S,
            lingering_time=LINGER_S,
            auto_decompress=False,
        )
        self.network: Hashable = None
        self.opened_s = self._idle_s = time.monotonic()
        self._changed = changed  # called with True when it is open, with False when it is lost
        self._request: web.BaseRequest | None = None  # that is being answered
        self._began_s: float | None = None  # when the first byte of the request came
        self._received = 0  # bytes of the request so far
        self._stuck_s: float | None = None  # since when the other end should read
        self._has_room = asyncio.Event()
        self._has_room.set()

    @property
    def is_answering(self) -> bool:
        return self._request is not None

    def abort(self) -> None:
        """Close the connection at once, without what has not been sent."""
        if self.transport is not None:
            self.transport.abort()

    @contextmanager
    def answering(self, request: web.BaseRequest) -> Iterator[None]:
        """While a request is answered."""
        self._request = request
        try:
            yield
        finally:
            self._request = self._began_s = None
            self._idle_s = time.monotonic()
            if self._received <= REQUEST_BYTES:
                self._received = 0

    async def has_room(self) -> None:
        """Wait until the replies so far have been read; raises ConnectionError when the client has gone."""
        await self._has_room.wait()
        if self.transport is None:
            raise ConnectionResetError

    def end_if_late(self, now_s: float) -> None:
        """Close the connection if it takes too long."""
        request, transport = self._request, self.transport
        if transport is None:
            return
        is_receiving = self._began_s is not None and (request is None or not request.content.is_eof())
        is_late = is_receiving and self._began_s is not None and now_s > self._began_s + REQUEST_S
        is_unread = self._stuck_s is not None and now_s > self._stuck_s + SEND_S
        if request is None and now_s > self._idle_s + SEND_S and transport.get_write_buffer_size():
            is_unread = True
        # Its refusal may be about to be written.
        is_too_long = request is None and self._received > REQUEST_BYTES and now_s > (self._began_s or 0) + LINGER_S
        if is_late or is_unread or is_too_long:
            self.abort()

    # --- Called by the transport -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.network = network_of((transport.get_extra_info("peername") or ("",))[0])
        self._changed(self, True)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._changed(self, False)
        super().connection_lost(exc)
        self._has_room.set()

    def data_received(self, data: bytes) -> None:
        # aiohttp calls it without data, too, to go on after a pause.
        if data:
            if self._began_s is None:
                self._began_s = time.monotonic()
            kept = data[: max(0, REQUEST_BYTES - self._received)]
            self._received += len(data)
            if not kept:
                return
            data = kept
        super().data_received(data)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stuck_s = time.monotonic()
        self._has_room.clear()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stuck_s = None
        self._has_room.set()
