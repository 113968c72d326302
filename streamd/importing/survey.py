"""What a source holds: how many keys can be taken, and which cannot, by type and by the pattern of their names.

All keys are scanned and asked for their type, in batches. Keys that are written meanwhile may be missed, so a survey is a
good account and no proof: a server that replicates still finds out itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

from streamd.client.client_errors import ServerError
from streamd.client.replies import as_text
from streamd.importing.peers import ImportFailedError, Peer

__all__ = ["SUPPORTED_TYPES", "Survey", "Unsupported", "pattern_of", "scan", "survey"]

SUPPORTED_TYPES = frozenset({"hash", "list", "set", "stream", "string", "zset"})
BUILT_IN_MODULES = frozenset({"vectorset"})
"""Modules that every Redis has since 8.0: what they hold is seen by the types of its keys."""
PER_SCAN = 1000
EXAMPLES = 3
MAX_PATTERNS = 10_000
"""Patterns that are told apart; what comes later is counted as OTHERS."""
OTHERS = "(other names)"

VARYING = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"  # a UUID
    r"|(?<![0-9a-z])(?=[a-f]*[0-9])[0-9a-f]{8,}(?![0-9a-z])"  # a hash or a number, in hexadecimal digits
    r"|[0-9]+",
    re.IGNORECASE,
)
STARS = re.compile(r"\*(?:[-.]?\*)+")


@dataclass
class Unsupported:
    """Keys of a type that cannot be taken, whose names have the same pattern."""

    count: int = 0
    examples: list[str] = field(default_factory=list)


@dataclass
class Survey:
    """What has been found.

    supported    number of keys that can be taken
    unsupported  by type and pattern
    functions    names of libraries of functions; None: they could not be asked for
    modules      names of loaded modules
    """

    supported: int = 0
    unsupported: dict[tuple[str, str], Unsupported] = field(default_factory=dict)
    functions: list[str] | None = None
    modules: list[str] = field(default_factory=list)

    @property
    def unsupported_keys(self) -> int:
        return sum(each.count for each in self.unsupported.values())

    def count(self, key: bytes, type_name: str) -> None:
        if type_name in SUPPORTED_TYPES:
            self.supported += 1
        elif type_name != "none":  # a key that is gone by now
            name = key.decode("utf-8", "backslashreplace")
            pattern = pattern_of(name)
            if (type_name, pattern) not in self.unsupported and len(self.unsupported) >= MAX_PATTERNS:
                pattern = OTHERS
            found = self.unsupported.setdefault((type_name, pattern), Unsupported())
            found.count += 1
            if len(found.examples) < EXAMPLES:
                found.examples.append(name)

    def lines(self) -> Iterator[str]:
        """What cannot be taken, most keys first, a line each."""
        for (type_name, pattern), each in sorted(self.unsupported.items(), key=lambda item: (-item[1].count, item[0])):
            yield f"{each.count:>12,}  {type_name:<9}  {pattern}   such as {', '.join(each.examples)}"

    def notes(self) -> Iterator[str]:
        """What else the source has that streamd has not, a line each."""
        if self.modules:
            yield f"{len(self.modules):,} modules: {', '.join(self.modules)}"


def pattern_of(name: str) -> str:
    """A key's name with numbers, UUIDs and hexadecimal digests replaced: `session:*` for `session:81`."""
    return STARS.sub("*", VARYING.sub("*", name))


def survey(
    source: Peer, databases: Collection[int], info: dict[str, str], progress: Callable[[int], None] = lambda keys: None
) -> Survey:
    """Look at all keys of some databases. `info` is the source's INFO; `progress` is told how many keys have been seen."""
    found = Survey(modules=[name for name in info["modules"].split(",") if name and name not in BUILT_IN_MODULES])
    seen = 0
    for db in sorted(databases):
        for keys in scan(source, db):
            types = source.ask([("SELECT", db), *(("TYPE", key) for key in keys)])[1:]
            for key, type_name in zip(keys, types, strict=True):
                if isinstance(type_name, ServerError):
                    raise ImportFailedError(f"{source} refuses TYPE: {type_name}")
                found.count(key, as_text(type_name))
            seen += len(keys)
            progress(seen)
    try:
        libraries = source.call("FUNCTION", "LIST")
    except ServerError:
        return found  # before 7.0, or forbidden
    found.functions = [each[each.index(b"library_name") + 1].decode("utf-8", "replace") for each in libraries]
    return found


def scan(source: Peer, db: int) -> Iterator[list[bytes]]:
    """The keys of a database in batches. A key may come twice. Raises ImportFailedError."""
    cursor = b"0"
    while True:
        selected, reply = source.ask([("SELECT", db), ("SCAN", cursor, "COUNT", PER_SCAN)])
        for each in (selected, reply):
            if isinstance(each, ServerError):
                raise ImportFailedError(f"{source} refuses to be scanned: {each}")
        cursor, keys = reply
        if keys:
            yield keys
        if cursor == b"0":
            return
