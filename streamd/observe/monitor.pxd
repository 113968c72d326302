# cython: language_level=3
"""Connections that are shown every request. See monitor.pyx."""

from streamd.protocol.reply cimport ReplyWriter
from streamd.core.client cimport Client


cdef class Monitors:
    cdef dict clients            # Client -> None
    cdef object dispatcher       # Dispatcher; typed as object because the two modules need each other
    cdef ReplyWriter line        # of one request, made once for all clients

    cdef int feed(self, Client source, list args) except -1
