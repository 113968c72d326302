# cython: language_level=3, boundscheck=False, wraparound=False
"""Reading a sorted set out of an RDB file or a payload.

    17 listpack         member, score, member, score, in order
    12 ziplist          the same, before Redis 7.0
     5 pairs            number of members; each with its score as a double
     3 pairs, old       each with its score as text

Everything is checked: members are different, and in order where they are kept as they come; scores are numbers. Redis
checks less. As in Redis, the number of members alone decides whether a listpack stays one.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.math cimport INFINITY, isnan
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from streamd.engine.listpack_twins cimport lp_has_twins
from streamd.keyspace.value_type cimport ValueType
from streamd.persistence.rdb.codes cimport (
    TYPE_SORTED_SET, TYPE_SORTED_SET_LISTPACK, TYPE_SORTED_SET_TEXT, TYPE_SORTED_SET_ZIPLIST,
)
from streamd.persistence.rdb.listpacks cimport get_listpack
from streamd.persistence.rdb.window cimport Window
from streamd.persistence.rdb.ziplists cimport get_ziplist
from streamd.protocol.doubles cimport read_float
from streamd.values.sorted_sets.access cimport append_to_result
from streamd.values.sorted_sets.packed cimport Item, packed_check, packed_count
from streamd.values.sorted_sets.sorted_set cimport Walk, new_sorted_set
from streamd.values.sorted_sets.sorted_set_limits cimport limits_in

__all__ = ["RDB_TYPES"]

RDB_TYPES = (TYPE_SORTED_SET_LISTPACK, TYPE_SORTED_SET, TYPE_SORTED_SET_TEXT, TYPE_SORTED_SET_ZIPLIST)

cdef enum:
    TEXT_ROOM = 256     # bytes of the text of a score, and its end
    TEXT_NAN = 253      # in place of its length: numbers without digits
    TEXT_INF = 254


@cython.final
cdef class SortedSetLoader(ValueLoader):
    """Reads one sorted set after another from a window."""

    def __init__(self, ValueType type not None, Window window not None, options):
        super().__init__(type, window)
        self.limits = limits_in(options.context)

    cpdef object begin(self, int rdb_type):
        cdef int64_t offset = <int64_t>self.window.position()
        if rdb_type == TYPE_SORTED_SET_LISTPACK:
            self.value = self.read_packed(get_listpack(self.window), offset)
            return None
        if rdb_type == TYPE_SORTED_SET_ZIPLIST:
            self.value = self.read_packed(get_ziplist(self.window), offset)
            return None
        return self.read_pairs(rdb_type)

    # --- A listpack -------------------------------------------------------------------------------------------------

    cdef SortedSet read_packed(self, uint8_t *lp, int64_t offset):
        """A sorted set of a listpack that was read at `offset`, and that it owns."""
        cdef SortedSet set = SortedSet.__new__(SortedSet)
        cdef const char *wrong
        set.packed = lp
        wrong = packed_check(set.packed)
        if packed_count(set.packed) == 0:
            self.window.corrupt("a sorted set", "no member", offset)
        if wrong is not NULL:
            self.window.corrupt("a sorted set", (<bytes>wrong).decode(), offset)
        if lp_has_twins(lp, 2):
            self.window.corrupt("a sorted set", "a member twice", offset)
        if packed_count(set.packed) > self.limits.max_members:
            set.enlarge()
        return set

    # --- Pairs ------------------------------------------------------------------------------------------------------

    def read_pairs(self, int rdb_type):
        """Read pairs into `value`; a generator that stops wherever a step may end."""
        cdef int64_t offset = <int64_t>self.window.position()
        cdef uint64_t left = self.window.get_count()
        cdef SortedSet set = new_sorted_set(True)
        cdef size_t longest = 0
        if left == 0:
            self.window.corrupt("a sorted set", "no member", offset)
        while left:
            left -= 1
            self.read_member(set, rdb_type, &longest)
            if self.window.is_step_over():
                yield
        self.value = self.choose_form(set, longest)

    cdef int read_member(self, SortedSet set, int rdb_type, size_t *longest) except -1:
        cdef int64_t offset = <int64_t>self.window.position()
        cdef bytes member = self.window.get_bytes()
        cdef const uint8_t *s = <const uint8_t *>PyBytes_AS_STRING(member)
        cdef size_t n = <size_t>PyBytes_GET_SIZE(member)
        cdef uint64_t bits
        cdef double score = 0, present
        if rdb_type == TYPE_SORTED_SET:
            bits = self.window.get_le(8)
            memcpy(&score, &bits, sizeof(score))
        else:
            self.read_text_score(&score)
        if isnan(score):
            self.window.corrupt("a score that is a number", "nan", offset)
        if set.find(s, n, &present):
            self.window.corrupt("a sorted set", "a member twice", offset)
        if n > longest[0]:
            longest[0] = n
        return set.add(s, n, score)

    cdef int read_text_score(self, double *score) except -1:
        cdef char text[TEXT_ROOM]
        cdef int64_t offset = <int64_t>self.window.position()
        cdef uint8_t size = self.window.get_byte()
        if size >= TEXT_NAN:
            score[0] = INFINITY if size == TEXT_INF else -INFINITY
            if size == TEXT_NAN:
                self.window.corrupt("a score that is a number", "nan", offset)
            return 0
        self.window.need(size)
        memcpy(text, self.window.at, size)
        text[size] = 0
        self.window.at += size
        if not read_float(text, size, score):
            self.window.corrupt("a score that is a number", "other text", offset)
        return 0

    cdef SortedSet choose_form(self, SortedSet set, size_t longest):
        """The same members, in a listpack if they fit."""
        cdef SortedSet packed
        cdef Walk walk
        cdef Item item
        if set.count() > self.limits.max_members or longest > self.limits.max_bytes:
            return set
        packed = new_sorted_set(False)
        set.seek(0, &walk)
        while set.next(&walk, &item):
            append_to_result(packed, &item, self.limits)
        return packed
