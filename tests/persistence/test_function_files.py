"""Libraries of functions in snapshots, append-only files and streams of replication, both ways between streamd and Redis."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.replicas.nodes import Node, wait_in_sync, wait_until
from support.servers import Server, eventually, find_oracle
from support.wire import Reply

pytestmark = pytest.mark.long

ONE = (
    "#!lua name=one\nredis.register_function('f', function(keys, args) return redis.call('set', keys[1], args[1]) end)"
)
TWO = "#!lua name=two\nredis.register_function{function_name='g', callback=function() return 'g' end, flags={'no-writes'}}"
LONG = "#!lua name=long\nredis.register_function('l', function() return '" + "long " * 500 + "' end)"

StartServer = Callable[..., Server]


def load(server: Server, *codes: str) -> None:
    with server.connect() as wire:
        for code in codes:
            assert not wire.call("FUNCTION", "LOAD", code).is_error
        assert wire.call("FCALL", "f", "1", "k", "v").value == b"OK"


def libraries(server: Server) -> dict[bytes, bytes]:
    """The code of each library, by its name."""
    with server.connect() as wire:
        return {each.value[1].value: each.value[7].value for each in wire.call("FUNCTION", "LIST", "WITHCODE").value}


def expected(*codes: str) -> dict[bytes, bytes]:
    return {code.split("name=")[1].split("\n")[0].encode(): code.encode() for code in codes}


def call(server: Server, *args: str) -> Reply:
    with server.connect() as wire:
        return wire.call(*args)


PAIRS = [
    pytest.param(("new_streamd", "new_redis"), marks=pytest.mark.real, id="streamd to Redis"),
    pytest.param(("new_redis", "new_streamd"), marks=pytest.mark.real, id="Redis to streamd"),
    pytest.param(("new_streamd", "new_streamd"), id="streamd to streamd"),
]


@pytest.fixture(params=PAIRS)
def starters(request: pytest.FixtureRequest) -> tuple[StartServer, StartServer]:
    """How the writer and the reader of files are started."""
    return tuple(request.getfixturevalue(name) for name in request.param)


@pytest.mark.parametrize("compression", ["yes", "no"])
def test_a_snapshot(starters: tuple[StartServer, StartServer], compression: str) -> None:
    writer, reader = starters[0](rdbcompression=compression), starters[1]()
    load(writer, ONE, TWO, LONG)
    assert call(writer, "SAVE").value == b"OK"
    reader.stop()
    shutil.copy(writer.folder / "dump.rdb", reader.folder / "dump.rdb")
    reader.restart()
    assert libraries(reader) == expected(ONE, TWO, LONG)
    assert call(reader, "GET", "k").value == b"v"
    assert call(reader, "FCALL_RO", "g", "0").value == b"g"
    assert call(reader, "FCALL", "f", "1", "k", "w").value == b"OK"


@pytest.mark.parametrize("preamble", ["yes", "no"])
@pytest.mark.parametrize("is_rewritten", [True, False])
def test_an_append_only_file(starters: tuple[StartServer, StartServer], preamble: str, is_rewritten: bool) -> None:
    writer = starters[0](appendonly="yes", aof_use_rdb_preamble=preamble, appendfsync="always")
    load(writer, ONE, LONG)
    with writer.connect() as wire:
        if is_rewritten:
            wire.call("BGREWRITEAOF")
            eventually(lambda: b"aof_rewrite_in_progress:0" in wire.call("INFO", "persistence").value
                       and b"aof_rewrite_scheduled:0" in wire.call("INFO", "persistence").value)  # fmt: skip
        assert not wire.call("FUNCTION", "LOAD", TWO).is_error
        assert not wire.call("FUNCTION", "DELETE", "long").is_error
    writer.stop()
    reader = starters[1](appendonly="yes")
    reader.stop()
    shutil.rmtree(reader.folder / "appendonlydir", ignore_errors=True)
    shutil.copytree(writer.folder / "appendonlydir", reader.folder / "appendonlydir")
    reader.restart()
    assert libraries(reader) == expected(ONE, TWO)
    assert call(reader, "GET", "k").value == b"v"
    assert call(reader, "FCALL", "g", "0").value == b"g"


def test_an_empty_dataset_with_functions(new_streamd: StartServer) -> None:
    server = new_streamd(save="3600 1")
    with server.connect() as wire:
        wire.call("FUNCTION", "LOAD", TWO)
        assert b"rdb_changes_since_last_save:1" in wire.call("INFO", "persistence").value
        wire.call("FLUSHALL")
        assert wire.call("FCALL", "g", "0").value == b"g"
        assert wire.call("DEBUG", "RELOAD").value == b"OK"
        assert wire.call("FCALL", "g", "0").value == b"g"
    server.restart()
    assert libraries(server) == expected(TWO)


@pytest.mark.real
def test_a_library_that_cannot_be_loaded_stops_the_start(new_streamd: StartServer, new_redis: StartServer) -> None:
    writer = new_redis(rdbcompression="no")
    load(writer, ONE)
    assert call(writer, "SAVE").value == b"OK"
    damaged = (writer.folder / "dump.rdb").read_bytes().replace(b"function(keys", b"functixn(keys")
    server = new_streamd(rdbchecksum="no")
    server.stop()
    (server.folder / "dump.rdb").write_bytes(damaged[:-8] + bytes(8))
    with pytest.raises(RuntimeError, match="libraries of functions that can be loaded"):
        server.restart()
    assert "libraries of functions that can be loaded" in server.log()
    (server.folder / "dump.rdb").unlink()
    server.restart()


@pytest.mark.real
def test_redis_cli_fetches_the_functions(new_streamd: StartServer, new_redis: StartServer, tmp_path: Path) -> None:
    oracle = find_oracle()
    assert oracle is not None
    server = new_streamd()
    load(server, ONE, TWO)
    path = tmp_path / "functions.rdb"
    subprocess.run([oracle.cli, "-p", str(server.port), "--functions-rdb", str(path)], check=True, capture_output=True)
    reader = new_redis()
    reader.stop()
    shutil.copy(path, reader.folder / "dump.rdb")
    reader.restart()
    assert libraries(reader) == expected(ONE, TWO)
    assert call(reader, "DBSIZE").value == 0


# --- Replication ----------------------------------------------------------------------------------------------------

KINDS = [
    pytest.param("streamd", "redis", marks=pytest.mark.real),
    pytest.param("redis", "streamd", marks=pytest.mark.real),
    ("streamd", "streamd"),
]


@pytest.mark.parametrize(("primary_kind", "replica_kind"), KINDS)
@pytest.mark.parametrize("diskless_load", ["disabled", "swapdb"])
def test_replicas_have_the_functions(
    new_node: Callable[..., Node], primary_kind: str, replica_kind: str, diskless_load: str
) -> None:
    primary, replica = new_node(primary_kind), new_node(replica_kind, repl_diskless_load=diskless_load)
    primary.must("FUNCTION", "LOAD", ONE)
    replica.must("FUNCTION", "LOAD", "#!lua name=own\nredis.register_function('own', function() end)")
    replica.must("REPLICAOF", "127.0.0.1", str(primary.port))
    wait_in_sync(primary, replica)
    assert libraries(replica) == expected(ONE)
    primary.must("FUNCTION", "LOAD", TWO)
    primary.must("FUNCTION", "LOAD", "REPLACE", LONG)
    payload = primary.must("FUNCTION", "DUMP").value
    primary.must("FCALL", "f", "1", "k", "v")
    wait_in_sync(primary, replica)
    assert libraries(replica) == expected(ONE, TWO, LONG)
    assert replica.must("GET", "k").value == b"v"
    assert replica.must("FCALL", "g", "0").value == b"g"
    assert replica.call("FCALL", "f", "1", "k", "v").value.startswith(b"READONLY")
    assert replica.call("FUNCTION", "FLUSH").value.startswith(b"READONLY")
    primary.must("FUNCTION", "DELETE", "one")
    wait_until(lambda: libraries(replica) == expected(TWO, LONG), "the library to be gone")
    primary.must("FUNCTION", "FLUSH")
    wait_until(lambda: libraries(replica) == {}, "all libraries to be gone")
    primary.must("FUNCTION", "RESTORE", payload)
    wait_until(lambda: libraries(replica) == expected(ONE, TWO, LONG), "the libraries of the payload")
