"""Line: the transport of a client within the process of its server, without a socket."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

__all__ = ["Line", "LineOwner", "Peer"]

Peer = tuple[str, int]


class LineOwner(Protocol):
    """Whoever is at the other end."""

    def take(self, data: Any) -> None:
        """The server has written."""

    def line_closed(self) -> None:
        """The server, or the owner, has closed the line."""


class Line(asyncio.Transport):
    """What the server writes to."""

    def __init__(self, owner: LineOwner, peer: Peer, local: Peer) -> None:
        super().__init__({"peername": peer, "sockname": local})
        self._owner = owner
        self._is_closing = False

    def write(self, data: Any) -> None:
        if not self._is_closing:
            self._owner.take(data)

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._owner.line_closed()

    def is_closing(self) -> bool:
        return self._is_closing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is buffered here: what the server writes has arrived."""

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        """Requests that were handed over wait in the client's parser."""

    def resume_reading(self) -> None:
        """See `pause_reading`."""
