"""redis-cli in the modes that watch a server, and as a person at a terminal sees it.

Marked `real`: the program comes with a real Redis. Every test runs against streamd and, to prove it, against that Redis.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator

import pytest
from support.compare.observing import client_fields
from support.servers import Server, eventually, find_oracle
from support.wire import encode_request

pytestmark = [pytest.mark.long, pytest.mark.real]

TIMEOUT_S = 100


def argv(server: Server, *arguments: str) -> list[str]:
    oracle = find_oracle()
    assert oracle is not None
    return [oracle.cli, "-p", str(server.port), *arguments]


@pytest.fixture
def cli(server: Server) -> Callable[..., str]:
    """Run redis-cli with arguments; give what it prints."""

    def run(*arguments: str) -> str:
        done = subprocess.run(argv(server, *arguments), capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        assert done.stderr == "", done.stderr
        return done.stdout

    return run


class Terminal:
    """A program at a terminal of its own; it is killed at the end."""

    def __init__(self, command: list[str]) -> None:
        pid, self.fd = pty.fork()
        if pid == 0:
            os.environ["TERM"] = "xterm"
            os.execv(command[0], command)
        self.pid = pid
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 400, 0, 0))
        self.seen = ""

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def wait_for(self, pattern: str, timeout_s: float = TIMEOUT_S) -> re.Match[str]:
        """Read until what has been printed since the last match has the pattern; return the match."""
        deadline = time.monotonic() + timeout_s
        while (match := re.search(pattern, self.seen)) is None:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.fd], [], [], left)[0]:
                raise AssertionError(f"{pattern!r} was not printed; printed was {self.seen!r}")
            self.seen += os.read(self.fd, 65536).decode(errors="replace")
        self.seen = self.seen[match.end() :]
        return match

    def close(self) -> None:
        os.close(self.fd)
        os.kill(self.pid, 9)
        os.waitpid(self.pid, 0)


@pytest.fixture
def terminal(server: Server) -> Iterator[Callable[..., Terminal]]:
    """Start redis-cli at a terminal."""
    started: list[Terminal] = []

    def start(*arguments: str) -> Terminal:
        started.append(Terminal(argv(server, *arguments)))
        return started[-1]

    yield start
    for one in started:
        one.close()


@pytest.fixture
def background(server: Server) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start redis-cli and leave it running; it is killed at the end."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            argv(server, *arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            bufsize=1,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def filled(server: Server) -> Server:
    """A server with ten streams, the last of them the largest, and a string."""
    with server.connect() as wire:
        for number in range(10):
            for entry in range(1, 2 + number * 20):
                wire.call("XADD", f"stream:{number}", f"{entry}-0", "field", "value")
        wire.call("SET", "text", "a value")
    return server


# --- monitor ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["-2", "-3"])
def test_monitor(protocol: str, server: Server, background: Callable[..., subprocess.Popen[str]]) -> None:
    process = background(protocol, "monitor")
    assert process.stdout is not None
    assert process.stdout.readline() == "OK\n"
    with server.connect() as wire:
        wire.call("XADD", "s", "*", "field", 'a "quoted" value')
        wire.call("AUTH", "secret")
        line = process.stdout.readline()
        assert re.fullmatch(
            r'\d+\.\d{6} \[0 127\.0\.0\.1:\d+\] "XADD" "s" "\*" "field" "a \\"quoted\\" value"\n', line
        ), line
        assert process.stdout.readline().endswith('"AUTH" "(redacted)"\n')


def test_monitor_at_a_terminal(server: Server, terminal: Callable[..., Terminal]) -> None:
    screen = terminal()
    screen.wait_for(r"127\.0\.0\.1:\d+> ")
    screen.type("MONITOR\r")
    screen.wait_for("OK")
    with server.connect() as wire:
        wire.call("ECHO", "hello")
        screen.wait_for(r'\[0 127\.0\.0\.1:\d+\] "ECHO" "hello"')


# --- What it prints again and again -------------------------------------------------------------------------------------


def test_stat(filled: Server, background: Callable[..., subprocess.Popen[str]]) -> None:
    """A line: keys, memory, clients, blocked clients, requests, connections."""
    process = background("--stat", "-i", "0.01")
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(5)]
    for line in lines[2:]:
        match = re.match(r"(\d+) +([\d.]+[BKMG]) +(\d+) +(\d+) +(\d+) \(\+\d+\) +(\d+)", line)
        assert match is not None, lines
        assert match[1] == "11"
        assert int(match[3]) >= 1
    with filled.connect() as wire, filled.connect() as reader:
        reader.send("XREAD", "BLOCK", "0", "STREAMS", "s", "$")
        eventually(lambda: b"blocked_clients:1" in wire.call("INFO", "clients").value)
        assert process.stdout is not None
        eventually(lambda: re.match(r"11 +\S+ +\d+ +1 ", process.stdout.readline()) is not None)  # type: ignore[union-attr]


@pytest.mark.parametrize("mode", ["--latency", "--latency-history"])
def test_latency(mode: str, background: Callable[..., subprocess.Popen[str]]) -> None:
    """Without a terminal: least, most, average, and how many."""
    process = background("--raw", mode, "-i", "1")
    assert process.stdout is not None
    least, most, average, count = map(float, process.stdout.readline().split()[:4])
    assert least <= average <= most
    assert count >= 1


def test_latency_as_a_spectrum(terminal: Callable[..., Terminal]) -> None:
    screen = terminal("--latency-dist", "-i", "1")
    screen.wait_for("milliseconds")
    screen.wait_for(r"\x1b\[\d")


def test_intrinsic_latency_needs_no_server(cli: Callable[..., str]) -> None:
    assert "total runs" in cli("--intrinsic-latency", "1")


# --- What looks through all keys ----------------------------------------------------------------------------------------


def test_bigkeys(filled: Server, cli: Callable[..., str]) -> None:
    shown = cli("--bigkeys")
    assert 'Biggest stream found "stream:9" has 181 entries' in shown, shown
    assert 'Biggest string found "text" has 7 bytes' in shown, shown
    assert "10 streams with 910 entries (90.91% of keys, avg size 91.00)" in shown, shown


def test_memkeys(filled: Server, cli: Callable[..., str]) -> None:
    shown = cli("--memkeys")
    match = re.search(r'Biggest stream found "stream:9" has (\d+) bytes', shown)
    assert match is not None, shown
    assert int(match[1]) > 1000
    assert re.search(r"10 streams with \d+ bytes \(90\.91% of keys", shown), shown


def test_keystats(filled: Server, cli: Callable[..., str]) -> None:
    shown = cli("--keystats")
    assert "Keys sampled: 11" in shown, shown
    assert re.search(r"stream +stream:9 has 181 entries", shown), shown
    assert re.search(r"string +text has 7B", shown), shown


def test_scan_finds_every_key_once(filled: Server, cli: Callable[..., str]) -> None:
    assert sorted(cli("--scan").split()) == sorted([*(f"stream:{number}" for number in range(10)), "text"])
    assert len(cli("--scan", "--pattern", "stream:*", "--count", "3").split()) == 10


# --- Others ------------------------------------------------------------------------------------------------------------


def test_resp3_shows_maps_and_doubles(filled: Server, cli: Callable[..., str]) -> None:
    shown = cli("-3", "--no-raw", "LATENCY", "HISTOGRAM", "xadd")
    assert re.match(r'1# "xadd" => *\n? *1# "calls" => \(integer\) \d+\n +2# "histogram_usec" =>', shown), shown
    assert cli("-3", "INFO", "server").startswith("# Server\n") or cli("-3", "INFO", "server").startswith(
        "# Server\r\n"
    )


def test_pipe(server: Server) -> None:
    requests = b"".join(encode_request(["XADD", "s", f"{number}-0", "f", "v"]) for number in range(1, 2001))
    done = subprocess.run(argv(server, "--pipe"), input=requests, capture_output=True, timeout=TIMEOUT_S, check=False)
    assert b"errors: 0, replies: 2000" in done.stdout, done


def test_slowlog_and_latency_are_shown(cli: Callable[..., str]) -> None:
    cli("CONFIG", "SET", "slowlog-log-slower-than", "0", "latency-monitor-threshold", "1")
    try:
        cli("DEBUG", "SLEEP", "0.02")
        assert re.search(r"\d+\) +1\) \(integer\) \d+\n", cli("--no-raw", "SLOWLOG", "GET"))
        assert "command - high" in cli("LATENCY", "GRAPH", "command")
        assert "command" in cli("LATENCY", "DOCTOR")
    finally:
        cli("CONFIG", "SET", "slowlog-log-slower-than", "10000", "latency-monitor-threshold", "0")
        cli("LATENCY", "RESET")


def test_lolwut_ends_with_the_version(cli: Callable[..., str]) -> None:
    for arguments in ((), ("VERSION", "5"), ("VERSION", "6"), ("VERSION", "7")):
        assert re.search(r"Redis ver\. \d+\.\d+\.\d+\n+\Z", cli("LOLWUT", *arguments))


# --- Hints while typing -----------------------------------------------------------------------------------------------


def test_hints_come_while_typing(server: Server, terminal: Callable[..., Terminal]) -> None:
    """They are made from COMMAND DOCS, which redis-cli reads when it starts at a terminal."""
    screen = terminal()
    screen.wait_for(r"127\.0\.0\.1:\d+> ")
    screen.type("XADD ")
    screen.wait_for(r"key \[NOMKSTREAM\].*<\* \| id>|key \[NOMKSTREAM\]")
    screen.type("s ")
    screen.wait_for(r"\[NOMKSTREAM\]")
    screen.type("* field value\r")
    screen.wait_for(r"\d{13}-0")
    screen.type("SLOWLOG GET ")
    screen.wait_for(r"\[count\]")
    screen.type("1\r")
    screen.wait_for(r"\(empty array\)|1\)")
    with server.connect() as wire:
        assert wire.call("XLEN", "s").value == 1


def test_help_at_the_terminal(terminal: Callable[..., Terminal]) -> None:
    screen = terminal()
    screen.wait_for(r"127\.0\.0\.1:\d+> ")
    screen.type("HELP XLEN\r")
    screen.wait_for(r"XLEN\x1b\[0m \x1b\[90mkey")
    screen.wait_for(r"since:\x1b\[0m 5\.0\.0")


def test_a_terminal_tells_who_it_is(server: Server, terminal: Callable[..., Terminal]) -> None:
    screen = terminal()
    screen.wait_for(r"127\.0\.0\.1:\d+> ")
    screen.type("CLIENT ID\r")
    number = int(screen.wait_for(r"\(integer\) (\d+)")[1])
    with server.connect() as wire:
        fields = client_fields(wire, number)
    assert fields["flags"] == "N"
    assert fields["cmd"] == "client|id"
