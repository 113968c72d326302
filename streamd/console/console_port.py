"""Console: the port of the console, `http-port`, and the end of its sessions.

The HTTP side is aiohttp's, which is imported when there is a port (the extra `console`). Without one nothing is done for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from streamd.core.capability import Capability
from streamd.core.host import Host
from streamd.observe.last_hour import History
from streamd.process.http_port import HttpPort

if TYPE_CHECKING:
    from aiohttp import web

    from streamd.console.sessions import Sessions

__all__ = ["Console"]


class Console(Capability):
    """The port and what answers there.

    history  the last hour, while there is a port
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._sessions: Sessions | None = None
        self.history = History(host)
        self._http = HttpPort(
            host.loop,
            host.config,
            "http-port",
            addresses="http-bind",
            apply="listen-http",
            what="console",
            missing="needs aiohttp, of the extra `console`: ./install '.[console]'",
            make_answer=self._make_answer,
            closed=self._end_sessions,
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
        if self._sessions is not None:
            self._sessions.end_old()
        if self.port:
            self.history.each_second()

    def close(self) -> None:
        self._end_sessions()
        self._http.close()

    def _end_sessions(self) -> None:
        if self._sessions is not None:
            self._sessions.close()

    def _make_answer(self) -> Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]:
        from streamd.console.answers import Answers
        from streamd.console.sessions import Sessions

        self._sessions = Sessions(self._host)
        return Answers(self._host, self._sessions, self.history, lambda: self.port).answer
