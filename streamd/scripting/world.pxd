# cython: language_level=3
"""A world of Lua. See world.pyx."""

from streamd.protocol.reply cimport ReplyWriter
from streamd.scripting.script_host cimport ScriptHost
from streamd.scripting.lua cimport lua_State


cdef enum:
    WORDS = 16      # names of commands that are found by their place; a power of two


cdef struct Heap:
    # The memory of one interpreter, in bytes.
    size_t used
    size_t limit
    size_t moved_stacks     # how often a stack has got another size, or was freed
    lua_State *running      # the script that has a hook; NULL: none


cdef class World:
    cdef lua_State *L                   # owned; NULL before the first script
    cdef Heap heap
    cdef size_t collect_above           # bytes in use after a script that make Lua collect its garbage
    cdef readonly ScriptHost host
    cdef readonly str kind              # "script" or "function"
    cdef int globals                    # reference of the table of globals
    cdef int loading                    # of what the globals are while a library is loaded
    cdef int handler                    # of `handle_error`, made once: a closure is garbage to be collected
    cdef int caller                     # of `call_function`
    cdef bytes chunk                    # name of the code that is compiled: "@user_script"
    # The error that the C function which is about to return has to raise.
    cdef bytes error
    cdef bint is_counted                # it has been counted already
    # Names of commands, so that the same bytes come as the same object.
    cdef list words
    cdef const char *places[WORDS]      # where Lua has the text; may be stale
    # The call that is being made.
    cdef bytes code
    cdef int function                   # reference
    cdef list args
    cdef Py_ssize_t first               # where its keys begin in `args`
    cdef Py_ssize_t keys                # how many there are
    cdef ReplyWriter reply
    cdef list errors                    # in the reply, not counted yet
    cdef bint has_failed                # `error` is what it ended with
    cdef bint has_error                 # there is an error in its reply
    cdef object bug                     # an exception that is no script's fault
    # The library that is being loaded.
    cdef list registered                # (name, reference, description or None, flags); None: none is loaded
    cdef bint is_ending                 # the hook has raised the error that ends what runs
    cdef int hook_every                 # instructions between two looks at the clock
    cdef long long looked_us            # when it was looked at, monotonic
    cdef long long deadline_us          # monotonic; 0: it may take any time

    cdef int open(self) except -1
    cpdef int close(self) except -1
    cpdef int compile(self, bytes code) except 0
    cpdef int forget(self, int function) except -1
    cdef bytes dump(self, int function)
    cpdef list load_library(self, bytes code, int limit_ms)
    cdef int take_registration(self, lua_State *L) except -1
    cdef int take_named(self, lua_State *L, list found) except -1
    cdef int take_flags(self, lua_State *L) except -1
    cdef int register_function(self, lua_State *L) noexcept
    cdef int note_failure(self, lua_State *L, str what) noexcept
    cdef bint is_late(self) noexcept
    cdef int run(self, int function, list args, Py_ssize_t first, Py_ssize_t keys, ReplyWriter reply) except -1
    cdef int collect(self) except -1
    cdef int fail(self, str text, bint is_counted) except -1
    cdef int note(self, str text) noexcept
    cdef int reply_error(self, ReplyWriter reply) except -1
    cdef bint is_for_scripts(self) noexcept
    cdef int hash_text(self, lua_State *L) noexcept
    cdef int write_log(self, lua_State *L, int level) noexcept
    cdef int check_permission(self, lua_State *L) noexcept
    cdef Heap *memory(self) noexcept
    cdef int set_ending(self) noexcept
    cdef bint must_end(self) noexcept
    cdef int pace(self) noexcept
    cdef list take_args(self, lua_State *L)
    cdef bytes take_word(self, const char *text, size_t length)
    cdef int call_command(self, lua_State *L) noexcept
    cdef int write_reply(self, lua_State *L) noexcept
    cdef int write_error(self, lua_State *L) noexcept
