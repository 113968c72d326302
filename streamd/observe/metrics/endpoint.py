"""Metrics: the port on which the server tells Prometheus about itself, `metrics-port`.

The HTTP side is aiohttp's, the format prometheus_client's; both are imported when there is a port (the extra `metrics`). The text is
made by scrape.py, in slices. Nothing is counted for it that is not counted anyway, so without a port it costs nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from streamd.core.capability import Capability
from streamd.core.host import Host
from streamd.process.http_guard import RefusedError, check_body, host_name, is_known_host
from streamd.process.http_port import HttpPort, write

if TYPE_CHECKING:
    from aiohttp import web

__all__ = ["Metrics"]

PATH = "/metrics"
TEXTS = 4
"""Texts that are being sent, at most: whoever reads the oldest too slowly is given up."""


class Metrics(Capability):
    """The port and what answers there."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._http = HttpPort(
            host.loop,
            host.config,
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

    def each_second(self, now_ms: int) -> None:
        self._http.each_second()

    def close(self) -> None:
        self._http.close()

    def _make_answer(self) -> Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]:
        from aiohttp import web

        from streamd.observe.metrics.exposition import Exposition
        from streamd.observe.metrics.scrape import Scraper

        scraper, readers = Scraper(self._host), Readers()

        async def answer(request: web.BaseRequest) -> web.StreamResponse:
            try:
                check(request, self._host.config.metrics_hosts)
            except RefusedError as error:
                headers = {"Allow": "GET, HEAD"} if error.status == 405 else None
                return web.Response(status=error.status, text=f"{error}\n", headers=headers)
            exposition = Exposition(request.headers.get("Accept", ""))
            pieces = await scraper.text(exposition) if request.method == "GET" else []
            response = web.StreamResponse(headers={"Content-Type": exposition.content_type})
            with readers.reading(pieces, request.transport):
                for piece in pieces:
                    await write(request, response, piece)
            return response

        return answer


def check(request: web.BaseRequest, names: str) -> None:
    """Refuse what is not a scrape by a known name; raises RefusedError.

    names  the setting `metrics-hosts`
    """
    # Nobody can register a name without a dot, so a page of somebody else does not come by one.
    name = host_name(request.headers.get("Host", ""))
    if ("." in name or not name) and not is_known_host(name, names):
        raise RefusedError(421, "Unknown host name: add it to the setting metrics-hosts.")
    if request.method not in ("GET", "HEAD"):
        raise RefusedError(405, "The metrics are read with GET.")
    if request.path != PATH:
        raise RefusedError(404, f"The metrics are at {PATH}.")
    check_body(request.headers)


class Readers:
    """Who reads which text, the oldest first."""

    def __init__(self) -> None:
        self._of: dict[int, tuple[list[bytes], set[asyncio.Transport]]] = {}

    @contextmanager
    def reading(self, pieces: list[bytes], line: asyncio.Transport | None) -> Iterator[None]:
        """While a text is sent; that of the oldest ends if there are too many."""
        if line is None:
            raise ConnectionResetError
        _, lines = self._of.setdefault(id(pieces), (pieces, set()))
        lines.add(line)
        if len(self._of) > TEXTS:
            for each in self._of.pop(next(iter(self._of)))[1]:
                each.abort()
        try:
            yield
        finally:
            lines.discard(line)
            if not lines:
                self._of.pop(id(pieces), None)
