# cython: language_level=3
"""lua: the functions of Lua 5.1, taken from the library that the package lupa carries.

lupa wraps Lua for Python programs, and its wheels bring the interpreter itself, whose functions its module exports as
a Lua library does (extension modules for Lua need them). streamd calls those functions and nothing of lupa's own: a
script cannot reach Python, because nothing of Python is ever put into its world, and a call from Lua to a command
costs no more than a call in C.

A Lua error is a `longjmp` to the nearest protected call. Code between the two is skipped, so no function that may
raise one is called while a reference to a Python object is held.
"""

from posix.dlfcn cimport RTLD_LAZY, dlopen, dlsym

from importlib import import_module

from streamd.errors import CommandError

__all__ = ["load_lua"]

ABSENT = "ERR Scripts need the Python packages lupa (Lua 5.1) and greenlet, which this server does not have"


cdef int find(void *library, const char *name, void **function) except -1:
    """Look up one function of the library."""
    function[0] = dlsym(library, name)
    if function[0] is NULL:
        raise CommandError(ABSENT)
    return 0


cpdef int load_lua() except -1:
    """Find the interpreter; a second call does nothing. Raises CommandError if there is none."""
    cdef void *library
    if lua.newstate is not NULL:
        return 0
    try:
        import_module("greenlet")   # for the stage on which they run
        library_file = import_module("lupa.lua51").__file__
    except ImportError as error:
        raise CommandError(ABSENT) from error
    library = dlopen(library_file.encode(), RTLD_LAZY)
    if library is NULL:
        raise CommandError(ABSENT)
    find(library, b"lua_close", <void **>&lua.close)
    find(library, b"lua_atpanic", <void **>&lua.atpanic)
    find(library, b"lua_gettop", <void **>&lua.gettop)
    find(library, b"lua_settop", <void **>&lua.settop)
    find(library, b"lua_pushvalue", <void **>&lua.pushvalue)
    find(library, b"lua_remove", <void **>&lua.remove)
    find(library, b"lua_insert", <void **>&lua.insert)
    find(library, b"lua_replace", <void **>&lua.replace)
    find(library, b"lua_checkstack", <void **>&lua.checkstack)
    find(library, b"lua_xmove", <void **>&lua.xmove)
    find(library, b"lua_type", <void **>&lua.type)
    find(library, b"lua_typename", <void **>&lua.typename)
    find(library, b"lua_isnumber", <void **>&lua.isnumber)
    find(library, b"lua_isstring", <void **>&lua.isstring)
    find(library, b"lua_rawequal", <void **>&lua.rawequal)
    find(library, b"lua_objlen", <void **>&lua.objlen)
    find(library, b"lua_tonumber", <void **>&lua.tonumber)
    find(library, b"lua_tointeger", <void **>&lua.tointeger)
    find(library, b"lua_toboolean", <void **>&lua.toboolean)
    find(library, b"lua_tolstring", <void **>&lua.tolstring)
    find(library, b"lua_tocfunction", <void **>&lua.tocfunction)
    find(library, b"lua_touserdata", <void **>&lua.touserdata)
    find(library, b"lua_tothread", <void **>&lua.tothread)
    find(library, b"lua_getupvalue", <void **>&lua.getupvalue)
    find(library, b"lua_newuserdata", <void **>&lua.newuserdata)
    find(library, b"lua_pushnil", <void **>&lua.pushnil)
    find(library, b"lua_pushnumber", <void **>&lua.pushnumber)
    find(library, b"lua_pushlstring", <void **>&lua.pushlstring)
    find(library, b"lua_pushcclosure", <void **>&lua.pushcclosure)
    find(library, b"lua_pushboolean", <void **>&lua.pushboolean)
    find(library, b"lua_pushlightuserdata", <void **>&lua.pushlightuserdata)
    find(library, b"lua_gettable", <void **>&lua.gettable)
    find(library, b"lua_getfield", <void **>&lua.getfield)
    find(library, b"lua_rawget", <void **>&lua.rawget)
    find(library, b"lua_rawgeti", <void **>&lua.rawgeti)
    find(library, b"lua_createtable", <void **>&lua.createtable)
    find(library, b"lua_getmetatable", <void **>&lua.getmetatable)
    find(library, b"lua_setfield", <void **>&lua.setfield)
    find(library, b"lua_rawset", <void **>&lua.rawset)
    find(library, b"lua_rawseti", <void **>&lua.rawseti)
    find(library, b"lua_setmetatable", <void **>&lua.setmetatable)
    find(library, b"lua_call", <void **>&lua.call)
    find(library, b"lua_pcall", <void **>&lua.pcall)
    find(library, b"lua_cpcall", <void **>&lua.cpcall)
    find(library, b"lua_gc", <void **>&lua.gc)
    find(library, b"lua_error", <void **>&lua.error)
    find(library, b"lua_next", <void **>&lua.next)
    find(library, b"lua_concat", <void **>&lua.concat)
    find(library, b"lua_sethook", <void **>&lua.sethook)
    find(library, b"lua_gethook", <void **>&lua.gethook)
    find(library, b"lua_getstack", <void **>&lua.getstack)
    find(library, b"lua_getinfo", <void **>&lua.getinfo)
    find(library, b"luaL_openlibs", <void **>&lua.openlibs)
    find(library, b"lua_dump", <void **>&lua.dump)
    find(library, b"lua_load", <void **>&lua.load)
    find(library, b"luaL_loadbuffer", <void **>&lua.loadbuffer)
    find(library, b"luaL_ref", <void **>&lua.ref)
    find(library, b"luaL_unref", <void **>&lua.unref)
    find(library, b"luaL_checkany", <void **>&lua.checkany)
    find(library, b"luaL_checktype", <void **>&lua.checktype)
    find(library, b"luaL_checklstring", <void **>&lua.checklstring)
    find(library, b"luaL_optlstring", <void **>&lua.optlstring)
    find(library, b"luaL_where", <void **>&lua.where)
    find(library, b"lua_newstate", <void **>&lua.newstate)
    return 0
