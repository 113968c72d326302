# cython: language_level=3, boundscheck=False, wraparound=False
"""SetType: sets as a type of value."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memset

from streamd.engine.listpack cimport LpValue
from streamd.keyspace.value_type cimport NO_SIZE, ValueType, size_class
from streamd.persistence.aof.command_writer cimport CommandWriter
from streamd.persistence.rdb.codes cimport TYPE_SET, TYPE_SET_INTSET, TYPE_SET_LISTPACK
from streamd.persistence.rdb.write cimport RdbWriter
from streamd.values.sets.loading cimport SetLoader, put_set, set_rdb_type
from streamd.values.sets.set_value cimport (
    Set, SetForm, SetWalk, bytes_of, set_close, set_copy, set_has, set_memory, set_next, set_open,
)

from streamd.digests import add, chain

__all__ = ["SetType"]

cdef enum:
    FILE_HEAD = 5              # about: type and length in a file
    AT_ONCE = 64               # members of one SADD in a file of commands


@cython.final
cdef class SetType(ValueType):
    """Sets. Their memory is counted where it is allocated.

    That of the objects is not: a small value has one only while it is in use, beside a large one it is negligible.
    """

    def __init__(self):
        super().__init__(
            b"set", Set, frees_slowly=True, closes=True, sizes_name="sets_items",
            rdb_types=(TYPE_SET, TYPE_SET_INTSET, TYPE_SET_LISTPACK),
            families=tuple(["streamd.values.sets." + name for name in ("sadd", "spop", "combine", "sscan")]),
        )

    # --- Memory ----------------------------------------------------------------------------------------------------

    cdef Py_ssize_t weigh(self, object value, int *found) except -1:
        found[0] = size_class(<Py_ssize_t>(<Set?>value).count)
        return 0

    cpdef Py_ssize_t weight(self, object value) except -1:
        return 0

    cpdef Py_ssize_t size(self, object value) except? NO_SIZE:
        return <Py_ssize_t>(<Set?>value).count

    cpdef long long memory(self, object value) except -1:
        return <long long>set_memory(<Set?>value)

    cdef void *close(self, object value, unsigned char *form) noexcept:
        return set_close(<Set>value, form)

    cdef object open(self, void *block, int form):
        return set_open(block, <SetForm>form)

    # --- In a database ---------------------------------------------------------------------------------------------

    cpdef bytes encoding(self, bytes key, object value, int hint):
        return (<Set?>value).encoding

    cpdef object copy(self, object value):
        return set_copy(<Set?>value)

    def scores(self, value):
        """Members with the score that they have for commands on sorted sets: 1."""
        return [(member, 1.0) for member in (<Set?>value).members()]

    def score_of(self, value, bytes member not None):
        """That score of one member; None: it is not there."""
        if set_has(<Set?>value, <const uint8_t *>PyBytes_AS_STRING(member), <size_t>PyBytes_GET_SIZE(member)):
            return 1.0
        return None

    # --- In files --------------------------------------------------------------------------------------------------

    cpdef int rdb_type(self, object value, int version) except -1:
        return set_rdb_type(<Set?>value, version)

    cpdef int save(self, object writer, object value) except -1:
        return put_set(<RdbWriter?>writer, <Set?>value)

    cpdef object loader(self, object window, object options):
        return SetLoader(self, window, options)

    cpdef int rewrite(self, object writer, bytes key, object value) except -1:
        cdef CommandWriter commands = <CommandWriter?>writer
        cdef Set set = <Set?>value
        cdef uint64_t left = set.count, written = 0
        cdef SetWalk walk
        cdef LpValue member
        memset(&walk, 0, sizeof(walk))
        while set_next(set, &walk, &member):
            if written % AT_ONCE == 0:
                commands.begin(2 + <unsigned int>(AT_ONCE if left > AT_ONCE else left))
                commands.word(b"SADD")
                commands.word(key)
            commands.word(bytes_of(&member))
            written += 1
            left -= 1
        return 0

    # --- DEBUG -----------------------------------------------------------------------------------------------------

    cpdef long long serialized_length(self, object value) except -1:
        return FILE_HEAD + <long long>set_memory(<Set?>value)

    cpdef bytes digest(self, object value, bytes digest):
        cdef SetWalk walk
        cdef LpValue member
        digest = chain(digest, b"\0\0\0\x02")
        memset(&walk, 0, sizeof(walk))
        while set_next(<Set?>value, &walk, &member):
            digest = add(digest, bytes_of(&member))
        return digest
