"""The server and its forked children: what goes on while one works, and what ends when one of the two does."""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
import redis
from support.files.crash import Trial, launch_in
from support.servers import eventually
from support.wire import Reply, Wire

import streamd.embedded
from streamd.errors import StreamdError

pytestmark = pytest.mark.long

KEYS = 20_000
SLOW_US = 500
"""Delay of a child for each key: it works for ten seconds, time enough to look at it on a busy machine."""


@pytest.fixture
def trials() -> Iterator[list[Trial]]:
    made: list[Trial] = []
    yield made
    for trial in made:
        trial.close()


def begin(trials: list[Trial], folder: Path, **directives: str) -> Trial:
    """A server with many keys whose children are slow."""
    trial = Trial(folder / "data", seed=1, workers=2, **directives)
    trials.append(trial)
    trial.start()
    trial.ordered("DEBUG", "POPULATE", str(KEYS))
    be_slow(trial)
    return trial


def be_slow(trial: Trial, us: int = SLOW_US) -> None:
    """Let children that begin from now on work for so long, in microseconds for each key."""
    trial.ordered("CONFIG", "SET", "rdb-key-save-delay", str(us))


def children_of(pid: int) -> list[int]:
    """Children of a process, those among them that have ended and were not waited for."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(entry.name))
    return found


def info(wire: Wire, section: str = "persistence") -> dict[str, str]:
    text = wire.call("INFO", section).value.decode()
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)


# --- While a child works ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["BGSAVE", "BGREWRITEAOF"])
def test_a_large_pipeline_is_answered_while_a_child_works(tmp_path: Path, trials: list[Trial], command: str) -> None:
    trial = begin(trials, tmp_path, appendonly="yes", appendfsync="always")
    assert trial.server is not None
    with trial.server.connect() as wire:
        requests = [["XADD", "s", f"{n + 1}-0", "f", "x" * 100] for n in range(20_000)]
        requests.insert(5000, [command])
        be_slow(trial, 5000)
        replies = wire.pipeline(requests)
        assert not [reply for reply in replies if reply.is_error]
        assert "1" in (info(wire)["rdb_bgsave_in_progress"], info(wire)["aof_rewrite_in_progress"])
    trial.kill()
    trial.start()
    assert trial.order("XLEN", "s") == Reply(":", 20_000)


@pytest.mark.parametrize("command", ["BGSAVE", "BGREWRITEAOF"])
def test_connections_that_the_server_closes_are_closed_while_a_child_works(
    tmp_path: Path, trials: list[Trial], command: str
) -> None:
    trial = begin(trials, tmp_path, appendonly="yes")
    assert trial.server is not None
    be_slow(trial, 50_000)  # a child that has a connection has it for longer than is waited for here
    with trial.server.connect() as wire, trial.server.connect() as other:
        wire.call(command)
        wire.send("QUIT")
        assert wire.read_to_end() == b"+OK\r\n"
        kept = other.client_id()
        with trial.server.connect() as third:
            other.call("CLIENT", "KILL", "ID", third.client_id())
            assert third.read_to_end() == b""
        assert kept
        trial.server.kill()  # the child, which lives on for a moment, has no connection either
        assert other.read_to_end() == b""


def test_info_tells_of_a_child(tmp_path: Path, trials: list[Trial]) -> None:
    trial = begin(trials, tmp_path)
    assert trial.server is not None
    with trial.server.connect() as wire:
        assert info(wire)["rdb_last_bgsave_time_sec"] == "-1"
        wire.call("SET", "changed", "1")
        wire.call("BGSAVE")
        found = info(wire)
        assert found["rdb_bgsave_in_progress"] == "1"
        assert 0 <= int(found["rdb_current_bgsave_time_sec"]) < 10
        assert int(found["rdb_changes_since_last_save"]) >= 1
        assert found["current_save_keys_total"] == str(KEYS + 1)

        def is_shown() -> bool:
            found = info(wire)
            return 0 < int(found["current_save_keys_processed"]) <= KEYS and 0 < float(found["current_fork_perc"]) < 100

        eventually(is_shown)
        eventually(lambda: info(wire)["rdb_bgsave_in_progress"] == "0")
        found = info(wire)
        assert found["rdb_last_bgsave_status"] == "ok"
        assert int(found["rdb_last_bgsave_time_sec"]) >= 1
        assert found["rdb_changes_since_last_save"] == "0"
        assert found["rdb_current_bgsave_time_sec"] == "-1"
        assert found["current_save_keys_total"] == "0"
        assert int(info(wire, "stats")["total_forks"]) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_child_leaves_no_zombie_whatever_its_end(tmp_path: Path, trials: list[Trial]) -> None:
    trial = begin(trials, tmp_path, appendonly="yes")
    server = trial.server
    assert server is not None
    be_slow(trial, 0)
    for command in ("BGSAVE", "BGREWRITEAOF"):
        trial.ordered(command)
        trial.wait_for_child()
    be_slow(trial, 5000)
    for command in ("BGSAVE", "BGREWRITEAOF"):
        trial.ordered(command)
        (child,) = children_of(server.process.pid)
        os.kill(child, signal.SIGKILL)
        trial.wait_for_child()
    trial.ordered("BGREWRITEAOF")
    trial.ordered("CONFIG", "SET", "appendonly", "no")  # ends the child
    eventually(lambda: children_of(server.process.pid) == [], what="no child")


def test_what_cannot_begin_now_begins_later(tmp_path: Path, trials: list[Trial]) -> None:
    trial = begin(trials, tmp_path, appendonly="yes")
    server = trial.server
    assert server is not None
    with server.connect() as wire:
        be_slow(trial, 0)
        mark = server.log_mark()
        # In one turn, so that the child of the first has not been waited for before the others.
        started, again, save, later = wire.pipeline(
            [["BGREWRITEAOF"], ["BGREWRITEAOF"], ["BGSAVE"], ["BGSAVE", "SCHEDULE"]]
        )
        assert started == Reply("+", b"Background append only file rewriting started")
        assert again.value.startswith(b"ERR Background append only file rewriting already in progress")
        assert save.value.startswith(b"ERR Another child process is active (AOF?)")
        assert later == Reply("+", b"Background saving scheduled")
        eventually(lambda: "Background saving terminated with success" in server.log_since(mark))
        assert "Background AOF rewrite finished successfully" in server.log_since(mark)
        mark = server.log_mark()
        started, later, shown = wire.pipeline([["BGSAVE"], ["BGREWRITEAOF"], ["INFO", "persistence"]])
        assert started == Reply("+", b"Background saving started")
        assert later == Reply("+", b"Background append only file rewriting scheduled")
        assert b"aof_rewrite_scheduled:1\r\n" in shown.value
        eventually(lambda: "Background AOF rewrite finished successfully" in server.log_since(mark))


def test_a_child_whose_server_was_killed_puts_nothing_in_place(tmp_path: Path, trials: list[Trial]) -> None:
    trial = begin(trials, tmp_path)
    be_slow(trial, 0)
    trial.ordered("SAVE")
    before = (trial.folder / "dump.rdb").read_bytes()
    for command in ("BGSAVE", "BGREWRITEAOF"):
        trial.ordered("SET", "later", command)
        be_slow(trial)
        trial.ordered(command)
        eventually(lambda: list(trial.folder.glob("temp-*")))
        trial.kill()
        eventually(lambda: not list(trial.folder.glob("temp-*")))
        assert (trial.folder / "dump.rdb").read_bytes() == before
        trial.start()


# --- The end ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["BGSAVE", "BGREWRITEAOF"])
@pytest.mark.parametrize("how", ["SHUTDOWN", "SIGTERM"])
def test_the_end_does_not_wait_for_a_child(tmp_path: Path, trials: list[Trial], command: str, how: str) -> None:
    trial = begin(trials, tmp_path, appendonly="yes", save="3600 1000000")
    server = trial.server
    assert server is not None
    be_slow(trial, 0)
    trial.ordered("BGREWRITEAOF")  # what DEBUG POPULATE made is in no file
    trial.wait_for_child()
    trial.ordered("SET", "k", "v")
    with server.connect() as wire:
        wire.call("CONFIG", "SET", "rdb-key-save-delay", 10_000)
        wire.call(command)
        child = children_of(server.process.pid) if sys.platform == "linux" else []
        wire.call("CONFIG", "SET", "rdb-key-save-delay", 0)  # for the snapshot of the end
        if how == "SHUTDOWN":
            wire.send("SHUTDOWN")
        else:
            server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0
    for pid in child:
        eventually(lambda pid=pid: not Path(f"/proc/{pid}").exists())  # type: ignore[misc]
    assert not list(trial.folder.glob("temp-*"))
    trial.start()
    assert trial.order("GET", "k") == Reply("$", b"v")
    assert trial.order("DBSIZE") == Reply(":", KEYS + 1)


def test_the_end_waits_for_the_first_rewrite_unless_it_is_forced(tmp_path: Path, trials: list[Trial]) -> None:
    trial = begin(trials, tmp_path)
    server = trial.server
    assert server is not None
    with server.connect() as wire:
        wire.call("CONFIG", "SET", "appendonly", "yes")
        wire.call("SET", "k", "v")
        assert wire.call("SHUTDOWN") == Reply("-", b"ERR Errors trying to SHUTDOWN. Check logs.")
        assert "Writing initial AOF, can't exit" in server.log()
        assert wire.call("GET", "k") == Reply("$", b"v")
        wire.send("SHUTDOWN", "FORCE")
        assert server.process.wait(60) == 0
    assert not list(trial.folder.glob("temp-*"))


def test_a_shutdown_that_fails_leaves_the_log_on(tmp_path: Path, trials: list[Trial]) -> None:
    trial = begin(trials, tmp_path, appendonly="yes", appendfsync="always", save="3600 1000000")
    be_slow(trial, 0)
    (trial.folder / "dump.rdb").mkdir()
    trial.ordered("SET", "before", "1")
    assert trial.order("SHUTDOWN") == Reply("-", b"ERR Errors trying to SHUTDOWN. Check logs.")
    trial.ordered("CONFIG", "SET", "stop-writes-on-bgsave-error", "no")
    trial.ordered("SET", "after", "1")
    trial.kill()
    trial.start()
    assert trial.order("EXISTS", "before", "after") == Reply(":", 2)


@pytest.mark.parametrize("how", ["SIGTERM", "SHUTDOWN NOSAVE"])
@pytest.mark.parametrize("form", ["snapshot", "log"])
def test_the_end_does_not_wait_until_everything_is_loaded(
    tmp_path: Path, trials: list[Trial], form: str, how: str
) -> None:
    trial = begin(trials, tmp_path, appendonly="yes" if form == "log" else "no", save="3600 1")
    be_slow(trial, 0)
    if form == "log":
        with trial.server.connect() as wire:  # type: ignore[union-attr]
            wire.pipeline([["SET", f"k{n}", "x" * 100] for n in range(KEYS)])
    else:
        trial.ordered("DEBUG", "POPULATE", str(2 * KEYS), "large", "100")
        trial.ordered("SAVE")
    trial.kill()
    before = {path: path.read_bytes() for path in trial.folder.rglob("*") if path.is_file()}
    mark = trial.server.log_mark()  # type: ignore[union-attr]
    server = launch_in(trial.folder, {**trial.directives, "key-load-delay": "200"})
    trial.started.append(server)
    eventually(lambda: can_connect(server.port))
    with Wire(server.port) as wire:
        assert wire.call("GET", "k1").value.startswith(b"LOADING")
        if how == "SIGTERM":
            server.process.send_signal(signal.SIGTERM)
        else:
            wire.send("SHUTDOWN", "NOSAVE")
        assert server.process.wait(60) == 0
    assert "Received shutdown signal during loading, exiting now." in server.log_since(mark)
    assert "Ready to accept" not in server.log_since(mark)
    assert {path: path.read_bytes() for path in trial.folder.rglob("*") if path.is_file()} == before


def can_connect(port: int) -> bool:
    try:
        with Wire(port):
            return True
    except OSError:
        return False


# --- The log is switched on and off ------------------------------------------------------------------------------------------


def switch(trial: Trial, chance: random.Random, kills: int) -> None:
    """What has been on when the server is killed must be there; while it was off a snapshot stands for it."""
    for _ in range(kills):
        with trial.load() as load:
            for _ in range(chance.randint(0, 3)):
                trial.ordered("CONFIG", "SET", "appendonly", "no")
                load.wait_for(load.acknowledged + chance.choice([0, 10, 100]))
                trial.ordered("CONFIG", "SET", "appendonly", "yes")
                load.wait_for(load.acknowledged + chance.choice([0, 10, 100]))
            # It is on when the first rewrite has ended; before that the files are those of the time before.
            eventually(lambda: trial.info("aof_rewrite_in_progress") + trial.info("aof_rewrite_scheduled") == "00")
            load.wait_for(load.acknowledged + chance.randint(1, 200))
            trial.kill()
    trial.check()


def test_the_log_is_switched_off_and_on_under_load_and_the_server_killed(tmp_path: Path, trials: list[Trial]) -> None:
    trial = Trial(tmp_path / "data", seed=4, appendonly="yes", appendfsync="always")
    trials.append(trial)
    switch(trial, random.Random(4), 2)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_log_is_switched_off_and_on_many_times(tmp_path: Path, trials: list[Trial]) -> None:
    seed = random.randrange(1_000_000)
    print("seed", seed)
    trial = Trial(tmp_path / "data", seed=seed, appendonly="yes", appendfsync="always")
    trials.append(trial)
    switch(trial, random.Random(seed), 20)


def test_killed_while_it_is_switched_on_the_files_of_before_are_whole(tmp_path: Path, trials: list[Trial]) -> None:
    trial = begin(trials, tmp_path, appendonly="yes", appendfsync="always")
    trial.ordered("SET", "old", "1")
    trial.ordered("CONFIG", "SET", "appendonly", "no")
    trial.ordered("SET", "while off", "1")
    trial.ordered("CONFIG", "SET", "appendonly", "yes")
    trial.ordered("SET", "while waiting", "1")
    assert trial.info("aof_rewrite_in_progress") == "1"
    trial.kill()
    trial.start()
    assert trial.order("EXISTS", "old") == Reply(":", 1)


# --- Embedded ------------------------------------------------------------------------------------------------------------------


def test_an_embedded_server_keeps_its_files_in_a_directory_of_its_own(tmp_path: Path) -> None:
    working = Path.cwd()
    before = set(working.iterdir())
    settings = {"dir": str(tmp_path), "appendonly": True, "appendfsync": "always", "save": (3600, 1)}
    with streamd.embedded.start(**settings) as server, closing(redis.Redis(port=server.port)) as client:
        client.xadd("s", {"f": "v"})
        client.bgsave()
        eventually(lambda: client.info("persistence")["rdb_bgsave_in_progress"] == 0)
        client.bgrewriteaof()
        eventually(lambda: client.info("persistence")["aof_rewrite_in_progress"] == 0)
        assert client.info("persistence")["aof_last_bgrewrite_status"] == "ok"
        client.xadd("s", {"f": "v"})
    assert (Path.cwd(), set(working.iterdir())) == (working, before)
    assert {path.name for path in tmp_path.iterdir()} == {"dump.rdb", "appendonlydir"}
    for logged in (True, False):
        with (
            streamd.embedded.start(**settings | {"appendonly": logged}) as server,
            closing(redis.Redis(port=server.port)) as client,
        ):
            assert client.xlen("s") == 2


def test_an_embedded_server_that_cannot_save_ends_and_says_so(tmp_path: Path) -> None:
    server = streamd.embedded.start(dir=str(tmp_path), save=(3600, 1))
    (tmp_path / "dump.rdb").mkdir()
    with closing(redis.Redis(port=server.port)) as client:
        client.set("k", "v")
    with pytest.raises(StreamdError, match="not all of the data could be written"):
        server.stop()
    with pytest.raises(OSError, match="refused"):
        Wire(server.port).close()


def test_an_embedded_server_whose_files_are_damaged_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "dump.rdb").write_bytes(b"REDIS0012 not a snapshot")
    with pytest.raises(StreamdError, match=r"dump\.rdb: at byte 12: "):
        streamd.embedded.start(dir=str(tmp_path))
