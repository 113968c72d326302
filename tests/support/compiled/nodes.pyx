# cython: language_level=3, boundscheck=False, wraparound=False
"""Nodes of streams: their bytes checked, and a range of them cut into parts."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport UINT64_MAX, uint8_t
from libc.string cimport memset

from streamd.engine.ids cimport make_id
from streamd.heap cimport free, malloc
from streamd.values.streams.node_check cimport NodeCensus, node_fault
from streamd.values.streams.split cimport Gathered, Part, gather_range, split_range
from streamd.values.streams.stream cimport Stream

__all__ = ["count_gathered", "split", "validate_node"]

MAX_ID = (2**64 - 1, 2**64 - 1)


def validate_node(master, bytes listpack not None):
    """Check the bytes of a node from outside: returns None, or (offset, reason) of the first fault. O(bytes).

    master  the node's master ID, (ms, seq)
    """
    cdef NodeCensus census
    cdef size_t offset = 0
    cdef const char *reason
    ms, seq = master
    reason = node_fault(
        <const uint8_t *>PyBytes_AS_STRING(listpack), <size_t>PyBytes_GET_SIZE(listpack),
        make_id(ms, seq), &census, &offset,
    )
    return None if reason is NULL else (offset, reason.decode())


def split(Stream stream not None, size_t parts, first=(0, 0), last=MAX_ID, *, limit=None):
    """Cut the entries of a range into parts whose lengths differ by at most one: `(first ID, last ID, length)`
    of each, as a list in order.

    parts        maximum number of parts; each has at least one entry
    first, last  IDs as (ms, seq), both included
    limit        only the first `limit` entries of the range
    O(n), n nodes in the range, as far as `limit` reaches. Changes nothing.
    """
    cdef Part *found
    cdef Part part
    cdef size_t i, count
    if parts > stream.length:
        parts = stream.length
    if parts == 0:
        return []
    found = <Part *>malloc(parts * sizeof(Part))
    if found is NULL:
        raise MemoryError
    try:
        count = split_range(
            stream, make_id(first[0], first[1]), make_id(last[0], last[1]),
            UINT64_MAX if limit is None else limit, parts, found,
        )
        parts_found = []
        for i in range(count):
            part = found[i]
            parts_found.append(((part.first.ms, part.first.seq), (part.last.ms, part.last.seq), part.length))
        return parts_found
    finally:
        free(found)


def count_gathered(Stream stream not None, first=(0, 0), last=MAX_ID, *, limit=None):
    """How many nodes `split` reads for the same range. For tests."""
    cdef Gathered found
    memset(&found, 0, sizeof(Gathered))
    try:
        gather_range(
            stream, make_id(first[0], first[1]), make_id(last[0], last[1]),
            UINT64_MAX if limit is None else limit, &found,
        )
        return found.count
    finally:
        free(found.nodes)
        free(found.lengths)
