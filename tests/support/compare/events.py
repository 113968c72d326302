"""Keyspace events of two servers: subscribe, run a script on both, compare what was published.

    watch = EventWatch(streamd_server, redis_server)
    watch.compare("SET s hello\nRENAME s other")            # fails unless both servers published the same, in the same order
    watch.compare("XADD s 1-1 f v", letters="KEt")          # only some classes of events

Each script runs on emptied servers, over one connection. An event is (database, event, key); the messages of both
kinds of channels are joined, and each event must come on both, `__keyspace@` first. Where time matters,
`wait_for` waits until a server has published an event (such as the expiry of a key).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..servers import Server
from ..wire import Argument, Reply, Wire, as_bytes, join_line
from .differential import Difference, parse_script

__all__ = ["ALL_EVENTS", "Event", "EventWatch", "Listener"]

ALL_EVENTS = "KEAmnoc"
END_CHANNEL = b"the-end-of-the-script"

_CHANNEL = re.compile(rb"__key(space|event)@(\d+)__:(.*)", re.DOTALL)


class Event(NamedTuple):
    """One event of one key."""

    db: int
    event: bytes
    key: bytes

    def __str__(self) -> str:
        return f"{self.event.decode('latin-1')} {self.key.decode('latin-1')!r} in {self.db}"


class Listener:
    """A connection that is subscribed to every event of a server."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.wire = server.connect()
        self.wire.send("PSUBSCRIBE", "__key*__:*")
        self.wire.send("SUBSCRIBE", END_CHANNEL)
        assert [self.wire.read().value[2].value for _ in range(2)] == [1, 2]

    def close(self) -> None:
        self.wire.close()

    def read_to_end(self, end: bytes) -> list[Event]:
        """The events up to the message that marks the end of a script."""
        messages: list[tuple[bytes, bytes]] = []
        while (message := self._message()) != (END_CHANNEL, end):
            messages.append(message)
        return join_messages(messages)

    def wait_for(self, event: bytes, key: bytes) -> list[Event]:
        """The events up to the first of this name on this key; it must be published on both kinds of channels."""
        messages: list[tuple[bytes, bytes]] = []
        while True:
            messages.append(self._message())
            channel, payload = messages[-1]
            if channel.startswith(b"__keyevent@") and channel.endswith(b"__:" + event) and payload == key:
                return join_messages(messages)

    def _message(self) -> tuple[bytes, bytes]:
        pushed = self.wire.read().value
        channel, payload = (part.value for part in pushed[-2:])
        return channel, payload


def join_messages(messages: Iterable[tuple[bytes, bytes]]) -> list[Event]:
    """Events from the messages of both kinds of channels, or of one kind when only that one is on."""
    events: list[Event] = []
    by_key: Event | None = None
    for channel, payload in messages:
        match = _CHANNEL.fullmatch(channel)
        assert match is not None, channel
        kind, db, name = match[1], int(match[2]), match[3]
        event = Event(db, payload, name) if kind == b"space" else Event(db, name, payload)
        if kind == b"space":
            if by_key is not None:
                events.append(by_key)
            by_key = event
            continue
        assert by_key is None or by_key == event, f"{by_key} and {event} are not the same event"
        events.append(event)
        by_key = None
    return events if by_key is None else [*events, by_key]


class EventWatch:
    """Two servers that publish their events, and their listeners."""

    def __init__(self, ours: Server, theirs: Server, protocol: int = 2) -> None:
        self.servers = (ours, theirs)
        self.wires: tuple[Wire, Wire] = (ours.connect(protocol), theirs.connect(protocol))
        self.listeners = (Listener(ours), Listener(theirs))
        self._scripts = 0

    def close(self) -> None:
        """Stop publishing events."""
        for wire, listener in zip(self.wires, self.listeners, strict=True):
            assert wire.call("CONFIG", "SET", "notify-keyspace-events", "") == Reply("+", b"OK")
            wire.close()
            listener.close()

    def __enter__(self) -> EventWatch:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def compare(
        self, script: str | Iterable[Sequence[Argument]], letters: str = ALL_EVENTS, *, waits_for: Sequence[bytes] = ()
    ) -> list[Event]:
        """Run a script on both servers, emptied; fail unless they published the same events; return them.

        script     lines as in redis-cli, or requests
        letters    the setting notify-keyspace-events
        waits_for  event and key: an event that occurs by itself after the script, to wait for
        """
        requests = (
            parse_script(script) if isinstance(script, str) else [tuple(map(as_bytes, request)) for request in script]
        )
        ours, theirs = (self._run(at, requests, letters, waits_for) for at in (0, 1))
        if ours != theirs:
            raise Difference(explain(requests, ours, theirs, [server.name for server in self.servers]))
        return ours

    def _run(
        self, at: int, requests: Sequence[Sequence[bytes]], letters: str, waits_for: Sequence[bytes]
    ) -> list[Event]:
        wire, listener = self.wires[at], self.listeners[at]
        for request in (("FLUSHALL",), ("SELECT", "0"), ("CONFIG", "SET", "notify-keyspace-events", letters)):
            assert wire.call(*request) == Reply("+", b"OK")
        wire.pipeline(requests)
        events = listener.wait_for(*waits_for) if waits_for else []
        self._scripts += 1
        end = b"%d" % self._scripts
        with self.servers[at].connect() as other:
            other.call("PUBLISH", END_CHANNEL, end)
        return events + listener.read_to_end(end)


def explain(
    requests: Sequence[Sequence[bytes]], ours: Sequence[Event], theirs: Sequence[Event], names: Sequence[str]
) -> str:
    lines = ["different events after:", *("    " + join_line(request) for request in requests)]
    for name, events in zip(names, (ours, theirs), strict=True):
        lines.append(f"  {name}:")
        lines += [f"    {event}" for event in events]
    return "\n".join(lines)
