--[[ `cjson`: JSON, as scripts of Redis find it: its functions, their settings and their errors.

`new` makes an instance: a table of functions with settings of their own. `host.read_json` and `host.write_json` walk through texts
and tables (json_text.pyx).

Wants `host.arguments` and `host.null`, the value of `cjson.null`. Members of objects are written in the order of Lua's
tables. Behaviour: Redis 8.6, as seen on a running server.
]]

local host = ...
local bad_argument, fail = host.arguments.bad_argument, host.arguments.fail
local to_number, to_text, to_int32 = host.arguments.number, host.arguments.text, host.arguments.to_int32
local read_json, write_json = host.read_json, host.write_json

local byte, format, select, type = string.byte, string.format, select, type

local MAX_INT = 2 ^ 31 - 1

local ON_OFF = { off = "off", on = "on" }
local ON_OFF_NULL = { off = "off", on = "on", null = "null" }
local AS_ANSWER = { off = false, on = true, null = "null" }
local AS_NUMBER = { off = 0, on = 1, null = 2 }

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
    local cjson = host.about_cjson()

    -- The settings.
    local converts_sparse, sparse_ratio, sparse_safe = "off", 2, 10
    local encode_depth, decode_depth = 1000, 1000
    local precision = 14
    local keeps_buffer = "on"
    local encodes_invalid, decodes_invalid = "off", "on"
    local marks_arrays = "off"

    function cjson.encode(...)
        if select("#", ...) ~= 1 then
            bad_argument(cjson.encode, 1, "expected 1 argument")
        end
        local text, problem = write_json((...), encode_depth, converts_sparse == "on", sparse_ratio, sparse_safe, precision,
            AS_NUMBER[encodes_invalid])
        return text or fail(cjson.encode, problem)
    end

    function cjson.decode(...)
        if select("#", ...) ~= 1 then
            bad_argument(cjson.decode, 1, "expected 1 argument")
        end
        local text = to_text(cjson.decode, 1, ...)
        if #text > 1 and (byte(text, 1) == 0 or byte(text, 2) == 0) then
            fail(cjson.decode, "JSON parser does not support UTF-16 or UTF-32")
        end
        local value, problem = read_json(text, decode_depth, decodes_invalid == "on", marks_arrays == "on")
        if problem then
            fail(cjson.decode, problem)
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
