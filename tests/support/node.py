"""Programs and libraries for Node: what a package.json names, installed with npm into a folder of the cache.

Without Node or npm, or without the registry, tests skip and say why; STREAMD_REQUIRE_NODE=1 makes that a failure, as in CI.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import NoReturn

import pytest

__all__ = ["modules_of"]

OLDEST_NODE = (18, 19)
INSTALL_TIMEOUT_S = 300.0


def do_without(reason: str) -> NoReturn:
    if os.environ.get("STREAMD_REQUIRE_NODE"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def check_node() -> None:
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            do_without(f"no {program}")
    text = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout
    version = tuple(map(int, text.strip().lstrip("v").split(".")[:2]))
    if version < OLDEST_NODE:
        do_without(f"needs Node {'.'.join(map(str, OLDEST_NODE))}, found {text.strip()}")


def modules_of(source: Path) -> Path:
    """The folder `node_modules` with what package.json in a folder names, by package-lock.json if there is one.

    Installed once for each content of these files.
    """
    check_node()
    files = [each for name in ("package.json", "package-lock.json") if (each := source / name).exists()]
    content = files[-1].read_bytes()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "streamd-tests" / f"node-{hashlib.sha256(content).hexdigest()[:16]}"
    if not (folder / "installed").exists():
        folder.mkdir(parents=True, exist_ok=True)
        for each in files:
            shutil.copy(each, folder)
        words = ["ci"] if len(files) == 2 else ["install", "--no-package-lock"]
        command = ["npm", *words, "--no-audit", "--no-fund", "--ignore-scripts"]
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            do_without(f"npm {words[0]} did not end in time")
        if done.returncode != 0:
            do_without(f"npm {words[0]} failed: {done.stderr[-500:]}")
        (folder / "installed").touch()
    return folder / "node_modules"
