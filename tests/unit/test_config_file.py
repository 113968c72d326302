"""The grammar of configuration files and of the command line. No server; files in a folder of their own."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

import streamd.serve.app  # noqa: F401  (capabilities declare directives)
from streamd.absent.commands import FOREIGN_COMMANDS
from streamd.errors import ConfigError
from streamd.serve.families import renamed_table
from streamd.settings.config import (
    Config,
    ConfigFileError,
    UnresolvedError,
    fatal_text,
    parse_arguments,
)
from streamd.settings.declarations import RETIRED


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def start(*arguments: str, stdin: bytes = b"") -> Config:
    return Config.from_arguments(arguments, io.BytesIO(stdin))


def load(content: str | bytes) -> Config:
    Path("a.conf").write_bytes(content.encode() if isinstance(content, str) else content)
    return start("a.conf")


def failure(content: str | bytes) -> tuple[tuple[int, str] | None, str]:
    with pytest.raises(ConfigError) as caught:  # noqa: PT011  callers look at its text
        load(content)
    return caught.value.line, caught.value.reason


# --- Lines -----------------------------------------------------------------------------------------------------------


def test_names_are_without_case_and_blanks_do_not_matter() -> None:
    config = load('  PORT\t 7000  \r\n\n\t# comment\n"hz" 20\nslave-priority 7')
    assert (config.port, config.hz, config.replica_priority) == (7000, 20, 7)


@pytest.mark.parametrize("name", sorted(RETIRED))
def test_names_that_mean_nothing_any_more_are_passed_over(name: str) -> None:
    assert load(f"{name} 5\nport 7000").port == 7000
    assert start(f"--{name}", "no", "--port", "7000").port == 7000
    assert failure(name)[1] == "Bad directive or wrong number of arguments"


def test_the_last_of_several_directives_counts() -> None:
    assert load("hz 20\nhz 30").hz == 30


def test_arguments_are_quoted_as_in_inline_commands() -> None:
    assert load(b'requirepass "a\\x00\\"b\\xff"').requirepass == 'a\x00"b\udcff'
    assert load("requirepass 'it\\'s'").requirepass == "it's"
    assert load(b"requirepass \xff").requirepass == "\udcff"


def test_save_lines_add_up_from_the_first_on() -> None:
    assert load("save 900 1\nsave 300 10 60 5").save == ((900, 1), (300, 10), (60, 5))
    assert load('save 900 1\nsave ""\nsave 300 10').save == ((300, 10),)
    assert load('save "900 1"').save == ((900, 1),)


def test_buffer_limits_add_up() -> None:
    limits = load(
        "client-output-buffer-limit normal 1 2 3\nclient-output-buffer-limit slave 4 5 6"
    ).client_output_buffer_limit
    assert (limits["normal"], limits["replica"]) == ((1, 2, 3), (4, 5, 6))


@pytest.mark.parametrize(
    ("content", "line", "reason"),
    [
        ("\n\nhz ten\n", (3, "hz ten"), "argument couldn't be parsed into an integer"),
        ("hz 10 # often\n", (1, "hz 10 # often"), "wrong number of arguments"),
        ("hz\n", (1, "hz"), "wrong number of arguments"),
        (" nope \n", (1, "nope"), "Bad directive or wrong number of arguments"),
        ('requirepass "abc\n', (1, 'requirepass "abc'), "Unbalanced quotes in configuration line"),
        ('requirepass "abc"d\n', (1, 'requirepass "abc"d'), "Unbalanced quotes in configuration line"),
        ("save 900 1 300\n", (1, "save 900 1 300"), "Invalid save parameters"),
        ('client-output-buffer-limit ""\n', (1, 'client-output-buffer-limit ""'),
         "Wrong number of arguments in buffer limit configuration."),
        ("appendfilename a/b\n", (1, "appendfilename a/b"), "appendfilename can't be a path, just a filename"),
        ("dir /no/such\n", (1, "dir /no/such"), "No such file or directory"),
        ("dir a.conf\n", (1, "dir a.conf"), "Not a directory"),
        ('dir ""\n', (1, 'dir ""'), "No such file or directory"),
        ("slaveof 127.0.0.1 70000\n", (1, "slaveof 127.0.0.1 70000"), "Invalid master port"),
        ("loadmodule /x.so\n", (1, "loadmodule /x.so"), "this server does not load modules"),
        ('proc-title-template "{x}"\n', (1, 'proc-title-template "{x}"'),
         "template format is invalid or contains unknown variables"),
        ("cluster-announce-ip x\n", (1, "cluster-announce-ip x"),
         "Cluster announce IP must be a valid IPv4 or IPv6 address"),
        ("cluster-announce-hostname 50%\n", (1, "cluster-announce-hostname 50%"),
         "Hostnames may only contain alphanumeric characters, hyphens or dots"),
        ("unixsocketperm 778\n", (1, "unixsocketperm 778"), "argument couldn't be parsed as an octal number"),
        ("unixsocketperm 1000\n", (1, "unixsocketperm 1000"), "argument must be between 0 and 777 inclusive"),
    ],
)  # fmt: skip
def test_a_line_is_refused_with_its_number_and_reason(content: str, line: tuple[int, str], reason: str) -> None:
    assert failure(content) == (line, reason)


def test_backups_and_the_append_only_file_need_directories_of_their_own() -> None:
    settings = {"appenddirname": "files", "backupdirname": "files"}
    with pytest.raises(ConfigError, match="backupdirname and appenddirname must differ"):
        load("".join(f"{name} {value}\n" for name, value in settings.items()))
    with pytest.raises(ConfigError, match="backupdirname and appenddirname must differ"):
        Config.for_embedding(settings)


def test_the_error_is_reported_in_three_lines() -> None:
    with pytest.raises(ConfigError, match="couldn't be parsed into an integer") as caught:
        load("port 7000\nhz ten")
    assert fatal_text(caught.value) == (
        "\n*** FATAL CONFIG FILE ERROR (Redis 8.6.3) ***\nReading the configuration file, at line 2\n>>> 'hz ten'\n"
        "argument couldn't be parsed into an integer\n"
    )


def test_unknown_names_with_arguments_are_named_when_all_is_read() -> None:
    with pytest.raises(UnresolvedError, match="Unresolved Configuration") as caught:
        load('nope 1 "2 3"\nOTHER x\n')
    assert str(caught.value).splitlines() == [
        "Unresolved Configuration(s) Detected:",
        ">>> 'nope 1 2 3'",
        ">>> 'other x'",
        "Module Configuration detected without loadmodule directive or no ApplyConfig call: aborting",
    ]


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(ConfigFileError, match="can't open config file") as caught:
        start("none.conf")
    path = Path("none.conf").absolute()
    assert str(caught.value) == f"Fatal error, can't open config file '{path}': No such file or directory"


# --- include ---------------------------------------------------------------------------------------------------------


def test_included_files_are_read_in_place() -> None:
    Path("b.conf").write_text("hz 20\nport 7001\n")
    config = load("port 7000\ninclude b.conf\nhz 30")
    assert (config.port, config.hz) == (7001, 30)


def test_a_pattern_includes_files_in_order_and_may_match_none() -> None:
    Path("i1.conf").write_text("hz 11\n")
    Path("i2.conf").write_text("hz 12\n")
    assert load("include i?.conf\ninclude /no/such/*.conf").hz == 12


def test_an_included_file_that_is_not_there_is_fatal() -> None:
    with pytest.raises(ConfigFileError, match="can't open config file") as caught:
        load("include none.conf")
    assert str(caught.value) == "Fatal error, can't open config file 'none.conf': No such file or directory"


def test_an_error_in_an_included_file_has_its_own_line() -> None:
    Path("b.conf").write_text("\nhz ten\n")
    assert failure("port 7000\n\n\ninclude b.conf") == ((2, "hz ten"), "argument couldn't be parsed into an integer")


def test_a_file_that_includes_itself_is_refused() -> None:
    assert failure("include a.conf")[1] == "files include each other too deeply"


# --- rename-command, user --------------------------------------------------------------------------------------------


def test_commands_are_renamed() -> None:
    assert load('rename-command FLUSHALL ""\nrename-command xadd add').rename_command == [
        ("FLUSHALL", ""),
        ("xadd", "add"),
    ]


@pytest.mark.parametrize("name", ["REPLICAOF", "slaveof"])
def test_commands_of_replication_can_be_removed(name: str) -> None:
    config = load(f'rename-command {name} ""')
    assert config.rename_command == [(name, "")]
    assert renamed_table(config).find([name.encode(), b"no", b"one"]) is None


def test_no_command_that_is_here_is_listed_as_absent() -> None:
    known = {each.name.lower().replace(" ", "|") for each in renamed_table(Config()).walk()}
    assert {"replicaof", "xadd", "xgroup|create"} <= known
    assert known & FOREIGN_COMMANDS == set()


def test_commands_of_redis_that_are_not_here_may_be_renamed() -> None:
    assert load('rename-command GEOADD ""\nrename-command geopos ""').rename_command == []


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('rename-command FLUSHALLL ""', "No such command in rename-command"),
        ("rename-command XADD XLEN", "Target command name already exists"),
        ("rename-command XADD A\nrename-command XADD B", "No such command in rename-command"),
    ],
)
def test_a_renaming_that_does_not_work_is_refused(line: str, reason: str) -> None:
    assert failure(line) == ((line.count("\n") + 1, line.splitlines()[-1]), reason)


def test_users_are_declared_by_lines() -> None:
    config = load("user alice on >x ~a* (+get ~b )\nrequirepass secret\nuser bob off +nosuch")
    assert config.users == [(b"alice", [b"on", b">x", b"~a*", b"(+get ~b )"]), (b"bob", [b"off", b"+nosuch"])]
    assert config.requirepass == "secret"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("user alice on foo", "Error in user declaration 'alice': Syntax error"),
        ("user alice on +get|", "Error in user declaration 'alice': Syntax error"),
        ("user alice (+get ~a", "Error in user declaration 'user': Wrong format"),
        ("user", "Bad directive or wrong number of arguments"),
        ("user default on\nuser default on", "Error in user declaration 'default': Duplicate user found. A user can only be"
         " defined once in config files"),
    ],
)  # fmt: skip
def test_users_that_cannot_be_are_refused(content: str, reason: str) -> None:
    assert failure(content)[1] == reason


# --- The command line ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], (None, False, b"")),
        (["a.conf"], ("a.conf", False, b"")),
        (["--port", "7000"], (None, False, b'port "7000"')),
        (["a.conf", "--port", "7000", "--hz", "5"], ("a.conf", False, b'port "7000"\nhz "5"')),
        (["--bind", "127.0.0.1", "::1"], (None, False, b'bind "127.0.0.1" "::1"')),
        (["--port 7000", "--hz 5"], (None, False, b"port 7000\nhz 5")),
        (["--requirepass", "--x"], (None, False, b'requirepass "--x"')),
        (["--hz", "--loglevel", "debug"], (None, False, b'hz "--loglevel" "debug"')),
        (["--save", "--hz", "5"], (None, False, b'save ""\nhz "5"')),
        (["--SAVE"], (None, False, b'SAVE ""')),
        (["--save", ""], (None, False, b'save ""')),
        (["--save", "900", "1", "--save", "300", "10"], (None, False, b'save "900" "1"\nsave "300" "10"')),
        (["-"], (None, True, b"")),
        (["-", "--hz", "5"], (None, True, b'hz "5"')),
        (["a.conf", "--hz", "5", "-"], ("a.conf", True, b'hz "5"')),
        (["a.conf", "-", "--hz", "5"], ("a.conf", False, b'"-"\nhz "5"')),
        (["a.conf", "b.conf"], ("a.conf", False, b'"b.conf"')),
        (["-port", "7000"], (None, False, b'"-port" "7000"')),
        (["--port", "7000", "-hz", "5"], (None, False, b'port "7000" "-hz" "5"')),
        (["--requirepass", 'a "b\n\udcff'], (None, False, b'requirepass "a \\"b\\n\\xff"')),
    ],
)
def test_a_command_line_becomes_directives(arguments: list[str], expected: tuple[str | None, bool, bytes]) -> None:
    assert parse_arguments(arguments) == expected


def test_options_follow_the_file_and_the_standard_input() -> None:
    Path("a.conf").write_text("hz 20\nport 7000\ntimeout 1\n")
    config = start("a.conf", "--hz", "30", "-", stdin=b"port 7001\nhz 25\n")
    assert (config.hz, config.port, config.timeout) == (30, 7001, 1)
    assert config.config_file == os.path.abspath("a.conf")


def test_lines_are_those_of_the_file_and_the_command_line_has_none() -> None:
    Path("a.conf").write_text("hz 20\nport 7000\n")
    with pytest.raises(ConfigError, match="couldn't be parsed into an integer") as caught:
        start("a.conf", "--timeout", "x")
    assert caught.value.line == (0, 'timeout "x"')
    assert "\nReading the command line\n>>> 'timeout" in fatal_text(caught.value)
    with pytest.raises(ConfigError, match="couldn't be parsed into an integer") as caught:
        start("--port", "7000", "--timeout", "x")
    assert caught.value.line == (0, 'timeout "x"')


def test_save_on_the_command_line_adds_to_the_file() -> None:
    Path("a.conf").write_text("save 100 1\n")
    assert start("a.conf", "--save", "300", "10").save == ((100, 1), (300, 10))
    assert start("a.conf", "--save", "").save == ()


def test_a_server_without_an_address_hears_nothing() -> None:
    assert not Config().is_deaf
    assert load('bind ""').is_deaf
    assert load("port 0").is_deaf
    assert not load("port 0\nunixsocket /tmp/x").is_deaf
