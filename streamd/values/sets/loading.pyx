# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Sets in RDB streams.

    type 2     number of members, strings
    type 11    a string: the intset
    type 20    a string: the listpack                   not before format 11, Redis 7.2

All input is checked in full: no empty set, no member twice, integers in order, a sound listpack. How a set is stored
depends on its size.
"""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memset

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE

from streamd.engine.listpack cimport LpValue
from streamd.engine.listpack_edit cimport lp_count
from streamd.engine.listpack_twins cimport lp_has_twins
from streamd.heap cimport free, malloc
from streamd.keyspace.value_type cimport ValueType
from streamd.numbers cimport INT64_ROOM
from streamd.persistence.rdb.codes cimport TYPE_SET, TYPE_SET_INTSET, TYPE_SET_LISTPACK
from streamd.persistence.rdb.listpacks cimport get_listpack, put_listpack
from streamd.persistence.rdb.window cimport Window
from streamd.values.sets.intset cimport intset_bytes, intset_count, intset_validate
from streamd.values.sets.set_limits cimport limits_in
from streamd.values.sets.set_value cimport (
    FORM_INTSET, FORM_PACKED, SetWalk, new_set, set_next, set_put, set_to_table, text_of,
)

from streamd.errors import one_line

__all__ = []

cdef enum:
    LISTPACK_VERSION = 11      # of the format: the first one with listpacks of sets
    MOST_EXPECTED = 1 << 16    # members that there is room for at once, where the size of the stream is not known


# --- Writing ----------------------------------------------------------------------------------------------------------


cdef int set_rdb_type(Set set, int version) except -1:
    """The type byte of a set."""
    if set.form == FORM_INTSET:
        return TYPE_SET_INTSET
    return TYPE_SET_LISTPACK if set.form == FORM_PACKED and version >= LISTPACK_VERSION else TYPE_SET


cdef int put_set(RdbWriter writer, Set set) except -1:
    """Write a set, without its type byte."""
    cdef int type = set_rdb_type(set, writer.version)
    cdef SetWalk walk
    cdef LpValue member
    cdef char digits[INT64_ROOM]
    cdef const uint8_t *s
    cdef size_t n
    if type == TYPE_SET_INTSET:
        return writer.put_string(<uint8_t *>set.body, intset_bytes(<uint8_t *>set.body))
    if type == TYPE_SET_LISTPACK:
        return put_listpack(writer, <uint8_t *>set.body)
    writer.put_length(set.count)
    memset(&walk, 0, sizeof(walk))
    while set_next(set, &walk, &member):
        s = text_of(&member, digits, &n)
        writer.put_string(s, n)
    return 0


# --- Reading ----------------------------------------------------------------------------------------------------------


@cython.final
cdef class SetLoader(ValueLoader):
    """Reads sets."""

    def __init__(self, ValueType type not None, Window window not None, options):
        super().__init__(type, window)
        self.limits = limits_in(options.context)

    cpdef object begin(self, int rdb_type):
        if rdb_type == TYPE_SET:
            return self.members()
        self.value = self.get_intset() if rdb_type == TYPE_SET_INTSET else self.get_packed()

    def members(self):
        """Read a number of members, one after another; stops wherever a step may end."""
        cdef int64_t offset = <int64_t>self.window.position()
        cdef uint64_t left = self.window.get_count()
        cdef Set set
        cdef bytes member
        if left == 0:
            self.window.corrupt("at least one member", "an empty set", offset)
        set = self.new_for(left)
        while left:
            offset = <int64_t>self.window.position()
            member = self.window.get_bytes()
            if not set_put(
                set, <const uint8_t *>PyBytes_AS_STRING(member), <size_t>PyBytes_GET_SIZE(member), self.limits
            ):
                self.window.corrupt("another member", f"'{one_line(member)}' a second time", offset)
            left -= 1
            if self.window.is_step_over():
                yield
        self.value = set

    cdef Set new_for(self, uint64_t count):
        """A set that will have so many members, if the stream is right about it."""
        cdef uint64_t most = MOST_EXPECTED
        cdef Set set = new_set(FORM_INTSET)
        if count > self.limits.max_integers:
            if self.window.size >= 0:
                most = <uint64_t>self.window.size - self.window.position()
            set_to_table(set, count if count < most else most)
        return set

    cdef Set get_intset(self):
        cdef int64_t offset = <int64_t>self.window.position()
        cdef bytes data = self.window.get_bytes()
        cdef size_t size = <size_t>PyBytes_GET_SIZE(data)
        cdef const uint8_t *p = <const uint8_t *>PyBytes_AS_STRING(data)
        cdef const char *reason = intset_validate(p, size)
        cdef Set set
        if reason is not NULL or intset_count(p) == 0:
            found = "no integers" if reason is NULL else (<bytes>reason).decode()
            self.window.corrupt("integers in order", found, offset)
        set = new_set(FORM_INTSET)
        free(set.body)
        set.body = malloc(size)
        if set.body is NULL:
            raise MemoryError
        memcpy(set.body, p, size)
        set.count = intset_count(p)
        if set.count > self.limits.max_integers:
            set_to_table(set, set.count)
        return set

    cdef Set get_packed(self):
        cdef int64_t offset = <int64_t>self.window.position()
        cdef uint8_t *lp = get_listpack(self.window)
        cdef Set set = new_set(FORM_PACKED)
        free(set.body)
        set.body = lp
        set.count = lp_count(lp)
        if set.count == 0:
            self.window.corrupt("at least one member", "an empty set", offset)
        if lp_has_twins(lp, 1):
            self.window.corrupt("different members", "a member twice", offset)
        if set.count > self.limits.max_members:
            set_to_table(set, set.count)
        return set
