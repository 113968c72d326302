"""Append-only files go to a real Redis and come from one; what is damaged starts and refuses as there."""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from support.commands.handler import set_time
from support.commands.observed import run_observed
from support.files.aof import Store, bytes_of, commands, open_aof
from support.files.real_files import RealRedis, all_oracles, check_aof, view
from support.servers import Oracle, eventually

from streamd.core.effects import Effect
from streamd.errors import StreamdError

INCR = "appendonly.aof.1.incr.aof"
ORACLES = all_oracles()

pytestmark = [pytest.mark.long, pytest.mark.real(since="7.0")]


@pytest.fixture(
    params=ORACLES or [None], ids=lambda oracle: "redis-" + ".".join(map(str, oracle.version)) if oracle else "none"
)
def oracle(request: pytest.FixtureRequest) -> Oracle:
    assert request.param is not None
    return request.param


def newest() -> Oracle:
    return max(ORACLES, key=lambda oracle: oracle.version)


def is_new(oracle: Oracle) -> bool:
    return oracle.version >= (8, 6)


SCRIPT = [
    *commands(
        *(f"XADD s {n}-1 f v{n} n {n}" for n in range(1, 130)),
        "XGROUP CREATE s g 0",
        "XREADGROUP GROUP g c COUNT 5 STREAMS s >",
        "XREADGROUP GROUP g 77 COUNT 3 STREAMS s >",
        "XACK s g 3-1",
        "XCLAIM s g 77 0 2-1 RETRYCOUNT 9 TIME 1600000000000",
        "XGROUP CREATECONSUMER s g quiet",
        "XGROUP CREATE s late $ ENTRIESREAD 129",
        "XDEL s 100-1 101-1",
        "XTRIM s MINID 2-0",
        "SET text 12",
        "XGROUP CREATE only-group g 5-5 MKSTREAM",
        "XADD emptied 9-9 f v",
        "XDEL emptied 9-9",
        "PEXPIREAT text 9999999999999",
    ),
    [b"SET", b"\x00\r\n\xff", b"\r\n*1\r\n"],
]
PRODUCERS = commands("XADD p IDMP a b 1-1 f v", "XADD p IDMP a c 2-1 f v", "XCFGSET s IDMP-DURATION 50")


def filled(producers: bool = False) -> Store:
    store = Store()
    for args in SCRIPT + (PRODUCERS if producers else []):
        store.run(*args)
    return store


# --- Ours, loaded by Redis -----------------------------------------------------------------------------------------------


def test_redis_loads_our_commands(oracle: Oracle, tmp_path: Path) -> None:
    store = filled(producers=is_new(oracle))
    aof = open_aof(tmp_path, store, use_rdb_preamble=False)
    aof.buffer.has_timestamps = True
    for args in commands("XADD s 500-1 f v", "XADD t 1-1 f v"):
        store.run(*args)
        aof.buffer.append(0, args, store.context.now_ms)
    aof.buffer.take_effects([Effect(0, args) for args in commands("SET a b", "SET c d")], store.context.now_ms + 5000)
    store.run("SET", "a", "b")
    store.run("SET", "c", "d")
    aof.close()
    with RealRedis(oracle, tmp_path) as redis:
        assert redis.started, redis.log
        options = {"times": False, "producers": is_new(oracle)}
        assert view(redis.run, **options) == view(store.run, **options)


def test_redis_loads_what_increx_did(oracle: Oracle, tmp_path: Path) -> None:
    store = Store()
    set_time(store.context, int(time.time() * 1000))
    aof = open_aof(tmp_path, store, use_rdb_preamble=False)
    store.context.is_propagating = True
    for args in commands(
        "INCREX new",
        "SET kept 5 PXAT 9999999999999",
        "INCREX kept BYINT 7 UBOUND 10 SATURATE",
        "INCREX half BYFLOAT 0.5 PX 100000000",
        "SET held 5 PX 100000000",
        "INCREX held PERSIST",
        "INCREX held BYINT 100 UBOUND 30",
        "SET ended 5",
        "INCREX ended PXAT 1",
    ):
        effects = run_observed(store.context, args)
        aof.buffer.take_effects([Effect(0, list(effect)) for effect in effects], store.context.now_ms)
    aof.close()
    with RealRedis(oracle, tmp_path) as redis:
        assert redis.started, redis.log
        found = view(redis.run)
        assert found == view(store.run)
        assert sorted(found) == [b"half", b"held", b"kept", b"new"]


def test_redis_finds_pending_entries_whose_entries_are_gone(oracle: Oracle, tmp_path: Path) -> None:
    store = filled()
    for args in commands("XDEL s 4-1 6-1", "XADD t 1-1 f v", "XGROUP CREATE t g 0", "XREADGROUP GROUP g c STREAMS t >"):
        store.run(*args)
    store.run("XTRIM", "t", "MAXLEN", 0)
    open_aof(tmp_path, store, use_rdb_preamble=False).close()
    with RealRedis(oracle, tmp_path) as redis:
        assert redis.started, redis.log
        options = {"times": False, "producers": is_new(oracle)}
        assert view(redis.run, **options) == view(store.run, **options)


def test_redis_loads_our_snapshot_and_what_follows(tmp_path: Path) -> None:
    store = filled(producers=True)
    aof = open_aof(tmp_path, store)
    store.run("XADD", "s", "500-1", "f", "v")
    aof.buffer.append(0, commands("XADD s 500-1 f v")[0], 0)
    aof.close()
    if not is_new(newest()):
        pytest.skip("an older Redis cannot read the newest form of snapshots")
    with RealRedis(newest(), tmp_path) as redis:
        assert redis.started, redis.log
        assert view(redis.run, layout=True) == view(store.run, layout=True)


@pytest.mark.parametrize("preamble", [True, False])
def test_redis_s_checker_finds_nothing_wrong(tmp_path: Path, preamble: bool) -> None:
    store = filled(producers=True)
    store.run("XDEL", "s", "4-1")
    aof = open_aof(tmp_path, store, use_rdb_preamble=preamble)
    aof.buffer.has_timestamps = True
    aof.buffer.take_effects([Effect(0, args) for args in commands("SET a b", "SET c d")], 0)
    aof.close()
    result = check_aof(newest(), tmp_path / "appendonlydir" / "appendonly.aof.manifest")
    assert (result.returncode, "All AOF files and manifest are valid" in result.stdout) == (0, True), result


# --- Redis's, loaded by us -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("preamble", ["yes", "no"])
@pytest.mark.parametrize("rewritten", [False, True])
def test_we_load_redis_s_files(oracle: Oracle, tmp_path: Path, preamble: str, rewritten: bool) -> None:
    with RealRedis(oracle, tmp_path, aof_use_rdb_preamble=preamble, aof_timestamp_enabled="yes") as redis:
        redis.runs(SCRIPT + (PRODUCERS if is_new(oracle) else []))
        if rewritten:
            redis.run("BGREWRITEAOF")
            eventually(lambda: b"aof_rewrite_in_progress:0" in redis.run("INFO", "persistence"))
        redis.runs(commands("MULTI", "XADD s 500-1 f v", "SET a b", "EXEC", "XREADGROUP GROUP g c COUNT 2 STREAMS s >"))
    options = {"times": False, "producers": is_new(oracle)}
    with RealRedis(oracle, tmp_path) as redis:
        assert redis.started, redis.log
        expected = view(redis.run, **options)  # what its own files say: 7.0 forgets how far groups have read
    store = Store()
    set_time(store.context, time.time_ns() // 1_000_000)
    open_aof(tmp_path, store).close()
    assert view(store.run, **options) == expected
    with RealRedis(oracle, tmp_path) as redis:
        assert redis.started, redis.log
        assert view(redis.run, **options) == expected


# --- Damage ----------------------------------------------------------------------------------------------------------------

HEAD = commands("SELECT 0", "XADD s 1-1 f v")
TAIL = commands("XADD s 3-1 field value", "MULTI", "XADD s 4-1 f v", "XADD s 5-1 f v", "EXEC", "XADD s 6-1 f v")


def outcome_of_redis(folder: Path, name: str, **directives: str) -> tuple[Any, ...]:
    """Whether it starts, the entries there are then, and the bytes of the file."""
    with RealRedis(newest(), folder, **directives) as redis:
        entries = [entry[0] for entry in redis.run("XRANGE", "s", "-", "+")] if redis.started else None
    return redis.started, entries, (folder / "appendonlydir" / name).read_bytes()


def outcome_of_ours(folder: Path, name: str) -> tuple[Any, ...]:
    store = Store()
    path = folder / "appendonlydir" / name
    try:
        open_aof(folder, store).close()
    except StreamdError:
        return False, None, path.read_bytes()
    return True, [b"%d-%d" % entry for entry, _ in stream_entries(store)], path.read_bytes()


def stream_entries(store: Store) -> list[Any]:
    stream = store.databases[0].peek(b"s")
    return [] if stream is None else stream.range()


def both(tmp_path: Path, data: bytes) -> tuple[Any, Any]:
    """The outcome of a damaged last file, at a Redis and here."""
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    for folder in (theirs, ours):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        open_aof(folder, Store()).close()
        (folder / "appendonlydir" / INCR).write_bytes(data)
    return outcome_of_redis(theirs, INCR), outcome_of_ours(ours, INCR)


def cuts() -> list[int]:
    return list(range(len(bytes_of(HEAD)), len(bytes_of(HEAD + TAIL)) + 1))


def group_of(cut: int) -> bool:
    """Whether a cut is inside the group."""
    return len(bytes_of(HEAD + TAIL[:2])) <= cut < len(bytes_of(HEAD + TAIL[:5]))


def check_cut(tmp_path: Path, cut: int) -> None:
    theirs, ours = both(tmp_path, bytes_of(HEAD + TAIL)[:cut])
    if group_of(cut):
        # Redis keeps what is whole of the group, with an open MULTI; see the head of aof_load.
        assert ours == (True, theirs[1], bytes_of(HEAD + TAIL[:1])), cut
    else:
        assert ours == theirs, cut


@pytest.mark.parametrize("cut", random.Random(3).sample(cuts(), 12))
def test_a_cut_file_starts_as_redis_starts_it(tmp_path: Path, cut: int) -> None:
    check_cut(tmp_path, cut)


@pytest.mark.slow
def test_a_file_cut_anywhere_starts_as_redis_starts_it(tmp_path: Path) -> None:
    for cut in cuts():
        check_cut(tmp_path, cut)


def check_flip(tmp_path: Path, bit: int) -> None:
    whole = bytes_of(HEAD + TAIL)
    data = bytearray(whole)
    data[bit // 8] ^= 1 << bit % 8
    if b"ZADD" in data:
        return  # a command of Redis, which streamd does not have and refuses
    theirs, ours = both(tmp_path, bytes(data))
    if theirs[0] and b"MULTI" in theirs[2] and b"EXEC" not in theirs[2].upper():
        # Redis has kept an open MULTI; see the head of aof_load.
        assert ours[0]
        assert theirs[2].startswith(ours[2])
    else:
        assert theirs == ours, bit


def bits() -> list[int]:
    return list(range(len(bytes_of(HEAD)) * 8, len(bytes_of(HEAD + TAIL)) * 8))


@pytest.mark.parametrize("bit", random.Random(4).sample(bits(), 25))
def test_a_flipped_bit_starts_or_refuses_as_in_redis(tmp_path: Path, bit: int) -> None:
    check_flip(tmp_path, bit)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_any_flipped_bit_starts_or_refuses_as_in_redis(tmp_path: Path) -> None:
    for bit in bits():
        check_flip(tmp_path, bit)


# --- Manifests -------------------------------------------------------------------------------------------------------------

BASE_LINE = "file appendonly.aof.1.base.rdb seq 1 type b\n"
INCR_LINE = f"file {INCR} seq 1 type i startoffset 0\n"


@pytest.mark.parametrize(
    "text",
    [
        BASE_LINE + INCR_LINE,
        INCR_LINE,
        BASE_LINE,
        INCR_LINE + BASE_LINE,
        "# a comment\n" + BASE_LINE + INCR_LINE,
        BASE_LINE + "file nowhere seq 1 type h\n" + INCR_LINE,
        BASE_LINE + INCR_LINE.replace("startoffset 0", "startoffset 0 endoffset 9 colour green"),
        BASE_LINE + INCR_LINE.replace("seq 1", "seq 7"),
        BASE_LINE + INCR_LINE[:-1],
        BASE_LINE + "\n" + INCR_LINE,
        BASE_LINE + INCR_LINE + INCR_LINE,
        BASE_LINE + BASE_LINE + INCR_LINE,
        BASE_LINE + INCR_LINE + "file nowhere seq 2 type i\n",
        "file nowhere seq 1 type b\n" + INCR_LINE,
        BASE_LINE.replace("type b", "type x"),
        BASE_LINE.replace("appendonly.aof.1.base.rdb", "'appendonly.aof.1.base.rdb'") + INCR_LINE,
        "",
    ],
)
def test_a_manifest_is_taken_or_refused_as_in_redis(tmp_path: Path, text: str) -> None:
    outcomes = []
    for folder in (tmp_path / "theirs", tmp_path / "ours"):
        folder.mkdir()
        open_aof(folder, Store()).close()
        (folder / "appendonlydir" / INCR).write_bytes(bytes_of(HEAD))
        manifest = folder / "appendonlydir" / "appendonly.aof.manifest"
        manifest.write_text(text)
        outcome = outcome_of_redis if folder.name == "theirs" else outcome_of_ours
        started, entries, _ = outcome(folder, INCR)
        after = manifest.read_bytes() if started else text.encode()
        names = sorted(path.name for path in manifest.parent.iterdir())
        outcomes.append((started, entries, after, names))
    assert outcomes[0] == outcomes[1]
