"""Damaged RESTORE payloads of every type of value and encoding: refused, or taken whole and sound; never a crash.

`-m slow` tries a hundred thousand; tests/asan/run does that under AddressSanitizer.
"""

from __future__ import annotations

import importlib
import random
from functools import cache
from typing import Any

import pytest
from support.commands.handler import make_context, run
from support.files.old_forms import FAR, old_bodies
from support.files.rdb import make_payload

from streamd.errors import CorruptFileError
from streamd.persistence.rdb.format import FORMS, WriteOptions
from streamd.persistence.rdb.read import restore_value
from streamd.persistence.rdb.write import dump_value
from streamd.values import VALUE_TYPES

SIZES = (1, 5, 40, 700)


@cache
def values() -> list[Any]:
    """Values of every type, small and large."""
    for family in (each for kind in VALUE_TYPES for each in kind.families):
        importlib.import_module(family)
    ctx = make_context(hll_sparse_max_bytes=3000)
    for size in SIZES:
        words = [f"word {number}" if number % 3 else str(number * 1000) for number in range(size)]
        pairs = [word for each in words for word in (each, "v" * (len(each) % 70))]
        run(ctx, "SET", f"string {size}", "text " * size)
        run(ctx, "SETBIT", f"bits {size}", size * 8, 1)
        run(ctx, "PFADD", f"hll {size}", *words)
        run(ctx, "RPUSH", f"list {size}", *words, "x" * (size * 20))
        run(ctx, "SADD", f"set {size}", *words)
        run(ctx, "SADD", f"intset {size}", *range(0, size * 1000, 1000))
        run(ctx, "ZADD", f"zset {size}", *(word for at, each in enumerate(words) for word in (at / 3, each)))
        run(ctx, "HSET", f"hash {size}", *pairs)
        run(ctx, "HSET", f"timed {size}", *pairs)
        run(ctx, "HPEXPIREAT", f"timed {size}", FAR, "FIELDS", len(words), *words)
        for word in words:
            run(ctx, "XADD", f"stream {size}", "*", "field", word)
        run(ctx, "XGROUP", "CREATE", f"stream {size}", "g", "0")
        run(ctx, "XREADGROUP", "GROUP", "g", "c", "COUNT", 10, "STREAMS", f"stream {size}", ">")
    return [ctx.db.peek(key) for key in sorted(ctx.db.keys())]


@cache
def bodies() -> list[bytes]:
    """Payloads of all types and forms, without their footers."""
    written = {
        dump_value(value, WriteOptions(form, compression=compression))[:-10]
        for value in values()
        for form in FORMS
        for compression in (False, True)
    }
    return [*sorted(written), *old_bodies().values()]


def mutated(body: bytes, chance: random.Random) -> bytes:
    """A payload without its footer, with one to three changes."""
    changed = bytearray(body)
    for _ in range(chance.randint(1, 3)):
        # The head, where types and lengths are, as often as the rest.
        at = chance.randrange(min(len(changed), 40) if chance.random() < 0.5 else len(changed))
        kind = chance.randrange(6)
        if kind == 0:
            changed[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            changed[at] = chance.choice([0, 1, 0x7F, 0x80, 0xFE, 0xFF, chance.randrange(256)])
        elif kind == 2:
            del changed[at : at + chance.randint(1, 4)]
        elif kind == 3:
            changed[at:at] = changed[at : at + chance.randint(1, 12)]
        elif kind == 4:
            del changed[at + 1 :]
        else:
            changed[0] = chance.randrange(30)
        if not changed:
            changed = bytearray(b"\0")
    return bytes(changed)


def hold(count: int, seed: int) -> tuple[int, int]:
    """Restore that many damaged payloads; how many were refused, and how many were taken."""
    chance = random.Random(seed)
    kinds = {body[0]: [each for each in bodies() if each[0] == body[0]] for body in bodies()}
    refused = taken = 0
    for _ in range(count):
        payload = make_payload(mutated(chance.choice(kinds[chance.choice([*kinds])]), chance))
        try:
            value = restore_value(payload)
        except CorruptFileError:
            refused += 1
            continue
        taken += 1
        if hasattr(value, "check_invariants"):
            value.check_invariants()
        again = restore_value(dump_value(value))  # what was taken can be written, and is read again
        assert type(again) is type(value), payload.hex()
    return refused, taken


def test_there_is_a_payload_of_every_type_that_is_read() -> None:
    assert {body[0] for body in bodies()} == {number for kind in VALUE_TYPES for number in kind.rdb_types}


@pytest.mark.parametrize("number", [*old_bodies()])
def test_payloads_of_older_releases_are_sound(number: int) -> None:
    restore_value(make_payload(old_bodies()[number], 9)).check_invariants()


@pytest.mark.parametrize("seed", range(4))
def test_damaged_payloads_are_refused_or_sound(seed: int) -> None:
    refused, taken = hold(500, seed)
    assert refused > 100
    assert taken > 10


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_hundred_thousand_damaged_payloads() -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    assert sum(hold(100_000, seed)) == 100_000
