# cython: language_level=3
"""Streams: entries in a radix tree of listpacks. See stream.pyx."""

from libc.stdint cimport int64_t, uint8_t, uint64_t

from streamd.engine.ids cimport StreamID
from streamd.engine.rax cimport Rax


cdef struct StreamNode:
    # One listpack and its place in the tree. The tree owns neither; the stream owns both.
    uint8_t key[16]        # master ID, big-endian: the key of the radix tree
    uint8_t *lp            # the listpack; may move when it grows
    size_t capacity        # bytes malloc'ed for lp


cdef class Stream:
    cdef Rax nodes
    cdef readonly uint64_t length           # live entries
    cdef readonly uint64_t entries_added    # entries ever added
    cdef StreamID last_id                   # last-generated ID
    cdef StreamID first_id                  # first live entry, 0-0 when empty
    cdef StreamID max_deleted_id            # greatest ID that XDEL and its like removed
    cdef readonly dict groups               # name -> Group
    cdef readonly object idempotency        # Idempotency: what idempotent producers sent
    cdef bint has_entry(self, StreamID id) noexcept             # a live entry has this ID
    cdef StreamID last_live_id(self) noexcept                   # ID of the last live entry, 0-0 when empty


cdef struct StreamCursor:
    # A walk over live entries in either direction. Dead after any change of the stream. Fields: see stream.pyx.
    void *_unused


# The rest of the compiled interface (StreamCursor's fields, cursor_seek(stream, first, last, reverse), cursor_next,
# field access) is declared here by stream.pyx's author.
