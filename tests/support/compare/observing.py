"""What a server reports to observers (MONITOR, CLIENT LIST, INFO), in a form that can be compared."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from ..servers import Server
from ..wire import Argument, Reply, Wire
from .side_by_side import on_each

__all__ = ["Watcher", "client_fields", "command_counts", "info_fields", "same_story"]

END = b"the end of what is looked at"


class Watcher:
    """A connection that has sent MONITOR."""

    def __init__(self, server: Server, protocol: int = 2) -> None:
        self.wire = server.connect(protocol)
        assert self.wire.call("MONITOR") == Reply("+", b"OK")

    def __enter__(self) -> Watcher:
        return self

    def __exit__(self, *exc: object) -> None:
        self.wire.close()

    def until_end(self, other: Wire) -> list[str]:
        """The lines so far, without times and ports; `other` is a connection that can run ECHO."""
        other.call("ECHO", END)
        lines = []
        while END not in (line := self.next_line()):
            lines.append(masked(line))
        return lines

    def next_line(self) -> bytes:
        reply = self.wire.read()
        assert reply.kind == "+", reply
        return bytes(reply.value)


def masked(line: bytes) -> str:
    """A line of MONITOR, its form checked, its time and port masked."""
    match = re.fullmatch(rb"(\d{10})\.(\d{6}) \[(\d+) ([^]]+)\] (.*)", line, re.DOTALL)
    assert match is not None, line
    address = re.sub(rb"^(127\.0\.0\.1):\d+$", rb"\1:PORT", match[4])
    address = re.sub(rb"^unix:.*/", b"unix:.../", address)
    return f"[{match[3].decode()} {address.decode()}] {match[5].decode()}"


def same_story(story: Callable[[Server], object], *servers: Server) -> None:
    """Run the same story on all servers; its results must not differ."""
    first, *others = servers
    ours, *results = on_each(servers, story)
    for other, theirs in zip(others, results, strict=True):
        assert ours == theirs, f"{first.name} says {ours}\n{other.name} says {theirs}"


def client_fields(wire: Wire, client_id: int | None = None) -> dict[str, str]:
    """A line of CLIENT LIST or CLIENT INFO, as fields."""
    text = wire.call("CLIENT", "INFO") if client_id is None else wire.call("CLIENT", "LIST", "ID", str(client_id))
    line = text.value.decode().removeprefix("txt:").strip()
    return dict(field.split("=", 1) for field in line.split(" "))


def info_fields(wire: Wire, *sections: Argument) -> dict[str, str]:
    """INFO as fields."""
    text: str = wire.call("INFO", *sections).value.decode().removeprefix("txt:")
    return dict(line.split(":", 1) for line in text.split("\r\n") if ":" in line)


def command_counts(line: str) -> str:
    """A line of INFO's commandstats without what depends on time: how long the calls took, and which are in the slow log."""
    return re.sub(r"(usec|slowlog)\w*=[\d.]+,?", "", line).rstrip(",")


def call_all(wire: Wire, requests: Iterable[Sequence[Argument]]) -> list[Reply]:
    return [wire.call(*request) for request in requests]
