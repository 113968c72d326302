"""Metrics: the port on which the server tells Prometheus about itself, `metrics-port`.

The HTTP side is aiohttp's, the format prometheus_client's; both are imported when there is a port (the extra `metrics`). The text is
made by scrape.py, in slices. Nothing is counted for it that is not counted anyway, so without a port it costs nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from streamd.core.capability import Capability
from streamd.core.host import Host
from streamd.core.http_port import HttpPort, break_off, write

if TYPE_CHECKING:
    from aiohttp import web

__all__ = ["Metrics"]

PATH = "/metrics"


class Metrics(Capability):
    """The port and what answers there."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._http = HttpPort(
            host,
            "metrics-port",
            addresses="metrics-bind",
            apply="listen-metrics",
            what="metrics",
            missing="needs aiohttp and prometheus_client, of the extra `metrics`: ./install '.[metrics]'",
            make_answer=self._make_answer,
        )

    @property
    def port(self) -> int:
        """The port that it listens on; 0 if there is none."""
        return self._http.port

    async def open(self) -> None:
        """Listen, if a port is configured; raises ListenError."""
        await self._http.open()

    def close(self) -> None:
        self._http.close()

    def _make_answer(self) -> Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]:
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
                for piece in pieces:
                    await write(request, response, piece)
            except (TimeoutError, ConnectionError):
                break_off(request)
            return response

        return answer
