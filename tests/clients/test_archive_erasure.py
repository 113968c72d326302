"""`archive delete`: where values of deleted entries were before, and are not any more, or not for long (docs/archive.md, Deleting).

files of the archive, of its tables, of a merge    test_typed_tables.py, test_archive_background_merge.py
the cache of each process that reads for the server; pending entries of a group    here
earlier snapshots and versions of open tables      here
the server's own files, once they are rewritten   here
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.servers import eventually, python_environment

pytest.importorskip("pyarrow", reason="archives need streamd-server[archive]")

from support.tiers import ARCHIVED, FIRST_MS, KEY, UNCUT, Stage, id_at

from streamd.archive.delete import delete
from streamd.archive.layout import Layout
from streamd.archive.open_format import TableConfig

pytestmark = pytest.mark.long

DELETED = (0, 5, 120, ARCHIVED - 1)
SECRET = b"secret-of-one-entry"


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(
        tmp_path, stream_archive_readers="2", stream_archive_groups="yes", appendonly="yes", rdbcompression="no"
    )
    yield made
    made.close()


def delete_some(stage: Stage, *numbers: int) -> list[str]:
    """Delete entries from the archive and the server; return their IDs."""
    command = [sys.executable, "-m", "streamd", "archive", "delete", stage.place, KEY, "--yes"]
    ids = [id_at(each) for each in numbers]
    words = [word for each in ids for word in ("--id", each)]
    subprocess.run(
        [*command, *words, "--port", str(stage.server.port)], env=python_environment(), check=True, timeout=100
    )
    return ids


def read_by_both(stage: Stage, first: int) -> None:
    """Each of two processes answers some of the reads: the one that is asked first is stopped during the others."""
    other = stage.server.connect()
    os.kill(first, signal.SIGSTOP)
    try:
        other.send("XRANGE", KEY, "-", "+")
        eventually(lambda: b"blocked_clients:1" in stage.call("INFO", "clients"), what="a client that waits")
        stage.assert_whole()
        for each in map(id_at, DELETED):
            stage.assert_equal("XRANGE", each, each)
            stage.assert_equal("XREVRANGE", each, "-", "COUNT", 3)
        os.kill(first, signal.SIGCONT)
        assert other.read() == stage.wire.call("XRANGE", UNCUT, "-", "+")
    finally:
        os.kill(first, signal.SIGCONT)
        other.close()


def test_no_process_answers_with_a_deleted_entry_that_it_has_in_its_cache(stage: Stage) -> None:
    stage.prepare()
    stage.assert_whole()
    (first,) = stage.readers()
    read_by_both(stage, first)
    pids = stage.readers()
    assert len(pids) == 2
    ids = delete_some(stage, *DELETED)
    stage.call("XDEL", UNCUT, *ids)
    read_by_both(stage, first)
    assert stage.readers() == pids
    found = stage.call("XREAD", "STREAMS", KEY, "0")[0][1]
    assert [entry[0] for entry in found] == [entry[0] for entry in stage.call("XRANGE", UNCUT, "-", "+")]


def test_consumers_do_not_share_a_deleted_entry_that_was_read_ahead(stage: Stage) -> None:
    stage.prepare()
    stage.call("XGROUP", "CREATE", KEY, "group", "0")

    def read(count: int) -> list[bytes]:
        return [
            entry[0]
            for entry in stage.call("XREADGROUP", "GROUP", "group", "one", "COUNT", count, "STREAMS", KEY, ">")[0][1]
        ]

    ids = [id_at(at).encode() for at in range(10)]
    assert read(1) == ids[:1]
    delete(stage.place, KEY, {"port": str(stage.server.port)}, [((FIRST_MS << 64) | 2, (FIRST_MS << 64) | 2)])
    assert read(4) == [ids[1], *ids[3:6]]


def test_a_pending_entry_that_is_deleted_is_not_delivered_again(stage: Stage) -> None:
    stage.prepare()
    stage.call("XGROUP", "CREATE", KEY, "group", "0")
    delivered = stage.call("XREADGROUP", "GROUP", "group", "one", "COUNT", 10, "STREAMS", KEY, ">")[0][1]
    assert [entry[0] for entry in delivered] == [id_at(at).encode() for at in range(10)]
    delete_some(stage, 5)
    history = dict(stage.call("XREADGROUP", "GROUP", "group", "one", "STREAMS", KEY, "0")[0][1])
    assert history.pop(id_at(5).encode(), None) is None
    assert history == {entry_id: fields for entry_id, fields in delivered if entry_id != id_at(5).encode()}
    claimed = stage.call("XAUTOCLAIM", KEY, "group", "two", 0, "0")[1]
    assert [entry[0] for entry in claimed] == [id_at(at).encode() for at in range(10) if at != 5]


def test_the_files_of_the_server_have_it_until_they_are_written_anew(stage: Stage) -> None:
    stage.add(5)
    gone = f"{FIRST_MS + 1000}-0"
    stage.call("XADD", KEY, gone, "card", SECRET)
    stage.call("XADD", KEY, f"{FIRST_MS + 1001}-0", "card", b"kept")
    stage.archived()
    stage.call("SAVE")

    def files_with(value: bytes) -> set[str]:
        return {
            each.relative_to(stage.folder).parts[0]
            for each in stage.folder.rglob("*")
            if each.is_file() and "archive" not in each.relative_to(stage.folder).parts and value in each.read_bytes()
        }

    assert files_with(SECRET) == {"appendonlydir"}
    number = FIRST_MS + 1000 << 64
    delete(stage.place, KEY, {"port": str(stage.server.port)}, [(number, number)])
    assert files_with(SECRET) == {"appendonlydir"}  # as the manual says
    stage.call("BGREWRITEAOF")
    eventually(lambda: files_with(SECRET) == set(), 100, "a rewritten append-only file")


def test_a_snapshot_of_the_server_has_it_until_the_next_one(stage: Stage) -> None:
    gone = f"{FIRST_MS + 1000}-0"
    stage.call("XADD", KEY, gone, "card", SECRET)
    stage.archived(trim=False)
    stage.call("SAVE")
    dump = stage.folder / "dump.rdb"
    assert SECRET in dump.read_bytes()
    number = FIRST_MS + 1000 << 64
    delete(stage.place, KEY, {"port": str(stage.server.port)}, [(number, number)])
    assert SECRET in dump.read_bytes()
    stage.call("SAVE")
    assert SECRET not in dump.read_bytes()


def test_no_earlier_version_of_a_table_has_it(stage: Stage) -> None:
    deltalake = pytest.importorskip("deltalake", reason="open tables need streamd-server[tables]")
    pytest.importorskip("pyiceberg", reason="open tables need streamd-server[tables]")
    from support.archives.table_readers import iceberg_table

    for number in range(3):
        stage.call("XADD", KEY, f"{FIRST_MS + number}-0", "card", SECRET if number == 1 else b"kept")
        stage.archived(publish=(TableConfig("delta"), TableConfig("iceberg")), trim=False)
    before = iceberg_table(stage.archive)
    assert SECRET in values_of(before.scan(snapshot_id=before.snapshots()[-1].snapshot_id).to_arrow())
    number = FIRST_MS + 1 << 64
    delete(stage.place, KEY, {"port": str(stage.server.port)}, [(number, number)])

    after = iceberg_table(stage.archive)
    for snapshot in after.snapshots():
        assert values_of(after.scan(snapshot_id=snapshot.snapshot_id).to_arrow()) == [b"kept", b"kept"]
    for snapshot in before.snapshots():  # by a program that has read the metadata earlier
        try:
            found = values_of(before.scan(snapshot_id=snapshot.snapshot_id).to_arrow())
        except FileNotFoundError:
            continue
        assert SECRET not in found
    folder = str(Layout(stage.place).root / "data")
    for version in range(deltalake.DeltaTable(folder).version() + 1):
        try:
            found = values_of(deltalake.DeltaTable(folder, version=version).to_pyarrow_table())
        except FileNotFoundError:
            continue
        assert SECRET not in found
    assert values_of(deltalake.DeltaTable(folder).to_pyarrow_table()) == [b"kept", b"kept"]


def values_of(table: object) -> list[bytes]:
    rows = table.column("fields").to_pylist()  # type: ignore[attr-defined]
    return [pair["value"] for row in rows for pair in row]
