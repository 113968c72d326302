# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Writing a hash to files.

    type of an RDB stream       value
    16   one listpack           a string: field value field value ...
    25   with expiries          8 bytes little endian, the earliest expiry or 0; a string: field value expiry ...
    4    table                  number of fields; for each: field, value
    24   with expiries          8 bytes little endian, the earliest expiry; number of fields; for each: a length, field,
                                value. Length: 0: no expiry, else 1 more than by how many ms the expiry is later

Expiries came with Redis 7.4: readers of older forms get hashes without. In a file of commands, a hash is a series of
HMSET with up to 64 fields each; a field that expires has an HMSET of its own, followed by HPEXPIREAT.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memset

from streamd.heap cimport free
from streamd.persistence.aof.command_writer cimport CommandWriter
from streamd.persistence.rdb.codes cimport TYPE_HASH, TYPE_HASH_LISTPACK, TYPE_HASH_LISTPACK_TTL, TYPE_HASH_TTL
from streamd.persistence.rdb.listpacks cimport put_listpack
from streamd.persistence.rdb.write cimport RdbWriter
from streamd.values.hashes.hash cimport (
    FORM_PACKED, FORM_TABLE, Hash, HashWalk, bytes_of, hash_due, hash_next,
)
from streamd.values.hashes.pairs cimport NEVER, HashItem, pairs_without_expiries

__all__ = []

cdef enum:
    TIMED_VERSION = 12         # of the format: Redis 7.4
    FIELDS_PER_COMMAND = 64


# --- RDB --------------------------------------------------------------------------------------------------------------


cdef int hash_rdb_type(Hash hash, int version) except -1:
    """The type byte in RDB streams of this version."""
    if hash.form == FORM_TABLE:
        return TYPE_HASH_TTL if hash_due(hash) != NEVER and version >= TIMED_VERSION else TYPE_HASH
    return TYPE_HASH_LISTPACK if hash.form == FORM_PACKED or version < TIMED_VERSION else TYPE_HASH_LISTPACK_TTL


cdef int put_hash(RdbWriter writer, Hash hash) except -1:
    """Write a hash, without its type byte."""
    cdef int type = hash_rdb_type(hash, writer.version)
    cdef int64_t due = hash_due(hash)
    cdef uint8_t *bare
    if due != NEVER and writer.version < TIMED_VERSION:
        writer.lose("expiries of fields")
    if type == TYPE_HASH_LISTPACK and hash.form != FORM_PACKED:
        bare = pairs_without_expiries(<uint8_t *>hash.body)
        if bare is NULL:
            raise MemoryError("no memory for a hash")
        try:
            return put_listpack(writer, bare)
        finally:
            free(bare)
    if type == TYPE_HASH_LISTPACK_TTL:
        writer.put_le64(0 if due == NEVER else <uint64_t>due)
    if hash.form != FORM_TABLE:
        return put_listpack(writer, <uint8_t *>hash.body)
    if type == TYPE_HASH_TTL:
        writer.put_le64(<uint64_t>due)
    return put_fields(writer, hash, type == TYPE_HASH_TTL, due)


cdef int put_fields(RdbWriter writer, Hash hash, bint has_expiries, int64_t due) except -1:
    """Write the fields of a table, with expiries counted from `due` or without."""
    cdef HashWalk walk
    cdef HashItem item
    writer.put_length(hash.count)
    memset(&walk, 0, sizeof(walk))
    while hash_next(hash, &walk, &item):
        if has_expiries:
            writer.put_length(0 if item.expire_at_ms == NEVER else <uint64_t>(item.expire_at_ms - due + 1))
        writer.put_string(item.field.data, item.field.length)
        writer.put_string(item.value.data, item.value.length)
    return 0


# --- Commands ---------------------------------------------------------------------------------------------------------


cdef int rewrite_hash(CommandWriter writer, bytes key, Hash hash) except -1:
    """Write the commands that recreate a hash."""
    cdef HashWalk walk
    cdef HashItem item
    cdef uint64_t left = hash.count, together = 0
    cdef bint is_timed = hash_due(hash) != NEVER
    memset(&walk, 0, sizeof(walk))
    while hash_next(hash, &walk, &item):
        if together == 0:
            together = 1 if is_timed else left if left < FIELDS_PER_COMMAND else FIELDS_PER_COMMAND
            writer.begin(<unsigned int>(2 + 2 * together))
            writer.word(b"HMSET")
            writer.word(key)
        writer.word(bytes_of(&item.field))
        writer.word(bytes_of(&item.value))
        together -= 1
        left -= 1
        if item.expire_at_ms != NEVER:
            writer.begin(6)
            writer.word(b"HPEXPIREAT")
            writer.word(key)
            writer.signed_word(item.expire_at_ms)
            writer.word(b"FIELDS")
            writer.word(b"1")
            writer.word(bytes_of(&item.field))
    return 0
