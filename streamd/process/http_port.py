"""HttpPort: a port of the server that speaks HTTP: opened, moved and closed as its settings say.

The HTTP side is aiohttp's, which is imported when there is a port. What answers is made then, too.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from streamd.errors import ConfigError
from streamd.process.http_guard import find_crowding
from streamd.process.listening import ListenError, PortListener
from streamd.settings.config import Config

if TYPE_CHECKING:
    from aiohttp import web

    from streamd.process.http_visit import Visit

__all__ = ["HttpPort", "break_off", "write"]

log = logging.getLogger("streamd")

CONNECTIONS = 256
"""At most: a stranger needs no password to open one. The address with the most makes room, with one that is not being answered."""


class HttpPort:
    """A port.

    setting      the name of the setting with the port; 0 closes it
    addresses    the name of the setting with the addresses
    apply        the event of these settings after CONFIG SET
    what         what the port is for, in the log
    missing      what is said when a package is not installed
    make_answer  makes what answers requests, before the port is opened; raises ImportError
    closed       called when CONFIG SET has closed the port
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        config: Config,
        setting: str,
        *,
        addresses: str,
        apply: str,
        what: str,
        missing: str,
        make_answer: Callable[[], Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]],
        closed: Callable[[], None] | None = None,
    ) -> None:
        self._loop = loop
        self._config = config
        self._setting = setting
        self._what = what
        self._missing = missing
        self._make_answer = make_answer
        self._closed = closed
        self._port = PortListener(loop, config, setting, self._make_connection, addresses=addresses)
        self._server: web.Server | None = None
        self._visits: dict[Visit, None] = {}  # in the order in which they were opened
        config.callbacks[apply] = self._follow_settings

    @property
    def port(self) -> int:
        """The port that it listens on; 0 if there is none."""
        return self._port.port

    @property
    def _wanted(self) -> int:
        return int(getattr(self._config, self._setting.replace("-", "_")))

    async def open(self) -> None:
        """Listen, if a port is configured; raises ListenError."""
        if self._wanted:
            try:
                self._prepare()
            except ImportError as error:
                log.warning("%s %s (%s)", self._setting, self._missing, error)
                place = f"port {self._wanted} ({self._what})"
                raise ListenError(f"{self._setting} {self._missing}", place) from error
            await self._port.start()

    def each_second(self) -> None:
        now_s = time.monotonic()
        for visit in list(self._visits):
            visit.end_if_late(now_s)

    def close(self) -> None:
        self._port.close()
        self._close_connections()

    def _close_connections(self) -> None:
        # At once: the event loop may not have many more turns.
        for visit in list(self._visits):
            visit.force_close()

    def _follow_settings(self) -> None:
        """CONFIG SET of the port or its addresses; raises ConfigError."""
        if self._wanted:
            try:
                self._prepare()
            except ImportError as error:
                raise ConfigError(self._setting, f"{self._setting} {self._missing}") from error
        self._port.follow_settings()
        if not self.port:
            if self._closed is not None:
                self._closed()
            self._close_connections()

    def _prepare(self) -> None:
        """Make what answers; raises ImportError."""
        if self._server is None:
            from aiohttp import web

            make = self._make_answer()

            async def answer(request: web.BaseRequest) -> web.StreamResponse:
                visit: Visit = request.protocol  # type: ignore[assignment]
                with visit.answering(request):
                    try:
                        await visit.has_room()
                        return await make(request)
                    except ConnectionError:
                        break_off(request)
                    except Exception:
                        log.exception("%s: %s %s failed", self._what, request.method, request.path)
                        break_off(request)
                    return web.Response(status=500)  # which nobody reads any more

            self._server = web.Server(answer, loop=self._loop)

    def _make_connection(self) -> asyncio.Protocol:
        from streamd.process.http_visit import Visit

        assert self._server is not None, "there is a port only after `_prepare`"  # noqa: S101
        return Visit(self._server, self._loop, self._visit_changed)

    def _visit_changed(self, visit: Visit, is_open: bool) -> None:
        if not is_open:
            self._visits.pop(visit, None)
            return
        self._visits[visit] = None
        if len(self._visits) > CONNECTIONS:
            crowding = find_crowding(
                self._visits, lambda each: each.network, lambda each: (each.is_answering, each.opened_s)
            )
            del self._visits[crowding]
            crowding.abort()


async def write(request: web.BaseRequest, response: web.StreamResponse, data: bytes) -> None:
    """Write a piece of an answer, the headers before the first; then others have their turn.

    Raises ConnectionError when nobody is there, or nobody reads it.
    """
    if not response.prepared:
        await response.prepare(request)
    await response.write(data)
    await asyncio.sleep(0)


def break_off(request: web.BaseRequest) -> None:
    """Close the connection without the rest of an answer."""
    if request.transport is not None:
        request.transport.abort()
