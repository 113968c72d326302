"""Changes of releases after 8.6.3 that streamd includes, for tests that compare with a Redis 8.6.3."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from streamd.core.spec import table
from streamd.serve.families import load_all

from ..wire import Reply

__all__ = [
    "LATER_CLIENT_FIELDS",
    "LATER_OPTIONS",
    "flags_before",
    "later_commands",
    "without_created",
    "without_later_fixes",
]

INCOMPLETE_KEYS = frozenset({"xread", "xreadgroup"})
"""Commands whose key specification is marked as incomplete since 8.6.6."""

LATER_OPTIONS = {
    "xread": frozenset({b"maxcount", b"maxsize"}), "xreadgroup": frozenset({b"maxcount", b"maxsize"}), "shutdown": frozenset({b"failover"}),
}  # fmt: skip
"""Arguments in COMMAND DOCS that are newer, or of Valkey, by the name of their command."""

LATER_CLIENT_FIELDS = ("read-events", "parse-batch-cmd-sum", "parse-batch-cnt")
"""Fields of CLIENT LIST and INFO since 8.8."""


def later_commands() -> set[bytes]:
    """Names of commands that 8.6.3 does not have."""
    load_all()
    return {command.full_name.encode() for command in table.walk() if command.is_newer}


def flags_before(command: str, flags: Iterable[Reply]) -> list[Reply]:
    """The flags of a key specification as 8.6.3 has them."""
    return [flag for flag in flags if command not in INCOMPLETE_KEYS or flag.value != b"incomplete"]


def without_created(effects: Iterable[Sequence[bytes]]) -> tuple[Sequence[bytes], ...]:
    """Effects without the consumers that they create: 8.6.3 does not propagate those that a read creates without a delivery."""
    return tuple(effect for effect in effects if effect[:2] != (b"XGROUP", b"CREATECONSUMER"))


def without_later_fixes(requests: Iterable[Sequence[bytes]]) -> Iterator[tuple[bytes, ...]]:
    """A script in which nothing shows that 8.6.3 does something wrong: for comparisons of random scripts with it.

    XTRIM MINID leaves nodes with nothing but deleted entries, where some were deleted before: it is left out then. XSETID
    leaves groups with more entries read than were added: it gets a greater number. Reads lose MAXCOUNT and MAXSIZE.
    """
    script = [tuple(request) for request in requests]
    deletes = any(request[0] in (b"XDEL", b"XDELEX", b"XACKDEL") or b"ACKED" in request for request in script)
    for request in script:
        if request[0] in (b"XADD", b"XTRIM") and b"MINID" in request and deletes:
            continue
        if request[0] == b"XSETID" and b"ENTRIESADDED" in request[:-1]:
            at = request.index(b"ENTRIESADDED") + 1
            if request[at].isdigit():
                request = (*request[:at], b"%d" % (int(request[at]) + 1000), *request[at + 1 :])
        for option in (b"MAXCOUNT", b"MAXSIZE"):
            if option in request:
                at = request.index(option)
                request = (*request[:at], *request[at + 2 :])
        yield request
