# cython: language_level=3
"""Entries of a stream as bytes of a reply, with an index. See packed_entries.pyx."""

from libc.stdint cimport uint64_t


cdef struct PackedRow:
    uint64_t ms
    uint64_t seq
    uint64_t end            # where the entry ends in the data; it begins where the one before it ends


cdef struct PackedWords:
    const char *at          # of the next one
    size_t left


cdef inline const char *next_word(PackedWords *words, size_t *length) noexcept nogil:
    """The next field or value of an entry; NULL at the end."""
    cdef const char *word
    if words.left == 0:
        return NULL
    length[0] = read_count(&words.at)
    word = words.at
    words.at += length[0] + 2
    words.left -= 1
    return word


cdef inline size_t read_count(const char **at) noexcept nogil:
    """The number of a header such as `$15`, behind which `at` is afterwards."""
    cdef size_t count = 0
    at[0] += 1
    while at[0][0] != c'\r':
        count = 10 * count + <size_t>(at[0][0] - c'0')
        at[0] += 1
    at[0] += 2
    return count


cdef class PackedEntries:

    cdef readonly bytes index           # of PackedRow
    cdef readonly object data
    cdef readonly Py_ssize_t count
    cdef const PackedRow *rows          # borrowed from `index`
    cdef const char *text               # borrowed from `data`
    cdef Py_buffer view                 # of `data`

    cdef inline size_t begin_of(self, Py_ssize_t at) noexcept:
        return self.rows[at - 1].end if at else 0

    cdef inline const char *text_of(self, Py_ssize_t at) noexcept:
        return self.text + self.begin_of(at)

    cdef inline PackedWords words_of(self, Py_ssize_t at) noexcept:
        """The fields and values of an entry, behind its ID."""
        cdef PackedWords words
        cdef size_t length
        words.at = self.text_of(at) + 4         # `*2`
        words.left = 1
        next_word(&words, &length)
        words.left = read_count(&words.at)
        return words

    cdef inline size_t size_between(self, Py_ssize_t start, Py_ssize_t stop) noexcept:
        return self.begin_of(stop) - self.begin_of(start)
