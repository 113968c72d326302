# cython: language_level=3, boundscheck=False, wraparound=False
"""Conversions: from the reply to a command to values of Lua, and from what a script returns to its reply.

What a reply becomes depends on the protocol in which it was written (`redis.setresp`): in RESP2, null is `false`; in
RESP3, it is `nil`, and types that Lua lacks become tables with one field that names the type.

Replies are read where the writer has them. They come from handlers of this server, so they are well formed.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.math cimport isnan, signbit
from libc.stdint cimport INT64_MIN, int64_t
from libc.stdlib cimport strtod

from streamd.errors import CommandError
from streamd.protocol.reply cimport ReplyWriter, format_double
from streamd.scripting.lua cimport (
    LUA_TBOOLEAN, LUA_TNIL, LUA_TNUMBER, LUA_TSTRING, LUA_TTABLE, lua, lua_State, pop,
)

cdef enum:
    SLOTS = 8       # of Lua's stack, that a level of a value needs
    LEAST_SLOTS = 4


# --- Replies to Lua -------------------------------------------------------------------------------------------------


cdef int64_t read_number(const char **p) noexcept nogil:
    """The digits up to the end of the line, which is skipped."""
    cdef const char *at = p[0]
    cdef bint is_negative = at[0] == c'-'
    cdef int64_t number = 0
    if is_negative:
        at += 1
    while at[0] != c'\r':
        number = number * 10 + (at[0] - c'0')
        at += 1
    p[0] = at + 2
    return -number if is_negative else number


cdef inline const char *line_end(const char *p) noexcept nogil:
    while p[0] != c'\r':
        p += 1
    return p


cdef void set_text(lua_State *L, const char *name, const char *text, size_t length) noexcept nogil:
    """Set a field of the table on top."""
    lua.pushlstring(L, text, length)
    lua.setfield(L, -2, name)


cdef int push_error(lua_State *L, const char *text, size_t length, bint is_counted) noexcept nogil:
    """Push the table of an error."""
    lua.createtable(L, 0, 2)
    set_text(L, "err", text, length)
    if is_counted:
        lua.pushboolean(L, True)
        lua.setfield(L, -2, "ignore_error_stats_update")
    return 1


cdef const char *push_reply(lua_State *L, const char *p) noexcept nogil:
    """Push the value of the reply at `p`; returns what follows it. May raise a Lua error."""
    cdef char kind = p[0]
    cdef const char *end
    cdef int64_t size, i
    p += 1
    if kind == c'$':
        size = read_number(&p)
        if size < 0:
            lua.pushboolean(L, False)
            return p
        lua.pushlstring(L, p, <size_t>size)
        return p + size + 2
    if kind == c':':
        lua.pushnumber(L, <double>read_number(&p))
        return p
    if kind == c'*':
        size = read_number(&p)
        if size < 0:
            lua.pushboolean(L, False)
            return p
        lua.checkstack(L, SLOTS)
        lua.createtable(L, <int>size, 0)
        for i in range(size):
            p = push_reply(L, p)
            lua.rawseti(L, -2, <int>(i + 1))
        return p
    if kind == c'+' or kind == c'-':
        end = line_end(p)
        if kind == c'+':
            lua.createtable(L, 0, 1)
            set_text(L, "ok", p, <size_t>(end - p))
        else:
            push_error(L, p, <size_t>(end - p), True)
        return end + 2
    return push_resp3(L, kind, p)


cdef const char *push_resp3(lua_State *L, char kind, const char *p) noexcept nogil:
    """The same for the types that only RESP3 has."""
    cdef const char *end = line_end(p)
    cdef int64_t size
    if kind == c'_':
        lua.pushnil(L)
        return end + 2
    if kind == c'#':
        lua.pushboolean(L, p[0] == c't')
        return end + 2
    lua.checkstack(L, SLOTS)
    lua.createtable(L, 0, 1)
    if kind == c',':
        lua.pushnumber(L, strtod(p, NULL))
        lua.setfield(L, -2, "double")
        return end + 2
    if kind == c'(':
        set_text(L, "big_number", p, <size_t>(end - p))
        return end + 2
    size = read_number(&p)
    lua.createtable(L, 0, <int>size)
    if kind == c'=':
        set_text(L, "format", p, 3)
        set_text(L, "string", p + 4, <size_t>(size - 4))
        lua.setfield(L, -2, "verbatim_string")
        return p + size + 2
    for _ in range(size):
        p = push_reply(L, p)
        if kind == c'%':
            p = push_reply(L, p)
        else:
            lua.pushboolean(L, True)
        lua.rawset(L, -3)
    lua.setfield(L, -2, "map" if kind == c'%' else "set")
    return p


# --- Values of Lua to replies ---------------------------------------------------------------------------------------


cdef bytes get_text(lua_State *L, int index):
    """The bytes of a string on the stack."""
    cdef size_t length
    cdef const char *text = lua.tolstring(L, index, &length)
    return PyBytes_FromStringAndSize(text, <Py_ssize_t>length)


cdef bytes number_text(double number):
    """A number as an argument of a command."""
    if isnan(number):
        return b"-nan" if signbit(number) else b"nan"
    return format_double(number + 0.0)      # -0 becomes 0


cdef inline int64_t cut(double number) noexcept nogil:
    """A number as an integer: cut towards zero, and the smallest one if it is none."""
    if not -9223372036854775808.0 <= number < 9223372036854775808.0:
        return INT64_MIN
    return <int64_t>number


cdef inline int push_field(lua_State *L, const char *name, size_t length) noexcept nogil:
    """Push a field of the table on top, found without its metatable; returns its type."""
    lua.pushlstring(L, name, length)
    lua.rawget(L, -2)
    return lua.type(L, -1)


cdef size_t most_length = 0     # of the writer, while a value is written


cdef int write_reply_value(lua_State *L, ReplyWriter reply, bint has_booleans, list errors, size_t limit) except -1:
    """Write the value on top of the stack, and take it off. May raise a Lua error.

    has_booleans  the script has asked for RESP3: true and false are booleans
    errors        gets the texts of the errors in it; None for one that has been counted
    limit         of the reply, in bytes: a small table that contains itself twice has no end
    Raises CommandError if the reply gets longer.
    """
    global most_length
    most_length = limit if limit > <size_t>-1 - reply.length else reply.length + limit
    return write_value(L, reply, has_booleans, errors)


cdef int write_value(lua_State *L, ReplyWriter reply, bint has_booleans, list errors) except -1:
    """A value, or a part of one."""
    cdef int kind = lua.type(L, -1)
    cdef size_t length
    cdef const char *text
    if reply.length > most_length:
        raise CommandError("ERR not enough memory")
    if not lua.checkstack(L, LEAST_SLOTS):
        errors.append("ERR reached lua stack limit")
        reply.error("ERR reached lua stack limit")
    elif kind == LUA_TSTRING:
        text = lua.tolstring(L, -1, &length)
        reply.bulk_c(text, length)
    elif kind == LUA_TNUMBER:
        reply.integer(cut(lua.tonumber(L, -1)))
    elif kind == LUA_TBOOLEAN:
        if has_booleans:
            reply.boolean(lua.toboolean(L, -1))
        elif lua.toboolean(L, -1):
            reply.integer(1)
        else:
            reply.null()
    elif kind == LUA_TTABLE:
        if not write_typed(L, reply, has_booleans, errors):
            write_array(L, reply, has_booleans, errors)
    else:
        reply.null()
    pop(L, 1)
    return 0


cdef int write_array(lua_State *L, ReplyWriter reply, bint has_booleans, list errors) except -1:
    """The table on top: its items up to the first nil."""
    cdef size_t opened = reply.open_array(0)
    cdef int n = 0
    while True:
        lua.rawgeti(L, -1, n + 1)
        if lua.type(L, -1) == LUA_TNIL:
            pop(L, 1)
            break
        write_value(L, reply, has_booleans, errors)
        n += 1
    return reply.close_array(opened, n)


cdef str shown(bytes text):
    """The text of a status or an error: one line."""
    return text.replace(b"\r", b" ").replace(b"\n", b" ").decode("latin-1")


cdef bint write_typed(lua_State *L, ReplyWriter reply, bint has_booleans, list errors) except -1:
    """The table on top, if a field of it says what it is; True if one does."""
    if push_field(L, "err", 3) == LUA_TSTRING:
        text = shown(get_text(L, -1))
        pop(L, 1)
        is_counted = push_field(L, "ignore_error_stats_update", 25) == LUA_TBOOLEAN and lua.toboolean(L, -1)
        errors.append(None if is_counted else text)
        reply.error(text)
    else:
        pop(L, 1)
        if push_field(L, "ok", 2) == LUA_TSTRING:
            reply.simple(shown(get_text(L, -1)).encode("latin-1"))
        else:
            pop(L, 1)
            if push_field(L, "double", 6) == LUA_TNUMBER:
                reply.double(lua.tonumber(L, -1))
            else:
                pop(L, 1)
                if push_field(L, "map", 3) == LUA_TTABLE:
                    write_pairs(L, reply, True, has_booleans, errors)
                else:
                    pop(L, 1)
                    if push_field(L, "set", 3) == LUA_TTABLE:
                        write_pairs(L, reply, False, has_booleans, errors)
                    else:
                        pop(L, 1)
                        return write_text_type(L, reply)
    pop(L, 1)
    return True


cdef bint write_text_type(lua_State *L, ReplyWriter reply) except -1:
    """The same for the types whose value is a text."""
    cdef bytes text, form
    if push_field(L, "big_number", 10) == LUA_TSTRING:
        text = shown(get_text(L, -1)).encode("latin-1")
        pop(L, 1)
        if reply.resp == 2:
            reply.bulk(text)
        else:
            reply.raw(b"(%b\r\n" % text)
        return True
    pop(L, 1)
    if push_field(L, "verbatim_string", 15) == LUA_TTABLE:
        if push_field(L, "string", 6) == LUA_TSTRING:
            text = get_text(L, -1)
            pop(L, 1)
            if push_field(L, "format", 6) == LUA_TSTRING:
                form = (get_text(L, -1) + b"   ")[:3]
                reply.verbatim(form.decode("latin-1"), text)
                pop(L, 2)
                return True
        pop(L, 1)
    pop(L, 1)
    return False


cdef int write_pairs(lua_State *L, ReplyWriter reply, bint is_map, bint has_booleans, list errors) except -1:
    """The table on top: a map of its keys and values, or the set of its keys."""
    cdef int64_t n = 0
    lua.checkstack(L, SLOTS)
    lua.pushnil(L)
    while lua.next(L, -2):
        pop(L, 1)
        n += 1
    if is_map:
        reply.map(n)
    else:
        reply.set(n)
    lua.pushnil(L)
    while lua.next(L, -2):
        if is_map:
            lua.pushvalue(L, -2)
            write_value(L, reply, has_booleans, errors)
            write_value(L, reply, has_booleans, errors)
        else:
            pop(L, 1)
            lua.pushvalue(L, -1)
            write_value(L, reply, has_booleans, errors)
    return 0
