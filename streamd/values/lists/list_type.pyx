# cython: language_level=3, boundscheck=False, wraparound=False
"""ListType: lists as a type of value."""

cimport cython
from libc.stdint cimport uint8_t, uint64_t

from streamd.engine.listpack cimport LpValue, lp_get
from streamd.engine.listpack_edit cimport lp_count, lp_first
from streamd.keyspace.value_type cimport NO_SIZE, ValueType, size_class
from streamd.persistence.aof.command_writer cimport CommandWriter
from streamd.persistence.rdb.codes cimport (
    TYPE_LIST, TYPE_LIST_OF_LISTPACKS, TYPE_LIST_OF_ZIPLISTS, TYPE_LIST_ZIPLIST,
)
from streamd.persistence.rdb.listpacks cimport put_listpack
from streamd.persistence.rdb.write cimport RdbWriter
from streamd.protocol.request_bytes cimport buffer_put_bulk
from streamd.values.lists.list_arguments cimport value_bytes
from streamd.values.lists.list_value cimport Cursor, List, cursor_next, list_of
from streamd.values.lists.loading cimport ListLoader
from streamd.values.lists.node cimport Node, block_of, is_plain, listpack_of, read_element

from streamd.digests import chain

__all__ = ["ListType"]

cdef enum:
    WORDS_PER_COMMAND = 64      # elements of an RPUSH that recreates a list
    PLAIN_CONTAINER = 1
    PACKED_CONTAINER = 2


@cython.final
cdef class ListType(ValueType):
    """Lists. Their memory is counted where it is allocated.

    That of the objects is not: a small value has one only while it is in use, beside a large one it is negligible.
    """

    def __init__(self):
        super().__init__(
            b"list", List, frees_slowly=True, closes=True, saves_closed=True, sizes_name="lists_items",
            rdb_types=(TYPE_LIST_OF_LISTPACKS, TYPE_LIST, TYPE_LIST_ZIPLIST, TYPE_LIST_OF_ZIPLISTS),
            families=tuple([
                "streamd.values.lists." + name for name in ("push_pop", "lrange", "editing", "moving", "first_list")
            ]),
        )

    cdef Py_ssize_t weigh(self, object value, int *found) except -1:
        found[0] = size_class(<Py_ssize_t>(<List>value).length)
        return 0

    cpdef Py_ssize_t weight(self, object value) except -1:
        return 0

    cpdef Py_ssize_t size(self, object value) except? NO_SIZE:
        return <Py_ssize_t>(<List?>value).length

    cpdef long long memory(self, object value) except -1:
        return <long long>(<List?>value).memory()

    cdef void *close(self, object value, unsigned char *form) noexcept:
        return (<List>value).close()

    cdef object open(self, void *block, int form):
        return list_of(<uint8_t *>block)

    cpdef bytes encoding(self, bytes key, object value, int hint):
        return b"quicklist" if (<List?>value).is_quicklist else b"listpack"

    cpdef object copy(self, object value):
        return (<List?>value).copy()

    cpdef int save(self, object writer, object value) except -1:
        """The number of nodes; each: 1 and an element, or 2 and a listpack."""
        cdef RdbWriter out = <RdbWriter?>writer
        cdef List whole = <List?>value
        cdef Node *node = whole.head
        out.put_length(whole.nodes)
        for _ in range(whole.nodes):
            if is_plain(node):
                out.put_length(PLAIN_CONTAINER)
                out.put_string(block_of(node), node.size)
            else:
                out.put_length(PACKED_CONTAINER)
                put_listpack(out, listpack_of(node))
            node = node.next
        return 0

    cdef int save_closed(self, object writer, const void *block) except -1:
        """As save: a list that is closed has one node."""
        cdef RdbWriter out = <RdbWriter?>writer
        out.put_length(1)
        out.put_length(PACKED_CONTAINER)
        return put_listpack(out, <const uint8_t *>block)

    cpdef object loader(self, object window, object options):
        return ListLoader(self, window, options)

    cpdef int rewrite(self, object writer, bytes key, object value) except -1:
        """RPUSH, with up to 64 elements each."""
        cdef CommandWriter commands = <CommandWriter?>writer
        cdef List whole = <List?>value
        cdef Cursor cursor
        cdef LpValue element
        cdef uint64_t left
        whole.seek(0, &cursor)
        for left in range(whole.length, 0, -1):
            read_element(cursor.node, cursor.at, &element)
            put_element(commands, key, &element, whole.length, left)
            cursor_next(whole, &cursor)
        return 0

    cdef int rewrite_closed(self, object writer, bytes key, const void *block) except -1:
        cdef CommandWriter commands = <CommandWriter?>writer
        cdef const uint8_t *p = lp_first(<const uint8_t *>block)
        cdef uint64_t length = lp_count(<const uint8_t *>block)
        cdef LpValue element
        cdef uint64_t left
        for left in range(length, 0, -1):
            p = lp_get(p, &element)
            put_element(commands, key, &element, length, left)
        return 0

    cpdef bytes digest(self, object value, bytes digest):
        cdef List whole = <List?>value
        cdef Cursor cursor
        cdef LpValue element
        digest = chain(digest, b"\0\0\0\1")
        if whole.seek(0, &cursor):
            while True:
                read_element(cursor.node, cursor.at, &element)
                digest = chain(digest, value_bytes(&element))
                if not cursor_next(whole, &cursor):
                    break
        return digest


cdef int put_element(
    CommandWriter commands, bytes key, const LpValue *element, uint64_t length, uint64_t left
) except -1:
    """Write an element of a list, `left` from its end, at which a command may begin."""
    if (length - left) % WORDS_PER_COMMAND == 0:
        commands.begin(2 + <unsigned int>min(left, WORDS_PER_COMMAND))
        commands.word(b"RPUSH")
        commands.word(key)
    if element.data is NULL:
        return commands.signed_word(element.number)
    return buffer_put_bulk(&commands.held, <const char *>element.data, <Py_ssize_t>element.length)
