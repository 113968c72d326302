# cython: language_level=3, boundscheck=False, wraparound=False
"""Sandbox: Lua's basic functions as scripts may have them.

**Read-only tables.** Globals and libraries must not be changed, and Lua 5.1 has no tables that cannot be. Each is an
empty table that stands for the real one (`protect`): reading goes through the `__index` of its metatable, writing
raises an error, and the metatable holds the real table under an address that no script can name. The functions below
see through it: `next`, `pairs`, `rawget` read the real table; `rawset`, `setmetatable`, `table.insert` raise the error.

**Code.** `load` and `loadstring` compile text only, never what `string.dump` returns.

**Errors.** `pcall` returns the text of an error that is a table with a field `err`.

All are C functions, as Lua's are: they leave no frame of Lua where an error looks for its line. sandbox.lua puts them
in place.
"""

from libc.limits cimport INT_MAX
from libc.stdint cimport int64_t
from libc.string cimport memchr, strcmp, strlen

from streamd.scripting.lua cimport (
    LUA_GLOBALSINDEX, LUA_MULTRET, LUA_REGISTRYINDEX, LUA_TFUNCTION, LUA_TNIL, LUA_TSTRING, LUA_TTABLE, lua,
    lua_CFunction, lua_Hook, lua_State, pop, upvalue,
)

cdef enum:
    MOST_REPETITIONS = 5000     # in a pattern; Lua 5.1 itself has no limit, and ends the process
    MOST_MOVED = 1 << 20        # items of a table that are not there
    LEAST_PACE = 100            # of the garbage collector, in percent
    MOST_PACE = 1000
    LONG_TEXT = 1000            # bytes

cdef enum:
    BYTECODE = 27   # the first byte of what string.dump returns

cdef char MARK = 0      # its address is the key of the real table in the metatable of the one that stands for it

cdef const char *READ_ONLY_TEXT = "Attempt to modify a readonly table"


cdef void set_function(lua_State *L, const char *name, lua_CFunction function, void *context) noexcept:
    """Set a field of the table on top to a C function, whose first upvalue is a pointer."""
    lua.pushlightuserdata(L, context)
    lua.pushcclosure(L, function, 1)
    lua.setfield(L, -2, name)


cdef bint push_real(lua_State *L, int index) noexcept:
    """If a table stands for another one, push that one."""
    if lua.type(L, index) != LUA_TTABLE or not lua.getmetatable(L, index):
        return False
    lua.pushlightuserdata(L, &MARK)
    lua.rawget(L, -2)
    lua.remove(L, -2)
    if lua.type(L, -1) == LUA_TTABLE:
        return True
    pop(L, 1)
    return False


cdef int raise_text(lua_State *L, const char *text, bint with_place) noexcept:
    """Raise an error, with the place of the caller before it."""
    cdef size_t length = <size_t>(<const char *>memchr(text, 0, 4096) - text)
    if with_place:
        lua.where(L, 1)
    lua.pushlstring(L, text, length)
    if with_place:
        lua.concat(L, 2)
    return lua.error(L)


cdef int refuse_change(lua_State *L) noexcept:
    """`__newindex` of a protected table."""
    return raise_text(L, READ_ONLY_TEXT, True)


cdef int protect(lua_State *L) noexcept:
    """protect(real [, shown]) -> a table that stands for `real`; `getmetatable` returns `shown` for it."""
    lua.settop(L, 2)
    lua.createtable(L, 0, 0)
    lua.createtable(L, 0, 4)
    lua.pushvalue(L, 1)
    lua.setfield(L, -2, "__index")
    lua.pushlightuserdata(L, NULL)
    lua.pushcclosure(L, refuse_change, 1)
    lua.setfield(L, -2, "__newindex")
    lua.pushvalue(L, 2)
    lua.setfield(L, -2, "__metatable")
    lua.pushlightuserdata(L, &MARK)
    lua.pushvalue(L, 1)
    lua.rawset(L, -3)
    lua.setmetatable(L, -2)
    return 1


cdef void aim_globals(lua_State *L, int reference) noexcept:
    """Let what stands for the globals stand for another table."""
    lua.pushvalue(L, LUA_GLOBALSINDEX)
    lua.getmetatable(L, -1)
    lua.rawgeti(L, LUA_REGISTRYINDEX, reference)
    lua.pushlightuserdata(L, &MARK)
    lua.pushvalue(L, -2)
    lua.rawset(L, -4)
    lua.setfield(L, -2, "__index")
    pop(L, 2)


cdef int find_global(lua_State *L) noexcept:
    """`__index` of the globals: what is not there."""
    lua.where(L, 1)
    lua.pushlstring(L, "Script attempted to access nonexistent global variable '", 56)
    if lua.type(L, 2) == LUA_TSTRING:
        lua.pushvalue(L, 2)
    else:
        lua.pushlstring(L, "?", 1)
    lua.pushlstring(L, "'", 1)
    lua.concat(L, 4)
    return lua.error(L)


cdef int use_globals(lua_State *L) noexcept:
    """use_globals(table): what is compiled from now on has this table as its globals."""
    lua.pushvalue(L, 1)
    lua.replace(L, LUA_GLOBALSINDEX)
    return 0


# --- Functions of Lua, with a look at their first argument ----------------------------------------------------------


cdef int see_through(lua_State *L) noexcept:
    """A function that reads a table. Upvalue 1: Lua's own."""
    if push_real(L, 1):
        lua.replace(L, 1)
    return lua.tocfunction(L, upvalue(1))(L)


cdef int guard(lua_State *L) noexcept:
    """A function that changes a table. Upvalue 1: Lua's own."""
    if push_real(L, 1):
        return raise_text(L, READ_ONLY_TEXT, False)
    return lua.tocfunction(L, upvalue(1))(L)


cdef bint is_too_complex(lua_State *L) noexcept:
    """Whether argument 2 is a pattern that would overflow the stack of C: Lua recurses for each repetition."""
    cdef size_t length, at, repetitions = 0
    cdef const char *pattern
    if lua.type(L, 2) != LUA_TSTRING or lua.objlen(L, 2) <= MOST_REPETITIONS:
        return False
    pattern = lua.tolstring(L, 2, &length)
    for at in range(length):
        repetitions += pattern[at] == c'?' or pattern[at] == c'*' or pattern[at] == c'+' or pattern[at] == c'-'
    return repetitions > MOST_REPETITIONS


cdef void look(lua_State *L) noexcept:
    """Look at the clock now: a script may spend its time in calls that are few instructions. May raise a Lua error."""
    cdef lua_Hook hook = lua.gethook(L)
    if hook is not NULL:
        hook(L, NULL)


cdef void look_if_long(lua_State *L) noexcept:
    """The same, if argument 1 is a long string."""
    if lua.type(L, 1) == LUA_TSTRING and lua.objlen(L, 1) >= LONG_TEXT:
        look(L)


cdef int match_pattern(lua_State *L) noexcept:
    """A function that matches a pattern, argument 2. Upvalue 1: Lua's own."""
    look_if_long(L)
    if is_too_complex(L):
        return raise_text(L, "pattern too complex", True)
    return lua.tocfunction(L, upvalue(1))(L)


cdef int find_pattern(lua_State *L) noexcept:
    """string.find, whose argument 4 says that the pattern is plain text. Upvalue 1: Lua's own."""
    look_if_long(L)
    if is_too_complex(L) and not lua.toboolean(L, 4):
        return raise_text(L, "pattern too complex", True)
    return lua.tocfunction(L, upvalue(1))(L)


cdef int unpack(lua_State *L) noexcept:
    """unpack(table [, first [, last]]). Upvalue 1: Lua's own, which overflows when it counts the results."""
    cdef int64_t first = 1, last
    if lua.type(L, 1) == LUA_TTABLE:
        if lua.isnumber(L, 2):
            first = <int>lua.tointeger(L, 2)
        last = <int>lua.tointeger(L, 3) if lua.isnumber(L, 3) else <int>lua.objlen(L, 1)
        if last - first >= INT_MAX - 1:
            return raise_text(L, "too many results to unpack", True)
    return lua.tocfunction(L, upvalue(1))(L)


cdef int repeat(lua_State *L) noexcept:
    """string.rep. Upvalue 1: Lua's own, which appends an empty string as often as any other."""
    if lua.type(L, 1) == LUA_TSTRING and lua.objlen(L, 1) == 0 and lua.isnumber(L, 2):
        lua.settop(L, 1)
        return 1
    return lua.tocfunction(L, upvalue(1))(L)


cdef int insert(lua_State *L) noexcept:
    """table.insert. Upvalue 1: Lua's own, which moves what is not there, too, maybe for minutes."""
    if push_real(L, 1):
        return raise_text(L, READ_ONLY_TEXT, False)
    if lua.gettop(L) == 3 and lua.isnumber(L, 2) and <int>lua.tointeger(L, 2) < -MOST_MOVED:
        return raise_text(L, "bad argument #2 to 'insert' (position out of bounds)", True)
    return lua.tocfunction(L, upvalue(1))(L)


cdef int collect_garbage(lua_State *L) noexcept:
    """collectgarbage([option [, number]]). Upvalue 1: Lua's own, which can be told to collect all again and again.

    Its settings also apply to later scripts.
    """
    cdef const char *option = lua.optlstring(L, 1, "", NULL)
    look(L)
    if lua.isnumber(L, 2) and (strcmp(option, "setpause") == 0 or strcmp(option, "setstepmul") == 0):
        lua.pushnumber(L, min(max(<int>lua.tointeger(L, 2), LEAST_PACE), MOST_PACE))
        lua.replace(L, 2)
    return lua.tocfunction(L, upvalue(1))(L)


cdef int wrap(lua_State *L, lua_CFunction function) noexcept:
    """wrap(function) -> a C function with Lua's own one as its upvalue."""
    lua.settop(L, 1)
    lua.pushcclosure(L, function, 1)
    return 1


cdef int reading(lua_State *L) noexcept:
    return wrap(L, see_through)


cdef int changing(lua_State *L) noexcept:
    return wrap(L, guard)


cdef int call_deferred(lua_State *L) noexcept:
    """A function in C that stands for one in Lua. Upvalues: `deferred`'s, and the function after the first call."""
    if lua.type(L, upvalue(3)) == LUA_TNIL:
        lua.pushvalue(L, upvalue(1))
        lua.call(L, 0, 1)
        lua.pushvalue(L, upvalue(2))
        lua.gettable(L, -2)
        lua.replace(L, upvalue(3))
        pop(L, 1)
    lua.pushvalue(L, upvalue(3))
    lua.insert(L, 1)
    lua.call(L, lua.gettop(L) - 1, LUA_MULTRET)
    return lua.gettop(L)


cdef int deferred(lua_State *L) noexcept:
    """deferred(load, key) -> a C function that calls field `key` of the table that `load` returns"""
    lua.settop(L, 3)
    lua.pushcclosure(L, call_deferred, 3)
    return 1


cdef int matching(lua_State *L) noexcept:
    return wrap(L, match_pattern)


cdef int finding(lua_State *L) noexcept:
    return wrap(L, find_pattern)


cdef int unpacking(lua_State *L) noexcept:
    return wrap(L, unpack)


cdef int repeating(lua_State *L) noexcept:
    return wrap(L, repeat)


cdef int inserting(lua_State *L) noexcept:
    return wrap(L, insert)


cdef int collecting(lua_State *L) noexcept:
    return wrap(L, collect_garbage)


cdef int make_pairs(lua_State *L) noexcept:
    """make_pairs(next) -> pairs"""
    return wrap(L, pairs)


cdef int pairs(lua_State *L) noexcept:
    lua.checktype(L, 1, LUA_TTABLE)
    lua.pushvalue(L, upvalue(1))
    lua.pushvalue(L, 1)
    lua.pushnil(L)
    return 3


cdef int get_metatable(lua_State *L) noexcept:
    """getmetatable, which shows of a protected table what `protect` was given."""
    cdef bint is_protected = push_real(L, 1)
    lua.checkany(L, 1)
    if not lua.getmetatable(L, 1):
        lua.pushnil(L)
        return 1
    lua.pushlstring(L, "__metatable", 11)
    lua.rawget(L, -2)
    if lua.type(L, -1) == LUA_TNIL and not is_protected:
        pop(L, 1)
    return 1


cdef int protected_call(lua_State *L) noexcept:
    """pcall"""
    cdef int status
    if lua.gettop(L) == 0:
        lua.pushboolean(L, True)    # what Redis tries to call then
    status = lua.pcall(L, lua.gettop(L) - 1, LUA_MULTRET, 0)
    lua.pushboolean(L, status == 0)
    lua.insert(L, 1)
    if status and lua.type(L, -1) == LUA_TTABLE:
        lua.pushlstring(L, "err", 3)
        lua.rawget(L, -2)
        if lua.isstring(L, -1):
            lua.remove(L, -2)
        else:
            pop(L, 1)
    return lua.gettop(L)


cdef int finish_load(lua_State *L, int status) noexcept:
    """The results of `load`: the function on top, or nil and the message on top."""
    if status == 0:
        return 1
    lua.pushnil(L)
    lua.insert(L, -2)
    return 2


cdef void hold_name(lua_State *L, const char *name) noexcept:
    """Push the string that Lua makes of a chunk's name, up to a byte 0: nothing else holds it at first."""
    lua.pushlstring(L, name, strlen(name))


cdef void push_as_text(lua_State *L, int index) noexcept:
    """Push code so that bytecode is read as text, in which it is a syntax error."""
    lua.pushlstring(L, " ", 1)
    lua.pushvalue(L, index)
    lua.concat(L, 2)


cdef int load_string(lua_State *L) noexcept:
    """loadstring(code [, name])"""
    cdef size_t length
    cdef const char *code = lua.checklstring(L, 1, &length)
    cdef const char *name = lua.optlstring(L, 2, code, NULL)
    hold_name(L, name)
    if length and code[0] == BYTECODE:
        push_as_text(L, 1)
        code = lua.tolstring(L, -1, &length)
    return finish_load(L, lua.loadbuffer(L, code, length, name))


cdef int load_pieces(lua_State *L) noexcept:
    """load(function [, name]): the code in pieces, until there is none"""
    cdef bint is_first = True
    cdef const char *name = lua.optlstring(L, 2, "=(load)", NULL)
    lua.checktype(L, 1, LUA_TFUNCTION)
    lua.settop(L, 3)
    hold_name(L, name)
    return finish_load(L, lua.load(L, read_piece, &is_first, name))


cdef const char *read_piece(lua_State *L, void *is_first, size_t *length) noexcept:
    """The next piece, from the function at the bottom of the stack; it stays in the third place while Lua reads it."""
    cdef const char *piece
    look(L)     # the function may be one in C, and its text endless
    if not lua.checkstack(L, 3):
        raise_text(L, "too many nested functions", True)
    lua.pushvalue(L, 1)
    lua.call(L, 0, 1)
    if lua.type(L, -1) == LUA_TNIL:
        pop(L, 1)
        return NULL
    if not lua.isstring(L, -1):
        raise_text(L, "reader function must return a string", True)
    piece = lua.tolstring(L, -1, length)
    if (<bint *>is_first)[0] and length[0] and piece[0] == BYTECODE:
        push_as_text(L, lua.gettop(L))
        lua.remove(L, -2)
    (<bint *>is_first)[0] = False
    lua.replace(L, 3)
    return lua.tolstring(L, 3, length)


cdef void open_sandbox(lua_State *L) noexcept:
    """Set the fields of the table on top that sandbox.lua needs."""
    set_function(L, "protect", protect, NULL)
    set_function(L, "find_global", find_global, NULL)
    set_function(L, "use_globals", use_globals, NULL)
    set_function(L, "reading", reading, NULL)
    set_function(L, "changing", changing, NULL)
    set_function(L, "deferred", deferred, NULL)
    set_function(L, "matching", matching, NULL)
    set_function(L, "finding", finding, NULL)
    set_function(L, "unpacking", unpacking, NULL)
    set_function(L, "repeating", repeating, NULL)
    set_function(L, "inserting", inserting, NULL)
    set_function(L, "collecting", collecting, NULL)
    set_function(L, "make_pairs", make_pairs, NULL)
    set_function(L, "getmetatable", get_metatable, NULL)
    set_function(L, "pcall", protected_call, NULL)
    set_function(L, "loadstring", load_string, NULL)
    set_function(L, "load", load_pieces, NULL)
    lua.pushlightuserdata(L, NULL)
    lua.setfield(L, -2, "null")
