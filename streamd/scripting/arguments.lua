--[[ Checks of arguments, with the texts and positions of Lua's own C libraries.

A library of functions written in C reports a wrong argument with the name under which the function was called and the
line of its caller. Functions written in Lua find both with `debug`, which scripts never see. All checks take `of`, the
function that the script has called: it may stand any number of frames above the one that finds the fault.

Scripts may call a library through functions in C that stand for its own: `host.closures` has those, by the functions that they
call. `arguments.lua` is loaded before the libraries: they find it as `host.arguments`.
]]

local closures = (...).closures

local error, floor, getinfo, select, tonumber, tostring, type =
    error, math.floor, debug.getinfo, select, tonumber, tostring, type

local TWO_31, TWO_32, TWO_63 = 2 ^ 31, 2 ^ 32, 2 ^ 63

-- The level of `of` as seen by the function that calls this one, and what is known of its name.
local function level_of(of)
    local level = 3
    local info = getinfo(level, "fn")
    while info and info.func ~= of do
        level = level + 1
        info = getinfo(level, "fn")
    end
    if closures[of] then
        local above = getinfo(level + 1, "fn")
        if above and above.func == closures[of] then
            level, info = level + 1, above
        end
    end
    return level - 1, info
end

-- Raise `message` at the line that called `of`.
local function fail(of, message)
    local level = level_of(of)
    return error(message, level + 1)
end

-- Raise the error of Lua's C libraries for argument `index` of `of`.
local function bad_argument(of, index, text)
    local level, info = level_of(of)
    local name = info and info.name or "?"
    if info and info.namewhat == "method" then
        index = index - 1
        if index == 0 then
            return error("calling '" .. name .. "' on bad self (" .. text .. ")", level + 1)
        end
    end
    return error("bad argument #" .. index .. " to '" .. name .. "' (" .. text .. ")", level + 1)
end

-- The same for an argument of the wrong type; `...` are all arguments of `of`: one that is not there is no nil.
local function wrong_type(of, index, wanted, ...)
    local got = index > select("#", ...) and "no value" or type((select(index, ...)))
    return bad_argument(of, index, wanted .. " expected, got " .. got)
end

-- Argument `index` as a number.
local function number(of, index, ...)
    local value = select(index, ...)
    if type(value) == "number" then
        return value
    end
    return type(value) == "string" and tonumber(value) or wrong_type(of, index, "number", ...)
end

-- Argument `index` as a string; a number is one, too.
local function text(of, index, ...)
    local value = select(index, ...)
    if type(value) == "string" then
        return value
    end
    return type(value) == "number" and tostring(value) or wrong_type(of, index, "string", ...)
end

-- A number as C converts it to a 64-bit integer: cut, and the smallest one for all that has no place in it. Beyond 2^53
-- the result is as exact as a double can be.
local function to_int64(value)
    if value >= -TWO_63 and value < TWO_63 then
        return value < 0 and -floor(-value) or floor(value)
    end
    return -TWO_63
end

-- A number as C converts it to an `int` by way of a 64-bit integer: its lowest 32 bits, signed.
local function to_int32(value)
    value = to_int64(value) % TWO_32
    return value < TWO_31 and value or value - TWO_32
end

return {
    bad_argument = bad_argument,
    fail = fail,
    number = number,
    text = text,
    to_int32 = to_int32,
    to_int64 = to_int64,
    wrong_type = wrong_type,
}
