"""What a module is compiled from: its source and the declarations of streamd that this reaches.

Cython's own tree of dependencies says the same, but looks for each name in all folders of sys.path, which takes seconds.
"""

from __future__ import annotations

import functools
import os
import re
from pathlib import Path


def sources_of(path: str) -> set[str]:
    """The files that a `.pyx` is compiled from, itself included. Paths are relative to the working folder."""
    todo, reached = [path, str(Path(path).with_suffix(".pxd"))], set()
    while todo:
        if (each := todo.pop()) not in reached and os.path.exists(each):
            reached.add(each)
            todo.extend(imported_by(each))
    return reached


@functools.cache
def imported_by(path: str) -> list[str]:
    """The declarations that a source imports."""
    names = re.findall(r"^\s*from (streamd[\w.]*) cimport\b", Path(path).read_text(encoding="utf-8"), re.MULTILINE)
    return [name.replace(".", "/") + ".pxd" for name in names]
