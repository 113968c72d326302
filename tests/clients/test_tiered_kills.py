"""Reads across the border at every step of what changes an archive, and after a kill there: those of the uncut stream, or an error.

run, trim, merge   each step of a run is where one ends, and is looked at in one that does not; so with a deletion
restore            into another key, and into the stream's own after it was lost
fork               a copy of the server goes on with the archive

Each look is XRANGE, XREVRANGE, XREAD, a new group that reads everything, and one that reads on: in the end it has had each entry once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support.servers import eventually, start_streamd
from support.wire import Wire

pytest.importorskip("pyarrow", reason="archives need streamd-server[archive]")

from support.tiers import ARCHIVED, KEY, UNCUT, Stage, id_at

from streamd.archive.archiver import STEPS, Archiver, ArchiveSettings
from streamd.archive.delete import DELETE_STEPS, delete
from streamd.archive.restore import restore
from streamd.client.archive_keys import key_beside
from streamd.client.points import parse_entry_id

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

GROUP = "reads-on"
READS: tuple[tuple[Any, ...], ...] = (
    ("XRANGE", KEY, "-", "+"),
    ("XRANGE", KEY, id_at(ARCHIVED - 5), "+", "COUNT", 10),
    ("XREVRANGE", KEY, "+", "-"),
    ("XREVRANGE", KEY, id_at(ARCHIVED + 5), "-", "COUNT", 10),
    ("XREAD", "STREAMS", KEY, "0"),
    ("XREAD", "COUNT", 10, "STREAMS", KEY, id_at(ARCHIVED - 5)),
    ("XREADGROUP", "GROUP", "all", "c", "NOACK", "STREAMS", KEY, ">"),
    ("XREADGROUP", "GROUP", "all", "c", "NOACK", "COUNT", 10, "STREAMS", KEY, ">"),
)


class Killed(BaseException):
    """The end of a process: nothing is cleaned up."""


class Looks:
    """Looks at the stream, and what they have found.

    errors    replies that were errors, since the last `expect_none`
    received  by the group that reads on
    """

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.errors: list[str] = []
        self.received: list[Any] = []
        stage.call("XGROUP", "CREATE", KEY, GROUP, "0")

    def look(self) -> None:
        stage = self.stage
        for words in READS:
            keys = (KEY, UNCUT)
            if words[0] == "XREADGROUP":
                for key in keys:
                    stage.call("XGROUP", "CREATE", key, "all", "0" if len(words) < 9 else id_at(ARCHIVED - 5))
            found, expected = (stage.wire.call(*(key if word == KEY else word for word in words)) for key in keys)
            if words[0] == "XREADGROUP":
                for key in keys:
                    stage.call("XGROUP", "DESTROY", key, "all")
            if found.is_error:
                assert found.plain().startswith(b"ARCHIVE "), (words, found)
                self.errors.append(found.plain().decode())
            elif words[0].startswith("XREAD"):
                assert found.plain()[0][1] == expected.plain()[0][1], words
            else:
                assert found == expected, words
        self.read_on(9)

    def read_on(self, count: int) -> bool:
        """False: there was nothing more, or an error."""
        found = self.stage.wire.call(
            "XREADGROUP", "GROUP", GROUP, "c", "NOACK", "COUNT", count, "STREAMS", KEY, ">"
        ).plain()
        if not isinstance(found, list):
            return False
        self.received += found[0][1]
        return True

    def expect_whole(self) -> None:
        """Everything could be read, and the group has had everything."""
        self.look()
        while self.read_on(1000):
            pass
        assert self.errors == []
        assert self.received == self.stage.call("XRANGE", UNCUT, "-", "+")


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path, stream_archive_readers="1", stream_archive_groups="yes")
    yield made
    made.close()


@pytest.fixture
def looks(stage: Stage) -> Looks:
    stage.prepare()
    return Looks(stage)


def until(step: str, look: Callable[[], None], seen: set[str]) -> Callable[[str], None]:
    """A hook that ends the process at a step; or, with "" for it, looks at each."""

    def hook(name: str) -> None:
        seen.add(name)
        if name == step:
            raise Killed
        if not step:
            look()

    return hook


def run_until(stage: Stage, step: str, look: Callable[[], None], seen: set[str], port: int = 0) -> None:
    """A run that is killed at a step, if it reaches it, and a look; its lock expires."""
    port = port or stage.server.port
    settings = ArchiveSettings(
        hot_window_ms=0, trim_delay_ms=0, merge_files=2, checkpoint_every=2, ignored_groups=frozenset({GROUP})
    )
    archiver = Archiver(stage.place, {"stream": KEY, "port": str(port)}, settings, hook=until(step, look, seen))
    with suppress(Killed):
        archiver.run()
    look()
    with Wire(port) as wire:
        wire.call("DEL", key_beside("lock", KEY))


def test_a_run_at_each_of_its_steps(stage: Stage, looks: Looks) -> None:
    seen: set[str] = set()
    for step in (*STEPS, ""):
        stage.add(12)
        run_until(stage, step, looks.look, seen)
    assert seen == set(STEPS)
    looks.expect_whole()


def test_a_deletion_at_each_of_its_steps(stage: Stage, looks: Looks) -> None:
    """Each reply is that of the uncut stream, except for the entries that are being deleted, in either tier."""
    stage.archived(trim=False)
    options = {"port": str(stage.server.port)}
    seen: set[str] = set()
    for at, step in enumerate((*DELETE_STEPS, "")):
        ids = [id_at(each) for each in (at, ARCHIVED - 1 - at, ARCHIVED + at)]
        stage.call("XDEL", UNCUT, *ids)
        left = stage.call("XRANGE", UNCUT, "-", "+")
        deleted = {each.encode() for each in ids}

        def look(left: list[Any] = left, deleted: set[bytes] = deleted) -> None:
            found = stage.call("XRANGE", KEY, "-", "+")
            assert [each for each in found if each[0] not in deleted] == left

        ranges = [(number, number) for number in map(parse_entry_id, ids)]
        with suppress(Killed):
            delete(stage.place, KEY, options, ranges, hook=until(step, look, seen))
        look()
        stage.call("DEL", key_beside("lock", KEY))
        delete(stage.place, KEY, options, ranges)
        assert stage.call("XRANGE", KEY, "-", "+") == left
    assert seen >= {"delete staged", "delete committed", "removed", "unserved"}


def restore_a_batch(stage: Stage, into: str, *, resume: bool) -> bool:
    """Restore, killed after the first batch. False: there was none."""

    def progress(rows: int, total: int) -> None:
        raise Killed

    with suppress(Killed):
        restore(stage.place, KEY, {"port": str(stage.server.port)}, into=into, progress=progress, resume=resume)
        return False
    return True


@pytest.mark.parametrize("into", ["another", KEY])
def test_a_restore_that_is_killed(stage: Stage, looks: Looks, into: str) -> None:
    stage.archived(ignored_groups=frozenset({GROUP}))
    uncut = stage.call("XRANGE", UNCUT, "-", "+")
    if into == KEY:
        stage.call("DEL", KEY)
        assert stage.call("XRANGE", KEY, "-", "+") == []
    kills = 0
    while restore_a_batch(stage, into, resume=kills > 0):
        kills += 1
        found = stage.wire.call("XRANGE", into, "-", "+")
        if into == KEY:
            assert found.is_error or found.plain() == uncut
        else:
            assert found.plain() == uncut[: len(found.plain())]
            looks.look()
    assert kills > 1
    assert stage.call("XRANGE", into, "-", "+") == uncut
    if into != KEY:
        looks.expect_whole()


def test_a_fork_that_goes_on_with_the_archive(stage: Stage, looks: Looks, tmp_path: Path) -> None:
    """The archive is that of the server, until the fork commits; from then on it is another one's."""
    (tmp_path / "fork").mkdir()
    fork = start_streamd(tmp_path / "fork", {"replicaof": f"127.0.0.1 {stage.server.port}"}, name="fork")
    try:
        with fork.connect() as wire:
            eventually(lambda: wire.call("XLEN", UNCUT).plain() == stage.added, what="the fork in sync")
            wire.call("REPLICAOF", "NO", "ONE")
            wire.call("XADD", KEY, "*", "of", "the fork")
            wire.call("XDEL", KEY, id_at(ARCHIVED))
            stage.add(5)
            for step in STEPS:
                is_committed = STEPS.index(step) >= STEPS.index("committed")
                run_until(stage, step, looks.look, set(), fork.port)
                looks.look()
                assert bool(looks.errors) == is_committed, (step, looks.errors)
            assert "XRANGE" not in looks.errors[-1]
            assert stage.error().startswith("ARCHIVE ")
    finally:
        fork.stop()
