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

-- A library in Lua. Its functions are called through C: a function in Lua that is called last in another takes its place, and
-- the line of the script would be lost.
local function load_library(name)
    local found = {}
    for key, value in pairs(host.chunk(name)(host)) do
        if type(value) == "function" then
            host.closures[value] = host.closure(value)
        end
        found[key] = host.closures[value] or value
    end
    return found
end

host.closures = {}
host.arguments = host.chunk("arguments")(host)
host.ieee = host.chunk("ieee")(host)

local globals = only(_G, [[
    assert collectgarbage error gcinfo ipairs rawequal select tonumber tostring type unpack xpcall
]])
globals._VERSION = _VERSION
globals.getmetatable, globals.pcall, globals.load, globals.loadstring =
    host.getmetatable, host.pcall, host.load, host.loadstring
globals.next, globals.rawget = host.reading(next), host.reading(rawget)
globals.rawset, globals.setmetatable = host.changing(rawset), host.changing(setmetatable)
globals.pairs = host.make_pairs(globals.next)
if not host.loading then
    globals.__redis__err__handler = function(problem)
        return type(problem) == "table" and problem or { err = "ERR " .. tostring(problem) }
    end
end

local libraries = {
    coroutine = only(coroutine, "create resume running status wrap yield"),
    math = only(math, [[
        abs acos asin atan atan2 ceil cos cosh deg exp floor fmod frexp huge ldexp log log10 max min mod modf pi pow rad
        sin sinh sqrt tan tanh
    ]]),
    os = only(os, "clock"),
    redis = host.redis,
    string = only(string, "byte char dump format len lower rep reverse sub upper"),
    table = only(table, "concat getn remove setn sort"),
}
for _, name in ipairs({ "foreach", "foreachi", "maxn" }) do
    libraries.table[name] = host.reading(table[name])
end
for _, name in ipairs({ "find", "gfind", "gmatch", "gsub", "match" }) do
    libraries.string[name] = host.matching(string[name])
end
libraries.table.insert = host.changing(table.insert)
for name, value in pairs(load_library("random")) do
    libraries.math[name] = value
end
for _, name in ipairs({ "bit", "cjson", "cmsgpack", "struct" }) do
    libraries[name] = load_library(name)
end
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
