# cython: language_level=3
"""A stream as commands. See recreation.pyx."""

from streamd.persistence.aof.command_writer cimport CommandWriter
from streamd.values.streams.stream cimport Stream

cdef int rewrite_stream(CommandWriter commands, bytes key, Stream stream) except -1
