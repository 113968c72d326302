# cython: language_level=3
"""What there is to know of a type of value, and the table of all types. See value_type.pyx."""

from cpython.object cimport Py_TYPE, PyObject

from streamd.numbers cimport leading_zeros


cdef enum:
    MAX_TYPES = 64
    NO_SIZE = -1        # values of this type are not counted by their size


cdef class ValueType:
    cdef readonly bytes name              # as TYPE reports it
    cdef readonly type value_class        # what its values are: instances of this class and of no class below it
    cdef readonly bint frees_slowly       # a large value is passed to LazyFree: it has free_effort() and detach()
    cdef readonly bint closes             # small values can be closed: it has `close` and `open`
    cdef readonly bint saves_closed       # ... and are saved as they are: it has `save_closed` and `rewrite_closed`
    cdef readonly bint is_timed           # its values are TimedValues: they may be due at a time of their own
    cdef readonly str sizes_name          # in INFO keysizes, of the counts of values by size; None: not counted
    cdef readonly tuple rdb_types         # type bytes of an RDB stream that `loader` reads
    cdef readonly tuple annotations       # kinds of annotations in an append-only file that `restore_state` reads
    cdef readonly tuple families          # modules that declare its commands
    cdef readonly int number              # place in the table; -1: not registered

    cdef void *close(self, object value, unsigned char *form) noexcept
    cdef object open(self, void *block, int form)
    cdef int save_closed(self, object writer, const void *block) except -1
    cdef int rewrite_closed(self, object writer, bytes key, const void *block) except -1
    cdef Py_ssize_t weigh(self, object value, int *size_class) except -1
    cpdef Py_ssize_t weight(self, object value) except -1
    cpdef Py_ssize_t size(self, object value) except? NO_SIZE
    cpdef long long memory(self, object value) except -1
    cpdef long long serialized_length(self, object value) except -1
    cpdef bytes encoding(self, bytes key, object value, int hint)
    cpdef long long due(self, object value) except? -2
    cpdef long long act(self, object db, bytes key, object value, long long limit) except -1
    cpdef int moved_hint(self, bytes key, object value, int hint) except -1
    cpdef object copy(self, object value)
    cpdef int rdb_type(self, object value, int version) except -1
    cpdef int save(self, object writer, object value) except -1
    cpdef object loader(self, object window, object options)
    cpdef int rewrite(self, object writer, bytes key, object value) except -1
    cpdef object restore_state(self, object db, list args, bytes kind, list numbers)
    cpdef bytes digest(self, object value, bytes digest)


cdef struct TypeTable:
    # The types of this process, in the order of their numbers.
    int count
    PyObject *types[MAX_TYPES]
    PyObject *classes[MAX_TYPES]          # `value_class` of each


cdef TypeTable *value_types

cdef int refuse_value(object value) except -1


cdef inline int size_class(Py_ssize_t size) noexcept nogil:
    """0 for what is empty, else 1 more than the power of two that the size reaches."""
    return 0 if size == 0 else 64 - leading_zeros(<unsigned long long>size)


cdef inline ValueType type_at(int number):
    """The type with a number, which a key record holds."""
    return <ValueType>value_types.types[number]


cdef inline int number_of(object value) except -1:
    """The number of the type of a value; TypeError when there is none."""
    cdef int number
    for number in range(value_types.count):
        if value_types.classes[number] is <PyObject *>Py_TYPE(value):
            return number
    return refuse_value(value)
