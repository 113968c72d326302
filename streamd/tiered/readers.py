"""Readers: the processes that read the archive for a server, so that neither PyArrow nor a slow disk is in its own.

    Readers   asks; keeps questions in order until a reader is free, and starts one when there are fewer than there may be
    Reader    one process and its socket; it answers one question at a time

A question ends in one of four ways: its answer; an error of the reader; the end of the process; the time-out, after which the process is
killed, since nothing else ends a read of a file system that hangs. In each case the next question gets a process that works. The time-out
also ends a process that works for nobody any more, and START_S one that never begins to.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import cast

from streamd.client.tier_frames import (
    ANSWER,
    ASK,
    READY,
    REPLIES,
    REQUESTS,
    Frames,
    TierAnswer,
    TierQuestion,
    frame,
)
from streamd.core.client import Client
from streamd.core.host import Host
from streamd.core.identity import Identity
from streamd.core.inner_line import Line

__all__ = ["Question", "Readers"]

log = logging.getLogger("streamd")

PROGRAM = "streamd.archive.tier_reader"

START_S = 120
"""How long a process may take until it can read."""


class InnerUser(Identity):
    """The user of requests that readers make: without limits, and none of the ACL."""

    name = b"(archive reader)"


class Question:
    """A question that is waiting for a reader, or for its answer.

    timer      ends it, or the process that works on it
    is_wanted  somebody waits for the answer
    """

    def __init__(self, asked: TierQuestion) -> None:
        self.asked = asked
        self.done: Callable[[TierAnswer], None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.is_with_reader = False

    @property
    def is_wanted(self) -> bool:
        return self.done is not None

    def end(self, answer: TierAnswer) -> None:
        done = self.done
        self.is_with_reader = False
        self.cancel()
        if done is not None:
            done(answer)

    def cancel(self) -> None:
        """Nobody waits for the answer any more."""
        self.done = None
        if self.timer is not None and not self.is_with_reader:
            self.timer.cancel()


class Readers:
    """The readers of one archive.

    place       its folder, or its URL
    most        how many processes there are at most
    timeout_ms  how long a question may wait, for a reader and for the answer
    cache_bytes what each process keeps of the row groups that it has read
    """

    def __init__(self, host: Host, place: str, *, most: int, timeout_ms: int, cache_bytes: int) -> None:
        self.host = host
        self.place = place
        self.most = most
        self.timeout_ms = timeout_ms
        self.cache_bytes = cache_bytes
        self._readers: list[Reader] = []
        self._waiting: deque[Question] = deque()
        self._is_closed = False

    def ask(self, question: Question, done: Callable[[TierAnswer], None]) -> None:
        """Call `done` with the answer, later; not if the question is cancelled."""
        question.done = done
        question.timer = self.host.loop.call_later(self.timeout_ms / 1000, self._time_out, question)
        self._waiting.append(question)
        self.assign()

    def prepare(self) -> None:
        """Start the first process: importing PyArrow takes longer than most reads."""
        if not self._readers:
            self._readers.append(Reader(self))

    def close(self) -> None:
        self._is_closed = True
        for reader in list(self._readers):
            reader.kill("the server has stopped using this archive")
        self._fail_waiting("the server has stopped using this archive")

    def assign(self) -> None:
        """Give waiting questions to readers that are free; start one if that is not enough."""
        if self._is_closed:
            return
        free = [each for each in self._readers if each.is_free]
        while self._waiting and free:
            question = self._waiting.popleft()
            if not question.is_wanted:
                continue
            # The one that has this stream's row groups in its cache, if it is free.
            reader = max(free, key=lambda each: each.last_key == question.asked.key)
            free.remove(reader)
            reader.ask(question)
        starting = sum(each.is_starting for each in self._readers)
        waiting = sum(each.is_wanted for each in self._waiting)
        if waiting > starting and len(self._readers) < self.most:
            self._readers.append(Reader(self))

    def gone(self, reader: Reader, reason: str) -> None:
        """A process has ended."""
        if reader in self._readers:
            self._readers.remove(reader)
        if reader.is_starting and not any(each.is_usable for each in self._readers):
            # Another one would end in the same way: answer now, and try again with the next question.
            self._fail_waiting(reason)
        self.assign()

    def _fail_waiting(self, reason: str) -> None:
        while self._waiting:
            self.fail(self._waiting.popleft(), reason)

    def fail(self, question: Question, reason: str) -> None:
        # Not now: a command may be running, one that ends a reader, and the client's request would run in its midst.
        self.host.loop.call_soon(question.end, TierAnswer(error=reason))

    def _time_out(self, question: Question) -> None:
        text = f"it was not read within {self.timeout_ms} ms (stream-archive-timeout)"
        for reader in list(self._readers):
            if reader.question is question:
                reader.kill(text)
        question.end(TierAnswer(error=text))


class Reader(asyncio.Protocol):
    """One process; also the server's end of the line of the client that it is.

    question  what it is working on
    last_key  the last stream that it was asked for
    """

    def __init__(self, readers: Readers) -> None:
        self._readers = readers
        self._host = readers.host
        self._frames = Frames()
        self._process: subprocess.Popen[bytes] | None = None
        self._transport: asyncio.Transport | None = None
        self._client: Client | None = None
        self._ending = ""
        self.question: Question | None = None
        self.last_key = b""
        self.is_starting = True
        self._task = self._host.loop.create_task(self._start())
        self._start_timer = self._host.loop.call_later(START_S, self._start_late)

    @property
    def is_usable(self) -> bool:
        return not self.is_starting and not self._ending

    @property
    def is_free(self) -> bool:
        return self.is_usable and self.question is None

    async def _start(self) -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        try:
            with theirs:
                words = [self._readers.place, str(theirs.fileno()), str(self._readers.cache_bytes)]
                # Not on this thread: it waits until the program has been started.
                self._process = await self._host.loop.run_in_executor(None, spawn, words, theirs.fileno())
            if self._ending:
                ours.close()
                self._reap()
                return
            await self._host.loop.connect_accepted_socket(lambda: self, ours)
        except OSError as error:
            ours.close()
            self._end(f"a process to read it cannot be started: {error}")

    def _start_late(self) -> None:
        self.kill(f"the process that was to read it was not ready after {START_S} s")

    def ask(self, question: Question) -> None:
        self.question = question
        question.is_with_reader = True
        self.last_key = question.asked.key
        self._send(ASK, question.asked.to_bytes())

    def _send(self, kind: bytes, payload: bytes) -> None:
        if self._transport is not None:
            self._transport.write(frame(kind, payload))

    # --- What it says ------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self._ending:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._frames.feed(data)
        while not self._ending and (found := self._frames.next()) is not None:
            kind, payload = found
            if kind == REQUESTS:
                self._request(bytes(payload))
            elif kind == ANSWER:
                self._answer(payload)
            elif kind == READY and payload:
                self.kill(payload.decode(errors="replace"))
            elif kind == READY:
                self.is_starting = False
                self._start_timer.cancel()
                self._readers.assign()

    def _answer(self, payload: bytearray) -> None:
        question, self.question = self.question, None
        self._drop_client()
        if question is not None:
            question.end(TierAnswer.from_bytes(payload))
        self._readers.assign()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self.kill("the process that read it has ended")

    # --- What it asks of the server ----------------------------------------------------------------------------------

    def _request(self, data: bytes) -> None:
        if self.question is None:
            return
        if self._client is None:
            self._client = client = Client(self._host.dispatcher, True)
            client.set_authenticated(True, InnerUser())
            client.name = b"streamd-archive-reader"
            client.connection_made(Line(self, ("archive", 0), ("archive", 0)))
            self._readers_own().add(client.id)
            client.select(self._host.databases[self.question.asked.db])
        self._client.data_received(data)

    def _readers_own(self) -> set[int]:
        return self._host.dispatcher.context.tiers.live_only if self._host.dispatcher.context.tiers else set()

    def take(self, data: bytes) -> None:
        """The server has written to the client."""
        self._send(REPLIES, bytes(data))

    def line_closed(self) -> None:
        """The server has closed the client, or `_drop_client` has."""
        client, self._client = self._client, None
        if client is not None:
            self._host.loop.call_soon(client.connection_lost, None)
            if self.question is not None:
                self.kill("the server has closed the connection of the process that read it")

    def _drop_client(self) -> None:
        if self._client is not None:
            self._client.close()

    # --- Its end -----------------------------------------------------------------------------------------------------

    def kill(self, reason: str) -> None:
        if self._process is not None and not self._ending:
            self._process.kill()
        self._end(reason)

    def _end(self, reason: str) -> None:
        if self._ending:
            return
        self._ending = reason
        self._start_timer.cancel()
        if self._transport is not None:
            self._transport.abort()
        question, self.question = self.question, None
        self._drop_client()
        self._reap()
        if question is not None:
            self._readers.fail(question, reason)
        self._readers.gone(self, reason)

    def _reap(self) -> None:
        if self._process is not None and not self._host.loop.is_closed():
            self._process.kill()
            self._host.loop.run_in_executor(None, self._process.wait)


def spawn(words: list[str], fd: int) -> subprocess.Popen[bytes]:
    """Start a process that inherits a descriptor, and finds this very program wherever the server works."""
    source = str(Path(__file__).parents[2])
    path = os.pathsep.join(each for each in (source, os.environ.get("PYTHONPATH", "")) if each)
    command = [sys.executable, "-P", "-m", PROGRAM, *words]
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=[fd],
        # PyArrow's own allocators keep what they have freed: more than twice as much memory.
        env={"ARROW_DEFAULT_MEMORY_POOL": "system", **os.environ, "PYTHONPATH": path},
        start_new_session=True,
    )
