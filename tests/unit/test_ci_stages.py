"""The stages of CI side by side: `.ci/stages` keeps the output of each in one piece, and the failure of any."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / ".ci" / "stages"


def run_stages(folder: Path, *words: str) -> tuple[int, str]:
    command = [sys.executable, str(PROGRAM), *words]
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
    return done.returncode, done.stdout


def test_lanes_run_side_by_side(tmp_path: Path) -> None:
    """Each lane waits for the other: one after the other they would never end."""
    subprocess.run(["mkfifo", tmp_path / "there", tmp_path / "back"], check=True)
    status, said = run_stages(tmp_path, "a: read x <there; echo $x >back", "--", "b: echo 7 >there; cat back")
    assert status == 0
    assert "== b: echo 7 >there; cat back\n7\n" in said


def test_the_stages_of_a_lane_run_one_after_another(tmp_path: Path) -> None:
    status, _ = run_stages(tmp_path, "first: true", "--", "a: echo 1 >made", "b: cat made")
    assert status == 0


def test_output_is_in_one_piece_and_in_order(tmp_path: Path) -> None:
    subprocess.run(["mkfifo", tmp_path / "go"], check=True)
    _, said = run_stages(
        tmp_path, "tests: echo one", "--", "a: echo two; read x <go; echo three >&2", "--", "b: echo four; echo >go"
    )
    lines = [line for line in said.splitlines() if line in ("one", "two", "three", "four")]
    assert lines == ["one", "two", "three", "four"]


@pytest.mark.parametrize(
    "words",
    [
        ["a: exit 3", "--", "b: true"],
        ["a: true", "--", "b: exit 3", "c: true"],
        ["a: true", "--", "b: true", "--", "c: true", "d: false"],
        ["a: true", "--", "b: kill -SEGV $$"],
        ["a: true", "b: set -e; false; true", "--", "c: true"],
        ["a: true", "--", "b: no-such-program"],
    ],
    ids=["first", "background", "last", "signal", "errexit", "missing"],
)
def test_a_stage_that_fails_fails_the_run(tmp_path: Path, words: list[str]) -> None:
    status, said = run_stages(tmp_path, *words)
    assert status == 1
    assert said.count("FAILED") == 2  # at once, and in the table


def test_the_stages_behind_a_failure_run(tmp_path: Path) -> None:
    status, said = run_stages(tmp_path, "a: true", "--", "b: false", "c: echo still here")
    assert status == 1
    assert "== c: echo still here\nstill here\n" in said


def test_how_a_stage_ended_is_printed_before_another_ends(tmp_path: Path) -> None:
    subprocess.run(["mkfifo", tmp_path / "go"], check=True)
    command = [sys.executable, str(PROGRAM), "a: read x <go", "--", "b: false"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().split()[:2] == ["b", "FAILED"]
        (tmp_path / "go").write_text("1\n")
        process.stdout.read()
