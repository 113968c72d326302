"""What a stranger runs first: README's commands, and what they say where something is missing."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BACKEND = ROOT / "setup" / "backend.py"


@pytest.fixture
def no_compiler(tmp_path: Path) -> dict[str, str]:
    """An environment that has the programs of the shell, and python3, but no compiler and no sudo."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("sh", "dirname", "id"):
        (programs / name).symlink_to(str(shutil.which(name)))
    (programs / "python3").symlink_to(sys.executable)
    return {"PATH": str(programs), "CC": "no-such-compiler"}


def test_nothing_is_missing_here() -> None:
    said = subprocess.run([sys.executable, str(BACKEND)], capture_output=True, text=True, check=True)
    assert said.stdout.split() == []


def test_the_missing_compiler_is_named_before_anything_is_compiled(no_compiler: dict[str, str]) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(BACKEND.parent)!r}); import backend; backend.get_requires_for_build_wheel"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=no_compiler)
    assert said.returncode == 1
    assert said.stderr == "streamd: the build needs a C compiler and Python.h; missing on Debian: gcc libc6-dev\n"


def test_where_there_is_no_apt_one_line_says_what_is_missing(no_compiler: dict[str, str]) -> None:
    said = subprocess.run([str(ROOT / "install")], capture_output=True, text=True, env=no_compiler)
    assert said.returncode == 1
    assert said.stdout == ""
    assert said.stderr == (
        "streamd: missing, by Debian's names: gcc libc6-dev. Install them as root and run this again.\n"
    )


def test_modules_compiled_in_a_way_of_their_own_are_there() -> None:
    tree = ast.parse((ROOT / "setup.py").read_text())
    found = next(
        each.value
        for each in tree.body
        if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "OPTIMIZATION"
    )
    levels = ast.literal_eval(found)
    names = [name for modules in levels.values() for name in modules]
    assert len(names) == len(set(names))
    assert all(list(modules) == sorted(modules) for modules in levels.values())
    assert [
        name for name in names if not (ROOT / "streamd" / name.replace(".", "/")).with_suffix(".pyx").exists()
    ] == []


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        ([], "install --editable .[cli,client]"),
        (["."], "install --editable ."),
        ([".[spark]", "redis"], "install --editable .[spark] redis"),
        (["-e", ".[test]"], "install -e .[test]"),
        (["--editable", "."], "install --editable ."),
        (["--quiet", ".[store]"], "install --quiet --editable .[store]"),
        (["redis>=8 "], "install redis>=8 "),
    ],
)
def test_it_is_installed_in_place(tmp_path: Path, arguments: list[str], given: str) -> None:
    """Python that is started in the checkout finds the sources first: the compiled modules must be beside them."""
    shutil.copy(ROOT / "install", tmp_path)
    programs = tmp_path / "bin"
    programs.mkdir()
    pip = tmp_path / "venv" / "bin" / "pip"
    pip.parent.mkdir(parents=True)
    for program, text in ((programs / "python3", ""), (pip, 'echo "$*"')):
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    command = [str(tmp_path / "install"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.splitlines()[-1] == given


def test_readme_installs_with_the_program() -> None:
    text = (ROOT / "README.md").read_text()
    assert "\n./install && venv/bin/streamd server --port 6379\n" in text
    assert "\n./install -e '.[test]' && venv/bin/pytest\n" in text
