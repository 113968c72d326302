--[[ `cjson`: JSON, as scripts of Redis find it.

`new` makes an instance: a table of functions with settings of their own. Reading is descent over the text by positions,
without tokens; only when something is wrong, `explain` looks again at that place and names what is there. Writing appends
pieces to an array that is joined at the end.

Wants `host.arguments` and `host.null`, the value of `cjson.null`. Members of objects are written in the order of Lua's
tables. Behaviour: Redis 8.6, as seen on a running server.
]]

local host = ...
local NULL = host.null
local bad_argument, fail = host.arguments.bad_argument, host.arguments.fail
local to_number, to_text, to_int32 = host.arguments.number, host.arguments.text, host.arguments.to_int32

local byte, char, concat, find, floor, format, getmetatable, gsub, huge, lower, match, next, rawget, select, setmetatable, sub,
    tonumber, type =
    string.byte, string.char, table.concat, string.find, math.floor, string.format, getmetatable, string.gsub, math.huge,
    string.lower, string.match, next, rawget, select, setmetatable, string.sub, tonumber, type

local MAX_INT, MIN_INT = 2 ^ 31 - 1, -2 ^ 31

-- A library in C holds each open table, and the key that leads into it, on a stack with room for this many values.
local STACK_SIZE = 8000

-- A table whose metatable has this field is an array, whatever its keys are.
local ARRAY_MARK = "__is_cjson_array"

local QUOTE, BACKSLASH, COMMA, COLON, MINUS, PLUS = 34, 92, 44, 58, 45, 43
local ARRAY_BEGIN, ARRAY_END, OBJECT_BEGIN, OBJECT_END = 91, 93, 123, 125
local BLANKS = { [32] = true, [9] = true, [10] = true, [13] = true }
local PUNCTUATION = {
    [ARRAY_BEGIN] = "T_ARR_BEGIN",
    [ARRAY_END] = "T_ARR_END",
    [OBJECT_BEGIN] = "T_OBJ_BEGIN",
    [OBJECT_END] = "T_OBJ_END",
    [COMMA] = "T_COMMA",
    [COLON] = "T_COLON",
    [0] = "T_END",
}
local WORDS = { { "true", "T_BOOLEAN" }, { "false", "T_BOOLEAN" }, { "null", "T_NULL" } }

local ESCAPED = "[%z\1-\31\127\"\\/]"
local ESCAPES = { ['"'] = '\\"', ["\\"] = "\\\\", ["/"] = "\\/", ["\127"] = "\\u007f" }
for code = 0, 31 do
    ESCAPES[char(code)] = format("\\u%04x", code)
end
local UNESCAPES = { ['"'] = '"', ["\\"] = "\\", ["/"] = "/", b = "\b", f = "\f", n = "\n", r = "\r", t = "\t" }
for letter, code in next, UNESCAPES do
    if letter ~= code then
        ESCAPES[code] = "\\" .. letter
    end
end

local function utf8(code)
    if code < 0x80 then
        return char(code)
    elseif code < 0x800 then
        return char(0xC0 + floor(code / 64), 0x80 + code % 64)
    elseif code < 0x10000 then
        return char(0xE0 + floor(code / 4096), 0x80 + floor(code / 64) % 64, 0x80 + code % 64)
    end
    return char(0xF0 + floor(code / 262144), 0x80 + floor(code / 4096) % 64, 0x80 + floor(code / 64) % 64, 0x80 + code % 64)
end

-- Read the escape whose backslash is at `at`: its characters and the next position; or nil and what is wrong.
local function read_escape(text, at)
    local plain = UNESCAPES[sub(text, at + 1, at + 1)]
    if plain then
        return plain, at + 2
    end
    if sub(text, at + 1, at + 1) ~= "u" then
        return nil, "invalid escape code"
    end
    local digits = match(text, "^%x%x%x%x", at + 2)
    local code = digits and tonumber(digits, 16)
    if code and code >= 0xD800 and code < 0xE000 then
        -- The first half of a pair, which the second has to follow.
        local second = match(text, "^\\u(%x%x%x%x)", at + 6)
        second = second and tonumber(second, 16)
        if code >= 0xDC00 or not second or second < 0xDC00 or second >= 0xE000 then
            return nil, "invalid unicode escape code"
        end
        return utf8(0x10000 + (code - 0xD800) * 1024 + second - 0xDC00), at + 12
    end
    if not code then
        return nil, "invalid unicode escape code"
    end
    return utf8(code), at + 6
end

-- Read the string whose quote is at `at`: its content and the next position; or nil, what is wrong and where.
local function read_string(text, at)
    local plain, stop = match(text, '^([^"\\%z]*)"()', at + 1)
    if plain then
        return plain, stop
    end
    local pieces, count = {}, 0
    at = at + 1
    while true do
        plain, stop = match(text, '^([^"\\%z]*)()', at)
        count = count + 1
        pieces[count] = plain
        local found = byte(text, stop)
        if found == QUOTE then
            return concat(pieces), stop + 1
        elseif found ~= BACKSLASH then
            return nil, "unexpected end of string", stop
        end
        local unescaped, after = read_escape(text, stop)
        if not unescaped then
            return nil, after, stop
        end
        count = count + 1
        pieces[count] = unescaped
        at = after
    end
end

-- The number at `at`, as C's strtod reads it, and the next position; nil if there is none.
local function read_number(text, at)
    local digits, stop = match(text, "^([+-]?%d*%.?%d*)()", at)
    local value
    if match(text, "^[+-]?0[xX]%.?%x", at) then
        digits, stop = match(text, "^([+-]?0[xX]%x*%.?%x*)()", at)
        local exponent, after = match(text, "^([pP][+-]?%d+)()", stop)
        if exponent then
            digits, stop = digits .. exponent, after
        end
        value = tonumber(digits)
    elseif find(digits, "%d") then
        local exponent, after = match(text, "^([eE][+-]?%d+)()", stop)
        if exponent then
            digits, stop = digits .. exponent, after
        end
        value = tonumber(digits)
    else
        local sign, word, after = match(text, "^([+-]?)(%a%a%a)()", at)
        word = word and lower(word)
        if word == "inf" then
            value = huge
            stop = lower(sub(text, after, after + 4)) == "inity" and after + 5 or after
        elseif word == "nan" then
            value = tonumber("nan")
            stop = match(text, "^%([%w_]*%)()", after) or after
        end
        if value and sign == "-" then
            value = -value
        end
    end
    return value, stop
end

-- Whether a number starts at `at` that JSON does not have, but strtod reads.
local function is_irregular(text, at)
    local first = byte(text, at)
    if first == PLUS then
        return true
    end
    if first == MINUS then
        at = at + 1
    end
    if match(text, "^0[xX%d]", at) then
        return true
    end
    local word = lower(sub(text, at, at + 2))
    return word == "inf" or word == "nan"
end

-- What stands at `at`: the name of a token, or what is wrong; and where, blanks left out.
local function explain(text, at, allows_irregular)
    at = find(text, "[^ \t\r\n]", at) or #text + 1
    local first = byte(text, at)
    if not first then
        return "T_END", at
    elseif PUNCTUATION[first] then
        return PUNCTUATION[first], at
    elseif first == QUOTE then
        local content, problem, place = read_string(text, at)
        if content then
            return "T_STRING", at
        end
        return problem, place
    elseif first == MINUS or (first >= 48 and first <= 57) or (allows_irregular and is_irregular(text, at)) then
        if (not allows_irregular and is_irregular(text, at)) or not read_number(text, at) then
            return "invalid number", at
        end
        return "T_NUMBER", at
    end
    for _, word in next, WORDS do
        if sub(text, at, at + #word[1] - 1) == word[1] then
            return word[2], at
        end
    end
    return "invalid token", at
end

local ON_OFF = { off = "off", on = "on" }
local ON_OFF_NULL = { off = "off", on = "on", null = "null" }
local AS_ANSWER = { off = false, on = true, null = "null" }

-- The new value of a switch: argument `1` of the setter `of`; `old` if it is not given.
local function switch(of, options, old, ...)
    local value = ...
    if value == nil then
        return old
    elseif type(value) == "boolean" then
        return value and "on" or "off"
    end
    value = to_text(of, 1, ...)
    return options[value] or bad_argument(of, 1, "invalid option '" .. value .. "'")
end

-- The new value of an integer setting: argument `index` of the setter `of`; `old` if it is not given.
local function integer(of, index, old, lowest, highest, ...)
    if (select(index, ...)) == nil then
        return old
    end
    local value = to_int32(to_number(of, index, ...))
    if value < lowest or value > highest then
        bad_argument(of, 1, format("expected integer between %d and %d", lowest, highest))
    end
    return value
end

local function check_count(of, most, ...)
    if select("#", ...) > most then
        bad_argument(of, most + 1, "found too many arguments")
    end
end

local function new()
    local cjson = { _NAME = "cjson", _VERSION = "2.1.0", null = NULL }

    -- The settings.
    local converts_sparse, sparse_ratio, sparse_safe = "off", 2, 10
    local encode_depth, decode_depth = 1000, 1000
    local precision, number_format = 14, nil -- nil: as tostring writes numbers, "%.14g"
    local keeps_buffer = "on"
    local encodes_invalid, decodes_invalid = "off", "on"
    local marks_arrays = "off"

    -- Writing --------------------------------------------------------------------------------------------------------

    local function refuse(value, reason)
        fail(cjson.encode, "Cannot serialise " .. type(value) .. ": " .. reason)
    end

    -- A number as JSON, or as something that joins to it.
    local function number_text(value)
        if value ~= value or value == huge or value == -huge then
            if encodes_invalid == "off" then
                refuse(value, "must not be NaN or Inf")
            elseif encodes_invalid == "null" then
                return "null"
            end
            return value ~= value and "nan" or value > 0 and "inf" or "-inf"
        end
        return number_format and format(number_format, value) or value
    end

    -- The length of a table as an array; nil if it is an object.
    local function array_length(value)
        local metatable = getmetatable(value)
        if type(metatable) == "table" and rawget(metatable, ARRAY_MARK) then
            return #value, true
        end
        local largest, count = 0, 0
        for key in next, value do
            if type(key) ~= "number" or key < 1 or floor(key) ~= key then
                return nil
            end
            if key > largest then
                -- What does not fit into an int of C becomes the smallest one there, so that the next key counts.
                largest = key <= MAX_INT and key or MIN_INT
            end
            count = count + 1
        end
        if sparse_ratio > 0 and largest > count * sparse_ratio and largest > sparse_safe then
            if converts_sparse == "off" then
                refuse(value, "excessively sparse array")
            end
            return nil
        end
        return largest > 0 and largest or nil
    end

    -- Append `value` to the first `count` pieces; return their new number. `depth` tables are open, which hold `used`
    -- places of the stack.
    local function append(pieces, count, value, depth, used)
        local kind = type(value)
        if kind == "string" then
            if find(value, ESCAPED) then
                value = gsub(value, ESCAPED, ESCAPES)
            end
            count = count + 1
            pieces[count] = '"' .. value .. '"'
        elseif kind == "number" then
            count = count + 1
            pieces[count] = number_text(value)
        elseif kind == "boolean" then
            count = count + 1
            pieces[count] = value and "true" or "false"
        elseif kind == "table" then
            depth = depth + 1
            if depth > encode_depth or used + 3 > STACK_SIZE then
                fail(cjson.encode, "Cannot serialise, excessive nesting (" .. depth .. ")")
            end
            local length, is_marked = array_length(value)
            if length then
                count = count + 1
                pieces[count] = "["
                for index = 1, length do
                    if index > 1 then
                        count = count + 1
                        pieces[count] = ","
                    end
                    count = append(pieces, count, rawget(value, index), depth, used + 1)
                end
                count = count + 1
                pieces[count] = "]"
            else
                local separator = "{"
                for key, member in next, value do
                    local key_kind = type(key)
                    count = count + 1
                    if key_kind == "string" then
                        if find(key, ESCAPED) then
                            key = gsub(key, ESCAPED, ESCAPES)
                        end
                        pieces[count] = separator .. '"' .. key .. '":'
                    elseif key_kind == "number" then
                        pieces[count] = separator .. '"' .. number_text(key) .. '":'
                    else
                        refuse(key, "table key must be a number or string")
                    end
                    separator = ","
                    count = append(pieces, count, member, depth, used + 2)
                end
                count = count + 1
                pieces[count] = separator == "{" and "{}" or "}"
            end
        elseif value == nil or value == NULL then
            count = count + 1
            pieces[count] = "null"
        else
            refuse(value, "type not supported")
        end
        return count
    end

    function cjson.encode(...)
        if select("#", ...) ~= 1 then
            bad_argument(cjson.encode, 1, "expected 1 argument")
        end
        local pieces = {}
        append(pieces, 0, (...), 0, 1)
        return concat(pieces)
    end

    -- Reading --------------------------------------------------------------------------------------------------------

    local function reject(text, at, wanted)
        local found, place = explain(text, at, decodes_invalid == "on")
        fail(cjson.decode, "Expected " .. wanted .. " but found " .. found .. " at character " .. place)
    end

    local function check_nesting(at, depth, used)
        if depth > decode_depth or used + 2 > STACK_SIZE then
            fail(cjson.decode, "Found too many nested data structures (" .. depth .. ") at character " .. at)
        end
    end

    -- The position of the first character from `at` on that is no blank, and its byte.
    local function skip(text, at)
        local first = byte(text, at)
        while BLANKS[first] do
            at = at + 1
            first = byte(text, at)
        end
        return at, first
    end

    local read_value

    local function read_array(text, at, depth, used)
        depth = depth + 1
        check_nesting(at, depth, used)
        local result, count, first = {}, 0, nil
        if marks_arrays == "on" then
            setmetatable(result, { [ARRAY_MARK] = true })
        end
        at, first = skip(text, at + 1)
        if first == ARRAY_END then
            return result, at + 1
        end
        while true do
            count = count + 1
            result[count], at = read_value(text, at, depth, used + 1)
            first = byte(text, at)
            if BLANKS[first] then
                at, first = skip(text, at)
            end
            if first == ARRAY_END then
                return result, at + 1
            elseif first ~= COMMA then
                reject(text, at, "comma or array end")
            end
            at = at + 1
        end
    end

    local function read_object(text, at, depth, used)
        depth = depth + 1
        check_nesting(at, depth, used)
        local result = {}
        local first
        at, first = skip(text, at + 1)
        if first == OBJECT_END then
            return result, at + 1
        end
        while true do
            local key, after
            if first == QUOTE then
                key, after = read_string(text, at)
            end
            if not key then
                reject(text, at, "object key string")
            end
            at, first = skip(text, after)
            if first ~= COLON then
                reject(text, at, "colon")
            end
            result[key], at = read_value(text, at + 1, depth, used + 2)
            at, first = skip(text, at)
            if first == OBJECT_END then
                return result, at + 1
            elseif first ~= COMMA then
                reject(text, at, "comma or object end")
            end
            at, first = skip(text, at + 1)
        end
    end

    local function read_other(text, at, first)
        if first == MINUS or (first and first >= 48 and first <= 57) or (decodes_invalid == "on" and is_irregular(text, at)) then
            if decodes_invalid == "on" or not is_irregular(text, at) then
                local value, after = read_number(text, at)
                if value then
                    return value, after
                end
            end
        elseif find(text, "^true", at) then
            return true, at + 4
        elseif find(text, "^false", at) then
            return false, at + 5
        elseif find(text, "^null", at) then
            return NULL, at + 4
        end
        reject(text, at, "value")
    end

    -- The value at `at`, and the position after it.
    function read_value(text, at, depth, used)
        local first = byte(text, at)
        if BLANKS[first] then
            at, first = skip(text, at)
        end
        if first == QUOTE then
            local content, after = read_string(text, at)
            if content then
                return content, after
            end
            reject(text, at, "value")
        elseif first == OBJECT_BEGIN then
            return read_object(text, at, depth, used)
        elseif first == ARRAY_BEGIN then
            return read_array(text, at, depth, used)
        end
        -- Most numbers are like this, and have nothing that belongs to them behind their digits.
        local digits, after = match(text, "^(-?[1-9]%d*%.?%d*)()[,%]} \n]", at)
        if digits then
            return tonumber(digits), after
        end
        return read_other(text, at, first)
    end

    function cjson.decode(...)
        if select("#", ...) ~= 1 then
            bad_argument(cjson.decode, 1, "expected 1 argument")
        end
        local text = to_text(cjson.decode, 1, ...)
        if #text > 1 and (byte(text, 1) == 0 or byte(text, 2) == 0) then
            fail(cjson.decode, "JSON parser does not support UTF-16 or UTF-32")
        end
        local value, at = read_value(text, 1, 0, 1)
        local first
        at, first = skip(text, at)
        if first and first ~= 0 then
            reject(text, at, "the end")
        end
        return value
    end

    -- Settings -------------------------------------------------------------------------------------------------------

    function cjson.encode_sparse_array(...)
        check_count(cjson.encode_sparse_array, 3, ...)
        converts_sparse = switch(cjson.encode_sparse_array, ON_OFF, converts_sparse, ...)
        sparse_ratio = integer(cjson.encode_sparse_array, 2, sparse_ratio, 0, MAX_INT, ...)
        sparse_safe = integer(cjson.encode_sparse_array, 3, sparse_safe, 0, MAX_INT, ...)
        return AS_ANSWER[converts_sparse], sparse_ratio, sparse_safe
    end

    function cjson.encode_max_depth(...)
        check_count(cjson.encode_max_depth, 1, ...)
        encode_depth = integer(cjson.encode_max_depth, 1, encode_depth, 1, MAX_INT, ...)
        return encode_depth
    end

    function cjson.decode_max_depth(...)
        check_count(cjson.decode_max_depth, 1, ...)
        decode_depth = integer(cjson.decode_max_depth, 1, decode_depth, 1, MAX_INT, ...)
        return decode_depth
    end

    function cjson.encode_number_precision(...)
        check_count(cjson.encode_number_precision, 1, ...)
        precision = integer(cjson.encode_number_precision, 1, precision, 1, 14, ...)
        number_format = precision < 14 and "%." .. precision .. "g" or nil
        return precision
    end

    -- It says whether memory is kept between calls, which makes no difference here.
    function cjson.encode_keep_buffer(...)
        check_count(cjson.encode_keep_buffer, 1, ...)
        keeps_buffer = switch(cjson.encode_keep_buffer, ON_OFF, keeps_buffer, ...)
        return AS_ANSWER[keeps_buffer]
    end

    function cjson.encode_invalid_numbers(...)
        check_count(cjson.encode_invalid_numbers, 1, ...)
        encodes_invalid = switch(cjson.encode_invalid_numbers, ON_OFF_NULL, encodes_invalid, ...)
        return AS_ANSWER[encodes_invalid]
    end

    function cjson.decode_invalid_numbers(...)
        check_count(cjson.decode_invalid_numbers, 1, ...)
        decodes_invalid = switch(cjson.decode_invalid_numbers, ON_OFF, decodes_invalid, ...)
        return AS_ANSWER[decodes_invalid]
    end

    function cjson.decode_array_with_array_mt(...)
        check_count(cjson.decode_array_with_array_mt, 1, ...)
        marks_arrays = switch(cjson.decode_array_with_array_mt, ON_OFF, marks_arrays, ...)
        return AS_ANSWER[marks_arrays]
    end

    cjson.new = new
    return cjson
end

return new()
