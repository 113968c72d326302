# cython: language_level=3, boundscheck=False, wraparound=False
"""The longest common subsequence of two byte strings, 64 positions of the second string at a time.

Let L(i, j) be the length for the first i bytes of `a` and the first j bytes of `b`. From j - 1 to j it grows by 0 or 1,
so a row of the table is kept as bits: bit j - 1 of row i is 0 where L(i, j) = L(i, j - 1) + 1, and 1 where they are
equal. A row follows from the one above it with one addition over its whole width:

    u = row & where[a[i]]               where[c]: the positions of the byte c in b
    next row = (row + u) | (row - u)    carries continue into the next word; u is a subset of row: no borrows

The walk back starts at the ends of both strings: equal bytes belong to the subsequence; otherwise, where bit j - 1 is
0, the row above reaches the same length with the same b, and where it is 1, the last byte of b is not needed. Among
subsequences of the same length it finds the same one as Redis.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memset

from streamd.heap cimport calloc, free, malloc

__all__ = ["common_length", "common_runs"]

cdef enum:
    WORD_BITS = 64

cdef extern from *:
    int count_ones "__builtin_popcountll"(unsigned long long) noexcept nogil


cdef struct Table:
    size_t words            # in a row
    Py_ssize_t kept         # rows kept: all of them, or two used alternately
    uint64_t *rows          # owned
    uint64_t *where         # rows of positions, one for each byte value of `a`; owned
    int row_of[256]         # index of a byte value's row in `where`; -1: not in `a`


cdef int prepare(Table *table, const uint8_t *a, Py_ssize_t a_size, const uint8_t *b, Py_ssize_t b_size,
                 Py_ssize_t kept) except -1:
    """Allocate a table of `kept` rows, the first of which is row 0; raises MemoryError. Always `release` it."""
    cdef Py_ssize_t i
    cdef int values = 0
    cdef int row
    table.words = <size_t>(b_size + WORD_BITS - 1) // WORD_BITS
    table.kept = kept
    memset(table.row_of, 0xff, sizeof(table.row_of))
    for i in range(a_size):
        if table.row_of[a[i]] < 0:
            table.row_of[a[i]] = values
            values += 1
    table.rows = <uint64_t *>malloc(<size_t>kept * table.words * sizeof(uint64_t))
    table.where = <uint64_t *>calloc(<size_t>values * table.words, sizeof(uint64_t))
    if table.rows is NULL or table.where is NULL:
        raise MemoryError("no memory to compare two strings")
    memset(table.rows, 0xff, table.words * sizeof(uint64_t))
    for i in range(b_size):
        row = table.row_of[b[i]]
        if row >= 0:
            table.where[row * table.words + i // WORD_BITS] |= <uint64_t>1 << (i % WORD_BITS)
    return 0


cdef void release(Table *table) noexcept nogil:
    free(table.rows)
    free(table.where)


cdef inline uint64_t *row_at(Table *table, Py_ssize_t i) noexcept nogil:
    return table.rows + <size_t>(i % table.kept) * table.words


cdef void fill(Table *table, const uint8_t *a, Py_ssize_t a_size) noexcept nogil:
    """Compute all rows; row `a_size` is the last."""
    cdef Py_ssize_t i
    cdef size_t w
    cdef const uint64_t *row
    cdef const uint64_t *where
    cdef uint64_t *below
    cdef uint64_t u, added, total, carry
    for i in range(a_size):
        row = row_at(table, i)
        below = row_at(table, i + 1)
        where = table.where + <size_t>table.row_of[a[i]] * table.words
        carry = 0
        for w in range(table.words):
            u = row[w] & where[w]
            added = row[w] + u
            total = added + carry
            carry = (added < u) | (total < added)
            below[w] = total | (row[w] - u)


cdef bint grows_at(const uint64_t *row, Py_ssize_t at) noexcept nogil:
    return not row[at // WORD_BITS] >> (at % WORD_BITS) & 1


def common_length(bytes a not None, bytes b not None):
    """The length of the longest common subsequence. O(len(a) * len(b) / 64) time; raises MemoryError."""
    cdef const uint8_t *text = <const uint8_t *>PyBytes_AS_STRING(a)
    cdef Py_ssize_t a_size = PyBytes_GET_SIZE(a), b_size = PyBytes_GET_SIZE(b)
    cdef Py_ssize_t length = 0
    cdef Table table
    cdef const uint64_t *last
    cdef size_t w
    if not a_size or not b_size:
        return 0
    table.rows = table.where = NULL
    try:
        prepare(&table, text, a_size, <const uint8_t *>PyBytes_AS_STRING(b), b_size, 2)
        fill(&table, text, a_size)
        last = row_at(&table, a_size)
        # Positions past the end of b are not in any `where`: their bits stay 1.
        for w in range(table.words):
            length += count_ones(~last[w])
    finally:
        release(&table)
    return length


def common_runs(bytes a not None, bytes b not None):
    """The longest common subsequence as runs contiguous in both strings, last to first.

    Returns tuples (start in a, start in b, length). O(len(a) * len(b) / 64) time, one bit for each pair of positions.
    Raises MemoryError.
    """
    cdef const uint8_t *text = <const uint8_t *>PyBytes_AS_STRING(a)
    cdef const uint8_t *other = <const uint8_t *>PyBytes_AS_STRING(b)
    cdef Py_ssize_t i = PyBytes_GET_SIZE(a), j = PyBytes_GET_SIZE(b)
    cdef Py_ssize_t run = 0
    cdef list found = []
    cdef Table table
    if not i or not j:
        return found
    table.rows = table.where = NULL
    try:
        prepare(&table, text, i, other, j, i + 1)
        fill(&table, text, i)
        while i and j:
            if text[i - 1] == other[j - 1]:
                i -= 1
                j -= 1
                run += 1
                continue
            if run:
                found.append((i, j, run))
                run = 0
            if grows_at(row_at(&table, i), j - 1):
                i -= 1
            else:
                j -= 1
        if run:
            found.append((i, j, run))
    finally:
        release(&table)
    return found
