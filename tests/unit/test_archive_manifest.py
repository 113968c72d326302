"""Manifests: numbered without a gap, each where the last one ended, committed at once and never in place of another."""

from __future__ import annotations

import dataclasses
import errno
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="archives need streamd-server[spark]")

from streamd.spark.archive.errors import ArchiveError, CorruptArchiveError, LockLostError
from streamd.spark.archive.layout import Disk, Layout, date_of, folder_name, quote_key, unquote_key
from streamd.spark.archive.manifest import FileRecord, Manifest, ManifestLog, RowGroup, archived_streams

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
    with pytest.raises(LockLostError):
        slow.commit(manifest(run="slow"), pending, Disk())
    assert ManifestLog.read(layout, KEY).manifests[0].run == "fast"


def test_a_commit_fails_when_another_archiver_has_taken_over(layout: Layout) -> None:
    slow, other = ManifestLog(layout, KEY), ManifestLog(layout, KEY)
    pending = slow.write_pending(manifest(run="slow"), Disk())
    assert other.remove_pending(Disk()) == [pending]
    with pytest.raises(LockLostError):
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
    with pytest.raises(LockLostError):
        again.commit(manifest(run="slow"), pending, disk)
    again.remove_pending(disk)
    second = manifest(2, A, B)
    pending = log.write_pending(second, disk)
    log.remove_pending(disk)
    with pytest.raises(LockLostError):
        log.commit(second, pending, disk)


def test_a_manifest_that_is_missing_is_told(layout: Layout) -> None:
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
    ],
)
def test_a_manifest_that_cannot_follow_is_refused(layout: Layout, changes: dict[str, object]) -> None:
    log = ManifestLog(layout, KEY)
    commit(log, manifest())
    log.path(2).write_bytes(dataclasses.replace(manifest(2, A, B), **changes).to_bytes())
    with pytest.raises(CorruptArchiveError):
        ManifestLog.read(layout, KEY)


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"null", b'{"format": 2}'])
def test_garbage_is_no_manifest(layout: Layout, data: bytes) -> None:
    log = ManifestLog(layout, KEY)
    commit(log, manifest())
    log.path(1).write_bytes(data)
    with pytest.raises(CorruptArchiveError):
        ManifestLog.read(layout, KEY)


def test_every_cut_of_a_manifest_is_told(layout: Layout) -> None:
    log = ManifestLog(layout, KEY)
    commit(log, manifest())
    whole = log.path(1).read_bytes().rstrip()
    for size in range(0, len(whole), 7):
        log.path(1).write_bytes(whole[:size])
        with pytest.raises(CorruptArchiveError):
            ManifestLog.read(layout, KEY)


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
    with pytest.raises(ArchiveError, match="no archive"):
        Layout(tmp_path).create(Disk())
    with pytest.raises(ArchiveError, match="no archive"):
        Layout(tmp_path).check()


def test_an_object_store_is_refused() -> None:
    with pytest.raises(ArchiveError, match="atomic renames"):
        Layout("s3://bucket/archive")


def test_an_archive_cut_off_while_it_was_made_is_taken_up(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.marker.write_bytes(b"")
    layout.create(Disk())
    commit(ManifestLog(layout, KEY), manifest())
    with pytest.raises(ArchiveError):
        layout.check()
