# cython: language_level=3, boundscheck=False, wraparound=False
"""SortedSetType: sorted sets as a type of value."""

cimport cython
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy

from streamd.keyspace.value_type cimport NO_SIZE, ValueType, size_class
from streamd.persistence.aof.command_writer cimport CommandWriter
from streamd.persistence.rdb.codes cimport TYPE_SORTED_SET, TYPE_SORTED_SET_LISTPACK
from streamd.persistence.rdb.listpacks cimport put_listpack
from streamd.persistence.rdb.write cimport RdbWriter
from streamd.protocol.doubles cimport DOUBLE_ROOM, put_double, put_shortest
from streamd.values.sorted_sets.access cimport member_bytes
from streamd.values.sorted_sets.loading cimport SortedSetLoader
from streamd.values.sorted_sets.packed cimport Item
from streamd.values.sorted_sets.sorted_set cimport SortedSet, Walk, sorted_set_of

from streamd.digests import add, chain
from streamd.values.sorted_sets.loading import RDB_TYPES

__all__ = ["SortedSetType"]

cdef enum:
    MEMBERS_PER_COMMAND = 64    # of a ZADD in a file


@cython.final
cdef class SortedSetType(ValueType):
    """Sorted sets. Their memory is counted where it is allocated.

    That of the objects is not: a small value has one only while it is in use, beside a large one it is negligible.
    """

    def __init__(self):
        super().__init__(
            b"zset", SortedSet, frees_slowly=True, closes=True, sizes_name="zsets_items", rdb_types=RDB_TYPES,
            families=tuple([
                "streamd.values.sorted_sets." + name for name in (
                    "zadd", "zrem", "zrange", "zscore", "zpop", "zscan", "zrandmember", "zcombine",
                )
            ]),
        )

    cdef Py_ssize_t weigh(self, object value, int *found) except -1:
        found[0] = size_class(<Py_ssize_t>(<SortedSet>value).count())
        return 0

    cpdef Py_ssize_t weight(self, object value) except -1:
        return 0

    cpdef Py_ssize_t size(self, object value) except? NO_SIZE:
        return <Py_ssize_t>(<SortedSet?>value).count()

    cpdef long long memory(self, object value) except -1:
        return <long long>(<SortedSet?>value).memory()

    cdef void *close(self, object value, unsigned char *form) noexcept:
        return (<SortedSet>value).close()

    cdef object open(self, void *block, int form):
        return sorted_set_of(<uint8_t *>block)

    cpdef bytes encoding(self, bytes key, object value, int hint):
        return b"skiplist" if (<SortedSet?>value).packed is NULL else b"listpack"

    cpdef object copy(self, object value):
        return (<SortedSet?>value).copy()

    def scores(self, value):
        return iter(value)

    def score_of(self, SortedSet value not None, bytes member not None):
        return value.score(member)

    # --- In files ---------------------------------------------------------------------------------------------------

    cpdef int rdb_type(self, object value, int version) except -1:
        return TYPE_SORTED_SET if (<SortedSet?>value).packed is NULL else TYPE_SORTED_SET_LISTPACK

    cpdef int save(self, object writer, object value) except -1:
        cdef RdbWriter rdb = <RdbWriter?>writer
        cdef SortedSet set = <SortedSet?>value
        cdef uint64_t left = set.count(), bits
        cdef Walk walk
        cdef Item item
        if set.packed is not NULL:
            return put_listpack(rdb, set.packed)
        rdb.put_length(left)
        set.seek(left - 1, &walk)       # from the highest score down, as Redis does
        while left:
            left -= 1
            set.back(&walk, &item)
            rdb.put_string(item.member.data, <size_t>item.member.length)
            memcpy(&bits, &item.score, sizeof(bits))
            rdb.put_le64(bits)
        return 0

    cpdef object loader(self, object window, object options):
        return SortedSetLoader(self, window, options)

    cpdef int rewrite(self, object writer, bytes key, object value) except -1:
        cdef CommandWriter commands = <CommandWriter?>writer
        cdef SortedSet set = <SortedSet?>value
        cdef uint64_t left = set.count(), _i
        cdef char text[DOUBLE_ROOM]
        cdef Walk walk
        cdef Item item
        set.seek(0, &walk)
        while left:
            commands.begin(<unsigned int>(2 + 2 * min(left, <uint64_t>MEMBERS_PER_COMMAND)))
            commands.word(b"ZADD")
            commands.word(key)
            for _i in range(min(left, <uint64_t>MEMBERS_PER_COMMAND)):
                set.next(&walk, &item)
                commands.word(text[:put_double(text, item.score)])
                commands.word(member_bytes(&item.member))
                left -= 1
        return 0

    # --- DEBUG ------------------------------------------------------------------------------------------------------

    cpdef bytes digest(self, object value, bytes digest):
        cdef char text[DOUBLE_ROOM]
        digest = chain(digest, b"\0\0\0\x03")
        for member, score in value:
            digest = add(digest, chain(chain(bytes(20), member), text[:put_shortest(text, score)]))
        return digest
