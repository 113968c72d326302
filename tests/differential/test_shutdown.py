"""The end of a server: SHUTDOWN and its words, SIGTERM and SIGINT, what is answered, logged and left behind, as a real Redis does."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.compare.log_lines import said
from support.servers import Server, eventually
from support.wire import ConnectionClosed, Reply, Wire, encode_request

pytestmark = [
    pytest.mark.long,
    pytest.mark.real,
    pytest.mark.skipif(sys.platform != "linux", reason="signals and /proc as on Linux"),
]

KEYS = 20
"""Few, with a delay for each: snapshots that take as long as a test wants."""

Start = Callable[..., Server]
Seen = tuple[object, ...]


@pytest.fixture
def both(new_streamd: Start, new_redis: Start) -> Callable[..., None]:
    """Run a scenario on a fresh server of each kind, and compare what it returns."""

    def compare(scenario: Callable[[Server], Seen], **directives: str) -> None:
        ours, theirs = (scenario(start(**directives)) for start in (new_streamd, new_redis))
        assert ours == theirs

    return compare


def ask(wire: Wire, *words: object) -> Reply | str:
    """The reply, or that the server hung up instead."""
    try:
        return wire.call(*words)
    except ConnectionClosed:
        return "closed"


def exit_code(server: Server) -> int:
    return server.process.wait(60)


def files(server: Server) -> list[str]:
    return sorted(path.name for path in server.folder.iterdir() if path.name != "output.log")


def wait_for_file(server: Server, pattern: str) -> Path:
    eventually(lambda: list(server.folder.glob(pattern)), what=pattern)
    return next(server.folder.glob(pattern))


def wait_for_line(server: Server, mark: int, text: str) -> None:
    eventually(lambda: text in server.log_since(mark), what=text)


def populate(wire: Wire, delay_us: int) -> None:
    assert wire.call("DEBUG", "POPULATE", KEYS) == Reply("+", b"OK")
    assert wire.call("SET", "k", "v") == Reply("+", b"OK")
    assert wire.call("CONFIG", "SET", "rdb-key-save-delay", delay_us) == Reply("+", b"OK")


@pytest.mark.parametrize(
    "words",
    ["ABORT", "ABORT NOSAVE", "SAVE NOSAVE", "NOW FORCE ABORT", "FOO", "NOSAVE FOO"],
)
def test_what_shutdown_refuses(both: Callable[..., None], words: str) -> None:
    def scenario(server: Server) -> Seen:
        with server.connect() as wire:
            return ask(wire, "SHUTDOWN", *words.split()), ask(wire, "PING")

    both(scenario)


@pytest.mark.parametrize("words", ["", "SAVE", "NOSAVE", "NOW", "FORCE SAVE", "NOSAVE NOW FORCE"])
def test_shutdown_answers_nobody(both: Callable[..., None], words: str) -> None:
    def scenario(server: Server) -> Seen:
        mark = server.log_mark()
        with server.connect() as waiting, server.connect() as subscriber, server.connect() as wire:
            waiting.send("XREAD", "BLOCK", "0", "STREAMS", "s", "$")
            subscriber.call("SUBSCRIBE", "channel")
            populate(wire, 0)
            answers = ask(wire, "SHUTDOWN", *words.split())
            ends = ask(waiting, "PING"), ask(subscriber, "PING")
        return answers, ends, exit_code(server), said(server, mark), files(server)

    both(scenario, save="3600 1")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_shutdown_that_a_signal_asked_for_can_be_called_off(both: Callable[..., None], number: int) -> None:
    def scenario(server: Server) -> Seen:
        mark = server.log_mark()
        with server.connect() as wire:
            wire.call("DEBUG", "PAUSE-CRON", 1)
            server.process.send_signal(number)
            wait_for_line(server, mark, "scheduling shutdown")
            answers = [ask(wire, "SHUTDOWN", "ABORT"), ask(wire, "SHUTDOWN", "ABORT")]
            wire.call("DEBUG", "PAUSE-CRON", 0)
            answers += [ask(wire, "DEBUG", "SLEEP", "0.3"), ask(wire, "PING")]
            # A signal that comes while a request runs does not win over the next one of the same pipeline.
            requests = [["DEBUG", "LOG", "asleep"], ["DEBUG", "SLEEP", "3"], ["SHUTDOWN", "ABORT"]]
            wire.send_bytes(b"".join(map(encode_request, requests)))
            wait_for_line(server, mark, "DEBUG LOG: asleep")
            server.process.send_signal(number)
            answers += [wire.read(), wire.read(), wire.read(), ask(wire, "PING")]
        return answers, server.is_running, said(server, mark)

    both(scenario)


@pytest.mark.parametrize(
    ("first", "second"),
    [(signal.SIGTERM, signal.SIGTERM), (signal.SIGINT, signal.SIGINT), (signal.SIGTERM, signal.SIGINT)],
)
def test_a_second_sigint_insists(both: Callable[..., None], first: int, second: int) -> None:
    def scenario(server: Server) -> Seen:
        mark = server.log_mark()
        with server.connect() as wire:
            populate(wire, 0)
            wire.call("DEBUG", "PAUSE-CRON", 1)
            for number in (first, second):
                before = server.log_mark()
                server.process.send_signal(number)
                eventually(lambda before=before: server.log_mark() > before)  # type: ignore[misc]
            if second == signal.SIGTERM:
                wire.call("DEBUG", "PAUSE-CRON", 0)
            return exit_code(server), said(server, mark), files(server)

    both(scenario, save="3600 1")


@pytest.mark.parametrize("how", ["SIGINT", "SHUTDOWN"])
def test_who_insists_while_the_last_snapshot_is_written_leaves_no_part_of_it(
    both: Callable[..., None], how: str
) -> None:
    def scenario(server: Server) -> Seen:
        mark = server.log_mark()
        with server.connect() as wire:
            populate(wire, 1_000_000)
            if how == "SHUTDOWN":
                wire.send("SHUTDOWN")
            else:
                server.process.send_signal(signal.SIGINT)
            wait_for_file(server, "temp-*.rdb")
            insisting = 2 if how == "SHUTDOWN" else 1
            for _ in range(insisting):
                before = server.log_mark()
                server.process.send_signal(signal.SIGINT)
                eventually(lambda before=before: server.log_mark() > before)  # type: ignore[misc]
            return exit_code(server), said(server, mark), files(server)

    both(scenario, save="3600 1")


@pytest.mark.parametrize(("command", "pattern"), [("BGSAVE", "temp-*.rdb"), ("BGREWRITEAOF", "temp-rewriteaof-*")])
def test_a_child_ends_with_its_server(both: Callable[..., None], command: str, pattern: str) -> None:
    def scenario(server: Server) -> Seen:
        with server.connect() as wire:
            populate(wire, 1_000_000)
            mark = server.log_mark()
            wire.call(command)
            wait_for_file(server, pattern)
            answer = ask(wire, "SHUTDOWN", "NOSAVE")
            code = exit_code(server)
        eventually(lambda: not list(server.folder.glob("temp-*")))
        return answer, code, said(server, mark), files(server)

    both(scenario, appendonly="yes" if command == "BGREWRITEAOF" else "no")


def test_while_the_first_append_only_file_is_written(both: Callable[..., None]) -> None:
    def scenario(server: Server) -> Seen:
        with server.connect() as wire:
            populate(wire, 1_000_000)
            wire.call("CONFIG", "SET", "appendonly", "yes")
            mark = server.log_mark()
            answers = [ask(wire, "SHUTDOWN")]
            server.process.send_signal(signal.SIGTERM)
            wait_for_line(server, mark, "Errors trying to shut down the server")
            answers += [ask(wire, "PING"), ask(wire, "SHUTDOWN", "FORCE", "NOSAVE")]
        return answers, exit_code(server), said(server, mark)

    both(scenario)


def test_a_snapshot_that_fails_keeps_the_server(both: Callable[..., None]) -> None:
    def scenario(server: Server) -> Seen:
        mark = server.log_mark()
        (server.folder / "dump.rdb").mkdir()
        with server.connect() as wire:
            populate(wire, 0)
            answers = [ask(wire, "SAVE"), ask(wire, "SHUTDOWN"), ask(wire, "SHUTDOWN", "SAVE")]
            for number in (signal.SIGTERM, signal.SIGINT):
                before = server.log_mark()
                server.process.send_signal(number)
                wait_for_line(server, before, "Errors trying to shut down the server")
            answers += [ask(wire, "PING"), ask(wire, "SET", "a", "b"), ask(wire, "SHUTDOWN", "FORCE")]
        code = exit_code(server)
        return answers, code, said(server, mark), files(server)

    both(scenario, save="3600 1")


def test_words_for_signals_and_files_that_go(both: Callable[..., None], tmp_path: Path) -> None:
    def scenario(server: Server) -> Seen:
        mark = server.log_mark()
        before = files(server)
        server.process.send_signal(signal.SIGTERM)
        return before, exit_code(server), sorted(said(server, mark)), files(server)

    both(scenario, save="3600 1", shutdown_on_sigterm="nosave", pidfile="pid", unixsocket="sock")


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGPIPE, signal.SIGUSR2])
def test_signals_that_change_nothing(both: Callable[..., None], number: int) -> None:
    def scenario(server: Server) -> Seen:
        server.process.send_signal(number)
        with server.connect() as wire:
            return (ask(wire, "PING"),)

    both(scenario)
