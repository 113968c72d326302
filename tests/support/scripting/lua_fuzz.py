"""Random scripts of odd shapes, for what no script may do: end the server, or keep it from answering.

`Scripts(seed)` draws scripts of a few statements, each called under pcall, that share a few variables: functions at the limits
of the compiler (parameters, upvalues, constants, nesting), deep recursion, coroutines, metatables, garbage collection at odd
moments, every function of the sandbox with odd arguments, damaged JSON and MessagePack, values that cannot be replies. All
loops end. The same seed gives the same scripts.

    python -m tests.support.scripting.lua_fuzz --seed 1 --seconds 1800        runs them in an embedded server in this process

Before a script is run its number is printed, if it takes long, its text. To find memory errors, run this under valgrind, or under
AddressSanitizer as `tests/asan/run` shows.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path

import redis

import streamd.embedded

__all__ = ["Scripts", "run"]

FUNCTIONS = {
    "": "assert error getmetatable ipairs load loadstring next pairs pcall rawequal rawget rawset select setmetatable tonumber"
        " tostring type unpack xpcall collectgarbage gcinfo",
    "string": "byte char dump find format gmatch gsub len lower match rep reverse sub upper",
    "table": "concat foreach foreachi getn insert maxn remove setn sort",
    "math": "abs ceil cosh exp floor fmod frexp huge ldexp log max min modf pow random randomseed sqrt",
    "coroutine": "create resume running status wrap yield",
    "bit": "tobit bnot band bor bxor lshift rshift arshift rol ror bswap tohex",
    "cjson": "encode decode encode_sparse_array encode_max_depth decode_max_depth encode_number_precision encode_invalid_numbers"
             " decode_invalid_numbers decode_array_with_array_mt encode_keep_buffer",
    "cmsgpack": "pack unpack unpack_one unpack_limit",
    "struct": "pack unpack size",
    "redis": "error_reply status_reply sha1hex setresp set_repl acl_check_cmd call pcall",
}  # fmt: skip
NAMES = [f"{library}.{name}".lstrip(".") for library, names in FUNCTIONS.items() for name in names.split()]

VALUES_TEXT = r"""
nil true false 0 1 -1 2 3 7 -0 0.5 1e15 1e300 -1e300 0/0 1/0 -1/0 2^31 -2^31 2^31-1 2^32 2^32+1 2^53 -2^53 2^63
-2^63 2^64 255 256 '' 'x' '%' '%b' '%f' '[' '[^' '(' '()' '%1' '.-' '%w+' '^' '$' '1' '0x10' '-1' '1e999' 'nan'
'collect' 'step' 'count' 'setpause' 'a\0b' '\0' '%99.99f' '%5000d' '%s%s' '%q' '%c' '%i' '%d\32%s' '>I2' '!8d' 'c0'
'i33' 'z' 's' 'Bc0' 'set' 'get' 'xadd' 'echo' {} {1,2,3} {1,nil,3} {x=1} {[0]=1} {[2^31]=1} {[-1]=2,[2^53]=3} {{}}
{err='E\32x'} {ok='o'} {double=1.5} {map={a=1}} {set={a=true}} {big_number='1'}
{verbatim_string={format='txt',string='s'}} print_ _G redis string.rep error pcall cjson.null function()end
function(...)return(...)end function(a,b)return(a)end function(a,b)return(true)end s s..s n t f co
string.rep('x',n%5000) ('abc'):rep(n%300) t[1] #t ARGV KEYS setmetatable({},t) coroutine.create(f) coroutine.wrap(f)
string.dump(function()end) '[[[[[' '{"a":[1,{}]}' '\147\1\2' '\223\255\255\255\255' '\222\0\1\192\1'
"""
VALUES = VALUES_TEXT.split()
EVENTS_TEXT = (
    "__index __newindex __add __mul __mod __pow __unm __concat __eq __lt __le __call __tostring __metatable __mode"
)
EVENTS = EVENTS_TEXT.split()
DEADLINE_S = 600.0
COUNTS = (0, 0, 1, 2, 5, 19, 20, 44, 45, 60, 100, 150, 190, 198, 199)
PIECES = ("a", "x", ".", "%w", "%s", "%d", "[ab]", "[^x]", "%b()", "()", "(a)", "(.)", "%1", "%f[%w]", "$", "^", "%%")


class Scripts:
    """An endless row of scripts. One in ten may write; the others can be killed at any time."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.depth = 0
        self.kinds: list[Callable[[], str]] = [
            self.call, self.call, self.call, self.function, self.function, self.upvalues, self.constants, self.nesting, self.recursion,
            self.coroutines, self.metatable, self.garbage, self.table, self.pattern, self.bytecode, self.source, self.damaged,
            self.callbacks, self.strings, self.throw, self.many_values, self.commands, self.nested,
        ]  # fmt: skip

    def script(self) -> str:
        """The next one."""
        head, kinds = "#!lua flags=no-writes\n", [self.statement]
        if self.chance.random() < 0.1:
            head, kinds = "", [self.commands, self.call, self.damaged]
        lines = [f"pcall(function() {self.chance.choice(kinds)()} end)" for _ in range(self.chance.randint(1, 6))]
        first = "local s, n, t, f, co, print_ = 'abc', 3, {1, 2, 'x'}, function(...) return ... end, nil, nil"
        return head + "\n".join([first, *lines, f"return {self.value()}"])

    def statement(self) -> str:
        self.depth += 1
        text = self.chance.choice(self.kinds)() if self.depth < 6 else self.call()
        self.depth -= 1
        return text

    # --- Parts

    def count(self, most: int = 199) -> int:
        return min(most, self.chance.choice([*COUNTS, self.chance.randint(0, most)]))

    def number(self) -> str:
        return self.chance.choice([v for v in VALUES if v[:1] in "0123456789-"] + [str(self.chance.randint(-5, 300))])

    def value(self) -> str:
        return self.chance.choice(VALUES)

    def values(self, most: int = 4) -> str:
        if self.chance.random() < 0.03:
            return f"unpack(t, {self.number()}, {self.number()})"
        return ", ".join(self.value() for _ in range(self.chance.randint(0, most)))

    def target(self) -> str:
        return self.chance.choice(["s", "n", "t", "f", "co", "local _", "t[n]", "t.x"])

    def parameters(self, n: int, prefix: str = "p") -> str:
        names = [f"{prefix}{i}" for i in range(n)]
        return ", ".join(names + ["..."] * (self.chance.random() < 0.7))

    # --- Kinds of statements

    def call(self) -> str:
        return f"{self.target()} = {self.chance.choice(NAMES)}({self.values()})"

    def function(self) -> str:
        """A function with many parameters, called in different ways with few arguments."""
        n = self.count()
        parameters = self.parameters(n)
        locals_ = "".join(f" local l{i} = {i}" for i in range(self.count(199 - n) if self.chance.random() < 0.4 else 0))
        rest = self.chance.choice(
            ["return select('#', ...)", "return ...", "return {...}", "local a, b = ... return b"]
        )
        body = f"{locals_} {rest if '...' in parameters else 'return 1'}"
        deep = self.chance.choice([1, 10, 40, 190, 3000])
        uses = [
            f"g({self.values()})",
            f"local function d(i) if i > 0 then return 1 + d(i - 1) end g() return 0 end d({deep})",
            f"local function d(i) if i > 0 then d(i - 1) end g() end d({deep})",
            f"coroutine.wrap(g)({self.values(2)})",
            f"for i = 1, {deep} do coroutine.wrap(function(...) g() coroutine.yield(g(...)) end)() end",
            "pcall(g) xpcall(g, g) pcall(pcall, g) table.sort({3, 1, 2, 5, 4}, g) string.gsub('abc', '.', g)",
            "local m = setmetatable({}, {__index = g, __newindex = g, __add = g, __call = g, __concat = g, __lt = g, __eq = g, "
            "__len = g, __unm = g, __tostring = g}) m.x = m.y m() local _ = m + 1, -m, m .. 1, tostring(m), m < m",
            "table.foreach(t, g) string.gsub('a', 'a', g) for _ in g do break end",
            "local d d = function(...) g() return pcall(d, ...) end d()",
            f"g(unpack({{}}, 1, {self.chance.choice([0, 1, n, 250, 7000, 7990])}))",
        ]
        return f"local function g({parameters}) {body} end f = g {self.chance.choice(uses)}"

    def upvalues(self) -> str:
        n = self.count(70)
        names = [f"u{i}" for i in range(n)]
        declared = "".join(f"local {name} = {i} " for i, name in enumerate(names))
        used = " + ".join(names) or "0"
        return (
            f"{declared} f = function({self.parameters(self.count(20))}) {' '.join(f'{name} = {name}' for name in names)} "
            f"return function() return {used} end end {self.target()} = f() collectgarbage('step')"
        )

    def constants(self) -> str:
        n = self.chance.choice([10, 255, 256, 257, 511, 512, 600, 3000])
        shape = self.chance.choice(["local _ = {%s}", "local _ = #{%s}", "return %s", "f(%s)"])
        kinds = ["'k{0}'", "{0}.5", "[{0}] = {0}"] if "{" in shape else ["'k{0}'", "{0}.5"]
        return shape % ", ".join(self.chance.choice(kinds).format(i) for i in range(n))

    def nesting(self) -> str:
        n = self.chance.choice([3, 20, 100, 150, 180, 199, 200, 260])
        opened, inner, closed = self.chance.choice(
            [
                ("(", "1", ")"),
                ("{", "", "}"),
                ("(function(...) return ", "1", " end)()"),
                ("-", "1", ""),
                ("not ", "nil", ""),
            ]
        )
        if self.chance.random() < 0.3:
            return "do " * n + "local x = 1 " + "end " * n
        return f"{self.target()} = {opened * n}{inner}{closed * n}"

    def recursion(self) -> str:
        n = self.chance.choice([10, 190, 198, 250, 5000, 19000, 30000])
        step = self.chance.choice(
            [
                "return d(i - 1) + 1", "return d(i - 1)", "return pcall(d, i - 1)", "return coroutine.wrap(d)(i - 1)",
                "return (string.gsub('a', 'a', function() return d(i - 1) end))", "return xpcall(function() return d(i - 1) end, d)",
                "return tostring(setmetatable({}, {__tostring = function() return d(i - 1) end}))",
                "return setmetatable({}, {__index = function(_, k) return d(k) end})[i - 1]", "return select(1, d(i - 1))",
                "return loadstring('return (...)')(d(i - 1))", "return {d(i - 1)}",
            ]
        )  # fmt: skip
        return (
            f"local function d(i) if type(i) ~= 'number' or i < 1 then return 0 end {step} end {self.target()} = d({n})"
        )

    def coroutines(self) -> str:
        inner = self.statement()
        uses = [
            f"co = coroutine.create(function(...) {inner} coroutine.yield(...) {self.call()} return ... end) "
            f"coroutine.resume(co, {self.values() or 1}) coroutine.resume(co, unpack({{}}, 1, {self.chance.choice([0, 9, 300, 7900])}))",
            f"for i = 1, {self.chance.choice([3, 100, 1500])} do t[i] = coroutine.wrap(function(...) coroutine.yield(...) end) t[i](i) end",
            f"local w w = coroutine.wrap(function() {inner} w() end) w() w()",
            "co = coroutine.create(function() return coroutine.resume(co) end) coroutine.resume(co) coroutine.resume(co)",
            f"co = coroutine.wrap(function() pcall(coroutine.yield, 1) table.sort(t, coroutine.yield) {inner} end) co() co()",
            "co = coroutine.wrap(function() string.gsub('aaa', 'a', coroutine.yield) end) co() co()",
            f"co = coroutine.create(function() error({self.value()}) end) coroutine.resume(co) {self.target()} = coroutine.status(co)",
            f"co = coroutine.wrap(function() return unpack({{}}, 1, {self.chance.choice([10, 3000, 7998])}) end) t = {{co()}}",
        ]
        return self.chance.choice(uses)

    def metatable(self) -> str:
        chosen = self.chance.sample(EVENTS, self.chance.randint(1, len(EVENTS)))
        fields = ", ".join(f"{event} = {self.chance.choice(['f', 't', self.value()])}" for event in chosen)
        use = self.chance.choice(
            ["m.x = 1", "_ = m.x", "_ = m + n", "_ = m .. s", "_ = m < m", "m(1)", "_ = -m", "_ = m == t", "_ = tostring(m)", "error(m)",
             "_ = #m", "next(m)", "for k in pairs(m) do break end", "return unpack(m)", "table.sort({m, m, m})"]
        )  # fmt: skip
        return f"local _ local m = setmetatable({{}}, {{{fields}}}) t = m {use}"

    def garbage(self) -> str:
        return self.chance.choice(
            [
                "collectgarbage()", f"collectgarbage('step', {self.number()})", f"collectgarbage('setpause', {self.number()})",
                f"collectgarbage('setstepmul', {self.number()})", "collectgarbage('stop')", "collectgarbage('restart')",
                "t = setmetatable({}, {__mode = 'kv'}) for i = 1, 300 do t[{}] = {} t[i] = {} end collectgarbage()",
                f"for i = 1, 200 do t = {{t}} end t = nil collectgarbage() {self.statement()}",
                "local made = {} for i = 1, 500 do made[i] = ('k'):rep(i % 90) .. i end made = nil collectgarbage('step', 1)",
            ]
        )  # fmt: skip

    def table(self) -> str:
        place, other = self.number(), self.number()
        return self.chance.choice(
            [
                f"t[{place}] = {self.value()} t[{other}] = {self.value()} {self.target()} = #t",
                f"local x = {{}} for i = 1, {self.count()} do x[i] = i end for i = 1, 50 do x[i * 3] = nil end x[{place}] = 1 t = x",
                f"table.insert(t, {self.chance.choice(['1', '2', '9', place])}, {self.value()})",
                f"table.concat(t, s, {place}, {other})", f"table.remove(t, {place})", f"next(t, {self.value()})",
                "for k in pairs(t) do t[k] = nil t[{}] = k if #t > 50 then break end end",
                f"t = {{{', '.join(['n'] * self.chance.choice([49, 50, 51, 250, 600]))}, f(unpack(t))}}",
                "for i = 1, 12 do t = {t, t, i} end", "t[1] = t t.t = t",
            ]
        )  # fmt: skip

    def nested(self) -> str:
        """A value of many levels, or with no end, that may become the reply."""
        around = self.chance.choice(
            ["{t}", "{t, t}", "{map = {a = t}}", "{map = {[t] = 1}}", "{set = {[t] = true}}", "{err = t}", "{1, t, 2}"]
        )
        levels = self.chance.choice([10, 1500, 2700, 7990, 8010, 30000]) if around != "{t, t}" else 10
        use = self.chance.choice(
            [
                "return t",
                "s = cjson.encode(t)",
                "s = cmsgpack.pack(t)",
                "redis.pcall('echo', t)",
                "error(t)",
                "t[1] = t",
            ]
        )
        return f"redis.setresp({self.chance.choice([2, 3])}) for i = 1, {levels} do t = {around} end {use}"

    def pattern(self) -> str:
        parts, repeated = [], 0
        for _ in range(self.chance.randint(1, 7)):
            part = self.chance.choice(PIECES)
            if repeated < 3 and self.chance.random() < 0.4:
                part += self.chance.choice("*+-?")
                repeated += 1
            parts.append(part)
        text = "".join(parts)[: self.chance.choice([3, 50])]
        subject = self.chance.choice(["s", "('ab (x) '):rep(9)", "''", "'\\0a\\0'"])
        return self.chance.choice(
            [
                f"{self.target()} = string.find({subject}, '{text}', {self.number()})",
                f"{self.target()} = string.gsub({subject}, '{text}', {self.chance.choice(['%1', 'f', 't', '%0%0', '%2'])!r}, {self.number()})",
                f"{self.target()} = string.gsub({subject}, '{text}', f)",
                f"for a, b in string.gmatch({subject}, '{text}') do s = a break end",
                f"{self.target()} = string.match({subject}, '{text}')",
                f"string.match({subject}, ('x?'):rep({self.chance.choice([10, 4999, 300000])}) .. '{text}', 1, true)",
                f"string.gsub({subject}, ('(a)'):rep({self.chance.choice([31, 32, 33, 400])}), '', 1)",
            ]
        )  # fmt: skip

    def bytecode(self) -> str:
        change = self.chance.choice(
            ["", f":gsub('.', '\\{self.chance.randint(0, 255)}', {self.count()})", ":sub(1, n * 9)"]
        )
        return f"local code = string.dump(f){change} {self.target()} = loadstring(code) or load(function() local c = code code = nil return c end)"

    def source(self) -> str:
        """Code that is compiled by the script, under names that nobody else keeps."""
        inner = self.statement().replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
        name = self.chance.choice(
            ["", ", ('n'):rep(n % 70) .. n", ", '@' .. n", ", '=x'", ", 'a\\0' .. n", ", ('z'):rep(90) .. n"]
        )
        if self.chance.random() < 0.5:
            return (
                f'local g = loadstring("local s, n, t, f, co, print_ = ... {inner}"{name}) if g then g(s, n, t, f) end'
            )
        return (
            f'local code, at = "local s, n, t, f, co, print_ = ... {inner}", 0 '
            f"local g = load(function() at = at + {self.chance.choice([1, 3, 50])} if at % 7 == 0 then collectgarbage() end "
            f"local c = code:sub(at, at) if at > #code + 20 then return end return {self.chance.choice(['c', 'code:sub(at, at)', '#c > 0 and c or nil', 'n', 't'])} end"
            f"{name}) if g then g(s, n, t, f) end"
        )

    def damaged(self) -> str:
        raw = "".join(f"\\{self.chance.randint(0, 255):03d}" for _ in range(self.chance.randint(0, 30)))
        depth = self.chance.choice([1, 15, 17, 999, 1001, 9000])
        return self.chance.choice(
            [
                f"t = {{cmsgpack.unpack('{raw}')}}", f"t = {{cmsgpack.unpack_limit('{raw}', {self.number()}, {self.number()})}}",
                f"t = cjson.decode(('['):rep({depth}) .. '{self.chance.choice(['1', '', '{}', 'x'])}' .. (']'):rep({depth}))",
                f"t = cmsgpack.unpack(('\\145'):rep({depth}))", f"for i = 1, {min(depth, 2000)} do t = {{t}} end s = cjson.encode(t)",
                f"s = cmsgpack.pack(t) s = s:sub(1, n) .. '{raw}' t = cmsgpack.unpack(s)",
                f"t = {{struct.unpack('{self.chance.choice(['>Hs', 'Bc0', 'd', 'i16', '!4bl', 'sss'])}', '{raw}', {self.number()})}}",
                f"s = struct.pack('{self.chance.choice(['>Hs', 'Bc0', 'd', 'i16', 'I32', '!16bl', 'c999'])}', {self.values(4) or 1})",
                f"s = cjson.encode({{{self.value()}, {self.value()}}}) t = cjson.decode(s:sub(1, {self.count()}))",
                f"t = cjson.decode('\"{raw}\"')",
            ]
        )  # fmt: skip

    def callbacks(self) -> str:
        inner = self.statement()
        return self.chance.choice(
            [
                f"table.sort({{5, 3, 1, 4, 2, 9, 8}}, function(a, b) {inner} return {self.chance.choice(['true', 'a < b', 'nil', 'n', 'not a'])} end)",
                f"string.gsub('abcabc', '.', function(c) {inner} return {self.value()} end)",
                f"xpcall(function() error({self.value()}) end, function(e) {inner} return {self.value()} end)",
                f"table.foreach(t, function(k, v) {inner} t[k] = nil end)",
                f"f = function(...) {inner} return ... end",
            ]
        )  # fmt: skip

    def strings(self) -> str:
        n = self.chance.choice([10, 1000, 100000])
        return self.chance.choice(
            [
                f"s = ('x'):rep({n}) for i = 1, 30 do s = s .. i end", f"s = string.rep(s, {self.number()})",
                f"local k = ('y'):rep({min(n, 5000)}) for i = 1, 50 do t[k .. i .. k] = i end", f"s = s:rep({self.count()}):upper():reverse()",
                f"s = string.format('%{self.chance.choice(['s', '.3s', 'q', '99s', '-5s', '.99s', '5.1s'])}', s)",
                f"t = {{string.byte(('z'):rep({n}), {self.number()}, {self.number()})}}", f"s = string.char(unpack({{65}}, 1, {self.number()}))",
                f"s = table.concat({{s, n, s}}, ('-'):rep({min(n, 1000)}))", "s = " + " .. ".join(["'a'"] * self.count(190) + ["s"]),
            ]
        )  # fmt: skip

    def throw(self) -> str:
        return self.chance.choice(
            [f"error({self.value()}, {self.number()})", "error(setmetatable({}, {__index = f, __newindex = f, __tostring = f}))",
             f"assert({self.values()})", "error(error)", f"return redis.error_reply({self.value()})", "error(t)"]
        )  # fmt: skip

    def many_values(self) -> str:
        n = self.chance.choice([1, 40, 250, 7000, 7980, 7999, 8001])
        return self.chance.choice(
            [f"t = {{unpack({{}}, 1, {n})}}", f"f(unpack({{}}, 1, {n}))", f"redis.pcall('echo', unpack({{}}, 1, {n}))",
             f"select('#', unpack({{}}, 1, {n}))", f"coroutine.wrap(f)(unpack({{}}, 1, {n}))", f"pcall(f, unpack({{}}, 1, {n}))",
             f"string.gsub('a', 'a', f, unpack({{}}, 1, {n}))", f"math.max(1, unpack({{1}}, 1, {n}))", f"t = {{unpack({{1, 2}}, {self.number()}, {self.number()})}}"]
        )  # fmt: skip

    def commands(self) -> str:
        return self.chance.choice(
            [f"redis.pcall('set', 'k', {self.value()})", "redis.pcall('xadd', 's', '*', 'f', s)", "t = redis.pcall('xrange', 's', '-', '+')",
             "redis.setresp(3) t = redis.pcall('xinfo', 'stream', 's', 'full')", "redis.call('del', 's', 'k')", f"redis.pcall({self.values()})",
             "t = redis.pcall('command', 'info', 'get')", "redis.call('nope')", "t = redis.pcall('get', 'k')"]
        )  # fmt: skip


def run(seed: int, seconds: float, most: int, settings: dict[str, str | int], *, shows: bool = True) -> Counter[str]:
    """Run scripts in an embedded server, and kill what has become slow; returns how often they ended how."""
    scripts = Scripts(seed)
    ends: Counter[str] = Counter()
    deadline = time.monotonic() + seconds
    with (
        streamd.embedded.start(**settings) as server,
        server.client(socket_timeout=DEADLINE_S, protocol=3) as client,
        server.client(socket_timeout=DEADLINE_S) as killer,
        ThreadPoolExecutor(1) as pool,
    ):
        while time.monotonic() < deadline and sum(ends.values()) < most:
            number = sum(ends.values())
            script = scripts.script()
            if shows:
                Path(f"lua_fuzz.{seed}.lua").write_text(f"-- {number}\n{script}", encoding="utf-8")
            running = pool.submit(end_of, client, script)
            started = time.monotonic()
            while not wait([running], timeout=10).done:
                with suppress(redis.ResponseError):
                    killer.execute_command("SCRIPT", "KILL")
            ends[running.result()] += 1
            took = time.monotonic() - started
            if shows and took > 30:
                print(f"seed {seed}, script {number} took {took:.1f} s:\n{script}", flush=True)
            if number % 500 == 499:
                client.script_flush()
                client.flushall()
                if shows:
                    print(seed, number + 1, dict(ends.most_common(4)), flush=True)
    return ends


def end_of(client: redis.Redis, script: str) -> str:
    """Run a script; returns how it ended."""
    try:
        client.eval(script, 0)
    except redis.ResponseError as error:
        return str(error).split(" script: ")[0].rpartition(":")[2].strip()[:30]
    except (redis.InvalidResponse, RecursionError, ValueError, TypeError):  # more than the client can read
        client.connection_pool.disconnect()
        return "an unreadable reply"
    return "a reply"


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--scripts", type=int, default=10**9)
    parser.add_argument("--memory", default="64mb", help="lua-memory-limit. Default: 64mb")
    options = parser.parse_args(argv)
    ends = run(
        options.seed,
        options.seconds,
        options.scripts,
        {"lua_memory_limit": options.memory, "busy_reply_threshold": 5000},
    )
    print(f"seed {options.seed}: {sum(ends.values())} scripts")
    for end, count in ends.most_common():
        print(f"{count:8} {end}")


if __name__ == "__main__":
    main(sys.argv[1:])
