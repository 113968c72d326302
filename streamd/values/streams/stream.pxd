# cython: language_level=3
"""Streams: entries in a radix tree of listpacks. See stream.pyx."""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from streamd.engine.ids cimport StreamID
from streamd.engine.rax cimport Rax
from streamd.values.streams.node cimport StreamCursor, StreamNode, cursor_pair


# What is removed along with entries that consumer groups refer to.
cdef enum RefPolicy:
    KEEPREF = 0            # the entry; its pending records stay
    DELREF = 1             # the entry and its pending records in all groups
    ACKED = 2              # the entry, if every group has read and acknowledged it; otherwise nothing


cdef enum TrimStrategy:
    TRIM_NONE = 0
    TRIM_MAXLEN = 1        # while there are more than max_length entries
    TRIM_MINID = 2         # while the first entry is below min_id


cdef struct TrimRule:
    TrimStrategy strategy
    RefPolicy policy
    bint approximate       # whole nodes only
    uint64_t max_length    # entries
    StreamID min_id
    uint64_t limit         # approximate maximum of entries to remove: no node is started that would exceed it; 0: all


@cython.final
@cython.no_gc
cdef class Stream:
    cdef Rax nodes                          # of StreamNode, owned
    cdef readonly uint64_t length           # live entries
    cdef readonly uint64_t entries_added    # entries ever added
    cdef StreamID last_id                   # last-generated ID
    cdef StreamID first_id                  # first live entry, 0-0 when empty
    cdef StreamID last_live                 # last live entry, 0-0 when empty
    cdef StreamID max_deleted_id            # greatest ID removed by XDEL and related commands
    cdef readonly dict groups               # name -> Group
    cdef size_t node_bytes                  # malloc'ed for nodes and listpacks
    cdef object trimmed                     # TrimmedNodes of the last trim, to be freed by the caller; mostly None
    cdef bint has_order                     # a group has a KeyOrder, or had one: deletions are noted
    cdef bint merges                        # whoever deletes an entry calls keep_dense (merging.pyx)
    cdef size_t skipped                     # bytes at the head of the first node without a live entry, or 0
    # When a node is full; read by each append. 0: no limit of this kind (1 GiB in any case).
    cdef public uint64_t node_max_bytes
    cdef public uint64_t node_max_entries
    # What idempotent producers sent. Counters and settings outlive the IIDs; most streams never have any.
    cdef public object idempotency          # Idempotency, or None: nothing is tracked
    cdef readonly uint32_t idmp_duration    # seconds
    cdef readonly uint32_t idmp_maxsize     # IIDs per producer
    cdef public uint64_t iids_added
    cdef public uint64_t iids_duplicates

    # --- Queries
    cdef bint has_entry(self, StreamID id) noexcept nogil             # a live entry has this ID
    cdef StreamID last_live_id(self) noexcept nogil                   # ID of the last live entry, 0-0 when empty
    cdef bint next_id(self, int64_t now_ms, StreamID *out) noexcept nogil   # the ID that `*` gets; False: exhausted

    # --- Changes. They invalidate all cursors.
    cdef int append_args(self, StreamID id, list args, Py_ssize_t first) except -1
        # Add an entry; args[first:] are fields and values, all bytes, unchecked. The ID must be above last_id.
    cdef int remove(self, StreamID id) except -1                      # 1: removed, 0: no such entry; ignores groups
    cdef int64_t trim_by(self, const TrimRule *rule) except -1        # how many entries were removed; see `trimmed`

    # --- Loading: nodes in ID order into a new stream, then the counters
    cdef int adopt_node(
        self, StreamID master, uint8_t *lp, size_t size, const char **reason, size_t *offset) noexcept nogil
        # Make untrusted malloc'ed bytes the last node. 1: taken, and owned by the stream. 0: refused; `reason` says why
        # and `offset` where. -1: out of memory.

    # --- Entries and groups
    cdef bint is_referenced(self, StreamID id) except -1              # a group has not read it, or has it pending
    cdef int forget_references(self, StreamID id) except -1           # drop its pending records in all groups
    cdef int remove_with(self, StreamID id, RefPolicy policy) except -2
        # 1: removed, 2: kept because referenced, -1: no such entry

    # --- Internal
    cdef int note_deleted(self, StreamID id) except -1
    cdef int set_entries_added(self, uint64_t entries_added) except -1
    cdef bint is_full(self, const StreamNode *node, size_t entry_bytes) noexcept nogil
    cdef StreamNode *add_node(self, StreamID id, list args, Py_ssize_t first, size_t room) except NULL
    cdef int take_listpack(self, StreamID master, const uint8_t *lp, size_t size) except -1
    cdef StreamNode *hang_node(self, StreamID master, uint8_t *lp, size_t size) noexcept nogil
    cdef int drop_node(self, StreamNode *node) noexcept nogil
    cdef void take_out(self, StreamNode *node) noexcept nogil
    cdef bint resize(self, StreamNode *node, size_t capacity) noexcept nogil
    cdef int reserve(self, StreamNode *node, size_t room) except -1 nogil
    cdef void note_shift(self, const StreamNode *node, int64_t moved) noexcept nogil
    cdef int reserve_count(self, StreamNode *node) except -1 nogil
    cdef int count_deleted(self, StreamNode *node, int64_t removed) noexcept nogil
    cdef int refresh_first(self) noexcept nogil
    cdef int refresh_last(self) noexcept nogil
    cdef bint exceeds(self, const TrimRule *rule) noexcept nogil
    cdef int64_t trim_within(self, StreamNode *node, const TrimRule *rule, StreamID barrier) except -1
    cdef int read_by_all(self, StreamID *least) except -1
    cdef bint is_pending(self, StreamID id) except -1


# --- Walking ----------------------------------------------------------------------------------------------------------
#
#     cdef StreamCursor cursor
#     cursor_seek(stream, &cursor, first, last, False)
#     while cursor_next(&cursor):                       # advance to the next live entry
#         cursor.id, cursor.pairs                       # its ID, its number of field-value pairs
#         while cursor.pairs_left:                      # as many of them as needed, in order
#             cursor_pair(&cursor, &field, &value)      # strings are borrowed from the listpack


cdef void cursor_seek(Stream stream, StreamCursor *cursor, StreamID first, StreamID last, bint reverse) noexcept nogil
    # To before the first entry of first .. last, or, reversed, after the last one.
cdef bint cursor_next(StreamCursor *cursor) noexcept nogil              # False: no more entries
cdef bint cursor_find(Stream stream, StreamCursor *cursor, StreamID id) noexcept nogil
    # To one live entry; False: missing.
