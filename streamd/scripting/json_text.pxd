# cython: language_level=3
"""JSON to values of Lua and back. See json_text.pyx."""

from streamd.scripting.lua cimport lua_State


cdef void open_json(lua_State *L) noexcept
