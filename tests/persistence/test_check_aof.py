"""`streamd check-aof`: what it finds, what it changes, and its exit status beside that of redis-check-aof."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from support.files.aof import Store, bytes_of, commands, open_aof
from support.files.real_files import all_oracles, check_aof
from support.pages.terminals import open_terminal
from support.servers import python_environment

from streamd.cli.subcommands import program
from streamd.persistence.aof.check import is_manifest

pytestmark = pytest.mark.long

HEAD = commands("SELECT 0", "XADD s 1-1 f v", "XADD s 2-1 f v")
TAIL = commands("XADD s 3-1 f v", "MULTI", "XADD s 4-1 f v", "XADD s 5-1 f v", "EXEC")


def check(path: Path, *options: str, answer: str = "") -> Result:
    return CliRunner().invoke(program, ["check-aof", str(path), *options], input=answer)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with a base, two incremental files and their manifest."""
    open_aof(tmp_path, Store()).close()
    folder = tmp_path / "appendonlydir"
    (folder / "appendonly.aof.1.incr.aof").write_bytes(bytes_of(HEAD))
    (folder / "appendonly.aof.2.incr.aof").write_bytes(bytes_of(TAIL))
    manifest = folder / "appendonly.aof.manifest"
    manifest.write_text(
        "file appendonly.aof.1.base.rdb seq 1 type b\n"
        "file appendonly.aof.1.incr.aof seq 1 type i\nfile appendonly.aof.2.incr.aof seq 2 type i\n"
    )
    return folder


@pytest.fixture
def file(tmp_path: Path) -> Callable[[bytes], Path]:
    def write(data: bytes) -> Path:
        path = tmp_path / "x.aof"
        path.write_bytes(data)
        return path

    return write


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_set_of_files_in_order_is_in_order(files: Path) -> None:
    before = contents(files)
    result = check(files / "appendonly.aof.manifest")
    assert (result.exit_code, ": valid\n" in result.output) == (0, True)
    assert "snapshot   0 keys" in result.output
    assert contents(files) == before


def test_a_cut_file_is_found_out_and_left_alone(file: Callable[[bytes], Path]) -> None:
    data = bytes_of(HEAD)[:-4]
    path = file(data)
    result = check(path)
    assert result.exit_code == 1
    assert "expected   the length of an argument and a line end" in result.output
    assert "found      the end of the file" in result.output
    assert f"valid      up to byte {len(bytes_of(HEAD[:2]))}" in result.output
    assert path.read_bytes() == data


@pytest.mark.parametrize("answer", ["n\n", "", "\n"])
def test_without_consent_nothing_is_cut(file: Callable[[bytes], Path], answer: str) -> None:
    data = bytes_of(HEAD)[:-4]
    path = file(data)
    assert check(path, "--fix", answer=answer).exit_code == 1
    assert path.read_bytes() == data


def test_with_consent_it_is_cut_and_the_rest_kept(file: Callable[[bytes], Path]) -> None:
    data, whole = bytes_of(HEAD)[:-4], bytes_of(HEAD[:2])
    path = file(data)
    assert check(path, "--fix", answer="y\n").exit_code == 0
    assert path.read_bytes() == whole
    assert path.with_name(f"x.aof.cut-{len(whole)}").read_bytes() == data[len(whole) :]
    assert check(path).exit_code == 0


def test_a_group_without_its_end_is_cut_whole(file: Callable[[bytes], Path]) -> None:
    path = file(bytes_of(HEAD + TAIL)[:-3])
    assert check(path, "--fix", "--yes").exit_code == 0
    assert path.read_bytes() == bytes_of(HEAD + TAIL[:1])


@pytest.mark.parametrize(
    "requests", [commands("MULTI", "MULTI", "EXEC"), commands("EXEC"), commands("MULTI", "SET a b")]
)
def test_brackets_must_come_in_pairs(file: Callable[[bytes], Path], requests: list[list[bytes]]) -> None:
    path = file(bytes_of(HEAD + requests))
    result = check(path)
    assert result.exit_code == 1
    assert f"valid      up to byte {len(bytes_of(HEAD))}" in result.output


def test_only_the_last_file_is_cut(files: Path) -> None:
    (files / "appendonly.aof.1.incr.aof").write_bytes(bytes_of(HEAD)[:-4])
    before = contents(files)
    result = check(files / "appendonly.aof.manifest", "--fix", "--yes")
    assert (result.exit_code, "not the last file" in result.output) == (1, True)
    assert contents(files) == before


def test_the_last_file_of_a_manifest_is_cut(files: Path) -> None:
    (files / "appendonly.aof.2.incr.aof").write_bytes(bytes_of(TAIL)[:-4])
    assert check(files / "appendonly.aof.manifest", "--fix", "--yes").exit_code == 0
    assert (files / "appendonly.aof.2.incr.aof").read_bytes() == bytes_of(TAIL[:1])


def test_a_damaged_snapshot_cannot_be_repaired(files: Path) -> None:
    base = files / "appendonly.aof.1.base.rdb"
    base.write_bytes(base.read_bytes()[:60])
    before = contents(files)
    result = check(files / "appendonly.aof.manifest", "--fix", "--yes")
    assert (result.exit_code, "cannot be repaired" in result.output) == (1, True)
    assert contents(files) == before


@pytest.mark.parametrize(
    "text",
    [b"file a seq 1 type x\n", b"file a seq 1 type b", b"file nowhere seq 1 type b\n"],
    ids=["type", "end", "missing"],
)
def test_a_manifest_that_is_not_in_order(files: Path, text: bytes) -> None:
    (files / "appendonly.aof.manifest").write_bytes(text)
    assert check(files / "appendonly.aof.manifest").exit_code == 1


def test_files_beside_the_manifest_are_reported(files: Path) -> None:
    (files / "appendonly.aof.9.incr.aof").touch()
    assert "does not list appendonly.aof.9.incr.aof" in check(files / "appendonly.aof.manifest").output


def test_a_missing_file(tmp_path: Path) -> None:
    result = check(tmp_path / "nowhere")
    assert (result.exit_code, "No such file" in result.output) == (1, True)


STAMPED = b"#TS:100\r\n" + bytes_of(HEAD) + b"#TS:200\r\n" + bytes_of(TAIL)


@pytest.mark.parametrize(
    ("seconds", "size"), [(200, len(STAMPED)), (150, 9 + len(bytes_of(HEAD))), (100, 9 + len(bytes_of(HEAD)))]
)
def test_a_file_is_cut_at_a_time(file: Callable[[bytes], Path], seconds: int, size: int) -> None:
    path = file(STAMPED)
    assert check(path, "--truncate-to-timestamp", str(seconds)).exit_code == 0
    assert path.read_bytes() == STAMPED[:size]


def test_nothing_before_the_time_asked_for_changes_nothing(file: Callable[[bytes], Path]) -> None:
    path = file(STAMPED)
    assert check(path, "--truncate-to-timestamp", "99").exit_code == 1
    assert path.read_bytes() == STAMPED


def test_a_manifest_is_distinguished_from_a_log(files: Path, file: Callable[[bytes], Path]) -> None:
    assert is_manifest(str(files / "appendonly.aof.manifest"))
    assert not is_manifest(str(files / "appendonly.aof.1.incr.aof"))
    assert not is_manifest(str(file(b"#TS:1\r\n" + bytes_of(HEAD))))
    assert is_manifest(str(file(b"# mine\nfile a seq 1 type b\n")))


def test_it_shows_a_bar_on_a_terminal(file: Callable[[bytes], Path]) -> None:
    path = file(bytes_of(HEAD * 30_000))
    parent, child = open_terminal()
    at_once = "from streamd.cli import main, progress_bar; progress_bar.SHOWN_AFTER_S = 0; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", at_once, "check-aof", str(path)],
        stdout=subprocess.PIPE, stderr=child, env=python_environment() | {"TERM": "xterm", "COLUMNS": "100"},
    )  # fmt: skip
    os.close(child)
    seen = b""
    try:
        while piece := os.read(parent, 65536):
            seen += piece
    except OSError:
        pass  # Linux: the other side is closed
    os.close(parent)
    output, _ = process.communicate()
    assert process.returncode == 0
    assert b"x.aof" in seen
    assert b"commands   90,000" in output


# --- Beside redis-check-aof --------------------------------------------------------------------------------------------------


@pytest.mark.real
def test_verdicts_are_those_of_redis_s_checker(tmp_path: Path) -> None:
    oracle = all_oracles()[0]
    whole = bytes_of(HEAD + TAIL)
    noise = random.Random(6)
    cases = [whole[:cut] for cut in range(0, len(whole) + 1, 3)]
    for _ in range(150):
        damaged = bytearray(whole)
        damaged[noise.randrange(len(whole))] ^= 1 << noise.randrange(8)
        cases.append(bytes(damaged))
    cases += [b"#TS:12\r\n" + whole, whole + b"#x\n", whole + b"\0" * 9, b"*1\n$4\nPING\n", b"\n" + whole]
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for case in cases:
        for path in (ours, theirs):
            path.write_bytes(case)
        verdict = check_aof(oracle, theirs, "--fix", answer="y\n")
        result = check(ours, "--fix", "--yes")
        assert (result.exit_code, ours.read_bytes()) == (verdict.returncode, theirs.read_bytes()), (
            case,
            verdict.stdout,
        )
