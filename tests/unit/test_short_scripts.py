"""Which scripts are known to end soon, from what Lua has compiled."""

from __future__ import annotations

import pytest

from streamd.scripting.short_scripts import is_short

lupa = pytest.importorskip("lupa.lua51")

SHORT = [
    "return 1",
    "return redis.call('INCRBY', KEYS[1], ARGV[1])",
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end",
    "local n = tonumber(ARGV[1]) if n > 3 and n < 7 or #KEYS == 0 then n = n * 2 end return {n, tostring(n), type(n), true, nil}",
    "return {ok = 'x' .. ARGV[1]:rep(3)}",
    "local x = 1 " + "x = x + 1 " * 90,
]
LONG = [
    "while true do end",
    "repeat local x = 1 until false",
    "for i = 1, ARGV[1] do end",
    "for key in pairs(KEYS) do end",
    "local function f() return f() end return f()",
    "return loadstring(ARGV[1])()",
    "return load",
    "return pcall(ARGV[1])",
    "return coroutine.wrap(x)",
    "x = 1 return x",
    "return setmetatable({}, {})",
    "local x = 1 " + "x = x + 1 " * 100,
]


def dump(code: str) -> bytes:
    runtime = lupa.LuaRuntime(encoding=None)
    result: bytes = runtime.execute(b"return string.dump(loadstring(%b))" % quoted(code))
    return result


def quoted(code: str) -> bytes:
    return b"[==[" + code.encode() + b"]==]"


@pytest.mark.parametrize("code", SHORT)
def test_short_scripts(code: str) -> None:
    assert is_short(dump(code))


@pytest.mark.parametrize("code", LONG)
def test_scripts_that_may_take_any_time(code: str) -> None:
    assert not is_short(dump(code))


def test_what_is_cut_or_comes_from_elsewhere_is_not_short() -> None:
    whole = dump(SHORT[2])
    constants_end = whole.index(b"del\0") + 4
    assert not any(is_short(whole[:end]) for end in range(constants_end - 1))
    for at in range(12):
        assert not is_short(whole[:at] + bytes([whole[at] ^ 2]) + whole[at + 1 :])
