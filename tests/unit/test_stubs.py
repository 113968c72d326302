"""What the `.pyi` beside each compiled module says is what the module has: names, arguments, defaults, bases."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def extensions() -> list[str]:
    """The names of the compiled modules."""
    return [
        ".".join(path.relative_to(ROOT).with_suffix("").parts) for path in sorted((ROOT / "streamd").rglob("*.pyx"))
    ]


def test_every_compiled_module_has_a_stub() -> None:
    sources = sorted((ROOT / "streamd").rglob("*.pyx"))
    assert [path for path in sources if not path.with_suffix(".pyi").exists()] == []


def test_stubs_agree_with_the_modules() -> None:
    pytest.importorskip("mypy", reason="mypy is not installed: pip install -e '.[dev]'")
    command = [sys.executable, "-m", "mypy.stubtest", "--mypy-config-file", "pyproject.toml", "--ignore-missing-stub"]
    done = subprocess.run([*command, *extensions()], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
