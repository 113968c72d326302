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

from libc.string cimport memchr

from streamd.scripting.lua cimport (
    LUA_GLOBALSINDEX, LUA_MULTRET, LUA_REGISTRYINDEX, LUA_TFUNCTION, LUA_TNIL, LUA_TSTRING, LUA_TTABLE, lua,
    lua_CFunction, lua_State, pop, upvalue,
)

cdef enum:
    MOST_REPETITIONS = 5000     # in a pattern; Lua 5.1 itself has no limit, and ends the process

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


cdef int match_pattern(lua_State *L) noexcept:
    """A function that matches a pattern, argument 2. Upvalue 1: Lua's own, which recurses for each repetition."""
    cdef size_t length, at, repetitions = 0
    cdef const char *pattern
    if lua.type(L, 2) == LUA_TSTRING and lua.objlen(L, 2) > MOST_REPETITIONS:
        pattern = lua.tolstring(L, 2, &length)
        for at in range(length):
            repetitions += pattern[at] == c'?' or pattern[at] == c'*' or pattern[at] == c'+' or pattern[at] == c'-'
        if repetitions > MOST_REPETITIONS and not lua.toboolean(L, 4):
            return raise_text(L, "pattern too complex", True)
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


cdef int call_closed(lua_State *L) noexcept:
    """A function in C that stands for one in Lua: upvalue 1."""
    lua.pushvalue(L, upvalue(1))
    lua.insert(L, 1)
    lua.call(L, lua.gettop(L) - 1, LUA_MULTRET)
    return lua.gettop(L)


cdef int closure(lua_State *L) noexcept:
    return wrap(L, call_closed)


cdef int matching(lua_State *L) noexcept:
    return wrap(L, match_pattern)


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


cdef int compile_text(lua_State *L, const char *code, size_t length, const char *name) noexcept:
    """Compile text; bytecode becomes a syntax error. Returns a function, or nil and a message."""
    if length and code[0] == 27:
        lua.pushlstring(L, " ", 1)
        lua.pushlstring(L, code, length)
        lua.concat(L, 2)
        code = lua.tolstring(L, -1, &length)
    if lua.loadbuffer(L, code, length, name) == 0:
        return 1
    lua.pushnil(L)
    lua.insert(L, -2)
    return 2


cdef int load_string(lua_State *L) noexcept:
    """loadstring(code [, name])"""
    cdef size_t length
    cdef const char *code = lua.checklstring(L, 1, &length)
    return compile_text(L, code, length, lua.optlstring(L, 2, code, NULL))


cdef int load_pieces(lua_State *L) noexcept:
    """load(function [, name]): the code in pieces, until there is none"""
    cdef size_t length
    cdef const char *name = lua.optlstring(L, 2, "=(load)", NULL)
    cdef const char *code
    lua.checktype(L, 1, LUA_TFUNCTION)
    lua.settop(L, 2)
    lua.pushlstring(L, "", 0)
    while True:
        lua.pushvalue(L, 1)
        if lua.pcall(L, 0, 1, 0):
            lua.pushnil(L)
            lua.insert(L, -2)
            return 2
        if lua.type(L, -1) == LUA_TNIL:
            break
        if not lua.isstring(L, -1):
            lua.pushnil(L)
            lua.pushlstring(L, "reader function must return a string", 36)
            return 2
        lua.tolstring(L, -1, &length)
        if length == 0:
            break
        lua.concat(L, 2)
    pop(L, 1)
    code = lua.tolstring(L, -1, &length)
    return compile_text(L, code, length, name)


cdef void open_sandbox(lua_State *L) noexcept:
    """Set the fields of the table on top that sandbox.lua needs."""
    set_function(L, "protect", protect, NULL)
    set_function(L, "find_global", find_global, NULL)
    set_function(L, "use_globals", use_globals, NULL)
    set_function(L, "reading", reading, NULL)
    set_function(L, "changing", changing, NULL)
    set_function(L, "closure", closure, NULL)
    set_function(L, "matching", matching, NULL)
    set_function(L, "make_pairs", make_pairs, NULL)
    set_function(L, "getmetatable", get_metatable, NULL)
    set_function(L, "pcall", protected_call, NULL)
    set_function(L, "loadstring", load_string, NULL)
    set_function(L, "load", load_pieces, NULL)
    lua.pushlightuserdata(L, NULL)
    lua.setfield(L, -2, "null")
