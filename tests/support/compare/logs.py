"""What two servers append to their files for the same requests: the propagated commands, and the number of changes.

logs = open_logs(tmp_path_factory)           # a streamd and a Redis of their own
compare(logs, "SET a 1\nINCR a")             # fails unless both logged the same
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ..commands.observed import OBSERVING, Effect, ServerObserver, masked
from ..servers import Server, start_redis, start_streamd
from ..wire import Reply, join_line
from .differential import Difference, parse_script

__all__ = ["Log", "compare", "open_logs"]


class Log:
    """A server that logs, and its log."""

    def __init__(self, server: Server) -> None:
        self.observer = ServerObserver(server)
        self.wire = server.connect()

    def run(self, script: str) -> tuple[list[Effect], int]:
        """The effects of a script on an emptied server, and by how much it raised the count of changes."""
        for request in (("SELECT", "0"), ("FLUSHALL",), ("SET", "mark", "")):
            assert self.wire.call(*request) == Reply("+", b"OK")
        self.observer.read_log()
        before = self.changes()
        self.wire.pipeline(parse_script(script))
        changes = self.changes() - before
        return [masked(effect) for effect in self.observer.read_log()], changes

    def changes(self) -> int:
        text = self.wire.call("INFO", "persistence").value
        return int(text.split(b"last_save:")[1].split(b"\r")[0])

    def close(self) -> None:
        self.wire.call("DEBUG", "SET-ACTIVE-EXPIRE", "1")
        self.wire.close()
        self.observer.close()


def open_logs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Log, Log]]:
    """The logs of a streamd and of a Redis, until the end of the fixture that this is."""
    servers = [
        start(tmp_path_factory.mktemp(f"{name}-log"), OBSERVING)
        for name, start in (("streamd", start_streamd), ("redis", start_redis))
    ]
    both = (Log(servers[0]), Log(servers[1]))
    yield both
    for log in both:
        log.close()
    for server in servers:
        server.stop()


def compare(logs: tuple[Log, Log], script: str) -> list[Effect]:
    (ours, our_changes), (theirs, their_changes) = (log.run(script) for log in logs)
    if ours != theirs:
        lines = ["different effects of:", *("    " + join_line(request) for request in parse_script(script))]
        for name, effects in (("streamd", ours), ("redis", theirs)):
            lines += [f"  {name}:", *("    " + join_line(effect) for effect in effects)]
        raise Difference("\n".join(lines))
    assert our_changes == their_changes, f"changes counted: {our_changes}, should be {their_changes}, after:\n{script}"
    return ours
