# cython: language_level=3
"""A set: its members. See set_value.pyx."""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint64_t

from streamd.engine.listpack cimport LpValue
from streamd.engine.table cimport Table, TableWalk
from streamd.numbers cimport INT64_ROOM
from streamd.values.sets.set_limits cimport SetLimits


cdef enum SetForm:
    FORM_INTSET                # sorted integers, see intset.pyx
    FORM_PACKED                # a listpack
    FORM_TABLE                 # a hash table


@cython.final
@cython.no_gc
cdef class Set:
    cdef void *body            # an intset, a listpack or a Table, by `form`; owned; NULL: it has been taken away
    cdef readonly uint64_t count       # members
    cdef SetForm form


cdef struct SetWalk:
    # Where a walk over all members is; all zero: at the start. The set must not change during the walk.
    uint64_t place             # index in an intset, offset in a listpack
    TableWalk table


cdef Set new_set(SetForm form)
cdef Set set_for(const uint8_t *s, size_t n, uint64_t expected, SetLimits limits)
    # An empty set for a first member, when so many are about to be added.
cdef int set_expect(Set set, uint64_t expected, SetLimits limits) except -1
    # So many members may be added: make it a hash table if they are too many for its form, even if they are there.
cdef bint set_has(Set set, const uint8_t *s, size_t n) noexcept
cdef bint set_has_member(Set set, const LpValue *member) noexcept
cdef bint set_put(Set set, const uint8_t *s, size_t n, SetLimits limits) except -1     # whether it was added
cdef bint set_put_member(Set set, const LpValue *member, SetLimits limits) except -1
cdef bint set_discard(Set set, const uint8_t *s, size_t n) noexcept                    # whether it was there
cdef bint set_next(Set set, SetWalk *walk, LpValue *out) noexcept      # the next member; False: there is none
cdef bint set_random(Set set, LpValue *out) noexcept   # a member, each as likely as the others; False: it is empty
cdef int set_to_table(Set set, uint64_t expected) except -1
cdef Set set_copy(Set set)
cdef void *set_close(Set set, unsigned char *form) noexcept     # take its one block; NULL: it must stay as it is
cdef Set set_open(void *block, SetForm form)           # the set that it was
cdef uint64_t set_memory(Set set) noexcept             # bytes, without the object itself
cdef const uint8_t *text_of(const LpValue *member, char *digits, size_t *n) noexcept nogil
    # The bytes of a member; digits: room for INT64_ROOM, where those of an integer go.
cdef bytes bytes_of(const LpValue *member)
