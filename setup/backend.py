"""The build backend: setuptools, after a look whether there is what the build needs.

Without it a missing compiler shows only when all modules have been translated to C. `python3 setup/backend.py` prints the
Debian packages that are missing, for ./install; it runs before anything is installed, so it imports the standard library only.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from typing import Any

HOOKS_THAT_BUILD = ("get_requires_for_build_wheel", "get_requires_for_build_editable")
"""The first hooks of a build that needs a compiler; a source distribution needs none."""


def __getattr__(name: str) -> Any:
    """Every hook is that of setuptools."""
    missing = missing_for_build() if name in HOOKS_THAT_BUILD else []
    if missing:
        raise SystemExit(f"streamd: the build needs a C compiler and Python.h; missing on Debian: {' '.join(missing)}")
    from setuptools import build_meta

    return getattr(build_meta, name)


def missing_for_build() -> list[str]:
    """The Debian packages of what a build lacks: the compiler, the C library's headers, those of Python."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    if shutil.which(compiler[0]) is None:
        return ["gcc", "libc6-dev", *([] if finds_python_h() else ["python3-dev"])]
    missing = [] if compiles(compiler, "stdlib.h") else ["libc6-dev"]
    return missing if finds_python_h() else [*missing, "python3-dev"]


def compiles(compiler: list[str], header: str) -> bool:
    """Whether the compiler finds a header."""
    command = [*compiler, "-E", "-include", header, "-x", "c", os.devnull]
    return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


def finds_python_h() -> bool:
    return os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h"))


def missing_for_venv() -> list[str]:
    """The Debian package of what `python3 -m venv` lacks."""
    return [] if all(map(importlib.util.find_spec, ("venv", "ensurepip"))) else ["python3-venv"]


if __name__ == "__main__":
    if sys.version_info < (3, 11):  # noqa: UP036  ./install asks whatever python3 there is
        sys.exit(f"streamd: Python 3.11 or newer is needed, and python3 is {sys.version.split()[0]}")
    print(*missing_for_venv(), *missing_for_build())
