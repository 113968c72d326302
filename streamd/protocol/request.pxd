# cython: language_level=3
"""Requests: bytes in, argument lists out. Contract in request.pyx."""

cimport cython
from cpython.ref cimport PyObject


cdef PyObject *new_argument(const char *p, Py_ssize_t n) except NULL
    # A bytes object with one reference for the caller; recently seen words are returned as the same object.


@cython.final
@cython.no_gc
cdef class RequestParser:
    cdef public bint authenticated          # False: the lower limits for strangers apply
    cdef public long long max_bulk_len      # proto-max-bulk-len, bytes

    # The input not yet read: input[pos:size]. Its memory belongs to `source` or `buffer`.
    cdef const char *input                  # NULL when nothing is unread
    cdef Py_ssize_t pos
    cdef Py_ssize_t size
    cdef Py_ssize_t scanned                 # bytes from pos already searched for the line end
    cdef bytes source                       # the fed object that `input` points into; None: `buffer`, or memory lent
    cdef char *buffer                       # owned; equal to `input`, or NULL
    cdef Py_ssize_t capacity                # bytes malloc'ed for `buffer`

    # The request being read.
    cdef list args                          # its arguments, the first `filled` are present; None: no request started
    cdef Py_ssize_t filled
    cdef Py_ssize_t missing                 # arguments still missing
    cdef Py_ssize_t args_size               # bytes of the arguments that are present
    cdef Py_ssize_t counted                 # bytes of an unfinished request that count as used memory
    cdef Py_ssize_t bulk_len                # announced length of the argument being read; -1: its header is next
    cdef PyObject *partial                  # a long, partly received argument: a bytes object; owned, or NULL
    cdef Py_ssize_t partial_size            # bytes of it received so far
    cdef Py_ssize_t away                    # bytes of the argument being read that are collected elsewhere

    cpdef int feed(self, bytes data) except -1
    cdef int feed_in_place(self, const char *p, Py_ssize_t n) except -1     # until `leave`, p must stay as it is
    cdef int leave(self) except -1          # the memory of feed_in_place is needed for something else
    cdef Py_ssize_t place(self, char **place) except -1     # for more of a long argument; 0: it is fed as all input is
    cdef bint awaits(self, Py_ssize_t n, Py_ssize_t received) noexcept      # an argument that is collected elsewhere
    cdef void adopt(self, bytes arg) noexcept       # it is complete, but for its line end
    cpdef list next_request(self)           # list[bytes]; [] for an empty request; None: more bytes are needed
    cpdef bytes drain(self)                 # the input that did not become a request; the parser is empty again
    cdef Py_ssize_t memory(self) noexcept   # bytes held, roughly
    cdef Py_ssize_t unread(self) noexcept   # bytes of input that have not become arguments

    cdef int keep(self) except -1
    cdef int append(self, const char *p, Py_ssize_t n) except -1
    cdef void count(self, Py_ssize_t size) noexcept
    cdef void drop_input(self) noexcept
    cdef void reset(self) noexcept
    cdef int fail(self, str text) except -1
    cdef Py_ssize_t find(self, char wanted, bint stops_at_nul, str too_big) except -2
    cdef Py_ssize_t find_line_end(self, bint stops_at_nul, str too_big) except -2
    cdef int read_count(self) except -1
    cdef bint read_bulk_len(self) except -1
    cdef bint read_partial(self) except -1
    cdef int widen(self, Py_ssize_t more) except -1
    cdef int read_plain_arguments(self) except -1
    cdef int add(self, PyObject *arg) except -1
    cdef list read_inline(self)
    cdef list finish(self)
