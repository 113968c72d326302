"""Which failures of a run CI forgives: `.ci/tests`, on toy projects."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / ".ci" / "tests"

FLAKY = """
from pathlib import Path
def test_flaky():
    mark = Path(__file__).with_suffix(".mark")
    if not mark.exists():
        mark.touch()
        raise AssertionError("a busy moment")
"""
FAILING = "def test_failing():\n    assert 1 == 2\n"
PASSING = "def test_passing():\n    pass\n"
CRASHES_ONCE = """
import os, signal
from pathlib import Path
def test_crashing():
    mark = Path(__file__).with_suffix(".mark")
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGSEGV)
"""
SERVER_DIES = """
import sys
from support.servers import Process
def test_server():
    process = Process([sys.executable, "-c", "import os; os.abort()"])
    process.wait()
    from pathlib import Path
    mark = Path(__file__).with_suffix(".mark")
    if not mark.exists():
        mark.touch()
        raise AssertionError(f"a server was ended by {process.find_fatal_signal()}, which no test had sent")
"""
SKIPS_LATER = """
from pathlib import Path
import pytest
def test_skipping():
    mark = Path(__file__).with_suffix(".mark")
    if mark.exists():
        pytest.skip("not twice")
    mark.touch()
    raise AssertionError("a busy moment")
"""
FAILS_EVERY_THIRD_TIME = """
from pathlib import Path
def test_sometimes():
    mark = Path(__file__).with_suffix(".mark")
    runs = len(mark.read_text()) if mark.exists() else 0
    mark.write_text("x" * (runs + 1))
    assert runs % 3
"""
FLAKY_IN_TWO_WAYS = """
from pathlib import Path
import pytest
@pytest.mark.parametrize("protocol", [2, 3])
def test_flaky(protocol):
    mark = Path(__file__).with_suffix(f".{protocol}")
    if not mark.exists():
        mark.touch()
        raise AssertionError("a busy moment")
"""
FLAKY_IN_A_CLASS = """
from pathlib import Path
import pytest
class TestInside:
    @pytest.mark.parametrize("text", ["a b::c.d[e]", "x/y"])
    def test_flaky(self, text):
        mark = Path(__file__).with_suffix(".mark")
        if not mark.exists():
            mark.touch()
            raise AssertionError("a busy moment")
"""


def judge(folder: Path, *files: str, workers: bool = False) -> tuple[int, str]:
    """Exit status and output of the program for a project of these files."""
    (folder / "tests").mkdir(exist_ok=True)
    (folder / "pytest.ini").write_text("[pytest]\n")
    for number, text in enumerate(files):
        (folder / "tests" / f"test_toy{number}.py").write_text(text)
    environment = {
        **os.environ,
        "PYTHON": sys.executable,
        "PYTHONPATH": str(PROGRAM.parents[1] / "tests"),
        "STREAMD_FLAKY": str(folder / "flaky.jsonl"),
        "PYTEST_ADDOPTS": "-p no:cacheprovider -p xdist",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT"):
        environment.pop(name, None)
    arguments = ["-n", "2", "--dist", "loadfile"] if workers else []
    command = [sys.executable, PROGRAM, f"{sys.executable} -m pytest", *arguments]
    done = subprocess.run(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    return done.returncode, done.stdout


def forgiven(folder: Path) -> list[list[str]]:
    return [json.loads(line)["forgiven"] for line in (folder / "flaky.jsonl").read_text().splitlines()]


def test_a_run_without_failures_is_green_and_noted(tmp_path: Path) -> None:
    assert judge(tmp_path, PASSING)[0] == 0
    assert forgiven(tmp_path) == [[]]


@pytest.mark.parametrize("workers", [False, True])
def test_a_flaky_test_is_forgiven_and_named(tmp_path: Path, workers: bool) -> None:
    status, said = judge(tmp_path, FLAKY, PASSING, workers=workers)
    assert status == 0, said
    assert "Forgiven, 1 times in the last 20 runs: tests/test_toy0.py::test_flaky" in said
    assert "no earlier run is known" in said
    assert forgiven(tmp_path) == [["tests/test_toy0.py::test_flaky"]]


def test_a_test_of_a_class_with_parameters_is_found_again(tmp_path: Path) -> None:
    status, said = judge(tmp_path, FLAKY_IN_A_CLASS)
    assert status == 0, said
    assert forgiven(tmp_path) == [["tests/test_toy0.py::TestInside::test_flaky[a b::c.d[e]]"]]


def test_a_test_with_parameters_counts_once(tmp_path: Path) -> None:
    status, said = judge(tmp_path, FLAKY_IN_TWO_WAYS, FLAKY_IN_TWO_WAYS, FLAKY)
    assert status == 0, said
    assert len(forgiven(tmp_path)[0]) == 5


def test_a_crash_beside_a_flaky_test_is_red(tmp_path: Path) -> None:
    """xdist repeats the test that crashed a worker, and it passes."""
    status, said = judge(tmp_path, CRASHES_ONCE, FLAKY, workers=True)
    assert status == 1
    assert "Not forgiven: a process crashed: Fatal Python error: Segmentation fault" in said
    assert not (tmp_path / "flaky.jsonl").exists()


def test_a_crash_of_pytest_itself_is_red(tmp_path: Path) -> None:
    assert judge(tmp_path, CRASHES_ONCE)[0] == 1


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ([FAILING], "a test has failed again"),
        ([FLAKY] * 4, "4 tests failed, and no more than 3 are ever forgiven"),
        ([SERVER_DIES], "a process crashed: a server was ended by SIGABRT, which no test had sent"),
        ([SKIPS_LATER], "a test has failed again"),
        ([FAILS_EVERY_THIRD_TIME], "a test has failed again"),
        ([FLAKY, "import nothing_like_this"], "tests/test_toy1.py: it could not be collected"),
        (["import os\ndef test_leaves():\n    os._exit(0)\n"], "pytest wrote no account of its tests"),
        ([], "pytest ended with status 5"),
    ],
    ids=["failing", "four", "dead server", "skipped", "every third", "import", "exit", "none"],
)
def test_what_is_not_forgiven(tmp_path: Path, files: list[str], reason: str) -> None:
    status, said = judge(tmp_path, *files)
    assert status == 1
    assert f"Not forgiven: {reason}" in said


def test_the_third_entry_of_a_test_in_twenty_runs_is_red(tmp_path: Path) -> None:
    name = "tests/test_toy0.py::test_flaky"
    earlier = [[name], *[[]] * 17, [name, "tests/test_toy1.py::test_other"]]
    (tmp_path / "flaky.jsonl").write_text("".join(json.dumps({"forgiven": each}) + "\n" for each in earlier))
    status, said = judge(tmp_path, FLAKY)
    assert status == 1
    assert "Not forgiven: a test has failed in 3 of the last 20 runs" in said


def test_runs_before_the_last_twenty_are_forgotten(tmp_path: Path) -> None:
    name = "tests/test_toy0.py::test_flaky"
    earlier = [[name]] * 2 + [[]] * 19
    (tmp_path / "flaky.jsonl").write_text("".join(json.dumps({"forgiven": each}) + "\n" for each in earlier))
    assert judge(tmp_path, FLAKY)[0] == 0
    assert forgiven(tmp_path) == [*([[]] * 19), [name]]
