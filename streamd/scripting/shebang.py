"""The first lines of scripts, `#!lua flags=no-writes,allow-oom`, and of libraries of functions, `#!lua name=mylib`."""

from __future__ import annotations

import re

from streamd.errors import CommandError
from streamd.protocol.inline import split_line

__all__ = ["FLAGS", "UNDECLARED", "check_name", "read_first_line", "read_library_line"]

FLAGS = {
    b"no-writes": 1 << 0,
    b"allow-oom": 1 << 1,
    b"allow-stale": 1 << 2,
    b"no-cluster": 1 << 3,
    b"allow-cross-slot-keys": 1 << 4,
}
"""host.ScriptFlag by the words that scripts and functions use."""
UNDECLARED = 1 << 5
"""ScriptFlag of a script without such a line."""


NAME = re.compile(rb"[A-Za-z0-9_]+")


def read_first_line(body: bytes) -> tuple[int, bytes]:
    """The flags of a script, as a set of ScriptFlag, and its code: the line is blank there, so that lines keep their numbers.

    Raises CommandError.
    """
    if not body.startswith(b"#!"):
        return UNDECLARED, body
    line, end, code = body.partition(b"\n")
    if not end:
        raise CommandError("ERR Invalid script shebang")
    try:
        words = split_line(line)
    except ValueError:
        raise CommandError("ERR Invalid engine in script shebang") from None
    if words[0] != b"#!lua":
        raise CommandError(f"ERR Unexpected engine in script shebang: {shown(words[0])}")
    flags = 0
    for word in words[1:]:
        if not word.startswith(b"flags="):
            raise CommandError(f"ERR Unknown lua shebang option: {shown(word)}")
        names = word.removeprefix(b"flags=")
        for name in names.split(b",") if names else ():
            if name not in FLAGS:
                raise CommandError(f"ERR Unexpected flag in script shebang: {shown(name)}")
            flags |= FLAGS[name]
    return flags, b"\n" + code


def read_library_line(code: bytes) -> tuple[bytes, bytes]:
    """The name of a library, and its code with that line blank. Raises CommandError."""
    if not code.startswith(b"#!"):
        raise CommandError("ERR Missing library metadata")
    line, end, rest = code.partition(b"\n")
    if not end:
        raise CommandError("ERR Invalid library metadata")
    try:
        engine, *words = split_line(line)
    except ValueError:
        raise CommandError("ERR Invalid library metadata") from None
    name = None
    for word in words:
        if word[:5].lower() != b"name=":
            raise CommandError(f"ERR Invalid metadata value given: {shown(word)}")
        if name is not None:
            raise CommandError("ERR Invalid metadata value, name argument was given multiple times")
        name = word[5:]
    if name is None:
        raise CommandError("ERR Library name was not given")
    check_name(name)
    if engine.lower() != b"#!lua":
        raise CommandError(f"ERR Engine '{shown(engine[2:])}' not found")
    return name, b"\n" + rest


def check_name(name: bytes) -> None:
    """Raise CommandError unless a library or a function may have this name."""
    if NAME.fullmatch(name) is None:
        raise CommandError(
            "ERR Library names can only contain letters, numbers, or underscores(_) and must be at least one character long"
        )


def shown(word: bytes) -> str:
    return word.decode("latin-1")
