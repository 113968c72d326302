# cython: language_level=3
"""What a script finds instead of Lua's own functions. See sandbox.pyx."""

from streamd.scripting.lua cimport lua_CFunction, lua_State


cdef void set_function(lua_State *L, const char *name, lua_CFunction function, void *context) noexcept
cdef void open_sandbox(lua_State *L) noexcept
cdef void look(lua_State *L) noexcept
cdef void aim_globals(lua_State *L, int reference) noexcept
