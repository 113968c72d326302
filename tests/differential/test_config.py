"""The configuration beside a real Redis: names and defaults, CONFIG GET and SET, files, command lines, INFO, DEBUG."""

from __future__ import annotations

import io
import re
import socket
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from support.compare.differential import Pair, Request
from support.compare.observing import command_counts
from support.compare.tables import cases
from support.servers import Server, connect_early, eventually, find_oracle, free_port, python_environment
from support.wire import Reply, Wire

import streamd.serve.app  # noqa: F401  (capabilities declare directives)
from streamd.errors import ConfigError
from streamd.settings.config import Config, ConfigFileError, UnresolvedError, fatal_text

pytestmark = [pytest.mark.long, pytest.mark.real]

# What the tests' own servers are started with, and what says where a server is.
OWN = {b"port", b"bind", b"dir", b"save", b"enable-debug-command", b"unixsocket", b"logfile", b"pidfile", b"loglevel"}


# What Redis does not have.
ADDED = {
    b"rdb-form", b"rdb-skip-unsupported", b"slowlog-entry-max-argc", b"slowlog-entry-max-string-len", b"backupdirname",
    b"backup-sealed-ttl", b"preload-file", b"min-replicas-durable", b"min-replicas-durable-timeout",
    b"min-replicas-durable-sentinel-timeout", b"min-replicas-durable-to-start", b"refuse-when-replaced",
    b"refuse-without-sentinels", b"metrics-port", b"metrics-bind", b"metrics-hosts", b"metrics-streams", b"metrics-max-streams",
    b"metrics-max-consumers", b"metrics-max-deliveries", b"lua-memory-limit", b"http-port", b"http-bind",
    b"http-hosts", b"http-allow-writes", b"http-session-timeout", b"http-max-streams", b"socket-poller", b"stream-exact-lag", b"stream-rule", b"group-rule",
    b"stream-archive-dir", b"stream-archive-readers", b"stream-archive-timeout", b"stream-archive-cache",
    b"stream-archive-groups", b"stream-archive-max-reply",
    b"cluster-allow-cross-slot-reads",
}  # fmt: skip


def shared(settings: Mapping[str, str]) -> dict[str, str]:
    """Those of our settings that Redis has."""
    return {name: value for name, value in settings.items() if name.encode() not in ADDED}


def settings_of(server: Server) -> dict[bytes, bytes]:
    with server.connect(3) as wire:
        return dict(wire.call("CONFIG", "GET", "*").plain())


# --- Names, defaults, values -----------------------------------------------------------------------------------------


def test_all_names_and_defaults_are_those_of_redis(
    new_streamd: Callable[[], Server], new_redis: Callable[[], Server]
) -> None:
    ours, theirs = settings_of(new_streamd()), settings_of(new_redis())
    assert ours.keys() == theirs.keys() | ADDED
    different = {name: (ours[name], theirs[name]) for name in theirs if ours[name] != theirs[name]}
    assert {name: pair for name, pair in different.items() if name not in OWN} == {}


NUMBERS = [
    "", "0", "1", "-1", "+1", "01", " 1", "1 ", "1.5", "x", "yes", "2147483647", "2147483648", "-2147483648", "-2147483649",
    "4294967296", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "18446744073709551616", "1k", "1KB",
    "1mb", "1gbb", "50%", "150%", "0x10", "1e3",
]  # fmt: skip
WORDS = ["YES", "No", "local", "default", "nope", "a b", "everysec always", "C", "POSIX", "xx_XX.UTF-8"]

# Left out: what moves the servers under test, needs privileges, or differs on purpose (see docs/differences.md).
LEFT_OUT = OWN | {
    b"maxclients", b"tls-port", b"hz", b"requirepass", b"watchdog-period", b"client-query-buffer-limit", b"proto-max-bulk-len",
    b"maxmemory", b"slowlog-max-len", b"acllog-max-len", b"latency-tracking-info-percentiles", b"activedefrag",
    b"min-replicas-to-write", b"min-slaves-to-write", b"appendonly", b"client-output-buffer-limit", b"maxmemory-clients",
    b"vset-force-single-threaded-execution", b"replica-announced", b"repl-backlog-size", b"oom-score-adj", b"oom-score-adj-values",
    b"tls-cert-file", b"tls-key-file", b"tls-ca-cert-file", b"tls-ca-cert-dir", b"tls-protocols", b"tls-ciphers",
    b"tls-ciphersuites", b"tls-dh-params-file", b"jemalloc-bg-thread", b"crash-log-enabled", b"tls-cluster", b"tls-replication",
    b"shutdown-on-sigint", b"shutdown-on-sigterm",
}  # fmt: skip


def test_every_setting_takes_and_refuses_the_same_values(
    new_streamd: Callable[[], Server], new_redis: Callable[[], Server]
) -> None:
    different: list[str] = []
    with new_streamd().connect(2) as ours, new_redis().connect(2) as theirs:
        names = [
            name
            for name in dict(zip(*[iter(theirs.call("CONFIG", "GET", "*").plain())] * 2, strict=True))
            if name not in LEFT_OUT
        ]
        for name in sorted(names):
            before = theirs.call("CONFIG", "GET", name).plain()[1]
            requests = [
                request
                for value in [*NUMBERS, *WORDS, before]
                for request in (("CONFIG", "SET", name, value), ("CONFIG", "GET", name))
            ]
            for request, mine, its in zip(requests, ours.pipeline(requests), theirs.pipeline(requests), strict=True):
                if mine != its:
                    different.append(f"{request}: {mine} / {its}")
    assert not different, "\n".join(different)


CASES = """
== shape of requests
CONFIG
CONFIG GET
CONFIG WHAT
CONFIG SET a
CONFIG SET a b c
CONFIG HELP
CONFIG HELP x
CONFIG REWRITE
CONFIG REWRITE x
CONFIG RESETSTAT
CONFIG RESETSTAT x

== names
CONFIG SET foo bar
CONFIG SET "foo\\r\\nbar" x
CONFIG SET hz 20 foo bar
CONFIG SET foo bar hz xx
CONFIG SET hz 20 HZ 30
CONFIG SET hz x HZ y
CONFIG SET daemonize yes foo bar
CONFIG SET hz 20 foo bar daemonize yes
CONFIG SET hz x daemonize yes
CONFIG SET dir /tmp hz x
CONFIG SET slaveof "a 1"
CONFIG GET hz

== all or nothing
CONFIG SET timeout 20 replica-priority x
CONFIG GET timeout
CONFIG SET tcp-keepalive 10 timeout -5 hz x
CONFIG GET tcp-keepalive
CONFIG SET slave-priority 20
CONFIG GET replica-priority
CONFIG GET slave-priority
CONFIG SET replica-priority 100

== get
CONFIG GET HZ
CONFIG GET nosuch
CONFIG GET [hz]z
CONFIG GET port? Stream-Node-Max-Byte*
CONFIG GET watchdog-*
CONFIG GET watchdog-period

== hz
CONFIG SET hz 1000
CONFIG GET hz
CONFIG SET hz 0
CONFIG GET hz
CONFIG SET hz 10

== save
CONFIG SET save "900 1"
CONFIG GET save
CONFIG SET save "900 1 300 10"
CONFIG GET save
CONFIG SET save "900 1  300 10"
CONFIG SET save "900 1 300"
CONFIG SET save "900 -1"
CONFIG SET save "0 1"
CONFIG SET save "a b"
CONFIG SET save " "
CONFIG SET save "900 0"
CONFIG GET save
CONFIG SET save ""
CONFIG GET save

== output buffers
CONFIG SET client-output-buffer-limit "normal 1mb 2mb 3"
CONFIG GET client-output-buffer-limit
CONFIG SET client-output-buffer-limit "replica 1mb 2mb 3 pubsub 1gb 2gb 4"
CONFIG GET client-output-buffer-limit
CONFIG SET client-output-buffer-limit "replica 1mb 2mb x"
CONFIG SET client-output-buffer-limit "replica 1mb x 3"
CONFIG SET client-output-buffer-limit "replica 1mb 1 -3"
CONFIG SET client-output-buffer-limit "master 1mb 1 3"
CONFIG SET client-output-buffer-limit "normal 1mb 1"
CONFIG SET client-output-buffer-limit ""
CONFIG SET client-output-buffer-limit "normal 18446744073709551615 9223372036854775808 2147483647"
CONFIG GET client-output-buffer-limit
CONFIG SET client-output-buffer-limit "normal 0 0 0 slave 256mb 64mb 60 pubsub 32mb 8mb 60"

== events
CONFIG SET notify-keyspace-events KEA
CONFIG GET notify-keyspace-events
CONFIG SET notify-keyspace-events Egx$
CONFIG GET notify-keyspace-events
CONFIG SET notify-keyspace-events AKEmnoc
CONFIG GET notify-keyspace-events
CONFIG SET notify-keyspace-events oc
CONFIG GET notify-keyspace-events
CONFIG SET notify-keyspace-events Q
CONFIG SET notify-keyspace-events ""

== memory
CONFIG SET maxmemory-clients 5%
CONFIG GET maxmemory-clients
CONFIG SET maxmemory-clients 101%
CONFIG SET maxmemory-clients -1%
CONFIG SET maxmemory-clients %
CONFIG SET maxmemory-clients 1.5%
CONFIG SET maxmemory-clients 0%
CONFIG GET maxmemory-clients
CONFIG SET maxmemory 18446744073709551615
CONFIG GET maxmemory
CONFIG SET maxmemory-clients 5%
CONFIG SET maxmemory 0
CONFIG SET maxmemory-clients 0

== lists of numbers
CONFIG SET oom-score-adj-values "1 2 3"
CONFIG SET oom-score-adj-values "1 2"
CONFIG SET oom-score-adj-values "1 2 4000"
CONFIG SET oom-score-adj-values "1 2 x"
CONFIG SET oom-score-adj-values "0 200 800"
CONFIG SET latency-tracking-info-percentiles "50.0 99.90 100.0"
CONFIG GET latency-tracking-info-percentiles
CONFIG SET latency-tracking-info-percentiles "50 101"
CONFIG SET latency-tracking-info-percentiles x
CONFIG SET latency-tracking-info-percentiles ""
CONFIG GET latency-tracking-info-percentiles
CONFIG SET latency-tracking-info-percentiles "50 99 99.9"

== words
CONFIG SET shutdown-on-sigterm "nosave force"
CONFIG GET shutdown-on-sigterm
CONFIG SET shutdown-on-sigterm "save nosave now"
CONFIG SET shutdown-on-sigterm "default now"
CONFIG GET shutdown-on-sigterm
CONFIG SET shutdown-on-sigterm default
CONFIG SET loglevel NOTICE
CONFIG GET loglevel
CONFIG SET loglevel ""
CONFIG SET proc-title-template "{foo}"

== info without sections that are there
INFO nope
INFO ""
INFO hotkeys
INFO cluster
INFO hotkeys CLUSTER nope

== time and shutdown
TIME x
SHUTDOWN foo
SHUTDOWN ABORT
SHUTDOWN SAVE NOSAVE
SHUTDOWN NOSAVE ABORT
SHUTDOWN ABORT NOW
SHUTDOWN ABORT ABORT
SHUTDOWN NOW NOW FOO

== debug
DEBUG
DEBUG FOO
DEBUG JMAP
DEBUG SLEEP
DEBUG SLEEP x
DEBUG SLEEP 0.01
DEBUG SLEEP 0 1
DEBUG SLEEP -1
DEBUG ERROR foo
DEBUG ERROR "FOO bar\\r\\nbaz"
DEBUG SET-ACTIVE-EXPIRE 0
DEBUG SET-ACTIVE-EXPIRE x
DEBUG SET-ACTIVE-EXPIRE 1
DEBUG QUICKLIST-PACKED-THRESHOLD 100b
DEBUG QUICKLIST-PACKED-THRESHOLD x
DEBUG QUICKLIST-PACKED-THRESHOLD 5gb
DEBUG QUICKLIST-PACKED-THRESHOLD 0
DEBUG STRINGMATCH-LEN 10 x
DEBUG STRINGMATCH-TEST
DEBUG CHANGE-REPL-ID
DEBUG CHANGE-REPL-ID x
DEBUG SET-DISABLE-DENY-SCRIPTS 1
DEBUG SET-DISABLE-DENY-SCRIPTS 0
DEBUG REPLYBUFFER
DEBUG REPLYBUFFER PEAK-RESET-TIME NEVER
DEBUG REPLYBUFFER PEAK-RESET-TIME x
DEBUG REPLYBUFFER PEAK-RESET-TIME RESET
DEBUG REPLYBUFFER RESIZING 0
DEBUG REPLYBUFFER RESIZING 1
DEBUG REPLYBUFFER FOO 1
DEBUG PAUSE-CRON 1
DEBUG PAUSE-CRON 0
DEBUG DICT-RESIZING 1
DEBUG LOG hello
DEBUG LOG
DEBUG HELP x

== debug of data
XADD s 1-1 a b
SET text hello
DEBUG OBJECT none
DEBUG OBJECT
DEBUG LISTPACK s
DEBUG LISTPACK none
DEBUG QUICKLIST s
DEBUG HTSTATS 0
DEBUG HTSTATS 1
DEBUG HTSTATS 99
DEBUG HTSTATS x
DEBUG HTSTATS-KEY s
DEBUG HTSTATS-KEY none
DEBUG POPULATE 3
DEBUG POPULATE x
DEBUG POPULATE -1
DEBUG POPULATE 2 pre 20
DEBUG POPULATE 2 pre 20 5
GET key:0
GET pre:1

== debug types of replies
DEBUG PROTOCOL foo
DEBUG PROTOCOL string
DEBUG PROTOCOL integer
DEBUG PROTOCOL double
DEBUG PROTOCOL bignum
DEBUG PROTOCOL null
DEBUG PROTOCOL array
DEBUG PROTOCOL set
DEBUG PROTOCOL map
DEBUG PROTOCOL verbatim
DEBUG PROTOCOL true
DEBUG PROTOCOL false

== digests
DEBUG DIGEST
SET text hello
SET n 12345
XADD s 1-1 a b c d
XADD s 1-2 e ""
XADD s 5-0 a 1
XDEL s 1-2
XGROUP CREATE s g 0
XREADGROUP GROUP g c STREAMS s >
DEBUG DIGEST-VALUE s text n none
DEBUG DIGEST
PEXPIREAT text 9999999999999
DEBUG DIGEST-VALUE text
SELECT 3
XADD t 18446744073709551615-18446744073709551615 x y
DEBUG DIGEST
DEBUG DIGEST-VALUE
SELECT 0
"""


@pytest.mark.parametrize("script", cases(CASES))
def test_a_case_is_answered_alike(pair: Pair, script: list[Request]) -> None:
    pair.tally.scripts += 1
    pair.run(script)


def test_an_attribute_comes_before_its_reply(streamd_server: Server, redis_server: Server) -> None:
    read = []
    for server in (streamd_server, redis_server):
        with server.connect(3) as wire:
            wire.send("DEBUG", "PROTOCOL", "attrib")
            read.append([wire.read(), wire.read()])
    assert read[0] == read[1]


def test_a_push_comes_beside_its_reply(streamd_server: Server, redis_server: Server) -> None:
    read = []
    for server in (streamd_server, redis_server):
        with server.connect(3) as wire:
            wire.send("DEBUG", "PROTOCOL", "push")
            read.append([wire.read(), wire.read()])
        with server.connect(2) as wire:
            read[-1].append(wire.call("DEBUG", "PROTOCOL", "push"))
    assert read[0] == read[1]


@pytest.mark.parametrize("allowed", ["no", "local"])
def test_debug_is_refused_or_allowed(
    allowed: str, new_streamd: Callable[..., Server], new_redis: Callable[..., Server]
) -> None:
    replies = []
    for start in (new_streamd, new_redis):
        with start(**{"enable-debug-command": allowed}).connect() as wire:
            replies.append([wire.call("DEBUG", "SLEEP", "0"), wire.call("DEBUG"), wire.call("DEBUG", "FOO")])
    assert replies[0] == replies[1]


def test_protected_settings_may_be_allowed(
    new_streamd: Callable[..., Server], new_redis: Callable[..., Server]
) -> None:
    replies = []
    for start in (new_streamd, new_redis):
        with start(**{"enable-protected-configs": "local"}).connect() as wire:
            replies.append(
                [
                    wire.call("CONFIG", "SET", *pair)
                    for pair in (("dbfilename", "a/b"), ("dbfilename", "x.rdb"), ("dir", "/no/such"), ("dir", "/"))
                ]
            )
            replies[-1].append(wire.call("CONFIG", "GET", "dir"))
    assert replies[0] == replies[1]


def test_a_password_is_asked_for_once_it_is_set(
    new_streamd: Callable[[], Server], new_redis: Callable[[], Server]
) -> None:
    replies = []
    for start in (new_streamd, new_redis):
        server = start()
        with server.connect() as old:
            said = [old.call("CONFIG", "SET", "requirepass", "a b\xff".encode("latin-1")), old.call("PING")]
            with server.connect() as new:
                said += [new.call("PING"), new.call("AUTH", "x"), new.call("AUTH", b"a b\xff"), new.call("PING")]
            said += [old.call("CONFIG", "GET", "requirepass"), old.call("CONFIG", "SET", "requirepass", "")]
            with server.connect() as new:
                said.append(new.call("PING"))
        replies.append(said)
    assert replies[0] == replies[1]


# --- INFO ------------------------------------------------------------------------------------------------------------


STATS = ("xadd", "get", "config|resetstat")


def test_commands_and_errors_are_counted_alike(pair: Pair) -> None:
    pair.run_text("CONFIG RESETSTAT\nXADD s 1-1 a b\nXADD s 1-1 a b\nXADD s\nGET s\nGET none\nNOPE\nXLEN s")
    counted = []
    for wire in pair.wires:
        text = wire.call("INFO", "commandstats", "errorstats", "stats").value.decode()
        counts = {
            name: command_counts(value) for name, value in re.findall(r"^cmdstat_(\S+?):(.*)\r$", text, re.MULTILINE)
        }
        wanted = ("total_error_replies", "keyspace_hits", "keyspace_misses", "unexpected_error_replies")
        counted.append(
            (
                {name: counts.get(name) for name in STATS},
                dict(re.findall(r"^errorstat_(\S+?):(.*)\r$", text, re.MULTILINE)),
                {name: re.search(rf"^{name}:(.*)\r$", text, re.MULTILINE)[1] for name in wanted},  # type: ignore[index]
            )
        )
    assert counted[0] == counted[1]


# --- Files and command lines -----------------------------------------------------------------------------------------


def what_redis_says(arguments: list[str], folder: Path) -> str:
    """What redis-server says on standard error, or as a warning in its log, before it ends because of its configuration."""
    oracle = find_oracle()
    assert oracle is not None
    ended = subprocess.run(
        [oracle.server, *arguments], cwd=folder, capture_output=True, text=True, errors="surrogateescape", timeout=110
    )
    assert ended.returncode == 1, ended
    return ended.stderr or "".join(re.findall(r" # ((?:Fatal error|Unresolved|>>>|Module Conf).*\n)", ended.stdout))


def what_streamd_says(arguments: list[str]) -> str:
    try:
        Config.from_arguments(arguments, io.BytesIO())
    except ConfigError as error:
        return fatal_text(error)
    except (ConfigFileError, UnresolvedError) as error:
        return f"{error}\n"
    return "nothing"


FILES = {
    "integer": "hz ten",
    "no trailing comments": "hz 20 # often",
    "line number": "\n\n# c\n   timeout   x  \n",
    "name without arguments": "port",
    "unknown name": "nosuch",
    "unknown name with arguments": 'nosuch 1 "2 3"',
    "open quote": 'requirepass "abc',
    "text after a quote": 'requirepass "abc"d',
    "odd save": "save 900 1 300",
    "boolean": "appendonly maybe",
    "word": "loglevel loud",
    "two words": "loglevel notice debug",
    "memory": "maxmemory 1.5gb",
    "bounds": "databases 0",
    "octal": "unixsocketperm 7x7",
    "octal bounds": "unixsocketperm 1000",
    "buffer limits": "client-output-buffer-limit normal 1 2",
    "empty buffer limits": 'client-output-buffer-limit ""',
    "excluding words": "shutdown-on-sigterm save nosave",
    "events": "notify-keyspace-events K E A",
    "oom": "oom-score-adj-values 1 2",
    "percentiles": "latency-tracking-info-percentiles 50 x",
    "template": 'proc-title-template "{foo}"',
    "filename": "appendfilename a/b",
    "directory": "dir /no/such",
    "no directory": "dir x.conf",
    "port of a primary": "slaveof 127.0.0.1 notaport",
    "defragmentation": "activedefrag yes",
    "address": "cluster-announce-ip nonsense",
    "host name": "cluster-announce-hostname 50%",
    "include": "port 7000\ninclude nosuch",
    "include of two": "include a b",
    "error in an included file": "\n\n\ninclude other.conf",
    "rename": 'rename-command GETX ""',
    "rename twice": "rename-command GET G\nrename-command GET H",
    "rename onto another": "rename-command GET SET",
    "user without a name": "user",
    "bytes": "hz \u00e4",
}


@pytest.mark.parametrize("content", FILES.values(), ids=FILES.keys())
def test_a_file_is_refused_with_the_same_words(content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("other.conf").write_text("hz 12\nhz ten\n")
    Path("x.conf").write_text(content)
    assert what_streamd_says(["x.conf"]) == what_redis_says(["x.conf"], tmp_path)


LINES = [
    ["--hz", "ten"], ["--hz"], ["--hz", "10", "11"], ["--nosuch"], ["--nosuch", "1", "2"], ["--port", "7000", "nosuch", "1"],
    ["-port", "7000"], ["--port", "7000", "-hz", "13"], ["--port=7000"], ["--port", "7000 --hz 14"], ["--hz", "--loglevel", "debug"],
    ["--port", "7000", "--version"], ["--port", "7000", "--", "hz 15"], ["--port", ""], ["--port", "7000", ""],
    ["--save", "--x"], ["--save", "--loglevel", "--hz", "12"], ["--hz", "5\nloglevel debug"], ["x.conf", "y.conf"],
    ["x.conf", "-", "--hz", "5"], ["x.conf", "--hz", "x"], ["none.conf"], ["hz", "5"], ["--include", "none.conf"],
    ["--rename-command", "GET"], ["--requirepass", 'a"b', "c"],
]  # fmt: skip


@pytest.mark.parametrize("arguments", LINES, ids=" ".join)
def test_a_command_line_is_refused_with_the_same_words(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.conf").write_text("port 7000\ntimeout 5\n")
    # Redis reports a line of a file that does not exist, and has no hint at the nearest name.
    place = re.compile(r"configuration file, at line \d+")
    hint = re.compile(r"^there is no setting .*; did you mean .*\?\n", re.MULTILINE)
    ours, theirs = what_streamd_says(arguments), what_redis_says(arguments, tmp_path)
    assert hint.sub("", place.sub("command line", ours)) == place.sub("command line", theirs)


ACCEPTED = {
    "save lines": "save 900 1\nsave 300 10",
    "save cleared": 'save 900 1\nsave ""\nsave 300 10',
    "save in one word": 'save "900 1 300 10"',
    "buffer limits": "client-output-buffer-limit normal 1kb 2kb 3\nclient-output-buffer-limit slave 4 5 6",
    "case and blanks": '  HZ\t20 \r\n "timeout"  5\r\n',
    "quotes": "masterauth \"a\\x00\\\"b\\xff\"\nreplica-announce-ip 'it\\'s'",
    "memory": "maxmemory 1gb\nrepl-backlog-size 2MB\nauto-aof-rewrite-min-size 3k\nmaxmemory-clients 5%",
    "aliases": "slave-priority 7\nlua-time-limit 8\nhash-max-ziplist-entries 9\nlist-max-ziplist-size -1",
    "empty values": 'maxmemory ""\nlogfile ""\naclfile ""\nunixsocketperm ""',
    "words": "shutdown-on-sigterm force nosave\nloglevel VERBOSE\ncluster-slot-stats-enabled cpu net",
    "numbers": "latency-tracking-info-percentiles 50 99.90\noom-score-adj-values 1 2 3\nhz 9999",
    "no one to follow": "slaveof no one",
    "included": "hz 5\ninclude i?.conf\ninclude /no/such/*.conf",
}


@pytest.mark.parametrize("content", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_a_file_is_understood_alike(content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("i1.conf").write_text("timeout 11\n")
    Path("i2.conf").write_text("timeout 12\n")
    Path("x.conf").write_text(content)
    # All values of Redis, asked of a server that hears on a Unix socket of this test only.
    ours = Config.from_arguments(["x.conf", "--port", "0", "--unixsocket", "s"], io.BytesIO()).get(["*"])
    assert shared(ours) == redis_settings(["x.conf", "--port", "0", "--unixsocket", "s"], tmp_path)


def redis_settings(arguments: list[str], folder: Path) -> dict[str, str]:
    """CONFIG GET * of a redis-server with this command line, by name; it must listen on the Unix socket `s`."""
    oracle = find_oracle()
    assert oracle is not None
    server = subprocess.Popen([oracle.server, *arguments], cwd=folder, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        assert any("Ready to accept connections" in line for line in server.stdout)
        asked = subprocess.run(
            [oracle.cli, "-s", "s", "--no-raw", "CONFIG", "GET", "*"], cwd=folder, capture_output=True, check=True
        )
    finally:
        server.terminate()
        server.communicate()
    words = [unquoted(line) for line in asked.stdout.splitlines()]
    return dict(zip(words[::2], words[1::2], strict=True))


def unquoted(line: bytes) -> str:
    """The word of a line such as `12) "word"`."""
    from streamd.protocol.inline import split_line

    return split_line(line.partition(b")")[2])[0].decode("utf-8", "surrogateescape")


def test_what_one_rewrites_the_other_reads(
    new_streamd: Callable[..., Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("x.conf")
    path.write_text("port 0\nunixsocket s\n# kept\nsave 900 1\n")
    config = Config.from_arguments(["x.conf"], io.BytesIO())
    config.set(
        [
            ("save", "1 2 3 4"), ("hz", "33"), ("maxmemory", "1gb"), ("masterauth", 'a "b\n\udcff'), ("bind", "127.0.0.1"),
            ("client-output-buffer-limit", "normal 1kb 1mb 5"), ("notify-keyspace-events", "KEA"), ("maxmemory-clients", "7%"),
            ("shutdown-on-sigint", "force now"), ("latency-tracking-info-percentiles", "50 99.5"), ("replica-priority", "7"),
        ]
    )  # fmt: skip
    config.rewrite()
    assert redis_settings(["x.conf"], tmp_path) == shared(config.get(["*"]))
    assert "# kept" in path.read_text()


@pytest.mark.parametrize("new", [None, "", "900 1 60 5", "3600 1 300 100 60 10000"])
@pytest.mark.parametrize("old", ["", 'save ""', "save 900 1", "save 900 1 60 5", "save 900 1\nsave 60 5\nhz 20"])
def test_save_points_are_rewritten_alike(old: str, new: str | None, tmp_path: Path) -> None:
    path = tmp_path / "x.conf"
    path.write_text(f"{old}\n")
    config = Config.from_arguments([str(path)], io.BytesIO())
    changes = [] if new is None else [("save", new)]
    config.set(changes)
    assert save_lines(config.rewritten(path.read_text())) == save_lines(rewritten_by_redis(path, changes))


def save_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("save")]


def rewritten_by_redis(path: Path, changes: list[tuple[str, str]]) -> str:
    """A file after CONFIG SET and CONFIG REWRITE by a redis-server that works on it."""
    oracle = find_oracle()
    assert oracle is not None
    socket = path.with_name("s")
    server = subprocess.Popen(
        [oracle.server, path.name, "--port", "0", "--unixsocket", str(socket)],
        cwd=path.parent, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert server.stdout is not None
        assert any("Ready to accept connections" in line for line in server.stdout)
        for request in (*(["CONFIG", "SET", *change] for change in changes), ["CONFIG", "REWRITE"]):
            subprocess.run([oracle.cli, "-s", str(socket), *request], capture_output=True, check=True)
    finally:
        server.kill()
        server.communicate()
    return path.read_text()


def test_without_addresses_new_connections_are_refused(
    new_streamd: Callable[..., Server], new_redis: Callable[..., Server]
) -> None:
    heard = []
    for server in (new_streamd(), new_redis()):
        other = free_port()

        def refuses(port: int) -> bool:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
            except ConnectionRefusedError:
                return True
            return False

        with server.connect() as wire:

            def listener(wire: Wire = wire, server: Server = server) -> list[str]:
                found = re.findall(r"tcp_port:\d+|listener0[^\\]*", repr(wire.call("INFO", "server")))
                return [line.replace(str(server.port), "PORT") for line in found]

            replies: list[object] = [
                wire.call("CONFIG", "SET", "bind", ""),
                wire.call("CONFIG", "GET", "bind"),
                listener(),
            ]
            replies += [refuses(server.port), wire.call("CONFIG", "SET", "port", str(other)), refuses(other)]
            replies += [wire.call("CONFIG", "SET", "bind", "127.0.0.1"), refuses(server.port), refuses(other)]
            replies += [
                wire.call("CONFIG", "SET", "bind", "", "port", str(server.port)),
                wire.call("CONFIG", "SET", "port", "0"),
            ]
            replies += [
                wire.call("CONFIG", "SET", "bind", "127.0.0.1"),
                wire.call("CONFIG", "SET", "port", str(server.port)),
            ]
            replies += [refuses(server.port)]
        heard.append(replies)
    assert heard[0] == heard[1]


def test_a_keep_alive_that_the_system_refuses_is_no_obstacle(
    new_streamd: Callable[[], Server], new_redis: Callable[[], Server]
) -> None:
    for server in (new_streamd(), new_redis()):
        with server.connect() as wire:
            assert wire.call("CONFIG", "SET", "tcp-keepalive", "1000000") == Reply("+", b"OK")
        with server.connect() as wire:
            assert wire.call("PING") == Reply("+", b"PONG")


def test_the_directory_stays_while_files_are_loaded(
    new_streamd: Callable[..., Server], new_redis: Callable[..., Server]
) -> None:
    answers = []
    for start in (new_streamd, new_redis):
        server = start(
            enable_protected_configs="yes", loading_process_events_interval_bytes="1024", rdbcompression="no"
        )
        with server.connect() as wire:
            wire.pipeline([("SET", f"k{number}", "x" * 1000) for number in range(2000)])
            wire.call("SAVE")
        server.kill()
        server.process.args += ["--dir", str(server.folder), "--key-load-delay", "20000"]  # type: ignore[operator]
        process = subprocess.Popen(server.process.args, cwd=server.folder, env=python_environment())  # type: ignore[call-overload]
        try:
            with connect_early(server.port) as wire:
                eventually(lambda wire=wire: b"loading:1" in wire.call("INFO", "persistence").value)  # type: ignore[misc]
                lines = (
                    "SET dir /",
                    "SET maxmemory 5 dir /",
                    "SET dir nowhere",
                    "SET save 1 dir /",
                    "SET dbfilename x",
                )
                said = [wire.line(f"CONFIG {line}") for line in (*lines, "GET maxmemory")]
                wire.call("CONFIG", "SET", "key-load-delay", "0")
                eventually(lambda wire=wire: b"loading:0" in wire.call("INFO", "persistence").value)  # type: ignore[misc]
                answers.append([*said, wire.line("CONFIG SET dir /")])
        finally:
            process.kill()
            process.wait()
    assert answers[0] == answers[1]
    assert answers[0][0].value == b"LOADING Redis is loading the dataset in memory"
