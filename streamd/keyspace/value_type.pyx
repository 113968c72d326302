# cython: language_level=3, boundscheck=False, wraparound=False
"""ValueType: what there is to know of one type of value, said once.

A type is one object of a class derived from ValueType, which overrides what differs from the base class. Everything
that meets values of any type (databases, snapshots, append-only files, memory, DEBUG, commands of any key) asks it, and
knows no type by name.

A key record holds the number of its value's type, one byte: the place of the type in a table, where it is found at
once. The table is that of the process, filled by `register`; streamd/values lists the types of streamd. A value's type
follows from its Python class, so no two types share one.

A type may be written in Python: the compiled methods call what overrides them.
"""

from libc.stdlib cimport calloc

__all__ = ["ValueType", "register", "registered_types", "type_of"]

value_types = <TypeTable *>calloc(1, sizeof(TypeTable))
if value_types is NULL:
    raise MemoryError


cdef class ValueType:
    """One type of value. A class derived from it overrides what differs.

    name          as TYPE reports it
    value_class   the Python class of its values
    frees_slowly  large values are freed in the background: they have `free_effort()` and `detach()`, see LazyFree
    is_timed      its values are TimedValues, and `due` says when a value is due
    closes        small values can be closed, see `close`
    saves_closed  such values are saved without being opened, see `save_closed`
    sizes_name    what INFO keysizes calls the counts of its values by `size`; None: they are not counted
    rdb_types     type bytes of values in RDB streams
    annotations   kinds of the annotations that `rewrite` writes
    families      names of the modules that declare its commands
    """

    def __init__(self, bytes name not None, type value_class not None, *, bint frees_slowly=False, bint is_timed=False,
                 bint closes=False, bint saves_closed=False, str sizes_name=None, tuple rdb_types not None=(),
                 tuple annotations not None=(), tuple families not None=()):
        self.name = name
        self.value_class = value_class
        self.frees_slowly = frees_slowly
        self.is_timed = is_timed
        self.closes = closes
        self.saves_closed = saves_closed
        self.sizes_name = sizes_name
        self.rdb_types = rdb_types
        self.annotations = annotations
        self.families = families
        self.number = -1

    # --- Memory ----------------------------------------------------------------------------------------------------

    cdef Py_ssize_t weigh(self, object value, int *found) except -1:
        """`weight`, and the class of `size` in `found` (NO_SIZE: none)."""
        cdef Py_ssize_t size = self.size(value)
        found[0] = NO_SIZE if size < 0 else size_class(size)
        return self.weight(value)

    cpdef Py_ssize_t weight(self, object value) except -1:
        """Bytes of memory that the database counts for a value: they must not change as long as it is there."""
        raise NotImplementedError

    cpdef Py_ssize_t size(self, object value) except? NO_SIZE:
        """What values are counted by: length or elements; NO_SIZE: they are not. It must not change either."""
        return NO_SIZE

    cpdef long long memory(self, object value) except -1:
        """Bytes of memory of a value, all of them (MEMORY USAGE)."""
        return self.weight(value)

    # --- Values that are closed, see key_record.pyx ------------------------------------------------------------------

    cdef void *close(self, object value, unsigned char *form) noexcept:
        """Take the memory of a value that is one block of streamd.heap; the object is dropped. NULL: it is not one.

        form  a number below 64 that `open` needs
        """
        return NULL

    cdef object open(self, void *block, int form):
        """The value that `close` took apart. MemoryError: it is closed still."""
        raise NotImplementedError

    cdef int save_closed(self, object writer, const void *block) except -1:
        """As save, of the block of a closed value.

        For types whose `open` writes to blocks: a child that saves them would get a copy of all of them.
        """
        raise NotImplementedError

    cdef int rewrite_closed(self, object writer, bytes key, const void *block) except -1:
        """As rewrite, of the block of a closed value, for the same types."""
        raise NotImplementedError

    # --- In a database ---------------------------------------------------------------------------------------------

    cpdef bytes encoding(self, bytes key, object value, int hint):
        """How Redis would store a value, as OBJECT ENCODING reports it; hint: what its record holds for the type."""
        return self.name

    cpdef int moved_hint(self, bytes key, object value, int hint) except -1:
        """The hint for a value of `key` that is copied or moved to another key."""
        return hint

    cpdef object copy(self, object value):
        """A value that shares nothing with `value` that changes."""
        return value

    def scores(self, value):
        """Members with scores, for the commands that combine sorted sets: an iterator of pairs; None: it has none."""

    def score_of(self, value, bytes member not None):
        """The score of one member of a value that has such, or None."""

    cpdef long long due(self, object value) except? -2:
        """When a value has something to do, as Unix time in ms; -1: never. A change is reported by Database.retime."""
        return -1

    cpdef long long act(self, object db, bytes key, object value, long long limit) except -1:
        """Do what is due, in at most `limit` steps; how many they were. Then the value is due later, or gone."""
        raise NotImplementedError

    # --- In files --------------------------------------------------------------------------------------------------

    cpdef int rdb_type(self, object value, int version) except -1:
        """The type byte of a value in an RDB stream of this version of the format."""
        return self.rdb_types[0]

    cpdef int save(self, object writer, object value) except -1:
        """Write a value, without its type byte, to an RdbWriter."""
        raise NotImplementedError

    cpdef object loader(self, object window, object options):
        """What reads values of its `rdb_types` from a Window: a ValueLoader. options: LoadOptions."""
        raise NotImplementedError

    cpdef int rewrite(self, object writer, bytes key, object value) except -1:
        """Write the commands that recreate a value to a CommandWriter."""
        raise NotImplementedError

    cpdef object restore_state(self, object db, list args, bytes kind, list numbers):
        """Apply an annotation of a file of commands; what is not understood is skipped.

        args     the preceding command
        kind     one of `annotations`
        numbers  what follows it
        """

    # --- Observation -----------------------------------------------------------------------------------------------

    def metrics(self, host):
        """What reads the metrics of its values for the server `host`: a ValueMetrics; None: there are none."""

    def history(self, host):
        """What samples its values for the last hour: its `sample(slices)` takes one; None: nothing does."""

    # --- DEBUG -----------------------------------------------------------------------------------------------------

    cpdef long long serialized_length(self, object value) except -1:
        """About how many bytes a value takes in a file."""
        return self.memory(value)

    cpdef bytes digest(self, object value, bytes digest):
        """`digest`, with all of a value mixed in, see streamd/digests.py."""
        raise NotImplementedError


# --- The table -------------------------------------------------------------------------------------------------------


def registered_types():
    """All types, in the order of their numbers."""
    return [<ValueType>value_types.types[number] for number in range(value_types.count)]


def register(ValueType type not None):
    """Add a type to the table, once and for all. Raises ValueError when another has its class, name or type bytes."""
    for other in registered_types():
        if other is type:
            return
        if other.value_class is type.value_class or other.name == type.name or {*other.rdb_types} & {*type.rdb_types}:
            raise ValueError(f"two types of value are too alike: {other.name.decode()}, {type.name.decode()}")
    if value_types.count == MAX_TYPES:
        raise ValueError("too many types of value")
    type.number = value_types.count
    KEPT.append(type)
    value_types.types[type.number] = <PyObject *>type
    value_types.classes[type.number] = <PyObject *>type.value_class
    value_types.count += 1


cdef list KEPT = []     # the types in the table, which only borrows them


def type_of(value):
    """The type of a value; TypeError when there is none."""
    return type_at(number_of(value))


cdef int refuse_value(object value) except -1:
    raise TypeError(f"no type of value has the class {type(value).__name__}")
