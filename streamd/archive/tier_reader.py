"""The process that reads an archive for a server (streamd/tiered): `python -m streamd.archive.tier_reader PLACE FD CACHE-BYTES`.

It has one socket, FD, over which it is asked, answers, and is a client of the server (client/tier_frames.py). It ends when the server does.
"""

from __future__ import annotations

import signal
import socket
import sys
from typing import TYPE_CHECKING, Any

from streamd.client.connection import Connection
from streamd.client.tier_frames import ANSWER, ASK, READY, REPLIES, REQUESTS, Frames, TierQuestion, frame
from streamd.client.url_options import ConnectionOptions

if TYPE_CHECKING:
    from streamd.archive.tier_answers import TierAnswers

__all__ = ["main"]

RECEIVE_BYTES = 65536


class ServerEnded(BaseException):
    """Nobody is left to read for."""


class Line:
    """The socket of a Connection, as far as one uses it: bytes are the payloads of frames."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._frames = Frames()
        self._replies = b""

    def question(self) -> TierQuestion:
        """The next one. Raises ServerEnded."""
        self._replies = b""
        while True:
            kind, payload = self._next()
            if kind == ASK:
                return TierQuestion.from_bytes(payload)

    def send(self, kind: bytes, payload: bytes = b"") -> None:
        try:
            self._socket.sendall(frame(kind, payload))
        except OSError:
            raise ServerEnded from None

    def sendall(self, data: bytes | bytearray | memoryview) -> None:
        self.send(REQUESTS, bytes(data))

    def recv(self, size: int) -> bytes:
        while not self._replies:
            kind, payload = self._next()
            if kind == REPLIES:
                self._replies = bytes(payload)
        data, self._replies = self._replies[:size], self._replies[size:]
        return data

    def recv_into(self, buffer: bytearray | memoryview) -> int:
        data = self.recv(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def gettimeout(self) -> float | None:
        return None

    def close(self) -> None:
        """The server does that, after the answer."""

    def _next(self) -> tuple[bytes, bytearray]:
        while (found := self._frames.next()) is None:
            data = self._socket.recv(RECEIVE_BYTES)
            if not data:
                raise ServerEnded
            self._frames.feed(data)
        return found


class InheritedConnection(Connection):
    """The connection to the server that has started this process."""

    is_only = True

    def __init__(self, line: Any) -> None:
        super().__init__("this server", line)
        self.options = ConnectionOptions(retries=0, client_name="streamd-archive-reader")


def main(place: str, fd: int, cache_bytes: int) -> None:
    # Ctrl-C in the server's terminal is the server's.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    line = Line(socket.socket(fileno=fd))
    try:
        answers = open_answers(line, place, cache_bytes)
        while answers is not None:
            asked = line.question()
            line.send(ANSWER, answers.answer(asked, InheritedConnection(line)).to_bytes())
    except ServerEnded:
        return


def open_answers(line: Line, place: str, cache_bytes: int) -> TierAnswers | None:
    try:
        from streamd.archive.tier_answers import TierAnswers
    except ModuleNotFoundError as error:
        line.send(READY, f"{error}: it is read with the extra `archive`: ./install '.[archive]'".encode())
        return None
    answers = TierAnswers(place, cache_bytes)
    line.send(READY)
    return answers


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
