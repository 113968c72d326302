"""A server that is killed at any moment, under load: what it had acknowledged is there when it comes back.

A kill takes nothing away that has been written (the system still has it), so that `no` holds what `always` holds; with
`everysec` a write waits up to two seconds for a sync in the background. What only a sync saves is told apart in
test_power_loss.py.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from support.files.crash import Load, Trial
from support.files.fsync_shim import PowerLoss, find_compiler
from support.servers import eventually

pytestmark = pytest.mark.long

UNITS = (1, 600)
"""Between how many and how many acknowledgements the server is killed."""


@pytest.fixture
def trials(tmp_path: Path) -> Iterator[list[Trial]]:
    made: list[Trial] = []
    yield made
    for trial in made:
        trial.close()


def begin(trials: list[Trial], folder: Path, seed: int, **directives: str) -> tuple[Trial, random.Random]:
    may_wait = directives.get("appendfsync") == "everysec"
    trial = Trial(folder / f"data-{seed}", seed=seed, shares=0 if may_wait else 0.4, appendonly="yes", **directives)
    trial.grace_s = 5.0 if may_wait else 0.0  # and the server may be paused
    trials.append(trial)
    return trial, random.Random(seed)


def disturb(trial: Trial, chance: random.Random, load: Load) -> None:
    """Let something happen that writes files, or nothing."""
    what = chance.choice(["", "BGSAVE", "BGREWRITEAOF", "BGREWRITEAOF", "both", "form"])
    if what == "both":
        trial.ordered("BGREWRITEAOF")
        trial.ordered("BGSAVE", "SCHEDULE")
    elif what == "form":
        trial.ordered("CONFIG", "SET", "aof-use-rdb-preamble", chance.choice(["yes", "no"]))
        trial.ordered("BGREWRITEAOF")
    elif what:
        trial.ordered(what)
    load.wait_for(load.acknowledged + chance.choice([0, 0, 5, 50, 300]))


def play(trial: Trial, chance: random.Random, kills: int) -> None:
    for _ in range(kills):
        with trial.load() as load:
            load.wait_for(chance.randint(*UNITS))
            disturb(trial, chance, load)
            trial.kill()
    trial.check()


@pytest.mark.parametrize("policy", ["always", "everysec"])
def test_nothing_acknowledged_is_missing_after_a_kill(tmp_path: Path, trials: list[Trial], policy: str) -> None:
    trial, chance = begin(trials, tmp_path, 1, appendfsync=policy)
    play(trial, chance, 3)
    assert trial.acknowledged > 0


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("policy", "kills"), [("always", 70), ("everysec", 30), ("no", 10)])
def test_nothing_acknowledged_is_missing_after_many_kills(
    tmp_path: Path, trials: list[Trial], policy: str, kills: int
) -> None:
    seed = random.randrange(1_000_000)
    print("seed", seed)
    trial, chance = begin(trials, tmp_path, seed, appendfsync=policy)
    play(trial, chance, kills)
    print(
        f"{policy}: {kills} kills, {trial.acknowledged} units, {trial.applied} unacknowledged ones found, {trial.lost} lost"
    )


# --- While files are written ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["BGSAVE", "BGREWRITEAOF", "commands"])
def test_killed_while_a_child_writes(tmp_path: Path, trials: list[Trial], command: str) -> None:
    preamble = "no" if command == "commands" else "yes"
    trial, _ = begin(trials, tmp_path, 2, appendfsync="always", aof_use_rdb_preamble=preamble)
    for command_now in ("BGREWRITEAOF" if command == "commands" else command,) * 2:
        with trial.load() as load:
            trial.ordered("DEBUG", "POPULATE", "30000", f"filler{len(trial.started)}")
            load.wait_for(load.acknowledged + 20)
            trial.ordered("CONFIG", "SET", "rdb-key-save-delay", "1000")
            trial.ordered(command_now)
            load.wait_for(load.acknowledged + 20)
            assert "1" in (trial.info("rdb_bgsave_in_progress"), trial.info("aof_rewrite_in_progress"))
            trial.kill()
    trial.check()


CI_POINTS = {("rename", 5), ("unlink", 2)}
POINTS = [("rename", n) for n in range(1, 11)] + [("unlink", n) for n in range(1, 6)]


@pytest.mark.skipif(find_compiler() is None, reason="needs Linux and a C compiler")
@pytest.mark.parametrize("has_power", [True, False])
@pytest.mark.parametrize(
    ("call", "n"),
    [pytest.param(*point, marks=() if point in CI_POINTS else pytest.mark.slow) for point in POINTS],
)
def test_killed_before_each_change_of_a_name(
    tmp_path: Path, trials: list[Trial], call: str, n: int, has_power: bool
) -> None:
    """At the start, then two rewrites; also when the power fails then, so that the disk has only what was synced."""
    trial, _ = begin(trials, tmp_path, 3, appendfsync="always")
    trial.folder.mkdir()
    power = PowerLoss(trial.folder, tmp_path / "scratch")
    power.rules(f"{call} kill {n}")
    trial.environment = power.environment()
    with suppress(RuntimeError), trial.load() as load:
        for _ in range(2):
            load.wait_for(load.acknowledged + 50)
            trial.ordered("BGREWRITEAOF")
            trial.wait_for_child()
        load.wait_for(load.acknowledged + 50)
    if trial.server is not None:
        eventually(lambda: not trial.server.is_running, what="the call")
    trial.died()
    if not has_power:
        power.happen()
    trial.environment = {}
    trial.check()
    assert trial.applied < 200
