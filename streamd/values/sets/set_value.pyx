# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""A set, in one of three forms, which follow from its members and the settings as in Redis:

    intset       integers only, and not many
    listpack     few and short members
    hashtable    any others: a table of records that are only a key (engine/table.pyx)

The first two are Redis's bytes, which snapshots copy. A set goes from a form to one further down, never back.

A member is passed as an LpValue: borrowed bytes, or an integer, which stands for its decimal digits. It is invalid
after the next change of the set. Members are added from their bytes: those that are the digits of an integer become one
where the form has integers.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint32_t
from libc.string cimport memcpy, memset

from streamd.engine.listpack cimport (
    LP_COUNT_UNKNOWN, LP_END, LP_HEADER, lp_bytes, lp_get, lp_header_count, lp_validate,
)
from streamd.engine.listpack_edit cimport (
    LP_MAX_BYTES, lp_append, lp_append_int, lp_copy, lp_delete, lp_find, lp_new, lp_place, lp_seek,
)
from streamd.engine.table cimport (
    random_below, table_check, table_clear, table_copy, table_discard, table_find, table_hash, table_init, table_key,
    table_memory, table_next, table_put, table_random, table_reserve,
)
from streamd.heap cimport block_memory, free, freed_aside, malloc
from streamd.numbers cimport count_digits, put_int64, read_int64
from streamd.values.sets.intset cimport (
    INTSET_MOST, intset_bytes, intset_count, intset_find, intset_get, intset_insert, intset_new, intset_remove,
    intset_validate,
)

__all__ = ["Set", "SetRemains"]

cdef enum:
    MARGIN = 32         # bytes for what is not counted exactly in the size of a listpack


@cython.final
@cython.no_gc
cdef class Set:
    """Members in any order."""

    def __dealloc__(self):
        drop_body(self)

    def __len__(self):
        return self.count

    @property
    def encoding(self):
        """As OBJECT ENCODING names the form."""
        return b"intset" if self.form == FORM_INTSET else b"listpack" if self.form == FORM_PACKED else b"hashtable"

    def members(self):
        """All of them, as bytes."""
        cdef SetWalk walk
        cdef LpValue member
        found = []
        memset(&walk, 0, sizeof(walk))
        while set_next(self, &walk, &member):
            found.append(bytes_of(&member))
        return found

    def free_effort(self):
        """About how many blocks there are to free."""
        cdef Table *table
        if self.form != FORM_TABLE or self.body is NULL:
            return 1
        table = <Table *>self.body
        # A block for each long member cannot be told from the number of chunks.
        return table.segments + table.arena.count + (table.count if table.arena.held > 2 * table.arena.total else 0)

    def detach(self):
        """Pass on the table; the set is unusable."""
        cdef SetRemains remains = SetRemains.__new__(SetRemains)
        remains.table = <Table *>self.body
        self.body = NULL
        self.count = 0
        return remains

    def check_invariants(self):
        """That the form is sound, and the members are as many as counted, and different."""
        cdef const char *reason = NULL
        cdef size_t where
        if self.form == FORM_INTSET:
            reason = intset_validate(<uint8_t *>self.body, intset_bytes(<uint8_t *>self.body))
        elif self.form == FORM_PACKED:
            reason = lp_validate(<uint8_t *>self.body, lp_bytes(<uint8_t *>self.body), &where)
        else:
            reason = table_check(<Table *>self.body)
        assert reason is NULL, (<bytes>reason).decode()
        members = self.members()
        assert len(members) == self.count
        assert len(frozenset(members)) == self.count


cdef void drop_body(Set set) noexcept:
    if set.form == FORM_TABLE and set.body is not NULL:
        table_clear(<Table *>set.body)
    free(set.body)
    set.body = NULL


@cython.final
@cython.no_gc
cdef class SetRemains:
    """The table of a large set that is no longer reachable."""

    cdef Table *table       # owned, or NULL

    def __dealloc__(self):
        if self.table is not NULL:
            table_clear(self.table)
            free(self.table)

    def free(self):
        """Free all of it, without the interpreter's lock."""
        cdef Table *table = self.table
        cdef uint64_t size
        self.table = NULL
        if table is NULL:
            return
        with nogil:
            size = table_memory(table)
            table_clear(table)
            free(table)
            freed_aside(size)


# --- Members ----------------------------------------------------------------------------------------------------------


cdef const uint8_t *text_of(const LpValue *member, char *digits, size_t *n) noexcept nogil:
    if member.data is not NULL:
        n[0] = member.length
        return member.data
    n[0] = put_int64(digits, member.number)
    return <const uint8_t *>digits


cdef bytes bytes_of(const LpValue *member):
    cdef char digits[INT64_ROOM]
    cdef size_t n
    cdef const uint8_t *s = text_of(member, digits, &n)
    return PyBytes_FromStringAndSize(<const char *>s, <Py_ssize_t>n)


# --- Making one -------------------------------------------------------------------------------------------------------


cdef Table *new_table(uint64_t expected) except NULL:
    cdef Table *table = <Table *>malloc(sizeof(Table))
    if table is NULL:
        raise MemoryError
    table_init(table, 0)
    if table_reserve(table, expected) < 0:
        free(table)
        raise MemoryError
    return table


cdef Set new_set(SetForm form):
    """An empty set."""
    cdef Set set = Set.__new__(Set)
    set.form = form
    set.body = (
        <void *>intset_new() if form == FORM_INTSET else <void *>lp_new() if form == FORM_PACKED
        else <void *>new_table(0)
    )
    if set.body is NULL:
        raise MemoryError
    return set


cdef Set set_for(const uint8_t *s, size_t n, uint64_t expected, SetLimits limits):
    cdef int64_t number
    if expected <= limits.max_integers and read_int64(<const char *>s, n, &number):
        return new_set(FORM_INTSET)
    return new_set(FORM_PACKED if expected <= limits.max_members else FORM_TABLE)


cdef int set_expect(Set set, uint64_t expected, SetLimits limits) except -1:
    if set.form == FORM_INTSET and expected > limits.max_integers:
        return set_to_table(set, expected)
    if set.form == FORM_PACKED and expected > limits.max_members:
        return set_to_table(set, expected)
    return 0


cdef int set_to_table(Set set, uint64_t expected) except -1:
    """Make it a hash table, with room for so many members."""
    cdef Table *table = new_table(expected if expected > set.count else set.count)
    cdef SetWalk walk
    cdef LpValue member
    cdef char digits[INT64_ROOM]
    cdef const uint8_t *s
    cdef size_t n
    memset(&walk, 0, sizeof(walk))
    while set_next(set, &walk, &member):
        s = text_of(&member, digits, &n)
        if table_put(table, s, n) < 0:
            table_clear(table)
            free(table)
            raise MemoryError
    free(set.body)
    set.body = table
    set.form = FORM_TABLE
    return 0


cdef int intset_to_listpack(Set set) except -1:
    cdef uint8_t *integers = <uint8_t *>set.body
    cdef uint8_t *lp = lp_new()
    cdef uint8_t *moved
    cdef uint32_t at
    if lp is NULL:
        raise MemoryError
    for at in range(intset_count(integers)):
        moved = lp_append_int(lp, intset_get(integers, at))
        if moved is NULL:
            free(lp)
            raise MemoryError
        lp = moved
    free(integers)
    set.body = lp
    set.form = FORM_PACKED
    return 0


cdef Set set_copy(Set set):
    cdef Set copied = Set.__new__(Set)
    cdef Table *table
    copied.form = set.form
    if set.form == FORM_TABLE:
        table = new_table(0)
        if table_copy(table, <Table *>set.body) < 0:
            free(table)
            raise MemoryError
        copied.body = table
    elif set.form == FORM_PACKED:
        copied.body = lp_copy(<uint8_t *>set.body)
    else:
        copied.body = malloc(intset_bytes(<uint8_t *>set.body))
        if copied.body is not NULL:
            memcpy(copied.body, set.body, intset_bytes(<uint8_t *>set.body))
    if copied.body is NULL:
        raise MemoryError
    copied.count = set.count
    return copied


cdef void *set_close(Set set, unsigned char *form) noexcept:
    cdef void *block = set.body
    if set.form == FORM_TABLE or block is NULL:
        return NULL
    if set.form == FORM_PACKED and lp_header_count(<uint8_t *>block) == LP_COUNT_UNKNOWN:
        return NULL
    form[0] = <unsigned char>set.form
    set.body = NULL
    return block


cdef Set set_open(void *block, SetForm form):
    cdef Set set = Set.__new__(Set)
    set.form = form
    set.body = block
    set.count = (
        intset_count(<uint8_t *>block) if form == FORM_INTSET else lp_header_count(<uint8_t *>block)
    )
    return set


cdef uint64_t set_memory(Set set) noexcept:
    if set.body is NULL:
        return 0
    return block_memory(set.body) + (table_memory(<Table *>set.body) if set.form == FORM_TABLE else 0)


# --- One member -------------------------------------------------------------------------------------------------------


cdef bint set_has(Set set, const uint8_t *s, size_t n) noexcept:
    cdef int64_t number
    cdef uint32_t index
    if set.form == FORM_TABLE:
        return table_find(<Table *>set.body, table_hash(s, n), s, n) != 0
    if set.form == FORM_PACKED:
        return lp_find(<uint8_t *>set.body, s, n, 0) is not NULL
    return read_int64(<const char *>s, n, &number) and intset_find(<uint8_t *>set.body, number, &index)


cdef bint set_has_member(Set set, const LpValue *member) noexcept:
    cdef char digits[INT64_ROOM]
    cdef const uint8_t *s
    cdef size_t n
    cdef uint32_t index
    if member.data is NULL and set.form == FORM_INTSET:
        return intset_find(<uint8_t *>set.body, member.number, &index)
    s = text_of(member, digits, &n)
    return set_has(set, s, n)


cdef bint set_put(Set set, const uint8_t *s, size_t n, SetLimits limits) except -1:
    """Add a member if it is not there; the set may change its form."""
    cdef int64_t number
    cdef int added
    if set.form == FORM_INTSET:
        if read_int64(<const char *>s, n, &number):
            return put_integer(set, number, limits)
        if fits_listpack(set, n, limits):
            intset_to_listpack(set)
        else:
            set_to_table(set, set.count + 1)
    if set.form == FORM_PACKED:
        if lp_find(<uint8_t *>set.body, s, n, 0) is not NULL:
            return False
        if set.count < limits.max_members and n <= limits.max_bytes and (
            lp_bytes(<uint8_t *>set.body) + n + MARGIN <= LP_MAX_BYTES
        ):
            take(set, lp_append(<uint8_t *>set.body, s, n))
            set.count += 1
            return True
        set_to_table(set, set.count + 1)
    added = table_put(<Table *>set.body, s, n)
    if added < 0:
        raise MemoryError
    set.count += <uint64_t>added
    return added == 1


cdef inline int take(Set set, uint8_t *body) except -1:
    """What an edit has returned is the new body."""
    if body is NULL:
        raise MemoryError
    set.body = body
    return 0


cdef bint put_integer(Set set, int64_t number, SetLimits limits) except -1:
    """Add an integer to an intset."""
    cdef uint32_t index
    if intset_find(<uint8_t *>set.body, number, &index):
        return False
    take(set, intset_insert(<uint8_t *>set.body, number, index))
    set.count += 1
    if set.count > limits.max_integers or set.count > INTSET_MOST:
        set_to_table(set, set.count)
    return True


cdef bint fits_listpack(Set set, size_t n, SetLimits limits) noexcept:
    """Whether an intset and a string of n bytes make a listpack."""
    cdef uint8_t *p = <uint8_t *>set.body
    cdef uint64_t longest = 0
    if set.count:
        longest = max(width_in_text(intset_get(p, 0)), width_in_text(intset_get(p, <uint32_t>set.count - 1)))
    return (
        set.count < limits.max_members and n <= limits.max_bytes and longest <= limits.max_bytes
        and set.count * 12 + n + MARGIN <= LP_MAX_BYTES
    )


cdef uint64_t width_in_text(int64_t number) noexcept:
    """How many characters an integer has."""
    return count_digits(<uint64_t>number) if number >= 0 else 1 + count_digits(0 - <uint64_t>number)


cdef bint set_put_member(Set set, const LpValue *member, SetLimits limits) except -1:
    cdef char digits[INT64_ROOM]
    cdef const uint8_t *s
    cdef size_t n
    if member.data is NULL and set.form == FORM_INTSET:
        return put_integer(set, member.number, limits)
    s = text_of(member, digits, &n)
    return set_put(set, s, n, limits)


cdef bint set_discard(Set set, const uint8_t *s, size_t n) noexcept:
    cdef uint8_t *p = <uint8_t *>set.body
    cdef const uint8_t *element
    cdef int64_t number
    cdef uint32_t index
    if set.form == FORM_TABLE:
        if not table_discard(<Table *>set.body, s, n):
            return False
    elif set.form == FORM_PACKED:
        element = lp_find(p, s, n, 0)
        if element is NULL:
            return False
        set.body = lp_delete(p, lp_place(p, element), 1)
    else:
        if not read_int64(<const char *>s, n, &number) or not intset_find(p, number, &index):
            return False
        set.body = intset_remove(p, index)
    set.count -= 1
    return True


# --- All members ------------------------------------------------------------------------------------------------------


cdef inline void read_record(const Table *table, uint32_t handle, LpValue *out) noexcept nogil:
    cdef size_t n
    out.data = table_key(table, handle, &n)
    out.length = n


cdef bint set_next(Set set, SetWalk *walk, LpValue *out) noexcept:
    cdef const uint8_t *p = <const uint8_t *>set.body
    cdef uint32_t handle
    if set.form == FORM_TABLE:
        handle = table_next(<Table *>set.body, &walk.table)
        if handle:
            read_record(<Table *>set.body, handle, out)
        return handle != 0
    if set.form == FORM_PACKED:
        if walk.place == 0:
            walk.place = LP_HEADER
        if p[walk.place] == LP_END:
            return False
        walk.place = <uint64_t>(lp_get(p + walk.place, out) - p)
        return True
    if walk.place == intset_count(p):
        return False
    out.data = NULL
    out.number = intset_get(p, <uint32_t>walk.place)
    walk.place += 1
    return True


cdef bint set_random(Set set, LpValue *out) noexcept:
    if set.count == 0:
        return False
    if set.form == FORM_TABLE:
        read_record(<Table *>set.body, table_random(<Table *>set.body), out)
    elif set.form == FORM_PACKED:
        lp_get(lp_seek(<uint8_t *>set.body, <int64_t>random_below(set.count)), out)
    else:
        out.data = NULL
        out.number = intset_get(<uint8_t *>set.body, <uint32_t>random_below(set.count))
    return True
