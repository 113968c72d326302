"""redis-cli as a subprocess: the tutorial, and the modes that ask the server for more than single commands.

Marked `real`: the program comes with a real Redis. Every test runs against streamd and, to prove it, against that Redis.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator

import pytest
from support.servers import Server, eventually, find_oracle
from support.wire import encode_request

pytestmark = pytest.mark.real

Cli = Callable[..., str]
TIMEOUT_S = 100


def argv(server: Server, *arguments: str) -> list[str]:
    oracle = find_oracle()
    assert oracle is not None
    return [oracle.cli, "-p", str(server.port), *arguments]


@pytest.fixture
def cli(server: Server) -> Cli:
    """Run redis-cli with arguments, and perhaps text on its standard input; give what it prints."""

    def run(*arguments: str, text: str | None = None) -> str:
        done = subprocess.run(
            argv(server, *arguments), input=text, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        assert done.stderr == "", done.stderr
        return done.stdout

    return run


@pytest.fixture
def background(server: Server) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start redis-cli and leave it running; it is killed at the end."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        started.append(
            subprocess.Popen(
                argv(server, *arguments),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def blocked_clients(server: Server) -> int:
    with server.connect() as wire:
        match = re.search(rb"blocked_clients:(\d+)", wire.call("INFO", "clients").value)
        assert match is not None
        return int(match[1])


# --- The tutorial ---------------------------------------------------------------------------------------------------


def test_the_tutorial(server: Server, cli: Cli, background: Callable[..., subprocess.Popen[str]]) -> None:
    first = cli("XADD", "race:france", "*", "rider", "Castilla", "speed", "30.2").strip()
    assert re.fullmatch(r"\d{13}-\d+", first)
    assert cli("XADD", "race:france", "99999999999999-1", "rider", "Norem", "speed", "28.8") == "99999999999999-1\n"
    assert cli("XLEN", "race:france") == "2\n"
    assert cli("XRANGE", "race:france", "-", "+", "COUNT", "1").splitlines() == [
        first,
        "rider",
        "Castilla",
        "speed",
        "30.2",
    ]
    assert cli("XREVRANGE", "race:france", "+", "-", "COUNT", "1").splitlines()[0] == "99999999999999-1"

    reader = background("XREAD", "BLOCK", "0", "STREAMS", "race:france", "$")
    eventually(lambda: blocked_clients(server) == 1)
    cli("XADD", "race:france", "99999999999999-2", "rider", "Prickett", "speed", "29.7")
    assert reader.communicate(timeout=TIMEOUT_S)[0].splitlines() == [
        "race:france", "99999999999999-2", "rider", "Prickett", "speed", "29.7"
    ]  # fmt: skip

    assert cli("XGROUP", "CREATE", "race:italy", "riders", "$", "MKSTREAM") == "OK\n"
    for number, rider in enumerate(["Castilla", "Royce", "Sam-Bodden", "Prickett", "Norem"], 1):
        assert cli("XADD", "race:italy", f"{number}-1", "rider", rider) == f"{number}-1\n"
    assert cli("XREADGROUP", "GROUP", "riders", "Alice", "COUNT", "1", "STREAMS", "race:italy", ">").splitlines() == [
        "race:italy", "1-1", "rider", "Castilla"
    ]  # fmt: skip
    assert cli("XREADGROUP", "GROUP", "riders", "Alice", "STREAMS", "race:italy", "0").splitlines()[1] == "1-1"
    assert cli("XACK", "race:italy", "riders", "1-1") == "1\n"
    assert cli("XREADGROUP", "GROUP", "riders", "Alice", "STREAMS", "race:italy", "0").split() == ["race:italy"]
    assert (
        cli("XREADGROUP", "GROUP", "riders", "Bob", "COUNT", "2", "STREAMS", "race:italy", ">").splitlines()[1] == "2-1"
    )
    assert cli("XPENDING", "race:italy", "riders").splitlines() == ["2", "2-1", "3-1", "Bob", "2"]
    rows = cli("XPENDING", "race:italy", "riders", "-", "+", "10").splitlines()
    assert rows[:2] + rows[3:6] == ["2-1", "Bob", "1", "3-1", "Bob"]
    assert cli("XCLAIM", "race:italy", "riders", "Alice", "0", "2-1").splitlines() == ["2-1", "rider", "Royce"]
    assert cli("XAUTOCLAIM", "race:italy", "riders", "Alice", "0", "0-0", "COUNT", "1").splitlines() == [
        "3-1", "2-1", "rider", "Royce", ""
    ]  # fmt: skip
    assert "entries-added\n5\n" in cli("XINFO", "STREAM", "race:italy")
    assert cli("XINFO", "GROUPS", "race:italy").splitlines()[:4] == ["name", "riders", "consumers", "2"]
    assert cli("XINFO", "CONSUMERS", "race:italy", "riders").splitlines()[:4] == ["name", "Alice", "pending", "1"]
    assert cli("XTRIM", "race:italy", "MAXLEN", "3") == "2\n"
    assert cli("XDEL", "race:italy", "3-1") == "1\n"
    assert cli("XRANGE", "race:italy", "-", "+").splitlines() == ["4-1", "rider", "Prickett", "5-1", "rider", "Norem"]


def test_errors_are_shown(cli: Cli) -> None:
    assert cli("XADD", "s", "0-0", "f", "v").strip() == "ERR The ID specified in XADD must be greater than 0-0"
    assert cli("NOSUCH").strip() == "ERR unknown command 'NOSUCH'"
    assert cli("XINFO", "STREAM", "none").strip() == "ERR no such key"


@pytest.mark.parametrize("protocol", ["-2", "-3"])
def test_replies_as_a_terminal_shows_them(cli: Cli, protocol: str) -> None:
    cli("XADD", "s", "1-1", "f", "v")
    cli("XGROUP", "CREATE", "s", "g", "0")
    shown = cli(protocol, "--no-raw", "XREADGROUP", "GROUP", "g", "a", "STREAMS", "s", ">")
    assert shown.startswith('1# "s" => ' if protocol == "-3" else '1) 1) "s"')
    assert '1) "1-1"' in shown
    assert cli(protocol, "--no-raw", "XREAD", "STREAMS", "s", "$").strip() == "(nil)"
    assert cli(protocol, "--no-raw", "XLEN", "s") == "(integer) 1\n"
    assert cli(protocol, "--no-raw", "GET", "s").startswith("(error) WRONGTYPE")


def test_json_output(cli: Cli) -> None:
    cli("XADD", "s", "1-1", "f", "v")
    assert cli("-3", "--json", "XREAD", "STREAMS", "s", "0").strip() == '{"s":[["1-1",["f","v"]]]}'


def test_commands_from_standard_input(cli: Cli) -> None:
    text = 'XADD s 1-1 f "a b"\nXADD s 2-1 f v\nXLEN s\nSELECT 1\nXLEN s\n'
    assert cli(text=text).split() == ["1-1", "2-1", "2", "OK", "0"]


def test_a_command_repeated(cli: Cli) -> None:
    cli("-r", "5", "XADD", "s", "*", "f", "v")
    assert cli("XLEN", "s") == "5\n"


def test_another_database_and_a_name(cli: Cli) -> None:
    cli("-n", "2", "XADD", "s", "1-1", "f", "v")
    assert cli("-n", "2", "DBSIZE") == "1\n"
    assert cli("DBSIZE") == "0\n"


# --- The other modes ------------------------------------------------------------------------------------------------


def test_scan_mode(cli: Cli) -> None:
    cli(text="".join(f"SET key:{n} v\n" for n in range(100)) + "XADD s 1-1 f v\n")
    assert sorted(cli("--scan").split()) == sorted([*(f"key:{n}" for n in range(100)), "s"])
    assert sorted(cli("--scan", "--pattern", "key:1*").split()) == sorted(
        ["key:1", *(f"key:{n}" for n in range(10, 20))]
    )


def test_bigkeys_mode(cli: Cli) -> None:
    cli("XADD", "big", "1-1", "f", "v")
    cli("XADD", "big", "1-2", "f", "v")
    cli("SET", "text", "value")
    shown = cli("--bigkeys")
    assert re.search(r'Biggest +stream found "+big"+ has 2 entries', shown), shown
    assert re.search(r'Biggest +string found "+text"+ has 5 bytes', shown), shown


def test_latency_mode(background: Callable[..., subprocess.Popen[str]]) -> None:
    """Without a terminal it measures for a second and prints minimum, maximum, average and number of pings."""
    shown = background("--raw", "--latency", "-i", "1").communicate(timeout=TIMEOUT_S)[0]
    least, most, average, count = map(float, shown.split())
    assert least <= average <= most
    assert count >= 1


def test_stat_mode(background: Callable[..., subprocess.Popen[str]]) -> None:
    process = background("--stat", "-i", "0.01")
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(4)]
    assert "data" in lines[0], lines
    assert "keys" in lines[1], lines
    assert re.match(r"0 +[\d.]+[BKMG]? +\d+ +0 +\d+ \(\+0\)", lines[2]) or re.match(r"0 +[\d.]+[BKMG]", lines[3]), lines


def test_pipe_mode(server: Server, cli: Cli) -> None:
    """Mass insertion: ten thousand raw requests, one of them wrong, and the count of replies and errors."""
    requests = [encode_request(["XADD", "s", f"{n}-0", "field", "value"]) for n in range(1, 10_001)]
    requests[5000] = encode_request(["XADD", "s", "1-0", "field", "value"])
    done = subprocess.run(
        argv(server, "--pipe"), input=b"".join(requests), capture_output=True, timeout=TIMEOUT_S, check=False
    )
    assert b"errors: 1, replies: 10000" in done.stdout, done
    assert cli("XLEN", "s") == "9999\n"


def test_interactive_hints_can_be_had(cli: Cli) -> None:
    """An interactive redis-cli asks for COMMAND DOCS and must be able to read them."""
    docs = cli("COMMAND", "DOCS", "XADD")
    assert "stream" in docs
    assert "NOMKSTREAM" in docs
    assert "nomkstream" in docs.lower()


def test_memory_and_latency_modes_do_not_fail(cli: Cli) -> None:
    cli("XADD", "s", "1-1", "f", "v")
    assert "redis_version" in cli("INFO", "server")
    assert cli("--no-raw", "CLIENT", "LIST").startswith('"id=') or cli("CLIENT", "LIST").startswith("id=")
