"""Glob patterns beside a real Redis: the same keys for the same pattern."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pytest
from support.servers import Server
from support.wire import Wire

from streamd.engine.glob import Glob

pytestmark = pytest.mark.real

ALPHABET = [b"a", b"b", b"c", b"A", b"B", b"[", b"]", b"^", b"-", b"\\", b"*", b"?", b"\x80", b"\xff", b"\0", b"_"]
PIECES = [*ALPHABET, b"*", b"*", b"[", b"[a-c]"]


@pytest.fixture(scope="module")
def wire(redis_server: Server) -> Iterator[Wire]:
    with redis_server.connect() as wire:
        wire.call("SELECT", "9")
        yield wire
        wire.call("FLUSHDB")


def test_keys_finds_the_same_keys(wire: Wire) -> None:
    chance = random.Random(20)
    texts = {b"".join(chance.choices(ALPHABET, k=chance.randint(0, 7))) for _ in range(600)}
    texts |= {b"".join(letters) for letters in itertools.product([b"a", b"b", b"c"], repeat=4)}
    wire.pipeline([("SET", text, "1") for text in texts])
    for _ in range(40):
        patterns = [b"".join(chance.choices(PIECES, k=chance.randint(1, 9))) for _ in range(50)]
        for pattern, reply in zip(patterns, wire.pipeline([("KEYS", pattern) for pattern in patterns]), strict=True):
            glob = Glob(pattern)
            if pattern != b"*":  # KEYS takes this for all keys, the empty one too, without asking
                assert {key.value for key in reply.value} == {text for text in texts if glob.match(text)}, pattern


def test_keys_finds_the_same_keys_by_patterns_with_long_parts(wire: Wire) -> None:
    chance = random.Random(22)
    wire.call("FLUSHDB")
    texts = {b"".join(chance.choices(ALPHABET, k=chance.randint(1, 4))) for _ in range(300)}
    wire.pipeline([("SET", text, "1") for text in texts])
    for _ in range(300):
        pattern = b"".join(
            chance.choice([b"[", b"[^", b"*[", b""]) + chance.choice(PIECES) * chance.choice([1, 2, 70, 700])
            + chance.choice([b"", b"b-a", b"]", b"]a"]) for _ in range(chance.randint(1, 4))
        )  # fmt: skip
        glob = Glob(pattern)
        reply = wire.call("KEYS", pattern)
        assert {key.value for key in reply.value} == {text for text in texts if glob.match(text)}, pattern


def test_command_list_finds_the_same_names_without_regard_to_case(wire: Wire) -> None:
    chance = random.Random(21)
    names = [name.value for name in wire.call("COMMAND", "LIST").value]
    for _ in range(300):
        name = chance.choice(names)
        pieces = [bytes((c,)) for c in name]
        for i in range(len(pieces)):
            c = pieces[i] if chance.random() < 0.5 else pieces[i].upper()
            other = chance.choice([b"a", b"z", b"A", b"Z", b"m"])
            pieces[i] = chance.choice([c, c, c, b"?", b"*", b"\\" + c, b"[" + c + b"]", b"[" + other + b"-" + c + b"]",
                                       b"[^" + other + b"]", b"[\\" + c + b"]"])  # fmt: skip
        pattern = b"".join(pieces)
        reply = wire.call("COMMAND", "LIST", "FILTERBY", "PATTERN", pattern)
        glob = Glob(pattern, nocase=True)
        assert {found.value for found in reply.value} == {name for name in names if glob.match(name)}, pattern
