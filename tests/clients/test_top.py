"""`streamd top`: printed once, as JSON, and on a screen, which is seen through tmux. Against streamd, Redis and Valkey."""

from __future__ import annotations

import json
import os
import select
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
from support.pages import terminals
from support.servers import Server, eventually, free_port, python_environment
from support.tools import find_tool

from streamd.client.place import Place
from streamd.watching.board import Board
from streamd.watching.look import Limits, Reader

pytestmark = pytest.mark.long

StartServer = Callable[..., Server]
DEADLINE_S = 100
AS_IT_IS = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN); import streamd.__main__ as main; main.main()"
LEADER = "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); " + AS_IT_IS


@pytest.fixture(params=["streamd", pytest.param("redis", marks=pytest.mark.real(since="7.0")), "valkey"])
def server(request: pytest.FixtureRequest) -> Server:
    """A server of one's own: `streamd top` shows all of its streams, and whether it is there."""
    start: StartServer = request.getfixturevalue(f"new_{request.param}")
    return start()


@pytest.fixture
def client(server: Server) -> Iterator[redis.Redis]:
    """With two streams: `orders` has a group that lags, `readings` one that has read all."""
    with redis.Redis(port=server.port, protocol=2, decode_responses=True) as found:
        for number in range(30):
            found.xadd("orders", {"number": number, "note": "of May"})
            found.xadd("readings", {"celsius": number})
        found.xgroup_create("orders", "billing", 0)
        found.xgroup_create("readings", "archive", 0)
        found.xreadgroup("billing", "alice", {"orders": ">"}, count=10)
        found.xreadgroup("archive", "bob", {"readings": ">"})
        yield found


def url_of(server: Server) -> str:
    return f"redis://127.0.0.1:{server.port}"


def run(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "streamd", "top", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, env=python_environment() | env, timeout=DEADLINE_S, check=False
    )


# --- Without a terminal --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_leader", [True, False], ids=["of its own", "of another program"])
def test_the_screen_ends_with_its_terminal(streamd_server: Server, is_leader: bool) -> None:
    """The system sends SIGHUP to the leader of the terminal's session only."""
    ours, theirs = terminals.open_terminal()
    process = subprocess.Popen(
        [sys.executable, "-c", LEADER if is_leader else AS_IT_IS, "top", url_of(streamd_server)],
        stdin=theirs, stdout=theirs, stderr=theirs, env=python_environment() | {"TERM": "xterm"},
        start_new_session=is_leader,
    )  # fmt: skip
    os.close(theirs)
    seen = b""
    try:
        while b"ommands" not in seen:  # in the last line of the screen
            assert select.select([ours], [], [], DEADLINE_S)[0], seen
            seen += os.read(ours, 1 << 16)
        os.close(ours)
        assert process.wait(DEADLINE_S) == -signal.SIGHUP
    finally:
        process.kill()
        process.wait(DEADLINE_S)


def test_without_input_it_prints_once(streamd_server: Server) -> None:
    ours, theirs = terminals.open_terminal()
    command = [sys.executable, "-m", "streamd", "top", "--interval", "0.1", url_of(streamd_server)]
    try:
        ran = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=theirs, env=python_environment(), timeout=DEADLINE_S, check=False
        )
        assert ran.returncode == 0
    finally:
        os.close(theirs)
        os.close(ours)


# --- Once ---------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("client")
def test_once_prints_figures_and_a_table(server: Server) -> None:
    said = run(url_of(server), "--interval", "0.1")
    assert (said.returncode, said.stderr) == (0, "")
    head, figures, empty, titles, *rows = said.stdout.splitlines()
    assert head.startswith(f"127.0.0.1:{server.port}  ")
    assert "2 streams, 2 groups" in head
    assert "commands/s" in figures
    assert empty == ""
    assert titles.split()[:3] == ["stream", "group", "lag"]
    assert [row.split()[:3] for row in rows] == [["orders", "billing", "20"], ["readings", "archive", "0"]]


@pytest.mark.usefixtures("client")
def test_once_takes_table_order_filter_and_number_of_rows(server: Server) -> None:
    def names(*options: str) -> list[str]:
        lines = run(url_of(server), "--interval", "0.1", *options).stdout.splitlines()
        return [line.split()[0] for line in lines[4:]]

    assert names("--table", "streams", "--sort", "stream") == ["orders", "readings"]
    assert names("--sort", "pending") == ["readings", "orders"]
    assert names("--rows", "1") == ["orders"]
    assert names("--filter", "ARCH") == ["readings"]
    assert names("--match", "read*", "--table", "consumers") == ["readings"]


def test_json_has_every_table_with_numbers(server: Server, client: redis.Redis) -> None:
    client.execute_command("CONFIG", "SET", "slowlog-log-slower-than", "0")
    client.set("a", "b")
    said = json.loads(run("--json", "--interval", "0.1", STREAMD_URL=url_of(server)).stdout)
    (orders,) = (row for row in said["groups"] if row["stream"] == "orders")
    assert (orders["lag"], orders["pending"], orders["consumers"], orders["out_per_s"]) == (20, 10, 1, 0.0)
    assert 0 < orders["oldest_pending_s"] < DEADLINE_S
    assert 0 < orders["lag_s"] < DEADLINE_S
    assert {row["consumer"]: row["pending"] for row in said["consumers"]} == {"alice": 10, "bob": 30}
    assert {row["stream"]: row["length"] for row in said["streams"]} == {"orders": 30, "readings": 30}
    assert "xadd" in [row["command"] for row in said["commands"]]
    assert "set a b" in [row["command"].lower() for row in said["slow"]]
    assert (said["streams"][0]["groups"], said["refused"]) == (1, {})


def test_rates_are_those_between_two_looks(server: Server, client: redis.Redis) -> None:
    board = Board(Reader(Place(port=server.port), Limits()))
    board.refresh()
    (row,) = (each for each in board.rows("groups") if each["group"] == "billing")
    assert (row["in_per_s"], row["out_per_s"]) == (None, None)
    for _ in range(12):
        client.xadd("orders", {"a": 1})
    ((_, read),) = client.xreadgroup("billing", "alice", {"orders": ">"}, count=4)
    client.xack("orders", "billing", read[0][0], read[1][0])
    board.refresh()
    (row,) = (each for each in board.rows("groups") if each["group"] == "billing")
    assert row["in_per_s"] == pytest.approx(3 * row["out_per_s"])
    # Between 10 and 12 entries were pending; two have been acknowledged in the time in which four were read.
    assert row["takes_s"] == pytest.approx(11 / (row["out_per_s"] / 2))
    client.delete("orders")
    board.refresh()
    assert [each["group"] for each in board.rows("groups")] == ["archive"]
    board.reader.close()


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (["redis://127.0.0.1:PORT"], 1, "Error: Could not connect to 127.0.0.1:PORT: Connection refused\n"),
        (["--sort", "colour"], 2, "groups has no column colour: stream, group, lag, "),
    ],
)
def test_what_is_wrong_is_said_in_one_line(arguments: list[str], status: int, text: str) -> None:
    port = str(free_port())
    said = run(*(each.replace("PORT", port) for each in arguments))
    assert (said.returncode, said.stdout) == (status, "")
    assert text.replace("PORT", port) in said.stderr


# --- On a screen --------------------------------------------------------------------------------------------------------


class Terminal:
    """A terminal of 120 columns and 30 lines, in which a program runs."""

    def __init__(self, folder: Path, *command: str) -> None:
        self._tmux = [find_tool("tmux"), "-S", str(folder / "tmux"), "-f", "/dev/null"]
        line = f"{shlex.join(command)}; echo ended with $?; exec cat"
        self._do("new-session", "-d", "-x", "120", "-y", "30", line)

    def _do(self, *words: str) -> str:
        environment = python_environment() | {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
        for name in ("COLUMNS", "LINES"):  # the size of another terminal, which readline has noted
            environment.pop(name, None)
        done = subprocess.run([*self._tmux, *words], capture_output=True, text=True, env=environment, check=True)
        return done.stdout

    def press(self, *keys: str) -> None:
        self._do("send-keys", *keys)

    def lines(self) -> list[str]:
        return self._do("capture-pane", "-p").splitlines()

    def wait_for(self, *texts: str, without: str = "\0", rows: list[str] | None = None) -> list[str]:
        """Wait until all of these are on the screen, and the other is not; return its lines.

        rows  the first words of the rows of the table
        """
        lines: list[str] = []

        def is_there() -> bool:
            lines[:] = self.lines()
            shown = "\n".join(lines)
            is_shown = all(text in shown for text in texts) and without not in shown
            return is_shown and rows in (None, first_words(lines))

        try:
            eventually(is_there, DEADLINE_S)
        except AssertionError:
            raise AssertionError(f"not on the screen: {texts}, {rows}\n" + "\n".join(lines)) from None
        return lines

    def close(self) -> None:
        self._do("kill-server")


@pytest.fixture
def open_terminal(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def open_one(*command: str) -> Terminal:
        opened.append(Terminal(tmp_path, sys.executable, *command))
        return opened[-1]

    yield open_one
    for each in opened:
        each.close()


def first_words(lines: list[str]) -> list[str]:
    """The first word of each row of the table."""
    return [line.split()[0] for line in lines[4:-1] if line.split()]


def test_a_screen_with_keys(server: Server, client: redis.Redis, open_terminal: Callable[..., Terminal]) -> None:
    screen = open_terminal("-m", "streamd", "top", url_of(server), "--interval", "0.2")
    lines = screen.wait_for(
        "billing", "archive", "groups: 2 | by lag", "commands/s", f":{server.port}", rows=["orders", "readings"]
    )
    assert f"127.0.0.1:{server.port}" in lines[0]
    assert "commands/s" in lines[1]

    screen.press("r")
    screen.wait_for("by lag, reversed", rows=["readings", "orders"])
    screen.press("r")
    screen.press("<")
    screen.wait_for("by group", rows=["readings", "orders"])
    screen.press("/")
    screen.wait_for("show only what contains")
    screen.press("bill")
    screen.wait_for("groups: 1", "with 'bill'", without="archive")
    screen.press("Escape")
    screen.wait_for("archive", "groups: 2")

    screen.press("2")
    screen.wait_for("streams: 2", "worst lag")
    screen.press("Enter")
    screen.wait_for("groups, stream orders: 1", without="archive")
    screen.press("Enter")
    screen.wait_for("pending, stream orders, group billing: 10", "alice")
    screen.press("Enter")
    screen.wait_for("number  0", "note  of May")
    screen.press("Escape")
    screen.wait_for("pending, stream orders", without="of May")
    screen.press("Escape")
    screen.wait_for("groups, stream orders: 1")
    screen.press("Escape")
    screen.wait_for("streams: 2")

    screen.press("Tab")
    screen.wait_for("consumers: 2", "got something")
    screen.press("4")
    screen.wait_for("commands: ", "xadd")
    client.xadd("orders", {"a": 1})
    screen.press("1")
    screen.wait_for("groups: 2", " 21 ")
    screen.press("q")
    screen.wait_for("ended with 0")


@pytest.mark.usefixtures("client")
def test_a_lost_connection_is_told_and_made_again(server: Server, open_terminal: Callable[..., Terminal]) -> None:
    screen = open_terminal("-m", "streamd", "top", url_of(server), "--interval", "0.2")
    screen.wait_for("billing", "groups: 2")
    server.kill()
    screen.wait_for("billing", f"127.0.0.1:{server.port}: Connection refused")
    server.restart()
    screen.wait_for("groups: 0", without="refused")
    screen.press("q")
    screen.wait_for("ended with 0")


@pytest.mark.usefixtures("client")
def test_an_interrupt_ends_it_also_in_the_filter(server: Server, open_terminal: Callable[..., Terminal]) -> None:
    screen = open_terminal("-m", "streamd", "top", url_of(server), "--interval", "0.2")
    screen.wait_for("billing", "groups: 2")
    screen.press("/")
    screen.wait_for("show only what contains")
    screen.press("C-c")
    screen.wait_for("ended with 0")


@pytest.mark.usefixtures("client")
def test_without_textual_it_says_what_is_missing(server: Server, open_terminal: Callable[..., Terminal]) -> None:
    program = "import sys; sys.modules['textual.app'] = None; from streamd.cli import main; main(sys.argv[1:])"
    screen = open_terminal("-c", program, "top", url_of(server))
    screen.wait_for("Error: The screen needs textual, of the extra `top`; --once prints without it.", "ended with 1")
