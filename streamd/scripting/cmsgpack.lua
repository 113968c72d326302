--[[ `cmsgpack`: MessagePack, as scripts of Redis find it.

Wants `host.arguments` and `host.ieee`. The members of maps are written in the order of Lua's tables. Behaviour: Redis 8.6, as
seen on a running server.
]]

local host = ...
local bad_argument, fail = host.arguments.bad_argument, host.arguments.fail
local to_number, to_text, to_int32 = host.arguments.number, host.arguments.text, host.arguments.to_int32
local double_words, float_word = host.ieee.double_words, host.ieee.float_word
local from_double_words, from_float_word = host.ieee.from_double_words, host.ieee.from_float_word

local byte, char, concat, error, floor, next, select, sub, type, unpack =
    string.byte, string.char, table.concat, error, math.floor, next, select, string.sub, type, unpack

local TWO_8, TWO_16, TWO_31, TWO_32, TWO_63 = 2 ^ 8, 2 ^ 16, 2 ^ 31, 2 ^ 32, 2 ^ 63

-- Tables inside this many others are written as nil.
local MAX_NESTING = 16

-- A library in C holds its arguments, open tables and results on a stack with room for this many values.
local STACK_SIZE = 8000

local NIL, FALSE, TRUE = char(0xC0), char(0xC2), char(0xC3)
local CHARACTERS = {}
for code = 0, 255 do
    CHARACTERS[code] = char(code)
end

-- Packing ----------------------------------------------------------------------------------------------------------------

local function word_bytes(word)
    return floor(word / 16777216), floor(word / 65536) % 256, floor(word / 256) % 256, word % 256
end

-- A type and two words of 32 bits.
local function long_bytes(kind, upper, lower)
    local first, second, third, fourth = word_bytes(upper)
    return char(kind, first, second, third, fourth, word_bytes(lower))
end

local function integer_bytes(value)
    if value >= 0 then
        if value < 128 then
            return CHARACTERS[value]
        elseif value < TWO_8 then
            return char(0xCC, value)
        elseif value < TWO_16 then
            return char(0xCD, floor(value / 256), value % 256)
        elseif value < TWO_32 then
            return char(0xCE, word_bytes(value))
        end
        return long_bytes(0xCF, floor(value / TWO_32), value % TWO_32)
    elseif value >= -32 then
        return CHARACTERS[value + 256]
    elseif value >= -128 then
        return char(0xD0, value + 256)
    elseif value >= -32768 then
        return char(0xD1, floor(value / 256) % 256, value % 256)
    elseif value >= -TWO_31 then
        return char(0xD2, word_bytes(value + TWO_32))
    end
    local upper = floor(value / TWO_32)
    return long_bytes(0xD3, upper + TWO_32, value - upper * TWO_32)
end

local function number_bytes(value)
    if value >= -TWO_63 and value < TWO_63 and value % 1 == 0 then
        return integer_bytes(value)
    end
    local word, is_exact = float_word(value)
    if is_exact then
        return char(0xCA, word_bytes(word))
    end
    return long_bytes(0xCB, double_words(value))
end

-- The head of what has a length: `tiny` for lengths below `limit`, else one of the types for lengths of 8, 16 and 32 bits.
local function head(length, tiny, limit, type8, type16, type32)
    if length < limit then
        return CHARACTERS[tiny + length]
    elseif type8 and length < TWO_8 then
        return char(type8, length)
    elseif length < TWO_16 then
        return char(type16, floor(length / 256), length % 256)
    end
    return char(type32, word_bytes(length))
end

-- How many pairs a table has, and whether their keys are exactly 1, 2, ... in any order.
local function shape(value)
    local count, largest, is_array = 0, 0, true
    for key in next, value do
        count = count + 1
        if is_array then
            if type(key) ~= "number" or key < 1 or key % 1 ~= 0 then
                is_array = false
            elseif key > largest then
                largest = key
            end
        end
    end
    return count, is_array and largest == count
end

-- Append `value`, which stands in `depth` tables, to the first `count` pieces; return their new number.
local function append(pieces, count, value, depth)
    local kind = type(value)
    if kind == "table" and depth < MAX_NESTING then
        local size, is_array = shape(value)
        count = count + 1
        if is_array then
            pieces[count] = head(size, 0x90, 16, nil, 0xDC, 0xDD)
            for index = 1, size do
                count = append(pieces, count, value[index], depth + 1)
            end
            return count
        end
        pieces[count] = head(size, 0x80, 16, nil, 0xDE, 0xDF)
        for key, member in next, value do
            count = append(pieces, count, key, depth + 1)
            count = append(pieces, count, member, depth + 1)
        end
        return count
    end
    count = count + 1
    if kind == "string" then
        pieces[count] = head(#value, 0xA0, 32, 0xD9, 0xDA, 0xDB)
        count = count + 1
        pieces[count] = value
    elseif kind == "number" then
        pieces[count] = number_bytes(value)
    elseif kind == "boolean" then
        pieces[count] = value and TRUE or FALSE
    else
        pieces[count] = NIL
    end
    return count
end

local cmsgpack = {}

function cmsgpack.pack(...)
    local given = select("#", ...)
    if given == 0 then
        bad_argument(cmsgpack.pack, 0, "MessagePack pack needs input.")
    elseif 2 * given > STACK_SIZE then
        bad_argument(cmsgpack.pack, 0, "Too many arguments for MessagePack pack.")
    end
    local arguments, pieces, count = { ... }, {}, 0
    for index = 1, given do
        count = append(pieces, count, arguments[index], 0)
    end
    return concat(pieces)
end

-- Unpacking --------------------------------------------------------------------------------------------------------------

-- The functions below take the function that was called (`of`), the text, a position and how many values are on C's stack;
-- they return a value and the next position.

local function check_stack(of, used, wanted, reason)
    if used + wanted > STACK_SIZE then
        fail(of, "stack overflow (" .. reason .. ")")
    end
end

local read

-- Read `count` values as an array. A nil leaves a hole.
local function read_array(of, text, at, used, count)
    check_stack(of, used, 2, "in function mp_decode_to_lua_array")
    local result = {}
    for index = 1, count do
        result[index], at = read(of, text, at, used + 2)
    end
    return result, at
end

local function read_map(of, text, at, used, count)
    check_stack(of, used, 1, "in function mp_decode_to_lua_hash")
    local result = {}
    for _ = 1, count do
        local key, member
        key, at = read(of, text, at, used + 1)
        member, at = read(of, text, at, used + 2)
        if key == nil then
            return error("table index is nil", 0)
        elseif key ~= key then
            return error("table index is NaN", 0)
        end
        result[key] = member
    end
    return result, at
end

-- The unsigned integer of 1, 2 or 4 bytes at `at`.
local function read_unsigned(of, text, at, size)
    local first, second, third, fourth = byte(text, at, at + size - 1)
    if size == 1 and first then
        return first, at + 1
    elseif size == 2 and second then
        return first * 256 + second, at + 2
    elseif size == 4 and fourth then
        return ((first * 256 + second) * 256 + third) * 256 + fourth, at + 4
    end
    fail(of, "Missing bytes in input.")
end

local function read_words(of, text, at)
    local upper, lower
    upper, at = read_unsigned(of, text, at, 4)
    lower, at = read_unsigned(of, text, at, 4)
    return upper, lower, at
end

local function read_string(of, text, at, length)
    if at + length - 1 > #text then
        fail(of, "Missing bytes in input.")
    end
    return sub(text, at, at + length - 1), at + length
end

-- Integers of 64 bits, those that are stored as unsigned, too.
local function read_long(of, text, at)
    local upper, lower
    upper, lower, at = read_words(of, text, at)
    return (upper < TWO_31 and upper or upper - TWO_32) * TWO_32 + lower, at
end

local function sign(value, limit)
    return value < limit / 2 and value or value - limit
end

-- By the first byte of a value, from 0xC0 to 0xDF: functions of (of, text, position behind it, used).
local READERS = {
    [0xC0] = function(_, _, at)
        return nil, at
    end,
    [0xC2] = function(_, _, at)
        return false, at
    end,
    [0xC3] = function(_, _, at)
        return true, at
    end,
    [0xCA] = function(of, text, at)
        local word, after = read_unsigned(of, text, at, 4)
        return from_float_word(word), after
    end,
    [0xCB] = function(of, text, at)
        local upper, lower, after = read_words(of, text, at)
        return from_double_words(upper, lower), after
    end,
    [0xCF] = read_long,
    [0xD3] = read_long,
}
for exponent = 0, 2 do
    local size = 2 ^ exponent
    READERS[0xCC + exponent] = function(of, text, at)
        return read_unsigned(of, text, at, size)
    end
    READERS[0xD0 + exponent] = function(of, text, at)
        local value, after = read_unsigned(of, text, at, size)
        return sign(value, 256 ^ size), after
    end
    READERS[0xD9 + exponent] = function(of, text, at)
        local length, after = read_unsigned(of, text, at, size)
        return read_string(of, text, after, length)
    end
end
for exponent = 1, 2 do
    local size = 2 ^ exponent
    READERS[0xDB + exponent] = function(of, text, at, used)
        local count, after = read_unsigned(of, text, at, size)
        return read_array(of, text, after, used, count)
    end
    READERS[0xDD + exponent] = function(of, text, at, used)
        local count, after = read_unsigned(of, text, at, size)
        return read_map(of, text, after, used, count)
    end
end

function read(of, text, at, used)
    local first = byte(text, at)
    if not first then
        fail(of, "Missing bytes in input.")
    elseif used >= STACK_SIZE then
        check_stack(of, used, 1, "too many return values at once; use unpack_one or unpack_limit instead.")
    elseif first < 0x80 then
        return first, at + 1
    elseif first < 0x90 then
        return read_map(of, text, at + 1, used, first - 0x80)
    elseif first < 0xA0 then
        return read_array(of, text, at + 1, used, first - 0x90)
    elseif first < 0xC0 then
        return read_string(of, text, at + 1, first - 0xA0)
    elseif first >= 0xE0 then
        return first - 256, at + 1
    end
    local reader = READERS[first]
    if not reader then
        fail(of, "Bad data format in input.")
    end
    return reader(of, text, at + 1, used)
end

-- Up to `limit` values from `offset` on, behind the next offset: -1 when all is used. If both are 0, all values and no offset.
-- They come in a table, with the places of the first and the last: this is no tail call, so that errors find `of`.
local function unpack_values(of, text, limit, offset)
    local length = #text
    if offset < 0 or limit < 0 then
        fail(of, "Invalid request to unpack with offset of " .. offset .. " and limit of " .. length .. ".")
    elseif offset > length then
        fail(of, "Start offset " .. offset .. " greater than input length " .. length .. ".")
    end
    local takes_all = limit == 0 and offset == 0
    local results, count, at = {}, 0, offset + 1
    if takes_all then
        limit = length
    end
    while count < limit and at <= length do
        results[count + 2], at = read(of, text, at, count + 1)
        count = count + 1
    end
    if takes_all then
        return results, 2, count + 1
    end
    check_stack(of, count + 1, 1, "in function mp_unpack_full")
    results[1] = at > length and -1 or at - 1
    return results, 1, count + 1
end

-- An optional offset: argument `index`.
local function to_offset(of, index, ...)
    if (select(index, ...)) == nil then
        return 0
    end
    return to_int32(to_number(of, index, ...))
end

function cmsgpack.unpack(...)
    return unpack(unpack_values(cmsgpack.unpack, to_text(cmsgpack.unpack, 1, ...), 0, 0))
end

function cmsgpack.unpack_one(...)
    local offset = to_offset(cmsgpack.unpack_one, 2, ...)
    return unpack(unpack_values(cmsgpack.unpack_one, to_text(cmsgpack.unpack_one, 1, ...), 1, offset))
end

function cmsgpack.unpack_limit(...)
    local limit = to_int32(to_number(cmsgpack.unpack_limit, 2, ...))
    local offset = to_offset(cmsgpack.unpack_limit, 3, ...)
    return unpack(unpack_values(cmsgpack.unpack_limit, to_text(cmsgpack.unpack_limit, 1, ...), limit, offset))
end

return cmsgpack
