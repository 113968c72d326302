# cython: language_level=3
"""HashLimits: the settings of hashes, copied to where the handlers can access them quickly."""

cimport cython

from streamd.core.context cimport Context

from streamd.settings.declarations import declare, integer, memory

__all__ = ["HashLimits"]

MAX_FIELDS = 512
MAX_BYTES = 64

declare(
    "Hashes",
    integer(
        "hash-max-listpack-entries", MAX_FIELDS, aliases="hash-max-ziplist-entries", apply="refresh",
        doc="A hash with more fields is a hash table; up to that it is one listpack, which takes less memory.",
    ),
    memory(
        "hash-max-listpack-value", MAX_BYTES, aliases="hash-max-ziplist-value", apply="refresh",
        doc="A hash with a longer field or value is a hash table, too.",
    ),
)  # fmt: skip


@cython.final
cdef class HashLimits(Capability):
    """How large a hash may be that is one listpack."""

    def __init__(self, host):
        self.host = host
        self.max_fields = MAX_FIELDS
        self.max_bytes = MAX_BYTES

    def apply_settings(self):
        self.max_fields = self.host.config.hash_max_listpack_entries
        self.max_bytes = self.host.config.hash_max_listpack_value


cdef HashLimits BUILT_IN = HashLimits(None)


cdef HashLimits limits_in(object context):
    cdef object found
    if context is None:
        return BUILT_IN
    found = (<Context?>context).parts.get(HashLimits)
    return BUILT_IN if found is None else <HashLimits>found
