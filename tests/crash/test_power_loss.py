"""The power fails: what is left of a file is what was there at its last sync, of a directory the names at its last sync.

The shim (support/files/fsync_shim) plays the strictest disk that there may be. With `always` nothing acknowledged is lost on it,
with `everysec` no more than two seconds; a disk that fails to sync makes the server say so, or end, before it acknowledges
anything more.
"""

from __future__ import annotations

import errno
import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from support.files.crash import Load, Trial
from support.files.fsync_shim import PowerLoss, find_compiler
from support.servers import eventually
from support.wire import ConnectionClosed, Reply

pytestmark = [pytest.mark.long, pytest.mark.skipif(find_compiler() is None, reason="needs Linux and a C compiler")]

EIO = f"fsync {errno.EIO}"
Begin = Callable[..., tuple[Trial, PowerLoss]]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    made: list[Trial] = []

    def begin_one(seed: int, *, shares: float = 0.4, workers: int = 4, **directives: str) -> tuple[Trial, PowerLoss]:
        folder = tmp_path / f"data-{len(made)}"
        folder.mkdir()
        power = PowerLoss(folder, tmp_path / f"scratch-{len(made)}")
        trial = Trial(folder, seed=seed, shares=shares, workers=workers, appendonly="yes", **directives)
        trial.environment = power.environment()
        made.append(trial)
        return trial, power

    yield begin_one
    for trial in made:
        trial.close()


def fail_power(trial: Trial, power: PowerLoss) -> None:
    """What stands on the disk now is all that there is."""
    if trial.server is not None and trial.server.is_running:
        trial.kill()
    power.happen()
    power.renew()


def play(trial: Trial, power: PowerLoss, chance: random.Random, failures: int) -> None:
    for _ in range(failures):
        with trial.load() as load:
            load.wait_for(chance.randint(1, 400))
            for command in chance.choice([[], ["BGREWRITEAOF"], ["BGSAVE"], ["BGREWRITEAOF", "BGSAVE SCHEDULE"]]):
                trial.ordered(*command.split())
            load.wait_for(load.acknowledged + chance.choice([0, 20, 200]))
            trial.kill()
        fail_power(trial, power)
    trial.check()


def test_with_always_nothing_acknowledged_is_lost(begin: Begin) -> None:
    trial, power = begin(1, appendfsync="always")
    play(trial, power, random.Random(1), 3)
    assert trial.acknowledged > 0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_with_always_nothing_acknowledged_is_lost_many_times(begin: Begin) -> None:
    seed = random.randrange(1_000_000)
    print("seed", seed)
    trial, power = begin(seed, appendfsync="always")
    play(trial, power, random.Random(seed), 40)
    print(f"40 power failures, {trial.acknowledged} units, {trial.applied} unacknowledged ones found")


def wait_for_unsynced(load: Load, power: PowerLoss) -> None:
    """Wait until some units have been acknowledged since the last sync."""
    syncs, acknowledged = power.syncs, load.acknowledged

    def has_some() -> bool:
        nonlocal syncs, acknowledged
        if power.syncs != syncs:
            syncs, acknowledged = power.syncs, load.acknowledged
        return load.acknowledged > acknowledged + 5

    eventually(has_some)


def lose_power_after(seconds: float, trial: Trial, power: PowerLoss, *, rewrites: bool = False) -> None:
    with trial.load() as load:
        until = time.monotonic() + seconds
        eventually(lambda: load.acknowledged > 100)
        if rewrites:
            trial.ordered("BGREWRITEAOF")
        eventually(lambda: time.monotonic() > until, seconds + 60)
        wait_for_unsynced(load, power)
        trial.kill()
    fail_power(trial, power)
    trial.check()


def test_with_everysec_no_more_than_two_seconds_are_lost(begin: Begin) -> None:
    trial, power = begin(2, shares=0, workers=1, appendfsync="everysec")
    trial.grace_s = 4.0  # the two, and as many for pauses of a busy machine
    lose_power_after(6, trial, power)
    assert 0 < trial.lost < trial.acknowledged


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_with_everysec_no_more_than_two_seconds_are_lost_many_times(begin: Begin) -> None:
    trial, power = begin(random.randrange(1_000_000), shares=0, workers=1, appendfsync="everysec")
    trial.grace_s = 4.0
    for n in range(10):
        lose_power_after(random.uniform(4.0, 6.0), trial, power, rewrites=n % 2 == 1)
    print(f"10 power failures, {trial.acknowledged} units kept, {trial.lost} lost")


def test_without_syncs_everything_is_lost(begin: Begin) -> None:
    """That the other tests can tell a sync from none."""
    trial, power = begin(3, shares=0, appendfsync="no")
    trial.grace_s = 60.0
    with trial.load() as load:
        load.wait_for(200)
        trial.kill()
    fail_power(trial, power)
    trial.check()
    assert (trial.acknowledged, trial.lost > 150) == (0, True)


# --- Syncs that fail ------------------------------------------------------------------------------------------------------


def test_with_always_a_failed_sync_ends_the_server_before_it_acknowledges(begin: Begin) -> None:
    trial, power = begin(4, appendfsync="always")
    with trial.load() as load:
        load.wait_for(50)
        power.rules(f"{EIO} 1+")
        assert trial.server is not None
        assert trial.server.process.wait(60) == 1
    trial.died()
    assert "Can't persist AOF for fsync error when the AOF fsync policy is 'always'" in trial.server.log()
    fail_power(trial, power)
    trial.check()


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "n", [pytest.param(n, marks=() if n == 9 else pytest.mark.slow) for n in range(1, 31)]
)  # fmt: skip
def test_with_always_no_single_failed_sync_costs_anything(begin: Begin, n: int) -> None:
    """Files, directories, manifests, at the start and in rewrites; the server may end, or go on where it can."""
    trial, power = begin(5, appendfsync="always")
    power.rules(f"{EIO} {n}")
    with suppress(RuntimeError, ConnectionClosed), trial.load() as load:
        # One request at a time on its way to the disk, so that the n-th sync is one of different places.
        load.stop()
        for _ in range(3):
            trial.order("BGREWRITEAOF")
            trial.wait_for_child()
            trial.order("SET", "x", "y")
        with trial.more_load() as again:
            again.wait_for(20)
    fail_power(trial, power)
    trial.check()


def test_with_everysec_a_failed_sync_refuses_writes_until_the_disk_is_back(begin: Begin) -> None:
    trial, power = begin(6, appendfsync="everysec")
    with trial.load() as load:
        load.wait_for(50)
        power.rules(f"{EIO} 1+")
        refusal = Reply("-", b"MISCONF Errors writing to the AOF file: Input/output error")
        eventually(lambda: trial.order("SET", "x", "y") == refusal)
        assert trial.order("GET", "x") is not None
        assert trial.info("aof_last_write_status") == "err"
        power.rules()
        eventually(lambda: trial.order("SET", "x", "y") == Reply("+", b"OK"))
        load.stop()
    # What the failed syncs were about may be lost: a rewrite brings all of it to the disk.
    assert trial.server is not None
    eventually(lambda: "Background AOF rewrite finished successfully" in trial.server.log())  # type: ignore[union-attr]
    with trial.server.connect() as wire:  # and what came after it is synced within a second
        assert wire.call("SET", "x", "z") == Reply("+", b"OK")
        assert wire.call("WAITAOF", "1", "0", "0").plain() == [1, 0]
    fail_power(trial, power)
    trial.check()
