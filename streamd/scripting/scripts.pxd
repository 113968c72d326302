# cython: language_level=3
"""The scripts of a server. See scripts.pyx."""

cimport cython

from streamd.core.capability cimport Capability
from streamd.core.client cimport Client
from streamd.core.context cimport Context
from streamd.core.dispatch cimport Dispatcher
from streamd.core.route cimport Route
from streamd.scripting.script_host cimport ScriptHost
from streamd.scripting.stage cimport Stage
from streamd.scripting.world cimport World


@cython.final
cdef class Script:
    cdef readonly bytes sha
    cdef readonly bytes body
    cdef int flags                      # set of host.ScriptFlag
    cdef int function                   # its reference in the world
    cdef bint is_lasting                # it came by SCRIPT LOAD: it is never thrown out
    cdef bint is_examined               # `is_short` is known: since it was to run for the second time
    cdef bint is_short                  # it needs no stage


cdef class Scripts(Capability):
    cdef Dispatcher dispatcher
    cdef object config
    cdef Route eval_route
    cdef Route evalsha_route
    cdef ScriptHost host
    cdef World world
    cdef Stage stage
    cdef public object functions        # functions.Functions
    cdef dict scripts                   # sha -> Script
    cdef dict by_body                   # body -> Script: EVAL of a script that is known makes no digest
    cdef dict passing                   # sha -> None: those that came by EVAL, the longest unused first
    cdef Script latest                  # the last of `passing`, or None
    cdef long long bodies               # bytes of their code
    cdef readonly long long evicted     # scripts thrown out

    cdef Script find(self, bytes sha)
    cdef Script add(self, bytes body, bint is_lasting)
    cdef int note_use(self, Script script) except -1
    cdef bint ends_soon(self, Route route, list args) except -1
    cdef int throw_out(self, bytes sha) except -1
    cdef int run(self, Context ctx, Script script, list args, Py_ssize_t keys, bint is_read_only) except -1
