--[[ The bits of doubles and floats, which Lua 5.1 cannot see, from their values.

A double is taken apart into two words of 32 bits, a float is one word. The payload of a NaN is not visible to Lua: a NaN
is written as the quiet one with its sign, and read as that.

`ieee.lua` needs nothing of the host, and is loaded before the libraries: they find it as `host.ieee`.
]]

local abs, floor, frexp, huge, ldexp, match, tostring =
    math.abs, math.floor, math.frexp, math.huge, math.ldexp, string.match, tostring

local TWO_20, TWO_23, TWO_24, TWO_31, TWO_32, TWO_52 = 2 ^ 20, 2 ^ 23, 2 ^ 24, 2 ^ 31, 2 ^ 32, 2 ^ 52
local FLOAT_INFINITY = 255 * TWO_23

-- Processors differ in the sign of the NaN that they make.
local NAN = 0 / 0
if match(tostring(NAN), "^%-") then
    NAN = -NAN
end

local function is_negative(value)
    if value ~= value then
        return match(tostring(value), "^%-") ~= nil
    end
    return value < 0 or (value == 0 and 1 / value < 0)
end

-- The upper and the lower word of a double.
local function double_words(value)
    local sign = is_negative(value) and TWO_31 or 0
    if value ~= value then
        return sign + 0x7FF80000, 0
    end
    value = abs(value)
    if value == 0 then
        return sign, 0
    elseif value == huge then
        return sign + 0x7FF00000, 0
    end
    local fraction, exponent = frexp(value)
    exponent = exponent + 1022
    local mantissa
    if exponent > 0 then
        mantissa = (fraction * 2 - 1) * TWO_52
    else
        mantissa, exponent = ldexp(fraction, exponent + 52), 0
    end
    local upper = floor(mantissa / TWO_32)
    return sign + exponent * TWO_20 + upper, mantissa - upper * TWO_32
end

-- The word of the float nearest to `value`, and whether it is equal to it.
local function float_word(value)
    local sign = is_negative(value) and TWO_31 or 0
    if value ~= value then
        return sign + 0x7FC00000, false
    end
    value = abs(value)
    if value == 0 then
        return sign, true
    elseif value == huge then
        return sign + FLOAT_INFINITY, true
    end
    local fraction, exponent = frexp(value)
    exponent = exponent + 126
    if exponent >= 255 then
        return sign + FLOAT_INFINITY, false
    end
    local exact = exponent > 0 and fraction * TWO_24 or ldexp(fraction, exponent + 23)
    local rounded = exact + TWO_52 - TWO_52 -- to the nearest integer, of two equally near ones to the even one
    -- A mantissa that is rounded up to the next power of two carries over into the exponent, up to infinity.
    local word = exponent > 0 and (exponent - 1) * TWO_23 + rounded or rounded
    return sign + word, rounded == exact and word < FLOAT_INFINITY
end

-- The number of a format whose greatest exponent is `most`, whose mantissa is below `one`, and whose smallest number is 2 ^ `least`.
local function assemble(is_positive, exponent, mantissa, most, one, least)
    local value
    if exponent == most then
        value = mantissa == 0 and huge or NAN
    elseif exponent == 0 then
        value = ldexp(mantissa, least)
    else
        value = ldexp(mantissa + one, exponent - 1 + least)
    end
    return is_positive and value or -value
end

local function from_double_words(upper, lower)
    local bits = upper % TWO_31
    return assemble(upper < TWO_31, floor(bits / TWO_20), bits % TWO_20 * TWO_32 + lower, 2047, TWO_52, -1074)
end

local function from_float_word(word)
    local bits = word % TWO_31
    return assemble(word < TWO_31, floor(bits / TWO_23), bits % TWO_23, 255, TWO_23, -149)
end

return {
    double_words = double_words,
    float_word = float_word,
    from_double_words = from_double_words,
    from_float_word = from_float_word,
}
