"""Connections of the data source, and reading ranges over them: no Spark, no Java."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from support.servers import Server, free_port
from support.spark.session import ON_BOTH

pytest.importorskip("pyspark")

from streamd.arrow.decode import EntryDecoder
from streamd.client.client_errors import OptionError, ServerError, UnreachableError
from streamd.client.connection import Connection, Link, connect, pack_command, run, server_features
from streamd.client.points import MAX_ID, MIN_ID, pack_id
from streamd.client.url_options import ConnectionOptions
from streamd.spark.source.schema import DEFAULT_SCHEMA, table_layout
from streamd.transfer.ranges import read_range, scan_range

pytestmark = pytest.mark.long


def options_of(server: Server | int, **more: str) -> ConnectionOptions:
    port = server if isinstance(server, int) else server.port
    return ConnectionOptions.parse({"port": str(port), "retryBackoff": "10ms", **more})


def decoder() -> EntryDecoder:
    from streamd.transfer.read_options import SourceOptions

    layout = table_layout(DEFAULT_SCHEMA, SourceOptions.parse({"stream": "s"}))
    return EntryDecoder(layout, b"s")


def fill(store: redis.Redis, count: int) -> None:
    pipe = store.pipeline(transaction=False)
    for at in range(1, count + 1):
        pipe.xadd("s", {"n": at}, id=f"{at}-0")
    pipe.execute()


@ON_BOTH
def test_commands_pipelines_and_transactions(server: Server, store: redis.Redis) -> None:
    with connect(options_of(server, db="3")) as connection:
        assert connection.command("SET", "a", b"\xff") == b"OK"
        assert connection.pipeline([("GET", "a"), ("XLEN", "none"), ("XRANGE", "none", "-", "+")]) == [b"\xff", 0, []]
        with pytest.raises(ServerError, match=r"^WRONGTYPE") as caught:
            connection.command("XLEN", "a")
        assert caught.value.code == "WRONGTYPE"
        first, second = connection.pipeline([("XLEN", "a"), ("GET", "a")], raise_errors=False)
        assert isinstance(first, ServerError)
        assert second == b"\xff"
        assert connection.transaction([("GET", "a"), ("GET", "b")]) == [b"\xff", None]
        connection.command("WATCH", "a")
        store.execute_command("SELECT", 3)
        with connect(options_of(server, db="3")) as other:
            other.command("SET", "a", "changed")
        assert connection.transaction([("GET", "a")]) is None
        with pytest.raises(ServerError, match="unknown command 'NOSUCHCOMMAND'"):
            connection.transaction([("NOSUCHCOMMAND",)])
        assert b"name=streamd-spark" in connection.command("CLIENT", "LIST")


def test_what_a_server_can_do_is_asked(streamd_server: Server) -> None:
    with connect(options_of(streamd_server)) as connection:
        found = server_features(connection)
    assert found.name == "streamd"
    assert found.has_idmp
    assert found.has_acked_trim


@pytest.mark.real(since="7.0")
def test_what_redis_can_do_is_asked(redis_server: Server) -> None:
    with connect(options_of(redis_server)) as connection:
        found = server_features(connection)
    assert found.name == "redis"
    assert found.has_idmp == (found.version >= (8, 6))
    assert found.has_acked_trim == (found.version >= (8, 2))
    assert not found.has_streamd_helpers


def test_users_and_passwords(new_streamd: Any, tmp_path: Path) -> None:
    server = new_streamd(requirepass="main")
    client = redis.Redis(port=server.port, password="main", protocol=2)
    client.execute_command("ACL", "SETUSER", "reader", "on", ">word", "~*", "+@read", "+client|setname")
    client.close()
    with pytest.raises(ServerError, match="NOAUTH"), connect(options_of(server)) as connection:
        connection.command("XLEN", "s")
    file = tmp_path / "password"
    file.write_text("word\n")
    with connect(options_of(server, username="reader", passwordFile=str(file))) as connection:
        assert connection.command("XLEN", "s") == 0
        # INFO is forbidden: taken for an old Redis.
        assert not server_features(connection).has_idmp
    with pytest.raises(ServerError, match="WRONGPASS"):
        connect(options_of(server, username="reader", password="main"))


def test_unix_sockets(new_streamd: Any, tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    new_streamd(unixsocket=str(path))
    for given in ({"unixSocketPath": str(path)}, {"url": f"unix://{path}?db=1"}):
        with connect(ConnectionOptions.parse(given)) as connection:
            assert connection.command("PING") == b"PONG"
            assert repr(connection) == f"<Connection to {path}>"


# --- TLS ------------------------------------------------------------------------------------------------------------------


def test_tls(new_streamd: Any, certificate: Path) -> None:
    port, file = str(free_port()), str(certificate)
    new_streamd(tls_port=port, tls_cert_file=file, tls_key_file=file, tls_ca_cert_file=file, tls_auth_clients="yes")
    mine = {"port": port, "host": "localhost", "tls": "true", "tlsCertFile": file}
    for given in (
        {**mine, "tlsCaFile": file},
        {**mine, "tlsVerify": "false"},
        {**mine, "host": "127.0.0.1", "tlsCaFile": file, "tlsCheckHostname": "false"},
        {**mine, "host": "127.0.0.1", "tlsCaFile": file, "tlsServerName": "localhost"},
        {"url": f"rediss://localhost:{port}", "tlsCaFile": file, "tlsCertFile": file},
    ):
        with connect(ConnectionOptions.parse(given)) as connection:
            assert connection.command("PING") == b"PONG"
    for given in (mine, {**mine, "host": "127.0.0.1", "tlsCaFile": file}):
        with pytest.raises(OptionError, match=r"option tls: the certificate of .* is refused"):
            connect(ConnectionOptions.parse(given))
    with pytest.raises(OptionError, match="option tlsCaFile"):
        connect(ConnectionOptions.parse({**mine, "tlsCaFile": "/does/not/exist"}))
    with pytest.raises(UnreachableError, match="Connection refused"):
        # A server that does not speak TLS is not waited for.
        connect(ConnectionOptions.parse({**mine, "port": str(free_port()), "retries": "0"}))


# --- Attempts -------------------------------------------------------------------------------------------------------------


def test_nobody_there_is_said_after_all_attempts() -> None:
    port = free_port()
    with pytest.raises(UnreachableError, match=f"Could not connect to 127.0.0.1:{port}"):
        connect(options_of(port, retries="2"))


def test_a_server_that_does_not_answer_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        options = options_of(silent.getsockname()[1], retries="0", readTimeout="50ms")
        with pytest.raises(UnreachableError, match=r"No reply from .* within 50 ms"), connect(options) as connection:
            connection.command("PING")


def answering(replies: list[bytes | None]) -> Iterator[int]:
    """A server that answers each connection's first request with the next reply, or closes it; its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for reply in replies:
                peer, _ = listener.accept()
                with peer:
                    peer.recv(10_000)
                    peer.sendall(b"+OK\r\n")
                    peer.recv(10_000)
                    if reply is not None:
                        peer.sendall(reply)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        thread.join()


def test_work_is_repeated_while_the_server_is_not_ready() -> None:
    for port in answering([b"-LOADING data\r\n", None, b"-READONLY replica\r\n", b":5\r\n"]):
        assert run(options_of(port, retries="3"), lambda connection: connection.command("XLEN", "s")) == 5


def test_what_stays_wrong_is_not_repeated() -> None:
    for port in answering([b"-ERR no\r\n"]):
        with pytest.raises(ServerError, match="ERR no"):
            run(options_of(port), lambda connection: connection.command("XLEN", "s"))


@ON_BOTH
def test_a_link_keeps_its_connection_until_it_breaks(server: Server, store: redis.Redis) -> None:
    link = Link(options_of(server))

    def identify() -> int:
        return link.ask(lambda connection: connection.command("CLIENT", "ID"))

    first = identify()
    assert identify() == first
    store.execute_command("CLIENT", "KILL", "ID", first)
    second = identify()
    assert second != first
    with pytest.raises(KeyError, match="the caller's own mistake"):
        link.ask(lambda _: {}["the caller's own mistake"])
    third = identify()
    assert third != second  # replies might have been outstanding
    link.close()
    assert identify() != third
    link.close()


# --- Ranges ---------------------------------------------------------------------------------------------------------------


@ON_BOTH
def test_a_range_comes_whole_in_small_pieces(server: Server, store: redis.Redis) -> None:
    fill(store, 100)
    options = options_of(server)
    batches = list(read_range(options, decoder(), b"s", pack_id(3, 0), pack_id(97, 5), fetch_size=7, batch_rows=10))
    assert [row["ms"] for batch in batches for row in batch.to_pylist()] == list(range(3, 98))
    limited = list(read_range(options, decoder(), b"s", MIN_ID, MAX_ID, fetch_size=7, limit=20))
    assert sum(batch.num_rows for batch in limited) == 20
    with connect(options) as connection:
        again = list(read_range(options, decoder(), b"s", pack_id(90, 0), MAX_ID, connection=connection))
        assert [batch.num_rows for batch in again] == [11]
        assert connection.command("PING") == b"PONG"
    assert list(read_range(options, decoder(), b"s", pack_id(5, 1), pack_id(5, 0))) == []
    assert list(read_range(options, decoder(), b"none", MIN_ID, MAX_ID)) == []


@ON_BOTH
def test_reading_continues_when_the_connection_breaks(server: Server, store: redis.Redis) -> None:
    fill(store, 300)
    found = []
    for batch in read_range(options_of(server), decoder(), b"s", MIN_ID, MAX_ID, fetch_size=20, batch_rows=20):
        found += [row["ms"] for row in batch.to_pylist()]
        if len(found) in (20, 100):
            killed = store.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            assert killed >= 1  # the reader's, and what other tests have left to be collected
    assert found == list(range(1, 301))


@ON_BOTH
def test_a_scan_finds_counts_and_cuts(server: Server, store: redis.Redis) -> None:
    fill(store, 100)
    options = options_of(server)
    whole = scan_range(options, b"s", MIN_ID, MAX_ID, every=30, fetch_size=11)
    assert (whole.count, whole.first_id, whole.last_id) == (100, pack_id(1, 0), pack_id(100, 0))
    assert whole.marks == [pack_id(at, 0) for at in (1, 31, 61, 91)]
    assert whole.is_complete
    limited = scan_range(options, b"s", MIN_ID, MAX_ID, limit=40)
    assert (limited.count, limited.last_id, limited.is_complete) == (40, pack_id(40, 0), False)
    for size in (1, whole.mark_bytes[1], whole.mark_bytes[1] + 1, whole.bytes - 1, whole.bytes):
        cut = scan_range(options, b"s", MIN_ID, MAX_ID, every=10, max_bytes=size)
        exact = scan_range(options, b"s", MIN_ID, cut.last_id)
        assert (cut.count, cut.bytes) == (exact.count, exact.bytes)
        assert cut.bytes <= size or cut.count == 1
        assert cut.is_complete == (size == whole.bytes)
    assert scan_range(options, b"none", MIN_ID, MAX_ID).count == 0


def test_a_key_of_another_type_is_an_error(server: Server, store: redis.Redis) -> None:
    store.set("s", "text")
    with pytest.raises(ServerError, match="WRONGTYPE"):
        list(read_range(options_of(server), decoder(), b"s", MIN_ID, MAX_ID))


# --- Sentinel -------------------------------------------------------------------------------------------------------------


@pytest.mark.real(since="7.0")
@pytest.mark.parametrize("sentinel", ["streamd", "redis"], indirect=True)
def test_a_sentinel_is_asked_for_the_primary_again_after_a_fail_over(sentinel: tuple[int, Server, Server]) -> None:
    port, primary, replica = sentinel
    dead = free_port()
    for given in (
        {"sentinels": f"127.0.0.1:{dead},127.0.0.1:{port}", "sentinelMaster": "main"},
        {"url": f"redis+sentinel://127.0.0.1:{dead},127.0.0.1:{port}/main"},
    ):
        with connect(ConnectionOptions.parse(given)) as connection:
            assert connection.place == f"main at 127.0.0.1:{primary.port}"
    other = ConnectionOptions.parse({"sentinels": f"127.0.0.1:{port}", "sentinelMaster": "none"})
    with pytest.raises(OptionError, match="option sentinelMaster: no Sentinel knows none"):
        connect(other)
    primary.kill()

    def port_of_the_primary(connection: Connection) -> int:
        connection.command("XADD", "s", "*", "a", "b")
        return int(connection.place.rpartition(":")[2])

    # Much longer than `retries` alone would last.
    options = ConnectionOptions.parse({**given, "retries": "1", "retryMaxBackoff": "200ms"})
    assert run(options, port_of_the_primary) == replica.port


@pytest.mark.real(since="7.0")
@pytest.mark.parametrize("sentinel", ["streamd", "redis"], indirect=True)
def test_a_range_that_a_fail_over_cuts_off_is_read_to_its_end(sentinel: tuple[int, Server, Server]) -> None:
    port, primary, _ = sentinel
    count = 20_000
    with redis.Redis(port=primary.port, protocol=2) as store:
        fill(store, count)
        assert store.execute_command("WAIT", 1, 30_000) == 1
    options = ConnectionOptions.parse({"sentinels": f"127.0.0.1:{port}", "sentinelMaster": "main", "retries": "1"})
    batches = read_range(options, decoder(), b"s", MIN_ID, MAX_ID, fetch_size=100, batch_rows=500)
    rows = next(batches).num_rows
    primary.kill()
    rows += sum(batch.num_rows for batch in batches)
    assert rows == count


@pytest.mark.real(since="7.0")
def test_an_outage_without_an_end_is_told_at_the_deadline(sentinel: tuple[int, Server, Server]) -> None:
    port, primary, replica = sentinel
    replica.kill()
    primary.kill()
    given = {"sentinels": f"127.0.0.1:{port}", "sentinelMaster": "main", "retries": "0", "failoverTimeout": "300ms"}
    with pytest.raises(UnreachableError, match="no primary main"):
        connect(ConnectionOptions.parse(given))


@pytest.mark.real(since="7.0")
def test_the_user_and_password_of_a_sentinel(
    sentinel: tuple[int, Server, Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    port, primary, _ = sentinel
    with redis.Redis(port=port, protocol=2) as asked:
        asked.execute_command("ACL", "SETUSER", "spark", "on", ">guarded", "+@all")
        asked.execute_command("ACL", "SETUSER", "default", "off")
    monkeypatch.setenv("SENTINEL_WORD", "guarded")
    given = {"sentinels": f"127.0.0.1:{port}", "sentinelMaster": "main", "sentinelUsername": "spark"}
    with connect(ConnectionOptions.parse({**given, "sentinelPasswordEnv": "SENTINEL_WORD"})) as connection:
        assert connection.place == f"main at 127.0.0.1:{primary.port}"
    with pytest.raises(ServerError, match="WRONGPASS"):
        connect(ConnectionOptions.parse({**given, "sentinelPassword": "wrong"}))


def test_a_request_is_packed_as_it_is_sent() -> None:
    assert pack_command(("XADD", b"k", 5)) == b"*3\r\n$4\r\nXADD\r\n$1\r\nk\r\n$1\r\n5\r\n"
