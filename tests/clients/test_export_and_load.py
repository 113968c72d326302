"""`streamd export` and `streamd load`: streams to files and back, exactly; other files to streams, each row once."""

from __future__ import annotations

import functools
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from click.testing import CliRunner
from support.servers import Server, eventually, free_port, python_environment

pa = pytest.importorskip("pyarrow")

from streamd import disk  # noqa: E402
from streamd.cli.subcommands import program  # noqa: E402
from streamd.client.client_errors import UnreachableError  # noqa: E402
from streamd.client.connection import Connection  # noqa: E402
from streamd.transfer import load_files as load_module  # noqa: E402
from streamd.transfer import stream_copy  # noqa: E402
from streamd.transfer.files import FORMATS  # noqa: E402

pytestmark = pytest.mark.long

Run = Callable[..., str]
Store = Any

SHAPES = [*FORMATS]
KINDS = ["streamd", pytest.param("redis", marks=pytest.mark.real)]


@pytest.fixture(params=KINDS)
def source(request: pytest.FixtureRequest) -> Iterator[Store]:
    yield from emptied(request.getfixturevalue(f"{request.param}_server"))


@pytest.fixture(params=KINDS)
def target(request: pytest.FixtureRequest) -> Iterator[Store]:
    yield from emptied(request.getfixturevalue(f"{request.param}_server"), db=1)


@pytest.fixture
def store(streamd_server: Server) -> Iterator[Store]:
    yield from emptied(streamd_server)


def emptied(server: Server, db: int = 0) -> Iterator[Store]:
    with redis.Redis(port=server.port, db=db, protocol=2) as client:
        client.flushdb()
        yield client
        client.flushdb()


def place(client: Store) -> list[str]:
    about = client.connection_pool.connection_kwargs
    return ["-p", str(about["port"]), "-n", str(about["db"])]


def run(client: Store, *words: str, status: int = 0, data: bytes | None = None) -> str:
    found = CliRunner().invoke(program, [*words, *place(client)], input=data)
    assert found.exit_code == status, found.output
    return found.output


def ask(client: Store, *words: Any) -> Any:
    """A reply as it comes: the client's own parsing leaves things out."""
    connection = client.connection_pool.get_connection()
    try:
        connection.send_command(*words)
        return connection.read_response()
    finally:
        client.connection_pool.release(connection)


# --- Exactly ----------------------------------------------------------------------------------------------------------


def fill(client: Store) -> list[bytes]:
    """Streams with whatever a stream may have; returns their keys."""
    call = functools.partial(ask, client)
    for at in range(1, 301):
        call("XADD", "readings", f"{1_700_000_000_000 + at}-{at % 3}", "sensor", f"s{at % 7}", "celsius", f"{at / 10}")
    odd = [(b"a", b"1"), (b"a", b"2"), (b"\xff\x00", b"\x80"), (b"", b""), ("\u00e9".encode(), b'"\\\n\t\x01')]
    call("XADD", "readings", "1800000000000-18446744073709551615", *[word for pair in odd for word in pair])
    call("XGROUP", "CREATE", "readings", "all", "0")
    call("XGROUP", "CREATE", "readings", b"odd \xff", "1700000000005-0", "ENTRIESREAD", "4")
    call("XGROUP", "CREATE", "readings", "idle", "$")
    call("XGROUP", "CREATECONSUMER", "readings", "idle", "nothing yet")
    call("XREADGROUP", "GROUP", "all", "c1", "COUNT", 100, "STREAMS", "readings", ">")
    call("XREADGROUP", "GROUP", "all", b"c\xff", "COUNT", 50, "STREAMS", "readings", ">")
    call("XREADGROUP", "GROUP", b"odd \xff", "c", "COUNT", 5, "STREAMS", "readings", ">")
    ids = [entry[0] for entry in call("XRANGE", "readings", "-", "+", "COUNT", 150)]
    call("XACK", "readings", "all", *ids[20:40])
    call("XCLAIM", "readings", "all", "c2", 0, *ids[50:60], "TIME", 1_700_000_000_000, "RETRYCOUNT", 9, "JUSTID")
    call("XDEL", "readings", ids[3], ids[100], ids[119], ids[200 % 150])
    call("XTRIM", "readings", "MINID", ids[10])
    call("PEXPIREAT", "readings", 4_000_000_000_000)
    # All trimmed, with entries pending still; emptied by deletion; nothing ever added.
    for at in range(1, 6):
        call("XADD", "trimmed", f"{at}-0", "n", at)
    call("XGROUP", "CREATE", "trimmed", "g", "0")
    call("XREADGROUP", "GROUP", "g", "c", "STREAMS", "trimmed", ">")
    call("XTRIM", "trimmed", "MAXLEN", 0)
    call("XADD", "deleted", "7-7", "n", 1)
    call("XDEL", "deleted", "7-7")
    call("XGROUP", "CREATE", "never", "g", "0", "MKSTREAM")
    call("XADD", b"key/ \xff", "1-1", "n", 1)
    call("XCFGSET", b"key/ \xff", "IDMP-DURATION", 77, "IDMP-MAXSIZE", 55)
    return [b"readings", b"trimmed", b"deleted", b"never", b"key/ \xff"]


CLOCKS = {b"seen-time", b"active-time"}
"""What no command sets."""

SHAPE = {b"radix-tree-keys", b"radix-tree-nodes", b"nacked-count"}
"""How a server stores a stream, or what only one of them shows."""


def shown(client: Store, key: bytes) -> Any:
    """XINFO STREAM FULL as a tree of dictionaries, the digest, and when the key expires."""
    full = ask(client, "XINFO", "STREAM", key, "FULL", "COUNT", 1000)
    return tree(full), ask(client, "DEBUG", "DIGEST-VALUE", key), client.pexpiretime(key)


def tree(reply: Any) -> Any:
    if not isinstance(reply, list):
        return reply
    is_map = len(reply) >= 2 and len(reply) % 2 == 0 and reply[0] in (b"length", b"name")
    if is_map:
        pairs = zip(reply[::2], reply[1::2], strict=True)
        return {name: tree(value) for name, value in pairs if name not in CLOCKS | SHAPE}
    return [tree(each) for each in reply]


@pytest.mark.parametrize("form", SHAPES)
def test_a_round_trip_is_exact(form: str, source: Store, target: Store, tmp_path: Path) -> None:
    keys = fill(source)
    expected = {key: shown(source, key) for key in keys}
    run(source, "export", "--pattern", "*", "--to", str(tmp_path), "--format", form)
    assert len(os.listdir(tmp_path)) == 2 * len(keys)
    run(target, "load", str(tmp_path))
    assert {key: shown(target, key) for key in keys} == expected
    run(target, "load", str(tmp_path))
    assert {key: shown(target, key) for key in keys} == expected
    run(target, "load", str(tmp_path), "--again", "--replace")
    assert {key: shown(target, key) for key in keys} == expected


def test_groups_are_restored_after_a_failure_in_between(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store)
    expected = shown(store, b"readings")
    run(store, "export", "readings", "--to", str(tmp_path))
    store.delete("readings")
    failures = [UnreachableError("lost"), OSError("no space")]
    transaction = Connection.transaction

    def failing(connection: Connection, requests: list[Any]) -> Any:
        if failures:
            raise failures.pop(0)
        return transaction(connection, requests)

    # The last transaction is lost: once with the connection, which is opened again, and once for good.
    monkeypatch.setattr(Connection, "transaction", failing)
    assert "no space" in run(store, "load", str(tmp_path), status=1)
    assert not failures
    assert shown(store, b"readings") != expected
    run(store, "load", str(tmp_path))
    assert shown(store, b"readings") == expected


@pytest.mark.parametrize("how", [(), ("--replace",)])
def test_an_end_that_is_not_heard_of_is_not_done_twice(
    how: tuple[str, ...], store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pending entries that are gone from the stream would not survive it."""
    fill(store)
    expected = shown(store, b"readings")
    run(store, "export", "readings", "--to", str(tmp_path))
    if not how:
        store.delete("readings")
    transaction = Connection.transaction
    seen: set[str] = set()

    def unheard(connection: Connection, requests: list[Any]) -> Any:
        found = transaction(connection, requests)
        if repr(requests) not in seen:
            seen.add(repr(requests))
            connection.close()
            raise UnreachableError("lost")
        return found

    monkeypatch.setattr(Connection, "transaction", unheard)
    run(store, "load", str(tmp_path), *how)
    assert len(seen) == (3 if how else 1)
    assert shown(store, b"readings") == expected


def test_an_end_that_fails_is_not_done(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(store)
    expected = shown(store, b"readings")
    run(store, "export", "readings", "--to", str(tmp_path))
    store.delete("readings")
    transaction = Connection.transaction
    # The server notes that all is done, although the other request fails.
    with monkeypatch.context() as patched:
        patched.setattr(
            Connection,
            "transaction",
            lambda connection, requests: transaction(connection, [("XSETID", "nosuch", "1-1"), *requests[-1:]]),
        )
        run(store, "load", str(tmp_path), status=1)
    assert shown(store, b"readings") != expected
    run(store, "load", str(tmp_path))
    assert shown(store, b"readings") == expected


@pytest.mark.parametrize("key", ["trimmed", "never"])
def test_a_stream_without_entries_is_continued(
    key: str, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store)
    expected = shown(store, key.encode())
    run(store, "export", key, "--to", str(tmp_path))
    store.delete(key)

    def fail(connection: Connection, requests: list[Any]) -> None:
        raise OSError("no space")

    with monkeypatch.context() as patched:
        patched.setattr(Connection, "transaction", fail)
        assert "no space" in run(store, "load", str(tmp_path), status=1)
    assert store.exists(key)
    run(store, "load", str(tmp_path))
    assert shown(store, key.encode()) == expected


def test_an_entry_that_is_deleted_while_it_is_exported_takes_no_other_along(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for at in range(1, 9):
        store.xadd("s", {"n": at}, id=f"{at}-0")
    store.xgroup_create("s", "g", "0")
    store.xreadgroup("g", "c", {"s": ">"}, count=5)
    read_state = stream_copy.read_state

    def read_before(connection: Connection, stream: str) -> stream_copy.StreamCopy:
        found = read_state(connection, stream)
        store.xdel("s", "3-0")
        return found

    monkeypatch.setattr(stream_copy, "read_state", read_before)
    assert "1 entries were trimmed or deleted while" in run(store, "export", "s", "--to", str(tmp_path))
    left, pending = store.xrange("s"), store.xpending_range("s", "g", "-", "+", 10)
    run(store, "load", str(tmp_path), "--into", "copy")
    assert store.xrange("copy") == left
    ids = [each["message_id"] for each in store.xpending_range("copy", "g", "-", "+", 10)]
    assert ids == [each["message_id"] for each in pending] == [f"{at}-0".encode() for at in range(1, 6)]


def test_a_damaged_file_replaces_nothing(store: Store, tmp_path: Path) -> None:
    fill(store)
    expected = shown(store, b"readings")
    for form in SHAPES:
        folder = tmp_path / form
        run(store, "export", "readings", "--to", str(folder), "--format", form)
        (data,) = (each for each in folder.iterdir() if not each.name.endswith(".groups.json"))
        data.write_bytes(b"damaged" + data.read_bytes()[7:300])
        run(store, "load", str(folder), "--replace", status=1)
        assert shown(store, b"readings") == expected
        # As damaged, but this shows only when all of it is read.
        if form in ("json", "csv"):
            run(store, "export", "readings", "--to", str(folder), "--format", form, "--replace")
            data.write_bytes(b"".join(data.read_bytes().splitlines(keepends=True)[:-2]))
            assert "it belongs to another export" in run(store, "load", str(folder), "--replace", status=1)
            assert shown(store, b"readings") == expected
    assert store.keys("streamd:load:*") == []


def test_entries_that_were_given_back_stay_so(store: Store, tmp_path: Path, redis_server: Server) -> None:
    for at in range(1, 6):
        store.xadd("s", {"n": at}, id=f"{at}-0")
    store.xgroup_create("s", "g", "0")
    store.xreadgroup("g", "c", {"s": ">"})
    store.execute_command("XNACK", "s", "g", "FAIL", "IDS", 2, "2-0", "4-0", "RETRYCOUNT", 6)
    expected = shown(store, b"s")
    run(store, "export", "s", "--to", str(tmp_path))
    run(store, "load", str(tmp_path), "--replace")
    assert shown(store, b"s") == expected
    with redis.Redis(port=redis_server.port, db=1) as older:
        if not ask(older, "COMMAND", "INFO", "XNACK")[0]:
            assert "given back by XNACK, which this server lacks" in run(older, "load", str(tmp_path), status=1)
            assert older.dbsize() == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_consumer_without_a_name_keeps_what_is_its_own(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """It is shown as what was given back is."""
    server: Server = request.getfixturevalue(f"{kind}_server")
    with redis.Redis(port=server.port, db=2, protocol=2) as store:
        store.flushdb()
        for at in range(1, 6):
            store.xadd("s", {"n": at}, id=f"{at}-0")
        store.xgroup_create("s", "g", "0")
        store.xreadgroup("g", "", {"s": ">"}, count=3)
        store.xreadgroup("g", "c", {"s": ">"}, count=1)
        if has_nacks := bool(ask(store, "COMMAND", "INFO", "XNACK")[0]):
            store.execute_command("XNACK", "s", "g", "FAIL", "IDS", 2, "2-0", "4-0")
        expected = shown(store, b"s")
        run(store, "export", "s", "--to", str(tmp_path))
        run(store, "load", str(tmp_path), "--replace")
        assert shown(store, b"s") == expected
        owners = [
            each[1] for each in json.loads((tmp_path / "s.parquet.groups.json").read_bytes())["groups"][0]["pending"]
        ]
        assert owners == (["", None, "", None] if has_nacks else ["", "", "", "c"])
        store.flushdb()


def test_an_export_of_the_version_before_is_loaded(store: Store, tmp_path: Path) -> None:
    """There, what was given back had the consumer of the empty name."""
    for at in range(1, 4):
        store.xadd("s", {"n": at}, id=f"{at}-0")
    store.xgroup_create("s", "g", "0")
    store.xreadgroup("g", "", {"s": ">"})
    store.execute_command("XNACK", "s", "g", "FAIL", "IDS", 1, "2-0")
    expected = shown(store, b"s")
    run(store, "export", "s", "--to", str(tmp_path))
    noted = tmp_path / "s.parquet.groups.json"
    state = json.loads(noted.read_bytes())
    for each in state["groups"][0]["pending"]:
        each[1] = each[1] or ""
    noted.write_text(json.dumps({**state, "version": 1}))
    run(store, "load", str(tmp_path), "--replace")
    assert shown(store, b"s") == expected


def test_an_export_replaces_files_only_when_it_is_told_to(store: Store, tmp_path: Path) -> None:
    fill(store)
    run(store, "export", "readings", "--to", str(tmp_path))
    before = {each: each.read_bytes() for each in tmp_path.iterdir()}
    store.xadd("readings", {"n": 1}, id="1900000000000-0")
    for words in (["readings"], ["trimmed", "readings"], ["--pattern", "*"]):
        said = run(store, "export", *words, "--to", str(tmp_path), status=1)
        assert (
            said
            == f"Error: {tmp_path}/readings.parquet exists, and nothing was exported: use --replace, or another path\n"
        )
        assert {each: each.read_bytes() for each in tmp_path.iterdir()} == before
    one = tmp_path / "readings.parquet"
    assert "exists" in run(store, "export", "trimmed", "--to", str(one), status=1)
    run(store, "export", "--pattern", "*", "--to", str(tmp_path), "--replace")
    assert one.read_bytes() != before[one]


def test_one_stream_to_a_file_and_into_another_key(store: Store, tmp_path: Path) -> None:
    fill(store)
    out = tmp_path / "r.jsonl"
    run(store, "export", "readings", "--to", str(out))
    assert sorted(os.listdir(tmp_path)) == ["r.jsonl", "r.jsonl.groups.json"]
    first = json.loads(out.read_text().splitlines()[0])
    assert (first["stream"], first["fields"]) == ("readings", {"sensor": "s4", "celsius": "1.1"})
    run(store, "load", str(out), "--into", "copy")
    assert shown(store, b"copy")[:1] == shown(store, b"readings")[:1]
    assert "--replace puts the new stream in its place" in run(store, "load", str(out), "--into", "trimmed", status=1)


def test_entries_alone_are_appended_to_a_stream_that_is_there(store: Store, tmp_path: Path) -> None:
    fill(store)
    run(store, "export", "trimmed", "readings", "--to", str(tmp_path))
    count = store.xlen("readings")
    assert "smaller than the target stream top item" in run(
        store, "load", str(tmp_path / "readings.parquet"), "--no-groups", status=1
    )
    run(store, "load", str(tmp_path / "readings.parquet"), "--new-ids", "--into", "appended")
    run(store, "load", str(tmp_path / "readings.parquet"), "--no-groups", "--into", "kept")
    assert (store.xlen("appended"), store.xlen("kept")) == (count, count)
    assert store.xrange("kept") == store.xrange("readings")
    assert [fields for _, fields in store.xrange("appended")] == [fields for _, fields in store.xrange("readings")]
    assert store.xinfo_groups("kept") == []


def test_export_says_what_is_wrong(store: Store, tmp_path: Path) -> None:
    fill(store)
    for words, said in [
        (["nosuch", "--to", str(tmp_path)], "there is no stream 'nosuch'"),
        (["--to", str(tmp_path)], "give either STREAM... or --pattern"),
        (["readings", "trimmed", "--to", str(tmp_path / "a.csv")], "several streams need --to FOLDER"),
        (["--pattern", "x*", "--to", str(tmp_path)], "no stream matches"),
        (["readings", "--to", str(tmp_path / "x.xlsx")], "x.xlsx: a file ends in .csv, .jsonl"),
    ]:
        found = CliRunner().invoke(program, ["export", *words, *place(store)])
        assert found.exit_code in (1, 2)
        assert said in found.output
    assert os.listdir(tmp_path) == []


def test_an_export_that_ends_between_its_files_leaves_no_old_state(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store)
    run(store, "export", "readings", "--to", str(tmp_path))
    monkeypatch.setattr(disk, "replace_file", lambda *given, **named: sys.exit(9))
    run(store, "export", "readings", "--to", str(tmp_path), "--replace", status=9)
    assert os.listdir(tmp_path) == ["readings.parquet"]


def test_an_export_ends_when_ever_more_entries_become_pending(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for at in range(1, 41):
        store.xadd("s", {"n": at}, id=f"{at}-0")
    store.xgroup_create("s", "g", "0")
    command = Connection.command

    def delivering(connection: Connection, *words: Any) -> Any:
        found = command(connection, *words)
        if words[:2] == ("XINFO", "GROUPS"):
            store.xreadgroup("g", "c", {"s": ">"}, count=deliveries.pop() if deliveries else 3)
        return found

    monkeypatch.setattr(Connection, "command", delivering)
    deliveries: list[int] = []
    said = run(store, "export", "s", "--to", str(tmp_path), status=1)
    assert "more and more entries of stream 's' become pending" in said
    assert os.listdir(tmp_path) == []
    deliveries = [1, 3, 3]  # of the last, a reply has room for one more
    run(store, "export", "s", "--to", str(tmp_path))


def test_a_file_of_another_export_is_refused(store: Store, tmp_path: Path) -> None:
    fill(store)
    run(store, "export", "readings", "trimmed", "--to", str(tmp_path))
    other = str(tmp_path / "other.parquet")
    os.replace(tmp_path / "readings.parquet.groups.json", other + ".groups.json")
    store.xadd("readings", {"n": 1}, id="1900000000000-0")
    run(store, "history", "readings", "--format", "parquet", "--out", other)
    assert "belongs to another export" in run(store, "load", other, "--into", "new", status=1)
    os.replace(tmp_path / "trimmed.parquet", other)
    assert "is not the file that" in run(store, "load", other, "--into", "newer", status=1)
    Path(other + ".groups.json").write_text("{}")
    assert "does not hold the state of a stream" in run(store, "load", other, status=1)


# --- Other files ------------------------------------------------------------------------------------------------------


def entries(client: Store, key: str) -> list[dict[bytes, bytes]]:
    return [fields for _, fields in client.xrange(key)]


def test_tables_become_entries(store: Store, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('id,celsius,note\n17,1.50,"say ""hi""\nthere"\n18,,""\n')
    run(store, "load", str(tmp_path / "a.csv"), "--into", "s")
    expected = [
        {b"id": b"17", b"celsius": b"1.50", b"note": b'say "hi"\nthere'},
        {b"id": b"18", b"note": b""},
    ]
    assert entries(store, "s") == expected
    (tmp_path / "a.jsonl").write_text(
        '{"id": 17, "celsius": 1.50, "x": null, "n": {"a": [1]}, "t": true}\n\n{"b": "\\u00e9"}'
    )
    run(store, "load", str(tmp_path / "a.jsonl"), "--into", "j")
    assert entries(store, "j") == [
        {b"id": b"17", b"celsius": b"1.50", b"n": b'{"a": [1]}', b"t": b"true"},
        {b"b": "\u00e9".encode()},
    ]


def test_columns_name_the_stream_and_the_id(store: Store, tmp_path: Path) -> None:
    rows = "when,stream,n\n5-1,a,1\n5-2,b,2\n6,a,3\n"
    run(store, "load", "-", "--format", "csv", "--id-column", "when", data=rows.encode())
    assert store.xrange("a") == [(b"5-1", {b"n": b"1"}), (b"6-0", {b"n": b"3"})]
    assert store.xrange("b") == [(b"5-2", {b"n": b"2"})]
    # With a key given the column is a field like others.
    run(store, "load", "-", "--format", "csv", "--into", "c", "--new-ids", "--id-column", "x", data=b"", status=2)
    run(store, "load", "-", "--format", "csv", "--into", "c", data=rows.encode())
    assert entries(store, "c")[1] == {b"when": b"5-2", b"stream": b"b", b"n": b"2"}


def test_many_streams_need_few_connections(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("stream,n\n" + "".join(f"s{at},{at}\n" for at in range(100)))
    before = store.info("stats")["total_connections_received"]
    run(store, "load", str(path))
    assert all(store.xlen(f"s{at}") == 1 for at in range(100))
    assert store.info("stats")["total_connections_received"] - before < 10


def test_types_of_parquet_have_a_text_form(store: Store, tmp_path: Path) -> None:
    import datetime
    import decimal

    import pyarrow.parquet as pq

    table = pa.table(
        {
            "n": [1, None],
            "x": [0.1, 1e20],
            "d": [decimal.Decimal("1.50"), None],
            "at": [datetime.datetime(2024, 2, 29, 12, 30, tzinfo=datetime.UTC), None],
            "kind": pa.array(["a", "b"]).dictionary_encode(),
            "ns": pa.array([1_709_209_800_123_456_789, None], pa.timestamp("ns", "UTC")),
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    run(store, "load", str(tmp_path / "t.parquet"), "--into", "s", "--nulls", "empty")
    assert entries(store, "s") == [
        {
            b"n": b"1",
            b"x": b"0.1",
            b"d": b"1.50",
            b"at": b"2024-02-29T12:30:00.000000Z",
            b"kind": b"a",
            b"ns": b"2024-02-29T12:30:00.123456789Z",
        },
        {b"n": b"", b"x": b"1e+20", b"d": b"", b"at": b"", b"kind": b"b", b"ns": b""},
    ]
    pq.write_table(pa.table({"l": [[1]]}), tmp_path / "l.parquet")
    assert "column l is Arrow's list" in run(store, "load", str(tmp_path / "l.parquet"), "--into", "s", status=1)


def test_load_says_what_is_wrong(store: Store, tmp_path: Path) -> None:
    files = {
        "a.csv": "x,x\n1,2\n", "b.jsonl": '{"a":1}\n{"a":\n', "c.csv": "id,a\n1-1,1\n,2\n", "d.csv": "id,a\n2-2,1\n1-1,2\n",
        "e.csv": "a,b\n1\n", "f.parquet": "no", "g.txt": "", "h.csv": "a\n1\n",
    }  # fmt: skip
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    for name, said in [
        ("a.csv", "a.csv: two columns have the same name"),
        ("b.jsonl", "b.jsonl: line 2, character 6: wrong JSON"),
        ("c.csv", "c.csv: row 2 has no value in column id"),
        ("d.csv", "d.csv: stream s: ERR The ID specified in XADD is equal or smaller"),
        ("e.csv", "e.csv: CSV parse error: Expected 2 columns, got 1"),
        ("f.parquet", "f.parquet: "),
        ("g.txt", "does not say what is in it"),
    ]:
        said_there = run(store, "load", str(tmp_path / name), "--into", "s", status=1)
        assert said in said_there, said_there
        assert "Traceback" not in said_there
        assert len(said_there.splitlines()) == 1
    assert "does not say which stream it is of" in run(store, "load", str(tmp_path / "h.csv"), status=1)
    store.set("s", "a string")
    assert "s does not hold a stream" in run(store, "load", str(tmp_path / "h.csv"), "--into", "s", status=1)


def test_an_empty_file_is_loaded_quickly(store: Store, tmp_path: Path) -> None:
    for name, text in {"a.csv": "x,y\n", "b.jsonl": "\n", "c.csv": ""}.items():
        (tmp_path / name).write_text(text)
    said = run(store, "load", str(tmp_path), "--into", "s")
    assert said.count("0 entries into no stream") == 3


# --- Once -------------------------------------------------------------------------------------------------------------

ROWS = 60_000


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("large") / "rows.csv"
    path.write_text("n,text\n" + "".join(f"{at},{at * 7919 % 1000} of a text\n" for at in range(ROWS)))
    return path


def test_the_same_file_is_loaded_once(store: Store, large: Path) -> None:
    assert "60,000 entries into s (" in run(store, "load", str(large), "--into", "s")
    assert "60,000 of them before" in run(store, "load", str(large), "--into", "s")
    assert store.xlen("s") == ROWS
    run(store, "load", str(large), "--into", "s", "--again")
    assert store.xlen("s") == 2 * ROWS
    assert all(store.pttl(key) > 0 for key in store.keys("streamd:load:*"))


def test_of_a_folder_only_what_is_new_is_loaded(store: Store, tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_text("n\n1\n2\n")
    run(store, "load", str(tmp_path), "--into", "s")
    (tmp_path / "a.csv").write_text("n\n3\n")
    run(store, "load", str(tmp_path), "--into", "s")
    assert [fields[b"n"] for fields in entries(store, "s")] == [b"1", b"2", b"3"]


def test_a_stream_that_was_deleted_since_is_loaded_again(store: Store, large: Path) -> None:
    run(store, "load", str(large), "--into", "s")
    store.delete("s")
    run(store, "load", str(large), "--into", "s")
    assert store.xlen("s") == ROWS
    store.delete("s")
    load_until(10_000, signal.SIGKILL, store, large)
    store.delete("s")
    run(store, "load", str(large), "--into", "s")
    assert [int(fields[b"n"]) for fields in entries(store, "s")] == [*range(ROWS)]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_load_that_ends_in_the_middle_is_continued(number: int, store: Store, large: Path) -> None:
    for reached in (5_000, 20_000, 40_000):
        load_until(reached, number, store, large)
    said = run(store, "load", str(large), "--into", "s")
    assert re.search(r"60,000 entries into s(, [\d,]+ of them before)?[ ;]", said)
    assert [int(fields[b"n"]) for fields in entries(store, "s")] == [*range(ROWS)]


def load_until(reached: int, number: int, store: Store, path: Path) -> None:
    """Load a file until the stream has so many entries, or all; then the process gets a signal."""
    words = ["load", str(path), "--into", "s", *place(store)]
    with subprocess.Popen(
        [sys.executable, "-m", "streamd", *words], env=python_environment(), stderr=subprocess.DEVNULL
    ) as loading:
        eventually(lambda: store.xlen("s") >= reached or loading.poll() is not None)
        loading.send_signal(number)
    # What it had sent is executed before the server sees its end.
    newest = store.client_id()
    eventually(lambda: all(int(each["id"]) <= newest for each in store.client_list()), what="its connections have gone")


STAGED = "streamd:load:{big}:*:stream"


@pytest.fixture
def replacing(store: Store, tmp_path: Path) -> tuple[Store, Path, list[Any], list[Any]]:
    """A stream `big` that a file is to replace: the file, the entries that are there and those of the file."""
    for start in range(0, ROWS, 10_000):
        pipe = store.pipeline(transaction=False)
        for at in range(start, start + 10_000):
            pipe.xadd("big", {"n": at}, id=f"{at + 1}-0")
        pipe.execute()
    new = store.xrange("big")
    run(store, "export", "big", "--to", str(tmp_path), "--format", "csv")
    store.delete("big")
    store.xadd("big", {"old": 1}, id="7-7")
    return store, tmp_path, store.xrange("big"), new


def replace_until(reached: int, number: int, store: Store, path: Path) -> int:
    """Load a file until the new stream has so many entries, or has replaced the other; then the process gets a signal.

    Returns how many it had.
    """
    found = 0

    def is_reached() -> bool:
        nonlocal found
        found = max([found, *(store.xlen(key) for key in store.keys(STAGED))])
        return bool(found >= reached)

    words = ["load", str(path), "--replace", *place(store)]
    with subprocess.Popen(
        [sys.executable, "-m", "streamd", *words], env=python_environment(), stderr=subprocess.DEVNULL
    ) as loading:
        eventually(lambda: is_reached() or loading.poll() is not None)
        loading.send_signal(number)
    return found


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_stream_is_replaced_when_the_new_one_is_whole(
    number: int, replacing: tuple[Store, Path, list[Any], list[Any]]
) -> None:
    store, path, old, new = replacing
    for reached in (5_000, 20_000, 40_000):
        replace_until(reached, number, store, path)
        assert store.xrange("big") in (old, new)
        assert all(store.pttl(key) > 0 for key in store.keys("streamd:load:*"))
    run(store, "load", str(path), "--replace")
    assert store.xrange("big") == new
    assert store.keys(STAGED) == []
    assert store.ttl("big") == -1


@pytest.mark.parametrize(
    "change", ["XADD s 4-0 n 4", "XDEL s 2-0", "XREADGROUP GROUP g c COUNT 1 STREAMS s >", "XACK s g 1-0"]
)
def test_a_stream_that_has_changed_since_is_not_replaced_by_the_way(change: str, store: Store, tmp_path: Path) -> None:
    for at in range(1, 4):
        store.xadd("s", {"n": at}, id=f"{at}-0")
    store.xgroup_create("s", "g", "0")
    store.xreadgroup("g", "c", {"s": ">"}, count=1)
    run(store, "export", "s", "--to", str(tmp_path))
    expected = shown(store, b"s")
    load = ("load", str(tmp_path), "--replace")
    run(store, *load)
    assert "3 of them before" in run(store, *load)
    store.execute_command(*change.split())
    assert "has changed since" in run(store, *load, status=1)
    assert shown(store, b"s") != expected
    run(store, *load, "--again")
    assert shown(store, b"s") == expected


OTHERS = {"string": "SET s value", "list": "RPUSH s a", "hash": "HSET s f v", "set": "SADD s a", "zset": "ZADD s 1 a"}


@pytest.mark.parametrize(
    "kind", [pytest.param(each, marks=() if each == "string" else pytest.mark.real) for each in OTHERS]
)
@pytest.mark.parametrize("is_loaded_before", [False, True])
def test_a_key_of_another_type_is_not_replaced(
    is_loaded_before: bool, kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    server = request.getfixturevalue("streamd_server" if kind == "string" else "redis_server")
    (tmp_path / "out").mkdir()
    for store in emptied(server):
        store.xadd("s", {"n": 1}, id="1-0")
        run(store, "export", "s", "--to", str(tmp_path / "out"))
        load = ("load", str(tmp_path / "out"), "--replace")
        if is_loaded_before:
            run(store, *load)
        store.delete("s")
        store.execute_command(*OTHERS[kind].split())
        keys, value = store.keys(), store.dump("s")
        for words in (load, (*load, "--again")):
            said = run(store, *words, status=1)
            assert f"the key 's' holds a {kind}, which --replace does not replace by the stream of " in said
            assert len(said.splitlines()) == 1, said
            assert store.dump("s") == value
            assert sorted(store.keys()) == sorted(keys)


def test_a_stream_that_gives_way_to_another_type_during_the_load_is_not_replaced(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store)
    run(store, "export", "readings", "--to", str(tmp_path))
    restore = stream_copy.restore

    def restore_then_set(*given: Any, **named: Any) -> None:
        restore(*given, **named)
        store.set("readings", "value")

    monkeypatch.setattr(load_module, "restore", restore_then_set)
    said = run(store, "load", str(tmp_path), "--replace", status=1)
    assert "the key 'readings' holds a string" in said
    assert store.get("readings") == b"value"
    assert store.keys("streamd:load:*") == []


@pytest.mark.parametrize("how", ["gone", "shorter"])
def test_a_new_stream_that_lost_entries_replaces_nothing(
    how: str, replacing: tuple[Store, Path, list[Any], list[Any]]
) -> None:
    store, path, old, new = replacing
    replace_until(5_000, signal.SIGKILL, store, path)
    staged = store.keys(STAGED)
    if not staged:
        return  # the load was faster than the signal
    if how == "gone":
        store.delete(*staged)
    else:
        store.xtrim(staged[0], maxlen=10, approximate=False)
        assert "the server has evicted it" in run(store, "load", str(path), "--replace", status=1)
        assert store.xrange("big") == old
        assert store.keys("streamd:load:*") == []
    run(store, "load", str(path), "--replace")
    assert store.xrange("big") == new


def test_a_new_stream_that_goes_at_the_last_moment_leaves_the_old_one_as_it_is(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store)
    run(store, "export", "readings", "--to", str(tmp_path))
    store.expire("readings", 1000)
    transaction = Connection.transaction

    def evicted(self: Connection, requests: Any) -> Any:
        if requests[0][0] == "RENAME":
            store.delete(requests[0][1])
        return transaction(self, requests)

    with monkeypatch.context() as patched:
        patched.setattr(Connection, "transaction", evicted)
        assert "the server has evicted it" in run(store, "load", str(tmp_path), "--replace", status=1)
    assert 0 < store.ttl("readings") <= 1000
    assert store.keys("streamd:load:*") == []
    run(store, "load", str(tmp_path), "--replace")
    assert store.ttl("readings") > 1000


def test_only_exports_replace_streams(store: Store, tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("n\n1\n")
    store.xadd("s", {"old": 1}, id="7-7")
    assert f"there is no {rows}.groups.json" in run(store, "load", str(rows), "--into", "s", "--replace", status=1)
    assert "not with --no-groups" in run(store, "load", str(rows), "--replace", "--no-groups", status=2)
    assert store.xlen("s") == 1


def test_a_named_pipe_is_refused(store: Store, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "rows.csv")
    assert "a pipe is loaded as -" in run(store, "load", str(tmp_path / "rows.csv"), "--into", "s", status=1)


@pytest.mark.real
def test_a_load_stays_in_one_slot(store: Store, new_redis: Callable[..., Server], tmp_path: Path) -> None:
    cluster = new_redis(cluster_enabled="yes", cluster_port=str(free_port()))
    with redis.Redis(port=cluster.port, protocol=2) as client:
        ask(client, "CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        eventually(lambda: b"cluster_state:ok" in ask(client, "CLUSTER", "INFO"))
        for at, key in enumerate(["plain", "a tag {of} it", "a{b", "{a}{b}"]):
            store.xadd(key, {"n": 1}, id="1-1")
            store.xgroup_create(key, "g", "0")
            run(store, "export", key, "--to", str(tmp_path / str(at)))
            for how in ((), ("--again", "--replace")):
                run(client, "load", str(tmp_path / str(at)), *how)
                assert shown(client, key.encode()) == shown(store, key.encode())


def test_a_file_that_changes_in_the_middle_is_noticed(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("n\n" + "".join(f"{at}\n" for at in range(3_000)) + "bad,row\n")
    run(store, "load", str(path), "--into", "s", "--name", "mine", status=1)
    written = store.xlen("s")
    if written:
        path.write_text("n\n" + "".join(f"{at + 1}\n" for at in range(3_000)))
        assert "repeated with other rows" in run(store, "load", str(path), "--into", "s", "--name", "mine", status=1)
    path.write_text("n\n" + "".join(f"{at}\n" for at in range(3_000)))
    run(store, "load", str(path), "--into", "s", "--name", "mine")
    assert [int(fields[b"n"]) for fields in entries(store, "s")] == [*range(3_000)]
