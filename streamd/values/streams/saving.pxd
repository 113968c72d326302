# cython: language_level=3
"""Writing a stream into an RDB stream. See saving.pyx."""

from streamd.engine.stream cimport Stream
from streamd.persistence.rdb.write cimport RdbWriter

cdef int put_stream(RdbWriter writer, int type, Stream stream) except -1
