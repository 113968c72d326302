# cython: language_level=3
"""Values between Lua and replies. See values.pyx."""

from streamd.protocol.reply cimport ReplyWriter
from streamd.scripting.lua cimport lua_State


cdef enum:
    IS_ERROR = 1            # what was written is an error ...
    IS_COUNTED = 2          # ... that has been counted


cdef const char *push_reply(lua_State *L, const char *p) noexcept nogil
cdef int push_error(lua_State *L, const char *text, size_t length, bint is_counted) noexcept nogil
cdef int write_reply_value(lua_State *L, ReplyWriter reply, bint has_booleans, list errors, size_t limit) except -1
cdef bytes number_text(double number)
cdef bytes get_text(lua_State *L, int index)
