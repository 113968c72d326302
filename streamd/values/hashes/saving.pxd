# cython: language_level=3
"""Writing a hash to files. See saving.pyx."""

from streamd.persistence.aof.command_writer cimport CommandWriter
from streamd.persistence.rdb.write cimport RdbWriter
from streamd.values.hashes.hash cimport Hash

cdef int hash_rdb_type(Hash hash, int version) except -1
cdef int put_hash(RdbWriter writer, Hash hash) except -1
cdef int rewrite_hash(CommandWriter writer, bytes key, Hash hash) except -1
