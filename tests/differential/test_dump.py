"""DUMP and RESTORE: the same replies and the same keys as a real Redis. Marked `real`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.compare.differential import Pair
from support.files.rdb import make_payload, make_stream, make_string
from support.wire import Reply, Wire

from streamd.persistence.rdb.write import dump_value

pytestmark = pytest.mark.real

HELLO = dump_value(b"hello")
STREAM = dump_value(make_stream(3, entries=12, has_unowned=False))
TTL_LATER = 10**15


@pytest.fixture
def plain(pair: Pair) -> Iterator[Pair]:
    """A pair of servers that compress nothing, so that their payloads can be compared."""
    pair.run([("CONFIG", "SET", "rdbcompression", "no")])
    yield pair
    pair.run([("CONFIG", "SET", "rdbcompression", "yes")])


def restored(
    *options: bytes | str | int, ttl: int | str = 0, payload: bytes = HELLO
) -> list[tuple[bytes | str | int, ...]]:
    """A RESTORE, and what there is after it."""
    return [
        ("RESTORE", "k", ttl, payload, *options), ("GET", "k"), ("PTTL", "k"), ("OBJECT", "IDLETIME", "k"), ("DUMP", "k"),
    ]  # fmt: skip


def test_dump(plain: Pair) -> None:
    plain.run([
        ("DUMP", "none"), ("DUMP",), ("DUMP", "a", "b"),
        *(("SET", "k", text) for text in ("x",)), ("DUMP", "k"),
    ])  # fmt: skip
    for text in (
        "",
        "0",
        "-129",
        "70000",
        "2147483648",
        "99999999999",
        "12345678901",
        "007",
        "x" * 21,
        "y" * 20000,
        "-0",
    ):
        plain.run([("SET", "k", text), ("DUMP", "k")])
    plain.run([("APPEND", "k", "1"), ("DUMP", "k"), ("SET", "i", "5"), ("INCR", "i"), ("DUMP", "i")])


def test_dump_of_streams(plain: Pair) -> None:
    plain.run([
        ("XADD", "s", "1-1", "f", "v", "g", "w"), ("XADD", "s", "1-2", "f", "5", "g", "-7"), ("XADD", "s", "5-0", "x", "y"),
        ("XDEL", "s", "1-2"), ("XGROUP", "CREATE", "s", "g", "1-1"), ("DUMP", "s"), ("XTRIM", "s", "MAXLEN", "0"),
        ("DUMP", "s"), ("XGROUP", "CREATE", "empty", "g", "$", "MKSTREAM"), ("DUMP", "empty"),
        ("XCFGSET", "s", "IDMP-DURATION", "77"), ("DUMP", "s"),
    ])  # fmt: skip


def test_restore(plain: Pair) -> None:
    plain.run(restored())
    plain.run(restored())
    plain.run(restored("REPLACE"))
    plain.run(restored("replace", "absttl", ttl=TTL_LATER))
    plain.run(restored("REPLACE", ttl=100_000))
    plain.run(restored("REPLACE", payload=STREAM))
    plain.run([("XINFO", "STREAM", "k", "FULL"), ("RESTORE", "k", 0, HELLO, "REPLACE"), ("TYPE", "k")])


@pytest.mark.parametrize(
    ("ttl", "options"),
    [(1, ("ABSTTL",)), (1, ("ABSTTL", "REPLACE")), (2**63 - 1, ("REPLACE",)), (2**63 - 1, ("REPLACE", "ABSTTL"))],
)
def test_a_time_that_has_passed(plain: Pair, ttl: int, options: tuple[str, ...]) -> None:
    plain.run(restored(*options, ttl=ttl))
    plain.run([("DEL", "k"), ("SET", "k", "old")])
    plain.run(restored(*options, ttl=ttl))


@pytest.mark.parametrize("options", [("ABSTTL",), ("ABSTTL", "REPLACE")])
def test_a_key_restored_after_its_time_counts_as_expired(plain: Pair, options: tuple[str, ...]) -> None:
    def counted(wire: Wire) -> bytes:
        wire.call("CONFIG", "RESETSTAT")
        for _ in range(2):
            wire.call("RESTORE", "k", 1, HELLO, *options)
            wire.call("SET", "k", "old")
        return next(line for line in wire.call("INFO", "stats").value.split() if line.startswith(b"expired_keys:"))

    ours, theirs = map(counted, plain.wires)
    assert ours == theirs != b"expired_keys:0"


def test_access_of_the_key(plain: Pair) -> None:
    plain.run(restored("IDLETIME", 1000))
    plain.run(restored("FREQ", 200, "REPLACE"))


@pytest.mark.parametrize(
    "options",
    [
        ("WHAT",), ("IDLETIME",), ("IDLETIME", -1), ("IDLETIME", "x"), ("FREQ",), ("FREQ", -1), ("FREQ", 256), ("FREQ", "x"),
        ("IDLETIME", 1, "FREQ", 1), ("FREQ", 1, "IDLETIME", 1), ("IDLETIME", 1, "IDLETIME", 2), ("REPLACE", "REPLACE"),
        ("IDLETIME", 2**63), ("FREQ", 1, "REPLACE", "FREQ", 2), ("idletime", 3, "absttl"),
    ],
)  # fmt: skip
def test_options(plain: Pair, options: tuple[str | int, ...]) -> None:
    plain.run([("RESTORE", "k", 0, HELLO, *options), ("GET", "k"), ("RESTORE", "k", 0, HELLO, *options)])


@pytest.mark.parametrize("ttl", ["-1", "x", "", "1.5", str(2**63), "-0"])
def test_times_that_are_none(plain: Pair, ttl: str) -> None:
    plain.run([("RESTORE", "k", ttl, HELLO), ("RESTORE", "k", ttl, b"x"), ("GET", "k"), ("SET", "k", "v"),
               ("RESTORE", "k", ttl, HELLO)])  # fmt: skip


@pytest.mark.parametrize(
    "payload",
    [
        b"", b"x", HELLO[:-1], HELLO[:-8] + b"\x01" * 8, HELLO[:-8] + bytes(8), make_payload(b"\0\x05hello", 16),
        make_payload(b"\0\x05hello", 1), make_payload(b"\0\x05hello and more"),
        make_payload(b"\0\xc5hello"), make_payload(b""), make_payload(b"\xff"), make_payload(b"\x00\x82"),
        make_payload(b"\x1a\x00"), make_payload(b"\x1a\x01" + make_string(bytes(15)) + make_string(bytes(20))),
        make_payload(STREAM[:-20]), make_payload(b"\x1b" + STREAM[1:-10]),
    ],
)  # fmt: skip
def test_payloads_that_are_none(plain: Pair, payload: bytes) -> None:
    plain.run(restored(payload=payload))


@pytest.mark.parametrize("payload", [make_payload(b"\0\x06hello"), make_payload(STREAM[:-12])])
def test_a_value_that_reaches_into_the_footer_is_bad_data(plain: Pair, payload: bytes) -> None:
    """Redis reads on, into version and checksum; see docs/differences.md."""
    ours, theirs = plain.wires
    assert ours.call("RESTORE", "k", "0", payload) == Reply("-", b"ERR Bad data format")
    assert theirs.call("RESTORE", "k", "0", payload) == Reply("+", b"OK")


def test_what_was_there_stays_when_the_payload_is_none(plain: Pair) -> None:
    plain.run([("SET", "k", "old"), ("RESTORE", "k", 0, HELLO[:-1], "REPLACE"), ("GET", "k")])


def test_a_value_of_another_type_is_bad_data(plain: Pair) -> None:
    plain.run([("RESTORE", "k", 0, make_payload(b"\x1c\x01"))])  # an array of Redis 8.8


def test_compressed_payloads_are_exchanged(pair: Pair) -> None:
    ours, theirs = pair.wires
    for value in (b"text " * 500, make_stream(1, entries=200)):
        mine = dump_value(value)
        assert theirs.call("RESTORE", "k", "0", mine, "REPLACE") == Reply("+", b"OK")
        assert ours.call("RESTORE", "k", "0", theirs.call("DUMP", "k").value, "REPLACE") == Reply("+", b"OK")
        assert ours.call("DUMP", "k").value == mine
