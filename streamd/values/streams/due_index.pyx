# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""DueIndex: the entries of a stream by the time in one of their fields.

    heap    the earliest first, then by ID; 24 bytes for each entry
    latest  with `unique`, the ID of the last entry by value; some 200 bytes and the value for each

Nothing tells the index what happens to the stream. It reads the entries above the last one that it has seen
(`catch_up`), and looks an entry up when it is due (`find_due`): those that were deleted meanwhile are skipped. So it
follows a stream whatever changes that, and one that was loaded, copied or replaced is read from its beginning, as is
one of which anything here has more than twice as many entries as are left. All in slices: nothing here takes longer
than the caller wants.

The time is a whole number, Unix time in ms, as XADD has got it; anything else is unreadable, and the entry is never
due.

With `unique`, only the last entry that has a value of that field counts; `superseded` has the IDs of those before it,
until they may be deleted.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport INT64_MAX, UINT64_MAX, int64_t, uint8_t, uint64_t

from streamd.core.clock cimport monotonic_us
from streamd.engine.ids cimport StreamID, id_cmp, id_increment, make_id
from streamd.engine.listpack cimport LpValue, lp_equals
from streamd.heap cimport free, realloc
from streamd.values.streams.node cimport StreamCursor, cursor_pair
from streamd.values.streams.stream cimport Stream, cursor_find, cursor_next, cursor_seek

__all__ = ["DueIndex"]

cdef enum:
    STEP = 64                  # entries between two looks at the clock
    SLACK = 1000               # entries of the heap beyond twice those of the stream


cdef inline bint is_before(const Due *a, const Due *b) noexcept nogil:
    return a.at_ms < b.at_ms or (a.at_ms == b.at_ms and id_cmp(a.id, b.id) < 0)


cdef bytes bytes_of(const LpValue *value):
    """An element as bytes, integers as decimal."""
    return b"%d" % value.number if value.data is NULL else value.data[:value.length]


cdef inline bint is_named(const LpValue *field, bytes name) noexcept:
    return lp_equals(field, <const uint8_t *>PyBytes_AS_STRING(name), <size_t>PyBytes_GET_SIZE(name))


@cython.final
cdef class DueIndex:
    """The index of one stream: empty at first, filled by `catch_up`.

    field   the field with the time
    unique  a field of which only the last entry with a value counts; empty: all entries count
    always  whether an entry without a time is due at once; otherwise it never is
    """

    def __init__(self, bytes field not None, bytes unique not None, bint always):
        self.field = field
        self.unique = unique
        self.always = always
        self.latest = {}
        self.superseded = []

    def __dealloc__(self):
        free(self.heap)

    cdef int clear(self) except -1:
        self.stream = None
        free(self.heap)
        self.heap = NULL
        self.count = self.room = 0
        self.unreadable = self.timeless = 0
        self.seen = make_id(0, 0)
        self.latest = {}
        self.superseded = []
        return 0

    # --- Reading the stream -------------------------------------------------------------------------------------------

    cdef bint catch_up(self, Stream stream, long long until_us) except -1:
        """Read the new entries; returns whether that was possible before the monotonic time `until_us`."""
        cdef StreamCursor cursor
        cdef StreamID first
        cdef int steps = 0
        cdef uint64_t most = 2 * stream.length + SLACK
        if (
            stream is not self.stream or id_cmp(stream.last_id, self.seen) < 0 or self.count > most
            or <size_t>len(self.latest) > most or <size_t>len(self.superseded) > most
        ):
            self.clear()
            self.stream = stream
        first = self.seen
        if not id_increment(&first):
            return True
        cursor_seek(stream, &cursor, first, make_id(UINT64_MAX, UINT64_MAX), False)
        while cursor_next(&cursor):
            self.read(&cursor)
            steps += 1
            if steps % STEP == 0 and monotonic_us() >= until_us:
                return False
        if self.count + self.unreadable + self.timeless < stream.length:
            self.clear()           # IDs were set back (XSETID) and used again
            return False
        return True

    cdef int read(self, StreamCursor *cursor) except -1:
        """Take in one entry."""
        cdef Due due
        cdef Timing timing
        self.seen = due.id = cursor.id
        timing = self.look(cursor, &due.at_ms)
        if timing == IS_UNREADABLE:
            self.unreadable += 1
            return 0
        if timing == IS_TIMELESS:
            self.timeless += 1
            return 0
        self.push(due)
        if self.value is not None:
            before = self.latest.get(self.value)
            if before is not None:
                self.superseded.append(before)
            self.latest[self.value] = (due.id.ms, due.id.seq)
        return 0

    cdef Timing look(self, StreamCursor *cursor, int64_t *at_ms) except *:
        """Read the time of an entry, and the value that makes it unique."""
        cdef LpValue field, value
        cdef Timing timing = IS_TIMED if self.always else IS_TIMELESS
        cdef bint has_time = False
        self.value = None
        at_ms[0] = 0
        while cursor.pairs_left:
            cursor_pair(cursor, &field, &value)
            if not has_time and is_named(&field, self.field):
                has_time = True
                timing = IS_TIMED if value.data is NULL else IS_UNREADABLE
                at_ms[0] = value.number
                if not self.unique:
                    break
            elif self.unique and self.value is None and is_named(&field, self.unique):
                self.value = bytes_of(&value)
        return timing

    # --- What is due --------------------------------------------------------------------------------------------------

    cdef bint find_due(self, int64_t now_ms, StreamCursor *cursor, bint *is_superseded) except -1:
        """Go to the next entry that is due, which `take` takes out; False if none is.

        is_superseded  a later entry has the same value of `unique`
        """
        cdef StreamCursor look_ahead
        cdef int64_t at_ms
        while self.count and self.heap[0].at_ms <= now_ms:
            if cursor_find(self.stream, cursor, self.heap[0].id):
                look_ahead = cursor[0]
                if self.look(&look_ahead, &at_ms) == IS_TIMED and at_ms == self.heap[0].at_ms:
                    is_superseded[0] = self.value is not None and not self.is_latest(self.heap[0].id)
                    return True
            self.pop()             # it was deleted, and perhaps another entry has got its ID
        return False

    cdef bint is_replaced(self, StreamID id) except -1:
        """Whether the entry with an ID waits, and a later one has its value of `unique`."""
        cdef StreamCursor cursor
        cdef int64_t at_ms
        return (
            cursor_find(self.stream, &cursor, id) and self.look(&cursor, &at_ms) == IS_TIMED
            and self.value is not None and not self.is_latest(id)
        )

    cdef bint is_latest(self, StreamID id) except -1:
        """Whether no later entry has the value of the one that was looked at."""
        last = self.latest.get(self.value)
        return last is None or last == (id.ms, id.seq)

    cdef int take(self) except -1:
        """Take out the entry that `find_due` has found; it is about to leave the stream."""
        if self.value is not None and self.is_latest(self.heap[0].id):
            self.latest.pop(self.value, None)
        return self.pop()

    cdef int64_t first_ms(self) noexcept nogil:
        """When the first entry is due, Unix time in ms; INT64_MAX: never."""
        return self.heap[0].at_ms if self.count else INT64_MAX

    # --- The heap -----------------------------------------------------------------------------------------------------

    cdef int push(self, Due due) except -1:
        cdef size_t at = self.count, above
        cdef Due *heap
        if self.count == self.room:
            heap = <Due *>realloc(self.heap, (self.room + self.room // 2 + 16) * sizeof(Due))
            if heap is NULL:
                raise MemoryError
            self.heap = heap
            self.room += self.room // 2 + 16
        self.count += 1
        while at:
            above = (at - 1) // 2
            if not is_before(&due, &self.heap[above]):
                break
            self.heap[at] = self.heap[above]
            at = above
        self.heap[at] = due
        return 0

    cdef int pop(self) except -1:
        """Take out the first one, of at least one; a heap that has become small gives memory back."""
        cdef Due last
        cdef size_t at = 0, below
        cdef Due *heap
        self.count -= 1
        last = self.heap[self.count]
        while True:
            below = 2 * at + 1
            if below >= self.count:
                break
            if below + 1 < self.count and is_before(&self.heap[below + 1], &self.heap[below]):
                below += 1
            if not is_before(&self.heap[below], &last):
                break
            self.heap[at] = self.heap[below]
            at = below
        self.heap[at] = last
        if self.count < self.room // 4:
            heap = <Due *>realloc(self.heap, (self.room // 2) * sizeof(Due))
            if heap is not NULL:
                self.heap = heap
                self.room //= 2
        return 0

    def check_invariants(self):
        """Raise AssertionError where the heap is not one."""
        cdef size_t at
        for at in range(1, self.count):
            assert not is_before(&self.heap[at], &self.heap[(at - 1) // 2]), f"the heap at {at}"
        assert self.count <= self.room, "more than there is room for"
