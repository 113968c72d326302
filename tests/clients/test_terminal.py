"""What a hostile server sends is shown by every subcommand, and obeyed by no terminal."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import redis
from support.pages.hostile import SEQUENCES, HostileServer
from support.pages.terminals import open_terminal
from support.servers import Server, eventually, python_environment

pytestmark = pytest.mark.long

StartServer = Callable[..., Server]
DEADLINE_S = 100
NAME = "orders" + "".join(SEQUENCES) + "\n"

ANSWERED_WITH_ERRORS = {
    "cli": "cli -p {port} PING",
    "cli over RESP3": "cli -3 -p {port} PING",
    "cli in JSON": "cli -2 --json -p {port} PING",
    "doctor": "doctor redis://127.0.0.1:{port}",
    "top": "top redis://127.0.0.1:{port}",
    "top once": "top --once redis://127.0.0.1:{port}",
    "import": "import redis://127.0.0.1:{port} --to redis://127.0.0.1:{port}",
    "export": "export orders --to {folder}/orders.parquet --url redis://127.0.0.1:{port}",
    "report": "report orders --url redis://127.0.0.1:{port}",
    "history": "history orders --url redis://127.0.0.1:{port}",
    "archive": "archive run {folder}/archive orders --url redis://127.0.0.1:{port}",
    "load": "load {folder}/rows.csv --into orders --url redis://127.0.0.1:{port}",
}


@pytest.fixture
def hostile() -> Iterator[HostileServer]:
    with HostileServer() as server:
        yield server


def on_terminal(command: list[str], cwd: Path) -> str:
    """What a command writes to a terminal: its output and its errors."""
    ours, theirs = open_terminal()
    environment = {**python_environment(), "TERM": "xterm", "COLUMNS": "200", "LINES": "50"}
    process = subprocess.Popen(
        [sys.executable, "-m", "streamd", *command],
        cwd=cwd, env=environment, stdin=theirs, stdout=theirs, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    said = b""
    try:
        with suppress(OSError):  # the end, on Linux
            while select.select([ours], [], [], DEADLINE_S)[0] and (data := os.read(ours, 1 << 16)):
                said += data
                if b"owned" in said and command[0] == "top":
                    os.write(ours, b"q")  # the screen stays until then
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    return said.decode("utf-8", "replace")


def is_tame(said: str) -> bool:
    return not any(each in said for each in SEQUENCES)


@pytest.mark.parametrize("words", ANSWERED_WITH_ERRORS.values(), ids=ANSWERED_WITH_ERRORS)
def test_an_error_is_shown_with_escapes(hostile: HostileServer, tmp_path: Path, words: str) -> None:
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n")
    said = on_terminal(words.format(port=hostile.port, folder=tmp_path).split(), tmp_path)
    assert "owned" in said, said
    assert is_tame(said), repr(said)


@pytest.mark.parametrize(
    "words",
    [
        "cli -3 -p {port} INFO",
        "cli -3 --json -p {port} INFO",
        "cli -p {port} PING",
        "top --once --interval 0.1 redis://127.0.0.1:{port}",
    ],
)
def test_what_it_tells_of_itself_is_shown_with_escapes(tmp_path: Path, words: str) -> None:
    with HostileServer(is_friendly=True) as server:
        said = on_terminal(words.format(port=server.port).split(), tmp_path)
    assert "owned" in said, said
    assert is_tame(said), repr(said)


def test_what_is_sent_through_a_pipe_is_as_it_was(hostile: HostileServer, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "streamd", "cli", "-p", str(hostile.port), "PING"]
    said = subprocess.run(command, env=python_environment(), capture_output=True, timeout=DEADLINE_S, check=False)
    assert said.stdout.decode() == "ERR refused " + "".join(SEQUENCES) + "\n\n"


def test_names_and_values_are_shown_with_escapes(new_streamd: StartServer, tmp_path: Path) -> None:
    server = new_streamd()
    with redis.Redis(port=server.port) as client:
        for number in range(3):
            client.xadd(NAME, {NAME: NAME, "n": number})
        client.xgroup_create(NAME, NAME, 0)
        client.xreadgroup(NAME, NAME, {NAME: ">"}, count=2)
    url = f"redis://127.0.0.1:{server.port}"
    commands = [
        ["cli", "-p", str(server.port), "XRANGE", NAME, "-", "+"],
        ["cli", "-3", "--json", "-p", str(server.port), "XRANGE", NAME, "-", "+"],
        ["doctor", "--interval", "0.1", "--gone-after", "0", url],
        *(["top", "--once", "--interval", "0.1", "--table", table, url] for table in ("groups", "streams", "consumers")),
        ["top", "--interval", "0.5", url],
        *(["history", NAME, "--format", form, "--url", url] for form in ("table", "csv", "json")),
        ["report", NAME, "--url", url, "--out", "-"],
        ["export", NAME, "--to", str(tmp_path / "orders.csv"), "--url", url],
        ["archive", "run", str(tmp_path / "archive"), NAME, "--keep", "0s", "--url", url],
        ["archive", "status", str(tmp_path / "archive"), "--url", url],
        ["archive", "verify", str(tmp_path / "archive")],
    ]  # fmt: skip
    for command in commands:
        said = on_terminal(command, tmp_path)
        assert "owned" in said, (command, said)
        assert is_tame(said), (command, said)


def test_the_log_of_a_server_has_escapes_for_what_its_primary_says(
    hostile: HostileServer, new_streamd: StartServer
) -> None:
    server = new_streamd(replicaof=f"127.0.0.1 {hostile.port}")
    eventually(lambda: "owned" in server.log(), DEADLINE_S, "the error of the primary")
    assert is_tame(server.log())
