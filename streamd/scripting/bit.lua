--[[ `bit`: operations on the bits of 32-bit integers, as scripts of Redis find them.

Numbers are rounded to integers and cut to 32 bits; results are signed. Inside, a word is a number from 0 to 2^32 - 1.
Wants `host.arguments`. Behaviour: Redis 8.6, as seen on a running server.
]]

local host = ...
local to_number = host.arguments.number

local abs, floor, format, frexp, huge, select, sub, type, upper =
    math.abs, math.floor, string.format, math.frexp, math.huge, select, string.sub, type, string.upper

local TWO_31, TWO_32, TWO_51, TWO_53 = 2 ^ 31, 2 ^ 32, 2 ^ 51, 2 ^ 53

-- A number plus this has no bits for a fraction: the processor rounds it, and the lowest 32 bits are the result.
local ROUNDING = 2 ^ 52 + 2 ^ 51

-- ANDS[16 * x + y] is x AND y of numbers of four bits.
local ANDS = {}
for x = 0, 15 do
    for y = 0, 15 do
        local result = 0
        for power = 0, 3 do
            local bit = 2 ^ power
            if x % (2 * bit) >= bit and y % (2 * bit) >= bit then
                result = result + bit
            end
        end
        ANDS[16 * x + y] = result
    end
end

-- The lowest 32 bits of the mantissa that a number beyond 2^51 has after ROUNDING is added.
local function word_of_large(value)
    value = abs(value + ROUNDING)
    if value ~= value or value == huge then
        return 0
    end
    return frexp(value) * TWO_53 % TWO_32
end

local function word(of, index, ...)
    local value = select(index, ...)
    if type(value) ~= "number" then
        value = to_number(of, index, ...)
    end
    if value >= -TWO_51 and value < TWO_51 then
        return (value + ROUNDING) % TWO_32
    end
    return word_of_large(value)
end

local function signed(value)
    return value < TWO_31 and value or value - TWO_32
end

local function both(a, b)
    local result, scale = 0, 1
    while a > 0 and b > 0 do
        local x, y = a % 16, b % 16
        result = result + ANDS[16 * x + y] * scale
        a, b, scale = (a - x) / 16, (b - y) / 16, scale * 16
    end
    return result
end

local function rotated(value, count)
    local power = 2 ^ count
    return value * power % TWO_32 + floor(value * power / TWO_32)
end

local bit = {}

function bit.tobit(...)
    return signed(word(bit.tobit, 1, ...))
end

function bit.bnot(...)
    return signed(TWO_32 - 1 - word(bit.bnot, 1, ...))
end

-- Redis looks at the first argument, then from the last one down: that decides which wrong one is named.
function bit.band(...)
    local result = word(bit.band, 1, ...)
    for index = select("#", ...), 2, -1 do
        result = both(result, word(bit.band, index, ...))
    end
    return signed(result)
end

function bit.bor(...)
    local result = word(bit.bor, 1, ...)
    for index = select("#", ...), 2, -1 do
        local other = word(bit.bor, index, ...)
        result = result + other - both(result, other)
    end
    return signed(result)
end

function bit.bxor(...)
    local result = word(bit.bxor, 1, ...)
    for index = select("#", ...), 2, -1 do
        local other = word(bit.bxor, index, ...)
        result = result + other - 2 * both(result, other)
    end
    return signed(result)
end

function bit.lshift(...)
    local value = word(bit.lshift, 1, ...)
    return signed(value * 2 ^ (word(bit.lshift, 2, ...) % 32) % TWO_32)
end

function bit.rshift(...)
    local value = word(bit.rshift, 1, ...)
    return signed(floor(value / 2 ^ (word(bit.rshift, 2, ...) % 32)))
end

function bit.arshift(...)
    local value = signed(word(bit.arshift, 1, ...))
    return floor(value / 2 ^ (word(bit.arshift, 2, ...) % 32))
end

function bit.rol(...)
    local value = word(bit.rol, 1, ...)
    return signed(rotated(value, word(bit.rol, 2, ...) % 32))
end

function bit.ror(...)
    local value = word(bit.ror, 1, ...)
    return signed(rotated(value, -word(bit.ror, 2, ...) % 32))
end

function bit.bswap(...)
    local value = word(bit.bswap, 1, ...)
    local lowest, second, third = value % 256, floor(value / 256) % 256, floor(value / 65536) % 256
    return signed(((lowest * 256 + second) * 256 + third) * 256 + floor(value / 16777216))
end

-- A count of digits below zero asks for capital letters.
function bit.tohex(...)
    local value, count = word(bit.tohex, 1, ...), 8
    if select("#", ...) > 1 then
        count = signed(word(bit.tohex, 2, ...))
    end
    local digits = format("%08x", value)
    if count < 0 then
        digits, count = upper(digits), -count
    end
    return count < 8 and sub(digits, 9 - count) or digits
end

return bit
