"""AppendOnlyFile: what is written and synced when, rewrites, switching on and off, and disks that fail."""

from __future__ import annotations

import errno
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support.files.aof import FailingDisk, Store, bytes_of, commands, make_aof, open_aof
from support.servers import eventually

from streamd.core.effects import Effect
from streamd.errors import StreamdError
from streamd.persistence.aof.file import AofState, AppendOnlyFile
from streamd.persistence.aof.replay import AofLoadError, LoadOptions
from streamd.persistence.aof.tail import CannotPersistError

NOW = 1_700_000_000_000
ADD = commands("XADD s 1-1 f v")[0]
SELECT_0 = bytes_of(commands("SELECT 0"))


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder / "appendonlydir"))


def manifest(folder: Path) -> str:
    return (folder / "appendonlydir" / "appendonly.aof.manifest").read_text()


def content(folder: Path, name: str) -> bytes:
    return (folder / "appendonlydir" / name).read_bytes()


def rewrite(aof: AppendOnlyFile, store: Store, pid: int = 4711) -> bool:
    """A rewrite whose child writes at once."""
    aof.begin_rewrite()
    aof.rewrite_started(pid)
    store.write_base(aof.files.temporary_base(pid), use_rdb_preamble=aof.options.use_rdb_preamble)
    return aof.finish_rewrite(True)


def drain(aof: AppendOnlyFile) -> None:
    eventually(lambda: aof.tail.pending_fsyncs == 0)


# --- What is written -------------------------------------------------------------------------------------------------


def test_a_first_start_makes_a_base_and_an_incremental_file(tmp_path: Path) -> None:
    aof = open_aof(tmp_path, Store())
    aof.check_invariants()
    assert names(tmp_path) == [
        "appendonly.aof.1.base.rdb",
        "appendonly.aof.1.incr.aof",
        "appendonly.aof.manifest",
    ]
    assert manifest(tmp_path) == (
        "file appendonly.aof.1.base.rdb seq 1 type b\nfile appendonly.aof.1.incr.aof seq 1 type i startoffset 0\n"
    )
    assert (aof.current_size, aof.tail.written) == (aof.base_size, 0)
    aof.close()


def test_the_first_base_may_be_commands(tmp_path: Path) -> None:
    open_aof(tmp_path, Store(), use_rdb_preamble=False).close()
    assert "appendonly.aof.1.base.aof" in names(tmp_path)


def test_commands_name_their_database_when_it_changes(tmp_path: Path) -> None:
    aof = open_aof(tmp_path, Store())
    aof.buffer.append(0, ADD, NOW)
    aof.buffer.append(0, ADD, NOW)
    aof.buffer.append(9, ADD, NOW)
    aof.flush()
    expected = commands("SELECT 0", "XADD s 1-1 f v", "XADD s 1-1 f v", "SELECT 9", "XADD s 1-1 f v")
    assert content(tmp_path, "appendonly.aof.1.incr.aof") == bytes_of(expected)
    aof.check_invariants()
    aof.close()


def test_two_effects_or_more_are_a_transaction(tmp_path: Path) -> None:
    aof = open_aof(tmp_path, Store())
    aof.buffer.take_effects([Effect(0, ADD)], NOW)
    aof.buffer.take_effects([Effect(0, ADD), Effect(1, ADD)], NOW)
    aof.buffer.take_effects([], NOW)
    aof.flush()
    expected = commands("SELECT 0", "XADD s 1-1 f v", "MULTI", "XADD s 1-1 f v", "SELECT 1", "XADD s 1-1 f v", "EXEC")
    assert content(tmp_path, "appendonly.aof.1.incr.aof") == bytes_of(expected)
    aof.close()


def test_the_time_is_noted_once_a_second(tmp_path: Path) -> None:
    aof = open_aof(tmp_path, Store())
    aof.buffer.has_timestamps = True
    for now in (NOW, NOW + 999, NOW + 1000, NOW - 5000):
        aof.buffer.append(0, ADD, now)
    aof.flush()
    assert content(tmp_path, "appendonly.aof.1.incr.aof") == (
        b"#TS:1700000000\r\n" + SELECT_0 + bytes_of([ADD, ADD]) + b"#TS:1700000001\r\n" + bytes_of([ADD, ADD])
    )
    aof.close()


def test_what_cannot_be_a_command_is_not_half_appended(tmp_path: Path) -> None:
    aof = open_aof(tmp_path, Store())
    aof.buffer.append(0, ADD, NOW)
    with pytest.raises(TypeError, match="arguments are bytes"):
        aof.buffer.take_effects([Effect(0, ADD), Effect(3, [b"XADD", "s"])], NOW)  # type: ignore[list-item]
    aof.buffer.append(3, ADD, NOW)
    aof.flush()
    assert content(tmp_path, "appendonly.aof.1.incr.aof") == bytes_of(
        [*commands("SELECT 0"), ADD, *commands("SELECT 3"), ADD]
    )
    aof.close()


def test_nothing_is_appended_while_it_is_off(tmp_path: Path) -> None:
    aof = make_aof(tmp_path)
    aof.buffer.append(0, ADD, NOW)
    aof.flush()
    aof.cron()
    assert (len(aof.buffer), list(tmp_path.iterdir())) == (0, [])


def test_a_buffer_that_is_being_written_takes_nothing(tmp_path: Path) -> None:
    aof = open_aof(tmp_path, Store())
    with (
        memoryview(aof.buffer),
        pytest.raises(BufferError, match="the bytes of the append-only file are being written"),
    ):
        aof.buffer.append(0, ADD, NOW)
    aof.buffer.check_invariants()
    aof.close()


def test_a_large_buffer_is_given_back(tmp_path: Path) -> None:
    aof = open_aof(tmp_path, Store())
    aof.buffer.append(0, [b"SET", b"k", bytes(3_000_000)], NOW)
    aof.flush()
    assert aof.buffer.allocated == 0
    aof.close()


# --- When it is synced -----------------------------------------------------------------------------------------------


def test_always_syncs_what_was_written_in_the_same_flush(tmp_path: Path) -> None:
    disk = FailingDisk()
    aof = open_aof(tmp_path, Store(), disk, appendfsync="always")
    disk.calls.clear()
    for _ in range(3):
        aof.buffer.append(0, ADD, NOW)
    aof.flush()
    aof.flush()
    assert disk.calls == [("write",), ("sync_data",)]
    assert aof.tail.synced == aof.tail.written
    aof.close()


def test_no_never_syncs(tmp_path: Path) -> None:
    disk, clock = FailingDisk(), Clock()
    aof = open_aof(tmp_path, Store(), disk, appendfsync="no", clock=clock)
    disk.calls.clear()
    aof.buffer.append(0, ADD, NOW)
    aof.flush()
    clock.now += 100
    aof.cron()
    assert disk.calls == [("write",)]
    aof.close()


def test_everysec_syncs_once_a_second_and_also_when_nothing_more_is_written(tmp_path: Path) -> None:
    disk, clock = FailingDisk(), Clock()
    aof = open_aof(tmp_path, Store(), disk, clock=clock)
    disk.calls.clear()
    aof.buffer.append(0, ADD, NOW)
    aof.flush()
    assert disk.calls == [("write",)]
    clock.now += 1.1
    aof.cron()
    drain(aof)
    aof.cron()
    assert disk.calls == [("write",), ("sync_data",)]
    assert aof.tail.synced == aof.tail.written
    clock.now += 1.1
    aof.cron()
    assert disk.calls == [("write",), ("sync_data",)]
    aof.close()


def test_always_syncs_what_another_policy_left(tmp_path: Path) -> None:
    disk = FailingDisk()
    aof = open_aof(tmp_path, Store(), disk, appendfsync="no")
    aof.buffer.append(0, ADD, NOW)
    aof.flush()
    disk.calls.clear()
    aof.options.appendfsync = "always"
    aof.flush()
    assert disk.calls == [("sync_data",)]
    aof.close()


def test_no_sync_while_a_child_writes_when_that_is_asked_for(tmp_path: Path) -> None:
    disk = FailingDisk()
    aof = open_aof(tmp_path, Store(), disk, appendfsync="always", no_fsync_on_rewrite=True)
    aof.tail._has_child = lambda: True
    disk.calls.clear()
    aof.buffer.append(0, ADD, NOW)
    aof.flush()
    assert disk.calls == [("write",)]
    aof.tail._has_child = lambda: False
    aof.flush()
    assert disk.calls == [("write",), ("sync_data",)]
    aof.close()


class SlowDisk(FailingDisk):
    """A disk whose data syncs take until they are let go."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()
        self.go.set()

    def sync_data(self, fd: int) -> None:
        super().sync_data(fd)
        assert self.go.wait(20)


def test_a_write_waits_two_seconds_for_a_sync_in_the_background(tmp_path: Path) -> None:
    disk, clock = SlowDisk(), Clock()
    aof = open_aof(tmp_path, Store(), disk, clock=clock)
    disk.go.clear()
    aof.buffer.append(0, ADD, NOW)
    clock.now += 1.1
    aof.flush()
    written = aof.tail.written
    assert aof.tail.pending_fsyncs == 1
    aof.buffer.append(0, ADD, NOW)
    aof.flush()
    clock.now += 1.9
    aof.flush()
    assert (aof.tail.written, aof.tail.delayed_fsync) == (written, 0)
    clock.now += 0.2
    aof.cron()
    assert (aof.tail.written > written, aof.tail.delayed_fsync) == (True, 1)
    assert aof.tail.synced == 0
    disk.go.set()
    drain(aof)
    aof.close()


def test_a_forced_flush_does_not_wait(tmp_path: Path) -> None:
    disk, clock = SlowDisk(), Clock()
    aof = open_aof(tmp_path, Store(), disk, clock=clock)
    disk.go.clear()
    aof.buffer.append(0, ADD, NOW)
    clock.now += 1.1
    aof.flush()
    aof.buffer.append(0, ADD, NOW)
    aof.flush(force=True)
    assert len(aof.buffer) == 0
    disk.go.set()
    drain(aof)
    aof.close()


# --- Disks that fail -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["everysec", "no"])
def test_a_failed_write_refuses_writes_until_it_works_again(tmp_path: Path, policy: Any) -> None:
    disk, clock = FailingDisk(), Clock()
    aof = open_aof(tmp_path, Store(), disk, appendfsync=policy, clock=clock)
    aof.buffer.append(0, ADD, NOW)
    disk.fail("write", errno.ENOSPC)
    aof.flush()
    assert (aof.tail.last_write_ok, aof.write_error, aof.tail.written) == (False, errno.ENOSPC, 0)
    disk.heal()
    aof.cron()
    assert not aof.tail.last_write_ok  # tried again once a second only
    clock.now += 1
    aof.cron()
    assert (aof.tail.last_write_ok, aof.write_error) == (True, 0)
    assert content(tmp_path, "appendonly.aof.1.incr.aof") == SELECT_0 + bytes_of([ADD])
    aof.close()


def test_a_short_write_is_taken_back(tmp_path: Path) -> None:
    disk = FailingDisk()
    aof = open_aof(tmp_path, Store(), disk)
    aof.buffer.append(0, ADD, NOW)
    aof.flush()
    before = content(tmp_path, "appendonly.aof.1.incr.aof")
    aof.buffer.append(0, ADD, NOW)
    disk.short(5)
    aof.flush()
    assert aof.write_error == errno.ENOSPC
    assert content(tmp_path, "appendonly.aof.1.incr.aof") == before
    aof.check_invariants()
    disk.heal()
    aof.flush()
    assert content(tmp_path, "appendonly.aof.1.incr.aof") == before + bytes_of([ADD])
    aof.check_invariants()
    aof.close()


def test_a_short_write_that_stays_is_followed_by_its_other_half(tmp_path: Path) -> None:
    disk = FailingDisk()
    aof = open_aof(tmp_path, Store(), disk)
    aof.buffer.append(0, ADD, NOW)
    disk.short(5)
    disk.fail("truncate")
    aof.flush()
    assert content(tmp_path, "appendonly.aof.1.incr.aof") == SELECT_0[:5]
    aof.check_invariants()
    disk.heal()
    aof.flush()
    assert content(tmp_path, "appendonly.aof.1.incr.aof") == SELECT_0 + bytes_of([ADD])
    aof.check_invariants()
    aof.close()


@pytest.mark.parametrize("operation", ["write", "sync_data"])
def test_with_always_a_failure_is_final(tmp_path: Path, operation: str) -> None:
    disk = FailingDisk()
    aof = open_aof(tmp_path, Store(), disk, appendfsync="always")
    aof.buffer.append(0, ADD, NOW)
    disk.fail(operation)
    with pytest.raises(CannotPersistError, match="Exiting"):
        aof.flush()
    disk.heal()
    with pytest.raises(CannotPersistError, match="fsync policy is 'always'"):
        aof.flush()


def test_a_failed_sync_in_the_background_refuses_writes_then_rewrites(tmp_path: Path) -> None:
    disk, clock = FailingDisk(), Clock()
    aof = open_aof(tmp_path, Store(), disk, clock=clock)
    disk.fail("sync_data")
    aof.buffer.append(0, ADD, NOW)
    clock.now += 1.1
    aof.flush()
    drain(aof)
    aof.cron()
    assert (aof.write_error, aof.tail.synced) == (errno.EIO, 0)
    assert not aof.wants_rewrite()
    disk.heal()
    clock.now += 1.1
    aof.cron()
    drain(aof)
    aof.cron()
    assert (aof.write_error, aof.tail.synced) == (0, aof.tail.written)
    assert aof.wants_rewrite()
    aof.close()


def test_a_failed_sync_of_a_file_that_is_closed_is_made_up_for_when_nothing_more_is_written(tmp_path: Path) -> None:
    disk, clock = FailingDisk(), Clock()
    store = Store()
    aof = open_aof(tmp_path, store, disk, clock=clock)
    aof.buffer.append(0, ADD, NOW)
    aof.flush()
    disk.fail("sync_data")
    assert rewrite(aof, store)
    eventually(lambda: aof.write_error == errno.EIO)
    disk.heal()
    aof.cron()
    clock.now += 1.1
    aof.cron()
    drain(aof)
    aof.cron()
    assert aof.write_error == 0
    assert aof.wants_rewrite()
    aof.close()


def test_what_always_has_synced_is_not_synced_again_when_the_file_is_closed(tmp_path: Path) -> None:
    disk, store = FailingDisk(), Store()
    aof = open_aof(tmp_path, store, disk, appendfsync="always")
    aof.buffer.append(0, ADD, NOW)
    aof.flush()
    before = disk.calls.count(("sync_data",))
    assert rewrite(aof, store)
    aof._syncer.drain()
    assert disk.calls.count(("sync_data",)) == before
    aof.close()


def test_writes_are_refused_until_the_name_of_the_new_file_is_on_the_disk(tmp_path: Path) -> None:
    disk, clock = FailingDisk(), Clock()
    aof = open_aof(tmp_path, Store(), disk, clock=clock)
    disk.fail("sync_directory")
    aof.begin_rewrite()
    assert aof.write_error == errno.EIO
    clock.now += 1.1
    aof.cron()
    assert aof.write_error == errno.EIO
    disk.heal()
    clock.now += 1.1
    aof.cron()
    assert aof.write_error == 0
    aof.close()


@pytest.mark.parametrize("from_off", [True, False])
def test_with_always_nothing_is_written_to_a_file_whose_name_may_be_lost(tmp_path: Path, from_off: bool) -> None:
    disk, store = FailingDisk(), Store()
    aof = open_aof(tmp_path, store, disk, appendfsync="always")
    if from_off:
        aof.disable()
        aof.enable()
        aof.begin_rewrite()
        aof.rewrite_started(4711)
        store.write_base(aof.files.temporary_base(4711))
        disk.fail("sync_directory")
        aof.finish_rewrite(True)
    else:
        disk.fail("sync_directory")
        aof.begin_rewrite()
    aof.buffer.append(0, ADD, NOW)
    with pytest.raises(CannotPersistError, match="appendonlydir could not be synced"):
        aof.flush()


# --- Rewrite ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("preamble", [True, False])
def test_a_rewrite_replaces_base_and_incremental_file(tmp_path: Path, preamble: bool) -> None:
    store = Store()
    aof = open_aof(tmp_path, store, use_rdb_preamble=preamble)
    for n in range(1, 5):
        store.run("XADD", "s", f"{n}-1", "f", "v")
        aof.buffer.append(0, commands(f"XADD s {n}-1 f v")[0], NOW)
    aof.begin_rewrite()
    assert aof.files.manifest.incremental_seq == 2
    aof.check_invariants()
    aof.rewrite_started(7)
    store.write_base(aof.files.temporary_base(7), use_rdb_preamble=preamble)
    store.run("XADD", "s", "9-1", "f", "v")
    aof.buffer.append(0, commands("XADD s 9-1 f v")[0], NOW)
    aof.flush()
    assert aof.finish_rewrite(True)
    aof.check_invariants()
    base = f"appendonly.aof.2.base.{'rdb' if preamble else 'aof'}"
    assert names(tmp_path) == [base, "appendonly.aof.2.incr.aof", "appendonly.aof.manifest"]
    assert (aof.base_size, aof.rewriting.count, aof.rewriting.failures) == (aof.current_size, 1, 0)
    aof.close()
    other = Store()
    open_aof(tmp_path, other).close()
    assert other.state() == store.state()


def test_a_failed_rewrite_leaves_all_files(tmp_path: Path) -> None:
    store = Store()
    aof = open_aof(tmp_path, store)
    aof.buffer.append(0, ADD, NOW)
    aof.begin_rewrite()
    aof.rewrite_started(7)
    aof.buffer.append(0, commands("XADD s 2-1 f v")[0], NOW)
    aof.flush()
    assert not aof.finish_rewrite(False)
    aof.check_invariants()
    assert (aof.rewriting.is_last_ok, aof.rewriting.failures) == (False, 1)
    aof.close()
    other = Store()
    open_aof(tmp_path, other).close()
    assert other.run("XLEN", "s") == 2


def test_history_is_kept_when_that_is_asked_for_and_deleted_at_the_next_start(tmp_path: Path) -> None:
    store = Store()
    aof = open_aof(tmp_path, store, keep_history=True)
    rewrite(aof, store)
    rewrite(aof, store)
    assert manifest(tmp_path).count(" type h") == 4
    aof.check_invariants()
    aof.close()
    aof = open_aof(tmp_path, Store())
    assert names(tmp_path) == [
        "appendonly.aof.3.base.rdb",
        "appendonly.aof.3.incr.aof",
        "appendonly.aof.manifest",
    ]
    aof.close()


def test_three_failures_make_the_next_rewrite_wait(tmp_path: Path) -> None:
    clock = Clock()
    aof = open_aof(tmp_path, Store(), clock=clock)
    for _ in range(3):
        assert not aof.wants_rewrite()
        aof.rewriting.is_requested = True
        assert aof.wants_rewrite()
        aof.begin_rewrite()
        aof.rewrite_started(7)
        aof.finish_rewrite(False)
    for minutes in (1, 2, 4):
        aof.rewriting.is_requested = True
        assert not aof.wants_rewrite()
        clock.now += minutes * 60 - 1
        assert not aof.wants_rewrite()
        clock.now += 2
        assert aof.wants_rewrite()
        aof.begin_rewrite()
        aof.rewrite_started(7)
        aof.finish_rewrite(False)
    aof.close()


def test_it_asks_for_a_rewrite_when_it_has_grown(tmp_path: Path) -> None:
    store = Store()
    aof = open_aof(tmp_path, store, rewrite_min_size=2000)
    assert not aof.wants_rewrite()
    while aof.current_size <= 2000:
        aof.buffer.append(0, ADD, NOW)
        aof.flush()
    assert aof.wants_rewrite()
    aof.options.rewrite_percentage = 0
    assert not aof.wants_rewrite()
    aof.options.rewrite_percentage = 100
    rewrite(aof, store)
    assert not aof.wants_rewrite()
    aof.close()


def test_no_rewrite_begins_while_changes_cannot_be_written(tmp_path: Path) -> None:
    disk = FailingDisk()
    aof = open_aof(tmp_path, Store(), disk)
    aof.buffer.append(0, ADD, NOW)
    disk.fail("write", errno.ENOSPC)
    with pytest.raises(StreamdError, match="No space left"):
        aof.begin_rewrite()
    disk.heal()
    aof.flush()
    aof.check_invariants()
    assert (aof.rewriting.failures, aof.rewriting.is_last_ok) == (1, False)
    aof.close()


def test_the_first_command_of_a_new_file_names_its_database(tmp_path: Path) -> None:
    store = Store()
    aof = open_aof(tmp_path, store)
    aof.buffer.append(3, ADD, NOW)
    rewrite(aof, store)
    aof.buffer.append(3, ADD, NOW)
    aof.close()
    assert content(tmp_path, "appendonly.aof.2.incr.aof") == bytes_of([*commands("SELECT 3"), ADD])


def test_a_sync_of_the_file_before_says_nothing_of_the_new_one(tmp_path: Path) -> None:
    clock = Clock()
    aof = open_aof(tmp_path, Store(), clock=clock)
    aof.buffer.append(0, ADD, NOW)
    clock.now += 1.1
    aof.flush()
    drain(aof)
    aof.begin_rewrite()
    aof.cron()
    aof.check_invariants()
    assert aof.tail.synced == 0
    aof.rewrite_started(7)
    aof.finish_rewrite(False)
    aof.close()


def test_nothing_is_deleted_while_the_new_manifest_may_be_lost(tmp_path: Path) -> None:
    store, disk = Store(), FailingDisk()
    aof = open_aof(tmp_path, store, disk)
    aof.begin_rewrite()
    aof.rewrite_started(7)
    store.write_base(aof.files.temporary_base(7))
    disk.fail("sync_directory")
    assert aof.finish_rewrite(True)
    disk.heal()
    aof.check_invariants()
    assert {"appendonly.aof.1.base.rdb", "appendonly.aof.1.incr.aof"} < set(names(tmp_path))
    rewrite(aof, store)
    assert names(tmp_path) == [
        "appendonly.aof.3.base.rdb",
        "appendonly.aof.3.incr.aof",
        "appendonly.aof.manifest",
    ]
    aof.close()


class Crash(BaseException):
    """The process dies."""


class CrashingFiles(FailingDisk):
    """Dies at the n-th change of names or manifest."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.left = at

    def _called(self, operation: str, *paths: str) -> None:
        super()._called(operation, *paths)
        if operation in ("open_append", "rename", "unlink", "sync_directory", "sync"):
            self.left -= 1
            if self.left == 0:
                raise Crash


@pytest.mark.parametrize("at", range(1, 22))
@pytest.mark.parametrize("from_off", [False, True])
def test_a_crash_at_any_step_of_a_rewrite_loses_nothing(tmp_path: Path, at: int, from_off: bool) -> None:
    store = Store()
    aof = open_aof(tmp_path, store)
    store.run("XADD", "s", "1-1", "f", "v")
    aof.buffer.append(0, ADD, NOW)
    aof.close()
    state = store.state()
    aof = make_aof(tmp_path, CrashingFiles(at))
    if from_off:
        aof.enable()
    try:
        if not from_off:
            aof.open(lambda path: None)
        rewrite(aof, store)
    except Crash:
        pass
    other = Store()
    reopened = open_aof(tmp_path, other)
    reopened.check_invariants()
    assert other.state() == state
    reopened.close()


@pytest.mark.parametrize("at", range(1, 16))
def test_a_crash_at_any_step_of_the_first_start_is_no_hindrance(tmp_path: Path, at: int) -> None:
    aof = make_aof(tmp_path, CrashingFiles(at))
    with suppress(Crash):
        aof.open(lambda path: Store().write_base(path))
    open_aof(tmp_path, Store()).close()


@pytest.mark.parametrize("operation", ["rename", "open_append", "sync", "sync_directory"])
@pytest.mark.parametrize("at", [1, 2, 3])
def test_an_error_at_any_step_of_a_rewrite_loses_nothing(tmp_path: Path, operation: str, at: int) -> None:
    store, disk = Store(), FailingDisk()
    aof = open_aof(tmp_path, store, disk)
    store.run("XADD", "s", "1-1", "f", "v")
    aof.buffer.append(0, ADD, NOW)
    disk.fail(operation, at=at)
    with suppress(OSError):
        rewrite(aof, store)
    disk.heal()
    store.run("XADD", "s", "2-1", "f", "v")
    aof.buffer.append(0, commands("XADD s 2-1 f v")[0], NOW)
    aof.flush()
    aof.check_invariants()
    other = Store()
    open_aof(tmp_path, other).close()
    assert other.state() == store.state()


# --- On and off ------------------------------------------------------------------------------------------------------


def test_it_is_switched_on_by_a_rewrite(tmp_path: Path) -> None:
    store = Store()
    store.run("XADD", "s", "1-1", "f", "v")
    aof = make_aof(tmp_path)
    aof.enable()
    aof.buffer.append(0, ADD, NOW)
    assert (aof.state, aof.wants_rewrite(), len(aof.buffer)) == (AofState.WAIT_REWRITE, True, 0)
    aof.begin_rewrite()
    aof.rewrite_started(7)
    store.write_base(aof.files.temporary_base(7))
    store.run("XADD", "s", "2-1", "f", "v")
    aof.buffer.append(0, commands("XADD s 2-1 f v")[0], NOW)
    aof.flush()
    assert names(tmp_path) == ["temp-appendonly.aof.incr"]
    assert aof.finish_rewrite(True)
    assert aof.state is AofState.ON
    aof.check_invariants()
    assert names(tmp_path) == [
        "appendonly.aof.1.base.rdb",
        "appendonly.aof.1.incr.aof",
        "appendonly.aof.manifest",
    ]
    aof.close()
    other = Store()
    open_aof(tmp_path, other).close()
    assert other.state() == store.state()


def test_a_failed_first_rewrite_is_tried_again(tmp_path: Path) -> None:
    store = Store()
    aof = make_aof(tmp_path)
    aof.enable()
    aof.begin_rewrite()
    aof.rewrite_started(7)
    aof.finish_rewrite(False)
    assert (aof.state, aof.wants_rewrite(), names(tmp_path)) == (AofState.WAIT_REWRITE, True, [])
    aof.buffer.append(0, ADD, NOW)
    aof.flush()
    assert rewrite(aof, store)
    assert (aof.state, content(tmp_path, "appendonly.aof.1.incr.aof")) == (AofState.ON, b"")
    aof.close()


def test_switched_off_everything_is_written_and_synced(tmp_path: Path) -> None:
    disk = FailingDisk()
    aof = open_aof(tmp_path, Store(), disk, appendfsync="no")
    aof.buffer.append(0, ADD, NOW)
    disk.calls.clear()
    assert aof.disable() is None
    assert disk.calls[:2] == [("write",), ("sync",)]
    assert manifest(tmp_path).endswith("type i startoffset 0 endoffset 0\n")
    aof.buffer.append(0, ADD, NOW)
    assert (len(aof.buffer), aof.state) == (0, AofState.OFF)


def test_switched_off_and_on_again_the_old_files_are_history(tmp_path: Path) -> None:
    store = Store()
    aof = open_aof(tmp_path, store)
    aof.disable()
    store.run("XADD", "s", "5-1", "f", "v")
    aof.enable()
    assert rewrite(aof, store)
    assert names(tmp_path) == [
        "appendonly.aof.2.base.rdb",
        "appendonly.aof.2.incr.aof",
        "appendonly.aof.manifest",
    ]
    aof.check_invariants()
    aof.close()


def test_switched_off_while_a_child_writes_its_pid_is_reported(tmp_path: Path) -> None:
    aof = open_aof(tmp_path, Store())
    aof.begin_rewrite()
    aof.rewrite_started(7)
    assert aof.disable() == 7
    assert not aof.finish_rewrite(False, was_asked=True)
    assert (aof.rewriting.failures, aof.state) == (0, AofState.OFF)


def test_a_rewrite_while_it_is_off_only_makes_a_base(tmp_path: Path) -> None:
    store = Store()
    store.run("XADD", "s", "5-1", "f", "v")
    aof = make_aof(tmp_path)
    assert rewrite(aof, store)
    assert names(tmp_path) == ["appendonly.aof.1.base.rdb", "appendonly.aof.manifest"]
    other = Store()
    open_aof(tmp_path, other).close()
    assert other.state() == store.state()


def test_numbers_that_files_without_a_manifest_have_are_not_used_again(tmp_path: Path) -> None:
    folder = tmp_path / "appendonlydir"
    folder.mkdir()
    (folder / "appendonly.aof.1.base.rdb").write_bytes(b"precious")
    (folder / "appendonly.aof.1.incr.aof").write_bytes(b"precious")
    store = Store()
    aof = make_aof(tmp_path)
    aof.enable()
    assert rewrite(aof, store)
    kept = [name for name in names(tmp_path) if content(tmp_path, name) == b"precious"]
    assert kept == ["appendonly.aof.1.base.rdb", "appendonly.aof.1.incr.aof"]
    assert manifest(tmp_path).startswith(
        "file appendonly.aof.2.base.rdb seq 2 type b\nfile appendonly.aof.2.incr.aof seq 2"
    )
    aof.check_invariants()
    aof.close()


def test_files_without_a_manifest_refuse_the_start(tmp_path: Path) -> None:
    open_aof(tmp_path, Store()).close()
    (tmp_path / "appendonlydir" / "appendonly.aof.manifest").unlink()
    before = names(tmp_path)
    store, aof = Store(), make_aof(tmp_path)
    with pytest.raises(AofLoadError, match=r"manifest .* is missing.*appendonly\.aof\.1\.base\.rdb"):
        list(aof.load(store.apply, LoadOptions(), load_rdb=store.load_rdb()))
    with pytest.raises(AofLoadError, match="is missing or lists nothing"):
        aof.open(store.write_base)
    assert names(tmp_path) == before


def test_what_is_discarded_is_not_synced(tmp_path: Path) -> None:
    disk = FailingDisk()
    aof = open_aof(tmp_path, Store(), disk=disk, appendfsync="no")
    aof.buffer.append(0, ADD, NOW)
    aof.flush()
    aof.buffer.append(0, ADD, NOW)
    before = len(disk.calls)
    aof.discard()
    operations = {operation for operation, *_ in disk.calls[before:]}
    assert operations.isdisjoint({"write", "sync", "sync_data", "sync_directory"})
    assert (aof.state, len(aof.buffer)) == (AofState.OFF, 0)
    aof.flush()
    assert content(tmp_path, "appendonly.aof.1.incr.aof") == SELECT_0 + bytes_of([ADD])


# --- Up to which offset everything is on disk ---------------------------------------------------------------------------


def test_nothing_is_on_disk_until_the_first_base_is(tmp_path: Path) -> None:
    aof = make_aof(tmp_path, appendfsync="always")
    aof.enable()
    aof.begin_rewrite()
    aof.tail.renumber(100)
    assert aof.tail.synced_offset == 0
    aof.rewrite_started(4711)
    Store().write_base(aof.files.temporary_base(4711), use_rdb_preamble=True)
    assert aof.finish_rewrite(True)
    assert aof.tail.synced_offset == 100
    aof.tail.renumber(50)
    assert aof.tail.synced_offset == 50
    aof.close()
