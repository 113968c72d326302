"""Metrics: the port on which the server tells Prometheus about itself, `metrics-port`.

The HTTP side is aiohttp's, the format prometheus_client's; both are imported when there is a port (the extra `metrics`). The text is
made by scrape.py, in slices. Nothing is counted for it that is not counted anyway, so without a port it costs nothing.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from streamd.core.capability import Capability
from streamd.core.host import Host
from streamd.core.listening import ListenError, PortListener
from streamd.errors import ConfigError

if TYPE_CHECKING:
    from aiohttp import web

__all__ = ["Metrics"]

log = logging.getLogger("streamd")

PATH = "/metrics"
SEND_S = 30.0
"""After which a client that does not read is given up."""
MISSING = "needs aiohttp and prometheus_client, of the extra `metrics`: ./install '.[metrics]'"


class Metrics(Capability):
    """The port and what answers there."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._port = PortListener(
            host.loop, host.config, "metrics-port", self._make_connection, addresses="metrics-bind"
        )
        self._server: web.Server | None = None
        host.config.callbacks["listen-metrics"] = self._follow_settings

    @property
    def port(self) -> int:
        """The port that it listens on; 0 if there is none."""
        return self._port.port

    async def open(self) -> None:
        """Listen, if a port is configured; raises ListenError."""
        port = self._host.config.metrics_port
        if port:
            try:
                self._prepare()
            except ImportError as error:
                log.warning("metrics-port %s (%s)", MISSING, error)
                raise ListenError(f"metrics-port {MISSING}", f"port {port} (metrics)") from error
            await self._port.start()

    def close(self) -> None:
        self._port.close()
        if self._server is not None:
            # At once: the event loop may not have many more turns.
            for connection in self._server.connections:
                connection.force_close()

    def _follow_settings(self) -> None:
        """CONFIG SET metrics-port or metrics-bind; raises ConfigError."""
        if self._host.config.metrics_port:
            try:
                self._prepare()
            except ImportError as error:
                raise ConfigError("metrics-port", f"metrics-port {MISSING}") from error
        self._port.follow_settings()
        if not self.port and self._server is not None:
            self._server.pre_shutdown()

    # --- HTTP --------------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Make what answers; raises ImportError."""
        if self._server is not None:
            return
        from aiohttp import web

        from streamd.observe.metrics.exposition import Exposition
        from streamd.observe.metrics.scrape import Scraper

        scraper = Scraper(self._host)

        async def answer(request: web.BaseRequest) -> web.StreamResponse:
            if request.method not in ("GET", "HEAD"):
                return web.Response(status=405, text="The metrics are read with GET.\n", headers={"Allow": "GET, HEAD"})
            if request.path != PATH:
                return web.Response(status=404, text=f"The metrics are at {PATH}.\n")
            exposition = Exposition(request.headers.get("Accept", ""))
            pieces = await scraper.text(exposition) if request.method == "GET" else []
            response = web.StreamResponse(headers={"Content-Type": exposition.content_type})
            try:
                async with asyncio.timeout(SEND_S):
                    await response.prepare(request)
                    for piece in pieces:
                        await response.write(piece)
                        await asyncio.sleep(0)  # others' turn
            except (TimeoutError, ConnectionError):
                if request.transport is not None:
                    request.transport.abort()
            return response

        self._server = web.Server(answer, loop=self._host.loop, access_log=None)

    def _make_connection(self) -> asyncio.Protocol:
        assert self._server is not None, "there is a port only after `_prepare`"  # noqa: S101
        return self._server()
