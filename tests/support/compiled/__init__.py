"""What only compiled code can call, for tests: each `.pyx` here is a module, compiled when a test first asks for it.

    from support.compiled import compiled

    RaxMap = compiled("rax_map").RaxMap

The results are kept in build/, under a name that follows from everything that they depend on.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import importlib.util
import os
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

import Cython

from ..files.fsync_shim import find_compiler

__all__ = ["compiled"]

ROOT = Path(__file__).parents[3]


@functools.cache
def compiled(name: str) -> Any:
    """The module of `name.pyx`."""
    spec = importlib.util.spec_from_file_location(name, build(Path(__file__).with_name(f"{name}.pyx")))
    assert spec is not None, name
    assert spec.loader is not None, name
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def build(source: Path) -> Path:
    """Its shared library."""
    compiler = os.environ.get("CC") or find_compiler()
    assert compiler is not None, "a C compiler is needed: gcc or clang"
    options = [
        f"-I{sysconfig.get_path('include')}",
        "-O1",
        "-fPIC",
        "-shared",
        *shlex.split(os.environ.get("CFLAGS", "")),
    ]
    digest = hashlib.sha256(repr((sys.version, Cython.__version__, compiler, options)).encode())
    for path in (source, *sorted(ROOT.glob("streamd/**/*.pxd"))):
        digest.update(path.read_bytes())
    kept = ROOT / "build" / f"{source.stem}-{digest.hexdigest()[:16]}.so"
    if kept.exists():
        return kept
    kept.parent.mkdir(exist_ok=True)
    # Workers of pytest-xdist need the same modules at the same time: one compiles, the others wait for it.
    with kept.with_suffix(".lock").open("w") as lock, tempfile.TemporaryDirectory(dir=kept.parent) as folder:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            text, made = Path(folder, f"{source.stem}.c"), Path(folder, kept.name)
            # A sanitizer that is loaded into the tests has no business in the compilers.
            environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
            cython = [sys.executable, "-m", "cython", "-3", "-I", ROOT, source, "-o", text]
            subprocess.run(cython, check=True, env=environment, cwd=ROOT)
            subprocess.run([*shlex.split(compiler), *options, text, "-o", made], check=True, env=environment)
            made.replace(kept)
    return kept
