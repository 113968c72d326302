"""The libraries of scripts that are written in Lua in an interpreter of their own, without a server: for comparison with Redis's.

`Libraries.run(body)` runs a script as EVAL does and returns the string that it returns. `showing(expression)` makes such a
script: it calls the functions under pcall and shows what they return, types and exact values included.
"""

from __future__ import annotations

from importlib.resources import files

import lupa.lua51 as lupa

__all__ = ["Libraries", "quoted", "showing"]

SHOW = r"""
local function show(v)
  local kind = type(v)
  if kind == 'string' then
    return '"' .. string.gsub(v, '[^\33-\126]', function(c) return '<' .. string.byte(c) .. '>' end) .. '"'
  elseif kind == 'number' then
    return (string.format('%.17g', v))
  elseif kind == 'table' then
    local parts = {}
    for key, member in pairs(v) do parts[#parts + 1] = show(key) .. '=' .. show(member) end
    return '{' .. table.concat(parts, ',') .. '}' .. (getmetatable(v) and '+' or '')
  elseif kind == 'function' then
    return kind
  elseif v == cjson.null then
    return 'null'
  end
  return tostring(v)
end
local function all(...)
  local parts = {}
  for index = 1, select('#', ...) do parts[index] = show((select(index, ...))) end
  return table.concat(parts, '; ')
end
"""

WORLD = b"""
local load, pcall, setfenv, draw, seed = ...
local host = {null = newproxy(), closures = {}, draw = draw, seed = seed}
host.arguments = load('arguments')(host)
host.ieee = load('ieee')(host)
local world = {}
for _, name in ipairs {'pcall', 'type', 'tostring', 'tonumber', 'pairs', 'select', 'unpack', 'setmetatable', 'getmetatable',
                       'string', 'table', 'error'} do
  world[name] = _G[name]
end
for _, name in ipairs {'cmsgpack', 'struct', 'bit'} do
  world[name] = load(name)(host)
end
world.cjson = {null = host.null}
world.math = setmetatable(load('random')(host), {__index = math})
return function(body)
  local script = assert(loadstring(body, '@user_script'))
  setfenv(script, world)
  return script()
end
"""


class Libraries:
    """One interpreter with the libraries loaded; their settings last as long as it does."""

    def __init__(self) -> None:
        lua = lupa.LuaRuntime(encoding=None, register_eval=False)
        folder = files("streamd").joinpath("scripting")

        def load(name: bytes) -> object:
            code = folder.joinpath(f"{name.decode()}.lua").read_bytes()
            return lua.eval(b"function(...) return assert(loadstring(...)) end")(code, b"@" + name)

        self._random = 0x1234ABCD330E
        self._run = lua.execute(WORLD, load, lua.globals().pcall, lua.globals().setfenv, self._draw, self._seed)

    def _draw(self) -> int:
        """The next 31 bits of drand48."""
        self._random = (self._random * 0x5DEECE66D + 0xB) % 2**48
        return self._random >> 17

    def _seed(self, seed: float) -> None:
        self._random = (int(seed) % 2**32 << 16) | 0x330E

    def run(self, body: bytes) -> bytes:
        result = self._run(body)
        assert isinstance(result, bytes)
        return result


def showing(expression: bytes, before: bytes = b"") -> bytes:
    """A script that shows the values of `expression`, or its error; `before` runs ahead of it, in the same function."""
    return SHOW.encode() + b"return all(pcall(function() " + before + b" return all(" + expression + b") end))"


def quoted(value: bytes) -> bytes:
    """`value` as a Lua literal."""
    return b'"' + b"".join(b"\\%03d" % code for code in value) + b'"'
