# cython: language_level=3, boundscheck=False, wraparound=False
"""JSON to values of Lua and back, for `cjson`: what walks through texts and tables.

cjson.lua has the settings, checks arguments and raises errors; what is wrong comes to it as a text. Both directions
hold values on Lua's stack as the library of Redis does, so that they reach its end, and refuse a text or a table, at
the same depth. What is written grows in a block of Lua's own memory, which is counted and limited with everything else
of a script.

All are C functions, and any of them may raise a Lua error: no Python object is touched.
"""

from libc.math cimport floor, isinf, isnan, signbit
from libc.stdint cimport INT32_MAX, INT32_MIN, int64_t, uint32_t
from libc.stdio cimport snprintf
from libc.stdlib cimport strtod
from libc.string cimport memcpy, strlen
from posix.strings cimport strncasecmp

from streamd.numbers cimport put_int64
from streamd.scripting.lua cimport (
    LUA_TBOOLEAN, LUA_TLIGHTUSERDATA, LUA_TNIL, LUA_TNUMBER, LUA_TSTRING, LUA_TTABLE, lua, lua_State, pop, upvalue,
)
from streamd.scripting.sandbox cimport set_function

cdef enum:
    MOST_DIGITS = 14    # of a number
    NUMBER_ROOM = 32    # most characters of one
    LEAST_BLOCK = 256
    KEPT_BLOCK = 65536

cdef const char *ARRAY_MARK = "__is_cjson_array"    # a table whose metatable has this field is an array
cdef const char *HEX = "0123456789abcdef"


# --- The text that is written -----------------------------------------------------------------------------------------


cdef struct Text:
    # `data` is a block of Lua's: a small one is kept between calls, as upvalue 1 of the function; a large one is below
    # everything else on the stack.
    lua_State *L
    char *data
    size_t size
    size_t capacity


cdef void begin(Text *text, lua_State *L) noexcept:
    text.L = L
    text.size = 0
    text.data = <char *>lua.touserdata(L, upvalue(1))
    text.capacity = 0 if text.data is NULL else lua.objlen(L, upvalue(1))


cdef void grow(Text *text, size_t n) noexcept:
    cdef size_t capacity = max(<size_t>LEAST_BLOCK, 2 * text.capacity, text.size + n)
    cdef char *data = <char *>lua.newuserdata(text.L, capacity)
    if text.size:
        memcpy(data, text.data, text.size)
    if capacity <= KEPT_BLOCK:
        lua.replace(text.L, upvalue(1))
    elif text.capacity > KEPT_BLOCK:
        lua.replace(text.L, 1)
    else:
        lua.insert(text.L, 1)
    text.data = data
    text.capacity = capacity


cdef inline char *room(Text *text, size_t n) noexcept:
    """Where the next n bytes go."""
    if text.size + n > text.capacity:
        grow(text, n)
    return text.data + text.size


cdef inline void put(Text *text, const char *data, size_t n) noexcept:
    memcpy(room(text, n), data, n)
    text.size += n


cdef inline void put_char(Text *text, char c) noexcept:
    room(text, 1)[0] = c
    text.size += 1


# --- Writing ----------------------------------------------------------------------------------------------------------


cdef struct Writing:
    Text text
    int64_t max_depth
    bint converts_sparse    # a sparse array becomes an object
    int64_t sparse_ratio    # 0: no array is sparse
    int64_t sparse_safe
    int digits              # of numbers
    int invalid             # NaN and infinite numbers: 0 refused, 1 written, 2 null
    # What is wrong; NULL: nothing.
    const char *problem
    int kind                # the type of what cannot be written
    int64_t depth           # where it is nested too deeply


cdef bint refuse(Writing *self, int kind, const char *problem) noexcept:
    self.kind = kind
    self.problem = problem
    return False


cdef void put_string(Text *text, const char *p, size_t n) noexcept:
    """A string in quotes."""
    cdef char *out = room(text, 2 + 6 * n) if n < 64 else NULL
    cdef const char *end = p + n
    cdef size_t size
    cdef unsigned char c
    if out is NULL:
        size = 2
        for i in range(n):
            size += escaped_size(<unsigned char>p[i])
        out = room(text, size)
    out[0] = c'"'
    out += 1
    while p < end:
        c = <unsigned char>p[0]
        p += 1
        if escaped_size(c) == 1:
            out[0] = <char>c
            out += 1
        elif escaped_size(c) == 2:
            out[0] = c'\\'
            out[1] = short_escape(c)
            out += 2
        else:
            memcpy(out, "\\u00", 4)
            out[4] = HEX[c >> 4]
            out[5] = HEX[c & 15]
            out += 6
    out[0] = c'"'
    text.size = <size_t>(out + 1 - text.data)


cdef inline int escaped_size(unsigned char c) noexcept:
    if c < 32:
        return 2 if c == 8 or c == 9 or c == 10 or c == 12 or c == 13 else 6
    if c == c'"' or c == c'\\' or c == c'/':
        return 2
    return 6 if c == 127 else 1


cdef inline char short_escape(unsigned char c) noexcept:
    if c == 8:
        return c'b'
    if c == 9:
        return c't'
    if c == 10:
        return c'n'
    if c == 12:
        return c'f'
    if c == 13:
        return c'r'
    return <char>c


cdef inline bint is_minus_zero(double number) noexcept:
    return number == 0 and signbit(number)


cdef bint put_number(Writing *self, double number) noexcept:
    cdef char *out
    if isnan(number) or isinf(number):
        if self.invalid == 0:
            return refuse(self, LUA_TNUMBER, "must not be NaN or Inf")
        if self.invalid == 2:
            put(&self.text, "null", 4)
        elif isnan(number):
            put(&self.text, "nan", 3)
        else:
            if number < 0:
                put_char(&self.text, c'-')
            put(&self.text, "inf", 3)
        return True
    out = room(&self.text, NUMBER_ROOM)
    if self.digits == MOST_DIGITS and -1e14 < number < 1e14 and floor(number) == number and not is_minus_zero(number):
        self.text.size += put_int64(out, <int64_t>number)
    else:
        self.text.size += <size_t>snprintf(out, NUMBER_ROOM, "%.*g", self.digits, number)
    return True


cdef bint is_marked(lua_State *L) noexcept:
    """Whether the table on top is an array, whatever its keys are."""
    cdef bint found
    if not lua.getmetatable(L, -1):
        return False
    lua.pushlstring(L, ARRAY_MARK, strlen(ARRAY_MARK))
    lua.rawget(L, -2)
    found = lua.toboolean(L, -1)
    pop(L, 2)
    return found


cdef int64_t array_length(Writing *self, lua_State *L) noexcept:
    """The length of the table on top as an array; -1: it is an object; -2: it is refused."""
    cdef int64_t largest = 0, count = 0
    cdef double key
    if is_marked(L):
        return <int64_t>lua.objlen(L, -1)
    lua.pushnil(L)
    while lua.next(L, -2):
        pop(L, 1)
        if lua.type(L, -1) != LUA_TNUMBER:
            pop(L, 1)
            return -1
        key = lua.tonumber(L, -1)
        if key < 1 or floor(key) != key:
            pop(L, 1)
            return -1
        if key > largest:
            # What does not fit into an int of C becomes the smallest one there, so that the next key counts.
            largest = <int64_t>key if key <= INT32_MAX else INT32_MIN
        count += 1
    if self.sparse_ratio > 0 and largest > count * self.sparse_ratio and largest > self.sparse_safe:
        if not self.converts_sparse:
            refuse(self, LUA_TTABLE, "excessively sparse array")
            return -2
        return -1
    return largest if largest > 0 else -1


cdef bint put_table(Writing *self, lua_State *L, int64_t depth) noexcept:
    """The table on top, in which `depth` tables are open with it."""
    cdef int64_t length, at
    if depth > self.max_depth or not lua.checkstack(L, 3):
        self.depth = depth
        return refuse(self, LUA_TTABLE, "excessive nesting")
    length = array_length(self, L)
    if length == -2:
        return False
    if length == -1:
        return put_object(self, L, depth)
    put_char(&self.text, c'[')
    for at in range(1, length + 1):
        if at > 1:
            put_char(&self.text, c',')
        lua.rawgeti(L, -1, <int>at)
        if not put_value(self, L, depth):
            return False
        pop(L, 1)
    put_char(&self.text, c']')
    return True


cdef bint put_object(Writing *self, lua_State *L, int64_t depth) noexcept:
    cdef bint is_first = True
    cdef const char *key
    cdef size_t length
    put_char(&self.text, c'{')
    lua.pushnil(L)
    while lua.next(L, -2):
        if not is_first:
            put_char(&self.text, c',')
        is_first = False
        if lua.type(L, -2) == LUA_TSTRING:
            key = lua.tolstring(L, -2, &length)
            put_string(&self.text, key, length)
        elif lua.type(L, -2) == LUA_TNUMBER:
            put_char(&self.text, c'"')
            if not put_number(self, lua.tonumber(L, -2)):
                return False
            put_char(&self.text, c'"')
        else:
            return refuse(self, lua.type(L, -2), "table key must be a number or string")
        put_char(&self.text, c':')
        if not put_value(self, L, depth):
            return False
        pop(L, 1)
    put_char(&self.text, c'}')
    return True


cdef bint put_value(Writing *self, lua_State *L, int64_t depth) noexcept:
    """Write the value on top, which stays there; False when something is wrong. `depth` tables are open."""
    cdef int kind = lua.type(L, -1)
    cdef const char *p
    cdef size_t length
    if kind == LUA_TSTRING:
        p = lua.tolstring(L, -1, &length)
        put_string(&self.text, p, length)
        return True
    if kind == LUA_TNUMBER:
        return put_number(self, lua.tonumber(L, -1))
    if kind == LUA_TTABLE:
        return put_table(self, L, depth + 1)
    if kind == LUA_TBOOLEAN:
        if lua.toboolean(L, -1):
            put(&self.text, "true", 4)
        else:
            put(&self.text, "false", 5)
        return True
    if kind == LUA_TNIL or (kind == LUA_TLIGHTUSERDATA and lua.touserdata(L, -1) is NULL):
        put(&self.text, "null", 4)
        return True
    return refuse(self, kind, "type not supported")


cdef int write_json(lua_State *L) noexcept:
    """write_json(value, depth, converts_sparse, ratio, safe, digits, invalid) -> text; or nil and what is wrong."""
    cdef Writing self
    cdef char said[128]
    self.max_depth = <int64_t>lua.tonumber(L, 2)
    self.converts_sparse = lua.toboolean(L, 3)
    self.sparse_ratio = <int64_t>lua.tonumber(L, 4)
    self.sparse_safe = <int64_t>lua.tonumber(L, 5)
    self.digits = <int>lua.tonumber(L, 6)
    self.invalid = <int>lua.tonumber(L, 7)
    self.problem = NULL
    self.depth = 0
    lua.settop(L, 1)
    begin(&self.text, L)
    if put_value(&self, L, 0):
        lua.pushlstring(L, self.text.data, self.text.size)
        return 1
    lua.settop(L, 0)
    lua.pushnil(L)
    if self.depth:
        snprintf(said, sizeof(said), "Cannot serialise, %s (%lld)", self.problem, <long long>self.depth)
    else:
        snprintf(said, sizeof(said), "Cannot serialise %s: %s", lua.typename(L, self.kind), self.problem)
    lua.pushlstring(L, said, strlen(said))
    return 2


# --- Reading ----------------------------------------------------------------------------------------------------------


cdef struct Reading:
    lua_State *L
    Text text               # strings without their escapes
    const char *start       # a zero byte is at its end
    int64_t max_depth
    bint allows_irregular   # numbers that JSON does not have
    bint marks_arrays
    # What is wrong: `wanted` was not found at `at`; or tables are nested too deeply there; or something else.
    const char *wanted
    const char *at
    int64_t depth
    const char *problem


cdef inline const char *skip_blanks(const char *p) noexcept:
    while p[0] == c' ' or p[0] == c'\t' or p[0] == c'\r' or p[0] == c'\n':
        p += 1
    return p


cdef const char *reject(Reading *self, const char *at, const char *wanted) noexcept:
    self.wanted = wanted
    self.at = at
    return NULL


cdef int read_hex(const char *p) noexcept:
    """The value of four hexadecimal digits; -1 if they are none. A zero byte ends them."""
    cdef int value = 0, i
    cdef char c
    for i in range(4):
        c = p[i]
        if c'0' <= c <= c'9':
            value = value * 16 + (c - c'0')
        elif c'a' <= c <= c'f':
            value = value * 16 + (c - c'a' + 10)
        elif c'A' <= c <= c'F':
            value = value * 16 + (c - c'A' + 10)
        else:
            return -1
    return value


cdef size_t put_utf8(char *out, uint32_t code) noexcept:
    if code < 0x80:
        out[0] = <char>code
        return 1
    if code < 0x800:
        out[0] = <char>(0xC0 | code >> 6)
        out[1] = <char>(0x80 | code & 63)
        return 2
    if code < 0x10000:
        out[0] = <char>(0xE0 | code >> 12)
        out[1] = <char>(0x80 | code >> 6 & 63)
        out[2] = <char>(0x80 | code & 63)
        return 3
    out[0] = <char>(0xF0 | code >> 18)
    out[1] = <char>(0x80 | code >> 12 & 63)
    out[2] = <char>(0x80 | code >> 6 & 63)
    out[3] = <char>(0x80 | code & 63)
    return 4


cdef const char *read_escape(const char *p, char *out, size_t *size, const char **problem) noexcept:
    """Read the escape whose backslash is at p; returns what follows it, or NULL, and what is wrong."""
    cdef char c = p[1]
    cdef int code, second
    size[0] = 1
    if c == c'"' or c == c'\\' or c == c'/':
        out[0] = c
    elif c == c'b':
        out[0] = 8
    elif c == c'f':
        out[0] = 12
    elif c == c'n':
        out[0] = 10
    elif c == c'r':
        out[0] = 13
    elif c == c't':
        out[0] = 9
    elif c != c'u':
        problem[0] = "invalid escape code"
        return NULL
    else:
        code = read_hex(p + 2)
        problem[0] = "invalid unicode escape code"
        if code < 0:
            return NULL
        if 0xD800 <= code < 0xE000:
            # The first half of a pair, which the second has to follow.
            if code >= 0xDC00 or p[6] != c'\\' or p[7] != c'u':
                return NULL
            second = read_hex(p + 8)
            if not 0xDC00 <= second < 0xE000:
                return NULL
            size[0] = put_utf8(out, 0x10000 + (<uint32_t>(code - 0xD800) << 10) + <uint32_t>(second - 0xDC00))
            return p + 12
        size[0] = put_utf8(out, <uint32_t>code)
        return p + 6
    return p + 2


cdef inline const char *plain_end(const char *p) noexcept:
    """The end of the characters of a string that stand for themselves."""
    while p[0] != c'"' and p[0] != c'\\' and p[0] != 0:
        p += 1
    return p


cdef const char *read_string(Reading *self, const char *p, bint is_pushed, const char **problem) noexcept:
    """The string whose quote is at p. Returns what follows it; or NULL, what is wrong and, in `at`, where.

    is_pushed  push it; otherwise only look
    """
    cdef const char *stop = plain_end(p + 1)
    cdef char unescaped[4]
    cdef size_t size
    if stop[0] == c'"':
        if is_pushed:
            lua.pushlstring(self.L, p + 1, <size_t>(stop - p - 1))
        return stop + 1
    self.text.size = 0
    p += 1
    while True:
        stop = plain_end(p)
        if is_pushed:
            put(&self.text, p, <size_t>(stop - p))
        if stop[0] == c'"':
            if is_pushed:
                lua.pushlstring(self.L, self.text.data, self.text.size)
            return stop + 1
        if stop[0] == 0:
            problem[0] = "unexpected end of string"
            self.at = stop
            return NULL
        p = read_escape(stop, unescaped, &size, problem)
        if p is NULL:
            self.at = stop
            return NULL
        if is_pushed:
            put(&self.text, unescaped, size)


cdef bint is_irregular(const char *p) noexcept:
    """Whether a number starts here that JSON does not have, but strtod reads."""
    if p[0] == c'+':
        return True
    if p[0] == c'-':
        p += 1
    if p[0] == c'0' and (p[1] == c'x' or p[1] == c'X' or c'0' <= p[1] <= c'9'):
        return True
    return strncasecmp(p, "inf", 3) == 0 or strncasecmp(p, "nan", 3) == 0


cdef const char *read_array(Reading *self, const char *p, int64_t depth) noexcept:
    """The array whose bracket is at p."""
    cdef lua_State *L = self.L
    cdef int count = 0
    lua.createtable(L, 0, 0)
    if self.marks_arrays:
        if not lua.checkstack(L, 2):
            self.problem = "max lua stack reached"
            return NULL
        lua.createtable(L, 0, 1)
        lua.pushboolean(L, True)
        lua.setfield(L, -2, ARRAY_MARK)
        lua.setmetatable(L, -2)
    p = skip_blanks(p + 1)
    if p[0] == c']':
        return p + 1
    while True:
        p = read_value(self, p, depth)
        if p is NULL:
            return NULL
        count += 1
        lua.rawseti(L, -2, count)
        p = skip_blanks(p)
        if p[0] == c']':
            return p + 1
        if p[0] != c',':
            return reject(self, p, "comma or array end")
        p += 1


cdef const char *read_object(Reading *self, const char *p, int64_t depth) noexcept:
    """The object whose brace is at p."""
    cdef lua_State *L = self.L
    cdef const char *problem
    cdef const char *after
    lua.createtable(L, 0, 0)
    p = skip_blanks(p + 1)
    if p[0] == c'}':
        return p + 1
    while True:
        after = read_string(self, p, True, &problem) if p[0] == c'"' else NULL
        if after is NULL:
            return reject(self, p, "object key string")
        p = skip_blanks(after)
        if p[0] != c':':
            return reject(self, p, "colon")
        p = read_value(self, p + 1, depth)
        if p is NULL:
            return NULL
        lua.rawset(L, -3)
        p = skip_blanks(p)
        if p[0] == c'}':
            return p + 1
        if p[0] != c',':
            return reject(self, p, "comma or object end")
        p = skip_blanks(p + 1)


cdef const char *read_value(Reading *self, const char *p, int64_t depth) noexcept:
    """Push the value at p; returns what follows it, or NULL when something is wrong. `depth` tables are open."""
    cdef lua_State *L = self.L
    cdef const char *problem
    cdef const char *after
    cdef char *stop
    cdef double number
    p = skip_blanks(p)
    if p[0] == c'"':
        after = read_string(self, p, True, &problem)
        return after if after is not NULL else reject(self, p, "value")
    if p[0] == c'{' or p[0] == c'[':
        if depth + 1 > self.max_depth or not lua.checkstack(L, 2):
            self.depth = depth + 1
            self.at = p
            return NULL
        return read_object(self, p, depth + 1) if p[0] == c'{' else read_array(self, p, depth + 1)
    if p[0] == c'-' or c'0' <= p[0] <= c'9' or (self.allows_irregular and is_irregular(p)):
        if self.allows_irregular or not is_irregular(p):
            number = strtod(p, &stop)
            if stop != p:
                lua.pushnumber(L, number)
                return stop
    elif stands(p, "true"):
        lua.pushboolean(L, True)
        return p + 4
    elif stands(p, "false"):
        lua.pushboolean(L, False)
        return p + 5
    elif stands(p, "null"):
        lua.pushlightuserdata(L, NULL)
        return p + 4
    return reject(self, p, "value")


cdef inline bint stands(const char *p, const char *word) noexcept:
    """Whether a word stands at p; the zero byte at the end is in none."""
    while word[0] != 0:
        if p[0] != word[0]:
            return False
        p += 1
        word += 1
    return True


cdef const char *name_found(Reading *self) noexcept:
    """What stands at `at`: the name of a token, or what is wrong; `at` is moved to where exactly."""
    cdef const char *p = skip_blanks(self.at)
    cdef const char *problem = NULL
    cdef char *stop
    self.at = p
    if p[0] == 0:
        return "T_END"
    if p[0] == c'[':
        return "T_ARR_BEGIN"
    if p[0] == c']':
        return "T_ARR_END"
    if p[0] == c'{':
        return "T_OBJ_BEGIN"
    if p[0] == c'}':
        return "T_OBJ_END"
    if p[0] == c',':
        return "T_COMMA"
    if p[0] == c':':
        return "T_COLON"
    if p[0] == c'"':
        if read_string(self, p, False, &problem) is NULL:
            return problem
        return "T_STRING"
    if p[0] == c'-' or c'0' <= p[0] <= c'9' or (self.allows_irregular and is_irregular(p)):
        if not self.allows_irregular and is_irregular(p):
            return "invalid number"
        strtod(p, &stop)
        if stop == p:
            return "invalid number"
        return "T_NUMBER"
    if stands(p, "true") or stands(p, "false"):
        return "T_BOOLEAN"
    if stands(p, "null"):
        return "T_NULL"
    return "invalid token"


cdef int read_json(lua_State *L) noexcept:
    """read_json(text, depth, allows_irregular, marks_arrays) -> value; or nil and what is wrong. No value is nil."""
    cdef Reading self
    cdef char said[128]
    cdef const char *p
    cdef const char *found
    cdef size_t length
    self.L = L
    self.start = lua.tolstring(L, 1, &length)
    self.max_depth = <int64_t>lua.tonumber(L, 2)
    self.allows_irregular = lua.toboolean(L, 3)
    self.marks_arrays = lua.toboolean(L, 4)
    self.wanted = NULL
    self.problem = NULL
    lua.settop(L, 1)
    begin(&self.text, L)
    p = read_value(&self, self.start, 0)
    if p is not NULL:
        p = skip_blanks(p)
        if p[0] == 0:
            return 1
        reject(&self, p, "the end")
    if self.problem is not NULL:
        snprintf(said, sizeof(said), "%s", self.problem)
    elif self.wanted is NULL:
        snprintf(
            said, sizeof(said), "Found too many nested data structures (%lld) at character %lld",
            <long long>self.depth, <long long>(self.at - self.start) + 1,
        )
    else:
        found = name_found(&self)
        snprintf(
            said, sizeof(said), "Expected %s but found %s at character %lld", self.wanted, found,
            <long long>(self.at - self.start) + 1,
        )
    lua.settop(L, 0)
    lua.pushnil(L)
    lua.pushlstring(L, said, strlen(said))
    return 2


cdef void open_json(lua_State *L) noexcept:
    """Set the functions in the table on top."""
    set_function(L, "read_json", read_json, NULL)
    set_function(L, "write_json", write_json, NULL)
