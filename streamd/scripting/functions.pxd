# cython: language_level=3
"""The libraries of functions of a server. See functions.pyx."""

cimport cython

from streamd.core.capability cimport Capability
from streamd.core.client cimport Client
from streamd.core.context cimport Context
from streamd.scripting.script_host cimport ScriptHost
from streamd.scripting.scripts cimport Scripts
from streamd.scripting.world cimport World


@cython.final
cdef class Function:
    cdef readonly bytes name
    cdef readonly bytes description     # None: it has none
    cdef readonly int flags             # set of host.ScriptFlag
    cdef int reference                  # in the world


@cython.final
cdef class Library:
    cdef readonly bytes name
    cdef readonly bytes code
    cdef readonly list functions        # of Function, as they were registered


cdef class Functions(Capability):
    cdef ScriptHost host
    cdef World world
    cdef Scripts scripts
    cdef object config
    cdef readonly dict libraries        # name -> Library, in the order in which they came
    cdef dict functions                 # name in lower case -> Function

    cdef long long interpreters(self) noexcept
    cdef long long code_size(self) except -1
    cdef Function find(self, bytes name)
    cdef int run(self, Context ctx, Function function, list args, Py_ssize_t keys, bint is_read_only) except -1
    cdef Library compile(self, bytes code, bint is_limited)
    cdef int forget(self, Library library) except -1
    cdef dict compile_all(self, list codes)
    cdef int take(self, dict kept, dict found) except -1
    cdef int drop(self, dict found) except -1
    cdef int install(self, dict libraries) except -1
