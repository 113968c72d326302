"""What a newcomer gets wrong: each is told in a line that says what it is, with an exit status, and never with a traceback."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest
from support.servers import free_port, python_environment

SERVER = ["server", "--port", "{port}"]

MISTAKES: list[tuple[str, list[str], int, str]] = [
    ("a port that is taken", ["server", "--port", "{taken}"], 1, "Failed listening on port {taken} (tcp), aborting."),
    ("an address of another machine", [*SERVER, "--bind", "192.0.2.1"], 1, "bind: Cannot assign requested address"),
    ("a misspelt option", ["server", "--prot", "7000"], 1, ">>> 'prot 7000'"),
    ("a word for a number", ["server", "--port", "seven"], 1, "argument couldn't be parsed into an integer"),
    ("a file of settings that is not there", ["server", "a.conf"], 1, "a.conf': No such file or directory"),
    ("a folder for a file of settings", ["server", "."], 1, "Is a directory"),
    ("a folder that is not there", [*SERVER, "--dir", "/no/such"], 1, "No such file or directory"),
    ("a snapshot that is cut off", [*SERVER, "--dbfilename", "cut.rdb"], 1, "cut.rdb: at byte"),
    (
        "a file of another program",
        [*SERVER, "--dbfilename", "letter.txt"],
        1,
        "expected the magic REDIS, found b'Dear '",
    ),
    ("a log in a folder that is not there", [*SERVER, "--logfile", "/no/such/log"], 1, "Can't open the log file"),
    ("TLS without a certificate", ["server", "--port", "0", "--tls-port", "{port}"], 1, "No tls-cert-file configured!"),
    ("a subcommand that there is not", ["serve"], 2, "No such command 'serve'."),
    ("a snapshot to check that is not there", ["check-rdb", "a.rdb"], 1, "a.rdb: No such file or directory"),
    ("a URL of the web", ["cli", "-u", "http://localhost", "PING"], 1, "a URL begins with redis://"),
    (
        "a server that does not run",
        ["cli", "-p", "{port}", "PING"],
        1,
        "Could not connect to 127.0.0.1:{port}: Connection refused",
    ),
]


@pytest.mark.parametrize(
    ("arguments", "status", "text"), [row[1:] for row in MISTAKES], ids=[row[0] for row in MISTAKES]
)
def test_it_is_told_in_a_line(arguments: list[str], status: int, text: str, tmp_path: Path) -> None:
    (tmp_path / "cut.rdb").write_bytes(b"REDIS0011\xfe\x00\xfb\x05")
    (tmp_path / "letter.txt").write_text("Dear Sir or Madam\n")
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        places = {"taken": listening.getsockname()[1], "port": free_port()}
        command = [sys.executable, "-m", "streamd", *(word.format(**places) for word in arguments)]
        said = subprocess.run(
            command, cwd=tmp_path, env=python_environment(), capture_output=True, text=True, timeout=200
        )
    lines = (said.stdout + said.stderr).splitlines()
    assert [line for line in lines if text.format(**places) in line], "\n".join(lines)
    assert said.returncode == status
    assert "Traceback" not in said.stdout + said.stderr
