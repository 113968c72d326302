"""Snapshots and payloads exchanged with real Redis servers, both ways: what each says of the other's files.

Marked `real`. The system's redis-server, when it is another version than the newest, takes part with the form of its own.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from support.commands.scripts import KEYS, Script, scripts
from support.compiled import compiled
from support.files.rdb import NOW_MS, load, make_databases, make_payload, save, see
from support.files.real_files import RealRedis, all_oracles, view
from support.servers import Oracle, Server, find_oracle
from support.wire import Reply, Wire

from streamd.keyspace.database import Database
from streamd.persistence.rdb.format import LoadOptions, WriteOptions
from streamd.persistence.rdb.read import restore_value
from streamd.persistence.rdb.write import dump_value
from streamd.values.streams.stream import Stream

pytestmark = [pytest.mark.long, pytest.mark.real(since="7.0")]

StartServer = Callable[..., Server]
ORACLES = {".".join(map(str, oracle.version)): oracle for oracle in all_oracles()}
NOT_COMPRESSED = {"appendonly": "no", "rdbcompression": "no"}


@pytest.fixture(params=ORACLES or [None])
def oracle(request: pytest.FixtureRequest) -> Oracle:
    return ORACLES[request.param]


def form_of(oracle: Oracle) -> str:
    return "8.6" if oracle.version >= (8, 6) else "7.2" if oracle.version >= (7, 2) else "7.0"


def plain_dump(value: Any, oracle: Oracle) -> bytes:
    return dump_value(value, WriteOptions(compression=False, form=form_of(oracle)))


# --- A data set --------------------------------------------------------------------------------------------------------


def lines(chance: random.Random, *, producers: bool) -> Iterator[list[Any]]:
    """Commands that leave a bit of everything."""
    for number, text in enumerate(["", "hello", "123", "-9", "9223372036854775807", "x" * 5000, "é\r\n\0"]):
        yield ["SET", f"text-{number}", text]
    yield ["SET", "12345", "a number for a name", "PX", 10_000_000]
    yield ["XGROUP", "CREATE", "no-entries", "g", "$", "MKSTREAM"]
    yield ["XSETID", "no-entries", "5-5", "ENTRIESADDED", 9, "MAXDELETEDID", "5-0"]
    for number in range(4):
        key = f"stream-{number}"
        count = [1, 30, 250, 700][number]
        ids = []
        for i in range(count):
            fields = ["a", chance.randrange(-5000, 10**6), "b", "v" * chance.randrange(90)]
            ids.append(f"{1000 + i}-{chance.randrange(4)}")
            yield ["XADD", key, ids[-1], *(fields if chance.random() < 0.8 else ["other", *fields[:3]])]
        for each in chance.sample(ids, count // 8):
            yield ["XDEL", key, each]
        for group in ("g", "77", "group-" + "x" * 40):
            yield ["XGROUP", "CREATE", key, group, chance.choice(["0", "1003-0", "$"])]
            for consumer in ("alice", "12", "bob"):
                yield ["XREADGROUP", "GROUP", group, consumer, "COUNT", chance.choice([2, 60]), "STREAMS", key, ">"]
            yield ["XGROUP", "CREATECONSUMER", key, group, "idle"]
            yield [
                "XCLAIM",
                key,
                group,
                "bob",
                0,
                *chance.sample(ids, min(len(ids), 20)),
                "RETRYCOUNT",
                9,
                "TIME",
                NOW_MS,
            ]
            yield ["XACK", key, group, *chance.sample(ids, count // 5 + 1)]
        for each in chance.sample(ids, count // 20):
            yield ["XDEL", key, each]  # some of them pending
        if number == 3:
            yield ["XTRIM", key, "MAXLEN", 400]
    yield ["PEXPIREAT", "stream-1", NOW_MS * 2]
    if producers:
        for i in range(6):
            yield ["XADD", "from-producers", "IDMP", f"p{i % 2}", f"iid-{i}", "*", "f", i]
        yield ["XADD", "from-producers", "IDMP", "p0", "iid-0", "*", "f", 0]
        yield ["XCFGSET", "stream-0", "IDMP-DURATION", 1000, "IDMP-MAXSIZE", 7]


def fill(wire: Wire, seed: int, *, producers: bool) -> None:
    for line in lines(random.Random(seed), producers=producers):
        reply = wire.call(*(word if isinstance(word, str) else str(word) for word in line))
        assert not reply.is_error, (line, reply)


def dumps(wire: Wire) -> dict[bytes, bytes]:
    return {key: wire.call("DUMP", key).plain() for key in wire.call("KEYS", "*").plain()}


# --- Files of Redis ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("compression", ["yes", "no"])
def test_a_file_of_redis_comes_back_the_same(oracle: Oracle, tmp_path: Path, seed: int, compression: str) -> None:
    newest = oracle.version >= (8, 6)
    directives = {"appendonly": "no", "rdbcompression": compression}
    with RealRedis(oracle, tmp_path, **directives) as redis, Wire(redis.port) as wire:
        fill(wire, seed, producers=newest)
        wire.call("SAVE")
        wire.call("CONFIG", "SET", "rdbcompression", "no")
        wanted = dumps(wire)
        expiries = {key: wire.call("PEXPIRETIME", key).plain() for key in wanted}
    found = load((tmp_path / "dump.rdb").read_bytes(), LoadOptions(drop_expired=False))
    assert {key: plain_dump(found[0].peek(key), oracle) for key in sorted(found[0].keys())} == wanted
    assert {key: found[0].expiry(key) for key in wanted} == expiries
    for key in wanted:
        see(found[0].peek(key))


@pytest.mark.real(since="8.6")
def test_types_of_redis_that_streamd_does_not_have(tmp_path: Path) -> None:
    """Vector sets, which are values of a module, in each form of their numbers; what stands behind them is read."""
    oracle = find_oracle()
    assert oracle is not None
    with RealRedis(oracle, tmp_path, appendonly="no") as redis, Wire(redis.port) as wire:
        for size, form in ((3, "NOQUANT"), (50, "BIN"), (400, "Q8")):
            for member in [*(f"m{i}" for i in range(size)), "x" * 9000]:
                reply = wire.call(
                    "VADD", f"vectors-{size}", "VALUES", 3, 1, len(member), 3, member, form, "SETATTR", "{}"
                )
                assert not reply.is_error, reply
        wire.call("SETBIT", "bits", "100", "1")
        wire.call("PFADD", "hll", "a", "b")
        wire.call("FUNCTION", "LOAD", "#!lua name=lib\nredis.register_function('f', function() return 1 end)")
        wire.call("XADD", "stream", "1-1", "f", "v")
        wire.call("SAVE")
        total = int(wire.call("DBSIZE").value)
    said: list[str] = []
    options = LoadOptions(now_ms=NOW_MS, skip_unsupported=True, log=said.append)
    found = load((tmp_path / "dump.rdb").read_bytes(), options)
    assert sorted(found[0].keys()) == [b"bits", b"hll", b"stream"]
    assert len(said) == total - 3 == 3
    assert all("vectors-" in line and "it is a module value" in line for line in said)
    assert not any("function" in line for line in said)


# --- Files of streamd ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_redis_takes_a_file_of_streamd(oracle: Oracle, tmp_path: Path, seed: int, compression: bool) -> None:
    databases = make_databases(seed)
    options = WriteOptions(form=form_of(oracle), compression=compression)
    (tmp_path / "dump.rdb").write_bytes(save(databases, options))
    with RealRedis(oracle, tmp_path, **NOT_COMPRESSED) as redis:
        assert redis.started, redis.log
        with Wire(redis.port) as wire:
            for db in databases:
                wire.call("SELECT", db.index)
                # What has expired since the test's time is gone.
                wanted = {key: plain_dump(db.peek(key), oracle) for key in sorted(db.keys()) if key != b"string-1"}
                if form_of(oracle) == "7.0":  # its readers take the times as one
                    wanted = {key: plain_dump(restore_value(payload), oracle) for key, payload in wanted.items()}
                assert dumps(wire) == wanted


@pytest.mark.parametrize("seed", range(3))
def test_redis_check_rdb_finds_nothing(tmp_path: Path, seed: int) -> None:
    newest = find_oracle()
    assert newest is not None
    program = newest.folder / "redis-check-rdb"
    if not program.exists():
        pytest.skip("no redis-check-rdb beside redis-server")
    path = tmp_path / "dump.rdb"
    for form in ("8.6", "7.2", "7.0"):
        if form == "8.6" and newest.version < (8, 6):
            continue
        path.write_bytes(save(make_databases(seed), WriteOptions(form=form)))
        done = subprocess.run([program, path], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout
        assert "Checksum OK" in done.stdout


def test_both_servers_say_the_same_of_a_file(oracle: Oracle, tmp_path: Path, new_streamd: StartServer) -> None:
    with RealRedis(oracle, tmp_path, appendonly="no") as redis, Wire(redis.port) as wire:
        fill(wire, 7, producers=oracle.version >= (8, 6))
        wire.call("SAVE")
        of_its_own = shown(wire)
    newest = find_oracle()
    assert newest is not None
    with RealRedis(newest, tmp_path, appendonly="no") as redis, Wire(redis.port) as wire:
        wanted = shown(wire)
    server = new_streamd(dir=str(tmp_path), rdb_form=form_of(oracle))
    with server.connect() as wire:
        if newest.version >= (8, 6):
            assert shown(wire) == wanted
        assert wire.call("SAVE") == Reply("+", b"OK")
    with RealRedis(oracle, tmp_path, appendonly="no") as redis, Wire(redis.port) as wire:
        assert shown(wire) == of_its_own


def shown(wire: Wire) -> Any:
    """All that a server shows, but how long ago things were."""
    found = view(lambda *words: wire.call(*words).plain(), layout=True)
    pending = {
        (key, group[1]): [[each, who, count] for each, who, _, count in wire.call(
            "XPENDING", key, group[1], "-", "+", 100_000).plain()]
        for key in found
        if found[key][0] == b"stream"
        for group in wire.call("XINFO", "GROUPS", key).plain()
    }  # fmt: skip
    return found, pending


# --- Payloads ------------------------------------------------------------------------------------------------------------


@pytest.mark.real(since="8.6")
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(script=scripts((10, 20, 30)))
def test_any_state_that_commands_make_survives_a_payload(redis_server: Server, script: Script) -> None:
    with redis_server.connect() as wire:
        wire.call("FLUSHALL")
        wire.pipeline(script.with_settings())
        wire.call("CONFIG", "SET", "rdbcompression", "no")
        try:
            for key in KEYS:
                payload = wire.call("DUMP", key).plain()
                if payload is None:
                    continue
                value = restore_value(payload)
                see(value)
                assert dump_value(value, WriteOptions(compression=False)) == payload, (key, payload)
                copy = dump_value(value)
                assert wire.call("RESTORE", "copy", "0", copy, "REPLACE") == Reply("+", b"OK")
                assert wire.call("DUMP", "copy").plain() == payload
        finally:
            wire.call("CONFIG", "SET", "rdbcompression", "yes")


def test_payloads_of_older_releases_are_taken(oracle: Oracle, tmp_path: Path) -> None:
    with RealRedis(oracle, tmp_path, appendonly="no") as redis, Wire(redis.port) as wire:
        fill(wire, 3, producers=False)
        packed = dumps(wire)
        wire.call("CONFIG", "SET", "rdbcompression", "no")
        wanted = dumps(wire)
        assert {key: plain_dump(restore_value(payload), oracle) for key, payload in packed.items()} == wanted
        for key, payload in packed.items():
            mine = dump_value(restore_value(payload), WriteOptions(form=form_of(oracle)))
            assert wire.call("RESTORE", key, "0", mine, "REPLACE") == Reply("+", b"OK")
        assert dumps(wire) == wanted


def test_a_stream_of_redis_5_to_6_2_is_taken(redis_server: Server) -> None:
    """Type 15, which no server here writes, made of a payload of a newer one; Redis must come to the same."""
    with redis_server.connect() as wire:
        wire.call("FLUSHALL")
        fill(wire, 5, producers=False)
        wire.call("CONFIG", "SET", "rdbcompression", "no")
        # Not a stream without entries: Redis has it begin with the greatest ID then, until an entry is added.
        for key in (b"stream-0", b"stream-1", b"stream-2", b"stream-3"):
            old = as_type_15(restore_value(wire.call("DUMP", key).plain()))
            assert wire.call("RESTORE", "old", "0", old, "REPLACE") == Reply("+", b"OK")
            assert dump_value(restore_value(old), WriteOptions(compression=False)) == wire.call("DUMP", "old").plain()
        wire.call("CONFIG", "SET", "rdbcompression", "yes")


def as_type_15(stream: Any) -> bytes:
    """A payload of type 15, by hand."""
    from support.files.rdb import make_length, make_payload, make_string

    def number_pair(pair: tuple[int, int]) -> bytes:
        return make_length(pair[0]) + make_length(pair[1])

    def raw(pair: tuple[int, int]) -> bytes:
        return pair[0].to_bytes(8, "big") + pair[1].to_bytes(8, "big")

    nodes = stream.list_nodes()
    body = b"\x0f" + make_length(len(nodes))
    for master, listpack in nodes:
        body += make_string(raw(master)) + make_string(listpack)
    body += make_length(len(stream)) + number_pair(stream.last_generated_id) + make_length(len(stream.groups))
    for name, group in sorted(stream.groups.items()):
        pending = group.pending()
        body += make_string(name) + number_pair(group.last_delivered_id) + make_length(len(pending))
        for each, _, time, count in pending:
            body += raw(each) + time.to_bytes(8, "little") + make_length(count)
        body += make_length(len(group.consumers))
        for who in sorted(group.consumers):
            mine = group.pending(consumer=who)
            body += make_string(who) + group.consumers[who].seen_ms.to_bytes(8, "little") + make_length(len(mine))
            body += b"".join(raw(each) for each, *_ in mine)
    return make_payload(body, 9)


def test_databases_by_number(oracle: Oracle, tmp_path: Path) -> None:
    databases = [Database(index) for index in range(16)]
    for index in (3, 15):
        databases[index].add(b"k", b"%d" % index)
    (tmp_path / "dump.rdb").write_bytes(save(databases, WriteOptions(form=form_of(oracle))))
    with RealRedis(oracle, tmp_path, appendonly="no") as redis, Wire(redis.port) as wire:
        for index in (3, 15):
            wire.call("SELECT", index)
            assert wire.call("GET", "k").plain() == b"%d" % index


# --- Back-lengths of two widths --------------------------------------------------------------------------------------------

# Of 16378 and 2097146 bytes they differ between Redis up to 8.6 on one side, Redis 8.8 and Valkey 9.1 on the other.
SIZES = (16377, 16378, 16379, 2097145, 2097146, 2097147)


def fill_with_sizes(wire: Wire) -> None:
    wire.call("CONFIG", "SET", "rdbcompression", "no", "stream-node-max-bytes", "0", "stream-node-max-entries", "2")
    for number, size in enumerate(SIZES, 1):
        assert wire.call("XADD", "s", f"{number}-0", "f", "x" * size, "g", number).value == b"%d-0" % number


def check_sizes(value: Any) -> None:
    see(value)
    assert [len(fields[0][1]) for _, fields in value.range()] == list(SIZES)


def test_back_lengths_of_redis(oracle: Oracle, tmp_path: Path) -> None:
    with RealRedis(oracle, tmp_path, appendonly="no") as redis, Wire(redis.port) as wire:
        fill_with_sizes(wire)
        payload = wire.call("DUMP", "s").plain()
        check_sizes(restore_value(payload))
        mine = plain_dump(restore_value(payload), oracle)
        assert mine == payload
        newer = restore_value(dump_value(restore_value(payload), WriteOptions("8.8")))
        assert wire.call("RESTORE", "t", "0", plain_dump(newer, oracle)) == Reply("+", b"OK")
        assert wire.call("XRANGE", "t", "-", "+") == wire.call("XRANGE", "s", "-", "+")


class Valkey(Oracle):
    @property
    def server(self) -> str:
        return str(self.folder / "valkey-server")


def test_back_lengths_of_valkey(tmp_path: Path) -> None:
    newest = find_oracle()
    assert newest is not None
    if not (newest.folder / "valkey-server").exists():
        pytest.skip("no valkey-server beside redis-server")
    with RealRedis(Valkey(newest.folder), tmp_path, appendonly="no") as server, Wire(server.port) as wire:
        fill_with_sizes(wire)
        payload = wire.call("DUMP", "s").plain()
    # Redis and streamd take no payload with Valkey's number of a version.
    value = restore_value(make_payload(payload[:-10], 11))
    check_sizes(value)
    assert isinstance(value, Stream)
    nodes = [listpack for _, listpack in value.list_nodes()]
    assert [compiled("listpack").convert(listpack, narrow=True) in payload for listpack in nodes] == [True, True, True]
    assert [listpack in payload for listpack in nodes] == [False, True, False]
