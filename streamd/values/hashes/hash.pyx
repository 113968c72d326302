# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Hash: the fields of one key and their values, each with an expiry or without one.

Three forms, as in Redis: small hashes are one listpack (pairs.pyx), with room for expiries from the first field on that
gets one; large ones are a hash table (field_table.pyx). A hash changes to a later form only; when, is decided by the
commands (arguments.pyx), which know the settings.

A field whose time has come is still there: commands hide it (`now_ms`) or remove it. What must hold (check_invariants):
the structure of the form does; no field is there twice; `count` is their number; a packed hash is in order of expiry.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memset

from streamd.engine.listpack cimport LP_COUNT_UNKNOWN, LP_HEADER, LpValue, lp_bytes, lp_header_count, lp_validate
from streamd.engine.listpack_edit cimport LP_MAX_BYTES, lp_copy, lp_new
from streamd.engine.table cimport random_below, table_next, table_random
from streamd.heap cimport block_memory, free, freed_aside
from streamd.values.hashes.field_table cimport (
    FieldTable, fields_add, fields_check, fields_copy, fields_due, fields_find, fields_free, fields_memory, fields_new,
    fields_read, fields_remove, fields_set, fields_set_expiry,
)
from streamd.values.hashes.pairs cimport (
    pairs_add, pairs_due, pairs_find, pairs_read, pairs_remove, pairs_set_expiry, pairs_set_value, pairs_with_expiries,
)

__all__ = ["Hash"]

cdef enum:
    ITEM_ROOM = 64             # more bytes than an item takes in a listpack beyond field and value
    BYTES_PER_STEP = 4096      # that are freed together, see `free_effort`


@cython.final
@cython.no_gc
cdef class Hash(TimedValue):
    """The fields and values of one key."""

    def __dealloc__(self):
        free_body(self.body, self.form)

    def __len__(self):
        return <Py_ssize_t>self.count

    # --- Freeing in the background, see LazyFree -------------------------------------------------------------------

    def free_effort(self):
        """About how many blocks there are to free. O(1)."""
        return hash_bytes(self) // BYTES_PER_STEP if self.form == FORM_TABLE else 1

    def detach(self):
        """Hand over the memory; the hash is unusable afterwards. O(1)."""
        cdef HashRemains remains = HashRemains.__new__(HashRemains)
        remains.body, remains.form = self.body, self.form
        self.body = NULL
        self.count = 0
        return remains

    # --- For tests, and where time does not matter -----------------------------------------------------------------

    @property
    def encoding(self):
        """The name of the form, as OBJECT ENCODING reports it."""
        return b"hashtable" if self.form == FORM_TABLE else b"listpackex" if self.form else b"listpack"

    @property
    def due_ms(self):
        """The earliest expiry of a field; -1: none."""
        return hash_due(self)

    def items(self):
        """All fields with value and expiry (-1: none), in the order of the form; also those whose time has come."""
        cdef HashWalk walk
        cdef HashItem item
        cdef list found = []
        memset(&walk, 0, sizeof(walk))
        while hash_next(self, &walk, &item):
            found.append((bytes_of(&item.field), bytes_of(&item.value), item.expire_at_ms))
        return found

    def find(self, bytes name not None):
        """Value and expiry of a field, or None."""
        cdef HashItem item
        return (bytes_of(&item.value), item.expire_at_ms) if hash_find(self, name, &item) else None

    def put(self, bytes name not None, bytes value not None, long long expire_at_ms=NEVER):
        """Add or replace a field, with its expiry; returns whether it is new."""
        cdef HashItem item
        if expire_at_ms != NEVER:
            hash_to_timed(self)
        if hash_find(self, name, &item):
            hash_set(self, &item, text_in(value), expire_at_ms)
            return False
        hash_add(self, text_in(name), text_in(value), expire_at_ms)
        return True

    def expire(self, bytes name not None, long long expire_at_ms):
        """Give a field another expiry (-1: none); whether the field exists."""
        cdef HashItem item
        hash_to_timed(self)
        if not hash_find(self, name, &item):
            return False
        hash_set_expiry(self, &item, expire_at_ms)
        return True

    def remove(self, bytes name not None):
        """Remove a field; whether it was there."""
        cdef HashItem item
        if not hash_find(self, name, &item):
            return False
        hash_remove(self, &item)
        return True

    def to_table(self):
        """Change to the form of a table."""
        hash_to_table(self)

    def copy(self):
        """A hash of the same form that shares nothing with this one."""
        cdef Hash copy = Hash.__new__(Hash)
        if self.form == FORM_TABLE:
            copy.body = fields_copy(<FieldTable *>self.body)
        else:
            copy.body = lp_copy(<uint8_t *>self.body)
        return adopt(copy, copy.body, self.form, self.count)

    def check_invariants(self):
        """Walk everything and assert what must hold."""
        cdef size_t offset
        cdef const char *wrong
        names = [name for name, _, _ in self.items()]
        assert len(names) == len(set(names)) == self.count
        if self.form == FORM_TABLE:
            wrong = fields_check(<FieldTable *>self.body)
        else:
            wrong = lp_validate(<uint8_t *>self.body, lp_bytes(<uint8_t *>self.body), &offset)
            times = [at_ms for _, _, at_ms in self.items()]
            assert times == sorted(times, key=lambda at_ms: (at_ms == NEVER, at_ms)), "the soonest first"
            assert self.form == FORM_PACKED_TIMED or set(times) <= {NEVER}
        assert wrong is NULL, wrong.decode()


@cython.final
@cython.no_gc
cdef class HashRemains:
    """The memory of a hash that is no longer reachable."""

    cdef void *body
    cdef unsigned char form

    def __dealloc__(self):
        free_body(self.body, self.form)

    def free(self):
        """Free it, without the interpreter's lock."""
        cdef void *body = self.body
        cdef unsigned char form = self.form
        cdef uint64_t size = body_bytes(body, form)
        self.body = NULL
        with nogil:
            free_body(body, form)
            freed_aside(size)


cdef void free_body(void *body, unsigned char form) noexcept nogil:
    if body is NULL:
        return
    if form == FORM_TABLE:
        fields_free(<FieldTable *>body)
    else:
        free(body)


cdef Hash adopt(Hash hash, void *body, unsigned char form, uint64_t count):
    """Give an empty object its contents; MemoryError if they are NULL."""
    if body is NULL:
        raise MemoryError("no memory for a hash")
    hash.body = body
    hash.form = form
    hash.count = count
    return hash


cdef Hash new_hash():
    return adopt(Hash.__new__(Hash), lp_new(), FORM_PACKED, 0)


cdef Hash table_hash_of(uint64_t expected):
    return adopt(Hash.__new__(Hash), fields_new(expected), FORM_TABLE, 0)


cdef Hash hash_of_listpack(uint8_t *lp, unsigned int width):
    return adopt(Hash.__new__(Hash), lp, FORM_PACKED if width == 2 else FORM_PACKED_TIMED, 0)


cdef void *hash_close(Hash hash, unsigned char *form) noexcept:
    cdef void *lp = hash.body
    if hash.form == FORM_TABLE or hash.timed_place or lp is NULL \
            or lp_header_count(<uint8_t *>lp) == LP_COUNT_UNKNOWN:
        return NULL
    form[0] = hash.form
    hash.body = NULL
    return lp


cdef Hash hash_open(uint8_t *lp, int form):
    return adopt(Hash.__new__(Hash), lp, <unsigned char>form, lp_header_count(lp) // (2 + form))


cdef uint64_t body_bytes(void *body, unsigned char form) noexcept nogil:
    if body is NULL:
        return 0
    return fields_memory(<FieldTable *>body) if form == FORM_TABLE else block_memory(body)


cdef uint64_t hash_bytes(Hash hash) noexcept:
    return body_bytes(hash.body, hash.form)


# --- Reading ----------------------------------------------------------------------------------------------------------


cdef inline unsigned int width_of(Hash hash) noexcept:
    """Elements of a field in the listpack."""
    return 2 + hash.form


cdef bint hash_find(Hash hash, bytes name, HashItem *out) noexcept:
    cdef const uint8_t *p = <const uint8_t *>PyBytes_AS_STRING(name)
    cdef size_t n = <size_t>PyBytes_GET_SIZE(name)
    if hash.form == FORM_TABLE:
        return fields_find(<FieldTable *>hash.body, p, n, out)
    return pairs_find(<uint8_t *>hash.body, width_of(hash), p, n, out)


cdef bint hash_next(Hash hash, HashWalk *walk, HashItem *out) noexcept:
    cdef uint32_t handle
    if hash.form == FORM_TABLE:
        handle = table_next(&(<FieldTable *>hash.body).table, &walk.table)
        if handle == 0:
            return False
        fields_read(<FieldTable *>hash.body, handle, out)
        return True
    if walk.place == 0:
        walk.place = LP_HEADER
    if not pairs_read(<uint8_t *>hash.body, width_of(hash), walk.place, out):
        return False
    walk.place += out.size
    return True


cdef bint hash_at(Hash hash, uint64_t place, HashItem *out) noexcept:
    if hash.form != FORM_TABLE:
        return pairs_read(<uint8_t *>hash.body, width_of(hash), place, out)
    fields_read(<FieldTable *>hash.body, <uint32_t>place, out)
    return True


cdef bint hash_random(Hash hash, HashItem *out) noexcept:
    cdef uint64_t skipped
    cdef HashWalk walk
    if hash.count == 0:
        return False
    if hash.form == FORM_TABLE:
        fields_read(<FieldTable *>hash.body, table_random(&(<FieldTable *>hash.body).table), out)
        return True
    walk.place = 0
    skipped = random_below(hash.count)
    while hash_next(hash, &walk, out) and skipped:
        skipped -= 1
    return True


cdef int64_t hash_due(Hash hash) noexcept:
    if hash.form == FORM_TABLE:
        return fields_due(<FieldTable *>hash.body)
    return pairs_due(<uint8_t *>hash.body) if hash.form == FORM_PACKED_TIMED else NEVER


cdef bint hash_first_due(Hash hash, HashItem *out) noexcept:
    cdef FieldTable *fields = <FieldTable *>hash.body
    if hash_due(hash) == NEVER:
        return False
    if hash.form == FORM_TABLE:
        fields_read(fields, fields.times[0].handle, out)
        return True
    return pairs_read(<uint8_t *>hash.body, 3, LP_HEADER, out)


# --- Changing ---------------------------------------------------------------------------------------------------------


cdef int no_memory() except -1:
    raise MemoryError("no memory for a hash")


cdef inline int take_packed(Hash hash, uint8_t *lp) except -1:
    """The listpack has become this one, or there was no memory."""
    if lp is NULL:
        return no_memory()
    hash.body = lp
    return 0


cdef inline uint64_t bytes_in(LpValue value) noexcept:
    return 0 if value.data is NULL else value.length


cdef inline bint is_too_large(Hash hash, uint64_t more) noexcept:
    """Whether a listpack has no room for so many bytes more."""
    return lp_bytes(<uint8_t *>hash.body) + more + ITEM_ROOM > <uint64_t>LP_MAX_BYTES


cdef int hash_add(Hash hash, LpValue field, LpValue value, int64_t expire_at_ms) except -1:
    if hash.form != FORM_TABLE and is_too_large(hash, bytes_in(field) + bytes_in(value)):
        hash_to_table(hash)
    if hash.form == FORM_TABLE:
        if fields_add(<FieldTable *>hash.body, field, value, expire_at_ms) < 0:
            return no_memory()
    else:
        take_packed(hash, pairs_add(<uint8_t *>hash.body, width_of(hash), field, value, expire_at_ms))
    hash.count += 1
    return 0


cdef int hash_set(Hash hash, const HashItem *item, LpValue value, int64_t expire_at_ms) except -1:
    cdef HashItem moved
    cdef bytes name
    if hash.form != FORM_TABLE and is_too_large(hash, bytes_in(value)):
        name = bytes_of(&item.field)
        hash_to_table(hash)
        hash_find(hash, name, &moved)
        return hash_set(hash, &moved, value, expire_at_ms)
    if hash.form == FORM_TABLE:
        return no_memory() if fields_set(<FieldTable *>hash.body, item, value, expire_at_ms) < 0 else 0
    take_packed(hash, pairs_set_value(<uint8_t *>hash.body, item, value))
    if item.expire_at_ms != expire_at_ms:
        pairs_read(<uint8_t *>hash.body, 3, item.place, &moved)
        take_packed(hash, pairs_set_expiry(<uint8_t *>hash.body, &moved, expire_at_ms))
    return 0


cdef int hash_set_expiry(Hash hash, const HashItem *item, int64_t expire_at_ms) except -1:
    if hash.form == FORM_TABLE:
        return no_memory() if fields_set_expiry(<FieldTable *>hash.body, item, expire_at_ms) < 0 else 0
    return take_packed(hash, pairs_set_expiry(<uint8_t *>hash.body, item, expire_at_ms))


cdef int hash_remove(Hash hash, const HashItem *item) except -1:
    if hash.form == FORM_TABLE:
        fields_remove(<FieldTable *>hash.body, item)
    else:
        take_packed(hash, pairs_remove(<uint8_t *>hash.body, width_of(hash), item))
    hash.count -= 1
    return 0


# --- Changing the form ------------------------------------------------------------------------------------------------


cdef int hash_to_timed(Hash hash) except -1:
    cdef uint8_t *lp
    if hash.form == FORM_PACKED:
        lp = pairs_with_expiries(<uint8_t *>hash.body)
        if lp is NULL:
            return no_memory()
        free(hash.body)
        hash.body = lp
        hash.form = FORM_PACKED_TIMED
    return 0


cdef int hash_to_table(Hash hash) except -1:
    cdef HashWalk walk
    cdef HashItem item
    cdef FieldTable *fields
    if hash.form == FORM_TABLE:
        return 0
    fields = fields_new(hash.count)
    if fields is NULL:
        return no_memory()
    walk.place = 0
    while hash_next(hash, &walk, &item):
        if fields_add(fields, item.field, item.value, item.expire_at_ms) < 0:
            fields_free(fields)
            return no_memory()
    free(hash.body)
    hash.body = fields
    hash.form = FORM_TABLE
    return 0
