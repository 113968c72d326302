# cython: language_level=3
"""ListLimits: the settings of lists, where compiled handlers reach them."""

cimport cython
from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject

from streamd.core.capability cimport Capability
from streamd.core.context cimport Context

from streamd.integers import INT32_MAX, INT32_MIN
from streamd.settings.declarations import declare, integer

__all__ = ["ListLimits"]

cdef enum:
    DEFAULT_FILL = -2

declare(
    "Lists",
    integer(
        "list-max-listpack-size", DEFAULT_FILL, lo=INT32_MIN, hi=INT32_MAX, aliases="list-max-ziplist-size",
        apply="refresh",
        doc="The largest size of a node, and of a list that is not yet a quicklist. Negative: bytes, "
        "-1 to -5 for 4, 8, 16, 32 and 64 KiB; otherwise elements, up to 8 KiB.",
    ),
    integer(
        "list-compress-depth", 0, lo=0, hi=INT32_MAX,
        doc="Accepted without effect: nodes of lists are not compressed in memory.",
    ),
)  # fmt: skip


@cython.final
cdef class ListLimits(Capability):
    """The limit of nodes, see List."""

    def __init__(self, host not None):
        self.config = host.config
        self.fill = DEFAULT_FILL

    def apply_settings(self):
        self.fill = self.config.list_max_listpack_size


cdef int fill_of(Context ctx) except? 0:
    """The limit of nodes for the server of a context; without a server, the default."""
    cdef PyObject *found = PyDict_GetItem(ctx.parts, ListLimits)
    return DEFAULT_FILL if found is NULL else (<ListLimits>found).fill
