# cython: language_level=3, boundscheck=False, wraparound=False
"""World: an interpreter with the globals of scripts, and `redis.*`.

A server has two: one runs scripts (EVAL), the other functions (FCALL). Each begins with the first code that it gets,
and keeps what it has compiled until it is closed. Its memory is counted with the server's, up to a limit of its own.

    compile       code -> a reference to its function
    load_library  code -> the functions that it registers
    run           calls a function, with KEYS and ARGV, and writes the reply

The path of a call, with Lua between the functions of this module:

    run ─▶ lua.pcall ──▶ call_function ─▶ lua.pcall ─▶ the script ─▶ redis_call ─▶ ScriptHost.command ─▶ handler
                              │                                           │
                              └─▶ write_reply, or write_error             └─▶ push_reply, or raise_error

Functions that Lua calls are in two halves, because a Lua error skips whatever Python would have to do: the first half
has objects and raises no Lua error, the second may raise one and has none.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM
from cpython.ref cimport PyObject
from libc.stdint cimport uintptr_t
from libc.string cimport memchr, memcmp, strlen, strncmp

import logging
import os

from streamd.core.clock cimport monotonic_us
from streamd.core.effects cimport EVERYWHERE, FILES, NOWHERE, REPLICAS
from streamd.core.route cimport FAILED
from streamd.process.log import VERBOSE
from streamd.digests import sha1_hex
from streamd.errors import INTERNAL_ERROR, CommandError
from streamd.heap cimport free, realloc_aligned
from streamd.protocol.reply cimport ReplyWriter
from streamd.scripting.script_host cimport ScriptHost
from streamd.scripting.json_text cimport open_json
from streamd.scripting.lua cimport (
    LUA_GCCOLLECT, LUA_GCRESTART, LUA_GCSTOP, LUA_GLOBALSINDEX, LUA_MASKCOUNT, LUA_MASKLINE, LUA_REGISTRYINDEX,
    LUA_TBOOLEAN, LUA_TFUNCTION, LUA_TNIL, LUA_TNUMBER, LUA_TSTRING, LUA_TTABLE, load_lua, lua, lua_Debug, lua_Hook,
    lua_State, pop, upvalue,
)
from streamd.scripting.sandbox cimport aim_globals, look, open_sandbox, set_function
from streamd.scripting.values cimport get_text, number_text, push_error, push_reply, write_reply_value
from streamd import REDIS_VERSION
from streamd.scripting.shebang import FLAGS, check_name

__all__ = ["World"]

log = logging.getLogger("streamd")

cdef enum:
    HOOK_FIRST = 100        # instructions before the first look at the clock; see short_scripts.py
    HOOK_EVERY = 1000       # between two looks, at most
    LARGE_BLOCK = 1 << 20   # bytes; an instruction that makes one takes long
    LONG_US = 10000         # between two looks
    COLLECT_FROM = 1 << 25  # bytes below which garbage may wait for the next script

LEVELS = (logging.DEBUG, VERBOSE, logging.INFO, logging.WARNING)
"""redis.LOG_DEBUG ... LOG_WARNING."""

COMPILE_TEXT = "ERR Error compiling script (new function): "
NO_ARGUMENT = "ERR Please specify at least one argument for this redis lib call"
BAD_ARGUMENT = "ERR Lua redis lib command arguments must be strings or integers"

FOLDER = os.path.dirname(__file__)
cdef dict COMPILED = {}     # name of a file of this folder -> what string.dump returned for it

cdef bytes VERSION_BYTES = REDIS_VERSION.encode()
cdef const char *VERSION = VERSION_BYTES
cdef int VERSION_NUMBER = 0
for _part in REDIS_VERSION.split("."):
    VERSION_NUMBER = VERSION_NUMBER << 8 | int(_part)

cdef const char *OWN_CHUNK = "=[streamd] "      # begins the names of files of this folder
# Their addresses are the keys of the world, and of Lua's `tostring`, in Lua's registry.
cdef char WORLD = 0
cdef char TO_STRING = 0


# Lua's stacks get room behind their end that Lua does not know of. When it calls a function that has parameters beside
# `...`, it makes sure of room for the function's registers, but not for the parameters that the call leaves out, and
# writes up to 200 slots beyond the end; a stack that has run over may grow by too little for the next such call. At
# most 401 slots are written so. A stack is known by its first size, and then by an address that no other block has.
cdef enum:
    SLOT = 16                   # bytes
    FIRST_STACK = 45 * SLOT
    STACK_MARGIN = 512 * SLOT
    STACK_MARK = 8              # a stack's address, modulo what malloc's addresses are multiples of


cdef void *allocate(void *context, void *block, size_t old_size, size_t size) noexcept:
    """The allocator of an interpreter."""
    cdef Heap *heap = <Heap *>context
    cdef size_t before = 0, room = size
    cdef bint is_stack = size == FIRST_STACK if block is NULL else (<uintptr_t>block & STACK_MARK) != 0
    cdef char *moved
    if block is not NULL:
        before = old_size
    if is_stack:
        if block is not NULL:
            block = <char *>block - STACK_MARK
            before += STACK_MARGIN
            heap.moved_stacks += 1
        room += STACK_MARGIN
    if size == 0:
        heap.used -= before
        free(block)
        return NULL
    if room > before and heap.used + room - before > heap.limit:
        return NULL
    if size >= LARGE_BLOCK and heap.running is not NULL:
        lua.sethook(heap.running, look_at_clock, LUA_MASKCOUNT, 1)
    moved = <char *>realloc_aligned(block, room)
    if moved is NULL:
        return NULL
    heap.used += room - before
    return moved + STACK_MARK if is_stack else moved


cdef class World:
    """An interpreter; `kind` is "script" or "function"."""

    def __init__(self, ScriptHost host not None, str kind not None):
        self.host = host
        self.kind = kind
        self.chunk = b"@user_" + kind.encode()
        self.heap.limit = <size_t>-1
        self.collect_above = COLLECT_FROM
        self.errors = []
        self.words = [b""] * WORDS

    def __dealloc__(self):
        if self.L is not NULL:
            lua.close(self.L)

    cdef bint is_for_scripts(self) noexcept:
        """Whether code gets KEYS and ARGV as globals; functions get them as arguments."""
        return self.kind == "script"

    cdef int open(self) except -1:
        """Start the interpreter, if it does not run yet. Raises CommandError if there is none."""
        load_lua()
        self.L = lua.newstate(allocate, &self.heap)
        if self.L is NULL or lua.cpcall(self.L, prepare, <void *>self):
            text = "not enough memory" if self.L is NULL else get_text(self.L, -1).decode("latin-1")
            self.close()
            raise CommandError(f"ERR The interpreter cannot start: {text}")
        return 0

    cpdef int close(self) except -1:
        """Give up the interpreter with all that it has compiled; the next script starts a new one."""
        cdef int i
        if self.L is not NULL:
            lua.close(self.L)
            self.L = NULL
        for i in range(WORDS):
            self.places[i] = NULL
        return 0

    cpdef int compile(self, bytes code) except 0:
        """Compile code; returns a reference. Raises CommandError with the compiler's message."""
        if self.L is NULL:
            self.open()
        self.code = code
        try:
            if lua.cpcall(self.L, compile_code, <void *>self):
                text = get_text(self.L, -1)
                pop(self.L, 1)
                raise CommandError(COMPILE_TEXT + text.decode("latin-1"))
        finally:
            self.code = None
        return self.function

    cpdef int forget(self, int function) except -1:
        """Forget a compiled function."""
        lua.unref(self.L, LUA_REGISTRYINDEX, function)
        return 0

    cdef bytes dump(self, int function):
        """A compiled function as `string.dump` returns it; less of it if there is no memory."""
        cdef list pieces = []
        lua.rawgeti(self.L, LUA_REGISTRYINDEX, function)
        lua.dump(self.L, keep_piece, <void *>pieces)
        pop(self.L, 1)
        return b"".join(pieces)

    cpdef list load_library(self, bytes code, int limit_ms):
        """Run the code of a library; returns what it registers: (name, reference, description or None, flags) each.

        limit_ms  how long it may run; 0: until it ends
        Raises CommandError; then nothing of it is kept.
        """
        cdef list registered = []
        cdef str problem
        if self.L is NULL:
            self.open()
        self.code = code
        self.has_failed = self.is_ending = False
        self.registered = registered
        self.deadline_us = monotonic_us() + 1000 * limit_ms if limit_ms else 0
        try:
            if lua.cpcall(self.L, run_library, <void *>self):
                self.has_failed = True
                self.fail(get_text(self.L, -1).decode("latin-1"), False)
                pop(self.L, 1)
        finally:
            self.code = None
            self.registered = None
        if registered and not self.has_failed:
            return registered
        for _, function, _, _ in registered:
            self.forget(function)
        problem = shown(self.error) if self.has_failed else "No functions registered"
        raise CommandError(f"ERR {problem}")

    cdef int run(self, int function, list args, Py_ssize_t first, Py_ssize_t keys, ReplyWriter reply) except -1:
        """Call a function that was compiled, and write its reply. `host` has been told that it begins.

        args   the request: its keys begin at `first`, the other arguments follow
        """
        cdef size_t mark = reply.length
        self.function = function
        self.args = args
        self.first = first
        self.keys = keys
        self.reply = reply
        self.has_failed = self.has_error = self.is_ending = False
        lua.rawgeti(self.L, LUA_REGISTRYINDEX, self.caller)
        lua.pushlightuserdata(self.L, <void *>self)
        if lua.pcall(self.L, 1, 0, 0):
            # Outside the script itself, only memory can be missing.
            self.has_failed = True
            self.fail("ERR " + get_text(self.L, -1).decode("latin-1"), False)
            pop(self.L, 1)
        self.args = None
        self.reply = None
        if self.has_failed:
            reply.truncate(mark)
            self.reply_error(reply)
        if self.heap.used > self.collect_above or self.heap.used > self.heap.limit // 2:
            self.collect()
        if self.bug is not None:
            bug = self.bug
            self.bug = None
            raise bug
        return 0

    cdef int collect(self) except -1:
        """Collect garbage: Lua does not do so when memory runs out, nor between scripts."""
        cdef size_t before = <size_t>-1, limit = self.heap.limit
        self.heap.limit = <size_t>-1    # Lua may need a little to collect, and would end the process without it
        while self.heap.used < before - before // 4:    # each time, Lua's own buffer becomes half as large
            before = self.heap.used
            lua.gc(self.L, LUA_GCCOLLECT, 0)
        self.heap.limit = limit
        self.collect_above = max(2 * self.heap.used, <size_t>COLLECT_FROM)
        return 0

    cdef int reply_error(self, ReplyWriter reply) except -1:
        """Write the error that has ended the script."""
        cdef str text = shown(self.error)
        self.error = None
        self.has_error = True
        if not self.is_counted:
            self.host.dispatcher.count_error(None, FAILED, text)
        reply.error(text)
        return 0

    # --- The halves of functions that Lua calls: what has objects ---------------------------------------------------

    cdef int fail(self, str text, bint is_counted) except -1:
        """Note the error to be raised."""
        self.error = text.encode("latin-1")
        self.is_counted = is_counted
        return 0

    cdef bytes take_word(self, const char *text, size_t length):
        """The bytes of a command's name: the same object as the last time, if Lua has the text at the same place."""
        cdef size_t place = (<uintptr_t>text >> 4) & (WORDS - 1)
        cdef bytes word = <bytes>self.words[place]
        if self.places[place] is text and <size_t>PyBytes_GET_SIZE(word) == length \
                and memcmp(PyBytes_AS_STRING(word), text, length) == 0:
            return word
        word = PyBytes_FromStringAndSize(text, <Py_ssize_t>length)
        self.words[place] = word
        self.places[place] = text
        return word

    cdef list take_args(self, lua_State *L):
        """The arguments of a Lua call as a request; None, and an error is noted, if they are none."""
        cdef int argc = lua.gettop(L), i, kind
        cdef size_t length
        cdef const char *text
        cdef list args = []
        if argc == 0:
            self.fail(NO_ARGUMENT, False)
            return None
        for i in range(1, argc + 1):
            kind = lua.type(L, i)
            if kind == LUA_TSTRING:
                text = lua.tolstring(L, i, &length)
                if i == 1:
                    args.append(self.take_word(text, length))
                else:
                    args.append(PyBytes_FromStringAndSize(text, <Py_ssize_t>length))
            elif kind == LUA_TNUMBER:
                args.append(number_text(lua.tonumber(L, i)))
            else:
                self.fail(BAD_ARGUMENT, False)
                return None
        return args

    cdef int call_command(self, lua_State *L) noexcept:
        """redis.call: 0 if there is a reply, 1 if an error is noted."""
        cdef list args
        try:
            args = self.take_args(L)
            if args is None:
                return 1
            self.host.command(args)
            return 0
        except CommandError as error:
            self.note(str(error))
        except BaseException as error:
            self.bug = error
            self.note(INTERNAL_ERROR)
        return 1

    cdef int note(self, str text) noexcept:
        """Note an error that has been counted."""
        self.error = text.encode("latin-1")
        self.is_counted = True
        return 0

    cdef int write_reply(self, lua_State *L) noexcept:
        """Write what the script has returned."""
        cdef list errors = self.errors
        try:
            write_reply_value(L, self.reply, self.host.actor.reply.resp == 3, errors, self.heap.limit)
            if errors:
                self.has_error = True
                for text in errors:
                    if text is not None:
                        self.host.dispatcher.count_error(None, FAILED, <str>text)
                errors.clear()
        except CommandError as error:
            errors.clear()
            self.has_failed = True
            self.fail(str(error), False)
        except BaseException as error:
            self.bug = error
        return 0

    cdef int write_error(self, lua_State *L) noexcept:
        """Note the error that has ended the script, on top of the stack, with its place."""
        cdef str text = "ERR unknown error", place = ""
        cdef bint is_counted = False
        self.has_failed = True
        try:
            if lua.type(L, -1) != LUA_TTABLE:
                # The handler was not called, or has failed itself.
                text = "ERR " + as_text(L, -1, "unknown error")
            else:
                text = field_text(L, "err", text)
                place = field_text(L, "line", "")
                if place:
                    name = self.host.name.decode("latin-1")
                    place = f" script: {name}, on {field_text(L, 'source', '')}:{place}."
                lua.getfield(L, -1, "ignore_error_stats_update")
                is_counted = lua.type(L, -1) == LUA_TBOOLEAN and lua.toboolean(L, -1)
                pop(L, 1)
            self.fail(text + place, is_counted)
        except BaseException as error:
            self.bug = error
        return 0

    cdef int hash_text(self, lua_State *L) noexcept:
        """redis.sha1hex: its result as an error to be raised; there is none."""
        cdef bytes text = b""
        try:
            if lua.type(L, 1) == LUA_TSTRING or lua.type(L, 1) == LUA_TNUMBER:
                text = get_text(L, 1)
            self.error = sha1_hex(text)
        except BaseException as error:
            self.bug = error
        return 0

    cdef int write_log(self, lua_State *L, int level) noexcept:
        """redis.log: the arguments from the second on, joined by blanks."""
        cdef int i
        try:
            texts = [as_text(L, i, "") for i in range(2, lua.gettop(L) + 1)]
            log.log(LEVELS[level], "%s", " ".join(texts))
        except BaseException as error:
            self.bug = error
        return 0

    cdef int check_permission(self, lua_State *L) noexcept:
        """redis.acl_check_cmd: 1 and 0 for yes and no, -1 if an error is noted."""
        cdef list args
        cdef str answer
        try:
            args = self.take_args(L)
            if args is None:
                return -1
            answer = self.host.may_call(args)
            if answer == "yes" or answer == "no":
                return answer == "yes"
            self.fail(answer, False)
        except BaseException as error:
            self.bug = error
            self.note(INTERNAL_ERROR)
        return -1

    cdef int register_function(self, lua_State *L) noexcept:
        """redis.register_function: 0 if it is done, 1 if an error is noted."""
        try:
            self.take_registration(L)
            return 0
        except CommandError as error:
            self.fail(str(error), False)
        except BaseException as error:
            self.bug = error
            self.note(INTERNAL_ERROR)
        return 1

    cdef int take_registration(self, lua_State *L) except -1:
        """Keep what redis.register_function was called with. Raises CommandError."""
        cdef int argc = lua.gettop(L)
        cdef list found = [None, None, 0]       # name, description, flags; the callback is put on top of the stack
        if self.registered is None:
            raise CommandError("ERR redis.register_function can only be called on FUNCTION LOAD command")
        if argc == 1:
            if lua.type(L, 1) != LUA_TTABLE:
                raise CommandError(
                    "ERR calling redis.register_function with a single argument is only applicable to Lua table"
                    " (representing named arguments)."
                )
            self.take_named(L, found)
        elif argc == 2:
            found[0] = as_bytes(L, 1)
            if found[0] is None:
                raise CommandError("ERR first argument to redis.register_function must be a string")
            if lua.type(L, 2) != LUA_TFUNCTION:
                raise CommandError("ERR second argument to redis.register_function must be a function")
        else:
            raise CommandError("ERR wrong number of arguments to redis.register_function")
        name, description, flags = found
        check_name(name)
        if any(name.lower() == other.lower() for other, _, _, _ in self.registered):
            raise CommandError("ERR Function already exists in the library")
        self.registered.append((name, lua.ref(L, LUA_REGISTRYINDEX), description, flags))
        return 0

    cdef int take_named(self, lua_State *L, list found) except -1:
        """Read the named arguments, and push the callback."""
        cdef bytes word
        cdef bint has_callback = False
        lua.pushnil(L)      # the callback
        lua.pushnil(L)
        while lua.next(L, 1):
            word = as_bytes(L, -2)
            if word is None:
                raise CommandError("ERR named argument key given to redis.register_function is not a string")
            word = word.lower()
            if word == b"function_name" or word == b"description":
                text = as_bytes(L, -1)
                if text is None:
                    raise CommandError(
                        f"ERR {word.decode()} argument given to redis.register_function must be a string"
                    )
                found[0 if word == b"function_name" else 1] = text
            elif word == b"callback":
                if lua.type(L, -1) != LUA_TFUNCTION:
                    raise CommandError("ERR callback argument given to redis.register_function must be a function")
                lua.pushvalue(L, -1)
                lua.replace(L, 2)
                has_callback = True
            elif word == b"flags":
                if lua.type(L, -1) != LUA_TTABLE:
                    raise CommandError(
                        "ERR flags argument to redis.register_function must be a table representing function flags"
                    )
                found[2] = self.take_flags(L)
            else:
                raise CommandError("ERR unknown argument given to redis.register_function")
            pop(L, 1)
        if found[0] is None:
            raise CommandError("ERR redis.register_function must get a function name argument")
        if not has_callback:
            raise CommandError("ERR redis.register_function must get a callback argument")
        return 0

    cdef int take_flags(self, lua_State *L) except -1:
        """The flags in the table on top, up to the first hole, as a set of ScriptFlag."""
        cdef int at = 1, flags = 0
        cdef bytes word
        while True:
            lua.rawgeti(L, -1, at)
            if lua.type(L, -1) == LUA_TNIL:
                pop(L, 1)
                return flags
            word = as_bytes(L, -1)
            if word is None or word.lower() not in FLAGS:
                raise CommandError("ERR unknown flag given")
            flags |= <int>FLAGS[word.lower()]
            pop(L, 1)
            at += 1

    cdef int note_failure(self, lua_State *L, str what) noexcept:
        """Note why a library cannot be loaded: the error on top of the stack."""
        self.has_failed = True
        try:
            if lua.type(L, -1) == LUA_TTABLE:
                self.fail(f"{what}: {field_text(L, 'err', 'ERR unknown error')}", False)
            else:
                self.fail(f"{what}: {as_text(L, -1, 'unknown error')}", False)
        except BaseException as error:
            self.bug = error
        return 0

    cdef bint is_late(self) noexcept:
        """Whether the library that is being loaded has run for too long."""
        return self.deadline_us != 0 and monotonic_us() > self.deadline_us

    cdef Heap *memory(self) noexcept:
        return &self.heap

    cdef int set_ending(self) noexcept:
        self.is_ending = True
        return 0

    cdef bint must_end(self) noexcept:
        """Whether the running script has been killed. Others may be served meanwhile."""
        try:
            return self.host.look_at_clock()
        except BaseException as error:
            self.bug = error
            return True
        finally:
            self.looked_us = monotonic_us()

    cdef int pace(self) noexcept:
        """After how many instructions to look at the clock again: fewer, if those since the last look took long.

        An instruction takes as long as what it does: joining two long strings, say, or making a string that collides
        with many others in Lua's table of strings, which looks at some of their bytes only.
        """
        cdef long long took_us = monotonic_us() - self.looked_us
        if took_us > LONG_US:
            self.hook_every = max(1, <int>(self.hook_every * LONG_US // took_us))
        elif self.hook_every < HOOK_EVERY and took_us < LONG_US // 4:
            self.hook_every = min(2 * self.hook_every, HOOK_EVERY)
        return self.hook_every


cdef int keep_piece(lua_State *L, const void *piece, size_t size, void *pieces) noexcept:
    """Append a piece of a dump to a list."""
    try:
        (<list>pieces).append(PyBytes_FromStringAndSize(<const char *>piece, <Py_ssize_t>size))
        return 0
    except MemoryError:
        return 1


cdef str shown(bytes text):
    """The text of an error as one line."""
    return text.replace(b"\r", b" ").replace(b"\n", b" ").decode("latin-1")


cdef str as_text(lua_State *L, int index, str otherwise):
    """A string or a number on the stack."""
    if lua.type(L, index) != LUA_TSTRING and lua.type(L, index) != LUA_TNUMBER:
        return otherwise
    lua.pushvalue(L, index)
    text = get_text(L, -1).decode("latin-1")
    pop(L, 1)
    return text


cdef bytes as_bytes(lua_State *L, int index):
    """A string or a number on the stack; None if it is neither."""
    if lua.type(L, index) != LUA_TSTRING and lua.type(L, index) != LUA_TNUMBER:
        return None
    lua.pushvalue(L, index)
    text = get_text(L, -1)
    pop(L, 1)
    return text


cdef str field_text(lua_State *L, const char *name, str otherwise):
    """A field of the table on top that is a string or a number."""
    lua.getfield(L, -1, name)
    text = as_text(L, -1, otherwise)
    pop(L, 1)
    return text


# --- Functions that Lua calls: what may raise Lua errors ------------------------------------------------------------


cdef inline void *here(lua_State *L) noexcept nogil:
    """The world of the running C function."""
    return lua.touserdata(L, upvalue(1))


cdef int push_noted(lua_State *L, bint is_counted) noexcept:
    """Push the table of the error that the world has noted."""
    cdef bytes error = (<World>here(L)).error
    return push_error(L, PyBytes_AS_STRING(error), <size_t>PyBytes_GET_SIZE(error), is_counted)


cdef int raise_noted(lua_State *L) noexcept:
    """Raise it."""
    push_noted(L, (<World>here(L)).is_counted)
    return lua.error(L)


cdef int raise_message(lua_State *L, const char *text, size_t length) noexcept:
    """Raise an error of a function of `redis`."""
    push_error(L, text, length, False)
    return lua.error(L)


cdef int redis_call(lua_State *L) noexcept:
    """redis.call(command, ...): an error reply is raised."""
    cdef const char *reply
    if (<World>here(L)).call_command(L):
        return raise_noted(L)
    reply = (<World>here(L)).host.actor.reply.data
    push_reply(L, reply)
    if reply[0] == c'-':
        return lua.error(L)
    return 1


cdef int redis_pcall(lua_State *L) noexcept:
    """redis.pcall(command, ...): an error reply is returned."""
    if (<World>here(L)).call_command(L):
        return push_noted(L, (<World>here(L)).is_counted)
    push_reply(L, (<World>here(L)).host.actor.reply.data)
    return 1


cdef int reply_table(lua_State *L, const char *name) noexcept:
    """What error_reply and status_reply return: {name = text}."""
    if lua.gettop(L) != 1 or lua.type(L, 1) != LUA_TSTRING:
        return push_error(L, "ERR wrong number or type of arguments", 37, False)
    lua.createtable(L, 0, 1)
    lua.pushvalue(L, 1)
    lua.setfield(L, -2, name)
    return 1


cdef int redis_status_reply(lua_State *L) noexcept:
    return reply_table(L, "ok")


cdef int redis_error_reply(lua_State *L) noexcept:
    """redis.error_reply(text): `ERR` is put before a text without a code."""
    cdef size_t length
    cdef const char *text
    if lua.gettop(L) == 1 and lua.type(L, 1) == LUA_TSTRING:
        text = lua.tolstring(L, 1, &length)
        if length and text[0] == c'-':
            text += 1
            length -= 1
        lua.pushlstring(L, "ERR ", 0 if memchr(text, c' ', length) is not NULL else 4)
        lua.pushlstring(L, text, length)
        lua.concat(L, 2)
        lua.replace(L, 1)
    return reply_table(L, "err")


cdef int redis_sha1hex(lua_State *L) noexcept:
    if lua.gettop(L) != 1:
        return raise_message(L, "ERR wrong number of arguments", 29)
    (<World>here(L)).hash_text(L)
    push_noted_text(L)
    return 1


cdef int push_noted_text(lua_State *L) noexcept:
    """Push the text that the world has noted."""
    cdef bytes text = (<World>here(L)).error
    (<World>here(L)).error = None
    lua.pushlstring(L, PyBytes_AS_STRING(text), <size_t>PyBytes_GET_SIZE(text))
    return 1


cdef int redis_log(lua_State *L) noexcept:
    cdef double level
    if lua.gettop(L) < 2:
        return raise_message(L, "ERR redis.log() requires two arguments or more.", 47)
    if not lua.isnumber(L, 1):
        return raise_message(L, "ERR First argument must be a number (log level).", 48)
    level = lua.tonumber(L, 1)
    if not -1 < level < 4:
        return raise_message(L, "ERR Invalid log level.", 22)
    (<World>here(L)).write_log(L, <int>level)
    return 0


cdef int redis_setresp(lua_State *L) noexcept:
    cdef double version
    if lua.gettop(L) != 1:
        return raise_message(L, "ERR redis.setresp() requires one argument.", 42)
    version = lua.tonumber(L, 1)
    if <int>version != 2 and <int>version != 3:
        return raise_message(L, "ERR RESP version must be 2 or 3.", 32)
    (<World>here(L)).host.actor.reply.resp = <int>version
    return 0


cdef int redis_set_repl(lua_State *L) noexcept:
    cdef int flags
    if lua.gettop(L) != 1:
        return raise_message(L, "ERR redis.set_repl() requires one argument.", 43)
    flags = <int>lua.tonumber(L, 1)
    if flags & ~3:
        return raise_message(
            L, "ERR Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.", 81
        )
    (<World>here(L)).host.destination = (
        EVERYWHERE if flags == 3 else REPLICAS if flags == 2 else FILES if flags == 1 else NOWHERE
    )
    return 0


cdef int redis_acl_check_cmd(lua_State *L) noexcept:
    cdef int answer = (<World>here(L)).check_permission(L)
    if answer < 0:
        return raise_noted(L)
    lua.pushboolean(L, answer)
    return 1


cdef int redis_breakpoint(lua_State *L) noexcept:
    lua.pushboolean(L, False)
    return 1


cdef int redis_debug(lua_State *L) noexcept:
    return 0


cdef int redis_replicate_commands(lua_State *L) noexcept:
    lua.pushboolean(L, True)
    return 1


cdef int draw_random(lua_State *L) noexcept:
    """draw() -> the next bits of math.random"""
    lua.pushnumber(L, <double>(<World>here(L)).host.draw())
    return 1


cdef int seed_random(lua_State *L) noexcept:
    """seed(integer of 32 bits): begin math.random anew"""
    (<World>here(L)).host.seed(<int>lua.tonumber(L, 1))
    return 0


cdef int redis_register_function(lua_State *L) noexcept:
    """redis.register_function(name, function), or with a table of named arguments."""
    if (<World>here(L)).register_function(L):
        return raise_noted(L)
    return 0


cdef int handle_error(lua_State *L) noexcept:
    """The handler of a script's errors: makes a table of any error, with the place of the innermost function in Lua.

    What is left is a table of streamd's own: the script's may have a metatable, whose functions must run here, where
    they can fail or be stopped.
    """
    cdef lua_Debug frame
    cdef int level = 1
    if lua.type(L, 1) != LUA_TTABLE:
        lua.createtable(L, 0, 3)
        lua.pushlstring(L, "ERR ", 4)
        push_shown(L, 1)
        lua.concat(L, 2)
        lua.setfield(L, -2, "err")
        lua.replace(L, 1)
    while lua.getstack(L, level, &frame):
        lua.getinfo(L, "Sl", &frame)
        if frame.currentline > 0 and not is_own(frame.source):
            lua.pushlstring(L, frame.source, strlen(frame.source))
            lua.setfield(L, 1, "source")
            lua.pushnumber(L, frame.currentline)
            lua.setfield(L, 1, "line")
            break
        level += 1
    lua.createtable(L, 0, 4)
    copy_field(L, "err")
    copy_field(L, "source")
    copy_field(L, "line")
    copy_field(L, "ignore_error_stats_update")
    return 1


cdef void copy_field(lua_State *L, const char *name) noexcept:
    """Copy a field of argument 1 to the table on top."""
    lua.getfield(L, 1, name)
    lua.setfield(L, -2, name)


cdef int push_shown(lua_State *L, int index) noexcept:
    """Push a value as `tostring` shows it."""
    lua.pushlightuserdata(L, &TO_STRING)
    lua.rawget(L, LUA_REGISTRYINDEX)
    lua.pushvalue(L, index)
    lua.call(L, 1, 1)
    return 1


cdef inline bint is_own(const char *source) noexcept:
    """Whether code is a file of this folder."""
    return strncmp(source, OWN_CHUNK, strlen(OWN_CHUNK)) == 0


cdef void *world_of(lua_State *L) noexcept:
    """The world of an interpreter."""
    cdef void *world
    lua.pushlightuserdata(L, &WORLD)
    lua.rawget(L, LUA_REGISTRYINDEX)
    world = lua.touserdata(L, -1)
    pop(L, 1)
    return world


cdef bint must_end(lua_State *L) noexcept:
    """Whether the script that runs here has to end."""
    return (<World>world_of(L)).must_end()


cdef int next_look(lua_State *L) noexcept:
    """After how many instructions to look at the clock again."""
    return (<World>world_of(L)).pace()


cdef bint is_late(lua_State *L) noexcept:
    """Whether the library that is loaded here has to end."""
    return (<World>world_of(L)).is_late()


cdef void look_at_deadline(lua_State *L, lua_Debug *frame) noexcept:
    """The hook while a library is loaded."""
    if is_late(L):
        (<World>world_of(L)).set_ending()
        lua.sethook(L, look_at_deadline, LUA_MASKLINE | LUA_MASKCOUNT, 1)
        raise_message(L, "ERR FUNCTION LOAD timeout", 25)


cdef void look_at_clock(lua_State *L, lua_Debug *frame) noexcept:
    """The hook: called after so many instructions, and with each line of a script that has to end."""
    lua.sethook(L, look_at_clock, LUA_MASKCOUNT, next_look(L))
    if must_end(L):
        (<World>world_of(L)).set_ending()
        lua.sethook(L, look_at_clock, LUA_MASKLINE | LUA_MASKCOUNT, 1)
        raise_message(L, "ERR Script killed by user with SCRIPT KILL...", 45)


# --- Handlers of errors ---------------------------------------------------------------------------------------------
#
# An error of the hook calls the handler of xpcall inside the hook, where Lua calls no hook: a handler that does not
# return could not be ended. What has to end calls none.


cdef int call_handler(lua_State *L) noexcept:
    """Stands for the handler in upvalue 1."""
    if (<World>world_of(L)).is_ending:
        return 1
    lua.settop(L, 1)
    lua.pushvalue(L, upvalue(1))
    lua.insert(L, 1)
    lua.call(L, 1, 1)
    return 1


cdef int handled_call(lua_State *L) noexcept:
    """xpcall. Upvalue 1: Lua's own."""
    if lua.type(L, 2) == LUA_TFUNCTION:
        lua.settop(L, 2)
        lua.pushcclosure(L, call_handler, 1)
    return lua.tocfunction(L, upvalue(1))(L)


cdef int guard_handlers(lua_State *L) noexcept:
    """guard_handlers(xpcall) -> the one that scripts have"""
    lua.settop(L, 1)
    lua.pushcclosure(L, handled_call, 1)
    return 1


# --- Coroutines ----------------------------------------------------------------------------------------------------
#
# Lua makes room for what a coroutine is resumed with while no call protects that coroutine: without memory, it ends the
# process. The functions here make the room before, whatever the limit, and fail in the caller if there was too little.


cdef bint make_room(lua_State *L, lua_State *coroutine) noexcept:
    """Make room in a coroutine for the arguments of the running function; False if there is no memory for it.

    A coroutine has the hook of the time when it was made, or none if there was none: it gets the present one. And each
    counts its own instructions from the beginning, so that a script of many short ones would never be looked at: looks
    at the clock. May raise a Lua error.
    """
    cdef Heap *heap = (<World>world_of(L)).memory()
    cdef lua_Hook hook = lua.gethook(L)
    cdef size_t limit
    if lua.gethook(coroutine) is not hook:
        lua.sethook(coroutine, hook, 0 if hook is NULL else LUA_MASKCOUNT, HOOK_FIRST)
    look(L)
    limit = heap.limit
    if heap.used > limit:
        return False
    heap.limit = <size_t>-1
    lua.checkstack(coroutine, lua.gettop(L))
    heap.limit = limit
    return heap.used <= limit


cdef int raise_no_memory(lua_State *L) noexcept:
    lua.pushlstring(L, "not enough memory", 17)
    return lua.error(L)


cdef int resume(lua_State *L) noexcept:
    """coroutine.resume. Upvalue 1: Lua's own."""
    cdef lua_State *coroutine = lua.tothread(L, 1)
    if coroutine is not NULL and not make_room(L, coroutine):
        return raise_no_memory(L)
    return lua.tocfunction(L, upvalue(1))(L)


cdef int resume_wrapped(lua_State *L) noexcept:
    """What coroutine.wrap returns. Upvalue 1: the coroutine, where Lua's own looks for it; 2: Lua's own."""
    if not make_room(L, lua.tothread(L, upvalue(1))):
        return raise_no_memory(L)
    return lua.tocfunction(L, upvalue(2))(L)


cdef int wrap_coroutine(lua_State *L) noexcept:
    """coroutine.wrap. Upvalue 1: Lua's own."""
    lua.tocfunction(L, upvalue(1))(L)
    lua.getupvalue(L, -1, 1)
    lua.insert(L, -2)
    lua.pushcclosure(L, resume_wrapped, 2)
    return 1


cdef int guard_coroutines(lua_State *L) noexcept:
    """guard_coroutines(resume, wrap) -> the two as scripts have them"""
    lua.settop(L, 2)
    lua.pushcclosure(L, wrap_coroutine, 1)
    lua.insert(L, 1)
    lua.pushcclosure(L, resume, 1)
    lua.insert(L, 1)
    return 2


# --- What runs in a protected call ----------------------------------------------------------------------------------


cdef int load_chunk(lua_State *L) noexcept:
    """chunk(name): compile another file of this folder."""
    cdef bint is_compiled
    lua.settop(L, 1)
    lua.pushlstring(L, OWN_CHUNK, strlen(OWN_CHUNK))
    lua.pushvalue(L, 1)
    lua.concat(L, 2)
    is_compiled = push_file(L)
    if lua.loadbuffer(L, lua.tolstring(L, 3, NULL), lua.objlen(L, 3), lua.tolstring(L, 2, NULL)):
        return lua.error(L)
    if not is_compiled:
        lua.getfield(L, LUA_GLOBALSINDEX, "string")
        lua.getfield(L, -1, "dump")
        lua.pushvalue(L, 4)
        lua.call(L, 1, 1)
        keep_compiled(L)
        lua.settop(L, 4)
    return 1


cdef bint push_file(lua_State *L) noexcept:
    """Push the file whose name is at the bottom of the stack, or an empty string without one.

    Returns whether it is compiled: SCRIPT FLUSH starts an interpreter, and most of a start was compiling these files.
    """
    cdef str name = get_text(L, 1).decode()
    cdef bytes code = COMPILED.get(name)
    cdef bint is_compiled = code is not None
    if not is_compiled:
        try:
            with open(os.path.join(FOLDER, f"{name}.lua"), "rb") as file:
                code = file.read()
        except OSError:
            code = b""
    lua.pushlstring(L, PyBytes_AS_STRING(code), <size_t>PyBytes_GET_SIZE(code))
    return is_compiled


cdef int keep_compiled(lua_State *L) noexcept:
    """Keep what string.dump returned for the file whose name is at the bottom of the stack."""
    COMPILED[get_text(L, 1).decode()] = get_text(L, -1)
    return 0


cdef void open_redis(lua_State *L, void *world, bint is_for_scripts) noexcept:
    """Push the table `redis`."""
    lua.createtable(L, 0, 32)
    set_function(L, "call", redis_call, world)
    set_function(L, "pcall", redis_pcall, world)
    set_function(L, "error_reply", redis_error_reply, world)
    set_function(L, "status_reply", redis_status_reply, world)
    set_function(L, "sha1hex", redis_sha1hex, world)
    set_function(L, "log", redis_log, world)
    set_function(L, "setresp", redis_setresp, world)
    set_function(L, "set_repl", redis_set_repl, world)
    set_function(L, "acl_check_cmd", redis_acl_check_cmd, world)
    if is_for_scripts:
        set_function(L, "breakpoint", redis_breakpoint, world)
        set_function(L, "debug", redis_debug, world)
        set_function(L, "replicate_commands", redis_replicate_commands, world)
    set_constants(L)
    set_number(L, "REPL_NONE", 0)
    set_number(L, "REPL_AOF", 1)
    set_number(L, "REPL_SLAVE", 2)
    set_number(L, "REPL_REPLICA", 2)
    set_number(L, "REPL_ALL", 3)


cdef void open_loading(lua_State *L, void *world) noexcept:
    """Push what the table `redis` is while a library is loaded."""
    lua.createtable(L, 0, 8)
    set_function(L, "register_function", redis_register_function, world)
    set_function(L, "log", redis_log, world)
    set_constants(L)


cdef void set_constants(lua_State *L) noexcept:
    """Set the constants of the table on top that code finds whenever it runs."""
    set_number(L, "LOG_DEBUG", 0)
    set_number(L, "LOG_VERBOSE", 1)
    set_number(L, "LOG_NOTICE", 2)
    set_number(L, "LOG_WARNING", 3)
    set_number(L, "REDIS_VERSION_NUM", VERSION_NUMBER)
    lua.pushlstring(L, VERSION, strlen(VERSION))
    lua.setfield(L, -2, "REDIS_VERSION")


cdef void set_number(lua_State *L, const char *name, double number) noexcept:
    """Set a field of the table on top."""
    lua.pushnumber(L, number)
    lua.setfield(L, -2, name)


cdef int prepare(lua_State *L) noexcept:
    """Make the globals of scripts; argument 1 is the world."""
    cdef void *world = lua.touserdata(L, 1)
    lua.checkstack(L, FIRST_STACK // SLOT)
    if not (<World>world).heap.moved_stacks:
        lua.pushlstring(L, "the margin of stacks does not fit this build of Lua", 51)
        return lua.error(L)
    lua.pushlightuserdata(L, &WORLD)
    lua.pushvalue(L, 1)
    lua.rawset(L, LUA_REGISTRYINDEX)
    lua.gc(L, LUA_GCSTOP, 0)
    lua.openlibs(L)
    # Lua makes this one, too, where nothing protects it, unless it exists.
    lua.pushlstring(L, "C stack overflow", 16)
    lua.ref(L, LUA_REGISTRYINDEX)
    lua.pushlightuserdata(L, &TO_STRING)
    lua.getfield(L, LUA_GLOBALSINDEX, "tostring")
    lua.rawset(L, LUA_REGISTRYINDEX)
    lua.pushlightuserdata(L, world)
    lua.pushcclosure(L, load_chunk, 1)
    lua.pushlstring(L, "sandbox", 7)
    lua.call(L, 1, 1)
    lua.createtable(L, 0, 16)
    open_sandbox(L)
    open_json(L)
    set_function(L, "chunk", load_chunk, world)
    set_function(L, "guard_coroutines", guard_coroutines, world)
    set_function(L, "guard_handlers", guard_handlers, world)
    set_function(L, "draw", draw_random, world)
    set_function(L, "seed", seed_random, world)
    open_redis(L, world, (<World>world).is_for_scripts())
    lua.setfield(L, -2, "redis")
    if not (<World>world).is_for_scripts():
        open_loading(L, world)
        lua.setfield(L, -2, "loading")
    lua.call(L, 1, 2)
    (<World>world).loading = lua.ref(L, LUA_REGISTRYINDEX)
    (<World>world).globals = lua.ref(L, LUA_REGISTRYINDEX)
    lua.pushcclosure(L, handle_error, 0)
    (<World>world).handler = lua.ref(L, LUA_REGISTRYINDEX)
    lua.pushcclosure(L, call_function, 0)
    (<World>world).caller = lua.ref(L, LUA_REGISTRYINDEX)
    lua.gc(L, LUA_GCRESTART, 0)
    return 0


cdef int compile_code(lua_State *L) noexcept:
    """Compile `code`, and set `function`; argument 1 is the world."""
    cdef void *world = lua.touserdata(L, 1)
    if lua.loadbuffer(
        L, PyBytes_AS_STRING((<World>world).code), <size_t>PyBytes_GET_SIZE((<World>world).code),
        PyBytes_AS_STRING((<World>world).chunk),
    ):
        return lua.error(L)
    (<World>world).function = lua.ref(L, LUA_REGISTRYINDEX)
    return 0


cdef int run_library(lua_State *L) noexcept:
    """Compile `code` and run it, with the globals of a library that is loaded; argument 1 is the world."""
    cdef void *world = lua.touserdata(L, 1)
    cdef int status
    lua.settop(L, 0)
    lua.rawgeti(L, LUA_REGISTRYINDEX, (<World>world).handler)
    if lua.loadbuffer(
        L, PyBytes_AS_STRING((<World>world).code), <size_t>PyBytes_GET_SIZE((<World>world).code),
        PyBytes_AS_STRING((<World>world).chunk),
    ):
        (<World>world).note_failure(L, "Error compiling function")
        return 0
    aim_globals(L, (<World>world).loading)
    lua.sethook(L, look_at_deadline, LUA_MASKCOUNT, HOOK_EVERY)
    status = lua.pcall(L, 0, 0, 1)
    lua.sethook(L, NULL, 0, 0)
    aim_globals(L, (<World>world).globals)
    if status:
        (<World>world).note_failure(L, "Error registering functions")
    return 0


cdef void push_texts(lua_State *L, PyObject *args, Py_ssize_t first, Py_ssize_t count) noexcept:
    """Push a table of arguments of the request."""
    cdef Py_ssize_t i
    cdef PyObject *text
    lua.createtable(L, <int>count, 0)
    for i in range(count):
        text = PyList_GET_ITEM(<list>args, first + i)
        lua.pushlstring(L, PyBytes_AS_STRING(<bytes>text), <size_t>PyBytes_GET_SIZE(<bytes>text))
        lua.rawseti(L, -2, <int>(i + 1))


cdef int call_function(lua_State *L) noexcept:
    """Call `function`, and write its reply; argument 1 is the world."""
    cdef void *world = lua.touserdata(L, 1)
    cdef PyObject *args = <PyObject *>(<World>world).args
    cdef Py_ssize_t first = (<World>world).first, keys = (<World>world).keys
    cdef int count = 0, status
    lua.settop(L, 0)
    lua.rawgeti(L, LUA_REGISTRYINDEX, (<World>world).handler)
    lua.rawgeti(L, LUA_REGISTRYINDEX, (<World>world).function)
    if (<World>world).is_for_scripts():
        lua.rawgeti(L, LUA_REGISTRYINDEX, (<World>world).globals)
        push_texts(L, args, first, keys)
        lua.setfield(L, -2, "KEYS")
        push_texts(L, args, first + keys, len(<list>args) - first - keys)
        lua.setfield(L, -2, "ARGV")
        pop(L, 1)
    else:
        push_texts(L, args, first, keys)
        push_texts(L, args, first + keys, len(<list>args) - first - keys)
        count = 2
    if (<World>world).host.busy_us:
        (<World>world).looked_us = (<World>world).host.started_us
        (<World>world).hook_every = HOOK_FIRST
        lua.sethook(L, look_at_clock, LUA_MASKCOUNT, HOOK_FIRST)
        (<World>world).heap.running = L
    status = lua.pcall(L, count, 1, 1)
    (<World>world).heap.running = NULL
    lua.sethook(L, NULL, 0, 0)
    if status:
        (<World>world).write_error(L)
    else:
        (<World>world).write_reply(L)
    return 0
