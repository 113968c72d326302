--[[ `struct`: numbers and strings in C's layouts, as scripts of Redis find it.

A format is read once into a list of steps, which is kept for the next call. What is wrong in a format is a step, too: it
raises its error when it is reached, after what stands before it was done.

Wants `host.arguments` and `host.ieee`. Behaviour: Redis 8.6 on a little-endian 64-bit machine, as seen on a running server.
]]

local host = ...
local bad_argument, fail = host.arguments.bad_argument, host.arguments.fail
local to_number, to_text, to_int64 = host.arguments.number, host.arguments.text, host.arguments.to_int64
local double_words, float_word = host.ieee.double_words, host.ieee.float_word
local from_double_words, from_float_word = host.ieee.from_double_words, host.ieee.from_float_word

local byte, char, concat, find, floor, frexp, match, min, rep, reverse, select, sub, tonumber, type, unpack =
    string.byte, string.char, table.concat, string.find, math.floor, math.frexp, string.match, math.min, string.rep,
    string.reverse, select, string.sub, tonumber, type, unpack

local TWO_32, TWO_64 = 2 ^ 32, 2 ^ 64
local MAX_INT = 2 ^ 31 - 1
local MAX_INTEGER_SIZE = 32
local DEFAULT_ALIGNMENT = 8
local CACHED_FORMATS = 100

-- A library in C holds its arguments and results on a stack with room for this many values.
local STACK_SIZE = 8000

-- Bytes of the options that have one size; `i`, `I` and `c` are followed by theirs.
local SIZES = { b = 1, B = 1, h = 2, H = 2, l = 8, L = 8, T = 8, f = 4, d = 8, x = 1 }
local DEFAULT_SIZES = { i = 4, I = 4, c = 1 }
local IS_SIGNED = { b = true, h = true, i = true, l = true }

-- What the options mean; others are none.
local KINDS = {
    b = "integer", B = "integer", h = "integer", H = "integer", i = "integer", I = "integer", l = "integer", L = "integer",
    T = "integer", f = "float", d = "double", x = "padding", s = "string", c = "characters",
    ["<"] = "control", [">"] = "control", ["!"] = "control", [" "] = "control",
}

-- a AND b of integers, b small.
local function both(a, b)
    local result, bit = 0, 1
    while bit <= b do
        if a % (2 * bit) >= bit and b % (2 * bit) >= bit then
            result = result + bit
        end
        bit = 2 * bit
    end
    return result
end

-- Bytes left out before a value of `size` bytes that follows `length` bytes, aligned to at most `alignment`. Redis computes
-- with the bits of the size whether or not it is a power of two.
local function gap(length, size, alignment)
    size = min(size, alignment)
    if size <= 1 then
        return 0
    end
    return both(size - both(length, size - 1), size - 1)
end

-- The number whose digits start at `at` of a format, or `default`; and the next position. nil: it is too large.
local function read_size(text, at, default)
    local digits, after = match(text, "^(%d+)()", at)
    if not digits then
        return default, at
    end
    local value = tonumber(digits)
    return value <= MAX_INT and value or nil, after
end

-- The steps of a format: {kind, size, alignment, is_little, is_signed, text of an error, option}.
local function parse(text)
    local steps, at, alignment, is_little = {}, 1, 1, true
    while at <= #text do
        local option = sub(text, at, at)
        local kind, size, problem = KINDS[option] or "unknown", SIZES[option] or 0, nil
        at = at + 1
        if option == "<" or option == ">" then
            is_little = option == "<"
        elseif option == "!" then
            size, at = read_size(text, at, DEFAULT_ALIGNMENT)
            if size and frexp(size) ~= 0.5 then
                problem = "alignment " .. size .. " is not a power of 2"
            end
            alignment = size or alignment
        elseif DEFAULT_SIZES[option] then
            size, at = read_size(text, at, DEFAULT_SIZES[option])
            if size and kind == "integer" and size > MAX_INTEGER_SIZE then
                problem = "integral size " .. size .. " is larger than limit of " .. MAX_INTEGER_SIZE
            end
        end
        if not size then
            problem, size = "integral size overflow", 0
        end
        if problem and option ~= "!" then
            kind, size = "wrong", 0
        elseif kind == "control" then
            size = 0
        end
        local aligned = kind == "characters" and 1 or alignment
        steps[#steps + 1] = { kind, size, aligned, is_little, IS_SIGNED[option], problem, option }
        if problem then
            return steps
        end
    end
    return steps
end

local cache, cached = {}, 0

local function steps_of(text)
    local steps = cache[text]
    if not steps then
        if cached == CACHED_FORMATS then
            cache, cached = {}, 0
        end
        steps = parse(match(text, "^[^%z]*"))
        cache[text], cached = steps, cached + 1
    end
    return steps
end

-- Raise the error of a step that cannot be done.
local function refuse(of, step)
    if step[6] then
        fail(of, step[6])
    end
    bad_argument(of, 1, "invalid format option '" .. step[7] .. "'")
end

-- Packing ----------------------------------------------------------------------------------------------------------------

-- The bytes of a word of 32 bits, the lowest first.
local function word_bytes(word)
    return word % 256, floor(word / 256) % 256, floor(word / 65536) % 256, floor(word / 16777216)
end

-- `size` bytes of a number cut to an integer, the lowest first; it has eight, and those beyond are 0.
local function integer_bytes(value, size)
    if value < 0 or value ~= value then
        value = to_int64(value)
    else
        value = value < TWO_64 and floor(value) or 0
    end
    if size == 1 then
        return char(value % 256)
    end
    local upper = floor(value / TWO_32)
    local lower = value - upper * TWO_32
    if size == 4 then
        return char(word_bytes(lower))
    end
    local first, second, third, fourth = word_bytes(lower)
    local bytes = char(first, second, third, fourth, word_bytes(upper % TWO_32))
    return size <= 8 and sub(bytes, 1, size) or bytes .. rep("\0", size - 8)
end

local function double_bytes(value)
    local upper, lower = double_words(value)
    local first, second, third, fourth = word_bytes(lower)
    return char(first, second, third, fourth, word_bytes(upper))
end

local struct = {}

-- An argument to pack: one that is not there counts as nil.
local function number_to_pack(index, value)
    if type(value) == "number" then
        return value
    end
    return to_number(struct.pack, index, unpack({ [index] = value }, 1, index))
end

local function text_to_pack(index, value)
    if type(value) == "string" then
        return value
    end
    return to_text(struct.pack, index, unpack({ [index] = value }, 1, index))
end

function struct.pack(...)
    local steps = steps_of(to_text(struct.pack, 1, ...))
    local arguments = { ... }
    local pieces, count, length, index = {}, 0, 0, 2
    for at = 1, #steps do
        local step = steps[at]
        local kind, size = step[1], step[2]
        local skipped = gap(length, size, step[3])
        if skipped > 0 then
            count = count + 1
            pieces[count] = rep("\0", skipped)
        end
        local piece
        if kind == "padding" then
            piece = "\0"
        elseif step[6] or kind == "unknown" then
            refuse(struct.pack, step)
        elseif kind ~= "control" then
            local value = arguments[index]
            if kind == "string" then
                piece = text_to_pack(index, value) .. "\0"
            elseif kind == "characters" then
                piece = text_to_pack(index, value)
                if #piece < size then
                    bad_argument(struct.pack, index + 1, "string too short")
                elseif size > 0 then
                    piece = sub(piece, 1, size)
                end
            else
                value = number_to_pack(index, value)
                if kind == "integer" then
                    piece = integer_bytes(value, size)
                elseif kind == "float" then
                    piece = char(word_bytes((float_word(value))))
                else
                    piece = double_bytes(value)
                end
                if not step[4] then
                    piece = reverse(piece)
                end
            end
            index = index + 1
        end
        if piece then
            count = count + 1
            pieces[count] = piece
            length = length + skipped + #piece
        end
    end
    return concat(pieces)
end

function struct.size(...)
    local steps = steps_of(to_text(struct.size, 1, ...))
    local length = 0
    for at = 1, #steps do
        local step = steps[at]
        local kind, size = step[1], step[2]
        if step[6] then
            refuse(struct.size, step)
        elseif kind == "string" then
            bad_argument(struct.size, 1, "option 's' has no fixed size")
        elseif kind == "characters" and size == 0 then
            bad_argument(struct.size, 1, "option 'c0' has no fixed size")
        end
        length = length + gap(length, size, step[3]) + size
    end
    return length
end

-- Unpacking --------------------------------------------------------------------------------------------------------------

-- The word of 32 bits in the four bytes before `after`.
local function word_before(bytes, after)
    local fourth, third, second, first = byte(bytes, after - 4, after - 1)
    return ((fourth * 256 + third) * 256 + second) * 256 + first
end

-- The lowest eight bytes of an integer decide. Redis takes the sign from a bit that it counts modulo 64: of integers longer
-- than eight bytes, those whose lowest bytes reach that bit become negative.
local function integer_of(bytes, is_signed)
    local size = #bytes
    local upper, lower = 0, 0
    if size >= 8 then
        upper, lower = word_before(bytes, size - 3), word_before(bytes, size + 1)
    else
        for at = 1, size do
            local value = lower * 256 + byte(bytes, at)
            upper = (upper * 256 + floor(value / TWO_32)) % TWO_32
            lower = value % TWO_32
        end
    end
    if not is_signed then
        return upper * TWO_32 + lower
    end
    local sign_bit = (size - 1) % 8 * 8 + 7
    local is_negative
    if sign_bit >= 32 then
        local weight = 2 ^ (sign_bit - 32)
        is_negative = upper >= weight
        if is_negative then
            upper = upper % weight + TWO_32 - weight
        end
    else
        local weight = 2 ^ sign_bit
        is_negative = upper > 0 or lower >= weight
        if is_negative then
            upper, lower = TWO_32 - 1, lower % weight + TWO_32 - weight
        end
    end
    return (is_negative and upper - TWO_32 or upper) * TWO_32 + lower
end

function struct.unpack(...)
    local steps = steps_of(to_text(struct.unpack, 1, ...))
    local data = to_text(struct.unpack, 2, ...)
    local offset = 0 -- of the next byte, from the beginning of the data
    if (select(3, ...)) ~= nil then
        offset = to_int64(to_number(struct.unpack, 3, ...)) - 1
        if offset == -1 then
            bad_argument(struct.unpack, 3, "offset must be 1 or greater")
        end
    end
    local length = #data
    local results, count = {}, 0
    for at = 1, #steps do
        local step = steps[at]
        local kind, size = step[1], step[2]
        if kind == "wrong" then
            refuse(struct.unpack, step)
        end
        if offset >= 0 then
            offset = offset + gap(offset, size, step[3])
        end
        if offset < 0 or offset + size > length then
            bad_argument(struct.unpack, 2, "data string too short")
        elseif count + 4 > STACK_SIZE then
            fail(struct.unpack, "stack overflow (too many results)")
        end
        local value
        if kind == "integer" or kind == "float" or kind == "double" then
            local bytes = sub(data, offset + 1, offset + size)
            if step[4] then
                bytes = reverse(bytes)
            end
            if kind == "integer" then
                value = size == 1 and not step[5] and byte(bytes) or integer_of(bytes, step[5])
            elseif kind == "float" then
                value = from_float_word(word_before(bytes, 5))
            else
                value = from_double_words(word_before(bytes, 5), word_before(bytes, 9))
            end
        elseif kind == "characters" then
            if size == 0 then
                size = tonumber(results[count])
                if not size then
                    fail(struct.unpack, "format 'c0' needs a previous size")
                end
                size = to_int64(size)
                if size < 0 or size > length - offset then
                    bad_argument(struct.unpack, 2, "data string too short")
                end
                count = count - 1
            end
            value = sub(data, offset + 1, offset + size)
        elseif kind == "string" then
            local ending = find(data, "\0", offset + 1, true)
            if not ending then
                fail(struct.unpack, "unfinished string in data")
            end
            value = sub(data, offset + 1, ending - 1)
            size = #value + 1
        elseif step[6] or kind == "unknown" then
            refuse(struct.unpack, step)
        end
        if value then
            count = count + 1
            results[count] = value
        end
        offset = offset + size
    end
    results[count + 1] = offset + 1
    return unpack(results, 1, count + 1)
end

return struct
