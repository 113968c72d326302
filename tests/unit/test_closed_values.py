"""Small values that nobody uses are closed: they are one block of memory without an object, and open by themselves."""

from __future__ import annotations

import gc
import io
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.commands.handler import make_context, run
from support.files.rdb import load, save

from streamd.heap import allocated
from streamd.persistence.aof.command_writer import CommandWriter
from streamd.serve.families import load_all

load_all()

KEYS = 2000
"""Far more than are kept open."""


@pytest.fixture(autouse=True)
def nothing_else_is_freed() -> None:
    """Free what earlier tests left in cycles: the collector might come to it while bytes are counted here."""
    gc.collect()


FILLINGS: dict[str, tuple[tuple[str, ...], str, tuple[str, ...], Any]] = {
    "hash": (("HSET", "{}", "f", "v{}", "g", "12"), "listpack", ("HGETALL", "{}"), ["f", "v{}", "g", "12"]),
    "list": (("RPUSH", "{}", "a", "b{}", "7"), "listpack", ("LRANGE", "{}", "0", "-1"), ["a", "b{}", "7"]),
    "set": (("SADD", "{}", "a{}"), "listpack", ("SMEMBERS", "{}"), ["a{}"]),
    "integers": (("SADD", "{}", "1", "70000"), "intset", ("SMEMBERS", "{}"), ["1", "70000"]),
    "sorted set": (("ZADD", "{}", "1.5", "a{}", "2", "b"), "listpack", ("ZRANGE", "{}", "0", "-1"), ["a{}", "b"]),
}


def words(parts: tuple[str, ...], name: str) -> list[str]:
    return [part.format(name) for part in parts]


@pytest.mark.parametrize("kind", FILLINGS)
def test_closed_values_have_no_object_and_lose_nothing(kind: str) -> None:
    fill, encoding, read, expected = FILLINGS[kind]
    ctx = make_context()
    names = [f"k{number}" for number in range(KEYS)]
    before = sys.getallocatedblocks()
    for name in names:
        run(ctx, *words(fill, name))
    assert sys.getallocatedblocks() - before < KEYS * 0.5, "no object for a key"
    for name in names:
        assert run(ctx, *words(read, name)) == [part.format(name).encode() for part in expected]
        assert ctx.db.record(name.encode()).encoding == encoding.encode()
    assert sys.getallocatedblocks() - before < KEYS * 0.5, "they are closed again"
    ctx.db.check_invariants()


@pytest.mark.parametrize("kind", FILLINGS)
def test_closed_values_change_are_moved_and_go(kind: str) -> None:
    fill, _, read, expected = FILLINGS[kind]
    ctx = make_context()
    names = [f"k{number}" for number in range(KEYS)]
    run(ctx, *words(fill, "first"))
    empty, memory = allocated(), ctx.db.memory()
    for name in names:
        run(ctx, *words(fill, name))
    for name in names[::4]:
        run(ctx, "RENAME", name, f"{name}:moved")
        run(ctx, "COPY", f"{name}:moved", f"{name}:copy")
        for made in (f"{name}:moved", f"{name}:copy"):
            assert run(ctx, *words(read, made)) == [part.format(name).encode() for part in expected]
    for name in names[1::4]:
        run(ctx, "SET", name, "a string")
    for name in names[2::4]:
        run(ctx, *words(fill, name), *([f"x{name}y"] if kind == "list" else []))
    ctx.db.check_invariants()
    for record in ctx.db.records(0, 4 * KEYS)[1]:
        if record.key != b"first":
            run(ctx, "DEL", record.key)
    ctx.db.check_invariants()
    assert abs(allocated() - empty) < 8192, "their blocks are freed"
    assert ctx.db.memory() - memory < 8192


def test_values_in_use_stay_open_until_they_are_used_again() -> None:
    ctx = make_context()
    names = [f"k{number}" for number in range(KEYS)]
    for name in names:
        run(ctx, *words(FILLINGS["set"][0], name))
    before = sys.getallocatedblocks()
    assert run(ctx, "SUNIONSTORE", "all", *names) == KEYS, "each is held until all have been read"
    for name in names:
        run(ctx, "SMEMBERS", name)
    assert sys.getallocatedblocks() - before < KEYS / 10
    ctx.db.check_invariants()


@pytest.mark.parametrize("kind", FILLINGS)
def test_closed_values_are_saved_as_open_ones_are(kind: str) -> None:
    fill, _, read, expected = FILLINGS[kind]
    ctx = make_context()
    names = [f"k{number}" for number in range(KEYS)]
    for name in names:
        run(ctx, *words(fill, name))
    save([make_context().db])  # what saving needs once
    blocks = sys.getallocatedblocks()
    closed = save([ctx.db])
    if kind == "list":
        assert sys.getallocatedblocks() - blocks < KEYS / 10, "saving opens none"
    (loaded, *_) = load(closed)
    held = [ctx.db.find(name.encode()) for name in names]
    opened = save([ctx.db])
    assert len(held) == KEYS
    assert opened == closed
    assert len(save([loaded])) == len(closed), "keys are in another order"
    ctx.db = loaded
    for name in names:
        assert run(ctx, *words(read, name)) == [part.format(name).encode() for part in expected]


def test_values_that_are_due_stay_open_until_they_no_longer_are() -> None:
    ctx = make_context()
    before = sys.getallocatedblocks()
    for number in range(KEYS):
        run(ctx, "HSET", f"h{number}", "f", "v", "g", "w")
    closed, usage = allocated(), ctx.db.key_memory(b"h1")
    for number in range(KEYS):
        run(ctx, "HPEXPIRE", f"h{number}", "1000000", "FIELDS", "1", "f")
    assert ctx.db.timed_values == KEYS
    assert allocated() - closed > KEYS * 120, "their objects and keys are counted"
    assert ctx.db.key_memory(b"h1") - usage > 120
    ctx.db.check_invariants()
    for number in range(KEYS):
        run(ctx, "HPERSIST", f"h{number}", "FIELDS", "1", "f")
    assert ctx.db.timed_values == 0
    assert allocated() - closed < KEYS * 20
    assert sys.getallocatedblocks() - before < KEYS * 0.5
    ctx.db.check_invariants()


def test_lists_that_have_become_short_are_closed() -> None:
    ctx = make_context()
    before = sys.getallocatedblocks()
    for number in range(KEYS):
        run(ctx, "RPUSH", f"l{number}", "a", "b" * 9000)
    assert sys.getallocatedblocks() - before > KEYS * 0.9, "long ones stay open"
    for number in range(KEYS):
        run(ctx, "RPOP", f"l{number}")
    assert sys.getallocatedblocks() - before < KEYS * 0.5
    assert run(ctx, "LRANGE", "l1", "0", "-1") == [b"a"]
    ctx.db.check_invariants()


def rewritten(ctx: Any) -> bytes:
    """The keys as commands."""
    sink = io.BytesIO()
    CommandWriter(sink).write([ctx.db])
    return sink.getvalue()


def test_closed_lists_are_rewritten_as_open_ones_are() -> None:
    ctx = make_context()
    names = [f"k{number}" for number in range(KEYS)]
    for number, name in enumerate(names):
        run(ctx, "RPUSH", name, *(f"{'x' * (at % 3)}{at}" for at in range((1, 63, 64, 65, 128, 200)[number % 6])))
    closed = rewritten(ctx)
    held = [ctx.db.find(name.encode()) for name in names]
    assert rewritten(ctx) == closed
    assert len(held) == KEYS


def private_bytes() -> int:
    """Bytes of this process's memory that it shares with no other."""
    text = Path("/proc/self/smaps_rollup").read_text()
    return sum(1024 * int(line.split()[1]) for line in text.splitlines() if line.startswith("Private_Dirty"))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_child_that_rewrites_closed_lists_gets_no_copy_of_them() -> None:
    ctx = make_context()
    for number in range(10 * KEYS):
        run(ctx, "RPUSH", f"k{number}", *(["x" * 42] * 10))
    child = os.fork()
    if child == 0:
        status = 1
        try:
            before = private_bytes()
            CommandWriter(SimpleNamespace(write=len)).write([ctx.db])
            status = int(private_bytes() - before > 10 * KEYS * 450 // 2)
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
