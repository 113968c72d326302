# cython: language_level=3
"""Connections that receive every request. See monitor.pyx."""

from streamd.protocol.reply cimport ReplyWriter
from streamd.core.capability cimport Capability
from streamd.core.client cimport Client
from streamd.core.dispatch cimport Dispatcher


cdef class Monitors(Capability):
    cdef dict clients            # Client -> None
    cdef Dispatcher dispatcher
    cdef ReplyWriter line        # of one request, encoded once for all clients
