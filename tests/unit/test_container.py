"""The image's entry point: which command line it makes of its words and of the environment."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from streamd.cli.container import health, peek, server_arguments, settings_of
from streamd.client.client_errors import UnreachableError

OPEN = ["--protected-mode", "no"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], OPEN),
        (["redis-server"], OPEN),
        (["streamd", "server", "--port", "7"], [*OPEN, "--port", "7"]),
        (["/usr/local/bin/redis-server", "--save", ""], [*OPEN, "--save", ""]),
        (["--requirepass", "x"], [*OPEN, "--requirepass", "x"]),
        (["--protected-mode", "yes"], ["--protected-mode", "yes"]),
        (["redis-server", "/no/such.conf", "--port", "7"], ["/no/such.conf", *OPEN, "--port", "7"]),
        (["redis-server", "--version"], ["--version"]),
        (["sh", "-c", "echo"], None),
        (["streamd", "report"], None),
    ],
)
def test_the_first_word_says_what_is_run(words: list[str], expected: list[str] | None) -> None:
    assert server_arguments(words, {}) == expected


def test_a_file_may_be_the_first_word_and_may_ask_for_protected_mode(tmp_path: Path) -> None:
    file = tmp_path / "settings"
    file.write_text("port 7\n")
    assert server_arguments([str(file)], {}) == [str(file), *OPEN]
    file.write_text("port 7\n  Protected-Mode yes\n")
    assert server_arguments([str(file)], {}) == [str(file)]


def test_settings_come_from_the_environment_and_options_override_them() -> None:
    environment = {"STREAMD_APPENDONLY": "yes", "STREAMD_MAXMEMORY": "1gb", "STREAMD_SAVE": "60 1", "HOME": "/"}
    assert server_arguments(["--maxmemory", "2gb"], environment) == [
        *OPEN, "--appendonly", "yes", "--save", "", "--save", "60 1", "--maxmemory", "2gb",
    ]  # fmt: skip
    assert server_arguments([], {"STREAMD_SAVE": "", "STREAMD_PROTECTED_MODE": "yes"}) == [
        "--protected-mode", "yes", "--save", "",
    ]  # fmt: skip


def test_a_secret_may_lie_in_a_file(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("p@ss word\n")
    found = settings_of({"STREAMD_REQUIREPASS_FILE": str(secret), "STREAMD_TLS_CERT_FILE": "/cert.pem"})
    assert found == {"requirepass": "p@ss word", "tls-cert-file": "/cert.pem"}


def test_what_an_orchestrator_sets_for_a_service_is_no_setting(capsys: pytest.CaptureFixture[str]) -> None:
    links = {
        "STREAMD_PORT": "tcp://10.0.0.1:6379", "STREAMD_SERVICE_HOST": "10.0.0.1", "STREAMD_SERVICE_PORT": "6379",
        "STREAMD_PORT_6379_TCP": "tcp://10.0.0.1:6379", "STREAMD_PORT_6379_TCP_ADDR": "10.0.0.1",
        "STREAMD_HEADLESS_SERVICE_HOST": "10.0.0.2", "STREAMD_SERVICE_PORT_REDIS": "6379",
    }  # fmt: skip
    assert settings_of(links) == {}
    assert capsys.readouterr().err == ""
    assert settings_of({"STREAMD_PORT": "7"}) == {"port": "7"}


def test_a_misspelt_setting_is_told_of(capsys: pytest.CaptureFixture[str]) -> None:
    assert settings_of({"STREAMD_MAX_MEMORY": "1gb"}) == {}
    assert capsys.readouterr().err == (
        "streamd: STREAMD_MAX_MEMORY is ignored: there is no setting max-memory; did you mean maxmemory?\n"
    )


def test_a_file_may_have_lines_that_the_whole_server_knows(tmp_path: Path) -> None:
    file = tmp_path / "streamd.conf"
    file.write_text("user alice on nopass ~* +@all\nrename-command FLUSHALL nuke\nport 7\n")
    config = peek([str(file)])
    assert config is not None
    assert config.port == 7


def test_nobody_there_is_not_healthy() -> None:
    with pytest.raises(UnreachableError, match="Could not connect to"):
        health(["--port", "1"], {})


def test_what_is_no_program_is_told_of_in_one_line() -> None:
    command = [sys.executable, "-m", "streamd.cli.container", "no-such-program"]
    said = subprocess.run(command, capture_output=True, text=True)
    assert said.returncode == 1
    assert said.stderr == (
        "streamd: no-such-program is not a program, an option of redis-server, or a file of settings\n"
    )


def test_settings_that_rooms_declare_are_known_to_the_entry_point() -> None:
    """In a process of its own: other tests import the rooms."""
    script = """
from streamd.cli.container import peek, settings_of
assert peek(["--port", "7000", "--io-threads", "4"]).port == 7000
print(settings_of({"STREAMD_IO_THREADS": "4", "STREAMD_MIN_REPLICAS_DURABLE": "1"}))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "{'io-threads': '4', 'min-replicas-durable': '1'}\n", done.stderr
