"""Where error types stand: in errors.py, or where its head says."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import streamd.errors

PACKAGE = Path(__file__).parents[2] / "streamd"

DECLARED = re.compile(r"^class (\w+)\(([\w, ]*(?:Error|Exception)\b[\w, ]*)\)", re.MULTILINE)


def modules_with_errors() -> set[str]:
    """The modules besides errors.py that declare error types, but for private ones."""
    return {
        path.relative_to(PACKAGE).with_suffix("").as_posix()
        for suffix in ("py", "pyx")
        for path in PACKAGE.rglob(f"*.{suffix}")
        if path.name != "errors.py" or path.parent != PACKAGE
        for name, _ in DECLARED.findall(path.read_text(encoding="utf-8"))
        if not name.startswith("_")
    }


def modules_listed(head: str) -> set[str]:
    """The modules of the list: lines of a room, its modules, and after `folder:` those of a folder in it."""
    listed = set()
    table = head[head.index("a test compares this list") :].split("\n\n")[1]
    for line in table.splitlines():
        room, names = line.split(maxsplit=1)
        folder = ""
        for word in re.findall(r"[\w/]+:?", names):
            if word.endswith(":"):
                folder = word.removesuffix(":") + "/"
            else:
                listed.add(f"{room}/{folder}{word}")
    return listed


def test_the_head_says_where_other_errors_stand() -> None:
    assert modules_listed(streamd.errors.__doc__ or "") == modules_with_errors()


def test_the_tree_at_the_head_names_every_error() -> None:
    tree = ast.parse((PACKAGE / "errors.py").read_text(encoding="utf-8"))
    declared = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    named = set(re.findall(r"\b\w+Error\b", (streamd.errors.__doc__ or "").partition("Errors that one room")[0]))
    assert named == declared
