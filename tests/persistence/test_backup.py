"""BACKUP: its states, what it contains, what a server that is killed leaves of it, and loading it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.servers import Server, eventually
from support.wire import Reply, Wire

pytestmark = pytest.mark.long

StartServer = Callable[..., Server]

OK = Reply("+", b"OK")
SLOW_US = "100000000"
FILES = ["appendonly.aof.1.base.rdb", "appendonly.aof.1.incr.aof", "appendonly.aof.manifest"]


def status(wire: Wire) -> dict[str, str]:
    reply = wire.call("BACKUP", "STATUS")
    words = [word.decode() for word in reply.plain()]
    assert words[::2] == ["state", "error", "start_time", "end_time"]
    return dict(zip(words[::2], words[1::2], strict=True))


def state(wire: Wire) -> str:
    return status(wire)["state"]


def info(wire: Wire, name: str) -> str:
    lines = wire.call("INFO", "persistence").value.decode().split("\r\n")
    return next(line.partition(":")[2] for line in lines if line.startswith(f"{name}:"))


def reach(wire: Wire, wanted: str) -> None:
    """Bring a backup into a state."""
    if wanted == "idle":
        return
    if wanted in ("pending", "snapshotting"):
        wire.call("DEBUG", "POPULATE", "1000")
        assert wire.call("CONFIG", "SET", "rdb-key-save-delay", SLOW_US) == OK
        if wanted == "pending":
            wire.call("BGSAVE")
        assert wire.call("BACKUP", "START") == OK
    else:
        assert wire.call("BACKUP", "START") == OK
        eventually(lambda: state(wire) == "incrementing")
        if wanted == "sealed":
            assert wire.call("BACKUP", "SEAL") == OK
        elif wanted == "failed":
            assert wire.call("BACKUP", "ABORT") == OK
    assert state(wire) == wanted


def write(wire: Wire, number: int) -> None:
    """Changes of all kinds, in two databases."""
    for each in range(20):
        wire.call("XADD", "s", f"{number}-{each + 1}", "f", f"v{each}")
    wire.call("XGROUP", "CREATE", "s", f"g{number}", "0")
    wire.call("XREADGROUP", "GROUP", f"g{number}", "alice", "COUNT", 7, "STREAMS", "s", ">")
    wire.call("XACK", "s", f"g{number}", f"{number}-1")
    wire.pipeline([["MULTI"], ["SET", "k", number], ["XDEL", "s", f"{number}-3"], ["EXEC"]])
    wire.pipeline([["SELECT", 3], ["SET", f"other{number}", "v"], ["SELECT", 0]])


def content(wire: Wire) -> list[object]:
    """Everything there is but the times of consumers; the same on a streamd and on a Redis."""
    found: list[object] = []
    for db in (0, 3):
        wire.call("SELECT", db)
        for key in sorted(wire.call("KEYS", "*").plain()):
            if wire.call("TYPE", key).value == b"string":
                found += [key, wire.call("GET", key)]
                continue
            info_ = wire.call("XINFO", "STREAM", key)
            found += [key, info_, wire.call("XRANGE", key, "-", "+"), wire.call("XINFO", "GROUPS", key)]
            for group in wire.call("XINFO", "GROUPS", key).plain():
                pending = wire.call("XPENDING", key, group[1], "-", "+", 1000).plain()
                found += [(entry, consumer, count) for entry, consumer, _, count in pending]
    wire.call("SELECT", 0)
    return found


# --- States -----------------------------------------------------------------------------------------------------------

STATES = ["idle", "pending", "snapshotting", "incrementing", "sealed", "failed"]
IN_PROGRESS = {"pending", "snapshotting", "incrementing"}


@pytest.mark.parametrize("before", STATES)
def test_what_each_command_does_in_each_state(new_streamd: StartServer, before: str) -> None:
    server = new_streamd()
    folder = server.folder / "backupdir"
    with server.connect() as wire:
        reach(wire, before)
        assert info(wire, "backup_in_progress") == str(int(before in IN_PROGRESS))
        assert len(wire.call("BACKUP", "LIST").plain()) == (3 if before == "sealed" else 0)
        if before != "incrementing":
            assert wire.call("BACKUP", "SEAL") == Reply("-", b"ERR No backup ready to seal")
        if before in IN_PROGRESS:
            assert wire.call("BACKUP", "START") == Reply("-", b"ERR Backup already in progress")
            assert wire.call("BACKUP", "CLEANUP") == Reply("-", b"ERR Backup in progress")
            assert wire.call("BGREWRITEAOF") == Reply("+", b"Background append only file rewriting scheduled")
            assert state(wire) == before
            assert wire.call("BACKUP", "ABORT") == OK
            found = status(wire)
            assert (found["state"], found["error"]) == ("failed", "aborted by user")
            assert int(found["end_time"]) >= int(found["start_time"]) > 0
            assert not folder.exists()
        else:
            assert wire.call("BACKUP", "ABORT") == Reply("-", b"ERR No backup in progress")
        if before == "sealed":
            assert wire.call("BACKUP", "START") == Reply("-", b"ERR Backup directory is not empty")
            assert wire.call("BACKUP", "LIST").plain() == [bytes(folder / name) for name in FILES]
            assert sorted(path.name for path in folder.iterdir()) == FILES
        assert wire.call("BACKUP", "CLEANUP") == OK
        assert status(wire) == {"state": "idle", "error": "", "start_time": "0", "end_time": "0"}
        assert not folder.exists()
        assert wire.call("CONFIG", "SET", "rdb-key-save-delay", "0") == OK
        eventually(lambda: info(wire, "rdb_bgsave_in_progress") == "0" or before == "pending")


def test_status_is_a_map_in_resp3(new_streamd: StartServer) -> None:
    with new_streamd().connect(3) as wire:
        assert wire.call("BACKUP", "STATUS").kind == "%"
        assert wire.call("BACKUP", "HELP").kind == "*"


def test_a_backup_waits_for_another_child_and_for_the_end_of_a_transaction(new_streamd: StartServer) -> None:
    server = new_streamd()
    with server.connect() as wire:
        replies = wire.pipeline([["MULTI"], ["SET", "a", "1"], ["BACKUP", "START"], ["SET", "b", "2"], ["EXEC"]])
        assert replies[-1].value == (OK, OK, OK)
        eventually(lambda: state(wire) == "incrementing")
        replies = wire.pipeline([["MULTI"], ["SET", "c", "3"], ["BACKUP", "SEAL"], ["SET", "d", "4"], ["EXEC"]])
        assert replies[-1].value == (OK, OK, OK)
        assert state(wire) == "sealed"
    loaded = new_streamd(dir=str(server.folder), appendonly="yes", appenddirname="backupdir", backupdirname="other")
    with loaded.connect() as wire:
        assert sorted(wire.call("KEYS", "*").plain()) == [b"a", b"b", b"c", b"d"]


def test_a_directory_with_other_files_is_refused_and_left_alone(new_streamd: StartServer) -> None:
    server = new_streamd()
    folder = server.folder / "backupdir"
    folder.mkdir()
    (folder / "mine").write_text("x")
    with server.connect() as wire:
        assert wire.call("BACKUP", "START") == Reply("-", b"ERR Backup directory is not empty")
        assert wire.call("BACKUP", "CLEANUP") == OK
    assert (folder / "mine").read_text() == "x"


def test_a_backup_that_does_not_begin_leaves_the_directory_to_others(new_streamd: StartServer) -> None:
    server = new_streamd()
    folder = server.folder / "backupdir"
    folder.mkdir()
    (folder / "mine").write_text("x")
    with server.connect() as wire:
        assert wire.call("BACKUP", "START") == Reply("-", b"ERR Backup directory is not empty")
        with new_streamd(dir=str(server.folder), save="900 1").connect() as other:
            assert other.call("PING") == Reply("+", b"PONG")


def test_a_backup_that_does_not_begin_elsewhere_leaves_a_sealed_one_in_place(
    new_streamd: StartServer, tmp_path: Path
) -> None:
    server = new_streamd(**{"enable-protected-configs": "yes"})
    (tmp_path / "other" / "backupdir").mkdir(parents=True)
    (tmp_path / "other" / "backupdir" / "mine").write_text("x")
    with server.connect() as wire:
        reach(wire, "sealed")
        files = wire.call("BACKUP", "LIST").plain()
        assert wire.call("CONFIG", "SET", "dir", str(tmp_path / "other")) == OK
        assert wire.call("BACKUP", "START") == Reply("-", b"ERR Backup directory is not empty")
        assert wire.call("BACKUP", "LIST").plain() == files
        assert wire.call("BACKUP", "CLEANUP") == OK
        assert not (server.folder / "backupdir").exists()


def test_cleanup_takes_away_what_refuses_a_start(new_streamd: StartServer, tmp_path: Path) -> None:
    server = new_streamd(**{"enable-protected-configs": "yes"})
    folder = tmp_path / "other" / "backupdir"
    folder.mkdir(parents=True)
    (folder / FILES[0]).write_text("of a server that was killed")
    with server.connect() as wire:
        assert wire.call("CONFIG", "SET", "dir", str(tmp_path / "other")) == OK
        assert wire.call("BACKUP", "START") == Reply("-", b"ERR Backup directory is not empty")
        assert wire.call("BACKUP", "CLEANUP") == OK
        assert not folder.exists()
        reach(wire, "sealed")


def test_a_base_that_cannot_be_written_fails_the_backup(new_streamd: StartServer) -> None:
    server = new_streamd()
    (server.folder / "backupdir").write_text("no directory")
    with server.connect() as wire:
        assert wire.call("BACKUP", "START") == OK
        eventually(lambda: state(wire) == "failed")
        assert status(wire)["error"]
        wire.call("SET", "k", "v")
        (server.folder / "backupdir").unlink()
        reach(wire, "sealed")


def test_the_end_of_the_append_only_file_ends_a_backup(new_streamd: StartServer) -> None:
    server = new_streamd(appendonly="yes")
    with server.connect() as wire:
        reach(wire, "incrementing")
        wire.call("CONFIG", "SET", "appendonly", "no")
        found = status(wire)
        assert (found["state"], found["error"]) == ("failed", "appendonly is stopped")


def test_an_append_only_file_that_is_switched_on_does_not_wait_for_the_seal(new_streamd: StartServer) -> None:
    server = new_streamd(appendfsync="always")
    with server.connect() as wire:
        # In one turn, so that the child which writes the base of the backup has not ended.
        replies = wire.pipeline([["BACKUP", "START"], ["CONFIG", "SET", "appendonly", "yes"], ["INFO", "persistence"]])
        assert b"aof_rewrite_scheduled:1\r\n" in replies[-1].value
        eventually(lambda: state(wire) == "incrementing")
        eventually(lambda: info(wire, "aof_base_size") not in ("", "0"))
        assert state(wire) == "incrementing"
        assert wire.call("SET", "k", "v") == OK
        assert wire.call("BACKUP", "SEAL") == OK
    server.kill()
    with new_streamd(dir=str(server.folder), appendonly="yes").connect() as wire:
        assert wire.call("GET", "k").value == b"v"


def test_a_sealed_backup_goes_after_its_time(new_streamd: StartServer) -> None:
    server = new_streamd()
    with server.connect() as wire:
        reach(wire, "sealed")
        assert wire.call("CONFIG", "SET", "backup-sealed-ttl", "1") == OK
        eventually(lambda: state(wire) == "idle")
    assert not (server.folder / "backupdir").exists()


@pytest.mark.parametrize("name", ["a/b", "/tmp"])
def test_the_directory_is_a_plain_name(new_streamd: StartServer, name: str) -> None:
    with pytest.raises(RuntimeError, match="backupdirname can't be a path"):
        new_streamd(backupdirname=name)


# --- What it contains -------------------------------------------------------------------------------------------------


@pytest.mark.real
@pytest.mark.parametrize("appendonly", ["no", "yes"])
def test_a_sealed_backup_has_the_data_of_its_seal(
    new_streamd: StartServer, new_redis: StartServer, tmp_path: Path, appendonly: str
) -> None:
    server = new_streamd(appendonly=appendonly)
    with server.connect() as wire:
        write(wire, 1)
        assert wire.call("BACKUP", "START") == OK
        write(wire, 2)
        eventually(lambda: state(wire) == "incrementing")
        write(wire, 3)
        assert wire.call("BACKUP", "SEAL") == OK
        wanted = content(wire)
        write(wire, 4)
        now = content(wire)
        assert now != wanted
    server.kill()
    backup = server.folder / "backupdir"
    before = {path.name: path.read_bytes() for path in backup.iterdir()}
    # As a data directory, of both; a copy each, since they go on writing to it.
    for start in (new_streamd, new_redis):
        copy = tmp_path / f"copy-{start.__name__}-{id(start)}"
        shutil.copytree(backup, copy / "appendonlydir")
        with start(dir=str(copy), appendonly="yes").connect() as wire:
            assert content(wire) == wanted
    # As what is loaded first: the server's own files are passed over, and the backup stays as it is.
    preload = f"aof:{backup / FILES[2]}"
    with new_streamd(dir=str(server.folder), appendonly="yes", **{"preload-file": preload}).connect() as wire:
        assert content(wire) == wanted
        assert state(wire) == "sealed"
        write(wire, 5)
        latest = content(wire)
    assert {path.name: path.read_bytes() for path in backup.iterdir()} == before
    assert latest != wanted


def test_what_is_written_after_a_preload_is_there_at_the_next_start(new_streamd: StartServer) -> None:
    server = new_streamd(appendonly="yes", appendfsync="always", dbfilename="some.rdb")
    with server.connect() as wire:
        wire.call("SET", "old", "1")
        wire.call("SAVE")
        wire.call("SET", "not-in-the-snapshot", "1")
    server.kill()
    settings = {"dir": str(server.folder), "appendonly": "yes", "appendfsync": "always"}
    second = new_streamd(**settings, **{"preload-file": "rdb:some.rdb"})
    with second.connect() as wire:
        assert wire.call("KEYS", "*").plain() == [b"old"]
        wire.call("SET", "new", "1")
    second.kill()
    with new_streamd(**settings).connect() as wire:
        assert sorted(wire.call("KEYS", "*").plain()) == [b"new", b"old"]


@pytest.mark.parametrize("what", ["rdb:none.rdb", "aof:none.manifest", "x:y", "none"])
def test_a_preload_that_fails_ends_the_server(new_streamd: StartServer, what: str) -> None:
    with pytest.raises(RuntimeError, match="exited with 1"):
        new_streamd(**{"preload-file": what})


# --- Death ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("appendonly", ["no", "yes"])
@pytest.mark.parametrize("before", STATES)
def test_a_server_that_is_killed_starts_again_and_makes_another_backup(
    new_streamd: StartServer, before: str, appendonly: str
) -> None:
    settings = {"appendonly": appendonly, "appendfsync": "always"}
    server = new_streamd(**settings)
    with server.connect() as wire:
        write(wire, 1)
        reach(wire, before)
        wire.call("SET", "last", "1")
    server.kill()
    with new_streamd(dir=str(server.folder), **settings).connect() as wire:
        assert wire.call("EXISTS", "last").value == int(appendonly == "yes")
        # A sealed backup is a sealed backup; all else is no backup, and CLEANUP takes away what there may be of it.
        assert state(wire) == ("sealed" if before == "sealed" else "idle")
        assert len(wire.call("BACKUP", "LIST").plain()) == (3 if before == "sealed" else 0)
        assert wire.call("BACKUP", "CLEANUP") == OK
        reach(wire, "sealed")
        assert sorted(path.name for path in (server.folder / "backupdir").iterdir()) == FILES
