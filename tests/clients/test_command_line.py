"""The programs as a user starts them: `streamd server`, `streamd conf`, `python -m streamd`; exit codes, signals, files."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from support.servers import eventually, free_port, python_environment
from support.wire import ConnectionClosed, Wire

from streamd import REDIS_VERSION, __version__

ROOT = Path(__file__).parents[2]

# As the installed programs `streamd` and `streamd-server` are started by what pip writes for them.
STREAMD = [sys.executable, "-m", "streamd"]
STREAMD_SERVER = [
    sys.executable,
    "-c",
    "import sys; from streamd.cli.server import main; sys.argv[0] = 'streamd-server'; main()",
]


def run(*arguments: str, program: Sequence[str] = STREAMD, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*program, *arguments], input=stdin, capture_output=True, text=True, timeout=100, env=python_environment()
    )


class Running:
    """A server started by hand."""

    def __init__(
        self, folder: Path, *arguments: str, program: Sequence[str] = (*STREAMD, "server"), stdin: bytes = b""
    ) -> None:
        self.port = free_port()
        self.out = folder / "out.log"
        words = [word.replace("PORT", str(self.port)) for word in arguments]
        with self.out.open("wb") as out:
            self.process = subprocess.Popen(
                [*program, *words], stdin=subprocess.PIPE, stdout=out, stderr=subprocess.STDOUT, cwd=folder,
                env=python_environment(),
            )  # fmt: skip
        assert self.process.stdin is not None
        self.process.stdin.write(stdin.replace(b"PORT", b"%d" % self.port))
        self.process.stdin.close()

    def wait(self) -> Running:
        eventually(lambda: "Ready to accept connections" in self.said() or self.process.poll() is not None, 100)
        assert self.process.poll() is None, self.said()
        return self

    def said(self) -> str:
        return self.out.read_text()

    def ask(self, *words: str) -> object:
        with Wire(self.port, timeout_s=60) as wire:
            return wire.call(*words).plain()

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(100)


StartRunning = Callable[..., Running]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[StartRunning]:
    started: list[Running] = []

    def start_one(*arguments: str, **more: object) -> Running:
        started.append(Running(tmp_path, *arguments, **more))  # type: ignore[arg-type]
        return started[-1]

    yield start_one
    for running in started:
        if running.process.poll() is None:
            running.process.kill()
            running.process.wait()


# --- Without a server ------------------------------------------------------------------------------------------------


def test_the_program_tells_its_version() -> None:
    assert run("--version").stdout == f"streamd {__version__} (speaks Redis {REDIS_VERSION})\n"


@pytest.mark.parametrize(
    ("subcommand", "file"),
    [
        (("conf",), "conf/streamd.conf"),
        (("conf", "--markdown"), "docs/settings.md"),
        (("commands",), "docs/commands.md"),
    ],
)
def test_what_the_program_prints_is_in_the_tree(subcommand: tuple[str, ...], file: str) -> None:
    printed = run(*subcommand).stdout
    assert printed == (ROOT / file).read_text(), f"run: streamd {' '.join(subcommand)} > {file}"


@pytest.mark.parametrize("program", [(*STREAMD, "server"), STREAMD_SERVER], ids=["streamd", "streamd-server"])
@pytest.mark.parametrize("option", ["-v", "--version"])
def test_tools_find_the_version_of_redis_that_is_spoken(program: Sequence[str], option: str) -> None:
    ended = run(option, program=program)
    assert ended.returncode == 0
    assert re.match(rf"Redis server v={re.escape(REDIS_VERSION)} sha=\S+ malloc=\S+ bits=\d+ build=\S+\n", ended.stdout)


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_names_the_program(option: str) -> None:
    ended = run(option, program=STREAMD_SERVER)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("Usage: streamd-server ")
    assert run("server", option).stderr.startswith("Usage: streamd server ")


@pytest.mark.parametrize("arguments", [["--test-memory", "10"], ["--sentinel"], ["x.conf", "--sentinel"]], ids=" ".join)
def test_what_is_not_here_is_refused(arguments: list[str]) -> None:
    ended = run("server", *arguments)
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1


def test_an_error_of_the_configuration_ends_the_program() -> None:
    ended = run("server", "--port", "7000", "--hz", "ten")
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert ended.stderr == (
        f"\n*** FATAL CONFIG FILE ERROR (Redis {REDIS_VERSION}) ***\nReading the command line\n"
        ">>> 'hz \"ten\"'\nargument couldn't be parsed into an integer\n"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["none.conf"], r"Fatal error, can't open config file '/.*/none\.conf': No such file or directory"),
        (["--nosuch", "1"], r">>> 'nosuch 1'"),
        (["--prot", "23001"], r"there is no setting prot; did you mean port\?"),
        (["--bind", "", "--port", "7000"], r"Configured to not listen anywhere, exiting\."),
        (["--port", "0"], r"Configured to not listen anywhere, exiting\."),
        (
            ["--bind", "192.0.2.1", "--port", "7000"],
            r"Could not create server TCP listening socket 192\.0\.2\.1:7000: bind: .*",
        ),
    ],
)
def test_a_server_that_cannot_start_says_why_in_its_log(arguments: list[str], said: str) -> None:
    ended = run("server", *arguments)
    assert ended.returncode == 1
    assert ended.stderr == ""
    assert re.search(rf"^\d+:M \d\d \w\w\w \d{{4}} [\d:.]+ # .*{said}$", ended.stdout, re.MULTILINE), ended.stdout


def test_a_log_that_cannot_be_written_ends_the_program(tmp_path: Path) -> None:
    ended = run("server", "--logfile", str(tmp_path / "no/log"))
    assert ended.returncode == 1
    assert ended.stderr.endswith("***\nCan't open the log file: No such file or directory\n")


# --- With a server ---------------------------------------------------------------------------------------------------


def test_a_port_that_is_taken_ends_the_program(start: StartRunning) -> None:
    first = start("--port", "PORT", "--bind", "127.0.0.1").wait()
    ended = run("server", "--port", str(first.port), "--bind", "127.0.0.1")
    assert ended.returncode == 1
    assert f"Could not create server TCP listening socket 127.0.0.1:{first.port}: bind: " in ended.stdout


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_cleanly(number: int, start: StartRunning, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    running = start("--port", "PORT", "--bind", "127.0.0.1", "--pidfile", str(pid_file)).wait()
    assert int(pid_file.read_text()) == running.process.pid
    assert running.end(number) == 0
    assert "bye bye" in running.said()
    assert not pid_file.exists()


def test_a_server_that_cannot_listen_leaves_the_pid_file_of_the_one_that_does(
    start: StartRunning, tmp_path: Path
) -> None:
    pid_file = tmp_path / "pid"
    first = start("--port", "PORT", "--bind", "127.0.0.1", "--pidfile", str(pid_file)).wait()
    assert run("server", "--port", str(first.port), "--bind", "127.0.0.1", "--pidfile", str(pid_file)).returncode == 1
    assert int(pid_file.read_text()) == first.process.pid


def test_shutdown_ends_the_server_without_a_reply(start: StartRunning) -> None:
    running = start("--port", "PORT", "--bind", "127.0.0.1").wait()
    with Wire(running.port, timeout_s=60) as wire, pytest.raises(ConnectionClosed, match="before the end"):
        wire.call("SHUTDOWN", "NOSAVE")
    assert running.process.wait(100) == 0


def test_the_program_for_tools_takes_the_arguments_of_redis_server(start: StartRunning) -> None:
    running = start(
        "--port", "PORT", "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--loglevel", "verbose",
        program=STREAMD_SERVER,
    ).wait()  # fmt: skip
    assert running.ask("CONFIG", "GET", "save") == [b"save", b""]
    assert running.end() == 0


def test_the_file_the_standard_input_and_the_options_add_up(start: StartRunning, tmp_path: Path) -> None:
    (tmp_path / "a.conf").write_text("hz 20\ntimeout 5\nbind 127.0.0.1\n")
    running = start("a.conf", "--tcp-keepalive", "7", "-", stdin=b"port PORT\nhz 25\n").wait()
    found = running.ask("CONFIG", "GET", "hz", "timeout", "tcp-keepalive")
    assert isinstance(found, list)
    assert dict(zip(found[::2], found[1::2], strict=True)) == {b"hz": b"25", b"timeout": b"5", b"tcp-keepalive": b"7"}
    info = running.ask("INFO", "server")
    assert isinstance(info, bytes)
    assert f"config_file:{tmp_path / 'a.conf'}".encode() in info


def test_config_rewrite_survives_a_restart(start: StartRunning, tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "a.conf").write_text(f"# mine\nport {port}\nbind 127.0.0.1\n")
    for expected, new in ((b"100", "7"), (b"7", "8")):
        running = start("a.conf")
        running.port = port
        running.wait()
        assert running.ask("CONFIG", "GET", "stream-node-max-entries") == [b"stream-node-max-entries", expected]
        assert running.ask("CONFIG", "SET", "stream-node-max-entries", new) == b"OK"
        assert running.ask("CONFIG", "REWRITE") == b"OK"
        assert running.end() == 0
    assert (tmp_path / "a.conf").read_text().startswith(f"# mine\nport {port}\n")


def test_the_log_goes_to_a_file_in_the_directory_of_the_server(start: StartRunning, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    running = start("--port", "PORT", "--bind", "127.0.0.1", "--dir", "data", "--logfile", "server.log")
    log = tmp_path / "data/server.log"
    eventually(lambda: log.exists() and "Ready to accept connections" in log.read_text(), 100)
    assert running.said() == ""
    assert running.ask("CONFIG", "GET", "dir") == [b"dir", os.path.realpath(tmp_path / "data").encode()]
    assert running.end() == 0


def test_the_log_level_follows_config_set(start: StartRunning) -> None:
    running = start("--port", "PORT", "--bind", "127.0.0.1", "--enable-debug-command", "yes").wait()
    for level, text in (("nothing", "unheard"), ("warning", "heard")):
        assert running.ask("CONFIG", "SET", "loglevel", level) == b"OK"
        assert running.ask("DEBUG", "LOG", text) == b"OK"
    assert "DEBUG LOG: heard" in running.said()
    assert "unheard" not in running.said()
    assert running.end() == 0


def test_settings_without_effect_are_named_once_at_start(start: StartRunning) -> None:
    running = start("--port", "PORT", "--bind", "127.0.0.1", "--save", "", "--hide-user-data-from-log", "yes").wait()
    assert running.said().count("no effect yet") == 1
    assert "The setting hide-user-data-from-log has no effect yet" in running.said()
    assert running.end() == 0


def test_maxclients_is_what_the_system_allows(start: StartRunning, tmp_path: Path) -> None:
    limited = ["/bin/sh", "-c", 'ulimit -n 200; exec "$0" "$@"', *STREAMD, "server"]
    running = start("--port", "PORT", "--bind", "127.0.0.1", program=limited).wait()
    assert running.ask("CONFIG", "GET", "maxclients") == [b"maxclients", b"168"]
    reply = running.ask("CONFIG", "SET", "maxclients", "500")
    assert isinstance(reply, bytes)
    assert reply.endswith(b"The operating system is not able to handle the specified number of clients, try with 168")
    assert running.ask("CONFIG", "SET", "maxclients", "100") == b"OK"
    assert running.end() == 0


def test_a_renamed_command_has_its_new_name_only(start: StartRunning) -> None:
    running = start(
        "--port",
        "PORT",
        "--bind",
        "127.0.0.1",
        "--rename-command",
        "FLUSHALL",
        "",
        "--rename-command",
        "XLEN",
        "LENGTH",
    )
    running.wait()
    assert running.ask("LENGTH", "s") == 0
    for gone in ("XLEN", "FLUSHALL"):
        reply = running.ask(gone)
        assert isinstance(reply, bytes)
        assert reply.startswith(b"ERR unknown command")
    assert running.end() == 0
