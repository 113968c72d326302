# cython: language_level=3
"""The replication stream. See replication_stream.pyx."""

cimport cython

from streamd.core.client cimport Client, Outflow
from streamd.core.effects cimport Effects, EffectSink
from streamd.protocol.request_bytes cimport ByteBuffer


@cython.final
@cython.no_gc
cdef class Block:
    cdef ByteBuffer held                  # owned
    cdef long long start                  # offset of its first byte: how many were sent before it
    cdef Block next                       # None: it is the last


@cython.final
cdef class ReplicationStream(EffectSink):
    cdef Effects effects
    cdef Block first                      # the oldest one that is kept
    cdef Block last                       # the one that grows
    cdef readonly bint is_open            # there is a backlog; otherwise nothing is kept
    cdef readonly long long first_offset  # of the oldest byte that is kept
    cdef readonly Py_ssize_t allocated    # bytes of memory of the blocks
    cdef readonly Py_ssize_t backlog_size  # bytes that are kept for replicas that reconnect (repl-backlog-size)
    cdef Py_ssize_t full                  # bytes after which a block does not grow any more
    cdef readonly int selected            # database of the last command; -1: the next one starts with SELECT
    cdef public long long sent_bytes      # to all replicas
    cdef set feeds                        # of Feed: they read from the blocks

    cpdef Py_ssize_t memory(self) noexcept            # bytes of all blocks
    cpdef Py_ssize_t replica_memory(self) noexcept    # ... beyond the backlog
    cdef int put(self, list args) except -1
    cdef int put_bytes(self, const char *p, Py_ssize_t n) except -1
    cdef int unit_ended(self, Block last) except -1
    cdef int cut_back(self, Block last, Py_ssize_t size) except -1
    cdef int begin_block(self) except -1
    cdef int settle(self) except -1
    cdef int trim(self) except -1
    cdef int drop_first(self) except -1


@cython.final
cdef class Feed(Outflow):
    cdef readonly ReplicationStream stream
    cdef Block block                      # the one that has the next byte, or ends where it will be
    cdef readonly long long offset        # of the next byte to send
