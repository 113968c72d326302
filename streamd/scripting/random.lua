--[[ `math.random` and `math.randomseed` as scripts of Redis find them: the same sequence on every machine, and one for all
scripts and functions of a server.

Wants `host.arguments`; `host.draw`, a function that returns the next 31 bits of the sequence as a number; and `host.seed`,
which begins it anew with an integer of 32 bits. Behaviour: Redis 8.6, as seen on a running server.
]]

local host = ...
local bad_argument, fail, to_number = host.arguments.bad_argument, host.arguments.fail, host.arguments.number
local to_int32 = host.arguments.to_int32
local draw, seed = host.draw, host.seed

local floor, select = math.floor, select

local RANGE = 2 ^ 31 - 1

local library = {}

function library.random(...)
    local count = select("#", ...)
    local drawn = draw() % RANGE / RANGE
    if count == 0 then
        return drawn
    elseif count > 2 then
        fail(library.random, "wrong number of arguments")
    end
    local first, last = 1, to_int32(to_number(library.random, 1, ...))
    if count == 2 then
        first, last = last, to_int32(to_number(library.random, 2, ...))
    end
    if first > last then
        bad_argument(library.random, count, "interval is empty")
    end
    return floor(drawn * to_int32(last - first + 1)) + first
end

function library.randomseed(...)
    seed(to_int32(to_number(library.randomseed, 1, ...)))
end

return library
