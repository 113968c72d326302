"""Bases: what is written, as a snapshot or as commands, brings everything back."""

from __future__ import annotations

import io
import random
from pathlib import Path

import pytest
from support.commands.handler import set_time
from support.files.aof import FailingDisk, Store, commands, open_aof

from streamd.persistence.aof.reader import AofReader
from streamd.persistence.aof.rewrite import BaseOptions, write_base
from streamd.persistence.rdb.format import WriteOptions

NOW = 1_700_000_000_000


def filled() -> Store:
    """Streams of all sorts."""
    store = Store()
    run = store.run
    for n in range(1, 8):
        run("XADD", "s", f"{n}-1", "f", f"v{n}", "n", n)
    run("XGROUP", "CREATE", "s", "g", "0")
    run("XREADGROUP", "GROUP", "g", "c", "COUNT", 4, "STREAMS", "s", ">")
    set_time(store.context, NOW + 5000)
    run("XCLAIM", "s", "g", "77", 0, "2-1", "RETRYCOUNT", 9)
    run("XGROUP", "CREATECONSUMER", "s", "g", "idle")
    run("XGROUP", "CREATE", "s", "other", "$", "ENTRIESREAD", 7)
    run("XDEL", "s", "6-1")
    run("SET", "text", "12")
    run("SET", b"\x00\xff", b"\r\n*1", "PXAT", NOW + 10**9)
    run("XGROUP", "CREATE", "only-group", "g", "5-5", "MKSTREAM")
    run("XADD", "emptied", "9-9", "f", "v")
    run("XDEL", "emptied", "9-9")
    run("PEXPIREAT", "emptied", NOW + 10**9)
    return store


def with_missing() -> Store:
    """Pending entries whose entries are gone, in the middle, in front, and of a stream that has none left."""
    store = filled()
    run = store.run
    run("XDEL", "s", "2-1")
    run("XTRIM", "s", "MINID", "3-1")
    for n in range(1, 4):
        run("XADD", "gone", f"{n}-0", "f", "v")
    run("XGROUP", "CREATE", "gone", "g", "0")
    run("XREADGROUP", "GROUP", "g", "c", "STREAMS", "gone", ">")
    run("XTRIM", "gone", "MAXLEN", 0)
    return store


def with_producers() -> Store:
    store = filled()
    run = store.run
    for iid in ("a", "b", "a", "c"):
        run("XADD", "p", "IDMP", "producer", iid, "*", "f", "v")
    run("XCFGSET", "q", "IDMP-DURATION", 50)
    run("XADD", "q", "1-1", "f", "v")
    run("XCFGSET", "q", "IDMP-DURATION", 50, "IDMP-MAXSIZE", 7)
    run("XADD", "q", "IDMP", "p2", "x", "*", "f", "v")
    run("XADD", "q", "IDMP", "p2", "y", "*", "f", "v")
    run("XDEL", "q", store.run("XRANGE", "q", "-", "+")[1][0])
    return store


def with_nacked() -> Store:
    """Pending entries that nobody owns, in another order than that of their IDs; some are gone, and one is all there is."""
    store = filled()
    run = store.run
    run("XNACK", "s", "g", "FAIL", "IDS", 2, "4-1", "1-1", "RETRYCOUNT", 2)
    run("XNACK", "s", "g", "FATAL", "IDS", 2, "7-1", "3-1", "FORCE")
    run("XNACK", "s", "g", "SILENT", "IDS", 1, "2-1")
    run("XGROUP", "CREATECONSUMER", "s", "g", "")
    run("XDEL", "s", "3-1", "4-1")
    run("XNACK", "s", "other", "FAIL", "IDS", 1, "5-1", "FORCE")
    for n in range(1, 200):
        run("XADD", "many", f"{n}-0", "f", "v")
    run("XGROUP", "CREATE", "many", "g", "0")
    run("XNACK", "many", "g", "FAIL", "IDS", 199, *(f"{n}-0" for n in range(199, 0, -1)), "FORCE")
    run("XADD", "one", "1-1", "f", "v")
    run("XGROUP", "CREATE", "one", "g", "0")
    run("XNACK", "one", "g", "FATAL", "IDS", 1, "1-1", "FORCE")
    run("XTRIM", "one", "MAXLEN", 0)
    return store


def copied(store: Store, tmp_path: Path, **options: object) -> Store:
    path = tmp_path / "base"
    store.write_base(str(path), **options)
    folder = tmp_path / "d" / "appendonlydir"
    folder.mkdir(parents=True)
    path.rename(folder / "appendonly.aof.1.base.rdb")
    (folder / "appendonly.aof.manifest").write_bytes(b"file appendonly.aof.1.base.rdb seq 1 type b\n")
    other = Store()
    set_time(other.context, NOW + 9000)
    open_aof(folder.parent, other).close()
    return other


@pytest.mark.parametrize("use_rdb_preamble", [True, False])
@pytest.mark.parametrize("form", ["8.10", "8.8", "8.6"])
@pytest.mark.parametrize("make", [filled, with_missing, with_producers, with_nacked, Store])
def test_everything_comes_back(tmp_path: Path, make: type[Store], use_rdb_preamble: bool, form: str) -> None:
    store = make()
    other = copied(store, tmp_path, use_rdb_preamble=use_rdb_preamble, rdb=WriteOptions(form))
    assert other.state() == store.state()


def test_what_nobody_owns_is_written_for_readers_old_and_new(tmp_path: Path) -> None:
    store = with_nacked()
    store.write_base(str(tmp_path / "new"), use_rdb_preamble=False, rdb=WriteOptions("8.8"))
    store.write_base(str(tmp_path / "old"), use_rdb_preamble=False)
    new, old = (tmp_path / name for name in ("new", "old"))
    written = requests_of(new.read_bytes())
    of_many = [args for args in written if args[:2] == [b"XNACK", b"many"]]
    assert [int(args[5]) for args in of_many] == [64, 64, 64, 7]
    assert of_many[0][:8] == b"XNACK many g FAIL IDS 64 199-0 198-0".split()
    assert [args for args in written if args[:2] == [b"XNACK", b"s"]] == commands(
        "XNACK s g FAIL IDS 2 4-1 1-1 RETRYCOUNT 2 FORCE",
        "XNACK s g FAIL IDS 2 7-1 3-1 RETRYCOUNT 9223372036854775807 FORCE",
        "XNACK s g FAIL IDS 1 2-1 RETRYCOUNT 8 FORCE",
        "XNACK s other FAIL IDS 1 5-1 RETRYCOUNT 0 FORCE",
    )
    written = requests_of(old.read_bytes())
    assert not [args for args in written if args[0] == b"XNACK"]
    claims = [args for args in written if args[:2] == [b"XCLAIM", b"s"] and args[4] == b"-1"]
    assert [(args[3], args[5], args[7], args[9]) for args in claims] == [
        (b"\0", b"4-1", b"0", b"2"), (b"\0", b"1-1", b"1", b"2"), (b"\0", b"7-1", b"2", b"9223372036854775807"),
        (b"\0", b"3-1", b"3", b"9223372036854775807"), (b"\0", b"2-1", b"4", b"8"), (b"", b"5-1", b"0", b"0"),
    ]  # fmt: skip


def requests_of(data: bytes) -> list[list[bytes]]:
    """The commands of a file."""
    reader = AofReader(io.BytesIO(data), len(data))
    return list(iter(reader.next_command, None))


def test_several_databases_come_back(tmp_path: Path) -> None:
    store = Store()
    for index in (3, 0, 15):
        store.context.db = store.databases[index]
        store.run("XADD", "s", f"{index}-1", "f", "v")
    assert copied(store, tmp_path, use_rdb_preamble=False).state() == store.state()


def test_settings_of_idempotency_are_written_when_they_are_not_everybody_s(tmp_path: Path) -> None:
    store = Store()
    store.run("XADD", "s", "1-1", "f", "v")
    store.write_base(str(tmp_path / "same"), use_rdb_preamble=False)
    store.context.stream_idmp_duration = 50
    store.write_base(str(tmp_path / "other"), use_rdb_preamble=False, rdb=WriteOptions(context=store.context))
    assert b"XCFGSET" not in (tmp_path / "same").read_bytes()
    assert b"XCFGSET" in (tmp_path / "other").read_bytes()


def test_a_base_of_commands_is_never_empty_and_notes_the_time(tmp_path: Path) -> None:
    path = tmp_path / "base"
    Store().write_base(str(path), use_rdb_preamble=False, timestamp=True)
    assert path.read_bytes().startswith(b"#TS:1700000000\r\n#STREAMD")


@pytest.mark.parametrize("operation", ["write", "sync", "sync_data"])
@pytest.mark.parametrize("use_rdb_preamble", [True, False])
def test_a_base_that_cannot_be_written_leaves_no_file(tmp_path: Path, operation: str, use_rdb_preamble: bool) -> None:
    store = Store()
    noise = random.Random(1)
    for n in range(1, 60):
        store.run("SET", f"k{n}", noise.randbytes(131072))
    disk = FailingDisk()
    disk.fail(operation)
    options = BaseOptions(use_rdb_preamble=use_rdb_preamble, incremental_fsync=True)
    with pytest.raises(OSError, match="Input/output"):
        write_base(str(tmp_path / "base"), store.databases, options, now_ms=NOW, disk=disk)
    assert list(tmp_path.iterdir()) == []
