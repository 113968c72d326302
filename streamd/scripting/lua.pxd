# cython: language_level=3
"""Lua 5.1 as C sees it. See lua.pyx."""

cdef extern from *:
    """
    typedef struct lua_State lua_State;
    typedef int (*lua_CFunction)(lua_State *);
    typedef void *(*lua_Alloc)(void *, void *, size_t, size_t);
    /* Lua's own layout, with room to spare behind it. */
    typedef struct {
        int event;
        const char *name, *namewhat, *what, *source;
        int currentline, upvalues, linedefined, lastlinedefined;
        char rest[256];
    } lua_Debug;
    typedef void (*lua_Hook)(lua_State *, lua_Debug *);
    typedef const char *(*lua_Reader)(lua_State *, void *, size_t *);
    typedef int (*lua_Writer)(lua_State *, const void *, size_t, void *);
    """
    ctypedef struct lua_State:
        pass
    ctypedef int (*lua_CFunction)(lua_State *) noexcept
    ctypedef void *(*lua_Alloc)(void *, void *, size_t, size_t) noexcept
    ctypedef struct lua_Debug:
        const char *name
        const char *what
        const char *source
        int currentline
    ctypedef void (*lua_Hook)(lua_State *, lua_Debug *) noexcept
    ctypedef const char *(*lua_Reader)(lua_State *, void *, size_t *) noexcept
    ctypedef int (*lua_Writer)(lua_State *, const void *, size_t, void *) noexcept


cdef enum:
    LUA_REGISTRYINDEX = -10000
    LUA_GLOBALSINDEX = -10002
    LUA_MULTRET = -1


cdef enum LuaType:
    LUA_TNONE = -1
    LUA_TNIL
    LUA_TBOOLEAN
    LUA_TLIGHTUSERDATA
    LUA_TNUMBER
    LUA_TSTRING
    LUA_TTABLE
    LUA_TFUNCTION


cdef enum LuaStatus:
    LUA_ERRRUN = 2
    LUA_ERRSYNTAX = 3
    LUA_ERRMEM = 4
    LUA_ERRERR = 5


cdef enum LuaHookMask:
    LUA_MASKLINE = 4
    LUA_MASKCOUNT = 8


cdef enum LuaCollector:
    LUA_GCSTOP = 0
    LUA_GCRESTART = 1
    LUA_GCCOLLECT = 2
    LUA_GCSTEP = 5


cdef struct Lua:
    # The functions of the library, each with the name that it has there less its prefix.
    lua_State *(*newstate)(lua_Alloc allocate, void *ud) noexcept nogil
    void (*close)(lua_State *L) noexcept nogil
    void *(*atpanic)(lua_State *L, lua_CFunction panic) noexcept nogil
    int (*gettop)(lua_State *L) noexcept nogil
    void (*settop)(lua_State *L, int index) noexcept nogil
    void (*pushvalue)(lua_State *L, int index) noexcept nogil
    void (*remove)(lua_State *L, int index) noexcept nogil
    void (*insert)(lua_State *L, int index) noexcept nogil
    void (*replace)(lua_State *L, int index) noexcept nogil
    int (*checkstack)(lua_State *L, int size) noexcept nogil
    void (*xmove)(lua_State *source, lua_State *target, int n) noexcept nogil
    int (*type)(lua_State *L, int index) noexcept nogil
    const char *(*typename)(lua_State *L, int type) noexcept nogil
    int (*isnumber)(lua_State *L, int index) noexcept nogil
    int (*isstring)(lua_State *L, int index) noexcept nogil
    int (*rawequal)(lua_State *L, int index, int other) noexcept nogil
    size_t (*objlen)(lua_State *L, int index) noexcept nogil
    double (*tonumber)(lua_State *L, int index) noexcept nogil
    ptrdiff_t (*tointeger)(lua_State *L, int index) noexcept nogil
    int (*toboolean)(lua_State *L, int index) noexcept nogil
    const char *(*tolstring)(lua_State *L, int index, size_t *length) noexcept nogil
    lua_CFunction (*tocfunction)(lua_State *L, int index) noexcept nogil
    void *(*touserdata)(lua_State *L, int index) noexcept nogil
    lua_State *(*tothread)(lua_State *L, int index) noexcept nogil
    const char *(*getupvalue)(lua_State *L, int function, int n) noexcept nogil
    void *(*newuserdata)(lua_State *L, size_t size) noexcept nogil
    void (*pushnil)(lua_State *L) noexcept nogil
    void (*pushnumber)(lua_State *L, double number) noexcept nogil
    void (*pushlstring)(lua_State *L, const char *text, size_t length) noexcept nogil
    void (*pushcclosure)(lua_State *L, lua_CFunction function, int upvalues) noexcept nogil
    void (*pushboolean)(lua_State *L, int value) noexcept nogil
    void (*pushlightuserdata)(lua_State *L, void *pointer) noexcept nogil
    void (*gettable)(lua_State *L, int index) noexcept nogil
    void (*getfield)(lua_State *L, int index, const char *name) noexcept nogil
    void (*rawget)(lua_State *L, int index) noexcept nogil
    void (*rawgeti)(lua_State *L, int index, int n) noexcept nogil
    void (*createtable)(lua_State *L, int items, int fields) noexcept nogil
    int (*getmetatable)(lua_State *L, int index) noexcept nogil
    void (*setfield)(lua_State *L, int index, const char *name) noexcept nogil
    void (*rawset)(lua_State *L, int index) noexcept nogil
    void (*rawseti)(lua_State *L, int index, int n) noexcept nogil
    int (*setmetatable)(lua_State *L, int index) noexcept nogil
    void (*call)(lua_State *L, int arguments, int results) noexcept nogil
    int (*pcall)(lua_State *L, int arguments, int results, int handler) noexcept nogil
    int (*cpcall)(lua_State *L, lua_CFunction function, void *ud) noexcept nogil
    int (*gc)(lua_State *L, int what, int data) noexcept nogil
    int (*error)(lua_State *L) noexcept nogil
    int (*next)(lua_State *L, int index) noexcept nogil
    void (*concat)(lua_State *L, int n) noexcept nogil
    int (*sethook)(lua_State *L, lua_Hook hook, int mask, int count) noexcept nogil
    lua_Hook (*gethook)(lua_State *L) noexcept nogil
    int (*getstack)(lua_State *L, int level, lua_Debug *frame) noexcept nogil
    int (*getinfo)(lua_State *L, const char *what, lua_Debug *frame) noexcept nogil
    void (*openlibs)(lua_State *L) noexcept nogil
    int (*dump)(lua_State *L, lua_Writer write, void *ud) noexcept nogil
    int (*load)(lua_State *L, lua_Reader read, void *ud, const char *name) noexcept nogil
    int (*loadbuffer)(lua_State *L, const char *code, size_t length, const char *name) noexcept nogil
    int (*ref)(lua_State *L, int index) noexcept nogil
    void (*unref)(lua_State *L, int index, int ref) noexcept nogil
    void (*checkany)(lua_State *L, int argument) noexcept nogil
    void (*checktype)(lua_State *L, int argument, int type) noexcept nogil
    const char *(*checklstring)(lua_State *L, int argument, size_t *length) noexcept nogil
    const char *(*optlstring)(lua_State *L, int argument, const char *otherwise, size_t *length) noexcept nogil
    void (*where)(lua_State *L, int level) noexcept nogil


cdef Lua lua    # valid after `load_lua`


cpdef int load_lua() except -1


cdef inline int upvalue(int n) noexcept nogil:
    """The index of an upvalue of the running C function, from 1."""
    return LUA_GLOBALSINDEX - n


cdef inline void pop(lua_State *L, int n) noexcept nogil:
    """Take values off the stack."""
    lua.settop(L, -n - 1)
