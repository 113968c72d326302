"""What commands on keys of any type and on strings are propagated as, and in which units, seen in the append-only file.

Both servers log; the commands in their logs must be the same, with MULTI, EXEC and SELECT between them, and so must the
number of changes that INFO counts. Marked `real`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from support.commands.observed import OBSERVING, Effect, ServerObserver, masked
from support.compare.differential import Difference, parse_script
from support.compare.effect_stories import GENERIC_STORIES, MEETINGS, NO_CYCLE
from support.servers import Server, eventually
from support.wire import Reply, join_line

pytestmark = pytest.mark.real


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


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Log, Log]]:
    from support.servers import start_redis, start_streamd

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


@pytest.mark.parametrize("story", GENERIC_STORIES)
def test_effects_are_those_of_redis(logs: tuple[Log, Log], story: str) -> None:
    assert compare(logs, GENERIC_STORIES[story])


@pytest.mark.parametrize("line", MEETINGS)
def test_an_expired_key_is_deleted_before_the_command_that_met_it(logs: tuple[Log, Log], line: str) -> None:
    compare(logs, f"{NO_CYCLE}SET other v\nSET k v PX 1\nDEBUG SLEEP 0.003\n{line}")


def test_an_expired_key_of_another_database_is_deleted_there(logs: tuple[Log, Log]) -> None:
    compare(logs, f"{NO_CYCLE}SELECT 1\nSET k v PX 1\nSELECT 0\nSET k v\nDEBUG SLEEP 0.003\nMOVE k 1")


def test_keys_that_expire_by_themselves_are_deleted_one_by_one(logs: tuple[Log, Log]) -> None:
    def deleted(log: Log) -> Callable[[], bool]:
        return lambda: log.wire.call("DBSIZE") == Reply(":", 0)

    effects = []
    for log in logs:
        log.run(f"{NO_CYCLE}DEL mark\nSET a v PX 10\nSET b v PX 10\nSET c v PX 10")
        log.wire.call("DEBUG", "SET-ACTIVE-EXPIRE", "1")
        eventually(deleted(log), what="the end of three keys")
        # What the cycle has deleted is in the log when the next command has been answered.
        log.wire.call("SET", "mark", "")
        effects.append(sorted(log.observer.read_log()))
    assert effects[0] == effects[1]
