"""What commands on keys of any type and on strings are propagated as, and in which units, seen in the append-only file.

Both servers log; the commands in their logs must be the same, with MULTI, EXEC and SELECT between them, and so must the
number of changes that INFO counts. Marked `real`.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.compare.effect_stories import GENERIC_STORIES, MEETINGS, NO_CYCLE
from support.compare.logs import Log, compare
from support.servers import eventually
from support.wire import Reply

pytestmark = pytest.mark.real


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
