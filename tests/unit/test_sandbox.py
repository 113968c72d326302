"""Scripts cannot get out: attacks on a server in this process, each with what it got."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

import streamd.embedded

READ_ONLY = "Attempt to modify a readonly table"
NO_GLOBAL = "Script attempted to access nonexistent global variable"


DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def client() -> Iterator[redis.Redis]:
    with (
        streamd.embedded.start(lua_memory_limit="16mb", busy_reply_threshold=0) as server,
        server.client(socket_timeout=DEADLINE_S) as client,
    ):
        yield client


@pytest.mark.parametrize(
    "name", ["python", "io", "debug", "package", "require", "module", "dofile", "loadfile", "getfenv", "setfenv",
             "newproxy", "print", "lupa", "arg"],
)  # fmt: skip
def test_what_reaches_beyond_lua_is_not_there(client: redis.Redis, name: str) -> None:
    with pytest.raises(redis.ResponseError, match=NO_GLOBAL):
        client.eval(f"return {name}", 0)
    assert client.eval(f"return rawget(_G, '{name}')", 0) is None
    with pytest.raises(redis.ResponseError, match=NO_GLOBAL):
        client.eval(f"return loadstring('return {name}')()", 0)


def test_nothing_that_can_be_reached_is_of_the_host(client: redis.Redis) -> None:
    """Every value that can be found from the globals, their fields and metatables: there is no userdata but cjson.null."""
    script = """
        local seen, kinds, names = {}, {}, {}
        local function walk(value, name)
            local kind = type(value)
            kinds[kind] = true
            if kind == 'userdata' and value ~= cjson.null then names[#names + 1] = name end
            if kind ~= 'table' or seen[value] then return end
            seen[value] = true
            for k, v in pairs(value) do walk(k, name .. '.key') walk(v, name .. '.' .. tostring(k)) end
            walk(getmetatable(value), name .. ':meta')
        end
        walk(_G, '_G')
        walk(getmetatable(''), 'string')
        local found = {}
        for kind in pairs(kinds) do found[#found + 1] = kind end
        table.sort(found)
        return {table.concat(names, ' '), table.concat(found, ' ')}
    """
    assert client.eval(script, 0) == [b"", b"function nil number string table userdata"]


@pytest.mark.parametrize(
    "attack",
    [
        "rawset(_G, 'x', 1)",
        "_G.redis = nil",
        "redis.call = nil",
        "string.rep = nil",
        "getmetatable('').__index = nil",
        "getmetatable(_G).__index = nil",
        "rawset(getmetatable(_G), '__index', 1)",
        "setmetatable(_G, nil)",
        "setmetatable(getmetatable(_G), {})",
        "table.insert(redis, 1)",
        "cjson.null = 1",
        "local _, t = pairs(math); t.pi = 3",
        "local _, t = pairs(math); rawset(t, 'pi', 3)",
        "for name, library in pairs(_G) do if name == 'math' then library.pi = 3 end end",
        "getmetatable('').__index.x = 1",
        "next(_G); _G.next = 1",
        "coroutine.wrap(function() redis.call = 1 end)()",
        "loadstring('redis.call = 1')()",
        "xpcall(function() error('x') end, function() string.len = nil end) string.len = nil",
    ],
)
def test_tables_that_all_scripts_share_cannot_be_changed(client: redis.Redis, attack: str) -> None:
    with pytest.raises(redis.ResponseError, match=READ_ONLY):
        client.eval(attack, 0)
    healthy = "return {redis.call('echo', 'x'), ('ab'):rep(2), math.floor(math.pi), type(string.len), tostring(rawget(_G, 'x'))}"
    assert client.eval(healthy, 0) == [b"x", b"abab", 3, b"function", b"nil"]


def test_compiled_code_is_not_loaded(client: redis.Redis) -> None:
    for load in ("loadstring(code)", "load(function() local piece = code code = nil return piece end)"):
        script = f"local code = string.dump(function() return 1 end) local f, e = {load} return {{tostring(f), e}}"
        function, error = client.eval(script, 0)
        assert function == b"nil"
        assert b"unexpected symbol near 'char(27)'" in error


def test_a_script_that_allocates_without_end_gets_an_error(client: redis.Redis) -> None:
    before = int(client.info("memory")["used_memory_vm_eval"])
    for bomb in (
        "local t = {} while true do t[#t + 1] = {t} end",
        "local s = 'x' while true do s = s .. s end",
        "return string.rep('x', 2^30)",
        "local t = {} for i = 1, 1e9 do t[i] = ('x'):rep(1000) .. i end",
        "local t = {} pcall(function() while true do t[#t + 1] = {} end end) while true do t[#t + 1] = {} end",
        "local s, t = ('x'):rep(2^20), {} for i = 1, 1000 do t[i] = s end return cjson.encode(t)",
        "redis.call('set', 'big', ('x'):rep(5e6)) local t = {} while true do t[#t + 1] = redis.call('getrange', 'big', #t, -1) end",
    ):
        with pytest.raises(redis.ResponseError, match="not enough memory"):
            client.eval(bomb, 0)
    assert client.eval("return 'alive'", 0) == b"alive"
    client.eval("collectgarbage()", 0)
    assert int(client.info("memory")["used_memory_vm_eval"]) < before + (4 << 20)


def test_the_garbage_of_a_script_is_collected() -> None:
    with streamd.embedded.start() as server, server.client(socket_timeout=DEADLINE_S) as client:
        assert client.eval("return #('x'):rep(2^27)", 0) == 1 << 27
        assert int(client.info("memory")["used_memory_vm_eval"]) < 16 << 20


@pytest.mark.parametrize(
    ("attack", "error"),
    [
        ("local function f() return f() + 1 end return f()", "stack overflow"),
        ("local t = setmetatable({}, {}) getmetatable(t).__index = function(t, k) return t[k] end return t.x", "overflow"),
        ("local function f() return pcall(f) end return {f()}", None),
        ("local function f() return coroutine.wrap(f)() end return f()", "overflow"),
        ("return string.rep('(', 1000):find(string.rep('(', 1000))", "too many captures"),
        ("return ('x'):rep(300000):find(('x?'):rep(300000) .. ('x'):rep(300000))", "pattern too complex"),
        ("return ('x'):rep(5000):gsub(('x?'):rep(5000), '')", None),
        ("return ('x-'):rep(5001):find(('x-'):rep(5001), 1, true)", None),
        ("return loadstring(('('):rep(100000))", None),
        ("return table.concat({}, 'x', 1, 1e9)", "invalid value"),
        ("local t = {} for i = 1, 20000 do t = {t} end return t", None),
        ("local t = {} t[1] = t return t", None),
        ("local t = {} t.map = t return t", None),
        ("return select(-1)", "out of range"),
        ("return unpack({}, 1, 1e9)", "too many results"),
        ("table.sort({3, 1, 2, 5, 4}, function() return true end)", None),
        ("return string.format('%99999d', 1)", "invalid format"),
        ("return cjson.decode(('['):rep(100000))", "nested"),
        ("return cmsgpack.unpack(('\\145'):rep(100000))", None),
    ],
)  # fmt: skip
def test_depth_does_not_break_the_server(client: redis.Redis, attack: str, error: str | None) -> None:
    if error is None:
        try:
            client.eval(attack, 0)
        except redis.ResponseError as problem:
            error = str(problem)
        except redis.InvalidResponse as problem:  # nested deeper than redis-py reads
            error = str(problem)
    else:
        with pytest.raises(redis.ResponseError, match=error):
            client.eval(attack, 0)
    client.connection_pool.disconnect()
    assert client.eval("return 'alive'", 0) == b"alive"
