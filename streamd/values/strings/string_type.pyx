# cython: language_level=3, boundscheck=False, wraparound=False
"""StringType: strings as a type of value. A string is a `bytes` object."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t

from streamd.keyspace.key_record cimport object_size
from streamd.keyspace.value_type cimport ValueType, size_class
from streamd.numbers cimport read_int64
from streamd.persistence.aof.command_writer cimport CommandWriter
from streamd.persistence.rdb.codes cimport TYPE_STRING
from streamd.persistence.rdb.value_loader cimport ValueLoader
from streamd.persistence.rdb.write cimport RdbWriter

from streamd.digests import chain

__all__ = ["ENCODING_BY_LENGTH", "ENCODING_BY_VALUE", "ENCODING_RAW", "StringType"]

cdef enum:
    EMBEDDED_MAX = 41   # bytes of key and string together that Redis 8.6 keeps in one block ("embstr")

ENCODING_BY_VALUE = HINT_BY_VALUE
ENCODING_BY_LENGTH = HINT_BY_LENGTH
ENCODING_RAW = HINT_RAW


@cython.final
cdef class StringType(ValueType):
    """Strings."""

    def __init__(self):
        super().__init__(
            b"string", bytes, sizes_name="strings_sizes", rdb_types=(TYPE_STRING,),
            families=tuple([
                "streamd.values.strings." + name for name in (
                    "get_set", "string_commands", "increx", "lcs_command", "bitmaps", "bitfield", "pfadd",
                )
            ]),
        )

    cdef Py_ssize_t weigh(self, object value, int *found) except -1:
        found[0] = size_class(PyBytes_GET_SIZE(<bytes>value))
        return object_size(<bytes>value)

    cpdef Py_ssize_t weight(self, object value) except -1:
        return object_size(<bytes?>value)

    cpdef bytes encoding(self, bytes key, object value, int hint):
        cdef int64_t number
        cdef bytes text = <bytes?>value
        if hint == HINT_RAW:
            return b"raw"
        if hint == HINT_BY_VALUE and read_int64(PyBytes_AS_STRING(text), <size_t>PyBytes_GET_SIZE(text), &number):
            return b"int"
        return b"embstr" if PyBytes_GET_SIZE(key) + PyBytes_GET_SIZE(text) <= EMBEDDED_MAX else b"raw"

    cpdef int moved_hint(self, bytes key, object value, int hint) except -1:
        return HINT_RAW if self.encoding(key, value, hint) == b"raw" else hint

    cpdef int save(self, object writer, object value) except -1:
        return (<RdbWriter?>writer).put_bytes(<bytes?>value)

    cpdef object loader(self, object window, object options):
        return StringLoader(self, window)

    cpdef int rewrite(self, object writer, bytes key, object value) except -1:
        cdef CommandWriter commands = <CommandWriter?>writer
        commands.begin(3)
        commands.word(b"SET")
        commands.word(key)
        return commands.word(<bytes?>value)

    cpdef long long serialized_length(self, object value) except -1:
        return len(<bytes?>value) + 1

    cpdef bytes digest(self, object value, bytes digest):
        return chain(chain(digest, bytes(4)), value)


@cython.final
cdef class StringLoader(ValueLoader):
    cpdef object begin(self, int rdb_type):
        self.value = self.window.get_bytes()
