"""Effects of commands besides replies: events published, keys touched, commands propagated.

A server started with OBSERVING reveals them by its append-only file, its keyspace notifications and WATCH.
`ServerObserver.run` sends a script to one and returns a list of `Told`, one for each request, in which the wall clock is
masked. `run_observed` gives the effects of one request to a handler, without a server.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import hiredis

from streamd.core.spec import table

from ..compare.later import without_created
from ..servers import Server
from ..wire import Reply, join_line
from .handler import HandlerContext, run

__all__ = ["OBSERVING", "Effect", "ServerObserver", "Told", "compare_told", "masked", "run_observed", "units"]

Effect = tuple[bytes, ...]
Request = Sequence[bytes]

OBSERVING = {
    "appendonly": "yes",
    "appendfsync": "no",
    "auto-aof-rewrite-percentage": "0",
    "notify-keyspace-events": "Et$nm",
}
"""The directives for a server to be observed."""

CLOCK = re.compile(rb"1[678]\d{11}(-\d+)?")
BRACKETS = {(b"MULTI",): 1, (b"EXEC",): -1}
MARK = b"mark"
"""A key that is set after each request, to mark the end of that request's effects."""


@dataclass(frozen=True)
class Told:
    """The effects of one request.

    events   those on streams, new keys and misses, as `name key`
    touched  whether it touched a watched key
    effects  the propagated commands
    dirty    by how much it raised rdb_changes_since_last_save
    """

    events: tuple[str, ...]
    touched: bool
    effects: tuple[Effect, ...]
    dirty: int

    def __str__(self) -> str:
        effects = "; ".join(map(join_line, self.effects)) or "none"
        return f"events {', '.join(self.events) or 'none'} | touched {self.touched} | effects {effects} | dirty {self.dirty}"


def masked(effect: Sequence[bytes]) -> Effect:
    """Without what the wall clock says: Unix times of today in milliseconds, and IDs made of them.

    Nor with the threshold with which an approximate trim with a policy is propagated; see docs/differences.md.
    """
    words = [b"<clock>" if CLOCK.fullmatch(word) else word for word in effect]
    if effect[0].upper() in (b"XADD", b"XTRIM") and {b"DELREF", b"ACKED"} & set(effect):
        words = [b"<id>" if before == b"=" and b"-" in word else word for before, word in pairwise([b"", *words])]
    return tuple(words)


def units(effects: Iterable[Effect]) -> list[list[Effect]]:
    """The commands of a log in units: those between MULTI and EXEC form one, and so does any other command."""
    found: list[list[Effect]] = []
    depth = 0
    for effect in effects:
        change = BRACKETS.get(effect, 0)
        if depth == 0:
            found.append([])
        depth += change
        if not change:
            found[-1].append(effect)
    return found


class ServerObserver:
    """Runs requests on a server that was started with OBSERVING."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.wire = server.connect()
        self._ear = server.connect()
        assert self._ear.call("PSUBSCRIBE", "__keyevent@0__:*").kind == "*"
        self._incremental = server.folder / "appendonlydir/appendonly.aof.1.incr.aof"
        self._read_to = 0

    def close(self) -> None:
        self.wire.close()
        self._ear.close()

    def start_over(self, **settings: Any) -> None:
        """Empty the server and change some settings."""
        assert self.wire.call("FLUSHALL") == Reply("+", b"OK")
        for name, value in settings.items():
            assert self.wire.call("CONFIG", "SET", name.replace("_", "-"), str(value)) == Reply("+", b"OK")

    def run(self, requests: Sequence[Request], watched: Sequence[bytes]) -> list[Told]:
        """Run all requests, in one pipeline; touched is of the `watched` keys."""
        info = (b"INFO", b"persistence")
        set_mark = (b"SET", MARK, b"")
        pipeline: list[Any] = [info, set_mark]
        for request in requests:
            pipeline += [(b"WATCH", *watched), request, (b"MULTI",), (b"EXEC",), info, set_mark]
        self.read_log()
        replies = self.wire.pipeline(pipeline)
        effects = _split(self.read_log())
        events = [self._read_events() for _ in range(len(requests) + 1)]
        changes = [int(reply.value.split(b"last_save:")[1].split(b"\r")[0]) for reply in (replies[0], *replies[6::6])]
        aborted = [reply.value is None for reply in replies[5::6]]
        return [
            Told(events[at + 1], aborted[at], effects[at + 1], changes[at + 1] - changes[at] - 1)
            for at in range(len(requests))
        ]

    def read_log(self) -> list[Effect]:
        """What has been propagated since the last time."""
        with self._incremental.open("rb") as log:
            log.seek(self._read_to)
            data = log.read()
        self._read_to += len(data)
        reader = hiredis.Reader()
        reader.feed(data)
        effects = []
        while (effect := reader.gets()) is not False:
            effects.append(tuple(effect))
        return effects

    def _read_events(self) -> tuple[str, ...]:
        """The events up to the next mark."""
        events = []
        while True:
            channel, key = (part.value for part in self._ear.read().value[2:])
            event = channel.split(b":", 1)[1].decode()
            if key != MARK:
                events.append(f"{event} {key.decode()}")
            elif event == "set":
                return tuple(events)


def _split(effects: Iterable[Effect]) -> list[tuple[Effect, ...]]:
    """The effects of each request, masked."""
    parts: list[list[Effect]] = [[]]
    for effect in effects:
        if effect[:2] == (b"SET", MARK):
            parts.append([])
        elif effect not in BRACKETS and effect[0] != b"SELECT":
            parts[-1].append(masked(effect))
    return [tuple(part) for part in parts]


def compare_told(requests: Sequence[Request], ours: Sequence[Told], theirs: Sequence[Told]) -> None:
    """Fail at the first stream request with different effects, except for consumers that it created.

    Redis does not propagate when XDELEX forgets entries that were already trimmed; see docs/differences.md.
    """
    for at, (request, mine, its) in enumerate(zip(requests, ours, theirs, strict=True)):
        if request[0].upper() == b"XDELEX" and mine.effects == (tuple(request),) and mine.dirty == 0:
            mine = replace(mine, effects=())
        mine, its = (replace(told, effects=without_created(told.effects)) for told in (mine, its))
        if request[0].upper().startswith(b"X") and mine != its:
            script = "\n".join("    " + join_line(each) for each in requests[: at + 1])
            raise AssertionError(f"the last line of\n{script}\ndid in\n  streamd {mine}\n  redis   {its}")


# --- Without a server -----------------------------------------------------------------------------------------------


def run_observed(ctx: HandlerContext, request: Request) -> list[list[bytes]]:
    """Run one request; return the commands to propagate, as execution decides them."""
    dirty = ctx.dirty
    ctx.effects = None
    if _is_complete(request):
        run(ctx, *request)
    if ctx.effects is not None:
        return ctx.effects
    return [list(request)] if ctx.dirty != dirty else []


def _is_complete(request: Request) -> bool:
    """Whether the command or subcommand exists and accepts this number of arguments: otherwise nothing is run."""
    command = table[request[0].decode().upper()]
    if command.handler is None:
        subcommand = command.subcommands.get(request[1].decode().upper()) if len(request) > 1 else None
        return subcommand is not None and subcommand.accepts(len(request))
    return command.accepts(len(request))
