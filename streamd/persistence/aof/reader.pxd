# cython: language_level=3
"""Commands of an append-only file, one by one. See reader.pyx."""

cimport cython


@cython.final
cdef class AofReader:
    cdef object file                    # has readinto(view); read to its end, from `start` on
    cdef readonly bint strict           # refuse what Redis's checker refuses, not only what its server refuses
    cdef readonly long long size        # bytes of the file
    cdef readonly long long whole       # offset after the last complete command or annotation
    cdef readonly long long valid       # the same, but before an open MULTI
    cdef readonly long long commands    # commands read
    cdef readonly long long multi_at    # offset of the open MULTI; -1: none
    cdef readonly long long stamp_s     # the last `#TS:`, Unix seconds; -1: none yet
    cdef list group                     # commands since MULTI; None: no MULTI is open
    cdef list last                      # the last command read; an annotation may belong to it

    # What has been read of the file: buffer[:filled] starts at offset `base`. The next command starts at buffer[start].
    cdef char *buffer                   # owned
    cdef Py_ssize_t capacity
    cdef Py_ssize_t filled
    cdef Py_ssize_t start
    cdef long long base

    cdef Py_ssize_t fill(self, Py_ssize_t wanted) except -1
    cdef Py_ssize_t find_line(self, Py_ssize_t at) except -1
    cdef long long read_number(self, Py_ssize_t at, Py_ssize_t end, bint *canonical) noexcept
    cdef list read(self)
    cdef list read_command(self, Py_ssize_t line_end)
    cdef int read_annotation(self, Py_ssize_t line_end) except -1
    cdef int fail(self, Py_ssize_t at, str expected, bint is_cut=*) except -1
    cdef bytes shown(self, Py_ssize_t at)
    cdef int pass_over(self, Py_ssize_t n) except -1
    cdef int note_group(self, list args) except -1
    cdef int run(self, object apply, list args, object failed) except -1
