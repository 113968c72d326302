"""The manifest of the append-only file: its text, and how it is replaced."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.files.aof import FailingDisk

from streamd.persistence.aof.aof_manifest import AofFile, Manifest, ManifestError, ManifestFile, NotSyncedError

BASE = AofFile("a.2.base.rdb", 2, "b")
FIRST = AofFile("a.2.incr.aof", 2, "i", 17)
SECOND = AofFile("a.3.incr.aof", 3, "i")


def test_the_text_is_redis_s_text() -> None:
    manifest = Manifest(BASE, [AofFile("a.1.incr.aof", 1, "h")], [AofFile("a.2.incr.aof", 2, "i", 0, 12)])
    assert manifest.format() == (
        b"file a.2.base.rdb seq 2 type b\n"
        b"file a.1.incr.aof seq 1 type h\n"
        b"file a.2.incr.aof seq 2 type i startoffset 0 endoffset 12\n"
    )


@pytest.mark.parametrize(
    ("line", "file"),
    [
        (b"file a seq 1 type b", AofFile("a", 1, "b")),
        (b"FILE a SEQ 1 TYPE i", AofFile("a", 1, "i")),
        (b"type h seq 1 file a", AofFile("a", 1, "h")),
        (b"file a seq 1 type b colour green", AofFile("a", 1, "b")),
        (b"file a seq 1 type bb", AofFile("a", 1, "b")),
        (b"file a seq 1 type b file c", AofFile("c", 1, "b")),
        (b"  file 'a b' seq 1 type i startoffset 5  ", AofFile("a b", 1, "i", 5)),
        (rb'file "a\x20\"b\"" seq 1 type i startoffset 5 endoffset 6', AofFile('a "b"', 1, "i", 5, 6)),
    ],
)
def test_a_line_is_read(line: bytes, file: AofFile) -> None:
    assert list(Manifest.parse(line + b"\n")) == [file]


@pytest.mark.parametrize(
    ("text", "reason", "line"),
    [
        (b"", "Found an empty AOF manifest", 0),
        (b"file a seq 1 type b", "The AOF manifest file contains too long line", 0),
        (b"file a seq 1 type b" + b" x y" * 300 + b"\n", "The AOF manifest file contains too long line", 0),
        (b"file a seq 1 type b\n\n", "Invalid AOF manifest file format", 2),
        (b"file a seq 1 type\n", "Invalid AOF manifest file format", 1),
        (b"file a seq 1\n", "Invalid AOF manifest file format", 1),
        (b"file a/b seq 1 type b\n", "File can't be a path, just a filename", 1),
        (b"file a seq 0 type b\n", "Invalid AOF manifest file format", 1),
        (b"file a seq x type b\n", "Invalid AOF manifest file format", 1),
        (b'file "a seq 1 type b\n', "Invalid AOF manifest file format", 1),
        (b"seq 1 type b x y\n", "Invalid AOF manifest file format", 1),
        (b"file a seq 1 type b\nfile b seq 2 type b\n", "Found duplicate base file information", 2),
        (b"file b seq 3 type i\nfile c seq 2 type i\n", "Found a non-monotonic sequence number", 2),
        (b"# x\nfile a seq 1 type q\n", "Unknown AOF file type", 2),
    ],
)
def test_a_text_is_refused_for_redis_s_reason(text: bytes, reason: str, line: int) -> None:
    with pytest.raises(ManifestError, match=re.escape(reason)) as caught:
        Manifest.parse(text, "m")
    assert (caught.value.reason, caught.value.line) == (reason, line)


def test_a_comment_alone_is_an_empty_manifest() -> None:
    assert Manifest.parse(b"# nothing yet\n").is_empty


names = st.binary(min_size=1, max_size=30).filter(lambda name: b"/" not in name and b"\0" not in name)


@given(names, st.integers(1, 2**60), st.sampled_from("bhi"), st.none() | st.integers(0, 2**60))
def test_every_name_survives(name: bytes, seq: int, kind: str, offset: int | None) -> None:
    file = AofFile(os.fsdecode(name), seq, kind, offset)  # type: ignore[arg-type]
    assert list(Manifest.parse(file.format())) == [file]


def test_a_new_base_makes_history_of_what_it_contains() -> None:
    manifest = Manifest(BASE, [], [FIRST, SECOND])
    manifest.set_base(AofFile("a.3.base.rdb", 3, "b"))
    manifest.forget_incrementals(but_last=True)
    assert manifest.format() == (
        b"file a.3.base.rdb seq 3 type b\n"
        b"file a.2.incr.aof seq 2 type h startoffset 17\n"
        b"file a.2.base.rdb seq 2 type h\n"
        b"file a.3.incr.aof seq 3 type i\n"
    )


def test_numbers_go_on_behind_history() -> None:
    manifest = Manifest(BASE, [], [FIRST, SECOND])
    manifest.forget_incrementals(but_last=False)
    assert (manifest.base_seq, manifest.incremental_seq) == (2, 3)


# --- The file --------------------------------------------------------------------------------------------------------


def test_a_replacement_is_synced_before_it_is_renamed_and_the_directory_after(tmp_path: Path) -> None:
    disk = FailingDisk()
    ManifestFile(str(tmp_path), "a", disk).replace(Manifest(BASE))
    assert disk.calls == [
        ("open_append", "temp-a.manifest"),
        ("write",),
        ("sync",),
        ("rename", "temp-a.manifest", "a.manifest"),
        ("sync_directory", tmp_path.name),
    ]


@pytest.mark.parametrize("operation", ["open_append", "write", "sync", "rename"])
def test_a_failed_replacement_leaves_the_old_one(tmp_path: Path, operation: str) -> None:
    disk = FailingDisk()
    file = ManifestFile(str(tmp_path), "a", disk)
    file.replace(Manifest(BASE))
    disk.fail(operation)
    with pytest.raises(OSError, match="Input/output error"):
        file.replace(Manifest(BASE, [], [FIRST]))
    assert file.load() == Manifest(BASE)


def test_a_directory_that_cannot_be_synced_is_distinguished(tmp_path: Path) -> None:
    disk = FailingDisk()
    file = ManifestFile(str(tmp_path), "a", disk)
    disk.fail("sync_directory")
    with pytest.raises(NotSyncedError, match="could not be synced"):
        file.replace(Manifest(BASE))
    assert file.load() == Manifest(BASE)


def test_a_missing_manifest_is_an_empty_one(tmp_path: Path) -> None:
    assert ManifestFile(str(tmp_path / "nowhere"), "a").load().is_empty


def test_a_first_manifest_that_only_misses_its_name_is_finished(tmp_path: Path) -> None:
    file = ManifestFile(str(tmp_path), "a")
    file.prepare(Manifest(BASE), is_first=True)
    (tmp_path / BASE.name).write_bytes(b"x")
    assert file.load() == Manifest(BASE)
    assert (tmp_path / "a.manifest").exists()


def test_a_first_manifest_whose_files_were_never_made_counts_for_nothing(tmp_path: Path) -> None:
    file = ManifestFile(str(tmp_path), "a")
    file.prepare(Manifest(BASE, [], [FIRST]), is_first=True)
    (tmp_path / BASE.name).write_bytes(b"x")
    assert file.load().is_empty
    assert file.unlisted(Manifest()) == []


def test_a_later_replacement_that_was_interrupted_counts_for_nothing(tmp_path: Path) -> None:
    file = ManifestFile(str(tmp_path), "a")
    file.prepare(Manifest(BASE))
    (tmp_path / BASE.name).write_bytes(b"x")
    assert file.load().is_empty
    assert file.unlisted(Manifest()) == [BASE.name]


def test_files_that_no_manifest_lists_are_found(tmp_path: Path) -> None:
    file = ManifestFile(str(tmp_path), "a")
    for name in ("a.1.base.rdb", "a.1.incr.aof", "a.2.base.aof", "a.incr.aof", "b.1.incr.aof", "a.1.incr.aof.cut-5"):
        (tmp_path / name).touch()
    assert file.unlisted(Manifest(AofFile("a.2.base.aof", 2, "b"))) == ["a.1.base.rdb", "a.1.incr.aof"]
    assert file.highest_seqs() == (2, 1)
