"""A server whose every reply would take over a terminal that shows it as it is."""

from __future__ import annotations

import socketserver
import threading
from types import TracebackType
from typing import Self

__all__ = ["SEQUENCES", "HostileServer"]

SEQUENCES = ("\x1b]0;owned\x07", "\x1b[31m", "\x9b2J", "\u202e")
"""The title of the window, a colour, the screen cleared, the line turned round."""
EVIL = "".join(SEQUENCES).encode()


class Handler(socketserver.StreamRequestHandler):
    """Answers each request with an error, or INFO with fields, whatever was asked."""

    def handle(self) -> None:
        while head := self.rfile.readline():
            words = []
            for _ in range(int(head[1:])):
                size = int(self.rfile.readline()[1:])
                words.append(self.rfile.read(size + 2)[:-2])
            self.wfile.write(self.answer(words))

    def answer(self, words: list[bytes]) -> bytes:
        name = words[0].upper()
        if self.server.is_friendly and name == b"INFO":  # type: ignore[attr-defined]
            text = b"redis_version:7.%b\r\nrole:%b\r\nuptime_in_seconds:1\r\n" % (EVIL, EVIL)
            return b"$%d\r\n%b\r\n" % (len(text), text)
        if self.server.is_friendly and name == b"PING":  # type: ignore[attr-defined]
            return b"+PONG %b\r\n" % EVIL
        return b"-ERR refused %b\r\n" % EVIL


class HostileServer(socketserver.ThreadingTCPServer):
    """The server, on `port`.

    is_friendly  whether INFO and PING are answered, with the same sequences
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, *, is_friendly: bool = False) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.is_friendly = is_friendly
        self.port = int(self.server_address[1])
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,))
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()
