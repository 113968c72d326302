"""What is said of the sizes of keys of every type, while they grow beyond each threshold and shrink again: encodings,
INFO keysizes, MEMORY USAGE, and the tables of redis-cli. Marked `real`."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence

import pytest
from support.compare.differential import Pair
from support.servers import Server, find_oracle
from support.wire import Wire

pytestmark = pytest.mark.real

LIMITS = {
    "hash-max-listpack-entries": 8, "hash-max-listpack-value": 20, "list-max-listpack-size": 8, "set-max-intset-entries": 8,
    "set-max-listpack-entries": 12, "set-max-listpack-value": 20, "zset-max-listpack-entries": 8, "zset-max-listpack-value": 20,
}  # fmt: skip
LONG = "x" * 21
"""A word beyond every limit of bytes."""
MOST = 20
GROWTH = {
    "hash": (["HSET", "k", "f{0}", "v"], ["HDEL", "k", "f{0}"], ["HSET", "k", "f0", LONG]),
    "hash with expiries": (["HSETEX", "k", "EX", "1000", "FIELDS", "1", "f{0}", "v"], ["HDEL", "k", "f{0}"], ["HSET", "k", LONG, "v"]),
    "list": (["RPUSH", "k", "e{0}"], ["LPOP", "k"], ["LPUSH", "k", LONG * 500]),
    "set": (["SADD", "k", "m{0}"], ["SREM", "k", "m{0}"], ["SADD", "k", LONG]),
    "integers": (["SADD", "k", "{0}"], ["SREM", "k", "{0}"], ["SADD", "k", "a"]),
    "sorted set": (["ZADD", "k", "{0}", "m{0}"], ["ZREM", "k", "m{0}"], ["ZADD", "k", "1", LONG]),
    "bitmap": (["SETBIT", "k", "{0}00", "1"], ["SETBIT", "k", "{0}00", "0"], ["APPEND", "k", LONG]),
}  # fmt: skip
"""For each type the request that adds an element, by its number, that which removes it, and one beyond a limit."""


@pytest.fixture
def small(pair: Pair) -> Iterator[Pair]:
    """Servers with low limits."""
    before = [wire.call("CONFIG", "GET", *LIMITS).plain() for wire in pair.wires]
    for wire in pair.wires:
        wire.call("CONFIG", "SET", *(str(word) for each in LIMITS.items() for word in each))
    yield pair
    for wire, kept in zip(pair.wires, before, strict=True):
        words = kept if isinstance(kept, list) else [word for each in kept.items() for word in each]
        wire.call("CONFIG", "SET", *words)


def filled(words: Sequence[str], number: int) -> tuple[str, ...]:
    return tuple(word.replace("{0}", str(number)) for word in words)


def observed(wire: Wire) -> tuple[object, ...]:
    """What must be alike after each step."""
    sizes = [line for line in wire.call("INFO", "keysizes").value.splitlines() if b"distrib" in line]
    return (
        wire.call("OBJECT", "ENCODING", "k").value, wire.call("DEBUG", "DIGEST-VALUE", "k").plain(), sizes,
        wire.call("EXISTS", "k").value,
    )  # fmt: skip


@pytest.mark.parametrize("name", GROWTH)
def test_growing_and_shrinking_are_seen_alike_at_every_step(small: Pair, name: str) -> None:
    add, remove, beyond = GROWTH[name]
    steps = [filled(add, number) for number in range(1, MOST + 1)]
    steps += [filled(remove, number) for number in range(1, MOST + 1)]
    steps += [filled(add, 1), filled(add, 2), tuple(beyond), ("DEL", "k")]
    encodings = set()
    for step in steps:
        replies = [wire.call(*step).plain() for wire in small.wires]
        assert replies[0] == replies[1], step
        ours, theirs = map(observed, small.wires)
        assert ours == theirs, step
        encodings.add(ours[0])
    assert len(encodings - {None}) >= (1 if name == "bitmap" else 2)


# --- Memory ---------------------------------------------------------------------------------------------------------------

MANY = 2000


@pytest.mark.parametrize("name", GROWTH)
def test_memory_usage_grows_with_the_key_and_is_of_the_size_of_redis(pair: Pair, name: str) -> None:
    add = GROWTH[name][0]
    sizes = []
    for numbers in (range(1, 11), range(11, MANY)):
        pair.run([filled(add, number) for number in numbers])
        sizes.append([wire.call("MEMORY", "USAGE", "k", "SAMPLES", "0").value for wire in pair.wires])
    for ours, theirs in sizes:
        assert 0.25 < ours / theirs < 4, sizes
    assert sizes[1][0] > 2 * sizes[0][0]


# --- redis-cli ------------------------------------------------------------------------------------------------------------

KEYS = """
    SET text abcdef
    SET more abcdefghi
    RPUSH l1 a b
    RPUSH l2 a b c
    SADD s1 a
    SADD s2 1 2 3 4
    HSET h1 a 1
    HSET h2 a 1 b 2 c 3
    HSETEX h3 EX 1000 FIELDS 2 a 1 b 2
    ZADD z1 1 a
    ZADD z2 1 a 2 b
    XADD x 1-1 f v
    XADD x 2-1 f v
"""


def shown_by(server: Server, mode: str) -> list[str]:
    """The lines of redis-cli's summary, in which the order of the scan does not matter."""
    oracle = find_oracle()
    assert oracle is not None
    command = [oracle.cli, "-p", str(server.port), mode]
    text = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    lines = text.partition("-------- summary -------")[2].splitlines()
    return sorted(line for line in lines if line.strip())


def test_the_biggest_keys_are_found_alike(pair: Pair, streamd_server: Server, redis_server: Server) -> None:
    pair.run_text(KEYS)
    ours, theirs = shown_by(streamd_server, "--bigkeys"), shown_by(redis_server, "--bigkeys")
    assert ours == theirs
    assert any("Biggest" in line and "hash" in line and '"h2"' in line for line in ours)


def test_the_keys_that_take_most_memory_are_of_every_type(
    pair: Pair, streamd_server: Server, redis_server: Server
) -> None:
    pair.run_text(KEYS)
    pair.run([("RPUSH", "l2", LONG * 50), ("SADD", "s2", LONG * 50), ("HSET", "h2", "x", LONG * 50),
              ("ZADD", "z2", "1", LONG * 50), ("APPEND", "more", LONG * 50)])  # fmt: skip
    ours, theirs = ([re.sub(r"\d+(\.\d+)? bytes|avg size [\d.]+", "*", line) for line in shown_by(server, "--memkeys")]
                    for server in (streamd_server, redis_server))  # fmt: skip
    assert [line for line in ours if "Total key length" not in line] == [
        line for line in theirs if "Total key length" not in line
    ]
