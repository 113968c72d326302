"""A server that is killed at any moment, under load: what it had acknowledged is there when it comes back.

A kill takes nothing away that has been written (the system still has it), so all policies must hold what `always` holds;
what only a sync saves is told apart in test_power_loss.py.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from support.crash import Load, Trial
from support.servers import eventually
from support.wire import ConnectionClosed

UNITS = (1, 600)
"""Between how many and how many acknowledgements the server is killed."""


@pytest.fixture
def trials(tmp_path: Path) -> Iterator[list[Trial]]:
    made: list[Trial] = []
    yield made
    for trial in made:
        trial.close()


def begin(trials: list[Trial], folder: Path, seed: int, **directives: str) -> tuple[Trial, random.Random]:
    trial = Trial(folder / f"data-{seed}", seed=seed, appendonly="yes", **directives)
    trials.append(trial)
    return trial, random.Random(seed)


def kill(trial: Trial) -> None:
    assert trial.server is not None
    trial.server.kill()
    trial.died()


def order(trial: Trial, *command: str) -> None:
    """Have a command run by the server, which may die of it."""
    assert trial.server is not None
    with suppress(ConnectionClosed, OSError), trial.server.connect() as wire:
        reply = wire.call(*command)
        assert not reply.is_error, reply


def disturb(trial: Trial, chance: random.Random, load: Load) -> None:
    """Let something happen that writes files, or nothing."""
    what = chance.choice(
        ["", "BGSAVE", "BGREWRITEAOF", "BGREWRITEAOF", "CONFIG SET aof-use-rdb-preamble no", "both", "policy"]
    )
    if what == "both":
        order(trial, "BGREWRITEAOF")
        order(trial, "BGSAVE", "SCHEDULE")
    elif what == "policy":
        order(trial, "CONFIG", "SET", "aof-use-rdb-preamble", chance.choice(["yes", "no"]))
        order(trial, "BGREWRITEAOF")
    elif what:
        order(trial, *what.split())
    load.wait_for(load.acknowledged + chance.choice([0, 0, 5, 50, 300]))


def play(trial: Trial, chance: random.Random, kills: int) -> None:
    for _ in range(kills):
        with trial.load() as load:
            load.wait_for(chance.randint(*UNITS))
            disturb(trial, chance, load)
            kill(trial)
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
    print(f"{policy}: {kills} kills, {trial.acknowledged} units, {trial.applied} unacknowledged ones found")
