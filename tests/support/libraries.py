"""Libraries of Python that the tests' own environment lacks: an environment for them in the cache, from a requirements file.

Where they cannot be installed, tests skip and say why; STREAMD_REQUIRE_TOOLS=1 makes that a failure, as in CI.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
from pathlib import Path

from support.tools import do_without

__all__ = ["python_with"]

INSTALL_TIMEOUT_S = 900.0


def python_with(requirements: Path) -> Path:
    """The interpreter of an environment with what a file names. It is made once for each content of the file and Python."""
    content = requirements.read_bytes() + sys.version.encode()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "streamd-tests" / f"python-{hashlib.sha256(content).hexdigest()[:16]}"
    folder.mkdir(parents=True, exist_ok=True)
    python = folder / "venv" / "bin" / "python"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another worker may be at it
        if not (folder / "installed").exists():
            for command in (
                [sys.executable, "-m", "venv", "--clear", "--without-pip", str(folder / "venv")],
                [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "-r", str(requirements)],
            ):
                try:
                    done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S)
                except subprocess.TimeoutExpired:
                    do_without("the libraries were not installed in time")
                if done.returncode != 0:
                    do_without(f"the libraries cannot be installed: {done.stderr[-500:]}")
            (folder / "installed").touch()
    return python
