"""The translation of modules to C, in which inline functions that a module does not call are not written."""

from __future__ import annotations

import importlib
import os
import re
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from Cython.Build.Dependencies import parse_dependencies
from support.files.fsync_shim import find_compiler

SETUP = Path(__file__).parents[2] / "setup"

SOURCES = {
    "__init__.py": "",
    "low.pxd": """
cdef inline int low_called(int x) noexcept:
    return x + 1

cdef inline int low_unused(int x) noexcept:
    return low_called(x)
""",
    "high.pxd": """
from lib.low cimport low_called, low_unused

cdef class Counter:
    cdef int count
    cdef inline int add(self, int x) noexcept:
        self.count += low_called(x)
        return self.count
    cdef inline int add_unused(self, int x) noexcept:
        return low_unused(x)
""",
    "high.pyx": "cdef class Counter:\n    pass\n",
    "unreached.pxd": "cdef inline int never_reached() noexcept:\n    return 1\n",
    "user.pyx": """
from lib.high cimport Counter
def run(int x):
    cdef Counter counter = Counter()
    return counter.add(x)
""",
    "wrong.pyx": "def broken(:\n",
}

TRANSLATE = """
import sys
from pathlib import Path
from translation import Translator
translator = Translator({"language_level": 3}, sorted(Path().glob("lib/*.pxd")))
print(*map(translator.translate, sys.argv[1:]))
"""


@pytest.fixture
def translated(tmp_path, monkeypatch):
    """Translates modules in a folder; returns what was printed, and each error."""
    (tmp_path / "lib").mkdir()
    for name, text in SOURCES.items():
        (tmp_path / "lib" / name).write_text(text)
    monkeypatch.setenv("PYTHONPATH", f"{SETUP}:{tmp_path}")

    def translate(*names):
        command = [sys.executable, "-c", TRANSLATE, *(f"lib/{name}.pyx" for name in names)]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout.split(), done.stderr

    return translate


def test_only_functions_that_are_called_are_written(translated, tmp_path):
    assert translated("high", "user") == (["lib/high.c", "lib/user.c"], "")
    text = (tmp_path / "lib" / "user.c").read_text()
    written = re.findall(r"^static CYTHON_INLINE .*(low_\w+|add\w*|never_reached)\(.*\) \{$", text, re.MULTILINE)
    assert sorted(written) == ["add", "low_called"]
    compiler = shlex.split(os.environ.get("CC") or str(find_compiler()))
    for name in ("high", "user"):
        flags = ["-O0", "-fPIC", "-shared", "-I" + sysconfig.get_path("include")]
        subprocess.run([*compiler, *flags, f"lib/{name}.c", "-o", f"lib/{name}.so"], cwd=tmp_path, check=True)
    run = [sys.executable, "-c", "from lib.user import run; print(run(2))"]
    assert subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=True).stdout == "3\n"


def test_a_module_with_an_error_is_reported_and_others_are_translated(translated):
    names, errors = translated("wrong", "user")
    assert names == ["None", "lib/user.c"]
    assert "wrong.pyx:1" in errors


def test_as_a_program_it_prints_what_is_wrong_in_declarations_and_modules(tmp_path):
    (tmp_path / "streamd").mkdir()
    for name, text in (
        ("low.pxd", "cdef broken(:\n"),
        ("high.pyx", "cdef void high() nogil:\n    with gil:\n        raise ValueError\n"),
    ):
        (tmp_path / "streamd" / name).write_text(text)
    command = [sys.executable, str(SETUP / "translation.py"), "streamd/high.pyx"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0
    assert "low.pxd:1" in done.stderr
    assert "performance hint: streamd/high.pyx:1" in done.stderr


def test_no_declaration_that_the_compiler_finds_is_missing_among_the_dependencies(monkeypatch):
    monkeypatch.syspath_prepend(str(SETUP))
    dependencies = importlib.import_module("dependencies")
    missing = {}
    for path in map(str, sorted(SETUP.parent.glob("streamd/**/*.p[yx][xd]"))):
        cimports = [name for name in parse_dependencies(path)[0] if name.startswith("streamd")]
        files = {name.replace(".", "/") + ".pxd" for name in cimports}
        if lost := {file for file in files if (SETUP.parent / file).exists()} - {*dependencies.imported_by(path)}:
            missing[path] = lost
    assert missing == {}
