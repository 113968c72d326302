"""Connections, clients, settings, introspection: the same replies as a real Redis. Marked `real`."""

from __future__ import annotations

from typing import Any

import pytest
from support.compare.differential import Pair, Request
from support.compare.later import LATER_CLIENT_FIELDS, LATER_OPTIONS, flags_before, later_commands
from support.compare.observing import command_counts
from support.compare.tables import cases
from support.servers import Server, eventually
from support.wire import Reply, Wire, split_line

pytestmark = pytest.mark.real

CASES = """
== ping and echo
PING
PING hello
PING ""
PING a b
ECHO hello
ECHO ""
ECHO
ECHO a b
ping
echo "\\x00\\r\\n"

== names
CLIENT GETNAME
CLIENT SETNAME worker-1
CLIENT GETNAME
CLIENT SETNAME "with space"
CLIENT SETNAME "line\\n"
CLIENT SETNAME "\\x7f"
CLIENT SETNAME "\\xc3\\xa4"
CLIENT SETNAME !~
CLIENT GETNAME
CLIENT SETNAME ""
CLIENT GETNAME
CLIENT SETINFO lib-name mylib
CLIENT SETINFO LIB-VER 1.2.3
CLIENT SETINFO lib-name "a b"
CLIENT SETINFO lib-ver "a\\n"
CLIENT SETINFO lib-name ""
CLIENT SETINFO what x
CLIENT SETINFO lib-name

== client switches
CLIENT NO-EVICT on
CLIENT NO-EVICT OFF
CLIENT NO-EVICT what
CLIENT NO-TOUCH on
CLIENT NO-TOUCH off
CLIENT NO-TOUCH
CLIENT REPLY ON
CLIENT REPLY what
CLIENT PAUSE 0
CLIENT PAUSE 0 WRITE
CLIENT PAUSE 0 all
CLIENT UNPAUSE
CLIENT UNPAUSE x
CLIENT PAUSE -1
CLIENT PAUSE x
CLIENT PAUSE 1 what
CLIENT

== client kill and unblock refuse
CLIENT KILL 1.2.3.4:5
CLIENT KILL ID 0
CLIENT KILL ID -1
CLIENT KILL ID x
CLIENT KILL ID 99999999
CLIENT KILL ADDR 1.2.3.4:5
CLIENT KILL LADDR 1.2.3.4:5
CLIENT KILL TYPE what
CLIENT KILL TYPE master
CLIENT KILL USER nobody
CLIENT KILL SKIPME what
CLIENT KILL MAXAGE x
CLIENT KILL MAXAGE 1000000
CLIENT KILL WHAT x
CLIENT KILL ID
CLIENT KILL
CLIENT UNBLOCK x
CLIENT UNBLOCK 0
CLIENT UNBLOCK 99999999
CLIENT UNBLOCK 99999999 ERROR
CLIENT UNBLOCK 99999999 what
CLIENT LIST TYPE what
CLIENT LIST TYPE replica
CLIENT LIST TYPE master
CLIENT LIST TYPE pubsub
CLIENT LIST ID 99999999
CLIENT LIST ID x
CLIENT LIST ID
CLIENT LIST WHAT
CLIENT INFO x
CLIENT ID x
CLIENT GETNAME x
CLIENT WHAT

== select and reset
SELECT 3
SET text value
CLIENT SETNAME me
RESET
CLIENT GETNAME
GET text
SELECT 3
GET text
SELECT 0
RESET x

== command
COMMAND COUNT x
COMMAND INFO nosuch
COMMAND GETKEYS XADD s * f v
COMMAND GETKEYS XREAD COUNT 1 STREAMS a b 0 0
COMMAND GETKEYS XREADGROUP GROUP g c COUNT 1 STREAMS a b 0 0
COMMAND GETKEYS XREADGROUP GROUP STREAMS c STREAMS a 0
COMMAND GETKEYS XREAD STREAMS a
COMMAND GETKEYS XREAD BLOCK 1 a b c
COMMAND GETKEYS DEL a b c
COMMAND GETKEYS COPY a b
COMMAND GETKEYS RENAME a b
COMMAND GETKEYS XGROUP CREATE s g 0
COMMAND GETKEYS XINFO STREAM s
COMMAND GETKEYS PING
COMMAND GETKEYS SCAN 0
COMMAND GETKEYS GET
COMMAND GETKEYS GET a b
COMMAND GETKEYS NOSUCH a
COMMAND GETKEYS
COMMAND GETKEYSANDFLAGS XADD s * f v
COMMAND GETKEYSANDFLAGS XREADGROUP GROUP g c STREAMS a b 0 0
COMMAND GETKEYSANDFLAGS COPY a b
COMMAND GETKEYSANDFLAGS DEL a b
COMMAND GETKEYSANDFLAGS PING
COMMAND DOCS nosuch
COMMAND LIST FILTERBY MODULE nosuch
COMMAND LIST FILTERBY PATTERN nosuch*
COMMAND LIST FILTERBY ACLCAT nosuch
COMMAND LIST FILTERBY WHAT x
COMMAND LIST WHAT
COMMAND LIST FILTERBY PATTERN
COMMAND WHAT

== config
CONFIG GET nosuch
CONFIG GET databases
CONFIG GET DataBases
CONFIG GET stream-node-max-entries stream-node-max-bytes
CONFIG GET stream-node-*
CONFIG GET stream-node-max-entries stream-node-*
CONFIG GET stream-node-max-????s
CONFIG SET stream-node-max-entries 7
CONFIG GET stream-node-max-entries
CONFIG SET stream-node-max-bytes 1kb
CONFIG GET stream-node-max-bytes
CONFIG SET stream-node-max-bytes 1MB stream-node-max-entries 9
CONFIG GET stream-node-max-bytes
CONFIG SET stream-node-max-bytes x
CONFIG SET stream-node-max-bytes 5 stream-node-max-entries x
CONFIG GET stream-node-max-bytes
CONFIG SET stream-node-max-entries -1
CONFIG SET stream-node-max-entries 9223372036854775808
CONFIG SET stream-node-max-entries 1 stream-node-max-entries 2
CONFIG SET STREAM-NODE-MAX-ENTRIES 11
CONFIG GET stream-node-max-entries
CONFIG SET nosuch x
CONFIG SET nosuch x stream-node-max-entries 1
CONFIG SET databases 4
CONFIG SET dir /tmp
CONFIG SET maxmemory 100mb
CONFIG GET maxmemory
CONFIG SET maxmemory 0
CONFIG SET maxmemory 1.5gb
CONFIG SET maxmemory-policy what
CONFIG SET maxmemory-policy allkeys-lru
CONFIG SET maxmemory-policy noeviction
CONFIG SET timeout -1
CONFIG SET timeout 0
CONFIG SET maxclients 0
CONFIG SET loglevel what
CONFIG SET appendonly what
CONFIG SET hz 10
CONFIG SET proto-max-bulk-len 1
CONFIG SET client-output-buffer-limit "normal 0 0"
CONFIG SET client-output-buffer-limit "what 0 0 0"
CONFIG SET client-output-buffer-limit "normal 0 0 0"
CONFIG GET client-output-buffer-limit
CONFIG SET stream-node-max-entries
CONFIG RESETSTAT
CONFIG REWRITE
CONFIG RESETSTAT x
CONFIG WHAT
CONFIG

== info and others refuse
INFO nosuch
INFO "a b" nosuch
TIME x
DBSIZE x
SHUTDOWN WHAT
SHUTDOWN NOSAVE SAVE
SHUTDOWN ABORT
DEBUG
READONLY
MULTIPLE words here
GET
"""


@pytest.mark.parametrize("script", cases(CASES))
def test_a_case_is_answered_alike(pair: Pair, script: list[Request]) -> None:
    pair.tally.scripts += 1
    pair.run(script)


@pytest.mark.parametrize(
    "line", ["HELLO", "HELLO 2", "HELLO 3", "HELLO 2 SETNAME x", "HELLO 3 AUTH default x SETNAME y"]
)
def test_hello_answers_alike_but_for_id_and_modules(pair: Pair, line: str) -> None:
    def fields(wire: Wire) -> tuple[str, list[Reply]]:
        reply = wire.line(line)
        elements = list(reply.value)
        names = [element.value for element in elements[::2]]
        values = dict(zip(names, elements[1::2], strict=True))
        assert values[b"modules"].kind == "*"
        return reply.kind, [Reply("$", b",".join(names)), *(values[n] for n in names if n not in (b"id", b"modules"))]

    assert fields(pair.wires[0]) == fields(pair.wires[1])


@pytest.mark.parametrize(
    "line",
    ["HELLO 4", "HELLO 1", "HELLO x", "HELLO 3 AUTH a", "HELLO 3 AUTH a b", 'HELLO 3 SETNAME "a b"', "HELLO 3 WHAT"],
)
def test_a_refused_hello_changes_nothing(pair: Pair, line: str) -> None:
    replies = [wire.pipeline([split_line(line), ["CLIENT", "GETNAME"], ["GET", "none"]]) for wire in pair.wires]
    assert replies[0] == replies[1]


# --- Clients --------------------------------------------------------------------------------------------------------


def client_fields(reply: Reply) -> list[dict[bytes, bytes]]:
    lines = reply.value.removeprefix(b"txt:").splitlines()
    return [dict(word.split(b"=", 1) for word in line.split(b" ")) for line in lines]


@pytest.mark.parametrize("line", ["CLIENT INFO", "CLIENT LIST"])
def test_a_client_is_described_with_the_same_fields(pair: Pair, line: str) -> None:
    kinds, names, values = [], [], []
    for wire in pair.wires:
        wire.line("CLIENT SETNAME me")
        wire.line("CLIENT SETINFO LIB-NAME mylib")
        wire.line("CLIENT SETINFO LIB-VER 1.0")
        wire.line("SELECT 2")
        own = wire.client_id()
        reply = wire.line(line)
        fields = next(f for f in client_fields(reply) if f[b"id"] == b"%d" % own)
        kinds.append(reply.kind)
        names.append([name for name in fields if name.decode() not in LATER_CLIENT_FIELDS])
        same = (b"name", b"db", b"flags", b"sub", b"psub", b"ssub", b"multi", b"watch", b"user", b"resp", b"cmd")
        values.append({name: fields[name] for name in (*same, b"lib-name", b"lib-ver", b"redir", b"idle")})
        assert reply.value.endswith(b"\n")
    assert kinds[0] == kinds[1]
    assert names[0] == names[1]
    assert values[0] == values[1]


def test_a_blocked_client_is_shown_as_blocked(pair: Pair) -> None:
    shown = []
    for server, wire in zip(pair.servers, pair.wires, strict=True):
        with server.connect(pair.protocol) as waiting:
            number = waiting.client_id()
            waiting.send(*split_line("XREAD BLOCK 0 STREAMS s $"))
            described = lambda wire=wire, number=number: client_fields(wire.call("CLIENT", "LIST", "ID", number))[0]  # noqa: E731
            eventually(lambda described=described: described()[b"flags"] == b"b")
            shown.append((described()[b"cmd"], described()[b"flags"]))
    assert shown[0] == shown[1]


def test_client_ids_grow(pair: Pair) -> None:
    for server in pair.servers:
        ids = []
        for _ in range(3):
            with server.connect(pair.protocol) as wire:
                ids.append(wire.client_id())
        assert ids == sorted(set(ids))


def test_client_kill_by_id_closes_the_connection(pair: Pair) -> None:
    for server, wire in zip(pair.servers, pair.wires, strict=True):
        victim = server.connect()
        assert wire.call("CLIENT", "KILL", "ID", victim.client_id()) == Reply(":", 1)
        assert victim.read_to_end() == b""
        victim.close()


def test_client_kill_by_address_closes_the_connection(pair: Pair) -> None:
    for server, wire in zip(pair.servers, pair.wires, strict=True):
        victim = server.connect()
        assert victim.call("PING").value == b"PONG"  # it has been accepted
        host, port = victim.socket.getsockname()
        assert wire.call("CLIENT", "KILL", f"{host}:{port}") == Reply("+", b"OK")
        assert victim.read_to_end() == b""
        victim.close()


def test_client_kill_spares_the_caller_by_default(pair: Pair) -> None:
    for server in pair.servers:
        with server.connect() as wire:
            own = wire.client_id()
            assert wire.call("CLIENT", "KILL", "ID", own) == Reply(":", 0)
            assert wire.call("CLIENT", "KILL", "ID", own, "SKIPME", "no") == Reply(":", 1)
            assert wire.read_to_end() == b""


def test_client_pause_write_lets_readers_through(pair: Pair) -> None:
    for server, wire in zip(pair.servers, pair.wires, strict=True):
        with server.connect() as writer:
            assert wire.call("CLIENT", "PAUSE", "100000", "WRITE") == Reply("+", b"OK")
            writer.send("XADD", "s", "1-1", "f", "v")
            assert wire.call("XLEN", "s") == Reply(":", 0)
            assert not writer.has_input()
            assert wire.call("CLIENT", "UNPAUSE") == Reply("+", b"OK")
            assert writer.read() == Reply("$", b"1-1")


def test_client_pause_all_holds_everybody_until_its_time(pair: Pair) -> None:
    for server, wire in zip(pair.servers, pair.wires, strict=True):
        with server.connect() as other:
            assert wire.call("CLIENT", "PAUSE", "50") == Reply("+", b"OK")
            assert other.call("PING") == Reply("+", b"PONG")


# --- The command table ----------------------------------------------------------------------------------------------

SPOKEN = [
    "xadd",
    "xtrim",
    "xdel",
    "xdelex",
    "xack",
    "xackdel",
    "xlen",
    "xrange",
    "xrevrange",
    "xread",
    "xreadgroup",
    "xpending",
    "xclaim",
    "xautoclaim",
    "xgroup",
    "xinfo",
    "xsetid",
    "xcfgset",
    "del",
    "unlink",
    "exists",
    "type",
    "keys",
    "scan",
    "rename",
    "renamenx",
    "copy",
    "move",
    "randomkey",
    "dbsize",
    "flushdb",
    "flushall",
    "select",
    "swapdb",
    "expire",
    "pexpire",
    "expireat",
    "pexpireat",
    "ttl",
    "pttl",
    "expiretime",
    "pexpiretime",
    "persist",
    "touch",
    "object",
    "set",
    "get",
    "ping",
    "echo",
    "hello",
    "auth",
    "client",
    "reset",
    "quit",
    "command",
    "config",
    "info",
    "time",
    "debug",
    "shutdown",
]


def table_of(wire: Wire, names: list[str]) -> dict[str, Any]:
    """COMMAND INFO as plain values, with what is a set in RESP3 sorted."""
    return {
        name: None if record.value is None else normalised(record)
        for name, record in zip(names, wire.call("COMMAND", "INFO", *names).value, strict=True)
    }


def normalised(record: Reply) -> dict[str, Any]:
    fields = record.value
    assert len(fields) == 10
    name = fields[0].value.decode()
    return {
        "kinds": [field.kind for field in fields],
        "name": fields[0].value,
        "arity": fields[1].value,
        "flags": sorted(flag.value for flag in fields[2].value),
        "flag kinds": {flag.kind for flag in fields[2].value},
        "legacy keys": [field.value for field in fields[3:6]],
        "categories": sorted(category.value for category in fields[6].value),
        "tips": sorted(tip.value for tip in fields[7].value),
        "key specs": [key_spec(name, spec) for spec in fields[8].value],
    }


def key_spec(command: str, spec: Reply) -> dict[Any, Any]:
    """As a map of maps; the notes, which are prose, left out; flags sorted."""
    pairs = dict(zip([k.value for k in spec.value[::2]], spec.value[1::2], strict=True))
    pairs.pop(b"notes", None)
    flags = pairs.pop(b"flags")
    return {"kind": spec.kind, "flags": sorted(f.value for f in flags_before(command, flags.value)), **pairs}


@pytest.mark.parametrize("name", SPOKEN)
def test_command_info_is_alike(pair: Pair, name: str) -> None:
    ours, theirs = (table_of(wire, [name])[name] for wire in pair.wires)
    assert ours == theirs


def subcommands_of(wire: Wire, name: str) -> dict[bytes, Any]:
    record = wire.call("COMMAND", "INFO", name).value[0]
    return {sub.value[0].value: normalised(sub) for sub in record.value[9].value}


@pytest.mark.parametrize("name", ["xgroup", "xinfo", "object", "client", "config", "command"])
def test_subcommands_are_described_alike(pair: Pair, name: str) -> None:
    """Those that streamd has must be as Redis has them; the stream and object containers must have all."""
    ours, theirs = (subcommands_of(wire, name) for wire in pair.wires)
    ours.pop(b"client|maint_notifications", None)  # of Redis's enterprise servers
    assert ours == {sub: theirs[sub] for sub in ours}
    if name in ("xgroup", "xinfo", "object"):
        assert set(ours) == set(theirs)


def docs_of(wire: Wire, name: str) -> Any:
    reply = wire.call("COMMAND", "DOCS", name)
    return without_prose(reply)


def without_prose(reply: Reply) -> Any:
    """COMMAND DOCS without summary, complexity and history, whose words are each server's own."""
    if reply.kind in "*%~" and isinstance(reply.value, tuple):
        elements = [without_prose(element) for element in reply.value]
        is_map = len(elements) % 2 == 0 and all(e.kind == "$" for e in reply.value[::2]) and elements
        if is_map:
            pairs = zip(elements[::2], elements[1::2], strict=True)
            prose = (b"summary", b"complexity", b"history", b"doc_flags", b"reply_schema")
            return (reply.kind, {key[1]: value for key, value in pairs if key[1] not in prose})
        return (reply.kind, elements)
    return (reply.kind, reply.value)


@pytest.mark.parametrize(
    "name", [n for n in SPOKEN if n not in ("client", "config", "command", "debug", "object", *LATER_OPTIONS)]
)
def test_command_docs_describe_the_same_arguments(pair: Pair, name: str) -> None:
    ours, theirs = (docs_of(wire, name) for wire in pair.wires)
    assert ours == theirs


def test_command_list_and_count_agree(pair: Pair) -> None:
    wire = pair.wires[0]
    names = {name.value.decode() for name in wire.call("COMMAND", "LIST").value}
    commands = {name for name in names if "|" not in name}
    assert wire.call("COMMAND", "COUNT") == Reply(":", len(commands))
    assert {record.value[0].value.decode() for record in wire.call("COMMAND").value} == commands
    assert set(SPOKEN) <= commands


def test_command_list_filters(pair: Pair) -> None:
    for line in ("COMMAND LIST FILTERBY PATTERN x*", "COMMAND LIST FILTERBY ACLCAT stream"):
        ours, theirs = ({name.value for name in wire.line(line).value} for wire in pair.wires)
        assert {name for name in ours if name.startswith(b"x")} <= theirs | later_commands()
        assert {b"xadd", b"xread", b"xgroup|create"} & theirs <= ours


# --- Settings and INFO ----------------------------------------------------------------------------------------------

SAME_DEFAULTS = [
    "databases",
    "stream-node-max-bytes",
    "stream-node-max-entries",
    "stream-idmp-duration",
    "stream-idmp-maxsize",
    "proto-max-bulk-len",
    "client-query-buffer-limit",
    "client-output-buffer-limit",
    "timeout",
    "tcp-keepalive",
    "tcp-backlog",
    "maxmemory",
    "maxmemory-policy",
    "protected-mode",
    "appendonly",
    "appendfsync",
    "hz",
    "dynamic-hz",
    "lazyfree-lazy-user-del",
    "maxclients",
]


@pytest.mark.parametrize("name", SAME_DEFAULTS)
def test_defaults_are_alike(pair: Pair, name: str) -> None:
    ours, theirs = (wire.call("CONFIG", "GET", name) for wire in pair.wires)
    assert ours == theirs


def test_config_set_is_all_or_nothing(pair: Pair) -> None:
    pair.run_text("CONFIG SET stream-node-max-bytes 77 stream-node-max-entries x\nCONFIG GET stream-node-max-bytes")


INFO_FIELDS = {
    "server": "redis_version redis_mode run_id tcp_port process_id uptime_in_seconds hz executable config_file",
    "clients": (
        "connected_clients blocked_clients maxclients pubsub_clients watching_clients tracking_clients "
        "clients_in_timeout_table total_watched_keys total_blocking_keys total_blocking_keys_on_nokey"
    ),
    "memory": (
        "used_memory used_memory_human used_memory_rss used_memory_peak maxmemory maxmemory_policy mem_fragmentation_ratio"
    ),
    "persistence": (
        "loading async_loading rdb_changes_since_last_save rdb_bgsave_in_progress rdb_last_save_time "
        "rdb_last_bgsave_status aof_enabled aof_rewrite_in_progress aof_rewrite_scheduled aof_last_bgrewrite_status "
        "aof_last_write_status"
    ),
    "stats": (
        "total_connections_received total_commands_processed instantaneous_ops_per_sec keyspace_hits keyspace_misses "
        "expired_keys evicted_keys pubsub_channels pubsub_patterns pubsubshard_channels rejected_connections sync_full "
        "sync_partial_ok sync_partial_err total_error_replies acl_access_denied_auth"
    ),
    "cpu": "used_cpu_sys used_cpu_user",
    "cluster": "cluster_enabled",
    "replication": "role connected_slaves",
}


def info_of(wire: Wire, *sections: str) -> dict[str, dict[str, str]]:
    text = wire.call("INFO", *sections).value.decode().removeprefix("txt:")
    found: dict[str, dict[str, str]] = {}
    for block in text.strip().split("\r\n\r\n"):
        title, *lines = block.strip().split("\r\n")
        found[title.removeprefix("# ").lower()] = dict(line.split(":", 1) for line in lines)
    return found


@pytest.mark.parametrize("section", INFO_FIELDS)
def test_info_has_the_fields_that_tools_read(pair: Pair, section: str) -> None:
    ours, theirs = (info_of(wire, section) for wire in pair.wires)
    assert list(ours) == list(theirs)
    wanted = set(INFO_FIELDS[section].split())
    assert wanted <= set(theirs[section])
    assert wanted <= set(ours[section])


@pytest.mark.parametrize("sections", [(), ("all",), ("default",), ("everything",), ("server", "clients"), ("nosuch",)])
def test_info_has_the_same_sections(pair: Pair, sections: tuple[str, ...]) -> None:
    """`modules`, `hotkeys` and `keysizes` are there or not with what the server was built with and has seen; `delivery` is of streamd alone."""
    optional = {"modules", "hotkeys", "keysizes", "keyspace", "threads", "delivery"}
    replies = [wire.call("INFO", *sections) for wire in pair.wires]
    assert replies[0].kind == replies[1].kind
    if sections != ("nosuch",):
        ours, theirs = (info_of(wire, *sections) for wire in pair.wires)
        assert [s for s in ours if s not in optional] == [s for s in theirs if s not in optional]
    else:
        assert replies[0] == replies[1]


def test_info_counts_commands_and_errors_alike(pair: Pair) -> None:
    for wire in pair.wires:
        wire.line("CONFIG RESETSTAT")
        wire.pipeline(
            [split_line(line) for line in ("XADD s 1-1 f v", "XADD s 1-1 f v", "XLEN s", "GET s", "GET", "NOSUCH")]
        )
    counts = []
    for wire in pair.wires:
        stats = info_of(wire, "commandstats")["commandstats"]
        calls = {
            name: command_counts(value)
            for name, value in stats.items()
            if name in ("cmdstat_xadd", "cmdstat_xlen", "cmdstat_get")
        }
        counts.append((calls, info_of(wire, "errorstats")["errorstats"]))
    assert counts[0] == counts[1]


def test_redis_version_is_the_release_that_is_spoken(pair: Pair) -> None:
    ours, theirs = (info_of(wire, "server")["server"]["redis_version"] for wire in pair.wires)
    assert ours == theirs


# --- Limits and shutting down ---------------------------------------------------------------------------------------


@pytest.fixture
def both_new(new_streamd: Any, new_redis: Any) -> Any:
    def start(**directives: str) -> tuple[Server, Server]:
        return new_streamd(**directives), new_redis(**directives)

    return start


def test_too_many_clients_are_turned_away(both_new: Any) -> None:
    said = []
    for server in both_new(maxclients="2"):
        wires = [server.connect() for _ in range(2)]
        for wire in wires:
            assert wire.call("PING") == Reply("+", b"PONG")
        with server.connect() as third:
            said.append(third.read_to_end())
        for wire in wires:
            wire.close()
    assert said[0] == said[1] == b"-ERR max number of clients reached\r\n"


def test_a_client_that_does_not_read_is_dropped_at_the_hard_limit(both_new: Any) -> None:
    for server in both_new(client_output_buffer_limit="normal 1000000 0 0"):
        with server.connect() as writer, server.connect() as lazy:
            writer.call("XADD", "s", "1-1", "f", "x" * 500_000)
            lazy.send_bytes(b"XRANGE s - +\r\n" * 200)
            gone = lambda writer=writer: len(client_fields(writer.line("CLIENT LIST"))) == 1  # noqa: E731
            eventually(gone, what="the lazy client gone")


def test_debug_is_refused_unless_enabled(both_new: Any) -> None:
    replies = []
    for server in both_new(enable_debug_command="no"):
        with server.connect() as wire:
            replies.append(wire.pipeline([("DEBUG", "JMAP"), ("DEBUG", "SLEEP", "0"), ("DEBUG",), ("DEBUG", "what")]))
    assert replies[0] == replies[1]


def test_more_than_a_kibibyte_unsent_before_authentication_ends_the_connection(both_new: Any) -> None:
    """More than 1 KiB of unsent replies to someone unknown closes the connection."""
    said = []
    for server in both_new(requirepass="secret"):
        with server.connect() as wire:
            wire.send_bytes(b"PING\r\n" * 2000)
            said.append(wire.read_to_end())
    assert said[0] == said[1] == b""


def test_a_password_set_at_run_time_is_asked_for(both_new: Any) -> None:
    replies = []
    for server in both_new():
        with server.connect() as first, server.connect() as second:
            second.call("PING")
            own = first.pipeline(
                [split_line(line) for line in ("CONFIG SET requirepass secret", "PING", "CONFIG GET requirepass")]
            )
            other = second.call("PING")
            with server.connect() as third:
                new = [third.line(line) for line in ("PING", "AUTH wrong", "AUTH secret", "PING")]
            replies.append((own, other, new))
    assert replies[0] == replies[1]


@pytest.mark.parametrize("line", ["SHUTDOWN", "SHUTDOWN NOSAVE", "SHUTDOWN NOW", "SHUTDOWN NOSAVE NOW FORCE"])
def test_shutdown_closes_and_exits_with_zero(both_new: Any, line: str) -> None:
    for server in both_new():
        with server.connect() as wire, server.connect() as blocked:
            blocked.send("XREAD", "BLOCK", "0", "STREAMS", "s", "$")
            wire.send(*split_line(line))
            assert wire.read_to_end() == b""
            assert blocked.read_to_end() == b""
        server.process.wait(60)
        assert server.process.returncode == 0
