"""Manifests: numbered without a gap, each where the last one ended, committed at once and never in place of another."""

from __future__ import annotations

import dataclasses
import errno
import itertools
import json
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="archives need streamd-server[spark]")

import pyarrow as pa

from streamd.archive.archive_errors import ArchiveError, CorruptArchiveError, LockLostError
from streamd.archive.commit_recovery import files_to_merge
from streamd.archive.layout import Layout, date_of, folder_name
from streamd.archive.manifest import Checkpoint, Excused, FileRecord, Manifest, RowGroup, joined, thinned
from streamd.archive.manifest_log import ManifestLog, archived_streams
from streamd.archive.parquet import near, without
from streamd.archive.verify import checkpoint_faults
from streamd.client.archive_keys import quote_key, unquote_key
from streamd.disk import Disk

A, B, C = 5 << 64, 9 << 64, 20 << 64
KEY = "a/b"


def record(first: int, last: int, path: str = "data/x.parquet", rows: int = 10) -> FileRecord:
    return FileRecord(path, 100, rows, first, last, (RowGroup(rows, first, last),), "")


def manifest(sequence: int = 1, low: int = 0, high: int = A, run: str = "run-1", **changes: object) -> Manifest:
    files = (record(low + 1, high, f"data/{sequence}.parquet"),)
    made = Manifest(KEY, sequence, low, high, 10, files, run, 1, 1000 * sequence, 10, high, None, "streamd 0.1.0")
    return dataclasses.replace(made, **changes)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    made = Layout(tmp_path / "archive")
    made.create(Disk())
    return made


def commit(log: ManifestLog, made: Manifest) -> None:
    log.commit(made, log.write_pending(made, Disk()), Disk())


def test_manifests_survive_being_written_and_read(layout: Layout) -> None:
    log = ManifestLog(layout, KEY)
    first, second = manifest(), manifest(2, A, B, next_id=C)
    commit(log, first)
    commit(log, second)
    found = ManifestLog.read(layout, KEY)
    assert found.manifests == [first, second]
    assert found.boundary == B
    assert [file.path for file in found.files] == ["data/1.parquet", "data/2.parquet"]
    assert archived_streams(layout) == [KEY]


def test_nothing_archived_is_a_boundary_below_every_entry(layout: Layout) -> None:
    log = ManifestLog.read(layout, KEY)
    assert (log.boundary, log.files, log.last) == (0, [], None)


def test_only_new_manifests_are_read_again(layout: Layout) -> None:
    log = ManifestLog(layout, KEY)
    commit(log, manifest())
    known = ManifestLog.read(layout, KEY)
    commit(log, manifest(2, A, B))
    log.path(1).write_text("not looked at")
    assert ManifestLog.read(layout, KEY, known=known).boundary == B


def test_a_pending_manifest_is_not_read(layout: Layout) -> None:
    log = ManifestLog(layout, KEY)
    log.write_pending(manifest(), Disk())
    assert ManifestLog.read(layout, KEY).manifests == []


def test_a_commit_never_takes_the_place_of_another(layout: Layout) -> None:
    slow, fast = ManifestLog(layout, KEY), ManifestLog(layout, KEY)
    pending = slow.write_pending(manifest(run="slow"), Disk())
    commit(fast, manifest(run="fast"))
    with pytest.raises(LockLostError, match="another archiver has taken over 'a/b'"):
        slow.commit(manifest(run="slow"), pending, Disk())
    assert ManifestLog.read(layout, KEY).manifests[0].run == "fast"


def test_a_commit_fails_when_another_archiver_has_taken_over(layout: Layout) -> None:
    slow, other = ManifestLog(layout, KEY), ManifestLog(layout, KEY)
    pending = slow.write_pending(manifest(run="slow"), Disk())
    assert other.remove_pending(Disk()) == [pending]
    with pytest.raises(LockLostError, match="another archiver has taken over 'a/b'"):
        slow.commit(manifest(run="slow"), pending, Disk())
    assert ManifestLog.read(layout, KEY).manifests == []


class NoLinks(Disk):
    """A file system without hard links."""

    def link(self, source: Path, target: Path) -> None:
        raise PermissionError(errno.EPERM, "no links here")


def test_a_file_system_without_links_has_commits_too(layout: Layout) -> None:
    log, disk = ManifestLog(layout, KEY), NoLinks()
    log.commit(manifest(), log.write_pending(manifest(), disk), disk)
    assert ManifestLog.read(layout, KEY).manifests == [manifest()]
    again = ManifestLog(layout, KEY)
    pending = again.write_pending(manifest(run="slow"), disk)
    with pytest.raises(LockLostError, match="another archiver has taken over 'a/b'"):
        again.commit(manifest(run="slow"), pending, disk)
    again.remove_pending(disk)
    second = manifest(2, A, B)
    pending = log.write_pending(second, disk)
    log.remove_pending(disk)
    with pytest.raises(LockLostError, match="another archiver has taken over 'a/b'"):
        log.commit(second, pending, disk)


def test_a_manifest_that_is_missing_is_reported(layout: Layout) -> None:
    log = ManifestLog(layout, KEY)
    for made in (manifest(), manifest(2, A, B), manifest(3, B, C)):
        commit(log, made)
    log.path(2).unlink()
    with pytest.raises(CorruptArchiveError, match="manifest 2 is missing"):
        ManifestLog.read(layout, KEY)


@pytest.mark.parametrize(
    "changes",
    [
        {"low": A + 1},
        {"sequence": 3},
        {"rows": 11},
        {"high": A - 1},
        {"files": (record(A + 1, B), record(B, B + 1))},
        {"files": (record(A, B),)},
        {"files": (record(A + 1, B + 1),)},
        {"files": (record(A + 1, B, "/etc/passwd"),)},
        {"files": (record(A + 1, B, "data/../../x"),)},
        {"token": 0},
        {"run": "run-2"},
    ],
)
def test_a_manifest_that_cannot_follow_is_refused(layout: Layout, changes: dict[str, object]) -> None:
    log = ManifestLog(layout, KEY)
    commit(log, manifest())
    log.path(2).write_bytes(dataclasses.replace(manifest(2, A, B), **changes).to_bytes())
    with pytest.raises(CorruptArchiveError, match="is not a valid manifest here"):
        ManifestLog.read(layout, KEY)


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"null", b'{"format": 2}'])
def test_garbage_is_no_manifest(layout: Layout, data: bytes) -> None:
    log = ManifestLog(layout, KEY)
    commit(log, manifest())
    log.path(1).write_bytes(data)
    with pytest.raises(CorruptArchiveError, match="is not a valid manifest here"):
        ManifestLog.read(layout, KEY)


def test_every_cut_of_a_manifest_is_reported(layout: Layout) -> None:
    log = ManifestLog(layout, KEY)
    commit(log, manifest())
    whole = log.path(1).read_bytes().rstrip()
    for size in range(0, len(whole), 7):
        log.path(1).write_bytes(whole[:size])
        with pytest.raises(CorruptArchiveError, match="is not a valid manifest here"):
            ManifestLog.read(layout, KEY)


def test_a_manifest_that_notes_accepted_entries_without_digests_is_refused_in_one_line(layout: Layout) -> None:
    log = ManifestLog(layout, KEY)
    commit(log, manifest(excused=(Excused(3, 3, "0" * 32),)))
    path = next(layout.manifests(KEY).glob("*1.json"))
    found = json.loads(path.read_text())
    found["excused"] = [each[:2] for each in found["excused"]]
    path.write_text(json.dumps(found))
    with pytest.raises(CorruptArchiveError, match=r"it was written before 0.2.0") as error:
        ManifestLog.read(layout, KEY)
    assert str(error.value) == (
        f"{path} is not a valid manifest here: it was written before 0.2.0, and notes accepted entries without their digests; "
        "make a new archive"
    )


def test_the_manifest_of_another_stream_is_refused(layout: Layout) -> None:
    log = ManifestLog(layout, KEY)
    commit(log, manifest())
    other = layout.manifests("other")
    other.mkdir()
    log.path(1).rename(other / log.path(1).name)
    with pytest.raises(CorruptArchiveError, match="belongs to"):
        ManifestLog.read(layout, "other")


def test_a_rewrite_takes_the_place_of_files(layout: Layout) -> None:
    log = ManifestLog(layout, KEY)
    commit(log, manifest())
    new = record(2, A - 1, "data/new.parquet", 8)
    commit(log, manifest(2, A, A, kind="rewrite", files=(new,), rows=8, replaced=("data/1.parquet",)))
    found = ManifestLog.read(layout, KEY)
    assert (found.files, found.boundary, found.rows) == ([new], A, 8)


def test_the_boundary_of_a_moment_leaves_younger_manifests_out(layout: Layout) -> None:
    log = ManifestLog(layout, KEY)
    commit(log, manifest())
    commit(log, manifest(2, A, B))
    assert [log.boundary_at(moment) for moment in (999, 1000, 1999, 2000)] == [0, A, A, B]


# --- Checkpoints ----------------------------------------------------------------------------------------------------------


def grown(layout: Layout, count: int, *, every: int = 5) -> ManifestLog:
    """A log of so many manifests, with a checkpoint after each few."""
    log, disk = ManifestLog(layout, KEY), Disk()
    for number in range(1, count + 1):
        commit(log, manifest(number, log.boundary, number << 64))
        if number % every == 0:
            log.commit_checkpoint(log.write_pending_checkpoint("run-1", disk), disk)
            log.prune(disk)
    return log


def test_a_checkpoint_stands_for_the_manifests_before_it(layout: Layout) -> None:
    whole = grown(layout, 23)
    found = ManifestLog.read(layout, KEY)
    assert found.base is not None
    assert (found.base.last.sequence, [each.sequence for each in found.manifests]) == (20, [21, 22, 23])
    assert (found.files, found.rows, found.boundary, found.token, found.sequence) == (
        whole.files, 230, 23 << 64, 1, 23,
    )  # fmt: skip
    assert [found.boundary_at(moment) for moment in (0, 1000, 4999, 23_000)] == [0, 1 << 64, 4 << 64, 23 << 64]
    names = sorted(path.name for path in layout.manifests(KEY).iterdir())
    assert names == sorted(
        ["000000000015.checkpoint", "000000000020.checkpoint", *(f"{number:012d}.json" for number in range(16, 24))]
    )
    assert archived_streams(layout) == [KEY]


def test_what_was_read_before_a_checkpoint_is_read_on(layout: Layout) -> None:
    grown(layout, 2)
    known = ManifestLog.read(layout, KEY)
    commit(known.copy(), manifest(3, 2 << 64, 3 << 64))
    assert known.sequence == 2
    log = ManifestLog.read(layout, KEY, known=known)
    log.commit_checkpoint(log.write_pending_checkpoint("run-1", Disk()), Disk())
    assert ManifestLog.read(layout, KEY, known=log) == log
    newer = ManifestLog.read(layout, KEY, known=known)
    assert newer.base is not None
    assert newer.files == log.files


class ChangingLayout(Layout):
    """An archive that something is done to after a reader has looked which files there are."""

    def __init__(self, root: Path, change: Callable[[], None]) -> None:
        super().__init__(root)
        self.looks = 0
        self.change = change

    def manifests(self, stream: str) -> Path:
        self.looks += 1
        if self.looks == 2:  # of the first manifest that it wants to read
            self.change()
        return super().manifests(stream)


def test_a_reader_that_misses_a_removed_manifest_looks_again(layout: Layout) -> None:
    log, disk = grown(layout, 4), Disk()

    def change() -> None:
        for number in (5, 6):
            commit(log, manifest(number, log.boundary, number << 64))
            log.commit_checkpoint(log.write_pending_checkpoint("run-1", disk), disk)
        log.prune(disk)

    changing = ChangingLayout(layout.root, change)
    assert ManifestLog.read(changing, KEY).boundary == 6 << 64
    assert changing.looks > 2


def test_a_pending_checkpoint_is_not_read_and_is_removed(layout: Layout) -> None:
    log = grown(layout, 3)
    pending = log.write_pending_checkpoint("run-1", Disk())
    assert ManifestLog.read(layout, KEY).base is None
    assert log.remove_pending(Disk()) == [pending]
    with pytest.raises(LockLostError, match="another archiver has taken over 'a/b'"):
        log.commit_checkpoint(pending, Disk())


def test_a_checkpoint_remembers_replaced_files_that_still_lie_there(layout: Layout) -> None:
    log = ManifestLog(layout, KEY)
    commit(log, manifest())
    commit(log, manifest(2, A, B))
    new = record(1, B, "data/new.parquet", 20)
    commit(log, manifest(3, B, B, kind="rewrite", files=(new,), rows=20, replaced=("data/1.parquet", "data/2.parquet")))
    (layout.root / "data").mkdir()
    (layout.root / "data/1.parquet").touch()
    log.commit_checkpoint(log.write_pending_checkpoint("run-1", Disk()), Disk())
    found = ManifestLog.read(layout, KEY)
    assert (found.files, found.replaced) == ([new], {"data/1.parquet": 3000})


def test_every_cut_of_a_checkpoint_is_reported(layout: Layout) -> None:
    grown(layout, 5)
    (path,) = layout.manifests(KEY).glob("*.checkpoint")
    whole = path.read_bytes().rstrip()
    for size in range(0, len(whole), 31):
        path.write_bytes(whole[:size])
        with pytest.raises(CorruptArchiveError, match="is not a valid checkpoint here"):
            ManifestLog.read(layout, KEY)


def test_a_checkpoint_that_says_something_else_is_found(layout: Layout) -> None:
    log = grown(layout, 12)
    assert checkpoint_faults(ManifestLog.read(layout, KEY)) == []
    path = layout.manifests(KEY) / "000000000010.checkpoint"
    made = Checkpoint.from_bytes(path.read_bytes(), KEY)
    path.write_bytes(dataclasses.replace(made, files=made.files[1:]).to_bytes())
    assert checkpoint_faults(ManifestLog.read(layout, KEY)) == [
        "checkpoint 10 does not agree with the manifests up to it"
    ]
    log.path(7).unlink()
    assert "7" in checkpoint_faults(ManifestLog.read(layout, KEY))[0]


def test_a_manifest_that_replaces_what_is_not_there_is_refused(layout: Layout) -> None:
    log = ManifestLog(layout, KEY)
    commit(log, manifest())
    wrong = manifest(2, A, A, kind="rewrite", files=(), rows=0, replaced=("data/none.parquet",))
    log.path(2).write_bytes(wrong.to_bytes())
    with pytest.raises(CorruptArchiveError, match=r"replaces data/none\.parquet"):
        ManifestLog.read(layout, KEY)


def test_old_moments_are_kept_by_the_hour_and_by_the_day() -> None:
    five_minutes, year = 300_000, 365 * 86_400_000
    every = [(moment, moment << 64) for moment in range(year, 2 * year, five_minutes)]
    few = thinned(every)
    assert len(few) < 2500
    assert few[-289:] == tuple(every[-289:])
    assert thinned(few) == few
    for moment, boundary in every[::997]:
        found = max((high for at, high in few if at <= moment), default=0)
        assert found <= boundary, "never too high"
        assert boundary - found <= 86_400_000 << 64 or found == 0


# --- Merging, and leaving rows out ----------------------------------------------------------------------------------------


def test_merging_copies_rows_a_few_times_only() -> None:
    files: list[FileRecord] = []
    copied = 0
    for number in range(1, 2001):
        files.append(record(number << 64, number << 64, f"date={number // 500}/{number}", 100))
        for group in files_to_merge(files, 32, lambda file: file.path.partition("/")[0]):
            rows = sum(file.rows for file in group)
            copied += rows
            at = files.index(group[0])
            assert files[at : at + len(group)] == group
            assert len({file.path.partition("/")[0] for file in group}) == 1
            files[at : at + len(group)] = [record(group[0].first, group[-1].last, group[0].path, rows)]
    assert len(files) < 5 * 50
    assert copied <= 5 * 200_000
    assert files_to_merge(files, 32, lambda file: file.path.partition("/")[0]) == []


def test_large_files_are_left_as_they_are() -> None:
    files = [record(number << 64, number << 64, "date=1/x", 3_000_000) for number in range(1, 50)]
    assert files_to_merge(files, 2, lambda file: "1") == []


@pytest.mark.parametrize(
    ("ranges", "left"),
    [
        ([], range(100)),
        ([(0, 1 << 72)], range(0)),
        ([(0, 10 << 64)], range(11, 100)),
        ([(99 << 64, 99 << 64)], range(99)),
        ([(n << 64, n << 64) for n in range(0, 100, 2)], range(1, 100, 2)),
        ([(1, 9), (5 << 64 | 1, 6 << 64), (33 << 64, 1 << 80)], [*range(6), *range(7, 33)]),
    ],
)
def test_rows_are_left_out_by_their_ids(ranges: list[tuple[int, int]], left: list[int]) -> None:
    batches = [
        pa.record_batch({"id": [f"{number}-0" for number in range(start, min(start + 7, 100))]})
        for start in range(0, 100, 7)
    ]
    found = [text for batch in without(batches, ranges) for text in batch.column("id").to_pylist()]
    assert found == [f"{number}-0" for number in left]


def test_ranges_that_touch_are_joined() -> None:
    assert joined([(5, 9), (1, 2), (3, 3), (8, 12), (20, 19)]) == [(1, 3), (5, 12)]


def test_ranges_are_found_by_their_ids() -> None:
    ranges = [(3, 3), (5, 9), (12, 20)]
    for low, high in itertools.combinations_with_replacement(range(25), 2):
        assert list(near(ranges, low, high)) == [each for each in ranges if each[0] <= high and each[1] >= low]


# --- Layout ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key", ["plain", "", ".", "..", "a/b", "a b", "~", "%", "ü", "\udcff\udc80", "x" * 500, "=", "\n"]
)
def test_every_key_has_a_folder_of_its_own(key: str) -> None:
    assert unquote_key(quote_key(key)) == key
    name = folder_name(key)
    assert name not in ("", ".", "..")
    assert "/" not in name
    assert len(name) <= 255
    assert "\0" not in name


def test_long_keys_that_begin_alike_have_different_folders() -> None:
    assert folder_name("ü" * 100) != folder_name("ü" * 101)


@pytest.mark.parametrize(
    ("ms", "day"),
    [
        (0, "1970-01-01"),
        (86_399_999, "1970-01-01"),
        (86_400_000, "1970-01-02"),
        (253_402_300_799_999, "9999-12-31"),
        (253_402_300_800_000, "__HIVE_DEFAULT_PARTITION__"),
        (2**64 - 1, "__HIVE_DEFAULT_PARTITION__"),
    ],
)
def test_entries_lie_under_the_date_of_their_id(ms: int, day: str) -> None:
    assert date_of(ms) == day


def test_a_folder_with_other_files_is_not_made_an_archive(tmp_path: Path) -> None:
    (tmp_path / "letters.txt").touch()
    with pytest.raises(ArchiveError, match="not an archive"):
        Layout(tmp_path).create(Disk())
    with pytest.raises(ArchiveError, match="not an archive"):
        Layout(tmp_path).check()


def test_a_place_of_another_kind_is_refused() -> None:
    with pytest.raises(ArchiveError, match="in an object store: s3, gs, az"):
        Layout("hdfs://host/archive")


def test_an_archive_cut_off_while_it_was_made_is_taken_up(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.marker.write_bytes(b"")
    layout.create(Disk())
    commit(ManifestLog(layout, KEY), manifest())
    with pytest.raises(ArchiveError, match="does not describe an archive"):
        layout.check()
