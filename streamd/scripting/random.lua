--[[ `math.random` and `math.randomseed` as scripts of Redis find them: the same sequence on every machine.

The generator is a 48-bit linear congruential one, drand48: X = (X * 0x5DEECE66D + 0xB) mod 2^48. Its state and its factor
are held in halves of 24 bits, whose products a double holds exactly.
Wants `host.arguments`. Behaviour: Redis 8.6, as seen on a running server.
]]

local host = ...
local bad_argument, fail, to_number = host.arguments.bad_argument, host.arguments.fail, host.arguments.number
local to_int32 = host.arguments.to_int32

local floor, select = math.floor, select

local TWO_16, TWO_17, TWO_24, TWO_31 = 2 ^ 16, 2 ^ 17, 2 ^ 24, 2 ^ 31
local FACTOR_HIGH, FACTOR_LOW, ADDEND = 0x5DE, 0xECE66D, 0xB
local SEED_LOW = 0x330E

local high, low = 0x1234AB, 0xCD330E

-- The upper 31 bits of the next state, as a number from 0 up to and without 1.
local function draw()
    local lower = low * FACTOR_LOW + ADDEND
    local carry = floor(lower / TWO_24)
    high, low = (high * FACTOR_LOW + low * FACTOR_HIGH + carry) % TWO_24, lower - carry * TWO_24
    local bits = high * 128 + floor(low / TWO_17)
    return bits % (TWO_31 - 1) / (TWO_31 - 1)
end

local library = {}

function library.random(...)
    local count = select("#", ...)
    local drawn = draw()
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
    local seed = to_int32(to_number(library.randomseed, 1, ...))
    local state = seed * TWO_16 + SEED_LOW
    high, low = floor(state / TWO_24) % TWO_24, state % TWO_24
end

return library
