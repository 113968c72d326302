"""The table of settings, and CONFIG GET, SET and REWRITE on it: no server, no socket."""

from __future__ import annotations

import locale
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import streamd.serve.app  # noqa: F401  (its capabilities declare settings)
from streamd.cli.conf import render
from streamd.core.redaction import redacted
from streamd.disk import Disk
from streamd.errors import ConfigError, UnknownSettingError
from streamd.protocol.inline import split_line
from streamd.settings.config import Config, Reader
from streamd.settings.declarations import GROUPS, SETTINGS, Setting, by_name, declare, integer, setting, text
from streamd.settings.kinds import BufferLimit, Integer, Kind, quote

ROOT = Path(__file__).parents[2]


def configured(text: str) -> Config:
    config = Config()
    Reader(config).read(text.encode())
    return config


def refusal(name: str, value: str) -> str:
    """The reason why CONFIG SET refuses a value."""
    with pytest.raises(ConfigError) as caught:  # noqa: PT011  callers look at its text
        Config().set([(name, value)])
    assert caught.value.setting == name
    return caught.value.reason


# --- The rows --------------------------------------------------------------------------------------------------------


NOT_GIVEN = ("dir", "replicaof")
"""Settings whose empty default is no text that can be given."""


@pytest.mark.parametrize("row", [row for row in SETTINGS if row.name not in NOT_GIVEN], ids=lambda row: row.name)
def test_every_default_survives_format_then_parse(row: Setting) -> None:
    text = row.kind.format(row.default)
    args = [text] if not row.kind.is_multi else text.split(" ") if text else []
    # The old value matters to those that add to it: none of it may come from there.
    old: Any = () if isinstance(row.default, tuple) else row.default
    assert row.kind.parse(args, old) == row.default


@pytest.mark.parametrize("row", SETTINGS, ids=lambda row: row.name)
def test_every_default_survives_a_configuration_file(row: Setting) -> None:
    lines = [f"{row.name} {text}" for text in row.kind.directives(row.default)]
    if row.name == "dir":
        assert configured("\n".join(lines)).dir == os.path.realpath(os.getcwd())
    else:
        assert configured("\n".join(lines)).value(row) == row.default


@pytest.mark.parametrize("row", [row for row in SETTINGS if not row.is_foreign], ids=lambda row: row.name)
def test_every_setting_that_is_shown_says_what_it_is_for(row: Setting) -> None:
    assert row.doc.endswith(".")
    assert row.kind.domain()


def test_names_and_attributes_are_unique() -> None:
    assert len({row.attribute for row in SETTINGS}) == len(SETTINGS)
    assert all(name == name.lower() for name in by_name)
    assert by_name["slaveof"] is by_name["replicaof"]


def test_an_unknown_flag_is_refused_where_it_is_written() -> None:
    with pytest.raises(ValueError, match="unknown flags"):
        setting("x", Integer(0, 1), 0, "", flags="imutable")


# --- Kinds -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("timeout", "0", 0),
        ("timeout", "2147483647", 2**31 - 1),
        ("slowlog-log-slower-than", "-1", -1),
        ("maxmemory", "1gb", 1 << 30),
        ("maxmemory", "1G", 10**9),
        ("maxmemory", "2kB", 2048),
        ("maxmemory", "10b", 10),
        ("maxmemory", "", 0),
        ("maxmemory", "gb", 0),
        ("maxmemory", "18446744073709551616", 2**64 - 1),
        ("maxmemory", "99999999999gb", (99999999999 << 30) % 2**64),
        ("maxmemory-clients", "5%", -5),
        ("maxmemory-clients", "0%", 0),
        ("appendonly", "YES", True),
        ("loglevel", "Verbose", "verbose"),
        ("shutdown-on-sigterm", "force nosave", ("nosave", "force")),
        ("shutdown-on-sigterm", "default now", ("now",)),
        ("cluster-slot-stats-enabled", "net cpu", ("cpu", "net")),
        ("hz", "1000", 500),
        ("hz", "0", 1),
        ("save", "", ()),
        ("bind", "", ()),
        ("bind", "127.0.0.1 -::1", ("127.0.0.1", "-::1")),
        ("latency-tracking-info-percentiles", "50.0 99.90", (50.0, 99.9)),
        ("oom-score-adj-values", "1 -2 3", (1, -2, 3)),
        ("requirepass", "p\udcffq", "p\udcffq"),
    ],
)
def test_a_value_is_read(name: str, text: str, value: Any) -> None:
    config = Config()
    config.set([(name, text)])
    assert config.value(by_name[name]) == value


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        *(("timeout", text, "argument couldn't be parsed into an integer") for text in ("", "x", "01", "+1", " 1", "1e1", "-0", "1.5")),
        ("timeout", "9223372036854775808", "argument couldn't be parsed into an integer"),
        ("timeout", "1\n", "argument couldn't be parsed into an integer"),
        ("timeout", "\u0661", "argument couldn't be parsed into an integer"),
        ("timeout", "-1", "argument must be between 0 and 2147483647 inclusive"),
        ("timeout", "2147483648", "argument must be between 0 and 2147483647 inclusive"),
        *(("maxmemory", text, "argument must be a memory value") for text in ("-1", "1.5gb", "1tb", "1 mb", "+5", "0x10", "1gbb")),
        ("proto-max-bulk-len", "1k", "argument must be between 1048576 and 9223372036854775807 inclusive"),
        ("maxmemory-clients", "101%", "percentage argument must be less or equal to 100"),
        *(("maxmemory-clients", text, "argument must be a memory or percent value") for text in ("%", "x%", "-1%", "1.5%", "x")),
        ("appendonly", "true", "argument must be 'yes' or 'no'"),
        ("loglevel", "loud", "argument(s) must be one of the following: debug, verbose, notice, warning, nothing"),
        ("shutdown-on-sigterm", "force foo", "argument(s) must be one of the following: default, save, nosave, now, force, failover"),
        ("shutdown-on-sigterm", "now failover", "shutdown options NOW and FAILOVER can't be used simultaneously"),
        ("shutdown-on-sigterm", "save nosave", "shutdown options SAVE and NOSAVE can't be used simultaneously"),
        *(("save", text, "Invalid save parameters") for text in (" ", "900", "900 x", "0 1", "1 -1", "900 1 300", "900 1  300 10")),
        ("client-output-buffer-limit", "normal 1 2", "Wrong number of arguments in buffer limit configuration."),
        ("client-output-buffer-limit", "master 1 2 3", "Invalid client class specified in buffer limit configuration."),
        ("client-output-buffer-limit", "normal 1 2 -3",
         "Error in hard, soft or soft_seconds setting in buffer limit configuration."),
        ("notify-keyspace-events", "KEQ", "Invalid event class character. Use 'Ag$lshzxeKEtmdn'."),
        ("latency-tracking-info-percentiles", "50 101",
         "latency-tracking-info-percentiles parameters should sit between [0.0,100.0]"),
        ("latency-tracking-info-percentiles", "nan",
         "latency-tracking-info-percentiles parameters should sit between [0.0,100.0]"),
        ("latency-tracking-info-percentiles", "x", "Invalid latency-tracking-info-percentiles parameters"),
        ("oom-score-adj-values", "1 2", "wrong number of arguments"),
        ("oom-score-adj-values", "1 2 2001", "Invalid oom-score-adj-values, elements must be between -2000 and 2000."),
        ("port", "65536", "argument must be between 0 and 65535 inclusive"),
        ("locale-collate", "xx_XX.UTF-8", "Invalid locale name"),
        ("locale-collate", "C\0", "Invalid locale name"),
        ("key-memory-histograms", "yes", "memory tracking cannot be enabled at runtime"),
    ],
)  # fmt: skip
def test_a_value_is_refused_with_its_reason(name: str, text: str, reason: str) -> None:
    assert refusal(name, text) == reason


@pytest.mark.parametrize(
    ("given", "shown"),
    [("KEA", "AKE"), ("Egx$", "g$xE"), ("AKEmnoc", "AKEm"), ("g$lshzxeKEtmdnoc", "AKEm"), ("oc", "oc"), ("", "")],
)
def test_keyspace_events_are_shown_in_a_fixed_order(given: str, shown: str) -> None:
    config = Config()
    config.set([("notify-keyspace-events", given)])
    assert config.get(["notify-keyspace-events"]) == {"notify-keyspace-events": shown}


def test_buffer_limits_change_only_the_classes_that_are_named() -> None:
    config = Config()
    config.set([("client-output-buffer-limit", "replica 1mb 2kb 3 NORMAL 4 5 6")])
    assert config.client_output_buffer_limit == {
        "normal": BufferLimit(4, 5, 6),
        "replica": BufferLimit(1 << 20, 2048, 3),
        "pubsub": BufferLimit(32 << 20, 8 << 20, 60),
    }
    assert Config().client_output_buffer_limit["normal"] == BufferLimit(0, 0, 0), "the default itself has changed"


@pytest.mark.parametrize("text", ["", "plain", 'a "b" \\c', "line\nbreak\r\t\a\b", "\x00\x7f\x1b", "ä \udcff"])
def test_a_quoted_text_is_read_back(text: str) -> None:
    assert split_line(quote(text).encode()) == [text.encode("utf-8", "surrogateescape")]


# --- CONFIG GET ------------------------------------------------------------------------------------------------------


def test_get_echoes_names_and_takes_patterns() -> None:
    config = Config()
    assert config.get(["HZ", "max?lients", "hz", "no-such"]) == {"HZ": "10", "maxclients": "10000"}
    assert config.get(["SLAVE-prio*"]) == {"slave-priority": "100"}
    assert config.get(["[hz]z"]) == {"hz": "10"}


def test_get_finds_hidden_settings_by_their_name_only() -> None:
    config = Config()
    assert config.get(["watchdog-*"]) == {}
    assert config.get(["watchdog-period"]) == {"watchdog-period": "0"}
    assert config.get(["*"]).keys() == {name for name, row in by_name.items() if not row.is_hidden}


def test_dir_is_where_we_are_until_it_is_set(tmp_path: Path) -> None:
    assert Config().get(["dir"]) == {"dir": os.getcwd()}
    assert configured(f"dir {tmp_path}").get(["dir"]) == {"dir": os.path.realpath(tmp_path)}


# --- CONFIG SET ------------------------------------------------------------------------------------------------------


def test_set_takes_all_or_nothing() -> None:
    config = Config()
    with pytest.raises(ConfigError, match="couldn't be parsed into an integer") as caught:
        config.set([("hz", "20"), ("slave-priority", "7"), ("MAXCLIENTS", "x")])
    assert caught.value.setting == "MAXCLIENTS"
    assert (config.hz, config.replica_priority) == (10, 100)
    config.set([("hz", "20"), ("slave-priority", "7")])
    assert (config.hz, config.replica_priority) == (20, 7)


@pytest.mark.parametrize(
    ("pairs", "name", "reason"),
    [
        ([("hz", "1"), ("HZ", "2")], "HZ", "duplicate parameter"),
        ([("hz", "x"), ("daemonize", "yes")], "daemonize", "can't set immutable config"),
        ([("daemonize", "yes"), ("nope", "x")], "daemonize", "can't set immutable config"),
        ([("dir", "/"), ("hz", "x")], "dir", "can't set protected config"),
        ([("dbfilename", "x")], "dbfilename", "can't set protected config"),
    ],
)
def test_set_looks_at_all_names_before_it_reads_a_value(pairs: list[tuple[str, str]], name: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(reason)) as caught:
        Config().set(pairs)
    assert (caught.value.setting, caught.value.reason) == (name, reason)


def test_set_of_a_name_that_no_setting_has() -> None:
    with pytest.raises(UnknownSettingError, match="Bad directive") as caught:
        Config().set([("hz", "20"), ("nope", "1"), ("daemonize", "yes")])
    assert caught.value.setting == "nope"


def test_an_alias_and_its_name_are_one_setting() -> None:
    config = Config()
    with pytest.raises(ConfigError, match="duplicate parameter"):
        config.set([("slave-priority", "20"), ("replica-priority", "30")])
    assert config.replica_priority == 100


@pytest.mark.parametrize(
    ("whom", "is_local", "is_allowed"),
    [("no", True, False), ("local", True, True), ("local", False, False), ("yes", False, True)],
)
def test_protected_settings_follow_enable_protected_configs(whom: str, is_local: bool, is_allowed: bool) -> None:
    config = configured(f"enable-protected-configs {whom}")
    if is_allowed:
        config.set([("dbfilename", "other.rdb")], is_local=is_local)
        assert config.dbfilename == "other.rdb"
    else:
        with pytest.raises(ConfigError, match="can't set protected config"):
            config.set([("dbfilename", "other.rdb")], is_local=is_local)


def test_set_save_replaces_what_there_was() -> None:
    config = configured("save 900 1\nsave 300 10")
    config.set([("save", "5 6")])
    assert config.save == ((5, 6),)


def test_a_callback_is_called_once_for_all_its_settings_after_all_are_set() -> None:
    config = Config()
    seen = []
    config.callbacks["refresh"] = lambda: seen.append((config.stream_node_max_bytes, config.stream_node_max_entries))
    config.set([("stream-node-max-bytes", "1kb"), ("hz", "20"), ("stream-node-max-entries", "7")])
    assert seen == [(1024, 7)]


def test_a_callback_that_refuses_takes_everything_back() -> None:
    config = Config()
    seen: list[tuple[str, Any]] = []
    config.callbacks["refresh"] = lambda: seen.append(("refresh", config.stream_node_max_entries))

    def listen() -> None:
        seen.append(("listen", config.port))
        if config.port == 7000:
            raise ConfigError("", "Unable to listen on this port. Check server logs.")

    config.callbacks["listen"] = listen
    with pytest.raises(ConfigError, match="Unable to listen on this port") as caught:
        config.set([("stream-node-max-entries", "5"), ("port", "7000"), ("hz", "99")])
    assert (caught.value.setting, caught.value.reason) == ("port", "Unable to listen on this port. Check server logs.")
    assert (config.stream_node_max_entries, config.port, config.hz) == (100, 6379, 10)
    assert seen == [("refresh", 5), ("listen", 7000), ("refresh", 100), ("listen", 6379)]


def test_a_callback_that_fails_takes_everything_back_and_its_error_is_raised() -> None:
    config = Config()
    seen: list[tuple[str, Any]] = []
    config.callbacks["refresh"] = lambda: seen.append(("refresh", config.stream_node_max_entries))

    def listen() -> None:
        raise MemoryError("no more")

    config.callbacks["listen"] = listen
    with pytest.raises(MemoryError, match="no more"):
        config.set([("stream-node-max-entries", "5"), ("port", "7000"), ("hz", "99")])
    assert (config.stream_node_max_entries, config.port, config.hz) == (100, 6379, 10)
    assert seen == [("refresh", 5), ("refresh", 100)]


def test_a_change_that_is_refused_comes_after_all_values_that_cannot_be_read() -> None:
    config = Config()
    with pytest.raises(ConfigError, match="couldn't be parsed") as caught:
        config.set([("key-memory-histograms", "yes"), ("timeout", "abc")])
    assert caught.value.setting == "timeout"
    with pytest.raises(ConfigError, match="memory tracking"):
        config.set([("timeout", "5"), ("key-memory-histograms", "yes")])
    assert (config.timeout, config.key_memory_histograms) == (0, False)
    config = configured("key-memory-histograms yes")
    config.set([("key-memory-histograms", "yes")])
    config.set([("key-memory-histograms", "no")])
    with pytest.raises(ConfigError, match="memory tracking"):
        config.set([("key-memory-histograms", "yes")])


def test_checking_a_locale_leaves_the_one_of_the_process() -> None:
    before = locale.setlocale(locale.LC_COLLATE)
    config = Config()
    for name in ("POSIX", "C"):
        config.set([("locale-collate", name)])
        assert config.locale_collate == name
        assert locale.setlocale(locale.LC_COLLATE) == before


# --- Settings of rooms -----------------------------------------------------------------------------------------------


@pytest.fixture
def toys() -> Iterator[Config]:
    """Settings that a room declares, and a configuration that was made before; they are gone after the test."""
    early = Config()
    rows = (
        integer("toy-size", 3, lo=1, unit="bytes", apply="toys", doc="How large toys are."),
        text("toy-password", flags="secret", doc="What opens the box."),
    )
    declare("Toys", *rows)
    yield early
    del GROUPS["Toys"]
    for row in rows:
        SETTINGS.remove(row)
        del by_name[row.name]


def test_a_setting_that_a_room_declares_is_one_of_all(toys: Config) -> None:
    assert toys.toy_size == Config().toy_size == configured("port 1").toy_size == 3
    config = configured("toy-size 7")
    assert config.toy_size == 7
    seen: list[int] = []
    config.callbacks["toys"] = lambda: seen.append(config.toy_size)
    config.set([("toy-size", "5")])
    assert (config.get(["toy-s*"]), seen) == ({"toy-size": "5"}, [5])
    with pytest.raises(ConfigError, match="argument must be between 1 and"):
        config.set([("toy-size", "0")])
    assert "toy-size 5\n" in config.rewritten("")
    assert Config.for_embedding({"toy_size": 9}).toy_size == 9
    assert "# --- Toys -" in render()
    assert "# How large toys are. (1 to 2^63-1, in bytes)\ntoy-size 3\n" in render()
    assert "## Toys\n" in render(markdown=True)
    assert redacted("config|set", [b"CONFIG", b"SET", b"Toy-Password", b"x", b"toy-size", b"5"])[3:] == [
        b"(redacted)", b"toy-size", b"5",
    ]  # fmt: skip


def test_a_name_is_declared_once() -> None:
    with pytest.raises(ValueError, match="slave-priority is declared twice"):
        declare("Toys", integer("slave-priority", 1, doc=""))
    assert "Toys" not in GROUPS


def test_only_what_asks_for_something_is_warned_about() -> None:
    assert Config().without_effect() == []
    config = configured(
        'bind-source-addr 127.0.0.1\nsave ""\nhide-user-data-from-log yes\nhash-max-listpack-entries 5\nhz 20'
    )
    assert sorted(config.without_effect()) == ["hide-user-data-from-log"]


# --- Embedding -------------------------------------------------------------------------------------------------------


def test_an_embedded_server_is_configured_with_values_of_python() -> None:
    config = Config.for_embedding(
        {"stream_node_max_entries": 5, "appendonly": True, "requirepass": b"x\xff", "bind": ("127.0.0.1", "::1")}
    )
    assert config.stream_node_max_entries == 5
    assert config.appendonly is True
    assert config.requirepass == "x\udcff"
    assert config.bind == ("127.0.0.1", "::1")
    assert Config.for_embedding({}).bind == ("127.0.0.1",)
    assert Config.for_embedding({"appendonly": 1}).appendonly is True
    assert Config.for_embedding({"bind": "127.0.0.1 ::1", "logfile": None}).bind == ("127.0.0.1", "::1")


def test_an_embedded_server_refuses_what_it_does_not_know() -> None:
    with pytest.raises(
        UnknownSettingError, match="there is no setting strem_node_max_entries; did you mean stream_node_max_entries"
    ):
        Config.for_embedding({"strem_node_max_entries": 5})
    with pytest.raises(ConfigError, match="argument must be 'yes' or 'no'"):
        Config.for_embedding({"appendonly": 2})


# --- CONFIG REWRITE --------------------------------------------------------------------------------------------------

FILE = """\
# A comment

   # an indented one
HZ   20
include other.conf
save 900 1
save 300 10


maxmemory   1gb
maxmemory 2gb
slave-priority 50
requirepass ""
client-output-buffer-limit pubsub 32mb 8mb 60
rename-command DEBUG XDEBUG
user default on nopass sanitize-payload ~* &* +@all
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.conf").write_text("timeout 5\n")
    path = tmp_path / "streamd.conf"
    path.write_text(FILE)
    return path


def load(path: Path) -> Config:
    config = Config()
    config.config_file = str(path)
    Reader(config).read(path.read_bytes())
    return config


def test_rewrite_changes_values_in_place_and_keeps_the_rest(file: Path) -> None:
    config = load(file)
    config.set(
        [
            ("hz", "30"),
            ("save", "1 2"),
            ("maxmemory", "1500000"),
            ("stream-idmp-duration", "50"),
            ("masterauth", 'a "b'),
        ]
    )
    config.rewrite()
    expected = """\
# A comment

# an indented one
hz 30
include other.conf
save 1 2

maxmemory 1500000

replica-priority 50

client-output-buffer-limit normal 0 0 0
rename-command DEBUG XDEBUG
user default on nopass sanitize-payload ~* &* +@all

# Generated by CONFIG REWRITE
"""
    lines = file.read_text().splitlines()
    assert lines[: len(expected.splitlines())] == expected.splitlines()
    added = set(lines[len(expected.splitlines()) :])
    assert added == {f'dir "{os.getcwd()}"', "timeout 5", "stream-idmp-duration 50", 'masterauth "a \\"b"'}


def test_a_rewritten_file_says_what_was_set(file: Path) -> None:
    config = load(file)
    config.set(
        [("save", "1 2 3 4 5 6"), ("requirepass", 'x\n"\udcff'), ("bind", "127.0.0.1"), ("maxmemory-clients", "5%")]
    )
    config.set(
        [
            ("client-output-buffer-limit", "normal 1kb 1mb 5"),
            ("notify-keyspace-events", "AKEn"),
            ("shutdown-on-sigint", "force now"),
        ]
    )
    config.rewrite()
    again = load(file)
    for row in SETTINGS:
        if row.name != "dir":
            assert again.value(row) == config.value(row), row.name


def test_rewriting_twice_changes_nothing(file: Path) -> None:
    config = load(file)
    config.set([("hz", "30"), ("masterauth", "x")])
    config.rewrite()
    once = file.read_text()
    config.rewrite()
    assert file.read_text() == once


def test_settings_back_at_their_default_lose_their_line_or_say_so(file: Path) -> None:
    config = load(file)
    config.set([("maxmemory", "0"), ("save", "")])
    config.rewrite()
    lines = file.read_text().splitlines()
    assert "maxmemory 0" in lines
    assert 'save ""' in lines
    assert not any(line.startswith("requirepass") for line in lines)


def test_a_file_that_is_gone_is_written_again(file: Path) -> None:
    config = load(file)
    file.unlink()
    config.rewrite()
    assert load(file).hz == 20


def test_a_rewrite_that_fails_leaves_the_file_as_it_was(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = load(file)

    def full_disk(disk: Disk, number: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Disk, "sync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        config.rewrite()
    assert file.read_text() == FILE
    assert sorted(path.name for path in file.parent.iterdir()) == ["other.conf", "streamd.conf"]


# --- What is generated -----------------------------------------------------------------------------------------------


def test_the_configuration_in_the_tree_is_the_generated_one() -> None:
    assert (ROOT / "conf/streamd.conf").read_text() == render(), "run: streamd conf > conf/streamd.conf"


def test_the_generated_configuration_is_all_defaults() -> None:
    config = configured(render())
    for row in SETTINGS:
        assert config.value(row) == row.default, row.name


def test_the_generated_configuration_works_with_every_comment_taken_off() -> None:
    rows = [line.removeprefix("# ") for line in render().splitlines()]
    directives = [line for line in rows if line.split(" ")[0] in by_name and not line.endswith((".", ")"))]
    config = configured("\n".join(line for line in directives if not line.startswith("dir ")))
    for row in SETTINGS:
        assert config.value(row) == row.default, row.name


def test_the_manual_has_every_setting() -> None:
    manual = render(markdown=True)
    for title, rows in GROUPS.items():
        assert (f"## {title}" in manual) == bool(rows)
        assert all(f"`{row.name}`" in manual for row in rows if not row.is_hidden)


def test_a_kind_left_unfinished_says_so() -> None:
    kind = Kind()
    for call in (lambda: kind.parse([], None), lambda: kind.format(None), kind.domain):
        with pytest.raises(NotImplementedError):  # noqa: PT011  it says nothing
            call()
