"""FUNCTION and FCALL: the same replies and errors as Redis's, in both protocols."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable

import pytest
from support.compare.differential import Pair, Tally
from support.compare.observing import command_counts
from support.servers import Server

pytestmark = [pytest.mark.long, pytest.mark.real]

HEAD = "#!lua name={name}\n"
ONE = (
    HEAD.format(name="one")
    + "redis.register_function('f', function(keys, args) return {keys[1], args[1], #keys, #args} end)"
)
TWO = (
    HEAD.format(name="two")
    + "redis.register_function{function_name='g', callback=function() return 1 end, flags={'no-writes', 'allow-oom'}, description='what g does'}"
)

HEADS = [
    "", "#!", "#!lua", "#!lua name=x", "#!lua name=x\n", "#! name=x\n", "#!python name=x\nfoo", "#!python\n", "#!lua\nx",
    "#!lua name=\nx", "#!lua name=a-b\nx", "#!lua name=a name=b\nx", "#!lua foo=bar name=x\nx", "#!lua foo\n", "#!LUA NAME=x\n",
    "#!lua name='x y'\n", "#!lua name='xy\n", '#!lua name="xy"\n', " #!lua name=x\n", "#!lua name=x y\nx", "#! lua name=x\n",
    "#!lua  name=x\n", "#!lua name=x\r\n",
]  # fmt: skip

BODIES = [
    "foo bar", "return foo()", "redis.register_function()", "redis.register_function(1)", "redis.register_function('a','b','c')",
    "redis.register_function('a')", "redis.register_function('a','b')", "redis.register_function(nil,function() end)",
    "redis.register_function({},function() end)", "redis.register_function(true,function() end)", "redis.register_function{}",
    "redis.register_function{function_name='x'}", "redis.register_function{callback=function() end}",
    "redis.register_function{function_name={},callback=function() end}", "redis.register_function{function_name='a',callback=1}",
    "redis.register_function{function_name='a',callback=function() end,flags=1}",
    "redis.register_function{function_name='a',callback=function() end,flags={'x'}}",
    "redis.register_function{function_name='a',callback=function() end,flags={1}}",
    "redis.register_function{function_name='a',callback=function() end,flags={a='no-writes'}}",
    "redis.register_function{function_name='a',callback=function() end,flags={'NO-WRITES','allow-oom','allow-stale','no-cluster','allow-cross-slot-keys'}}",
    "redis.register_function{function_name='a',callback=function() end,flags={'no-writes',nil,'foo'}}",
    "redis.register_function{function_name='a',callback=function() end,description=1}",
    "redis.register_function{function_name='a',callback=function() end,description={}}",
    "redis.register_function{function_name='a',callback=function() end,foo=1}",
    "redis.register_function{'a',callback=function() end}", "redis.register_function{[true]='a'}",
    "redis.register_function{FUNCTION_NAME='a',CALLBACK=function() end}", "redis.register_function{function_name=5,callback=function() end}",
    "redis.register_function('b',function() end) redis.register_function('b',function() end)",
    "redis.register_function('a-b',function() end)", "redis.register_function('',function() end)",
    "redis.register_function(12,function() end)", "error('x')", "redis.call('get','x')", "local a=redis.foo", "return math.x",
    "x=1", "redis.x=1", "redis.log(1,'x')", "redis.log('x','x')", "redis.log(1)", "local t={} t.x.y=1", "_G.x=1", "KEYS={}",
    "return ARGV", "local s='abc' s=s:upper() redis.register_function(s,function() return s end)", "\n\nreturn print",
    "local a=redis.LOG_DEBUG local b=redis.REDIS_VERSION_NUM return b.x", "local a=redis.pcall", "local t=setmetatable",
    "redis.register_function('fm',redis.register_function)", "redis.register_function('fj',function() end) error('late')",
    "redis.register_function('fk',redis.log)", "while true do end", "local function f() return f() end f()",
]  # fmt: skip

FUNCTIONS = """#!lua name=calls
local loaded, count = redis, 0
local function add(name, f) redis.register_function(name, f) end
add('nothing', function() end)
add('several', function() return 1, 2 end)
add('given', function(...) return select('#', ...) end)
add('echo', function(keys, args) keys.x = 1 return {keys, args} end)
add('count', function() count = count + 1 return count end)
add('globals', function() local t = {} for k in pairs(_G) do t[#t + 1] = k end table.sort(t) return t end)
add('api', function() local t = {} for k in pairs(redis) do t[#t + 1] = k end table.sort(t) return t end)
add('keys', function() return KEYS end)
add('register', function() return redis.register_function('x', function() end) end)
add('register_later', function() return loaded.register_function('x', function() end) end)
add('of_loading', function() return loaded.call('ping') end)
add('same', function() return loaded == redis end)
add('set_global', function() x = 1 end)
add('raise', function() error('boom') end)
add('raise_table', function() error({err = 'My err'}) end)
add('fail', function() local x return x.y end)
add('unknown', function() return redis.call('foo') end)
add('unknown_caught', function() return redis.pcall('foo') end)
add('error_reply', function() return redis.error_reply('x y') end)
add('missing_field', function() return redis.breakpoint end)
add('inner', function() return redis.call('fcall', 'nothing', '0') end)
add('inner_list', function() return redis.call('function', 'list') end)
add('write', function(keys, args) return redis.call('set', keys[1], args[1]) end)
add('read', function(keys) return redis.call('get', keys[1]) end)
add('stream', function(keys, args) return redis.call('xadd', keys[1], args[1], 'f', 'v') end)
add('map', function() redis.setresp(3) return {map = {a = 1}} end)
add('json', function(keys, args) return cjson.encode(cjson.decode(args[1])) end)
add('bad_json', function(keys, args) return cjson.decode(args[1]) end)
add('code', function() return loadstring('return redis.call("ping")')() end)
redis.register_function{function_name='writes_not', callback=function(keys) return redis.call('set', keys[1], 'y') end, flags={'no-writes'}}
redis.register_function{function_name='tries', callback=function(keys) return redis.pcall('set', keys[1], 'y') end, flags={'no-writes'}}
redis.register_function{function_name='reads', callback=function(keys) return redis.call('get', keys[1]) end, flags={'no-writes', 'allow-stale'}}
"""


@pytest.fixture
def empty(pair: Pair) -> Pair:
    """Servers without functions."""
    pair.run([("FUNCTION", "FLUSH")])
    return pair


@pytest.mark.parametrize("code", HEADS)
def test_first_lines(empty: Pair, code: str) -> None:
    empty.run(
        [("FUNCTION", "LOAD", code + "redis.register_function('f', function() return 1 end)"), ("FUNCTION", "LIST")]
    )
    empty.run([("FUNCTION", "FLUSH"), ("FUNCTION", "LOAD", code), ("FUNCTION", "LIST")])


@pytest.mark.parametrize("body", BODIES)
def test_what_a_library_does_while_it_is_loaded(empty: Pair, body: str) -> None:
    empty.run(
        [("FUNCTION", "LOAD", HEAD.format(name="lib") + body), ("FUNCTION", "LIST", "WITHCODE"), ("FUNCTION", "STATS")]
    )


def test_a_library_is_listed_called_and_removed(empty: Pair) -> None:
    empty.run(
        [
            ("FUNCTION", "LOAD", ONE), ("FUNCTION", "LOAD", ONE), ("FUNCTION", "LOAD", "replace", ONE),
            ("FUNCTION", "LOAD", "REPLACE"), ("FUNCTION", "LOAD", "REPLACE", "x", "y"), ("FUNCTION", "LOAD", ONE, "REPLACE"),
            ("FUNCTION", "LOAD", "repl", ONE), ("FUNCTION", "LIST"), ("FUNCTION", "LIST", "withcode", "libraryname", "ON*"),
            ("FUNCTION", "LIST", "LIBRARYNAME", "no*"), ("FUNCTION", "LIST", "LIBRARYNAME"), ("FUNCTION", "LIST", "x"),
            ("FUNCTION", "LIST", "WITHCODE", "WITHCODE"), ("FUNCTION", "LIST", "LIBRARYNAME", "a", "LIBRARYNAME", "b"),
            ("FUNCTION", "STATS"), ("FUNCTION", "STATS", "x"), ("FUNCTION", "KILL"), ("FUNCTION", "FOO"), ("FUNCTION",),
            ("FCALL", "f", "1", "k", "a"), ("FCALL", "F", "2", "k", "l"), ("FCALL_RO", "f", "0"), ("FCALL", "f", "x"),
            ("FCALL", "no", "x"), ("FCALL", "f", "3", "a"), ("FCALL", "f", "-1", "a"), ("FCALL", "f", "9" * 20), ("FCALL", "f"),
            ("FUNCTION", "DELETE", "ONE"), ("FUNCTION", "DELETE", "one"), ("FUNCTION", "DELETE", "one"), ("FCALL", "f", "0"),
            ("FUNCTION", "LIST"), ("FUNCTION", "FLUSH", "x"), ("FUNCTION", "FLUSH", "SYNC", "x"), ("FUNCTION", "FLUSH", "async"),
        ]
    )  # fmt: skip


def test_names_of_functions_are_unique_among_libraries(empty: Pair) -> None:
    other = HEAD.format(name="other")
    empty.run(
        [
            ("FUNCTION", "LOAD", ONE), ("FUNCTION", "LOAD", other + "redis.register_function('f', function() return 1 end)"),
            ("FUNCTION", "LOAD", other + "redis.register_function('F', function() return 1 end)"), ("FUNCTION", "LIST"),
            ("FUNCTION", "LOAD", TWO),
            ("FUNCTION", "LOAD", "REPLACE", HEAD.format(name="two") + "redis.register_function('f', function() return 1 end)"),
            ("FUNCTION", "LOAD", "REPLACE", HEAD.format(name="two") + "redis.register_function('h', function() return 2 end) x y"),
            ("FCALL", "g", "0"), ("FCALL", "h", "0"), ("FUNCTION", "STATS"),
        ]
    )  # fmt: skip


def test_functions_at_work(empty: Pair) -> None:
    names = [line.split("'")[1] for line in FUNCTIONS.splitlines() if line.startswith(("add('", "redis.reg"))]
    calls = [(word, name, "0") for name in names for word in ("FCALL", "FCALL_RO")]
    empty.run([("FUNCTION", "LOAD", FUNCTIONS), *calls])
    empty.run(
        [
            ("FCALL", "echo", "2", "a", "b", "c"), ("FCALL", "write", "1", "k", "v"), ("FCALL", "read", "1", "k"),
            ("FCALL_RO", "reads", "1", "k"), ("FCALL", "writes_not", "1", "k"), ("FCALL", "tries", "1", "k"),
            ("FCALL", "stream", "1", "s", "1-1"), ("FCALL", "stream", "1", "s", "1-1"), ("FCALL", "read", "1", "s"),
            ("FCALL", "json", "0", '{"a":[1,2,{"b":null}]}'), ("FCALL", "bad_json", "0", '{"a":'), ("GET", "k"),
            ("COMMAND", "GETKEYS", "FCALL", "write", "2", "a", "b", "c"), ("FLUSHALL",), ("FUNCTION", "STATS"),
        ]
    )  # fmt: skip


def test_functions_in_a_transaction(empty: Pair) -> None:
    empty.run(
        [
            ("FUNCTION", "LOAD", FUNCTIONS), ("MULTI",), ("FCALL", "count", "0"), ("FCALL", "raise", "0"), ("FCALL", "nope", "0"),
            ("FCALL", "write", "1", "k", "v"), ("FUNCTION", "LOAD", ONE), ("FCALL", "f", "0"), ("FUNCTION", "DELETE", "one"),
            ("EXEC",), ("GET", "k"), ("WATCH", "k"), ("FCALL", "write", "1", "k", "w"), ("MULTI",), ("PING",), ("EXEC",),
        ]
    )  # fmt: skip


def test_scripts_and_functions_share_a_random_sequence(empty: Pair) -> None:
    draw = "return tostring(math.random())"
    library = HEAD.format(name="random") + f"redis.register_function('draw', function() {draw} end)"
    empty.run(
        [
            ("FUNCTION", "LOAD", library), ("EVAL", "math.randomseed(7)", "0"), ("FCALL", "draw", "0"), ("EVAL", draw, "0"),
            ("FCALL", "draw", "0"), ("SCRIPT", "FLUSH"), ("EVAL", draw, "0"), ("FUNCTION", "FLUSH"), ("FUNCTION", "LOAD", library),
            ("FCALL", "draw", "0"), ("EVAL", "math.randomseed(-2^31) return math.random(1000)", "0"),
        ]
    )  # fmt: skip


def test_functions_without_memory(empty: Pair) -> None:
    calls = [("FCALL", name, "1", "k", "v") for name in ("count", "write", "read", "reads", "writes_not", "nope")]
    try:
        empty.run(
            [
                ("FUNCTION", "LOAD", FUNCTIONS), ("FUNCTION", "LOAD", TWO), ("CONFIG", "SET", "maxmemory", "1"), *calls,
                ("FCALL", "g", "0"), ("FUNCTION", "LOAD", ONE), ("FUNCTION", "DELETE", "two"), ("MULTI",), *calls[:1], *calls[3:4],
                ("EXEC",), ("CONFIG", "SET", "maxmemory", "0"), ("MULTI",), *calls[:2], ("EXEC",),
            ]
        )  # fmt: skip
    finally:
        empty.run([("CONFIG", "SET", "maxmemory", "0")])


@pytest.mark.parametrize("protocol", [2, 3])
def test_functions_on_a_replica_without_its_primary(
    new_streamd: Callable[..., Server], new_redis: Callable[..., Server], tally: Tally, protocol: int
) -> None:
    calls = [("FCALL", name, "1", "k", "v") for name in ("count", "write", "read", "reads", "writes_not", "nope")]
    with contextlib.closing(Pair(new_streamd(), new_redis(), protocol, tally)) as pair:
        pair.run([("FUNCTION", "LOAD", FUNCTIONS), ("SET", "k", "v")])
        pair.run([("REPLICAOF", "127.0.0.1", "1"), *calls, ("FUNCTION", "FLUSH"), ("FUNCTION", "STATS")])
        pair.run(
            [
                ("CONFIG", "SET", "replica-serve-stale-data", "no"),
                *calls,
                ("FUNCTION", "STATS"),
                ("FUNCTION", "HELP", "x"),
            ]
        )


def test_monitor_shows_a_function_and_what_it_calls(empty: Pair) -> None:
    empty.run([("FUNCTION", "LOAD", FUNCTIONS)])
    shown = []
    for wire, server in zip(empty.wires, empty.servers, strict=True):
        with contextlib.closing(server.connect()) as watcher:
            watcher.call("MONITOR")
            for call in (
                ("FCALL", "write", "1", "k", "v"),
                ("FCALL", "nope", "0"),
                ("FCALL_RO", "reads", "1", "k"),
                ("PING",),
            ):
                wire.call(*call)
            lines = []
            while not lines or b"PING" not in lines[-1]:
                lines.append(watcher.read(timeout_s=60).value)
            shown.append([re.sub(rb"^[0-9.]+ \[(\d+) (lua|)[0-9.:]*\]", rb"[\1 \2]", line) for line in lines])
    assert shown[0] == shown[1]
    assert any(line.startswith(b"[0 lua]") for line in shown[0])


def test_permissions(empty: Pair) -> None:
    empty.run(
        [("FUNCTION", "LOAD", FUNCTIONS), ("ACL", "SETUSER", "u", "on", "nopass", "~k*", "+fcall", "+fcall_ro", "+set")]
    )
    try:
        empty.run(
            [
                ("AUTH", "u", "p"), ("FCALL", "count", "0"), ("FCALL", "write", "1", "k1", "v"), ("FCALL", "write", "1", "x", "v"),
                ("FCALL", "read", "1", "k1"), ("FUNCTION", "LIST"), ("FCALL_RO", "reads", "1", "k1"), ("FUNCTION", "LOAD", ONE),
            ]
        )  # fmt: skip
    finally:
        empty.run([("AUTH", "default", ""), ("ACL", "DELUSER", "u")])


def test_statistics(empty: Pair) -> None:
    empty.run([("FUNCTION", "LOAD", FUNCTIONS), ("CONFIG", "RESETSTAT")])
    empty.run(
        [("FCALL", name, "0") for name in ("count", "raise", "raise_table", "unknown", "unknown_caught", "error_reply")]
    )
    empty.run(
        [("FCALL", "write", "1", "k", "v"), ("FCALL", "nope", "0"), ("FCALL", "count", "x"), ("FUNCTION", "LOAD", "x")]
    )
    shown = [
        {
            command_counts(line)
            for section in ("commandstats", "errorstats")
            for line in wire.call("INFO", section).value.decode().splitlines()
            if line.startswith(("cmdstat_fcall", "cmdstat_set", "cmdstat_function|load", "errorstat"))
        }
        for wire in empty.wires
    ]
    assert shown[0] == shown[1]
    fields = []
    for wire in empty.wires:
        info = dict(
            line.split(":", 1) for line in wire.call("INFO", "memory").value.decode().splitlines() if ":" in line
        )
        fields.append(
            [info["number_of_functions"], info["number_of_libraries"], int(info["used_memory_vm_functions"]) > 0]
        )
    assert fields[0] == fields[1]
    for wire in empty.wires:
        stats = wire.call("MEMORY", "STATS").plain()
        stats = stats if isinstance(stats, dict) else dict(zip(stats[::2], stats[1::2], strict=True))
        assert stats[b"functions.caches"] >= len(FUNCTIONS)
        assert stats[b"script.VMs"] > 0


# --- Payloads -------------------------------------------------------------------------------------------------------


def test_a_payload_of_either_server_is_restored_by_the_other(empty: Pair) -> None:
    empty.run([("FUNCTION", "LOAD", ONE), ("FUNCTION", "LOAD", TWO), ("FUNCTION", "LOAD", FUNCTIONS)])
    payloads = [wire.call("FUNCTION", "DUMP").value for wire in empty.wires]
    for payload in payloads:
        empty.run(
            [
                ("FUNCTION", "FLUSH"), ("FUNCTION", "RESTORE", payload), ("FUNCTION", "STATS"),
                ("FUNCTION", "LIST", "LIBRARYNAME", "one", "WITHCODE"), ("FUNCTION", "LIST", "LIBRARYNAME", "two", "WITHCODE"),
                ("FCALL", "f", "1", "a", "b"), ("FCALL", "count", "0"), ("FUNCTION", "RESTORE", payload, "REPLACE"),
                ("FCALL", "count", "0"), ("FUNCTION", "RESTORE", payload, "flush"), ("FUNCTION", "STATS"),
                ("FUNCTION", "RESTORE", payload, "foo"), ("FUNCTION", "RESTORE", payload, "foo", "bar"),
                ("FUNCTION", "RESTORE", payload[:-1]), ("FUNCTION", "RESTORE", "x"), ("FUNCTION", "RESTORE", payload[:-8] + bytes(8), "FLUSH"),
            ]
        )  # fmt: skip


def test_the_policies_of_restore(empty: Pair) -> None:
    empty.run([("FUNCTION", "LOAD", ONE)])
    payload = empty.wires[1].call("FUNCTION", "DUMP").value
    clash = HEAD.format(name="clash") + "redis.register_function('F', function() return 1 end)"
    empty.run(
        [
            ("FUNCTION", "RESTORE", payload), ("FUNCTION", "RESTORE", payload, "APPEND"), ("FUNCTION", "RESTORE", payload, "REPLACE"),
            ("FUNCTION", "FLUSH"), ("FUNCTION", "LOAD", clash), ("FUNCTION", "RESTORE", payload), ("FUNCTION", "LIST"),
            ("FUNCTION", "RESTORE", payload, "REPLACE"), ("FUNCTION", "LIST"), ("FUNCTION", "RESTORE", payload, "FLUSH"),
            ("FUNCTION", "LIST"), ("FUNCTION", "FLUSH"), ("FUNCTION", "DUMP"),
        ]
    )  # fmt: skip


def test_the_function_that_runs_is_shown_and_killed(empty: Pair) -> None:
    forever = HEAD.format(name="forever") + "redis.register_function('forever', function() while true do end end)"
    for wire, server in zip(empty.wires, empty.servers, strict=True):
        wire.call("CONFIG", "SET", "busy-reply-threshold", "50")
        wire.call("FUNCTION", "LOAD", forever)
        with contextlib.closing(server.connect(empty.protocol, timeout_s=60)) as other:
            other.send("FCALL", "forever", "1", "k", "a")
            while not wire.call("PING").is_error:
                pass
            stats = str(wire.call("FUNCTION", "STATS"))
            assert "forever" in stats
            assert "FCALL" in stats
            assert wire.call("PING").value == wire.call("SCRIPT", "KILL").value
            assert wire.call("PING").value.startswith(
                b"BUSY Redis is busy running a script. You can only call FUNCTION KILL"
            )
            assert wire.call("FUNCTION", "KILL").value == b"OK"
            assert other.read(timeout_s=60).value.startswith(
                b"ERR Script killed by user with SCRIPT KILL... script: forever, on"
            )
        wire.call("CONFIG", "SET", "busy-reply-threshold", "5000")
