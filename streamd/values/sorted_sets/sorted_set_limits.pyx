# cython: language_level=3
"""SortedSetLimits: the settings of sorted sets, copied to where the handlers can access them quickly."""

cimport cython

from streamd.core.context cimport Context

from streamd.settings.declarations import declare, integer, memory

__all__ = ["SortedSetLimits"]

MAX_MEMBERS = 128
MAX_BYTES = 64

declare(
    "Sorted sets",
    integer(
        "zset-max-listpack-entries", MAX_MEMBERS, aliases="zset-max-ziplist-entries", apply="refresh",
        doc="A sorted set of more members is a skip list in Redis, and a tree here; up to that it is one listpack.",
    ),
    memory(
        "zset-max-listpack-value", MAX_BYTES, aliases="zset-max-ziplist-value", apply="refresh",
        doc="A sorted set with a longer member is a tree, too.",
    ),
)  # fmt: skip


@cython.final
cdef class SortedSetLimits(Capability):
    """How large a sorted set may be that is one listpack."""

    def __init__(self, host):
        self.host = host
        self.max_members = MAX_MEMBERS
        self.max_bytes = MAX_BYTES

    def apply_settings(self):
        self.max_members = self.host.config.zset_max_listpack_entries
        self.max_bytes = self.host.config.zset_max_listpack_value


cdef SortedSetLimits BUILT_IN = SortedSetLimits(None)


cdef SortedSetLimits limits_in(object context):
    cdef object found
    if context is None:
        return BUILT_IN
    found = (<Context?>context).parts.get(SortedSetLimits)
    return BUILT_IN if found is None else <SortedSetLimits>found
