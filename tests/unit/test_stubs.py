"""The `.pyi` beside a compiled module: there is one when the package's Python code imports it, and it agrees with the module."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TYPED = ("streamd", "pyspark_streamd")  # what mypy reads


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def extensions() -> dict[str, Path]:
    """The compiled modules, by name."""
    return {name_of(path): path for path in sorted((ROOT / "streamd").rglob("*.pyx"))}


def imported_names(path: Path) -> set[str]:
    """The dotted names that a file imports, or might: `from a import b` gives `a` and `a.b`."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            package = f"{name_of(path.parents[node.level - 1])}." if node.level else ""
            names |= {package + node.module, *(f"{package}{node.module}.{alias.name}" for alias in node.names)}
    return names


def test_the_compiled_modules_that_typed_code_imports_have_a_stub_and_no_others() -> None:
    files = [path for name in TYPED for suffix in ("py", "pyi") for path in (ROOT / name).rglob(f"*.{suffix}")]
    imported = {name for path in files for name in imported_names(path)}
    modules = extensions()
    assert {name for name, path in modules.items() if path.with_suffix(".pyi").exists()} == imported & modules.keys()


def test_stubs_agree_with_the_modules() -> None:
    pytest.importorskip("mypy", reason="mypy is not installed: pip install -e '.[dev]'")
    command = [sys.executable, "-m", "mypy.stubtest", "--mypy-config-file", "pyproject.toml", "--ignore-missing-stub"]
    done = subprocess.run([*command, *extensions()], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
