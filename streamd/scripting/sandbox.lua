--[[ The globals of a script. Run once for each interpreter, with Lua's own globals, which no script ever sees.

`host` has the functions of sandbox.pyx, `chunk` to load the other files of this folder, and `redis`; in a world of
functions also `loading`, which stands in for `redis` while a library is loaded. What stands for the table of globals
becomes the globals of all later code. Returned are the table itself, for KEYS and ARGV, and the one that it stands for
while a library is loaded.
]]

local host = ...

-- The fields of a library that scripts have.
local function only(library, names)
    local found = {}
    for name in names:gmatch("[%a%d]+") do
        found[name] = assert(library[name], name)
    end
    return found
end

-- Run another file of this folder, with Lua's own globals.
local own, setfenv = getfenv(), setfenv
local function run(name)
    return setfenv(host.chunk(name), own)(host)
end

-- A library in Lua: a table with `fields`, and with functions that are loaded when the first of them is called, since few scripts
-- need any. They are called through C: a function in Lua that is called last in another takes its place, and the line of the
-- script would be lost.
local function library(name, functions, fields)
    local found, loaded = fields or {}, nil
    local function load()
        if loaded then
            return loaded
        end
        host.arguments = host.arguments or run("arguments")
        host.ieee = host.ieee or run("ieee")
        local made = run(name)
        for key, value in pairs(made) do
            if type(value) == "function" then
                host.closures[value] = assert(found[key], key)
            end
        end
        loaded = made
        return loaded
    end
    for key in functions:gmatch("[%a_]+") do
        found[key] = host.deferred(load, key)
    end
    return found
end

host.closures = {}

local globals = only(_G, [[
    assert error gcinfo ipairs rawequal select tonumber tostring type
]])
globals._VERSION = _VERSION
globals.getmetatable, globals.pcall, globals.load, globals.loadstring =
    host.getmetatable, host.pcall, host.load, host.loadstring
globals.next, globals.rawget = host.reading(next), host.reading(rawget)
globals.rawset, globals.setmetatable = host.changing(rawset), host.changing(setmetatable)
globals.unpack, globals.collectgarbage = host.unpacking(unpack), host.collecting(collectgarbage)
globals.pairs = host.make_pairs(globals.next)
globals.xpcall = host.guard_handlers(xpcall)
if not host.loading then
    globals.__redis__err__handler = function(problem)
        return type(problem) == "table" and problem or { err = "ERR " .. tostring(problem) }
    end
end

local libraries = {
    coroutine = only(coroutine, "create running status yield"),
    math = only(math, [[
        abs acos asin atan atan2 ceil cos cosh deg exp floor fmod frexp huge ldexp log log10 max min mod modf pi pow rad
        sin sinh sqrt tan tanh
    ]]),
    os = only(os, "clock"),
    redis = host.redis,
    string = only(string, "byte char dump format len lower reverse sub upper"),
    table = only(table, "concat getn remove setn sort"),
}
libraries.coroutine.resume, libraries.coroutine.wrap = host.guard_coroutines(coroutine.resume, coroutine.wrap)
for _, name in ipairs({ "foreach", "foreachi", "maxn" }) do
    libraries.table[name] = host.reading(table[name])
end
libraries.string.find, libraries.string.rep = host.finding(string.find), host.repeating(string.rep)
for _, name in ipairs({ "gfind", "gmatch", "gsub", "match" }) do
    libraries.string[name] = host.matching(string[name])
end
libraries.table.insert = host.inserting(table.insert)
library("random", "random randomseed", libraries.math)
libraries.bit = library("bit", "arshift band bnot bor bswap bxor lshift rol ror rshift tobit tohex")
host.about_cjson = function()
    return { _NAME = "cjson", _VERSION = "2.1.0", null = host.null }
end
libraries.cjson = library("cjson", [[
    decode decode_array_with_array_mt decode_invalid_numbers decode_max_depth encode encode_invalid_numbers encode_keep_buffer
    encode_max_depth encode_number_precision encode_sparse_array new
]], host.about_cjson())
libraries.cmsgpack = library("cmsgpack", "pack unpack unpack_limit unpack_one", {
    _NAME = "cmsgpack",
    _VERSION = "lua-cmsgpack 0.4.0",
    _COPYRIGHT = "Copyright (C) 2012, Salvatore Sanfilippo",
    _DESCRIPTION = "MessagePack C implementation for Lua",
})
libraries.struct = library("struct", "pack size unpack")
for name, library in pairs(libraries) do
    globals[name] = host.protect(library)
end

local of_strings = getmetatable("")
of_strings.__metatable = host.protect({ __index = globals.string })
of_strings.__index = libraries.string

local missing = { __index = host.find_global }
setmetatable(globals, missing)
globals._G = host.protect(globals, host.protect(missing))
host.use_globals(globals._G)

local loading = host.loading and setmetatable({ redis = host.protect(setmetatable(host.loading, missing)) }, missing)
return globals, loading
