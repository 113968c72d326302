# cython: language_level=3, boundscheck=False, wraparound=False
"""Functions: the libraries of functions that a server has.

A library is code that registers functions while it is loaded; FCALL calls them. Libraries are data: snapshots and
append-only files have their code, and commands that change them are propagated.

Every change is made on a copy of the table of libraries, which becomes the table when nothing can fail any more: a
library that does not compile, or whose functions have names that others have, leaves everything as it was.
"""

cimport cython
from libc.stdint cimport int64_t

from streamd.core.client cimport Client
from streamd.core.clock cimport monotonic_us
from streamd.core.context cimport Context
from streamd.core.info cimport numbers
from streamd.errors import WRONG_PAYLOAD, CommandError, CorruptFileError
from streamd.memory.measurement cimport Measurement
from streamd.persistence.persistence import Persistence
from streamd.persistence.rdb.format import WriteOptions, lossless_form
from streamd.persistence.rdb.read import PayloadError, restore_libraries
from streamd.persistence.rdb.write import dump_libraries
from streamd.scripting.scripts cimport Scripts
from streamd.scripting.shebang import read_library_line
from streamd.scripting.world cimport World

__all__ = ["Function", "Functions", "Library"]

from streamd.memory.measurement import Measurement as measurement_type
from streamd.scripting.scripts import Scripts as scripts_type

LOAD_LIMIT_MS = 500
"""How long a library may run while it is loaded."""


@cython.final
cdef class Function:
    """A function that a library has registered."""


@cython.final
cdef class Library:
    """A library that is loaded."""


cdef int count_code(object capability, int64_t *to) except -1:
    """Bytes of scripts, of functions, and of their interpreters."""
    cdef Functions self = <Functions>capability
    to[0], to[1], to[2] = self.scripts.bodies, self.code_size(), self.interpreters()
    return 0


cdef int read_figures(object capability, int64_t *to) except -1:
    cdef Functions self = <Functions>capability
    to[0], to[1] = len(self.functions), len(self.libraries)
    to[2] = <int64_t>self.world.heap.used
    to[3] = self.code_size()
    to[4] = to[5] = self.interpreters()
    to[6] = to[7] = self.scripts.bodies + to[3]
    return 0


cdef class Functions(Capability):
    """All libraries of a server."""

    info = {
        "memory": (
            numbers(
                "number_of_functions number_of_libraries used_memory_vm_functions used_memory_functions"
                " used_memory_vm_total used_memory_vm_total_human:size used_memory_scripts"
                " used_memory_scripts_human:size",
                read_figures,
            ),
        ),
    }

    def __init__(self, host not None):
        cdef Scripts scripts = host.get(scripts_type)
        self.host = scripts.host
        self.world = World(self.host, "function")
        self.libraries = {}
        self.functions = {}
        self.scripts = scripts
        self.config = host.config
        scripts.functions = self
        (<Measurement?>host.get(measurement_type)).count_code(self, count_code)
        persistence = host.get(Persistence)
        persistence.saving.writer.libraries = self.codes
        persistence.loader.replace_libraries = self.replace

    def apply_settings(self):
        self.world.heap.limit = self.config.lua_memory_limit or <size_t>-1

    @property
    def count(self):
        """Functions of all libraries."""
        return len(self.functions)

    cdef long long interpreters(self) noexcept:
        """Bytes that the interpreters of scripts and of functions use."""
        return self.scripts.world.heap.used + self.world.heap.used

    @property
    def size(self):
        """Bytes of the code of all libraries."""
        return self.code_size()

    cdef long long code_size(self) except -1:
        cdef Library library
        cdef long long total = 0
        for library in self.libraries.values():
            total += len(library.code)
        return total

    def codes(self):
        """The code of all libraries, as files have it."""
        return [library.code for library in self.libraries.values()]

    # --- Calling ------------------------------------------------------------------------------------------------------

    cdef Function find(self, bytes name):
        """A function, whatever the case of its name; None if there is none."""
        return <Function>self.functions.get(name.lower())

    def find_flags(self, bytes name not None):
        """The flags of a function, as a set of ScriptFlag; None if there is none."""
        function = self.find(name)
        return None if function is None else function.flags

    @property
    def running(self):
        """The function that runs: its name, the request that calls it, and how long it has run in ms; None: none does.

        Raises CommandError while a script runs.
        """
        if self.host.caller is None:
            return None
        if self.host.kind != "function":
            raise CommandError(self.scripts.busy_text)
        return self.host.name, self.host.request, (monotonic_us() - self.host.started_us) // 1000

    cdef int run(self, Context ctx, Function function, list args, Py_ssize_t keys, bint is_read_only) except -1:
        """Call a function for a request with so many keys; its reply is written.

        is_read_only  the command says that the function does not write
        """
        cdef Client client = ctx.client
        self.host.begin(client, "function", function.name, args, function.flags, is_read_only)
        try:
            self.world.run(function.reference, args, 3, keys, client.reply)
        finally:
            self.host.end()
        if self.world.has_error:
            self.host.count_failure(args)
        return 0

    # --- Changing libraries -------------------------------------------------------------------------------------------

    cdef Library compile(self, bytes code, bint is_limited):
        """A library that is not in the table yet. Raises CommandError."""
        cdef Library library = Library.__new__(Library)
        cdef Function function
        library.code = code
        library.name, body = read_library_line(code)
        library.functions = []
        for name, reference, description, flags in self.world.load_library(body, LOAD_LIMIT_MS if is_limited else 0):
            function = Function.__new__(Function)
            function.name = name
            function.reference = reference
            function.description = description
            function.flags = flags
            library.functions.append(function)
        return library

    cdef int forget(self, Library library) except -1:
        """Give up what a library has in the interpreter."""
        cdef Function function
        for function in library.functions:
            self.world.forget(function.reference)
        return 0

    cdef int install(self, dict libraries) except -1:
        """Make this the table. Raises CommandError if a name is there twice; then it is not."""
        cdef Library library
        cdef Function function
        cdef dict functions = {}
        for library in libraries.values():
            for function in library.functions:
                if functions.setdefault(function.name.lower(), function) is not function:
                    raise CommandError(f"ERR Function {text(function.name)} already exists")
        for library in self.libraries.values():
            if libraries.get(library.name) is not library:
                self.forget(library)
        self.libraries = libraries
        self.functions = functions
        if not libraries:
            self.world.close()
        return 0

    cdef dict compile_all(self, list codes):
        """Libraries by name, not in the table yet. Raises CommandError."""
        cdef dict found = {}
        try:
            for code in codes:
                name = read_library_line(code)[0]
                if name in found:
                    raise CommandError(f"ERR Library '{text(name)}' already exists")
                found[name] = self.compile(code, False)
        except CommandError:
            self.drop(found)
            raise
        return found

    def load(self, bytes code not None, bint replaces, bint is_limited):
        """FUNCTION LOAD: add a library; returns its name. Raises CommandError.

        replaces    there may be one of this name
        is_limited  it may run for half a second only
        """
        name = read_library_line(code)[0]
        if name in self.libraries and not replaces:
            raise CommandError(f"ERR Library '{text(name)}' already exists")
        self.take(self.libraries, {name: self.compile(code, is_limited)})
        return name

    def replace(self, list codes not None):
        """Have these libraries and no others. Raises CommandError."""
        self.take({}, self.compile_all(codes))

    def restore(self, bytes payload not None, bytes policy not None):
        """FUNCTION RESTORE: add the libraries of a payload. Raises CommandError.

        policy  APPEND, REPLACE or FLUSH
        """
        try:
            codes = restore_libraries(payload)
        except PayloadError:
            raise CommandError(WRONG_PAYLOAD) from None
        except CorruptFileError as error:
            raise CommandError(f"ERR {describe_damage(error)}") from None
        found = self.compile_all(codes)
        if policy == b"APPEND":
            for name in found:
                if name in self.libraries:
                    self.drop(found)
                    raise CommandError(f"ERR Library {text(name)} already exists")
        self.take({} if policy == b"FLUSH" else self.libraries, found)

    cdef int take(self, dict kept, dict found) except -1:
        """Make a table of libraries that are kept and of compiled ones, which win. Raises CommandError."""
        try:
            self.install({**kept, **found})
        except CommandError:
            self.drop(found)
            raise
        return 0

    cdef int drop(self, dict found) except -1:
        """Forget compiled libraries."""
        cdef Library library
        for library in found.values():
            self.forget(library)
        return 0

    def dump(self):
        """FUNCTION DUMP: a payload with all libraries."""
        options = WriteOptions(lossless_form(self.config.rdb_form), compression=self.config.rdbcompression)
        return dump_libraries(self.codes(), options)

    def delete(self, bytes name not None):
        """FUNCTION DELETE. Raises CommandError."""
        if name not in self.libraries:
            raise CommandError("ERR Library not found")
        self.install({other: library for other, library in self.libraries.items() if other != name})

    def flush(self):
        """FUNCTION FLUSH: forget all libraries, and all that they have left in the interpreter."""
        self.install({})


cdef str text(bytes name):
    return name.decode("latin-1")


cdef str describe_damage(error):
    """What is wrong with a payload, in Redis's words."""
    if error.expected != "a library of functions":
        return "Failed loading library payload"
    return "Pre-GA function format not supported" if error.found == "type 246" else "given type is not a function"
