"""Stories with several connections: what each client received, and who still waits, recorded in order.

A story is a function of a `Stage`. It is played on two servers, and the two records must be the same. Nothing in it sleeps:
a step ends when the server reports that a client is blocked, or when a reply has come.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from ..servers import Server, eventually
from ..wire import Argument, ConnectionClosed, Reply, Wire, show, split_line
from .mask import mask
from .side_by_side import on_each

__all__ = ["Stage", "compare_story"]

MAIN = "main"


class Stage:
    """One server, emptied, and named connections to it, each opened when first named."""

    def __init__(self, server: Server, protocol: int) -> None:
        self.server = server
        self.protocol = protocol
        self.record: list[str] = []
        self._wires: dict[str, Wire] = {}
        self._sent: dict[str, list[bytes]] = {}
        self._blocked = 0
        self.observer = server.connect()
        assert self.observer.call("FLUSHALL") == Reply("+", b"OK")
        self._wait_for_blocked()

    def close(self) -> None:
        for wire in (*self._wires.values(), self.observer):
            wire.close()

    def wire(self, who: str) -> Wire:
        if who not in self._wires:
            self._wires[who] = self.server.connect(self.protocol)
        return self._wires[who]

    def note(self, text: str) -> None:
        self.record.append(text)

    def do(self, line: str, who: str = MAIN) -> Reply:
        """A command that answers at once; its reply is recorded."""
        return self._told(who, split_line(line), self.wire(who).line(line))

    def block(self, who: str, line: str) -> None:
        """A command that blocks: returns when the server counts one more blocked client."""
        self.send(who, *split_line(line))
        self.count_blocked(+1)

    def count_blocked(self, change: int) -> None:
        """Wait until the number of blocked clients has changed by `by`: for what was sent or read by other means."""
        self._blocked += change
        self._wait_for_blocked()

    def send(self, who: str, *args: Argument) -> None:
        self._sent[who] = [a if isinstance(a, bytes) else str(a).encode() for a in args]
        self.wire(who).send(*args)

    def served(self, *who: str) -> None:
        """Each of these has been answered, or is now; they are no longer blocked."""
        for one in who:
            self._told(one, self._sent[one], self.wire(one).read())
        self.count_blocked(-len(who))

    def still_waits(self, *who: str) -> None:
        """None of these has been answered, although the server has executed everything sent before."""
        self.observer.call("PING")
        for one in who:
            assert not self.wire(one).has_input(), f"{one} was answered: {show(self.wire(one).read())}"
        self._wait_for_blocked()
        self.note(f"{', '.join(who)} waits")

    def leave(self, who: str) -> None:
        """A blocked client hangs up."""
        self._wires.pop(who).close()
        self.count_blocked(-1)

    def hung_up(self, who: str) -> None:
        """The server closes the connection of a blocked client."""
        try:
            reply = self.wire(who).read()
        except ConnectionClosed:
            self.note(f"{who}: connection closed")
            self.count_blocked(-1)
        else:
            raise AssertionError(f"{who} was answered: {reply}")

    def client_id(self, who: str) -> str:
        return str(self.wire(who).client_id())

    def counters(self) -> None:
        """Record what INFO says about blocked clients and keys."""
        text = self.observer.call("INFO", "clients").value.decode()
        names = ("blocked_clients", "total_blocking_keys", "total_blocking_keys_on_nokey")
        self.note(" ".join(line for line in text.split("\r\n") if line.split(":")[0] in names))

    def timed(self, who: str, line: str, at_least_s: float) -> None:
        """A blocking command that must time out, and not too early."""
        started = time.monotonic()
        self.send(who, *split_line(line))
        self._told(who, self._sent[who], self.wire(who).read())
        waited = time.monotonic() - started
        assert waited >= at_least_s - 0.002, f"{self.server.name} answered after {waited:.4f} s, before {at_least_s} s"

    def send_lines(self, who: str, text: bytes, *, last: str = "PING") -> None:
        """Inline commands in one piece; `last` is the request that a later `served` expects the reply to."""
        self._sent[who] = split_line(last)
        self.wire(who).send_bytes(text)

    def reads(self, who: str, count: int = 1) -> None:
        """Record the next replies without masking."""
        self.note(f"{who} read {' '.join(show(self.wire(who).read()) for _ in range(count))}")

    def _told(self, who: str, args: list[bytes], reply: Reply) -> Reply:
        self.note(f"{who} told {show(mask(args, reply))}")
        return reply

    def _wait_for_blocked(self) -> None:
        field = b"blocked_clients:%d\r\n" % self._blocked
        eventually(
            lambda: field in self.observer.call("INFO", "clients").value, what=f"{self._blocked} clients blocked"
        )


def compare_story(story: Callable[[Stage], None], servers: tuple[Server, Server], protocol: int) -> None:
    """Play a story on both servers; the records must be the same, to the byte and in order."""

    def play(server: Server) -> list[str]:
        stage = Stage(server, protocol)
        try:
            story(stage)
        except Exception as error:
            error.add_note(f"on {server.name} in RESP{protocol}, after:\n    " + "\n    ".join(stage.record))
            raise
        finally:
            stage.close()
        return stage.record

    ours, theirs = on_each(servers, play)
    same = next((at for at, both in enumerate(zip(ours, theirs, strict=False)) if both[0] != both[1]), None)
    told = "\n    ".join(theirs[:same])
    if same is not None:
        raise AssertionError(
            f"RESP{protocol}, after:\n    {told}\n  {servers[0].name}: {ours[same]}\n  {servers[1].name}: {theirs[same]}"
        )
    assert len(ours) == len(theirs)
