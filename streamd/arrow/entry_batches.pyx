# cython: language_level=3, boundscheck=False, wraparound=False
"""Record batches of archived rows, and their entries as elements of a reply (packed_entries.pyx).

No row becomes a Python object.

Always: an EntryBatch keeps the capsules that own the buffers of its batch; an EntryPacker copies out of them.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport UINT64_MAX, int64_t, uint64_t
from libc.string cimport memcpy
from streamd.arrow.memory cimport Bytes, add_bytes, reserve
from streamd.arrow.column_views cimport (
    ArrowArray, ArrowSchema, ListView, View, list_start, look_at, look_at_list, start_of,
)
from streamd.heap cimport free
from streamd.numbers cimport LINE_ROOM, put_header
from streamd.packed_entries cimport PackedEntries, PackedRow

__all__ = ["EntryBatch", "EntryPacker"]

cdef enum:
    ELEMENT_ROOM = LINE_ROOM + 2    # of a string, besides its bytes


@cython.final
cdef class EntryBatch:

    cdef object capsules            # own what the views borrow
    cdef View ids
    cdef ListView fields
    cdef readonly Py_ssize_t rows
    cdef readonly Py_ssize_t nbytes

    def __cinit__(self, batch):
        cdef ArrowSchema *schema
        cdef ArrowArray *array
        self.capsules = batch.__arrow_c_array__()
        self.nbytes = batch.nbytes
        schema = <ArrowSchema *>PyCapsule_GetPointer(self.capsules[0], b"arrow_schema")
        array = <ArrowArray *>PyCapsule_GetPointer(self.capsules[1], b"arrow_array")
        if schema.n_children != 2:
            raise TypeError("a record batch with the columns `id` and `fields` is needed")
        look_at(&self.ids, schema.children[0], array.children[0], array.offset)
        look_at_list(&self.fields, schema.children[1], array.children[1], array.offset)
        self.rows = array.length

    @property
    def last(self):
        cdef uint64_t ms, seq
        self.read_id(self.rows - 1, &ms, &seq)
        return (<object>ms << 64) | seq

    def between(self, low, high):
        return self.rows_below(low), self.rows_below(high + 1)

    cdef Py_ssize_t rows_below(self, number) except -1:
        cdef uint64_t ms, seq, found_ms, found_seq
        cdef Py_ssize_t start = 0, stop = self.rows, middle
        if number >> 128:
            return stop
        ms, seq = number >> 64, number & UINT64_MAX
        while start < stop:
            middle = (start + stop) // 2
            self.read_id(middle, &found_ms, &found_seq)
            if found_ms < ms or (found_ms == ms and found_seq < seq):
                start = middle + 1
            else:
                stop = middle
        return start

    cdef int read_id(self, Py_ssize_t row, uint64_t *ms, uint64_t *seq) except -1:
        cdef const char *text = self.ids.data + start_of(&self.ids, row)
        if not parse_id(text, self.ids.data + start_of(&self.ids, row + 1), ms, seq):
            raise ValueError(f"the archive has an invalid ID in row {row}")
        return 0


cdef bint parse_id(const char *p, const char *stop, uint64_t *ms, uint64_t *seq) noexcept nogil:
    """Read `ms-seq`, which an archiver has written; False when it is anything else."""
    cdef uint64_t *part = ms
    ms[0] = seq[0] = 0
    while p < stop:
        if c'0' <= p[0] <= c'9':
            part[0] = part[0] * 10 + <uint64_t>(p[0] - c'0')
        elif p[0] == c'-' and part is ms:
            part = seq
        else:
            return False
        p += 1
    return part is seq


@cython.final
cdef class EntryPacker:

    cdef Bytes index                # owned, as is the next one
    cdef Bytes data
    cdef readonly Py_ssize_t count

    def __dealloc__(self):
        free(self.index.data)
        free(self.data.data)

    @property
    def size(self):
        return self.data.length

    def id_at(self, Py_ssize_t at):
        cdef const PackedRow *row = <const PackedRow *>self.index.data + at
        return (<object>row.ms << 64) | row.seq

    def size_of(self, Py_ssize_t count):
        return (<const PackedRow *>self.index.data)[count - 1].end if count else 0

    def add(
        self, EntryBatch batch not None, Py_ssize_t start, Py_ssize_t stop, *, bint is_reverse=False,
        size_t most_bytes, Py_ssize_t enough_rows, size_t enough_bytes, size_t least_bytes=0,
    ):
        cdef Py_ssize_t step = -1 if is_reverse else 1
        cdef Py_ssize_t row = stop - 1 if is_reverse else start
        cdef Py_ssize_t added = 0, wanted = stop - start
        cdef uint64_t ms, seq
        cdef int64_t size
        if not 0 <= start <= stop <= batch.rows:
            raise IndexError(f"rows {start} to {stop} of {batch.rows}")
        while added < wanted:
            batch.read_id(row, &ms, &seq)
            size = self.write(batch, row, most_bytes)
            if size < 0:
                raise MemoryError
            if size == 0:
                break
            self.end_row(ms, seq)
            added += 1
            row += step
            if self.data.length >= least_bytes and (self.count >= enough_rows or self.data.length >= enough_bytes):
                break
        return added

    cdef int64_t write(self, EntryBatch batch, Py_ssize_t row, size_t most_bytes) noexcept nogil:
        """Write one behind the others; returns its bytes. 0: all would be more than `most_bytes`; -1: no memory."""
        cdef ListView *fields = &batch.fields
        cdef int64_t first = list_start(fields, row), last = list_start(fields, row + 1), i
        cdef size_t before = self.data.length
        cdef size_t room = 3 * ELEMENT_ROOM + <size_t>(last - first) * 2 * ELEMENT_ROOM
        cdef char *begin
        cdef char *p
        room += <size_t>(start_of(&batch.ids, row + 1) - start_of(&batch.ids, row))
        if last > first:
            room += <size_t>(start_of(&fields.names, last) - start_of(&fields.names, first))
            room += <size_t>(start_of(&fields.values, last) - start_of(&fields.values, first))
        if not reserve(&self.data, room):
            return -1
        begin = p = self.data.data + before
        memcpy(p, b"*2\r\n", 4)
        p = put_cell(p + 4, &batch.ids, row)
        p = put_header(p, c'*', 2 * <uint64_t>(last - first))
        for i in range(first, last):
            p = put_cell(p, &fields.names, i)
            p = put_cell(p, &fields.values, i)
        if before + <size_t>(p - begin) > most_bytes:
            return 0
        self.data.length += p - begin
        return p - begin

    cdef int end_row(self, uint64_t ms, uint64_t seq) except -1:
        cdef PackedRow row
        row.ms, row.seq, row.end = ms, seq, self.data.length
        if not add_bytes(&self.index, <const char *>&row, sizeof(PackedRow)):
            raise MemoryError
        self.count += 1
        return 0

    def add_all(self, EntryPacker other not None, *, bint is_reverse=False):
        cdef const PackedRow *rows = <const PackedRow *>other.index.data
        cdef Py_ssize_t i, at
        cdef size_t begin
        for i in range(other.count):
            at = other.count - 1 - i if is_reverse else i
            begin = rows[at - 1].end if at else 0
            if not add_bytes(&self.data, other.data.data + begin, rows[at].end - begin):
                raise MemoryError
            self.end_row(rows[at].ms, rows[at].seq)

    def packed(self):
        return PackedEntries(
            PyBytes_FromStringAndSize(self.index.data, self.index.length),
            PyBytes_FromStringAndSize(self.data.data, self.data.length),
        )


cdef inline char *put_cell(char *p, View *view, int64_t row) noexcept nogil:
    """Write a string of a column as a bulk string; returns the end."""
    cdef int64_t at = start_of(view, row)
    cdef size_t n = <size_t>(start_of(view, row + 1) - at)
    p = put_header(p, c'$', n)
    memcpy(p, view.data + at, n)
    p += n
    p[0] = c'\r'
    p[1] = c'\n'
    return p + 2
