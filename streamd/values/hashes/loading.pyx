# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Reading a hash out of an RDB stream.

All that Redis has ever written is read, and checked in full: no field twice, no empty hash, listpacks that are sound
and in order of expiry. The number of fields decides how a hash is stored.
"""

cimport cython
from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint64_t

from streamd.engine.listpack cimport LP_END, LP_HEADER, LpValue, lp_get, lp_skip
from streamd.engine.listpack_edit cimport lp_count
from streamd.engine.listpack_twins cimport lp_has_twins
from streamd.keyspace.value_type cimport ValueType
from streamd.persistence.rdb.codes cimport (
    TYPE_HASH, TYPE_HASH_LISTPACK, TYPE_HASH_LISTPACK_TTL, TYPE_HASH_LISTPACK_TTL_PRERELEASE, TYPE_HASH_TTL,
    TYPE_HASH_TTL_PRERELEASE, TYPE_HASH_ZIPLIST,
)
from streamd.persistence.rdb.listpacks cimport get_listpack
from streamd.persistence.rdb.window cimport Window
from streamd.persistence.rdb.ziplists cimport get_ziplist
from streamd.values.hashes.hash cimport (
    FORM_TABLE, Hash, hash_add, hash_find, hash_of_listpack, hash_to_table, hash_to_timed, new_hash, table_hash_of,
    text_in,
)
from streamd.values.hashes.hash_limits cimport limits_in
from streamd.values.hashes.pairs cimport NEVER, HashItem

from streamd.errors import one_line

__all__ = []

cdef enum:
    MOST_EXPECTED = 1 << 16    # fields that there is room for at once, where the size of the stream is not known


@cython.final
cdef class HashLoader(ValueLoader):
    """Reads hashes."""

    def __init__(self, ValueType type not None, Window window not None, options):
        super().__init__(type, window)
        self.limits = limits_in(options.context)

    cpdef object begin(self, int rdb_type):
        cdef int64_t offset = <int64_t>self.window.position()
        if rdb_type == TYPE_HASH_LISTPACK:
            self.value = self.get_packed(get_listpack(self.window), 2, offset)
        elif rdb_type in (TYPE_HASH_LISTPACK_TTL, TYPE_HASH_LISTPACK_TTL_PRERELEASE):
            if rdb_type == TYPE_HASH_LISTPACK_TTL:
                self.window.get_le(8)      # the earliest expiry, which may be stale
            self.value = self.get_packed(get_listpack(self.window), 3, offset)
        elif rdb_type in (TYPE_HASH, TYPE_HASH_TTL, TYPE_HASH_TTL_PRERELEASE):
            return self.fields(rdb_type)
        elif rdb_type == TYPE_HASH_ZIPLIST:
            self.value = self.get_packed(get_ziplist(self.window), 2, offset)
        else:
            self.value = self.get_zipmap()

    # --- Field by field --------------------------------------------------------------------------------------------

    def fields(self, int rdb_type):
        """Read a number of fields, one after another; stops wherever a step may end."""
        cdef int64_t offset = <int64_t>self.window.position()
        cdef int64_t earliest = 0
        cdef uint64_t left, later = 0
        cdef int64_t expire_at_ms = NEVER
        cdef Hash hash
        if rdb_type == TYPE_HASH_TTL:
            earliest = <int64_t>self.window.get_le(8)
            if earliest < 0:
                self.window.corrupt("a Unix time in ms", str(earliest), offset)
        left = self.window.get_count()
        if left == 0:
            self.window.corrupt("at least one field", "an empty hash", offset)
        hash = self.new_for(left)
        if rdb_type != TYPE_HASH:
            hash_to_timed(hash)
        while left:
            offset = <int64_t>self.window.position()
            if rdb_type != TYPE_HASH:
                later = self.window.get_small(<uint64_t>(INT64_MAX - earliest), "an expiry")
                expire_at_ms = NEVER
                if later:
                    expire_at_ms = earliest + <int64_t>later - (1 if rdb_type == TYPE_HASH_TTL else 0)
            field = self.window.get_bytes()
            self.add(hash, field, self.window.get_bytes(), expire_at_ms, offset)
            left -= 1
            if self.window.is_step_over():
                yield
        self.value = hash

    cdef Hash new_for(self, uint64_t count):
        """A hash that will have so many fields, if the stream is right about it."""
        cdef uint64_t most = MOST_EXPECTED
        if count <= self.limits.max_fields:
            return new_hash()
        if self.window.size >= 0:
            most = (<uint64_t>self.window.size - self.window.position()) // 2
        return table_hash_of(count if count < most else most)

    cdef int add(self, Hash hash, bytes field, bytes value, int64_t expire_at_ms, int64_t offset) except -1:
        cdef HashItem item
        if hash_find(hash, field, &item):
            self.window.corrupt("another field", f"'{one_line(field)}' a second time", offset)
        if hash.form != FORM_TABLE and (
            <uint64_t>len(field) > self.limits.max_bytes or <uint64_t>len(value) > self.limits.max_bytes
        ):
            hash_to_table(hash)
        return hash_add(hash, text_in(field), text_in(value), expire_at_ms)

    cdef Hash get_zipmap(self):
        from streamd.values.hashes.zipmap import read_zipmap

        cdef int64_t offset = <int64_t>self.window.position()
        cdef Hash hash
        cdef bytes data = self.window.get_bytes()
        try:
            found = read_zipmap(data)
        except ValueError as error:
            self.window.corrupt("a zipmap", f"other data: {error}", offset)
        if not found:
            self.window.corrupt("at least one field", "an empty hash", offset)
        hash = self.new_for(<uint64_t>(len(found) // 2))
        for field, value in zip(found[::2], found[1::2]):
            self.add(hash, <bytes>field, <bytes>value, NEVER, offset)
        return hash

    # --- One listpack ----------------------------------------------------------------------------------------------

    cdef Hash get_packed(self, uint8_t *lp, unsigned int width, int64_t offset):
        """A hash of a listpack that was read at `offset`, and that it owns; with expiries if `width` is 3."""
        cdef Hash hash = hash_of_listpack(lp, width)
        self.check_packed(hash, width, offset)
        if hash.count > self.limits.max_fields:
            hash_to_table(hash)
        return hash

    cdef int check_packed(self, Hash hash, unsigned int width, int64_t offset) except -1:
        """Count the fields of a sound listpack; check that none is there twice, and their expiries."""
        cdef const uint8_t *lp = <const uint8_t *>hash.body
        cdef const uint8_t *p = lp + LP_HEADER
        cdef LpValue expiry
        cdef int64_t before = 0
        cdef uint64_t elements = lp_count(lp)
        if elements == 0 or elements % width:
            self.window.corrupt("fields with values", f"{elements} elements", offset)
        hash.count = elements // width
        while width == 3 and p[0] != LP_END:
            p = lp_get(lp_skip(lp_skip(p)), &expiry)
            if expiry.data is not NULL or expiry.number < 0:
                self.window.corrupt("an expiry", "a string, or a time before 1970", offset)
            if before < 0 and expiry.number or 0 < expiry.number < before:
                self.window.corrupt("fields in order of expiry", "a field that expires sooner", offset)
            before = expiry.number if expiry.number else -1
        if lp_has_twins(lp, width):
            self.window.corrupt("different fields", "a field twice", offset)
        return 0
