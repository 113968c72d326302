"""A server that dies of a signal, or hangs, leaves a report in its log; statuses and settings are those of a real Redis."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.compare.side_by_side import on_each
from support.servers import Server, eventually
from support.wire import ConnectionClosed, Reply, Wire

pytestmark = [pytest.mark.long, pytest.mark.skipif(sys.platform != "linux", reason="signals and /proc as on Linux")]

Start = Callable[..., Server]

DEADLY = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT)
START, END = "=== STREAMD BUG REPORT START", "=== STREAMD BUG REPORT END"


def crash(server: Server, wire: Wire, *words: str) -> None:
    for number in DEADLY:
        server.expect_signal(number)
    with pytest.raises(ConnectionClosed, match="before the end"):
        wire.call(*words)


def check_report(text: str, number: int) -> None:
    assert text.count(START) == text.count(END) == 1, text
    report = text[text.index(START) : text.index(END)]
    for expected in (
        f" crashed by signal: {number}, si_code: ",
        "------ STACK TRACE ------",
        '/streamd/serve/launch.py", line ',
        "C, the most recent call first:",
        "/debug/crash.cpython-",
        "------ INFO OUTPUT ------\n# Server\n",
        "\ncmdstat_xadd:calls=1,",
        "------ CURRENT CLIENT INFO ------",
        "------ CLIENT LIST OUTPUT ------\nid=",
    ):
        assert expected in report, report
    assert "could not be written" not in report


@pytest.mark.parametrize("number", DEADLY)
def test_a_deadly_signal_leaves_a_report_and_its_status(new_streamd: Start, number: int) -> None:
    server = new_streamd()
    with server.connect() as wire:
        wire.call("XADD", "s", "1-1", "f", "v")
        server.process.send_signal(number)
        assert server.process.wait(60) == -number
    check_report(server.log(), number)
    assert f"Killed by PID: {os.getpid()}, UID: {os.getuid()}\n" in server.log()
    assert "No command was running." in server.log()


@pytest.mark.parametrize("what", ["SEGFAULT", "PANIC", "OOM", "ASSERT"])
@pytest.mark.real
def test_debug_crashes_with_the_status_of_redis(new_streamd: Start, new_redis: Start, what: str) -> None:
    statuses = []
    for server in (new_streamd(), new_redis(crash_memcheck_enabled="no")):
        with server.connect() as wire:
            wire.call("XADD", "s", "1-1", "f", "v")
            wire.call("CLIENT", "SETNAME", "joe")
            crash(server, wire, "DEBUG", what)
            statuses.append(server.process.wait(60))
        if server.name == "streamd":
            check_report(server.log(), -statuses[0])
            assert f"argc: '2'\nargv[0]: '\"DEBUG\"'\nargv[1]: '\"{what}\"'\n" in server.log()
            assert " name=joe " in server.log()
    assert statuses[0] == statuses[1]


def test_a_fault_is_reported_with_its_address(new_streamd: Start) -> None:
    server = new_streamd()
    with server.connect() as wire:
        crash(server, wire, "DEBUG", "SEGFAULT")
        assert server.process.wait(60) == -signal.SIGSEGV
    assert "Accessing address: 0x10\n" in server.log()
    assert '/streamd/debug/debug_commands.py", line ' in server.log()


def test_the_report_can_be_turned_off(new_streamd: Start) -> None:
    server = new_streamd()
    with server.connect() as wire:
        assert wire.call("CONFIG", "SET", "crash-log-enabled", "no") == Reply("+", b"OK")
        crash(server, wire, "DEBUG", "SEGFAULT")
        assert server.process.wait(60) == -signal.SIGSEGV
    assert "BUG REPORT" not in server.log()


def test_the_report_goes_to_the_log_file(new_streamd: Start, tmp_path: Path) -> None:
    server = new_streamd(logfile="server.log", dir=str(tmp_path))
    with server.connect() as wire:
        wire.call("XADD", "s", "1-1", "f", "v")
        crash(server, wire, "DEBUG", "ASSERT")
        assert server.process.wait(60) == -signal.SIGABRT
    check_report((tmp_path / "server.log").read_text(), signal.SIGABRT)
    assert "BUG REPORT" not in server.log()


def test_a_child_that_crashes_reports_and_its_server_continues(new_streamd: Start) -> None:
    server = new_streamd()
    with server.connect() as wire:
        wire.call("DEBUG", "POPULATE", "20")
        wire.call("CONFIG", "SET", "rdb-key-save-delay", "10000000")
        wire.call("BGSAVE")
        pid = int(server.log().rpartition("Background saving started by pid ")[2].split()[0])
        eventually(lambda: list(server.folder.glob("temp-*.rdb")))
        os.kill(pid, signal.SIGSEGV)
        eventually(lambda: "Background saving terminated by signal 11" in server.log())
        assert f"{pid}:signal-handler" in server.log()
        assert " crashed by signal: 11" in server.log()
        assert wire.call("PING") == Reply("+", b"PONG")


def test_sigalrm_shows_the_stacks_and_the_server_continues(new_streamd: Start) -> None:
    server = new_streamd()
    with server.connect() as wire:
        for times in (1, 2):
            server.process.send_signal(signal.SIGALRM)
            eventually(lambda times=times: server.log().count(" --------\n") == times)  # type: ignore[misc]
            assert wire.call("PING") == Reply("+", b"PONG")
    assert server.log().count("\nReceived SIGALRM\n") == 2
    assert '/streamd/serve/launch.py", line ' in server.log()


@pytest.mark.real
def test_the_watchdog_shows_where_a_server_hangs(new_streamd: Start, new_redis: Start) -> None:
    def look(server: Server) -> None:
        with server.connect() as wire:
            assert wire.call("CONFIG", "SET", "watchdog-period", "10") == Reply("+", b"OK")
            # Twice the time between two beats, at least.
            assert wire.call("CONFIG", "GET", "watchdog-period").plain() == [b"watchdog-period", b"200"]
            assert wire.call("CONFIG", "SET", "watchdog-period", "2500") == Reply("+", b"OK")
            mark = server.log_mark()  # with the shorter period the machine may have been too slow
            wire.call("DEBUG", "SLEEP", "6")
            assert server.log_since(mark).count("--- WATCHDOG TIMER EXPIRED ---\n") == 1
            assert wire.call("CONFIG", "SET", "watchdog-period", "0") == Reply("+", b"OK")
            wire.call("DEBUG", "SLEEP", "3")
            assert server.log_since(mark).count("--- WATCHDOG TIMER EXPIRED ---\n") == 1
            assert wire.call("CONFIG", "GET", "watchdog*").plain() == []

    server = new_streamd()
    on_each((new_redis(), server), look)
    assert '/streamd/debug/debug_commands.py", line ' in server.log()


# --- When memory runs out --------------------------------------------------------------------------------------------


def oom_score(pid: int) -> int:
    return int(Path(f"/proc/{pid}/oom_score_adj").read_text())


@pytest.mark.real
@pytest.mark.parametrize("first", ["no", "relative", "absolute"])
def test_oom_scores(new_streamd: Start, new_redis: Start, first: str) -> None:
    before = oom_score(os.getpid())
    if os.geteuid() != 0 and before > 0:
        pytest.skip("scores can only be raised here")
    seen = []
    for server in (new_streamd(oom_score_adj=first), new_redis(oom_score_adj=first)):
        found: list[object] = [oom_score(server.process.pid)]
        with server.connect() as wire:
            wire.call("DEBUG", "POPULATE", "20")
            wire.call("CONFIG", "SET", "rdb-key-save-delay", "10000000")
            for mode, values in (
                ("yes", "10 20 30"), ("absolute", "10 20 30"), ("relative", "50 60 1500"), ("no", "1 2 3"), ("yes", "1 2 x"),
                ("yes", "1 2 2001"), ("yes", "1 2"), ("maybe", "1 2 3"),
            ):  # fmt: skip
                answer = wire.call("CONFIG", "SET", "oom-score-adj", mode, "oom-score-adj-values", values)
                found += [
                    answer,
                    oom_score(server.process.pid),
                    sorted(wire.call("CONFIG", "GET", "oom-score-adj*").plain()),
                ]
            wire.call("CONFIG", "SET", "oom-score-adj", "relative", "oom-score-adj-values", "50 60 700")
            wire.call("BGSAVE")
            child = int(server.log().rpartition("Background saving started by pid ")[2].split()[0])
            eventually(lambda child=child: oom_score(child) - before == 700)  # type: ignore[misc]
        seen.append(found)
    assert seen[0] == seen[1]
