# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""HashType: hashes as a type of value."""

cimport cython
from libc.stdint cimport uint8_t
from libc.string cimport memset

from streamd.keyspace.database cimport Database
from streamd.keyspace.value_type cimport NO_SIZE, ValueType, size_class
from streamd.persistence.aof.command_writer cimport CommandWriter
from streamd.persistence.rdb.write cimport RdbWriter
from streamd.values.hashes.access cimport has_passed, remove_expired, report_expired
from streamd.values.hashes.hash cimport (
    Hash, HashWalk, bytes_of, hash_bytes, hash_close, hash_due, hash_first_due, hash_next, hash_open,
)
from streamd.values.hashes.loading cimport HashLoader
from streamd.values.hashes.pairs cimport NEVER, HashItem
from streamd.values.hashes.saving cimport hash_rdb_type, put_hash, rewrite_hash

from streamd.digests import add, chain
from streamd.values.hashes.forms import RDB_TYPES

__all__ = ["HashType"]

cdef enum:
    FILE_HEAD = 5              # about: type and length in a file


@cython.final
cdef class HashType(ValueType):
    """Hashes. Their memory is counted where it is allocated.

    That of the objects is not: a small value has one only while it is in use, beside a large one it is negligible.
    """

    def __init__(self):
        super().__init__(
            b"hash", Hash, frees_slowly=True, closes=True, is_timed=True, sizes_name="hashes_items",
            rdb_types=RDB_TYPES, families=tuple([
                "streamd.values.hashes." + name for name in ("hget_hset", "hrandfield_hscan", "field_expiry")
            ]),
        )

    # --- Memory ----------------------------------------------------------------------------------------------------

    cdef Py_ssize_t weigh(self, object value, int *found) except -1:
        found[0] = size_class(<Py_ssize_t>(<Hash?>value).count)
        return 0

    cpdef Py_ssize_t weight(self, object value) except -1:
        return 0

    cpdef Py_ssize_t size(self, object value) except? NO_SIZE:
        return <Py_ssize_t>(<Hash?>value).count

    cpdef long long memory(self, object value) except -1:
        return <long long>hash_bytes(<Hash?>value)

    cdef void *close(self, object value, unsigned char *form) noexcept:
        return hash_close(<Hash>value, form)

    cdef object open(self, void *block, int form):
        return hash_open(<uint8_t *>block, form)

    # --- In a database ---------------------------------------------------------------------------------------------

    cpdef bytes encoding(self, bytes key, object value, int hint):
        return (<Hash?>value).encoding

    cpdef object copy(self, object value):
        return (<Hash?>value).copy()

    cpdef long long due(self, object value) except? -2:
        return hash_due(<Hash?>value)

    cpdef long long act(self, object db, bytes key, object value, long long limit) except -1:
        """Remove fields whose time has come."""
        cdef Hash hash = <Hash?>value
        cdef Database database = <Database?>db
        cdef HashItem item
        cdef long long removed = 0
        while removed < limit and has_passed(database, hash_due(hash)):
            hash_first_due(hash, &item)
            remove_expired(database, key, hash, &item)
            removed += 1
        if removed:
            report_expired(database, key, hash)
        return removed

    # --- In files --------------------------------------------------------------------------------------------------

    cpdef int rdb_type(self, object value, int version) except -1:
        return hash_rdb_type(<Hash?>value, version)

    cpdef int save(self, object writer, object value) except -1:
        return put_hash(<RdbWriter?>writer, <Hash?>value)

    cpdef object loader(self, object window, object options):
        return HashLoader(self, window, options)

    cpdef int rewrite(self, object writer, bytes key, object value) except -1:
        return rewrite_hash(<CommandWriter?>writer, key, <Hash?>value)

    # --- DEBUG -----------------------------------------------------------------------------------------------------

    cpdef long long serialized_length(self, object value) except -1:
        return FILE_HEAD + <long long>hash_bytes(<Hash?>value)

    cpdef bytes digest(self, object value, bytes digest):
        cdef HashWalk walk
        cdef HashItem item
        digest = chain(digest, b"\0\0\0\x04")
        memset(&walk, 0, sizeof(walk))
        while hash_next(<Hash?>value, &walk, &item):
            of_field = chain(chain(bytes(20), bytes_of(&item.field)), bytes_of(&item.value))
            if item.expire_at_ms != NEVER:
                of_field = add(of_field, b"!!hexpire!!")
            digest = add(digest, of_field)
        return digest
