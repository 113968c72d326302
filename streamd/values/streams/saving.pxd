# cython: language_level=3
"""Writing a stream into an RDB stream. See saving.pyx."""

from streamd.persistence.rdb.write cimport RdbWriter
from streamd.values.streams.stream cimport Stream

cdef int put_stream(RdbWriter writer, int type, Stream stream) except -1
