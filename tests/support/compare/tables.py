"""Tables of directed cases: named scripts in one text, each compared on two servers."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from .differential import Request, parse_script

__all__ = ["cases", "keys_of"]


def cases(text: str) -> Iterable[object]:
    """Parameters for `script`, from a text of blocks: a line `== name`, then commands as typed into redis-cli."""
    blocks: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.startswith("== "):
            name = line.removeprefix("== ")
            if name in blocks:
                raise ValueError(f"two cases are called {name!r}")
            blocks[name] = []
        elif line.strip():
            blocks[name].append(line)
    return [pytest.param(parse_script("\n".join(lines)), id=name.replace(" ", "_")) for name, lines in blocks.items()]


def keys_of(script: Iterable[Request]) -> list[bytes]:
    """The keys whose state is worth comparing after a script: those that the cases of this project use."""
    words = {word for request in script for word in request[1:]}
    return sorted(words & {b"s", b"t", b"u", b"text", b"none", b"dst"})
