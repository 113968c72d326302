"""`streamd archive run` and the servers that it meets: another one than before, a replica and its primary."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import redis
from click.testing import CliRunner
from support.servers import Server, eventually

pytest.importorskip("pyarrow")

from streamd.archive.archiver import Archiver, ArchiveSettings
from streamd.cli.subcommands import program

pytestmark = pytest.mark.long

StartServer = Callable[..., Server]
Store = Any
NAME = "streamd:archive:server"
COUNT = 3_000


@pytest.fixture(params=["streamd", pytest.param("redis", marks=pytest.mark.real)])
def start(request: pytest.FixtureRequest) -> StartServer:
    found: StartServer = request.getfixturevalue(f"new_{request.param}")
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of the archive; the servers keep theirs beside it."""
    return tmp_path / "archive"


@pytest.fixture
def client() -> Iterator[Callable[[Server], Store]]:
    with ExitStack() as stack:
        yield lambda server: stack.enter_context(redis.Redis(port=server.port, decode_responses=True))


def fill(store: Store, key: str = "readings", first: int = 0, count: int = COUNT, *, site: str = "a") -> None:
    pipe = store.pipeline(transaction=False)
    for at in range(first, first + count):
        pipe.xadd(key, {"site": site, "value": at}, id=f"{1_700_000_000_000 + at}-0")
    pipe.execute()


def run(server: Server, *words: str, status: int = 0) -> str:
    found = CliRunner().invoke(program, ["archive", *words, "-p", str(server.port)])
    assert found.exit_code == status, found.output
    return found.output


def archive(server: Server, folder: Path, *words: str, status: int = 0) -> dict[str, Any]:
    """Archive everything; returns the report of the first stream."""
    pattern = [] if "--stream" in words else ["--stream", "readings"]
    shown = run(server, "run", str(folder), *pattern, "--trim-delay", "0s", "--json", *words, status=status)
    report: dict[str, Any] = json.loads(shown)
    return {**report["streams"][0], "read_from": report["read_from"]}


# --- Another server -----------------------------------------------------------------------------------------------------


def test_another_server_is_refused(start: StartServer, client: Callable[[Server], Store], folder: Path) -> None:
    right, wrong = start(), start()
    fill(client(right))
    assert archive(right, folder)["trimmed"] == COUNT
    # All that can be seen of its stream fits: higher IDs, more entries, and nothing was left to be archived.
    store = client(wrong)
    fill(store, count=3 * COUNT, site="b")
    fill(store, "other")
    before = sorted(store.keys())
    for words in ([], ["--stream", "other"], ["--allow-gaps"]):
        error = archive(wrong, folder, *words, status=1)["error"]
        assert "is not the server whose streams are archived here: its data has no such name" in error
    assert (sorted(store.keys()), store.xlen("readings")) == (before, 3 * COUNT)
    other = folder.with_name("other")
    archive(wrong, other, "--no-trim")
    assert "its data has another one" in archive(wrong, folder, status=1)["error"]
    fill(store, first=3 * COUNT, count=10)
    refused = CliRunner().invoke(
        program, ["history", "readings", "--archive", str(folder), "-p", str(wrong.port), "--limit", "1"]
    )
    assert (refused.exit_code, "is not the server whose streams" in refused.output) == (1, True)
    said = run(wrong, "delete", str(folder), "readings", "--id", "1700000000001-0", "--yes", status=1)
    assert "is not the server whose streams" in said
    # The right one goes on, and the user has the last word.
    fill(client(right), first=COUNT, count=10)
    assert archive(right, folder)["rows"] == 10
    assert archive(wrong, folder, "--accept-server")["rows"] == 2 * COUNT
    fill(client(right), first=COUNT + 10, count=3 * COUNT)
    assert "is not the server" in archive(right, folder, status=1)["error"]


def test_the_server_that_was_accepted_is_that_of_other_streams(
    start: StartServer, client: Callable[[Server], Store], folder: Path
) -> None:
    old, new = start(), start()
    for key in ("a", "b"):
        fill(client(old), key, count=10)
        archive(old, folder, "--stream", key)
    fill(client(new), "b", count=10)
    archive(new, folder.with_name("other"), "--stream", "b", "--no-trim")  # gives its data a name
    # There is nothing to archive.
    assert archive(new, folder, "--stream", "b", "--accept-server")["rows"] == 0
    assert archive(new, folder, "--stream", "b")["rows"] == 0
    # A stream that is new to the archive.
    fill(client(new), "c", count=10)
    assert archive(new, folder, "--stream", "c")["rows"] == 10


def test_the_name_of_the_data_survives_a_restart(
    start: StartServer, client: Callable[[Server], Store], folder: Path
) -> None:
    server = start(appendonly="yes")
    store = client(server)
    fill(store)
    archive(server, folder)
    name = store.get(NAME)
    server.restart()
    fill(store, first=COUNT)
    assert archive(server, folder)["rows"] == COUNT
    assert store.get(NAME) == name


def test_a_name_that_is_lost_is_given_again(
    start: StartServer, client: Callable[[Server], Store], folder: Path
) -> None:
    server = start()
    store = client(server)
    fill(store)
    archive(server, folder, "--no-trim")
    name = store.get(NAME)
    store.delete(NAME)
    # The last archived entry is still there.
    fill(store, first=COUNT)
    assert archive(server, folder)["status"] == "archived"
    assert store.get(NAME) == name
    assert store.xlen("readings") == 0
    store.delete(NAME)
    fill(store, first=2 * COUNT)
    assert "its data has no such name" in archive(server, folder, status=1)["error"]
    archive(server, folder, "--accept-server")
    assert store.get(NAME) == name


def test_an_archive_from_before_names_goes_on(
    start: StartServer, client: Callable[[Server], Store], folder: Path
) -> None:
    server = start()
    fill(client(server))
    archive(server, folder)
    (manifest,) = (folder / "_manifest" / "readings").glob("*.json")
    noted = json.loads(manifest.read_text())
    del noted["server_id"]
    manifest.write_text(json.dumps(noted))
    fill(client(server), first=COUNT)
    assert archive(server, folder)["rows"] == COUNT
    newest = max((folder / "_manifest" / "readings").glob("*.json"))
    assert json.loads(newest.read_text())["server_id"] == client(server).get(NAME)


# --- Replicas -----------------------------------------------------------------------------------------------------------


def replica_of(start: StartServer, primary: Server, client: Callable[[Server], Store], **settings: str) -> Server:
    replica = start(replicaof=f"127.0.0.1 {primary.port}", **settings)
    until_in_sync(client(primary), client(replica))
    return replica


def until_in_sync(primary: Store, replica: Store) -> None:
    def is_in_sync() -> bool:
        found = replica.info("replication")
        own = primary.info("replication")["master_repl_offset"]
        return found["master_link_status"] == "up" and found["slave_repl_offset"] >= own

    eventually(is_in_sync, what="the replica")


def test_a_replica_is_read_and_its_primary_trimmed(
    start: StartServer, client: Callable[[Server], Store], folder: Path
) -> None:
    primary = start(repl_diskless_sync_delay="0")
    store = client(primary)
    fill(store)
    store.xgroup_create("readings", "slow", "0")
    store.xreadgroup("slow", "c", {"readings": ">"}, count=COUNT - 100)
    replica = replica_of(start, primary, client)
    store.config_resetstat()
    report = archive(replica, folder)
    assert (report["rows"], report["read_from"]) == (COUNT, f"127.0.0.1:{replica.port}")
    assert report["trimmed"] == 0
    pending = store.xpending_range("readings", "slow", "-", "+", COUNT)
    store.xack("readings", "slow", *[each["message_id"] for each in pending])
    until_in_sync(store, client(replica))
    report = archive(replica, folder)
    assert (report["rows"], report["trimmed"], store.xlen("readings")) == (0, COUNT - 100, 100)
    # Of the primary, only single entries were read.
    stats = store.info("commandstats")
    assert stats.get("cmdstat_xrange", {"calls": 0})["calls"] <= 10
    until_in_sync(store, client(replica))
    assert client(replica).xlen("readings") == 100
    words = ("run", str(folder), "--stream", "readings")
    assert f"read from the replica 127.0.0.1:{replica.port}\n" in run(replica, *words)
    assert "replica" not in run(primary, *words)
    # The same archive, from the primary itself.
    fill(store, first=COUNT)
    assert archive(primary, folder)["rows"] == COUNT


def test_what_a_replica_does_not_have_yet_is_not_archived(
    start: StartServer, client: Callable[[Server], Store], folder: Path
) -> None:
    primary = start(repl_diskless_sync_delay="0")
    store = client(primary)
    store.acl_setuser(
        "follower", enabled=True, nopass=True, commands=["+psync", "+replconf", "+ping"], keys=[], channels=[]
    )
    fill(store)
    replica = replica_of(start, primary, client, masteruser="follower", masterauth="any")
    # It loses the link, and cannot come back.
    store.acl_setuser("follower", enabled=False)
    store.execute_command("CLIENT", "KILL", "TYPE", "REPLICA")
    fill(store, first=COUNT, count=500)
    fill(store, "late")
    report = archive(replica, folder)
    assert (report["rows"], report["trimmed"], store.xlen("readings")) == (COUNT, COUNT, 500)
    late = archive(replica, folder, "--stream", "late")
    assert (late["status"], late["warnings"]) == (
        "nothing", [f"the replica 127.0.0.1:{replica.port} does not have the stream yet"],
    )  # fmt: skip
    store.acl_setuser("follower", enabled=True)
    until_in_sync(store, client(replica))
    assert archive(replica, folder)["rows"] == 500
    assert archive(replica, folder, "--stream", "late")["rows"] == COUNT


def test_a_promoted_replica_is_the_same_data(
    start: StartServer, client: Callable[[Server], Store], folder: Path
) -> None:
    primary = start(repl_diskless_sync_delay="0")
    fill(client(primary))
    archive(primary, folder)
    replica = replica_of(start, primary, client)
    primary.kill()
    store = client(replica)
    store.replicaof("no", "one")
    fill(store, first=COUNT)
    assert archive(replica, folder)["rows"] == COUNT


def test_a_primary_that_is_none_is_refused(start: StartServer, client: Callable[[Server], Store], folder: Path) -> None:
    primary, stranger = start(repl_diskless_sync_delay="0"), start()
    fill(client(primary))
    replica = replica_of(start, primary, client)
    words = ("run", str(folder.with_name("a")), "--stream", "readings", "--primary")
    assert "does not replicate" in run(replica, *words, f"redis://127.0.0.1:{stranger.port}", status=1)
    assert "is not a replica" in run(primary, *words, f"redis://127.0.0.1:{primary.port}", status=1)
    assert not (folder.with_name("a")).exists()
    # A replica of a replica: as it says, and named by its primary's URL.
    second = replica_of(start, replica, client)
    assert archive(second, folder.with_name("b"))["rows"] == COUNT
    fill(client(primary), first=COUNT)
    until_in_sync(client(primary), client(replica))
    until_in_sync(client(replica), client(second))
    assert archive(second, folder.with_name("b"), "--primary", f"redis://localhost:{primary.port}")["rows"] == COUNT


@pytest.mark.parametrize("step", ["retrimmed", "bounded"])
def test_a_replica_of_another_server_by_now_is_not_archived(
    step: str, start: StartServer, client: Callable[[Server], Store], folder: Path
) -> None:
    primary, stranger = start(repl_diskless_sync_delay="0"), start(repl_diskless_sync_delay="0")
    store = client(primary)
    fill(store)
    fill(client(stranger), site="b")
    replica = replica_of(start, primary, client)

    def turn_away(at: str) -> None:
        if at == step:
            client(replica).replicaof("127.0.0.1", stranger.port)
            until_in_sync(client(stranger), client(replica))

    options = {"port": str(replica.port), "stream": "readings"}
    settings = ArchiveSettings(hot_window_ms=0, trim_delay_ms=0)
    archiver = Archiver(str(folder), options, settings, hook=turn_away)
    (report,) = archiver.run().streams
    assert "does not replicate" in (report.error or "")
    assert store.xlen("readings") == COUNT
    assert list((folder / "_manifest").rglob("*.json")) == []
