"""Scripts that would end or stop an unguarded interpreter: the server answers them with an error, as Redis does, and lives.

docs/scripting.md lists the faults of Lua 5.1.5 that scripts can reach. Every one is tried against a server of its own, which
must answer afterwards. What only happens where memory is laid out in one way is tried in many ways.
"""

from __future__ import annotations

import random
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.files.crash import start_in
from support.replicas.fake_primary import FakePrimary
from support.scripting import lua_fuzz
from support.servers import Server, eventually
from support.wire import ConnectionClosed, Wire, show

PARAMETERS = ", ".join(f"p{n}" for n in range(190))
MANY = f"local function many({PARAMETERS}, ...) return select('#', ...) end "
"""A function that leaves 190 parameters to be filled in when it is called without arguments."""

ANY_DEPTH = "for depth = 1, 300 do local function deep(n) if n > 0 then return 1 + deep(n - 1) end {} return 0 end deep(depth) end"
"""Does something with every free part of a stack, which has twice its size each time."""


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    found: list[Server] = []
    yield found
    for server in found:
        server.end()


@pytest.fixture
def wire(servers: list[Server], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wire]:
    """A connection to a server that lives, with little memory for scripts."""
    if not servers or not servers[-1].is_running:
        servers.append(start_in(tmp_path_factory.mktemp("scripts") / "data", {"lua-memory-limit": "64mb"}))
    with servers[-1].connect(timeout_s=100) as wire:
        yield wire
        assert wire.call("PING").value == b"PONG"


def answer_to(wire: Wire, script: str) -> str:
    """What comes back, without the place of an error."""
    return show(wire.call("EVAL", script, "0")).partition(" script: ")[0]


UNPACK = "-ERR user_script:1: too many results to unpack"


@pytest.mark.parametrize(
    ("script", "answer"),
    [
        ("return {unpack({1, 2, 3}, -2, 2147483647)}", UNPACK),
        ("return {unpack({}, 0, 2147483647)}", UNPACK),
        ("return {unpack({}, 0, 2147483646)}", UNPACK),
        ("return {unpack({}, 1, 2147483647)}", UNPACK),
        ("return {unpack({}, -2147483648, 2147483647)}", UNPACK),
        ("return {unpack({1, 2, 3}, -2147483648)}", UNPACK),
        ("return {unpack({1, 2, 3}, 2147483648)}", UNPACK),
        ("return {unpack({}, '0', '2147483647')}", UNPACK),
        ("local u = {unpack} return {u[1]({}, 0, 2^31 - 1)}", UNPACK),
        (
            "return coroutine.wrap(function() return unpack({}, 0, 2^31 - 1) end)()",
            UNPACK.replace("too", "user_script:1: too"),
        ),
        ("return {select(2, pcall(unpack, {}, 0, 2^31 - 1))}", '["too many results to unpack"]'),
        ("return loadstring('return unpack({}, 0, 2^31 - 1)', '@x')()", "-ERR x:1: too many results to unpack"),
        ("return #{unpack({}, 1, 4294967297)}", ":0"),
        ("return {unpack({1, 2, 3}, 2, 3)}", "[:2, :3]"),
    ],
)
def test_unpack_counts_its_results_without_overflow(wire: Wire, script: str, answer: str) -> None:
    assert answer_to(wire, script) == answer


@pytest.mark.parametrize(
    "call",
    [
        "many()",
        "many(1, 2)",
        "pcall(many)",
        "xpcall(many, many)",
        "coroutine.wrap(many)()",
        "coroutine.wrap(function() many() coroutine.yield() end)()",
        "table.sort({3, 1, 2}, many)",
        "string.gsub('abc', '.', many)",
        "table.foreach({1}, many)",
        "local _ = setmetatable({}, {__index = many}).x",
        "local m = setmetatable({}, {__add = many, __call = many, __concat = many, __lt = many}) local _ = m + 1, m(), m .. 1, m < m",
        "tostring(setmetatable({}, {__tostring = many}))",
        "load(function() many() end)",
        "loadstring('local many = ... many()')(many)",
        "for i = 1, 3 do collectgarbage() many() end",
    ],
)
def test_a_call_that_leaves_out_parameters_beside_varargs_stays_within_its_stack(wire: Wire, call: str) -> None:
    shapes = [f"for i = 1, 200 do pcall(function() {call} end) end", ANY_DEPTH.format(f"pcall(function() {call} end)"),
              f"for i = 1, 200 do coroutine.wrap(function() {call} end)() end"]  # fmt: skip
    for shape in shapes:
        assert answer_to(wire, f"{MANY} {shape} return 1") == ":1"


def test_a_stack_has_room_for_any_number_of_parameters(wire: Wire) -> None:
    """One call after the other, each with other numbers of parameters and registers, in stacks of any size."""
    chance = random.Random(1)
    for _ in range(60):
        calls = []
        for n in range(5):
            parameters = chance.choice([1, 5, 20, 38, 45, 90, 150, 190])
            names = ", ".join(f"p{i}" for i in range(parameters))
            fill = " ".join(f"local l{i}" for i in range(chance.choice([0, 1, 190 - parameters])))
            inner = f"f{n - 1}()" if n else "return"
            calls.append(f"local function f{n}({names}, ...) {fill} {inner} end")
        assert answer_to(wire, f"{' '.join(calls)} for i = 1, 50 do coroutine.wrap(f4)() end f4() return 1") == ":1"


@pytest.mark.parametrize(
    "script",
    [
        "for i = 1, 2000 do loadstring('local x = ' .. i, 'name' .. i) end",
        "for i = 1, 500 do local n = 0 load(function() n = n + 1 collectgarbage() return n < 5 and ' ' or nil end, ('n'):rep(i)) end",
        "for i = 1, 500 do local f = loadstring('return 1\\0 ' .. i) or loadstring('error()', 'a\\0' .. i) collectgarbage('step') end",
    ],
)
def test_the_name_of_code_lives_as_long_as_it_is_compiled(wire: Wire, script: str) -> None:
    assert answer_to(wire, f"collectgarbage('setpause', 0) {script} return 1") == ":1"


@pytest.mark.parametrize(
    "call",
    [
        "subject:match(pattern, 1, true)",
        "subject:gsub(pattern, '', 1)",
        "subject:gmatch(pattern, 1, true)()",
        "subject:find(pattern, 1)",
    ],
)
def test_a_pattern_that_would_overflow_the_stack_of_c_is_refused(wire: Wire, call: str) -> None:
    subject = "local subject, pattern = ('x'):rep(400000), ('x?'):rep(300000) .. ('x'):rep(300000)"
    assert answer_to(wire, f"{subject} return {call}") == "-ERR user_script:1: pattern too complex"


@pytest.mark.parametrize(
    ("script", "answer"),
    [
        ("return ('').rep('', 2^31 - 1)", '""'),
        ("table.insert({}, -2^31, 1)", "-ERR user_script:1: bad argument #2 to 'insert' (position out of bounds)"),
        ("collectgarbage('setpause', -1) collectgarbage('setstepmul', 2^31 - 1) local t = {} "
         "for i = 1, 20000 do t[i] = {tostring(i)} end return #t", ":20000"),
    ],
)  # fmt: skip
def test_what_takes_lua_minutes_for_nothing_ends_at_once(wire: Wire, script: str, answer: str) -> None:
    assert answer_to(wire, script) == answer


def test_an_error_with_a_metatable_is_shown_where_it_can_be_stopped(wire: Wire, servers: list[Server]) -> None:
    assert answer_to(wire, "error(setmetatable({}, {__index = function(_, k) return 'got ' .. k end}))") == "-got err"
    thrower = "function() error('x') end"
    assert answer_to(wire, f"error(setmetatable({{}}, {{__index = {thrower}, __newindex = {thrower}}}))").endswith("x")
    with servers[-1].connect(timeout_s=100) as other:
        other.call("CONFIG", "SET", "busy-reply-threshold", "50")
        wire.send("EVAL", "error(setmetatable({}, {__index = function() while true do end end}))", "0")
        eventually(lambda: other.call("PING").value.startswith(b"BUSY"), what="the script is slow")
        assert other.call("SCRIPT", "KILL").value == b"OK"
        assert b"Script killed by user" in wire.read(100).value
        other.call("CONFIG", "SET", "busy-reply-threshold", "5000")


ENDLESS = "while true do end"
CAUGHT = f"while true do pcall(function() {ENDLESS} end) end"
"""Goes on when it is killed, unless the kill is raised again and again."""


@pytest.mark.parametrize(
    "script",
    [
        CAUGHT,
        "local function f(n) while true do pcall(f, n + 1) end end f(0)",
        "local function f() pcall(f) return pcall(f) end while true do f() end",
        f"xpcall(function() {ENDLESS} end, function() {CAUGHT} end) {CAUGHT}",
        f"xpcall(error, function() xpcall(error, function() {CAUGHT} end) {CAUGHT} end) {CAUGHT}",
        "local function handle() while true do xpcall(handle, handle) end end handle()",
        f"coroutine.wrap(function() xpcall(function() {ENDLESS} end, function() {CAUGHT} end) end)()",
        f"local c = {{}} for i = 1, 100 do c[i] = coroutine.create(function() {CAUGHT} end) end "
        "while true do for i = 1, 100 do pcall(coroutine.resume, c[i]) end end",
        f"while true do pcall(function() local c = coroutine.wrap(function() {CAUGHT} end) while true do pcall(c) end end) end",
        f"local m = setmetatable({{}}, {{__index = function() {CAUGHT} end}}) while true do pcall(function() return m.x end) end",
        f"local m = setmetatable({{}}, {{__tostring = function() {CAUGHT} end}}) while true do pcall(tostring, m) end",
        f"while true do pcall(table.sort, {{3, 1, 2}}, function() {CAUGHT} end) end",
        f"while true do pcall(string.gsub, 'abc', '.', function() {CAUGHT} end) end",
        f"while true do load(function() {CAUGHT} end) end",
        f"while true do pcall(error, setmetatable({{}}, {{__index = function() {CAUGHT} end}})) end",
        "load(collectgarbage)",
        "while true do load(gcinfo) end",
    ],
)
def test_no_script_goes_on_when_it_is_killed(wire: Wire, servers: list[Server], script: str) -> None:
    with servers[-1].connect(timeout_s=100) as other:
        other.call("CONFIG", "SET", "busy-reply-threshold", "50")
        wire.send("EVAL", script, "0")
        eventually(lambda: other.call("PING").value.startswith(b"BUSY"), what="the script is slow")
        assert other.call("SCRIPT", "KILL").value == b"OK"
        assert b"Script killed by user" in wire.read(100).value
        other.call("CONFIG", "SET", "busy-reply-threshold", "5000")


SHORT_COROUTINES = """
local function a() for i = 1, 90 do end end
local function b() for i = 1, 90 do coroutine.wrap(a)() end end
local function c() for i = 1, 90 do coroutine.wrap(b)() end end
local function d() for i = 1, 90 do coroutine.wrap(c)() end end
while true do coroutine.wrap(d)() end
"""
"""Each counts its own instructions, and ends before they are many."""


@pytest.mark.parametrize(
    "script",
    [
        SHORT_COROUTINES,
        "local t = {} for i = 1, 100000 do t[i] = {} end while true do collectgarbage() end",
        "local s = ('x'):rep(10000000) while true do local joined = s .. #s end",
        "for i = 1, 100000 do end local s = ('x'):rep(10000000) while true do s:upper() end",
    ],
)
def test_others_are_answered_while_a_script_spends_its_time_in_few_instructions(
    wire: Wire, servers: list[Server], script: str
) -> None:
    with servers[-1].connect(timeout_s=100) as other:
        other.call("CONFIG", "SET", "busy-reply-threshold", "1")
        wire.send("EVAL", script, "0")
        eventually(lambda: other.call("PING").value.startswith(b"BUSY"), what="the script is slow")
        assert other.call("SCRIPT", "KILL").value == b"OK"
        assert b"Script killed by user" in wire.read(100).value
        other.call("CONFIG", "SET", "busy-reply-threshold", "5000")


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_reply_without_an_end_is_refused(wire: Wire, wrapped: bool) -> None:
    """A table that contains itself twice has 2^8000 values; what the script has written stays."""
    wire.call("DEL", "k")
    script = "redis.call('set', 'k', 'written') local t = {} t[1] = t t[2] = t return t"
    if wrapped:
        wire.call("MULTI")
        wire.call("EVAL", script, "0")
        assert show(wire.call("EXEC")) == "[-ERR not enough memory]"
    else:
        assert show(wire.call("EVAL", script, "0")) == "-ERR not enough memory"
    assert wire.call("GET", "k").value == b"written"


COLLIDING = """
local made = {}
for i = 1, 12000 do made[i] = ('%08d'):format(i):gsub('%d', 'x%0y') .. ('x'):rep(40) end
return #made
"""
"""Strings whose every third byte is the same: the only ones at which Lua looks to find a place for them."""


def test_others_are_answered_while_a_script_makes_strings_that_collide(wire: Wire, servers: list[Server]) -> None:
    with servers[-1].connect(timeout_s=100) as other:
        other.call("CONFIG", "SET", "busy-reply-threshold", "1")
        wire.send("EVAL", COLLIDING, "0")
        answers = 0
        while other.call("PING").value.startswith(b"BUSY") or not answers:
            answers += 1
        assert wire.read(100).value == 12000
        other.call("CONFIG", "SET", "busy-reply-threshold", "5000")
    assert answers > 5


def test_a_coroutine_that_gets_no_memory_for_its_arguments_fails_alone(tmp_path: Path) -> None:
    server = start_in(tmp_path / "data", {"lua-memory-limit": "12mb"})
    try:
        for made, resumed in (("create", "coroutine.resume, co[i],"), ("wrap", "co[i],")):
            script = (
                f"local co = {{}} for i = 1, 100 do co[i] = coroutine.{made}(function(...) end) end local t = {{}} "
                "pcall(function() while true do t[#t + 1] = ('x'):rep(1000) .. #t end end) "
                "for i = #t - 2000, #t do t[i] = nil end collectgarbage() local failed = 0 "
                f"for i = 1, 100 do if not pcall({resumed} unpack({{}}, 1, 7000)) then failed = failed + 1 end end "
                "t = nil return failed > 0"
            )
            with server.connect(timeout_s=100) as wire:
                assert answer_to(wire, script) in {":1", "-ERR not enough memory"}
                assert wire.call("PING").value == b"PONG"
    finally:
        server.end()


# --- Libraries and streams ------------------------------------------------------------------------------------------------

LIBRARY = f"""#!lua name=lib
local function many({PARAMETERS}, ...) return ... end
for i = 1, 50 do many() end
redis.register_function('f', function() for i = 1, 200 do coroutine.wrap(many)() many() end return 'done' end)
redis.register_function('u', function() return unpack({{}}, 0, 2147483647) end)
"""


@pytest.mark.parametrize("preamble", ["yes", "no"])
def test_libraries_from_files_are_guarded(tmp_path: Path, preamble: str) -> None:
    server = start_in(tmp_path / "data", {"appendonly": "yes", "aof-use-rdb-preamble": preamble})
    try:
        with server.connect() as wire:
            assert wire.call("FUNCTION", "LOAD", LIBRARY).value == b"lib"
            if preamble == "yes":
                wire.call("BGREWRITEAOF")
                eventually(lambda: b"aof_rewrite_in_progress:0" in wire.call("INFO", "persistence").value)
        server.kill()
        server.restart()
        with server.connect() as wire:
            assert wire.call("FCALL", "f", "0").value == b"done"
            assert b"too many results to unpack" in wire.call("FCALL", "u", "0").value
    finally:
        server.end()


@pytest.mark.long
def test_scripts_and_libraries_that_a_primary_sends_are_guarded(new_node: Callable[..., Server]) -> None:
    replica = new_node("streamd", repl_rdb_channel="no")
    empty = bytes.fromhex("524544495330303132ff") + b"\0" * 8
    with FakePrimary() as primary, replica.connect() as wire:
        wire.call("REPLICAOF", "127.0.0.1", str(primary.port))
        link = primary.accept()
        link.shake_hands()
        link.send_snapshot(empty)
        offset = link.send_stream(
            ("EVAL", "return {unpack({}, 0, 2147483647)}", "0"),
            ("EVAL", f"{MANY} for i = 1, 200 do many() coroutine.wrap(many)() end", "0"),
            ("FUNCTION", "LOAD", LIBRARY),
            ("SET", "k", "v"),
        )
        link.wait_for_ack(offset)
        assert wire.call("GET", "k").value == b"v"
        assert b"lib" in wire.call("FUNCTION", "LIST").value[0].value[1].value


# --- The end of a process in the middle of a script --------------------------------------------------------------------


@pytest.mark.parametrize("appendfsync", ["always", "everysec"])
def test_what_was_acknowledged_is_there_after_a_script_has_crashed_the_process(
    tmp_path: Path, appendfsync: str
) -> None:
    """SIGSEGV while a script runs that has written: acknowledged writes are there, of the script's own none."""
    folder = tmp_path / "data"
    server = start_in(folder, {"appendonly": "yes", "appendfsync": appendfsync, "busy-reply-threshold": "1"})
    try:
        with server.connect() as wire, server.connect() as other:
            for n in range(300):
                assert not wire.call("XADD", "s", f"{n + 1}-1", "n", str(n)).is_error
                if n % 10 == 0:
                    assert wire.call(
                        "EVAL", "redis.call('set', KEYS[1], ARGV[1]) return redis.call('incr', 'c')", "1", "k", str(n)
                    ).value
            wire.send(
                "EVAL",
                "redis.call('set', 'k', 'half') redis.call('xadd', 's', '999-1', 'f', 'v') while true do end",
                "0",
            )
            eventually(lambda: other.call("PING").value.startswith(b"BUSY"), what="the script runs")
            server.process.send_signal(signal.SIGSEGV)
            with pytest.raises((ConnectionClosed, ConnectionError)):
                wire.read(100)
        eventually(lambda: not server.is_running)
        server.restart()
        with server.connect() as wire:
            assert wire.call("XLEN", "s").value == 300
            assert wire.call("MGET", "k", "c").value[0].value == b"290"
            assert wire.call("GET", "c").value == b"30"
    finally:
        server.end()


# --- Random scripts --------------------------------------------------------------------------------------------------------


def test_random_scripts_of_odd_shapes_end_in_a_reply_or_an_error() -> None:
    ends = lua_fuzz.run(
        random.randrange(10**6), seconds=8, most=400, settings={"lua_memory_limit": "64mb"}, shows=False
    )
    assert ends["a reply"] > sum(ends.values()) // 3


def test_the_same_seed_gives_the_same_scripts() -> None:
    first, second = lua_fuzz.Scripts(5), lua_fuzz.Scripts(5)
    texts = [first.script() for _ in range(200)]
    assert texts == [second.script() for _ in range(200)]
    shapes = (r"p18\d, \.\.\.", r"u6\d", r"coroutine", r"\({199}", r"collectgarbage", r"string\.dump")
    assert all(any(re.search(shape, text) for text in texts) for shape in shapes)
