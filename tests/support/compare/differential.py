"""The same script to two servers, the replies compared byte for byte.

A *script* is a list of requests. `Pair.run` sends it to both servers and raises `Difference` at the first reply that is
not the same; the text shows the script as redis-cli lines, which can be pasted into redis-cli.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..servers import Server
from ..wire import Argument, Reply, as_bytes, join_line, show, split_line
from .mask import mask, mask_tree_shape

__all__ = ["Difference", "Pair", "PairPool", "Tally", "parse_script"]

Request = tuple[bytes, ...]

RESET_SCRIPT: tuple[Request, ...] = (
    (b"FLUSHALL",),
    (b"SELECT", b"0"),
    (b"CONFIG", b"SET", b"stream-node-max-entries", b"100", b"stream-node-max-bytes", b"4096"),
    (b"CONFIG", b"SET", b"stream-idmp-duration", b"100", b"stream-idmp-maxsize", b"100"),
)


class Difference(AssertionError):
    """Two servers answered differently."""


@dataclass
class Tally:
    """How much was compared in this test run, for the summary at its end."""

    scripts: int = 0
    commands: int = 0
    stories: int = 0

    def __bool__(self) -> bool:
        return bool(self.scripts or self.stories)

    def __iadd__(self, other: Tally) -> Tally:
        self.scripts += other.scripts
        self.commands += other.commands
        self.stories += other.stories
        return self

    def __str__(self) -> str:
        return f"{self.scripts} scripts of {self.commands} commands and {self.stories} blocking stories compared"


def parse_script(text: str) -> list[Request]:
    """Lines as typed into redis-cli; blank lines and lines starting with `#` are skipped."""
    lines = (line.strip() for line in text.splitlines())
    return [tuple(split_line(line)) for line in lines if line and not line.startswith("#")]


@dataclass(frozen=True)
class Mismatch:
    """The first two replies that are not the same, and the index of their request."""

    at: int
    ours: Reply
    theirs: Reply


class Pair:
    """A connection to each of two servers, in the same protocol, both emptied at the start."""

    def __init__(self, ours: Server, theirs: Server, protocol: int, tally: Tally) -> None:
        self.servers = (ours, theirs)
        self.protocol = protocol
        self.tally = tally
        self.wires = (ours.connect(protocol), theirs.connect(protocol))
        self.reset()

    def close(self) -> None:
        for wire in self.wires:
            wire.close()

    def reset(self) -> None:
        """Empty both servers and give them the default settings; the connections keep their protocol."""
        for server, wire in zip(self.servers, self.wires, strict=True):
            for request, reply in zip(RESET_SCRIPT, wire.pipeline(RESET_SCRIPT), strict=True):
                assert reply == Reply("+", b"OK"), f"{server.name} answered {join_line(request)} with {reply}"

    def run(self, script: Iterable[Sequence[Argument]], *, has_clock_ids: bool = False) -> list[Reply]:
        """Send the script to both, whole; compare every reply; return the replies of the first server.

        has_clock_ids   entries were added with `*`: the radix trees may differ
        """
        requests = [tuple(map(as_bytes, request)) for request in script]
        replies, mismatch = self._compare(requests, has_clock_ids)
        if mismatch is not None:
            raise Difference(self._explain(requests[: mismatch.at + 1], mismatch))
        return replies

    def _compare(self, requests: Sequence[Request], has_clock_ids: bool) -> tuple[list[Reply], Mismatch | None]:
        replies = tuple(wire.pipeline(requests) for wire in self.wires)
        self.tally.commands += len(requests)
        for at, (request, *both) in enumerate(zip(requests, *replies, strict=True)):
            ours, theirs = (mask(request, reply) for reply in both)
            if has_clock_ids:
                ours, theirs = mask_tree_shape(ours), mask_tree_shape(theirs)
            if ours != theirs:
                return replies[0], Mismatch(at, ours, theirs)
        return replies[0], None

    def run_text(self, text: str) -> list[Reply]:
        return self.run(parse_script(text))

    def compare_script(
        self, script: Sequence[Request], *, keys: Sequence[bytes], groups: Sequence[bytes], has_clock_ids: bool = False
    ) -> None:
        """Run a script on emptied servers, then compare all visible state of the given keys and groups."""
        self.reset()
        self.tally.scripts += 1
        self.run(script, has_clock_ids=has_clock_ids)
        for database in (b"1", b"0"):
            looks = [(b"SELECT", database), *state_requests(keys, groups)]
            mismatch = self._compare(looks, has_clock_ids)[1]
            if mismatch is not None:
                raise Difference(
                    f"the state in database {database.decode()} differs after:\n{_as_lines(script)}\n"
                    f"as seen by {self._explain([looks[mismatch.at]], mismatch)}"
                )

    def _explain(self, requests: Sequence[Request], mismatch: Mismatch) -> str:
        names = [server.name for server in self.servers]
        width = max(map(len, names))
        return (
            f"different replies to the last line (RESP{self.protocol}) of:\n{_as_lines(requests)}\n"
            f"  {names[0]:{width}}  {show(mismatch.ours)}\n  {names[1]:{width}}  {show(mismatch.theirs)}\n"
            f"{_first_difference(mismatch.ours, mismatch.theirs)}"
        )


def _as_lines(requests: Sequence[Request]) -> str:
    return "\n".join("    " + join_line(request) for request in requests)


def _first_difference(ours: Reply, theirs: Reply, path: str = "reply") -> str:
    nested = ours.kind in "*~>%" and theirs.kind == ours.kind and isinstance(ours.value, tuple)
    if nested and isinstance(theirs.value, tuple):
        for at, (mine, its) in enumerate(zip(ours.value, theirs.value, strict=False)):
            if mine != its:
                return _first_difference(mine, its, f"{path}[{at}]")
        return f"  first difference: {path} has {len(ours.value)} elements, should have {len(theirs.value)}"
    return f"  first difference: {path} is {show(ours)}, should be {show(theirs)}"


def state_requests(keys: Sequence[bytes], groups: Sequence[bytes]) -> list[Request]:
    """Requests that return all state of some keys of the selected database."""
    return [(b"DBSIZE",), (b"KEYS", b"*"), *(request for key in keys for request in _key_requests(key, groups))]


def _key_requests(key: bytes, groups: Sequence[bytes]) -> list[Request]:
    requests: list[Request] = [
        (b"TYPE", key),
        (b"TTL", key),
        (b"PEXPIRETIME", key),
        (b"GET", key),
        (b"XLEN", key),
        (b"XRANGE", key, b"-", b"+"),
        (b"XREVRANGE", key, b"+", b"-"),
        (b"XINFO", b"STREAM", key),
        (b"XINFO", b"STREAM", key, b"FULL", b"COUNT", b"0"),
        (b"XINFO", b"GROUPS", key),
    ]
    for group in groups:
        requests += [
            (b"XINFO", b"CONSUMERS", key, group),
            (b"XPENDING", key, group),
            (b"XPENDING", key, group, b"-", b"+", b"1000"),
        ]
    return requests


class PairPool:
    """A pair per protocol, opened when first needed and kept: opening one costs more than most scripts."""

    def __init__(self, ours: Server, theirs: Server, tally: Tally) -> None:
        self._arguments = (ours, theirs, tally)
        self._pairs: dict[int, Pair] = {}

    def get(self, protocol: int) -> Pair:
        if protocol not in self._pairs:
            ours, theirs, tally = self._arguments
            self._pairs[protocol] = Pair(ours, theirs, protocol, tally)
        return self._pairs[protocol]

    def forget(self, protocol: int) -> None:
        """Drop a pair whose connections are out of step."""
        self._pairs.pop(protocol).close()

    def close(self) -> None:
        for protocol in list(self._pairs):
            self.forget(protocol)
