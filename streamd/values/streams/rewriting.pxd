# cython: language_level=3
"""A stream as commands. See rewriting.pyx."""

from streamd.engine.stream cimport Stream
from streamd.persistence.aof.command_writer cimport CommandWriter

cdef int rewrite_stream(CommandWriter commands, bytes key, Stream stream) except -1
