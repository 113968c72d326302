# cython: language_level=3
"""Arguments of requests, read by compiled handlers."""

from streamd.engine.ids cimport StreamID

cdef bint parse_id(bytes text, StreamID *out, unsigned long long missing_seq=*) except -1   # False: not an ID
cdef int require_id(bytes text, StreamID *out, unsigned long long missing_seq=*) except -1  # raises InvalidIDError
cdef bint parse_int64(bytes text, long long *out) noexcept      # canonical decimal form only; False: not an integer
cdef long long require_int64(bytes text) except? -1             # raises NotIntegerError
cpdef long long parse_timeout(bytes text, long long now_ms) except -1    # ms; raises CommandError
cdef bint is_word(bytes text, const char *upper) noexcept       # case-insensitive comparison; `upper` is in upper case
