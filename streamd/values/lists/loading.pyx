# cython: language_level=3, boundscheck=False, wraparound=False
"""Reading lists out of RDB streams and payloads.

    type   contents                                                                   written by
    18     number of nodes; each: 1 and an element, or 2 and a listpack               Redis 7.0 and later
    14     number of nodes; each: a ziplist                                           3.2 to 6.2
    10     one ziplist                                                                up to 3.0
    1      number of elements; the elements                                           up to 3.0

Nodes are kept as they are cut in the file. Invalid data, and a list without elements, raises CorruptFileError.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport UINT32_MAX, int64_t, uint8_t, uint32_t, uint64_t

from streamd.core.context cimport Context
from streamd.engine.listpack cimport lp_bytes
from streamd.engine.listpack_edit cimport lp_count
from streamd.heap cimport free
from streamd.keyspace.value_type cimport ValueType
from streamd.persistence.rdb.codes cimport (
    TYPE_LIST, TYPE_LIST_OF_LISTPACKS, TYPE_LIST_ZIPLIST,
)
from streamd.persistence.rdb.listpacks cimport get_listpack
from streamd.persistence.rdb.window cimport Window
from streamd.persistence.rdb.ziplists cimport get_ziplist
from streamd.values.lists.list_limits cimport fill_of
from streamd.values.lists.list_value cimport List
from streamd.values.lists.node cimport Node, node_of_listpack, node_plain

__all__ = []

cdef enum:
    DEFAULT_FILL = -2
    PLAIN_CONTAINER = 1         # in files, of a node
    PACKED_CONTAINER = 2


@cython.final
cdef class ListLoader:
    """Reads one list after another from a window."""

    def __init__(self, ValueType type not None, Window window not None, options):
        super().__init__(type, window)
        self.context = options.context

    cpdef object begin(self, int rdb_type):
        return self.read(rdb_type)

    def read(self, int rdb_type):
        """Read a list of this type into `value`; a generator that stops wherever a step may end."""
        cdef List value = List.__new__(List)
        cdef int fill = DEFAULT_FILL if self.context is None else fill_of(<Context>self.context)
        cdef int64_t offset = <int64_t>self.window.position()
        cdef uint64_t left = 1 if rdb_type == TYPE_LIST_ZIPLIST else self.window.get_count()
        value.become_quicklist(fill)
        while left:
            self.get_node(value, rdb_type)
            left -= 1
            if self.window.is_step_over():
                yield
        if value.length == 0:
            self.window.corrupt("a list with elements", "an empty one", offset)
        value.shrink_back(fill, 1)
        self.value = value

    cdef int get_node(self, List value, int rdb_type) except -1:
        """Read a node, or an element of type 1, and append it."""
        cdef int64_t offset = <int64_t>self.window.position()
        cdef uint64_t count, container = PACKED_CONTAINER
        cdef uint8_t *block
        cdef Node *node
        cdef bytes text
        if rdb_type == TYPE_LIST_OF_LISTPACKS:
            container = self.window.get_count()
            if container != PLAIN_CONTAINER and container != PACKED_CONTAINER:
                self.window.corrupt("a plain or a packed node, 1 or 2", str(container), offset)
        if rdb_type == TYPE_LIST or container == PLAIN_CONTAINER:
            text = self.window.get_bytes()
            if rdb_type == TYPE_LIST:
                return value.push(
                    <const uint8_t *>PyBytes_AS_STRING(text), <size_t>PyBytes_GET_SIZE(text), False)
            node = node_plain(<const uint8_t *>PyBytes_AS_STRING(text), <size_t>PyBytes_GET_SIZE(text))
            if node is NULL:
                raise MemoryError
            return value.adopt(node)
        if rdb_type == TYPE_LIST_OF_LISTPACKS:
            block = get_listpack(self.window)
        else:
            block = get_ziplist(self.window)
        count = lp_count(block)
        if count == 0 or count > UINT32_MAX:
            free(block)
            return 0                # empty nodes are skipped, as by Redis
        node = node_of_listpack(block, lp_bytes(block), <uint32_t>count)
        free(block)
        if node is NULL:
            raise MemoryError
        return value.adopt(node)
