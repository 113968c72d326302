"""What compiled modules hold: counted exactly, given back, and seen by databases and their limits."""

from __future__ import annotations

import gc

import pytest
from support.commands.handler import make_context, run
from support.servers import eventually

from streamd.heap import allocated, describe, trim
from streamd.keyspace.database import Database
from streamd.keyspace.key_record import ACCESS_MODES
from streamd.memory.accounting import DatabaseMemory, diagnose, statistics
from streamd.memory.measurement import MemoryReport
from streamd.serve.families import load_all

MB = 1 << 20

load_all()


def test_what_streams_take_is_counted_and_given_back() -> None:
    ctx = make_context()
    run(ctx, "XADD", "warm", "*", "f", "v")
    gc.collect()
    before = allocated()
    for number in range(2000):
        run(ctx, "XADD", "s", f"1-{number + 1}", "f", "v" * 100)
    run(ctx, "XGROUP", "CREATE", "s", "g", "0")
    run(ctx, "XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">")
    grown = allocated() - before
    assert 2000 * 100 < grown < 2000 * 250
    run(ctx, "XTRIM", "s", "MAXLEN", "0")
    assert allocated() - before < grown / 2
    run(ctx, "DEL", "s")
    gc.collect()
    eventually(lambda: not ctx.db.trash.pending_objects())
    assert abs(allocated() - before) < 100_000  # a large block for replies may stay, or have stayed before


def test_databases_count_keys_and_strings() -> None:
    db = Database()
    empty = db.memory() + allocated()
    for number in range(5000):
        db.set(b"key:%d" % number, b"x" * 300)
    assert 5000 * 360 < db.memory() + allocated() - empty < 5000 * 540
    assert db.key_memory(b"key:1") > 300
    assert db.key_memory(b"none") == -1
    db.check_invariants()
    for number in range(5000):
        db.set(b"key:%d" % number, b"x")
    assert db.memory() - empty < 5000 * 250
    db.flush()
    assert db.memory() <= empty + 4096
    db.check_invariants()


def test_uses_fall_with_time_and_rise_more_slowly_the_more_there_are() -> None:
    db = Database()
    db.access_mode = ACCESS_MODES["frequency"]
    db.log_factor = 10
    db.now_ms = 1_700_000_000_000
    db.set(b"k", b"v")
    assert db.frequency(b"k") == 5
    for _ in range(1000):
        db.find(b"k")
    after_thousand = db.frequency(b"k")
    assert 10 < after_thousand < 40
    for _ in range(100_000):
        db.find(b"k")
    assert 80 < db.frequency(b"k") < 200
    before = db.frequency(b"k")
    db.now_ms += 10 * 60_000
    assert db.frequency(b"k") == before - 10
    db.now_ms += 500 * 60_000
    assert db.frequency(b"k") == 0
    assert db.frequency(b"none") == -1
    db.decay_minutes = 0
    assert db.frequency(b"k") == before


def test_memory_can_be_given_back_and_described() -> None:
    trim()
    assert "Compiled modules hold" in describe()


def report(**changes: object) -> MemoryReport:
    fields: dict[str, object] = {
        "used": 100 * MB, "peak": 100 * MB, "startup": 1000, "resident": 120 * MB, "clients": 10_000, "lookups": 4100,
        "keys": 10,
    }  # fmt: skip
    found = MemoryReport()
    for name, value in (fields | changes).items():
        setattr(found, name, value)
    return found


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"used": MB}, "too little data"),
        ({}, "Nothing is wrong"),
        ({"peak": 300 * MB}, "Peak:"),
        ({"resident": 500 * MB}, "Resident memory:"),
        ({"clients": 10 * MB}, "Clients:"),
        ({"used": 300 * MB, "peak": 300 * MB, "resident": 310 * MB}, "Limit:"),
    ],
)
def test_the_doctor_says_what_is_wrong(changes: dict[str, object], word: str) -> None:
    assert word in diagnose(report(**changes), 2, 200 * MB)


def test_statistics_add_up() -> None:
    told = dict(statistics(report(), [DatabaseMemory(0, 4000, 100)]))
    assert told["dataset.bytes"] == 100 * MB - 1000 - 10_000 - 4100
    assert told["overhead.total"] == 1000 + 10_000 + 4100
    assert told["keys.bytes-per-key"] == (100 * MB - 1000) // 10
    assert told["db.0"] == {"overhead.hashtable.main": 4000, "overhead.hashtable.expires": 100}
    assert dict(statistics(report(used=0, peak=0, keys=0), []))["peak.percentage"] == 0
