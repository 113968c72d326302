"""The first line of a script, `#!lua flags=no-writes,allow-oom`, and the flags that it may name."""

from __future__ import annotations

from streamd.errors import CommandError
from streamd.protocol.inline import split_line

__all__ = ["FLAGS", "UNDECLARED", "read_first_line"]

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


def shown(word: bytes) -> str:
    return word.decode("utf-8", "surrogateescape")
